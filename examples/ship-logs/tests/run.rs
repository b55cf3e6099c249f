//! Ships the lines of three programs at once into one file.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use example_servers::run;

const SENDERS: usize = 3;
const LINES_EACH: usize = 10_000;

#[test]
fn every_line_arrives_once_and_in_order_and_syncs_are_shared() {
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all.log");
    let program = || Command::new(env!("CARGO_BIN_EXE_example-ship-logs"));
    let mut receiver = program()
        .args(["receive", "127.0.0.1:0"])
        .arg(&all)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(receiver.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();

    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let log = directory.path().join(format!("{sender}.log"));
            let lines: String = (0..LINES_EACH).map(|n| format!("{sender} line {n}\n")).collect();
            std::fs::write(&log, lines).unwrap();
            let log = File::open(log).unwrap();
            program().args(["send", address]).stdin(log).stdout(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for sender in senders {
        let output = sender.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "10000 lines are synced\n");
    }
    run("kill", &["-INT", &receiver.id().to_string()]);
    let mut stats = String::new();
    said.read_to_string(&mut stats).unwrap();
    assert!(receiver.wait().unwrap().success());

    let text = std::fs::read_to_string(all).unwrap();
    let mut next = [0; SENDERS];
    for line in text.lines() {
        let (sender, n) = line.split_once(" line ").unwrap();
        let sender: usize = sender.parse().unwrap();
        assert_eq!(n, next[sender].to_string(), "sender {sender}");
        next[sender] += 1;
    }
    assert_eq!(next, [LINES_EACH; SENDERS]);
    for subject in ["batches by reason: ", "limit: "] {
        assert!(stats.contains(subject), "{subject} is missing in:\n{stats}");
    }
}
