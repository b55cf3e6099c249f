//! Tests that the server sends no acknowledgement before the sync that covers its message has ended. The test
//! traces the server's system calls to prove that.
//!
//! The server runs under strace, which records the begin and the end of every call in one order. Before the
//! server begins to write an acknowledgement to a socket, an `fdatasync` must have ended that began after the
//! end of the message's write to the log. If strace reports the end of a call, the call has ended, because
//! strace holds the thread until it has recorded the end.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::raw::Raw;
use super::server::{Server, other};

const CLIENTS: u64 = 4;
const ROUNDS: u64 = 25;
/// The greatest number of unacknowledged messages of a client.
const BURST: u64 = 3;

#[test]
fn no_acknowledgement_before_its_sync() {
    if other().is_some_and(|_| std::env::var_os("STREAM_SYNC").is_none()) {
        println!("nats-server acknowledges first and syncs later, so this is not asked of it");
        return;
    }
    if !strace_works() {
        tidegate_testing::missing("strace (make deps-strace), and leave to trace");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("trace");
    let tracer = [
        "strace",
        "-f",
        "-qq",
        "-s",
        "4000000",
        "-e",
        "signal=none",
        "-e",
        "trace=write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,fsync,fdatasync,sync_file_range",
        "-o",
        trace.to_str().unwrap(),
    ];
    let mut server = Server::start_under(&directory.path().join("data"), &tracer);
    server.good(&[
        "stream",
        "add",
        "S",
        "--subjects",
        "s.*",
        "--storage",
        "file",
    ]);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let url = server.url.clone();
            scope.spawn(move || {
                let mut raw = Raw::connect(&url).unwrap();
                for round in 0..ROUNDS {
                    for n in round * BURST..(round + 1) * BURST {
                        // The test can find this word both in the log's writes and in the subject of the
                        // acknowledgement.
                        let word = word(client, n);
                        raw.publish(
                            &format!("s.{client}"),
                            &word,
                            format!("<{word}>").as_bytes(),
                        )
                        .unwrap();
                    }
                    for _ in 0..BURST {
                        let ack: Value =
                            serde_json::from_slice(&raw.message().unwrap().payload).unwrap();
                        assert!(ack.get("error").is_none(), "{ack}");
                    }
                }
            });
        }
    });
    server.kill();
    let text = std::fs::read_to_string(&trace).unwrap();
    let proved = check(&text).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(proved, CLIENTS * ROUNDS * BURST);
    println!("{proved} acknowledgements, each after its sync");
}

fn word(client: u64, n: u64) -> String {
    format!("m{client}x{n}m")
}

fn strace_works() -> bool {
    let run = Command::new("strace")
        .args(["-f", "-o", "/dev/null", "true"])
        .output();
    run.is_ok_and(|output| output.status.success()) && Path::new("/proc/self").exists()
}

/// The progress of a message on its way to its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The write of the message to the log has ended, after this many events of the trace.
    Written(usize),
    /// A sync that began after the write of the message has ended.
    Synced,
}

/// Counts the acknowledgements of the trace that come after their sync. Returns an error for the first one
/// that comes before its sync.
fn check(trace: &str) -> Result<u64, String> {
    let mut stages: BTreeMap<String, Stage> = BTreeMap::new();
    let mut proved = 0;
    // For each thread, its running call, and the event at which the call began.
    let mut running: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for (at, line) in trace.lines().enumerate() {
        let Some((thread, event)) = line.split_once(' ') else {
            continue;
        };
        let event = event.trim_start();
        let resumed = event.starts_with("<... ");
        let unfinished = event.ends_with("<unfinished ...>");
        if !resumed {
            let acks = words(event).filter(|_| is_ack(event));
            for word in acks {
                match stages.get(word) {
                    Some(Stage::Synced) => proved += 1,
                    stage => {
                        return Err(format!(
                            "{word} is acknowledged, and it is {stage:?}: line {at} {event}"
                        ));
                    }
                }
            }
            running.insert(thread, (at, event.to_owned()));
        }
        if unfinished {
            continue;
        }
        let Some((began, call)) = running.remove(thread) else {
            continue;
        };
        // A failed call proves nothing, so the check ignores it, and counts every other result.
        if event.contains("= -1 ") {
            continue;
        }
        if call.starts_with("fdatasync") || call.starts_with("fsync") {
            for stage in stages.values_mut() {
                if matches!(*stage, Stage::Written(ended) if ended < began) {
                    *stage = Stage::Synced;
                }
            }
        } else if call.starts_with("pwrite") || call.starts_with("write") && !is_ack(&call) {
            for word in words(&call).filter(|word| call.contains(&format!("<{word}>"))) {
                stages.entry(word.to_owned()).or_insert(Stage::Written(at));
            }
        }
    }
    Ok(proved)
}

/// Returns whether this call writes acknowledgements to a socket, and not a message to the log.
fn is_ack(event: &str) -> bool {
    event.contains("\\\"seq\\\":") && event.contains("MSG _INBOX.")
}

/// Returns the words in the bytes of a call that name messages.
fn words(event: &str) -> impl Iterator<Item = &str> {
    event
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| {
            let inner = word.strip_prefix('m').and_then(|w| w.strip_suffix('m'));
            let numbers = inner.and_then(|w| w.split_once('x'));
            numbers.is_some_and(|(a, b)| a.parse::<u64>().is_ok() && b.parse::<u64>().is_ok())
        })
}

/// Tests that the check finds an acknowledgement that comes before its sync.
#[test]
fn the_check_finds_an_early_acknowledgement() {
    let write = "7 pwritev(5, [{iov_base=\"..<m0x1m>..\", iov_len=10}], 1, 0) = 10\n";
    let sync = "7 fdatasync(5) = 0\n";
    let ack = "8 write(9, \"MSG _INBOX.1.m0x1m 1 26\\r\\n{\\\"stream\\\":\\\"S\\\",\\\"seq\\\":1}\\r\\n\", 50) = 50\n";
    assert_eq!(check(&[write, sync, ack].concat()), Ok(1));
    assert!(check(&[write, ack, sync].concat()).is_err());
    assert!(check(&[sync, ack].concat()).is_err());
    // A sync that began before the end of the write does not cover the message.
    let begins = "6 fdatasync(5 <unfinished ...>\n";
    let ends = "6 <... fdatasync resumed>) = 0\n";
    assert!(check(&[begins, write, ends, ack].concat()).is_err());
    assert_eq!(check(&[write, begins, ends, ack].concat()), Ok(1));
    let failed = "7 fdatasync(5) = -1 EIO (Input/output error)\n";
    assert!(check(&[write, failed, ack].concat()).is_err());
}
