//! Tests callers on operating-system threads against a real Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tidegate_redis::{BlockingClient, Value, cmd};

use crate::common::{Redis, soon, until};

fn echoes(c: &BlockingClient, who: i64, times: i64) {
    for i in 0..times {
        let echo = c.wait(|c| c.send::<i64>(cmd("ECHO").arg(who * 1_000_000 + i)));
        assert_eq!(echo.unwrap(), who * 1_000_000 + i);
    }
}

#[test]
fn threads_may_call() {
    let redis = Redis::start();
    let c = BlockingClient::open(redis.config()).unwrap();
    let threads: Vec<_> = (0..8i64)
        .map(|t| {
            let c = c.clone();
            thread::spawn(move || echoes(&c, t, 1000))
        })
        .collect();
    for t in threads {
        t.join().unwrap();
    }
    assert_eq!(c.stats().replies, 8000);
    // Commands with timers of their own, and refusals, also work on a thread that drives the connection.
    let popped = c.wait(|c| c.send::<Value>(cmd("BLPOP").arg("x").arg("0.01")));
    assert_eq!(popped.unwrap(), Value::Nil);
    assert!(BlockingClient::open(redis.config().user("nobody").password("wrong")).is_err());
}

/// Threads that belong to another runtime cannot drive the connection. Its own thread drives it for them,
/// both while other threads call and while none does.
#[tokio::test(flavor = "multi_thread")]
async fn threads_of_a_runtime_may_call_beside_others() {
    let redis = Redis::start();
    let c = BlockingClient::open(redis.config()).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let beside: Vec<_> = (0..2)
        .map(|t| {
            let (c, over) = (c.clone(), Arc::clone(&over));
            thread::spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    echoes(&c, t, 100);
                }
            })
        })
        .collect();
    for _ in 0..2 {
        let within: Vec<_> = (10..14)
            .map(|t| {
                let c = c.clone();
                tokio::task::spawn_blocking(move || echoes(&c, t, 300))
            })
            .collect();
        for task in within {
            soon("calls of a runtime's threads", task).await.unwrap();
        }
        over.store(true, Ordering::Relaxed);
    }
    for t in beside {
        t.join().unwrap();
    }
}

/// The client finishes commands without a waiting caller after their callers have gone. The connection ends
/// with the last handle.
#[tokio::test]
async fn no_thread_has_to_wait() {
    let redis = Redis::start();
    let watcher = redis.client().await;
    let c = BlockingClient::open(redis.config()).unwrap();
    let caller = {
        let c = c.clone();
        thread::spawn(move || {
            echoes(&c, 1, 1000);
            let forgotten = c.wait(|c| {
                let echo = c.send::<i64>(cmd("ECHO").arg(1));
                for _ in 0..100 {
                    c.forget(&cmd("INCR").arg("forgotten")).unwrap();
                }
                echo
            });
            assert_eq!(forgotten.unwrap(), 1);
        })
    };
    caller.join().unwrap();
    for _ in 0..10_000 {
        let n: Option<i64> = watcher.get("forgotten").await.unwrap();
        if n == Some(100) {
            break;
        }
    }
    assert_eq!(watcher.get::<i64>("forgotten").await.unwrap(), 100);
    let stats = || c.stats();
    until("all replies", || stats().in_flight == 0).await;
    drop(c);
    let clients = async {
        loop {
            let list: String = watcher.send(cmd("CLIENT LIST")).await.unwrap();
            if list.lines().count() == 1 {
                break;
            }
        }
    };
    soon("the end of the connection", clients).await;
}
