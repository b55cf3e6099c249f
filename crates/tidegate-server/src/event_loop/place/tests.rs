//! Plays the decision about syncs against simulated loads in virtual time.

use super::*;

/// A simulated load: the times that a round takes, in microseconds.
#[derive(Clone, Copy)]
struct Load {
    /// The loop's work for a message.
    work: u64,
    /// The part of a sync of the log thread during which the loop works.
    overlap: u64,
    sync: u64,
    wakeups: u64,
    /// The messages in a sync of the log thread, and of the loop's thread.
    messages: [u64; 2],
    /// The time that staying awake saves in each round.
    awake_saves: u64,
}

const LONE: Load = Load {
    work: 40,
    overlap: 0,
    sync: 100,
    wakeups: 60,
    messages: [1, 1],
    awake_saves: 0,
};

/// Plays a loop, a log thread and one closed loop of callers in virtual time.
struct World {
    placing: Placing,
    now: Time,
    log: Counts,
}

impl World {
    fn new() -> Self {
        Self {
            placing: Placing::new(),
            now: Time::ZERO,
            log: Counts::default(),
        }
    }

    /// Plays a round: the loop works, the log syncs, and the wake-ups take their time where the log
    /// thread syncs.
    fn round(&mut self, load: Load) {
        let begun = self.now;
        let place = self.placing.place(self.now);
        let us = Duration::from_micros;
        match place {
            Place::LogThread => {
                let work = (load.work * load.messages[0]).saturating_sub(load.overlap);
                self.now = begun + us(work);
                (self.log.was_at_rest, self.log.is_pending) = (true, true);
                self.placing.handle_turn(place, begun, self.now, self.log);
                let during = self.now + us(load.overlap);
                self.placing.handle_turn(place, self.now, during, self.log);
                self.now = self.now + us(load.sync.max(load.overlap) + load.wakeups);
                self.log.syncs += 1;
                self.log.sync_ns += load.sync * 1000;
                self.log.durable += 1000 * load.messages[0];
                self.log.is_pending = false;
                self.placing
                    .handle_turn(place, self.now, self.now, self.log);
            }
            Place::Loop => {
                let mut work = load.work * load.messages[1];
                if self.placing.stays_awake(begun) {
                    work -= load.awake_saves;
                    self.placing.handle_awake(true);
                }
                self.now = begun + us(work);
                self.placing.handle_turn(place, begun, self.now, self.log);
                self.now = self.now + us(load.sync);
                self.log.syncs += 1;
                self.log.durable += 1000 * load.messages[1];
                self.placing.handle_synced(self.now, us(load.sync));
            }
        }
    }

    /// Plays rounds for these seconds, and returns the share of rounds in which the loop's thread synced.
    fn play(&mut self, seconds: u64, load: Load) -> f64 {
        let until = self.now + Duration::from_secs(seconds);
        let (mut here, mut all) = (0, 0);
        while self.now < until {
            here += u64::from(self.placing.place(self.now) == Place::Loop);
            all += 1;
            self.round(load);
        }
        here as f64 / all as f64
    }
}

#[test]
fn the_loop_syncs_for_a_lone_caller() {
    let mut world = World::new();
    world.play(1, LONE);
    let share = world.play(60, LONE);
    assert!(share > 0.97, "{share}");
    assert!(share < 1.0, "a trial comes now and then");
}

#[test]
fn the_loop_stays_awake_only_where_that_pays_and_callers_come() {
    for (awake_saves, way) in [(30, Way::Awake), (5, Way::Loop)] {
        let mut world = World::new();
        world.play(
            10,
            Load {
                awake_saves,
                ..LONE
            },
        );
        assert_eq!(world.placing.way, way, "{awake_saves} us saved");
        (0..IN_VAIN_MAX).for_each(|_| world.placing.handle_awake(false));
        assert_eq!(world.placing.way, Way::Loop);
    }
}

#[test]
fn the_loop_does_not_sync_where_its_syncs_cover_fewer_messages() {
    let load = Load {
        work: 10,
        messages: [6, 2],
        ..LONE
    };
    let mut world = World::new();
    world.play(1, load);
    let share = world.play(60, load);
    assert!(share < 0.05, "{share}");
}

#[test]
fn the_loop_does_not_sync_where_the_log_thread_overlaps_with_its_work() {
    let load = Load {
        work: 400,
        overlap: 90,
        ..LONE
    };
    assert!(World::new().play(60, load) < 0.001);
}

#[test]
fn the_loop_never_waits_for_a_slow_disk() {
    let load = Load { sync: 5000, ..LONE };
    assert!(World::new().play(60, load) < 0.001);
}

#[test]
fn the_place_follows_a_change_of_the_load() {
    let mut world = World::new();
    world.play(10, LONE);
    assert_eq!(world.placing.way.place(), Place::Loop);
    let many = Load {
        work: 30,
        messages: [6, 4],
        wakeups: 20,
        ..LONE
    };
    world.play(3, many);
    assert_eq!(world.placing.way, Way::LogThread);
    world.play(3, LONE);
    assert_eq!(world.placing.way.place(), Place::Loop);
}

#[test]
fn a_late_sync_keeps_the_duty_with_the_log_thread_for_a_moment() {
    let mut world = World::new();
    world.play(1, LONE);
    for wait in [AFTER_LATE, AFTER_LATE] {
        let late = world.now;
        world.placing.handle_late(late);
        while world.placing.place(world.now) == Place::LogThread {
            world.round(LONE);
        }
        assert!(world.now - late >= wait && world.now - late < 2 * wait);
        world.play(10, LONE);
    }
}

#[test]
fn late_syncs_in_a_row_double_that_time() {
    let mut world = World::new();
    world.play(1, LONE);
    for times in [1, 2, 4, 8, 16] {
        let late = world.now;
        world.placing.handle_late(late);
        while world.placing.place(world.now) == Place::LogThread {
            world.round(LONE);
        }
        assert!(world.now - late >= AFTER_LATE * times);
    }
    for _ in 0..20 {
        world.placing.handle_late(world.now);
    }
    assert_eq!(world.placing.not_before, world.now + AFTER_LATE_MAX);
}
