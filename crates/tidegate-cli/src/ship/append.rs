//! The receiver's file: records at its end, and beside it `FILE.tidegate` with what they mean: which sessions they are of,
//! how far each is, and how much of the file counts.
//!
//! The order makes it atomic: the records are written and synced, then the state that covers them is; only then may an ack
//! leave. What a crash leaves behind the length the newest state names was never acked, and is cut off at the next start. A
//! file that is shorter than that, or ends otherwise, was changed by somebody, and nothing is appended to it.
//!
//! One process at a time: the state file carries a lock. After a failed write or sync nothing is accepted any more: what is
//! on the disk is not known then, and the next start finds out.

mod state;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use super::disk::{Bytes, Disk};
pub(super) use state::SESSIONS_MAX;
use state::{Found, Progress, SLOT, State, TAIL_MAX, Tail};

/// See the module.
pub(super) struct Append<F> {
    path: PathBuf,
    data: F,
    sidecar: F,
    state: State,
    /// The last bytes of the file, as many as are checked.
    tail: Vec<u8>,
    slot: Vec<u8>,
    /// An append failed: see the module.
    poisoned: bool,
}

/// What was found at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// There was no state: the file is new, or was nobody's.
    pub(super) new: bool,
    /// Bytes cut off because no ack covered them.
    pub(super) cut_bytes: u64,
}

/// Records of one session, as they are to lie in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    /// Whose.
    pub(super) session: u128,
    /// The number of its first record; the session's first one is 1.
    pub(super) first: u64,
    /// How many.
    pub(super) records: u64,
    /// Their bytes.
    pub(super) bytes: &'a [u8],
}

/// A file that cannot be appended to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum OpenError {
    /// The system refused.
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process appends to it.
    #[error("{}: another receiver appends to it: end that one, or append to another file", .0.display())]
    Locked(PathBuf),
    /// It has less than was acknowledged.
    #[error("{}: has {bytes} bytes, but {expected} were acknowledged: somebody cut it; bring it back, or remove {}",
        path.display(), sidecar.display())]
    Shorter {
        /// The file.
        path: PathBuf,
        /// Its state.
        sidecar: PathBuf,
        /// What it has.
        bytes: u64,
        /// What it had.
        expected: u64,
    },
    /// Its acknowledged end is another one.
    #[error("{}: the {checked} bytes before byte {expected} are not those that were acknowledged: somebody changed it; \
        bring it back, or remove {}", path.display(), sidecar.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// Its state.
        sidecar: PathBuf,
        /// How many bytes were looked at.
        checked: u32,
        /// Where they end.
        expected: u64,
    },
    /// Its state is not readable.
    #[error("{}: damaged, so nobody knows which records are in the file: bring it back, or remove it", .0.display())]
    Damaged(PathBuf),
    /// Its state was written by a later version of this program.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The state.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

/// Records that were not appended. Nothing of their batch was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum AppendError {
    /// The system refused; see [`Append`].
    #[error("{}: {error}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Somebody wrote to the file, cut it or removed it.
    #[error("{}: {} while it was appended to: somebody else uses it", path.display(), match bytes {
        Some(bytes) => format!("came to have {bytes} bytes instead of {expected}"),
        None => "was removed".to_owned(),
    })]
    Changed {
        /// The file.
        path: PathBuf,
        /// What it has, if it still is one.
        bytes: Option<u64>,
        /// What was written.
        expected: u64,
    },
    /// An earlier append failed.
    #[error("{}: not written, because an earlier write failed", .0.display())]
    Poisoned(PathBuf),
}

/// A chunk that does not go on where its session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(super) enum Refused {
    /// It repeats records, or leaves some out.
    #[error("the session's next record is {expected}, not {first}")]
    OutOfTurn {
        /// The record it begins with.
        first: u64,
        /// The record it should.
        expected: u64,
    },
    /// A new session, and no room.
    #[error(
        "the file has {SESSIONS_MAX} named sessions, the most it can have: send under one of their names, or append to \
        another file"
    )]
    Sessions,
}

/// The last 16 bits of a session that somebody may come back to by its name. Others may be forgotten when there are
/// too many.
pub(super) const NAMED: u16 = 0x4e61;

const fn is_named(session: u128) -> bool {
    session as u16 == NAMED
}

impl<F: Bytes> Append<F> {
    /// Opens or creates `name` and its state in `disk`, checks one against the other and cuts off what was never acked. A
    /// state that begins here has `epoch`.
    pub(super) fn open<D: Disk<File = F>>(
        disk: &D,
        name: &OsStr,
        epoch: u64,
    ) -> Result<(Self, Opened), OpenError> {
        let sidecar_name = {
            let mut sidecar = OsString::from(name);
            sidecar.push(".tidegate");
            sidecar
        };
        let (path, sidecar_path) = (disk.path(name), disk.path(&sidecar_name));
        let on = |path: &PathBuf| {
            let path = path.clone();
            move |error| OpenError::Io { path, error }
        };
        let data = disk.open(name).map_err(on(&path))?;
        let had = data.bytes().map_err(on(&path))?.unwrap_or_default();
        let sidecar = disk.open(&sidecar_name).map_err(on(&sidecar_path))?;
        if !sidecar.try_lock().map_err(on(&sidecar_path))? {
            return Err(OpenError::Locked(path));
        }
        let found = read_all(&sidecar, 2 * SLOT).map_err(on(&sidecar_path))?;
        let (mut state, new) = match state::find(&found) {
            Found::State(state) => (state, false),
            Found::Nothing => (State::default(), true),
            Found::Damaged => return Err(OpenError::Damaged(sidecar_path)),
            Found::Later(version) => {
                let path = sidecar_path;
                return Err(OpenError::Later { path, version });
            }
        };
        if new {
            state.epoch = epoch;
            state.bytes = had;
        }
        if had < state.bytes {
            return Err(OpenError::Shorter {
                path,
                sidecar: sidecar_path,
                bytes: had,
                expected: state.bytes,
            });
        }
        let tail_bytes = if new {
            state.bytes.min(TAIL_MAX as u64)
        } else {
            state.tail.bytes.into()
        };
        let mut tail = vec![0; tail_bytes as usize];
        data.read_at(state.bytes - tail_bytes, &mut tail)
            .map_err(on(&path))?;
        if new {
            state.tail = Tail::of(&tail);
        } else if Tail::of(&tail) != state.tail {
            return Err(OpenError::Changed {
                path,
                sidecar: sidecar_path,
                checked: state.tail.bytes,
                expected: state.bytes,
            });
        }
        if had > state.bytes {
            data.set_bytes(state.bytes).map_err(on(&path))?;
        }
        // The process that wrote this may have been killed before its sync: what is told from here on must be durable.
        data.sync().map_err(on(&path))?;
        let opened = Opened {
            new,
            cut_bytes: had - state.bytes,
        };
        let mut append = Self {
            path,
            data,
            sidecar,
            state,
            tail,
            slot: Vec::new(),
            poisoned: false,
        };
        let begun = if new {
            append.begin()
        } else {
            append.sidecar.sync()
        };
        begun
            .and_then(|()| disk.sync_names())
            .map_err(on(&sidecar_path))?;
        Ok((append, opened))
    }

    /// Gives the slots their places, once, and writes the first state.
    fn begin(&mut self) -> io::Result<()> {
        self.sidecar.set_bytes(0)?;
        self.sidecar.write_at(SLOT as u64, &[0; SLOT])?;
        self.write_state()
    }

    fn write_state(&mut self) -> io::Result<()> {
        self.state.encode(&mut self.slot);
        self.sidecar.write_at(self.state.offset(), &self.slot)?;
        self.sidecar.sync()
    }

    /// Of the receiver that has this state: another one, if the state was lost.
    pub(super) const fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// How many records of `session` are in the file, none missing.
    pub(super) fn position(&self, session: u128) -> u64 {
        let progress = self.state.sessions.get(&session);
        progress.map_or(0, |progress| progress.position)
    }

    /// Every session with its position.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (u128, u64)> {
        let sessions = self.state.sessions.iter();
        sessions.map(|(session, progress)| (*session, progress.position))
    }

    /// Appends chunks of any sessions in this order, and returns when they are durable. A chunk that is not its session's
    /// next is left out; what became of each is pushed onto `outcomes`.
    pub(super) fn append<'a>(
        &mut self,
        chunks: impl IntoIterator<Item = Chunk<'a>>,
        outcomes: &mut Vec<Result<(), Refused>>,
    ) -> Result<(), AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned(self.path.clone()));
        }
        // Until this batch is through; the state in memory runs ahead of the disk.
        self.poisoned = true;
        let on = |error| AppendError::Io {
            path: self.path.clone(),
            error,
        };
        let (start, had) = (self.state.bytes, self.data.bytes().map_err(on)?);
        if had != Some(start) {
            return Err(AppendError::Changed {
                path: self.path.clone(),
                bytes: had,
                expected: start,
            });
        }
        self.state.generation += 1;
        // The end that was checked already stays in front: one buffer is what is written and what is checked next.
        let kept = self.tail.len();
        for chunk in chunks {
            let admitted = admit(&mut self.state, &chunk);
            if admitted.is_ok() {
                self.tail.extend_from_slice(chunk.bytes);
            }
            outcomes.push(admitted);
        }
        let written = self.tail.len() - kept;
        if written > 0 {
            self.data.write_at(start, &self.tail[kept..]).map_err(on)?;
            self.data.sync().map_err(on)?;
            self.state.bytes += written as u64;
        }
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_MAX));
        self.tail.shrink_to(4 * TAIL_MAX);
        self.state.tail = Tail::of(&self.tail);
        if let Err(error) = self.write_state() {
            let path = self.path.clone();
            return Err(AppendError::Io { path, error });
        }
        self.poisoned = false;
        Ok(())
    }
}

/// Moves the session on, if `chunk` is its next.
fn admit(state: &mut State, chunk: &Chunk<'_>) -> Result<(), Refused> {
    let known = state.sessions.get(&chunk.session).copied();
    let expected = known.unwrap_or_default().position + 1;
    if chunk.first != expected {
        let first = chunk.first;
        return Err(Refused::OutOfTurn { first, expected });
    }
    if known.is_none() && state.sessions.len() == SESSIONS_MAX {
        let forgotten = state
            .sessions
            .iter()
            .filter(|(session, _)| !is_named(**session))
            .min_by_key(|(session, progress)| (progress.changed, **session))
            .map(|(session, _)| *session);
        state.sessions.remove(&forgotten.ok_or(Refused::Sessions)?);
    }
    let progress = Progress {
        position: chunk.first - 1 + chunk.records,
        changed: state.generation,
    };
    state.sessions.insert(chunk.session, progress);
    Ok(())
}

/// The first `most` bytes of a file, or all there are.
fn read_all(file: &impl Bytes, most: usize) -> io::Result<Vec<u8>> {
    let bytes = file.bytes()?.unwrap_or_default();
    let mut all = vec![0; bytes.min(most as u64) as usize];
    file.read_at(0, &mut all)?;
    Ok(all)
}
