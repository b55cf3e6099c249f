//! Finds the file that a name belongs to now, and the files to which earlier rotations moved or copied it.
//! Rotation gives an old file the name of the followed file with a number or a date behind it, or between
//! the stem and the extension. Compressed files do not count, because their bytes differ.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The identity of a file, which a rename keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) device: u64,
    pub(super) inode: u64,
}

impl Id {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// The greatest number of bytes before a position that the check of the position compares.
const CHECKED_MAX: u64 = 4096;

/// The checksum of the bytes before a position in a file. By it the sender finds the position again in a copy
/// of the file, and notices that another file has the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Before {
    pub(super) bytes: u64,
    pub(super) crc: u32,
}

impl Before {
    /// Returns the checksum of the bytes before `offset` in this file.
    pub(super) fn of(file: &File, offset: u64) -> io::Result<Self> {
        let bytes = offset.min(CHECKED_MAX);
        let mut buffer = vec![0; bytes as usize];
        file.read_exact_at(&mut buffer, offset - bytes)?;
        let crc = crc32c::crc32c(&buffer);
        Ok(Self { bytes, crc })
    }

    /// Returns the checksum of the first bytes of this file, as far as it has them.
    pub(super) fn of_head(file: &File) -> io::Result<Self> {
        let bytes = file.metadata()?.len().min(CHECKED_MAX);
        Self::of(file, bytes)
    }

    /// Returns whether the file begins with these bytes.
    pub(super) fn begins(self, file: &File) -> bool {
        self.stands_in(file, self.bytes)
    }

    /// Returns whether the file has these bytes before `offset`. A file that cannot be read there has not.
    pub(super) fn stands_in(self, file: &File, offset: u64) -> bool {
        Self::of(file, offset).is_ok_and(|found| found == self)
    }
}

/// An open file that a rotation left, or the followed file itself.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) id: Id,
}

/// Opens the file at `path`, which must be a regular file. Returns `None` if there is no such file.
pub(super) fn open(path: &Path) -> io::Result<Option<Found>> {
    // A named pipe must not block the open, so its kind is known first.
    match std::fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Ok(metadata) if !metadata.is_file() => {
            let why = "not a regular file: --follow needs one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        Err(e) => return Err(e),
        Ok(_) => {}
    }
    let file = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let id = Id::of(&file.metadata()?);
    Ok(Some(Found {
        path: path.to_owned(),
        file,
        id,
    }))
}

/// Returns the files beside `path` to which rotations moved or copied it, oldest first by the time of their
/// last change. The file `id` is among them under any name.
pub(super) fn rotated(path: &Path, id: Option<Id>) -> io::Result<Vec<Found>> {
    let Some(name) = path.file_name() else {
        return Ok(Vec::new());
    };
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = match std::fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut all = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_name() == name {
            continue;
        }
        // Another program may remove a file meanwhile; such a file does not count.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        let is_sought = id == Some(Id::of(&metadata));
        if !metadata.is_file() || !(is_sought || is_rotated(name, &entry.file_name())) {
            continue;
        }
        if let Ok(Some(found)) = open(&entry.path()) {
            let time = (metadata.mtime(), metadata.mtime_nsec());
            all.push(((time, age(&entry.file_name())), found));
        }
    }
    all.sort_by_key(|(order, _)| *order);
    Ok(all.into_iter().map(|(_, found)| found).collect())
}

/// Returns whether a rotation gives a file named `name` the name `other`: with a number or a date at its end,
/// or in front of its extension.
fn is_rotated(name: &OsStr, other: &OsStr) -> bool {
    let (name, other) = (name.as_bytes(), other.as_bytes());
    let is_mark = |mark: &[u8]| {
        mark.len() > 1
            && matches!(mark[0], b'.' | b'-' | b'_')
            && mark.iter().any(u8::is_ascii_digit)
            && mark
                .iter()
                .all(|b| b.is_ascii_digit() || b".-_:TZ+".contains(b))
    };
    let between = |start: &[u8], end: &[u8]| {
        let rest = other.strip_prefix(start)?;
        rest.strip_suffix(end).map(is_mark)
    };
    if between(name, b"") == Some(true) {
        return true;
    }
    let dot = name.iter().rposition(|&b| b == b'.').filter(|&at| at > 0);
    dot.is_some_and(|at| between(&name[..at], &name[at..]) == Some(true))
}

/// The least number of digits of a date in a name.
const DATE_DIGITS: usize = 6;

/// Returns a number by which the files of rotations with one time are sorted, oldest first. A greater number
/// in a name means an older file, and a greater date a newer one.
fn age(name: &OsStr) -> i64 {
    let digits: String = name
        .to_string_lossy()
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    let number = digits.parse::<i64>().unwrap_or(0);
    match digits.len() < DATE_DIGITS {
        true => -number,
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_names_are_told_from_other_logs() {
        let is = |name: &str, other: &str| is_rotated(OsStr::new(name), OsStr::new(other));
        for other in [
            "app.log.1",
            "app.log.12",
            "app.log-20261127",
            "app.log.2026-11-27T01:02:03",
            "app-20261127.log",
            "app.1.log",
        ] {
            assert!(is("app.log", other), "{other}");
        }
        for other in [
            "app.log",
            "app.log.1.gz",
            "app.log.",
            "app.log.err",
            "app-access.log",
            "application.log",
            "app.log.tidegate-sent-x",
            "app.logs",
            "app.log1",
        ] {
            assert!(!is("app.log", other), "{other}");
        }
        assert!(is("messages", "messages.1") && is(".log", ".log.3"));
        let age = |name: &str| age(OsStr::new(name));
        assert!(age("app.log.12") < age("app.log.2"));
        assert!(age("app.log-20261127") < age("app.log-20261128"));
    }

    #[test]
    fn files_come_oldest_first_and_a_renamed_one_is_found_by_its_identity() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("app.log");
        for (name, age) in [
            ("app.log.1", 10),
            ("app.log.2", 20),
            ("old", 5),
            ("app.log", 0),
        ] {
            let file = File::create(dir.path().join(name)).unwrap();
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
            file.set_modified(time).unwrap();
        }
        let names = |id| -> Vec<String> {
            let found = rotated(&path, id).unwrap();
            let names = found.iter().map(|f| f.path.file_name().unwrap());
            names.map(|n| n.to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(None), ["app.log.2", "app.log.1"]);
        let old = open(&dir.path().join("old")).unwrap().unwrap();
        assert_eq!(names(Some(old.id)), ["app.log.2", "app.log.1", "old"]);
        assert!(open(dir.path()).is_err() && open(&dir.path().join("no")).unwrap().is_none());
    }

    #[test]
    fn a_position_is_known_by_the_bytes_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let file = File::open(&path).unwrap();
        let before = Before::of(&file, 9000).unwrap();
        assert!(before.stands_in(&file, 9000));
        assert!(!before.stands_in(&file, 20_000), "behind the end");
        std::fs::write(&path, vec![8; 10_000]).unwrap();
        assert!(!before.stands_in(&file, 9000));
        assert!(Before::default().stands_in(&file, 0) && Before::default().begins(&file));
        let head = Before::of_head(&file).unwrap();
        assert!(head.begins(&file) && head.bytes == CHECKED_MAX);
        std::fs::write(&path, vec![8; 4000]).unwrap();
        assert!(!head.begins(&file));
        assert!(Before::of_head(&file).unwrap().begins(&file));
    }
}
