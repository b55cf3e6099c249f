//! Tests the core of an actor without a driver: first scenarios, then arbitrary operations that must keep its
//! invariants.

use proptest::prelude::*;

use super::*;
use crate::controller::{Bounds, Controller, Rule, Ruled};

fn at(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Doubles the limit after a full batch and halves it after a drained one: gen_batch_server's
/// rule, with a linger to test waits.
#[derive(Clone)]
struct Doubling {
    limit: u64,
    min: u64,
    max: u64,
    linger_ns: u64,
}

impl Rule for Doubling {
    fn limit(&self) -> u64 {
        self.limit
    }

    fn observe(&mut self, b: crate::controller::Observed) {
        if b.full {
            self.limit = (self.limit * 2).min(self.max);
        } else if b.left.items == 0 {
            self.limit = (self.limit / 2).max(self.min);
        }
    }

    fn linger_ns(&self) -> u64 {
        self.linger_ns
    }
}

fn core(linger_ns: u64, bounds: Bounds) -> Core {
    let rule = Doubling {
        limit: 2,
        min: 2,
        max: 64,
        linger_ns,
    };
    let controller: Box<dyn Controller> = Box::new(Ruled::new(rule));
    Core::new(Boundary::new(controller, bounds).unwrap())
}

fn ready(core: &mut Core, now: u64, items: u64) -> DriverStep {
    core.poll(at(now), Load::items(items), at(now))
}

fn take(core: &mut Core, now: u64, items: u64, left: u64, cut: Cut) -> Option<Reason> {
    let taken = core.handle_batch(at(now), Load::items(items), Load::items(left), cut);
    taken.map(|(id, reason)| {
        core.handle_done(at(now), id, true, 0);
        reason
    })
}

#[test]
fn a_backlog_is_taken_at_once_up_to_the_limit() {
    let mut core = core(0, Bounds::default());
    assert_eq!(
        ready(&mut core, 0, 5),
        DriverStep::Take(Load::new(2, u64::MAX))
    );
    assert_eq!(take(&mut core, 0, 2, 3, Cut::Items), Some(Reason::Limit));
    assert_eq!(
        ready(&mut core, 0, 3),
        DriverStep::Take(Load::new(4, u64::MAX))
    );
    assert_eq!(
        take(&mut core, 0, 3, 0, Cut::Drained),
        Some(Reason::Drained)
    );
    assert_eq!(
        ready(&mut core, 0, 1),
        DriverStep::Take(Load::new(2, u64::MAX))
    );
}

#[test]
fn idleness_is_told_once_between_two_batches() {
    let mut core = core(0, Bounds::default());
    assert_eq!(ready(&mut core, 0, 0), DriverStep::Idle);
    assert_eq!(ready(&mut core, 0, 0), DriverStep::Rest);
    assert_eq!(ready(&mut core, 0, 0), DriverStep::Rest);
    assert!(matches!(ready(&mut core, 1, 1), DriverStep::Take(_)));
    assert_eq!(take(&mut core, 1, 0, 0, Cut::Drained), None);
    assert_eq!(
        ready(&mut core, 1, 0),
        DriverStep::Rest,
        "nothing was handled"
    );
    assert!(matches!(ready(&mut core, 2, 1), DriverStep::Take(_)));
    take(&mut core, 2, 1, 0, Cut::Drained);
    assert_eq!(ready(&mut core, 2, 0), DriverStep::Idle);
}

#[test]
fn a_linger_holds_the_batch_and_a_drain_does_not_wait_for_it() {
    let mut core = core(100, Bounds::default());
    let held = ready(&mut core, 0, 1);
    assert_eq!(
        held,
        DriverStep::Hold {
            items: 1,
            until: at(100)
        }
    );
    assert!(matches!(ready(&mut core, 50, 2), DriverStep::Take(_)));
    take(&mut core, 50, 2, 0, Cut::Drained);
    assert!(matches!(ready(&mut core, 60, 1), DriverStep::Hold { .. }));
    assert!(matches!(
        core.poll(at(160), Load::items(1), at(60)),
        DriverStep::Take(_)
    ));
    assert_eq!(
        take(&mut core, 160, 1, 0, Cut::Drained),
        Some(Reason::Linger)
    );
    core.drain(false);
    assert!(matches!(ready(&mut core, 170, 1), DriverStep::Take(_)));
    assert_eq!(
        take(&mut core, 170, 1, 0, Cut::Drained),
        Some(Reason::Closing)
    );
    assert_eq!(
        ready(&mut core, 180, 0),
        DriverStep::Idle,
        "more may be on its way"
    );
    core.drain(true);
    assert_eq!(ready(&mut core, 180, 0), DriverStep::End);
}

#[test]
fn a_continue_comes_before_the_next_batch_and_a_stop_before_both() {
    let mut core = core(0, Bounds::default());
    core.ask_continue();
    assert_eq!(ready(&mut core, 0, 3), DriverStep::Continue);
    assert!(matches!(ready(&mut core, 0, 3), DriverStep::Take(_)));
    core.ask_continue();
    core.stop();
    assert_eq!(ready(&mut core, 0, 3), DriverStep::End);
    core.drain(true);
    assert_eq!(ready(&mut core, 0, 3), DriverStep::End);
}

#[test]
fn an_actor_ends_when_its_last_batch_is_done_and_idles_only_then() {
    let bounds = Bounds {
        in_flight_max: Some(2),
        ..Bounds::default()
    };
    let controller = crate::controller::Fixed::new(4).with_in_flight(2);
    let boundary = Boundary::new(Box::new(controller.controller()) as _, bounds).unwrap();
    let mut core = Core::new(boundary);
    let start = |core: &mut Core, now| {
        assert!(matches!(ready(core, now, 1), DriverStep::Take(_)));
        let (one, none) = (Load::items(1), Load::items(0));
        core.handle_batch(at(now), one, none, Cut::Drained).unwrap()
    };
    let ((first, _), (second, _)) = (start(&mut core, 0), start(&mut core, 1));
    assert_eq!(ready(&mut core, 2, 5), BUSY, "two run already");
    assert_eq!(
        ready(&mut core, 2, 0),
        DriverStep::Rest,
        "not idle while two run"
    );
    assert_eq!(core.handle_done(at(10), second, true, 0), 9);
    assert_eq!(ready(&mut core, 10, 0), DriverStep::Rest);
    assert_eq!(core.handle_done(at(12), first, true, 0), 12);
    assert_eq!(ready(&mut core, 12, 0), DriverStep::Idle);
    let (third, _) = start(&mut core, 13);
    core.drain(true);
    assert_eq!(ready(&mut core, 14, 0), BUSY);
    core.stop();
    assert_eq!(ready(&mut core, 15, 3), BUSY);
    core.handle_done_with(at(16), third, 1, true, 0);
    assert_eq!(ready(&mut core, 16, 3), DriverStep::End);
}

#[derive(Clone, Debug)]
enum Do {
    Arrive(u64),
    Pass(u64),
    DriverStep { cancelled: u64, bytes_cut: bool },
    Continue,
    Drain,
    Stop,
}

fn operations() -> impl Strategy<Value = Vec<Do>> {
    let one = prop_oneof![
        6 => (1..200_u64).prop_map(Do::Arrive),
        3 => (0..400_u64).prop_map(Do::Pass),
        12 => (0..3_u64, any::<bool>())
            .prop_map(|(cancelled, bytes_cut)| Do::DriverStep { cancelled, bytes_cut }),
        1 => Just(Do::Continue),
        1 => Just(Do::Drain),
    ];
    let ops = proptest::collection::vec(one, 1..200);
    (ops, any::<bool>()).prop_map(|(mut ops, stop)| {
        if stop {
            ops.push(Do::Stop);
        }
        ops.extend(
            [Do::DriverStep {
                cancelled: 0,
                bytes_cut: false,
            }; 3],
        );
        ops
    })
}

impl Copy for Do {}

proptest! {
    /// Applies arbitrary operations in any order, and checks that items are conserved, limits hold, no batch
    /// is empty, waits end, and the end is final.
    #[test]
    fn operations_keep_the_invariants(
        ops in operations(),
        linger in prop_oneof![Just(0), 1..300_u64],
        items_max in 1..80_u64,
    ) {
        let bounds = Bounds::items(1, items_max);
        let mut core = core(linger, bounds);
        let (mut now, mut backlog, mut oldest) = (0, 0, 0);
        let (mut arrived, mut taken) = (0, 0);
        let (mut draining, mut ended, mut continues) = (false, false, 0_u32);
        let mut idle_told = false;
        for op in ops {
            match op {
                Do::Arrive(n) if !draining && !ended => {
                    if backlog == 0 { oldest = now; }
                    backlog += n;
                    arrived += n;
                }
                Do::Arrive(_) => {}
                Do::Pass(ns) => now += ns,
                Do::Continue if !ended => { core.ask_continue(); continues = 1; }
                Do::Continue => {}
                Do::Drain => { core.drain(true); draining = true; }
                Do::Stop => { core.stop(); ended = true; }
                Do::DriverStep { cancelled, bytes_cut } => {
                    let step = core.poll(at(now), Load::items(backlog), at(oldest));
                    if ended { prop_assert_eq!(step, DriverStep::End); continue; }
                    match step {
                        DriverStep::Take(limit) => {
                            prop_assert!(backlog > 0);
                            prop_assert!((1..=items_max).contains(&limit.items));
                            let gone = cancelled.min(backlog);
                            backlog -= gone;
                            let mut n = limit.items.min(backlog);
                            let cut = if bytes_cut && n > 1 { n -= 1; Cut::Bytes }
                                else if n == backlog { Cut::Drained } else { Cut::Items };
                            backlog -= n;
                            taken += n + gone;
                            let taken = core.handle_batch(
                                at(now), Load::items(n), Load::items(backlog), cut);
                            prop_assert_eq!(taken.is_none(), n == 0);
                            if n > 0 { idle_told = false; }
                            oldest = now;
                            let took = taken.map(|(id, _)| core.handle_done(at(now + 5), id, true, 0));
                            prop_assert_eq!(took, (n > 0).then_some(5));
                            now += 5;
                        }
                        DriverStep::Hold { items, until } => {
                            prop_assert!(linger > 0 && !draining && backlog > 0);
                            prop_assert!(items >= backlog && until > at(now));
                            prop_assert!(until.since(at(oldest)) <= linger);
                            let then = core.poll(until, Load::items(backlog), at(oldest));
                            prop_assert!(matches!(then, DriverStep::Take(_)), "a wait ends: {then:?}");
                            now = until.as_nanos();
                        }
                        DriverStep::Continue => { prop_assert_eq!(continues, 1); continues = 0; }
                        DriverStep::Idle => {
                            prop_assert!(backlog == 0 && !idle_told && !draining);
                            idle_told = true;
                        }
                        DriverStep::Rest => prop_assert!(backlog == 0 && idle_told && !draining),
                        DriverStep::Busy { .. } => prop_assert!(false, "no batch runs here"),
                        DriverStep::End => {
                            prop_assert!(draining && backlog == 0);
                            ended = true;
                        }
                    }
                    prop_assert_eq!(arrived, taken + backlog);
                }
            }
        }
    }
}
