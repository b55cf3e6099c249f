//! Tests of `tidegate stream` and `tidegate consume`, and of `tidegate pub` to a subject that a stream
//! stores.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use serde_json::{Value, json};

use super::raw::Raw;
use super::server::{Server, tidegate};

#[test]
fn streams_are_made_shown_purged_and_removed() {
    let server = Server::start();
    assert_eq!(server.good(&["stream", "ls"]), "no streams\n");
    let said = server.good(&[
        "stream",
        "add",
        "ORDERS",
        "--subjects",
        "orders.*,returns",
        "--storage",
        "file",
        "--max-age",
        "7d",
        "--max-msgs",
        "1000",
        "--max-bytes",
        "10MB",
        "--max-msg-size",
        "64k",
        "--max-msgs-per-subject",
        "100",
        "--discard",
        "old",
        "--dupe-window",
        "30s",
        "--replicas",
        "1",
        "--description",
        "what was bought",
        "--allow-direct",
    ]);
    for part in [
        "name               ORDERS\n",
        "description        what was bought\n",
        "subjects           orders.* returns\n",
        "age at most        7d\n",
        "bytes at most      10.0 MiB\n",
        "duplicate window   30s\n",
        "allow_direct",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    server.good(&["pub", "orders.new", "one"]);
    server.good(&["pub", "orders.new", "two"]);
    server.good(&["pub", "returns", "three"]);
    let info: Value =
        serde_json::from_str(&server.good(&["stream", "info", "ORDERS", "--json"])).unwrap();
    assert_eq!(info["state"]["messages"], json!(3));
    assert_eq!(info["config"]["max_age"], json!(604_800_000_000_000_u64));
    let table = server.good(&["stream", "ls"]);
    assert!(
        table.contains("ORDERS  orders.* returns     file         3"),
        "{table}"
    );
    assert_eq!(
        server.good(&["stream", "ls", "--names", "--subject", "returns"]),
        "ORDERS\n"
    );
    assert_eq!(
        server.good(&["stream", "ls", "--subject", "other"]),
        "no streams\n"
    );
    let purge =
        |args: &[&str]| server.good(&[&["stream", "purge", "ORDERS", "--force"], args].concat());
    assert_eq!(
        purge(&["--subject", "orders.new", "--keep", "1"]),
        "purged 1 messages of ORDERS\n"
    );
    assert_eq!(purge(&[]), "purged 2 messages of ORDERS\n");
    // Without a terminal the command cannot ask for confirmation.
    let (code, _, err) = server.tidegate(&["stream", "rm", "ORDERS"]);
    assert!(code == Some(2) && err.contains("--force"), "{err}");
    assert_eq!(
        server.good(&["stream", "rm", "ORDERS", "--force"]),
        "removed ORDERS with 0 messages\n"
    );
    for (args, code, part) in [
        (
            &["stream", "info", "ORDERS"][..],
            1,
            "stream not found (10059)",
        ),
        (
            &["stream", "rm", "ORDERS", "--force"],
            1,
            "stream not found (10059)",
        ),
        (&["stream", "info", "a.b"], 2, "a stream's name"),
        (&["stream", "add", "X", "--subjects", "a..b"], 1, "(10052)"),
        (&["consume", "ORDERS"], 1, "stream not found (10059)"),
    ] {
        let (was, _, err) = server.tidegate(args);
        assert!(
            was == Some(code) && err.contains(part),
            "{args:?}: {was:?} {err}"
        );
    }
}

/// Tests that the configuration that `stream info` prints can create the same stream again, from a file.
#[test]
fn a_configuration_comes_back() {
    let server = Server::start();
    server.good(&[
        "stream",
        "add",
        "A",
        "--subjects",
        "a.>",
        "--max-msgs",
        "5",
        "--storage",
        "memory",
    ]);
    let info = server.good(&["stream", "info", "A", "--json"]);
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.json");
    std::fs::write(&file, info).unwrap();
    server.good(&["stream", "rm", "A", "--force"]);
    let said = server.good(&["stream", "add", "A", "--config", file.to_str().unwrap()]);
    assert!(
        said.contains("memory") && said.contains("messages at most   5\n"),
        "{said}"
    );
}

/// Tests lines that go into a stream and come back: 6 MiB of text, or `LINES_MIB` MiB.
#[test]
fn lines_come_back_byte_for_byte() {
    let mib = std::env::var("LINES_MIB").map_or(6, |n| n.parse().unwrap());
    let server = Server::start();
    server.good(&["stream", "add", "LINES", "--subjects", "lines.*"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let mut text = b"one\n\ntwo\r\n\xff\x00bytes\n\r\n\n".to_vec();
    for i in 0.. {
        if text.len() >= mib << 20 {
            break;
        }
        writeln!(text, "line {i} {}", "x".repeat(i % 200)).unwrap();
    }
    // This line has as many bytes as a message may have.
    text.extend(std::iter::repeat_n(b'y', 1 << 20));
    text.extend_from_slice(b"\nthe last, not closed");
    std::fs::write(&path, &text).unwrap();
    let count = text.iter().filter(|b| **b == b'\n').count() + 1;
    let said = server.good(&[
        "pub",
        "lines.a",
        "--lines",
        path.to_str().unwrap(),
        "--stream",
        "LINES",
    ]);
    assert_eq!(
        said,
        format!("published {count} to lines.a, acked by LINES as 1 to {count}\n")
    );
    let (code, out, err) = server.tidegate(&["consume", "LINES", "--until-end"]);
    assert!(
        code == Some(0) && out == text,
        "{} bytes of {}: {err}",
        out.len(),
        text.len()
    );
    // A durable consumer must print the same lines, and must have no more lines afterwards.
    let durable = ["consume", "LINES", "--until-end", "--durable", "d"];
    let (code, out, err) = server.tidegate(&[&durable[..], &["--count", "2"]].concat());
    assert_eq!((code, &out[..]), (Some(0), &b"one\n\n"[..]), "{err}");
    let (code, out, err) = server.tidegate(&durable);
    assert!(
        code == Some(0) && out == text[5..],
        "{} bytes: {err}",
        out.len()
    );
    let (code, out, _) = server.tidegate(&durable);
    assert!(code == Some(0) && out.is_empty());
    // The command must have deleted the consumer that it made for itself, and no other consumer.
    let mut raw = Raw::connect(&server.url).unwrap();
    let info = raw.api("CONSUMER.INFO.LINES.d", &json!({}));
    assert_eq!(info["config"]["ack_policy"], "explicit", "{info}");
    assert_eq!(
        raw.api("CONSUMER.NAMES.LINES", &json!({}))["consumers"],
        json!(["d"])
    );
}

/// Tests that messages that a run received and could not write come back in the next run, which waits for
/// them.
#[test]
fn a_run_that_could_not_write_loses_nothing() {
    for policy in ["explicit", "all"] {
        let server = Server::start();
        let lines: String = (0..7000).map(|n| format!("line {n}\n")).collect();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lines");
        std::fs::write(&path, &lines).unwrap();
        server.good(&["stream", "add", "S", "--subjects", "s"]);
        server.good(&["pub", "s", "--lines", path.to_str().unwrap()]);
        let mut raw = Raw::connect(&server.url).unwrap();
        let consumer = json!({"stream_name": "S", "config": {"durable_name": "d", "ack_policy": policy,
            "ack_wait": 1_000_000_000, "max_ack_pending": -1}});
        let created = raw.api("CONSUMER.DURABLE.CREATE.S.d", &consumer);
        assert!(created.get("error").is_none(), "{created}");
        let durable = ["consume", "S", "--until-end", "--durable", "d"];
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
        let failed = tidegate(&server.url, &durable)
            .stdout(full.unwrap())
            .output()
            .unwrap();
        assert_eq!(failed.status.code(), Some(1));
        let said = String::from_utf8(failed.stderr).unwrap();
        assert!(said.contains("standard output: No space left"), "{said}");
        let (code, out, err) = server.tidegate(&durable);
        assert_eq!(code, Some(0), "{err}");
        let mut printed: Vec<&str> = std::str::from_utf8(&out).unwrap().lines().collect();
        let mut expected: Vec<&str> = lines.lines().collect();
        if policy == "explicit" {
            // The messages that come back may stand behind newer ones, so the test compares the sorted lines.
            printed.sort_unstable();
            expected.sort_unstable();
        }
        assert!(printed == expected, "{} lines: {err}", printed.len());
    }
}

#[test]
fn refused_commands_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(&directory.path().join("data"), "max_payload: 1000");
    server.good(&[
        "stream",
        "add",
        "S",
        "--subjects",
        "s",
        "--max-msgs",
        "5",
        "--discard",
        "new",
    ]);
    let path = directory.path().join("lines");
    let path = path.to_str().unwrap();
    std::fs::write(path, format!("a\nb\n{}\nnever\n", "x".repeat(1001))).unwrap();
    let (code, out, err) = server.tidegate(&["pub", "s", "--lines", path]);
    assert_eq!((code, out.len()), (Some(1), 0), "{err}");
    let wanted = "line 3: longer than the 1000 bytes the server takes; 2 are acked, 0 sent are not";
    assert!(err.contains(wanted), "{err}");
    std::fs::write(path, "c\nd\ne\nf\n").unwrap();
    let (code, _, err) = server.tidegate(&["pub", "s", "--lines", path]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("line 4: maximum messages exceeded (10077); 3 are acked, 1 sent are not"),
        "{err}"
    );
    let (code, _, err) = server.tidegate(&["pub", "s", "x", "--stream", "T"]);
    assert!(
        code == Some(1) && err.contains("the stream S takes s, not T"),
        "{err}"
    );
    let (code, _, err) = server.tidegate(&["pub", "nobody", "x", "--stream", "T"]);
    assert!(
        code == Some(1) && err.contains("no stream takes nobody"),
        "{err}"
    );
    assert_eq!(
        server.good(&["pub", "nobody", "x"]),
        "published 1 to nobody\n"
    );
}

/// Tests that `pub SUBJECT -` publishes standard input as one message, and a signal ends its wait for more.
#[test]
fn standard_input_is_one_message() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let start = || {
        tidegate(&server.url, &["pub", "s", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut child = start();
    let text = "one\ntwo\n-".repeat(20_000);
    let mut input = child.stdin.take().unwrap();
    input.write_all(text.as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && said.contains("published 1"),
        "{said}"
    );
    assert_eq!(server.good(&["consume", "S", "--until-end"]), text + "\n");
    let mut child = start();
    // The process has registered its handler once it waits for input: it has read the first part then.
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a part").unwrap();
    while rustix::io::ioctl_fionread(&input).unwrap() > 0 {
        std::thread::yield_now();
    }
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    drop(input);
    assert_eq!(server.good(&["stream", "ls", "--names"]), "S\n");
    assert_eq!(
        server
            .good(&["consume", "S", "--until-end"])
            .lines()
            .count(),
        40_001
    );
}

/// Tests that a publisher that a signal ends says how many of its lines are acknowledged.
#[test]
fn an_ended_publisher_counts_its_lines() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let mut stored = 0;
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut child = tidegate(&server.url, &["pub", "s", "--lines", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"one\ntwo\n").unwrap();
        stored += 2;
        let lines = server.good(&["consume", "S", "--count", &stored.to_string()]);
        assert_eq!(lines.lines().count(), stored);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        // Some acknowledgements may still be on their way, so the test does not compare the counts.
        assert!(
            said.contains(" are acked, ") && said.contains("interrupted"),
            "{said}"
        );
    }
}

/// Tests that signals end a consumer although its reader has stopped reading, and that no message is lost.
#[test]
fn a_consumer_with_a_slow_reader_ends() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let lines = format!("{}\n", "x".repeat(999)).repeat(1000);
    std::fs::write(&path, &lines).unwrap();
    server.good(&["pub", "s", "--lines", path.to_str().unwrap()]);
    let durable = ["consume", "S", "--until-end", "--durable", "d"];
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut child = tidegate(&server.url, &durable)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = child.stdout.take().unwrap();
        while rustix::io::ioctl_fionread(&out).unwrap() < 60 << 10 {
            std::thread::yield_now();
        }
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        let mut raw = Raw::connect(&server.url).unwrap();
        let info = raw.api("CONSUMER.INFO.S.d", &json!({}));
        assert_eq!(info["ack_floor"]["stream_seq"], json!(0), "{info}");
        drop(out);
        raw.api("CONSUMER.DELETE.S.d", &json!({}));
    }
}

#[test]
fn ids_make_a_second_run_safe() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let path = path.to_str().unwrap();
    std::fs::write(path, "a\nb\n").unwrap();
    let publish = ["pub", "s", "--lines", path, "--id", "run-1"];
    assert_eq!(
        server.good(&publish),
        "published 2 to s, acked by S as 1 to 2\n"
    );
    std::fs::write(path, "a\nb\nc\n").unwrap();
    let said = server.good(&publish);
    assert_eq!(
        said,
        "published 3 to s, acked by S as 1 to 3, 2 of them there before\n"
    );
    assert_eq!(server.good(&["consume", "S", "--until-end"]), "a\nb\nc\n");
    assert_eq!(
        server.good(&["pub", "s", "d"]),
        "published 1 to s, acked by S as 4\n"
    );
}

#[test]
fn filters_and_starts() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s.>"]);
    for (subject, text) in [("s.a", "1"), ("s.b", "2"), ("s.a", "3"), ("s.c.d", "4")] {
        server.good(&["pub", subject, text]);
    }
    let consume = |args: &[&str]| server.good(&[&["consume", "S", "--until-end"], args].concat());
    assert_eq!(consume(&["--filter", "s.a"]), "1\n3\n");
    assert_eq!(
        consume(&["--filter", "s.a", "--filter", "s.c.>", "--subjects"]),
        "s.a 1\ns.a 3\ns.c.d 4\n"
    );
    assert_eq!(consume(&["--from", "3"]), "3\n4\n");
    assert_eq!(consume(&["--from", "2", "--count", "1"]), "2\n");
    assert_eq!(consume(&["--filter", "s.nothing"]), "");
    // No subject of the stream matches the filter, so the command finds nothing.
    assert_eq!(consume(&["--filter", "other"]), "");
}

/// Tests that the command without `--until-end` also prints messages that are published later.
#[test]
fn waiting_for_more() {
    let server = Server::start();
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    server.good(&["pub", "s", "first"]);
    let mut child = tidegate(&server.url, &["consume", "S", "--count", "2"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "first\n");
    server.good(&["pub", "s", "second"]);
    line.clear();
    std::io::BufRead::read_line(&mut out, &mut line).unwrap();
    assert_eq!(line, "second\n");
    assert!(child.wait().unwrap().success());
}

/// Tests messages that share an entry of the log with the creation or the purge: the consumer must count each
/// of them once.
#[test]
fn a_consumer_made_or_emptied_together_with_messages_counts_each_once() {
    let server = Server::start();
    let mut raw = Raw::connect(&server.url).unwrap();
    let stream = json!({"name": "S", "subjects": ["s"], "retention": "limits", "storage": "file", "num_replicas": 1,
        "max_consumers": -1, "max_msgs": -1, "max_bytes": -1, "max_age": 0, "discard": "old"});
    assert!(raw.api("STREAM.CREATE.S", &stream).get("error").is_none());
    let inbox = raw.inbox.clone();
    let publish = |subject: &str, reply: &str, body: &str| {
        format!("PUB {subject} {inbox}{reply} {}\r\n{body}\r\n", body.len())
    };
    let consumer =
        json!({"stream_name": "S", "config": {"durable_name": "C", "ack_policy": "explicit"}});
    let create = publish(
        "$JS.API.CONSUMER.DURABLE.CREATE.S.C",
        "create",
        &consumer.to_string(),
    );
    let purge = publish("$JS.API.STREAM.PURGE.S", "purge", "");
    let two = [publish("s", "1", "x"), publish("s", "2", "y")].concat();
    for (first, pending) in [(create, 4), (purge, 2)] {
        // In the first round two messages precede the operation, in the second round none.
        raw.send(
            [two.as_str(), first.as_str(), two.as_str()]
                .concat()
                .as_bytes(),
        )
        .unwrap();
        let answers: Vec<Value> = (0..5)
            .map(|_| serde_json::from_slice(&raw.message().unwrap().payload).unwrap())
            .collect();
        assert!(
            answers.iter().all(|a| a.get("error").is_none()),
            "{answers:?}"
        );
        let info = raw.api("CONSUMER.INFO.S.C", &json!({}));
        assert_eq!(info["num_pending"], json!(pending), "{info}");
    }
}

/// Tests that a subscriber reports the end of its server, and fails, both after an orderly end and after a
/// kill.
#[test]
fn a_subscriber_fails_when_its_server_goes() {
    for signal in [Signal::TERM, Signal::KILL] {
        let server = Server::start();
        let mut child = tidegate(&server.url, &["sub", "s", "--wait", "0s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut said = String::new();
        err.read_line(&mut said).unwrap();
        assert_eq!(said, "subscribed to s\n");
        server.good(&["pub", "s", "one"]);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "one\n");
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        said.clear();
        std::io::Read::read_to_string(&mut err, &mut said).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{signal:?}: {said}");
        assert!(
            said.starts_with("tidegate: ") && said.lines().count() == 1,
            "{signal:?}: {said}"
        );
    }
}

/// Tests that a command that waits for messages of a stream also fails when its server ends.
#[test]
fn a_reader_of_a_stream_fails_when_its_server_goes() {
    for signal in [Signal::TERM, Signal::KILL] {
        let server = Server::start();
        server.good(&["stream", "add", "S", "--subjects", "s"]);
        server.good(&["pub", "s", "one"]);
        let mut child = tidegate(&server.url, &["consume", "S", "--wait", "0s"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut line).unwrap();
        assert_eq!(line, "one\n");
        let pid = Pid::from_raw(i32::try_from(server.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{signal:?}: {said}");
        assert!(
            said.starts_with("tidegate: ") && said.lines().count() == 1,
            "{signal:?}: {said}"
        );
    }
}
