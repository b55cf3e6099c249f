//! A cache in Redis in front of a slow source. Many tasks share one connection, and the engine decides which
//! of their commands one write takes.
//!
//! `cargo run -p example-redis-cache -- redis://127.0.0.1:6379`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tidegate_redis::{Client, SetOptions};
use tokio::task::JoinSet;

const CALLERS: u64 = 128;
const READS_EACH: u64 = 100;
const PROFILES: u64 = 500;
const FRESH_FOR: Duration = Duration::from_secs(60);

struct Profiles {
    cache: Client,
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Profiles {
    /// Returns a profile from the cache, or else from the source. A cache that fails costs time, but no read
    /// fails with it.
    async fn get(&self, id: u64) -> String {
        let key = format!("profile:{id}");
        if let Ok(Some(profile)) = self.cache.get::<Option<String>>(&key).await {
            self.hits.fetch_add(1, Relaxed);
            return profile;
        }
        self.misses.fetch_add(1, Relaxed);
        let profile = slow_source(id).await;
        let options = SetOptions::new().expire(FRESH_FOR);
        if let Err(error) = self.cache.set_with::<()>(&key, &profile, options).await {
            eprintln!("{key} is not cached: {error}");
        }
        profile
    }
}

/// Stands in for a database.
async fn slow_source(id: u64) -> String {
    tokio::time::sleep(Duration::from_millis(5)).await;
    format!("profile of user {id}")
}

// Client and callers share one thread, which is the fastest way: docs/redis.md.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a Redis server")?;
    let cache = Client::connect(&url).await?;
    let profiles = Arc::new(Profiles { cache, hits: AtomicU64::new(0), misses: AtomicU64::new(0) });

    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let profiles = Arc::clone(&profiles);
        callers.spawn(async move {
            for read in 0..READS_EACH {
                let id = (caller * 31 + read * 17) % PROFILES;
                assert_eq!(profiles.get(id).await, format!("profile of user {id}"));
            }
        });
    }
    while let Some(caller) = callers.join_next().await {
        caller?;
    }

    println!("{} hits, {} misses", profiles.hits.load(Relaxed), profiles.misses.load(Relaxed));
    let stats = profiles.cache.stats();
    println!("{stats}");
    println!(
        "flushes by reason: {:?}; limit: {} commands",
        stats.policy.counts.by_reason, stats.policy.limit
    );
    Ok(())
}
