//! The file of the server's log. Programs that rotate logs rename the file, and the signal USR1 then makes
//! the server begin a new file under the old name.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: RwLock<File>,
}

impl LogFile {
    /// Opens the file at `path` for the server's log lines, or creates it. Lines go to the file's end.
    pub(super) fn open(path: &Path) -> io::Result<Arc<Self>> {
        let file = RwLock::new(append_to(path)?);
        let path = path.to_owned();
        Ok(Arc::new(Self { path, file }))
    }

    /// Opens the file at its path again, because a program that rotates logs may have renamed it. After an
    /// error, the server continues with the old file.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = append_to(&self.path)?;
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner);
        (&*file).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_a_new_file_after_the_old_one_was_renamed() {
        let directory = tempfile::tempdir().unwrap();
        let [path, old] = ["log", "log.1"].map(|name| directory.path().join(name));
        let log = LogFile::open(&path).unwrap();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        (&*log).write_all(b"one\n").unwrap();
        std::fs::rename(&path, &old).unwrap();
        (&*log).write_all(b"two\n").unwrap();
        log.reopen().unwrap();
        (&*log).write_all(b"three\n").unwrap();
        assert_eq!((&*read(&old), &*read(&path)), ("one\ntwo\n", "three\n"));
        std::fs::remove_dir_all(directory.path()).unwrap();
        assert!(log.reopen().is_err());
        (&*log).write_all(b"into the removed file\n").unwrap();
    }
}
