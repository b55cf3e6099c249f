//! Controls the peers: rivals that are programs of their own below `bench/peers`. Each peer is a long-lived
//! process that reads one request a line and answers with one JSON object a line (bench/peers/README.md). The
//! bench kills a peer with all its children if the peer hangs, and at the end.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Map, Value};

use super::machine;
use super::rounds::{Failure, Sample};
use tidegate_cli::interrupt;

/// The answer of a peer to one request, as a JSON object.
pub(crate) type Answer = Map<String, Value>;

/// A system that a peer offers, which the bench then measures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct System {
    /// The name of the peer's directory below `bench/peers`.
    pub(crate) peer: String,
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The peers that the bench knows, which it starts when it needs them.
#[derive(Default)]
pub(crate) struct Peers {
    timeout: Duration,
    /// The time at which the bench stops waiting for any answer, however late the request began, so that a
    /// run ends in time; `None` for no such time.
    until: Option<Instant>,
    known: BTreeMap<String, Peer>,
}

struct Peer {
    start: PathBuf,
    args: &'static [&'static str],
    state: State,
    /// The number of times that the bench lost the peer, because the peer hung or ended.
    lost: u32,
}

/// The number of times that a peer may hang or end, in one run of the bench, after which the bench does not
/// start it again.
const LOST_MAX: u32 = 3;

impl Peer {
    fn new(start: PathBuf, args: &'static [&'static str]) -> Self {
        Self {
            start,
            args,
            state: State::Idle,
            lost: 0,
        }
    }
}

enum State {
    Idle,
    Running(Running),
    /// The bench does not start the peer again, and answers every later request with this failure.
    Lost(Failure),
}

impl Peers {
    /// Creates a list without peers. The bench waits for each answer as long as the request itself takes plus
    /// `timeout`, but not past `until`.
    pub(crate) fn none(timeout: Duration, until: Option<Instant>) -> Self {
        Self {
            timeout,
            until,
            known: BTreeMap::new(),
        }
    }

    /// Adds the peers of the nearest `bench/peers`, from the current directory upwards: each directory there
    /// with a program `start`.
    pub(crate) fn find(&mut self) {
        let directory = machine::upwards("bench/peers").map(|root| root.join("bench/peers"));
        self.known
            .extend(directory.as_deref().map(starts).unwrap_or_default());
    }

    /// Adds this program as a peer, for a bench that runs a part of its own in another process.
    pub(crate) fn add(&mut self, name: &str, start: PathBuf, args: &'static [&'static str]) {
        self.known.insert(name.into(), Peer::new(start, args));
    }

    /// Returns whether the bench knows no peers, so that it measures only our system.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns the names of all known peers, in alphabetical order.
    pub(crate) fn names(&self) -> Vec<String> {
        self.known.keys().cloned().collect()
    }

    /// Ends the running peers, so that they do not disturb measurements. The next request to a peer starts it
    /// again.
    pub(crate) fn rest(&mut self) {
        for peer in self.known.values_mut() {
            if matches!(peer.state, State::Running(_)) {
                peer.state = State::Idle;
            }
        }
    }

    /// Starts `peer` and asks for the systems that it offers.
    ///
    /// # Errors
    ///
    /// The peer is not built (its own message names the command that builds it), hangs, or has ended.
    pub(crate) fn systems(&mut self, peer: &str) -> Result<Vec<System>, Failure> {
        let answer = self.ask(peer, "hello", Duration::ZERO)?;
        let listed = answer
            .get("systems")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        let text = |value: &Value, key| {
            value
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let system = |value: &Value| System {
            peer: peer.into(),
            name: text(value, "system"),
            version: text(value, "version"),
        };
        Ok(listed.iter().map(system).collect())
    }

    /// Sends one request to a peer and waits for the answer; `takes` is the time that the request itself
    /// needs. Kills a peer that does not answer in time, and starts it again for the next request, up to a
    /// limit.
    ///
    /// # Errors
    ///
    /// The peer answers with an `error`, hangs, or has ended. The failure is the peer's own text if it has
    /// one.
    pub(crate) fn ask(
        &mut self,
        peer: &str,
        request: &str,
        takes: Duration,
    ) -> Result<Answer, Failure> {
        let left = self.until.map_or(Duration::MAX, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let timeout = (self.timeout + takes).min(left);
        let Some(Peer {
            start,
            args,
            state,
            lost,
        }) = self.known.get_mut(peer)
        else {
            return Err(format!("no such peer: {peer}"));
        };
        if matches!(state, State::Idle) {
            *state = match Running::start(start, args) {
                Ok(running) => State::Running(running),
                Err(e) => State::Lost(format!("cannot start {}: {e}", start.display())),
            };
        }
        let running = match state {
            State::Running(running) => running,
            State::Lost(failure) => return Err(failure.clone()),
            State::Idle => return Err("not started".into()),
        };
        match running.ask(request, timeout) {
            Ok(answer) => match answer.get("error").and_then(Value::as_str) {
                Some(error) => Err(error.to_owned()),
                None => Ok(answer),
            },
            Err(failure) => {
                *lost += 1;
                // The bench drops the peer's process, which kills it, because work that it still does would
                // disturb the other measurements.
                *state = if *lost < LOST_MAX {
                    State::Idle
                } else {
                    State::Lost(failure.clone())
                };
                Err(failure)
            }
        }
    }
}

fn starts(directory: &Path) -> BTreeMap<String, Peer> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let peer = |entry: std::fs::DirEntry| {
        let start = entry.path().join("start");
        let name = entry.file_name().to_str()?.to_owned();
        start.is_file().then(|| (name, Peer::new(start, &[])))
    };
    entries.filter_map(peer).collect()
}

struct Running {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
    /// The last lines of the peer's standard error, which become the reason if the peer ends.
    said: Arc<Mutex<VecDeque<String>>>,
}

impl Running {
    fn start(start: &Path, args: &[&str]) -> std::io::Result<Self> {
        let pipe = Stdio::piped;
        let mut command = Command::new(start);
        command.args(args);
        // The peer gets a process group of its own, so that the bench can kill its children with it.
        let mut child = command
            .process_group(0)
            .stdin(pipe())
            .stdout(pipe())
            .stderr(pipe())
            .spawn()?;
        let missing = || std::io::Error::other("no pipe");
        let requests = child.stdin.take().ok_or_else(missing)?;
        let output = child.stdout.take().ok_or_else(missing)?;
        let errors = child.stderr.take().ok_or_else(missing)?;
        let (sender, answers) = sync_channel(1);
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            // Some peers print lines besides their answers, which the bench ignores.
            for line in lines.filter(|line| line.trim_start().starts_with('{')) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let said = Arc::default();
        let keep = Arc::clone(&said);
        std::thread::spawn(move || keep_last(errors, &keep));
        Ok(Self {
            child,
            requests,
            answers,
            said,
        })
    }

    fn ask(&mut self, request: &str, timeout: Duration) -> Result<Answer, Failure> {
        // The bench drops late answers to earlier requests, because such a line would look like the answer to
        // this request.
        while self.answers.try_recv().is_ok() {}
        if writeln!(self.requests, "{request}")
            .and_then(|()| self.requests.flush())
            .is_err()
        {
            return Err(self.gone());
        }
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self
                .answers
                .recv_timeout(left.min(Duration::from_millis(100)))
            {
                Ok(line) => {
                    return serde_json::from_str(&line)
                        .map_err(|e| format!("no JSON: {e}: {line}"));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) if interrupt::asked() => {
                    return Err("interrupted".into());
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(format!(
                        "hung: no answer to `{request}` within {} s",
                        timeout.as_secs_f64()
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the failure of a peer that has ended, with the last lines that the peer printed.
    fn gone(&mut self) -> Failure {
        // A peer's output closes a little before its process ends, so the bench waits up to a second for the
        // exit status.
        let mut status = None;
        for _ in 0..100 {
            status = self.child.try_wait().ok().flatten();
            if status.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let status = status.map_or_else(
            || "its output is closed".into(),
            |status| status.to_string(),
        );
        // The thread that reads the peer's standard error may not have finished, so the bench waits for the
        // last lines.
        let mut words = String::new();
        for _ in 0..50 {
            let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            words = said.iter().cloned().collect::<Vec<_>>().join("; ");
            drop(said);
            if !words.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if words.is_empty() {
            format!("gone: {status}")
        } else {
            words
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // If the peer's process group has already ended, the kill fails without harm.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn keep_last(errors: impl Read, said: &Mutex<VecDeque<String>>) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == 3 {
            said.pop_front();
        }
        said.push_back(line);
    }
}

/// Converts a peer's answer into a measurement. Unknown numbers in the answer become extra figures.
pub(crate) fn sample(answer: &Answer) -> Result<Sample, Failure> {
    let number = |key| answer.get(key).and_then(Value::as_f64);
    if answer.get("checksum_ok").or_else(|| answer.get("items_ok")) == Some(&Value::Bool(false)) {
        return Err("it lost or changed items".into());
    }
    const KNOWN: [&str; 10] = [
        "ops_per_s",
        "p50_us",
        "p99_us",
        "mean_us",
        "batches",
        "batch_mean",
        "batch_max",
        "cpu_s",
        "allocs",
        "rss_mb",
    ];
    let extra = answer
        .iter()
        .filter(|(key, _)| !KNOWN.contains(&key.as_str()));
    Ok(Sample {
        ops_per_s: number("ops_per_s").ok_or("its answer has no ops_per_s")?,
        p50_us: number("p50_us"),
        p99_us: number("p99_us"),
        mean_us: number("mean_us"),
        batches: number("batches"),
        batch_mean: number("batch_mean"),
        batch_max: number("batch_max"),
        cpu_s: number("cpu_s"),
        allocs: number("allocs"),
        rss_mb: number("rss_mb"),
        extra: extra
            .filter_map(|(key, value)| Some((key.clone(), value.as_f64()?)))
            .collect(),
    })
}

/// Returns whether a failure means that the system lacks a feature, rather than that a measurement failed.
pub(crate) fn is_unsupported(failure: &str) -> bool {
    ["not supported", "unknown request", "unknown system"]
        .iter()
        .any(|text| failure.contains(text))
}
