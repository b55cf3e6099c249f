//! Measures the works of streams and Raft groups for the simulation: entries proposed and applied, messages
//! between nodes, ticks, and the subjects of a page.

use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::replica::{Message, MessageType, wire};
use tidegate_raft::store::{Live, Opening, Options, Store};
use tidegate_stream::api::SubjectList;
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::api::body::InfoDetails;
use tidegate_stream::api::view::Server;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Place, Stream, Streams};

use super::{Table, median, timed};
use crate::stream::Directory;

/// The number of works in a round, over which the bench takes the mean time.
const N: usize = 256;
/// The number of commands in a long entry, from which the bench computes the cost of one command.
const COMMANDS: usize = 100;
/// The number of different subjects of a stream with many messages.
const FEW: usize = 1000;
/// The number of subjects that one turn of the event loop collects for a page.
const SUBJECTS: usize = 8192;

pub(super) fn measure(rounds: usize) -> anyhow::Result<Table> {
    let (propose, tick) = store(rounds)?;
    let (short, short_bytes) = entries(rounds, 1);
    let (long, long_bytes) = entries(rounds, COMMANDS);
    let byte = long.saturating_sub(short) / (long_bytes - short_bytes) as u64;
    let entry = short.saturating_sub(byte * short_bytes as u64);
    let (subject, page) = page(rounds)?;
    Ok(vec![
        ("RaftMessage", messages(rounds)?),
        ("Propose", propose),
        ("Entry", entry),
        ("EntryByte", byte),
        ("Reclaim", reclaim(rounds)),
        ("Subject", subject),
        ("Page", page),
        ("Tick", tick),
    ])
}

/// Returns an entry with `commands` publishes, numbered from `from` on, to `subjects` different subjects.
fn entry(from: usize, commands: usize, subjects: usize) -> Bytes {
    let mut buffer = Vec::new();
    let mut encoder = Encoder::begin(&mut buffer, 1_700_000_000_000_000 + from as u64);
    for n in from..from + commands {
        let subject = format!("s.{}", n % subjects);
        let _ = encoder.publish(StreamNumber::FIRST, subject.as_bytes(), None, b"payload");
    }
    buffer.into()
}

/// Returns the state of a group with one stream, which stores all subjects.
fn streams() -> Streams {
    let mut streams = Streams::new(AccountLimits::NONE);
    let mut buffer = Vec::new();
    let mut encoder = Encoder::begin(&mut buffer, 1_700_000_000_000_000);
    let config = br#"{"name":"S","subjects":["s.>"]}"#;
    let create = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config);
    let _ = encoder.command(&create);
    apply(&mut streams, 1, &buffer.into());
    streams
}

fn apply(streams: &mut Streams, lsn: u64, entry: &Bytes) {
    let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
    let applied = streams.apply(lsn, entry, &mut outcomes, &mut effects);
    std::hint::black_box((applied.is_ok(), outcomes, effects));
}

/// Measures how long the node takes to apply an entry with `commands` publishes. Returns also the entry's
/// length.
fn entries(rounds: usize, commands: usize) -> (u64, usize) {
    let mut streams = streams();
    let mut at = 0;
    let len = entry(0, commands, FEW).len();
    let cost = median(rounds, N, || {
        let entries: Vec<Bytes> = (0..N)
            .map(|n| entry(at + n * commands, commands, FEW))
            .collect();
        let lsn = 2 + at as u64;
        at += N * commands;
        timed(|| {
            for (n, entry) in entries.iter().enumerate() {
                apply(&mut streams, lsn + n as u64, entry);
            }
        })
    });
    (cost, len)
}

/// Measures how long the store takes from the proposal of an entry until it returns the entry as due, and for
/// a tick.
fn store(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let directory = Directory::make()?;
    let options = Options {
        segment_bytes: 4 << 20,
        ..Options::default()
    };
    let opening = Opening::begin(directory.path(), options, Arc::new(|| ()));
    let store = opening.map_err(|e| anyhow!("{e}"))?.replay(|_, _, _| ());
    let mut store = store.map_err(|e| anyhow!("{e}"))?;
    let at = GroupSlot::DIRECTORY;
    let propose = median(rounds, N, || {
        let mut took = Duration::ZERO;
        for n in 0..N {
            let entry = entry(n, 1, FEW);
            took += timed(|| drop(store.propose(at, entry, 1)));
        }
        took + settle(&mut store)
    });
    let tick = median(rounds, N, || timed(|| (0..N).for_each(|_| store.tick())));
    drop(store.close());
    Ok((propose, tick))
}

/// Takes all due entries out of the store. Returns the time of the calls that returned an entry, without the
/// wait for the syncs.
fn settle(store: &mut Store) -> Duration {
    let (mut due, mut took) = (0, Duration::ZERO);
    while due < N {
        let before = due;
        let all = timed(|| {
            let _ = store.poll();
            while store.poll_due().is_some() {
                due += 1;
            }
        });
        if due > before {
            took += all;
        } else {
            std::thread::yield_now();
        }
    }
    took
}

/// Measures how long two nodes take for a heartbeat: its encoding at the sender and its decoding at the
/// receiver.
fn messages(rounds: usize) -> anyhow::Result<u64> {
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgHeartbeat);
    (message.from, message.to, message.term) = (1, 2, 3);
    let parts = wire::encode(ALL, &message).map_err(|e| anyhow!("{e}"))?;
    let bytes = Bytes::from(parts.concat());
    Ok(median(rounds, N, || {
        timed(|| {
            for _ in 0..N {
                let encoded = wire::encode(ALL, &message).is_ok();
                std::hint::black_box((encoded, wire::decode(&bytes).is_ok()));
            }
        })
    }))
}

/// Measures how long the log takes to subtract a removed message from the live bytes of its segment.
fn reclaim(rounds: usize) -> u64 {
    let mut live = Live::default();
    let place = |n: usize| Place {
        lsn: 100 * n as u64,
        offset: 0,
    };
    (0..N * rounds).for_each(|n| live.stored(place(n), 100));
    let mut from = 0;
    median(rounds, N, || {
        from += N;
        timed(|| (from - N..from).for_each(|n| live.removed(place(n), 100)))
    })
}

/// Measures how long the node takes to collect a subject, and to encode a page of as many subjects as a turn
/// collects.
fn page(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let mut streams = streams();
    for n in 0..SUBJECTS / COMMANDS + 1 {
        apply(
            &mut streams,
            2 + n as u64,
            &entry(n * COMMANDS, COMMANDS, usize::MAX),
        );
    }
    let stream: &Stream = streams
        .get(StreamNumber::FIRST)
        .ok_or_else(|| anyhow!("the stream of the bench is missing"))?;
    let details = InfoDetails {
        subjects_filter: ">".into(),
        ..InfoDetails::default()
    };
    let cluster = ClusterInfo::default();
    let server = Server {
        version: "0",
        domain: None,
        cluster: &cluster,
        now: Timestamp::from_micros(0),
    };
    let collect = |details: &InfoDetails| {
        let mut list = SubjectList::new(details);
        let took = timed(|| {
            list.collect(stream, SUBJECTS);
        });
        (list, took)
    };
    let subject = median(rounds, SUBJECTS, || collect(&details).1);
    let page = median(rounds, 1, || {
        let page = collect(&details).0.finish(&server, stream, &details, None);
        timed(|| drop(std::hint::black_box(page.map(|page| page.encode()))))
    });
    Ok((subject, page))
}
