//! Three servers as one cluster, in processes of their own: messages between them, nodes that come and go, and nodes that do not
//! belong.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longer than anything takes on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Ports that were free just now.
fn ports<const N: usize>() -> [u16; N] {
    let listeners: Vec<TcpListener> = (0..N)
        .map(|_| TcpListener::bind("127.0.0.1:0").unwrap())
        .collect();
    let ports = listeners.iter().map(|l| l.local_addr().unwrap().port());
    ports.collect::<Vec<_>>().try_into().unwrap()
}

/// A server, its log read line by line.
struct Node {
    child: Child,
    log: Receiver<String>,
    seen: String,
    /// Where clients connect.
    url: String,
    http: String,
}

impl Node {
    /// The node `name` of the cluster `tide` at the first of `ports`, with routes to all of them.
    fn start(name: &str, ports: &[u16], more: &[&str]) -> Self {
        let mut node = Self::spawn(name, ports, more);
        node.wait_for("Server is ready");
        let after = |mark: &str| {
            let (_, rest) = node.seen.split_once(mark).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        node.url = after("Listening for client connections on ");
        node.http = after("Starting http monitor on ");
        node
    }

    fn spawn(name: &str, ports: &[u16], more: &[&str]) -> Self {
        let routes: Vec<String> = ports
            .iter()
            .map(|p| format!("nats-route://127.0.0.1:{p}"))
            .collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let listen = format!("nats://127.0.0.1:{}", ports[0]);
        command.args([
            "serve",
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
            "-m",
            "-1",
            "-n",
            name,
        ]);
        command.args(["--cluster", &listen, "--routes", &routes.join(",")]);
        if !more.contains(&"--cluster_name") {
            command.args(["--cluster_name", "tide"]);
        }
        if !more.contains(&"--data") {
            command.arg("--no-streams");
        }
        command.args(more);
        for variable in ["ADDR", "PORT", "CONFIG", "DATA", "CLUSTER_SECRET"] {
            command.env_remove(format!("TIDEGATE_{variable}"));
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let reader = BufReader::new(child.stderr.take().unwrap());
        let (sender, log) = channel();
        std::thread::spawn(move || {
            // Read to its end, or it would block whoever writes it.
            for line in reader.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self {
            child,
            log,
            seen: String::new(),
            url: String::new(),
            http: String::new(),
        }
    }

    /// Waits until the log has said this since it was asked last.
    fn wait_for(&mut self, mark: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.seen.contains(mark) {
            let left = until.saturating_duration_since(Instant::now());
            match self.log.recv_timeout(left) {
                Ok(line) => self.seen = format!("{}{line}\n", self.seen),
                Err(e) => panic!("no `{mark}` in the log ({e}):\n{}", self.seen),
            }
        }
    }

    fn forget_log(&mut self) {
        while self.log.try_recv().is_ok() {}
        self.seen.clear();
    }

    fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.http).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }

    fn kill(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three nodes that know each other, each started with its own routes first.
fn three(more: &[&str]) -> ([Node; 3], [u16; 3]) {
    let ports: [u16; 3] = ports();
    let mut nodes = [0, 1, 2].map(|i| {
        let mut own = ports;
        own.rotate_left(i);
        Node::start(&format!("n{}", i + 1), &own, more)
    });
    connected(&mut nodes);
    (nodes, ports)
}

fn connected(nodes: &mut [Node; 3]) {
    for i in 0..3 {
        for j in (0..3).filter(|j| *j != i) {
            nodes[i].wait_for(&format!("the route to `n{}` at", j + 1));
        }
    }
}

/// A client of bare sockets.
struct Client {
    reader: BufReader<TcpStream>,
    socket: TcpStream,
    info: String,
}

#[derive(Debug, PartialEq, Eq)]
struct Message {
    subject: String,
    sid: String,
    reply: Option<String>,
    /// Nobody answered: a status.
    status: bool,
    payload: String,
}

impl Client {
    fn connect(node: &Node) -> Self {
        let socket = TcpStream::connect(&node.url).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut client = Self {
            reader: BufReader::new(socket.try_clone().unwrap()),
            socket,
            info: String::new(),
        };
        client.reader.read_line(&mut client.info).unwrap();
        let options = r#"{"verbose":false,"headers":true,"no_responders":true,"protocol":1}"#;
        client.send(&format!(
            "CONNECT {options}\r\nSUB _INBOX.> inbox\r\nPING\r\n"
        ));
        while client.line() != "PONG" {}
        client
    }

    fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).unwrap();
    }

    fn publish(&mut self, subject: &str, payload: &str) {
        self.send(&format!("PUB {subject} {}\r\n{payload}\r\n", payload.len()));
    }

    fn subscribe(&mut self, subject: &str) {
        self.send(&format!("SUB {subject}\r\nPING\r\n"));
        while self.line() != "PONG" {}
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.reader.read_line(&mut line).unwrap() > 0, "closed");
        let line = line.trim_end();
        assert!(!line.starts_with("-ERR"), "{line}");
        if line.starts_with("INFO") {
            self.info = line.to_owned();
        }
        line.to_owned()
    }

    /// The next message.
    fn message(&mut self) -> Message {
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let (headed, words) = match words.split_first() {
                Some((&"MSG", words)) => (false, words),
                Some((&"HMSG", words)) => (true, words),
                Some((&"PING", _)) => {
                    self.send("PONG\r\n");
                    continue;
                }
                _ => continue,
            };
            let sizes = if headed { 2 } else { 1 };
            let size: usize = words[words.len() - 1].parse().unwrap();
            let mut body = vec![0; size + 2];
            self.reader.read_exact(&mut body).unwrap();
            body.truncate(size);
            return Message {
                subject: words[0].into(),
                sid: words[1].into(),
                reply: (words.len() == 3 + sizes).then(|| words[2].into()),
                status: body.starts_with(b"NATS/1.0 503"),
                payload: String::from_utf8(body).unwrap(),
            };
        }
    }

    /// Asks until somebody is there who answers.
    fn reach(&mut self, subject: &str, by: &mut Client) {
        let until = Instant::now() + PATIENCE;
        loop {
            self.send(&format!("PUB {subject} _INBOX.reach 5\r\nready\r\n"));
            // Whoever listens hears it before the next round trip is over; whoever does not leads to a status.
            let by_request = format!("PUB {subject} _INBOX.reach 5\r\nready\r\n");
            debug_assert!(!by_request.is_empty());
            self.send("PING\r\n");
            let mut nobody = false;
            loop {
                let line = self.line();
                if line == "PONG" {
                    break;
                }
                nobody |= line.starts_with("NATS/1.0 503");
            }
            if !nobody {
                assert_eq!(by.message().payload, "ready");
                return;
            }
            assert!(Instant::now() < until, "nobody listens at {subject}");
            std::thread::yield_now();
        }
    }
}
