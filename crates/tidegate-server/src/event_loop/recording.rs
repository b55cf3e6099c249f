//! Writes the decisions of all controllers to a file, on a separate thread.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::thread::JoinHandle;

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
    thread: JoinHandle<()>,
}

impl Recording {
    /// Creates the file, or empties it, and starts the thread. The thread ends after the last boundary is
    /// dropped, or when it cannot write the file.
    pub(super) fn start(file: &Path) -> Result<Self, StartError> {
        let failed = |source| StartError::Record {
            file: file.to_owned(),
            source,
        };
        let mut output = BufWriter::new(File::create(file).map_err(failed)?);
        writeln!(output, "{DECISIONS_HEADER}").map_err(failed)?;
        output.flush().map_err(failed)?;
        let (log, lines) = DecisionLog::new(LINES_MAX);
        let name = file.display().to_string();
        let thread = std::thread::Builder::new().name("record".into());
        let run = move || {
            if let Err(error) = write(output, lines) {
                tracing::error!(
                    "cannot write to {name}: {error}: the server goes on, and records no more decisions of its controllers"
                );
            }
        };
        let thread = thread.spawn(run).map_err(StartError::Loop)?;
        Ok(Self { log, thread })
    }

    pub(super) const fn log(&self) -> &DecisionLog {
        &self.log
    }

    /// Waits until the thread has written all decisions to the file and has ended. The caller must have
    /// dropped the boundary of each controller that writes decisions, because the thread waits for the
    /// decisions of the others.
    pub(super) fn finish(self) {
        drop(self.log);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread that records the controllers' decisions has panicked: its file lacks the last decisions"
            );
        }
    }
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
