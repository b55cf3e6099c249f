//! Publishers that retry until they have an answer: each message has its own id, and its publisher sends it
//! to one node after the other until a node acknowledges it. The load keeps every answer and compares the
//! answers with the stream.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::nodes::Nodes;
use super::raw::{PATIENCE, Raw, Received, read_stream};

/// The time without an acknowledgement after which a publisher repeats its messages to another node.
const ATTEMPT: Duration = Duration::from_millis(400);
/// The longest wait of a reader for its next message, before the test fails.
const READ: Duration = Duration::from_secs(5);
/// The pause of a publisher between two attempts if no node serves the stream, so that the nodes can elect a
/// leader.
const PAUSE: Duration = Duration::from_millis(5);

/// The number of refusals of one node after which a publisher tries another node, because the first one may
/// be cut off.
const REFUSALS: u32 = 20;

/// Publishes a message with headers, and with the reply subject `<inbox><reply>`.
pub(crate) fn publish_with(
    raw: &mut Raw,
    subject: &str,
    reply: &str,
    headers: &[(&str, &str)],
    payload: &[u8],
) -> std::io::Result<()> {
    let lines = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let head = format!("NATS/1.0\r\n{}\r\n", lines.collect::<String>());
    let (inbox, bytes) = (&raw.inbox, head.len() + payload.len());
    let line = format!("HPUB {subject} {inbox}{reply} {} {bytes}\r\n", head.len());
    let out = [line.as_bytes(), head.as_bytes(), payload, b"\r\n"].concat();
    raw.send(&out)
}

/// Returns the payload of message `n` of publisher `who`. Each message has another text, so that the checks
/// notice a mix-up.
fn payload(who: usize, n: u64) -> String {
    let filler = (who as u64 * 31 + n * 7) % 1500;
    format!("{who}-{n}-{}", "abcdefg".repeat(filler as usize / 7))
}

/// A message that its publisher has sent and no node has acknowledged.
#[derive(Clone, Copy)]
struct Sent {
    /// The time at which the publisher first sent the message.
    at: Instant,
    /// The highest sequence that the publisher knew when it first sent the message. The message's own
    /// sequence must be higher.
    floor: u64,
}

/// Running publishers, and their measurements.
pub(crate) struct Load {
    stream: String,
    window: usize,
    stop: AtomicBool,
    /// True once the test has failed: the publishers then give up their unacknowledged messages.
    failed: AtomicBool,
    /// The text of the last refusal, for the report of a failed test.
    refused: Mutex<String>,
    /// The number of acknowledgements of all publishers together.
    acked: AtomicU64,
    /// For each publisher, the time at which it first sent its newest acknowledged message, in microseconds
    /// since the start.
    last: Vec<AtomicU64>,
    start: Instant,
}

/// The times for which the publishers waited after a fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resumed {
    /// The time until the first publisher had an acknowledgement again.
    pub(crate) first: Duration,
    /// The time until all publishers had an acknowledgement again. A publisher at a dead node needs a timeout
    /// to notice that.
    pub(crate) all: Duration,
}

/// The sequence of each acknowledged message, by its publisher and the publisher's number of it.
pub(crate) type Acked = BTreeMap<(usize, u64), u64>;

impl Load {
    /// Creates publishers to the subjects `<stream>.<who>`. Each keeps at most `window` messages
    /// unacknowledged.
    pub(crate) fn new(stream: &str, publishers: usize, window: usize) -> Self {
        Self {
            stream: stream.into(),
            window,
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            refused: Mutex::default(),
            acked: AtomicU64::new(0),
            last: (0..publishers).map(|_| Default::default()).collect(),
            start: Instant::now(),
        }
    }

    /// Runs the publishers for as long as `meanwhile` runs, and until the nodes have acknowledged all sent
    /// messages. Each publisher begins at its number in `next`. Returns the acknowledged messages.
    pub(crate) fn run(&self, urls: &[String], next: &mut [u64], meanwhile: impl FnOnce()) -> Acked {
        self.stop.store(false, Ordering::Release);
        let first = next.to_vec();
        std::thread::scope(|scope| {
            let publishers: Vec<_> = first
                .into_iter()
                .enumerate()
                .map(|(who, first)| scope.spawn(move || self.publish(urls, who, first)))
                .collect();
            // The guard stops the publishers even if `meanwhile` panics, so that the test ends.
            let stop = Stop(self);
            meanwhile();
            drop(stop);
            let mut all = Acked::new();
            for (who, publisher) in publishers.into_iter().enumerate() {
                let (acked, after) = publisher.join().unwrap();
                next[who] = after;
                all.extend(acked);
            }
            all
        })
    }

    pub(crate) fn acked(&self) -> u64 {
        self.acked.load(Ordering::Acquire)
    }

    /// Waits until the publishers have `more` further acknowledgements.
    pub(crate) fn wait_acked(&self, nodes: &Nodes, more: u64) {
        let wanted = self.acked() + more;
        nodes.until("acknowledgements", || {
            let acked = self.acked();
            if acked >= wanted {
                Ok(())
            } else {
                Err(format!("{acked} of {wanted}"))
            }
        });
    }

    /// Waits until each publisher has an acknowledgement of a message that it sent after `since`. Returns the
    /// times that this took.
    pub(crate) fn wait_resumed(&self, nodes: &Nodes, since: Instant) -> Resumed {
        let since_us = (since - self.start).as_micros() as u64;
        let late = |sent: &AtomicU64| sent.load(Ordering::Acquire) < since_us;
        let mut first = None;
        nodes.until("publishing to go on", || {
            if !self.last.iter().all(late) {
                first.get_or_insert_with(|| since.elapsed());
            }
            match (self.last.iter().position(late), first) {
                (None, Some(first)) => Ok(Resumed {
                    first,
                    all: since.elapsed(),
                }),
                (who, _) => Err(format!(
                    "publisher {who:?} is not acknowledged; last refused: {}",
                    self.refused.lock().unwrap()
                )),
            }
        })
    }

    fn publish(&self, urls: &[String], who: usize, first: u64) -> (Acked, u64) {
        let (mut acked, mut next, mut floor) = (Acked::new(), first, 0);
        let mut waiting: BTreeMap<u64, Sent> = BTreeMap::new();
        let mut stopped: Option<Instant> = None;
        for url in urls.iter().cycle().skip(who) {
            if self.failed.load(Ordering::Acquire) {
                break;
            }
            if let Some(since) = stopped {
                let left = waiting.keys().next();
                assert!(
                    since.elapsed() < 2 * PATIENCE,
                    "{who}-{left:?} is never acknowledged"
                );
            }
            let Ok(mut raw) = Raw::connect_within(url, ATTEMPT) else {
                std::thread::park_timeout(PAUSE);
                stopped = stopped.or_else(|| self.is_stopped());
                continue;
            };
            // The publisher first repeats the messages that the previous node did not answer.
            let again: Vec<_> = waiting.keys().copied().collect();
            let mut refusals = 0;
            let mut good = again.iter().all(|n| self.send(&mut raw, who, *n).is_ok());
            while good {
                stopped = stopped.or_else(|| self.is_stopped());
                while good && stopped.is_none() && waiting.len() < self.window {
                    waiting.insert(
                        next,
                        Sent {
                            at: Instant::now(),
                            floor,
                        },
                    );
                    good = self.send(&mut raw, who, next).is_ok();
                    next += 1;
                }
                if waiting.is_empty() {
                    return (acked, next);
                }
                let Ok(answer) = raw.message() else { break };
                let (n, seq) = parse(&answer);
                match seq {
                    Ok(seq) => {
                        let Some(sent) = waiting.remove(&n) else {
                            continue;
                        };
                        assert!(
                            seq > sent.floor,
                            "{who}-{n} is {seq}, and was sent when {} was known",
                            sent.floor
                        );
                        floor = floor.max(seq);
                        acked.insert((who, n), seq);
                        self.note(who, sent.at);
                    }
                    Err(refusal) => {
                        *self.refused.lock().unwrap() = format!("{who}-{n} at {url}: {refusal}");
                        refusals += 1;
                        if refusals == REFUSALS {
                            break;
                        }
                        std::thread::park_timeout(PAUSE);
                        good = self.send(&mut raw, who, n).is_ok();
                    }
                }
            }
        }
        (acked, next)
    }

    fn is_stopped(&self) -> Option<Instant> {
        self.stop.load(Ordering::Acquire).then(Instant::now)
    }

    fn note(&self, who: usize, sent: Instant) {
        let sent_us = (sent - self.start).as_micros() as u64;
        self.last[who].fetch_max(sent_us, Ordering::AcqRel);
        self.acked.fetch_add(1, Ordering::AcqRel);
    }

    fn send(&self, raw: &mut Raw, who: usize, n: u64) -> std::io::Result<()> {
        let (subject, id) = (format!("{}.{who}", self.stream), format!("{who}-{n}"));
        let text = payload(who, n);
        publish_with(
            raw,
            &subject,
            &n.to_string(),
            &[("Nats-Msg-Id", &id)],
            text.as_bytes(),
        )
    }
}

/// A guard that stops the publishers when Rust drops it, even after a panic.
struct Stop<'a>(&'a Load);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0
            .failed
            .store(std::thread::panicking(), Ordering::Release);
        self.0.stop.store(true, Ordering::Release);
    }
}

/// Parses an answer: the publisher's number of the message, and the message's sequence or the reason of a
/// refusal.
fn parse(answer: &Received) -> (u64, Result<u64, String>) {
    let number = answer.subject.rsplit_once('.').unwrap().1.parse().unwrap();
    let value: Value = serde_json::from_slice(&answer.payload).unwrap_or_default();
    let seq = value["seq"]
        .as_u64()
        .filter(|_| value.get("error").is_none());
    let text = || String::from_utf8_lossy(&answer.payload).into_owned();
    (number, seq.ok_or_else(text))
}

/// The contents of a stream: the sequence, the subject and the payload of each message.
pub(crate) type Content = Vec<(u64, String, Vec<u8>)>;

/// Returns the contents of the stream, and checks that they are the same on each node, read while that node
/// leads.
pub(crate) fn same_everywhere(nodes: &Nodes, stream: &str) -> Content {
    nodes.wait_current(stream);
    let mut first: Option<Content> = None;
    for node in 0..nodes.len() {
        nodes.lead(stream, node);
        let content = read(nodes, node, stream);
        match &first {
            None => first = Some(content),
            Some(first) => {
                let differs = first.iter().zip(&content).find(|(a, b)| a != b);
                assert!(
                    *first == content,
                    "{} has {} messages and n1 {}; the first that differ: {differs:?}",
                    nodes.name(node),
                    content.len(),
                    first.len()
                );
            }
        }
    }
    first.unwrap()
}

/// Returns the contents of a stream, which this function reads through the node `node`.
pub(crate) fn read(nodes: &Nodes, node: usize, stream: &str) -> Content {
    let info = nodes.info(stream);
    let last = info["state"]["last_seq"].as_u64().unwrap();
    assert_eq!(info["state"]["messages"], json!(last), "{info}");
    // The function repeats a failed read, because some nodes may not know the new consumer yet.
    nodes.until("to read the stream", || {
        let content = read_stream(&nodes.url(node), stream, 1, last, READ);
        content.map_err(|e| e.to_string())
    })
}

/// Returns the payload behind the message's headers, or the whole text if the message has no headers.
pub(crate) fn body(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let body = text
        .strip_prefix("NATS/1.0")
        .and_then(|t| t.split_once("\r\n\r\n"));
    body.map_or(&*text, |(_, body)| body).to_owned()
}

/// Checks that the stream has every acknowledged message at its sequence, and has no message twice or
/// changed. The stream may also have messages without an acknowledgement.
pub(crate) fn check(content: &Content, acked: &Acked, next: &[u64]) {
    let mut seen = BTreeSet::new();
    let mut expected: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    for (message, seq) in acked {
        let before = expected.insert(*seq, *message);
        assert!(
            before.is_none(),
            "{before:?} and {message:?} were both given {seq}"
        );
    }
    for (at, (seq, subject, bytes)) in content.iter().enumerate() {
        assert_eq!(*seq, at as u64 + 1);
        let text = body(bytes);
        let mut words = text.split('-').map(|word| word.parse::<u64>());
        let (who, n) = (
            words.next().unwrap().unwrap() as usize,
            words.next().unwrap().unwrap(),
        );
        assert_eq!(text, payload(who, n), "message {seq} is changed");
        assert!(
            subject.ends_with(&format!(".{who}")) && n < next[who],
            "{seq} was never sent"
        );
        assert!(
            seen.insert((who, n)),
            "{who}-{n} is there twice, the second time as {seq}"
        );
        if let Some(message) = expected.remove(seq) {
            assert_eq!(
                message,
                (who, n),
                "{seq} was acknowledged as another message"
            );
        }
    }
    assert!(
        expected.is_empty(),
        "acknowledged and not there: {expected:?} of {}",
        content.len()
    );
}
