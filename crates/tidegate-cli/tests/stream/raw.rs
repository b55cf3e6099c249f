//! A client of bare sockets: what is written and read is what the test says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// Longer than any answer takes on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A message received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) subject: String,
    pub(crate) reply: Option<String>,
    /// With the headers before it.
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

/// A connection that listens to `_INBOX.<its port>.>`.
pub(crate) struct Raw {
    reader: BufReader<TcpStream>,
    socket: TcpStream,
    pub(crate) inbox: String,
    /// PINGs answered.
    pub(crate) pings: u64,
}

impl Raw {
    pub(crate) fn connect(url: &str) -> std::io::Result<Self> {
        let socket = TcpStream::connect(url)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut raw = Self {
            reader: BufReader::new(socket.try_clone()?),
            inbox: format!("_INBOX.{}.", socket.local_addr()?.port()),
            socket,
            pings: 0,
        };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}}\r\nSUB {}> 1\r\nPING\r\n",
            raw.inbox
        );
        raw.send(hello.as_bytes())?;
        while !raw.line()?.starts_with("PONG") {}
        Ok(raw)
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// Publishes with the reply subject `<inbox><reply>`.
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

    /// The same with headers, each a line without its end.
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
        assert!(!line.starts_with("-ERR"), "{line}");
        Ok(line)
    }

    /// The next message; PINGs before it are answered.
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

    /// The next message a consumer delivers, with its sequence in the stream; a status has none.
    pub(crate) fn delivered(&mut self) -> std::io::Result<(u64, Received)> {
        let message = self.message()?;
        let seq = message.reply.as_deref().and_then(|reply| {
            let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
            // Stream, consumer, deliveries, stream sequence, consumer sequence, time, pending; perhaps two more in front.
            let at = if words.len() == 7 { 3 } else { 5 };
            words.get(at)?.parse().ok()
        });
        let seq =
            seq.ok_or_else(|| std::io::Error::other(format!("not delivered: {message:?}")))?;
        Ok((seq, message))
    }

    /// Reads and answers PINGs until there were so many.
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

    /// Asks `$JS.API.<what>` and reads the answer, which comes before anything else.
    pub(crate) fn api(&mut self, what: &str, body: &Value) -> Value {
        self.publish(
            &format!("$JS.API.{what}"),
            "api",
            body.to_string().as_bytes(),
        )
        .unwrap();
        let answer = self.message().unwrap();
        assert!(answer.subject.ends_with(".api"), "{answer:?}");
        serde_json::from_slice(&answer.payload).unwrap()
    }
}
