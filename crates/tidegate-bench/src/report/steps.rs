//! Runs the steps of a report: each bench as a process of its own. The document that the bench prints becomes
//! the step's result.
//!
//! Ctrl-C reaches the report alone, because a step is a process group of its own. The report passes one
//! signal on. So the bench ends its measurement and prints its finished cells, and the report keeps them as
//! an incomplete result.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tidegate_cli::interrupt;

use crate::session::OVER;

/// The interval at which the report looks for Ctrl-C and shows its progress.
const LOOK: Duration = Duration::from_millis(200);
/// The most bytes of a document that the report accepts, to bound its memory.
const DOCUMENT_MAX: u64 = 256 << 20;
/// The most bytes of a line of standard error that the report reads at once.
const LINE_MAX: u64 = 4096;
/// The lines of standard error that may wait for the report.
const LINES_MAX: usize = 64;

/// The outcome of a step's process.
#[derive(Debug, Default)]
pub(super) struct Ran {
    /// The document that the bench printed; null if it printed none.
    pub(super) output: Value,
    /// The exit code; `None` if a signal ended the process.
    pub(super) code: Option<i32>,
    /// The last line on standard error, which explains a failure.
    pub(super) said: String,
    /// The line by which the bench said that it left out cells, because its call had taken too long.
    left_out: Option<String>,
    pub(super) seconds: f64,
}

impl Ran {
    /// Returns whether the bench ran to its end and printed its document.
    pub(super) fn is_complete(&self) -> bool {
        // With 1 a bench reports that our server failed in a cell. The row of the cell says so.
        matches!(self.code, Some(0 | 1)) && !self.output.is_null() && self.left_out.is_none()
    }

    /// Returns the reason for missing results; `None` if the bench did all its work.
    pub(super) fn failure(&self) -> Option<String> {
        match self.code {
            Some(0) if !self.output.is_null() => self.left_out.clone(),
            Some(code) if code == i32::from(interrupt::EXIT_CODE) => Some("interrupted".into()),
            Some(_) if !self.said.is_empty() => Some(self.said.clone()),
            Some(code) => Some(format!("the bench ended with code {code} and said nothing")),
            None => Some("a signal ended the bench".into()),
        }
    }
}

/// Runs `program` with `args`. Calls `look` with each line on standard error, and with an empty line now and
/// then.
///
/// # Errors
///
/// The process does not start.
pub(super) fn run(
    program: &Path,
    args: &[String],
    mut look: impl FnMut(&str),
) -> anyhow::Result<Ran> {
    let start = Instant::now();
    let mut child = Command::new(program)
        .args(args)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| program.display().to_string())?;
    let output = child.stdout.take().context("no standard output")?;
    let errors = child.stderr.take().context("no standard error")?;
    let document = std::thread::spawn(move || {
        let mut text = String::new();
        output
            .take(DOCUMENT_MAX)
            .read_to_string(&mut text)
            .map(|_| text)
    });
    let (sender, lines) = sync_channel(LINES_MAX);
    std::thread::spawn(move || {
        let mut errors = BufReader::new(errors);
        let mut line = Vec::new();
        while matches!(
            (&mut errors).take(LINE_MAX).read_until(b'\n', &mut line),
            Ok(1..)
        ) {
            if sender
                .send(String::from_utf8_lossy(&line).trim().to_owned())
                .is_err()
            {
                break;
            }
            line.clear();
        }
    });
    let mut ran = Ran::default();
    let mut is_stopping = false;
    loop {
        if interrupt::asked() && !is_stopping {
            is_stopping = true;
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // The process may have ended by itself, which is no error.
                let _ = kill_process(pid, Signal::INT);
            }
        }
        match lines.recv_timeout(LOOK) {
            Ok(line) => {
                look(&line);
                if line.contains(OVER) {
                    ran.left_out = Some(format!("{line}; the next report measures it"));
                }
                if !line.is_empty() {
                    ran.said = line.trim_start_matches("tidegate-bench: ").into();
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                look("");
                // A process that the bench left behind may hold its standard error open.
                if matches!(child.try_wait(), Ok(Some(_))) {
                    break;
                }
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    ran.code = child.wait()?.code();
    ran.seconds = start.elapsed().as_secs_f64();
    let text = document.join().ok().context("the reader panicked")?;
    // A bench that found a mistake prints no document.
    ran.output = text
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Ran {
        run(Path::new("/bin/sh"), &["-c".into(), script.into()], |_| ()).unwrap()
    }

    #[test]
    fn the_document_and_the_last_words_are_kept() {
        let ran = shell("echo first >&2; echo '{\"rows\":[1]}'; echo last words >&2; echo >&2");
        assert_eq!(ran.output["rows"][0], 1);
        assert_eq!((ran.code, &ran.said[..]), (Some(0), "last words"));
        assert!(ran.is_complete() && ran.failure().is_none());
    }

    #[test]
    fn a_failure_says_why() {
        let ran =
            shell("echo 'no redis-server to start: apt-get install redis-server' >&2; exit 2");
        assert!(!ran.is_complete());
        let failure = ran.failure().unwrap();
        assert_eq!(
            failure,
            "no redis-server to start: apt-get install redis-server"
        );
        assert_eq!(
            shell("exit 3").failure().unwrap(),
            "the bench ended with code 3 and said nothing"
        );
        assert_eq!(
            shell("kill -9 $$").failure().unwrap(),
            "a signal ended the bench"
        );
        assert_eq!(
            shell("echo '{}'; exit 130").failure().unwrap(),
            "interrupted"
        );
    }

    #[test]
    fn cells_that_were_left_out_make_a_step_incomplete() {
        let script = format!("echo '{{}}'; echo 'GET: not run, {OVER}' >&2; echo end >&2");
        let ran = shell(&script);
        assert!(!ran.is_complete());
        assert!(ran.failure().unwrap().starts_with("GET: not run, "));
    }

    #[test]
    fn a_server_of_ours_that_failed_leaves_results() {
        let ran = shell("echo '{\"rows\":[]}'; echo 'no figures' >&2; exit 1");
        assert!(ran.is_complete());
        assert_eq!(ran.failure().unwrap(), "no figures");
    }
}
