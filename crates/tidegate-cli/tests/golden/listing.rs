//! Lists a server's content as text, as a client sees it, so that tests can compare it. Equal streams give
//! equal text.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::raw::Raw;

/// Returns a stream's configuration without the fields that the server adds about itself.
pub(crate) fn configuration(config: &Value) -> Value {
    let mut config = config.clone();
    if let Some(metadata) = config["metadata"].as_object_mut() {
        metadata.retain(|key, _| !key.starts_with("_nats."));
    }
    config
}

/// Lists every stream with its messages and consumers.
pub(crate) fn listing(url: &str) -> String {
    let mut raw = Raw::connect(url).unwrap();
    let names = raw.api("STREAM.NAMES", &json!({}))["streams"].clone();
    let mut text = String::new();
    for name in names.as_array().into_iter().flatten() {
        stream(&mut raw, name.as_str().unwrap(), &mut text);
    }
    text
}

fn stream(raw: &mut Raw, name: &str, text: &mut String) {
    let ask = json!({"deleted_details": true});
    let info = raw.api(&format!("STREAM.INFO.{name}"), &ask);
    let _ = writeln!(text, "stream {name}, created {}", info["created"]);
    let _ = writeln!(text, "  configuration {}", configuration(&info["config"]));
    let _ = writeln!(text, "  state {}", info["state"]);
    let seq = |which: &str| info["state"][which].as_u64().unwrap();
    for seq in seq("first_seq").max(1)..=seq("last_seq") {
        let got = raw.api(&format!("STREAM.MSG.GET.{name}"), &json!({"seq": seq}));
        let message = &got["message"];
        let _ = match message {
            Value::Null => writeln!(text, "  message {seq}: {}", got["error"]["description"]),
            message => writeln!(text, "  message {seq}: {message}"),
        };
    }
    let consumers = raw.api(&format!("CONSUMER.LIST.{name}"), &json!({}));
    for consumer in consumers["consumers"].as_array().into_iter().flatten() {
        let _ = writeln!(
            text,
            "  consumer {}, created {}",
            consumer["name"], consumer["created"]
        );
        let _ = writeln!(
            text,
            "    configuration {}",
            configuration(&consumer["config"])
        );
        let numbers = |which: &str| {
            let at = &consumer[which];
            format!("{}/{}", at["consumer_seq"], at["stream_seq"])
        };
        let (delivered, acked) = (numbers("delivered"), numbers("ack_floor"));
        let _ = writeln!(
            text,
            "    delivered {delivered}, acknowledged {acked}, unacknowledged {}, to come {}, paused {}",
            consumer["num_ack_pending"],
            consumer["num_pending"],
            consumer["paused"].as_bool().unwrap_or_default(),
        );
    }
}
