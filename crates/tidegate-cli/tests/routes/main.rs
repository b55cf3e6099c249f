//! Tests of three server processes that form one cluster: messages between the nodes, nodes that come and go,
//! and servers that do not belong to the cluster.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

#[path = "../cluster/certificates.rs"]
mod certificates;
mod tls;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

/// The longest time for which a test waits. Every step is faster, even while other tests keep the machine
/// busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns ports that are free now, below the range that the system gives to outgoing connections. So a node
/// finds its own port free when it starts again.
fn ports<const N: usize>() -> [u16; N] {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 20_000).unwrap();
    [(); N].map(|()| {
        loop {
            let port = 10_000 + (first + GIVEN.fetch_add(1, Ordering::Relaxed)) % 20_000;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return port;
            }
        }
    })
}

/// A server under test; a thread reads its log line by line.
struct Node {
    child: Child,
    log: Receiver<String>,
    seen: String,
    /// The address to which clients connect.
    url: String,
    http: String,
}

impl Node {
    /// Starts the node `name` of the cluster `tide`. The node listens on the first of `ports`, and has routes
    /// to all of them.
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
        if !more.contains(&"--cluster-name") {
            command.args(["--cluster-name", "tide"]);
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
        let (sender, log) = sync_channel(1 << 16);
        std::thread::spawn(move || {
            // The thread reads the log to its end. Otherwise the server would block on the full pipe.
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

    /// Waits until a log line behind the last found one contains `mark`.
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

    fn get_json(&self, path: &str) -> serde_json::Value {
        let text = self.get(path);
        let (_, body) = text.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
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
        // The process may have ended already, and then the kill fails without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts three nodes that know each other's routes; each lists its own route first.
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
    for (i, node) in nodes.iter_mut().enumerate() {
        for j in (0..3).filter(|j| *j != i) {
            node.wait_for(&format!("the route connection to `n{}` at", j + 1));
        }
    }
}

/// A NATS client over a plain socket.
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
    /// True if the message is the status that no client listens on the subject.
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

    /// Reads the next message that the server delivers to this client.
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

    /// Publishes `ready` again and again until a listener receives it, exactly once.
    fn reach(&mut self, subject: &str) {
        let until = Instant::now() + PATIENCE;
        while self.is_unheard(subject, "ready") {
            assert!(Instant::now() < until, "nobody listens at {subject}");
            std::thread::yield_now();
        }
    }

    /// Publishes a message with a reply subject. Returns whether the answer says that no client listens on
    /// the subject.
    fn is_unheard(&mut self, subject: &str, payload: &str) -> bool {
        let len = payload.len();
        self.send(&format!(
            "PUB {subject} _INBOX.reach {len}\r\n{payload}\r\nPING\r\n"
        ));
        let mut unheard = false;
        loop {
            match self.line() {
                line if line == "PONG" => return unheard,
                line => unheard |= line.starts_with("NATS/1.0 503"),
            }
        }
    }
}

#[test]
fn messages_reach_subscribers_at_other_nodes() {
    let ([n1, n2, n3], _) = three(&[]);
    let (mut a, mut b, mut c) = (
        Client::connect(&n1),
        Client::connect(&n2),
        Client::connect(&n3),
    );
    for (client, own) in [(&a, &n1), (&b, &n2), (&c, &n3)] {
        assert!(
            client.info.contains("\"cluster\":\"tide\""),
            "{}",
            client.info
        );
        for node in [&n1, &n2, &n3] {
            assert!(
                client.info.contains(&node.url),
                "{} of {}",
                client.info,
                own.url
            );
        }
    }
    // Two patterns of one node and one pattern of another match the subject: each subscription must get each
    // message once, in order.
    b.subscribe("news.* 1");
    b.subscribe("news.> 2");
    c.subscribe("news.now 3");
    c.subscribe("only.c 5");
    for subject in ["news.now", "news.*.x"] {
        a.reach(&subject.replace('*', "y"));
    }
    let ready = |m: &Message| m.payload == "ready";
    let mut first = [b.message(), b.message(), b.message()];
    first.sort_by(|x, y| (&x.subject, &x.sid).cmp(&(&y.subject, &y.sid)));
    assert!(first.iter().all(ready), "{first:?}");
    let sids: Vec<&str> = first.iter().map(|m| m.sid.as_str()).collect();
    assert_eq!(sids, ["1", "2", "2"]);
    a.reach("only.c");
    // The test sends these messages only after every node knows every subscription.
    let text = "x".repeat(1000);
    for i in 0..2000 {
        a.publish("news.now", &format!("{i} {text}"));
    }
    let mut next = std::collections::HashMap::new();
    let mut expect = |m: Message| {
        if ready(&m) {
            return false;
        }
        let i: u32 = m.payload.split(' ').next().unwrap().parse().unwrap();
        let next = next.entry(m.sid).or_insert(0);
        assert_eq!((i, m.payload.len() > 1000), (*next, true));
        *next += 1;
        true
    };
    let mut left = 4000;
    while left > 0 {
        left -= u32::from(expect(b.message()));
    }
    let mut left = 2000;
    while left > 0 {
        left -= u32::from(expect(c.message()));
    }
    // The publisher's own node delivers the message once: no node forwards it, and no copy comes back.
    a.subscribe("news.now 4");
    a.subscribe("only.a 6");
    b.reach("only.a");
    assert_eq!(a.message().payload, "ready");
    a.publish("news.now", "end");
    while b.message().payload != "end" {}
    b.publish("only.a", "after");
    assert_eq!(
        (a.message().payload, a.message().payload),
        ("end".into(), "after".into())
    );
    let routes = n1.get_json("/routez");
    assert_eq!(routes["num_routes"], 2, "{routes}");
    let varz = n1.get_json("/varz");
    assert_eq!(
        (&varz["routes"], &varz["cluster"]["name"]),
        (&2.into(), &"tide".into())
    );
    assert!(n1.get("/metrics").contains("tidegate_routes 2"));
}

#[test]
fn queue_groups_and_requests_across_nodes() {
    let ([n1, n2, n3], _) = three(&[]);
    let (mut a, mut b, mut c) = (
        Client::connect(&n1),
        Client::connect(&n2),
        Client::connect(&n3),
    );
    assert!(a.is_unheard("work", "x"));
    for (client, end) in [(&mut b, "end.b 2"), (&mut c, "end.c 2")] {
        client.subscribe("work pool 1");
        client.subscribe(end);
    }
    a.reach("work");
    let (mut of_b, mut of_c) = (0, 0);
    // Node n1 knows both members of the queue group once each of them has got a message.
    for round in 0.. {
        assert!(round < 100_000, "one of the members is never chosen");
        assert!(!a.is_unheard("work", "x"));
        if round % 1000 != 999 {
            continue;
        }
        let stats = n1.get_json("/routez");
        let to = |name: &str| {
            let mut all = stats["routes"].as_array().unwrap().iter();
            let route = all.find(|r| r["remote_name"] == name).unwrap();
            route["out_msgs"].as_u64().unwrap()
        };
        if to("n2") > 0 && to("n3") > 0 {
            break;
        }
    }
    for i in 0..1000 {
        a.publish("work", &format!("m{i}"));
    }
    let mut seen = vec![false; 1000];
    // A member gets its end mark after all messages to it, so the count of its messages is complete then.
    for (client, count, end) in [(&mut b, &mut of_b, "end.b"), (&mut c, &mut of_c, "end.c")] {
        a.reach(end);
        loop {
            let m = client.message();
            if m.sid == "2" {
                break;
            }
            if let Some(i) = m.payload.strip_prefix('m') {
                let seen = &mut seen[i.parse::<usize>().unwrap()];
                assert!(!std::mem::replace(seen, true), "{i} twice");
                *count += 1;
            }
        }
    }
    assert!(seen.iter().all(|s| *s), "some reached nobody");
    assert!(of_b > 100 && of_c > 100, "{of_b} and {of_c} of 1000");
    // A member at the publisher's own node must also get its share of the messages.
    let mut local = Client::connect(&n1);
    local.subscribe("work pool 1");
    local.subscribe("end.local 2");
    for i in 0..300 {
        a.publish("work", &format!("here {i}"));
    }
    a.reach("end.local");
    let mut of_local = 0;
    while local.message().sid == "1" {
        of_local += 1;
    }
    assert!((30..200).contains(&of_local), "{of_local} of 300");
    // A request and its answer must pass through two nodes.
    c.subscribe("service 9");
    a.reach("service");
    a.send("PUB service _INBOX.a.1 3\r\nask\r\n");
    let asked = loop {
        let m = c.message();
        if m.payload == "ask" {
            break m;
        }
    };
    c.publish(&asked.reply.unwrap(), "answer");
    let answer = a.message();
    assert_eq!(
        (answer.subject.as_str(), answer.payload.as_str()),
        ("_INBOX.a.1", "answer")
    );
    drop(c);
    let until = Instant::now() + PATIENCE;
    while !a.is_unheard("service", "x") {
        assert!(
            Instant::now() < until,
            "the service is gone, and nobody notices"
        );
    }
}

#[test]
fn a_node_is_killed_and_comes_back() {
    let ([mut n1, mut n2, n3], ports) = three(&[]);
    let mut a = Client::connect(&n1);
    let mut b = Client::connect(&n2);
    b.subscribe("here 1");
    a.reach("here");
    n1.forget_log();
    let url = n2.url.clone();
    n2.kill();
    n1.wait_for("the route connection to `n2` at");
    let until = Instant::now() + PATIENCE;
    while !a.is_unheard("here", "x") || a.info.contains(&url) {
        assert!(Instant::now() < until, "{}", a.info);
    }
    let mut own = ports;
    own.rotate_left(1);
    let n2 = Node::start("n2", &own, &[]);
    let mut b = Client::connect(&n2);
    b.subscribe("here 1");
    a.reach("here");
    assert_eq!(b.message().payload, "ready");
    while !a.info.contains(&n2.url) {
        a.is_unheard("here", "x");
        assert!(Instant::now() < until + PATIENCE, "{}", a.info);
    }
    drop(n3);
}

#[test]
fn strangers_are_refused_with_the_reason() {
    let ports: [u16; 4] = ports();
    let mut n1 = Node::start("n1", &ports[..2], &["--cluster-secret", "tide-and-time"]);
    let at = |first: usize| [ports[first], ports[0]];
    let good = ["--cluster-secret", "tide-and-time"];
    let refused = |n1: &mut Node, mut other: Node, why: &str| {
        for node in [n1, &mut other] {
            node.wait_for(why);
            node.forget_log();
        }
    };
    let wrong = Node::start("n2", &at(1), &["--cluster-secret", "guess"]);
    refused(&mut n1, wrong, "the secrets differ");
    let ebb = Node::start("n2", &at(1), &["--cluster-name", "ebb", good[0], good[1]]);
    refused(&mut n1, ebb, "--cluster-name");
    let twin = Node::start("n1", &at(1), &good);
    refused(&mut n1, twin, "two servers are named `n1`");
    let mut n2 = Node::start("n2", &at(1), &good);
    n1.wait_for("the route connection to `n2` at");
    n2.wait_for("the route connection to `n1` at");
    let mut second = Node::start("n2", &at(2), &good);
    second.wait_for("`n2` is already connected from 127.0.0.1");
    n1.wait_for("`n2` is already connected from 127.0.0.1");
    // The node must drop a connection that speaks another protocol, and must keep its other connections.
    let mut stranger = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stranger.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
    let (mut a, mut b) = (Client::connect(&n1), Client::connect(&n2));
    b.subscribe("x 1");
    a.reach("x");
    assert_eq!(b.message().payload, "ready");
}

#[test]
fn a_node_names_missing_settings_before_it_starts() {
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "-t"]).args(args);
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let listen = ["--cluster", "nats://127.0.0.1:6222"];
    let routes = ["--routes", "nats-route://127.0.0.1:6223"];
    let said = run(&[&listen[..], &routes].concat());
    assert!(said.contains("--name"), "{said}");
    let said = run(&[&listen[..], &routes, &["-n", "n1"]].concat());
    assert!(said.contains("--cluster-name"), "{said}");
    let named = ["-n", "n1", "--cluster-name", "tide"];
    let said = run(&[&listen[..], &named].concat());
    assert!(said.contains("--routes"), "{said}");
    let said = run(&[&["--cluster", "nats://0.0.0.0:6222"][..], &routes, &named].concat());
    assert!(
        said.contains("--insecure") && said.contains("TIDEGATE_CLUSTER_SECRET"),
        "{said}"
    );
    // The error must name the flag for TLS, so that the operator can correct the command line.
    assert!(said.contains("--cluster-tlscert"), "{said}");
    let half = ["--cluster-tlscert", "n1.pem", "--cluster-tlskey", "n1.key"];
    let said = run(&[&listen[..], &routes, &named, &half].concat());
    assert!(said.contains("--cluster-tlscacert"), "{said}");
}

#[test]
fn members_are_fixed_once_and_a_wiped_node_is_not_one_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let data = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let ports: [u16; 3] = ports();
    let start = |i: usize| {
        let mut own = ports;
        own.rotate_left(i);
        let name = format!("n{}", i + 1);
        Node::start(&name, &own, &["--data", &data(&name)])
    };
    let mut nodes = [0, 1, 2].map(start);
    for node in &mut nodes {
        node.wait_for("the cluster `tide` is formed: n1, n2, n3");
    }
    let file =
        |name: &str| std::fs::read_to_string(Path::new(&data(name)).join("tidegate/members"));
    let members = |name: &str| {
        let text = file(name).unwrap();
        let lines = text.lines().filter(|l| l.starts_with("member "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(members("n1").len() == 3 && members("n1") == members("n3"));
    // A node that is started again must keep its identity.
    nodes[2].kill();
    nodes[0].forget_log();
    nodes[2] = start(2);
    nodes[0].wait_for("the route connection to `n3` at");
    nodes[2].wait_for("the route connection to `n1` at");
    // Without its data directory, the node must count as a different node.
    nodes[2].kill();
    nodes.iter_mut().for_each(Node::forget_log);
    std::fs::remove_dir_all(data("n3")).unwrap();
    nodes[2] = start(2);
    for node in &mut nodes {
        node.wait_for("`n3` comes with another data directory");
    }
}
