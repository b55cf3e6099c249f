//! Reads the files to count, one after the other, as one feed for the topology. The feed prints the error of
//! a file that it cannot read, and continues with the next file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use indicatif::ProgressBar;

use crate::input::Source;
use crate::interrupt;
use crate::topology::{Blocks, Feed};

/// The greatest number of bytes that the feed reads at once, to bound the memory. The feed splits a longer
/// line.
const BLOCK: usize = 32 * 1024;

/// The numbers of files that the feed has read or has failed to read, and the number of bytes read, for the
/// report.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    /// The number of files that the feed has read to their end, for the report.
    pub(super) counted: usize,
    /// The number of files that the feed could not read to their end, for the report and the exit code.
    pub(super) failed: usize,
    /// The number of bytes that the feed has read, for the throughput in the report.
    pub(super) bytes: u64,
}

/// The feed of all files to count, from which the topology reads one file after the other.
pub(super) struct Files {
    waiting: std::vec::IntoIter<PathBuf>,
    open: Option<(PathBuf, Blocks<Source>)>,
    tried: Tried,
    bar: ProgressBar,
}

impl Files {
    /// Creates the feed of the files `paths`, in order; `-` is standard input.
    pub(super) fn new(paths: Vec<PathBuf>, bar: ProgressBar) -> Self {
        Self {
            waiting: paths.into_iter(),
            open: None,
            tried: Tried::default(),
            bar,
        }
    }

    /// Removes the progress bar, and returns the numbers of files and bytes for the report.
    pub(super) fn finish(self) -> Tried {
        self.bar.finish_and_clear();
        self.tried
    }

    fn failed(&mut self, path: &Path, error: &io::Error) {
        self.tried.failed += 1;
        self.bar.suspend(|| {
            // The line shows the system's message without the error number, which tells the user nothing.
            let text = error.to_string();
            let reason = text.split(" (os error").next().unwrap_or_default();
            crate::face::complain(format_args!("tidegate: {}: {reason}", path.display()));
        });
    }

    fn block(&mut self, block: Arc<[u8]>) -> Option<Arc<[u8]>> {
        self.tried.bytes += block.len() as u64;
        self.bar.inc(block.len() as u64);
        Some(block)
    }
}

impl Feed for Files {
    fn next(&mut self) -> Option<Arc<[u8]>> {
        while !interrupt::asked() {
            let Some((path, blocks)) = &mut self.open else {
                let path = self.waiting.next()?;
                match Source::open(&path) {
                    Ok(source) => self.open = Some((path, Blocks::new(source, BLOCK))),
                    Err(e) => self.failed(&path, &e),
                }
                continue;
            };
            match blocks.read() {
                Ok(block) => {
                    if blocks.ended() {
                        self.tried.counted += 1;
                        self.open = None;
                    }
                    if let Some(block) = block {
                        return self.block(block);
                    }
                }
                // The topology still counts the bytes that the feed read before the error.
                Err(e) => {
                    let (path, rest) = (std::mem::take(path), blocks.rest());
                    self.open = None;
                    self.failed(&path, &e);
                    if let Some(block) = rest {
                        return self.block(block);
                    }
                }
            }
        }
        None
    }
}
