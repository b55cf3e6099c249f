//! Writes to standard output. Errors name standard output. Commands that print messages or records check at
//! the start that standard output is open, and their writes end at a signal.
//!
//! The check is needed because the standard library hides a closed standard output: if the caller closed it
//! (`>&-`), the library opens the null device in its place, and reports success for each write. Without the
//! check a command would count lost lines as written, and acknowledge their messages.

use std::fmt::Display;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl};

use crate::interrupt;

/// The name of standard output with which errors begin.
const NAME: &str = "standard output";
/// The greatest number of bytes in one write to a pipe. If the pipe has room, the system accepts this many at
/// once, so that the write does not block.
const PIPE_BYTES: usize = 4096;

/// Prints `text` to standard output, for commands with a short result.
///
/// # Errors
/// The system's error, with the name of standard output.
pub(crate) fn print(text: impl Display) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = write!(out, "{text}").and_then(|()| out.flush());
    written.context(NAME)
}

/// Standard output without a buffer. Before a write to a pipe, it polls for room, so that a signal ends the
/// wait for a slow reader.
pub(crate) struct Output {
    file: File,
    waits: bool,
}

impl Output {
    /// Opens standard output, unless the caller of the program closed it.
    ///
    /// The library replaces a closed standard output by the null device, open for reading and writing. A
    /// shell's `> /dev/null` opens the device for writing only. If another program starts this one with a
    /// null device open for both, this function refuses it as well, because the two cases look the same.
    ///
    /// # Errors
    /// Standard output was closed, or only reading is possible.
    pub(crate) fn open() -> anyhow::Result<Self> {
        let mode = fcntl_getfl(io::stdout())? & OFlags::RWMODE;
        if mode == OFlags::RDONLY {
            bail!("standard output is open for reading only: redirect it to a file or a pipe");
        }
        let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let metadata = file.metadata()?;
        let kind = metadata.file_type();
        let is_null =
            || Ok::<_, io::Error>(metadata.rdev() == std::fs::metadata("/dev/null")?.rdev());
        if mode == OFlags::RDWR && kind.is_char_device() && is_null()? {
            bail!(
                "standard output is closed, or a null device that is open for reading, too: redirect it to a file or a \
                 pipe, or to discard the output, give `> /dev/null`"
            );
        }
        Ok(Self {
            file,
            waits: !kind.is_file(),
        })
    }

    /// Returns standard output as a plain file, for a writer that needs no poll before its writes.
    pub(crate) fn into_file(self) -> File {
        self.file
    }
}

/// Adds the name of standard output to an error, and keeps the error's kind, by which callers decide.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{NAME}: {error}"))
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.waits {
            return self.file.write(bytes).map_err(named);
        }
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        loop {
            match poll(
                &mut [PollFd::new(&self.file, PollFlags::OUT)],
                Some(&second),
            ) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => break,
                Err(e) => return Err(named(e.into())),
            }
            // The error gets the kind `Other`: after an error of the kind `Interrupted`, `write_all` would
            // write again.
            interrupt::check().map_err(io::Error::other)?;
        }
        let most = bytes.len().min(PIPE_BYTES);
        self.file.write(&bytes[..most]).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
