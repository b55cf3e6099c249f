//! Tests of fast-ingest batches, with a client over plain sockets. The reply subject of each message gives
//! the message's role in its batch.

use serde_json::{Value, json};

use super::raw::Raw;
use super::server::Server;

struct Batch<'a> {
    raw: &'a mut Raw,
    id: &'a str,
    /// The greatest number of messages that one acknowledgement covers.
    flow: u16,
    gap: &'a str,
}

impl Batch<'_> {
    /// Sends message `seq` with the operation `op`: 0 starts the batch, 1 continues it, 2 ends it with this
    /// message, 3 ends it before this message, 4 asks for an answer.
    fn send(&mut self, seq: u64, op: u8) {
        let (id, flow, gap) = (self.id, self.flow, self.gap);
        let reply = format!("fi.{id}.{flow}.{gap}.{seq}.{op}.$FI");
        let payload = format!("{id} {seq}");
        self.raw.publish("f.a", &reply, payload.as_bytes()).unwrap();
    }

    fn answer(&mut self) -> Value {
        self.raw.message().unwrap().json()
    }

    /// Reads the next answer of the server that is not a flow acknowledgement.
    fn verdict(&mut self) -> Value {
        loop {
            let answer = self.answer();
            if answer["type"] != json!("ack") {
                return answer;
            }
        }
    }
}

fn stream(raw: &mut Raw) {
    let config = json!({"name": "F", "subjects": ["f.>"], "allow_batched": true});
    let made = raw.api("STREAM.CREATE.F", &config);
    assert_eq!(made.get("error"), None, "{made}");
}

fn messages(raw: &mut Raw) -> Value {
    raw.api("STREAM.INFO.F", &json!({}))["state"]["messages"].take()
}

#[test]
fn a_batch_is_acknowledged_as_it_is_stored_and_counted_at_its_end() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw);
    let last = 2000;
    let mut batch = Batch {
        raw: &mut raw,
        id: "whole",
        flow: 50,
        gap: "fail",
    };
    batch.send(1, 0);
    let start = batch.answer();
    assert_eq!(start["seq"], json!(0), "the start is answered: {start}");
    let (mut acked, mut every, mut sent) = (0, start["msgs"].as_u64().unwrap(), 1);
    let end = loop {
        // As real clients do, the loop keeps at most as many messages in flight as two acknowledgements
        // cover.
        while sent < last && sent < acked + 2 * every {
            sent += 1;
            batch.send(sent, if sent == last { 2 } else { 1 });
        }
        let answer = batch.answer();
        if answer["type"] != json!("ack") {
            break answer;
        }
        let seq = answer["seq"].as_u64().unwrap();
        assert!(
            acked <= seq && seq <= sent,
            "{answer} after {acked}, {sent} sent"
        );
        acked = seq;
        every = answer["msgs"].as_u64().unwrap();
        assert!((1..=50).contains(&every), "{answer}");
    };
    assert_eq!(
        end,
        json!({"stream": "F", "seq": last, "batch": "whole", "count": last})
    );
    assert_eq!(messages(&mut raw), json!(last));
    let got = raw.api("STREAM.MSG.GET.F", &json!({"seq": 1234}));
    // The data is "whole 1234" in base64.
    assert_eq!(got["message"]["data"], json!("d2hvbGUgMTIzNA=="));
}

#[test]
fn a_gap_is_told_and_ends_the_batch_that_wants_none() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw);
    let told = json!({"type": "gap", "last_seq": 3, "seq": 5});
    for (gap, count, stored) in [("fail", 2, 2), ("ok", 6, 6)] {
        let mut batch = Batch {
            raw: &mut raw,
            id: gap,
            flow: 10,
            gap,
        };
        batch.send(1, 0);
        batch.send(2, 1);
        batch.send(5, 1);
        assert_eq!(batch.verdict(), told);
        if gap == "ok" {
            batch.send(6, 2);
        }
        let end = batch.verdict();
        assert_eq!((&end["batch"], &end["count"]), (&json!(gap), &json!(count)));
        assert_eq!(messages(&mut raw), json!(stored), "{gap}");
    }
}

#[test]
fn malformed_batches_are_refused() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    stream(&mut raw);
    let long = "x".repeat(65);
    for (id, gap, seq, op, code) in [
        ("unknown", "ok", 5, 1, 10208),
        (&*long, "ok", 1, 0, 10207),
        ("pattern", "maybe", 1, 0, 10206),
        ("late", "ok", 2, 0, 10206),
        ("empty", "ok", 1, 3, 10206),
    ] {
        let mut batch = Batch {
            raw: &mut raw,
            id,
            flow: 10,
            gap,
        };
        batch.send(seq, op);
        assert_eq!(batch.answer()["error"]["err_code"], json!(code), "{id}");
    }
    let config = json!({"name": "F", "subjects": ["f.>"], "allow_batched": false});
    raw.api("STREAM.UPDATE.F", &config);
    let mut batch = Batch {
        raw: &mut raw,
        id: "off",
        flow: 10,
        gap: "ok",
    };
    batch.send(1, 0);
    assert_eq!(batch.answer()["error"]["err_code"], json!(10205));
    assert_eq!(messages(&mut raw), json!(0));
}
