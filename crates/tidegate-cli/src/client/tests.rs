//! Tests the client commands against a test server that records every operation. The tests give the commands
//! hostile names, and let the server close the connection.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread::JoinHandle;

use clap::Parser as _;
use serde_json::{Value, json};

use crate::Usage;
use crate::args::{Cli, Command};

/// One operation that a client sent to the test server: its words, and the payload of a message.
#[derive(Debug, PartialEq, Eq)]
struct Operation {
    words: Vec<String>,
    payload: Vec<u8>,
}

/// The text of a command's error if the server closes the connection that the command needs.
const CLOSED: &str = "the server closed the connection";

/// The function that answers the requests of a command; `None` makes the test server end the connection.
type Answer = fn(&str) -> Option<Value>;

struct Recorder {
    url: String,
    server: JoinHandle<Vec<Operation>>,
}

impl Recorder {
    /// Accepts one connection and answers its requests until the connection ends.
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || serve(listener.accept().unwrap().0, answer));
        Self { url, server }
    }

    /// Runs a command against this server. Returns the command's outcome and the operations that the command
    /// sent.
    fn run(self, args: &[&str]) -> (anyhow::Result<ExitCode>, Vec<Operation>) {
        let mut all = vec!["tidegate"];
        let split = args
            .iter()
            .position(|arg| *arg == "--")
            .unwrap_or(args.len());
        all.extend(&args[..split]);
        all.extend(["-s", &self.url, "--wait", "0s"]);
        all.extend(&args[split..]);
        let outcome = match Cli::try_parse_from(&all).unwrap().command {
            Command::Pub(args) => super::publish::run(&args),
            Command::Sub(args) => super::subscribe::run(&args),
            Command::Stream(command) => super::stream::run(&command),
            Command::Consume(args) => super::consume::run(&args),
            other => panic!("{other:?}"),
        };
        // A command that refuses its arguments never connects, so the test connects once to end the server's
        // wait.
        drop(TcpStream::connect(&self.url));
        (outcome, self.server.join().unwrap())
    }
}

fn serve(stream: TcpStream, answer: Answer) -> Vec<Operation> {
    let mut operations = Vec::new();
    stream.set_nodelay(true).unwrap();
    let mut writer = stream.try_clone().unwrap();
    if writer
        .write_all(b"INFO {\"max_payload\":1048576}\r\n")
        .is_err()
    {
        return operations;
    }
    let mut reader = BufReader::new(stream);
    // The id of each subscription to an inbox, with the part of the subscription's subject before a wildcard,
    // so that the server can address its answers.
    let mut inboxes: Vec<(String, String)> = Vec::new();
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|n| n > 0) {
        let text = line
            .strip_suffix("\r\n")
            .unwrap_or_else(|| panic!("{line:?}"));
        // The split at every blank keeps empty words, so that the record shows an empty name and a name with
        // a blank.
        let words: Vec<String> = match text.split_once(' ') {
            Some((verb @ ("CONNECT" | "-ERR"), rest)) => vec![verb.into(), rest.into()],
            _ => text.split(' ').map(str::to_owned).collect(),
        };
        line.clear();
        let mut payload = Vec::new();
        match words[0].as_str() {
            "SUB" if words[1].starts_with("_INBOX.") => {
                let prefix = words[1].trim_end_matches(['*', '>']);
                inboxes.push((prefix.to_owned(), words.last().unwrap().clone()));
            }
            "CONNECT" | "SUB" | "UNSUB" | "PONG" => {}
            "PING" => writer.write_all(b"PONG\r\n").unwrap(),
            "PUB" => {
                payload.resize(words.last().unwrap().parse::<usize>().unwrap() + 2, 0);
                reader.read_exact(&mut payload).unwrap();
                assert!(payload.ends_with(b"\r\n"));
                payload.truncate(payload.len() - 2);
            }
            other => panic!("{other:?} is no operation of these commands"),
        }
        let mut deliver = |subject: &str, text: &str| {
            let inbox = inboxes.iter().find(|(start, _)| subject.starts_with(start));
            let (sid, bytes) = (&inbox.unwrap().1, text.len());
            write!(writer, "MSG {subject} {sid} {bytes}\r\n{text}\r\n").unwrap();
        };
        if words[0] == "PUB" && words[1].starts_with("_INBOX.") {
            deliver(&words[1], "");
        }
        let request = words[0] == "PUB" && words.len() == 4;
        operations.push(Operation { words, payload });
        let last = operations.last().unwrap();
        if request {
            let Some(answer) = answer(&last.words[1]) else {
                break;
            };
            deliver(&last.words[2], &answer.to_string());
        }
    }
    operations
}

/// Answers as a server on which each requested stream exists, no stream takes the requested subject, and no
/// consumer exists.
fn api(subject: &str) -> Option<Value> {
    let error = json!({"error": {"code": 404, "err_code": 10014, "description": "not here"}});
    Some(match subject.strip_prefix("$JS.API.") {
        Some("STREAM.NAMES") => json!({"streams": []}),
        Some("STREAM.LIST") => json!({"streams": [], "total": 0}),
        Some(what) if what.starts_with("STREAM.INFO.") => json!({"config": {}, "state": {}}),
        _ => error,
    })
}

/// The parts from which the tests combine hostile names and valid ones.
const PARTS: [&str; 24] = [
    "",
    "a",
    "x",
    ".",
    "..",
    "*",
    ">",
    ".>",
    "\r",
    "\n",
    "\r\n",
    " ",
    "\t",
    "\0",
    "\x0b",
    "\u{a0}",
    "\u{2028}",
    "ü",
    "/",
    "\\",
    "$JS",
    "x 0\r\n\r\nPUB foo 2\r\nhi\r\nPUB y",
    "\"}",
    "%s",
];

fn hostile() -> Vec<String> {
    let mut names: Vec<String> = PARTS.map(str::to_owned).to_vec();
    for (at, first) in PARTS.iter().enumerate() {
        for second in PARTS.iter().skip(at % 5).step_by(5) {
            names.push(format!("{first}{second}"));
            names.push(format!("a{first}b{second}c"));
        }
    }
    names.push("long".repeat(100));
    names
}

/// Returns whether `name` is a subject. The tests compare the command's check with this second
/// implementation.
fn is_subject(name: &str, wildcards: bool) -> bool {
    let tokens: Vec<&str> = name.split('.').collect();
    let last = tokens.len() - 1;
    !name.chars().any(|c| c.is_whitespace() || c.is_control())
        && tokens.iter().enumerate().all(|(at, token)| match *token {
            "" => false,
            "*" => wildcards,
            ">" => wildcards && at == last,
            _ => true,
        })
}

fn is_token(name: &str) -> bool {
    is_subject(name, false) && name.len() <= 255 && !name.contains(['.', '*', '>', '/', '\\'])
}

/// Returns the subjects of all recorded subscriptions and publications, with the queue group.
fn subjects(operations: &[Operation]) -> Vec<String> {
    let words = operations.iter().map(|operation| &operation.words[..]);
    words
        .filter_map(|words| match words {
            [verb, subject, ..] if verb == "SUB" && subject.starts_with("_INBOX.") => None,
            [verb, subject, queue @ .., _] if verb == "SUB" => {
                Some([std::slice::from_ref(subject), queue].concat().join(" "))
            }
            // The client sends this message to itself, to find out if the server has taken all earlier
            // operations.
            [verb, subject, ..] if verb == "PUB" && subject.starts_with("_INBOX.") => None,
            [verb, subject, ..] if verb == "PUB" => Some(subject.clone()),
            _ => None,
        })
        .collect()
}

/// Runs a command with a name in an argument. Checks that the command refuses an invalid name, names the
/// argument and sends no byte, or that it sends a valid name unchanged.
#[track_caller]
fn check(name: &str, good: bool, blamed: &str, args: &[&str], meant: &[&str]) {
    let (outcome, operations) = Recorder::start(api).run(args);
    if good {
        assert!(!outcome.is_err_and(|e| e.is::<Usage>()), "{name:?}");
        assert_eq!(subjects(&operations), meant, "{name:?}");
    } else {
        let error = outcome.unwrap_err();
        assert!(error.is::<Usage>(), "{name:?}: {error}");
        let said = error.to_string();
        assert!(said.starts_with(&format!("{blamed}: ")), "{name:?}: {said}");
        assert!(!said.contains(['\r', '\n', '\0']), "{said:?}");
        assert_eq!(operations, [], "{name:?}");
    }
}

#[test]
fn names_are_sent_as_they_are_or_refused() {
    const NAMES: &str = "$JS.API.STREAM.NAMES";
    for name in &hostile() {
        let given = |flag: &str| format!("{flag}={name}");
        let (literal, pattern, token) = (
            is_subject(name, false),
            is_subject(name, true),
            is_token(name),
        );
        check(
            name,
            literal,
            "SUBJECT",
            &["pub", "--", name, "hi"],
            &[NAMES, name],
        );
        let args = ["pub", &given("--stream"), "--", "s", "hi"];
        check(name, token, "--stream", &args, &[NAMES]);
        let args = ["sub", "--count=0", "--", name];
        check(name, pattern, "SUBJECT", &args, &[name]);
        let args = ["sub", "--count=0", &given("--queue"), "--", "s"];
        check(name, pattern, "--queue", &args, &[&format!("s {name}")]);
        let info = format!("$JS.API.STREAM.INFO.{name}");
        check(
            name,
            token,
            "NAME",
            &["stream", "info", "--", name],
            &[&info],
        );
        let delete = format!("$JS.API.STREAM.DELETE.{name}");
        let args = ["stream", "rm", "--force", "--", name];
        check(name, token, "NAME", &args, &[&info, &delete]);
        let args = ["stream", "ls", &given("--subject")];
        check(name, pattern, "--subject", &args, &["$JS.API.STREAM.LIST"]);
        let args = ["stream", "purge", "--force", &given("--subject"), "--", "S"];
        check(
            name,
            pattern,
            "--subject",
            &args,
            &["$JS.API.STREAM.PURGE.S"],
        );
        let create = format!("$JS.API.CONSUMER.CREATE.{name}");
        check(
            name,
            token,
            "STREAM",
            &["consume", "--", name],
            &[&info, &create],
        );
        let info = format!("$JS.API.CONSUMER.INFO.S.{name}");
        let create = format!("$JS.API.CONSUMER.CREATE.S.{name}");
        let args = ["consume", &given("--durable"), "--", "S"];
        let meant = ["$JS.API.STREAM.INFO.S", &info, &create];
        check(name, token, "--durable", &args, &meant);
        let args = ["consume", &given("--filter"), "--", "S"];
        let meant = ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S"];
        check(name, pattern, "--filter", &args, &meant);
        // The flag takes several subjects with commas between them, so the test regards each part as a
        // subject.
        let word =
            !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control());
        let args = ["stream", "add", &given("--subjects"), "--", "S"];
        check(
            name,
            word,
            "--subjects",
            &args,
            &["$JS.API.STREAM.CREATE.S"],
        );
    }
}

/// Tests that the client also checks names that the server sends, because it puts them into subjects, too.
#[test]
fn a_name_the_server_gives_is_checked() {
    let answer: Answer = |subject| {
        Some(match subject.strip_prefix("$JS.API.") {
            Some("CONSUMER.CREATE.S") => {
                let name = "c\r\nPUB foo 0\r\n\r\nPUB x";
                json!({"name": name, "config": {"ack_policy": "none"}, "num_pending": 1})
            }
            _ => api(subject)?,
        })
    };
    let (outcome, operations) = Recorder::start(answer).run(&["consume", "S", "--until-end"]);
    let said = outcome.unwrap_err().to_string();
    assert!(said.contains("is not a subject"), "{said}");
    assert_eq!(
        subjects(&operations),
        ["$JS.API.STREAM.INFO.S", "$JS.API.CONSUMER.CREATE.S"]
    );
}

/// Tests that a failed write to a closed connection is an error, which the command does not mistake for a
/// reader that closed standard output.
#[test]
fn a_server_that_goes_away_while_lines_are_published_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    std::fs::write(&path, format!("{}\n", "x".repeat(1000)).repeat(20_000)).unwrap();
    let lines = path.to_str().unwrap();
    // The server answers the lookup of the stream, then closes the connection, so that the command's writes
    // fail.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        stream
            .write_all(b"INFO {\"max_payload\":1048576}\r\n")
            .unwrap();
        let (mut line, mut sid) = (String::new(), String::new());
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if line.starts_with("PING") {
                stream.write_all(b"PONG\r\n").unwrap();
            }
            if let Some(inbox) = line.strip_prefix("SUB ") {
                sid = inbox.split_whitespace().last().unwrap().to_owned();
            }
            if let Some(request) = line.strip_prefix("PUB $JS.API.STREAM.NAMES ") {
                let (reply, bytes) = request.trim_end().split_once(' ').unwrap();
                let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
                reader.read_exact(&mut payload).unwrap();
                let text = json!({"streams": []}).to_string();
                write!(stream, "MSG {reply} {sid} {}\r\n{text}\r\n", text.len()).unwrap();
                return;
            }
        }
    });
    let args = [
        "tidegate", "pub", "s", "--lines", lines, "-s", &url, "--wait", "0s",
    ];
    let Command::Pub(args) = Cli::try_parse_from(args).unwrap().command else {
        panic!("not pub");
    };
    let error = super::publish::run(&args).unwrap_err();
    server.join().unwrap();
    assert!(!crate::is_broken_pipe(&error), "{error:#}");
    let said = format!("{error:#}");
    assert!(
        said.contains(CLOSED) && said.contains("took 0 lines"),
        "{said}"
    );
}
