//! Attacks on a stream that the attacker fills in the preparation, such as a purge or a deletion.

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use serde_json::{Value, json};

use super::super::attack::Deed;
use super::{Deeds, Job, Strike, millis};
use crate::wire::{Op, Wire};

const STREAM: &str = "ATTACK";
/// The number of messages after which the attacker asks for an acknowledgement. It stops publishing while
/// [`ACKS_MAX`] acknowledgements are missing, so that only a few thousand messages wait in the server.
const ACK_EVERY: u64 = 500;
const ACKS_MAX: u64 = 8;
/// The number of messages that the attacker asks for in one pull.
const PULL: u64 = 5000;
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn prepare(job: &Job, deed: Deed, until: Instant) -> anyhow::Result<Strike> {
    let mut wire = job.wire()?;
    let (messages, lasts) = (job.amount, job.lasts());
    let distinct = matches!(
        deed,
        Deed::SubjectsPage | Deed::PurgeHalf | Deed::PurgeAll | Deed::ConsumerMade
    );
    wire.api(&ask("STREAM.CREATE"), &config(), until)?;
    fill(&mut wire, messages, distinct, until)?;
    if deed == Deed::ConsumerDeleted {
        hold_pending(&mut wire, messages, until)?;
    }
    Ok(Box::new(move |until| {
        let start = Instant::now();
        let deeds = match deed {
            Deed::SubjectsPage => pages(&mut wire, messages, lasts, until)?,
            Deed::PurgeHalf => purge(&mut wire, &json!({"filter": "attack.*.1"}), until)?,
            Deed::PurgeAll => purge(&mut wire, &json!({}), until)?,
            Deed::AgeOut => {
                let change = json!({"max_age": 1_000_000_000, "duplicate_window": 100_000_000});
                shrink(&mut wire, &change, 0, until)?
            }
            Deed::LimitLowered => shrink(&mut wire, &json!({"max_msgs": 1}), 1, until)?,
            Deed::ConsumerDeleted => {
                wire.api(&format!("CONSUMER.DELETE.{STREAM}.C"), &json!({}), until)?;
                Deeds::default()
            }
            Deed::ConsumerMade => make_consumers(&mut wire, lasts, until)?,
            Deed::StreamDeleted => {
                wire.api(&ask("STREAM.DELETE"), &json!({}), until)?;
                Deeds::default()
            }
            other => bail!("{other:?} is no attack on a stream"),
        };
        Ok(deeds
            .put("messages", messages as f64)
            .put("lasted_s", start.elapsed().as_secs_f64()))
    }))
}

/// Returns the subject of an API request about the attacked stream.
fn ask(verb: &str) -> String {
    format!("{verb}.{STREAM}")
}

fn config() -> Value {
    json!({
        "name": STREAM, "subjects": ["attack.>"], "storage": "file", "retention": "limits", "discard": "old",
        "num_replicas": 1, "max_msgs": -1, "max_bytes": -1,
    })
}

/// Publishes the messages of the preparation to the stream. If `distinct` is true, each message has its own
/// subject.
fn fill(wire: &mut Wire, messages: u64, distinct: bool, until: Instant) -> anyhow::Result<()> {
    let inbox = format!("_INBOX.fill{}", std::process::id());
    wire.write(format!("SUB {inbox} 7\r\n").as_bytes())?;
    let (mut sent, mut awaited) = (0, 0);
    while sent < messages || awaited > 0 {
        if awaited == ACKS_MAX || sent == messages {
            awaited -= u64::from(acknowledged(wire, &inbox, until)?);
            continue;
        }
        let mut out = String::new();
        for n in sent..messages.min(sent + ACK_EVERY) {
            let subject = match distinct {
                true => format!("attack.{n}.{}", n % 2),
                false => "attack.x.x".to_owned(),
            };
            let last = n + 1 == messages.min(sent + ACK_EVERY);
            let reply = if last { inbox.as_str() } else { "" };
            out += &format!("PUB {subject} {reply} 2\r\nxx\r\n");
        }
        wire.write(out.as_bytes())?;
        sent = messages.min(sent + ACK_EVERY);
        awaited += 1;
    }
    wire.write(b"UNSUB 7\r\n")?;
    let stored = stored(wire, until)?;
    ensure!(
        stored == messages,
        "{stored} of {messages} messages are stored"
    );
    Ok(())
}

/// Reads one operation of the server. Returns true if the operation is an acknowledgement.
fn acknowledged(wire: &mut Wire, inbox: &str, until: Instant) -> anyhow::Result<bool> {
    wire.next(until, |op| {
        let Op::Message {
            subject, payload, ..
        } = op
        else {
            return Ok(false);
        };
        let text = String::from_utf8_lossy(payload);
        ensure!(
            subject != inbox || text.starts_with("{\"stream\""),
            "a message is not stored: {text}"
        );
        Ok(subject == inbox)
    })
}

/// Returns the number of messages in the attacked stream, to check the progress of the server.
fn stored(wire: &mut Wire, until: Instant) -> anyhow::Result<u64> {
    let info = wire.api(&ask("STREAM.INFO"), &json!({}), until)?;
    Ok(info["state"]["messages"].as_u64().unwrap_or(0))
}

/// Makes a consumer and receives all messages without an acknowledgement, so that all messages are pending.
fn hold_pending(wire: &mut Wire, messages: u64, until: Instant) -> anyhow::Result<()> {
    let config = json!({"stream_name": STREAM, "config": {
        "durable_name": "C", "ack_policy": "explicit", "max_ack_pending": -1,
        "ack_wait": 3_600_000_000_000_u64,
    }});
    wire.api("CONSUMER.DURABLE.CREATE.ATTACK.C", &config, until)?;
    let inbox = format!("_INBOX.pull{}", std::process::id());
    wire.write(format!("SUB {inbox} 8\r\n").as_bytes())?;
    let mut got = 0;
    while got < messages {
        let batch = PULL.min(messages - got);
        let body = json!({"batch": batch}).to_string();
        let pull = format!(
            "PUB $JS.API.CONSUMER.MSG.NEXT.ATTACK.C {inbox} {}\r\n{body}\r\n",
            body.len()
        );
        wire.write(pull.as_bytes())?;
        let end = got + batch;
        while got < end {
            got += u64::from(wire.next(until, |op| match op {
                Op::Message {
                    headers: true,
                    payload,
                    ..
                } => bail!("instead of a message: {}", String::from_utf8_lossy(payload)),
                op => Ok(matches!(op, Op::Message { .. })),
            })?);
        }
    }
    wire.write(b"UNSUB 8\r\n")
}

/// Asks for all pages of the stream's subjects again and again, which keeps the server busy.
fn pages(wire: &mut Wire, subjects: u64, lasts: Duration, until: Instant) -> anyhow::Result<Deeds> {
    let (start, mut asked, mut offset) = (Instant::now(), 0, 0);
    while start.elapsed() < lasts || asked == 0 {
        let body = json!({"subjects_filter": ">", "offset": offset});
        let info = wire.api(&ask("STREAM.INFO"), &body, until)?;
        let got = info["state"]["subjects"].as_object().map_or(0, |s| s.len());
        ensure!(got > 0, "a page without subjects at {offset} of {subjects}");
        offset += got as u64;
        asked += 1;
        if offset >= subjects {
            offset = 0;
        }
    }
    Ok(Deeds::default()
        .put("pages", f64::from(asked))
        .put("page_ms", millis(start) / f64::from(asked)))
}

fn purge(wire: &mut Wire, body: &Value, until: Instant) -> anyhow::Result<Deeds> {
    let answer = wire.api(&ask("STREAM.PURGE"), body, until)?;
    let purged = answer["purged"].as_u64().unwrap_or(0);
    Ok(Deeds::default().put("purged", purged as f64))
}

/// Changes the stream's configuration, and waits until the stream has at most `left` messages. Returns the
/// time.
fn shrink(wire: &mut Wire, change: &Value, left: u64, until: Instant) -> anyhow::Result<Deeds> {
    let mut config = config();
    for (key, value) in change.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    wire.api(&ask("STREAM.UPDATE"), &config, until)?;
    loop {
        let stored = stored(wire, until)?;
        let deeds = Deeds::default().put("messages_left", stored as f64);
        if stored <= left {
            return Ok(deeds);
        }
        if Instant::now() + LOOK >= until {
            return Ok(deeds.note(format!("time is up: {stored} messages are left")));
        }
        std::thread::sleep(LOOK);
    }
}

/// Makes one consumer after the other. Each consumer begins at the last message of each subject, for which
/// the server must list the subjects.
fn make_consumers(wire: &mut Wire, lasts: Duration, until: Instant) -> anyhow::Result<Deeds> {
    let (start, mut made) = (Instant::now(), 0);
    while start.elapsed() < lasts || made == 0 {
        let config = json!({"stream_name": STREAM, "config": {
            "durable_name": "M", "ack_policy": "explicit",
            "deliver_policy": "last_per_subject", "filter_subject": "attack.*.1",
        }});
        wire.api(
            &format!("CONSUMER.DURABLE.CREATE.{STREAM}.M"),
            &config,
            until,
        )?;
        made += 1;
        // A consumer holds a list of all subjects. The attacker deletes each consumer, because many consumers
        // at a time would be another attack.
        wire.api(&format!("CONSUMER.DELETE.{STREAM}.M"), &json!({}), until)?;
    }
    Ok(Deeds::default()
        .put("consumers", f64::from(made))
        .put("consumer_ms", millis(start) / f64::from(made)))
}
