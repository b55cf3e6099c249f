//! The position of a session in the followed file, and the file beside it that keeps the position for the
//! next start. The sender stores only positions of records that the receiver has acknowledged, so a stored
//! position may be old, and never promises too much.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use tidegate_link::SessionId;

use super::files::{Before, Id};

/// The version of the position's file.
const VERSION: u32 = 1;
/// The greatest number of sent and not acknowledged positions that the sender keeps.
const MARKS_MAX: usize = 4096;
/// The least time between two writes of the position's file, so that syncs stay rare.
const STORED: Duration = Duration::from_secs(1);

/// A position as its file holds it: after `records` records of the session comes the byte at `offset` of the
/// file with this identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    version: u32,
    session: String,
    pub(super) records: u64,
    device: u64,
    inode: u64,
    pub(super) offset: u64,
    /// The bytes before the offset.
    pub(super) before: Before,
    /// The first bytes of the file. A file that was cut and has grown again begins with others.
    pub(super) head: Before,
}

impl Position {
    /// Returns the identity of the file.
    pub(super) const fn id(&self) -> Id {
        Id {
            device: self.device,
            inode: self.inode,
        }
    }
}

/// Returns the path of the position's file of the session `name`, if the user gave none.
pub(super) fn default_path(file: &Path, name: &str) -> PathBuf {
    let mut path = OsString::from(file);
    path.push(".tidegate-sent-");
    // A session's name may hold any characters, and a file's name may not.
    for c in name.chars() {
        match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_' => path.push(c.to_string()),
            c => path.push(format!("%{:x}", u32::from(c))),
        }
    }
    path.into()
}

/// A place in a file behind the record with the number `records`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) records: u64,
    pub(super) id: Id,
    pub(super) offset: u64,
    pub(super) before: Before,
    pub(super) head: Before,
}

impl Mark {
    /// Returns the mark at `offset` of this file, or `None` if a rotation has cut the file meanwhile. An
    /// earlier mark then stays the newest one until a later file has one.
    pub(super) fn at(records: u64, file: &File, id: Id, offset: u64) -> Option<Self> {
        Some(Self {
            records,
            id,
            offset,
            before: Before::of(file, offset).ok()?,
            head: Before::of_head(file).ok()?,
        })
    }
}

/// The positions of sent records, and the file that keeps the newest acknowledged one. The reading thread
/// adds marks, and the sender's task reports acknowledgements.
#[derive(Debug)]
pub(in crate::ship::send) struct Positions {
    /// The path of the position's file; `None` if no later sender can continue the session.
    path: Option<PathBuf>,
    session: SessionId,
    state: Mutex<State>,
    /// Held while a thread stores a position, so that no older position replaces a newer one.
    storing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    marks: VecDeque<Mark>,
    acked: u64,
    /// The newest mark with all records acknowledged, if it is not stored yet.
    safe: Option<Mark>,
    stored: Option<Instant>,
}

impl Positions {
    pub(super) fn new(path: Option<PathBuf>, session: SessionId) -> Self {
        Self {
            path,
            session,
            state: Mutex::default(),
            storing: Mutex::default(),
        }
    }

    /// Reads the position that an earlier sender stored; `None` if there is none.
    pub(super) fn load(&self) -> anyhow::Result<Option<Position>> {
        let Some(path) = &self.path else {
            return Ok(None);
        };
        let name = || path.display().to_string();
        let text = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(name)?,
        };
        let value: Result<serde_json::Value, _> = serde_json::from_slice(&text);
        let version = value.ok().and_then(|v| v["version"].as_u64());
        if let Some(version) = version.filter(|&v| v > u64::from(VERSION)) {
            anyhow::bail!(
                "{}: written by a later version of tidegate (format {version}): use that one",
                name()
            );
        }
        let Ok(position) = serde_json::from_slice::<Position>(&text) else {
            anyhow::bail!(
                "{}: damaged, so the place at which to go on is unknown: bring it back, or remove it and send under another --session name",
                name()
            );
        };
        anyhow::ensure!(
            position.session == self.session.to_string(),
            "{}: belongs to another session: give another --state",
            name()
        );
        Ok(Some(position))
    }

    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Notes a place behind a sent record. If the list is full, the new mark replaces the newest one.
    pub(super) fn mark(&self, mark: Mark) {
        let mut state = self.lock();
        if mark.records <= state.acked {
            state.safe = Some(mark);
            return;
        }
        if state.marks.len() == MARKS_MAX {
            state.marks.pop_back();
        }
        state.marks.push_back(mark);
    }

    /// Notes that the receiver has acknowledged all records up to `records`.
    pub(in crate::ship::send) fn acked(&self, records: u64) {
        let mut state = self.lock();
        state.acked = state.acked.max(records);
        while state.marks.front().is_some_and(|m| m.records <= records) {
            state.safe = state.marks.pop_front();
        }
    }

    /// Stores the newest acknowledged position durably. If `now` is given, stores at most once a second.
    pub(in crate::ship::send) fn store(&self, now: Option<Instant>) -> anyhow::Result<()> {
        let Some(path) = &self.path else {
            return Ok(());
        };
        let _storing = self.storing.lock().unwrap_or_else(PoisonError::into_inner);
        let mark = {
            let mut state = self.lock();
            let early = |now: Instant| state.stored.is_some_and(|at| now < at + STORED);
            if now.is_some_and(early) {
                return Ok(());
            }
            let Some(mark) = state.safe.take() else {
                return Ok(());
            };
            state.stored = now.or(state.stored);
            mark
        };
        let position = Position {
            version: VERSION,
            session: self.session.to_string(),
            records: mark.records,
            device: mark.id.device,
            inode: mark.id.inode,
            offset: mark.offset,
            before: mark.before,
            head: mark.head,
        };
        replace(path, &position).with_context(|| path.display().to_string())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Replaces the position's file so that a crash leaves the old one or the new one.
fn replace(path: &Path, position: &Position) -> io::Result<()> {
    let mut new = OsString::from(path);
    new.push("-new");
    let mut file = File::create(&new)?;
    let mut text = serde_json::to_vec(position)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_data()?;
    fs::rename(&new, path)?;
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(records: u64, offset: u64) -> Mark {
        let id = Id {
            device: 1,
            inode: 2,
        };
        Mark {
            records,
            id,
            offset,
            before: Before::default(),
            head: Before::default(),
        }
    }

    #[test]
    fn only_acknowledged_positions_are_stored() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let positions = Positions::new(Some(path), SessionId([1; 16]));
        positions.mark(mark(0, 0));
        positions.mark(mark(10, 100));
        positions.mark(mark(20, 200));
        positions.store(None).unwrap();
        assert_eq!(positions.load().unwrap().unwrap().records, 0);
        positions.acked(15);
        positions.store(None).unwrap();
        let stored = positions.load().unwrap().unwrap();
        assert_eq!(
            (stored.records, stored.offset, stored.id()),
            (10, 100, mark(0, 0).id)
        );
        positions.acked(20);
        let now = Instant::now();
        positions.store(Some(now)).unwrap();
        positions.mark(mark(20, 0));
        positions.store(Some(now)).unwrap();
        assert_eq!(positions.load().unwrap().unwrap().offset, 200, "too early");
        positions.store(Some(now + STORED)).unwrap();
        assert_eq!(positions.load().unwrap().unwrap().offset, 0);
    }

    #[test]
    fn a_full_list_keeps_the_newest_mark() {
        let positions = Positions::new(None, SessionId([1; 16]));
        for n in 1..=MARKS_MAX as u64 + 5 {
            positions.mark(mark(n, n));
        }
        let last = MARKS_MAX as u64 + 5;
        positions.acked(last - 1);
        assert_eq!(
            positions.lock().safe.as_ref().unwrap().records,
            MARKS_MAX as u64 - 1
        );
        positions.acked(last);
        assert_eq!(positions.lock().safe.as_ref().unwrap().records, last);
    }

    #[test]
    fn a_damaged_later_or_foreign_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("p");
        let positions = Positions::new(Some(path.clone()), SessionId([1; 16]));
        assert_eq!(positions.load().unwrap(), None);
        positions.mark(mark(0, 0));
        positions.store(None).unwrap();
        let whole = fs::read_to_string(&path).unwrap();
        let other = Positions::new(Some(path.clone()), SessionId([2; 16]));
        let why = |p: &Positions| p.load().unwrap_err().to_string();
        assert!(why(&other).contains("another session"));
        for cut in 0..whole.len() - 1 {
            fs::write(&path, &whole[..cut]).unwrap();
            assert!(why(&positions).contains("damaged"), "{cut}");
        }
        fs::write(&path, whole.replace("\"version\":1", "\"version\":2")).unwrap();
        assert!(why(&positions).contains("later version"));
    }

    #[test]
    fn a_name_of_any_characters_makes_one_file_name() {
        let path = default_path(Path::new("/var/log/app.log"), "a/b c");
        assert_eq!(path, Path::new("/var/log/app.log.tidegate-sent-a%2fb%20c"));
    }
}
