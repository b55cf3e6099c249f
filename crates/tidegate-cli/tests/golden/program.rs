//! Runs a `tidegate` program of any version for a test. A thread reads the program's standard error, and the
//! program ends with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The longest time for which a test waits for an expected event, which usually comes much earlier.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the path of the present program, with which the test was built.
pub(crate) fn today() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_tidegate"))
}

#[derive(Default)]
struct Lines {
    all: Vec<String>,
    ended: bool,
}

pub(crate) struct Program {
    child: Child,
    lines: Arc<(Mutex<Lines>, Condvar)>,
}

impl Program {
    pub(crate) fn start(program: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars() {
            if name.starts_with("TIDEGATE_") || name == "NATS_URL" {
                command.env_remove(name);
            }
        }
        command.args(args).stdin(Stdio::piped());
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Arc::<(Mutex<Lines>, Condvar)>::default();
        let (stderr, seen) = (child.stderr.take().unwrap(), Arc::clone(&lines));
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                seen.0.lock().unwrap().all.push(line);
                seen.1.notify_all();
            }
            seen.0.lock().unwrap().ended = true;
            seen.1.notify_all();
        });
        Self { child, lines }
    }

    /// Starts a server without a cluster on the data in `data`. Returns its process and its URL.
    pub(crate) fn serve(program: &Path, data: &Path) -> (Self, String) {
        let data = data.to_str().unwrap();
        let args = [
            "serve",
            "--data",
            data,
            "-a",
            "127.0.0.1",
            "-p",
            "-1",
            "-m",
            "-1",
        ];
        let server = Self::start(program, &args);
        server.line("Server is ready");
        let line = server.line("Listening for client connections on ");
        let url = line.split("connections on ").nth(1).unwrap().to_owned();
        (server, url)
    }

    /// Waits for the first line on standard error that contains `text`, and returns it.
    pub(crate) fn line(&self, text: &str) -> String {
        let has = |lines: &Lines| lines.all.iter().find(|l| l.contains(text)).cloned();
        let (lines, more) = &*self.lines;
        let waits = |lines: &mut Lines| has(lines).is_none() && !lines.ended;
        let lines = lines.lock().unwrap();
        let (lines, _) = more.wait_timeout_while(lines, PATIENCE, waits).unwrap();
        has(&lines).unwrap_or_else(|| panic!("no line with {text:?}:\n{}", lines.all.join("\n")))
    }

    pub(crate) fn log(&self) -> String {
        self.lines.0.lock().unwrap().all.join("\n")
    }

    /// Writes to the program's standard input, which stays open.
    pub(crate) fn feed(&mut self, input: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(input.as_bytes()).unwrap();
        stdin.flush().unwrap();
    }

    /// Closes the program's standard input and waits for its end.
    pub(crate) fn finish(&mut self) -> ExitStatus {
        drop(self.child.stdin.take());
        self.child.wait().unwrap()
    }

    /// Asks the program to end as an operator does, with SIGTERM, and waits for its end.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}:\n{}", self.log());
    }

    /// Kills the program without a chance to clean up, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns ports that are free now.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|l| l.local_addr().unwrap().port())
}

/// Calls `look` again and again until it succeeds, because no event tells the test that it would.
#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "never: {what}");
        // The pause between two calls, in which the program can work.
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
