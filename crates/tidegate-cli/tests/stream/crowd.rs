//! Many connections: idle ones without any wake-up of the server, and thousands at once.

use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::raw::Raw;
use super::server::{Server, other};

/// Returns how often the server's threads went to sleep so far: an event woke them each time before.
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

/// The server sleeps except for the timers of its PINGs and the PONGs that answer them.
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
    // The count starts at the first PING and ends at the second.
    for raw in &mut all {
        raw.pinged(1).unwrap();
    }
    let before = wake_ups(server.pid());
    for raw in &mut all {
        raw.pinged(2).unwrap();
    }
    let woken = wake_ups(server.pid()) - before;
    println!("{woken} wake-ups for {CONNECTIONS} PINGs and as many PONGs");
    // Each PING may have its own timer and each PONG its own read, with the first PONGs among them; a
    // periodic tick would exceed the bound.
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
    // A message after each subscription shows that the server has it.
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
