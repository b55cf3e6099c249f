//! Redis is killed and restarted under load: every future ends, the client recovers, and
//! replies reach their own callers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_redis::{Client, CommandError, Executed, Value, cmd};

use crate::common::{Redis, soon, until};

#[tokio::test]
async fn killed_and_restarted_under_load() {
    let mut redis = Redis::start();
    let c = Client::open(
        redis
            .config()
            .backoff(Duration::from_millis(1), Duration::from_millis(20)),
    )
    .await
    .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let lost = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..64u64)
        .map(|t| {
            let (c, stop, answered, lost) = (
                c.clone(),
                Arc::clone(&stop),
                Arc::clone(&answered),
                Arc::clone(&lost),
            );
            tokio::spawn(async move {
                let mut n = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    let word = format!("{t}:{n}");
                    match c.send::<String>(cmd("ECHO").arg(&word)).await {
                        Ok(echo) => {
                            assert_eq!(echo, word, "a reply of another command");
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(CommandError::Lost { .. }) => {
                            lost.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
            })
        })
        .collect();
    for round in 1..=3 {
        let target = answered.load(Ordering::Relaxed) + 2_000;
        until("answers", || answered.load(Ordering::Relaxed) >= target).await;
        redis.kill();
        until("the loss to be noticed", || !c.stats().connected).await;
        redis.restart();
        until("the reconnect", || c.stats().reconnects >= round).await;
    }
    let target = answered.load(Ordering::Relaxed) + 2_000;
    until("answers after the last kill", || {
        answered.load(Ordering::Relaxed) >= target
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for t in callers {
        soon("a caller", t).await.unwrap();
    }
    assert!(
        lost.load(Ordering::Relaxed) > 0,
        "kills under load lose what was in flight"
    );
    assert_eq!(c.stats().in_flight, 0);
}

#[tokio::test]
async fn commands_in_flight_may_have_been_executed_and_unsent_ones_were_not() {
    let mut redis = Redis::start();
    let c = redis.client().await;
    let mut own = c.dedicated().await.unwrap();
    let blocked = own.send::<Value>(cmd("BLPOP").arg("x").arg(0));
    let sleeping = c.send::<Value>(cmd("CLIENT PAUSE").arg(100_000));
    sleeping.await.unwrap();
    let in_flight = c.incr("n");
    until("it to be written", || c.stats().in_flight == 1).await;
    redis.kill();
    for e in [
        soon("the loss", in_flight).await.unwrap_err(),
        soon("the loss", blocked).await.unwrap_err(),
    ] {
        assert!(e.maybe_executed(), "{e}");
    }
    // While no server runs, commands wait for a connection.
    until("the loss to be noticed", || !c.stats().connected).await;
    let waiting = c.set("k", 1);
    redis.restart();
    soon("the reconnect", waiting).await.unwrap();
    assert_eq!(c.get::<Option<i64>>("n").await.unwrap(), None);
}

#[tokio::test]
async fn commands_without_a_server_fail_in_time_and_were_not_executed() {
    let mut redis = Redis::start();
    let c = Client::open(redis.config().timeout(Duration::from_millis(50)))
        .await
        .unwrap();
    redis.kill();
    until("the loss to be noticed", || !c.stats().connected).await;
    let e = soon("the timeout", c.incr("n")).await.unwrap_err();
    assert!(matches!(e, CommandError::TimedOut(Executed::No)), "{e}");
    redis.restart();
    until("a connection", || c.stats().connected).await;
    let stored = soon("the counter", c.get::<Option<Bytes>>("n")).await;
    assert_eq!(
        stored.unwrap(),
        None,
        "the client said that it had not counted"
    );
}

#[tokio::test]
async fn reads_are_retried_if_asked_for() {
    let mut redis = Redis::start();
    let c = Client::open(redis.config().retry_reads(true))
        .await
        .unwrap();
    c.ping().await.unwrap();
    c.send::<()>(cmd("CLIENT PAUSE").arg(100_000))
        .await
        .unwrap();
    let read = c.get::<Option<Bytes>>("k");
    let write = c.incr("n");
    until("both to be written", || c.stats().in_flight == 2).await;
    redis.kill();
    redis.restart();
    assert_eq!(soon("the retry", read).await.unwrap(), None);
    assert!(soon("the loss", write).await.unwrap_err().maybe_executed());
}

#[tokio::test]
async fn subscriptions_outlive_a_connection() {
    let mut redis = Redis::start();
    let c = redis.client().await;
    let mut news = c.subscribe(["news"], 4).await.unwrap();
    let mut all = c.psubscribe(["n*"], 4).await.unwrap();
    redis.kill();
    until("the loss to be noticed", || !c.stats().connected).await;
    redis.restart();
    let p = redis.client().await;
    soon("both to be subscribed again", async {
        while p.publish("news", "again").await.unwrap() < 2 {}
    })
    .await;
    assert_eq!(
        &soon("a message", news.next()).await.unwrap().payload[..],
        b"again"
    );
    assert_eq!(
        &soon("a message", all.next()).await.unwrap().payload[..],
        b"again"
    );
    assert_eq!(news.interruptions(), 1);
}

#[tokio::test]
async fn a_runtime_that_ends_leaves_no_caller_waiting() {
    let redis = Redis::start();
    let url = redis.url();
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { Client::connect(&url).await.unwrap() })
    })
    .join()
    .unwrap();
    let e = soon("the end", client.ping()).await.unwrap_err();
    assert!(matches!(e, CommandError::Closed), "{e}");
}
