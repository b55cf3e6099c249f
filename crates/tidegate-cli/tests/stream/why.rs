//! Tests of `tidegate why` against a server: each answer has its exit code and its line, and so has each
//! mistake.

use std::process::{Command, Output};

use serde_json::Value;

use super::server::{Server, other};

pub(crate) fn tidegate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).output().unwrap()
}

fn why(server: &Server, stream: &str, seq: &str, flags: &[&str]) -> Output {
    let args = ["why", stream, seq, &server.monitor];
    tidegate(&[&args, flags].concat())
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8([&*output.stdout, &*output.stderr].concat()).unwrap()
}

/// Asserts the exit code and a part of the text on the error output, which has one line.
pub(crate) fn assert_refused(output: &Output, code: i32, part: &str) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(output.stdout.is_empty() && said.contains(part), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_message_is_explained_or_a_reason_is_given() {
    if other().is_some() {
        println!("a command of our own, so not asked of nats-server");
        return;
    }
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    server.good(&[
        "stream",
        "add",
        "M",
        "--subjects",
        "m",
        "--storage",
        "memory",
    ]);
    for text in ["one", "two", "three"] {
        server.good(&["pub", "s", text]);
    }
    server.good(&["pub", "m", "one"]);
    let output = why(&server, "S", "2", &[]);
    let text = said(&output);
    let by_variable = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.env("TIDEGATE_MONITOR", &server.monitor);
        command.args(args).output().unwrap()
    };
    // The server computes wall-clock times for each answer, and they may differ in their last digit.
    let first = |text: &str| text.lines().next().map(str::to_owned);
    let again = said(&by_variable(&["why", "S", "2"]));
    assert_eq!(first(&again), first(&text));
    let predicted = by_variable(&["headroom", "--p99", "5ms", "--over", "1ms"]);
    let answered = matches!(predicted.status.code(), Some(0 | 3 | 4));
    assert!(answered, "{}", said(&predicted));
    assert_eq!(output.status.code(), Some(0), "{text}");
    for part in [
        "message 2 of S",
        "after its entry closed",
        "caller",
        "  cut     ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let output = why(&server, "S", "3", &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |pointer: &str| answer.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert_eq!(
        (&answer["outcome"], &answer["leads"]),
        (&"found".into(), &true.into())
    );
    let (begin, end) = (number("/sync/begin"), number("/sync/end"));
    assert!(
        (begin..end).contains(&number("/entry/position")),
        "{answer}"
    );
    assert_eq!(number("/sync/bytes"), end - begin);
    assert!(number("/sync/took_ns") > 0 && answer["wait"]["held_ns"].is_number());
    server.good(&["stream", "purge", "S", "--keep", "2", "--force"]);
    for (stream, seq, code, part) in [
        ("S", "1", 8, "removed message 1"),
        ("S", "4", 9, "no message 4 yet: its last one is 3"),
        ("M", "1", 6, "in memory"),
        ("NONE", "1", 7, "no stream has this name"),
        ("a b&c", "1", 7, "no stream has this name"),
        ("S", "18446744073709551615", 9, "yet"),
    ] {
        assert_refused(&why(&server, stream, seq, &[]), code, part);
    }
    for seq in ["0", "x", "-1"] {
        assert_eq!(why(&server, "S", seq, &[]).status.code(), Some(2), "{seq}");
    }
    let server = server.restart();
    assert_refused(&why(&server, "S", "3", &[]), 4, "before the server's start");
}
