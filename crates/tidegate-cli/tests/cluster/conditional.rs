//! Conditional publishes while leaders die: several clients publish to a few subjects, each on the condition
//! that it knows the last message. A checker then decides if the history of their attempts is possible.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::history::{Attempt, Outcome, Stored, check};
use super::load::{body, publish_with, same_everywhere};
use super::nodes::Nodes;
use super::raw::Raw;

const CLIENTS: u64 = 6;
const SUBJECTS: u64 = 2;
/// The time without an answer after which the outcome of an attempt counts as unknown.
const ATTEMPT: Duration = Duration::from_millis(500);
/// The error codes of `wrong last sequence`: with the last sequence in the text, and without.
const WRONG_LAST: [u64; 2] = [10071, 10164];

/// The state of the competing clients, and the history of their attempts.
#[derive(Default)]
pub(crate) struct Fight {
    stop: AtomicBool,
    stored: AtomicU64,
    history: Mutex<Vec<Attempt>>,
}

impl Fight {
    /// Runs the competing clients for as long as `meanwhile` runs.
    pub(crate) fn run(&self, stream: &str, urls: &[String], meanwhile: impl FnOnce()) {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Release);
            }
        }
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || self.client(stream, urls, client));
            }
            // The guard stops the clients even if `meanwhile` panics, so that the test ends.
            let _stop = Stop(&self.stop);
            meanwhile();
        });
    }

    /// Waits until the stream has stored `more` further messages of the clients.
    pub(crate) fn wait_stored(&self, nodes: &Nodes, more: u64) {
        let wanted = self.stored.load(Ordering::Acquire) + more;
        nodes.until("conditional publishes", || {
            let stored = self.stored.load(Ordering::Acquire);
            if stored >= wanted {
                Ok(())
            } else {
                Err(format!("{stored} of {wanted}"))
            }
        });
    }

    fn client(&self, stream: &str, urls: &[String], client: u64) {
        let mut history = Vec::new();
        let mut expected = [0; SUBJECTS as usize];
        let mut urls = urls.iter().cycle().skip(client as usize);
        let mut raw: Option<Raw> = None;
        let mut n = 0;
        while !self.stop.load(Ordering::Acquire) {
            let Some(connection) = &mut raw else {
                raw = urls
                    .next()
                    .and_then(|url| Raw::connect_within(url, ATTEMPT).ok());
                if raw.is_none() {
                    std::thread::park_timeout(Duration::from_millis(5));
                }
                continue;
            };
            n += 1;
            let at = ((client + n) % SUBJECTS) as usize;
            let attempt = Attempt {
                id: format!("{client}-{n}"),
                subject: format!("{stream}.{at}"),
                expected: expected[at],
                called: Instant::now(),
                answered: None,
            };
            let (outcome, named) = publish(connection, &attempt, n);
            match outcome {
                Ok(outcome) => {
                    if let Outcome::Stored(_) = outcome {
                        self.stored.fetch_add(1, Ordering::AcqRel);
                    }
                    let answered = Some((Instant::now(), outcome));
                    history.push(Attempt {
                        answered,
                        ..attempt
                    });
                }
                // No node serves the stream, or the outcome is unknown, so the client continues with another
                // node.
                Err(()) => {
                    history.push(attempt);
                    raw = None;
                    std::thread::park_timeout(Duration::from_millis(5));
                }
            }
            expected[at] = named.unwrap_or(expected[at]);
            // The pause is so long that the history stays short, and so short that the clients still
            // conflict.
            std::thread::park_timeout(Duration::from_millis(2));
        }
        self.history.lock().unwrap().append(&mut history);
    }

    /// Checks that the history of the attempts is linearizable, given the stream's contents, which must be
    /// the same on every node.
    pub(crate) fn check(&self, nodes: &Nodes, stream: &str) {
        let content = same_everywhere(nodes, stream);
        let stored: Vec<_> = content
            .into_iter()
            .map(|(seq, subject, bytes)| Stored {
                seq,
                subject,
                id: body(&bytes),
            })
            .collect();
        let history = self.history.lock().unwrap();
        let checked = check(&history, &stored).unwrap_or_else(|e| panic!("not linearizable: {e}"));
        let unknown = history.iter().filter(|a| a.answered.is_none()).count();
        println!(
            "{} attempts linearizable: {} stored, {} refused with the sequence, {unknown} unknown",
            history.len(),
            checked.stored,
            checked.refused
        );
        assert!(
            checked.stored > 0 && checked.refused > 0,
            "nothing was checked: {checked:?}"
        );
    }
}

/// Publishes an attempt. Returns its outcome, and the last sequence of the subject if the answer names it.
fn publish(raw: &mut Raw, attempt: &Attempt, n: u64) -> (Result<Outcome, ()>, Option<u64>) {
    let expected = attempt.expected.to_string();
    let headers = [("Nats-Expected-Last-Subject-Sequence", expected.as_str())];
    let reply = n.to_string();
    let sent = publish_with(
        raw,
        &attempt.subject,
        &reply,
        &headers,
        attempt.id.as_bytes(),
    );
    // A leader that was paused after it got the request answers late, after another leader has answered. So
    // the client skips answers to earlier attempts.
    let answered = |raw: &mut Raw| loop {
        let answer = raw.message()?;
        if answer.subject.ends_with(&format!(".{n}")) {
            return Ok::<_, std::io::Error>(answer);
        }
    };
    let Ok(answer) = sent.and_then(|()| answered(raw)) else {
        return (Err(()), None);
    };
    // The payload is not JSON if the server answers that no stream takes the subject (a status without a
    // body).
    let Ok(value) = serde_json::from_slice::<Value>(&answer.payload) else {
        return (Err(()), None);
    };
    let error = &value["error"];
    if error.is_null() {
        let seq = value["seq"].as_u64().unwrap_or_else(|| panic!("{value}"));
        return (Ok(Outcome::Stored(seq)), Some(seq));
    }
    if !error["err_code"]
        .as_u64()
        .is_some_and(|code| WRONG_LAST.contains(&code))
    {
        return (Err(()), None);
    }
    let text = error["description"].as_str().unwrap_or_default();
    let named = text.rsplit_once(": ").and_then(|(_, seq)| seq.parse().ok());
    (Ok(Outcome::Refused(named)), named)
}

#[test]
fn conditional_publishes_are_linearizable() {
    let mut nodes = Nodes::start(3);
    nodes.add_stream("L", "L.*");
    let fight = Fight::default();
    fight.run("L", &nodes.urls(), || {
        for _ in 0..2 {
            fight.wait_stored(&nodes, 200);
            let leader = nodes.leader("L");
            nodes.kill(leader);
            fight.wait_stored(&nodes, 100);
            nodes.spawn(leader);
            nodes.wait_current("L");
        }
    });
    fight.check(&nodes, "L");
}
