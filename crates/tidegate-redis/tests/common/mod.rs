//! Servers for tests: a real Redis for each test, and scripted servers that misbehave.

#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader};
use std::net::TcpListener as StdListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_redis::{Client, Config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The time limit of each step of these tests, far longer than any step takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Runs `future` within the deadline.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(out) => out,
        Err(_) => panic!("{what}: nothing within {DEADLINE:?}"),
    }
}

/// Yields until `is` holds, without a fixed time; fails at the deadline.
pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    soon(what, async {
        while !is() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A redis-server without persistence, on a free port and a Unix socket. The drop of this value ends the
/// server.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
    dir: TempDir,
    args: Vec<String>,
}

impl Redis {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let args: Vec<String> = args.iter().map(|s| (*s).to_owned()).collect();
        // Another process may take the port between the search and the start; then the loop
        // tries the next one.
        for _ in 0..10 {
            let port = StdListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            if let Some(child) = launch(&dir, port, &args) {
                return Self {
                    child,
                    port,
                    dir,
                    args,
                };
            }
        }
        panic!("redis-server would not start on ten ports");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    pub(crate) fn config(&self) -> Config {
        Config::from_url(&self.url()).unwrap()
    }

    pub(crate) async fn client(&self) -> Client {
        soon("connect", Client::connect(&self.url())).await.unwrap()
    }

    /// Kills the server with SIGKILL, so that it cannot close its connections in order.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts the server again on the same port.
    pub(crate) fn restart(&mut self) {
        for _ in 0..100 {
            if let Some(child) = launch(&self.dir, self.port, &self.args) {
                self.child = child;
                return;
            }
        }
        panic!("redis-server would not start again on port {}", self.port);
    }
}

fn launch(dir: &TempDir, port: u16, args: &[String]) -> Option<Child> {
    let mut command = Command::new("redis-server");
    command
        .args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
        ])
        .arg("--unixsocket")
        .arg(dir.path().join("redis.sock"))
        .arg("--dir")
        .arg(dir.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(e) => panic!("missing: redis-server (apt-get install redis-server, or make deps): {e}"),
    };
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    loop {
        line.clear();
        if lines.read_line(&mut line).unwrap() == 0 {
            child.wait().unwrap();
            return None;
        }
        // Redis prints this line last, once its Unix socket is ready.
        if line.contains("ready to accept connections at") {
            break;
        }
    }
    // Redis goes on writing now and then, so a thread reads its output.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    Some(child)
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A server that a test scripts: it answers each connection as the script says.
pub(crate) struct Scripted {
    pub(crate) url: String,
}

impl Scripted {
    /// Starts a server. `script` gets each connection after its handshake, which the server
    /// answers like a Redis without RESP3.
    pub(crate) async fn start<S, F>(script: S) -> Self
    where
        S: Fn(TcpStream, usize) -> F + Send + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("redis://{}", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let mut n = 0;
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(script(socket, n));
                n += 1;
            }
        });
        Self { url }
    }
}

/// Answers the handshake: rejects `HELLO` as unknown, and answers `PING`.
pub(crate) async fn greet(socket: &mut TcpStream) {
    expect(socket, b"HELLO").await;
    socket
        .write_all(b"-ERR unknown command 'HELLO'\r\n")
        .await
        .unwrap();
    expect(socket, b"PING").await;
    socket.write_all(b"+PONG\r\n").await.unwrap();
}

/// Reads from the client until `word` arrives.
pub(crate) async fn expect(socket: &mut TcpStream, word: &[u8]) {
    let mut seen = Vec::new();
    while !seen.windows(word.len()).any(|w| w == word) {
        let mut buf = [0; 4096];
        let n = socket.read(&mut buf).await.unwrap();
        assert!(
            n > 0,
            "the client closed before {:?}",
            String::from_utf8_lossy(word)
        );
        seen.extend_from_slice(&buf[..n]);
    }
}

pub(crate) async fn write(socket: &mut TcpStream, bytes: &[u8]) {
    // The client may have disconnected already; some tests check that.
    let _ = socket.write_all(bytes).await;
}
