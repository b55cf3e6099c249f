//! Appends records to the receiver's file, durably. Beside this file, the state file `FILE.tidegate` records
//! the position of each session, and how many bytes of the file are acknowledged.
//!
//! The order of writes makes an append atomic: the receiver writes and syncs the records, then the state that
//! covers them, and only then sends an ack. Bytes behind the length in the newest state are no acked records,
//! but another program may have written them, so the next start moves them to another file (`aside`). After
//! an orderly end of the receiver, the file has no such bytes. If it still has some, another program wrote
//! them, and the receiver refuses to append. The receiver also refuses a file that is shorter than the state
//! says, or that ends with other bytes. It does not check the bytes before the last 64 KiB.
//!
//! A rotation may rename the file. The receiver then goes on in a new file under the name, when it sees
//! another file there or is asked to (`Append::reopen`). If the rotation came while no receiver ran, the
//! start finds the acknowledged bytes in a file beside (`rotation`).
//!
//! A lock on the state file lets only one process at a time append. After a failed write or sync the receiver
//! accepts no more records, because the contents of the disk are unknown until the next start reads them.

mod aside;
mod rotation;
mod state;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::PathBuf;

use tidegate_link::SessionId;

use super::disk::{Bytes, Disk, Holder};
use super::identity::is_named;
use state::{Found, SLOT, State, TAIL_MAX, Tail};
pub(super) use state::{Progress, SESSIONS_MAX};

/// The receiver's open file, its state file, and the end of the file that the state's checksum covers.
pub(super) struct Append<F> {
    path: PathBuf,
    data: F,
    sidecar: F,
    state: State,
    /// The last bytes of the file that the state's checksum covers, from which the next checksum is computed.
    tail: Vec<u8>,
    slot: Vec<u8>,
    /// The sessions of connected senders, with the number of their users. The receiver never forgets such a
    /// session.
    used: HashMap<u128, u32>,
    /// True after a failed append. The receiver then appends nothing more, because the contents of the disk
    /// are unknown.
    poisoned: bool,
}

/// The greatest number of bytes of capacity that the buffer of an append keeps between two batches, so that
/// one huge record does not take memory for long.
const KEPT: usize = 16 << 20;

/// The facts that a start of the receiver finds in the file and its state, for the note to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The number of bytes of the file that the state covers, so that they are acknowledged.
    pub(super) bytes: u64,
    /// The bytes behind the end that the state covers, which the start moved to another file; `None` if the
    /// file had no such bytes.
    pub(super) cut: Option<Cut>,
    /// The file beside the receiver's file that has the acknowledged bytes, because a rotation moved or
    /// copied them there while no receiver ran; `None` if there was no rotation.
    pub(super) rotated: Option<PathBuf>,
}

/// Bytes that the start moved out of the file, because no readable state covers them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The number of bytes that the start moved, which the program reports to the user.
    pub(super) bytes: u64,
    /// The offset of the first of these bytes in the file that had them.
    pub(super) at: u64,
    /// The path of the file beside the receiver's file to which the start moved the bytes, so that no byte is
    /// lost.
    pub(super) path: PathBuf,
    /// True if the newest state is not readable, so that the moved bytes may have been acknowledged.
    pub(super) in_doubt: bool,
}

/// Records of one session, in the form in which the receiver writes them to its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk<'a> {
    /// The session to which the records belong; `None` if no sender can continue the session.
    pub(super) session: Option<u128>,
    /// The number of the first record: the next number of the session, or a later one if the sender gave up
    /// records.
    pub(super) first: u64,
    /// The number of records in `bytes`, by which the session's next number grows.
    pub(super) records: u64,
    /// The bytes of the records, in the form in which the file stores them.
    pub(super) bytes: &'a [u8],
}

/// The reasons why the receiver cannot open its file for appending, as the user reads them.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum OpenError {
    /// The operating system refused an operation on the receiver's file or its state file.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the file on which the operation failed, which the message names.
        path: PathBuf,
        /// The error of the operating system, which names the cause.
        error: io::Error,
    },
    /// The process of another receiver appends to the file, so this receiver does not.
    #[error("{}: another receiver appends to it: end that one, or append to another file", .0.display())]
    Locked(PathBuf),
    /// The file has fewer bytes than the receiver acknowledged according to the state, so acknowledged
    /// records are missing.
    #[error("{}: has {bytes} bytes, but {expected} were acknowledged: another program cut it; bring it back, or remove {}",
        path.display(), sidecar.display())]
    Shorter {
        /// The path of the receiver's file, which the message names.
        path: PathBuf,
        /// The path of the state file, which the message names.
        sidecar: PathBuf,
        /// The number of bytes that the receiver's file has, fewer than expected.
        bytes: u64,
        /// The number of bytes of the file that the receiver acknowledged, according to the state.
        expected: u64,
    },
    /// The last bytes that the state covers differ from the bytes that the receiver wrote, because another
    /// program changed the file.
    #[error("{}: the {checked} bytes before byte {expected} differ from the acknowledged bytes, because a program or a person \
        changed the file: bring the file back, or remove {}", path.display(), sidecar.display())]
    Changed {
        /// The path of the receiver's file, which the message names.
        path: PathBuf,
        /// The path of the state file, which the message names.
        sidecar: PathBuf,
        /// The number of bytes, before the acknowledged end of the file, that the receiver compared with the
        /// state.
        checked: u32,
        /// The offset in the file at which the compared bytes end: the acknowledged end of the file.
        expected: u64,
    },
    /// The file has more bytes than when its last receiver ended, so another program has written to it.
    #[error("{0}: has {bytes} bytes, but had {expected} when its receiver ended: another program appended to it; take that \
        out (tail -c +{1} {0} > OTHER; truncate -s {expected} {0}) and start again, or remove {2}: then every session \
        begins again behind it", path.display(), expected + 1, sidecar.display())]
    Grown {
        /// The path of the receiver's file, which the message names.
        path: PathBuf,
        /// The path of the state file, which the message names.
        sidecar: PathBuf,
        /// The number of bytes that the receiver's file has, more than expected.
        bytes: u64,
        /// The number of bytes of the file when its last receiver ended.
        expected: u64,
    },
    /// Neither slot of the state file is readable, so the receiver does not know which bytes of its file are
    /// acknowledged.
    #[error("{}: damaged, so the records in the file are unknown: bring it back, or remove it", .0.display())]
    Damaged(PathBuf),
    /// A later version of this program wrote the state file, in a format that this version does not know.
    #[error("{}: written by a later version of tidegate (format {version}): use that one", path.display())]
    Later {
        /// The path of the state file, which the message names.
        path: PathBuf,
        /// The version of the format that the state file names, so that the user can find a fitting program.
        version: u32,
    },
}

/// The reasons why an append to the receiver's file failed. The receiver acknowledges no record of the batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum AppendError {
    /// The operating system refused an operation on the file, so the receiver appends nothing more.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path of the receiver's file, which the message names.
        path: PathBuf,
        /// The error of the operating system, which names the cause.
        error: io::Error,
    },
    /// Another program wrote to the receiver's file, cut it or removed it while the receiver appended.
    #[error("{}: {} while it was appended to: another program uses it", path.display(), match bytes {
        Some(bytes) => format!("came to have {bytes} bytes instead of {expected}"),
        None => "was removed".to_owned(),
    })]
    Changed {
        /// The path of the receiver's file, which the message names.
        path: PathBuf,
        /// The number of bytes that the receiver's file has, by which the user sees the change; `None` if the
        /// file was removed.
        bytes: Option<u64>,
        /// The number of bytes that the file should have, by the receiver's own writes.
        expected: u64,
    },
    /// The session already has these records, or the caller of the append has not begun the session: a
    /// mistake in the program.
    #[error(
        "record {first} of session {session:032x} came again, or without a beginning: {expected:?} is next"
    )]
    Repeated {
        /// The id of the session, which the message names.
        session: u128,
        /// The number of the first record that the caller gave to the append, which the message names.
        first: u64,
        /// The number of the next record that the session expects, which the message names; `None` if the
        /// session has not begun.
        expected: Option<u64>,
    },
    /// An earlier append to the file failed, so the receiver appends nothing more.
    #[error("{}: not written, because an earlier write failed", .0.display())]
    Poisoned(PathBuf),
    /// The receiver has closed the file, so it appends nothing more.
    #[error("{}: not written, because the receiver is ending", .0.display())]
    Closed(PathBuf),
}

/// The reasons why the receiver cannot begin a session in its file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum BeginError {
    /// The state file has no room for another session: all 1024 sessions have a name or are in use, so the
    /// receiver may forget none.
    #[error(
        "the file has {SESSIONS_MAX} sessions with a name, the most it can have: use one of their names, or another file"
    )]
    Full,
    /// The receiver could not write the new session to the state file.
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl<F: Bytes> Append<F> {
    /// Opens or creates the file `name` and its state file in `disk`, checks the file against the state, and
    /// moves the bytes that no ack covers to another file.
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
        let mut rotated = None;
        if had == 0 && state.bytes > 0 {
            rotated = rotation::find(disk, name, &state).map_err(on(&path))?;
        }
        let mut cut = None;
        if let Some(found) = &rotated {
            cut = rotation::leave(disk, found, &state)
                .map_err(|(path, error)| OpenError::Io { path, error })?;
            (state.bytes, state.tail, state.closed) = (0, Tail::default(), false);
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
        if had > state.bytes {
            let kept = aside::keep(disk, name, &data, state.bytes, had);
            let kept = kept.map_err(|(path, error)| OpenError::Io { path, error })?;
            cut = Some(Cut {
                bytes: had - state.bytes,
                at: state.bytes,
                path: kept,
                in_doubt: state::is_doubtful(&found),
            });
            data.set_bytes(state.bytes).map_err(on(&path))?;
        }
        // The process that wrote the file may have ended before it synced the file. This receiver syncs the
        // file first, because from now on it reports the bytes that the state covers as durable.
        data.sync().map_err(on(&path))?;
        let opened = Opened {
            bytes: state.bytes,
            cut,
            rotated: rotated.map(|(name, _)| disk.path(&name)),
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

    /// Creates the state file. Writes zeros into the second slot, so that the file has its final length, and
    /// then the first state.
    fn create(&mut self) -> io::Result<()> {
        self.sidecar.set_bytes(0)?;
        self.sidecar.write_at(SLOT as u64, &[0; SLOT])?;
        self.write_state()
    }

    /// Goes on in the file that has the receiver's name now, if a rotation has renamed the present file. If
    /// no file has the name, creates one. The bytes that the new file has already stay in front. Returns
    /// whether the receiver goes on in another file.
    ///
    /// The renamed file has every record that the receiver has acknowledged so far. The state covers the new
    /// file only once that file is durable. If the process ends before, the next start finds the renamed file
    /// by its bytes.
    pub(super) fn reopen<D: Disk<File = F>>(
        &mut self,
        disk: &D,
        name: &OsStr,
    ) -> Result<bool, AppendError> {
        if self.poisoned || self.state.closed {
            return Ok(false);
        }
        let path = self.path.clone();
        let on = |error| AppendError::Io {
            path: path.clone(),
            error,
        };
        if disk.holder(name, &self.data).map_err(on)? == Holder::Same {
            return Ok(false);
        }
        self.check_bytes()?;
        self.poisoned = true;
        let data = disk.open(name).map_err(on)?;
        let bytes = data.bytes().map_err(on)?.unwrap_or_default();
        let mut tail = vec![0; bytes.min(TAIL_MAX as u64) as usize];
        data.read_at(bytes - tail.len() as u64, &mut tail)
            .map_err(on)?;
        data.sync().map_err(on)?;
        disk.sync_names().map_err(on)?;
        self.state.bytes = bytes;
        self.state.tail = Tail::of(&tail);
        self.state.generation += 1;
        self.tail = tail;
        self.data = data;
        self.write_state().map_err(on)?;
        self.poisoned = false;
        Ok(true)
    }

    /// Returns whether the receiver's name still belongs to the file to which the receiver appends.
    pub(super) fn holder<D: Disk<File = F>>(&self, disk: &D, name: &OsStr) -> io::Result<Holder> {
        disk.holder(name, &self.data)
    }

    /// Checks that the file has only the receiver's bytes. If not, another program has written to it, cut it
    /// or removed it.
    fn check_bytes(&mut self) -> Result<(), AppendError> {
        let path = self.path.clone();
        let expected = self.state.bytes;
        let bytes = self.data.bytes().map_err(|error| AppendError::Io {
            path: path.clone(),
            error,
        })?;
        if bytes == Some(expected) {
            return Ok(());
        }
        // The receiver records an orderly end here, so that the next start refuses the file, too. If this
        // write fails, the next start moves the other program's bytes aside.
        let _ = self.write_closed();
        self.poisoned = true;
        Err(AppendError::Changed {
            path,
            bytes,
            expected,
        })
    }

    fn write_state(&mut self) -> io::Result<()> {
        self.state.encode(&mut self.slot);
        self.sidecar.write_at(self.state.offset(), &self.slot)?;
        self.sidecar.sync()?;
        // The copy into the other slot needs no sync of its own: the next sync covers it, and until then the
        // slot written first is whole.
        self.sidecar.write_at(self.state.copy_offset(), &self.slot)
    }

    /// Records the receiver's orderly end in the state, so that the next start can tell that any further byte
    /// in the file comes from another program.
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

    /// Returns every session of the file with its progress, for the checks of tests and the note to the user.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (u128, Progress)> {
        let sessions = self.state.sessions.iter();
        sessions.map(|(session, progress)| (*session, *progress))
    }

    /// Marks `session` as in use until [`Append::release`], so that the receiver does not forget it. Returns
    /// the position after which the session continues. If the file does not have the session, the session
    /// begins after record `acked`, under `epoch`. The session's state is durable on return.
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

    /// Ends one use of `session` that [`Append::begin`] began, so that the receiver may forget an unused
    /// session.
    pub(super) fn release(&mut self, session: u128) {
        if let Some(count) = self.used.get_mut(&session) {
            *count -= 1;
            if *count == 0 {
                self.used.remove(&session);
            }
        }
    }

    /// Returns the session to forget for a new one: among the sessions without a name, the one unused for
    /// longest. No sender can continue a session without a name once its connection is gone.
    fn forgettable(&self) -> Option<u128> {
        let sessions = self.state.sessions.iter();
        sessions
            .filter(|(session, _)| {
                !is_named(SessionId(session.to_le_bytes())) && !self.used.contains_key(session)
            })
            .min_by_key(|(session, progress)| (progress.changed, **session))
            .map(|(session, _)| *session)
    }

    /// Appends chunks of records of any sessions, in this order. Returns once all of them are durable, so
    /// that the link may ack them.
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
        self.check_bytes()?;
        // The append marks the file as poisoned until it succeeds, because the state in memory is ahead of
        // the disk.
        self.poisoned = true;
        let path = &self.path;
        let on = |error| AppendError::Io {
            path: path.clone(),
            error,
        };
        let start = self.state.bytes;
        self.state.generation += 1;
        // The buffer has the checked end of the file in front of the new bytes, so that it serves this write
        // and the next checksum.
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
        // The buffer keeps the capacity for ordinary batches, and releases the capacity that a huge record
        // needed.
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

/// Moves the session of `chunk` forward by the chunk's records. The numbers may have a gap, because the
/// sender may have given up records.
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

/// Returns the first `most` bytes of a file, or all of its bytes if the file has fewer.
fn read_all(file: &impl Bytes, most: usize) -> io::Result<Vec<u8>> {
    let bytes = file.bytes()?.unwrap_or_default();
    let mut all = vec![0; bytes.min(most as u64) as usize];
    file.read_at(0, &mut all)?;
    Ok(all)
}
