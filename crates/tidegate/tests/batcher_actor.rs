//! Tests the promises of an actor, with the driver on a thread and with the driver on a task.
#![allow(clippy::unwrap_used)]

mod batcher_common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use batcher_common::driver::Driver;
use batcher_common::*;
use tidegate::batcher::*;
use tidegate::controller::{Bounds, Reason};

tests! {
    operations_arrive_in_order
    the_limit_doubles_when_full_and_halves_when_drained
    replies_may_be_kept_and_given_later
    requests_are_collected_in_the_order_of_their_answers
    async_calls_need_no_runtime
    full_refuses_or_waits
    full_in_bytes_refuses_or_waits
    a_batch_stays_within_its_bytes
    an_item_too_heavy_to_count_is_refused_and_never_clipped
    a_caster_flushes_in_order
    inspection_sees_the_state_between_batches
    idleness_is_told_once
    init_may_continue_or_refuse
    a_handler_may_stop_and_leaves_the_rest
    a_stop_gives_back_what_waits
    a_handler_that_never_returns_is_reported
    a_fold_cuts_its_own_batches
    a_handler_is_rebuilt_by_its_factory
    a_handler_may_refuse_to_go_on
    a_panic_while_continuing_does_not_repeat_for_ever
    ages_are_measured
    a_linger_waits_for_company_and_not_longer
    dropped_while_waiting_the_item_is_not_sent
}

fn operations_arrive_in_order<D: Driver>() {
    let log = Log::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let texts = Arc::clone(&seen);
    let (handler, hold) = Scripted::held_with(&log, move |batch| {
        let text = |op: &Op<u64, u64, &str>| match op {
            Op::Cast(n) => format!("cast {n}"),
            Op::Call(n, _) => format!("call {n}"),
            Op::Info(text) => format!("info {text}"),
            _ => unreachable!(),
        };
        texts.lock().unwrap().extend(batch.ops().iter().map(text));
        answer(batch)
    });
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(1).unwrap();
    handle.blocking_info("timer").unwrap();
    handle.try_info("again").unwrap();
    let call = handle.blocking_send_request(2).unwrap();
    assert_eq!(handle.blocking_cast_many([3, 4]).unwrap(), 2);
    hold.let_go();
    assert_eq!(call.blocking_wait().unwrap(), 20);
    handle.blocking_drain(LONG).unwrap();
    let seen = seen.lock().unwrap();
    let expected = [
        "cast 0",
        "cast 1",
        "info timer",
        "info again",
        "call 2",
        "cast 3",
        "cast 4",
    ];
    assert_eq!(*seen, expected);
    assert_eq!(
        log.sizes(),
        [1, 4],
        "an info has a place, but is no item here"
    );
    assert_eq!(handle.stats().items, 7);
}

/// Tests the defaults of gen_batch_server: limits of 32 to 8192 items, and the exponential rule.
fn the_limit_doubles_when_full_and_halves_when_drained<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let builder = builder().controller(Gbs::new(32, 8192).controller());
    let handle = D::start(builder, handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many(0..3000).unwrap();
    hold.let_go();
    until(|| log.items().len() == 3001);
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.sizes(), [1, 32, 64, 128, 256, 512, 1024, 984]);
    assert_eq!(log.items()[1..], (0..3000).collect::<Vec<_>>());
    assert_eq!(handle.stats().batches_for(Reason::Limit), 6);
}

fn replies_may_be_kept_and_given_later<D: Driver>() {
    let log = Log::default();
    let mut kept = Vec::new();
    let handler = Scripted::with(&log, move |batch| {
        for op in batch.drain() {
            if let Op::Call(item, reply) = op {
                kept.push((item, reply));
            }
        }
        if kept.len() == 2 {
            kept.drain(..)
                .for_each(|(item, reply)| reply.send(item + 1));
        }
        Flow::Continue
    });
    let handle = D::start(builder(), handler).unwrap();
    let mut first = handle.blocking_send_request(1).unwrap();
    until(|| log.items() == [1]);
    assert!(first.try_take().is_none());
    assert_eq!(handle.blocking_call(2).unwrap(), 3);
    assert_eq!(first.blocking_wait().unwrap(), 2);
    let lost = handle.blocking_send_request(3).unwrap();
    handle.blocking_drain(LONG).unwrap();
    assert!(matches!(lost.blocking_wait(), Err(ReplyError::NoReply)));
}

fn requests_are_collected_in_the_order_of_their_answers<D: Driver>() {
    let log = Log::default();
    let (slow, hold) = Scripted::held(&log);
    let slow = D::start(builder(), slow).unwrap();
    let quick = D::start(builder(), Scripted::new(&Log::default())).unwrap();
    hold.busy(&slow);
    let mut all = Requests::new();
    all.add("slow", slow.blocking_send_request(1).unwrap());
    all.add("quick", quick.blocking_send_request(2).unwrap());
    let (label, answer) = all.blocking_receive().unwrap();
    assert_eq!((label, answer.unwrap()), ("quick", 20));
    assert_eq!(
        all.blocking_receive_timeout(Duration::ZERO).unwrap_err(),
        ReceiveError::TimedOut
    );
    hold.let_go();
    let (label, answer) = block_on(all.receive()).unwrap();
    assert_eq!((label, answer.unwrap()), ("slow", 10));
    assert_eq!(all.blocking_receive().unwrap_err(), ReceiveError::Empty);
}

fn async_calls_need_no_runtime<D: Driver>() {
    let handle = D::start(builder(), Scripted::new(&Log::default())).unwrap();
    block_on(async {
        handle.cast(1).await.unwrap();
        assert_eq!(handle.call(2).await.unwrap(), 20);
        let request = handle.send_request(3).await.unwrap();
        assert_eq!(request.await.unwrap(), 30);
        handle.drain(Duration::MAX).await.unwrap();
        let refused = handle.cast(4).await;
        assert_eq!(refused, Err(SendError::Closed(4)));
    });
}

fn full_refuses_or_waits<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder().capacity(2).full(Full::Reject), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(1).unwrap();
    handle.try_cast(2).unwrap();
    assert_eq!(handle.blocking_cast(3), Err(SendError::Full(3)));
    assert_eq!(handle.try_cast(3), Err(SendError::Full(3)));
    assert!(matches!(
        handle.blocking_send_request(3),
        Err(SendError::Full(3))
    ));
    assert_eq!(
        handle.blocking_info("no").map_err(SendError::into_item),
        Err("no")
    );
    assert_eq!(
        handle.try_info("no").map_err(SendError::into_item),
        Err("no")
    );
    assert_eq!(handle.stats().rejected, 5);
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items(), [0, 1, 2]);

    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder().capacity(2), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| handle.blocking_cast(3));
        let awaited = s.spawn(|| block_on(handle.cast(4)));
        hold.let_go();
        blocked.join().unwrap().unwrap();
        awaited.join().unwrap().unwrap();
    });
    handle.blocking_drain(LONG).unwrap();
    let mut items = log.items();
    items.sort_unstable();
    assert_eq!(items, [0, 1, 2, 3, 4]);
}

fn full_in_bytes_refuses_or_waits<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let weighed = builder().weigh(|n| *n).capacity_bytes(10);
    let handle = D::start(weighed, handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(6).unwrap();
    assert_eq!(handle.try_cast(5), Err(SendError::Full(5)));
    handle.try_cast(4).unwrap();
    assert_eq!(handle.backlog().bytes, 10);
    let mut caster = handle.buffered();
    std::thread::scope(|s| {
        let blocked = s.spawn(|| handle.blocking_cast(7));
        let awaited = s.spawn(|| block_on(handle.cast(3)));
        let buffered = s.spawn(|| caster.blocking_cast(2));
        hold.let_go();
        blocked.join().unwrap().unwrap();
        awaited.join().unwrap().unwrap();
        buffered.join().unwrap().unwrap();
    });
    drop(caster);
    // The item weighs more than the whole room for bytes. The actor accepts it once no other item waits.
    handle.blocking_cast(1000).unwrap();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items().iter().sum::<u64>(), 6 + 4 + 7 + 3 + 2 + 1000);
    assert_eq!(handle.backlog().bytes, 0);
    assert_eq!(handle.stats().bytes, 1022);
}

fn a_batch_stays_within_its_bytes<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let bounds = Bounds {
        bytes_max: 10,
        ..Bounds::default()
    };
    let handle = D::start(builder().weigh(|n| *n).bounds(bounds), handler).unwrap();
    hold.busy(&handle);
    handle
        .blocking_cast_many([4, 4, 4, 3, 3, 11, 5, 5, 1])
        .unwrap();
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    let expected: [&[u64]; 6] = [&[0], &[4, 4], &[4, 3, 3], &[11], &[5, 5], &[1]];
    assert_eq!(log.batches(), expected);
    let stats = handle.stats();
    assert_eq!(stats.batches_for(Reason::Oversized), 1);
    assert_eq!(stats.batches_for(Reason::Memory), 3);
}

fn an_item_too_heavy_to_count_is_refused_and_never_clipped<D: Driver>() {
    const GIB: u64 = 1 << 30;
    for (oversized, limit) in [
        (Oversized::Alone, u64::from(u32::MAX)),
        (Oversized::Refuse, 3 * GIB),
    ] {
        let log = Log::default();
        let bounds = Bounds {
            bytes_max: 3 * GIB,
            ..Bounds::default()
        };
        let builder = builder().weigh(|n| *n).bounds(bounds).oversized(oversized);
        let handle = D::start(builder, Scripted::new(&log)).unwrap();
        let mut caster = handle.buffered();
        for item in [4 * GIB, 6 * GIB, u64::MAX] {
            let refused = Err(SendError::Oversized {
                item,
                bytes: item,
                limit,
            });
            assert_eq!(handle.blocking_cast(item), refused);
            assert_eq!(handle.try_cast(item), refused);
            assert_eq!(block_on(handle.cast(item)), refused);
            assert_eq!(caster.blocking_cast(item), refused);
        }
        handle.blocking_cast(2 * GIB).unwrap();
        handle.blocking_cast(3 * GIB).unwrap();
        drop(caster);
        handle.blocking_drain(LONG).unwrap();
        assert_eq!(handle.stats().bytes, 5 * GIB);
        assert_eq!(handle.stats().batches, 2);
    }
}

fn a_caster_flushes_in_order<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    let mut caster = handle.buffered_by(8);
    (1..=20).for_each(|n| caster.blocking_cast(n).unwrap());
    drop(caster);
    hold.let_go();
    assert_eq!(handle.blocking_call(21).unwrap(), 210);
    assert_eq!(log.items(), (0..=21).collect::<Vec<_>>());
    // A caster owns the last handle. The actor must handle the items in the caster's buffer, too.
    let mut caster = handle.buffered();
    caster.blocking_cast(22).unwrap();
    drop(handle);
    drop(caster);
    until(|| log.items().len() == 23);
}

fn inspection_sees_the_state_between_batches<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder().capacity(4), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2, 3, 4]).unwrap();
    std::thread::scope(|s| {
        // The queue is full. An inspection needs no room in the queue, and does not wait for the items in it.
        let visit = s.spawn(|| handle.blocking_inspect(|h: &Scripted| h.sum));
        let again = s.spawn(|| block_on(handle.inspect(|h: &Scripted| h.sum)));
        hold.let_go();
        assert!([0, 10].contains(&visit.join().unwrap().unwrap()));
        assert!([0, 10].contains(&again.join().unwrap().unwrap()));
    });
    handle.blocking_call(5).unwrap();
    assert_eq!(handle.blocking_inspect(|h: &Scripted| h.sum), Ok(15));
    assert!(matches!(
        handle.blocking_inspect(|_: &String| ()),
        Err(InspectError::OtherType { .. })
    ));
    let panicked = handle.blocking_inspect(|_: &Scripted| -> () { quiet_panic() });
    assert_eq!(panicked, Err(InspectError::Panicked));
    assert_eq!(handle.blocking_controller().unwrap().counts.items, 6);
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(
        handle.blocking_inspect(|_: &Scripted| ()),
        Err(InspectError::Ended)
    );
}

fn idleness_is_told_once<D: Driver>() {
    let log = Log::default();
    let handle = D::start(builder(), Scripted::new(&log)).unwrap();
    until(|| log.count(&Saw::Idle) == 1);
    for n in 1..=20 {
        handle.blocking_call(n).unwrap();
        until(|| log.count(&Saw::Idle) == 1 + n as usize);
        // An inspection is no batch, so the actor does not call `idle` again after it.
        handle.blocking_inspect(|_: &Scripted| ()).unwrap();
    }
    assert_eq!(log.count(&Saw::Idle), 21);
}

fn init_may_continue_or_refuse<D: Driver>() {
    let log = Log::default();
    let mut handler = Scripted::new(&log);
    handler.init = Some(Init::Continue);
    let handle = D::start(builder(), handler).unwrap();
    handle.blocking_call(1).unwrap();
    handle.blocking_drain(LONG).unwrap();
    let all: Vec<Saw> = log.all().into_iter().filter(|s| *s != Saw::Idle).collect();
    assert_eq!(all[..2], [Saw::Init, Saw::Continued]);
    assert_eq!(all[3..], [Saw::Terminated("drained".into())]);

    let mut handler = Scripted::new(&log);
    handler.init = Some(Init::stop("no disk"));
    let error = D::start(builder(), handler).unwrap_err();
    assert!(matches!(&error, SpawnError::Refused(cause) if cause.to_string() == "no disk"));
    let error = D::start_with(builder(), || -> Scripted { quiet_panic() }).unwrap_err();
    assert!(matches!(error, SpawnError::Panicked));

    for (builder, expected) in [
        (
            builder().capacity(0),
            "a queue with room for 0 items: at least 1 is needed",
        ),
        (
            builder().capacity_bytes(0),
            "room for 0 bytes: at least 1 is needed",
        ),
        (
            builder().capacity_bytes(100),
            "a capacity in bytes, but items have no weight: give `weigh`, too",
        ),
        (
            builder().bounds(Bounds::items(9, 3)),
            "the floor of 9 items is above the ceiling of 3: lower the one or raise the other",
        ),
    ] {
        let error = D::start(builder, Scripted::new(&log)).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

fn a_handler_may_stop_and_leaves_the_rest<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held_with(&log, |batch| {
        answer(batch);
        Flow::stop("enough")
    });
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    let call = handle.blocking_send_request(3).unwrap();
    hold.let_go();
    assert!(matches!(call.blocking_wait(), Err(ReplyError::Stopped)));
    let error = handle.blocking_drain(LONG).unwrap_err();
    assert!(matches!(error, StopError::Ended(StopReason::Handler(_))));
    assert_eq!(handle.blocking_stop("collect", LONG).unwrap(), [1, 2, 3]);
    assert_eq!(handle.blocking_stop("again", LONG).unwrap(), []);
    assert_eq!(
        log.all().last().unwrap(),
        &Saw::Terminated("stopped by its handler: enough".into())
    );
    assert!(matches!(handle.ended(), Some(StopReason::Handler(_))));
}

fn a_stop_gives_back_what_waits<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many(1..=5).unwrap();
    let call = handle.blocking_send_request(6).unwrap();
    let mut caster = handle.buffered();
    caster.blocking_cast(7).unwrap();
    std::thread::scope(|s| {
        let stop = s.spawn(|| handle.blocking_stop("maintenance", LONG));
        until(|| handle.is_closed());
        assert_eq!(handle.try_cast(8), Err(SendError::Closed(8)));
        hold.let_go();
        assert_eq!(stop.join().unwrap().unwrap(), [1, 2, 3, 4, 5, 6, 7]);
    });
    assert!(matches!(call.blocking_wait(), Err(ReplyError::Stopped)));
    assert_eq!(log.items(), [0]);
    assert_eq!(caster.blocking_cast(9), Err(SendError::Closed(9)));
    let ended = handle.ended().unwrap();
    assert_eq!(ended.to_string(), "asked to stop: maintenance");
}

fn a_handler_that_never_returns_is_reported<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    let error = handle.blocking_drain(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, StopError::TimedOut { backlog } if backlog.items == 2));
    let error = handle
        .blocking_stop("now", Duration::from_millis(1))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the actor has not ended in time: its handler has not returned, 2 items wait"
    );
    hold.let_go();
    assert_eq!(handle.blocking_stop("now", LONG).unwrap(), [1, 2]);
}

/// A fold that adds up items, and ends each batch at a sum of 100, to test batches of the user's own type.
struct Sums(Log);

impl Fold for Sums {
    type Item = u64;
    type Reply = u64;
    type Info = std::convert::Infallible;
    type Batch = (u64, Vec<u64>, Vec<Reply<u64>>);

    fn start(&mut self) -> Self::Batch {
        (0, Vec::new(), Vec::new())
    }

    fn append(&mut self, batch: &mut Self::Batch, op: Op<u64, u64, Self::Info>) -> Append {
        let item = match op {
            Op::Cast(item) => item,
            Op::Call(item, reply) => {
                batch.2.push(reply);
                item
            }
            _ => unreachable!(),
        };
        if item == 666 {
            quiet_panic();
        }
        batch.0 += item;
        batch.1.push(item);
        if batch.0 >= 100 {
            Append::Finish
        } else {
            Append::Continue
        }
    }

    fn handle_batch(&mut self, (sum, items, replies): Self::Batch) -> Handled {
        self.0.push(Saw::Batch(items, ""));
        replies.into_iter().for_each(|reply| reply.send(sum));
        Ok(Flow::Continue)
    }

    fn recover(&mut self) -> Recover {
        Recover::Continue
    }
}

fn a_fold_cuts_its_own_batches<D: Driver>() {
    let log = Log::default();
    let handle = D::start(builder(), Folded::new(Sums(log.clone()))).unwrap();
    assert_eq!(handle.blocking_call(100).unwrap(), 100);
    handle.blocking_cast_many([60, 40, 99]).unwrap();
    assert!([150, 99 + 150].contains(&handle.blocking_call(150).unwrap()));
    let lost = handle.blocking_send_request(1).and_then(|r| {
        handle.blocking_cast(666)?;
        Ok(r)
    });
    let lost = lost.unwrap().blocking_wait();
    assert!(matches!(lost, Ok(1) | Err(ReplyError::Panicked)));
    assert_eq!(handle.blocking_call(200).unwrap(), 200);
    handle.blocking_drain(LONG).unwrap();
    assert!(
        log.batches()
            .iter()
            .all(|b| b[..b.len() - 1].iter().sum::<u64>() < 100)
    );
    assert_eq!(handle.stats().panics, 1);
    assert!(handle.stats().batches_for(Reason::Asked) >= 2);
}

fn a_handler_is_rebuilt_by_its_factory<D: Driver>() {
    let log = Log::default();
    let made = Arc::new(AtomicUsize::new(0));
    let (makes, logs) = (Arc::clone(&made), log.clone());
    let handle = D::start_with(builder(), move || {
        makes.fetch_add(1, Ordering::SeqCst);
        let mut handler = Scripted::with(&logs, |batch| {
            if matches!(batch.ops(), [Op::Call(666, _), ..]) {
                quiet_panic();
            }
            answer(batch)
        });
        handler.recover = Recover::Rebuild;
        handler
    })
    .unwrap();
    assert_eq!(handle.blocking_call(1).unwrap(), 10);
    let error = handle.blocking_call(666).unwrap_err();
    assert!(matches!(error, CallError::Reply(ReplyError::Panicked)));
    assert_eq!(handle.blocking_call(2).unwrap(), 20);
    assert_eq!(
        handle.blocking_inspect(|h: &Scripted| h.sum),
        Ok(2),
        "the state is new"
    );
    assert_eq!(made.load(Ordering::SeqCst), 2);
    assert_eq!(log.count(&Saw::Init), 2);
}

fn a_handler_may_refuse_to_go_on<D: Driver>() {
    let log = Log::default();
    let (mut handler, hold) = Scripted::held_with(&log, |_| quiet_panic());
    handler.recover = Recover::Stop;
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast_many([1, 2]).unwrap();
    hold.let_go();
    let error = handle.blocking_drain(LONG).unwrap_err();
    assert!(matches!(error, StopError::Ended(StopReason::Panicked)));
    assert_eq!(handle.blocking_stop("collect", LONG).unwrap(), [1, 2]);
    assert!(!log.all().iter().any(|s| matches!(s, Saw::Terminated(_))));
}

struct Continues;

impl Handler for Continues {
    type Item = u64;
    type Reply = ();
    type Info = std::convert::Infallible;

    fn init(&mut self) -> Init {
        Init::Continue
    }

    fn handle_continue(&mut self) -> Flow {
        quiet_panic()
    }

    fn handle_batch(&mut self, _batch: &mut Batch<u64>) -> Handled {
        Ok(Flow::Continue)
    }
}

fn a_panic_while_continuing_does_not_repeat_for_ever<D: Driver>() {
    let handle = D::start_with(builder(), || Continues).unwrap();
    until(|| handle.ended().is_some());
    assert_eq!(handle.stats().panics, 2);
}

fn ages_are_measured<D: Driver>() {
    let log = Log::default();
    let ages = Arc::new(Mutex::new(Vec::new()));
    let of = Arc::clone(&ages);
    let (handler, hold) = Scripted::held_with(&log, move |batch| {
        of.lock().unwrap().push(batch.age());
        answer(batch)
    });
    let handle = D::start(builder(), handler).unwrap();
    hold.busy(&handle);
    let sent = Instant::now();
    handle.blocking_cast(1).unwrap();
    let before = sent.elapsed();
    until(|| sent.elapsed() > Duration::from_millis(5));
    let held = sent.elapsed();
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    let total = sent.elapsed();
    let ages = ages.lock().unwrap();
    assert!(ages[1] + before >= held && ages[1] <= total, "{ages:?}");
    assert!(handle.stats().age_ns.quantile(1.0) >= 5_000_000);
}

fn a_linger_waits_for_company_and_not_longer<D: Driver>() {
    let log = Log::default();
    let mut rule = Gbs::fixed(3);
    rule.linger_ns = u64::MAX / 2;
    let bounds = Bounds {
        age_max: Duration::MAX,
        ..Bounds::default()
    };
    let patient = builder().controller(rule.controller()).bounds(bounds);
    let handle = D::start(patient, Scripted::new(&log)).unwrap();
    for n in 0..30 {
        handle.blocking_cast(n).unwrap();
    }
    until(|| log.items().len() == 30);
    assert!(log.sizes().iter().all(|&n| n == 3), "{:?}", log.sizes());

    let log = Log::default();
    // The linger is so long that the actor looks at the queue before the linger ends, even on a busy machine.
    rule.linger_ns = 200_000_000;
    let hasty = builder().controller(rule.controller()).bounds(bounds);
    let handle = D::start(hasty, Scripted::new(&log)).unwrap();
    let start = Instant::now();
    handle.blocking_call(1).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(190));
    assert_eq!(handle.stats().batches_for(Reason::Linger), 1);
    assert_eq!(handle.blocking_controller().unwrap().counts.waits, 1);
}

fn dropped_while_waiting_the_item_is_not_sent<D: Driver>() {
    let log = Log::default();
    let (handler, hold) = Scripted::held(&log);
    let small = builder().capacity(1).weigh(|_| 1).capacity_bytes(100);
    let handle = D::start(small, handler).unwrap();
    hold.busy(&handle);
    handle.blocking_cast(1).unwrap();
    let polled_once = block_on(async {
        let mut send = std::pin::pin!(handle.cast(2));
        std::future::poll_fn(|cx| std::task::Poll::Ready(send.as_mut().poll(cx).is_ready())).await
    });
    assert!(!polled_once);
    assert_eq!(handle.backlog().bytes, 1, "its credit came back");
    hold.let_go();
    handle.blocking_drain(LONG).unwrap();
    assert_eq!(log.items(), [0, 1]);
}

#[test]
fn the_front_door_takes_a_closure() {
    let sum = Arc::new(AtomicUsize::new(0));
    let total = Arc::clone(&sum);
    let handle = spawn(move |items: &mut Vec<usize>| {
        total.fetch_add(items.drain(..).sum::<usize>(), Ordering::SeqCst);
    })
    .unwrap();
    handle.blocking_cast(1).unwrap();
    handle.blocking_call(2).unwrap();
    assert_eq!(sum.load(Ordering::SeqCst), 3);
    let tenfold = map_batch(|items: &mut Vec<u64>| items.iter().map(|n| n * 10).collect());
    let handle = Builder::new().spawn(tenfold).unwrap();
    assert_eq!(handle.blocking_call(4).unwrap(), 40);
}

#[test]
fn a_handler_on_its_own_thread_need_not_be_send() {
    struct Local(std::rc::Rc<std::cell::Cell<u64>>);
    impl Handler for Local {
        type Item = u64;
        type Reply = u64;
        type Info = std::convert::Infallible;
        fn handle_batch(&mut self, batch: &mut Batch<u64, u64>) -> Handled {
            for op in batch.drain() {
                let (Op::Cast(n) | Op::Call(n, _)) = &op else {
                    continue;
                };
                self.0.set(self.0.get() + n);
                if let Op::Call(_, reply) = op {
                    reply.send(self.0.get());
                }
            }
            Ok(Flow::Continue)
        }
    }
    let handle = Builder::new()
        .spawn_with(|| Local(Default::default()))
        .unwrap();
    handle.blocking_cast(1).unwrap();
    assert_eq!(handle.blocking_call(2).unwrap(), 3);
    assert_eq!(handle.blocking_inspect(|h: &Local| h.0.get()), Ok(3));
}

#[cfg(feature = "tokio")]
#[test]
fn a_runtime_that_goes_away_leaves_no_caller_waiting() {
    struct Never;
    impl AsyncHandler for Never {
        type Item = u64;
        type Reply = ();
        type Info = std::convert::Infallible;
        async fn handle_batch(&mut self, _batch: &mut Batch<u64>) -> Handled {
            std::future::pending().await
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let handle = runtime.block_on(Builder::new().spawn_task(Never)).unwrap();
    let request = handle.blocking_send_request(1).unwrap();
    runtime.block_on(async {
        while handle.stats().batches == 0 {
            tokio::task::yield_now().await;
        }
    });
    handle.blocking_cast(2).unwrap();
    drop(runtime);
    assert!(request.blocking_wait().is_err());
    assert_eq!(handle.blocking_stop("collect", LONG).unwrap(), [2]);
}
