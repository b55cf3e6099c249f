//! Reads a file that grows, and ends only once a rotation has put another file in its place. The reader waits
//! at the end of the file for more, and looks whether the name still belongs to the file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::files::{self, Before, Found, Id};
use crate::{face, interrupt};

/// The pause between two looks at a file that has no more bytes.
const POLL: Duration = Duration::from_millis(100);

/// A file with the offset of its next byte. See the [module](self).
#[derive(Debug)]
pub(super) struct Tailed {
    /// The path of the followed file, to which this file belongs or did belong.
    path: PathBuf,
    file: Arc<File>,
    id: Id,
    offset: u64,
    /// The bytes before `offset`, by which the reader notices that a rotation has cut the file.
    before: Before,
    /// True if the file may still grow. A file that a later rotation followed does not grow any more.
    grows: bool,
    /// True if the reader waits at the end of the file. A sender that skips the records which the receiver
    /// has must not wait, because the receiver has no more records than the files.
    pub(super) waits: bool,
    /// True once the reader has seen another file with bytes under the name. After another read of this file
    /// to its end, the reader ends.
    replaced: bool,
}

impl Tailed {
    pub(super) fn new(path: &Path, found: Found, offset: u64, grows: bool) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            before: Before::of(&found.file, offset)?,
            file: Arc::new(found.file),
            id: found.id,
            offset,
            grows,
            waits: false,
            replaced: false,
        })
    }

    /// Returns the file, its identity and the offset up to which the reader has read it, for a mark.
    pub(super) fn place(&self) -> ((Arc<File>, Id), u64) {
        ((Arc::clone(&self.file), self.id), self.offset)
    }

    /// Returns whether another file with bytes has the name, so that this file is complete.
    pub(super) const fn is_replaced(&self) -> bool {
        self.replaced
    }

    /// Goes on in a copy of the file, because a rotation has copied the file and then cut it. Without a copy,
    /// the bytes that were not read are lost. Returns whether there is a copy.
    fn go_on_in_copy(&mut self) -> io::Result<bool> {
        self.grows = false;
        let copies = files::rotated(&self.path, None)?;
        // The newest copy is the most likely one.
        let mut copies = copies.into_iter().rev();
        let copy = copies.find(|c| self.before.stands_in(&c.file, self.offset));
        if let Some(copy) = copy.filter(|_| self.offset > 0) {
            (self.file, self.id) = (Arc::new(copy.file), copy.id);
            return Ok(true);
        }
        face::complain(format_args!(
            "tidegate: {}: was cut, and no copy beside it has its first {} bytes: going on with the first byte, and bytes that came just before the cut may be missing",
            self.path.display(),
            self.offset
        ));
        Ok(false)
    }

    /// Decides about the end of the file. Returns true if the reader has read the whole file.
    fn is_over(&mut self) -> io::Result<bool> {
        if !self.grows || self.replaced {
            return Ok(true);
        }
        match files::open(&self.path)? {
            Some(now) if now.id != self.id => {
                // As long as the new file is empty, its writer may still write to the old one.
                self.replaced = now.file.metadata()?.len() > 0;
                Ok(false)
            }
            _ => Ok(false),
        }
    }
}

impl Read for Tailed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.file.read_at(buffer, self.offset)?;
            // The check comes after the read, so that bytes of a file that was cut and has grown again do not
            // count.
            if self.grows && !self.before.stands_in(&self.file, self.offset) {
                match self.go_on_in_copy()? {
                    true => continue,
                    false => return Ok(0),
                }
            }
            if read > 0 {
                self.offset += read as u64;
                self.before = Before::of(&self.file, self.offset).unwrap_or(self.before);
                return Ok(read);
            }
            if self.is_over()? {
                return Ok(0);
            }
            if self.replaced {
                continue;
            }
            if !self.waits {
                return Ok(0);
            }
            if interrupt::asked() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            std::thread::sleep(POLL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    fn tail(path: &Path) -> Tailed {
        let found = files::open(path).unwrap().unwrap();
        Tailed::new(path, found, 0, true).unwrap()
    }

    fn rest(tailed: &mut Tailed) -> String {
        let mut text = String::new();
        tailed.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_renamed_file_is_read_to_its_end_and_only_then_left() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let mut tailed = tail(&path);
        assert_eq!(rest(&mut tailed), "one\n");
        fs::rename(&path, dir.path().join("a.log.1")).unwrap();
        fs::write(&path, "").unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(rest(&mut tailed), "two\n");
        assert!(!tailed.replaced, "the new file is empty");
        file.write_all(b"three\n").unwrap();
        fs::write(&path, "four\n").unwrap();
        assert_eq!(rest(&mut tailed), "three\n");
        assert!(tailed.replaced);
    }

    #[test]
    fn a_file_that_was_copied_and_cut_goes_on_in_the_copy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let mut tailed = tail(&path);
        assert_eq!(rest(&mut tailed), "one\n");
        fs::write(dir.path().join("a.log.2"), "other\nbytes\n").unwrap();
        fs::write(dir.path().join("a.log.1"), "one\ntwo\n").unwrap();
        // The file has grown beyond the offset again.
        fs::write(&path, "three is longer\n").unwrap();
        assert_eq!(rest(&mut tailed), "two\n");
        assert!(!tailed.grows);
    }

    #[test]
    fn a_cut_file_without_a_copy_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        fs::write(&path, "one\n").unwrap();
        let mut tailed = tail(&path);
        assert_eq!(rest(&mut tailed), "one\n");
        fs::write(&path, "").unwrap();
        assert_eq!(rest(&mut tailed), "");
        assert!(!tailed.grows);
    }
}
