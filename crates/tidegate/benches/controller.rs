//! Measures the cost of a decision: the whole cycle of a batch (ready, started, done) by every controller,
//! and the same cycle through a boundary.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate::Time;
use tidegate::boundary::{Boundary, Cut, Step};
use tidegate::controller::{
    BatchId, Bounds, Choice, Controller, Event, Knee, Load, Objective, Reason,
};

/// Runs the cycle of one batch through a controller, out of a backlog that is sometimes above the limit and
/// sometimes not.
fn cycle(c: &mut dyn Controller, i: u64) -> u64 {
    let now = Time::from_nanos(i * 10_000);
    let backlog = 1 + (i * 7919) % 12_000;
    let d = c.on(
        now,
        Event::Ready {
            backlog: Load::items(backlog),
            oldest: now,
        },
    );
    let n = d.limit_items.min(backlog);
    let (batch, left) = (Load::items(n), Load::items(backlog - n));
    let reason = if n == backlog {
        Reason::Drained
    } else {
        d.reason
    };
    c.on(
        now,
        Event::Started {
            id: BatchId::default(),
            batch,
            left,
            reason,
        },
    );
    let cost_ns = 3_000 + 12 * n + (i * 31) % 200;
    c.on(
        now.after(cost_ns),
        Event::Done {
            id: BatchId::default(),
            cost_ns,
            ok: true,
        },
    )
    .limit_items
}

/// Runs the cycle of [`cycle`] through a boundary, which itself keeps the controller within its bounds.
fn boundary_cycle(b: &mut Boundary, i: u64) -> u64 {
    let now = Time::from_nanos(i * 10_000);
    let backlog = 1 + (i * 7919) % 12_000;
    let Ok(Step::Take(limit)) = b.poll(now, Load::items(backlog), now) else {
        return 0;
    };
    let n = limit.items.min(backlog);
    let (batch, left) = (Load::items(n), Load::items(backlog - n));
    let cut = if n == backlog {
        Cut::Drained
    } else {
        Cut::Items
    };
    let Ok(id) = b.started(now, batch, left, cut) else {
        return 0;
    };
    let cost_ns = 3_000 + 12 * n + (i * 31) % 200;
    let _ = b.done_with(now.after(cost_ns.min(9_000)), id, cost_ns, true);
    b.limit().items
}

/// Runs the cycle of a lone caller of an actor: its call arrives, forms a batch of its own, and is answered.
fn lone_cycle(b: &mut Boundary, i: u64) -> u64 {
    let at = |ns| Time::from_nanos(i * 400 + ns);
    let one = Load::items(1);
    let called = at(50 + i % 7);
    let _ = b.arrived(called, one);
    let Ok(Step::Take(_)) = b.poll(at(150), one, called) else {
        return 0;
    };
    let Ok(id) = b.started(at(150), one, Load::items(0), Cut::Drained) else {
        return 0;
    };
    let done = at(200 + i % 5);
    let _ = b.done(done, id, true);
    let _ = b.expect(done, 1);
    b.limit().items
}

/// Returns the default controller without `Bounded` around it, because its boundary keeps it within the
/// bounds.
fn knee(bounds: Bounds) -> Box<dyn Controller> {
    let knee = Knee::new(Objective::Lean, bounds).expect("valid bounds");
    Box::new(knee.anticipating())
}

fn boundaries(c: &mut Criterion) {
    let mut group = c.benchmark_group("boundary_cycle");
    group.throughput(Throughput::Elements(1));
    for in_flight_max in [1, 64] {
        let bounds = Bounds {
            in_flight_max: Some(in_flight_max),
            ..Bounds::items(1, 8192)
        };
        let mut boundary = Boundary::new(knee(bounds), bounds).expect("valid bounds");
        let mut i = 0;
        group.bench_function(format!("knee, {in_flight_max} in flight"), |b| {
            b.iter(|| {
                i += 1;
                black_box(boundary_cycle(&mut boundary, i))
            });
        });
    }
    let bounds = Bounds::items(1, 8192);
    let mut boundary = Boundary::new(knee(bounds), bounds).expect("valid bounds");
    let mut i = 0;
    group.bench_function("knee, a lone caller", |b| {
        b.iter(|| {
            i += 1;
            black_box(lone_cycle(&mut boundary, i))
        });
    });
    group.finish();

    let mut group = c.benchmark_group("boundary_decision");
    let bounds = Bounds::items(1, 8192);
    let mut boundary = Boundary::new(knee(bounds), bounds).expect("valid bounds");
    for i in 0..1000 {
        boundary_cycle(&mut boundary, i);
    }
    let now = Time::from_nanos(1 << 40);
    group.bench_function("knee poll", |b| {
        b.iter(|| boundary.poll(now, Load::items(black_box(500)), now));
    });
    group.finish();
}

fn decisions(c: &mut Criterion) {
    let mut group = c.benchmark_group("batch_cycle");
    group.throughput(Throughput::Elements(1));
    for name in [
        "knee",
        "knee:throughput",
        "knee:cost=1%",
        "greedy",
        "exponential",
        "aimd:64",
        "rueidis-stats:100us",
    ] {
        let choice: Choice = name.parse().expect("a name from the list");
        let mut controller = choice.build(Bounds::items(1, 8192)).expect("valid bounds");
        let mut i = 0;
        group.bench_function(name, |b| {
            b.iter(|| {
                i += 1;
                black_box(cycle(controller.as_mut(), i))
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("decision");
    let mut controller = Choice::KNEE
        .build(Bounds::items(1, 8192))
        .expect("valid bounds");
    for i in 0..1000 {
        cycle(controller.as_mut(), i);
    }
    let now = Time::from_nanos(1 << 40);
    group.bench_function("knee ready", |b| {
        b.iter(|| {
            controller.on(
                now,
                Event::Ready {
                    backlog: Load::items(black_box(500)),
                    oldest: now,
                },
            )
        });
    });
    group.finish();
}

criterion_group!(benches, decisions, boundaries);
criterion_main!(benches);
