//! Known bugs of other clients, each with the project and the number of its report. The tests check that this
//! client does not have them. They assert no timing: they count flushes, wake-ups and timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_redis::{Client, Config, Policy, Stats, cmd};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Redis, soon, until};

async fn calls(c: Client, n: i64) {
    for i in 0..n {
        assert_eq!(
            soon("a reply", c.send::<i64>(cmd("ECHO").arg(i)))
                .await
                .unwrap(),
            i
        );
    }
}

async fn closed_loop(c: &Client, callers: usize, each: i64) -> Stats {
    let tasks: Vec<_> = (0..callers)
        .map(|_| tokio::spawn(calls(c.clone(), each)))
        .collect();
    for t in tasks {
        soon("a caller", t).await.unwrap();
    }
    c.stats()
}

/// scylladb/gocql 967: a sequential query went from 60 to 1252 us because the client armed a timer for it.
#[tokio::test]
async fn a_lone_caller_waits_for_no_timer() {
    let redis = Redis::start();
    let s = closed_loop(&redis.client().await, 1, 500).await;
    assert_eq!(
        (s.depths.flushes(), s.timers, s.policy.counts.waits),
        (500, 0, 0),
        "{s}"
    );
}

/// centrifugal/centrifuge 543: a second publisher made everything thirty times slower.
#[tokio::test]
async fn two_sequential_callers_arm_no_timers() {
    let redis = Redis::start();
    let s = closed_loop(&redis.client().await, 2, 500).await;
    assert_eq!(s.timers, 0, "{s}");
    assert!(s.depths.flushes() <= 1_000);
}

/// redis/go-redis 4014: waits without a condition took 64 callers from 130 k to 41 k operations a second.
#[tokio::test]
async fn sixty_four_callers_are_not_held_back() {
    let redis = Redis::start();
    let s = closed_loop(&redis.client().await, 64, 200).await;
    // The client waits for the callers just answered by yielding, which costs nothing here; a timer would
    // cost much.
    assert_eq!(s.timers, 0, "{s}");
    assert!(s.depths.mean() >= 8.0, "{s}");
}

/// scylladb/scylla-rust-driver 725: yielding before a flush doubled the latency of a busy runtime.
#[tokio::test]
async fn a_runtime_full_of_busy_tasks_starves_neither_side() {
    let redis = Redis::start();
    let c = redis.client().await;
    let stop = Arc::new(AtomicBool::new(false));
    let turns: Vec<_> = (0..8)
        .map(|_| {
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                let mut turns = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box((0..20_000u64).sum::<u64>());
                    turns += 1;
                    tokio::task::yield_now().await;
                }
                turns
            })
        })
        .collect();
    let s = closed_loop(&c, 16, 50).await;
    stop.store(true, Ordering::Relaxed);
    for t in turns {
        assert!(t.await.unwrap() > 0, "a busy task never ran");
    }
    // Callers that run behind busy tasks still share flushes, and a flush needs only few polls of the
    // connection's task.
    assert!(s.polls < 100 * s.depths.flushes(), "{} polls: {s}", s.polls);
}

/// apache/cassandra-gocql-driver 1191: a coalescing timer burned CPU on an idle connection.
#[tokio::test]
async fn an_idle_connection_does_nothing() {
    let redis = Redis::start();
    let c = redis.client().await;
    closed_loop(&c, 8, 20).await;
    let other = redis.client().await;
    let settled = settle(&c, &other).await;
    // Another connection in the same runtime makes a thousand round trips. Time passes, and the
    // idle connection's task must not run.
    closed_loop(&other, 1, 1_000).await;
    assert_eq!(c.stats().polls, settled);
}

/// Returns the number of polls of `c`'s task, once it sleeps.
async fn settle(c: &Client, other: &Client) -> u64 {
    soon("the task to sleep", async {
        loop {
            let before = c.stats().polls;
            closed_loop(other, 1, 200).await;
            if c.stats().polls == before {
                break before;
            }
        }
    })
    .await
}

/// rustis e9fec32: the client wrote the commands of all callers at once, so the callers moved in a convoy,
/// and one side was idle while the other worked.
#[tokio::test]
async fn a_hundred_and_twenty_eight_callers_do_not_convoy() {
    let redis = Redis::start();
    let s = closed_loop(&redis.client().await, 128, 100).await;
    let convoys: u64 = s.depths.buckets()[7..].iter().sum();
    assert!(
        convoys * 2 < s.depths.flushes(),
        "most flushes carry all callers: {s}"
    );
}

/// redis/go-redis: a client that estimates its callers by an average may stay with small flushes for ever;
/// this client counts its callers.
#[tokio::test]
async fn fragmented_batches_do_not_lock_in() {
    let redis = Redis::start();
    let c = redis.client().await;
    // To the policy, these commands look like a lone caller's: each has a flush of its own.
    closed_loop(&c, 1, 2_000).await;
    let before = c.stats().depths;
    let after = closed_loop(&c, 64, 100).await.depths;
    let flushes = after.flushes() - before.flushes();
    assert!(flushes * 6 < 6_400, "{flushes} flushes for 6400 commands");
}

/// The load rises and falls, and the client does not wait for callers that left.
#[tokio::test]
async fn callers_that_left_are_not_waited_for() {
    let redis = Redis::start();
    let c = redis.client().await;
    closed_loop(&c, 256, 20).await;
    let before = c.stats();
    closed_loop(&c, 2, 500).await;
    let s = c.stats();
    assert_eq!(s.timers, before.timers, "{s}");
    // The client waits for absent callers only now and then, to test whether they come.
    let waits = s.policy.counts.waits - before.policy.counts.waits;
    assert!(waits < 200, "{waits} waits in 1000 commands of two callers");
    closed_loop(&c, 256, 20).await;
}

/// redis-rs 1955, glide 5892, go-redis 4002: the writer blocked while replies filled the other direction.
#[tokio::test]
async fn large_requests_and_replies_do_not_deadlock() {
    let redis = Redis::start();
    for policy in [Policy::Auto, Policy::Off] {
        let c = Client::open(redis.config().policy(policy).bytes_max(1 << 30))
            .await
            .unwrap();
        let value = vec![b'x'; 1 << 20];
        let replies: Vec<_> = (0..64)
            .map(|_| c.send::<Bytes>(cmd("ECHO").arg(&value)))
            .collect();
        for reply in replies {
            assert_eq!(soon("an echo", reply).await.unwrap().len(), value.len());
        }
    }
}

/// redis/go-redis 3964: a delay meant for a fast link did harm on a slow one. In this client
/// the permitted wait grows with the round trip.
#[tokio::test]
async fn a_slow_link_is_filled() {
    let redis = Redis::start();
    let port = delayed(redis.port, Duration::from_millis(50)).await;
    let c = Client::connect(&format!("redis://127.0.0.1:{port}"))
        .await
        .unwrap();
    let before = c.stats();
    assert_eq!(before.commands, 0);
    let s = closed_loop(&c, 200, 6).await;
    assert!(s.rtt_min_us >= 50_000.0, "{s}");
    // 200 callers send 1200 commands, so six round trips would do, with a few flushes for each.
    assert!(s.depths.mean() >= 8.0, "{s}");
    // Spinning (looking for replies without sleeping) cannot pay on so slow a link.
    assert!(s.spins <= 32, "{} spins", s.spins);
}

/// valkey-io/valkey-go 124: at a thousand calls a second a client with pipelining was slower than a pool of
/// connections. Here a single call costs the same as on a plain connection: one write, and the reads of its
/// reply.
#[tokio::test]
async fn sparse_calls_cost_one_flush_each() {
    let redis = Redis::start();
    let (c, other) = (redis.client().await, redis.client().await);
    for i in 0..50i64 {
        assert_eq!(c.send::<i64>(cmd("ECHO").arg(i)).await.unwrap(), i);
        // The calls of another connection in between put time between these calls.
        closed_loop(&other, 1, 20).await;
    }
    let s = c.stats();
    assert_eq!((s.depths.flushes(), s.timers), (50, 0));
    assert!(
        s.spins <= 8,
        "a caller that does not come back at once is not waited for: {} spins",
        s.spins
    );
}

/// redis-rs 698: an error once shifted all later replies by one.
#[tokio::test]
async fn errors_shift_no_replies() {
    let redis = Redis::start();
    let c = redis.client().await;
    c.set("text", "x").await.unwrap();
    for i in 0..200i64 {
        let bad = c.incr("text");
        let unknown = c.send::<i64>(cmd("NOSUCH"));
        let good = c.send::<i64>(cmd("ECHO").arg(i));
        assert!(bad.await.is_err() && unknown.await.is_err());
        assert_eq!(good.await.unwrap(), i);
    }
}

/// Starts a proxy that forwards to `port` and delays each direction by half of `rtt`. The delay is the slow
/// link under test, and does not synchronize the test.
async fn delayed(port: u16, rtt: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (cr, cw) = client.into_split();
            let (sr, sw) = server.into_split();
            tokio::spawn(late(cr, sw, rtt / 2));
            tokio::spawn(late(sr, cw, rtt / 2));
        }
    });
    own
}

async fn late(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin + Send + 'static,
    by: Duration,
) {
    let (tx, mut rx) = tokio::sync::mpsc::channel::<(tokio::time::Instant, Vec<u8>)>(1024);
    tokio::spawn(async move {
        while let Some((at, bytes)) = rx.recv().await {
            tokio::time::sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    let mut buf = vec![0; 64 << 10];
    while let Ok(n) = from.read(&mut buf).await
        && n > 0
    {
        let at = tokio::time::Instant::now() + by;
        if tx.send((at, buf[..n].to_vec())).await.is_err() {
            return;
        }
    }
}

/// The client tests a silent connection with a PING, and keeps it if the server answers.
#[tokio::test]
async fn keepalive_tries_a_silent_connection() {
    let redis = Redis::start();
    let config = Config::from_url(&redis.url())
        .unwrap()
        .keepalive(Duration::from_millis(20));
    let c = Client::open(config).await.unwrap();
    until("some pings", || c.stats().commands >= 3).await;
    assert_eq!(c.stats().reconnects, 0);
}
