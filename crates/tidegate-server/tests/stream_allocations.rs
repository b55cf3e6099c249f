//! Checks that the streams apply 256 plain messages with a few allocations, and none for each message. The
//! test is a process of its own, because the counter covers all threads of a process.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Streams};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

#[test]
fn none_a_stored_message() {
    const ENTRY: usize = 256;
    let mut streams = Streams::new(AccountLimits::NONE);
    let (mut out, mut effects) = (Vec::with_capacity(ENTRY), Vec::with_capacity(2 * ENTRY));
    let mut lsn = 0;
    let entry = |write: &dyn Fn(&mut Encoder<'_, Vec<u8>>)| {
        let mut entry = Vec::new();
        write(&mut Encoder::begin(&mut entry, 1));
        bytes::Bytes::from(entry)
    };
    let config = br#"{"name":"S","subjects":["s.>"],"max_msgs":10000,"max_msgs_per_subject":-1}"#;
    let create = entry(&|e| {
        e.command(&Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            b"",
            config,
        ))
        .unwrap();
    });
    let publish = entry(&|e| {
        for i in 0..ENTRY {
            let subject = format!("s.{}", i % 50);
            e.publish(
                StreamNumber::FIRST,
                subject.as_bytes(),
                None,
                b"0123456789abcdef",
            )
            .unwrap();
        }
    });
    let mut apply = |entry: &bytes::Bytes| {
        lsn += 1 << 16;
        out.clear();
        effects.clear();
        streams.apply(lsn, entry, &mut out, &mut effects).unwrap();
    };
    apply(&create);
    // The stream now has as many messages as it keeps, so that each new message removes one.
    (0..100).for_each(|_| apply(&publish));
    let region = Region::new(ALLOCATOR);
    (0..100).for_each(|_| apply(&publish));
    let allocations = region.change().allocations;
    assert!(
        allocations < 100 * 8,
        "{allocations} allocations for 100 entries of {ENTRY} messages"
    );
}
