//! Counts the allocations of memory that each command makes.

#![allow(clippy::unwrap_used)]

mod common;

use std::alloc::System;

use bytes::Bytes;
use common::Redis;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// The client writes commands into the connection's buffer, and uses its slots and wakers again. So PUBLISH
/// and SET allocate nothing, and GET of a short value allocates only the value.
#[tokio::test]
async fn everyday_commands_allocate_next_to_nothing() {
    const N: usize = 1_000;
    let redis = Redis::start();
    let c = redis.client().await;
    let value = [b'x'; 64];
    for _ in 0..N {
        c.set("k", value).await.unwrap();
        c.get::<Bytes>("k").await.unwrap();
        c.publish("nobody", "hears").await.unwrap();
    }
    let region = Region::new(ALLOCATOR);
    for _ in 0..N {
        c.publish("nobody", "hears").await.unwrap();
        c.set("k", value).await.unwrap();
    }
    let writes = region.change().allocations;
    assert!(
        writes < N / 10,
        "{writes} allocations in {N} publishes and {N} sets"
    );
    let region = Region::new(ALLOCATOR);
    for _ in 0..N {
        c.get::<Bytes>("k").await.unwrap();
    }
    let reads = region.change().allocations;
    assert!(reads < 2 * N + N / 10, "{reads} allocations in {N} gets");
}
