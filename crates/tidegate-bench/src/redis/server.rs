//! A Redis server that the bench starts on a free port, with the persistence that a bench wants, and the
//! connection through which the bench asks it. The server ends with the bench, even if a signal kills the
//! bench.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::guard::{Guard, free_ports};
use tidegate_cli::Usage;

/// The number of keys that the bench fills before a load with GET. Caller n of a load uses the key n modulo
/// this number.
const KEYS: usize = 1024;
/// The longest time that the server may take to start, and to answer, before the bench reports a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// The most bytes of a string in a reply that the bench accepts, to bound its memory.
const STRING_MAX: usize = 1 << 20;

/// The files that the server writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// The server writes no file.
    None,
    /// The server syncs each change to its file before it answers (`appendfsync always`).
    Always,
}

impl Persistence {
    const fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::None => &["--appendonly", "no"],
            Self::Always => &[
                "--appendonly",
                "yes",
                "--appendfsync",
                "always",
                // A rewrite of the file would take part of the disk in the middle of a measurement.
                "--auto-aof-rewrite-percentage",
                "0",
            ],
        }
    }
}

/// A running Redis server that the bench starts and ends. The field `guard` comes first, so that the server
/// has ended when the bench removes the directory.
pub(crate) struct Server {
    guard: Guard,
    addr: SocketAddr,
    version: String,
    control: Connection,
    _directory: Option<Directory>,
}

/// The counters of the Redis server since its start, for the costs of commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Did {
    pub(super) commands: f64,
    pub(super) reads: f64,
    pub(super) cpu_s: f64,
}

impl Server {
    /// Starts a Redis server without persistence, in a directory that the bench removes at its end.
    ///
    /// # Errors
    ///
    /// As for [`Server::start`].
    pub(super) fn start_without_files() -> anyhow::Result<Self> {
        // A missing redis-server leaves no directory behind.
        installed()?;
        let directory = Directory::make()?;
        let server = Self::start(&directory.0, Persistence::None)?;
        Ok(Self {
            _directory: Some(directory),
            ..server
        })
    }

    /// Starts a Redis server with its files in `directory`, and waits until it answers.
    ///
    /// # Errors
    ///
    /// Redis is not installed (exit code 2, with the command that installs it), or does not start.
    pub(crate) fn start(directory: &Path, persistence: Persistence) -> anyhow::Result<Self> {
        let version = installed()?;
        let mut refused = None;
        // The bench tries several ports, because another process may take a free port before the server binds
        // it.
        for _ in 0..3 {
            match start(directory, persistence) {
                Ok((guard, addr, control)) => {
                    return Ok(Self {
                        guard,
                        addr,
                        version,
                        control,
                        _directory: None,
                    });
                }
                Err(e) => refused = Some(e),
            }
        }
        Err(refused.unwrap_or_else(|| anyhow::anyhow!("redis-server does not start")))
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the version that redis-server reports, for the user.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Returns the processes of the server, for their processor time and for a trace.
    pub(crate) const fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Sets every key that the load reads to a value of `bytes` bytes.
    pub(super) fn fill(&mut self, bytes: usize) -> anyhow::Result<()> {
        let value = "x".repeat(bytes);
        for key in 0..KEYS {
            let reply = self.control.ask(&["SET", &format!("key:{key}"), &value])?;
            ensure!(reply == "OK", "SET was answered {reply}");
        }
        Ok(())
    }

    /// Returns the server's counters so far, which include this request itself.
    pub(super) fn did(&mut self) -> anyhow::Result<Did> {
        let mut info = String::new();
        for section in ["stats", "cpu"] {
            info += &self.control.ask(&["INFO", section])?;
        }
        did(&info)
    }
}

/// A directory in the system's temporary directory, which the bench removes at its end.
struct Directory(PathBuf);

impl Directory {
    fn make() -> anyhow::Result<Self> {
        let name = format!("tidegate-bench-redis-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // The directory is in the system's temporary directory, so the bench ignores a failed removal.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn did(info: &str) -> anyhow::Result<Did> {
    let fields: HashMap<_, _> = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect();
    let number = |key: &str| -> anyhow::Result<f64> {
        let text = fields.get(key);
        let text =
            text.with_context(|| format!("INFO has no {key}: Redis 6.2 or later is wanted"))?;
        text.parse().with_context(|| format!("INFO: {key}:{text}"))
    };
    Ok(Did {
        commands: number("total_commands_processed")?,
        reads: number("total_reads_processed")?,
        cpu_s: number("used_cpu_sys")? + number("used_cpu_user")?,
    })
}

/// Returns the version of the redis-server on the search path, or an error that names the way to install it.
pub(crate) fn installed() -> anyhow::Result<String> {
    let output = Command::new("redis-server").arg("--version").output();
    let output = output.map_err(|e| {
        Usage::new(format!(
            "no redis-server to start ({e}): apt-get install redis-server, or bench/peers/install.sh redis"
        ))
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    Ok(version.unwrap_or("of unknown version").to_owned())
}

fn start(
    directory: &Path,
    persistence: Persistence,
) -> anyhow::Result<(Guard, SocketAddr, Connection)> {
    let [addr] = free_ports()?;
    let mut command = Command::new("redis-server");
    command
        .args(["--save", ""])
        .args(persistence.arguments())
        .args(["--bind", "127.0.0.1", "--loglevel", "warning", "--dir"])
        .arg(directory)
        .args(["--port", &addr.port().to_string()]);
    let guard = Guard::start(&command, &directory.join("log"))?;
    let control = guard.wait_ready(PATIENCE, || check(addr, directory, persistence))?;
    Ok((guard, addr, control))
}

/// Connects to the server as soon as it answers. Checks that it is the bench's own server, with the wanted
/// setting, so that the bench measures no server that syncs later.
fn check(
    addr: SocketAddr,
    directory: &Path,
    persistence: Persistence,
) -> anyhow::Result<Connection> {
    let mut control = Connection::open(addr)?;
    // A server of another user may have bound this port first, so the bench checks the server's directory.
    let reply = control.ask(&["CONFIG", "GET", "dir"])?;
    ensure!(
        Some(reply.as_str()) == directory.canonicalize()?.to_str(),
        "another Redis came to {addr} first"
    );
    if persistence == Persistence::Always {
        let reply = control.ask(&["CONFIG", "GET", "appendfsync"])?;
        ensure!(
            reply == "always",
            "expected appendfsync `always`, got `{reply}`"
        );
    }
    Ok(control)
}

/// A connection to the server that reads replies of strings, of numbers, and of arrays of these.
pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
    /// The last string or number of the reply that the bench read last.
    reply: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(addr: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(socket),
            reply: Vec::new(),
        })
    }

    /// Sends one command. Returns the reply, or the last element of an array reply.
    pub(crate) fn ask(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let asked = self.call(&command(words));
        asked.with_context(|| {
            // The further words may be long values.
            let first: Vec<_> = words.iter().take(2).copied().collect();
            format!("asking Redis for {}", first.join(" "))
        })?;
        Ok(String::from_utf8(self.reply.clone())?)
    }

    /// Sends a command that [`command`] has encoded, and reads the reply.
    pub(crate) fn call(&mut self, request: &[u8]) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(request)?;
        self.read()
    }

    fn read(&mut self) -> anyhow::Result<()> {
        self.reply.clear();
        // Every line of a Redis reply is short, so the bench reads at most 1 KiB.
        (&mut self.reader)
            .take(1 << 10)
            .read_until(b'\n', &mut self.reply)?;
        let line = std::str::from_utf8(&self.reply)?.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("no answer")?;
        match kind {
            "+" | ":" => {
                let len = line.len();
                self.reply.truncate(len);
                self.reply.remove(0);
            }
            "$" => {
                let bytes = rest.parse().ok().filter(|&bytes| bytes <= STRING_MAX);
                let bytes = bytes.with_context(|| format!("a reply of {rest} bytes"))?;
                self.reply.resize(bytes + 2, 0);
                self.reader.read_exact(&mut self.reply)?;
                self.reply.truncate(bytes);
            }
            "*" => {
                for _ in 0..rest.parse::<u8>()? {
                    self.read()?;
                }
            }
            _ => anyhow::bail!("Redis says {line}"),
        }
        Ok(())
    }
}

/// Encodes a command for [`Connection::call`].
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text += &format!("${}\r\n{word}\r\n", word.len());
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    #[test]
    fn info_is_read() {
        let info = "# Stats\r\ntotal_commands_processed:12\r\ntotal_reads_processed:3\r\n\
                    # CPU\r\nused_cpu_sys:0.5\r\nused_cpu_user:0.25\r\n";
        let seen = did(info).unwrap();
        assert_eq!((seen.commands, seen.reads, seen.cpu_s), (12.0, 3.0, 0.75));
        let old = did("total_commands_processed:12\r\n").unwrap_err();
        assert!(old.to_string().contains("total_reads_processed"));
    }

    #[test]
    fn replies_are_read() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let replies =
            "+OK\r\n:12\r\n$3\r\na\r\n\r\n*2\r\n$3\r\ndir\r\n$4\r\n/tmp\r\n-ERR no\r\n$9999999\r\n";
        server.write_all(replies.as_bytes()).unwrap();
        for expected in ["OK", "12", "a\r\n", "/tmp"] {
            assert_eq!(connection.ask(&["ASK"]).unwrap(), expected);
        }
        let text = |e: anyhow::Error| format!("{e:#}");
        let refused = text(connection.ask(&["CONFIG", "GET", "dir"]).unwrap_err());
        assert_eq!(refused, "asking Redis for CONFIG GET: Redis says -ERR no");
        let large = text(connection.ask(&["ASK"]).unwrap_err());
        assert!(large.contains("a reply of 9999999 bytes"), "{large}");
    }

    #[test]
    fn the_setting_decides_the_files() {
        let words = |setting: Persistence| setting.arguments().join(" ");
        assert_eq!(words(Persistence::None), "--appendonly no");
        assert!(words(Persistence::Always).starts_with("--appendonly yes --appendfsync always "));
    }
}
