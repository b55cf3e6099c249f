//! Tests of the default policy's controller: of each of its rules, and of their order.

use tidegate::controller::{BatchId, Bounds, Objective, Recorder, replay};

use super::*;

const US: u64 = 1_000;

fn auto() -> Auto {
    Auto::new(Knee::new(Objective::Inflation(0.03), Bounds::default()).unwrap())
}

/// Runs flushes with a controller, and answers them, in virtual time, in place of a driver and a server.
struct Run<C> {
    c: C,
    now: Time,
}

impl<C: Controller> Run<C> {
    fn new(c: C) -> Self {
        Self {
            c,
            now: Time::from_nanos(1_000_000),
        }
    }

    fn ready(&mut self, queued: u64) -> Decision {
        let backlog = Load::items(queued);
        self.c.on(self.now, Event::Arrived(backlog));
        let oldest = self.now;
        self.c.on(self.now, Event::Ready { backlog, oldest })
    }

    fn start(&mut self, items: u64) {
        let (batch, left) = (Load::items(items), Load::default());
        let reason = Reason::Drained;
        self.c.on(
            self.now,
            Event::Started {
                id: BatchId::default(),
                batch,
                left,
                reason,
            },
        );
        let (cost_ns, ok) = (5_000, true);
        self.c.on(
            self.now,
            Event::Done {
                id: BatchId::default(),
                cost_ns,
                ok,
            },
        );
    }

    fn reply(&mut self, items: u64, batch: u64, took_ns: u64) {
        self.now = self.now.after(took_ns);
        self.c.on(
            self.now,
            Event::Replied {
                items,
                batch,
                took_ns,
            },
        );
        self.c.on(self.now, Event::Expected { items });
    }
}

#[test]
fn a_lone_caller_never_waits() {
    let mut r = Run::new(auto());
    for _ in 0..1_000 {
        assert_eq!(r.ready(1).when, When::Now);
        r.start(1);
        r.reply(1, 1, 60 * US);
    }
}

#[test]
fn callers_just_answered_are_waited_for_by_count() {
    let mut r = Run::new(auto());
    assert_eq!(r.ready(8).when, When::Now);
    r.start(8);
    r.start(8);
    r.reply(8, 8, 100 * US);
    // Three of the eight answered callers are back, and eight other commands are in flight: the controller
    // expects five more.
    let d = r.ready(3);
    assert!(matches!(d.when, When::After { items: 8, .. }), "{d:?}");
    assert_eq!(d.reason, Reason::Anticipate);
    assert_eq!(r.ready(8).when, When::Now);
}

#[test]
fn a_silence_ends_the_wait() {
    let mut r = Run::new(auto());
    r.start(8);
    r.start(8);
    r.reply(8, 8, 100 * US);
    let When::After { until, .. } = r.ready(3).when else {
        panic!("it waits");
    };
    assert_eq!(until, r.now.after(25 * US), "a quarter of the round trip");
    r.now = r.now.after(20 * US);
    let When::After { until, .. } = r.ready(4).when else {
        panic!("one more came");
    };
    assert_eq!(until, r.now.after(25 * US), "each arrival begins it anew");
    r.now = until;
    assert_ne!(r.ready(4).reason, Reason::Anticipate);
}

#[test]
fn waiting_for_callers_that_do_not_come_stops() {
    let mut r = Run::new(auto());
    let mut waits = 0;
    for _ in 0..1_000 {
        // Two of the eight answered callers submit soon, and six much later: they do not wait for their
        // replies.
        r.start(6);
        r.reply(8, 8, 100 * US);
        while let When::After { until, .. } = r.ready(2).when {
            waits += 1;
            r.now = until;
        }
        r.start(2);
    }
    assert!(waits < 60, "{waits} waits for nobody in 2000 flushes");
}

#[test]
fn an_absolute_price_is_kept_and_spares_a_full_house() {
    let wait = Duration::from_micros(200);
    let mut r = Run::new(auto().waiting(wait));
    r.start(10);
    let d = r.ready(5);
    assert_eq!(
        d.when,
        When::Now,
        "fifteen are all there ever were: nobody is left to wait for"
    );
    r.c.callers = 40.0;
    let d = r.ready(5);
    assert_eq!(
        (d.when, d.reason),
        (When::At(r.now.after(200 * US)), Reason::Pace)
    );
}

#[test]
fn the_same_events_give_the_same_decisions() {
    let mut r = Run::new(Recorder::new(auto(), 10_000));
    for i in 0..500 {
        r.ready(1 + i % 7);
        r.start(1 + i % 7);
        r.reply(1 + i % 3, 1 + i % 7, (30 + i % 50) * US);
    }
    assert_eq!(replay(&mut auto(), r.c.log()), Ok(()));
}
