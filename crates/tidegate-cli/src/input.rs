//! Reads a file or standard input for a command, so that Ctrl-C can end a read that waits.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::interrupt;

/// A file or standard input, from which a command reads. The source polls for input before a read that may
/// block, so that Ctrl-C ends the wait.
pub(crate) struct Source {
    file: File,
    waits: bool,
}

impl Source {
    /// Opens `path` for reading; `-` is standard input.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = match path.as_os_str() == "-" {
            true => File::from(io::stdin().as_fd().try_clone_to_owned()?),
            false => open(path)?,
        };
        let waits = !file.metadata()?.is_file();
        Ok(Self { file, waits })
    }

    /// Returns the length of the file in bytes, for the progress; `None` for a stream, which has no known
    /// length.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok();
        metadata
            .filter(|_| !self.waits)
            .map(|metadata| metadata.len())
    }
}

/// Opens the file. To open a named pipe, this function does not wait for a writer, because no signal would
/// end that wait. The first read waits instead.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let blocking = fcntl_getfl(&file)?.difference(OFlags::NONBLOCK);
    fcntl_setfl(&file, blocking)?;
    Ok(file)
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.waits {
            let second = Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            };
            loop {
                match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], Some(&second)) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => {}
                    Ok(_) => break,
                    Err(e) => return Err(e.into()),
                }
                if interrupt::asked() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        self.file.read(buffer)
    }
}
