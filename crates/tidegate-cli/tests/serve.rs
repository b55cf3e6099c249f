//! Tests of `tidegate serve`, `pub` and `sub` as programs: their output, their errors and their reactions to
//! signals.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

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
    /// The log of the server up to "Server is ready".
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
        // The process may have ended already.
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
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["serve", "-a", "0.0.0.0"],
            2,
            "can be reached from other machines",
        ),
        (&["serve", "-p", "70000"], 2, "give a port"),
        (
            &["serve", "-c", "/nonexistent/x.conf"],
            1,
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
            1,
            "cannot read certificates",
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
        (&["pub", "-s", "127.0.0.1:1", "a", "b"], 1, "cannot connect"),
        (&["pub", "a.*", "b"], 2, "not a subject"),
        (&["pub", "a"], 2, "required"),
        (&["sub", "a..b"], 2, "not a subject or pattern"),
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
