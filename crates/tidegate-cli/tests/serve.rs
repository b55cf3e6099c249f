//! Tests of `tidegate serve`, `pub` and `sub` as programs: their output, their errors and their reactions to
//! signals.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).stdin(Stdio::null());
    for variable in [
        "NATS_URL",
        "TIDEGATE_ADDR",
        "TIDEGATE_PORT",
        "TIDEGATE_CONFIG",
    ] {
        command.env_remove(variable);
    }
    command
}

fn run(args: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = tidegate(args).output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
    (status.code(), text)
}

/// A server on a free port. The test reads its log up to "Server is ready", and further lines on demand.
struct Serve {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    url: String,
    http: Option<String>,
    /// The lines of the server's log up to "Server is ready".
    start: String,
}

impl Serve {
    fn start(args: &[&str]) -> Self {
        let mut all = vec!["serve", "-p", "-1"];
        if !args.iter().any(|a| ["--data", "-sd"].contains(a)) {
            all.push("--no-streams");
        }
        all.extend_from_slice(args);
        let mut child = tidegate(&all).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut serve = Self {
            child,
            log,
            url: String::new(),
            http: None,
            start: String::new(),
        };
        let seen = serve.log_until("Server is ready");
        let after = |mark: &str| {
            let at = seen.split_once(mark)?.1;
            Some(at.split_whitespace().next()?.to_owned())
        };
        serve.url = after("Listening for client connections on ").unwrap();
        serve.http = after("Starting http monitor on ");
        serve.start = seen;
        serve
    }

    fn log_until(&mut self, mark: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(mark) {
            let n = self.log.read_line(&mut seen).unwrap();
            assert!(n > 0, "the log ended before `{mark}`: {seen}");
        }
        seen
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the server's end. Returns the rest of its log and its exit code.
    fn end(mut self) -> (String, Option<i32>) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (rest, self.child.wait().unwrap().code())
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // The process may have ended already, and then the kill fails without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a subscriber and waits until the server has its subscription.
fn subscribe(url: &str, args: &[&str]) -> Child {
    let mut all = vec!["sub", "-s", url];
    all.extend_from_slice(args);
    let mut child = tidegate(&all)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with("subscribed to "), "{line}");
    child
}

/// Tests that the commands of README.md lead to a server, a message and the dashboard within two minutes.
#[test]
fn the_readme_leads_to_a_server_a_message_and_the_dashboard() {
    /// The script's exit code if the system gives it no network namespace, and the README's ports are taken.
    const NO_NAMESPACE: i32 = 77;
    let script = tidegate_testing::root().join("scripts/first_hour.sh");
    let output = Command::new(script)
        .arg(env!("CARGO_BIN_EXE_tidegate"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(NO_NAMESPACE) => tidegate_testing::missing("network namespaces (root), and iproute2"),
        code => assert_eq!(code, Some(0), "{said}"),
    }
}

/// Tests that a log begins with the addresses and the directory, which a newcomer looks for, and that remarks
/// come behind.
#[test]
fn the_log_begins_with_the_addresses() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut serve = Serve::start(&["-m", "-1", "--insecure", "--data", data.to_str().unwrap()]);
    let http = serve.http.clone().unwrap();
    let wanted = [
        format!("Listening for client connections on {}", serve.url),
        format!("Keeping streams in {}", data.display()),
        format!("Starting http monitor on {http}"),
        format!("The dashboard is at http://{http}/dashboard"),
        "Starting tidegate ".into(),
        "--insecure".into(),
    ];
    for (line, wanted) in serve.start.lines().zip(&wanted) {
        assert!(
            line.contains(wanted),
            "expected `{wanted}`: {}",
            serve.start
        );
    }
    serve.signal(Signal::TERM);
    serve.log_until("Server Exiting");
}

#[test]
fn json_log_lines_are_objects_with_a_time_a_level_and_a_message() {
    let mut child = tidegate(&["serve", "-p", "-1", "--no-streams", "--log-format", "json"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut is_ready = false;
    while !is_ready {
        let line = log.next().unwrap().unwrap();
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let members: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 3, "{line}");
        let time = value["timestamp"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{line}");
        assert!(["INFO", "WARN"].contains(&value["level"].as_str().unwrap()));
        is_ready = value["message"]
            .as_str()
            .unwrap()
            .starts_with("Server is ready");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_error_that_ends_a_server_is_a_json_log_line_too() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let args = ["serve", "-p", &port, "--no-streams", "--log-format", "json"];
    let output = tidegate(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
        .collect();
    let last = lines.last().unwrap();
    assert_eq!(last["level"], "ERROR", "{log}");
    assert!(last["message"].as_str().unwrap().contains(&port), "{log}");
}

#[test]
fn lines_arrive_byte_for_byte_and_term_drains() {
    let serve = Serve::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lines");
    let mut text = b"one\n\ntwo\r\n\xff\x00bytes\n".to_vec();
    for i in 0..10_000 {
        writeln!(text, "line {i}").unwrap();
    }
    text.extend_from_slice(b"the last, not closed");
    std::fs::write(&path, &text).unwrap();
    let lines = text.split(|b| *b == b'\n').count();
    let sub = subscribe(&serve.url, &["lines.*", "--count", &lines.to_string()]);
    let (code, said) = run(&[
        "pub",
        "-s",
        &serve.url,
        "lines.a",
        "--lines",
        path.to_str().unwrap(),
    ]);
    assert_eq!(
        (code, said),
        (Some(0), format!("published {lines} to lines.a\n"))
    );
    let output = sub.wait_with_output().unwrap();
    text.push(b'\n');
    assert!(output.status.success() && output.stdout == text);
    serve.signal(Signal::TERM);
    let (log, code) = serve.end();
    assert!(
        log.contains("Server Exiting") && code == Some(0),
        "{log} {code:?}"
    );
}

#[test]
fn a_line_too_long_is_refused_by_number() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("small.conf");
    std::fs::write(&config, "max_payload: 100").unwrap();
    let serve = Serve::start(&["-c", config.to_str().unwrap()]);
    let path = directory.path().join("lines");
    let (fits, too_long) = ("x".repeat(100), "y".repeat(101));
    std::fs::write(&path, format!("{fits}\nshort\n{too_long}\nnever\n")).unwrap();
    let (code, said) = run(&[
        "pub",
        "-s",
        &serve.url,
        "a",
        "--lines",
        path.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("line 3 is longer than the 100 bytes the server takes; the 2 lines before"),
        "{said}"
    );
    let (code, said) = run(&["pub", "-s", &serve.url, "a", &too_long]);
    assert!(
        code == Some(1) && said.contains("Maximum Payload Violation"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let bytes = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["serve", "-a", "0.0.0.0"],
            2,
            "can be reached from other machines",
        ),
        (&["serve", "-p", "70000"], 2, "'--port <PORT>': give a port"),
        (&["pub", "a"], 2, "(`-` is standard input), or `--lines -`"),
        (
            &["serve", "-m", "abc"],
            2,
            "'--http-port <PORT>': give a port",
        ),
        (&["serve", "-a", ""], 2, "give a host name"),
        (
            &["serve", "-c", "/nonexistent/x.conf"],
            2,
            "cannot read the configuration",
        ),
        (
            &[
                "serve",
                "-c",
                &file("a.conf", "port: 4222\njetstream { cipher: aes }\n"),
            ],
            2,
            "line 2: the setting `jetstream.cipher` does not exist here",
        ),
        (
            &[
                "serve",
                "-c",
                &file("a.toml", "port = 4222\n[tls]\nfoo = 1\n"),
            ],
            2,
            "line 3: the setting `tls.foo`",
        ),
        (
            &["serve", "-c", &file("b.toml", "port = = 1\n")],
            2,
            "line 1",
        ),
        (
            &[
                "serve",
                "-t",
                "-c",
                &bytes("c.conf", b"port: 1\nhost: \xff\n"),
            ],
            2,
            "line 2: expected UTF-8",
        ),
        (
            &["serve", "-t", "-c", &file("bom.conf", "\u{feff}port: 1\n")],
            0,
            "is good",
        ),
        (
            &["serve", "-t", "-c", &file("self.conf", "include self.conf")],
            2,
            "the file includes itself: self.conf -> self.conf",
        ),
        (&["serve", "--user", "a"], 2, "--pass"),
        (
            &[
                "serve",
                "--tlscert",
                "/nonexistent",
                "--tlskey",
                "/nonexistent",
                "-p",
                "-1",
            ],
            2,
            "tls: cannot read certificates (cert_file) from /nonexistent",
        ),
        (&["serve", "-jz"], 2, "unexpected argument"),
        (
            &["serve", "-p", "-1", "--data", &file("no-directory", "")],
            1,
            "no-directory",
        ),
        (
            &["serve", "--no-streams", "--data", "d"],
            2,
            "cannot be used with",
        ),
        (
            &[
                "serve",
                "-t",
                "-c",
                &file(
                    "good.toml",
                    "host = \"0.0.0.0\"\n[authorization]\ntoken = \"t\"\n",
                ),
            ],
            0,
            "is good",
        ),
        (
            &[
                "serve",
                "-t",
                "-c",
                &file(
                    "idle.conf",
                    "logtime: true\ncluster { pool_size: 3, routes: [] }",
                ),
            ],
            0,
            "without effect: logtime (line 1), cluster.pool_size (line 2)\nnote: the cluster has no routes",
        ),
        (
            &[
                "serve",
                "-t",
                "-c",
                &file("two.conf", "logtime: true\nmqtt { port: 1 }\nnmae: x"),
            ],
            2,
            "refused: line 2: the setting `mqtt` does not exist here: this server serves no MQTT clients\nrefused: line 3: the setting `nmae`",
        ),
        (
            &[
                "serve",
                "-t",
                "-c",
                &file("strict.conf", "logtime: true\nstrict: true"),
            ],
            2,
            "line 1: the setting `logtime` has no effect here, and `strict` refuses it",
        ),
        (&["pub", "-s", "127.0.0.1:1", "a", "b"], 1, "cannot connect"),
        (&["pub", "a.*", "b"], 2, "not a subject"),
        (&["sub", "a..b"], 2, "not a subject or pattern"),
        (
            &["sub", "a", "--tls-ca", "/nope"],
            2,
            "--tls-ca /nope: No such file",
        ),
        (
            &["sub", "a", "--tls-ca", &file("ca.pem", "")],
            2,
            "ca.pem: no certificate found",
        ),
        (
            &["consume", "S", "--from", "0"],
            2,
            "the first message of a stream has 1",
        ),
        (
            &["stream", "add", "S", "--max-msgs", "0"],
            2,
            "-1 for no limit",
        ),
        (&["stream", "add", "S", "--replicas", "0"], 2, "from 1 on"),
        (
            &["stream", "add", "S", "--max-bytes", "1X"],
            2,
            "such as 512K or 10GB",
        ),
        (&["stream", "add", "S", "--dupe-window", "0s"], 2, "above 0"),
        (
            &["count", "--top", "0", "-"],
            2,
            "give a whole number from 1 on",
        ),
        (&["serve", "-n", "a\nb"], 2, "'--name <NAME>': give a name"),
        (&["serve", "--name", ""], 2, "'--name <NAME>': give a name"),
        (
            &["serve", "--cluster-name", "a\u{1b}b"],
            2,
            "'--cluster-name <NAME>': give a name",
        ),
        (
            &["send", "127.0.0.1:1", "--session", "a\nb"],
            2,
            "'--session <NAME>': give a name without line feeds",
        ),
        (
            &["send", "127.0.0.1:1", "--session", ""],
            2,
            "'--session <NAME>': give a name",
        ),
        (&["send", "foo"], 2, "give HOST:PORT"),
        (&["send", "127.0.0.1:99999"], 2, "give HOST:PORT"),
        (&["receive", "--listen", "foo"], 2, "give HOST:PORT"),
    ];
    for (args, code, part) in cases {
        let (was, said) = run(args);
        assert!(
            was == Some(*code) && said.contains(part),
            "{args:?}: {was:?} {said}"
        );
    }
    let first = Serve::start(&[]);
    let port = first.url.rsplit_once(':').unwrap().1;
    let (code, said) = run(&["serve", "-p", port]);
    assert!(
        code == Some(1) && said.contains("cannot listen on 127.0.0.1:"),
        "{said}"
    );
}

/// Tests that `serve -t` refuses each configuration that a start would refuse.
#[test]
fn a_check_of_the_configuration_finds_what_a_start_would_refuse() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let other = rcgen::KeyPair::generate().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let cert = file("cert.pem", &made.cert.pem());
    let key = file("key.pem", &made.signing_key.serialize_pem());
    let other = file("other.pem", &other.serialize_pem());
    let empty = file("empty.pem", "");
    let hash = format!("$2a$11${}", "a".repeat(53));
    let tls = |cert: &str, key: &str, ca: &str| {
        let ca = match ca {
            "" => String::new(),
            ca => format!(", ca_file: \"{ca}\", verify: true"),
        };
        format!("tls {{ cert_file: \"{cert}\", key_file: \"{key}\"{ca} }}")
    };
    let user = |password: &str| format!("authorization {{ user: u, password: \"{password}\" }}");
    let cases = [
        (tls(&cert, &key, &cert), None),
        (
            tls("/nope", &key, ""),
            Some("certificates (cert_file) from /nope"),
        ),
        (
            tls(&cert, "/nope", ""),
            Some("a private key (key_file) from /nope"),
        ),
        (
            tls(&cert, &key, "/nope"),
            Some("authorities (ca_file) from /nope"),
        ),
        (tls(&empty, &key, ""), Some("holds no certificate")),
        (
            tls(&cert, &other, ""),
            Some("other.pem (key_file) does not belong to the certificate in"),
        ),
        (
            format!(
                "server_name: n1, cluster {{ name: c, routes: [\"nats-route://h:1\"], {} }}",
                tls(&cert, &other, &cert)
            ),
            Some("cluster.tls: the private key in"),
        ),
        (
            format!(
                "server_name: n1, cluster {{ name: c, routes: [\"nats-route://h:1\"], {} }}",
                tls(&cert, "/nope", &cert)
            ),
            Some("cluster.tls: cannot read a private key (key_file)"),
        ),
        (user(&hash), None),
        (
            user("$2a$11$abc"),
            Some("the password of the user `u` begins like a bcrypt hash"),
        ),
        (
            user(&hash.replace("$11$", "$99$")),
            Some("a cost from 04 to 31"),
        ),
        (
            "authorization { token: \"$2b$10$\" }".to_owned(),
            Some("the token begins like a bcrypt hash"),
        ),
        (
            "authorization { user: u, password: p, token: t }".to_owned(),
            Some("line 1: `authorization` has a token and users"),
        ),
    ];
    for (text, refused) in cases {
        let (code, said) = run(&["serve", "-t", "-c", &file("x.conf", &text)]);
        assert_eq!(code, Some(refused.map_or(0, |_| 2)), "{text}: {said}");
        // The command prints the list of the settings before its verdict.
        let verdict = said.trim_end().lines().last().unwrap_or_default();
        assert!(
            verdict.contains(refused.unwrap_or("is good")),
            "{text}: {said}"
        );
    }
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    let mut command = tidegate(&["serve", "-t"]);
    for name in [
        "ADDR",
        "PORT",
        "HTTP_PORT",
        "CONFIG",
        "NAME",
        "DATA",
        "CLUSTER",
        "ROUTES",
    ] {
        command.env(format!("TIDEGATE_{name}"), "");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut command = tidegate(&["pub", "a", "b"]);
    let output = command.env("NATS_URL", "").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!said.contains("names no host"), "{said}");
}

/// Tests that a command that prints messages refuses a closed standard output, which would lose them.
#[test]
fn a_closed_standard_output_is_refused() {
    for (to, args) in [
        (">&-", &["sub", "a"][..]),
        (">&-", &["consume", "S", "--durable", "d"]),
        (">&-", &["receive", "--listen", "127.0.0.1:0"]),
        (">&-", &["completions", "bash"]),
        (">&-", &["count", "/dev/null"]),
        (">&-", &["sim", "backlog"]),
        ("1</dev/null", &["sub", "a"]),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec \"$0\" \"$@\" {to}")]);
        shell.arg(env!("CARGO_BIN_EXE_tidegate")).args(args);
        let output = shell.env("NATS_URL", "127.0.0.1:1").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(
            said.starts_with("tidegate: standard output is "),
            "{args:?}: {said}"
        );
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
    // The null device is open, so the command does not refuse it and fails only because it reaches no server.
    let discarded = tidegate(&["sub", "a", "-s", "127.0.0.1:1"])
        .stdout(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(discarded.stderr).unwrap();
    assert!(said.contains("cannot connect"), "{said}");
}

/// Tests a full disk under standard output: the error must name standard output, and a message counts as
/// published.
#[test]
fn a_full_standard_output_is_named() {
    let full = || {
        let file = std::fs::File::options().write(true).open("/dev/full");
        Stdio::from(file.unwrap())
    };
    let error = "standard output: No space left on device (os error 28)";
    for args in [
        &["completions", "bash"][..],
        &["count", "/dev/null"],
        &["sim", "backlog"],
        &["sim", "backlog", "--json"],
        &["serve", "-t"],
    ] {
        let output = tidegate(args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("tidegate: {error}\n"), "{args:?}");
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
    let server = Serve::start(&[]);
    let output = tidegate(&["pub", "-s", &server.url, "a", "b"])
        .stdout(full())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, format!("tidegate: {error}: published 1 to a\n"));
    assert_eq!(output.status.code(), Some(0));
}

/// Tests a user who may use one subject and no inbox: a subscriber must need only the rights to its subject.
#[test]
fn a_subscriber_needs_the_rights_to_its_subject_only() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("c.conf");
    let users = "authorization { users: [
        { user: reader, password: r, permissions: { publish: { deny: \">\" }, subscribe: news } }
        { user: writer, password: w } ] }";
    std::fs::write(&config, users).unwrap();
    let server = Serve::start(&["-c", config.to_str().unwrap()]);
    let url = |user: &str| format!("{user}@{}", server.url);
    let mut reader = subscribe(&url("reader:r"), &["news", "--count", "2"]);
    for text in ["one", "two"] {
        let (code, said) = run(&["pub", "-s", &url("writer:w"), "news", text]);
        assert_eq!(code, Some(0), "{said}");
    }
    let mut text = String::new();
    let mut out = reader.stdout.take().unwrap();
    out.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one\ntwo\n");
    let output = reader.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "", "the first line was read before");
    let (code, said) = run(&["sub", "-s", &url("reader:r"), "other"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("Permissions Violation") && said.contains("other"),
        "{said}"
    );
}

#[test]
fn empty_credentials_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (auth, pass) = (("TIDEGATE_AUTH", ""), ("TIDEGATE_PASS", ""));
    let none = ("TIDEGATE_NONE", "");
    let conf = |text: &str| file("a.conf", text);
    let password = conf("authorization { user: u, password: \"\" }");
    let token = file("b.conf", "authorization { token: '' }");
    let users = file(
        "c.conf",
        "authorization { users: [{user: u, password: ''}] }",
    );
    let toml = file("d.toml", "[authorization]\ntoken = \"\"\n");
    let cases: &[(&[&str], (&str, &str), &str)] = &[
        (
            &["--user", "u", "--pass", ""],
            none,
            "the password of the user `u` is empty",
        ),
        (
            &["--user", "", "--pass", "p"],
            none,
            "the name of a user is empty",
        ),
        (&["--auth", ""], none, "the token is empty"),
        (
            &["--user", "u"],
            pass,
            "the password of the user `u` is empty",
        ),
        (&[], auth, "the token is empty"),
        (
            &["-c", &password],
            none,
            "line 1: `authorization.password` is empty",
        ),
        (
            &["-c", &token],
            none,
            "line 1: `authorization.token` is empty",
        ),
        (&["-c", &users], none, "line 1: `users.password` is empty"),
        (
            &["-c", &toml],
            none,
            "line 2: `authorization.token` is empty",
        ),
    ];
    for host in ["127.0.0.1", "0.0.0.0"] {
        for (args, (name, value), part) in cases {
            let mut all = vec!["serve", "-t", "-a", host];
            all.extend_from_slice(args);
            let output = tidegate(&all).env(name, value).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{all:?} {name}: {said}");
            assert!(said.contains(part), "{all:?} {name}: {said}");
            assert_eq!(said.trim_end().lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn credentials_that_the_network_can_read_have_a_warning() {
    let warnings = |args: &[&str]| {
        let start = Serve::start(args).start.clone();
        start.matches("passwords and tokens without TLS").count()
    };
    assert_eq!(warnings(&["-a", "0.0.0.0", "--auth", "t"]), 1);
    assert_eq!(warnings(&["--auth", "t"]), 0);
    assert_eq!(warnings(&["-a", "0.0.0.0", "--insecure"]), 0);
}

#[test]
fn failed_logins_are_logged_at_a_limited_rate() {
    let serve = Serve::start(&["--auth", "right"]);
    let address = serve.url.trim_start_matches("nats://").to_owned();
    for _ in 0..40 {
        let mut client = TcpStream::connect(&address).unwrap();
        client
            .write_all(b"CONNECT {\"auth_token\":\"wrong\"}\r\n")
            .unwrap();
        let mut said = String::new();
        // A reset instead of an orderly end of the connection is also fine.
        let _ = client.read_to_string(&mut said);
    }
    serve.signal(Signal::TERM);
    let (rest, _) = serve.end();
    let lines = rest
        .matches("a login failed: Authentication Failure")
        .count();
    assert!((1..40).contains(&lines), "{rest}");
}

#[test]
fn credentials_monitor_and_signals() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("a.conf");
    let pid = directory.path().join("pid");
    std::fs::write(
        &config,
        "authorization { token: one }\nlame_duck_grace_period: 0.1\nlame_duck_duration: 0.2",
    )
    .unwrap();
    let mut serve = Serve::start(&[
        "-m",
        "-1",
        "-c",
        config.to_str().unwrap(),
        "-P",
        pid.to_str().unwrap(),
    ]);
    assert_eq!(
        std::fs::read_to_string(&pid).unwrap(),
        serve.child.id().to_string()
    );
    let publish = |serve: &Serve, token: &str| {
        run(&[
            "pub",
            "-s",
            &format!("nats://{token}@{}", serve.url),
            "a",
            "b",
        ])
        .0
    };
    assert_eq!(
        (publish(&serve, "one"), publish(&serve, "two")),
        (Some(0), Some(1))
    );
    let mut http = TcpStream::connect(serve.http.as_ref().unwrap()).unwrap();
    http.set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    http.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    http.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("{\"status\":\"ok\"}"), "{answer}");
    // A reload with a mistake must change nothing, and a correct reload must take effect.
    std::fs::write(&config, "authorization { tokn: two }").unwrap();
    serve.signal(Signal::HUP);
    serve.log_until("the server keeps its old configuration");
    assert_eq!(publish(&serve, "one"), Some(0));
    std::fs::write(
        &config,
        "authorization { token: two }\nlame_duck_grace_period: 0.1\nlame_duck_duration: 0.2",
    )
    .unwrap();
    serve.signal(Signal::HUP);
    serve.log_until("Reloaded server configuration");
    assert_eq!(
        (publish(&serve, "one"), publish(&serve, "two")),
        (Some(1), Some(0))
    );
    serve.signal(Signal::USR2);
    let (log, code) = serve.end();
    assert!(
        log.contains("lame duck mode") && code == Some(0),
        "{log} {code:?}"
    );
    assert!(!pid.exists());
}

#[test]
fn a_data_directory_has_one_server_and_nats_servers_flags_name_it() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let mut first = Serve::start(&["-js", "-sd", data]);
    let (was, said) = run(&["serve", "-p", "-1", "--data", data]);
    assert_eq!(was, Some(1), "{said}");
    assert!(said.contains("in use"), "{said}");
    first.signal(Signal::TERM);
    first.log_until("Server Exiting");
    assert!(first.child.wait().unwrap().success());
    let second = Serve::start(&["--data", data]);
    drop(second);
}

#[test]
fn a_log_file_that_was_renamed_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let [log, old] = ["log", "log.1"].map(|name| directory.path().join(name));
    let mut child = tidegate(&["serve", "-p", "-1", "--no-streams", "-l"])
        .arg(&log)
        .spawn()
        .unwrap();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    let wait = |path: &Path, mark: &str| {
        let start = Instant::now();
        while !read(path).contains(mark) {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", read(path));
            std::thread::yield_now();
        }
    };
    wait(&log, "Server is ready");
    std::fs::rename(&log, &old).unwrap();
    let signal = |name: &str| {
        let (code, said) = run(&["serve", "--signal", &format!("{name}={}", child.id())]);
        assert_eq!(code, Some(0), "{said}");
    };
    signal("reopen");
    wait(&log, "opened its log file again");
    signal("quit");
    assert!(child.wait().unwrap().success());
    assert!(read(&log).contains("Server Exiting"));
    assert!(!read(&old).contains("Server Exiting"));
}

#[test]
fn a_link_named_nats_server_takes_nats_servers_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let link = directory.path().join("nats-server");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tidegate"), &link).unwrap();
    let nats_server = |args: &[&str]| {
        let output = Command::new(&link).args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            text + &String::from_utf8_lossy(&output.stdout),
        )
    };
    let (code, said) = nats_server(&["-v"]);
    assert!(code == Some(0) && said.starts_with("tidegate "), "{said}");
    // Under this name the server listens on every address, so it needs credentials.
    let (code, said) = nats_server(&["-p", "-1"]);
    assert!(code == Some(2) && said.contains("0.0.0.0"), "{said}");
    let (code, said) = nats_server(&["--signal", "ldm"]);
    assert!(
        code == Some(2) && said.contains("SIGNAL=PID or SIGNAL=FILE"),
        "{said}"
    );
    let [pid, data] = ["pid", "data"].map(|name| directory.path().join(name));
    let [pid, data] = [&pid, &data].map(|path| path.to_str().unwrap());
    let mut served = Command::new(&link)
        .args([
            "-DV", "-p", "-1", "--auth", "secret", "-P", pid, "-js", "-sd", data,
        ])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(served.stderr.take().unwrap());
    let mut seen = String::new();
    while !seen.contains("Server is ready") {
        assert!(log.read_line(&mut seen).unwrap() > 0, "{seen}");
    }
    assert!(seen.contains("-V has no effect"), "{seen}");
    assert!(Path::new(data).exists());
    let (code, said) = nats_server(&[&format!("-sl=term={pid}")]);
    assert_eq!(code, Some(0), "{said}");
    assert!(served.wait().unwrap().success());
}

#[test]
fn streams_of_nats_server_that_stay_unread_have_a_warning() {
    let directory = tempfile::tempdir().unwrap();
    let streams = directory.path().join("jetstream/$G/streams/ORDERS");
    std::fs::create_dir_all(streams).unwrap();
    let data = directory.path().to_str().unwrap();
    let warnings = || {
        let start = Serve::start(&["--data", data]).start.clone();
        let all = start.lines();
        all.filter(|line| line.contains("ORDERS") && line.contains("docs/from-nats-server.md"))
            .count()
    };
    // The second start finds streams of its own.
    assert_eq!((warnings(), warnings()), (1, 0));
}
