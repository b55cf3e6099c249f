//! `tidegate-bench callers --trace`: proves by a trace of each server's system calls whether the server syncs
//! a message before it answers. A lone caller sends the messages, so that a sync between a request and its
//! answer can only be that of the message. [`trace`] judges the trace.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tidegate_cli::interrupt;
use tidegate_cli::report::Row;

use super::system::System;
use super::trace::{self, Judge, Verdict};
use super::{Plan, Running};
use crate::session::Session;

/// The name of the cell.
const CASE: &str = "a sync before each answer, 1 caller";
/// The messages that the proof judges.
const MESSAGES: usize = 50;
/// The messages before them, which the server answers while strace attaches to its threads.
const FIRST: usize = 10;
/// The bytes of a string that strace prints. The payload of a request begins within them.
const PRINTED: &str = "2048";

/// Traces each of the systems that has a server, and prints the verdicts. Returns whether each verdict is
/// that of the server's promise.
pub(super) fn run(session: &mut Session, plan: &Plan, systems: &[System]) -> anyhow::Result<bool> {
    if !session.wants(CASE) {
        return Ok(true);
    }
    let mut is_kept = true;
    let mut rows = Vec::new();
    for &system in systems {
        let Some(syncs_first) = system.syncs_first() else {
            continue;
        };
        if interrupt::asked() {
            break;
        }
        let mut row = Row {
            system: system.name().into(),
            version: system.version(plan.programs.as_ref().ok()),
            case: CASE.into(),
            ..Row::default()
        };
        let note = match plan.prove(system) {
            Ok(verdict) => {
                let (note, keeps) = judged(&verdict, syncs_first);
                is_kept &= keeps;
                let synced = verdict.answers.iter().filter(|synced| **synced);
                for (key, value) in [
                    ("answers", json!(verdict.answers.len())),
                    ("after_sync", json!(synced.count())),
                    ("promises_sync", json!(syncs_first)),
                    ("keeps_promise", json!(keeps)),
                ] {
                    row.extra.insert(key.into(), value);
                }
                note
            }
            // A peer that is not installed breaks no promise.
            Err(e) => {
                is_kept &= system.is_rival();
                format!("{e:#}")
            }
        };
        row.extra.insert("note".into(), json!(note));
        rows.push(row);
    }
    session.keep(CASE, rows)?;
    Ok(is_kept)
}

/// Describes a verdict for the user. Returns the text, and whether the verdict is that of the promise.
fn judged(verdict: &Verdict, syncs_first: bool) -> (String, bool) {
    let answers = verdict.answers.len();
    let synced = verdict.answers.iter().filter(|synced| **synced).count();
    let seen = format!("{synced} of {answers} answers after a sync");
    if answers < MESSAGES {
        return (
            format!("{seen}; expected {MESSAGES} answers in the trace"),
            false,
        );
    }
    let is_kept = (synced == answers) == syncs_first;
    let text = match (is_kept, syncs_first) {
        (true, true) => seen,
        (true, false) => format!("{seen}, as it promises no sync"),
        (false, true) if verdict.has_ring => {
            format!("{seen}; it uses io_uring, in which the trace shows no sync")
        }
        (false, true) => format!("{seen}: it answers before it syncs"),
        (false, false) => format!("{seen}, although it promises no sync"),
    };
    (text, is_kept)
}

impl Plan {
    /// Starts the system, sends messages under strace, and judges the trace.
    fn prove(&self, system: System) -> anyhow::Result<Verdict> {
        let directory = self.empty()?;
        let running = self.start(system, &directory)?;
        let mut caller = running.caller(0)?;
        caller.call()?;
        let tracer = Tracer::attach(&*running, &directory.join("trace"))?;
        for _ in 0..FIRST + MESSAGES {
            caller.call()?;
        }
        let file = tracer.finish()?;
        let is_answer = |written: &[u8]| system.is_answer(written);
        let mut judge = Judge::new(&is_answer);
        for line in BufReader::new(File::open(file)?).lines() {
            judge.line(&line?);
        }
        let mut verdict = judge.verdict();
        let first = verdict.answers.len().saturating_sub(MESSAGES);
        verdict.answers.drain(..first);
        Ok(verdict)
    }
}

/// strace, attached to the processes of a server until [`Tracer::finish`].
struct Tracer {
    child: Child,
    file: PathBuf,
    /// The thread that reads the further messages of strace, so that strace never waits for a full pipe.
    messages: Option<JoinHandle<()>>,
}

impl Tracer {
    /// Attaches strace to all processes of the system, with the trace in `file`.
    ///
    /// # Errors
    ///
    /// strace is not installed, or may not attach.
    fn attach(running: &dyn Running, file: &Path) -> anyhow::Result<Self> {
        let processes = running.processes()?;
        ensure!(!processes.is_empty(), "the server has no process");
        let mut command = Command::new("strace");
        command.args(["-f", "-xx", "-s", PRINTED, "-e", "signal=none"]);
        command.args(["-e", trace::CALLS, "-o"]).arg(file);
        for process in &processes {
            command.args(["-p", &process.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("strace does not start: make deps-system")?;
        let messages = child.stderr.take();
        let mut tracer = Self {
            child,
            file: file.to_owned(),
            messages: None,
        };
        let mut messages = BufReader::new(messages.context("no pipe")?);
        wait_attached(&mut messages, processes)?;
        tracer.messages = Some(std::thread::spawn(move || {
            // Nothing needs these messages.
            let _ = std::io::copy(&mut messages, &mut std::io::sink());
        }));
        Ok(tracer)
    }

    /// Detaches strace from the server and returns the file of the trace.
    fn finish(mut self) -> anyhow::Result<PathBuf> {
        self.end()?;
        Ok(self.file.clone())
    }

    fn end(&mut self) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // strace may have ended by itself, with the server.
        if self.child.try_wait()?.is_none() {
            kill_process(pid.context("no process id")?, Signal::INT)?;
            self.child.wait()?;
        }
        if let Some(messages) = self.messages.take() {
            let _ = messages.join();
        }
        Ok(())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Reads the messages of strace until it has attached to each of the processes.
fn wait_attached(messages: &mut BufReader<ChildStderr>, mut left: Vec<u32>) -> anyhow::Result<()> {
    let mut last = String::new();
    while !left.is_empty() {
        let mut line = String::new();
        let bytes = messages.read_line(&mut line)?;
        ensure!(bytes > 0, "strace does not attach: {}", last.trim());
        // strace stays with the other processes if one of them refuses it.
        ensure!(!line.starts_with("strace: attach"), "{}", line.trim());
        left.retain(|&process| attached(&line) != Some(process));
        last = line;
    }
    Ok(())
}

/// Returns the process in a message such as `strace: Process 12 attached with 3 threads`.
fn attached(line: &str) -> Option<u32> {
    let (process, rest) = line.strip_prefix("strace: Process ")?.split_once(' ')?;
    rest.starts_with("attached")
        .then(|| process.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(synced: usize, answers: usize, has_ring: bool) -> Verdict {
        Verdict {
            answers: (0..answers).map(|answer| answer < synced).collect(),
            has_ring,
        }
    }

    #[test]
    fn a_verdict_is_held_against_the_promise() {
        for (synced, promise, expected) in [
            (50, true, (true, "50 of 50 answers after a sync")),
            (
                49,
                true,
                (
                    false,
                    "49 of 50 answers after a sync: it answers before it syncs",
                ),
            ),
            (
                1,
                false,
                (true, "1 of 50 answers after a sync, as it promises no sync"),
            ),
            (
                50,
                false,
                (
                    false,
                    "50 of 50 answers after a sync, although it promises no sync",
                ),
            ),
        ] {
            let (text, is_kept) = judged(&verdict(synced, 50, false), promise);
            assert_eq!((is_kept, text.as_str()), expected);
        }
        let (text, is_kept) = judged(&verdict(0, 50, true), true);
        assert!(!is_kept && text.contains("io_uring"), "{text}");
        // A trace without answers proves nothing about either promise.
        assert!(!judged(&verdict(0, 0, false), false).1);
        assert!(!judged(&verdict(49, 49, false), true).1);
    }

    #[test]
    fn an_attached_process_is_recognized() {
        for (line, expected) in [
            ("strace: Process 12 attached\n", Some(12)),
            ("strace: Process 7 attached with 30 threads\n", Some(7)),
            ("strace: Process 7 detached\n", None),
            ("strace: attach: ptrace(PTRACE_SEIZE, 7)\n", None),
        ] {
            assert_eq!(attached(line), expected, "{line}");
        }
    }
}
