//! Tests of clients that make equal requests at the same time, or disconnect for a moment. The tests of
//! single servers and of clusters share them.

use serde_json::{Value, json};

use super::raw::Raw;

/// Creates the durable consumer of a stream that delivers to the queue group `g` at the subject `to`.
fn create(raw: &mut Raw, stream: &str, consumer: &str, to: &str) {
    let config = json!({
        "durable_name": consumer, "deliver_subject": to, "deliver_group": "g", "ack_policy": "explicit",
        "deliver_policy": "new",
    });
    let body = json!({"stream_name": stream, "config": config}).to_string();
    let subject = format!("$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{consumer}");
    let sub = format!("SUB {to} g {consumer}.{to}\r\n");
    raw.send(sub.as_bytes()).unwrap();
    raw.publish(&subject, "made", body.as_bytes()).unwrap();
}

/// Returns the deliver subject of the consumer if the server granted this member's request. A member that the
/// server refused with code 10013 must use the existing consumer.
fn granted(answer: &Value) -> Option<String> {
    match answer["error"]["err_code"].as_u64() {
        None => Some(answer["config"]["deliver_subject"].as_str().unwrap().into()),
        Some(code) => {
            assert_eq!(code, 10013, "{answer}");
            None
        }
    }
}

/// Checks the members of a queue group, one at each of these servers, that create their shared durable
/// consumer at the same time, again and again. The member that got the grant must receive later messages.
pub(crate) fn no_member_is_deaf(urls: &[String], stream: &str, subject: &str, rounds: usize) {
    let mut members: Vec<Raw> = urls.iter().map(|url| Raw::connect(url).unwrap()).collect();
    let mut publisher = Raw::connect(&urls[0]).unwrap();
    let mut deaf = Vec::new();
    for round in 0..rounds {
        let consumer = format!("D{round}");
        for (i, raw) in members.iter_mut().enumerate() {
            create(raw, stream, &consumer, &format!("deliver.{round}.{i}"));
            if i == 0 {
                // The first member sends the same request a second time on its connection.
                create(raw, stream, &consumer, &format!("deliver.{round}.again"));
            }
        }
        let mut told = Vec::new();
        for (i, raw) in members.iter_mut().enumerate() {
            for _ in 0..=usize::from(i == 0) {
                let answer = raw.message().unwrap().json();
                told.extend(granted(&answer).map(|to| (i, to)));
            }
        }
        let info = publisher.api(&format!("CONSUMER.INFO.{stream}.{consumer}"), &json!({}));
        let to = info["config"]["deliver_subject"].as_str().unwrap();
        if told.len() != 1 || told[0].1 != to {
            deaf.push(format!("{told:?}, and messages go to {to}"));
        } else {
            publisher.publish(subject, "ack", b"x").unwrap();
            assert_eq!(publisher.message().unwrap().json().get("error"), None);
            let message = members[told[0].0].message().unwrap();
            assert_eq!(message.subject, subject);
        }
        let gone = publisher.api(&format!("CONSUMER.DELETE.{stream}.{consumer}"), &json!({}));
        assert_eq!(gone["success"], true, "{gone}");
    }
    assert!(deaf.is_empty(), "{} of {rounds}: {}", deaf.len(), deaf[0]);
}

/// Returns whether a client listens at `to`. Without a listener, the server sends a status before it answers
/// the next request.
fn is_heard(raw: &mut Raw, to: &str) -> bool {
    raw.publish(to, "nobody", b"").unwrap();
    raw.publish("$JS.API.STREAM.NAMES", "names", b"").unwrap();
    let first = raw.message().unwrap();
    if first.subject.ends_with(".names") {
        return true;
    }
    assert!(first.headers().starts_with("NATS/1.0 503"), "{first:?}");
    assert!(raw.message().unwrap().subject.ends_with(".names"));
    false
}

/// Checks a client that pulls through one server, disconnects, and connects to the other server before its
/// pull expires: it must get a message that is published after that.
pub(crate) fn a_pull_outlasts_its_connection(urls: [&str; 2], stream: &str, subject: &str) {
    let mut other = Raw::connect(urls[0]).unwrap();
    let config = json!({"durable_name": "C", "ack_policy": "explicit", "deliver_policy": "new"});
    let body = json!({"stream_name": stream, "config": config});
    let made = other.api(&format!("CONSUMER.CREATE.{stream}.C"), &body);
    assert_eq!(made.get("error"), None, "{made}");
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.C");
    for round in 1..=3_u64 {
        let inbox = format!("_INBOX.away{round}");
        let mut client = Raw::connect(urls[0]).unwrap();
        let body = r#"{"batch":1,"expires":30000000000}"#;
        let pull = format!(
            "SUB {inbox}.* 2\r\nPUB {next} {inbox}.r {}\r\n{body}\r\n",
            body.len()
        );
        client.send(pull.as_bytes()).unwrap();
        let info = format!("CONSUMER.INFO.{stream}.C");
        while other.api(&info, &json!({}))["num_waiting"] != 1 {}
        drop(client);
        while is_heard(&mut other, &format!("{inbox}.r")) {}
        // This pull makes the consumer look for waiting pulls that the consumer can serve.
        other
            .publish(&next, "pull", br#"{"batch":1,"no_wait":true}"#)
            .unwrap();
        let status = other.message().unwrap();
        assert!(status.headers().starts_with("NATS/1.0 404"), "{status:?}");
        let mut client = Raw::connect(urls[1]).unwrap();
        client
            .send(format!("SUB {inbox}.* 2\r\n").as_bytes())
            .unwrap();
        // The consumer's node knows the subscription once it answers this request.
        client.api(&format!("STREAM.INFO.{stream}"), &json!({}));
        other.publish(subject, "ack", b"x").unwrap();
        let (seq, message) = client.delivered().unwrap();
        let reply = message.reply.unwrap();
        let numbers: Vec<&str> = reply.split('.').skip(4).take(3).collect();
        let (seq, by_consumer) = (seq.to_string(), round.to_string());
        assert_eq!(numbers, ["1", &*seq, &*by_consumer], "{reply}");
        client.publish(&reply, "acked", b"+ACK").unwrap();
        assert!(client.message().unwrap().subject.ends_with("acked"));
        assert_eq!(other.message().unwrap().json()["seq"].to_string(), seq);
    }
}
