//! Golden fixtures of `tidegate send` and `tidegate receive`: a spool, and a receiver's file with its state,
//! as killed programs left them.

use std::fs;
use std::path::Path;

use super::program::{Program, today, until};
use super::{VERSIONS, fixtures, hex, image};

const SPOOL: &str = "spool";
const FILE: &str = "records";

fn receive(program: &Path, file: &Path) -> (Program, String) {
    let file = file.to_str().unwrap();
    let receiver = Program::start(
        program,
        &["receive", "--listen", "127.0.0.1:0", "--append", file],
    );
    let line = receiver.line("listening on ");
    let address = line.split("listening on ").nth(1).unwrap();
    let address = address.split([',', ' ']).next().unwrap().to_owned();
    (receiver, address)
}

fn send(program: &Path, address: &str, spool: &Path) -> Program {
    let spool = spool.to_str().unwrap();
    let args = [
        "send",
        address,
        "--session",
        "tides",
        "--wait",
        "1h",
        "--spool",
        spool,
    ];
    Program::start(program, &args)
}

/// Returns whether a file of the spool contains these bytes.
fn spooled(spool: &Path, bytes: &[u8]) -> bool {
    let files = fs::read_dir(spool)
        .into_iter()
        .flatten()
        .map(Result::unwrap);
    files
        .map(|file| fs::read(file.path()).unwrap())
        .any(|file| file.windows(bytes.len()).any(|window| window == bytes))
}

pub(crate) fn record(program: &Path, to: &Path) {
    let directory = tempfile::tempdir().unwrap();
    let all = directory.path().join("all");
    fs::create_dir(&all).unwrap();
    let (spool, file) = (all.join(SPOOL), all.join(FILE));
    fs::write(&file, "before\n").unwrap();
    let (receiver, address) = receive(program, &file);
    let mut sender = send(program, &address, &spool);
    sender.feed("one\ntwo\nthree\n");
    // The receiver has written its state once the newest slot acknowledges 21 bytes of the file.
    let state = all.join(format!("{FILE}.tidegate"));
    until("three records", || {
        let bytes = fs::read(&state).unwrap();
        let counted = |slot: &[u8]| hex::number(&slot[24..32]) == 21;
        bytes.chunks(bytes.len() / 2).any(counted).then_some(())
    });
    receiver.kill();
    sender.feed("four\nfive\n");
    until("two more in the spool", || {
        spooled(&spool, b"five").then_some(())
    });
    sender.kill();
    let how = "Left by record() in tests/golden/ship.rs: three records are in the file, five in the spool.";
    image::keep(&all, to, how);
}

/// Replaces bytes of a file with other bytes at each offset at which they occur.
fn change(file: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> = (0..bytes.len() - from.len())
        .filter(|at| bytes[*at..].starts_with(from))
        .collect();
    assert!(!places.is_empty(), "{}", file.display());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(file, bytes).unwrap();
}

/// Returns the last line of standard error of a program that refuses to start.
fn refusal(args: &[&str]) -> String {
    let mut program = Program::start(today(), args);
    let status = program.finish();
    assert_eq!(status.code(), Some(1), "{}", program.log());
    program.line("tidegate: ")
}

#[test]
fn files_of_a_later_version_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    image::restore(&fixtures("v1").join("ship"), directory.path());
    let (spool, file) = (directory.path().join(SPOOL), directory.path().join(FILE));
    let state = directory.path().join(format!("{FILE}.tidegate"));
    change(&state, b"TGAPPEND\x01", b"TGAPPEND\x03");
    let (file, listen) = (file.to_str().unwrap(), "127.0.0.1:0");
    let says = refusal(&["receive", "--listen", listen, "--append", file]);
    let later = "written by a later version of tidegate (format 3";
    assert!(
        says.contains("records.tidegate") && says.contains(later),
        "{says}"
    );
    let session = spool.join("session");
    change(&session, b"TGSPOOL1", b"TGSPOOL4");
    let kept = fs::read(&session).unwrap();
    let spool = spool.to_str().unwrap();
    let says = refusal(&[
        "send",
        "127.0.0.1:9",
        "--session",
        "tides",
        "--spool",
        spool,
    ]);
    let later = "written by a later version of tidegate (format 4";
    assert!(says.contains("session") && says.contains(later), "{says}");
    // The program must not take a spool without its segments for a new spool.
    for segment in fs::read_dir(spool).unwrap().map(|s| s.unwrap().path()) {
        if segment.extension().is_some() {
            fs::remove_file(segment).unwrap();
        }
    }
    let says = refusal(&[
        "send",
        "127.0.0.1:9",
        "--session",
        "tides",
        "--spool",
        spool,
    ]);
    assert!(says.contains(later), "{says}");
    assert!(fs::read(&session).unwrap() == kept, "it was changed");
}

#[test]
fn a_receiver_goes_on_with_the_files_of_each_version() {
    for version in VERSIONS {
        let directory = tempfile::tempdir().unwrap();
        image::restore(&fixtures(version).join("ship"), directory.path());
        let file = directory.path().join(FILE);
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "before\none\ntwo\nthree\n"
        );
        let (receiver, address) = receive(today(), &file);
        assert!(receiver.line("listening").contains("1 sessions"));
        let mut sender = send(today(), &address, &directory.path().join("new"));
        sender.feed("four\n");
        let status = sender.finish();
        // The receiver has three records of this session, and the new spool has none of them, so the sender
        // must refuse.
        assert_eq!(status.code(), Some(1), "{version}: {}", sender.log());
        sender.line("the receiver has 3 records of this session");
    }
}

/// Tests that this version leaves a spool of version 0.1 unchanged: only version 0.1 can empty it.
#[test]
fn a_spool_of_an_earlier_version_is_refused_unchanged() {
    for version in VERSIONS {
        let directory = tempfile::tempdir().unwrap();
        image::restore(&fixtures(version).join("ship"), directory.path());
        let spool = directory.path().join(SPOOL);
        let files = || -> Vec<_> {
            let files = fs::read_dir(&spool)
                .unwrap()
                .map(|file| file.unwrap().path());
            let mut files: Vec<_> = files.filter(|path| !path.ends_with("lock")).collect();
            files.sort();
            files
                .iter()
                .map(|path| (path.clone(), fs::read(path).unwrap()))
                .collect()
        };
        let before = files();
        let says = refusal(&[
            "send",
            "127.0.0.1:9",
            "--session",
            "tides",
            "--spool",
            spool.to_str().unwrap(),
        ]);
        assert!(
            says.contains("a spool of tidegate 0.1") && says.contains("`tidegate send`"),
            "{version}: {says}"
        );
        assert!(files() == before, "{version}: the spool was changed");
    }
}
