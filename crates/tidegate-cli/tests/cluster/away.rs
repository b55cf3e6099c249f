//! Tests in which a node is away for long while publishers write much: the memory and disk use of the other
//! nodes stay within bounds. After its return the node fetches all that it lacks, and no publisher has to
//! stop for that.
//!
//! `make prove-away` writes some GiB; `AWAY_MIB` sets the number of MiB. Here the tests set small limits of
//! the log, so that little data reaches them: segments of 8 MiB, and a checkpoint each 16 MiB.
//! `AWAY_DEFAULTS=1` uses the program's defaults. With `AWAY_MAX_MS` the test fails if a publisher waited
//! longer.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::faults::number;
use super::flood::{Flood, PAYLOAD, parse, payload};
use super::mounted::Mounted;
use super::nodes::{Nodes, Place, ask, other};
use super::raw::{PATIENCE, Raw, read_stream};
use super::volume::Names;

const MIB: u64 = 1 << 20;
/// The growth of a process's memory in bytes, from the first half of the run to the second, that the test
/// tolerates as noise.
const NOISE_BYTES: u64 = 64 * MIB;
const CONSUMERS: u64 = 20;

/// The settings of a node's log: the lengths of a segment and of the growth between two checkpoints, in
/// bytes.
struct Kept {
    segment_bytes: u64,
    checkpoint_bytes: u64,
    flags: Vec<String>,
}

impl Kept {
    fn new() -> Self {
        if number("AWAY_DEFAULTS").is_some() {
            return Self {
                segment_bytes: 64 * MIB,
                checkpoint_bytes: 256 * MIB,
                flags: Vec::new(),
            };
        }
        let flags = ["--segment-bytes", "8MiB", "--checkpoint-bytes", "16MiB"];
        Self {
            segment_bytes: 8 * MIB,
            checkpoint_bytes: 16 * MIB,
            flags: flags.map(String::from).into(),
        }
    }

    /// Returns the greatest number of bytes that a node's directory may take if `needed` bytes are live. A
    /// node keeps the log from the older of two checkpoints on, while it writes a third one. The sum adds the
    /// segment in which each of these checkpoints ends, the active segment, and two segments that are
    /// allocated ahead or about to be removed. The log copies no segment while a quarter of it is live.
    const fn disk_bytes(&self, needed: u64) -> u64 {
        needed + needed / 4 + 3 * self.checkpoint_bytes + 6 * self.segment_bytes
    }
}

/// The greatest memory and disk use of a node that the test has seen.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    memory: u64,
    disk: u64,
}

impl Peak {
    fn look(&mut self, nodes: &Nodes, node: usize) {
        self.memory = self.memory.max(anonymous_bytes(nodes.pid(node)));
        self.disk = self.disk.max(disk_bytes(nodes.data(node)));
    }
}

impl std::fmt::Display for Peak {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (memory, disk) = (self.memory / MIB, self.disk / MIB);
        write!(f, "{memory} MiB of memory, {disk} MiB of disk")
    }
}

/// Returns the anonymous memory of the process, because the system can reclaim mapped and cached memory.
fn anonymous_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Returns the bytes that a directory takes on the disk. Files may appear and disappear during the count.
fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let Ok(entries) = std::fs::read_dir(directory) else {
        return 0;
    };
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(of) if of.is_dir() => disk_bytes(&entry.path()),
        Ok(of) => of.blocks() * 512,
        Err(_) => 0,
    };
    entries.filter_map(Result::ok).map(of).sum()
}

fn nodes(kept: &Kept) -> Nodes {
    let place = |node| Place {
        flags: kept.flags.clone(),
        ..Place::here(node)
    };
    Nodes::start_at((0..3).map(place).collect())
}

/// Returns the leader of a stream, the node that will be away, and the third node.
fn roles(nodes: &Nodes, stream: &str) -> [usize; 3] {
    let leader = nodes.leader(stream);
    [leader, (leader + 1) % 3, (leader + 2) % 3]
}

/// Checks that the stream has the same content on each node, read while that node leads, and that it has
/// every acknowledged message.
fn check(nodes: &Nodes, stream: &str, acked: &[(u64, usize, u64)]) {
    nodes.wait_current(stream);
    let acked: BTreeMap<u64, (usize, u64)> = acked.iter().map(|&(s, w, n)| (s, (w, n))).collect();
    let mut first: Option<(Value, u64)> = None;
    for node in 0..nodes.len() {
        nodes.lead(stream, node);
        let state = nodes.info(stream)["state"].clone();
        let number = |name: &str| state[name].as_u64().unwrap();
        let (mut from, last) = (number("first_seq"), number("last_seq"));
        assert_eq!(number("messages"), last + 1 - from, "{state}");
        let mut hash = DefaultHasher::new();
        while from <= last {
            let to = last.min(from + 999);
            let read = nodes.until("to read the stream", || {
                read_stream(&nodes.url(node), stream, from, to, PATIENCE).map_err(|e| e.to_string())
            });
            for (seq, subject, bytes) in &read {
                (seq, subject, bytes).hash(&mut hash);
                if let Some(&(who, n)) = acked.get(seq) {
                    let good = *bytes == payload(who, n);
                    assert!(good, "{seq} was acknowledged as {who}-{n} and is not");
                }
            }
            from = to + 1;
        }
        let found = (state, hash.finish());
        match &first {
            Some(first) => assert_eq!(*first, found, "{} differs", nodes.name(node)),
            None => first = Some(found),
        }
    }
}

/// Waits until publishers have acknowledgements of `bytes` more bytes, and records the greatest memory and
/// disk use of the nodes `watched` until then.
fn watch(nodes: &Nodes, flood: &Flood, bytes: u64, watched: &[usize], peaks: &mut [Peak]) {
    let (mut last, mut since) = (flood.acked_bytes(), Instant::now());
    let wanted = last + bytes;
    while last < wanted {
        for (node, peak) in watched.iter().zip(&mut *peaks) {
            peak.look(nodes, *node);
        }
        let acked = flood.acked_bytes();
        if std::mem::replace(&mut last, acked) != acked {
            since = Instant::now();
        }
        let logs = || nodes.logs();
        assert!(since.elapsed() < 2 * PATIENCE, "it stopped:\n{}", logs());
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// The measurements of a node that catches up.
struct Back {
    took: Duration,
    /// The bytes that the publishers wrote while the node caught up.
    bytes: u64,
    peaks: [Peak; 3],
}

/// Starts a node while the publishers go on, and waits until it reports that it has everything.
fn come_back(nodes: &mut Nodes, flood: &Flood, node: usize) -> Back {
    let (start, before) = (Instant::now(), flood.acked_bytes());
    let mut peaks = [Peak::default(); 3];
    nodes.spawn(node);
    nodes.until("the node to be current", || {
        for (node, peak) in peaks.iter_mut().enumerate() {
            peak.look(nodes, node);
        }
        nodes.health(node)
    });
    Back {
        took: start.elapsed(),
        bytes: flood.acked_bytes() - before,
        peaks,
    }
}

/// Parses the number of fetched messages from the text of a node's `/healthz`.
fn fetched(health: &str) -> Option<u64> {
    let words = health.split_once("fetched ")?.1;
    words.split_whitespace().next()?.parse().ok()
}

fn add_stream(nodes: &Nodes, config: Value) {
    nodes.until("a stream to be made", || {
        let name = config["name"].as_str().unwrap();
        nodes.ask(&format!("STREAM.CREATE.{name}"), &config)
    });
}

/// The measurements of a node's absence.
struct Away {
    took: Duration,
    /// For each of the two nodes that stayed: its greatest memory and disk use in the first half of the
    /// written bytes and in the second half.
    peaks: [[Peak; 2]; 2],
    gap_ms: u64,
    back: Back,
    gap_back_ms: u64,
}

/// Kills a node, publishes `bytes` bytes, and starts the node again while publishers continue. Calls
/// `meanwhile` while the node is away.
fn be_away(
    nodes: &mut Nodes,
    flood: &Flood,
    [leader, away, third]: [usize; 3],
    bytes: u64,
    meanwhile: impl FnOnce(&Nodes),
) -> Away {
    let stay = [leader, third];
    let mut peaks = [[Peak::default(); 2]; 2];
    flood.run(|| {
        watch(nodes, flood, bytes / 8, &stay, &mut peaks[0]);
        nodes.kill(away);
        let start = Instant::now();
        flood.take_gap();
        meanwhile(nodes);
        for half in &mut peaks {
            watch(nodes, flood, bytes / 2, &stay, half);
        }
        let (took, gap_ms) = (start.elapsed(), flood.take_gap());
        let back = come_back(nodes, flood, away);
        let gap_back_ms = flood.take_gap();
        watch(nodes, flood, bytes / 8, &stay, &mut peaks[1]);
        Away {
            took,
            peaks,
            gap_ms,
            back,
            gap_back_ms,
        }
    })
}

impl Away {
    fn print(&self, what: &str, [leader, away, third]: [usize; 3], bytes: u64) {
        let rate = |bytes: u64, took: Duration| bytes as f64 / MIB as f64 / took.as_secs_f64();
        let ([early, late], peaks) = (self.peaks, self.back.peaks);
        println!("{what}: a node was away for {} MiB", bytes / MIB);
        println!(
            "  meanwhile: {:.0} MiB/s; a publisher waited {} ms at most; the leader took {}, later {}; the third {}, later {}",
            rate(bytes, self.took),
            self.gap_ms,
            early[0],
            late[0],
            early[1],
            late[1],
        );
        println!(
            "  it was current {:.1} s after its start; the others wrote {:.0} MiB/s, a publisher waited {} ms at most; the leader took {}, the third {}, the node itself {}",
            self.back.took.as_secs_f64(),
            rate(self.back.bytes, self.back.took),
            self.gap_back_ms,
            peaks[leader],
            peaks[third],
            peaks[away]
        );
    }

    /// Checks that the memory and disk use of the nodes that stayed does not grow with the messages that the
    /// absent node lacks, and that publishers do not wait for the absent node.
    fn check(&self, disk_bytes: u64) {
        for (early, late) in self.peaks[0].iter().zip(&self.peaks[1]) {
            let more = late.memory.saturating_sub(early.memory);
            assert!(more <= NOISE_BYTES, "{early}, then {late}");
            assert!(late.disk <= disk_bytes, "{late}, not {disk_bytes} bytes");
        }
        if let Some(most) = number("AWAY_MAX_MS") {
            let gap_ms = self.gap_ms.max(self.gap_back_ms);
            assert!(gap_ms <= most, "a publisher waited {gap_ms} ms");
        }
    }
}

fn mib(default: u64) -> u64 {
    number("AWAY_MIB").unwrap_or(default)
}

/// Creates consumers of a stream, acknowledges some of their messages, and leaves other messages
/// unacknowledged.
fn consume(nodes: &Nodes, node: usize, round: u64) {
    let mut raw = Raw::connect(&nodes.url(node)).unwrap();
    for n in 0..CONSUMERS {
        let config = json!({
            "durable_name": format!("c{n}"), "ack_policy": "explicit", "ack_wait": 3_600_000_000_000_u64,
        });
        let made = raw.api(
            &format!("CONSUMER.DURABLE.CREATE.K.c{n}"),
            &json!({"stream_name": "K", "config": config}),
        );
        assert!(made.get("error").is_none(), "{made}");
        let pull = json!({"batch": 3 + n % 3, "expires": 20_000_000_000_u64}).to_string();
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.K.c{n}");
        raw.publish(&next, "pull", pull.as_bytes()).unwrap();
        let delivered: Vec<_> = (0..3 + n % 3).map(|_| raw.message().unwrap()).collect();
        for message in delivered.iter().skip((n + round) as usize % 2).step_by(2) {
            let reply = message.reply.as_ref().unwrap();
            raw.publish(reply, "ack", b"+ACK").unwrap();
            assert!(raw.message().unwrap().subject.ends_with(".ack"));
        }
    }
}

/// Checks that each node has the same state of the consumers, read while that node leads.
fn check_consumers(nodes: &Nodes) {
    let mut first: Option<Vec<Value>> = None;
    for node in 0..nodes.len() {
        nodes.lead("K", node);
        let of = |n: u64| {
            let info = nodes.until("to know of a consumer", || {
                ask(
                    &nodes.url(node),
                    &format!("CONSUMER.INFO.K.c{n}"),
                    &json!({}),
                )
            });
            let fields = ["num_ack_pending", "num_redelivered", "num_pending"];
            let seqs = ["delivered", "ack_floor"].map(|f| info[f]["stream_seq"].clone());
            let all = fields.map(|f| info[f].clone()).into_iter().chain(seqs);
            Value::from(all.collect::<Vec<_>>())
        };
        let found: Vec<Value> = (0..CONSUMERS).map(of).collect();
        match &first {
            Some(first) => assert_eq!(*first, found, "{} differs", nodes.name(node)),
            None => first = Some(found),
        }
    }
}

/// Publishes this many small messages to a stream.
fn publish(nodes: &Nodes, node: usize, stream: &str, messages: u64) {
    let mut raw = Raw::connect(&nodes.url(node)).unwrap();
    let subject = format!("{stream}.x");
    for n in 0..messages {
        raw.publish(&subject, &n.to_string(), b"small").unwrap();
    }
    for _ in 0..messages {
        let answer = raw.message().unwrap();
        assert!(parse(&answer).1.is_some(), "{answer:?}");
    }
}

/// The streams remove old messages while a node is away, so the node must take over the state of another
/// node. Consumers, and streams in memory, come with this state.
#[test]
fn away_from_streams_with_limits() {
    if other().is_some() {
        println!("what nodes keep for each other is asked of ours alone");
        return;
    }
    let (kept, bytes) = (Kept::new(), mib(256) * MIB);
    let limit = (bytes / 8).clamp(32 * MIB, 1024 * MIB);
    let mut nodes = nodes(&kept);
    let replicated = [
        json!({"name": "L", "subjects": ["L.>"], "num_replicas": 3, "max_bytes": limit}),
        json!({"name": "M", "subjects": ["M.>"], "num_replicas": 3, "max_msgs": 100, "storage": "memory"}),
        json!({"name": "K", "subjects": ["K.>"], "num_replicas": 3}),
    ];
    for config in replicated {
        add_stream(&nodes, config);
    }
    let roles = roles(&nodes, "L");
    let [leader, away, third] = roles;
    publish(&nodes, leader, "K", 100);
    consume(&nodes, leader, 0);
    publish(&nodes, leader, "M", 150);
    let flood = Flood::new("L", [leader, third].map(|node| nodes.url(node)).into());
    let outcome = be_away(&mut nodes, &flood, roles, bytes, |nodes| {
        consume(nodes, third, 1);
        publish(nodes, third, "M", 150);
    });
    outcome.print(&format!("limit of {} MiB", limit / MIB), roles, bytes);
    outcome.check(kept.disk_bytes(limit));
    let took_over = nodes.said(away, "took over the state");
    assert!(!took_over.is_empty(), "{}", nodes.logs());
    check(&nodes, "L", &flood.acked.lock().unwrap());
    check(&nodes, "M", &[]);
    check_consumers(&nodes);
}

/// The stream removes no messages, so a node that was away needs all of them. It gets them as entries from
/// the other nodes' logs.
#[test]
fn away_from_a_stream_that_grows() {
    if other().is_some() {
        println!("what nodes keep for each other is asked of ours alone");
        return;
    }
    let (kept, bytes) = (Kept::new(), mib(128) * MIB);
    let mut nodes = nodes(&kept);
    add_stream(
        &nodes,
        json!({"name": "G", "subjects": ["G.>"], "num_replicas": 3}),
    );
    let roles = roles(&nodes, "G");
    let [leader, _, third] = roles;
    let flood = Flood::new("G", [leader, third].map(|node| nodes.url(node)).into());
    let outcome = be_away(&mut nodes, &flood, roles, bytes, |_| ());
    outcome.print("no limit", roles, bytes);
    outcome.check(kept.disk_bytes(2 * flood.acked_bytes()));
    check(&nodes, "G", &flood.acked.lock().unwrap());
}

/// Tests that a node that is killed again while it catches up does not fetch its messages a second time.
#[test]
fn killed_again_while_it_catches_up() {
    if other().is_some() {
        println!("what nodes keep for each other is asked of ours alone");
        return;
    }
    let kept = Kept::new();
    let place = |node| Place {
        flags: kept.flags.clone(),
        ..Place::here(node)
    };
    let mut places: Vec<_> = (0..3).map(place).collect();
    // The slow disk makes the catch-up so slow that the test can kill the node before its end.
    let Some(disk) = Mounted::slow(Names::OfDirectory, Duration::from_millis(100)) else {
        return;
    };
    places[2].data = Some(disk.data());
    let mut nodes = Nodes::start_at(places);
    let limit = 64 * MIB;
    add_stream(
        &nodes,
        json!({"name": "A", "subjects": ["A.>"], "num_replicas": 3, "max_bytes": limit}),
    );
    nodes.lead("A", 0);
    nodes.kill(2);
    let flood = Flood::new("A", [0, 1].map(|node| nodes.url(node)).into());
    flood.run(|| watch(&nodes, &flood, 2 * limit, &[], &mut []));
    nodes.spawn(2);
    let before = nodes.until("the node to fetch messages", || {
        let said = nodes.health(2);
        let fetched = said.as_ref().err().and_then(|e| fetched(e));
        match fetched {
            Some(fetched) if fetched >= 1000 => Ok(fetched),
            _ => Err(format!("{said:?}")),
        }
    });
    nodes.kill(2);
    let earlier = nodes.said(2, "fetched the state");
    assert!(earlier.is_empty(), "it was through: {earlier:?}");
    nodes.spawn(2);
    nodes.until("the node to be current", || nodes.health(2));
    let said = nodes.said(2, "fetched the state");
    let after = said.first().and_then(|line| fetched_in_all(line));
    let after = after.unwrap_or_else(|| panic!("{}", nodes.logs()));
    println!("{before} messages were fetched before it was killed again, {after} after that");
    let held = limit / (PAYLOAD as u64);
    assert!(before + after <= held, "{before} and {after} of {held}");
    check(&nodes, "A", &flood.acked.lock().unwrap());
}

/// Parses the total number of fetched messages from a line of a node's log.
fn fetched_in_all(line: &str) -> Option<u64> {
    let before = line.split_once(" messages")?.0;
    before.rsplit_once(' ')?.1.parse().ok()
}
