//! Plays conversations of several clients with a node, in virtual time, from text: the lines that each client
//! sends and receives.
//!
//! A file begins with a configuration in nats-server's syntax, closed by `---`. Then lines: `connect A`; `A>
//! line` sends it with its line end, `A>> text` without, with `\r`, `\n` escaped; `wait 2s`; `lame duck`;
//! `close A`; `deaf A` (the client reads no more). The effects of a line stand below it: `A< line`, `A
//! closed: why`. `TRANSCRIPTS=write` rewrites the effects; read the diff.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::connect::Info;
use tidegate_nats::session::CloseReason;
use tidegate_server::config::Settings;
use tidegate_server::config::apply;
use tidegate_server::config::{System, read_nats};
use tidegate_server::{ClientKey, Node};

struct World {
    node: Node,
    now: Time,
    /// The clients by name, each with the bytes that it has sent and the node has not used yet.
    clients: BTreeMap<String, Client>,
    out: String,
}

struct Client {
    key: ClientKey,
    input: Vec<u8>,
    deaf: bool,
}

const ANY: Load = Load::new(u64::MAX, u64::MAX);

impl World {
    fn new(settings: Settings) -> Self {
        let info = Info {
            server_id: "TEST".into(),
            max_payload: settings.sessions.max_payload,
            ..Info::default()
        };
        Self {
            node: Node::new(settings, info, 1),
            now: Time::from_nanos(1),
            clients: BTreeMap::new(),
            out: String::new(),
        }
    }

    fn act(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        if let Some((name, rest)) = line.split_once(">> ") {
            let text = rest.replace("\\r", "\r").replace("\\n", "\n");
            return self.send(name, text.as_bytes());
        }
        if let Some((name, rest)) = line.split_once("> ") {
            return self.send(name, format!("{rest}\r\n").as_bytes());
        }
        match words[..] {
            ["connect", name] => {
                let address = "127.0.0.1:1".parse().unwrap();
                let key = self.node.handle_accepted(self.now, address, false, true);
                let client = Client {
                    key,
                    input: Vec::new(),
                    deaf: false,
                };
                self.clients.insert(name.into(), client);
            }
            ["close", name] => {
                let key = self.clients[name].key;
                self.node
                    .handle_closed(self.now, key, CloseReason::ClientClosed);
            }
            ["deaf", name] => self.clients.get_mut(name).unwrap().deaf = true,
            ["wait", time] => {
                let seconds: f64 = time.trim_end_matches('s').parse().unwrap();
                let end = self.now + Duration::from_secs_f64(seconds);
                // The test handles each deadline on the way at its time, as a driver would.
                while let Some(at) = self.node.deadline().filter(|at| *at <= end) {
                    self.now = at.max(self.now);
                    self.node.handle_timeouts(self.now);
                    self.settle();
                }
                self.now = end;
            }
            ["lame", "duck"] => self.node.lame_duck(self.now),
            _ => panic!("what is `{line}`?"),
        }
    }

    /// Sends bytes as this client; does nothing if the connection is closed.
    fn send(&mut self, name: &str, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(name) {
            client.input.extend_from_slice(bytes);
            self.receive(name);
        }
    }

    fn receive(&mut self, name: &str) {
        let client = self.clients.get_mut(name).unwrap();
        if self.node.contains(client.key) {
            let received = self
                .node
                .handle_received(self.now, client.key, &client.input, ANY);
            client.input.drain(..received.used);
        }
    }

    /// Does all work that the node asks for, and writes down the effects that clients see.
    fn settle(&mut self) {
        let mut seen: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        loop {
            self.node.check_invariants();
            let mut quiet = true;
            while let Some(v) = self.node.poll_verify() {
                self.node
                    .handle_verified(self.now, v.key, v.cid, v.password == "right");
                quiet = false;
            }
            while let Some(key) = self.node.poll_resumed() {
                let name = self.name(key);
                self.receive(&name);
                quiet = false;
            }
            while let Some(key) = self.node.poll_dirty() {
                let name = self.name(key);
                let bytes = self.node.outbox(key).to_vec();
                let deaf = self.clients[&name].deaf;
                self.node
                    .handle_written(self.now, key, if deaf { 0 } else { bytes.len() });
                if !deaf {
                    seen.entry(name).or_default().extend(bytes);
                    quiet = false;
                }
            }
            if quiet {
                break;
            }
        }
        for (name, bytes) in seen {
            for line in String::from_utf8_lossy(&bytes).split_terminator("\r\n") {
                writeln!(self.out, "{name}< {}", shorten(line)).unwrap();
            }
        }
        while let Some((key, reason)) = self.node.poll_closed() {
            let name = self.name(key);
            self.clients.remove(&name);
            writeln!(self.out, "{name} closed: {}", reason.as_str()).unwrap();
        }
    }

    fn name(&self, key: ClientKey) -> String {
        self.clients
            .iter()
            .find(|(_, c)| c.key == key)
            .unwrap()
            .0
            .clone()
    }
}

/// Shortens an INFO to the fields that matter to a transcript.
fn shorten(line: &str) -> String {
    if !line.starts_with("INFO ") {
        return line.into();
    }
    let said: Vec<&str> = ["ldm", "connect_info"]
        .into_iter()
        .filter(|f| line.contains(&format!("\"{f}\":true")))
        .collect();
    format!("INFO {}", said.join(" ")).trim_end().into()
}

fn run(text: &str) -> String {
    let (config, script) = text.split_once("---\n").unwrap();
    let mut settings = Settings::default();
    let directory = Path::new("").into();
    apply(
        &read_nats(config, &System { directory }).unwrap(),
        &mut settings,
    )
    .unwrap();
    let mut world = World::new(settings);
    world.out = format!("{config}---\n");
    for line in script.lines() {
        let result = line.split_once(' ').is_some_and(|(w, _)| w.ends_with('<'))
            || line.contains(" closed: ");
        if result {
            continue;
        }
        writeln!(world.out, "{line}").unwrap();
        if !line.is_empty() && !line.starts_with('#') {
            world.act(line);
            world.settle();
        }
    }
    world.out
}

#[test]
fn transcripts() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut seen = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let now = run(&text);
        if std::env::var("TRANSCRIPTS").as_deref() == Ok("write") {
            std::fs::write(&path, &now).unwrap();
        } else {
            assert_eq!(now, text, "{} says otherwise", path.display());
        }
        seen += 1;
    }
    assert!(seen > 8, "where are the transcripts?");
}
