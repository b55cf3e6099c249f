//! Simulates the clients of a run: well-behaved clients, which measure how long they wait, and raw clients,
//! which send the bytes that an attack gives them.

use std::collections::VecDeque;
use std::io::Write as _;
use std::time::Duration;

use tidegate::Time;
use tidegate_server::{ClientEnd, Simulation};

/// The pause of a well-behaved client between two requests.
const PACE: Duration = Duration::from_millis(5);
/// The time after which a well-behaved client gives a request up and sends another, because its server or the
/// leader may have crashed.
const GIVES_UP: Duration = Duration::from_secs(1);
/// The CONNECT that every client sends.
pub(crate) const CONNECT: &str = "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"user\":\"plain\",\"pass\":\"p\"}\r\n";

/// The CONNECT that a client sends with a password that the server keeps as a hash.
const CONNECT_HASHED: &str =
    "CONNECT {\"verbose\":false,\"user\":\"hashed\",\"pass\":\"right\"}\r\n";

/// The way in which a client reads its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The client reads everything at once.
    All,
    /// The client reads nothing.
    Nothing,
    /// The client reads at most this number of bytes in this time.
    Slowly(usize, Duration),
}

/// A client of the simulation, with its connection to a server.
pub(crate) struct Client {
    pub(crate) end: ClientEnd,
    pub(crate) server: usize,
    out: VecDeque<u8>,
    input: Vec<u8>,
    reads: Reads,
    pub(crate) role: Role,
    /// True once the server has closed the client's connection.
    pub(crate) ended: bool,
    /// True if the client's server has crashed since it connected, so that its connection had to end.
    pub(crate) excused: bool,
    /// The time at which the client goes, wherever its handshake is; `None` for a client that stays.
    pub(crate) leaves_at: Option<Time>,
    /// The number of bytes that the client has read.
    pub(crate) got: u64,
    /// The time at which the client acts next, even without an event.
    pub(crate) wakes_at: Option<Time>,
}

/// The behaviour of a client in the simulation.
pub(crate) enum Role {
    /// The client publishes to a stream, and waits for each acknowledgement.
    Publisher(Asking),
    /// The client sends a PING, and waits for its PONG.
    Pinger(Asking),
    /// The client sends the bytes that an attack gives it, and keeps the messages that it gets.
    Raw(Vec<Told>),
    /// The client sends the bytes that an attack gives it, and forgets the server's answers.
    Deaf,
    /// The client publishes many messages before it gets an answer, and counts the answers of each message.
    Writer(Answers),
    /// The client makes a TLS handshake, and then logs in with a password that the server keeps as a hash.
    Tls(Box<rustls::ClientConnection>),
}

/// The requests of a well-behaved client, which sends one after the other.
#[derive(Default)]
pub(crate) struct Asking {
    /// The time at which the client sent the request that has no answer yet.
    asked: Option<Time>,
    /// The time before which the client sends no further request.
    next_at: Time,
    requests: u64,
    /// The times for which the client waited for its answers, in order.
    pub(crate) waits: Vec<Duration>,
    /// The time of the last answer, also if it refused the request.
    pub(crate) answered_at: Time,
    /// The sequences that the server's acknowledgements gave.
    pub(crate) acked: Vec<u64>,
    /// The first answer that is no acknowledgement, which the verdict counts as harm.
    pub(crate) refused: Option<String>,
}

/// The answers that a writer got to its messages. The last token of a message's reply subject is its number.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// The number of answers to each message, by the message's number.
    pub(crate) counts: Vec<u32>,
    /// The sequences of the acknowledged messages, in the order of the answers.
    pub(crate) acked: Vec<u64>,
    /// The number of messages that the server refused with an error of the API, and with the status that no
    /// node takes the message.
    pub(crate) refused: u64,
    pub(crate) unserved: u64,
    /// An answer that is none of these.
    pub(crate) odd: Option<String>,
}

impl Answers {
    /// Creates the counts for this number of messages.
    pub(crate) fn to(messages: usize) -> Self {
        Self {
            counts: vec![0; messages],
            ..Self::default()
        }
    }

    fn note(&mut self, subject: &str, text: &str) {
        let number = subject.rsplit('.').next().and_then(|n| n.parse().ok());
        let count = number.and_then(|n: usize| self.counts.get_mut(n));
        let Some(count) = count else {
            self.odd.get_or_insert_with(|| format!("{subject}: {text}"));
            return;
        };
        *count += 1;
        match seq_of(text) {
            _ if text.contains("\"error\"") => self.refused += 1,
            Some(seq) => self.acked.push(seq),
            None if text.starts_with("NATS/1.0 503") => self.unserved += 1,
            None => _ = self.odd.get_or_insert_with(|| format!("{subject}: {text}")),
        }
    }

    /// Returns the number of messages without an answer.
    pub(crate) fn missing(&self) -> usize {
        self.counts.iter().filter(|n| **n == 0).count()
    }
}

/// Returns the sequence in a PubAck; `None` if the text has none.
fn seq_of(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("\"seq\":")?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().ok()
}

/// An operation that the server sent to the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Pong,
    Message(String),
    Other(String),
}

impl Client {
    pub(crate) fn new(end: ClientEnd, server: usize, role: Role, reads: Reads) -> Self {
        let connect = match role {
            Role::Tls(_) => CONNECT_HASHED,
            _ => CONNECT,
        };
        Self {
            end,
            server,
            out: connect.bytes().collect(),
            input: Vec::new(),
            reads,
            role,
            ended: false,
            excused: false,
            leaves_at: None,
            got: 0,
            wakes_at: None,
        }
    }

    /// Queues these bytes, and begins to send them to the server.
    pub(crate) fn say(&mut self, sim: &mut Simulation, bytes: &[u8]) {
        self.out.extend(bytes);
        self.write(sim);
    }

    fn write(&mut self, sim: &mut Simulation) {
        while !self.out.is_empty() {
            let (front, _) = self.out.as_slices();
            let sent = sim.send(self.end, front);
            if sent == 0 {
                return;
            }
            self.out.drain(..sent);
        }
    }

    /// Returns whether the client has bytes that its connection has not taken.
    pub(crate) fn is_sending(&self) -> bool {
        !self.out.is_empty() && !self.ended
    }

    /// Reads and writes as far as the connection allows, and sends the requests that are due.
    pub(crate) fn act(&mut self, sim: &mut Simulation) {
        let now = sim.now();
        if self.leaves_at.is_some_and(|at| at <= now) {
            sim.close(self.end);
            (self.ended, self.leaves_at, self.wakes_at) = (true, None, None);
        }
        if self.ended {
            self.wakes_at = None;
            return;
        }
        if let Role::Tls(_) = &self.role {
            self.wakes_at = self.leaves_at;
            return self.shake_hands(sim);
        }
        self.write(sim);
        match self.reads {
            Reads::All => while self.read(sim, 1 << 20) {},
            Reads::Nothing => {}
            Reads::Slowly(bytes, every) => {
                if self.wakes_at.is_none_or(|at| at <= now) {
                    self.read(sim, bytes);
                    self.wakes_at = Some(now + every);
                }
            }
        }
        if self.ended {
            self.wakes_at = None;
            return;
        }
        let request = match &mut self.role {
            Role::Publisher(asking) => asking.next(now).map(|n| {
                let (server, text) = (self.server, format!("message {n}"));
                format!(
                    "PUB w.{server} _INBOX.w{server}.{n} {}\r\n{text}\r\n",
                    text.len()
                )
            }),
            Role::Pinger(asking) => asking.next(now).map(|_| "PING\r\n".to_owned()),
            Role::Raw(_) | Role::Deaf | Role::Writer(_) | Role::Tls(_) => return,
        };
        if let Some(request) = request {
            self.say(sim, request.as_bytes());
        }
        if let Role::Publisher(asking) | Role::Pinger(asking) = &self.role {
            let gives_up_at = asking.asked.map(|asked| asked + GIVES_UP);
            self.wakes_at = Some(gives_up_at.unwrap_or(asking.next_at));
        }
    }

    /// Continues the client's TLS handshake, and sends CONNECT within TLS after it.
    fn shake_hands(&mut self, sim: &mut Simulation) {
        let Role::Tls(tls) = &mut self.role else {
            return;
        };
        loop {
            match sim.receive(self.end, 1 << 16) {
                None => {
                    self.ended = true;
                    return;
                }
                Some(bytes) if bytes.is_empty() => break,
                Some(bytes) => {
                    self.got += bytes.len() as u64;
                    let mut rest = &bytes[..];
                    // The server sends INFO in plain text before the handshake, so the client takes it out
                    // first.
                    if rest.starts_with(b"INFO") {
                        let end = rest
                            .iter()
                            .position(|b| *b == b'\n')
                            .unwrap_or(rest.len() - 1);
                        rest = &rest[end + 1..];
                    }
                    while !rest.is_empty() && tls.read_tls(&mut rest).is_ok() {
                        if tls.process_new_packets().is_err() {
                            self.ended = true;
                            return;
                        }
                    }
                }
            }
        }
        if !tls.is_handshaking() && !self.out.is_empty() {
            let connect: Vec<u8> = self.out.drain(..).collect();
            let _ = tls.writer().write_all(&connect);
        }
        let mut records = Vec::new();
        while tls.wants_write() && tls.write_tls(&mut records).is_ok() {}
        sim.send(self.end, &records);
    }

    /// Reads once from the connection. Returns whether there may be more to read.
    fn read(&mut self, sim: &mut Simulation, most: usize) -> bool {
        if self.ended {
            return false;
        }
        let Some(bytes) = sim.receive(self.end, most) else {
            self.ended = true;
            return false;
        };
        if bytes.is_empty() {
            return false;
        }
        self.got += bytes.len() as u64;
        if matches!(self.role, Role::Deaf) {
            return true;
        }
        self.input.extend(bytes);
        let now = sim.now();
        let mut used = 0;
        while let Some((subject, told, len)) = parse(&self.input[used..]) {
            used += len;
            match (&mut self.role, told) {
                (Role::Writer(answers), Told::Message(text)) => answers.note(&subject, &text),
                (Role::Publisher(asking), Told::Message(text)) => asking.acknowledged(now, &text),
                (Role::Pinger(asking), Told::Pong) => asking.answered(now),
                (Role::Raw(all), told) => all.push(told),
                _ => {}
            }
        }
        self.input.drain(..used);
        true
    }

    pub(crate) fn asking(&self) -> Option<&Asking> {
        match &self.role {
            Role::Publisher(asking) | Role::Pinger(asking) => Some(asking),
            Role::Raw(_) | Role::Deaf | Role::Writer(_) | Role::Tls(_) => None,
        }
    }

    pub(crate) fn asking_mut(&mut self) -> Option<&mut Asking> {
        match &mut self.role {
            Role::Publisher(asking) | Role::Pinger(asking) => Some(asking),
            Role::Raw(_) | Role::Deaf | Role::Writer(_) | Role::Tls(_) => None,
        }
    }

    /// Returns the answers that a writer has got; `None` for another client.
    pub(crate) fn answers(&self) -> Option<&Answers> {
        match &self.role {
            Role::Writer(answers) => Some(answers),
            _ => None,
        }
    }

    /// Returns the number of messages that a raw client has got and the test has not taken.
    pub(crate) fn messages_len(&self) -> usize {
        let is_message = |told: &&Told| matches!(told, Told::Message(_));
        match &self.role {
            Role::Raw(all) => all.iter().filter(is_message).count(),
            _ => 0,
        }
    }

    /// Takes the messages that a raw client has got since the last call.
    pub(crate) fn take_told(&mut self) -> Vec<Told> {
        match &mut self.role {
            Role::Raw(all) => std::mem::take(all),
            _ => Vec::new(),
        }
    }
}

impl Asking {
    /// Returns the number of the client's next request; `None` if a request has no answer yet, or if it is
    /// too early.
    fn next(&mut self, now: Time) -> Option<u64> {
        if let Some(asked) = self.asked.take_if(|asked| *asked + GIVES_UP <= now) {
            self.waits.push(now - asked);
        }
        if self.asked.is_some() || now < self.next_at {
            return None;
        }
        self.asked = Some(now);
        self.next_at = now + PACE;
        self.requests += 1;
        Some(self.requests)
    }

    fn answered(&mut self, now: Time) {
        self.answered_at = now;
        if let Some(asked) = self.asked.take() {
            self.waits.push(now - asked);
        }
    }

    fn acknowledged(&mut self, now: Time, text: &str) {
        self.answered(now);
        match seq_of(text) {
            Some(seq) if !text.contains("\"error\"") => self.acked.push(seq),
            _ => {
                self.refused.get_or_insert_with(|| text.to_owned());
            }
        }
    }

    /// Returns the longest time for which the client has waited, also for a request without an answer.
    pub(crate) fn longest(&self, now: Time) -> Duration {
        let open = self.asked.map(|asked| now - asked);
        self.waits
            .iter()
            .copied()
            .chain(open)
            .max()
            .unwrap_or_default()
    }
}

/// Reads the first operation of the server in `input`. Returns the subject of a message, or an empty text,
/// the operation, and its length in bytes; `None` if the operation is not complete.
fn parse(input: &[u8]) -> Option<(String, Told, usize)> {
    let end = input.windows(2).position(|w| w == b"\r\n")?;
    let line = String::from_utf8_lossy(&input[..end]).into_owned();
    let is_message = line.starts_with("MSG ") || line.starts_with("HMSG ");
    if !is_message {
        let told = match line.as_str() {
            "PONG" => Told::Pong,
            _ => Told::Other(line),
        };
        return Some((String::new(), told, end + 2));
    }
    let len: usize = line.rsplit(' ').next()?.parse().ok()?;
    let whole = end + 2 + len + 2;
    if input.len() < whole {
        return None;
    }
    let subject = line.split(' ').nth(1)?.to_owned();
    let text = String::from_utf8_lossy(&input[end + 2..whole - 2]).into_owned();
    Some((subject, Told::Message(text), whole))
}
