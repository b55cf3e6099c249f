//! Measures the cost of a message in the link's codec and pure core: encoding it, finding it in the read
//! buffer, and handing it to a handler.

#![allow(missing_docs, clippy::unwrap_used)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::Layout;
use tidegate_link::hello::Welcome;
use tidegate_link::proto::{Receiver, cadence};

const N: u64 = 10_000;

fn block(layout: Layout, len: impl Fn(u64) -> usize) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 1..=N {
        layout.encode(Seq::new(n), &[n as u8; 64][..len(n)], &mut out);
    }
    out
}

fn codec(c: &mut Criterion) {
    let mut g = c.benchmark_group("link");
    g.throughput(Throughput::Elements(N));
    for layout in [Layout::Plain, Layout::Session, Layout::Checked] {
        for len in [5, 40] {
            let mut out = Vec::with_capacity(1 << 20);
            let payload = vec![7u8; len];
            g.bench_function(format!("encode {len} bytes, {layout:?}"), |b| {
                b.iter(|| {
                    out.clear();
                    for n in 1..=N {
                        layout.encode(Seq::new(n), black_box(&payload), &mut out);
                    }
                    black_box(out.len())
                });
            });
        }
        for (name, bytes) in [
            ("5 bytes", block(layout, |_| 5)),
            (
                "mixed sizes",
                block(layout, |n| (n.wrapping_mul(0x9E37_79B9) >> 7) as usize % 60),
            ),
        ] {
            g.bench_function(format!("scan {name}, {layout:?}"), |b| {
                b.iter(|| layout.scan(black_box(&bytes), 1000).count);
            });
            g.bench_function(format!("hand out {name}, {layout:?}"), |b| {
                b.iter(|| {
                    layout
                        .payloads(black_box(&bytes))
                        .map(<[u8]>::len)
                        .sum::<usize>()
                });
            });
        }
    }
    let bytes = block(Layout::Session, |_| 5);
    let welcome = Welcome {
        version: 1,
        checked: false,
        when_done: false,
        session: Default::default(),
        epoch: 1,
        received: Seq::NONE,
        acked: Seq::NONE,
        window: 16 << 20,
        frame_max: 1 << 20,
        idle_ms: 30_000,
    };
    g.bench_function("receive and acknowledge 90 KB", |b| {
        let mut now = 0;
        let mut r = Receiver::session(Time::ZERO, &welcome, cadence());
        b.iter(|| {
            now += 100_000;
            let at = Time::from_nanos(now);
            let batch = r.handle_read(at, black_box(&bytes)).unwrap();
            while let Some(unit) = r.poll_transmit(at) {
                let n = unit.len();
                r.wrote(at, n, 5000);
            }
            batch.count
        });
    });
    g.finish();
}

criterion_group!(benches, codec);
criterion_main!(benches);
