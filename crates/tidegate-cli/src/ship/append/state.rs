//! Encodes the receiver's state for its state file: how many bytes of the receiver's file are acknowledged,
//! the checksum of the file's end, and the position of each session.
//!
//! The state file has two slots at fixed offsets; the newest whole slot is valid. The receiver writes a new
//! state into one slot and syncs it, then copies the state into the other slot. So a torn write loses no
//! state, and while the receiver writes nothing, damage to one slot loses none either. The format has slots
//! rather than a journal, because a write in place changes no file's length (its sync waits for the data
//! alone), needs no compaction, and keeps the file that carries the lock. This module is pure: it encodes and
//! decodes bytes, and does no I/O.
//!
//! ```text
//! slot   0  "TGAPPEND"         24  bytes of FILE that count, u64
//!        8  version, u32       32  how many of its last bytes were checked, u32
//!       12  sessions, u32      36  their CRC32C, u32
//!       16  generation, u64    40  1 if the receiver ended in order, else 0, u32
//!                              44  each session: id u128, epoch u64, position u64,
//!                                  generation of its last change u64
//!                               .  CRC32C of everything before, u32
//! ```
//!
//! All numbers are little-endian. The receiver writes generation g into slot g % 2 first. Version 1 has no
//! field at 40: its sessions begin there, and its other slot holds the state before.

use std::collections::HashMap;

/// The greatest number of sessions of one file, because every batch writes the state of all of them to disk.
pub(crate) const SESSIONS_MAX: usize = 1024;
/// The greatest number of bytes at the end of the receiver's file that the checksum covers, so that each
/// append computes only a short checksum.
pub(crate) const TAIL_MAX: usize = 64 * 1024;

const MAGIC: &[u8; 8] = b"TGAPPEND";
const VERSION: u32 = 2;
const HEAD: usize = 44;
/// The length in bytes of the head of a slot in version 1 of the state file, which this version still reads.
const OLD_HEAD: usize = 40;
const ENTRY: usize = 40;
const CRC: usize = 4;
/// The length in bytes of a slot of the state file: whole pages of 4096 bytes, with room for [`SESSIONS_MAX`]
/// sessions.
pub(super) const SLOT: usize = (HEAD + ENTRY * SESSIONS_MAX + CRC).next_multiple_of(4096);

/// The receiver's state, which one slot of the state file holds, so that a start can continue from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    pub(super) generation: u64,
    /// The number of bytes of the receiver's file that the receiver acknowledges by this state, so that a
    /// start keeps them.
    pub(super) bytes: u64,
    pub(super) tail: Tail,
    /// True if the receiver ended in order: then every further byte in the file comes from another program.
    pub(super) closed: bool,
    pub(super) sessions: HashMap<u128, Progress>,
}

/// The length and the checksum of the end of the receiver's file, by which a start detects a changed file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) bytes: u32,
    pub(super) crc: u32,
}

impl Tail {
    /// Returns the tail for the last bytes of the receiver's file, at most [`TAIL_MAX`].
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.len() as u32,
            crc: crc32c::crc32c(bytes),
        }
    }
}

/// The progress of one session in the receiver's file, from which its sender continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The number under which sender and receiver know this state of the session. A receiver that loses the
    /// state begins the session under another epoch, so that the sender notices the loss.
    pub(crate) epoch: u64,
    /// The number of the session's last record in the file, after which the sender continues.
    pub(crate) position: u64,
    /// The generation of the receiver's state in which the session last changed, to find the session unused
    /// longest.
    pub(crate) changed: u64,
}

/// The result of reading the two slots of the state file at a start.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The newest whole state of the two slots, from which the receiver continues.
    State(State),
    /// No receiver has written a state yet: the receiver's file is new, or a crash interrupted its creation.
    Nothing,
    /// The receiver has written a state, but neither slot is whole.
    Damaged,
    /// A later version of this program wrote the state, in a format that this version does not know; holds
    /// the format's version.
    Later(u32),
}

impl State {
    /// Returns the offset in bytes of the slot into which the receiver writes this state first; the other
    /// slot keeps the state before.
    pub(super) const fn offset(&self) -> u64 {
        self.generation % 2 * SLOT as u64
    }

    /// Returns the offset in bytes of the slot into which the receiver copies this state, once the state is
    /// durable.
    pub(super) const fn copy_offset(&self) -> u64 {
        (self.generation + 1) % 2 * SLOT as u64
    }

    /// Encodes the state into `out`, in at most [`SLOT`] bytes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.sessions.len() <= SESSIONS_MAX);
        out.clear();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(self.sessions.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.tail.bytes.to_le_bytes());
        out.extend_from_slice(&self.tail.crc.to_le_bytes());
        out.extend_from_slice(&u32::from(self.closed).to_le_bytes());
        for (session, progress) in &self.sessions {
            out.extend_from_slice(&session.to_le_bytes());
            out.extend_from_slice(&progress.epoch.to_le_bytes());
            out.extend_from_slice(&progress.position.to_le_bytes());
            out.extend_from_slice(&progress.changed.to_le_bytes());
        }
        out.extend_from_slice(&crc32c::crc32c(out).to_le_bytes());
    }

    fn decode(slot: &[u8]) -> Result<Self, Flaw> {
        let mut rest = slot;
        if take(&mut rest)? != *MAGIC {
            return Err(Flaw::Torn);
        }
        let version = u32::from_le_bytes(take(&mut rest)?);
        let count = u32::from_le_bytes(take(&mut rest)?) as usize;
        // A torn write leaves zeros in the version field, so a higher version is real.
        if version > VERSION {
            return Err(Flaw::Later(version));
        }
        let head = if version == 1 { OLD_HEAD } else { HEAD };
        let end = head + ENTRY * count.min(SESSIONS_MAX);
        let mut crc = slot.get(end..).ok_or(Flaw::Torn)?;
        if version == 0
            || count > SESSIONS_MAX
            || crc32c::crc32c(&slot[..end]) != number32(&mut crc)?
        {
            return Err(Flaw::Torn);
        }
        Ok(Self {
            generation: number(&mut rest)?,
            bytes: number(&mut rest)?,
            tail: Tail {
                bytes: number32(&mut rest)?,
                crc: number32(&mut rest)?,
            },
            closed: version > 1 && number32(&mut rest)? == 1,
            sessions: (0..count)
                .map(|_| {
                    let session = u128::from_le_bytes(take(&mut rest)?);
                    let progress = Progress {
                        epoch: number(&mut rest)?,
                        position: number(&mut rest)?,
                        changed: number(&mut rest)?,
                    };
                    Ok((session, progress))
                })
                .collect::<Result<_, Flaw>>()?,
        })
    }
}

/// Reads both slots of the state file. The receiver writes its first state into the first slot before it
/// accepts any record. If neither slot is readable, the second slot shows whether a receiver ever made a
/// state durable: only then the slot has bytes other than zero. (A new version of the format writes both
/// slots with its first state.)
pub(super) fn find(bytes: &[u8]) -> Found {
    let (first, second) = bytes.split_at(bytes.len().min(SLOT));
    match (State::decode(first), State::decode(second)) {
        (Ok(a), Ok(b)) if b.generation > a.generation => Found::State(b),
        (Ok(state), _) | (_, Ok(state)) => Found::State(state),
        (Err(Flaw::Later(version)), _) | (_, Err(Flaw::Later(version))) => Found::Later(version),
        _ if second.iter().all(|byte| *byte == 0) => Found::Nothing,
        _ => Found::Damaged,
    }
}

/// Returns whether one of the slots in `bytes` has content but is not whole, because a crash tore the newest
/// state or damage came later. Then a start cannot know if it has the newest state.
pub(super) fn is_doubtful(bytes: &[u8]) -> bool {
    let (first, second) = bytes.split_at(bytes.len().min(SLOT));
    let blank = |slot: &[u8]| slot.len() == SLOT && slot.iter().all(|byte| *byte == 0);
    [first, second]
        .iter()
        .any(|slot| State::decode(slot).is_err() && !blank(slot))
}

enum Flaw {
    Torn,
    Later(u32),
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Flaw> {
    let (taken, left) = rest.split_first_chunk().ok_or(Flaw::Torn)?;
    *rest = left;
    Ok(*taken)
}

fn number(rest: &mut &[u8]) -> Result<u64, Flaw> {
    take(rest).map(u64::from_le_bytes)
}

fn number32(rest: &mut &[u8]) -> Result<u32, Flaw> {
    take(rest).map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(generation: u64, sessions: usize) -> State {
        let progress = |position| Progress {
            epoch: 5,
            position,
            changed: generation,
        };
        State {
            generation,
            bytes: 100 + generation,
            tail: Tail::of(b"the end"),
            closed: generation.is_multiple_of(3),
            sessions: (0..sessions)
                .map(|s| (s as u128, progress(s as u64)))
                .collect(),
        }
    }

    fn file(states: &[&State]) -> Vec<u8> {
        let mut file = vec![0; 2 * SLOT];
        let mut slot = Vec::new();
        for state in states {
            state.encode(&mut slot);
            let at = state.offset() as usize;
            file[at..at + slot.len()].copy_from_slice(&slot);
        }
        file
    }

    #[test]
    fn the_newest_whole_one_counts() {
        let (old, new) = (state(6, 3), state(7, SESSIONS_MAX));
        let whole = file(&[&old, &new]);
        assert_eq!(find(&whole), Found::State(new));
        // Wherever a crash tears the newer slot, the older slot stays readable.
        for torn in (0..HEAD + ENTRY).chain([SLOT - 4096]) {
            let mut bytes = whole.clone();
            bytes[SLOT + torn] ^= 1;
            assert_eq!(find(&bytes), Found::State(old.clone()), "{torn}");
        }
    }

    #[test]
    fn no_state_damage_and_a_later_version_are_three_things() {
        assert_eq!(find(&[]), Found::Nothing);
        let first = file(&[&state(0, 0)]);
        for cut in 0..HEAD {
            assert_eq!(find(&first[..cut]), Found::Nothing, "{cut}");
        }
        let mut both = file(&[&state(8, 1), &state(9, 1)]);
        both[HEAD] ^= 1;
        both[SLOT + HEAD] ^= 1;
        assert_eq!(find(&both), Found::Damaged);
        both[8] = VERSION as u8 + 1;
        assert_eq!(find(&both), Found::Later(VERSION + 1));
    }
    /// Encodes a state in version 1, as an older receiver wrote it.
    fn old(state: &State) -> Vec<u8> {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        bytes.truncate(bytes.len() - CRC);
        bytes.drain(OLD_HEAD..HEAD);
        bytes[8] = 1;
        bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    #[test]
    fn the_first_version_is_read() {
        let (older, mut newer) = (state(8, 2), state(9, SESSIONS_MAX));
        let mut file = vec![0; 2 * SLOT];
        for state in [&older, &newer] {
            let (at, bytes) = (state.offset() as usize, old(state));
            file[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        // Version 1 does not record if the receiver ended in order.
        newer.closed = false;
        assert_eq!(find(&file), Found::State(newer));
        assert!(!is_doubtful(&file));
        file[SLOT + 20] ^= 1;
        assert_eq!(find(&file), Found::State(older));
        assert!(is_doubtful(&file));
    }
}
