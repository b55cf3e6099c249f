//! Runs the example against a Redis of its own.

use example_servers::{redis, run};

#[test]
fn reads_hit_the_cache_and_commands_share_flushes() {
    let Some(server) = redis() else { return };
    let cold = run(env!("CARGO_BIN_EXE_example-redis-cache"), &[&server.url]);
    let (hits, misses) = counts(&cold);
    assert_eq!(hits + misses, 12_800);
    assert!(misses >= 500, "a profile was never loaded:\n{cold}");

    // The first run filled the cache, so the second one needs no source.
    let warm = run(env!("CARGO_BIN_EXE_example-redis-cache"), &[&server.url]);
    assert_eq!(counts(&warm), (12_800, 0), "{warm}");
    let (_, flushes) = warm.split_once("12800 commands in ").unwrap();
    let flushes: u64 = flushes.split(' ').next().unwrap().parse().unwrap();
    assert!(flushes < 12_800, "no two commands shared a flush:\n{warm}");
    assert!(warm.contains("flushes by reason: {\""), "{warm}");
}

fn counts(said: &str) -> (u64, u64) {
    let counts = said.lines().next().unwrap().strip_suffix(" misses").unwrap();
    let (hits, misses) = counts.split_once(" hits, ").unwrap();
    (hits.parse().unwrap(), misses.parse().unwrap())
}
