//! Callers that append to a stream of a Redis server with `appendfsync always`: Redis syncs its file before
//! it answers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use super::super::server::PATIENCE;
use super::Running;
use super::load::Caller;
use crate::machine;
use tidegate_cli::interrupt;

/// The shell script that runs the server and prints its process id. It ends the server when the bench's end
/// of the pipe closes, even if a signal killed the bench.
const GUARD: &str =
    r#""$@" >/dev/null 2>&1 & server=$!; echo $server; read -r _; kill -9 $server; wait $server"#;

/// A running Redis server.
pub(super) struct Redis {
    guard: Child,
    pid: u32,
    addr: SocketAddr,
    bytes: usize,
}

impl Redis {
    /// Starts the server with its file in `directory`, and waits until it answers.
    pub(super) fn start(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let addr = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut guard = Command::new("sh")
            .args(["-c", GUARD, "sh", "redis-server", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            // A rewrite of the file would take part of the disk in the middle of a measurement.
            .args(["--auto-aof-rewrite-percentage", "0"])
            .args(["--bind", "127.0.0.1", "--loglevel", "warning", "--dir"])
            .arg(directory)
            .args(["--port", &addr.port().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pid = String::new();
        let output = guard.stdout.take().context("no pipe")?;
        BufReader::new(output).read_line(&mut pid)?;
        let pid = pid.trim().parse().context("redis-server does not start")?;
        let redis = Self {
            guard,
            pid,
            addr,
            bytes,
        };
        let until = Instant::now() + PATIENCE;
        while let Err(e) = redis.check() {
            let over = Instant::now() > until || interrupt::asked();
            ensure!(!over, "redis-server does not come up: {e:#}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(redis)
    }

    /// Asks the server for its setting, so that the bench measures no server that syncs later.
    fn check(&self) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.addr)?;
        connection.ask(&["CONFIG", "GET", "appendfsync"])?;
        let said = String::from_utf8_lossy(&connection.reply).into_owned();
        ensure!(said.contains("always"), "expected `always`, got {said}");
        Ok(())
    }
}

impl Running for Redis {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        let payload = "x".repeat(self.bytes);
        let connection = Connection::open(self.addr)?;
        let request = command(&["XADD", "bench", "*", "m", &payload]);
        Ok(Box::new(Appender {
            connection,
            request,
        }))
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        Ok(machine::cpu_ticks_s(&stat, false))
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // The shell script ends the server as soon as its input closes.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

struct Appender {
    connection: Connection,
    request: Vec<u8>,
}

impl Caller for Appender {
    fn call(&mut self) -> anyhow::Result<()> {
        self.connection.call(&self.request)
    }
}

/// A connection that reads replies of strings, and of arrays of strings.
struct Connection {
    reader: BufReader<TcpStream>,
    reply: Vec<u8>,
}

impl Connection {
    fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            reader: BufReader::new(socket),
            reply: Vec::new(),
        })
    }

    fn ask(&mut self, words: &[&str]) -> anyhow::Result<()> {
        self.call(&command(words))
    }

    fn call(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(request)?;
        self.reply.clear();
        self.read()
    }

    /// Reads a reply, and appends its strings to `reply`.
    fn read(&mut self) -> anyhow::Result<()> {
        let start = self.reply.len();
        (&mut self.reader)
            .take(1 << 10)
            .read_until(b'\n', &mut self.reply)?;
        let line = std::str::from_utf8(&self.reply[start..])?.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("no answer")?;
        match kind {
            "$" => {
                let bytes: usize = rest.parse()?;
                ensure!(bytes <= 1 << 20, "a reply of {bytes} bytes");
                self.reply.resize(start + bytes + 2, 0);
                self.reader.read_exact(&mut self.reply[start..])?;
            }
            "*" => {
                for _ in 0..rest.parse::<u8>()? {
                    self.read()?;
                }
            }
            "+" | ":" => {}
            _ => anyhow::bail!("Redis says {line}"),
        }
        Ok(())
    }
}

fn command(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}

/// Returns the version of the redis-server on the search path; `None` without one.
pub(super) fn version() -> Option<String> {
    let output = Command::new("redis-server")
        .arg("--version")
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let found = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    found.map(str::to_owned)
}
