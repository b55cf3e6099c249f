//! Tests that every flush policy answers every caller, when each policy writes, and how much.

use std::time::Duration;

use tidegate::Time;
use tidegate::controller::{Controller, Decision, Event, Reason, Snapshot, When};
use tidegate_redis::{Client, Concession, Config, ConfigError, ConnectError, Policy, Stats, cmd};

use crate::common::{Redis, soon};

fn all() -> Vec<Policy> {
    let us = Duration::from_micros;
    vec![
        Policy::Auto,
        Policy::Latency,
        Policy::Off,
        Policy::Fixed(us(50)),
        Policy::Fixed(us(2_000)),
        Policy::RueidisStats(us(100)),
        Policy::MinCpu(Concession::ThroughputFraction(0.95)),
        Policy::MinCpu(Concession::AddedLatency(us(300))),
        Policy::Custom(Box::new(Pairs)),
    ]
}

/// A controller that waits for two commands, or for a millisecond.
struct Pairs;

impl Controller for Pairs {
    fn on(&mut self, _: Time, event: Event) -> Decision {
        let flush = Decision::now(u64::MAX, Reason::Limit);
        let Event::Ready { oldest, .. } = event else {
            return flush;
        };
        let until = oldest + Duration::from_millis(1);
        Decision {
            when: When::After { items: 2, until },
            ..flush
        }
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::default()
    }
}

async fn closed_loop(c: &Client, callers: usize, each: i64) -> Stats {
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let c = c.clone();
            tokio::spawn(async move {
                for i in 0..each {
                    assert_eq!(c.send::<i64>(cmd("ECHO").arg(i)).await.unwrap(), i);
                }
            })
        })
        .collect();
    for t in tasks {
        soon("a caller", t).await.unwrap();
    }
    c.stats()
}

#[tokio::test]
async fn every_policy_serves_callers_of_one_thread() {
    let redis = Redis::start();
    for policy in all() {
        let name = format!("{policy:?}");
        let c = Client::open(redis.config().policy(policy)).await.unwrap();
        for callers in [1, 2, 33] {
            closed_loop(&c, callers, 20).await;
        }
        let s = c.stats();
        assert_eq!((s.commands, s.in_flight), (720, 0), "{name}");
        assert_eq!(s.policy.counts.items, 720, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_policy_serves_callers_of_two_threads() {
    let redis = Redis::start();
    for policy in all() {
        let name = format!("{policy:?}");
        let c = Client::open(redis.config().policy(policy)).await.unwrap();
        for callers in [1, 2, 33] {
            closed_loop(&c, callers, 20).await;
        }
        assert_eq!(c.stats().commands, 720, "{name}");
    }
}

#[tokio::test]
async fn callers_of_one_thread_share_flushes() {
    let redis = Redis::start();
    let c = redis.client().await;
    let s = closed_loop(&c, 64, 100).await;
    assert!(s.depths.mean() > 8.0, "64 callers make deep flushes: {s}");
    // A flush of all callers would leave one side idle while the other works, so most flushes must be
    // smaller.
    let whole = s.depths.buckets()[6..].iter().sum::<u64>();
    assert!(
        whole < s.depths.flushes() / 2,
        "most flushes carry a part of the 64: {s}"
    );
}

#[tokio::test]
async fn an_urgent_command_waits_for_no_other() {
    let redis = Redis::start();
    let c = Client::open(
        redis
            .config()
            .policy(Policy::Fixed(Duration::from_millis(900))),
    )
    .await
    .unwrap();
    // The first command leaves at once, because it is alone. The second would wait for the delay, and leaves
    // with the urgent one.
    c.send::<()>(cmd("CLIENT PAUSE").arg(0)).await.unwrap();
    let (first, second) = (c.ping(), c.ping());
    let urgent = c.send::<()>(cmd("PING").urgent());
    for reply in [first, second, urgent] {
        soon("a reply", reply).await.unwrap();
    }
    let asked = c.stats().policy.counts.batches_for(Reason::Asked);
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_fixed_delay_spaces_flushes_and_spares_lone_callers() {
    let redis = Redis::start();
    let c = Client::open(
        redis
            .config()
            .policy(Policy::Fixed(Duration::from_millis(2))),
    )
    .await
    .unwrap();
    let lone = closed_loop(&c, 1, 50).await;
    assert_eq!((lone.timers, lone.policy.counts.waits), (0, 0), "{lone}");
    let many = closed_loop(&c, 8, 50).await;
    assert!(many.policy.counts.waits > 20, "{:?}", many.policy.counts);
    assert!(many.overshoot_us > 0.0);
}

#[tokio::test]
async fn a_controller_of_ones_own_decides() {
    let redis = Redis::start();
    let c = Client::open(redis.config().policy(Policy::Custom(Box::new(Pairs))))
        .await
        .unwrap();
    let s = closed_loop(&c, 2, 100).await;
    assert!(
        s.depths.buckets()[1] >= 80,
        "two callers go in pairs: {:?}",
        s.depths
    );
}

#[tokio::test]
async fn impossible_settings_are_refused() {
    let open = |config: Config| async { Client::open(config).await.map(drop) };
    let base = || Config::from_url("redis://127.0.0.1:1").unwrap();
    for fraction in [0.0, 1.0, f64::NAN, -1.0] {
        let policy = Policy::MinCpu(Concession::ThroughputFraction(fraction));
        let e = open(base().policy(policy)).await.unwrap_err();
        assert!(
            matches!(e, ConnectError::Config(ConfigError::Fraction(_))),
            "{e}"
        );
    }
    let e = open(base().commands_max(0)).await.unwrap_err();
    assert_eq!(e.to_string(), "commands_max is 0: at least 1 is needed");
    let e = open(base()).await.unwrap_err();
    assert!(
        e.to_string().starts_with("cannot connect to 127.0.0.1:1"),
        "{e}"
    );
}
