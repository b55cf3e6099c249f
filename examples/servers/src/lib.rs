//! Starts the real servers that the tests of the examples run against: on loopback, each with a directory of
//! its own, and ended with the test. A server that is not installed is reported as missing.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use tidegate_testing::{missing, root};

/// A server that accepts connections. A drop ends it, and removes its directory.
pub struct Running {
    /// The address of the server as a URL, for clients.
    pub url: String,
    /// The lines that the server printed until it was ready.
    pub said: String,
    child: Child,
    /// The signal that ends the server at once, with all of its processes.
    signal: &'static str,
    _directory: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = Command::new("kill").args([self.signal, &self.child.id().to_string()]).status();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Waits until the server prints the line `ready`, and then leaves the output to a thread, so that no
    /// full pipe blocks the server.
    fn new(
        mut child: Child,
        output: impl Read + Send + 'static,
        ready: &str,
        directory: TempDir,
    ) -> Self {
        let mut output = BufReader::new(output);
        let mut said = String::new();
        while !said.contains(ready) {
            let read = output.read_line(&mut said).unwrap();
            if read == 0 {
                panic!("the server ended with {:?}: {said}", child.wait());
            }
        }
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Self { url: String::new(), said, child, signal: "-KILL", _directory: directory }
    }

    /// Returns the word of the output behind `mark`.
    fn word_after(&self, mark: &str) -> String {
        let (_, rest) = self.said.split_once(mark).unwrap();
        rest.split_whitespace().next().unwrap().to_owned()
    }
}

/// Starts a Redis server.
#[must_use]
pub fn redis() -> Option<Running> {
    let Some(program) = find("redis-server", &[]) else {
        missing("redis-server (apt-get install redis-server)");
        return None;
    };
    let directory = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut child = Command::new(program)
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--dir"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stdout.take().unwrap();
    let mut redis = Running::new(child, output, "Ready to accept connections", directory);
    redis.url = format!("redis://127.0.0.1:{port}");
    Some(redis)
}

/// Starts PostgreSQL with a cluster of its own. PostgreSQL refuses to run as root, so root runs it as the
/// user `postgres` of Debian's package.
#[must_use]
pub fn postgres() -> Option<Running> {
    let Some(programs) = postgres_programs() else {
        missing("PostgreSQL (apt-get install postgresql)");
        return None;
    };
    let directory =
        tempfile::Builder::new().prefix("tidegate-postgres").tempdir_in("/tmp").unwrap();
    let as_root = run("id", &["-u"]).trim() == "0";
    if as_root {
        run("chown", &["postgres:", directory.path().to_str().unwrap()]);
    }
    let command = |program: &str| {
        let program = programs.join(program);
        let mut command = Command::new(if as_root { Path::new("setpriv") } else { &program });
        if as_root {
            command
                .args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"])
                .arg(&program);
        }
        // `trust` is enough for a server that lives for one test on loopback.
        command.current_dir(directory.path()).stdin(Stdio::null());
        command
    };
    let made = command("initdb")
        .args([
            "--username=shop",
            "--auth=trust",
            "--no-locale",
            "--no-sync",
            "-E",
            "UTF8",
            "-D",
            "data",
        ])
        .output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let port = free_port();
    let mut child = command("postgres")
        .args([
            "-D",
            "data",
            "-p",
            &port,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stderr.take().unwrap();
    let mut postgres = Running::new(child, output, "ready to accept connections", directory);
    postgres.signal = "-QUIT";
    postgres.url = format!("postgresql://shop@127.0.0.1:{port}/postgres");
    Some(postgres)
}

/// Starts `tidegate serve` with streams and a monitor. Returns the server and the URL of its monitor.
///
/// # Panics
/// The program is not built: `make examples` builds it first.
#[must_use]
pub fn tidegate() -> (Running, String) {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(tidegate_program())
        .args(["serve", "-p", "-1", "-m", "-1", "--data"])
        .arg(directory.path().join("data"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let output = child.stderr.take().unwrap();
    let mut server = Running::new(child, output, "Server is ready", directory);
    server.url = format!("nats://{}", server.word_after("Listening for client connections on "));
    let monitor = format!("http://{}", server.word_after("Starting http monitor on "));
    (server, monitor)
}

/// Returns the program `tidegate`: the one in `TIDEGATE`, which `make examples` sets.
#[must_use]
pub fn tidegate_program() -> PathBuf {
    let program = std::env::var_os("TIDEGATE")
        .map_or_else(|| root().join("target/debug/tidegate"), PathBuf::from);
    assert!(program.is_file(), "{} is not built: run `make examples`", program.display());
    program
}

/// Runs a command to its end, and returns its standard output.
///
/// # Panics
/// The command does not start or fails.
pub fn run(program: impl AsRef<Path>, args: &[&str]) -> String {
    let program = program.as_ref();
    let output = Command::new(program).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {args:?}: {said}{error}", program.display());
    said
}

/// Returns the path of a program in `more` or on the search path.
#[must_use]
pub fn find(program: &str, more: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = more.iter().cloned().chain(std::env::split_paths(&path));
    places.find_map(|place| Some(place.join(program)).filter(|file| File::open(file).is_ok()))
}

/// Returns the directory of PostgreSQL's programs. Debian's packages keep them off the search path.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut places: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    places.sort();
    let initdb = find("initdb", &places)?;
    Some(initdb.parent()?.to_owned())
}

/// Returns a port that is free now. Another process may take it before the server does; the test then fails
/// with the server's words.
fn free_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Returns the number of batches in the statistics of an actor, which must have handled `items` items.
///
/// # Panics
/// The statistics are not there, or are those of another number of items.
#[must_use]
pub fn batches(said: &str, items: u64) -> u64 {
    let handled = said.split_once(&format!("handled: {items} items in "));
    let (_, rest) = handled.unwrap_or_else(|| panic!("{items} items are not handled:\n{said}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}
