//! The receiver's file: records at its end, and beside it `FILE.tidegate` with what they mean: which sessions
//! they are of, how far each is, and how much of the file counts.
//!
//! The order makes it atomic: the records are written and synced, then the state that covers them is; only
//! then may an ack leave. What a crash leaves behind the length the newest state names is no acked record,
//! but another program may have written it: the next start moves it to a file of its own (`aside`). After an
//! orderly end the file has no such bytes: if there are some, another program wrote them, and nothing is
//! appended. The same holds for a file that is shorter than the state says, or ends otherwise. Bytes before
//! the last 64 KiB are not checked.
//!
//! One process at a time: the state file carries a lock. After a failed write or sync nothing is accepted any
//! more: what is on the disk is not known then, and the next start finds out.

mod aside;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use tidegate_link::SessionId;

use super::disk::{Bytes, Disk};
use super::identity::is_named;
use state::{Found, SLOT, State, TAIL_MAX, Tail};
pub(super) use state::{Progress, SESSIONS_MAX};

/// See the module.
pub(super) struct Append<F> {
    path: PathBuf,
    data: F,
    sidecar: F,
    state: State,
    /// The last bytes of the file, as many as are checked.
    tail: Vec<u8>,
    slot: Vec<u8>,
    /// Sessions that are in use, and how often: they are not forgotten.
    used: HashMap<u128, u32>,
    /// An append failed: see the module.
    poisoned: bool,
}

/// Room kept between two batches.
const KEPT: usize = 16 << 20;

/// What was found at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// Bytes that were there and count.
    pub(super) bytes: u64,
    /// Bytes behind them, which no ack covers that the state knows of.
    pub(super) cut: Option<Cut>,
}

/// Bytes that were moved out of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// How many.
    pub(super) bytes: u64,
    /// Where they are now.
    pub(super) path: PathBuf,
    /// The newest state is not readable: it may have covered them.
    pub(super) in_doubt: bool,
}

/// Records as they are to lie in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    /// Whose; of nobody who could come back, if there is none.
    pub(super) session: Option<u128>,
    /// The number of its first record: the session's next one, or a later one if its sender gave some up.
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
        /// Its bytes.
        bytes: u64,
        /// The bytes that were acknowledged.
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
    /// It has more than when its receiver ended.
    #[error("{0}: has {bytes} bytes, but had {expected} when its receiver ended: another program appended to it; take that \
        out (tail -c +{1} {0} > OTHER; truncate -s {expected} {0}) and start again, or remove {2}: then every session \
        begins again behind it", path.display(), expected + 1, sidecar.display())]
    Grown {
        /// The file.
        path: PathBuf,
        /// Its state.
        sidecar: PathBuf,
        /// Its bytes.
        bytes: u64,
        /// Its bytes when its receiver ended.
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
    /// Records their session has already, or has not begun: a mistake of ours.
    #[error(
        "record {first} of session {session:032x} came again, or without a beginning: {expected:?} is next"
    )]
    Repeated {
        /// Which session.
        session: u128,
        /// The record.
        first: u64,
        /// The one that is next, if the session has begun.
        expected: Option<u64>,
    },
    /// An earlier append failed.
    #[error("{}: not written, because an earlier write failed", .0.display())]
    Poisoned(PathBuf),
    /// It was closed.
    #[error("{}: not written, because the receiver is ending", .0.display())]
    Closed(PathBuf),
}

/// A session that cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum BeginError {
    /// There is no room for another one.
    #[error(
        "the file has {SESSIONS_MAX} sessions with a name, the most it can have: use one of their names, or another file"
    )]
    Full,
    /// It could not be written down.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl<F: Bytes> Append<F> {
    /// Opens or creates `name` and its state in `disk`, checks one against the other and moves aside the
    /// bytes that no ack covers.
    pub(super) fn open<D: Disk<File = F>>(
        disk: &D,
        name: &OsStr,
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
        if had > state.bytes && state.closed {
            return Err(OpenError::Grown {
                path,
                sidecar: sidecar_path,
                bytes: had,
                expected: state.bytes,
            });
        }
        let mut cut = None;
        if had > state.bytes {
            let kept = aside::keep(disk, name, &data, state.bytes, had);
            let kept = kept.map_err(|(path, error)| OpenError::Io { path, error })?;
            cut = Some(Cut {
                bytes: had - state.bytes,
                path: kept,
                in_doubt: state::is_doubtful(&found),
            });
            data.set_bytes(state.bytes).map_err(on(&path))?;
        }
        // The process that wrote this may have ended before its sync: what is told from here on must be
        // durable.
        data.sync().map_err(on(&path))?;
        let opened = Opened {
            bytes: state.bytes,
            cut,
        };
        let mut append = Self {
            path,
            data,
            sidecar,
            state,
            tail,
            slot: Vec::new(),
            used: HashMap::new(),
            poisoned: false,
        };
        let begun = if new {
            append.create()
        } else {
            append.state.closed = false;
            append.state.generation += 1;
            append.write_state()
        };
        begun
            .and_then(|()| disk.sync_names())
            .map_err(on(&sidecar_path))?;
        Ok((append, opened))
    }

    /// Gives the slots their places, once, and writes the first state.
    fn create(&mut self) -> io::Result<()> {
        self.sidecar.set_bytes(0)?;
        self.sidecar.write_at(SLOT as u64, &[0; SLOT])?;
        self.write_state()
    }

    fn write_state(&mut self) -> io::Result<()> {
        self.state.encode(&mut self.slot);
        self.sidecar.write_at(self.state.offset(), &self.slot)?;
        self.sidecar.sync()?;
        // The next sync covers the copy. Until then the other slot is whole.
        self.sidecar.write_at(self.state.copy_offset(), &self.slot)
    }

    /// Ends in order: from now on a byte behind those that count is another program's.
    pub(super) fn close(&mut self) -> Result<(), AppendError> {
        if self.poisoned || self.state.closed {
            return Ok(());
        }
        self.write_closed().map_err(|error| AppendError::Io {
            path: self.path.clone(),
            error,
        })
    }

    fn write_closed(&mut self) -> io::Result<()> {
        self.state.closed = true;
        self.state.generation += 1;
        self.write_state()?;
        self.sidecar.sync()
    }

    /// Every session.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (u128, Progress)> {
        let sessions = self.state.sessions.iter();
        sessions.map(|(session, progress)| (*session, *progress))
    }

    /// Where a session goes on that is in use from now on, until [`Append::release`]. One the file does not
    /// know begins after `acked`, under `epoch`, durably.
    pub(super) fn begin(
        &mut self,
        session: u128,
        acked: u64,
        epoch: u64,
    ) -> Result<Progress, BeginError> {
        if let Some(progress) = self.state.sessions.get(&session) {
            *self.used.entry(session).or_default() += 1;
            return Ok(*progress);
        }
        if self.state.sessions.len() == SESSIONS_MAX {
            let forgotten = self.forgettable().ok_or(BeginError::Full)?;
            self.state.sessions.remove(&forgotten);
        }
        let progress = Progress {
            epoch,
            position: acked,
            changed: self.state.generation + 1,
        };
        self.state.sessions.insert(session, progress);
        self.append([])?;
        *self.used.entry(session).or_default() += 1;
        Ok(progress)
    }

    /// The session is out of use, once: see [`Append::begin`].
    pub(super) fn release(&mut self, session: u128) {
        if let Some(count) = self.used.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.used.remove(&session);
            }
        }
    }

    /// The session nobody has used for the longest time, and nobody can come back to.
    fn forgettable(&self) -> Option<u128> {
        let sessions = self.state.sessions.iter();
        sessions
            .filter(|(session, _)| {
                !is_named(SessionId(session.to_le_bytes())) && !self.used.contains_key(session)
            })
            .min_by_key(|(session, progress)| (progress.changed, **session))
            .map(|(session, _)| *session)
    }

    /// Appends chunks of any sessions in this order, and returns when they are durable, all of them.
    pub(super) fn append<'a>(
        &mut self,
        chunks: impl IntoIterator<Item = Chunk<'a>>,
    ) -> Result<(), AppendError> {
        if self.poisoned {
            return Err(AppendError::Poisoned(self.path.clone()));
        }
        if self.state.closed {
            return Err(AppendError::Closed(self.path.clone()));
        }
        // The state in memory runs ahead of the disk until this is through.
        self.poisoned = true;
        let path = &self.path;
        let on = |error| AppendError::Io {
            path: path.clone(),
            error,
        };
        let (start, bytes) = (self.state.bytes, self.data.bytes().map_err(on)?);
        if bytes != Some(start) {
            let path = path.clone();
            // The next start refuses the file, too. If this fails, that start moves the bytes aside.
            let _ = self.write_closed();
            return Err(AppendError::Changed {
                path,
                bytes,
                expected: start,
            });
        }
        self.state.generation += 1;
        // The end that was checked stays in front: one buffer for what is written and what is checked next.
        let kept = self.tail.len();
        for chunk in chunks {
            advance(&mut self.state, &chunk)?;
            self.tail.extend_from_slice(chunk.bytes);
        }
        let written = &self.tail[kept..];
        if !written.is_empty() {
            self.data.write_at(start, written).map_err(on)?;
            self.data.sync().map_err(on)?;
            self.state.bytes += written.len() as u64;
        }
        self.tail.drain(..self.tail.len().saturating_sub(TAIL_MAX));
        // Room for ordinary batches stays; that of a huge record does not.
        self.tail.shrink_to(KEPT);
        self.state.tail = Tail::of(&self.tail);
        let state = self.write_state();
        state.map_err(|error| AppendError::Io {
            path: self.path.clone(),
            error,
        })?;
        self.poisoned = false;
        Ok(())
    }
}

/// Moves the session of `chunk` on by its records. Numbers may be left out: a sender may have given records
/// up.
fn advance(state: &mut State, chunk: &Chunk<'_>) -> Result<(), AppendError> {
    let Some(session) = chunk.session else {
        return Ok(());
    };
    let progress = state.sessions.get_mut(&session);
    let expected = progress.as_ref().map(|progress| progress.position + 1);
    match progress {
        Some(progress) if Some(chunk.first) >= expected => {
            progress.position = chunk.first - 1 + chunk.records;
            progress.changed = state.generation;
            Ok(())
        }
        _ => Err(AppendError::Repeated {
            session,
            first: chunk.first,
            expected,
        }),
    }
}

/// The first `most` bytes of a file, or all there are.
fn read_all(file: &impl Bytes, most: usize) -> io::Result<Vec<u8>> {
    let bytes = file.bytes()?.unwrap_or_default();
    let mut all = vec![0; bytes.min(most as u64) as usize];
    file.read_at(0, &mut all)?;
    Ok(all)
}
