//! Compares the pipeline with a simple model: submissions, deliveries, callers that go away, timeouts and
//! lost connections in any order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

use proptest::prelude::*;
use tidegate::controller::{Bounds, Controller, Greedy};

use super::*;
use crate::policy::Policy;

struct Nobody;

impl Wake for Nobody {
    fn wake(self: Arc<Self>) {}
}

fn waker() -> Waker {
    Waker::from(Arc::new(Nobody))
}

const ROOM: Room = Room {
    commands_max: 50,
    bytes_max: 4_000,
};

fn pipeline(policy: Policy) -> Pipeline {
    let plan = policy.plan(ROOM.commands_max).unwrap();
    Pipeline::new(plan.boundary, ROOM)
}

fn what(commands: u32) -> Submission {
    Submission {
        commands,
        wanted: true,
        urgent: false,
        own: false,
        answer: Answer::Replies,
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit { commands: u32, bytes: usize },
    Flush,
    Reply(usize),
    Poll(usize),
    Abandon(usize),
    Expire(u64),
    Lose,
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (1..5u32, 10..300usize).prop_map(|(commands, bytes)| Op::Submit { commands, bytes }),
        4 => Just(Op::Flush),
        5 => (1..30usize).prop_map(Op::Reply),
        4 => (0..50usize).prop_map(Op::Poll),
        2 => (0..50usize).prop_map(Op::Abandon),
        1 => (0..2_000u64).prop_map(Op::Expire),
        1 => Just(Op::Lose),
        2 => (0..100_000u64).prop_map(Op::Wait),
    ]
}

/// Counts how often the pipeline wakes one caller, in place of a task.
#[derive(Default)]
struct Calls(AtomicUsize);

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

/// A caller that finds no room in a full pipeline.
#[derive(Default)]
struct Outside {
    calls: Arc<Calls>,
    seen: usize,
    ticket: Option<Ticket>,
}

impl Outside {
    /// Returns whether the pipeline has called the caller since the last check.
    fn is_called(&mut self) -> bool {
        let calls = self.calls.0.load(Relaxed);
        calls > std::mem::replace(&mut self.seen, calls)
    }

    /// Submits one command. If the pipeline refuses it, the caller stands in the line.
    fn submit(&mut self, p: &mut Pipeline) -> bool {
        let submitted = p.submit(p.last_seen(), what(1), |out| out.block().push(b'x'));
        match submitted {
            Ok(_) => {
                self.ticket.take().into_iter().for_each(|t| p.leave_line(t));
                true
            }
            Err(_) => {
                let waker = Waker::from(Arc::clone(&self.calls));
                p.wait_for_room(&mut self.ticket, 1, &waker);
                false
            }
        }
    }
}

/// Writes all queued commands, and answers the first `replies` commands in flight, as a driver and a server
/// do.
fn turn(p: &mut Pipeline, replies: u64) {
    let (now, mut wakers) = (p.last_seen(), Vec::new());
    if let Next::Write(entries, reason) = p.poll_flush(now) {
        p.take(now, entries, reason, &mut Wire::default());
        p.written(now, 1, true);
    }
    let values = (0..replies.min(p.in_flight())).map(|_| Value::Int(1));
    assert!(p.deliver(now, values, &mut wakers, &mut Vec::new()));
    wakers.into_iter().for_each(Waker::wake);
}

/// Returns a full pipeline, and `waiting` callers that wait for room.
fn full_pipeline(waiting: usize) -> (Pipeline, Vec<Outside>) {
    let mut p = pipeline(Policy::Off);
    while p.commands() < ROOM.commands_max {
        assert!(Outside::default().submit(&mut p));
    }
    let mut callers: Vec<_> = (0..waiting).map(|_| Outside::default()).collect();
    for caller in &mut callers {
        assert!(!caller.submit(&mut p));
    }
    (p, callers)
}

#[test]
fn as_many_callers_as_there_is_room_for_are_called_in_the_order_of_the_line() {
    let (mut p, mut callers) = full_pipeline(200);
    turn(&mut p, ROOM.commands_max / 5);
    assert!(
        !callers.iter_mut().any(Outside::is_called),
        "a quarter is not free"
    );
    turn(&mut p, ROOM.commands_max / 5);
    let called: Vec<_> = callers.iter_mut().map(Outside::is_called).collect();
    assert!(called[..20].iter().all(|called| *called) && !called[20..].contains(&true));
    // Ten new callers are faster than the called callers. So ten of the called callers find no room, and
    // stand at their old places.
    for _ in 0..10 {
        assert!(Outside::default().submit(&mut p));
    }
    let served: Vec<_> = callers[..20].iter_mut().map(|c| c.submit(&mut p)).collect();
    assert!(served[..10].iter().all(|served| *served) && !served[10..].contains(&true));
    turn(&mut p, 20);
    let called: Vec<_> = callers.iter_mut().map(Outside::is_called).collect();
    let expected = |at: usize| (10..30).contains(&at);
    assert!(
        called
            .iter()
            .enumerate()
            .all(|(at, called)| *called == expected(at))
    );
}

#[test]
fn callers_that_gave_up_are_not_called() {
    let (mut p, mut callers) = full_pipeline(40);
    for caller in &mut callers[..30] {
        p.leave_line(caller.ticket.take().unwrap());
    }
    turn(&mut p, 20);
    let called: Vec<_> = callers.iter_mut().map(Outside::is_called).collect();
    assert!(!called[..30].contains(&true) && called[30..].iter().all(|called| *called));
}

#[test]
fn a_closed_pipeline_calls_all_callers() {
    let (mut p, mut callers) = full_pipeline(200);
    let mut wakers = Vec::new();
    drop(p.close(&Failure::Closed, &mut wakers));
    wakers.into_iter().for_each(Waker::wake);
    assert!(callers.iter_mut().all(Outside::is_called));
}

proptest! {
    /// A called caller that does not submit delays no other: once the pipeline is idle, it calls all callers.
    #[test]
    fn no_caller_waits_beside_an_idle_pipeline(
        comes in prop::collection::vec(any::<bool>(), 1..300),
        replies in 1..60_u64,
    ) {
        let (mut p, mut callers) = full_pipeline(comes.len());
        let mut served = vec![false; comes.len()];
        for _ in 0..1000 {
            turn(&mut p, replies);
            for ((caller, comes), served) in callers.iter_mut().zip(&comes).zip(&mut served) {
                let called = !*served && *comes && caller.is_called();
                *served |= called && caller.submit(&mut p);
            }
        }
        prop_assert!(p.is_idle());
        prop_assert_eq!(&served, &comes);
        prop_assert!(callers.iter_mut().zip(&comes).all(|(c, comes)| *comes || c.is_called()));
    }
}

/// A queued submission in the model, with the number of its commands.
struct Waiting {
    id: i64,
    commands: u32,
    bytes: usize,
    since: Time,
}

impl Waiting {
    /// Returns the bytes that stand for the submission on the wire.
    fn encoded(&self) -> Vec<u8> {
        vec![self.id as u8; self.bytes]
    }
}

/// A submission in the model, with a number that identifies its replies.
struct Caller {
    id: i64,
    commands: u32,
    slot: SlotId,
}

/// Runs `ops`, and checks that each caller receives the outcome of its own submission.
fn run(policy: Policy, ops: Vec<Op>) {
    let mut p = pipeline(policy);
    let mut now = Time::from_nanos(1);
    let mut next_id = 0;
    let mut callers: Vec<Caller> = Vec::new();
    // The commands in the server's order: one number for each command.
    let mut queued: VecDeque<Waiting> = VecDeque::new();
    let mut server: VecDeque<i64> = VecDeque::new();
    let mut wakers = Vec::new();
    for op in ops {
        now = now.after(1);
        match op {
            Op::Submit { commands, bytes } => {
                let before = p.commands();
                match p.submit(now, what(commands), |out| {
                    out.block().extend(vec![(next_id + 1) as u8; bytes])
                }) {
                    Ok((slot, _)) => {
                        next_id += 1;
                        let slot = slot.unwrap();
                        callers.push(Caller {
                            id: next_id,
                            commands,
                            slot,
                        });
                        queued.push_back(Waiting {
                            id: next_id,
                            commands,
                            bytes,
                            since: now,
                        });
                    }
                    Err(full) => {
                        assert_eq!(full.commands, before);
                        assert!(before > 0, "an empty pipeline has room");
                    }
                }
            }
            Op::Flush => {
                if let Next::Write(entries, reason) = p.poll_flush(now) {
                    let mut out = Wire::default();
                    p.take(now, entries, reason, &mut out);
                    assert!(entries > 0);
                    let written: Vec<_> = queued.drain(..entries as usize).collect();
                    let encoded: Vec<_> = written.iter().flat_map(Waiting::encoded).collect();
                    assert_eq!(out.to_vec(), encoded);
                    for one in written {
                        server.extend(std::iter::repeat_n(one.id, one.commands as usize));
                    }
                    p.written(now, 100, true);
                }
            }
            Op::Reply(n) => {
                let values = server.drain(..n.min(server.len())).map(Value::Int);
                assert!(p.deliver(now, values, &mut wakers, &mut Vec::new()));
            }
            Op::Poll(i) if !callers.is_empty() => {
                let caller = callers.swap_remove(i % callers.len());
                match p.take_outcome(caller.slot, &waker()) {
                    None => callers.push(caller),
                    Some(Outcome::One(value)) => {
                        assert_eq!((value, caller.commands), (Value::Int(caller.id), 1))
                    }
                    Some(Outcome::Many(values)) => {
                        assert_eq!(
                            values,
                            vec![Value::Int(caller.id); caller.commands as usize]
                        );
                    }
                    Some(Outcome::Failed(_)) => {}
                }
            }
            Op::Abandon(i) if !callers.is_empty() => {
                let caller = callers.swap_remove(i % callers.len());
                p.abandon(caller.slot);
            }
            Op::Expire(timeout) => {
                p.expire(now, timeout, &mut wakers);
                queued.retain(|one| one.since.after(timeout) > now);
            }
            Op::Lose => {
                p.lost(&"test".into(), &mut wakers);
                server.clear();
            }
            Op::Wait(ns) => now = now.after(ns),
            Op::Poll(_) | Op::Abandon(_) => {}
        }
        let queued_commands: u64 = queued.iter().map(|one| u64::from(one.commands)).sum();
        assert_eq!(p.queued(), queued_commands);
        assert!(p.commands() <= ROOM.commands_max || p.queued() + p.in_flight() <= 4);
        assert!(p.slots.len() as u64 <= 2 * ROOM.commands_max + callers.len() as u64);
    }
    // After a close every caller has an outcome, and every slot is free.
    drop(p.close(&Failure::Closed, &mut wakers));
    for caller in callers {
        assert!(p.take_outcome(caller.slot, &waker()).is_some());
    }
    assert_eq!(p.slots.free(), p.slots.len());
    assert!(p.is_idle());
}

fn policies() -> impl Strategy<Value = u8> {
    0..4u8
}

fn policy(n: u8) -> Policy {
    let us = std::time::Duration::from_micros;
    match n {
        0 => Policy::Auto,
        1 => Policy::Off,
        2 => Policy::Fixed(us(20)),
        _ => Policy::MinCpu(crate::Concession::AddedLatency(us(30))),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_caller_gets_its_own_replies(n in policies(), ops in prop::collection::vec(op(), 1..200)) {
        run(policy(n), ops);
    }
}

#[test]
fn a_timed_out_slot_serves_another_while_its_reply_is_still_due() {
    let mut p = pipeline(Policy::Off);
    let (now, mut wakers) = (Time::from_nanos(1), Vec::new());
    let submit = |p: &mut Pipeline| {
        p.submit(now, what(1), |out| out.block().push(b'x'))
            .unwrap()
            .0
            .unwrap()
    };
    let first = submit(&mut p);
    let mut out = Wire::default();
    p.take(now, 1, Reason::Drained, &mut out);
    p.written(now, 1, true);
    p.expire(now.after(10), 5, &mut wakers);
    assert!(matches!(
        p.take_outcome(first, &waker()),
        Some(Outcome::Failed(Failure::TimedOut(Executed::Maybe)))
    ));
    let second = submit(&mut p);
    assert_eq!(second, first, "the place is used again");
    out.clear(0);
    p.take(now, 1, Reason::Drained, &mut out);
    p.written(now, 1, true);
    p.deliver(
        now,
        [Value::Int(1)].into_iter(),
        &mut wakers,
        &mut Vec::new(),
    );
    assert!(
        p.take_outcome(second, &waker()).is_none(),
        "the late reply is nobody's"
    );
    p.deliver(
        now,
        [Value::Int(2)].into_iter(),
        &mut wakers,
        &mut Vec::new(),
    );
    assert!(matches!(
        p.take_outcome(second, &waker()),
        Some(Outcome::One(Value::Int(2)))
    ));
}

#[test]
fn limits_cut_a_flush_between_submissions() {
    let bounds = Bounds::items(1, 4);
    let controller: Box<dyn Controller> = Box::new(Greedy.controller());
    let mut p = Pipeline::new(Boundary::new(controller, bounds).unwrap(), ROOM);
    let now = Time::from_nanos(1);
    for n in [1, 3, 2, 9] {
        drop(
            p.submit(now, what(n), |out| {
                out.block().extend(vec![b'0' + n as u8; 10])
            })
            .unwrap(),
        );
    }
    let mut flushes = Vec::new();
    while let Next::Write(entries, reason) = p.poll_flush(now) {
        let mut out = Wire::default();
        p.take(now, entries, reason, &mut out);
        p.written(now, 1, true);
        flushes.push(String::from_utf8(out.to_vec()).unwrap());
    }
    // A submission that is larger than the limit must go alone and whole.
    assert_eq!(
        flushes,
        ["11111111113333333333", "2222222222", "9999999999"]
    );
}

#[test]
fn the_events_of_a_pipeline_replay_bit_for_bit() {
    use std::sync::Mutex;
    use tidegate::controller::{Event, Knee, Objective, Recorder, replay};

    let knee = || Knee::new(Objective::Inflation(0.03), Bounds::items(1, 50)).unwrap();
    let recorder = Arc::new(Mutex::new(Recorder::new(knee(), 100_000)));
    let mut p = pipeline(Policy::Custom(Box::new(Arc::clone(&recorder))));
    let (mut out, mut wakers) = (Wire::default(), Vec::new());
    for turn in 1..2000_u64 {
        let now = Time::from_nanos(turn * 20_000);
        for _ in 0..1 + turn % 7 {
            let encode = |out: &mut Wire| out.block().extend([b'x'; 30]);
            drop(p.submit(now, what(1), encode).ok());
        }
        if let Next::Write(entries, reason) = p.poll_flush(now) {
            p.take(now, entries, reason, &mut out);
            assert_eq!(p.poll_flush(now), Next::Nothing, "one flush at a time");
            out.clear(usize::MAX);
            match turn % 100 {
                0 => p.lost(&"reset".into(), &mut wakers),
                _ => p.written(now.after(3_000 + entries * 100), 3_000, true),
            }
        }
        let replies = (0..p.in_flight()).map(|_| Value::Int(1));
        let later = now.after(15_000);
        assert!(p.deliver(later, replies, &mut wakers, &mut Vec::new()));
    }
    let batches = p.snapshot().counts.batches();
    let recorder = recorder.lock().unwrap();
    let log = recorder.log();
    let count = |of: fn(&Event) -> bool| log.iter().filter(|e| of(&e.event)).count() as u64;
    let started = count(|e| matches!(e, Event::Started { .. }));
    assert_eq!(started, batches);
    assert_eq!(started, count(|e| matches!(e, Event::Done { .. })));
    assert!(started > 100 && count(|e| matches!(e, Event::Expected { .. })) > 100);
    assert_eq!(recorder.omitted(), 0);
    replay(&mut knee(), log).unwrap();
}
