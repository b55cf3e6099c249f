//! The waits of a driver (the thread or task that runs an actor) before a batch starts, and the CPU time
//! that these waits may cost.
//!
//! Pure code: a driver passes the time and the number of waiting items, and acts on the result. The code
//! counts CPU time by fixed prices and does not measure it: a clock cannot separate the driver's own turns
//! from those of the tasks that it let run.
//!
//! A driver on a runtime first lets the ready tasks run: callers that were just answered call again in that
//! turn. The driver yields again only after a turn that brought items, and a few times a batch, because a
//! loop of yields is a spin. For the rest of a wait the driver sleeps with an
//! [`Alarm`](super::timer::Alarm), which has a price unless the wait is long. A driver on a thread of its
//! own looks at the queue for a moment before it sleeps. After its [`Budget`] is spent, a driver on a
//! runtime takes the batch at once, and a driver on a thread sleeps at once.

use crate::Time;

/// The CPU time that the waits of a driver may cost: at most 5 % of a core over any second.
#[derive(Debug)]
pub(super) struct Budget {
    left_ns: u64,
    /// The time up to which the budget has grown: each 25 ns after this time add a nanosecond of CPU time.
    at: Time,
}

/// The largest amount of CPU time that a budget saves up (10 ms), and the nanoseconds in which the budget
/// grows by one nanosecond (25, so 4 % of the time). In any second a driver can spend 10 ms and 4 %, which is
/// 5 % of a core.
const SAVED_NS: u64 = 10_000_000;
const NS_EACH: u64 = 25;

impl Budget {
    pub(super) const fn new() -> Self {
        Self {
            left_ns: SAVED_NS,
            at: Time::ZERO,
        }
    }

    /// Takes `ns` nanoseconds of CPU time out of the budget. Returns false, and takes nothing, if the
    /// budget has less.
    pub(super) fn spend(&mut self, now: Time, ns: u64) -> bool {
        let has = self.has(now, ns);
        if has {
            self.left_ns -= ns;
        }
        has
    }

    /// Returns whether the budget has `ns` nanoseconds of CPU time left for a wait.
    fn has(&mut self, now: Time, ns: u64) -> bool {
        let grown = now.since(self.at) / NS_EACH;
        // Time that is too short to grow the budget by one nanosecond counts at the next call.
        self.at = self.at.after(grown * NS_EACH);
        self.left_ns = self.left_ns.saturating_add(grown).min(SAVED_NS);
        self.left_ns >= ns
    }
}

/// The waits of a driver that runs as a task on a runtime, and the budget that they share.
#[derive(Debug)]
pub(super) struct Patience {
    budget: Budget,
    /// The number of times that the driver has yielded to other tasks since the last batch; at most
    /// [`YIELDS`].
    yields: u32,
    /// The number of items that waited before the driver's last yield. More items afterwards mean that the
    /// yield brought items.
    seen: u64,
    /// The time for which the driver's alarm is set, so that a wait to the same time pays for one alarm;
    /// `None` without an alarm.
    alarm: Option<Time>,
}

/// The way in which a driver spends a wait before it polls the core again, by the length of the wait and the
/// budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// The driver yields: each ready task of the runtime runs once.
    Yield,
    /// The driver sleeps until an item arrives, or until an alarm wakes it at the given time.
    Alarm(Time),
    /// The driver sleeps until an item arrives or the wait ends. The wait is so long (2 ms or more) that
    /// the cost of the wake-up does not count.
    Timer,
    /// The driver waits no longer, because no budget or no time is left: it starts the batch.
    Take,
}

/// The greatest number of times that a driver yields to other tasks before one batch: a loop of yields would
/// be a spin.
const YIELDS: u32 = 4;
/// The price of a yield in CPU time, in nanoseconds: a turn of the runtime's scheduler, which asks the
/// operating system for events.
const YIELD_NS: u64 = 2_000;
/// The price of an alarm in CPU time, in nanoseconds: two context switches of the alarm's thread, and a
/// wake-up of the runtime.
const ALARM_NS: u64 = 20_000;
/// The nanoseconds that an alarm takes to go off, approximately. If less time is left of a wait, the driver
/// starts the batch at once.
const ALARM_MIN_NS: u64 = 30_000;
/// The shortest wait of a driver, in nanoseconds, that counts as long. A long wait takes nothing out of the
/// budget, because its wake-up costs little in comparison.
const TIMER_MIN_NS: u64 = 2_000_000;

impl Patience {
    pub(super) const fn new() -> Self {
        Self {
            budget: Budget::new(),
            yields: 0,
            seen: 0,
            alarm: None,
        }
    }

    /// Reports that a batch is finished and that the next batch starts at once, because `waiting` items
    /// wait already. Returns whether the driver first yields to other tasks, so that the callers of the
    /// `answered` calls may call again.
    pub(super) fn finished(&mut self, now: Time, answered: u64, waiting: u64) -> bool {
        self.started();
        answered > 0 && waiting > 0 && self.may_yield(now, waiting)
    }

    /// Resets the counts of yields and alarms after a batch started, because the next batch has counts of
    /// its own.
    pub(super) const fn started(&mut self) {
        self.yields = 0;
        self.seen = 0;
        self.alarm = None;
    }

    /// Returns how the driver spends a wait that holds the next batch back until the time `until`, while
    /// `waiting` items wait.
    pub(super) fn hold(&mut self, now: Time, until: Time, waiting: u64) -> Pass {
        if self.may_yield(now, waiting) {
            return Pass::Yield;
        }
        let left = until.since(now);
        if left >= TIMER_MIN_NS {
            return Pass::Timer;
        }
        if let Some(at) = self.alarm.filter(|&at| now < at && at <= until) {
            return Pass::Alarm(at);
        }
        if left < ALARM_MIN_NS || !self.budget.spend(now, ALARM_NS) {
            return Pass::Take;
        }
        self.alarm = Some(until);
        Pass::Alarm(until)
    }

    /// Returns whether the driver may yield to other tasks. The first yield of a batch may bring no item;
    /// each further yield must follow a yield that brought items.
    fn may_yield(&mut self, now: Time, waiting: u64) -> bool {
        let hopes = self.yields == 0 || (waiting > self.seen && self.yields < YIELDS);
        if !hopes || !self.budget.spend(now, YIELD_NS) {
            return false;
        }
        self.yields += 1;
        self.seen = waiting;
        true
    }
}

/// The budget of CPU time for a driver on a thread of its own, which pays for the looks at the queue that the
/// driver takes before it sleeps.
#[derive(Debug)]
pub(super) struct Looks {
    budget: Budget,
}

/// The price of a look at the queue in CPU time, in nanoseconds, with the pauses around the look.
const LOOK_NS: u64 = 2_000;
/// The number of looks at the queue that cost a driver no budget if they end with an item: these looks cost
/// less than the sleep and the wake-up that they save.
const LOOKS_SAVED: u32 = 2;
/// The greatest number of looks in one wait for which a thread pays. With
/// [`Wait::Progressive`](crate::queue::Wait::Progressive) a thread looks at the queue about 48 times before
/// it sleeps.
const LOOKS_MOST: u32 = 64;

impl Looks {
    pub(super) const fn new() -> Self {
        Self {
            budget: Budget::new(),
        }
    }

    /// Returns whether the budget allows the thread to look at the queue before it sleeps.
    pub(super) fn may_look(&mut self, now: Time) -> bool {
        self.budget.has(now, LOOK_NS * u64::from(LOOKS_MOST))
    }

    /// Pays out of the budget for `looks` looks at the queue. `slept` is false if the thread found an item
    /// before it slept.
    pub(super) fn looked(&mut self, now: Time, looks: u32, slept: bool) {
        let saved = if slept { 0 } else { LOOKS_SAVED };
        let looks = looks.min(LOOKS_MOST).saturating_sub(saved);
        self.budget.spend(now, LOOK_NS * u64::from(looks));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    /// Returns the largest number of nanoseconds that the payments in `spent` have within any one second.
    fn most_in_a_second(spent: &[(u64, u64)]) -> u64 {
        let within = |from: u64| {
            let window = spent
                .iter()
                .filter(|(t, _)| (from..from + SECOND).contains(t));
            window.map(|(_, ns)| ns).sum()
        };
        spent.iter().map(|&(t, _)| within(t)).max().unwrap_or(0)
    }

    proptest! {
        /// Takes any steps of time and any prices, and checks that the payments of each second are at most 5
        /// % of that second, and that a refusal costs nothing.
        #[test]
        fn any_second_has_at_most_a_twentieth(
            steps in prop::collection::vec((0..20_000_000_u64, 1..3_000_000_u64), 1..400)
        ) {
            let mut budget = Budget::new();
            let (mut now, mut spent) = (0, Vec::new());
            for (step, ns) in steps {
                now += step;
                let before = budget.left_ns;
                if budget.spend(at(now), ns) {
                    spent.push((now, ns));
                } else {
                    prop_assert!(budget.left_ns >= before, "a refusal costs nothing");
                }
                prop_assert!(budget.left_ns <= SAVED_NS);
            }
            prop_assert!(most_in_a_second(&spent) <= SECOND / 20);
        }

        /// Asks for waits at arbitrary moments and with any number of items, and checks that yields and
        /// alarms stay within their bounds.
        #[test]
        fn yields_and_alarms_of_a_batch_are_bounded(
            asked in prop::collection::vec((0..300_000_u64, 0..6_000_000_u64, 0..64_u64), 1..200),
            ends in prop::collection::vec(any::<bool>(), 200),
        ) {
            let mut patience = Patience::new();
            let (mut now, mut yields) = (0, 0);
            let mut spent = Vec::new();
            for ((step, wait, waiting), ends) in asked.into_iter().zip(ends) {
                now += step;
                if ends {
                    yields = 0;
                    if patience.finished(at(now), 1, waiting) {
                        yields += 1;
                        spent.push((now, YIELD_NS));
                    }
                    continue;
                }
                let set = patience.alarm;
                match patience.hold(at(now), at(now + wait), waiting) {
                    Pass::Yield => {
                        yields += 1;
                        spent.push((now, YIELD_NS));
                    }
                    Pass::Alarm(until) => {
                        prop_assert!((now..=now + wait).contains(&until.as_nanos()));
                        if set != Some(until) {
                            spent.push((now, ALARM_NS));
                        }
                        prop_assert!(wait < TIMER_MIN_NS);
                    }
                    Pass::Timer => prop_assert!(wait >= TIMER_MIN_NS),
                    Pass::Take => prop_assert!(wait < TIMER_MIN_NS),
                }
                prop_assert!(yields <= YIELDS);
            }
            prop_assert!(most_in_a_second(&spent) <= SECOND / 20);
        }
    }

    #[test]
    fn a_yield_that_brings_nothing_is_the_last_until_something_comes() {
        let mut patience = Patience::new();
        let until = at(150_000);
        assert!(!patience.finished(at(1), 0, 3), "no caller was answered");
        assert!(!patience.finished(at(1), 3, 0), "nothing waits");
        assert!(patience.finished(at(1), 3, 5));
        assert_eq!(patience.hold(at(2), until, 5), Pass::Alarm(until));
        assert_eq!(patience.hold(at(3), until, 5), Pass::Alarm(until));
        assert_eq!(patience.hold(at(4), until, 6), Pass::Yield);
        assert_eq!(patience.hold(at(5), until, 6), Pass::Alarm(until));
        assert_eq!(patience.hold(at(6), until, 7), Pass::Yield);
        assert_eq!(patience.hold(at(7), until, 9), Pass::Yield);
        assert_eq!(
            patience.hold(at(8), until, 20),
            Pass::Alarm(until),
            "four are enough"
        );
        assert!(!patience.finished(at(9), 20, 0));
        assert_eq!(patience.hold(at(10), until, 1), Pass::Yield);
    }

    #[test]
    fn one_alarm_serves_a_wait_that_is_asked_about_again_and_again() {
        let mut patience = Patience::new();
        assert_eq!(patience.hold(at(0), at(200_000), 1), Pass::Yield);
        let left = patience.budget.left_ns;
        for now in 1..100 {
            // Each answer of the controller moves the end of the wait a little. The alarm that is set serves
            // all of these ends.
            assert_eq!(
                patience.hold(at(now), at(200_000 + now), 1),
                Pass::Alarm(at(200_001))
            );
        }
        assert!(left - patience.budget.left_ns <= ALARM_NS);
        // An earlier end of the wait needs another alarm, and so does a wait after the first alarm went off.
        let earlier = at(90_000);
        assert_eq!(patience.hold(at(100), earlier, 1), Pass::Alarm(earlier));
        let later = at(190_000);
        assert_eq!(patience.hold(earlier, later, 1), Pass::Alarm(later));
        let short = at(190_000 + ALARM_MIN_NS - 1);
        assert_eq!(patience.hold(later, short, 1), Pass::Take);
        assert_eq!(patience.hold(later, at(5_000_000), 1), Pass::Timer);
    }

    #[test]
    fn without_budget_short_waits_are_over_at_once_and_long_ones_are_not() {
        let mut patience = Patience::new();
        while patience.budget.spend(at(0), 1_000) {}
        assert!(!patience.finished(at(0), 1, 1));
        assert_eq!(patience.hold(at(0), at(500_000), 1), Pass::Take);
        assert_eq!(patience.hold(at(0), at(5_000_000), 1), Pass::Timer);
        // In half a millisecond the budget has grown by 4 % of that time. This pays for a yield, but not for
        // an alarm as well.
        assert_eq!(patience.hold(at(500_000), at(700_000), 1), Pass::Yield);
        assert_eq!(patience.hold(at(500_000), at(700_000), 1), Pass::Take);
        assert!(patience.budget.left_ns < ALARM_NS);
    }

    #[test]
    fn looks_that_find_an_item_early_are_free_and_others_end() {
        let mut looks = Looks::new();
        for now in 0..10_000 {
            assert!(looks.may_look(at(now)));
            looks.looked(at(now), LOOKS_SAVED, false);
        }
        let mut vain: u64 = 0;
        while looks.may_look(at(10_000)) {
            looks.looked(at(10_000), 48, true);
            vain += 1;
        }
        assert!(vain * 48 * LOOK_NS <= SAVED_NS);
        let later = 10_000 + NS_EACH * LOOK_NS * u64::from(LOOKS_MOST);
        assert!(looks.may_look(at(later)), "4 % of that time");
    }
}
