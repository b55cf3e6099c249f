//! A small blocking NATS client for the command line: one connection, no reconnecting.
//!
//! This module owns the greeting, writes messages and reads the server's answers; [`url`] parses addresses,
//! and [`jetstream`] asks for streams and consumers. [`publish`], [`subscribe`], [`stream`] and [`consume`]
//! are the commands.

pub(crate) mod consume;
mod jetstream;
mod names;
pub(crate) mod publish;
pub(crate) mod stream;
pub(crate) mod subscribe;
#[cfg(test)]
mod tests;
mod url;

use std::io::{BufRead, BufReader, BufWriter, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use tidegate_nats::subject::is_literal;

use crate::interrupt;

/// The longest wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// The interval at which a waiting command checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// The error when the server closes a connection that the command still needs.
const CLOSED: &str = "the server closed the connection";
/// The longest line a server may send.
const LINE_BYTES_MAX: u64 = 1024 * 1024;

/// Which server.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Connect to this server: `[nats://][USER:PASSWORD@|TOKEN@]HOST[:PORT]`.
    #[arg(
        short,
        long,
        value_name = "URL",
        default_value = "nats://127.0.0.1:4222",
        env = "NATS_URL",
        hide_env_values = true
    )]
    server: String,
}

/// A message received.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    /// The whole header block; empty if the message has no headers.
    pub(crate) headers: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Message {
    /// Returns the code and the text of a status message; `None` for a message that a client published.
    pub(crate) fn status(&self) -> Option<(u16, &str)> {
        let block = std::str::from_utf8(&self.headers).ok()?;
        let line = block.strip_prefix("NATS/1.0 ")?.lines().next()?;
        let (code, words) = line.split_once(' ').unwrap_or((line, ""));
        Some((code.trim().parse().ok()?, words.trim()))
    }

    /// Returns whether the message has this header with this value.
    pub(crate) fn has_header(&self, name: &str, value: &str) -> bool {
        let lines = self.headers.split(|b| *b == b'\n');
        let mut pairs = lines.filter_map(|line| std::str::from_utf8(line).ok()?.split_once(':'));
        pairs.any(|(n, v)| n == name && v.trim() == value)
    }
}

/// The fields of the server's INFO that this client reads.
#[derive(Debug, Deserialize)]
struct Info {
    max_payload: usize,
    #[serde(default)]
    tls_required: bool,
}

/// A connection, past its greeting.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    writer: BufWriter<TcpStream>,
    pub(crate) max_payload: usize,
    /// The prefix of this client's reply subjects.
    inbox: String,
    listening: bool,
    asked: u64,
}

enum Line {
    Pong,
    Message(Message),
}

impl Client {
    /// Connects and waits until the server has taken the credentials.
    pub(crate) fn connect(args: &ServerArgs) -> anyhow::Result<Self> {
        let (user, pass, token, address) = url::parse(&args.server)?;
        let stream =
            TcpStream::connect(&address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut client = Self {
            reader: BufReader::new(stream.try_clone()?),
            writer: BufWriter::with_capacity(64 * 1024, stream),
            max_payload: 0,
            inbox: inbox()?,
            listening: false,
            asked: 0,
        };
        let line = client.line(PATIENCE)?.context(CLOSED)?;
        let info = line
            .strip_prefix("INFO ")
            .with_context(|| format!("{address} does not speak NATS"))?;
        let info: Info = serde_json::from_str(info).context("the server's INFO cannot be read")?;
        if info.tls_required {
            bail!("{address} wants TLS, which this command does not speak");
        }
        client.max_payload = info.max_payload;
        let connect = json!({
            "verbose": false, "pedantic": false, "headers": true, "no_responders": true, "protocol": 1, "echo": true,
            "lang": "rust", "version": env!("CARGO_PKG_VERSION"), "name": "tidegate",
            "user": user, "pass": pass, "auth_token": token,
        });
        client.write(format!("CONNECT {connect}\r\n").as_bytes())?;
        client.sync()?;
        Ok(client)
    }

    /// Writes a message; [`Client::sync`] confirms that the server has taken it.
    pub(crate) fn publish(&mut self, subject: &str, payload: &[u8]) -> anyhow::Result<()> {
        self.put(subject, None, b"", payload)
    }

    /// Writes a message with a reply subject and, unless it is empty, a block of headers.
    pub(crate) fn publish_with(
        &mut self,
        subject: &str,
        reply: &str,
        headers: &[u8],
        payload: &[u8],
    ) -> anyhow::Result<()> {
        self.put(subject, Some(reply), headers, payload)
    }

    fn put(
        &mut self,
        subject: &str,
        reply: Option<&str>,
        headers: &[u8],
        payload: &[u8],
    ) -> anyhow::Result<()> {
        // The commands check the names that the user gives; parts of these subjects may come from the server.
        for subject in [Some(subject), reply].into_iter().flatten() {
            if !is_literal(subject.as_bytes()) {
                bail!(
                    "`{}` is not a subject: nothing is sent to it",
                    subject.escape_debug()
                );
            }
        }
        let mut line = if headers.is_empty() { "PUB " } else { "HPUB " }.to_owned();
        line.push_str(subject);
        if let Some(reply) = reply {
            line.push(' ');
            line.push_str(reply);
        }
        if !headers.is_empty() {
            line.push_str(&format!(" {}", headers.len()));
        }
        line.push_str(&format!(" {}\r\n", headers.len() + payload.len()));
        for part in [line.as_bytes(), headers, payload, b"\r\n"] {
            self.write(part)?;
        }
        Ok(())
    }

    /// Subscribes under the one subscription id that this client uses.
    pub(crate) fn subscribe(&mut self, subject: &str, queue: Option<&str>) -> anyhow::Result<()> {
        names::pattern("the subject to subscribe to", subject)?;
        let queue = queue.unwrap_or_default();
        if !queue.is_empty() {
            names::queue_group("the queue group", queue)?;
        }
        self.write(format!("SUB {subject} {queue} 1\r\n").as_bytes())?;
        self.sync()
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        self.writer.write_all(bytes).map_err(written)
    }

    /// Returns the prefix, closed by a dot, of subjects that only this client subscribes to. The first call
    /// subscribes.
    pub(crate) fn inbox(&mut self) -> anyhow::Result<String> {
        if !self.listening {
            self.listening = true;
            let all = format!("{}>", self.inbox);
            self.subscribe(&all, None)?;
        }
        Ok(self.inbox.clone())
    }

    /// Sends a request and waits for its answer; drops other messages that arrive meanwhile.
    pub(crate) fn request(&mut self, subject: &str, payload: &[u8]) -> anyhow::Result<Message> {
        self.asked += 1;
        let reply = format!("{}q{}", self.inbox()?, self.asked);
        self.publish_with(subject, &reply, b"", payload)?;
        self.flush()?;
        loop {
            match self.message_within(PATIENCE)? {
                Some(message) if message.subject == reply => return Ok(message),
                Some(_) => {}
                None if interrupt::asked() => bail!("interrupted before the server answered"),
                None => bail!("no answer: {CLOSED}"),
            }
        }
    }

    /// Returns whether the buffer holds bytes that the client has not read.
    pub(crate) fn has_buffered(&self) -> bool {
        !self.reader.buffer().is_empty()
    }

    /// Flushes the written bytes to the network.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        self.writer.flush().map_err(written)
    }

    /// Waits until the server has taken everything written so far.
    pub(crate) fn sync(&mut self) -> anyhow::Result<()> {
        self.write(b"PING\r\n")?;
        self.flush()?;
        loop {
            match self.next(PATIENCE)? {
                Some(Line::Pong) => return Ok(()),
                Some(Line::Message(_)) => {}
                None => bail!(CLOSED),
            }
        }
    }

    /// Returns the next message; `None` if the server closed the connection or the user pressed Ctrl-C.
    pub(crate) fn message(&mut self) -> anyhow::Result<Option<Message>> {
        self.message_within(Duration::MAX)
    }

    /// Returns the next message; fails after `patience` without a byte.
    pub(crate) fn message_within(&mut self, patience: Duration) -> anyhow::Result<Option<Message>> {
        loop {
            match self.next(patience)? {
                Some(Line::Message(message)) => return Ok(Some(message)),
                Some(Line::Pong) => {}
                None => return Ok(None),
            }
        }
    }

    fn next(&mut self, patience: Duration) -> anyhow::Result<Option<Line>> {
        loop {
            let Some(line) = self.line(patience)? else {
                return Ok(None);
            };
            let mut words = line.split_ascii_whitespace();
            match words.next().unwrap_or("") {
                "PONG" => return Ok(Some(Line::Pong)),
                "PING" => {
                    self.write(b"PONG\r\n")?;
                    self.flush()?;
                }
                "INFO" | "+OK" => {}
                "-ERR" => bail!(
                    "the server says: {}",
                    line.trim_start_matches("-ERR").trim()
                ),
                verb @ ("MSG" | "HMSG") => {
                    let words: Vec<&str> = words.collect();
                    let message = self.body(verb == "HMSG", &words, patience);
                    return Ok(Some(Line::Message(
                        message.with_context(|| format!("cannot read `{line}`"))?,
                    )));
                }
                _ => bail!("the server says `{line}`, which is not NATS"),
            }
        }
    }

    fn body(
        &mut self,
        headers: bool,
        words: &[&str],
        patience: Duration,
    ) -> anyhow::Result<Message> {
        let number = |word: Option<&&str>| -> anyhow::Result<usize> {
            Ok(word.context("too few words")?.parse()?)
        };
        let total = number(words.last())?;
        let skip = if headers {
            number(words.iter().rev().nth(1))?
        } else {
            0
        };
        if total > 64 * 1024 * 1024 || skip > total {
            bail!("impossible sizes");
        }
        let mut payload = vec![0; total + 2];
        let mut filled = 0;
        let mut waited = Duration::ZERO;
        while filled < payload.len() {
            match self.reader.read(&mut payload[filled..]) {
                Ok(0) => bail!(CLOSED),
                Ok(n) => filled += n,
                Err(e) => wait_more(e, &mut waited, patience.min(PATIENCE))?,
            }
        }
        payload.truncate(total);
        let body = payload.split_off(skip);
        // The words are the subject, the sid, an optional reply and one or two lengths.
        let reply = words
            .get(2)
            .filter(|_| words.len() == if headers { 5 } else { 4 });
        Ok(Message {
            subject: (*words.first().context("too few words")?).to_owned(),
            reply: reply.map(|&reply| reply.to_owned()),
            headers: payload,
            payload: body,
        })
    }

    /// Reads a line without its end; `None` at the end of the connection or after Ctrl-C.
    fn line(&mut self, patience: Duration) -> anyhow::Result<Option<String>> {
        let mut line = Vec::new();
        let mut waited = Duration::ZERO;
        loop {
            match (&mut self.reader)
                .take(LINE_BYTES_MAX)
                .read_until(b'\n', &mut line)
            {
                Ok(_) if line.ends_with(b"\n") => {
                    return Ok(Some(String::from_utf8_lossy(&line).trim_end().to_owned()));
                }
                Ok(0) => return Ok(None),
                Ok(_) if line.len() as u64 >= LINE_BYTES_MAX => {
                    bail!("the server sends a line without an end")
                }
                Ok(_) => {}
                Err(_) if interrupt::asked() => return Ok(None),
                Err(e) => wait_more(e, &mut waited, patience)?,
            }
        }
    }
}

/// Explains why a write to the server failed. A broken pipe gets another error: `main` treats a broken pipe
/// as a reader of standard output that has closed it.
fn written(error: std::io::Error) -> anyhow::Error {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => anyhow!(CLOSED),
        _ => anyhow!(error).context("cannot write to the server"),
    }
}

/// Returns a random subject prefix that no other client uses.
fn inbox() -> anyhow::Result<String> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes)?;
    Ok(format!("_INBOX.{:016x}.", u64::from_le_bytes(bytes)))
}

/// Decides whether the caller reads again after a read that returned an error.
fn wait_more(
    error: std::io::Error,
    waited: &mut Duration,
    patience: Duration,
) -> anyhow::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            *waited += LOOK;
            if *waited >= patience {
                bail!("the server did not answer within {} s", patience.as_secs());
            }
            Ok(())
        }
        ErrorKind::ConnectionReset => bail!(CLOSED),
        _ => Err(error.into()),
    }
}
