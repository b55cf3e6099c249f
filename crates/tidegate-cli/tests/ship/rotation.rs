//! Tests of log rotation: `send --follow` goes on in the successors of its file, and `receive --append` in
//! the successors of its own. Kills of either program, and rotations while a program is down, lose and repeat
//! nothing.

use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::program::{Program, until};

/// A log that a program writes and a rotation renames or copies, with all lines so far.
struct Log {
    path: PathBuf,
    file: File,
    lines: u64,
    whole: String,
    /// The number of the last rotation, which is part of the name of the rotated file.
    rotated: u32,
}

impl Log {
    fn new(path: PathBuf) -> Self {
        Self {
            file: Self::create(&path),
            path,
            lines: 0,
            whole: String::new(),
            rotated: 0,
        }
    }

    fn create(path: &Path) -> File {
        File::options()
            .append(true)
            .create(true)
            .open(path)
            .unwrap()
    }

    fn write(&mut self, lines: u64) {
        let mut text = String::new();
        for _ in 0..lines {
            self.lines += 1;
            text.push_str(&format!("line {} of the log\n", self.lines));
        }
        self.file.write_all(text.as_bytes()).unwrap();
        self.whole.push_str(&text);
    }

    /// Renames the file, and writes one more line to it before it creates its successor, as a program does
    /// that has not opened the new file yet.
    fn rename(&mut self) {
        self.rotated += 1;
        let to = format!("{}-{:08}", self.path.display(), self.rotated);
        fs::rename(&self.path, to).unwrap();
        self.write(1);
        self.file = Self::create(&self.path);
    }

    fn copy_and_cut(&mut self) {
        self.rotated += 1;
        let to = format!("{}-{:08}", self.path.display(), self.rotated);
        fs::copy(&self.path, to).unwrap();
        self.file.set_len(0).unwrap();
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

fn follow(address: SocketAddr, file: &str) -> Program {
    let args = ["--follow", "--session", "app", "--wait", "60s", file];
    Program::send(address, &args)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_followed_file_may_be_missing_and_rotated_in_both_ways() {
    let directory = tempfile::tempdir().unwrap();
    let (from, to) = (directory.path().join("a.log"), directory.path().join("to"));
    let (_receiver, address) = Program::append(&to);
    let sender = follow(address, from.to_str().unwrap());
    sender.line("waiting for");
    let mut log = Log::new(from);
    let arrived = |log: &Log| until("all lines arrive", || read(&to) == log.whole);
    log.write(3);
    arrived(&log);
    log.rename();
    log.write(2);
    arrived(&log);
    log.write(5);
    log.copy_and_cut();
    log.write(1);
    arrived(&log);
    // A line without its line feed waits for it.
    log.file.write_all(b"half").unwrap();
    log.write(1);
    log.whole
        .insert_str(log.whole.len() - "line 13 of the log\n".len(), "half");
    arrived(&log);
    sender.interrupt();
    let (code, _, stderr) = sender.wait();
    assert_eq!(code, 130, "{stderr}");
    assert!(
        stderr.contains("sent and acknowledged 13 records"),
        "{stderr}"
    );
}

#[test]
fn a_killed_follower_goes_on_where_it_was_through_rotations_while_it_was_down() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let mut log = Log::new(directory.path().join("a.log"));
    let (_receiver, address) = Program::append(&to);
    for round in 0..8 {
        let mut sender = follow(address, log.text());
        if round == 0 {
            // A sender that has shipped nothing yet begins with the file that it finds.
            log.write(1);
            until("the first line arrives", || read(&to) == log.whole);
        }
        log.write(200);
        // The kill comes at another moment in each round: before, while and after the lines arrive.
        let least = log.whole.len() * round / 8;
        until("some lines arrive", || read(&to).len() >= least);
        sender.kill();
        log.write(50);
        match round % 4 {
            0 => log.rename(),
            1 => log.copy_and_cut(),
            2 => {
                log.rename();
                log.write(10);
                log.rename();
            }
            _ => {}
        }
        log.write(5);
    }
    let sender = follow(address, log.text());
    until("all lines arrive", || read(&to).len() >= log.whole.len());
    sender.terminate();
    assert_eq!(sender.wait().0, 143);
    assert!(read(&to) == log.whole);
}

#[test]
fn a_follower_that_cannot_know_its_place_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let mut log = Log::new(directory.path().join("a.log"));
    let (_receiver, address) = Program::append(&to);
    log.write(20);
    let sender = follow(address, log.text());
    until("all lines arrive", || read(&to) == log.whole);
    sender.interrupt();
    sender.wait();
    let state = directory.path().join("a.log.tidegate-sent-app");
    let stored = fs::read(&state).unwrap();
    fs::remove_file(&state).unwrap();
    let why = follow(address, log.text()).fail();
    assert!(why.contains("does not exist, so the place"), "{why}");
    fs::write(&state, b"{").unwrap();
    assert!(follow(address, log.text()).fail().contains("damaged"));
    fs::write(&state, stored).unwrap();
    // The file is gone, and another one has its name.
    fs::remove_file(&log.path).unwrap();
    fs::write(&log.path, "other\n").unwrap();
    let why = follow(address, log.text()).fail();
    assert!(why.contains("is gone, compressed or changed"), "{why}");
    assert!(read(&to) == log.whole);
    for (args, text) in [
        (&["--follow"][..], "needs the name of a file"),
        (
            &["--follow", "--spool", "s", "a"][..],
            "cannot be used with",
        ),
        (&["--state", "s", "a"][..], "--follow"),
    ] {
        let (code, _, stderr) = Program::send(address, args).wait();
        assert!(code == 2 && stderr.contains(text), "{stderr}");
    }
    let why = follow(address, directory.path().to_str().unwrap()).fail();
    assert!(why.contains("not a regular file"), "{why}");
}

/// Returns the lines of the receiver's file and of its rotated files, in the order of their numbers.
fn all(to: &Path, rotated: u32) -> String {
    let name = |n| PathBuf::from(format!("{}.{n}", to.display()));
    let old: String = (1..=rotated).map(|n| read(&name(n))).collect();
    old + &read(to)
}

#[test]
fn a_receiver_goes_on_in_a_new_file_after_each_kind_of_rotation() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let mut log = Log::new(directory.path().join("a.log"));
    let (mut receiver, address) = Program::append(&to);
    let listen = address.to_string();
    let again = || {
        let program = Program::start(&[
            "receive",
            "--listen",
            &listen,
            "--append",
            to.to_str().unwrap(),
        ]);
        program.line("listening on ");
        program
    };
    let sender = follow(address, log.text());
    for round in 1..=6 {
        // The receiver acknowledges this line before it writes a line of the next batch.
        log.write(1);
        until("a line arrives", || all(&to, round - 1) == log.whole);
        log.write(100);
        until("some lines arrive", || {
            all(&to, round - 1).len() > log.whole.len() / 2
        });
        let old = PathBuf::from(format!("{}.{round}", to.display()));
        match round {
            // logrotate with `create`, which tells the receiver by SIGHUP or not at all.
            1 | 2 => {
                fs::rename(&to, old).unwrap();
                File::create(&to).unwrap();
                if round == 1 {
                    receiver.hang_up();
                }
            }
            // logrotate with `nocreate`.
            3 => {
                fs::rename(&to, old).unwrap();
                receiver.hang_up();
                receiver.line("was rotated");
            }
            // A rotation while no receiver runs, after a kill and after an orderly end.
            4 => {
                receiver.kill();
                fs::rename(&to, old).unwrap();
                receiver = again();
            }
            5 => {
                receiver.terminate();
                assert_eq!(receiver.wait().0, 0);
                fs::copy(&to, old).unwrap();
                File::create(&to).unwrap();
                receiver = again();
            }
            // A name that stays without a file for some seconds gets one.
            _ => fs::rename(&to, old).unwrap(),
        }
        log.write(10);
        until("a new file", || {
            let arrived = all(&to, round).len() >= log.whole.len();
            // Only a further record makes the receiver look for the name again.
            if arrived && !to.exists() {
                log.write(1);
            }
            arrived && to.exists()
        });
        assert!(all(&to, round) == log.whole, "round {round}");
    }
    sender.interrupt();
    assert_eq!(sender.wait().0, 130);
    receiver.interrupt();
    assert_eq!(receiver.wait().0, 130);
}

#[test]
fn a_receiver_without_its_acknowledged_bytes_is_refused_as_before() {
    let directory = tempfile::tempdir().unwrap();
    let to = directory.path().join("to");
    let (receiver, address) = Program::append(&to);
    let mut sender = Program::send(address, &["--session", "s"]);
    sender.feed(b"one\ntwo\n");
    sender.succeed();
    // A copy and a cut under a running receiver may lose records between the two.
    fs::copy(&to, directory.path().join("to.1")).unwrap();
    File::create(&to).unwrap();
    let mut sender = Program::send(address, &["--session", "s", "--wait", "100ms"]);
    sender.feed(b"three\n");
    let why = receiver.fail();
    assert!(why.contains("another program uses it"), "{why}");
    drop(sender);
    fs::write(directory.path().join("to.1"), "one\n").unwrap();
    let args = ["receive", "--listen", "127.0.0.1:0", "--append"];
    let why = Program::start(&[&args[..], &[to.to_str().unwrap()]].concat()).fail();
    assert!(why.contains("were acknowledged"), "{why}");
}
