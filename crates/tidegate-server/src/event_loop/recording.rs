//! Writes the decisions of all controllers to a file for an analysis, on a separate thread.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tidegate::boundary::{DECISIONS_HEADER, DecisionLines, DecisionLog};

use super::errors::StartError;

/// The greatest number of decisions, each one line, that may wait in memory for the thread that writes the
/// file. If this many wait, the controllers drop further decisions and count them.
const LINES_MAX: usize = 65_536;

/// The log in memory through which the controllers hand their decisions to the thread, and the thread once it
/// runs.
///
/// The log takes decisions before the file exists, because a start that fails must leave the file of another
/// run unchanged.
#[derive(Debug)]
pub(super) struct Recording {
    log: DecisionLog,
    /// The decisions for the thread, until the recording hands them to the thread at its start.
    lines: Option<DecisionLines>,
    thread: Option<JoinHandle<()>>,
}

impl Recording {
    /// Begins to keep decisions in memory, because the file is not open yet.
    pub(super) fn new() -> Self {
        let (log, lines) = DecisionLog::new(LINES_MAX);
        Self {
            log,
            lines: Some(lines),
            thread: None,
        }
    }

    /// Creates the file, or empties it, and starts the thread, once in the life of the recording. The thread
    /// ends when the log and each controller's boundary, which writes to the log, are dropped, or when it
    /// cannot write the file. The file has a lock while the thread runs, so that a second server does not
    /// empty it.
    pub(super) fn start(&mut self, file: &Path) -> Result<(), StartError> {
        let failed = |source| StartError::Record {
            file: file.to_owned(),
            source,
        };
        let lines = self.lines.take().expect("a recording starts once");
        let mut output = BufWriter::new(create(file).map_err(failed)?);
        writeln!(output, "{DECISIONS_HEADER}").map_err(failed)?;
        output.flush().map_err(failed)?;
        let name = file.display().to_string();
        let thread = std::thread::Builder::new().name("record".into());
        let run = move || {
            if let Err(error) = write(output, lines) {
                tracing::error!(
                    "the server cannot write the decisions of its controllers to {name}: {error}: the server goes on, and records no more decisions"
                );
            }
        };
        self.thread = Some(thread.spawn(run).map_err(StartError::Loop)?);
        Ok(())
    }

    pub(super) const fn log(&self) -> &DecisionLog {
        &self.log
    }

    /// Waits until the thread has written all decisions to the file and has ended. The caller must have
    /// dropped the boundary of each controller that writes decisions, because the thread waits until no
    /// boundary is left.
    pub(super) fn finish(self) {
        drop(self.log);
        if self.thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(
                "the thread that records the controllers' decisions has panicked: the file of --record lacks the last decisions"
            );
        }
    }
}

/// Opens the file empty for the thread, with a lock. Fails if another server has the lock. A device or a pipe
/// gets no lock, because it has no content that a second server could empty.
fn create(path: &Path) -> io::Result<File> {
    let is_pipe = |m: fs::Metadata| m.file_type().is_fifo();
    if fs::metadata(path).is_ok_and(is_pipe) {
        // The server refuses a pipe, because the open would wait for a reader of the pipe and delay the
        // server's start.
        return Err(io::Error::other("the path is a pipe: give a file"));
    }
    let mut options = File::options();
    let file = options
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)?;
    if file.metadata()?.is_file() {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                let message =
                    "another server writes to the file: give each server a file of its own";
                return Err(io::Error::other(message));
            }
            outcome => outcome?,
        }
        file.set_len(0)?;
    }
    Ok(file)
}

fn write(mut output: BufWriter<File>, mut lines: DecisionLines) -> io::Result<()> {
    while let Some(line) = lines.next() {
        writeln!(output, "{line}")?;
        while let Some(line) = lines.try_next() {
            writeln!(output, "{line}")?;
        }
        output.flush()?;
    }
    Ok(())
}
