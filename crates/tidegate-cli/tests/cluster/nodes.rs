//! The nodes of a cluster under test, each a process of its own. Tests start, kill, pause and restart the
//! nodes. If a test fails, it prints the nodes' logs.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::raw::{PATIENCE, Raw};

/// The longest wait for one answer, after which the caller asks again.
const ATTEMPT: Duration = Duration::from_secs(3);

/// Calls `look` again and again until it succeeds, because no event tells the test that it would.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(e) => assert!(start.elapsed() < 2 * PATIENCE, "{what}: {e}"),
        }
        // The pause between two calls, in which the nodes can work.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// The addresses and the settings with which a test starts a node.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: String,
    pub(crate) host: String,
    /// The ports of the node for clients, for HTTP and for the other nodes.
    pub(crate) ports: [u16; 3],
    /// The command under which the node's program runs, for example in a network namespace.
    pub(crate) under: Vec<String>,
    /// The credentials that the nodes prove to each other, as in a URL: `USER:PASSWORD@`.
    pub(crate) credentials: String,
    /// The data directory of the node, if it does not lie beside those of the other nodes.
    pub(crate) data: Option<PathBuf>,
    /// The path of a nats-server that runs in place of our own server.
    pub(crate) server: Option<PathBuf>,
    /// Further flags of the node's program.
    pub(crate) flags: Vec<String>,
}

impl Place {
    /// Returns the addresses of a node on this machine.
    pub(crate) fn here(node: usize) -> Self {
        Self {
            name: format!("n{}", node + 1),
            host: "127.0.0.1".into(),
            ports: [(); 3].map(|()| free_port()),
            under: Vec::new(),
            credentials: String::new(),
            data: None,
            server: other(),
            flags: Vec::new(),
        }
    }

    /// Returns the address that other nodes dial.
    fn route(&self) -> String {
        format!("{}{}:{}", self.credentials, self.host, self.ports[2])
    }
}

struct Node {
    place: Place,
    data: PathBuf,
    child: Option<Child>,
    paused: Cell<bool>,
    log: Arc<Mutex<VecDeque<String>>>,
}

/// The nodes of a cluster under test, with their processes and logs.
pub(crate) struct Nodes {
    nodes: Vec<Node>,
    _directory: TempDir,
}

impl Nodes {
    /// Starts this many nodes on this machine and waits until they form a cluster.
    pub(crate) fn start(count: usize) -> Self {
        Self::start_at((0..count).map(Place::here).collect())
    }

    /// Starts nodes with these addresses and settings, and waits until they form a cluster.
    pub(crate) fn start_at(places: Vec<Place>) -> Self {
        let mut nodes = Self::at(places);
        for node in 0..nodes.len() {
            nodes.spawn(node);
        }
        nodes.wait_serving();
        nodes
    }

    /// Prepares nodes with these addresses and settings, and does not start them.
    pub(crate) fn at(places: Vec<Place>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let node = |place: Place| Node {
            data: (place.data.clone()).unwrap_or_else(|| directory.path().join(&place.name)),
            place,
            child: None,
            paused: Cell::new(false),
            log: Arc::default(),
        };
        Self {
            nodes: places.into_iter().map(node).collect(),
            _directory: directory,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node, and does not start it. The running nodes do not know it.
    pub(crate) fn add(&mut self, place: Place) -> usize {
        let data = place.data.clone().unwrap();
        self.nodes.push(Node {
            data,
            place,
            child: None,
            paused: Cell::new(false),
            log: Arc::default(),
        });
        self.len() - 1
    }

    /// Returns the address `host:port` of a node for clients.
    pub(crate) fn url(&self, node: usize) -> String {
        let place = &self.nodes[node].place;
        format!("{}:{}", place.host, place.ports[0])
    }

    /// Returns the JSON that the node's HTTP monitor answers for `path`.
    pub(crate) fn monitor(&self, node: usize, path: &str) -> Result<Value, String> {
        let place = &self.nodes[node].place;
        let get = || {
            let mut http = TcpStream::connect((place.host.as_str(), place.ports[1]))?;
            http.set_read_timeout(Some(ATTEMPT))?;
            write!(http, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
            let mut answer = String::new();
            http.read_to_string(&mut answer)?;
            Ok(answer)
        };
        let answer = get().map_err(|e: std::io::Error| e.to_string())?;
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
        serde_json::from_str(body.unwrap_or_default()).map_err(|e| format!("{answer}: {e}"))
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        (0..self.len()).map(|node| self.url(node)).collect()
    }

    /// Returns the process id of a running node.
    pub(crate) fn pid(&self, node: usize) -> u32 {
        self.nodes[node].child.as_ref().unwrap().id()
    }

    /// Returns the JSON that the node's monitor answers for `/varz`.
    pub(crate) fn varz(&self, node: usize) -> Value {
        self.monitor(node, "/varz").unwrap()
    }

    /// Returns an error with the reason if the node still lacks data that the other nodes have.
    pub(crate) fn health(&self, node: usize) -> Result<(), String> {
        let health = self.monitor(node, "/healthz")?;
        match health["status"] == json!("ok") {
            true => Ok(()),
            false => Err(health.to_string()),
        }
    }

    /// Waits until a node reports that it has all data that the other nodes have.
    pub(crate) fn wait_healthy(&self, node: usize) {
        self.until("a node to be healthy", || self.health(node));
    }

    /// Returns those of the node's last log lines that contain `what`, oldest first.
    pub(crate) fn said(&self, node: usize, what: &str) -> Vec<String> {
        let lines = self.nodes[node].log.lock().unwrap();
        lines.iter().filter(|l| l.contains(what)).cloned().collect()
    }

    pub(crate) fn name(&self, node: usize) -> &str {
        &self.nodes[node].place.name
    }

    /// Starts a stopped node, and does not wait until it is ready.
    pub(crate) fn spawn(&mut self, node: usize) {
        self.spawn_with(node, &[]);
    }

    /// Starts a stopped node with further flags.
    pub(crate) fn spawn_with(&mut self, node: usize, flags: &[&str]) {
        let route = |node: &Node| format!("nats-route://{}", node.place.route());
        let routes: Vec<_> = self.nodes.iter().map(route).collect();
        let node = &mut self.nodes[node];
        assert!(node.child.is_none(), "{} runs", node.place.name);
        let mut command = command(&node.place, &node.data, &routes.join(","));
        command.args(flags);
        let mut child = command.spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        node.child = Some(child);
        let keep = Arc::clone(&node.log);
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                let mut kept = keep.lock().unwrap();
                if kept.len() == 50 {
                    kept.pop_front();
                }
                kept.push_back(line);
            }
        });
    }

    /// Kills a node and removes it from the list, of which it must be the last.
    pub(crate) fn remove(&mut self, node: usize) {
        self.kill(node);
        self.nodes.remove(node);
    }

    /// Returns the node's data directory.
    pub(crate) fn data(&self, node: usize) -> &Path {
        &self.nodes[node].data
    }

    /// Waits until a started node either has ended with an error of one line, or leads the stream and has all
    /// its messages. Returns the error line, if any.
    pub(crate) fn wait_refused(&mut self, node: usize, stream: &str) -> Option<String> {
        let mut child = self.nodes[node].child.take().unwrap();
        let status = self.until("the program to end or to lead", || {
            match child.try_wait().unwrap() {
                Some(status) => Ok(Some(status)),
                None => {
                    ask(
                        &self.url(node),
                        &format!("STREAM.INFO.{stream}"),
                        &json!({}),
                    )?;
                    self.look_current(stream)?;
                    let info = self.ask(&format!("STREAM.INFO.{stream}"), &json!({}))?;
                    let leader = &info["cluster"]["leader"];
                    if leader == self.name(node) {
                        return Ok(None);
                    }
                    let preferred = json!({"placement": {"preferred": self.name(node)}});
                    self.ask(&format!("STREAM.LEADER.STEPDOWN.{stream}"), &preferred)?;
                    Err(format!("{leader} leads"))
                }
            }
        });
        let Some(status) = status else {
            self.nodes[node].child = Some(child);
            return None;
        };
        assert_eq!(status.code(), Some(1), "{status}:\n{}", self.logs());
        let log = &self.nodes[node].log;
        Some(until("its last words", || {
            let mut lines = log.lock().unwrap();
            let told = |line: &&String| line.starts_with("tidegate: ");
            let last: Vec<_> = lines.iter().rev().take_while(told).collect();
            match last[..] {
                // The test takes the line out of the log, so that it cannot mistake it for a line of the next
                // start.
                [_] => Ok(lines.pop_back().unwrap()),
                _ => Err(format!("{last:?}")),
            }
        }))
    }

    /// Kills a node without a chance to clean up, as a crash would.
    pub(crate) fn kill(&mut self, node: usize) {
        if let Some(mut child) = self.nodes[node].child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Deletes all data of a stopped node, as the loss of its disk would.
    pub(crate) fn lose_disk(&self, node: usize) {
        assert!(self.nodes[node].child.is_none(), "it runs");
        std::fs::remove_dir_all(&self.nodes[node].data).unwrap();
    }

    /// Asks a node to end in order by SIGTERM, and waits for its end.
    pub(crate) fn end(&mut self, node: usize) {
        self.signal(node, Signal::TERM);
        let mut child = self.nodes[node].child.take().unwrap();
        let ended = child.wait().unwrap();
        assert!(ended.success(), "{ended:?}:\n{}", self.logs());
    }

    pub(crate) fn pause(&self, node: usize) {
        self.signal(node, Signal::STOP);
        self.nodes[node].paused.set(true);
    }

    pub(crate) fn resume(&self, node: usize) {
        self.signal(node, Signal::CONT);
        self.nodes[node].paused.set(false);
    }

    fn signal(&self, node: usize, signal: Signal) {
        let child = self.nodes[node].child.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits until each running node can create and remove a stream.
    pub(crate) fn wait_serving(&mut self) {
        for node in 0..self.len() {
            let replicas = self.len();
            if let Some(child) = &mut self.nodes[node].child {
                let ended = child.try_wait().unwrap();
                assert!(ended.is_none(), "{ended:?}:\n{}", self.logs());
            } else {
                continue;
            }
            let url = self.url(node);
            self.until("to serve streams", || {
                let config =
                    json!({"name": "FORMED", "subjects": ["formed"], "num_replicas": replicas});
                ask(&url, "STREAM.CREATE.FORMED", &config)?;
                ask(&url, "STREAM.DELETE.FORMED", &json!({}))
            });
        }
    }

    /// Calls [`until`], and adds the nodes' logs to the error if it fails.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &str, mut look: impl FnMut() -> Result<T, String>) -> T {
        until(what, || look().map_err(|e| format!("{e}\n{}", self.logs())))
    }

    /// Sends a request to the nodes, one after the other, until one of them answers it.
    pub(crate) fn ask(&self, what: &str, body: &Value) -> Result<Value, String> {
        let mut failure = String::new();
        let answers = |node: &Node| node.child.is_some() && !node.paused.get();
        for node in (0..self.len()).filter(|node| answers(&self.nodes[*node])) {
            match ask(&self.url(node), what, body) {
                Ok(answer) => return Ok(answer),
                Err(e) => failure = format!("{}: {e}", self.name(node)),
            }
        }
        Err(failure)
    }

    /// Creates a stream with a replica on each node.
    pub(crate) fn add_stream(&self, name: &str, subjects: &str) {
        let config = json!({"name": name, "subjects": [subjects], "num_replicas": self.len()});
        self.until("a stream to be made", || {
            self.ask(&format!("STREAM.CREATE.{name}"), &config)
        });
    }

    pub(crate) fn remove_stream(&self, name: &str) {
        self.until("a stream to be removed", || {
            self.ask(&format!("STREAM.DELETE.{name}"), &json!({}))
        });
    }

    /// Returns the info of a stream. Waits until the stream has a leader.
    pub(crate) fn info(&self, stream: &str) -> Value {
        self.until("somebody to lead", || {
            let info = self.ask(&format!("STREAM.INFO.{stream}"), &json!({}))?;
            let led = info["cluster"]["leader"]
                .as_str()
                .is_some_and(|name| !name.is_empty());
            if led { Ok(info) } else { Err(info.to_string()) }
        })
    }

    /// Returns the index of the node that leads a stream.
    pub(crate) fn leader(&self, stream: &str) -> usize {
        let info = self.info(stream);
        let name = info["cluster"]["leader"].as_str().unwrap_or_default();
        let found = (0..self.len()).find(|node| self.name(*node) == name);
        found.unwrap_or_else(|| panic!("{info}"))
    }

    /// Waits until every replica of a stream has all that the stream's leader has.
    pub(crate) fn wait_current(&self, stream: &str) {
        self.until("every replica to be current", || self.look_current(stream));
    }

    fn look_current(&self, stream: &str) -> Result<(), String> {
        let info = self.ask(&format!("STREAM.INFO.{stream}"), &json!({}))?;
        let replicas = info["cluster"]["replicas"].as_array();
        let current = replicas.is_some_and(|all| {
            let good =
                |r: &Value| r["current"] == json!(true) && r["lag"].as_u64().unwrap_or(0) == 0;
            all.len() + 1 == self.len() && all.iter().all(good)
        });
        if current {
            Ok(())
        } else {
            Err(info["cluster"].to_string())
        }
    }

    /// Makes a node the leader of a stream. nats-server takes the preferred leader from the request. Our
    /// server hands the leadership to the follower with the most entries, so the test pauses the third node
    /// until then.
    pub(crate) fn lead(&self, stream: &str, node: usize) {
        let preferred = json!({"placement": {"preferred": self.name(node)}});
        let mut paused = None;
        self.until("the lead to move", || {
            let leader = self.leader(stream);
            if leader == node {
                return Ok(());
            }
            let answer = self.ask(&format!("STREAM.LEADER.STEPDOWN.{stream}"), &preferred);
            let third = (0..self.len()).find(|third| ![leader, node].contains(third));
            if let (None, Some(third), Ok(_), None) = (paused, third, &answer, other()) {
                self.pause(third);
                paused = Some(third);
            }
            Err(format!("{answer:?}"))
        });
        if let Some(third) = paused {
            self.resume(third);
        }
    }

    /// Returns the last log lines of every node, for the report of a failed test.
    pub(crate) fn logs(&self) -> String {
        let of = |node: &Node| {
            let lines: Vec<_> = node.log.lock().unwrap().iter().cloned().collect();
            let ended = node.child.as_ref().and_then(ended).unwrap_or_default();
            format!("{}:\n{}\n{ended}\n", node.place.name, lines.join("\n"))
        };
        self.nodes.iter().map(of).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for node in 0..self.len() {
            if let Some(mut child) = self.nodes[node].child.take() {
                // The process may have ended by itself, and then the kill fails without harm.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// Returns the exit status of a process if it has ended, and does not reap the process.
fn ended(child: &Child) -> Option<String> {
    let pid = Pid::from_raw(i32::try_from(child.id()).ok()?)?;
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).ok()??;
    let (code, signal) = (status.exit_status(), status.terminating_signal());
    Some(format!("it has ended: status {code:?}, signal {signal:?}"))
}

/// Sends a request to `$JS.API.<what>` at one node. Returns an error in the answer as an error.
pub(crate) fn ask(url: &str, what: &str, body: &Value) -> Result<Value, String> {
    let text = |e: std::io::Error| format!("{what}: {e}");
    let mut raw = Raw::connect_within(url, ATTEMPT).map_err(text)?;
    let subject = format!("$JS.API.{what}");
    raw.publish(&subject, "api", body.to_string().as_bytes())
        .map_err(text)?;
    let answer = raw.message().map_err(text)?;
    let value: Value = serde_json::from_slice(&answer.payload)
        .map_err(|_| format!("{what}: {}", String::from_utf8_lossy(&answer.payload)))?;
    if value.get("error").is_some() {
        return Err(format!("{what}: {}", value["error"]));
    }
    Ok(value)
}

fn command(place: &Place, data: &Path, routes: &str) -> Command {
    let Place { host, ports, .. } = place;
    let mut words = place.under.clone();
    match &place.server {
        None => {
            let program = env!("CARGO_BIN_EXE_tidegate");
            words.extend([program, "serve", "--insecure", "--data"].map(String::from));
        }
        Some(program) => {
            words.push(program.to_str().unwrap().into());
            words.extend(["-js", "-sd"].map(String::from));
        }
    }
    words.push(data.to_str().unwrap().into());
    let flags = [
        ("-a", host.clone()),
        ("-p", ports[0].to_string()),
        ("-m", ports[1].to_string()),
        ("--server_name", place.name.clone()),
        ("--cluster_name", "test".into()),
        ("--cluster", format!("nats://{}", place.route())),
        ("--routes", routes.into()),
    ];
    words.extend(
        flags
            .into_iter()
            .flat_map(|(flag, value)| [flag.into(), value]),
    );
    words.extend(place.flags.iter().cloned());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for variable in [
        "TIDEGATE_ADDR",
        "TIDEGATE_PORT",
        "TIDEGATE_CONFIG",
        "TIDEGATE_DATA",
    ] {
        command.env_remove(variable);
    }
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Returns the path of the nats-server that the tests run in place of our own server, from the environment.
pub(crate) fn other() -> Option<PathBuf> {
    std::env::var_os("STREAM_SERVER").map(PathBuf::from)
}

/// Returns a port on which no program listens, outside of the range that the system gives to outgoing
/// connections. So no connection can take the port of a stopped node.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // Test programs that run at the same time begin their search at different ports.
        let first = (std::process::id() % 400) as u16 * 50;
        let port = 10_000 + (first + n) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
