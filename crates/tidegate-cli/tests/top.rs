//! Tests of `tidegate top`: one picture of a real server, mistakes in one line, and the terminal under tmux.
//!
//! `TOP_TMUX=all` (`make top-tmux`) adds the slower steps: sizes, signals, and a server that ends.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
/// The time after which a picture that did not come fails a test.
const PATIENCE: Duration = Duration::from_secs(60);

fn tidegate(args: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null());
    for variable in ["TIDEGATE_MONITOR", "NATS_URL", "NO_COLOR"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// A server that has said that it is ready.
struct Server {
    child: Child,
    clients: String,
    monitor: String,
    data: TempDir,
}

impl Server {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        Self::start_at("-1", data)
    }

    fn start_at(monitor: &str, data: TempDir) -> Self {
        let mut command = Command::new(PROGRAM);
        command.args([
            "serve",
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
            "-m",
            monitor,
            "-n",
            "n1",
            "--data",
        ]);
        command.arg(data.path().join("data")).stdin(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains("Server is ready") {
            assert!(
                log.read_line(&mut seen).unwrap() > 0,
                "the server ended: {seen}"
            );
        }
        // The thread reads the log to its end. Otherwise the server would block on the full pipe.
        std::thread::spawn(move || log.lines().map_while(Result::ok).for_each(drop));
        let after = |mark: &str| {
            let (_, rest) = seen.split_once(mark).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        Self {
            clients: after("Listening for client connections on "),
            monitor: after("Starting http monitor on "),
            child,
            data,
        }
    }

    fn run(&self, args: &[&str]) {
        let output = tidegate(&[args, &["-s", &self.clients]].concat());
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// Kills the server, and returns its monitor's port and its data.
    fn end(mut self) -> (String, TempDir) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let (_, port) = self.monitor.rsplit_once(':').unwrap();
        let data = std::mem::replace(&mut self.data, tempfile::tempdir().unwrap());
        (port.to_owned(), data)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended already, and then the kill fails without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_picture_of_a_server() {
    let server = Server::start();
    server.run(&["stream", "add", "LINES", "--subjects", "lines.>"]);
    for text in ["a", "b", "c"] {
        server.run(&["pub", "lines.x", text]);
    }
    let url = server.monitor.as_str();
    let json = tidegate(&["top", url, "--once", "--json", "--interval", "100ms"]);
    let document: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(document["url"], format!("http://{url}"));
    assert_eq!(document["server"]["name"], "n1");
    assert_eq!(document["server"]["tidegate"], true);
    assert_eq!(document["ready"], true);
    assert_eq!(document["streams"]["messages"], 3.0);
    assert!(document["disk"]["free_bytes"].is_f64(), "{document:#}");
    assert!(document["threads_cores"].is_object(), "{document:#}");
    assert!(document["rates"]["seconds"].as_f64().unwrap() >= 0.1);
    assert!(document["rates"]["cpu_cores"].is_f64(), "{document:#}");
    assert_eq!(document["missing"], serde_json::json!([]));
    let boundaries = document["boundaries"].as_array().unwrap();
    let syncs = boundaries.iter().find(|b| b["name"] == "log_syncs");
    let items = syncs.and_then(|b| b["items"].as_u64());
    assert!(items.unwrap() >= 3, "{boundaries:#?}");
    let text = tidegate(&[
        "top",
        &format!("http://{url}/"),
        "--once",
        "--interval",
        "100ms",
    ]);
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "n1 ",
        "messages in",
        "publish to ack",
        "0 consumers; 3 messages",
        "log_syncs",
        "a batch costs",
    ] {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn mistakes_are_one_line() {
    let fails = |args: &[&str], code: i32, part: &str| {
        let output = tidegate(&[&["top"], args].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: no `{part}` in {said}");
        if code == 1 {
            assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        }
        assert!(output.stdout.is_empty());
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let free = listener.local_addr().unwrap().to_string();
    drop(listener);
    fails(
        &[&free, "--once"],
        1,
        "nothing listens there; start the server with `tidegate serve -m 8222`",
    );
    fails(&[&free], 2, "not a terminal: give --once");
    fails(&["https://h", "--once"], 2, "speaks HTTP without TLS");
    fails(&[&free, "--json"], 2, "--once");
    fails(
        &[&free, "--once", "--interval", "1ms"],
        2,
        "from 100ms to 1h",
    );
    let answering = |answer: &'static str| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let head = BufReader::new(stream.try_clone().unwrap()).lines();
                let _ = head.map_while(Result::ok).find(String::is_empty);
                // The client may be gone already.
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        address
    };
    let at = answering("INFO {\"server_id\":\"x\"} \r\n");
    fails(&[&at, "--once"], 1, "not the port of clients");
    let at = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\nnone");
    fails(&[&at, "--once"], 1, "is this the monitor of a server");
    let at = answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    fails(&[&at, "--once"], 1, "not that of a NATS server");
    let at = answering("HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"server");
    fails(&[&at, "--once"], 1, "the answer");
}

/// A tmux server of the test, with one window that runs a shell.
struct Tmux {
    directory: TempDir,
}

impl Tmux {
    /// Starts tmux with a window of this size; `None` if this machine has no tmux.
    fn start(columns: u16, rows: u16) -> Option<Self> {
        let found = Command::new("tmux").arg("-V").output();
        if !found.is_ok_and(|output| output.status.success()) {
            tidegate_testing::missing("tmux (make deps-system)");
            return None;
        }
        let tmux = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        tmux.run(&[
            "-f",
            "/dev/null",
            "new-session",
            "-d",
            "-x",
            &columns,
            "-y",
            &rows,
            "env PS1='% ' sh",
        ]);
        Some(tmux)
    }

    fn run(&self, args: &[&str]) -> String {
        let socket = self.directory.path().join("socket");
        let mut command = Command::new("tmux");
        command
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .env_remove("NO_COLOR");
        command.arg("-u").arg("-S").arg(socket).args(args);
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "tmux {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn press(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// Waits for a picture with all of these parts, and returns it.
    #[track_caller]
    fn shows(&self, parts: &[&str]) -> String {
        let start = Instant::now();
        loop {
            let pane = self.run(&["capture-pane", "-p"]);
            if parts.iter().all(|part| pane.contains(part)) {
                return pane;
            }
            assert!(start.elapsed() < PATIENCE, "no {parts:?} in\n{pane}");
            std::thread::yield_now();
        }
    }

    /// Returns whether the window shows the second screen, which full-screen programs take.
    fn is_taken(&self) -> bool {
        self.run(&["display-message", "-p", "#{alternate_on}"])
            .trim()
            == "1"
    }

    /// Waits until the program has ended, and the shell has its terminal again, with echo and the first
    /// screen.
    #[track_caller]
    fn restored(&self) {
        let start = Instant::now();
        loop {
            let pane = self.run(&["capture-pane", "-p"]);
            let last = pane.lines().rfind(|line| !line.trim().is_empty());
            if !self.is_taken() && last.is_some_and(|line| line.trim() == "%") {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "no prompt in\n{pane}");
            std::thread::yield_now();
        }
        let asks = "stty -a | tr ' ' '\\n' | grep -x -e -echo -e echo; echo code-$?";
        self.press(&[asks, "Enter"]);
        let pane = self.shows(&["code-0"]);
        assert!(pane.lines().any(|line| line == "echo"), "{pane}");
        self.press(&["clear", "Enter"]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn tmux_shows_the_views_and_gets_its_terminal_back() {
    let Some(tmux) = Tmux::start(100, 30) else {
        return;
    };
    let server = Server::start();
    server.run(&["stream", "add", "LINES", "--subjects", "lines.>"]);
    let program = Path::new(PROGRAM).display();
    let command = format!("{program} top {} --interval 100ms", server.monitor);
    tmux.press(&[&command, "Enter"]);
    tmux.shows(&["n1 ", "no alarms", "messages in", "log_syncs", "q end"]);
    assert!(tmux.is_taken());
    tmux.press(&["2"]);
    tmux.shows(&["boundary", "limit (line) and mean batch (dots)", "+/- time"]);
    tmux.press(&["Tab"]);
    tmux.shows(&["1 stream, by name", "LINES"]);
    tmux.press(&["?"]);
    tmux.shows(&["Keys", "enter"]);
    tmux.press(&["q"]);
    tmux.shows(&["1 stream, by name"]);
    tmux.press(&["q"]);
    tmux.restored();
    if std::env::var_os("TOP_TMUX").is_none() {
        return;
    }
    slower_steps(&tmux, server, &command);
}

/// Sizes, signals, and a server that ends while it is watched.
fn slower_steps(tmux: &Tmux, server: Server, command: &str) {
    let run = |server: &Server| {
        tmux.press(&[
            &format!("{PROGRAM} top {} --interval 100ms", server.monitor),
            "Enter",
        ]);
        tmux.shows(&["n1 ", "no alarms"]);
    };
    run(&server);
    for (columns, rows) in [("20", "5"), ("1", "1"), ("200", "60"), ("40", "10")] {
        tmux.run(&["resize-window", "-x", columns, "-y", rows]);
        match columns {
            "20" => tmux.shows(&["20x5 is too small"]),
            "1" => tmux.shows(&["\u{2026}"]),
            _ => tmux.shows(&["tidegate top", "messages in"]),
        };
    }
    tmux.run(&["resize-window", "-x", "100", "-y", "30"]);
    for signal in ["TERM", "INT"] {
        tmux.shows(&["messages in", "log_syncs"]);
        let pids = Command::new("pgrep")
            .args(["-f", "-x", command])
            .output()
            .unwrap();
        let pid = String::from_utf8(pids.stdout).unwrap();
        let ended = Command::new("kill")
            .args([&format!("-{signal}"), pid.trim()])
            .status();
        assert!(ended.unwrap().success());
        tmux.shows(&["tidegate: interrupted"]);
        tmux.restored();
        run(&server);
    }
    let (port, data) = server.end();
    tmux.shows(&[
        "no answer for",
        "nothing listens there; trying again",
        "messages in",
    ]);
    let server = Server::start_at(&port, data);
    tmux.shows(&["the server was started again"]);
    tmux.press(&["p"]);
    tmux.shows(&["paused for"]);
    drop(server);
    tmux.press(&["C-c"]);
    tmux.restored();
}
