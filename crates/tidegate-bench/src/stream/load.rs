//! The load on streams that the bench itself sends: bare sockets, one thread for each client, each with a
//! number of messages in flight. The load costs little, and equally for every server. It serves the cells
//! that the `nats` program cannot do: many streams, and a lone client without a runtime.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::super::rounds::Sample;

/// The longest time for which a client waits for an answer, before the measurement fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name of the first stream of a load, on which the bench asks for the leader.
pub(super) const FIRST_STREAM: &str = "bench0";
/// The time after which the bench repeats a request, because a forming cluster may lose an answer.
const ATTEMPT: Duration = Duration::from_secs(2);

/// The load that clients of the bench publish in a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) clients: usize,
    /// The number of bytes in each message's payload.
    pub(super) bytes: usize,
    /// The number of streams of the load. Each client publishes to all of them in turn.
    pub(super) streams: usize,
    /// The number of replicas of each stream.
    pub(super) replicas: usize,
    /// The number of messages that a client has in flight. With 1 the client waits for each acknowledgement.
    pub(super) window: usize,
    /// The number of messages that all clients publish together.
    pub(super) messages: u64,
}

impl Load {
    /// Creates the streams without messages, then publishes the load and measures its throughput.
    ///
    /// # Errors
    ///
    /// The server refuses a stream or a message, or does not answer.
    pub(super) fn run(&self, addrs: &[SocketAddr]) -> anyhow::Result<Sample> {
        let first = *addrs.first().context("no server")?;
        create_streams(first, self.streams, self.replicas)?;
        let each = (self.messages / self.clients as u64).max(1);
        let ready = Barrier::new(self.clients + 1);
        let (outcomes, took) = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients)
                .map(|client| {
                    let (ready, addr) = (&ready, addrs[client % addrs.len()]);
                    scope.spawn(move || {
                        let connection = Connection::open(addr);
                        ready.wait();
                        connection.and_then(|mut c| self.publish(&mut c, client, each))
                    })
                })
                .collect();
            ready.wait();
            let start = Instant::now();
            let outcomes: Vec<_> = clients
                .into_iter()
                .map(std::thread::ScopedJoinHandle::join)
                .collect();
            (outcomes, start.elapsed())
        });
        let mut latencies = Histogram::<u64>::new(3)?;
        for outcome in outcomes {
            latencies.add(outcome.ok().context("a client panicked")??)?;
        }
        let messages = each * self.clients as u64;
        let quantile =
            |q| (!latencies.is_empty()).then(|| latencies.value_at_quantile(q) as f64 / 1e3);
        Ok(Sample {
            ops_per_s: messages as f64 / took.as_secs_f64(),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            ..Sample::default()
        })
    }

    /// Publishes one client's share of the load. If the client has only one message in flight, measures each
    /// latency in nanoseconds.
    fn publish(
        &self,
        connection: &mut Connection,
        client: usize,
        messages: u64,
    ) -> anyhow::Result<Histogram<u64>> {
        let mut latencies = Histogram::<u64>::new(3)?;
        let payload = vec![b'x'; self.bytes];
        let mut out = Vec::new();
        let (mut sent, mut acked) = (0, 0);
        while acked < messages {
            out.clear();
            // The client sends the next half of a window when the server has acknowledged half of a window,
            // as the `nats` program does.
            let step = (self.window as u64 / 2).max(1);
            while sent < messages && sent - acked < self.window as u64 && out.len() < 1 << 20 {
                let stream = (client as u64 + sent) % self.streams as u64;
                write!(
                    out,
                    "PUB bench{stream} {}a {}\r\n",
                    connection.inbox, self.bytes
                )?;
                out.extend_from_slice(&payload);
                out.extend_from_slice(b"\r\n");
                sent += 1;
            }
            let start = Instant::now();
            connection.socket.write_all(&out)?;
            if sent < messages && sent - acked < self.window as u64 {
                continue;
            }
            let target = (acked + step).min(sent);
            while acked < target {
                connection.ack()?;
                acked += 1;
            }
            if self.window == 1 {
                latencies.record(u64::try_from(start.elapsed().as_nanos())?)?;
            }
        }
        Ok(latencies)
    }
}

/// Creates the streams of a load, and removes the messages of an earlier load.
///
/// # Errors
///
/// The server refuses a stream, or does not answer.
pub(super) fn create_streams(
    addr: SocketAddr,
    streams: usize,
    replicas: usize,
) -> anyhow::Result<()> {
    let mut control = Connection::open(addr)?;
    for stream in 0..streams {
        let name = format!("bench{stream}");
        let config = json!({
            "name": name, "subjects": [name], "retention": "limits", "storage": "file", "discard": "old",
            "num_replicas": replicas, "max_msgs": -1, "max_bytes": -1,
        });
        control.api(&format!("STREAM.CREATE.{name}"), &config)?;
        control.api(&format!("STREAM.PURGE.{name}"), &json!({}))?;
    }
    Ok(())
}

/// Deletes a consumer, if it exists, so that the next client creates a new one.
///
/// # Errors
///
/// The server does not answer.
pub(super) fn delete_consumer(
    addrs: &[SocketAddr],
    stream: &str,
    consumer: &str,
) -> anyhow::Result<()> {
    let ask = format!("CONSUMER.DELETE.{stream}.{consumer}");
    Connection::open(*addrs.first().context("no server")?)?.ask(&ask, "")?;
    Ok(())
}

/// Creates a stream with `replicas` replicas and removes it, which proves that the server serves streams.
///
/// # Errors
///
/// The server refuses the request, or does not answer.
pub(super) fn try_stream(addr: SocketAddr, replicas: usize) -> anyhow::Result<()> {
    let name = "bench-formed";
    let config =
        json!({"name": name, "subjects": [name], "storage": "file", "num_replicas": replicas});
    let mut connection = Connection::open(addr)?;
    connection.socket.set_read_timeout(Some(ATTEMPT))?;
    connection.api(&format!("STREAM.CREATE.{name}"), &config)?;
    connection.api(&format!("STREAM.DELETE.{name}"), &json!({}))
}

/// Returns the name of the node that leads a stream; `None` if the stream has no leader.
///
/// # Errors
///
/// The server does not answer.
pub(super) fn leader(addr: SocketAddr, stream: &str) -> anyhow::Result<Option<String>> {
    let info = Connection::open(addr)?.ask(&format!("STREAM.INFO.{stream}"), "")?;
    Ok(info["cluster"]["leader"].as_str().map(String::from))
}

/// A client's connection that has read the server's greeting and subscribes to its inbox.
pub(super) struct Connection {
    reader: BufReader<TcpStream>,
    socket: TcpStream,
    inbox: String,
    line: Vec<u8>,
    payload: Vec<u8>,
}

impl Connection {
    /// Connects, and subscribes to the inbox.
    ///
    /// # Errors
    ///
    /// The server refuses the connection, or does not answer.
    pub(super) fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Self {
            reader: BufReader::with_capacity(64 << 10, socket.try_clone()?),
            // The inbox's name has both ports of the connection, because a client of another node may have
            // the first port, too.
            inbox: format!("_INBOX.{}x{}.", socket.local_addr()?.port(), addr.port()),
            socket,
            line: Vec::new(),
            payload: Vec::new(),
        };
        let hello = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1}}\r\n\
             SUB {}* 1\r\nPING\r\n",
            connection.inbox
        );
        connection.socket.write_all(hello.as_bytes())?;
        loop {
            connection.read_line()?;
            if connection.line.starts_with(b"PONG") {
                return Ok(connection);
            }
        }
    }

    /// Returns the bytes of a publish for which this connection's inbox gets the acknowledgement.
    pub(super) fn request(&self, subject: &str, payload: &[u8]) -> Vec<u8> {
        let head = format!("PUB {subject} {}a {}\r\n", self.inbox, payload.len());
        [head.as_bytes(), payload, b"\r\n"].concat()
    }

    /// Writes bytes to the server.
    ///
    /// # Errors
    ///
    /// The connection has ended.
    pub(super) fn send(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.socket.write_all(bytes)?)
    }

    fn read_line(&mut self) -> anyhow::Result<()> {
        self.line.clear();
        let got = (&mut self.reader)
            .take(1 << 20)
            .read_until(b'\n', &mut self.line)?;
        ensure!(got > 0, "the server closed the connection");
        if self.line.starts_with(b"-ERR") {
            bail!(
                "the server says {}",
                String::from_utf8_lossy(&self.line).trim()
            );
        }
        Ok(())
    }

    /// Reads the payload of the next message into the connection's buffer.
    fn message(&mut self) -> anyhow::Result<()> {
        loop {
            self.read_line()?;
            if self.line.starts_with(b"PING") {
                self.socket.write_all(b"PONG\r\n")?;
            } else if self.line.starts_with(b"MSG") || self.line.starts_with(b"HMSG") {
                break;
            }
        }
        let text = std::str::from_utf8(&self.line)?;
        let bytes = text
            .split_ascii_whitespace()
            .last()
            .context("a line without words")?;
        let bytes: usize = bytes.parse()?;
        ensure!(bytes <= 1 << 20, "an answer of {bytes} bytes");
        self.payload.resize(bytes + 2, 0);
        self.reader.read_exact(&mut self.payload)?;
        self.payload.truncate(bytes);
        Ok(())
    }

    /// Reads the next message, and returns an error if it is not an acknowledgement.
    ///
    /// # Errors
    ///
    /// The message is no acknowledgement, or the connection has ended.
    pub(super) fn ack(&mut self) -> anyhow::Result<()> {
        self.message()?;
        if !self.payload.starts_with(b"{\"stream\":") {
            bail!(
                "instead of an acknowledgement: {}",
                String::from_utf8_lossy(&self.payload)
            );
        }
        Ok(())
    }

    fn api(&mut self, what: &str, body: &Value) -> anyhow::Result<()> {
        let answer = self.ask(what, &body.to_string())?;
        ensure!(answer.get("error").is_none(), "{what}: {}", answer["error"]);
        Ok(())
    }

    fn ask(&mut self, what: &str, body: &str) -> anyhow::Result<Value> {
        let (inbox, bytes) = (&self.inbox, body.len());
        let ask = format!("PUB $JS.API.{what} {inbox}q {bytes}\r\n{body}\r\n");
        self.socket.write_all(ask.as_bytes())?;
        self.message()?;
        serde_json::from_slice(&self.payload)
            .with_context(|| format!("{what}: {}", String::from_utf8_lossy(&self.payload)))
    }
}
