//! Runs a `tidegate` program for the tests, and collects its standard output and standard error.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The longest time for which a test waits for an expected event, which usually comes much earlier.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

type Lines = Arc<(Mutex<Vec<String>>, Condvar)>;

/// A running `tidegate` program, with its output so far.
pub(crate) struct Program {
    pid: Pid,
    ended: Receiver<ExitStatus>,
    status: Option<ExitStatus>,
    lines: Lines,
    readers: Vec<JoinHandle<()>>,
    stdout: Arc<Mutex<Vec<u8>>>,
    /// The program's standard input, which a test can write to and close.
    pub(crate) stdin: Option<ChildStdin>,
}

impl Program {
    /// Starts the program with these arguments.
    pub(crate) fn start(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::watch(command.spawn().unwrap())
    }

    fn watch(mut child: Child) -> Self {
        let lines = Lines::default();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let seen = Arc::clone(&lines);
        let errors = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                seen.0.lock().unwrap().push(line);
                seen.1.notify_all();
            }
        });
        let stdout = Arc::new(Mutex::new(Vec::new()));
        let (mut pipe, all) = (child.stdout.take().unwrap(), Arc::clone(&stdout));
        let output = std::thread::spawn(move || {
            let mut block = vec![0; 1 << 16];
            while let Ok(read @ 1..) = pipe.read(&mut block) {
                all.lock().unwrap().extend_from_slice(&block[..read]);
            }
        });
        let stdin = child.stdin.take();
        let pid = Pid::from_child(&child);
        let (ending, ended) = sync_channel(1);
        std::thread::spawn(move || ending.send(child.wait().unwrap()));
        Self {
            pid,
            ended,
            status: None,
            lines,
            readers: vec![errors, output],
            stdout,
            stdin,
        }
    }

    /// Starts a receiver, and waits until it listens. Returns it with its address.
    pub(crate) fn receive(args: &[&str]) -> (Self, SocketAddr) {
        let args = [&["receive", "--listen", "127.0.0.1:0"], args].concat();
        let program = Self::start(&args);
        let line = program.line("listening on ");
        let address = line.split_once("listening on ").unwrap().1;
        let address = address.split([',', ' ']).next().unwrap().parse().unwrap();
        (program, address)
    }

    /// Starts a receiver that appends to `file`.
    pub(crate) fn append(file: &Path) -> (Self, SocketAddr) {
        Self::receive(&["--append", file.to_str().unwrap()])
    }

    /// Starts a sender.
    pub(crate) fn send(address: SocketAddr, args: &[&str]) -> Self {
        Self::start(&[&["send", &address.to_string()], args].concat())
    }

    /// Writes to the program's standard input and closes it.
    pub(crate) fn feed(&mut self, input: &[u8]) {
        self.stdin.take().unwrap().write_all(input).unwrap();
    }

    /// Waits for the first line on standard error that contains `text`, and returns it.
    pub(crate) fn line(&self, text: &str) -> String {
        let (lines, more) = &*self.lines;
        let mut lines = lines.lock().unwrap();
        let end = Instant::now() + DEADLINE;
        loop {
            if let Some(line) = lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {text:?}: {lines:?}");
            assert!(
                !self.readers[0].is_finished(),
                "ended without {text:?}: {lines:?}"
            );
            // The wait is short, because the program may end without another line.
            let step = left.min(Duration::from_millis(50));
            lines = more.wait_timeout(lines, step).unwrap().0;
        }
    }

    /// Waits until the program's standard output equals `expected`.
    pub(crate) fn output(&self, expected: &[u8]) {
        until("the output", || *self.stdout.lock().unwrap() == expected);
    }

    /// Waits until the program's standard output ends with `expected`.
    pub(crate) fn ends_with(&self, expected: &[u8]) {
        until("the output", || {
            self.stdout.lock().unwrap().ends_with(expected)
        });
    }

    /// Returns whether the program has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.status = self.status.or_else(|| self.ended.try_recv().ok());
        self.status.is_some()
    }

    /// Kills the program, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        if !self.has_ended() {
            let _ = kill_process(self.pid, Signal::KILL);
            self.status = Some(self.ended.recv_timeout(DEADLINE).unwrap());
        }
    }

    /// Sends SIGINT to the program, as Ctrl-C does. A program that has just ended gets no signal.
    pub(crate) fn interrupt(&self) {
        match kill_process(self.pid, Signal::INT) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => panic!("{e}"),
        }
    }

    /// Stops the program without ending it, so that it does nothing.
    ///
    /// The kernel stops each thread at its own time after the signal, so this function waits for all threads.
    pub(crate) fn freeze(&self) {
        kill_process(self.pid, Signal::STOP).unwrap();
        let threads = format!("/proc/{}/task", self.pid.as_raw_nonzero());
        until("all threads have stopped", || {
            std::fs::read_dir(&threads).unwrap().all(|thread| {
                let state = std::fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
                // The state follows the name, which stands in brackets and can hold any character.
                state.rsplit_once(") ").unwrap().1.starts_with('T')
            })
        });
    }

    /// Asks the program to open its files again, as programs that rotate logs do, by SIGHUP.
    pub(crate) fn hang_up(&self) {
        kill_process(self.pid, Signal::HUP).unwrap();
    }

    /// Asks the program to end in order, by SIGTERM.
    pub(crate) fn terminate(&self) {
        kill_process(self.pid, Signal::TERM).unwrap();
    }

    /// Waits for the program's end; returns the exit code, standard output and standard error.
    pub(crate) fn wait(mut self) -> (i32, Vec<u8>, String) {
        drop(self.stdin.take());
        let status = self.status.take();
        let status = status.unwrap_or_else(|| {
            let ended = self.ended.recv_timeout(DEADLINE);
            ended.unwrap_or_else(|_| {
                let lines = self.lines.0.lock().unwrap().join("\n");
                panic!("it does not end: {lines}")
            })
        });
        self.status = Some(status);
        self.readers
            .drain(..)
            .for_each(|reader| reader.join().unwrap());
        let stdout = std::mem::take(&mut *self.stdout.lock().unwrap());
        let stderr = self.lines.0.lock().unwrap().join("\n");
        (status.code().unwrap_or(-1), stdout, stderr)
    }

    /// Waits for the program's end, which must be a success.
    pub(crate) fn succeed(self) -> (Vec<u8>, String) {
        let (code, stdout, stderr) = self.wait();
        assert_eq!(code, 0, "{stderr}");
        (stdout, stderr)
    }

    /// Waits for the program's end, which must have exit code 1 and one line on standard error. Returns the
    /// line.
    pub(crate) fn fail(self) -> String {
        let (code, _, stderr) = self.wait();
        assert_eq!(code, 1, "{stderr}");
        let last = stderr.lines().last().unwrap_or_default().to_owned();
        assert!(last.starts_with("tidegate: "), "{stderr}");
        last
    }
}

/// Calls `condition` again and again until it returns true, because no event tells the test that it would.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns whether the first segment of a spool has the record `last` and a marker behind it. Only with the
/// marker does the spool report damage to the record.
pub(crate) fn spooled(spool: &Path, last: &str) -> bool {
    let bytes = std::fs::read(spool.join("00000000000000000000.seg")).unwrap_or_default();
    let mut places = bytes.windows(last.len());
    let place = places.rposition(|bytes| bytes == last.as_bytes());
    let behind = place.map_or(&[][..], |at| &bytes[at..]);
    behind.windows(4).any(|magic| magic == b"TgB1")
}
