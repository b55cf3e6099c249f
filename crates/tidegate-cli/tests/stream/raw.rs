//! A NATS client for tests over a plain socket, which writes and reads exactly the bytes that the test names.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// The longest time for which the client waits for an answer. Every answer is faster, even while other tests
/// keep the machine busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A message that the client has received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    /// The bytes of the headers and of the payload, one after the other.
    pub(crate) payload: Vec<u8>,
    headers_len: usize,
}

impl Received {
    pub(crate) fn headers(&self) -> &str {
        std::str::from_utf8(&self.payload[..self.headers_len]).unwrap()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.payload[self.headers_len..]).unwrap()
    }
}

/// The number of the next inbox. Local ports cannot number them, because connections to different nodes of a
/// cluster may have the same local port.
static INBOXES: AtomicU64 = AtomicU64::new(0);

/// A connection to a server that has subscribed to an inbox of its own.
pub(crate) struct Raw {
    reader: BufReader<TcpStream>,
    socket: TcpStream,
    pub(crate) inbox: String,
    /// The number of the server's PINGs that the client has answered.
    pub(crate) pings: u64,
}

impl Raw {
    pub(crate) fn connect(url: &str) -> std::io::Result<Self> {
        Self::connect_within(url, PATIENCE)
    }

    /// Connects to a server. Every operation that takes longer than `patience` fails.
    pub(crate) fn connect_within(url: &str, patience: Duration) -> std::io::Result<Self> {
        let addrs: Vec<_> = url.to_socket_addrs()?.collect();
        let socket = TcpStream::connect_timeout(&addrs[0], patience)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(patience))?;
        socket.set_write_timeout(Some(patience))?;
        let mut raw = Self {
            reader: BufReader::new(socket.try_clone()?),
            inbox: format!(
                "_INBOX.{}x{}.",
                std::process::id(),
                INBOXES.fetch_add(1, Ordering::Relaxed)
            ),
            socket,
            pings: 0,
        };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}}\r\nSUB {}> 1\r\nPING\r\n",
            raw.inbox
        );
        raw.send(hello.as_bytes())?;
        while !raw.line()?.starts_with("PONG") {}
        Ok(raw)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Publishes a message with the reply subject `<inbox><reply>`.
    pub(crate) fn publish(
        &mut self,
        subject: &str,
        reply: &str,
        payload: &[u8],
    ) -> std::io::Result<()> {
        let mut out =
            format!("PUB {subject} {}{reply} {}\r\n", self.inbox, payload.len()).into_bytes();
        out.extend_from_slice(payload);
        out.extend_from_slice(b"\r\n");
        self.send(&out)
    }

    /// Publishes a message with headers, each given as a line without its line end.
    pub(crate) fn publish_with(&mut self, subject: &str, reply: &str, headers: &[&str]) {
        let block: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
        let block = format!("NATS/1.0\r\n{block}\r\n");
        let (inbox, len) = (&self.inbox, block.len());
        let out = format!("HPUB {subject} {inbox}{reply} {len} {len}\r\n{block}\r\n");
        self.send(out.as_bytes()).unwrap();
    }

    fn line(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if line.starts_with("-ERR") {
            return Err(std::io::Error::other(line));
        }
        Ok(line)
    }

    /// Reads the next message, and answers PINGs that come before it.
    pub(crate) fn message(&mut self) -> std::io::Result<Received> {
        loop {
            let line = self.line()?;
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[0] {
                "PING" => self.pong()?,
                "MSG" | "HMSG" => {
                    let bytes: usize = words[words.len() - 1].parse().unwrap();
                    let mut payload = vec![0; bytes + 2];
                    self.reader.read_exact(&mut payload)?;
                    payload.truncate(bytes);
                    let lengths = if words[0] == "HMSG" { 2 } else { 1 };
                    let headers_len = match words[0] {
                        "HMSG" => words[words.len() - 2].parse().unwrap(),
                        _ => 0,
                    };
                    let reply = (words.len() == 4 + lengths).then(|| words[3].into());
                    return Ok(Received {
                        subject: words[1].into(),
                        reply,
                        payload,
                        headers_len,
                    });
                }
                _ => {}
            }
        }
    }

    /// Reads the next message that a consumer delivers. Returns its stream sequence, which a status does not
    /// have, and the message.
    pub(crate) fn delivered(&mut self) -> std::io::Result<(u64, Received)> {
        let message = self.message()?;
        let seq = message.reply.as_deref().and_then(|reply| {
            let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
            // The words are stream, consumer, deliveries, stream sequence, consumer sequence, time and
            // pending, with up to two more in front.
            let at = if words.len() == 7 { 3 } else { 5 };
            words.get(at)?.parse().ok()
        });
        let seq =
            seq.ok_or_else(|| std::io::Error::other(format!("not delivered: {message:?}")))?;
        Ok((seq, message))
    }

    /// Reads and answers PINGs until the client has answered `times` of them.
    pub(crate) fn pinged(&mut self, times: u64) -> std::io::Result<()> {
        while self.pings < times {
            if self.line()?.starts_with("PING") {
                self.pong()?;
            }
        }
        Ok(())
    }

    fn pong(&mut self) -> std::io::Result<()> {
        self.pings += 1;
        self.send(b"PONG\r\n")
    }

    /// Sends a request to `$JS.API.<what>` and returns its answer, which must be the next message.
    pub(crate) fn api(&mut self, what: &str, body: &Value) -> Value {
        self.try_api(what, body).unwrap()
    }

    /// Sends a request to `$JS.API.<what>` and returns its answer, or an error if no answer comes.
    pub(crate) fn try_api(&mut self, what: &str, body: &Value) -> std::io::Result<Value> {
        let subject = format!("$JS.API.{what}");
        self.publish(&subject, "api", body.to_string().as_bytes())?;
        let answer = self.message()?;
        assert!(answer.subject.ends_with(".api"), "{answer:?}");
        Ok(serde_json::from_slice(&answer.payload)?)
    }
}

/// Reads all messages of a stream from `first` to `last`: the sequence, the subject and the payload of each.
pub(crate) fn read_stream(
    url: &str,
    stream: &str,
    first: u64,
    last: u64,
    patience: Duration,
) -> std::io::Result<Vec<(u64, String, Vec<u8>)>> {
    let mut raw = Raw::connect_within(url, patience)?;
    let config = json!({
        "ack_policy": "none", "deliver_policy": "by_start_sequence", "opt_start_seq": first, "replay_policy": "instant",
        "mem_storage": true, "num_replicas": 1, "inactive_threshold": 60_000_000_000_u64,
    });
    let made = raw.try_api(
        &format!("CONSUMER.CREATE.{stream}"),
        &json!({"stream_name": stream, "config": config}),
    )?;
    let name = made["name"].as_str();
    let name = name.ok_or_else(|| std::io::Error::other(made.to_string()))?;
    let mut all = Vec::new();
    while first + (all.len() as u64) <= last {
        let wanted = (last + 1 - first - all.len() as u64).min(1000);
        let ask = json!({"batch": wanted, "expires": 20_000_000_000_u64}).to_string();
        let next = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        raw.publish(&next, "pull", ask.as_bytes())?;
        for _ in 0..wanted {
            let (seq, message) = raw.delivered()?;
            all.push((seq, message.subject, message.payload));
        }
    }
    Ok(all)
}
