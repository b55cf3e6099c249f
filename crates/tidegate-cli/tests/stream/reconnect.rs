//! Tests of the program's client commands while their server crashes and starts again on the same port.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, Stdio};

use super::server::{Server, tidegate};

/// Starts a command with pipes as its standard input and output.
fn start(server: &Server, args: &[&str]) -> Child {
    let mut command = tidegate(&server.url, args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits for the end of a command that must succeed, after the test has closed its input. Returns its
/// standard output.
fn good(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).unwrap()
}

fn put(input: &mut ChildStdin, lines: std::ops::Range<u32>) {
    for line in lines {
        writeln!(input, "line {line}").unwrap();
    }
    input.flush().unwrap();
}

fn text(lines: std::ops::Range<u32>) -> String {
    lines.map(|line| format!("line {line}\n")).collect()
}

/// Tests a slow pipe into a stream across crashes: the stream must store each line before the next line
/// comes, and no line twice. Readers of the stream must continue where they were.
#[test]
fn lines_of_a_slow_pipe_survive_crashes_in_order() {
    let mut server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let mut publisher = start(&server, &["pub", "s", "--lines", "-"]);
    let mut input = publisher.stdin.take().unwrap();
    let mut readers = [
        &["consume", "S", "--count", "3030"][..],
        &["consume", "S", "--count", "3030", "--durable", "d"][..],
    ]
    .map(|args| {
        let mut child = start(&server, args);
        let out = BufReader::new(child.stdout.take().unwrap());
        (child, out, String::new())
    });
    let mut next = 0;
    for round in 0..3 {
        // The lines first come one after the other, and then many at once, so that the crash loses some of
        // them on their way.
        for _ in 0..10 {
            put(&mut input, next..next + 1);
            next += 1;
            for (_, out, read) in &mut readers {
                while read.lines().count() < next as usize {
                    assert!(out.read_line(read).unwrap() > 0, "{round}: {read}");
                }
            }
        }
        put(&mut input, next..next + 1000);
        next += 1000;
        server = server.restart_there();
    }
    drop(input);
    let said = good(publisher);
    assert_eq!(said, "published 3030 to s, acked by S as 1 to 3030\n");
    let wanted = text(0..next);
    assert_eq!(server.good(&["consume", "S", "--until-end"]), wanted);
    for (child, mut out, mut read) in readers {
        out.read_to_string(&mut read).unwrap();
        good(child);
        // A durable consumer delivers messages that a crash lost on their way later, so the test sorts the
        // lines.
        let mut lines: Vec<&str> = read.lines().collect();
        lines.sort_by_key(|line| line[5..].parse::<u32>().unwrap());
        assert!(lines.iter().eq(&wanted.lines().collect::<Vec<_>>()));
    }
}

#[test]
fn a_subscriber_subscribes_again() {
    let server = Server::start();
    let mut child = start(&server, &["sub", "s"]);
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = || err.next().unwrap().unwrap();
    assert_eq!(said(), "subscribed to s");
    let server = server.restart_there();
    assert!(said().contains("connecting again"));
    assert!(said().contains("connected again"));
    assert!(said().contains("subscribed to s again"));
    server.good(&["pub", "s", "one"]);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Tests that `--wait` bounds the time of the attempts to connect, both at the start and after a loss.
#[test]
fn a_server_that_stays_away_fails_the_command() {
    let server = Server::start();
    let child = start(&server, &["sub", "s", "--wait", "300ms"]);
    let mut said = String::new();
    let mut child = child;
    let mut err = BufReader::new(child.stderr.take().unwrap());
    err.read_line(&mut said).unwrap();
    assert_eq!(said, "subscribed to s\n");
    let url = server.url.clone();
    drop(server);
    said.clear();
    err.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("cannot connect to 127.0.0.1:"), "{said}");
    let output = tidegate(&url, &["pub", "s", "x", "--wait", "300ms"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(1) && said.contains("cannot connect"),
        "{said}"
    );
}
