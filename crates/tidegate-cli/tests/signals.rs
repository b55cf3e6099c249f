//! Tests of Ctrl-C and SIGTERM: the first signal must end each client command, with the exit code that a
//! shell expects.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Stdio};

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};

/// An address at which no program listens.
const NOBODY: &str = "127.0.0.77:1";
const SIGNALS: [(Signal, i32); 2] = [(Signal::INT, 130), (Signal::TERM, 143)];

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Waits until the program has its handler for SIGTERM, which it installs as its last one.
fn await_handlers(child: &Child) {
    let path = format!("/proc/{}/status", child.id());
    loop {
        let status = std::fs::read_to_string(&path).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = u64::from_str_radix(caught.unwrap().trim(), 16).unwrap();
        if caught & (1 << (15 - 1)) != 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// Waits for the program's end. Returns the exit code and standard error.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn a_command_that_waits_for_its_server_ends() {
    for (signal, code) in SIGNALS {
        for args in [
            &["pub", "a", "b", "-s", NOBODY][..],
            &["sub", "a", "-s", NOBODY],
            &["consume", "S", "-s", NOBODY],
            &["send", NOBODY, "/dev/null"],
        ] {
            let child = start(&[args, &["--wait", "1h"]].concat());
            await_handlers(&child);
            send(&child, signal);
            let (was, said) = end(child);
            assert_eq!(was, Some(code), "{args:?}: {said}");
            assert!(said.contains("interrupted"), "{args:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        }
    }
}

#[test]
fn a_command_with_a_silent_server_ends() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    for (signal, code) in SIGNALS {
        for args in [
            &["pub", "a", "b", "-s", &at][..],
            &["sub", "a", "-s", &at],
            &["consume", "S", "-s", &at],
            &["send", &at, "/dev/null"],
            &["top", &at, "--once"],
        ] {
            let child = start(args);
            let _connection = silent.accept().unwrap();
            send(&child, signal);
            let (was, said) = end(child);
            assert_eq!(was, Some(code), "{args:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        }
    }
}

/// Tests a command that reads a named pipe without a writer: signals must still end the command.
#[test]
fn a_command_that_waits_for_its_input_ends() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    let pipe = pipe.to_str().unwrap();
    assert!(Command::new("mkfifo").arg(pipe).status().unwrap().success());
    for (signal, code) in SIGNALS {
        let child = start(&["count", pipe]);
        await_handlers(&child);
        send(&child, signal);
        let (was, said) = end(child);
        assert_eq!(was, Some(code), "{said}");
    }
}

/// Returns whether the parent of the tests made them ignore this signal, as shells do for jobs in the
/// background. The programs that the tests start then ignore the signal, too, unless they handle it.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.unwrap().trim(), 16).unwrap();
    ignored & (1 << (signal.as_raw() - 1)) != 0
}

/// Tests that the system ends the simulator at the first signal, because the simulator has nothing to finish.
#[test]
fn the_simulator_ends_at_once() {
    for (signal, _) in SIGNALS {
        if is_ignored(signal) {
            continue;
        }
        let mut child = start(&["sim", "all"]);
        let out = child.stdout.take().unwrap();
        // The pipe holds less than all tables, so the simulator cannot end by itself.
        fcntl_setpipe_size(&out, 4096).unwrap();
        let mut out = BufReader::with_capacity(1, out);
        out.read_line(&mut String::new()).unwrap();
        send(&child, signal);
        let mut rest = Vec::new();
        out.read_to_end(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(signal.as_raw()));
    }
}
