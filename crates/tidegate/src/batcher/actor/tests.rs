//! Tests an actor without a driver: the entries that its steps take out of the queue, and its waits.

use super::super::{Builder, Handle};
use super::*;
use crate::controller::Fixed;

fn actor() -> (Handle<u64>, Actor<u64, (), std::convert::Infallible>) {
    Builder::new().weigh(|n| *n).build().unwrap()
}

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

#[test]
fn regression_19_an_idle_actor_has_no_reason_to_wake_up() {
    let (handle, mut actor) = actor();
    assert_eq!(actor.poll(at(1)), DriverStep::Idle);
    assert_eq!(actor.poll(at(1)), DriverStep::Rest);
    assert_eq!(actor.prepare_wait(DriverStep::Rest, at(1)), Time::NEVER);
    // Large buffers are the one reason for which an idle actor wakes up: the actor then frees them.
    handle.blocking_cast_many(vec![1; 5000]).unwrap();
    assert!(matches!(actor.poll(at(2)), DriverStep::Take(_)));
    let all = Load::new(5000, u64::MAX);
    assert!(actor.gather(at(2), all, |batch, op| {
        batch.push(op);
        Append::Continue
    }));
    assert!(actor.finish(at(3), Ok(Flow::Continue)).is_ok());
    let until = actor.prepare_wait(DriverStep::Rest, at(3));
    assert_eq!(until, at(3 + IDLE_NS));
    actor.waited(DriverStep::Rest, until, until);
    assert_eq!(actor.prepare_wait(DriverStep::Rest, until), Time::NEVER);
}

#[test]
fn a_wait_takes_what_is_there_out_of_the_queue_and_no_more_than_it_asks_for() {
    let (handle, mut actor) = actor();
    handle.blocking_cast_many([1, 2, 3, 4]).unwrap();
    let hold = DriverStep::Hold {
        items: 5,
        until: at(100),
    };
    assert_eq!(actor.prepare_wait(hold, at(1)), at(100));
    assert_eq!((actor.stash.len(), actor.consumer.backlog()), (4, 0));
    assert_eq!(handle.backlog(), Load::new(4, 10));
    handle.blocking_cast_many([5, 6, 7]).unwrap();
    assert_eq!(actor.prepare_wait(hold, at(2)), at(2), "enough came");
    assert_eq!((actor.stash.len(), actor.consumer.backlog()), (6, 1));
    assert_eq!(handle.backlog(), Load::new(7, 28));
    let mut taken = Vec::new();
    let limit = Load::new(100, 16);
    actor.gather(at(3), limit, |_, op| {
        taken.extend(match op {
            Op::Cast(n) => Some(n),
            _ => None,
        });
        Append::Continue
    });
    assert_eq!(taken, [1, 2, 3, 4, 5], "the sixth would pass 16 bytes");
    assert_eq!(handle.backlog(), Load::new(2, 13));
    drop(actor);
    assert_eq!(
        handle.blocking_stop("", std::time::Duration::ZERO).unwrap(),
        [6, 7]
    );
}

/// Takes a batch from the actor, as a driver does, and returns its items.
fn take(actor: &mut Actor<u64, (), std::convert::Infallible>, now: Time) -> Vec<u64> {
    let mut taken = Vec::new();
    assert!(matches!(actor.poll(now), DriverStep::Take(_)));
    actor.gather(now, Load::new(100, u64::MAX), |_, op| {
        taken.extend(match op {
            Op::Cast(n) => Some(n),
            _ => None,
        });
        Append::Continue
    });
    taken
}

fn holding(limit: u64) -> (Handle<u64>, Actor<u64, (), std::convert::Infallible>) {
    let fixed = Fixed::new(limit).with_linger(std::time::Duration::from_secs(1));
    Builder::new()
        .controller(fixed.controller())
        .build()
        .unwrap()
}

#[test]
fn a_first_look_does_not_count_the_entry_of_a_sender_stopped_before_its_publication() {
    let (handle, mut actor) = holding(4);
    let now = actor.clock().now();
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    let queue = actor.shared.queue.clone();
    let mut step = DriverStep::End;
    queue.push_stopped(Entry::Cast(0, 4), || step = actor.poll(now));
    assert!(
        matches!(step, DriverStep::Hold { items: 3, .. }),
        "{step:?}"
    );
    assert_eq!(take(&mut actor, now), [1, 2, 3, 4]);
}

#[test]
fn a_held_batch_waits_for_a_sender_stopped_before_its_publication() {
    let (handle, mut actor) = holding(4);
    let now = actor.clock().now();
    handle.blocking_cast_many([1, 2]).unwrap();
    let hold = actor.poll(now);
    assert!(
        matches!(hold, DriverStep::Hold { items: 3, .. }),
        "{hold:?}"
    );
    assert_ne!(actor.prepare_wait(hold, now), now);
    handle.blocking_cast(3).unwrap();
    let queue = actor.shared.queue.clone();
    let mut step = DriverStep::End;
    queue.push_stopped(Entry::Cast(0, 4), || {
        // The later sender publishes its entry, which lies behind the entry of the stopped sender.
        handle.blocking_cast(5).unwrap();
        actor.waited(hold, now, now);
        step = actor.poll(now);
    });
    assert!(
        matches!(step, DriverStep::Hold { items: 3, .. }),
        "{step:?}"
    );
    assert_eq!(take(&mut actor, now), [1, 2, 3, 4, 5]);
}

#[test]
fn a_visit_does_not_end_a_hold() {
    let (handle, mut actor) = holding(4);
    let now = actor.clock().now();
    handle.blocking_cast_many([1, 2, 3]).unwrap();
    let hold = actor.poll(now);
    actor.prepare_wait(hold, now);
    // This entry carries no item and only wakes the actor. An inspection leaves such an entry in the queue.
    assert!(actor.shared.queue.try_push(Entry::Wake).is_ok());
    actor.waited(hold, now, now);
    let step = actor.poll(now);
    assert!(
        matches!(step, DriverStep::Hold { items: 3, .. }),
        "{step:?}"
    );
    handle.blocking_cast(4).unwrap();
    assert_eq!(take(&mut actor, now), [1, 2, 3, 4]);
}

#[test]
fn a_lone_entry_that_is_not_published_is_waited_for_and_survives_a_drain() {
    let (handle, mut actor) = actor();
    let now = actor.clock().now();
    assert_eq!(actor.poll(now), DriverStep::Idle);
    let queue = actor.shared.queue.clone();
    let mut steps = Vec::new();
    queue.push_stopped(Entry::Cast(1, 1), || {
        steps.push(actor.poll(now));
        handle
            .blocking_drain(std::time::Duration::ZERO)
            .unwrap_err();
        steps.push(actor.poll(now));
    });
    assert_eq!(steps, [DriverStep::Rest; 2], "the entry is still to come");
    assert_eq!(take(&mut actor, now), [1]);
}
