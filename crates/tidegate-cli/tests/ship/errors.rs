//! Tests of the errors of `tidegate send` and `tidegate receive`: each error must be one line that names the
//! cause.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use super::program::{Program, until};
use super::proxy::{NOBODY, Proxy};

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn no_receiver_listens() {
    let line = Program::send(NOBODY, &["/dev/null"]).fail();
    assert!(
        line.contains("127.0.0.77:1") && line.contains("refused"),
        "{line}"
    );
    // The sender must retry for as long as `--wait` allows, and then fail.
    Program::send(NOBODY, &["--wait", "300ms", "/dev/null"]).fail();
    let line = Program::start(&["send", "no-such-host.invalid:7411", "/dev/null"]).fail();
    assert!(line.contains("no-such-host.invalid:7411"), "{line}");
}

#[test]
fn a_receiver_that_goes_away_for_good() {
    let (receiver, address) = Program::receive(&[]);
    let proxy = Proxy::new(address);
    let mut sender = Program::send(proxy.address, &["--wait", "300ms"]);
    let mut stdin = sender.stdin.take().unwrap();
    stdin.write_all(b"one\n").unwrap();
    receiver.output(b"one\n");
    proxy.lead_to(NOBODY);
    // A receiver that is asked to end acknowledges the records that it has, so only the second can be in
    // doubt.
    receiver.terminate();
    let (code, _, stderr) = receiver.wait();
    assert_eq!(code, 0, "{stderr}");
    stdin.write_all(b"two\n").unwrap();
    let line = sender.fail();
    // The sender may have noticed the loss of the connection before it sent the second record.
    let doubtful = line.ends_with("records 2 to 2 are in doubt");
    assert!(
        doubtful || line.ends_with("records 2 to 2 were not sent"),
        "{line}"
    );
}

/// Tests a receiver that ends after it has acknowledged everything: the sender waits for its return as long
/// as `--wait` says, and then names no records, because none are in doubt.
#[test]
fn a_receiver_that_goes_away_with_everything_acknowledged() {
    let mut sender = acknowledged("300ms");
    let _stdin = sender.stdin.take().unwrap();
    let line = sender.fail();
    let words = "the receiver has acknowledged every record that was sent";
    assert!(line.ends_with(words), "{line}");
}

/// Tests that such a sender ends at once when it is stopped, because a return of the receiver would change
/// nothing.
#[test]
fn a_sender_that_is_stopped_after_its_receiver_has_gone() {
    let mut sender = acknowledged("10h");
    let _stdin = sender.stdin.take().unwrap();
    sender.interrupt();
    let (code, _, stderr) = sender.wait();
    assert_eq!(code, 130, "{stderr}");
    assert!(
        stderr.contains("sent and acknowledged 1 records"),
        "{stderr}"
    );
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// Starts a sender of one record. Its receiver acknowledges the record, ends, and does not come back.
fn acknowledged(wait: &str) -> Program {
    let (receiver, address) = Program::receive(&[]);
    let proxy = Proxy::new(address);
    let mut sender = Program::send(proxy.address, &["--wait", wait]);
    let stdin = sender.stdin.as_mut().unwrap();
    stdin.write_all(b"one\n").unwrap();
    receiver.output(b"one\n");
    proxy.lead_to(NOBODY);
    // A receiver that is asked to end acknowledges the records that it has.
    receiver.terminate();
    let (code, _, stderr) = receiver.wait();
    assert_eq!(code, 0, "{stderr}");
    sender
}

/// Tests a receiver that acknowledges nothing more: Ctrl-C must still end the sender, after `--wait` or at
/// the second time.
#[test]
fn ctrl_c_does_not_wait_for_ever_for_a_receiver() {
    for wait in ["200ms", "10h"] {
        let (receiver, address) = Program::receive(&[]);
        let mut sender = Program::send(address, &["--wait", wait]);
        let mut stdin = sender.stdin.take().unwrap();
        stdin.write_all(b"one\n").unwrap();
        receiver.output(b"one\n");
        receiver.freeze();
        stdin.write_all(b"two\n").unwrap();
        until("the sender has read the line", || {
            rustix::io::ioctl_fionread(&stdin).unwrap() == 0
        });
        sender.interrupt();
        while wait == "10h" && !sender.has_ended() {
            sender.interrupt();
            std::thread::yield_now();
        }
        let (code, _, stderr) = sender.wait();
        assert_eq!(code, 130, "{stderr}");
        if wait == "200ms" {
            let words = "and nothing for 200ms after the request to stop: interrupted";
            assert!(stderr.ends_with(words), "{stderr}");
        }
    }
}

#[test]
fn a_port_in_use() {
    let (_receiver, address) = Program::receive(&[]);
    let line = Program::start(&["receive", "--listen", &address.to_string()]).fail();
    assert!(
        line.contains(&address.to_string()) && line.contains("in use"),
        "{line}"
    );
}

#[test]
fn a_file_that_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let append = |path: &Path| {
        let line = Program::start(&["receive", "--listen", "127.0.0.1:0", "--append", text(path)]);
        line.fail()
    };
    let missing = directory.path().join("missing/to");
    let line = append(&missing);
    assert!(
        line.contains(text(&missing)) && line.contains("No such file"),
        "{line}"
    );
    let line = append(directory.path());
    assert!(line.contains("directory"), "{line}");
    let line = append(Path::new("/dev/null"));
    assert!(line.contains("not a regular file"), "{line}");
}

#[test]
fn a_file_that_was_changed() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::write(&from, "one\ntwo\nthree\n").unwrap();
    let (mut receiver, address) = Program::append(&to);
    let second = Program::start(&["receive", "--listen", "127.0.0.1:0", "--append", text(&to)]);
    let line = second.fail();
    assert!(line.contains("another receiver"), "{line}");
    Program::send(address, &["--session", "log", text(&from)]).succeed();
    receiver.kill();
    let again = |text: &Path| {
        let text = text.to_str().unwrap();
        Program::start(&["receive", "--listen", "127.0.0.1:0", "--append", text]).fail()
    };
    for (changed, said) in [
        ("one\ntwo\n", "another program cut it"),
        ("one\ntwo\nTHREE\n", "changed the file"),
    ] {
        fs::write(&to, changed).unwrap();
        let line = again(&to);
        assert!(line.contains(said), "{line}");
    }
    fs::write(&to, "one\ntwo\nthree\n").unwrap();
    // The receiver must also find a change of its file while it appends.
    let (receiver, address) = Program::append(&to);
    fs::write(&to, "other\n").unwrap();
    fs::write(&from, "one\ntwo\nthree\nfour\n").unwrap();
    let mut sender = Program::send(
        address,
        &["--session", "log", "--wait", "100s", text(&from)],
    );
    let line = receiver.fail();
    assert!(line.contains("another program uses it"), "{line}");
    sender.kill();
    assert_eq!(fs::read_to_string(&to).unwrap(), "other\n");
}

#[test]
fn an_input_shorter_than_what_arrived() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let (_receiver, address) = Program::append(&to);
    let send = |input: &str| {
        fs::write(&from, input).unwrap();
        Program::send(address, &["--session", "log", text(&from)])
    };
    send("one\ntwo\nthree\n").succeed();
    let line = send("one\ntwo\n").fail();
    assert!(
        line.contains("has 2 records, but the receiver has 3 of session log"),
        "{line}"
    );
}

#[test]
fn the_newer_sender_of_a_session_wins() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let (_receiver, address) = Program::append(&to);
    let mut first = Program::send(address, &["--session", "log"]);
    let mut stdin = first.stdin.take().unwrap();
    stdin.write_all(b"one\n").unwrap();
    until("acked", || {
        fs::read(&to).is_ok_and(|bytes| bytes == b"one\n")
    });
    let mut second = Program::send(address, &["--session", "log"]);
    let line = first.fail();
    assert!(line.contains("in use by another sender"), "{line}");
    second.feed(b"two\n");
    second.succeed();
    assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\n");
}

#[test]
fn input_that_cannot_be_shipped() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let (_receiver, address) = Program::append(&to);
    let send = |args: &[&str]| Program::send(address, &[args, &[text(&from)]].concat());
    fs::write(&from, "short\nlonger than that\n").unwrap();
    let line = send(&["--max-record", "8"]).fail();
    assert!(
        line.contains("record 2 at byte 6 is larger than 8 bytes"),
        "{line}"
    );
    // The records before the too large record must arrive.
    assert_eq!(fs::read_to_string(&to).unwrap(), "short\n");
    fs::write(&from, b"\x05\0\0\0abc").unwrap();
    let line = send(&["--format", "records"]).fail();
    assert!(line.contains("record 1 at byte 0 is cut off"), "{line}");
    fs::remove_file(&from).unwrap();
    let line = send(&[]).fail();
    assert!(line.contains("from: No such file"), "{line}");
}

#[test]
fn a_record_larger_than_the_receiver_takes() {
    let (_receiver, address) = Program::receive(&["--max-record", "100"]);
    let line = Program::send(address, &["/dev/null"]).fail();
    assert!(line.contains("at most 101"), "{line}");
}

#[test]
fn a_spool_that_does_not_fit() {
    let directory = tempfile::tempdir().unwrap();
    let (to, spool) = (directory.path().join("to"), directory.path().join("spool"));
    let (_receiver, address) = Program::append(&to);
    let start = |session| Program::send(address, &["--session", session, "--spool", text(&spool)]);
    let first = start("log");
    first.line("standard input");
    let line = start("log").fail();
    assert!(line.contains("another sender uses this spool"), "{line}");
    first.succeed();
    let line = start("other").fail();
    assert!(line.contains("another session"), "{line}");
    let line = Program::send(address, &["--spool", text(&spool), text(&to)]);
    let (code, _, stderr) = line.wait();
    assert!(code == 2 && stderr.contains("--session"), "{code} {stderr}");
}

#[test]
fn a_directory_in_the_place_of_a_spool_file() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["catalog", "lock", "session", "00000000000000000000.seg"] {
        let spool = directory.path().join(name);
        fs::create_dir_all(spool.join(name)).unwrap();
        let line = Program::send(NOBODY, &["--spool", text(&spool)]).fail();
        assert!(line.contains("found a directory: remove it"), "{line}");
        assert!(line.contains(text(&spool.join(name))), "{line}");
    }
}

#[test]
fn another_program_answers() {
    // The proxy has no receiver to connect to, so it closes each connection at once.
    let proxy = Proxy::new(NOBODY);
    Program::send(proxy.address, &["/dev/null"]).fail();
}

#[test]
fn help_that_cannot_be_written_is_a_failure() {
    for args in [&["--help"][..], &["--version"], &["send", "--help"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.args(args).stdout(full).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.contains("No space left"), "{args:?}: {said}");
    }
}
