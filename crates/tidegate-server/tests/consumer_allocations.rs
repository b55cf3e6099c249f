//! Bounds the memory of a durable consumer that no client uses, as a server has a hundred thousand of them.
//! The test is a process of its own, because the counter covers all threads of a process.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::alloc::System;

use bytes::Bytes;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, Stats, StatsAlloc};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Streams};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const STREAMS: u32 = 100;
const CONSUMERS: u32 = 100;
/// The most bytes and allocations of a consumer: its name, and its place in the tree of its stream, of which
/// a node has 11 places and is filled to more than a half. The first consumer of a stream adds the
/// configuration and the state, which the others share.
const BYTES_MAX: usize = 128;
const ALLOCATIONS_MAX: f64 = 1.5;

fn entry(commands: &[Command<'_>]) -> Bytes {
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, 1_000_000);
    for command in commands {
        encoder.command(command).unwrap();
    }
    Bytes::from(entry)
}

/// Counts the bytes and allocations that stay after the creation of consumers, as the commands in the log
/// create them, and after a restoration from a checkpoint.
#[test]
fn an_idle_consumer_takes_little_memory() {
    let mut streams = Streams::new(AccountLimits::NONE);
    let (mut lsn, mut out, mut effects) = (0, Vec::new(), Vec::new());
    let mut apply = |streams: &mut Streams, entry: &Bytes| {
        lsn += 1 << 16;
        out.clear();
        effects.clear();
        streams.apply(lsn, entry, &mut out, &mut effects).unwrap();
    };
    for n in 0..STREAMS {
        let config = format!(r#"{{"name":"S{n}","subjects":["s{n}"]}}"#);
        let create = Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            b"",
            config.as_bytes(),
        );
        apply(&mut streams, &entry(&[create]));
    }
    let without: Vec<u8> = streams.snapshot().chunks().flatten().collect();
    let numbers: Vec<StreamNumber> = streams.iter().map(|stream| stream.id()).collect();
    let region = Region::new(ALLOCATOR);
    for n in 0..CONSUMERS {
        for (of, number) in numbers.iter().enumerate() {
            let name = format!("C{}", n as usize * numbers.len() + of);
            let config = format!(
                r#"{{"config":{{"durable_name":"{name}","name":"{name}","ack_policy":"explicit","ack_wait":30000000000,"max_deliver":-1,"max_waiting":512,"max_ack_pending":1000,"metadata":{{"_nats.req.level":"0"}}}}}}"#
            );
            let create = Command::new(
                Kind::CreateConsumer,
                *number,
                name.as_bytes(),
                config.as_bytes(),
            );
            apply(&mut streams, &entry(&[create]));
        }
    }
    let made = region.change();
    check("made", &made);
    let with: Vec<u8> = streams.snapshot().chunks().flatten().collect();
    let limits = AccountLimits::NONE;
    let region = Region::new(ALLOCATOR);
    let empty = Streams::restore(&without, limits).unwrap();
    let base = region.change();
    let region = Region::new(ALLOCATOR);
    let restored = Streams::restore(&with, limits).unwrap();
    check("restored", &(region.change() - base));
    assert_eq!(restored.consumers_len(), streams.consumers_len());
    assert_eq!(empty.consumers_len(), 0);
}

/// Compares the memory that stays with the bounds. `bytes_allocated` and `bytes_deallocated` include the
/// growth and the shrinkage of reallocations.
fn check(what: &str, stats: &Stats) {
    let count = (STREAMS * CONSUMERS) as usize;
    let bytes = (stats.bytes_allocated - stats.bytes_deallocated) / count;
    let allocations = (stats.allocations - stats.deallocations) as f64 / count as f64;
    println!("{what}: {bytes} bytes and {allocations:.2} allocations a consumer");
    assert!(bytes <= BYTES_MAX, "{what}: {bytes} bytes a consumer");
    assert!(
        allocations <= ALLOCATIONS_MAX,
        "{what}: {allocations:.2} allocations a consumer"
    );
}
