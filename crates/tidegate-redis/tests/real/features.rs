//! Tests each feature of the client against a real Redis.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate_redis::{
    Address, Client, CommandError, Config, Executed, Message, Protocol, ServerErrorKind,
    SetOptions, Value, WhenFull, cmd,
};

use crate::common::{Redis, soon, until};

#[tokio::test]
async fn everyday_commands() {
    let redis = Redis::start();
    let c = redis.client().await;
    c.set("k", "v").await.unwrap();
    assert_eq!(c.get::<String>("k").await.unwrap(), "v");
    assert_eq!(c.get::<Option<Bytes>>("none").await.unwrap(), None);
    assert!(
        !c.set_with::<bool>("k", 1, SetOptions::new().if_missing())
            .await
            .unwrap()
    );
    let old: Option<String> = c
        .set_with(
            "k",
            7,
            SetOptions::new().get_old().expire(Duration::from_secs(100)),
        )
        .await
        .unwrap();
    assert_eq!(old.as_deref(), Some("v"));
    assert_eq!(c.incr("k").await.unwrap(), 8);
    assert_eq!(c.incr_by("k", -3).await.unwrap(), 5);
    c.mset([("a", 1), ("b", 2)]).await.unwrap();
    assert_eq!(
        c.mget::<Vec<Option<i64>>>(["a", "b", "c"]).await.unwrap(),
        [Some(1), Some(2), None]
    );
    assert!(c.expire("a", Duration::from_secs(9)).await.unwrap());
    assert_eq!(c.del(["a", "b", "c"]).await.unwrap(), 2);
    assert_eq!(c.exists("k").await.unwrap(), 1);
    assert_eq!(c.hset("h", [("x", "1"), ("y", "2")]).await.unwrap(), 2);
    assert_eq!(c.hget::<i64>("h", "y").await.unwrap(), 2);
    let all: HashMap<String, i64> = c.hgetall("h").await.unwrap();
    assert_eq!((all.len(), all["x"]), (2, 1));
    assert_eq!(c.lpush("l", ["1", "2"]).await.unwrap(), 2);
    assert_eq!(c.rpop::<i64>("l").await.unwrap(), 1);
    assert_eq!(c.publish("nobody", "hears").await.unwrap(), 0);
    c.ping().await.unwrap();
    let e = c.hget::<String>("k", "x").await.unwrap_err();
    assert_eq!(
        e.server().map(|e| e.kind().clone()),
        Some(ServerErrorKind::WrongType)
    );
    assert_eq!(c.stats().protocol, 3);
}

#[tokio::test]
async fn resp2_reads_the_same() {
    let redis = Redis::start();
    let c = Client::open(redis.config().protocol(Protocol::Resp2))
        .await
        .unwrap();
    c.hset("h", [("x", 1)]).await.unwrap();
    let all: HashMap<String, i64> = c.hgetall("h").await.unwrap();
    assert_eq!(all["x"], 1);
    assert_eq!(c.stats().protocol, 2);
    assert!(matches!(
        c.subscribe(["x"], 1).await,
        Err(CommandError::NeedsResp3)
    ));
}

#[tokio::test]
async fn over_a_unix_socket_with_name_and_database() {
    let redis = Redis::start();
    let url = format!("redis+unix://{}?db=3&name=tide", redis.socket().display());
    let c = Client::connect(&url).await.unwrap();
    c.set("k", 1).await.unwrap();
    assert_eq!(
        c.send::<String>(cmd("CLIENT GETNAME")).await.unwrap(),
        "tide"
    );
    let other = Client::open(Config::new(Address::Unix(redis.socket())))
        .await
        .unwrap();
    assert_eq!(other.exists("k").await.unwrap(), 0);
}

/// Replies of every shape reach the callers that asked for them, from many tasks at once.
#[tokio::test]
async fn replies_find_their_callers() {
    let redis = Redis::start();
    let c = redis.client().await;
    let tasks: Vec<_> = (0..64)
        .map(|t: usize| {
            let c = c.clone();
            tokio::spawn(async move {
                for i in 0..50 {
                    let value = vec![b'a' + (t % 26) as u8; (t * 977 + i * 131) % 40_000];
                    let key = format!("k{t}");
                    let set = c.set(&key, &value);
                    let get = c.get::<Bytes>(&key);
                    let list = c.mget::<Vec<Bytes>>([key.as_str(), key.as_str()]);
                    set.await.unwrap();
                    assert_eq!(get.await.unwrap(), value);
                    let list = list.await.unwrap();
                    assert!(list.iter().all(|v| *v == value) && list.len() == 2);
                    let echo: String = c.send(cmd("ECHO").arg(&key)).await.unwrap();
                    assert_eq!(echo, key);
                }
            })
        })
        .collect();
    for t in tasks {
        soon("a caller", t).await.unwrap();
    }
}

#[tokio::test]
async fn dropped_futures_keep_their_places() {
    let redis = Redis::start();
    let c = redis.client().await;
    for i in 0..500i64 {
        drop(c.send::<String>(cmd("ECHO").arg(format!("lost{i}"))));
        let kept = c.send::<i64>(cmd("ECHO").arg(i));
        drop(c.incr("n"));
        assert_eq!(kept.await.unwrap(), i);
    }
    assert_eq!(
        c.get::<i64>("n").await.unwrap(),
        500,
        "a dropped command is still executed"
    );
}

#[tokio::test]
async fn forgotten_commands_are_executed() {
    let redis = Redis::start();
    let c = redis.client().await;
    for _ in 0..100 {
        c.forget(&cmd("INCR").arg("n")).unwrap();
    }
    assert_eq!(c.get::<i64>("n").await.unwrap(), 100);
    assert!(matches!(
        c.forget(&cmd("BLPOP").arg("x").arg(0)),
        Err(CommandError::NotShared(_))
    ));
}

#[tokio::test]
async fn pipelines_are_contiguous_and_refusals_stay_apart() {
    let redis = Redis::start();
    let c = redis.client().await;
    let replies = c
        .pipeline()
        .cmd(cmd("SET").arg("s").arg("text"))
        .cmd(cmd("INCR").arg("s"))
        .cmd(cmd("GET").arg("s"))
        .run()
        .await
        .unwrap();
    assert!(
        matches!(
            &replies[..],
            [Value::Simple(_), Value::Error(_), Value::Bulk(_)]
        ),
        "{replies:?}"
    );
    let (a, b): (i64, i64) = c
        .pipeline()
        .cmd(cmd("INCR").arg("x"))
        .cmd(cmd("INCR").arg("x"))
        .query()
        .await
        .unwrap();
    assert_eq!((a, b), (1, 2));
    assert!(c.pipeline().run().await.unwrap().is_empty());
    // A large pipeline takes a connection of the pool, so the server then has two connections.
    let mut large = c.pipeline();
    for i in 0..5_000i64 {
        large.push(cmd("RPUSH").arg("list").arg(i));
    }
    let lens: Vec<i64> = soon("a large pipeline", large.query()).await.unwrap();
    assert_eq!((lens.len(), lens[4999]), (5_000, 5_000));
    let clients: String = c.send(cmd("CLIENT LIST")).await.unwrap();
    assert_eq!(clients.lines().count(), 2);
}

#[tokio::test]
async fn transactions_and_watch() {
    let redis = Redis::start();
    let c = redis.client().await;
    let (n, s): (i64, String) = c
        .transaction()
        .cmd(cmd("INCR").arg("n"))
        .cmd(cmd("GET").arg("n"))
        .exec()
        .await
        .unwrap();
    assert_eq!((n, s.as_str()), (1, "1"));
    let refused = c
        .transaction()
        .cmd(cmd("INCR").arg("n"))
        .cmd(cmd("NOSUCH"))
        .exec::<Value>()
        .await
        .unwrap_err();
    assert!(
        refused.server().unwrap().line().contains("NOSUCH"),
        "{refused}"
    );
    assert_eq!(c.get::<i64>("n").await.unwrap(), 1);

    let mut own = c.dedicated().await.unwrap();
    own.watch("n").await.unwrap();
    c.incr("n").await.unwrap();
    let out: Option<(i64,)> = own
        .transaction()
        .cmd(cmd("INCR").arg("n"))
        .exec()
        .await
        .unwrap();
    assert_eq!(out, None, "a watched key changed");
    own.watch("n").await.unwrap();
    let out: Option<(i64,)> = own
        .transaction()
        .cmd(cmd("INCR").arg("n"))
        .exec()
        .await
        .unwrap();
    assert_eq!(out, Some((3,)));
}

#[tokio::test]
async fn blocking_commands_delay_no_other_command() {
    let redis = Redis::start();
    let c = redis.client().await;
    let popped = tokio::spawn(c.send::<(String, String)>(cmd("BLPOP").arg("queue").arg(0)));
    // The shared connection continues while the command blocks.
    soon("BLPOP to block", async {
        loop {
            let blocked: String = c.send(cmd("INFO").arg("clients")).await.unwrap();
            if blocked.contains("blocked_clients:1") {
                break;
            }
        }
    })
    .await;
    c.lpush("queue", "job").await.unwrap();
    assert_eq!(
        popped.await.unwrap().unwrap(),
        ("queue".into(), "job".into())
    );
    // A blocking command that its caller drops takes its connection with it, so its reply reaches no caller.
    let given_up = c.send::<Value>(
        cmd("BLPOP")
            .arg("queue")
            .arg(0)
            .timeout(Duration::from_millis(30)),
    );
    assert!(matches!(
        given_up.await,
        Err(CommandError::TimedOut(Executed::Maybe))
    ));
    soon("the connection to close", async {
        while c
            .send::<String>(cmd("INFO").arg("clients"))
            .await
            .unwrap()
            .contains("blocked_clients:1")
        {}
    })
    .await;
    assert!(matches!(
        c.send::<Value>(cmd("SUBSCRIBE").arg("x")).await,
        Err(CommandError::NotShared(_))
    ));
}

#[tokio::test]
async fn bulk_commands_take_their_own_connection() {
    let redis = Redis::start();
    let c = redis.client().await;
    let big = vec![7u8; 3 << 20];
    c.send::<()>(cmd("SET").arg("big").arg(&big).bulk())
        .await
        .unwrap();
    let before = c.stats().commands;
    let got: Bytes = c.send(cmd("GET").arg("big").bulk()).await.unwrap();
    assert_eq!(got, big);
    assert_eq!(
        c.stats().commands,
        before,
        "nothing of it went by the shared connection"
    );
}

#[tokio::test]
async fn messages_reach_their_subscribers() {
    let redis = Redis::start();
    let c = redis.client().await;
    let mut news = c.subscribe(["news", "sport"], 16).await.unwrap();
    let mut all = c.psubscribe(["n*"], 16).await.unwrap();
    let p = redis.client().await;
    assert_eq!(p.publish("news", "one").await.unwrap(), 2);
    assert_eq!(p.publish("sport", "two").await.unwrap(), 1);
    let message = |channel: &'static str, payload: &'static str| {
        move |m: Option<Message>| {
            let m = m.unwrap();
            assert_eq!(
                (&m.channel[..], &m.payload[..]),
                (channel.as_bytes(), payload.as_bytes())
            );
        }
    };
    message("news", "one")(soon("a message", news.next()).await);
    message("sport", "two")(soon("a message", news.next()).await);
    message("news", "one")(soon("a message", all.next()).await);
    // The connection serves commands all the while, and a second subscription to the same
    // channel is independent.
    let mut second = c.subscribe(["news"], 1).await.unwrap();
    drop(news);
    for text in ["three", "four"] {
        p.publish("news", text).await.unwrap();
    }
    // A connection delivers replies and messages in order: after this reply, both messages have arrived.
    c.publish("news", "five").await.unwrap();
    c.ping().await.unwrap();
    message("news", "three")(second.try_next());
    assert_eq!(
        (second.try_next(), second.dropped()),
        (None, 2),
        "a full channel drops and counts"
    );
    drop((second, all));
    soon("everybody to leave", async {
        while p.publish("news", "x").await.unwrap() > 0 {}
    })
    .await;
}

#[tokio::test]
async fn a_refused_subscription_does_not_shift_replies() {
    let redis = Redis::start();
    let admin = redis.client().await;
    admin
        .send::<()>(cmd("ACL SETUSER").arg([
            "bob",
            "on",
            ">pw",
            "+@all",
            "~*",
            "resetchannels",
            "&ok",
        ]))
        .await
        .unwrap();
    let c = Client::open(redis.config().user("bob").password("pw"))
        .await
        .unwrap();
    let before = c.send::<i64>(cmd("ECHO").arg(1));
    let refused = c.subscribe(["ok", "secret"], 4);
    let (refused, before) = (refused.await, before.await);
    let after = c.send::<i64>(cmd("ECHO").arg(2)).await;
    let e = refused.unwrap_err();
    assert_eq!(
        e.server().map(|e| e.kind().clone()),
        Some(ServerErrorKind::NoPerm),
        "{e}"
    );
    assert_eq!((before.unwrap(), after.unwrap()), (1, 2));
}

#[tokio::test]
async fn commands_without_room_wait_or_fail() {
    let redis = Redis::start();
    let c = Client::open(redis.config().commands_max(8)).await.unwrap();
    let many: Vec<_> = (0..200i64)
        .map(|i| c.send::<i64>(cmd("ECHO").arg(i)))
        .collect();
    for (i, reply) in many.into_iter().enumerate() {
        assert_eq!(soon("room", reply).await.unwrap(), i as i64);
    }
    let c = Client::open(redis.config().commands_max(8).when_full(WhenFull::Fail))
        .await
        .unwrap();
    let many: Vec<_> = (0..9i64)
        .map(|i| c.send::<i64>(cmd("ECHO").arg(i)))
        .collect();
    let mut full = 0;
    for reply in many {
        match reply.await {
            Err(CommandError::Full { commands: 8, .. }) => full += 1,
            other => drop(other.unwrap()),
        }
    }
    assert_eq!(full, 1);
    // The client must send a command larger than all the room alone.
    let c = Client::open(redis.config().bytes_max(1000)).await.unwrap();
    let echo: Bytes = soon("a large one", c.send(cmd("ECHO").arg(vec![b'x'; 5000])))
        .await
        .unwrap();
    assert_eq!(echo.len(), 5000);
}

/// If a caller that waits for room gives up after the pipeline has woken it, other waiting callers must still
/// get the room.
#[tokio::test]
async fn waiters_for_room_may_give_up() {
    let redis = Redis::start();
    let c = Client::open(redis.config().commands_max(4)).await.unwrap();
    let mut tasks = Vec::new();
    for i in 0..400i64 {
        let c = c.clone();
        let task = tokio::spawn(async move { c.send::<i64>(cmd("ECHO").arg(i)).await });
        if i % 3 == 0 {
            task.abort();
        }
        tasks.push(task);
    }
    for task in tasks {
        if let Ok(reply) = soon("a waiter", task).await {
            reply.unwrap();
        }
    }
}

#[tokio::test]
async fn timeouts_leave_the_stream_in_order() {
    let redis = Redis::start();
    let c = redis.client().await;
    // The server sleeps, so its replies are late.
    let slow = c.send::<Value>(
        cmd("DEBUG SLEEP")
            .arg("0.2")
            .timeout(Duration::from_millis(20)),
    );
    let late = c.send::<i64>(cmd("ECHO").arg(1).timeout(Duration::from_millis(20)));
    let after = c.send::<i64>(cmd("ECHO").arg(2));
    assert!(matches!(
        slow.await,
        Err(CommandError::TimedOut(_)) | Err(CommandError::Server(_))
    ));
    drop(late.await);
    assert_eq!(after.await.unwrap(), 2);
}

#[tokio::test]
async fn a_connection_wide_timeout_fails_each_overdue_command() {
    let redis = Redis::with(&["--enable-debug-command", "yes"]);
    let c = Client::open(redis.config().timeout(Duration::from_millis(50)))
        .await
        .unwrap();
    let slow = c.send::<Value>(cmd("DEBUG SLEEP").arg("0.5"));
    let behind = c.send::<Value>(cmd("ECHO").arg("behind"));
    for reply in [slow, behind] {
        let e = soon("the timeout", reply).await.unwrap_err();
        assert!(e.maybe_executed(), "{e}");
    }
    soon("the server to wake", async {
        while !matches!(c.send::<i64>(cmd("ECHO").arg(9)).await, Ok(9)) {}
    })
    .await;
    assert_eq!(c.stats().reconnects, 0);
}

#[tokio::test]
async fn clients_end_when_the_last_handle_goes() {
    let redis = Redis::start();
    let c = redis.client().await;
    let admin = redis.client().await;
    let last = c.clone().incr("n");
    drop(c);
    assert_eq!(last.await.unwrap(), 1, "what was submitted is finished");
    soon("the connection to close", async {
        while admin
            .send::<String>(cmd("CLIENT LIST"))
            .await
            .unwrap()
            .lines()
            .count()
            > 1
        {}
    })
    .await;
}

#[tokio::test]
async fn stats_add_up() {
    let redis = Redis::start();
    let c = redis.client().await;
    for _ in 0..100 {
        c.ping().await.unwrap();
    }
    until("the count", || c.stats().in_flight == 0).await;
    let s = c.stats();
    assert_eq!((s.commands, s.replies, s.queued), (100, 100, 0));
    assert_eq!(s.depths.flushes(), s.policy.counts.batches());
    assert_eq!(s.policy.counts.items, 100);
    assert!(s.connected && s.rtt_us > 0.0 && s.cpu_us > 0.0, "{s}");
}
