//! Tests of consumers with the ack policy `flow_control`, and of sources and mirrors that read by them, with
//! a client over plain sockets.

use serde_json::{Value, json};

use super::origins::{comes_to, get, has, publish, stream};
use super::raw::{Raw, Received};
use super::server::{Server, other};

/// Creates or changes a consumer with the ack policy `flow_control` and the further settings `more`. Returns
/// the number of the error, or 0.
pub(super) fn consumer(raw: &mut Raw, stream: &str, name: &str, more: Value) -> u64 {
    let mut config =
        json!({"durable_name": name, "ack_policy": "flow_control", "deliver_subject": "d"});
    let fields = config.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    fields.retain(|_, value| !value.is_null());
    let body = json!({"stream_name": stream, "config": config});
    let answer = raw.api(&format!("CONSUMER.CREATE.{stream}.{name}"), &body);
    answer["error"]["err_code"].as_u64().unwrap_or(0)
}

/// Returns a source that names this consumer of the stream.
pub(super) fn by(stream: &str, consumer: &str) -> Value {
    json!({"name": stream, "consumer": {"name": consumer, "deliver_subject": "d"}})
}

/// Returns a client that listens to the deliver subject.
fn listener(server: &Server) -> Raw {
    let mut listener = Raw::connect(&server.url).unwrap();
    listener.send(b"SUB d 9\r\n").unwrap();
    listener
}

/// Reads deliveries until the consumer asks for an answer by flow control. Returns the sequences of the
/// messages, and the request.
fn asked(listener: &mut Raw) -> (Vec<u64>, Received) {
    let mut seqs = Vec::new();
    loop {
        let message = listener.message().unwrap();
        if message
            .headers()
            .starts_with("NATS/1.0 100 FlowControl Request")
        {
            return (seqs, message);
        }
        if message.reply.is_some() {
            let reply = message.reply.as_deref().unwrap();
            let words: Vec<&str> = reply.split('.').collect();
            seqs.push(words[words.len() - 4].parse().unwrap());
        }
    }
}

fn answer(listener: &mut Raw, request: &Received, consumer_seq: u64, stream_seq: u64) {
    let to = request.reply.as_deref().unwrap();
    let headers = [
        &*format!("Nats-Last-Consumer: {consumer_seq}"),
        &*format!("Nats-Last-Stream: {stream_seq}"),
    ];
    listener.publish_with(to, "", &headers);
}

#[test]
fn answers_to_flow_control_acknowledge() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let queue = json!({"name": "Q", "subjects": ["q"], "retention": "workqueue"});
    assert_eq!(stream(&mut raw, "CREATE", &queue), 0);
    for (code, more) in [
        (10218, json!({"deliver_subject": null})),
        (10220, json!({"max_ack_pending": -1})),
        (10221, json!({"ack_wait": 1_000_000_000})),
        (10222, json!({"max_deliver": 2})),
        (10101, json!({"deliver_policy": "new"})),
    ] {
        assert_eq!(consumer(&mut raw, "Q", "C", more.clone()), code, "{more}");
    }
    assert_eq!(
        consumer(&mut raw, "Q", "C", json!({"max_ack_pending": 3})),
        0
    );
    let info = raw.api("CONSUMER.INFO.Q.C", &json!({}));
    let config = &info["config"];
    assert_eq!(config["flow_control"], true, "{info}");
    assert_eq!(config["idle_heartbeat"], 1_000_000_000_u64);
    assert_eq!(config.get("ack_wait"), None);
    assert_eq!(config["metadata"]["_nats.req.level"], "4");
    publish(&mut raw, "q", 5);
    let mut listener = listener(&server);
    let (seqs, request) = asked(&mut listener);
    assert_eq!(seqs, [1, 2, 3]);
    // An acknowledgement of a single message has no effect.
    raw.send(b"PUB $JS.ACK.Q.C.1.3.3.0.0 0\r\n\r\n").unwrap();
    answer(&mut listener, &request, 2, 2);
    comes_to(&mut raw, "Q", has(3, 5));
    // Message 3 awaits an acknowledgement, so two more messages fit.
    let (seqs, request) = asked(&mut listener);
    assert_eq!(seqs, [4, 5]);
    let info = raw.api("CONSUMER.INFO.Q.C", &json!({}));
    assert_eq!(info["num_ack_pending"], 3, "{info}");
    assert_eq!(info["ack_floor"]["stream_seq"], 2, "{info}");
    answer(&mut listener, &request, 4, 4);
    comes_to(&mut raw, "Q", has(1, 5));
    // A crash does not redeliver: the consumer asks with a heartbeat about the messages that it has sent
    // before.
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    let mut listener = self::listener(&server);
    let (seqs, request) = asked(&mut listener);
    assert!(seqs.is_empty(), "{seqs:?}");
    let answered = raw.api("CONSUMER.RESET.Q.C", &Value::Null);
    assert_eq!(answered["reset_seq"], 5, "{answered}");
    answer(&mut listener, &request, 0, 0);
    let (seqs, _) = asked(&mut listener);
    assert_eq!(seqs, [5]);
}

#[test]
fn a_source_reads_a_work_queue_by_its_only_consumer() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let sourced = json!({"name": "A", "sources": [by("Q", "C")]});
    assert_eq!(stream(&mut raw, "CREATE", &sourced), 0);
    let error = |code: u64| move |info: &Value| info["sources"][0]["error"]["err_code"] == code;
    comes_to(&mut raw, "A", error(10059));
    let queue = json!({"name": "Q", "subjects": ["q.>"], "retention": "workqueue"});
    assert_eq!(stream(&mut raw, "CREATE", &queue), 0);
    publish(&mut raw, "q.a", 20);
    if other().is_none() {
        comes_to(&mut raw, "A", error(10014));
    }
    assert_eq!(
        consumer(&mut raw, "Q", "C", json!({"max_ack_pending": 7})),
        0
    );
    publish(&mut raw, "q.b", 30);
    comes_to(&mut raw, "A", has(50, 50));
    comes_to(&mut raw, "Q", has(0, 50));
    let info = raw.api("CONSUMER.INFO.Q.C", &json!({}));
    assert_eq!(info["ack_floor"]["stream_seq"], 50, "{info}");
    assert_eq!(
        (&info["num_pending"], &info["num_ack_pending"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(info["push_bound"], true, "{info}");
    let server = server.restart();
    let mut raw = Raw::connect(&server.url).unwrap();
    publish(&mut raw, "q.a", 10);
    comes_to(&mut raw, "A", has(60, 60));
    comes_to(&mut raw, "Q", has(0, 60));
    // A reset brings no message twice, and a paused consumer gives none.
    let until = json!({"pause_until": "2100-01-01T00:00:00Z"});
    raw.api("CONSUMER.PAUSE.Q.C", &until);
    raw.api("CONSUMER.RESET.Q.C", &json!({"seq": 1}));
    publish(&mut raw, "q.a", 5);
    let behind = |info: &Value| info["sources"][0]["lag"] == 5;
    comes_to(&mut raw, "A", |info| behind(info) && has(60, 60)(info));
    raw.api("CONSUMER.PAUSE.Q.C", &json!({}));
    comes_to(&mut raw, "A", has(65, 65));
    comes_to(&mut raw, "Q", has(0, 65));
}

#[test]
fn the_consumer_chooses_what_a_mirror_and_a_source_take_in() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let origin = json!({"name": "O", "subjects": ["o.>"]});
    assert_eq!(stream(&mut raw, "CREATE", &origin), 0);
    for _ in 0..4 {
        publish(&mut raw, "o.a", 1);
        publish(&mut raw, "o.b", 1);
    }
    let start =
        json!({"deliver_policy": "by_start_sequence", "opt_start_seq": 3, "filter_subject": "o.a"});
    assert_eq!(consumer(&mut raw, "O", "M", start), 0);
    let last = json!({"deliver_policy": "last_per_subject", "filter_subject": "o.>", "headers_only": true});
    assert_eq!(consumer(&mut raw, "O", "S", last), 0);
    let mirror = json!({"name": "M", "mirror": by("O", "M")});
    assert_eq!(stream(&mut raw, "CREATE", &mirror), 0);
    comes_to(&mut raw, "M", has(3, 7));
    assert_eq!(get(&mut raw, "M", 5), get(&mut raw, "O", 5));
    let sourced = json!({"name": "S", "sources": [by("O", "S")]});
    assert_eq!(stream(&mut raw, "CREATE", &sourced), 0);
    comes_to(&mut raw, "S", has(2, 2));
    publish(&mut raw, "o.c", 1);
    comes_to(&mut raw, "S", has(3, 3));
    let message = get(&mut raw, "S", 3);
    assert_eq!(
        (&message["subject"], message.get("data")),
        (&json!("o.c"), None),
        "{message}"
    );
    // The configuration of a source cannot choose too, and two sources cannot share a consumer.
    let mut begins = by("O", "S");
    begins["opt_start_seq"] = 2.into();
    let mut filters = by("O", "S");
    filters["filter_subject"] = "o.a".into();
    let mut transforms = by("O", "S");
    transforms["subject_transforms"] = json!([{"src": "o.a", "dest": "x"}]);
    for (code, sources) in [
        (10215, json!([begins])),
        (10215, json!([filters])),
        (10216, json!([by("O", "S"), transforms])),
        (10140, json!([by("O", "S"), by("O", "S")])),
    ] {
        let config = json!({"name": "X", "sources": sources});
        assert_eq!(stream(&mut raw, "CREATE", &config), code, "{config}");
    }
    assert_eq!(
        stream(&mut raw, "CREATE", &json!({"name": "X", "mirror": begins})),
        10213
    );
    let explicit =
        json!({"stream_name": "O", "config": {"durable_name": "E", "ack_policy": "explicit"}});
    raw.api("CONSUMER.CREATE.O.E", &explicit);
    for (stream_name, field, code) in [("Y", "sources", 10217), ("Z", "mirror", 10214)] {
        let mut config = json!({"name": stream_name});
        config[field] = match field {
            "mirror" => by("O", "E"),
            _ => json!([by("O", "E")]),
        };
        assert_eq!(stream(&mut raw, "CREATE", &config), 0);
        comes_to(&mut raw, stream_name, |info| {
            let state = if field == "mirror" {
                &info["mirror"]
            } else {
                &info["sources"][0]
            };
            state["error"]["err_code"] == code
        });
    }
}
