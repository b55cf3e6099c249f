//! Runs transcripts: each line at the margin is a command, and the indented lines below it are the messages
//! that the consumer must then send.
//!
//! `TRANSCRIPTS=write cargo test -p tidegate-stream --lib consumer` writes the transcripts again, with the
//! messages that the consumer sends now. Read the diff before you commit it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::Path;

use super::*;
use crate::consumer::duration;

/// The time at which transcripts begin, in microseconds since the Unix epoch, so that each run has the same
/// times.
const START: u64 = 1_000_000_000;

struct Script {
    now: u64,
    stream: Stream,
    net: Net,
    state: State,
    /// The deltas that the consumer has returned and that are not durable yet.
    deltas: VecDeque<Vec<u8>>,
    config: ConsumerConfig,
    consumer: Option<Consumer>,
    logged: bool,
    /// The number of the last delivery of each message, which the test puts into an acknowledgement of the
    /// message.
    consumer_seqs: BTreeMap<StreamSeq, ConsumerSeq>,
    said: String,
}

/// Runs the stories of a transcript file, each under a line that starts with `#`, and compares the messages
/// that the consumer sends with the file.
pub(super) fn run(name: &str) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/consumer/tests/transcripts");
    let file = dir.join(name).with_extension("txt");
    let expected = std::fs::read_to_string(&file).unwrap();
    let mut actual = String::new();
    let mut script = Script::new();
    for line in expected.lines().filter(|l| !l.starts_with("    ")) {
        let _ = writeln!(actual, "{line}");
        if line.starts_with('#') {
            script = Script::new();
        } else if !line.is_empty() {
            script.step(line);
            script.report(&mut actual);
        }
    }
    if std::env::var_os("TRANSCRIPTS").is_some_and(|v| v == "write") {
        std::fs::write(&file, &actual).unwrap();
    }
    let differ = |(_, (a, b)): &(usize, (&str, &str))| a != b;
    let mut lines = expected.lines().zip(actual.lines()).enumerate();
    let first = lines
        .find(differ)
        .map(|(i, (a, b))| format!("{}: expected {a:?}, got {b:?}", i + 1));
    assert!(expected == actual, "{name}: {first:?}\n{actual}");
}

impl Script {
    fn new() -> Self {
        Self {
            now: START,
            stream: Stream::default(),
            net: Net::default(),
            state: State::default(),
            deltas: VecDeque::new(),
            config: ConsumerConfig::default(),
            consumer: None,
            logged: true,
            consumer_seqs: BTreeMap::new(),
            said: String::new(),
        }
    }

    fn report(&mut self, out: &mut String) {
        let said = std::mem::take(&mut self.said);
        for line in self
            .sent()
            .into_iter()
            .chain(said.lines().map(str::to_owned))
        {
            let _ = writeln!(out, "    {line}");
        }
    }

    fn step(&mut self, line: &str) {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match verb {
            "config" => self.create(rest),
            "memory" => self.logged = false,
            "store" => rest.split(' ').for_each(|m| self.store(m)),
            // The command `big subject bytes` stores a message with a payload of this length.
            "big" => {
                let (subject, bytes) = rest.split_once(' ').unwrap();
                let payload = "x".repeat(bytes.parse().unwrap());
                self.store(&format!("{subject}={payload}"));
            }
            "remove" => self.remove(number(rest)),
            "purge" => self.purge(number(rest)),
            "pull" => {
                let (reply, body) = rest.split_once(' ').unwrap_or((rest, ""));
                self.with(|c, s, now| {
                    c.handle_pull(now, reply.as_bytes(), body.as_bytes(), &mut s.net);
                });
            }
            "ack" => self.ack(rest),
            "flow" => self.flow(rest),
            // Another stream has all messages up to this one, and asks for the next ones.
            "tapped" => {
                let has = number(rest);
                self.with(|c, s, now| {
                    c.handle_tapped(now, has, &mut s.stream);
                });
            }
            "wait" => self.wait(duration::parse(rest).unwrap() as u64 / 1000),
            "nobody" => drop(self.net.nobody.insert(rest.to_owned())),
            "left" => self.with(|c, s, now| c.handle_interest(now, &mut s.net)),
            "listens" => {
                self.net.nobody.remove(rest);
                self.with(|c, _, _| c.handle_subscribed(rest.as_bytes()));
            }
            "behind" => drop(self.net.behind.insert(rest.to_owned())),
            "ready" => drop(self.net.behind.remove(rest)),
            "reading" => drop(self.stream.reading.insert(number(rest))),
            "read" => drop(self.stream.reading.remove(&number(rest))),
            "damaged" => drop(self.stream.damaged.insert(number(rest))),
            "one_a_subject" => self.stream.one_a_subject = true,
            "delta" => self.delta(),
            "durable" => self.durable(),
            "restart" => self.start(),
            "update" => self.update(rest),
            "end" => {
                let ending = match rest {
                    "deleted" => Ending::Deleted,
                    "leadership" => Ending::LeadershipChange,
                    "lost" => Ending::Lost,
                    _ => Ending::Shutdown,
                };
                self.with(|c, s, _| c.handle_end(ending, &mut s.net));
            }
            "info" => self.info(),
            "abandoned" => {
                let c = self.consumer.as_ref().unwrap();
                self.said = format!("{}", c.is_abandoned(self.now));
            }
            _ => panic!("{line}: no such step"),
        }
        // No caller reports a client that leaves to the consumer, so the consumer gets no turn after this
        // command.
        if verb != "nobody" {
            self.deliver();
        }
        if let Some(c) = &self.consumer {
            c.check_invariants(&mut self.stream);
        }
    }

    /// Calls `f` with the consumer, the rest of the script, and the time; does nothing without a consumer.
    fn with(&mut self, f: impl FnOnce(&mut Consumer, &mut Self, u64)) {
        if let Some(mut consumer) = self.consumer.take() {
            f(&mut consumer, self, self.now);
            self.consumer = Some(consumer);
        }
    }

    fn deliver(&mut self) {
        self.with(|c, s, now| {
            while !c.is_prepared() {
                c.prepare(now, 1, &mut s.stream, &mut s.net);
            }
            while c.deliver(now, &mut 100, &mut s.stream, &mut s.net) == Progress::More {}
        });
    }

    fn create(&mut self, json: &str) {
        self.config = config(json);
        self.stream.filters = filters(&self.config);
        self.state = State::new(&self.config, &mut self.stream);
        self.start();
    }

    fn start(&mut self) {
        let identity = Identity {
            stream: "S",
            consumer: "C",
            record: if self.logged {
                Record::State
            } else {
                Record::None
            },
        };
        self.state.check_invariants();
        let (state, stream) = (&self.state, &mut self.stream);
        self.deltas.clear();
        self.consumer = Some(Consumer::new(
            self.now,
            identity,
            &self.config,
            state,
            stream,
        ));
    }

    fn update(&mut self, json: &str) {
        self.config = config(json);
        self.stream.filters = filters(&self.config);
        let config = self.config.clone();
        self.with(|c, s, now| c.handle_update(now, &config, &mut s.stream));
    }

    /// Stores a message, which the transcript writes as `subject`, `subject=payload`, or
    /// `subject=payload=header`.
    fn store(&mut self, message: &str) {
        let mut parts = message.split('=');
        let subject = parts.next().unwrap().to_owned();
        let payload = parts.next().unwrap_or("").as_bytes().to_vec();
        let header = |h| format!("NATS/1.0\r\n{h}\r\n\r\n").into_bytes();
        let headers = parts.next().map_or_else(Vec::new, header);
        let seq = self.stream.last_seq.next();
        self.stream.last_seq = seq;
        self.with(|c, _, _| {
            c.handle_stored(seq, subject.as_bytes());
        });
        let stored = Stored {
            subject,
            headers,
            payload,
            time_us: self.now,
        };
        self.stream.messages.insert(seq, stored);
    }

    fn remove(&mut self, seq: StreamSeq) {
        let subject = self.stream.messages.remove(&seq).unwrap().subject;
        self.with(|c, s, now| c.handle_removed(now, seq, subject.as_bytes(), &mut s.net));
    }

    fn purge(&mut self, up_to: StreamSeq) {
        self.stream.messages.retain(|seq, _| *seq > up_to);
        self.with(|c, s, now| c.handle_purged(now, up_to, &mut s.stream));
    }

    /// Acknowledges a message, which the transcript writes as `message reply payload`, with `-` for no reply
    /// subject.
    fn ack(&mut self, rest: &str) {
        let mut parts = rest.splitn(3, ' ');
        let stream_seq = number(parts.next().unwrap());
        let reply = parts.next().filter(|r| *r != "-").unwrap_or("");
        let payload = parts.next().unwrap_or("");
        let numbers = AckNumbers {
            deliveries: 1,
            stream_seq,
            consumer_seq: match self.consumer_seqs.get(&stream_seq) {
                Some(seq) => *seq,
                None => ConsumerSeq::new(1),
            },
            time_ns: 0,
            pending: 0,
        };
        self.with(|c, s, now| {
            c.handle_ack(
                now,
                &numbers,
                reply.as_bytes(),
                payload.as_bytes(),
                &mut s.net,
            );
        });
    }

    /// Answers a flow control request, which the transcript writes as `subject`, or as `subject delivery
    /// message` with the two numbers that acknowledge.
    fn flow(&mut self, rest: &str) {
        let mut parts = rest.split(' ');
        let subject = parts.next().unwrap();
        let headers = match (parts.next(), parts.next()) {
            (Some(delivery), Some(message)) => format!(
                "NATS/1.0\r\nNats-Last-Consumer: {delivery}\r\nNats-Last-Stream: {message}\r\n\r\n"
            ),
            _ => String::new(),
        };
        self.with(|c, _, now| c.handle_flow(now, subject.as_bytes(), headers.as_bytes()));
    }

    /// Lets time pass, and calls the consumer at each of its deadlines, as a server does.
    fn wait(&mut self, us: u64) {
        let until = self.now + us;
        loop {
            let mut deadline = None;
            self.with(|c, _, now| deadline = c.deadline(now));
            self.now = deadline.unwrap_or(u64::MAX).min(until);
            self.with(|c, s, now| c.handle_timeouts(now, &mut s.net));
            self.deliver();
            if self.now == until {
                return;
            }
        }
    }

    fn delta(&mut self) {
        let mut delta = None;
        self.with(|c, _, now| delta = c.poll_delta(now));
        match delta {
            Some(delta) => self.deltas.push_back(delta),
            None => self.said = "nothing is due".into(),
        }
    }

    fn durable(&mut self) {
        let delta = self.deltas.pop_front().unwrap();
        self.state.apply(&delta).unwrap();
        self.state.check_invariants();
        self.with(|c, s, _| c.handle_delta_durable(&mut s.net));
    }

    fn info(&mut self) {
        let now = self.now;
        let c = self.consumer.as_mut().unwrap();
        c.handle_interest(now, &mut self.net);
        let i = c.info(now);
        self.said = format!(
            "delivered {}/{} floor {}/{} unacked {} again {} pulls {} pending {}",
            i.delivered.consumer_seq,
            i.delivered.stream_seq,
            i.ack_floor.consumer_seq,
            i.ack_floor.stream_seq,
            i.num_ack_pending,
            i.num_redelivered,
            i.num_waiting,
            i.num_pending
        );
        if i.push_bound {
            self.said.push_str(" bound");
        }
        if let Some(left) = i.pause_remaining_us {
            let _ = write!(
                self.said,
                " paused for {}",
                duration::text(left as i64 * 1000)
            );
        }
    }

    /// Returns the messages that the consumer has sent since the last call, as one transcript line each: `to:
    /// subject deliveries/stream_seq/consumer_seq +pending`.
    fn sent(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.net.sent);
        sent.into_iter().map(|sent| self.line(sent)).collect()
    }

    fn line(&mut self, sent: Sent) -> String {
        let lines = |headers: &str| headers.trim_end().replace("\r\n", " | ");
        match sent {
            Sent::Message {
                to,
                subject,
                numbers: n,
                headers,
                payload,
            } => {
                self.consumer_seqs.insert(n.stream_seq, n.consumer_seq);
                let mut line = format!(
                    "{to}: {subject} {}/{}/{} +{}",
                    n.deliveries, n.stream_seq, n.consumer_seq, n.pending
                );
                if !headers.is_empty() {
                    let _ = write!(line, " [{}]", lines(&headers));
                }
                if payload.len() > 40 {
                    let _ = write!(line, " {} bytes", payload.len());
                } else if !payload.is_empty() {
                    let _ = write!(line, " {payload}");
                }
                line
            }
            Sent::Status { to, reply, headers } => {
                let status = headers.strip_prefix("NATS/1.0 ").unwrap();
                assert!(headers.ends_with("\r\n\r\n"));
                let reply = if reply.is_empty() {
                    reply
                } else {
                    format!(" -> {reply}")
                };
                format!("{to}: {}{reply}", lines(status))
            }
            Sent::Answer(to) => format!("{to}: recorded"),
            Sent::Advisory(text) => {
                let text = text.replace("$JS.EVENT.ADVISORY.CONSUMER.", "");
                let text = text.replace(
                    r#""id":"id","timestamp":"now","stream":"S","consumer":"C","#,
                    "",
                );
                format!(
                    "advisory {}",
                    text.replace("io.nats.jetstream.advisory.v1.", "")
                )
            }
        }
    }
}

/// Reads the number of a message in a transcript command.
fn number(text: &str) -> StreamSeq {
    StreamSeq::new(text.parse().unwrap())
}
