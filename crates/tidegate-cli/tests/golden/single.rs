//! The golden fixture of a server without a cluster: its data directory, with streams of each kind,
//! consumers, a key-value bucket and batches. The recording killed the server once, and stopped it in order
//! at the end.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::listing::listing;
use super::program::{Program, today};
use super::raw::Raw;
use super::{VERSIONS, fixtures, image};

/// An age limit in nanoseconds that no message of the fixture reaches.
const CENTURY: i64 = 100 * 365 * 24 * 3600 * 1_000_000_000;

fn good(answer: &Value) {
    assert!(answer.get("error").is_none(), "{answer}");
}

fn create(raw: &mut Raw, name: &str, config: Value) {
    let mut all = json!({"name": name, "num_replicas": 1});
    let (all_fields, config) = (all.as_object_mut().unwrap(), config.as_object().unwrap());
    all_fields.extend(config.clone());
    good(&raw.api(&format!("STREAM.CREATE.{name}"), &all));
}

/// Publishes a message, and returns the stream's acknowledgement.
fn publish(raw: &mut Raw, subject: &str, headers: &[&str], payload: &str) -> Value {
    let inbox = raw.inbox.clone();
    let head: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
    let head = format!("NATS/1.0\r\n{head}\r\n");
    let (len, all) = (head.len(), head.len() + payload.len());
    let line = format!("HPUB {subject} {inbox}puback {len} {all}\r\n{head}{payload}\r\n");
    raw.send(line.as_bytes()).unwrap();
    raw.message().unwrap().json()
}

fn consumer(raw: &mut Raw, stream: &str, name: &str, config: Value) {
    let mut all = json!({"durable_name": name, "ack_policy": "explicit", "ack_wait": CENTURY});
    let config = config.as_object().unwrap().clone();
    all.as_object_mut().unwrap().extend(config);
    let ask = json!({"stream_name": stream, "config": all});
    good(&raw.api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), &ask));
}

/// Pulls as many messages as there are `answers`, and sends each message its answer, such as an
/// acknowledgement.
fn pull(raw: &mut Raw, stream: &str, name: &str, answers: &[&str]) {
    let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
    let batch = json!({"batch": answers.len(), "expires": 20_000_000_000_u64});
    raw.publish(&subject, "pull", batch.to_string().as_bytes())
        .unwrap();
    let messages: Vec<_> = answers.iter().map(|_| raw.delivered().unwrap().1).collect();
    for (message, answer) in messages.iter().zip(answers) {
        if !answer.is_empty() {
            let reply = message.reply.as_ref().unwrap();
            raw.publish(reply, "acked", answer.as_bytes()).unwrap();
            raw.message().unwrap();
        }
    }
}

fn begin(raw: &mut Raw) {
    create(
        raw,
        "ORDERS",
        json!({
            "subjects": ["orders.>"], "allow_msg_ttl": true, "allow_rollup_hdrs": true, "allow_direct": true,
            "allow_atomic": true, "allow_batched": true, "duplicate_window": CENTURY,
            "metadata": {"team": "tide"}, "description": "one of each kind of message",
        }),
    );
    for n in 1..=6 {
        let id = format!("Nats-Msg-Id: id-{n}");
        good(&publish(
            raw,
            &format!("orders.new.{n}"),
            &[&id],
            &format!("order {n}"),
        ));
    }
    let sealed = "Nats-Expected-Stream: ORDERS";
    good(&publish(
        raw,
        "orders.new.7",
        &[sealed, "Nats-Expected-Last-Sequence: 6"],
        "checked",
    ));
    good(&publish(
        raw,
        "orders.kept",
        &["Nats-TTL: never"],
        "for ever",
    ));
    good(&publish(
        raw,
        "orders.kept",
        &["Nats-TTL: 876000h"],
        "for a century",
    ));
    good(&publish(
        raw,
        "orders.state",
        &["Nats-Rollup: sub"],
        "replaces",
    ));
    assert!(publish(raw, "orders.new.2", &["Nats-Msg-Id: id-2"], "again")["duplicate"] == true);
    for n in 1..=3 {
        let (seq, batch) = (format!("Nats-Batch-Sequence: {n}"), "Nats-Batch-Id: b1");
        let mut headers = vec![batch, &*seq];
        if n == 3 {
            headers.push("Nats-Batch-Commit: 1");
            good(&publish(raw, "orders.batch", &headers, "batch 3"));
            continue;
        }
        let head: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
        let head = format!("NATS/1.0\r\n{head}\r\n");
        let (len, payload) = (head.len(), format!("batch {n}"));
        let line = format!(
            "HPUB orders.batch {len} {}\r\n{head}{payload}\r\n",
            len + payload.len()
        );
        raw.send(line.as_bytes()).unwrap();
    }
    for (seq, erase) in [(3, true), (4, false)] {
        let ask = json!({"seq": seq, "no_erase": !erase});
        good(&raw.api("STREAM.MSG.DELETE.ORDERS", &ask));
    }
    good(&raw.api("STREAM.PURGE.ORDERS", &json!({"filter": "orders.new.5"})));
    create(
        raw,
        "WORK",
        json!({"subjects": ["work.*"], "max_consumers": 3}),
    );
    create(
        raw,
        "INTEREST",
        json!({"subjects": ["interest"], "max_consumers": 3}),
    );
    create(
        raw,
        "NEWEST",
        json!({"subjects": ["newest.*"], "max_msgs_per_subject": 2, "discard": "new", "max_msgs": 5, "first_seq": 100}),
    );
    create(
        raw,
        "MEMORY",
        json!({"subjects": ["memory"], "storage": "memory"}),
    );
    create(raw, "SEALED", json!({"subjects": ["sealed"]}));
    create(raw, "GONE", json!({"subjects": ["gone"]}));
    create(
        raw,
        "KV_TIDES",
        json!({
            "subjects": ["$KV.TIDES.>"], "max_msgs_per_subject": 3, "allow_rollup_hdrs": true, "deny_delete": true,
            "allow_direct": true, "discard": "new", "allow_msg_ttl": true, "subject_delete_marker_ttl": 3_600_000_000_000_u64,
        }),
    );
    consumer(raw, "WORK", "worker", json!({}));
    consumer(
        raw,
        "INTEREST",
        "listener",
        json!({"deliver_subject": "deliver.here", "ack_policy": "all"}),
    );
    for n in 1..=5 {
        good(&publish(
            raw,
            &format!("work.{n}"),
            &[],
            &format!("job {n}"),
        ));
        good(&publish(raw, "interest", &[], &format!("news {n}")));
        good(&publish(
            raw,
            &format!("newest.{n}"),
            &[],
            &format!("value {n}"),
        ));
    }
    good(&publish(raw, "memory", &[], "not kept"));
    good(&publish(raw, "sealed", &[], "the last"));
    good(&publish(raw, "gone", &[], "gone"));
    let sealed =
        json!({"name": "SEALED", "subjects": ["sealed"], "num_replicas": 1, "sealed": true});
    good(&raw.api("STREAM.UPDATE.SEALED", &sealed));
    good(&raw.api("STREAM.DELETE.GONE", &json!({})));
    for (key, value) in [
        ("high", "4.1"),
        ("low", "0.9"),
        ("high", "4.3"),
        ("spring", "5.0"),
    ] {
        good(&publish(raw, &format!("$KV.TIDES.{key}"), &[], value));
    }
    good(&publish(raw, "$KV.TIDES.low", &["KV-Operation: DEL"], ""));
    let purge = ["KV-Operation: PURGE", "Nats-Rollup: sub"];
    good(&publish(raw, "$KV.TIDES.spring", &purge, ""));
    consumer(
        raw,
        "ORDERS",
        "all",
        json!({"max_deliver": 9, "backoff": [CENTURY, CENTURY]}),
    );
    consumer(
        raw,
        "ORDERS",
        "late",
        json!({"deliver_policy": "last_per_subject", "filter_subject": "orders.>"}),
    );
    consumer(
        raw,
        "ORDERS",
        "paused",
        json!({"pause_until": "2100-01-01T00:00:00Z"}),
    );
    consumer(
        raw,
        "ORDERS",
        "reset",
        json!({"filter_subjects": ["orders.new.*", "orders.kept"]}),
    );
    consumer(raw, "ORDERS", "deleted", json!({}));
    pull(raw, "ORDERS", "all", &["+ACK", "", "+ACK", "+TERM", ""]);
    pull(raw, "ORDERS", "late", &["", "+ACK"]);
    pull(raw, "ORDERS", "reset", &["+ACK", "+ACK", "+ACK"]);
    pull(raw, "WORK", "worker", &["+ACK", "", "+ACK"]);
    good(&raw.api("CONSUMER.RESET.ORDERS.reset", &json!({"seq": 2})));
    good(&raw.api("CONSUMER.DELETE.ORDERS.deleted", &json!({})));
}

/// Writes the second part of the session, after the crash.
fn go_on(raw: &mut Raw) {
    pull(raw, "ORDERS", "reset", &["+ACK", ""]);
    good(&publish(
        raw,
        "orders.new.8",
        &["Nats-Msg-Id: id-8"],
        "after a crash",
    ));
    let config = json!({"name": "WORK", "subjects": ["work.*", "play.*"], "max_consumers": 3, "num_replicas": 1});
    good(&raw.api("STREAM.UPDATE.WORK", &config));
    good(&publish(raw, "play.1", &[], "a subject of later"));
    good(&raw.api("STREAM.PURGE.NEWEST", &json!({"keep": 3})));
}

/// Records the data directory that this program writes in the session.
pub(crate) fn record(program: &Path, to: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let (server, url) = Program::serve(program, &data);
    begin(&mut Raw::connect(&url).unwrap());
    server.kill();
    let (server, url) = Program::serve(program, &data);
    go_on(&mut Raw::connect(&url).unwrap());
    server.stop();
    // The streams in memory are empty after the end of the server, so the listing comes from a further start.
    let copy = directory.path().join("copy");
    image::copy(&data, &copy);
    let how = "The data directory of a server on its own, written by begin() and go_on() in tests/golden/single.rs.";
    image::keep(&data, &to.join("data"), how);
    let (server, url) = Program::serve(program, &copy);
    fs::write(to.join("listing.txt"), listing(&url)).unwrap();
    server.stop();
}

#[test]
fn a_server_goes_on_with_the_directory_of_each_version() {
    for version in VERSIONS {
        let from = fixtures(version).join("single");
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        image::restore(&from.join("data"), &data);
        let kept = fs::read_to_string(from.join("listing.txt")).unwrap();
        let (server, url) = Program::serve(today(), &data);
        assert_eq!(listing(&url), kept, "{version}");
        let raw = &mut Raw::connect(&url).unwrap();
        // The server must remember message ids, and a sealed stream must stay sealed.
        assert!(publish(raw, "orders.new.1", &["Nats-Msg-Id: id-1"], "again")["duplicate"] == true);
        assert_eq!(
            publish(raw, "sealed", &[], "more")["error"]["err_code"],
            10109
        );
        // Sequences, consumers and buckets must continue where they stopped.
        let acked = publish(raw, "work.6", &[], "job 6");
        good(&acked);
        pull(raw, "WORK", "worker", &["+ACK", "+ACK"]);
        pull(raw, "ORDERS", "all", &["+ACK"]);
        let value = publish(
            raw,
            "$KV.TIDES.high",
            &["Nats-Expected-Last-Subject-Sequence: 3"],
            "4.2",
        );
        good(&value);
        drop(server);
        let (_server, url) = Program::serve(today(), &data);
        let again = listing(&url);
        assert!(again.contains("\"data\":\"NC4y\""), "{again}");
    }
}
