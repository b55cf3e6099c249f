//! Tests in which another program or a bad disk changes files between two runs of the programs: no record may
//! be lost without an error.

use std::fs;
use std::path::{Path, PathBuf};

use super::program::{Program, spooled as is_spooled, until};
use super::proxy::NOBODY;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates a spool with the records `lines`. The test kills the sender before it reaches a receiver.
fn spooled(directory: &Path, lines: &str) -> (PathBuf, PathBuf) {
    let spool = directory.join("spool");
    let args = ["--session", "s", "--spool", text(&spool), "--wait", "100s"];
    let mut sender = Program::send(NOBODY, &args);
    sender.line("standard input goes on");
    sender.feed(lines.as_bytes());
    let segment = spool.join("00000000000000000000.seg");
    let last = lines.lines().last().unwrap();
    until("spooled", || is_spooled(&spool, last));
    sender.kill();
    (spool, segment)
}

#[test]
fn a_damaged_spool_is_refused_until_it_is_brought_back() {
    let directory = tempfile::tempdir().unwrap();
    let lines: String = (1..=200).map(|at| format!("line {at}\n")).collect();
    let (spool, segment) = spooled(directory.path(), &lines);
    let good = fs::read(&segment).unwrap();
    let mut flipped = good.clone();
    let place = good.windows(8).position(|bytes| bytes == b"line 100");
    flipped[place.unwrap()] ^= 1;
    let to = directory.path().join("to");
    let (_receiver, address) = Program::append(&to);
    let send = || Program::send(address, &["--session", "s", "--spool", text(&spool)]);
    for (changed, said) in [
        (Some(&flipped[..]), "is damaged"),
        (Some(b""), "first page is damaged"),
        (Some(&good[..good.len() - 1]), "is shorter"),
        (None, "is missing"),
    ] {
        match changed {
            Some(changed) => fs::write(&segment, changed).unwrap(),
            None => fs::remove_file(&segment).unwrap(),
        }
        let line = send().fail();
        assert!(
            line.contains(text(&segment)) && line.contains(said) && line.contains("would be lost"),
            "{line}"
        );
    }
    fs::write(&segment, &good).unwrap();
    let mut sender = send();
    let line = sender.line("standard input goes on");
    assert!(line.ends_with("with record 201"), "{line}");
    sender.feed(b"more\n");
    sender.succeed();
    assert_eq!(fs::read_to_string(&to).unwrap(), format!("{lines}more\n"));
}

/// Tests a sender that reaches the receiver only after it has spooled new input: the receiver has other
/// records under the same numbers, so the sender must refuse.
#[test]
fn an_older_copy_of_a_spool_is_refused_however_late_the_receiver_comes() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, to) = (directory.path().join("spool"), directory.path().join("to"));
    let (mut receiver, address) = Program::append(&to);
    let args = ["--session", "s", "--spool", text(&spool), "--wait", "100s"];
    let lines = |what: &str| -> String { (0..20).map(|at| format!("{what} {at}\n")).collect() };
    let copy = directory.path().join("copy");
    for what in ["first", "second"] {
        let mut sender = Program::send(address, &args);
        sender.feed(lines(what).as_bytes());
        sender.succeed();
        if what == "first" {
            fs::create_dir(&copy).unwrap();
            for file in fs::read_dir(&spool).unwrap().map(Result::unwrap) {
                fs::copy(file.path(), copy.join(file.file_name())).unwrap();
            }
        }
    }
    receiver.kill();
    fs::remove_dir_all(&spool).unwrap();
    fs::rename(&copy, &spool).unwrap();
    let mut sender = Program::send(address, &args);
    sender.line("standard input goes on");
    sender.feed(format!("{}{}", lines("third"), lines("fourth")).as_bytes());
    until("spooled", || is_spooled(&spool, "fourth 19"));
    let listen = address.to_string();
    let receiver = Program::start(&["receive", "--listen", &listen, "--append", text(&to)]);
    receiver.line("listening on ");
    let line = sender.fail();
    assert!(
        line.contains("40 records of this session, the spool only 20"),
        "{line}"
    );
    let whole = format!("{}{}", lines("first"), lines("second"));
    assert_eq!(fs::read_to_string(&to).unwrap(), whole);
}

/// Tests that the sender refuses a spool in which the test has overwritten a file.
#[test]
fn a_session_of_other_bytes_is_no_new_spool() {
    let directory = tempfile::tempdir().unwrap();
    let (spool, segment) = spooled(directory.path(), "one\ntwo\n");
    let kept = fs::read(&segment).unwrap();
    for name in ["session", "catalog"] {
        let file = spool.join(name);
        let good = fs::read(&file).unwrap();
        for bytes in [kept.clone(), b"no format".repeat(500), Vec::new()] {
            fs::write(&file, &bytes).unwrap();
            let line = Program::send(NOBODY, &["--session", "s", "--spool", text(&spool)]).fail();
            assert!(line.contains(text(&file)), "{line}");
            assert!(fs::read(&file).unwrap() == bytes, "it was changed");
        }
        fs::write(&file, good).unwrap();
    }
    let sender = Program::send(NOBODY, &["--session", "s", "--spool", text(&spool)]);
    sender.line("goes on with record 3");
}

#[test]
fn a_line_appended_after_a_clean_end_is_not_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    fs::write(&from, "one\ntwo\n").unwrap();
    for terminate in [false, true] {
        let _ = fs::remove_file(&to);
        let _ = fs::remove_file(directory.path().join("to.tidegate"));
        let (receiver, address) = Program::append(&to);
        Program::send(address, &["--session", "s", text(&from)]).succeed();
        match terminate {
            true => receiver.terminate(),
            false => receiver.interrupt(),
        }
        let (code, _, stderr) = receiver.wait();
        assert_eq!(code, if terminate { 0 } else { 130 }, "{stderr}");
        assert!(stderr.contains("received 2 records"), "{stderr}");
        fs::write(&to, "one\ntwo\nprecious\n").unwrap();
        for _ in 0..2 {
            let args = ["receive", "--listen", "127.0.0.1:0", "--append", text(&to)];
            let line = Program::start(&args).fail();
            assert!(line.contains("another program appended to it"), "{line}");
            assert!(
                line.contains(&format!("truncate -s 8 {}", text(&to))),
                "{line}"
            );
            assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\nprecious\n");
        }
        fs::write(&to, "one\ntwo\n").unwrap();
        let (_receiver, address) = Program::append(&to);
        fs::write(&from, "one\ntwo\nthree\n").unwrap();
        Program::send(address, &["--session", "s", text(&from)]).succeed();
        assert_eq!(fs::read_to_string(&to).unwrap(), "one\ntwo\nthree\n");
        fs::write(&from, "one\ntwo\n").unwrap();
    }
}

/// Tests that the receiver keeps bytes behind its records: after a kill, it cannot tell its own bytes from
/// those of another program.
#[test]
fn bytes_behind_a_killed_receiver_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let (mut receiver, address) = Program::append(&to);
    let mut sender = Program::send(address, &["--session", "s"]);
    sender.feed(b"one\n");
    sender.succeed();
    receiver.kill();
    fs::write(&to, "one\nprecious\n").unwrap();
    let (receiver, _) = Program::append(&to);
    let kept = directory.path().join("to.tidegate-cut-4");
    let line = receiver.line("listening");
    assert!(line.contains(text(&kept)), "{line}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "precious\n");
    assert_eq!(fs::read_to_string(&to).unwrap(), "one\n");
}

#[test]
fn one_bad_bit_of_the_state_costs_no_acknowledged_output() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("from"), directory.path().join("to"));
    let state = directory.path().join("to.tidegate");
    let mut lines = String::new();
    for at in 0..4 {
        let (mut receiver, address) = Program::append(&to);
        for more in 0..3 {
            lines.push_str(&format!("line {at} {more}\n"));
            fs::write(&from, &lines).unwrap();
            Program::send(address, &["--session", "s", text(&from)]).succeed();
        }
        receiver.kill();
        // The test damages the first byte of one of the two slots of the state file, or a byte of the slot's
        // generation.
        let mut bytes = fs::read(&state).unwrap();
        let place = [0, bytes.len() / 2, 16, bytes.len() / 2 + 16][at];
        bytes[place] ^= 1;
        fs::write(&state, &bytes).unwrap();
        let (receiver, _) = Program::append(&to);
        let line = receiver.line("listening");
        assert!(!line.contains("moved"), "{line}");
        assert_eq!(fs::read_to_string(&to).unwrap(), lines, "byte {place}");
    }
}
