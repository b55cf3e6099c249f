//! Tests that a controller which the user builds has the abilities of the default: it gets the events of
//! arrivals and of callers that return, and anticipates. The tests run in virtual time, and through the
//! batcher with a handler that waits at a gate.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::sync::{Arc, Mutex};

use batcher_common::*;
use tidegate::Time;
use tidegate::boundary::{Boundary, Cut, Step};
use tidegate::controller::{
    Bounds, Choice, Controller, Event, Fixed, Freeze, Greedy, Knee, Objective, Recorder, Shadow,
    replay,
};

/// Returns the default controller in every form in which a user can build it.
fn forms() -> Vec<(&'static str, Box<dyn Controller>)> {
    let bounds = Bounds {
        bytes_max: 8 << 20,
        ..Bounds::default()
    };
    let knee = || Knee::new(Objective::Lean, bounds).unwrap();
    let choice: Choice = "knee".parse().unwrap();
    vec![
        ("anticipating", Box::new(Knee::default().anticipating())),
        ("by name", choice.build(bounds).unwrap()),
        (
            "recorded",
            Box::new(Recorder::new(knee().anticipating(), 10)),
        ),
        (
            "with a shadow",
            Box::new(Shadow::new(knee().anticipating(), Greedy.controller())),
        ),
        (
            "with a freeze",
            Box::new(Freeze::new(knee().anticipating())),
        ),
        (
            "in bytes",
            Box::new(knee().in_bytes().unwrap().anticipating()),
        ),
        ("with k", Box::new(knee().with_k(8.0).anticipating())),
        (
            "shared",
            Box::new(Arc::new(Mutex::new(knee().anticipating()))),
        ),
    ]
}

/// Simulates four callers in a closed loop in virtual time. A batch takes 2 ms and 10 us an item, and a
/// caller returns a little more than 100 us after its answer. Returns the mean batch of the last second.
fn closed_loop<C: Controller>(boundary: &mut Boundary<C>, seconds: u64) -> f64 {
    const CALLERS: u64 = 4;
    let at = Time::from_nanos;
    let load = |n: u64| tidegate::controller::Load::new(n, n * 1000);
    let mut due: Vec<u64> = (0..CALLERS).map(|n| n * 700_000).collect();
    let (mut waiting, mut oldest) = (0, 0);
    let mut running = None;
    let (mut now, mut draw) = (0, 1_u64);
    let (mut items, mut batches) = (0, 0);
    while now < seconds * 1_000_000_000 {
        due.retain(|&back| {
            if back <= now {
                oldest = if waiting == 0 { back } else { oldest };
                waiting += 1;
                boundary.arrived(boundary.at(at(back)), load(1)).unwrap();
            }
            back > now
        });
        if let Some((end, id, n)) = running
            && end <= now
        {
            boundary.done(at(now), id, true).unwrap();
            boundary.expect(at(now), n).unwrap();
            for _ in 0..n {
                draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                due.push(now + 100_000 + (draw >> 33) % 25_000);
            }
            running = None;
        }
        let mut hold = None;
        if running.is_none() {
            match boundary.poll(at(now), load(waiting), at(oldest)).unwrap() {
                Step::Take(limit) => {
                    let n = waiting.min(limit.items).min((limit.bytes / 1000).max(1));
                    waiting -= n;
                    let cut = if waiting == 0 {
                        Cut::Drained
                    } else {
                        Cut::Items
                    };
                    let id = boundary
                        .started(at(now), load(n), load(waiting), cut)
                        .unwrap();
                    running = Some((now + 2_000_000 + 10_000 * n, id, n));
                    if now > (seconds - 1) * 1_000_000_000 {
                        (items, batches) = (items + n, batches + 1);
                    }
                }
                Step::Hold { until, .. } => hold = Some(until.as_nanos()),
                Step::Busy { .. } | Step::Rest => {}
            }
        }
        let end = running.map(|(end, ..)| end);
        let next = due.iter().copied().chain(end).chain(hold).min();
        now = next.unwrap().max(now + 1);
    }
    items as f64 / batches as f64
}

#[test]
fn every_form_of_the_default_waits_for_callers_that_come_again() {
    let greedy = closed_loop(
        &mut Boundary::new(Greedy.controller(), Bounds::default()).unwrap(),
        3,
    );
    assert!(greedy < 2.5, "two groups of callers take turns: {greedy}");
    for (name, controller) in forms() {
        let mut boundary = Boundary::new(controller, Bounds::default()).unwrap();
        let mean = closed_loop(&mut boundary, 3);
        assert!(mean > 3.0, "{name}: {mean} items a batch");
    }
}

#[test]
fn every_form_of_the_default_is_told_of_arrivals_by_the_batcher() {
    for (name, controller) in forms() {
        let recorder = Arc::new(Mutex::new(Recorder::new(controller, 1000)));
        let log = Log::default();
        let handle = builder()
            .controller(Arc::clone(&recorder))
            .spawn(Scripted::new(&log))
            .unwrap();
        for n in 0..3 {
            assert_eq!(call(&handle, n), n * 10);
        }
        drain(&handle);
        let arrived = |e: &Event| matches!(e, Event::Arrived(load) if load.items == 1);
        let recorder = recorder.lock().unwrap();
        let told = recorder.log().iter().filter(|e| arrived(&e.event)).count();
        assert_eq!(told, 3, "{name}");
    }
}

#[test]
fn a_rule_that_sees_batches_only_is_not_told_of_arrivals() {
    let recorder = Arc::new(Mutex::new(Recorder::new(Fixed::new(8).controller(), 1000)));
    let log = Log::default();
    let handle = builder()
        .controller(Arc::clone(&recorder))
        .spawn(Scripted::new(&log))
        .unwrap();
    call(&handle, 1);
    drain(&handle);
    let recorder = recorder.lock().unwrap();
    let told = |e: &Event| matches!(e, Event::Arrived(_));
    assert!(!recorder.log().iter().any(|e| told(&e.event)));
}

/// Checks the order of the events of the default's batches: right after a batch, the driver reports that its
/// callers will call again.
#[test]
fn the_default_is_recorded_in_the_batcher_and_replays_bit_for_bit() {
    let knee = || Knee::default().anticipating();
    let recorder = Arc::new(Mutex::new(Recorder::new(knee(), 10_000)));
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = builder()
        .controller(Arc::clone(&recorder))
        .spawn(handler)
        .unwrap();
    hold.busy(&handle);
    let requests: Vec<_> = (1..=3)
        .map(|n| handle.try_send_request(n).unwrap())
        .collect();
    for n in 4..=9 {
        handle.try_cast(n).unwrap();
    }
    hold.let_go();
    drain(&handle);
    for (n, mut request) in (1..=3).zip(requests) {
        assert_eq!(request.try_take().unwrap().unwrap(), n * 10);
    }
    let recorder = recorder.lock().unwrap();
    let log = recorder.log();
    assert_eq!(recorder.omitted(), 0);
    replay(&mut knee(), log).unwrap();
    let name = |event: &Event| match event {
        Event::Arrived(_) => "arrived",
        Event::Ready { .. } => "ready",
        Event::Started { .. } => "started",
        Event::Done { .. } => "done",
        Event::Expected { .. } => "expected",
        _ => "other",
    };
    let order: Vec<_> = log.iter().map(|e| name(&e.event)).collect();
    for (at, event) in log.iter().enumerate() {
        match event.event {
            Event::Expected { .. } => assert_eq!(order[at - 1], "done"),
            Event::Started { .. } => assert_eq!(order[at - 1], "ready"),
            Event::Arrived(_) => assert!(!["expected"].contains(&order[at + 1])),
            _ => {}
        }
    }
    let expected: u64 = log
        .iter()
        .map(|e| match e.event {
            Event::Expected { items } => items,
            _ => 0,
        })
        .sum();
    assert_eq!(
        expected, 3,
        "calls are expected again, casts are not: {order:?}"
    );
    let arrived = order.iter().filter(|&&o| o == "arrived").count();
    assert_eq!(arrived, 3, "{order:?}");
}
