//! Tests of shipping without faults: the records that arrive, and the record from which a session continues.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::program::{Program, spooled};
use super::proxy::{NOBODY, Proxy};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn lines_go_to_standard_output() {
    let (receiver, address) = Program::receive(&[]);
    let mut sender = Program::send(address, &[]);
    sender.feed(b"one\n\ntwo\r\n\xff\0\nthree");
    let (_, stderr) = sender.succeed();
    assert!(
        stderr.contains("sent and acknowledged 5 records"),
        "{stderr}"
    );
    receiver.interrupt();
    let (code, stdout, stderr) = receiver.wait();
    assert_eq!((code, &*stdout), (130, &b"one\n\ntwo\r\n\xff\0\nthree"[..]));
    assert!(stderr.contains("received 5 records"), "{stderr}");
}

#[test]
fn nothing_is_shipped_whole_too() {
    let (receiver, address) = Program::receive(&[]);
    Program::send(address, &["/dev/null"]).succeed();
    receiver.interrupt();
    assert_eq!(receiver.wait().1, b"");
}

#[test]
fn prefixed_records_are_any_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let mut input = Vec::new();
    for record in [&b"a\nb"[..], b"", b"\n", &[7; 300_000]] {
        input.extend_from_slice(&(record.len() as u32).to_le_bytes());
        input.extend_from_slice(record);
    }
    fs::write(&from, &input).unwrap();
    let args = ["--format", "records"];
    let (_receiver, address) = Program::receive(&[&args[..], &["--append", text(&to)]].concat());
    Program::send(address, &[&args[..], &[text(&from)]].concat()).succeed();
    assert!(fs::read(&to).unwrap() == input);
}

#[test]
fn a_session_goes_on_where_it_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::write(&to, "before\n").unwrap();
    let (mut receiver, address) = Program::append(&to);
    let send = |address, input: &str| {
        fs::write(&from, input).unwrap();
        let (_, stderr) = Program::send(address, &["--session", "log", text(&from)]).succeed();
        stderr
    };
    send(address, "1\n2\n3\n");
    receiver.kill();
    let (receiver, address) = Program::append(&to);
    assert!(receiver.line("listening").contains("1 sessions"));
    let stderr = send(address, "1\n2\n3\n4\n5\n");
    assert!(stderr.contains("going on with record 4"), "{stderr}");
    assert!(
        stderr.contains("sent and acknowledged 2 records"),
        "{stderr}"
    );
    // A sender with another session name, or without a name, must ship the file from its beginning.
    Program::send(address, &["--session", "other", text(&from)]).succeed();
    Program::send(address, &[text(&from)]).succeed();
    let whole = "1\n2\n3\n4\n5\n".repeat(3);
    assert_eq!(fs::read_to_string(&to).unwrap(), format!("before\n{whole}"));
}

#[test]
fn standard_input_follows_what_its_session_has() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let (_receiver, address) = Program::append(&to);
    for line in ["one\n", "two\n"] {
        let mut sender = Program::send(address, &["--session", "log"]);
        sender.feed(line.as_bytes());
        sender.succeed();
    }
    assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\n");
}

#[test]
fn a_spool_survives_its_sender_and_is_emptied() {
    let directory = tempfile::tempdir().unwrap();
    let (to, spool) = (
        directory.path().join("to"),
        directory.path().join("a/spool"),
    );
    let spool = text(&spool);
    let mut sender = Program::send(NOBODY, &["--spool", spool, "--wait", "100s"]);
    let line = sender.line("standard input goes on");
    assert!(line.ends_with("with record 1"), "{line}");
    sender.feed(b"one\ntwo\nthree");
    // The records are on the disk soon after the sender has read them. Only the spool's log shows that, so
    // the test reads it.
    super::program::until("spooled", || spooled(Path::new(spool), "three"));
    sender.kill();

    let (_receiver, address) = Program::append(&to);
    let mut sender = Program::send(address, &["--spool", spool]);
    let line = sender.line("standard input goes on");
    assert!(
        line.contains(" 3 records from before") && line.ends_with("with record 4"),
        "{line}"
    );
    sender.feed(b"\nfour\n");
    sender.succeed();
    assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\nthree\nfour\n");
    // The emptied spool must keep the number of its next record.
    let sender = Program::send(address, &["--spool", spool]);
    let line = sender.line("standard input goes on");
    assert!(
        line.contains(" 0 records from before") && line.ends_with("with record 6"),
        "{line}"
    );
    sender.succeed();
}

/// Tests a spool after the sender and a receiver without a file were killed: the spool must still have the
/// unacked records, and ship them to another receiver.
#[test]
fn a_spool_outlives_a_receiver_that_forgets() {
    let directory = tempfile::tempdir().unwrap();
    let spool = directory.path().join("spool");
    let args = [
        "--session",
        "log",
        "--spool",
        text(&spool),
        "--wait",
        "100s",
    ];
    let (mut receiver, address) = Program::receive(&[]);
    let proxy = Proxy::new(address);
    let mut sender = Program::send(proxy.address, &args);
    sender.feed(b"one\ntwo\n");
    sender.succeed();
    receiver.output(b"one\ntwo\n");
    receiver.kill();
    for lines in ["three\n", "four\n"] {
        let (receiver, address) = Program::receive(&[]);
        proxy.lead_to(address);
        for line in [lines, "more\n"] {
            let mut sender = Program::send(proxy.address, &args);
            sender.feed(line.as_bytes());
            sender.succeed();
        }
        receiver.output(format!("{lines}more\n").as_bytes());
    }
}

#[test]
fn a_small_spool_takes_more_than_it_holds() {
    let directory = tempfile::tempdir().unwrap();
    let (to, spool) = (directory.path().join("to"), directory.path().join("spool"));
    let (_receiver, address) = Program::append(&to);
    let limit = ["--spool-limit", "64KiB"];
    let mut sender = Program::send(address, &[&limit[..], &["--spool", text(&spool)]].concat());
    let lines: String = (0..50_000).map(|at| format!("line {at}\n")).collect();
    sender.feed(lines.as_bytes());
    sender.succeed();
    assert!(fs::read_to_string(&to).unwrap() == lines);
}

#[test]
fn many_senders_share_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let (_receiver, address) = Program::append(&to);
    let mut senders = Vec::new();
    for who in 0..8 {
        let mut sender = Program::send(address, &[]);
        let lines: String = (0..2000).map(|at| format!("{who} {at}\n")).collect();
        sender.feed(lines.as_bytes());
        senders.push(sender);
    }
    for sender in senders {
        sender.succeed();
    }
    let all = fs::read_to_string(&to).unwrap();
    for who in 0..8 {
        let of_one = all
            .lines()
            .filter(|line| line.starts_with(&format!("{who} ")));
        assert!(
            of_one.eq((0..2000).map(|at| format!("{who} {at}"))),
            "{who}"
        );
    }
    assert_eq!(all.lines().count(), 8 * 2000);
}

/// Tests a killed receiver without a file: it forgets its sessions, but no record may be lost that it has not
/// acked.
#[test]
fn a_receiver_without_a_file_may_be_killed() {
    let (mut receiver, address) = Program::receive(&[]);
    let proxy = Proxy::new(address);
    let mut sender = Program::send(proxy.address, &["--wait", "100s"]);
    let mut stdin = sender.stdin.take().unwrap();
    stdin.write_all(b"one\n").unwrap();
    receiver.output(b"one\n");
    receiver.kill();
    stdin.write_all(b"two\n").unwrap();
    let (receiver, address) = Program::receive(&[]);
    proxy.lead_to(address);
    receiver.ends_with(b"two\n");
    drop(stdin);
    sender.succeed();
}

#[test]
fn ctrl_c_ships_what_was_read() {
    let (receiver, address) = Program::receive(&[]);
    let mut sender = Program::send(address, &[]);
    let mut stdin = sender.stdin.take().unwrap();
    stdin.write_all(b"one\n").unwrap();
    receiver.output(b"one\n");
    sender.interrupt();
    let (code, _, stderr) = sender.wait();
    assert_eq!(code, 130, "{stderr}");
    assert!(
        stderr.contains("sent and acknowledged 1 records"),
        "{stderr}"
    );
}
