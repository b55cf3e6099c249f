//! Taking over the state from another member, when no log reaches back to where this one is: what is fetched
//! goes into the log, the state into a checkpoint that the log goes on behind.
//!
//! **[`Store::poll_catch_up`] -> [`Store::begin_catch_up`] -> [`Store::append_fetched`],
//! [`Store::poll_fetched`] -> [`Store::install`] -> [`Store::poll_installed`].** Committed messages never
//! change, so what was fetched stays good whoever leads meanwhile. Until the end the old state is served and
//! applied to; no segment goes, because the new state may have messages in it. Where others fill the log
//! meanwhile, the store gives it up (`holding`): then [`Store::poll_catch_up`] has nothing until the log was
//! let go, and it begins anew.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_log::{AppendError, Appended, Lsn, Record, batch_bytes};

use super::apart::Apart;
use super::checkpoint::Header;
use super::checkpoints::Parts;
use super::holding::GivenUp;
use super::member::Member;
use super::room::Room;
use super::{Fetch, Live, Relocated, Store, WriteError};
use crate::replica::{CatchUp, records};
use crate::stream::{Command, ENTRY_HEADER_BYTES, Place};

/// The most messages fetched and not yet durable.
const UNDURABLE_MAX: usize = 1 << 16;

/// A message another member has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its stream's id.
    pub stream: u32,
    /// Its sequence.
    pub seq: u64,
    /// It, as an entry of its own: what [`Store::read_alone`] gave there.
    pub entry: Bytes,
}

/// Why a state is not taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The member has the entries up to it by now, or the store has given it up.
    #[error(
        "this node has the entries up to that state, or has given it up: ask whether it is still needed"
    )]
    Unneeded,
    /// Something else is being written first.
    #[error("something else is being written: try again at the next wake-up")]
    Busy,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct CatchingUp {
    /// Segments stay: the log ended here when it began.
    pub(super) begun: Option<Lsn>,
    /// It was given up, and is not to begin before segments could go.
    pub(super) given_up: Option<GivenUp>,
    /// Appended and not yet durable: where their batch ends.
    undurable: VecDeque<(Lsn, Relocated)>,
    fetched: VecDeque<Relocated>,
    install: Option<Install>,
    installed: Option<(u64, u64)>,
}

struct Install {
    header: Header,
    /// `None` once they are being written.
    parts: Option<Parts>,
    live: Live,
}

impl CatchingUp {
    /// Returns whether segments must stay.
    pub(super) const fn holds(&self) -> bool {
        self.begun.is_some() || self.install.is_some()
    }

    pub(super) const fn is_installing(&self) -> bool {
        self.install.is_some()
    }

    /// Returns whether a state waits to be swapped in.
    pub(super) const fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    /// What was fetched is of no use any more.
    pub(super) fn forget(&mut self) {
        self.begun = None;
        self.undurable.clear();
        self.fetched.clear();
    }

    pub(super) fn handle_durable(&mut self, durable: Lsn) {
        let count = self.undurable.partition_point(|&(end, _)| end <= durable);
        let durable = self.undurable.drain(..count);
        self.fetched.extend(durable.map(|(_, relocated)| relocated));
    }
}

impl Store {
    /// What this member is to fetch, because no log reaches back to where it is; as long as it is needed.
    /// Nothing while there is no space: segments are to go then, which a catching up would hold. What was
    /// fetched stays.
    #[must_use]
    pub fn poll_catch_up(&self, at: usize) -> Option<CatchUp> {
        let member = &self.members[at];
        let wanted = member.group.poll_catch_up();
        wanted.filter(|_| member.catching_up.given_up.is_none() && !self.log.disk_full())
    }

    /// The catching up begins: from now on no segment goes and no message is copied forward, until it is
    /// installed or [abandoned](Self::abandon_catch_up). Once this says `true`, places of messages may be
    /// noted for the new state: they stay.
    pub fn begin_catch_up(&mut self, at: usize) -> bool {
        let full = self.log.disk_full();
        let catching_up = &mut self.members[at].catching_up;
        if catching_up.given_up.is_some() || full {
            return false;
        }
        catching_up.begun.get_or_insert(self.end);
        self.rests(at)
    }

    /// Returns whether some group catches up, so that segments must stay.
    pub(super) fn holds(&self) -> bool {
        self.members.iter().any(Member::holds)
    }

    /// No message of the group is about to get another place.
    pub(super) fn rests(&self, at: usize) -> bool {
        self.compaction.is_durable(at) && self.members[at].relocated.is_empty()
    }

    /// It is not needed any more, or begins anew. One whose checkpoint is being written goes on.
    pub fn abandon_catch_up(&mut self, at: usize) {
        let member = &mut self.members[at];
        if let Some(given_up) = &mut member.catching_up.given_up {
            given_up.heard = true;
            return;
        }
        if member.catching_up.begun.take().is_none() {
            return;
        }
        if member.group.poll_catch_up().is_none() {
            // A log has reached back to where it is.
            member.catching_up.forget();
            member.apart = Apart::default();
        }
        while self.poll_fetched(at).is_some() {}
    }

    /// The message at this place as an entry of its own: what another member appends that lacks it.
    pub fn read_alone(&mut self, at: usize, place: Place) -> Fetch {
        match self.copy(at, place) {
            Ok(entry) => Fetch::Ready(entry),
            Err(other) => other,
        }
    }

    /// Appends messages of another member, once [`begin_catch_up`](Self::begin_catch_up) was said.
    /// [`poll_fetched`](Self::poll_fetched) tells their places.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing has changed then.
    pub fn append_fetched(&mut self, at: usize, messages: &[Fetched]) -> Result<(), WriteError> {
        let catching_up = &self.members[at].catching_up;
        let waiting = catching_up.undurable.len() + messages.len();
        if waiting > UNDURABLE_MAX || catching_up.begun.is_none() {
            return Err(WriteError::Full);
        }
        let (appended, moved) = self.append_messages(at, records::KIND_FETCHED, messages)?;
        let moved = moved.into_iter().map(|moved| (appended.end, moved));
        let member = &mut self.members[at];
        member.catching_up.undurable.extend(moved);
        let bytes = appended.end.since(appended.at);
        member.apart.note(appended.at, bytes);
        Ok(())
    }

    /// The next message that was fetched and is durable, in the order they were appended.
    pub fn poll_fetched(&mut self, at: usize) -> Option<Relocated> {
        let member = &mut self.members[at];
        let fetched = member.catching_up.fetched.pop_front()?;
        member.apart.insert(&fetched);
        Some(fetched)
    }

    /// What was fetched and is in no state that was taken over, however often that broke off.
    #[must_use]
    pub fn apart(&self, at: usize) -> &Apart {
        &self.members[at].apart
    }

    /// Appends messages that are damaged where they lie, as another member has them. They are due as
    /// relocated. Not while this member catches up.
    ///
    /// # Errors
    /// See [`WriteError`]; nothing has changed then.
    pub fn append_repaired(&mut self, at: usize, messages: &[Fetched]) -> Result<(), WriteError> {
        if self.holds() {
            return Err(WriteError::Full);
        }
        let (appended, moved) = self.append_messages(at, records::KIND_RELOCATED, messages)?;
        self.compaction.handle_appended(at, appended.end, moved);
        Ok(())
    }

    fn append_messages(
        &mut self,
        at: usize,
        kind: u8,
        messages: &[Fetched],
    ) -> Result<(Appended, Vec<Relocated>), WriteError> {
        // Entries come first: they are what somebody waits for.
        if self.has_entries() {
            return Err(WriteError::Full);
        }
        let group = self.members[at].group.number();
        let records = messages.iter().map(|message| Record {
            group,
            kind,
            index: message.seq,
            term: u64::from(message.stream),
            payload: message.entry.clone(),
        });
        let records: Vec<Record> = records.collect();
        let kept = self.reserve_bytes_led_elsewhere();
        if self.look_for_room(&[batch_bytes(&records)], kept) != Room::Enough {
            return Err(WriteError::Full);
        }
        let appended = self.append(records, 1);
        let appended = appended.map_err(|error: AppendError| WriteError::from(error))?;
        let moved = messages.iter().zip(&appended.records);
        let moved = moved.map(|(message, lsn)| Relocated {
            stream: message.stream,
            seq: message.seq,
            place: Place {
                lsn: lsn.get(),
                offset: ENTRY_HEADER_BYTES as u32,
            },
        });
        let moved = moved.collect();
        Ok((appended, moved))
    }

    /// Where to note what messages the new state has, and where.
    #[must_use]
    pub fn fresh_live(&self) -> Live {
        let mut live = Live::default();
        let known = self.members.iter().map(|m| &m.live);
        known.for_each(|known| live.begin_as(known));
        live
    }

    /// Has a state taken over, as of the entry of this index and term, with what of it lies where. Its
    /// messages are durable at the places it has. [`poll_installed`](Self::poll_installed) tells when it
    /// counts; if it cannot be written, [`is_installing`](Self::is_installing) is over without that.
    ///
    /// # Errors
    /// See [`InstallError`]; nothing has changed then.
    pub fn install(
        &mut self,
        at: usize,
        (index, term): (u64, u64),
        live: Live,
        parts: Parts,
    ) -> Result<(), InstallError> {
        let rests = self.rests(at);
        let member = &mut self.members[at];
        if member.catching_up.begun.is_none() {
            // It was given up: some of its messages may be gone.
            return Err(InstallError::Unneeded);
        }
        let busy = member.checkpoints.is_writing()
            || member.catching_up.install.is_some()
            || !member.catching_up.undurable.is_empty()
            || !rests
            || member.group.poll_append().is_some();
        if busy {
            return Err(InstallError::Busy);
        }
        let begun = member.group.begin_install(index, term);
        begun.map_err(|_| InstallError::Unneeded)?;
        let header = Header {
            index,
            term,
            hard_state: member.group.hard_state(),
            next: self.end,
            live: live.to_vec(),
        };
        let parts = Some(parts);
        member.catching_up.install = Some(Install {
            header,
            parts,
            live,
        });
        self.write_install(at);
        Ok(())
    }

    /// Returns whether a state is being taken over.
    #[must_use]
    pub fn is_installing(&self, at: usize) -> bool {
        self.members[at].catching_up.is_installing()
    }

    /// Index and term of the state that was taken over, once: from now on it is the state, and nothing is due
    /// before this was asked.
    pub fn poll_installed(&mut self, at: usize) -> Option<(u64, u64)> {
        self.members[at].catching_up.installed.take()
    }

    /// The checkpoint goes to the disk once the log is durable up to where it ends.
    pub(super) fn write_install(&mut self, at: usize) {
        let durable = self.log.durable();
        let member = &mut self.members[at];
        if let Some(install) = &mut member.catching_up.install
            && install.header.next <= durable
            && let Some(parts) = install.parts.take()
        {
            member.checkpoints.write(install.header.clone(), parts);
        }
    }

    /// A checkpoint was written, or not; whether it was that of a state taken over.
    pub(super) fn finish_install(&mut self, at: usize, written: bool) {
        let member = &mut self.members[at];
        let written_one = member.catching_up.install.take_if(|i| i.parts.is_none());
        let Some(install) = written_one else {
            return;
        };
        if !written {
            member.group.abort_install();
            return;
        }
        let (index, term) = (install.header.index, install.header.term);
        let before = std::mem::replace(&mut member.live, install.live);
        member.live.begin_as(&before);
        member.apart = Apart::default();
        member.applied = (index, term, install.header.next);
        member.tried = install.header.next;
        member.group.handle_installed();
        member.catching_up.forget();
        member.catching_up.installed = Some((index, term));
        // The log says so before anything else of the group.
        let _ = self.append_entries();
    }

    /// The message at `place` as an entry of its own.
    pub(super) fn copy(&mut self, at: usize, place: Place) -> Result<Bytes, Fetch> {
        let entry = match self.read_entry(at, place.lsn) {
            Fetch::Ready(entry) => entry,
            other => return Err(other),
        };
        let command = Command::read(&entry, place.offset).map_err(|_| Fetch::Damaged)?;
        let header = entry.get(..ENTRY_HEADER_BYTES).ok_or(Fetch::Damaged)?;
        let from = place.offset as usize;
        let command = &entry[from..from + command.encoded_bytes()];
        Ok([header, command].concat().into())
    }
}
