//! A neighbour of the bench `neighbours` on one connection: one thread sends the operations that are due,
//! reads the answers, and connects again if the connection is lost.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::figures::ByPhase;
use super::pace::Pace;
use crate::wire::{Op, dial, hello, parse};

/// The length in bytes of each message that a neighbour publishes to a stream, and of each block that the
/// bare write with `fdatasync` writes.
pub(super) const BYTES: usize = 1024;
/// The length in bytes of each message that a neighbour sends to itself, and of each message of the bare
/// echo.
pub(super) const ECHO_BYTES: usize = 16;
/// The pause of a neighbour before it tries again to connect, so that it does not add to the attack.
const PAUSE: Duration = Duration::from_millis(50);
/// The longest sleep of the neighbour's thread in nanoseconds, so that it notices the end of the phases.
const SLEEP_MAX_NS: u64 = 50_000_000;

/// The operation that a neighbour repeats.
#[derive(Clone, Debug)]
pub(super) enum Talk {
    /// Publishes a message to a stream and waits for the stream's acknowledgement.
    Publish(String),
    /// Publishes a message to itself and waits until it receives the message.
    Echo,
    /// Sends `PING` to the server and waits for its `PONG`.
    Ping,
    /// Sends bytes to the bare echo and waits for the same bytes.
    Bare,
}

impl Talk {
    /// Returns the bytes that the neighbour sends first on its connection of this number, to log in and
    /// subscribe.
    fn opening(&self, (user, password): (&str, &str), connection: u64) -> String {
        match self {
            Self::Bare => String::new(),
            Self::Ping => hello(user, password),
            Self::Publish(_) | Self::Echo => {
                format!(
                    "{}SUB {}.* 1\r\n",
                    hello(user, password),
                    self.inbox(connection)
                )
            }
        }
    }

    /// Returns the subject to which the server sends answers. Each connection has a subject of its own, so
    /// that late answers to an earlier connection find no receiver.
    fn inbox(&self, connection: u64) -> String {
        let kind = if matches!(self, Self::Echo) { "e" } else { "p" };
        format!("_INBOX.neighbour{}.{kind}{connection}", std::process::id())
    }

    /// Appends the bytes of operation `number` to `out`, which the neighbour then sends.
    fn encode(&self, number: u64, connection: u64, out: &mut Vec<u8>) {
        let inbox = || self.inbox(connection);
        match self {
            Self::Publish(subject) => {
                let head = format!("PUB {subject} {}.{number} {BYTES}\r\n", inbox());
                out.extend_from_slice(head.as_bytes());
                out.resize(out.len() + BYTES, b'x');
                out.extend_from_slice(b"\r\n");
            }
            Self::Echo => {
                let head = format!("PUB {}.{number} {ECHO_BYTES}\r\n", inbox());
                out.extend_from_slice(head.as_bytes());
                out.resize(out.len() + ECHO_BYTES, b'x');
                out.extend_from_slice(b"\r\n");
            }
            Self::Ping => out.extend_from_slice(b"PING\r\n"),
            Self::Bare => out.resize(out.len() + ECHO_BYTES, b'x'),
        }
    }
}

/// One neighbour: a well-behaved client that repeats its operation on one connection, at a fixed pace.
pub(super) struct Neighbour<'a> {
    pub(super) talk: Talk,
    pub(super) addr: SocketAddr,
    pub(super) login: (&'a str, &'a str),
    pub(super) pace: Pace,
    /// The start of the clients' clock, from which all times count.
    pub(super) clock: Instant,
    /// The time for which the neighbour waits for answers after the end of the phases, and for a new
    /// connection.
    pub(super) patience: Duration,
}

/// One connection of a neighbour to the server, with the bytes that it has not yet sent or parsed.
struct Connection {
    stream: TcpStream,
    number: u64,
    out: Vec<u8>,
    buffer: Vec<u8>,
    /// The number of answers to the opening that the neighbour has not read yet.
    greetings: usize,
}

impl Neighbour<'_> {
    /// Runs the neighbour until the last phase is over and all answers have come, or until its patience ends.
    pub(super) fn run(mut self) -> ByPhase {
        let (mut number, mut lost) = (0, None::<String>);
        loop {
            let connected = self.connect(number);
            if connected.is_ok()
                && let Some(lost) = lost.take()
            {
                // All operations that were due while the neighbour had no connection have failed, and each of
                // them waited from its due time until now.
                self.fail(&lost);
            }
            let served = connected
                .map_err(|e| e.context("cannot connect"))
                .and_then(|mut connection| self.serve(&mut connection));
            match served {
                Ok(()) => return self.pace.figures(),
                Err(e) => drop(lost.get_or_insert_with(|| format!("{e:#}"))),
            }
            if self.pace.is_over(self.now()) {
                self.fail(&lost.unwrap_or_default());
                return self.pace.figures();
            }
            number += 1;
            std::thread::sleep(PAUSE);
        }
    }

    fn fail(&mut self, reason: &str) {
        let now = self.now();
        while self.pace.due(now).is_some() {}
        self.pace.broken(now, reason);
    }

    fn now(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64
    }

    fn connect(&self, number: u64) -> anyhow::Result<Connection> {
        let stream = dial(self.addr, None, self.patience)?;
        let opening = self.talk.opening(self.login, number);
        (&stream).write_all(opening.as_bytes())?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            number,
            out: Vec::new(),
            buffer: Vec::new(),
            // The server answers the opening with its first PONG, which belongs to no operation.
            greetings: usize::from(!opening.is_empty()),
        })
    }

    /// Sends the operations that are due and reads the answers on this connection, until the last phase is
    /// over.
    fn serve(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let mut over_at = None;
        loop {
            let now = self.now();
            while let Some(n) = self.pace.due(now) {
                self.talk.encode(n, connection.number, &mut connection.out);
            }
            if self.pace.is_done(now) {
                return Ok(());
            }
            connection.write()?;
            let left = self.pace.next_ns().saturating_sub(self.now());
            let left = Duration::from_nanos(left.clamp(1, SLEEP_MAX_NS));
            if connection.wait(left)? {
                connection.read()?;
                self.take(connection)?;
            }
            let now = self.now();
            if self.pace.is_over(now) {
                let over_at = *over_at.get_or_insert(now);
                if now - over_at > self.patience.as_nanos() as u64 {
                    bail!(
                        "no answer within {} s after the end",
                        self.patience.as_secs()
                    );
                }
            }
        }
    }

    /// Parses the bytes read so far, and records the answers in them.
    fn take(&mut self, connection: &mut Connection) -> anyhow::Result<()> {
        let (now, mut at) = (self.now(), 0);
        if matches!(self.talk, Talk::Bare) {
            while connection.buffer.len() >= at + ECHO_BYTES {
                self.pace.answered_next(now);
                at += ECHO_BYTES;
            }
        }
        while !matches!(self.talk, Talk::Bare) {
            let Some((op, len)) = parse(&connection.buffer[at..])? else {
                break;
            };
            match op {
                Op::Message {
                    subject,
                    headers,
                    payload,
                    ..
                } => {
                    let number = subject.rsplit('.').next().and_then(|n| n.parse().ok());
                    let acked = !matches!(self.talk, Talk::Publish(_))
                        || (!headers && payload.starts_with(b"{\"stream\""));
                    let text = String::from_utf8_lossy(payload);
                    let failure = (!acked).then(|| text.trim());
                    if let Some(number) = number {
                        self.pace.answered(number, now, failure);
                    }
                }
                Op::Ping => connection.out.extend_from_slice(b"PONG\r\n"),
                Op::Pong if connection.greetings > 0 => connection.greetings -= 1,
                Op::Pong => self.pace.answered_next(now),
                Op::Error(text) => bail!("the server says {text}"),
                Op::Other => {}
            }
            at += len;
        }
        connection.buffer.drain(..at);
        Ok(())
    }
}

impl Connection {
    fn write(&mut self) -> anyhow::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(len) => drop(self.out.drain(..len)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Waits until the connection has bytes to read or room to write, at most for `time`. Returns whether it
    /// has bytes to read.
    fn wait(&self, time: Duration) -> anyhow::Result<bool> {
        let mut flags = PollFlags::IN;
        if !self.out.is_empty() {
            flags |= PollFlags::OUT;
        }
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        };
        let mut polled = [PollFd::new(&self.stream, flags)];
        match poll(&mut polled, Some(&time)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let seen = polled[0].revents();
        Ok(seen.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR))
    }

    fn read(&mut self) -> anyhow::Result<()> {
        let mut part = [0; 16 << 10];
        match self.stream.read(&mut part) {
            Ok(got) => {
                ensure!(got > 0, "the server closed the connection");
                self.buffer.extend_from_slice(&part[..got]);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }
}
