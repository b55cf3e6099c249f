//! Tests that kill a server at random moments under load, again and again on the same files: the stream must
//! have each acknowledged message once, in order and unchanged.
//!
//! `KILL_ROUNDS=200 cargo test -p tidegate-cli --test stream kill -- --nocapture` kills the server 200 times
//! instead of 5; `KILL_SEED` repeats the choices of a run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::raw::{PATIENCE, Raw, read_stream};
use super::server::Server;

const PUBLISHERS: u64 = 4;
/// The greatest number of unacknowledged messages of a publisher; each round draws its own number up to this
/// one.
const WINDOW_MAX: u64 = 256;

/// A random generator (xorshift). One printed number decides all random choices of a run, so that a user can
/// repeat it.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Returns the payload of message `n` of publisher `who`. Each message has another text, so that the checks
/// notice a mix-up.
fn payload(who: u64, n: u64) -> String {
    let filler = (who * 31 + n * 7) % 1500;
    format!("{who}-{n}-{}", "abcdefg".repeat(filler as usize / 7))
}

/// The messages that a publisher sent in one round.
struct Published {
    /// The number of the first message that the publisher has not sent.
    next: u64,
    /// The acknowledged messages: the publisher's number of each, and the message's sequence.
    acked: Vec<(u64, u64)>,
}

/// Publishes messages from the number `next` on, until the connection ends.
fn publish(url: &str, who: u64, next: u64, window: u64, count: &AtomicU64) -> Published {
    let acked = Vec::new();
    let mut published = Published { next, acked };
    let Ok(mut raw) = Raw::connect(url) else {
        return published;
    };
    let mut waiting = 0;
    loop {
        while waiting < window {
            // After an error the publisher does not know if the server got the message, so the message counts
            // as sent.
            let n = published.next;
            published.next += 1;
            let (subject, text) = (format!("k.{who}"), payload(who, n));
            if raw
                .publish(&subject, &n.to_string(), text.as_bytes())
                .is_err()
            {
                return published;
            }
            waiting += 1;
        }
        let Ok(ack) = raw.message() else {
            return published;
        };
        let answer: Value = serde_json::from_slice(&ack.payload).unwrap();
        assert!(answer.get("error").is_none(), "{answer}");
        let number = ack.subject.rsplit_once('.').unwrap().1.parse().unwrap();
        waiting -= 1;
        published
            .acked
            .push((number, answer["seq"].as_u64().unwrap()));
        count.fetch_add(1, Ordering::Release);
    }
}

/// The facts that the checker knows about the stream so far.
#[derive(Default)]
struct Known {
    /// The acknowledged messages by their sequence: the publisher of each, and the publisher's number of it.
    acked: BTreeMap<u64, (u64, u64)>,
    /// For each publisher, the number of its last message that the stream has.
    last: [Option<u64>; PUBLISHERS as usize],
    /// The number of sequences that the checker has checked.
    seen: u64,
}

impl Known {
    /// Checks all messages that the stream has got since the last check.
    fn verify(&mut self, server: &Server) {
        let mut raw = Raw::connect(&server.url).unwrap();
        let info = raw.api("STREAM.INFO.KILL", &json!({}));
        let last = info["state"]["last_seq"]
            .as_u64()
            .unwrap_or_else(|| panic!("{info}"));
        assert_eq!(info["state"]["messages"], json!(last), "{info}");
        let new = read_stream(&server.url, "KILL", self.seen + 1, last, PATIENCE).unwrap();
        for (seq, subject, bytes) in new {
            assert_eq!(seq, self.seen + 1);
            self.seen = seq;
            let text = String::from_utf8(bytes).unwrap();
            let mut words = text.split('-').map(|w| w.parse::<u64>());
            let (who, n) = (
                words.next().unwrap().unwrap(),
                words.next().unwrap().unwrap(),
            );
            assert_eq!(text, payload(who, n), "message {seq} is changed");
            assert_eq!(subject, format!("k.{who}"));
            let before = self.last[who as usize].replace(n);
            assert!(
                before < Some(n),
                "{who} sent {before:?} before {n}, and {seq} is {n}"
            );
            if let Some(acked) = self.acked.remove(&seq) {
                assert_eq!(acked, (who, n), "{seq} was acknowledged as another message");
            }
        }
        assert!(
            self.acked.is_empty(),
            "acknowledged and not there: {:?}, the last is {last}",
            self.acked
        );
    }
}

#[test]
fn kill() {
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let rounds = number("KILL_ROUNDS").unwrap_or(5);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = number("KILL_SEED").unwrap_or(now.as_nanos() as u64 | 1);
    println!("KILL_SEED={seed} KILL_ROUNDS={rounds}");
    let mut draw = Draw(seed | 1);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut server = Server::start_in(&data, "");
    server.good(&[
        "stream",
        "add",
        "KILL",
        "--subjects",
        "k.*",
        "--storage",
        "file",
    ]);
    let mut known = Known::default();
    let mut next = [0; PUBLISHERS as usize];
    let mut killed_while_starting = 0;
    for round in 0..rounds {
        let window = 1 + draw.below(WINDOW_MAX);
        let enough = 1 + draw.below(3000);
        let count = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let publishers: Vec<_> = (0..PUBLISHERS)
                .map(|who| {
                    let (url, count, n) = (server.url.clone(), &count, next[who as usize]);
                    scope.spawn(move || publish(&url, who, n, window, count))
                })
                .collect();
            let start = std::time::Instant::now();
            while count.load(Ordering::Acquire) < enough {
                assert!(
                    start.elapsed() < PATIENCE,
                    "no acknowledgements in round {round}: {}",
                    server.log()
                );
                std::thread::yield_now();
            }
            server.kill();
            for (who, publisher) in publishers.into_iter().enumerate() {
                let published = publisher.join().unwrap();
                next[who] = published.next;
                for (n, seq) in published.acked {
                    let before = known.acked.insert(seq, (who as u64, n));
                    assert!(before.is_none(), "sequence {seq} was given twice");
                }
            }
        });
        // In some rounds the test kills the server again while it starts.
        while draw.below(3) == 0 {
            let mut child = Server::spawn(&data, "", &[]);
            for _ in 0..draw.below(20_000) {
                std::thread::yield_now();
            }
            child.kill().unwrap();
            child.wait().unwrap();
            killed_while_starting += 1;
        }
        server = Server::start_in(&data, "");
        known.verify(&server);
    }
    println!(
        "{rounds} rounds, {} messages in the stream, of {} sent; killed {killed_while_starting} times while starting",
        known.seen,
        next.iter().sum::<u64>()
    );
}
