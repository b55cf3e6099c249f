//! Tests a boundary alone, without a driver: first scenarios, then arbitrary calls against a model, with
//! wrong calls among them.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::controller::{Choice, Fixed, Freeze, Greedy, Knee, Objective, Recorder, Shadow, replay};

/// The step that a boundary returns while no batch may start before a running batch ends.
const BUSY: Step = Step::Busy { until: Time::NEVER };

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

fn greedy(in_flight: u32, most: u32) -> Boundary<impl Controller> {
    let bounds = Bounds {
        in_flight_max: Some(most),
        ..Bounds::items(1, 64)
    };
    Boundary::new(
        Fixed::new(64).with_in_flight(in_flight).controller(),
        bounds,
    )
    .unwrap()
}

fn start(b: &mut Boundary<impl Controller>, now: u64) -> Result<BatchId, BoundaryError> {
    b.started(at(now), Load::items(1), Load::items(0), Cut::Drained)
}

#[test]
fn a_batch_costs_what_lies_between_its_own_start_and_its_end() {
    let mut b = greedy(3, 3);
    let first = start(&mut b, 10).unwrap();
    let second = start(&mut b, 15).unwrap();
    assert_eq!(b.running(), 2);
    assert_eq!(b.done(at(40), second, true), Ok(25));
    assert_eq!(b.done(at(40), first, false), Ok(30));
    assert_eq!(b.running(), 0);
}

#[test]
fn a_batch_is_done_once_and_only_where_it_started() {
    let mut b = greedy(4, 4);
    let never = BatchId::new(77);
    assert_eq!(
        b.done(at(0), BatchId::new(0), true),
        Err(BoundaryError::NeverStarted {
            id: BatchId::new(0)
        })
    );
    let id = start(&mut b, 1).unwrap();
    b.done(at(2), id, true).unwrap();
    let twice = Err(BoundaryError::AlreadyDone { id });
    assert_eq!(b.done(at(3), id, true), twice);
    assert_eq!(b.done_with(at(3), id, 1, true), twice.map(|_: u64| ()));
    // Later batches reuse the slot of the finished batch. Its id still means the finished batch, so `done`
    // refuses it.
    for n in 4..20 {
        let fresh = start(&mut b, n).unwrap();
        assert_eq!(b.done(at(n), id, true), twice);
        b.done(at(n), fresh, true).unwrap();
    }
    let unknown = Err(BoundaryError::NeverStarted { id: never });
    assert_eq!(b.done(at(20), never, true), unknown);
}

#[test]
fn the_id_of_another_boundary_is_refused_unless_a_batch_of_that_id_runs_here() {
    let (mut here, mut there) = (greedy(2, 2), greedy(2, 2));
    let own = start(&mut here, 0).unwrap();
    there.done(at(0), BatchId::new(0), true).unwrap_err();
    let first = start(&mut there, 0).unwrap();
    let second = start(&mut there, 0).unwrap();
    assert_eq!(first, own, "boundaries count for themselves");
    let unknown = BoundaryError::NeverStarted { id: second };
    assert_eq!(here.done(at(1), second, true), Err(unknown));
    assert!(unknown.to_string().contains("never started here"));
    assert_eq!(here.running(), 1);
}

#[test]
fn batches_that_end_in_order_have_ids_that_count_up() {
    for most in [1, 2, 3, 5, 64] {
        let mut b = greedy(most, most);
        for n in 0..200 {
            let id = start(&mut b, n).unwrap();
            assert_eq!(id, BatchId::new(n), "{most} at once");
            b.done(at(n), id, true).unwrap();
        }
    }
}

#[test]
fn no_more_batches_run_than_the_bounds_allow() {
    let mut b = greedy(100, 3);
    for n in 0..3 {
        assert!(matches!(
            b.poll(at(n), Load::items(1), at(n)),
            Ok(Step::Take(_))
        ));
        start(&mut b, n).unwrap();
    }
    assert_eq!(b.poll(at(3), Load::items(1), at(3)), Ok(BUSY));
    assert_eq!(
        start(&mut b, 3),
        Err(BoundaryError::Full { in_flight_max: 3 })
    );
    b.done(at(4), BatchId::new(1), true).unwrap();
    assert!(matches!(
        b.poll(at(4), Load::items(1), at(4)),
        Ok(Step::Take(_))
    ));
}

#[test]
fn the_controller_says_how_many_run_within_the_bounds() {
    let mut b = greedy(2, 8);
    for n in 0..2 {
        assert!(matches!(
            b.poll(at(n), Load::items(1), at(n)),
            Ok(Step::Take(_))
        ));
        start(&mut b, n).unwrap();
    }
    assert_eq!(b.in_flight(), 2);
    assert_eq!(b.poll(at(2), Load::items(1), at(2)), Ok(BUSY));
}

#[test]
fn a_clock_that_goes_back_is_refused_by_every_call_and_changes_nothing() {
    let fixed = Fixed::new(4).with_linger(Duration::from_nanos(100));
    let recorder = Recorder::new(fixed.controller(), 100);
    let mut b = Boundary::new(recorder, Bounds::items(1, 8)).unwrap();
    let id = start(&mut b, 50).unwrap();
    let (state, told) = (format!("{b:?}"), b.controller().log().len());
    let one = Load::items(1);
    let back = BoundaryError::TimeWentBack {
        now: at(49),
        last: at(50),
    };
    assert_eq!(b.arrived(at(49), one), Err(back));
    assert_eq!(b.expect(at(49), 1), Err(back));
    assert_eq!(b.replied(at(49), 1, 1, 1), Err(back));
    assert_eq!(b.blocking(at(49)), Err(back));
    assert_eq!(b.poll(at(49), one, at(49)), Err(back));
    assert_eq!(start(&mut b, 49), Err(back));
    assert_eq!(b.done(at(49), id, true), Err(back));
    assert_eq!(b.done_with(at(49), id, 7, true), Err(back));
    assert_eq!(
        (format!("{b:?}"), b.controller().log().len()),
        (state, told)
    );
    assert_eq!(b.at(at(49)), at(50));
    assert_eq!(b.done(b.at(at(49)), id, true), Ok(0));
}

#[test]
fn the_reason_of_a_batch_follows_from_its_cut_and_the_decision() {
    let linger = Duration::from_nanos(100);
    let fixed = Fixed::new(4).with_linger(linger).controller();
    let mut b = Boundary::new(fixed, Bounds::items(1, 8)).unwrap();
    let held = b.poll(at(0), Load::items(3), at(0)).unwrap();
    assert_eq!(
        held,
        Step::Hold {
            items: 3,
            until: at(100)
        }
    );
    assert_eq!((b.due(), b.reason()), (Some(at(100)), Reason::Linger));
    assert!(matches!(
        b.poll(at(100), Load::items(3), at(0)),
        Ok(Step::Take(_))
    ));
    assert_eq!(b.due(), None);
    let reasons = [
        (Cut::Drained, Reason::Linger),
        (Cut::Items, Reason::Linger),
        (Cut::Bytes, Reason::Memory),
        (Cut::Oversized, Reason::Oversized),
        (Cut::Finished, Reason::Asked),
        (Cut::Forced(Reason::Closing), Reason::Closing),
    ];
    for (cut, reason) in reasons {
        assert_eq!(b.reason_for(cut), reason, "{cut:?}");
    }
    assert!(matches!(
        b.poll(at(100), Load::items(4), at(0)),
        Ok(Step::Take(_))
    ));
    assert_eq!(b.reason_for(Cut::Drained), Reason::Drained);
    assert_eq!(b.reason_for(Cut::Items), Reason::Limit);
}

#[test]
fn items_left_behind_keep_their_wait() {
    let linger = Duration::from_nanos(100);
    let fixed = Fixed::new(4).with_linger(linger).controller();
    let mut b = Boundary::new(fixed, Bounds::items(1, 8)).unwrap();
    b.poll(at(0), Load::items(3), at(0)).unwrap();
    let forced = Cut::Forced(Reason::Asked);
    let id = b
        .started(at(1), Load::items(1), Load::items(2), forced)
        .unwrap();
    assert_eq!(b.due(), Some(at(100)));
    b.done(at(1), id, true).unwrap();
    b.started(at(2), Load::items(2), Load::items(0), forced)
        .unwrap();
    assert_eq!(b.due(), None);
}

#[test]
fn a_bound_of_billions_allocates_a_table_of_the_largest_length() {
    let b = greedy(u32::MAX, u32::MAX);
    assert_eq!(
        b.table.most(),
        Boundary::<Box<dyn Controller>>::IN_FLIGHT_MAX
    );
}

#[test]
fn a_controller_given_by_the_driver_is_read_back_through_its_wrappers() {
    let shadow = Shadow::new(Greedy.controller(), Fixed::new(2).controller());
    let recorder = Recorder::new(Freeze::new(shadow), 1000);
    let mut b = Boundary::new(recorder, Bounds::items(1, 64)).unwrap();
    for n in 0..100 {
        b.arrived(at(n), Load::items(5)).unwrap();
        b.poll(at(n), Load::items(5), at(n)).unwrap();
        let id = b
            .started(at(n), Load::items(5), Load::items(0), Cut::Drained)
            .unwrap();
        b.done_with(at(n), id, 3, true).unwrap();
    }
    assert_eq!(b.controller().log().len(), 400);
    let frozen = b.controller().inner();
    assert!(!frozen.is_frozen());
    assert_eq!(frozen.inner().comparison().smaller, 100);
    let log = b.into_controller();
    let shadow = Shadow::new(Greedy.controller(), Fixed::new(2).controller());
    replay(&mut Freeze::new(shadow), log.log()).unwrap();
}

/// A controller that decides at random, with limits of 0 or none at all, waits that are already over, and a
/// number of batches at once from 0 to the largest integer.
struct Wild(u64);

impl Controller for Wild {
    fn on(&mut self, now: Time, _: Event) -> Decision {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let draw = self.0 >> 33;
        let extreme = |n: u64| [0, 1, 7, u64::MAX][(n % 4) as usize];
        Decision {
            limit_items: extreme(draw),
            limit_bytes: extreme(draw / 4),
            in_flight: [0, 1, 3, u32::MAX][(draw / 16 % 4) as usize],
            when: match draw / 64 % 4 {
                0 => When::Now,
                1 => When::At(at(draw % 1000)),
                2 => When::At(now.after(draw % 50)),
                _ => When::After {
                    items: extreme(draw / 256),
                    until: [at(draw % 1000), now.after(5), Time::NEVER][(draw % 3) as usize],
                },
            },
            reason: Reason::ALL[(draw / 1024) as usize % Reason::COUNT],
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Pass(u64),
    GoBack(u64),
    Arrive(u64),
    Expect(u64),
    Reply(u64),
    Block,
    Poll,
    Start {
        items: u64,
        bytes: u64,
        cut: Cut,
    },
    /// Ends the batch with the n-th of the ids seen so far, no matter if the batch still runs, so that wrong
    /// calls occur.
    Done {
        nth: usize,
        cost: Option<u64>,
        ok: bool,
    },
    Foreign(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let cut = prop_oneof![
        Just(Cut::Drained),
        Just(Cut::Items),
        Just(Cut::Bytes),
        Just(Cut::Oversized),
        Just(Cut::Finished),
        (0..Reason::COUNT).prop_map(|n| Cut::Forced(Reason::ALL[n])),
    ];
    prop_oneof![
        3 => (0..200u64).prop_map(Op::Pass),
        1 => (1..100u64).prop_map(Op::GoBack),
        4 => (0..100u64).prop_map(Op::Arrive),
        1 => (0..9u64).prop_map(Op::Expect),
        1 => (0..9u64).prop_map(Op::Reply),
        1 => Just(Op::Block),
        8 => Just(Op::Poll),
        8 => (0..40u64, 0..1000u64, cut).prop_map(|(items, bytes, cut)| Op::Start { items, bytes, cut }),
        8 => (any::<usize>(), proptest::option::of(any::<u64>()), any::<bool>())
            .prop_map(|(nth, cost, ok)| Op::Done { nth, cost, ok }),
        1 => any::<u64>().prop_map(Op::Foreign),
    ]
}

/// The model that the tests compare with a boundary: the behaviour of a boundary, without its table and its
/// controller.
#[derive(Default)]
struct Model {
    now: u64,
    backlog: u64,
    /// Every batch id that the boundary handed out. `running` has the start time of each running batch.
    ids: Vec<BatchId>,
    running: HashMap<u64, u64>,
    batches: u64,
    items: u64,
    events: usize,
}

impl Model {
    fn judge(&self, id: BatchId) -> Result<u64, BoundaryError> {
        match self.running.get(&id.get()) {
            Some(since) => Ok(self.now - since),
            None if self.ids.contains(&id) => Err(BoundaryError::AlreadyDone { id }),
            None => Err(BoundaryError::NeverStarted { id }),
        }
    }

    fn step(&mut self, b: &mut Boundary<Recorder<Box<dyn Controller>>>, op: Op) {
        let now = at(self.now);
        let backlog = Load::new(self.backlog, self.backlog * 10);
        match op {
            Op::Pass(ns) => self.now += ns,
            Op::GoBack(ns) if ns <= self.now && b.now >= now => {
                let before = at(self.now - ns);
                let refused = b.poll(before, backlog, before);
                assert_eq!(refused.is_err(), before < b.now, "{refused:?}");
                self.events = b.controller().log().len();
            }
            Op::GoBack(_) => {}
            Op::Arrive(n) => {
                b.arrived(now, Load::items(n)).unwrap();
                self.backlog += n;
                self.events += usize::from(n > 0);
            }
            Op::Expect(n) => {
                b.expect(now, n).unwrap();
                self.events += usize::from(n > 0);
            }
            Op::Reply(n) => {
                b.replied(now, n, n, n).unwrap();
                self.events += 1;
            }
            Op::Block => {
                b.blocking(now).unwrap();
                self.events += 1;
            }
            Op::Poll => self.poll(b, now, backlog),
            Op::Start { items, bytes, cut } => {
                let items = items.min(self.backlog);
                let left = Load::items(self.backlog - items);
                let expected = b.reason_for(cut);
                match b.started(now, Load::new(items, bytes), left, cut) {
                    Ok(id) => {
                        assert!(items > 0 && !self.ids.contains(&id), "{id:?} is fresh");
                        self.ids.push(id);
                        self.running.insert(id.get(), self.now);
                        self.batches += 1;
                        self.items += items;
                        self.backlog -= items;
                        self.events += 1;
                        let last = b.controller().log().last().unwrap().event;
                        let reason = expected;
                        let batch = Load::new(items, bytes);
                        assert_eq!(
                            last,
                            Event::Started {
                                id,
                                batch,
                                left,
                                reason
                            }
                        );
                    }
                    Err(BoundaryError::EmptyBatch) => assert_eq!(items, 0),
                    Err(e) => {
                        let in_flight_max = b.bounds().in_flight();
                        assert_eq!(e, BoundaryError::Full { in_flight_max });
                        assert_eq!(self.running.len(), in_flight_max as usize);
                    }
                }
            }
            Op::Done { nth, cost, ok } if !self.ids.is_empty() => {
                let id = self.ids[nth % self.ids.len()];
                self.done(b, id, cost, ok);
            }
            Op::Done { .. } => {}
            Op::Foreign(id) => self.done(b, BatchId::new(id), None, true),
        }
    }

    fn poll(&mut self, b: &mut Boundary<Recorder<Box<dyn Controller>>>, now: Time, backlog: Load) {
        let oldest = at(self.now.saturating_sub(20));
        let step = b.poll(now, backlog, oldest).unwrap();
        let told = b.controller().log().len() - self.events;
        self.events += told;
        let bounds = b.bounds();
        assert_eq!(b.due().is_some(), matches!(step, Step::Hold { .. }));
        match step {
            Step::Take(limit) => {
                assert!((bounds.items_min..=bounds.items_max).contains(&limit.items));
                assert!((1..=bounds.bytes_max).contains(&limit.bytes));
                assert!(b.running() < b.in_flight() && told == 1);
            }
            Step::Hold { items, until } => {
                assert!(items >= self.backlog && until > now && told == 1);
                assert!(until <= oldest + bounds.age_max, "no wait passes the bound");
                assert!(backlog.items < bounds.items_max && backlog.bytes < bounds.bytes_max);
                assert_eq!(b.due(), Some(until));
            }
            Step::Busy { .. } => assert!(b.running() >= b.in_flight() && b.running() > 0),
            Step::Rest => assert_eq!((self.backlog, told), (0, 0)),
        }
    }

    fn done(
        &mut self,
        b: &mut Boundary<Recorder<Box<dyn Controller>>>,
        id: BatchId,
        cost: Option<u64>,
        ok: bool,
    ) {
        let now = at(self.now);
        let expected = self.judge(id);
        match cost {
            None => assert_eq!(b.done(now, id, ok), expected),
            Some(cost_ns) => {
                let done = b.done_with(now, id, cost_ns, ok);
                assert_eq!(done, expected.map(|_| ()));
            }
        }
        if let Ok(since) = expected {
            self.running.remove(&id.get());
            self.events += 1;
            let cost_ns = cost.unwrap_or(since);
            let last = b.controller().log().last().unwrap().event;
            assert_eq!(last, Event::Done { id, cost_ns, ok });
        }
    }

    fn check(&self, b: &Boundary<Recorder<Box<dyn Controller>>>) {
        b.check_invariants();
        assert_eq!(b.running() as usize, self.running.len());
        assert!(b.running() <= b.bounds().in_flight());
        assert!((1..=b.bounds().in_flight()).contains(&b.in_flight()));
        let counts = b.snapshot().counts;
        assert_eq!((counts.batches(), counts.items), (self.batches, self.items));
        assert_eq!(
            b.controller().log().len(),
            self.events,
            "a wrong call tells nothing"
        );
    }
}

fn controllers() -> impl Strategy<Value = (Option<Choice>, u64)> {
    let choice = prop_oneof![
        Just(None),
        Just(None),
        Just(Some(Choice::KNEE)),
        Just(Some(Choice::Knee(Objective::CostBudget(0.01)))),
        Just(Some(Choice::GREEDY)),
        Just(Some(Choice::Exponential)),
        Just(Some(Choice::Fixed {
            limit: 9,
            linger: Duration::from_nanos(90)
        })),
    ];
    (choice, any::<u64>())
}

proptest! {
    /// Makes arbitrary calls, with wrong calls among them, and checks that every result is the model's, no
    /// limit exceeds the bounds, the counts are right, and nothing panics.
    #[test]
    fn calls_in_any_order_answer_as_the_model_does(
        (choice, seed) in controllers(),
        (min, more, bytes_max) in (1..20u64, 0..60u64, 1..3000u64),
        (in_flight_max, age) in (1..9u32, 0..300u64),
        ops in proptest::collection::vec(op(), 1..300),
    ) {
        let bounds = Bounds {
            bytes_max,
            age_max: Duration::from_nanos(age),
            in_flight_max: Some(in_flight_max),
            ..Bounds::items(min, min + more)
        };
        let make = || -> Box<dyn Controller> {
            match choice {
                Some(choice) => choice.build(bounds).unwrap(),
                None => Box::new(Wild(seed)),
            }
        };
        let mut b = Boundary::new(Recorder::new(make(), 10_000), bounds).unwrap();
        let mut model = Model::default();
        for op in ops {
            model.step(&mut b, op);
            model.check(&b);
        }
        prop_assert!(replay(&mut make(), b.controller().log()).is_ok());
    }
}

#[test]
fn loads_beyond_all_memory_do_not_overflow() {
    for (bounds, load) in [
        (
            Bounds {
                items_max: u64::MAX,
                in_flight_max: Some(4),
                ..Bounds::default()
            },
            Load::items(1 << 63),
        ),
        (Bounds::items(1, u64::MAX - 1), Load::items(u64::MAX - 1)),
    ] {
        let knee = Knee::new(Objective::Lean, bounds).unwrap();
        let mut boundary = Boundary::new(knee, bounds).unwrap();
        let mut now = Time::ZERO;
        for _ in 0..100 {
            let mut start = |boundary: &mut Boundary<Knee>| {
                now = now.after(1);
                boundary.started(now, load, load, Cut::Items)
            };
            let ids: Vec<_> = std::iter::from_fn(|| start(&mut boundary).ok())
                .take(2)
                .collect();
            assert!(!ids.is_empty());
            for id in ids {
                now = now.after(1 << 40);
                boundary.done(now, id, true).unwrap();
            }
            boundary.poll(now, load, now).unwrap();
        }
        assert!(boundary.limit().items >= 1);
    }
}

/// Simulates 64 callers that call again as soon as they have their answers. One batch runs at a time, and a
/// batch of `n` items costs `ns(n)` nanoseconds. Returns the controller's limit after `batches` batches.
fn limit_after(batches: u32, ns: impl Fn(u64) -> u64) -> u64 {
    const CALLERS: u64 = 64;
    let bounds = Bounds::default();
    let knee = Knee::new(Objective::Lean, bounds).unwrap();
    let mut boundary = Boundary::new(knee, bounds).unwrap();
    let mut now = Time::from_nanos(1);
    boundary.arrived(now, Load::items(CALLERS)).unwrap();
    for _ in 0..batches {
        let since = now;
        let n = loop {
            match boundary.poll(now, Load::items(CALLERS), since).unwrap() {
                Step::Take(limit) => break limit.items.min(CALLERS),
                Step::Hold { until, .. } => now = until,
                step => panic!("{step:?} with a backlog"),
            }
        };
        let left = Load::items(CALLERS - n);
        let cut = if n < CALLERS {
            Cut::Items
        } else {
            Cut::Drained
        };
        let id = boundary.started(now, Load::items(n), left, cut).unwrap();
        now = now.after(ns(n));
        boundary.done(now, id, true).unwrap();
        boundary.arrived(now, Load::items(n)).unwrap();
    }
    boundary.limit().items
}

/// A regression test: the first batches have 32 and 64 items, and no straight line fits their costs. The
/// search once went on only where a line fits, so the limit stayed at 32.
#[test]
fn square_costs_are_searched_downwards() {
    let best = limit_after(300, |n| 1_000_000 + 20_000 * n * n);
    assert!((4..=12).contains(&best), "{best}");
    let best = limit_after(300, |n| 200_000 * n * n);
    assert!(best <= 4, "{best}");
}
