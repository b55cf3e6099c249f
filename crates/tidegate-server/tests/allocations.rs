//! Checks that the path of a message through the node allocates nothing: parsing, matching, copies into
//! outboxes, and their removal.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::alloc::System;

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::connect::Info;
use tidegate_server::config::Settings;
use tidegate_server::{ClientKey, Node};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const ANY: Load = Load::new(u64::MAX, u64::MAX);

fn connect(node: &mut Node, text: &str) -> ClientKey {
    let key = node.handle_accepted(Time::ZERO, ([127, 0, 0, 1], 1).into(), false, false);
    let text =
        format!("CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true}}\r\n{text}");
    assert_eq!(
        node.handle_received(Time::ZERO, key, text.as_bytes(), ANY)
            .used,
        text.len()
    );
    key
}

fn write(node: &mut Node) -> usize {
    let mut len = 0;
    while let Some(key) = node.poll_dirty() {
        let n = node.outbox(key).slices().map(<[u8]>::len).sum();
        node.handle_written(Time::ZERO, key, n);
        len += n;
    }
    len
}

#[test]
fn none_a_message() {
    let mut node = Node::new(Settings::default(), Info::default(), 1);
    for i in 0..4 {
        connect(
            &mut node,
            &format!("SUB to.{i}.> 1\r\nSUB to.*.b 2\r\nSUB work q 3\r\n"),
        );
    }
    let publisher = connect(&mut node, "");
    let mut text = String::new();
    // The publisher uses more subjects than the cache of subscriptions has slots, so that most look-ups miss.
    for i in 0..20_000 {
        text += &format!(
            "PUB to.{}.b.{i} 16\r\n0123456789abcdef\r\nPUB work r 1\r\nx\r\n",
            i % 4
        );
        text += "HPUB to.1.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\n";
    }
    let mut run = || {
        let mut copied = 0;
        for part in text.as_bytes().chunks(60_000) {
            // The test cuts anywhere: it leaves out the rest of an operation, and begins with the next one.
            let start = part.windows(4).position(|w| w == b"PUB ").unwrap();
            let start = if start > 0 && part[start - 1] == b'H' {
                start - 1
            } else {
                start
            };
            let end = part
                .windows(6)
                .rposition(|w| w == b"\r\nPUB " || w == b"\r\nHPUB")
                .unwrap();
            let mut rest = &part[start..end + 2];
            loop {
                let received = node.handle_received(Time::ZERO, publisher, rest, ANY);
                rest = &rest[received.used..];
                if !received.full {
                    break;
                }
            }
            copied += write(&mut node);
        }
        copied
    };
    // The first round lets the node grow its buffers.
    let first = run();
    let region = Region::new(ALLOCATOR);
    let second = run();
    let allocations = region.change().allocations;
    assert_eq!(first, second);
    assert_eq!(allocations, 0);
    assert!(first > 2_000_000, "{first} bytes copied");
}
