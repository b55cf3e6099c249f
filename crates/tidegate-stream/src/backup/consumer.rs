//! Reads the consumers of a backup: their configurations and states, in both of nats-server's forms.
//!
//! ```text
//! JSON    {"config": {...}, "state": {"delivered", "ack_floor", "pending", "redelivered"}}
//!         pending: by message number the delivery's number and time; redelivered: by message number a count
//! binary  22, version (1 or 2) | numbers, each variable-length:
//!         ack floor: consumer, stream | delivered: consumer, stream | count of pending messages
//!         with any: base time in seconds, signed | of each message its number behind the ack floor,
//!         in version 2 the delivery's number behind the ack floor, and the seconds before the base time
//!         (in version 1 after it), signed
//!         count of redelivered messages | of each message its number behind the ack floor, and a count
//! ```
//!
//! In version 1 the two numbers of `delivered` count from the ack floor on, and deliveries have no number, so
//! the reader makes up the numbers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{BackupError, SEQ_END, unzigzag, uvarint};
use crate::api::body::consumer_config;
use crate::consumer::UNACKED_MAX;
use crate::consumer::restored::{Progress, Unacked};
use crate::schema::config::ConsumerConfig;
use crate::schema::timestamp::Timestamp;

const MAGIC: u8 = 22;

/// A consumer with its state, as a backup holds it. A restored stream gets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Consumer {
    /// The name of the consumer in the stream of the backup.
    pub name: String,
    /// The time at which a client created the consumer, in microseconds since 1970; `None` if the backup
    /// lacks it.
    pub created_us: Option<u64>,
    /// The consumer's configuration, as the server that made the backup kept it.
    pub config: Box<ConsumerConfig>,
    /// The deliveries and acknowledgements of the consumer, from which the restored consumer continues.
    pub progress: Progress,
}

/// The name of a consumer as its entry or its folder has it. The configuration must have this name too.
pub(super) struct Named<'a>(pub(super) &'a str);

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Pair {
    pub(super) consumer_seq: u64,
    pub(super) stream_seq: u64,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct Pending {
    pub(super) sequence: u64,
    pub(super) timestamp: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) delivered: Pair,
    pub(super) ack_floor: Pair,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) pending: BTreeMap<u64, Pending>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) redelivered: BTreeMap<u64, u64>,
}

/// Reads a consumer from its entry in an archive, as nats-server 2.15 writes it in JSON.
pub(super) fn consumer_of_json(
    Named(name): Named<'_>,
    json: &[u8],
) -> Result<Consumer, BackupError> {
    #[derive(Deserialize)]
    struct Entry {
        config: Map<String, Value>,
        state: State,
        created: Option<Timestamp>,
    }
    let entry: Entry = serde_json::from_slice(json).map_err(|e| {
        wrong(
            name,
            format_args!("expected its configuration and state: {e}"),
        )
    })?;
    let State {
        delivered,
        ack_floor,
        pending,
        redelivered,
    } = entry.state;
    let pair = |pair: Pair| (pair.consumer_seq, pair.stream_seq);
    let unacked = pending.into_iter().map(|(seq, pending)| Unacked {
        seq,
        delivery: pending.sequence,
        time_ns: pending.timestamp,
        count: 1,
    });
    let mut progress = Progress {
        delivered: pair(delivered),
        ack_floor: pair(ack_floor),
        unacked: unacked.collect(),
    };
    progress.count(&redelivered);
    consumer(name, entry.config, entry.created, progress)
}

/// Reads a consumer from its two files: the description in JSON, and the binary state, as older nats-servers
/// keep them.
pub(super) fn consumer_of_files(
    Named(name): Named<'_>,
    json: &[u8],
    state: &[u8],
) -> Result<Consumer, BackupError> {
    let mut config: Map<String, Value> = serde_json::from_slice(json)
        .map_err(|e| wrong(name, format_args!("expected its configuration: {e}")))?;
    let created = config.remove("Created");
    let created = created.and_then(|v| Timestamp::parse(v.as_str()?));
    config.remove("Name");
    let progress = decode(state)?;
    consumer(name, config, created, progress)
}

fn consumer(
    name: &str,
    config: Map<String, Value>,
    created: Option<Timestamp>,
    mut progress: Progress,
) -> Result<Consumer, BackupError> {
    let mut config = consumer_config(config).map_err(|e| wrong(name, e))?;
    if config.name.is_empty() {
        name.clone_into(&mut config.name);
    }
    config.pause_until = config.pause_until.filter(|at| *at != Timestamp::ZERO);
    if config.name != name {
        return Err(wrong(name, "its configuration has another name"));
    }
    progress.settle().map_err(|why| wrong(name, why))?;
    Ok(Consumer {
        name: name.to_owned(),
        created_us: created.map(Timestamp::as_micros).filter(|us| *us > 0),
        config,
        progress,
    })
}

fn wrong(name: &str, why: impl ToString) -> BackupError {
    BackupError::Consumer {
        name: name.to_owned(),
        why: why.to_string(),
    }
}

impl Progress {
    /// Adds the counts of repeated deliveries, which nats-server keeps beside the pending messages, for the
    /// delivery limit.
    fn count(&mut self, redelivered: &BTreeMap<u64, u64>) {
        for unacked in &mut self.unacked {
            let again = redelivered.get(&unacked.seq).copied();
            unacked.count = again.map_or(1, |n| n.saturating_add(1));
        }
    }

    /// Corrects the numbers where they contradict each other, because nats-server updates them one after the
    /// other: the last delivery is not before the ack floor, and unacknowledged messages lie between the two.
    /// Drops an unacknowledged message beyond the last delivery, because the consumer delivers it again
    /// anyway.
    fn settle(&mut self) -> Result<(), &'static str> {
        let floor = self.ack_floor;
        let delivered = (self.delivered.0.max(floor.0), self.delivered.1.max(floor.1));
        if delivered.0 >= SEQ_END || delivered.1 >= SEQ_END {
            return Err("a number is beyond the highest possible one");
        }
        self.delivered = delivered;
        self.unacked
            .retain(|u| u.seq > floor.1 && u.seq <= delivered.1);
        if self.unacked.len() > UNACKED_MAX {
            return Err("too many messages are not acknowledged");
        }
        for unacked in &mut self.unacked {
            unacked.delivery = unacked.delivery.clamp(1, delivered.0.max(1));
        }
        // The reader refuses a state with delivered messages and no delivery, because such numbers are
        // damaged.
        match self.unacked.is_empty() || delivered.0 > 0 {
            true => Ok(()),
            false => Err("a message is delivered and no delivery is counted"),
        }
    }
}

/// Reads the binary form of a consumer's state, as older nats-servers keep it in a file.
fn decode(bytes: &[u8]) -> Result<Progress, BackupError> {
    const WHAT: BackupError = BackupError::Format("a consumer's state");
    let Some(([magic, version], mut rest)) = bytes.split_first_chunk::<2>() else {
        return Err(WHAT);
    };
    if *magic != MAGIC || !(1..=2).contains(version) {
        return Err(BackupError::Format("a consumer's state of version 1 or 2"));
    }
    let old = *version == 1;
    let mut next = || {
        let (value, len) = uvarint(rest)?.ok_or(WHAT)?;
        rest = &rest[len..];
        Ok::<u64, BackupError>(value)
    };
    let ack_floor = (next()?, next()?);
    let mut delivered = (next()?, next()?);
    if old {
        delivered.0 = delivered.0.saturating_add(ack_floor.0.saturating_sub(1));
        delivered.1 = delivered.1.saturating_add(ack_floor.1.saturating_sub(1));
    }
    let mut unacked = BTreeMap::new();
    let count = next()?;
    if count > UNACKED_MAX as u64 {
        return Err(WHAT);
    }
    let base = if count > 0 { unzigzag(next()?) } else { 0 };
    for _ in 0..count {
        let seq = next()?.checked_add(ack_floor.1).ok_or(WHAT)?;
        let delivery = match old {
            true => 0,
            false => next()?.checked_add(ack_floor.0).ok_or(WHAT)?,
        };
        let away = unzigzag(next()?);
        let secs = match old {
            true => base.checked_add(away),
            false => base.checked_sub(away),
        };
        let time_ns = secs.and_then(|s| s.checked_mul(1_000_000_000));
        let time_ns = time_ns.ok_or(WHAT)?;
        unacked.insert(
            seq,
            Unacked {
                seq,
                delivery,
                time_ns,
                count: 1,
            },
        );
    }
    let mut redelivered = BTreeMap::new();
    for _ in 0..next()? {
        let (seq, count) = (next()?, next()?);
        let seq = seq.checked_add(ack_floor.1).ok_or(WHAT)?;
        redelivered.insert(seq, count);
    }
    let mut progress = Progress {
        delivered,
        ack_floor,
        unacked: unacked.into_values().collect(),
    };
    progress.count(&redelivered);
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::{put_uvarint, zigzag};
    use proptest::prelude::*;

    fn encode(progress: &Progress, base: i64) -> Vec<u8> {
        let mut out = vec![MAGIC, 2];
        let (floor, delivered) = (progress.ack_floor, progress.delivered);
        for n in [floor.0, floor.1, delivered.0, delivered.1] {
            put_uvarint(&mut out, n);
        }
        put_uvarint(&mut out, progress.unacked.len() as u64);
        if !progress.unacked.is_empty() {
            put_uvarint(&mut out, zigzag(base));
        }
        for u in &progress.unacked {
            put_uvarint(&mut out, u.seq - floor.1);
            put_uvarint(&mut out, u.delivery - floor.0);
            put_uvarint(&mut out, zigzag(base - u.time_ns / 1_000_000_000));
        }
        let again: Vec<_> = progress.unacked.iter().filter(|u| u.count > 1).collect();
        put_uvarint(&mut out, again.len() as u64);
        for u in again {
            put_uvarint(&mut out, u.seq - floor.1);
            put_uvarint(&mut out, u.count - 1);
        }
        out
    }

    fn progress() -> Progress {
        let unacked = |seq, delivery, secs: i64, count| Unacked {
            seq,
            delivery,
            time_ns: secs * 1_000_000_000,
            count,
        };
        Progress {
            delivered: (9, 30),
            ack_floor: (4, 10),
            unacked: vec![
                unacked(12, 6, 1_700_000_003, 1),
                unacked(29, 8, 1_699_999_999, 3),
            ],
        }
    }

    #[test]
    fn a_binary_state_comes_back() {
        let bytes = encode(&progress(), 1_700_000_000);
        assert_eq!(decode(&bytes).unwrap(), progress());
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len}");
        }
        let mut later = bytes;
        later[1] = 3;
        assert!(decode(&later).is_err());
    }

    #[test]
    fn a_state_of_version_1_counts_from_the_ack_floor() {
        let mut bytes = vec![MAGIC, 1];
        for n in [4, 10, 6, 21, 1] {
            put_uvarint(&mut bytes, n);
        }
        put_uvarint(&mut bytes, zigzag(1_700_000_000));
        put_uvarint(&mut bytes, 2);
        put_uvarint(&mut bytes, zigzag(3));
        put_uvarint(&mut bytes, 0);
        let read = decode(&bytes).unwrap();
        assert_eq!((read.delivered, read.ack_floor), ((9, 30), (4, 10)));
        assert_eq!((read.unacked[0].seq, read.unacked[0].delivery), (12, 0));
        assert_eq!(read.unacked[0].time_ns, 1_700_000_003_000_000_000);
    }

    #[test]
    fn a_consumer_in_json() {
        let json = br#"{"config":{"durable_name":"C","name":"C","deliver_policy":"all","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"replay_policy":"instant","num_replicas":0},"state":{"delivered":{"consumer_seq":9,"stream_seq":30},"ack_floor":{"consumer_seq":4,"stream_seq":10},"pending":{"12":{"Sequence":6,"Timestamp":1700000003000000000},"29":{"Sequence":8,"Timestamp":1699999999000000000}},"redelivered":{"29":2}}}"#;
        let read = consumer_of_json(Named("C"), json).unwrap();
        assert_eq!(read.progress, progress());
        assert_eq!((read.created_us, &*read.config.durable_name), (None, "C"));
        let other = consumer_of_json(Named("D"), json).unwrap_err();
        assert!(other.to_string().contains("another name"), "{other}");
        // The reader drops an unacknowledged message outside of the range between the ack floor and the last
        // delivery.
        let text = std::str::from_utf8(json).unwrap();
        let moved = text.replace(r#""stream_seq":10"#, r#""stream_seq":20"#);
        let moved = consumer_of_json(Named("C"), moved.as_bytes()).unwrap();
        assert_eq!(moved.progress.unacked, progress().unacked[1..]);
        let huge = text.replace(r#""stream_seq":30"#, r#""stream_seq":9223372036854775807"#);
        let huge = consumer_of_json(Named("C"), huge.as_bytes()).unwrap_err();
        assert!(huge.to_string().contains("highest"), "{huge}");
    }

    proptest! {
        #[test]
        fn any_state_ends(mut bytes in prop::collection::vec(any::<u8>(), 0..100), version in 0..4_u8) {
            if bytes.len() > 1 {
                (bytes[0], bytes[1]) = (MAGIC, version);
            }
            let _ = decode(&bytes);
        }
    }
}
