//! A Redis server that the bench starts without persistence on a free port, and from which it reads counters.
//! The server ends with the bench, even if a signal kills the bench.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group};

use tidegate_cli::Usage;
use tidegate_cli::interrupt;

/// The number of keys that the bench fills before a load with GET. Caller n of a load uses the key n modulo
/// this number.
const KEYS: usize = 1024;
/// The longest time that the server may take to start, and to answer, before the bench reports a failure.
const PATIENCE: Duration = Duration::from_secs(10);
/// The shell script that runs the server, and ends it when the bench's end of the pipe closes, even if a
/// signal killed the bench.
const GUARD: &str = r#""$@" >/dev/null 2>&1 & server=$!; read -r _; kill -9 $server; wait $server"#;

/// A running Redis server that the bench starts and ends.
pub(super) struct Server {
    guard: Child,
    directory: PathBuf,
    addr: SocketAddr,
    version: String,
    control: Control,
}

/// The counters of the Redis server since its start, for the costs of commands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Did {
    pub(super) commands: f64,
    pub(super) reads: f64,
    pub(super) cpu_s: f64,
}

impl Server {
    /// Starts a Redis server and waits until it answers.
    ///
    /// # Errors
    ///
    /// Redis is not installed (exit code 2, with the command that installs it), or does not start.
    pub(super) fn start() -> anyhow::Result<Self> {
        let version = installed()?;
        let directory =
            std::env::temp_dir().join(format!("tidegate-bench-redis-{}", std::process::id()));
        std::fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        let mut refused = None;
        // The bench tries several ports, because another process may take a free port before the server binds
        // it.
        for _ in 0..3 {
            match Guarded::start(&directory) {
                Ok((guard, addr, control)) => {
                    return Ok(Self {
                        guard,
                        directory,
                        addr,
                        version,
                        control,
                    });
                }
                Err(e) => refused = Some(e),
            }
        }
        Err(refused.unwrap_or_else(|| anyhow::anyhow!("redis-server does not start")))
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the version that redis-server reports, for the user.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Sets every key that the load reads to a value of `bytes` bytes.
    pub(super) fn fill(&mut self, bytes: usize) -> anyhow::Result<()> {
        let value = "x".repeat(bytes);
        for key in 0..KEYS {
            let reply = self.control.ask(&["SET", &format!("key:{key}"), &value])?;
            anyhow::ensure!(reply == "OK", "SET was answered {reply}");
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

impl Drop for Server {
    fn drop(&mut self) {
        end(&mut self.guard);
        // The directory is in the system's temporary directory, so the bench ignores a failed removal.
        let _ = std::fs::remove_dir_all(&self.directory);
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
fn installed() -> anyhow::Result<String> {
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

struct Guarded;

impl Guarded {
    fn start(directory: &Path) -> anyhow::Result<(Child, SocketAddr, Control)> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                GUARD,
                "sh",
                "redis-server",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .args(["--bind", "127.0.0.1", "--loglevel", "warning", "--dir"])
            .arg(directory)
            .args(["--port", &port.port().to_string()]);
        let mut guard = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        match Control::connect(port, directory) {
            Ok(control) => Ok((guard, port, control)),
            Err(e) => {
                end(&mut guard);
                Err(e)
            }
        }
    }
}

fn end(guard: &mut Child) {
    // The shell script ends the server and collects its status. If the bench killed the script first, the
    // process that inherits the server would have to do that.
    drop(guard.stdin.take());
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        if !matches!(guard.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    if let Some(group) = i32::try_from(guard.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = guard.wait();
}

/// The bench's own connection to the Redis server, for requests such as INFO.
struct Control(BufReader<TcpStream>);

impl Control {
    /// Connects to the server as soon as it answers. Checks by its directory `directory` that it is the
    /// bench's own server.
    fn connect(addr: SocketAddr, directory: &Path) -> anyhow::Result<Self> {
        let until = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect(addr) {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE))?;
                    stream.set_nodelay(true)?;
                    let mut control = Self(BufReader::new(stream));
                    // A server of another user may have bound this port first, so the bench checks the
                    // server's directory.
                    let reply = control.ask(&["CONFIG", "GET", "dir"])?;
                    let ours = directory.canonicalize()?;
                    anyhow::ensure!(
                        Some(reply.as_str()) == ours.to_str(),
                        "another Redis came to {addr} first"
                    );
                    return Ok(control);
                }
                Err(e) if Instant::now() > until || interrupt::asked() => {
                    return Err(e).context("redis-server does not come up");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Sends one command. Returns the reply, or the last element of an array reply.
    fn ask(&mut self, words: &[&str]) -> anyhow::Result<String> {
        let mut text = format!("*{}\r\n", words.len());
        for word in words {
            text += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.0.get_mut().write_all(text.as_bytes())?;
        self.reply()
            .with_context(|| format!("asking Redis for {}", words[0]))
    }

    fn reply(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        // Every line of a Redis reply is short, so the bench reads at most 1 KiB.
        (&mut self.0).take(1 << 10).read_line(&mut line)?;
        let line = line.trim_end();
        let (kind, rest) = line.split_at_checked(1).context("no answer")?;
        match kind {
            "+" | ":" => Ok(rest.into()),
            "$" => {
                let bytes = rest.parse::<u32>().ok().filter(|&bytes| bytes <= 1 << 20);
                let bytes = bytes.with_context(|| format!("a reply of {rest} bytes"))?;
                let mut text = vec![0; bytes as usize + 2];
                self.0.read_exact(&mut text)?;
                text.truncate(bytes as usize);
                Ok(String::from_utf8(text)?)
            }
            "*" => {
                let mut last = String::new();
                for _ in 0..rest.parse::<u8>()? {
                    last = self.reply()?;
                }
                Ok(last)
            }
            _ => anyhow::bail!("{line}"),
        }
    }
}

#[cfg(test)]
mod tests {
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
}
