//! Tests large arguments: the client writes arguments of type `Bytes` without copying them.

use bytes::Bytes;
use tidegate_redis::{Policy, cmd};

use crate::common::{Redis, soon};

fn value(i: usize) -> Bytes {
    let len = [3, 20_000, 16 << 10, 70_000, 1 << 20][i % 5] + i;
    Bytes::from(vec![b'a' + (i % 26) as u8; len])
}

#[tokio::test]
async fn large_and_small_arguments_keep_their_order() {
    let redis = Redis::start();
    for policy in [Policy::Auto, Policy::Off] {
        // The bound on queued bytes is smaller than all these values, so some commands wait for room, already
        // encoded.
        let config = redis.config().policy(policy).bytes_max(4 << 20);
        let c = tidegate_redis::Client::open(config).await.unwrap();
        let sets: Vec<_> = (0..200)
            .map(|i| (c.set(format!("k{i}"), value(i)), c.incr("n")))
            .collect();
        for (set, incr) in sets {
            soon("a large write", set).await.unwrap();
            let _: i64 = soon("a small one", incr).await.unwrap();
        }
        for i in 0..200 {
            assert!(
                c.get::<Bytes>(format!("k{i}")).await.unwrap() == value(i),
                "{i}"
            );
        }
    }
}

#[tokio::test]
async fn large_arguments_in_runs_and_many_of_them() {
    let redis = Redis::start();
    let c = redis.client().await;
    let run = c
        .pipeline()
        .cmd(cmd("SET").arg("a").arg(value(3)))
        .cmd(cmd("APPEND").arg("a").arg(value(1)))
        .cmd(cmd("GET").arg("a"));
    let (_, len, a): (String, usize, Bytes) = run.query().await.unwrap();
    assert_eq!(len, value(3).len() + value(1).len());
    assert!(a == [value(3), value(1)].concat());
    // The header of a command gives the number of its arguments. With more than nine arguments the header
    // needs a further digit, after the client has written the arguments.
    let pairs: Vec<_> = (0..100).map(|i| (format!("m{i}"), value(i % 4))).collect();
    c.mset(pairs).await.unwrap();
    let keys: Vec<_> = (0..100).map(|i| format!("m{i}")).collect();
    let all: Vec<Bytes> = c.mget(keys).await.unwrap();
    for (i, got) in all.into_iter().enumerate() {
        assert!(got == value(i % 4), "{i}");
    }
    // If a caller drops its future, the client still sends its argument.
    drop(c.set("dropped", value(4)));
    let strlen: usize = c.send(cmd("STRLEN").arg("dropped")).await.unwrap();
    assert_eq!(strlen, value(4).len());
}
