//! Measures the works of streams and Raft groups for the simulation: entries proposed and applied, messages
//! between nodes, ticks, the subjects of a page, purges by subject, and descriptions of streams.

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
use tidegate_stream::api::view::{Server, stream_info};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{
    AccountLimits, Command, Encoder, Filter, Kind, LastPerSubject, Place, Stream, Streams,
};

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
    let removals = removals(rounds);
    let (search, look_up, describe) = looks(rounds)?;
    Ok(vec![
        ("RaftMessage", messages(rounds)?),
        ("Propose", propose),
        ("Entry", entry),
        ("EntryByte", byte),
        ("Remove", removals.remove),
        ("Reclaim", reclaim(rounds)),
        ("Free", removals.free),
        ("Foresee", removals.foresee),
        ("Subject", subject),
        ("Search", search),
        ("LookUp", look_up),
        ("Describe", describe),
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

/// Returns a group with one stream that has as many subjects as a turn of the event loop collects, or some
/// more.
fn with_subjects() -> Streams {
    let mut streams = streams();
    for n in 0..SUBJECTS / COMMANDS + 1 {
        apply(
            &mut streams,
            2 + n as u64,
            &entry(n * COMMANDS, COMMANDS, usize::MAX),
        );
    }
    streams
}

/// The costs of a purge by subject: of a subject that a node compares before it, of a message that its entry
/// removes, and of a part of the work that it leaves.
struct Removals {
    foresee: u64,
    remove: u64,
    free: u64,
}

/// Measures a purge of all subjects of a stream by a pattern.
fn removals(rounds: usize) -> Removals {
    let (mut foreseen, mut removed, mut freed) = (Vec::new(), Vec::new(), Vec::new());
    // The numbers of works are equal in all rounds.
    let messages = (SUBJECTS / COMMANDS + 1) * COMMANDS;
    let (mut looked, mut parts) = (0, 0);
    for _ in 0..rounds {
        let mut streams = with_subjects();
        streams.foresee(StreamNumber::FIRST, "s.*");
        (looked, parts) = (0, 0);
        let mut took = Duration::ZERO;
        while streams.is_foreseeing() {
            took += timed(|| looked += streams.go_on_foreseeing(SUBJECTS));
        }
        foreseen.push(took);
        let mut buffer = Vec::new();
        let mut encoder = Encoder::begin(&mut buffer, 1_800_000_000_000_000);
        let purge = Command::new(
            Kind::Purge,
            StreamNumber::FIRST,
            b"",
            br#"{"filter":"s.*"}"#,
        );
        let _ = encoder.command(&purge);
        let entry = Bytes::from(buffer);
        removed.push(timed(|| apply(&mut streams, 1 << 40, &entry)));
        freed.push(timed(|| {
            while streams.is_reclaiming() {
                parts += streams.reclaim(1);
            }
        }));
    }
    let of = |mut times: Vec<Duration>, works: usize| {
        median(rounds, works.max(1), || times.pop().unwrap_or_default())
    };
    Removals {
        foresee: of(foreseen, looked),
        remove: of(removed, messages),
        free: of(freed, parts),
    }
}

/// Measures how long the node takes to find the last message of a subject, to compare a subject with
/// patterns, and to describe a stream.
fn looks(rounds: usize) -> anyhow::Result<(u64, u64, u64)> {
    let streams = with_subjects();
    let stream = streams.get(StreamNumber::FIRST);
    let stream: &Stream = stream.ok_or_else(|| anyhow!("the stream of the bench is missing"))?;
    let filter = Filter::new(["s.*"]);
    let search = median(rounds, SUBJECTS, || {
        timed(|| {
            std::hint::black_box(stream.lasts_part(&filter, 0, SUBJECTS, None));
        })
    });
    let look_up = median(rounds, SUBJECTS, || {
        let mut lasts = LastPerSubject::new(["*.none", "s.*.none"], None, 1);
        timed(|| {
            let mut left = usize::MAX;
            std::hint::black_box(lasts.go_on(stream, &mut left));
        })
    });
    let (cluster, details) = (ClusterInfo::default(), InfoDetails::default());
    let server = server(&cluster);
    let describe = median(rounds, N, || {
        timed(|| {
            for _ in 0..N {
                let _ = std::hint::black_box(stream_info(&server, stream, &details));
            }
        })
    });
    Ok((search, look_up, describe))
}

fn server(cluster: &ClusterInfo) -> Server<'_> {
    Server {
        version: "0",
        domain: None,
        cluster,
        now: Timestamp::from_micros(0),
    }
}

/// Measures how long the node takes to collect a subject, and to encode a page of as many subjects as a turn
/// collects.
fn page(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let streams = with_subjects();
    let stream: &Stream = streams
        .get(StreamNumber::FIRST)
        .ok_or_else(|| anyhow!("the stream of the bench is missing"))?;
    let details = InfoDetails {
        subjects_filter: ">".into(),
        ..InfoDetails::default()
    };
    let cluster = ClusterInfo::default();
    let server = server(&cluster);
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
