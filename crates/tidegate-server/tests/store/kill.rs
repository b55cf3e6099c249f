//! Kills a real process on a real disk at any moment: after the restart the store must have every entry that
//! the process reported as applied, once, in order and unchanged.
//!
//! The process is this test itself, started again for [`child`] alone.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Node;
use crate::crash::Dice;
use crate::toy::{delete, store};

const DIR: &str = "TIDEGATE_STORE_KILL_DIR";
const ROUNDS: u64 = 10;
const SEED: u64 = 11;

/// Stores and deletes until the test kills this process, and reports the applied entries on standard output.
/// As a test of its own it does nothing.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else {
        return;
    };
    let mut node = Node::at(Path::new(&dir));
    let mut dice = Dice(node.toy.seq * 2 + 1);
    // The child counts messages on their way, too, when it chooses the number of the next message.
    let mut next = node.toy.seq + 1;
    loop {
        let seq = next;
        let data = match dice.below(50) {
            // The child deletes nine messages in ten, so that the store releases segments and copies messages
            // forward.
            0 => delete((seq.saturating_sub(200)..seq.saturating_sub(50)).filter(|s| s % 10 > 0)),
            _ => {
                next += 1;
                store(seq, 1, dice.below(3000) as usize)
            }
        };
        let before = node.toy.seq;
        node.propose(&data);
        if node.toy.seq > before {
            writeln!(std::io::stdout(), "\napplied {}", node.toy.seq).unwrap();
        }
    }
}

#[test]
fn applied_entries_survive_kills() {
    println!("seed {SEED}");
    let dir = tempfile::tempdir().unwrap();
    let mut dice = Dice(SEED);
    for round in 0..ROUNDS {
        let applied = run_and_kill(dir.path(), 20 + dice.below(150));
        let mut node = Node::at(dir.path());
        assert!(
            node.toy.seq >= applied,
            "round {round}: {applied} was applied, {} is there",
            node.toy.seq
        );
        node.check_messages();
        node.store.close().unwrap();
    }
    let mut node = Node::at(dir.path());
    assert!(
        node.store.log().first().get() > 0,
        "nothing was ever released"
    );
    node.check_messages();
}

/// Lets a child work until it has reported often enough, and kills it. Returns the last report.
fn run_and_kill(dir: &Path, reports: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut applied, mut seen) = (0, 0);
    for line in lines.map_while(Result::ok) {
        let Some(report) = line.strip_prefix("applied ") else {
            continue;
        };
        // The kill may cut the last line off, but a shorter number is never a later one.
        applied = applied.max(report.parse().unwrap_or(0));
        seen += 1;
        if seen == reports {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(
        seen >= reports,
        "the child ended by itself after {seen} reports"
    );
    applied
}
