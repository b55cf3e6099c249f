//! The protocol of NATS clients, as far as the bench needs it: a pure parser, and a connection that blocks.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::Value;

/// The greatest number of bytes of a line and of a payload that the bench accepts, to bound its memory.
const BYTES_MAX: usize = 16 << 20;

/// One operation that a NATS server sends to the bench.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    Message {
        subject: &'a str,
        /// The subject to which the receiver may answer; for a consumer's message, the subject of its
        /// acknowledgement.
        reply: Option<&'a str>,
        /// True if the payload begins with a status line and headers.
        headers: bool,
        payload: &'a [u8],
    },
    Ping,
    Pong,
    Error(&'a str),
    /// An operation `INFO` or `+OK`, which the bench ignores.
    Other,
}

/// Returns the first operation in `bytes` and its length in bytes; `None` if the operation is not complete
/// yet.
///
/// # Errors
///
/// The bytes are not the protocol of NATS.
pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Option<(Op<'_>, usize)>> {
    let Some(end) = bytes.iter().position(|b| *b == b'\n') else {
        ensure!(bytes.len() < BYTES_MAX, "a line without an end");
        return Ok(None);
    };
    let line = std::str::from_utf8(&bytes[..end])?.trim_end();
    let mut words = line.split_ascii_whitespace();
    let op = match words.next().unwrap_or_default() {
        verb @ ("MSG" | "HMSG") => {
            let subject = words.next().context("a message without a subject")?;
            let rest: Vec<&str> = words.skip(1).collect();
            let lengths = if verb == "HMSG" { 2 } else { 1 };
            let reply = (rest.len() > lengths).then(|| rest[0]);
            let len: usize = rest.last().context("a message without a length")?.parse()?;
            ensure!(len <= BYTES_MAX, "a message of {len} bytes");
            let payload = end + 1;
            let Some(payload) = bytes.get(payload..payload + len) else {
                return Ok(None);
            };
            let whole = end + 1 + len + 2;
            if bytes.len() < whole {
                return Ok(None);
            }
            let headers = verb == "HMSG";
            let op = Op::Message {
                subject,
                reply,
                headers,
                payload,
            };
            return Ok(Some((op, whole)));
        }
        "PING" => Op::Ping,
        "PONG" => Op::Pong,
        "-ERR" => Op::Error(line.trim_start_matches("-ERR").trim()),
        "INFO" | "+OK" => Op::Other,
        other => bail!("not the protocol of NATS: {other}"),
    };
    Ok(Some((op, end + 1)))
}

/// Returns the first bytes that a client sends: `CONNECT` with the credentials, and `PING`.
pub(crate) fn hello(user: &str, password: &str) -> String {
    format!(
        "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1,\
         \"user\":\"{user}\",\"pass\":\"{password}\"}}\r\nPING\r\n"
    )
}

/// Connects to a server, from the local address `source` if the caller gives one.
pub(crate) fn dial(
    addr: SocketAddr,
    source: Option<IpAddr>,
    patience: Duration,
) -> anyhow::Result<TcpStream> {
    let stream = match source {
        None => TcpStream::connect_timeout(&addr, patience)?,
        Some(source) => {
            let descriptor = socket(AddressFamily::INET, SocketType::STREAM, None)?;
            bind(&descriptor, &SocketAddr::new(source, 0))?;
            set_socket_timeout(&descriptor, Timeout::Send, Some(patience))?;
            connect(&descriptor, &addr)?;
            descriptor.into()
        }
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    Ok(stream)
}

/// A connection to a server, logged in with a user's credentials.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    /// The bytes that the connection has read. The bytes from index `start` on are not parsed yet.
    buffer: Vec<u8>,
    start: usize,
    inbox: String,
}

impl Wire {
    /// Connects and logs in, and waits until the server confirms the credentials.
    ///
    /// # Errors
    ///
    /// The server does not answer in time, or refuses the credentials.
    pub(crate) fn open(
        addr: SocketAddr,
        source: Option<IpAddr>,
        (user, password): (&str, &str),
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let until = Instant::now() + patience;
        let mut stream = dial(addr, source, patience)?;
        stream.write_all(hello(user, password).as_bytes())?;
        let local = stream.local_addr()?;
        let mut wire = Self {
            stream,
            buffer: Vec::new(),
            start: 0,
            inbox: format!("_INBOX.{}x{}", local.port(), addr.port()),
        };
        wire.pong(until)?;
        Ok(wire)
    }

    /// Writes the bytes to the server.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Waits until the server has processed all bytes written so far, by a `PING` behind them.
    ///
    /// # Errors
    ///
    /// The connection ends, or `until` passes.
    pub(crate) fn settle(&mut self, until: Instant) -> anyhow::Result<()> {
        self.write(b"PING\r\n")?;
        self.pong(until)
    }

    fn pong(&mut self, until: Instant) -> anyhow::Result<()> {
        while !self.next(until, |op| Ok(op == Op::Pong))? {}
        Ok(())
    }

    /// Sends a request to `subject` and returns the payload of the answer.
    ///
    /// # Errors
    ///
    /// No client or server answers the request, or `until` passes.
    pub(crate) fn ask(
        &mut self,
        subject: &str,
        body: &str,
        until: Instant,
    ) -> anyhow::Result<Vec<u8>> {
        let (inbox, len) = (self.inbox.clone(), body.len());
        let ask =
            format!("SUB {inbox} 1\r\nUNSUB 1 1\r\nPUB {subject} {inbox} {len}\r\n{body}\r\n");
        self.write(ask.as_bytes())?;
        loop {
            let mut answer = None;
            self.next(until, |op| {
                if let Op::Message {
                    subject: to,
                    headers,
                    payload,
                    ..
                } = op
                    && to == inbox
                {
                    let text = || String::from_utf8_lossy(payload).trim().to_owned();
                    ensure!(!headers, "{subject}: {}", text());
                    answer = Some(payload.to_vec());
                }
                Ok(())
            })?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    /// Sends a request to the server's API of streams, and returns the answer as JSON.
    ///
    /// # Errors
    ///
    /// The server refuses the request, or does not answer until `until`.
    pub(crate) fn api(
        &mut self,
        what: &str,
        body: &Value,
        until: Instant,
    ) -> anyhow::Result<Value> {
        let answer = self.ask(&format!("$JS.API.{what}"), &body.to_string(), until)?;
        let answer: Value = serde_json::from_slice(&answer)?;
        ensure!(answer.get("error").is_none(), "{what}: {}", answer["error"]);
        Ok(answer)
    }

    /// Reads the next operation and passes it to `see`. Answers the server's `PING`.
    ///
    /// # Errors
    ///
    /// The connection ends, the server reports an error, or `until` passes.
    pub(crate) fn next<T>(
        &mut self,
        until: Instant,
        see: impl FnOnce(Op<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        loop {
            if let Some((op, len)) = parse(&self.buffer[self.start..])? {
                let ping = op == Op::Ping;
                if let Op::Error(text) = op {
                    bail!("the server says {text}");
                }
                let seen = see(op);
                self.start += len;
                if ping {
                    self.stream.write_all(b"PONG\r\n")?;
                }
                return seen;
            }
            self.read(until)?;
        }
    }

    /// Returns whether the connection has the whole next operation, so that the caller need not wait.
    ///
    /// # Errors
    ///
    /// The bytes are not the protocol of NATS.
    pub(crate) fn is_buffered(&self) -> anyhow::Result<bool> {
        Ok(parse(&self.buffer[self.start..])?.is_some())
    }

    fn read(&mut self, until: Instant) -> anyhow::Result<()> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let left = until.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no answer in time");
        self.stream.set_read_timeout(Some(left))?;
        let mut part = [0; 64 << 10];
        let got = match self.stream.read(&mut part) {
            Ok(got) => got,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => bail!("no answer in time"),
            Err(e) => return Err(e.into()),
        };
        ensure!(got > 0, "the server closed the connection");
        self.buffer.extend_from_slice(&part[..got]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_parsed_as_they_arrive() {
        let bytes =
            b"INFO {}\r\nMSG a.1 1 r 2\r\nhi\r\nHMSG x 1 4 6\r\nNATShi\r\n-ERR 'no'\r\nPING\r\n";
        let mut at = 0;
        let mut seen = Vec::new();
        for end in 0..=bytes.len() {
            while let Some((op, len)) = parse(&bytes[at..end]).unwrap() {
                seen.push(format!("{op:?}"));
                at += len;
            }
        }
        assert_eq!(at, bytes.len());
        assert_eq!(seen.len(), 5, "{seen:?}");
        assert!(seen[1].contains("\"a.1\"") && seen[1].contains("headers: false"));
        assert!(seen[1].contains("Some(\"r\")"), "{}", seen[1]);
        assert!(seen[2].contains("\"x\"") && seen[2].contains("headers: true"));
        assert!(seen[2].contains("reply: None"), "{}", seen[2]);
        assert_eq!(seen[3], "Error(\"'no'\")");
        assert!(parse(b"HTTP/1.1 200 OK\r\n").is_err());
        assert!(parse(b"MSG a 1 99999999999\r\n").is_err());
    }
}
