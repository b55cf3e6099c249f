//! Tests of the command `tidegate cluster`, which starts several nodes.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::nodes::{ask, other, until};

/// A running `tidegate cluster` on free ports; a thread reads its standard error to the end.
struct Cluster {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    errors: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
}

impl Cluster {
    fn start(data: &Path) -> Self {
        Self::start_with(data, &[])
    }

    fn start_with(data: &Path, more: &[&str]) -> Self {
        let mut child = command(data)
            .args([
                "--listen",
                "127.0.0.1:0",
                "--http-port",
                "0",
                "--cluster-port",
                "0",
            ])
            .args(more)
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let errors: Arc<Mutex<String>> = Arc::default();
        let keep = Arc::clone(&errors);
        let reading = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let mut text = keep.lock().unwrap();
                text.push_str(&line);
                text.push('\n');
            }
        });
        Self {
            child,
            output,
            errors,
            reading: Some(reading),
        }
    }

    /// Returns the command's standard error so far.
    fn said(&self) -> String {
        self.errors.lock().unwrap().clone()
    }

    /// Reads the URLs that the command prints once it is ready.
    fn urls(&mut self) -> Vec<String> {
        let mut urls = Vec::new();
        loop {
            let mut line = String::new();
            let n = self.output.read_line(&mut line).unwrap();
            assert!(n > 0, "it ended: {}", self.said());
            if line.starts_with("the cluster is ready: ") {
                return urls;
            }
            let url = line
                .split_whitespace()
                .find_map(|word| word.strip_prefix("nats://"));
            urls.push(url.unwrap_or_else(|| panic!("{line}")).to_owned());
        }
    }

    /// Asks the command to end; returns its exit status and its standard error.
    fn end(mut self) -> (ExitStatus, String) {
        signal(self.child.id(), Signal::TERM);
        let status = self.child.wait().unwrap();
        self.reading.take().unwrap().join().unwrap();
        (status, self.said())
    }

    fn nodes(&self) -> Vec<u32> {
        let pid = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let children = children.unwrap_or_default();
        children
            .split_whitespace()
            .map(|pid| pid.parse().unwrap())
            .collect()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // The nodes end by themselves once the command has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

fn command(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("cluster").arg("--data").arg(data);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn gone(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.is_empty() || stat.contains(") Z ")
}

#[test]
fn one_command_is_a_cluster() {
    if other().is_some() {
        println!("a command of our own, so not asked of nats-server");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start(directory.path());
    let urls = cluster.urls();
    assert_eq!(urls.len(), 3);
    let config = json!({"name": "S", "subjects": ["s"], "num_replicas": 3});
    ask(&urls[0], "STREAM.CREATE.S", &config).unwrap();
    // The test kills a node: the command must report its end, and the other nodes must continue.
    let nodes = cluster.nodes();
    assert_eq!(nodes.len(), 3);
    signal(nodes[2], Signal::KILL);
    until("the others to go on", || {
        ask(&urls[0], "STREAM.INFO.S", &json!({}))
    });
    until("the end to be told", || {
        let said = cluster.said();
        match said.contains("n3 was ended by signal 9; to have it back: ") {
            true => Ok(()),
            false => Err(said),
        }
    });
    let (status, said) = cluster.end();
    assert!(status.success(), "{status}: {said}");
    assert!(nodes.iter().all(|pid| gone(*pid)), "{nodes:?}");
    // The test starts the command again: the nodes must still have their streams.
    let mut cluster = Cluster::start_with(directory.path(), &["--log-format", "json"]);
    let urls = cluster.urls();
    until("the stream", || ask(&urls[1], "STREAM.INFO.S", &json!({})));
    for line in cluster.said().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        let node = object["node"].as_str().unwrap();
        assert!(["n1", "n2", "n3"].contains(&node), "{line}");
    }
    // The test kills the command itself: none of its nodes may continue to run.
    let nodes = cluster.nodes();
    signal(cluster.child.id(), Signal::KILL);
    until("its nodes to end", || {
        match nodes.iter().all(|pid| gone(*pid)) {
            true => Ok(()),
            false => Err(format!("{nodes:?}")),
        }
    });
}

/// Tests that the command continues while a node answers that the user has started again by hand.
#[test]
fn a_node_started_by_hand_keeps_the_command() {
    if other().is_some() {
        println!("a command of our own, so not asked of nats-server");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::start_with(directory.path(), &["--", "--auth", "s3cret"]);
    cluster.urls();
    let nodes = cluster.nodes();
    let errors = Arc::clone(&cluster.errors);
    let told = |text: &'static str| {
        until(text, || {
            let said = errors.lock().unwrap().clone();
            match said.contains(text) {
                true => Ok(said),
                false => Err(said),
            }
        })
    };
    told("clients need the token of --auth");
    signal(nodes[0], Signal::KILL);
    let said = told("n1 was ended by signal 9; to have it back, with the value of --auth");
    assert!(!said.contains("s3cret"), "{said}");
    let line = said.lines().find(|line| line.contains("n1 was ended"));
    let again = line.unwrap().split_once("TIDEGATE_AUTH: ").unwrap().1;
    let mut by_hand = Command::new("sh")
        .args(["-c", &format!("exec {again}")])
        .env("TIDEGATE_AUTH", "s3cret")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(by_hand.stderr.take().unwrap()).lines();
    assert!(log.any(|line| line.unwrap().contains("Server is ready")));
    let reading = std::thread::spawn(move || log.count());
    signal(nodes[1], Signal::KILL);
    signal(nodes[2], Signal::KILL);
    told("only nodes that were started by hand are left");
    by_hand.kill().unwrap();
    by_hand.wait().unwrap();
    reading.join().unwrap();
    let status = cluster.child.wait().unwrap();
    assert_eq!(status.code(), Some(1), "{}", cluster.said());
    told("every node has ended");
}

#[test]
fn flags_that_no_node_takes_are_refused_before_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let cases: &[(&[&str], &str)] = &[
        (
            &["--listen", "0.0.0.0:0"],
            "can be reached from other machines",
        ),
        (&["--listen", "127.0.0.1:65535"], "65535 is too high"),
        (
            &["--", "--nosuch"],
            "the flags after `--`: unexpected argument",
        ),
        (&["--", "-p", "1"], "the flags after `--`: the argument"),
        (
            &["--", "-c", "/nope"],
            "cannot read the configuration /nope",
        ),
    ];
    for (args, part) in cases {
        let ports = ["--http-port", "0", "--cluster-port", "0"];
        let listen = ["--listen", "127.0.0.1:0"];
        let listen = if args[0] == "--listen" {
            &[][..]
        } else {
            &listen
        };
        let output = command(&data)
            .args([&ports, listen, args].concat())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(part), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
    assert!(!data.exists());
}

#[test]
fn ports_that_are_taken_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap();
    let output = command(directory.path())
        .args([
            "--listen",
            &taken.to_string(),
            "--http-port",
            "0",
            "--cluster-port",
            "0",
        ])
        .output()
        .unwrap();
    drop(held);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("cannot listen on {taken} (clients of n1)")),
        "{text}"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}
