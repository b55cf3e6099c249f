//! Tests with many connections: idle connections must not wake the server, and thousands must be able to
//! connect at once.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::raw::Raw;
use super::server::{Server, other};

/// Returns how often the server's threads have gone to sleep so far, which is how often events have woken
/// them.
fn wake_ups(pid: u32) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of = |path: &Path| -> Option<u64> {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let line = status
            .lines()
            .find(|line| line.starts_with("voluntary_ctxt_switches"))?;
        line.split_whitespace().last()?.parse().ok()
    };
    tasks.flatten().filter_map(|task| of(&task.path())).sum()
}

/// Tests that the server sleeps while its clients are idle, except for its own PINGs and the clients' PONGs.
#[test]
fn idle_connections_cause_no_wake_ups() {
    if other().is_some() {
        println!("a Go program's threads sleep by rules of their own, so this is not asked of it");
        return;
    }
    const CONNECTIONS: usize = 100;
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(&directory.path().join("data"), "ping_interval: 3s");
    let mut all: Vec<_> = (0..CONNECTIONS)
        .map(|_| Raw::connect(&server.url).unwrap())
        .collect();
    // The count begins at the first PING to each client, and ends at the second.
    for raw in &mut all {
        raw.pinged(1).unwrap();
    }
    let before = wake_ups(server.pid());
    for raw in &mut all {
        raw.pinged(2).unwrap();
    }
    let woken = wake_ups(server.pid()) - before;
    println!("{woken} wake-ups for {CONNECTIONS} PINGs and as many PONGs");
    // Each PING may need a timer of its own, and each PONG a read of its own; the first PONGs count as well.
    // A periodic tick would exceed this bound.
    assert!(woken <= 3 * CONNECTIONS as u64 + 10, "{woken} wake-ups");
}

#[test]
fn five_thousand_connections() {
    const CONNECTIONS: usize = 5000;
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, wanted).unwrap();
    if limit
        .maximum
        .is_some_and(|most| most < CONNECTIONS as u64 + 500)
    {
        tidegate_testing::missing(&format!("{CONNECTIONS} descriptors (ulimit -n)"));
        return;
    }
    let server = Server::start();
    let mut all: Vec<_> = (0..CONNECTIONS)
        .map(|_| Raw::connect(&server.url).unwrap())
        .collect();
    for raw in &mut all {
        raw.send(b"SUB all 2\r\nPING\r\n").unwrap();
    }
    // A message to each subscription shows that the server has the subscription.
    for (i, raw) in all.iter_mut().enumerate() {
        let inbox = raw.inbox.clone();
        raw.send(format!("PUB {inbox}made 0\r\n\r\n").as_bytes())
            .unwrap();
        let made = raw.message().unwrap();
        assert_eq!(made.subject, format!("{inbox}made"), "connection {i}");
    }
    server.good(&["pub", "all", "to everybody"]);
    for raw in &mut all {
        assert_eq!(raw.message().unwrap().payload, b"to everybody");
    }
}
