//! Takes over the state of another member, because no member's log reaches back to this member's position.
//! The store writes fetched messages to the log, and the state to a checkpoint. The log continues behind
//! this checkpoint.
//!
//! **[`Store::poll_catch_up`] -> [`Store::begin_catch_up`] -> [`Store::append_fetched`],
//! [`Store::poll_fetched`] -> [`Store::install`] -> [`Store::poll_installed`].** Committed messages never
//! change, so fetched messages stay valid across changes of leader. Until the takeover is complete, this
//! member serves the old state and applies entries to it. Meanwhile the store releases no segment, because
//! the segment may hold messages of the new state. If other groups fill the log meanwhile, the store gives up
//! the catch-up (`holding`). [`Store::poll_catch_up`] then returns `None` until the store has been able to
//! release segments. Then the catch-up starts again.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{AppendError, Appended, Lsn, Record, batch_bytes};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, ENTRY_HEADER_BYTES, Place};

use super::checkpoint::Header;
use super::checkpoints::Parts;
use super::holding::GivenUp;
use super::member::{Applied, Member};
use super::room::Room;
use super::staged::Staged;
use super::{Fetch, Live, Relocated, Store, WriteError};
use crate::replica::{CatchUp, EntryId, records};

/// The greatest number of fetched messages of a group that the store has appended to the log and that are not
/// yet durable.
const UNDURABLE_MAX: usize = 1 << 16;

/// A message that this member has fetched from another member, and that the store must append to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The id of the stream to which the fetched message belongs.
    pub stream: StreamNumber,
    /// The number of the fetched message in its stream: with the stream's id, it identifies the message.
    pub seq: StreamSeq,
    /// The message in the form of an entry that holds only this message, as [`Store::read_alone`] of the
    /// other member returned it.
    pub entry: Bytes,
}

/// The reason why the store refuses to take over a state of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The member no longer needs the state, because its log now has all entries up to the state, or the
    /// store gave up the catch-up.
    #[error(
        "this node has all entries up to that state, or has given up the takeover: ask if the state is still needed"
    )]
    Unneeded,
    /// The store must first finish writing another checkpoint or records. The caller tries again after the
    /// next wake-up.
    #[error("the store is writing another checkpoint or records: try again at the next wake-up")]
    Busy,
}

/// The progress of a group's catch-up, from the first fetched message to the takeover; see the
/// [module](self).
#[derive(Default)]
pub(super) struct CatchingUp {
    /// The position of the log's end at which the catch-up began; `None` without a catch-up. During a
    /// catch-up the store releases no segment.
    pub(super) begun: Option<Lsn>,
    /// Set while the store has given up the catch-up, to free space in the log. Once the store has released
    /// segments, the catch-up may start again.
    pub(super) given_up: Option<GivenUp>,
    /// The fetched messages that the store has appended and that are not yet durable, each with the end of
    /// its batch.
    undurable: VecDeque<(Lsn, Relocated)>,
    fetched: VecDeque<Relocated>,
    install: Option<Install>,
    installed: Option<EntryId>,
}

struct Install {
    header: Header,
    /// The encoded parts of the new state; `None` once the checkpoint thread writes them.
    parts: Option<Parts>,
    live: Live,
}

impl CatchingUp {
    /// Returns whether the store must keep all segments because of this catch-up: they may hold fetched
    /// messages.
    pub(super) const fn holds(&self) -> bool {
        self.begun.is_some() || self.install.is_some()
    }

    pub(super) const fn is_installing(&self) -> bool {
        self.install.is_some()
    }

    /// Returns whether the event loop must still replace the group's streams by the new state that the store
    /// has taken over.
    pub(super) const fn is_installed(&self) -> bool {
        self.installed.is_some()
    }

    /// Ends the catch-up, and drops the places of fetched messages, because no state includes these
    /// messages.
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
    /// Returns the catch-up that this member needs because no log reaches back to its position. Returns
    /// `None` while the log is short of space: the store must release segments then, and a catch-up would
    /// prevent that. The store keeps the messages that are already fetched.
    #[must_use]
    pub fn poll_catch_up(&self, at: GroupSlot) -> Option<CatchUp> {
        let member = &self.members[at];
        let wanted = member.group.poll_catch_up();
        wanted.filter(|_| member.catching_up.given_up.is_none() && !self.log.is_short())
    }

    /// Begins the catch-up: from now on the store releases no segment and copies no message forward, until
    /// the takeover is complete or the caller [abandons](Self::abandon_catch_up) the catch-up. Returns `true`
    /// once the places of messages no longer change, so that the caller may record them for the new state.
    /// Until then the caller calls this function again.
    pub fn begin_catch_up(&mut self, at: GroupSlot) -> bool {
        let short = self.log.is_short();
        let catching_up = &mut self.members[at].catching_up;
        if catching_up.given_up.is_some() || short {
            return false;
        }
        catching_up.begun.get_or_insert(self.end);
        self.rests(at)
    }

    /// Returns whether a group of the node catches up, so that the store must keep all segments.
    pub(super) fn holds(&self) -> bool {
        self.members.iter().any(Member::holds)
    }

    /// Returns whether the places of the group's messages are settled: the caller has taken all relocations,
    /// and all copies are durable.
    pub(super) fn rests(&self, at: GroupSlot) -> bool {
        self.compaction.is_durable(at) && self.members[at].relocated.is_empty()
    }

    /// Ends a catch-up because the member no longer needs it, or because it starts again. If the checkpoint
    /// thread already writes the new state, the takeover continues.
    pub fn abandon_catch_up(&mut self, at: GroupSlot) {
        let member = &mut self.members[at];
        if let Some(given_up) = &mut member.catching_up.given_up {
            given_up.heard = true;
            return;
        }
        if member.catching_up.begun.take().is_none() {
            return;
        }
        // The log may release segments again, and the reviews of the segments had to wait for that.
        self.review = true;
        if member.group.poll_catch_up().is_none() {
            // The log of some member reaches back to this member's position after all, so this member drops
            // the fetched messages.
            member.catching_up.forget();
            member.staged = Staged::default();
        }
        while self.poll_fetched(at).is_some() {}
    }

    /// Returns the message at this place in the form of an entry that holds only this message, for another
    /// member that fetches it.
    pub fn read_alone(&mut self, at: GroupSlot, place: Place) -> Fetch {
        match self.copy(at, place) {
            Ok(entry) => Fetch::Ready(entry),
            Err(other) => other,
        }
    }

    /// Appends messages that the caller has fetched from another member, after
    /// [`begin_catch_up`](Self::begin_catch_up) returned `true`. [`poll_fetched`](Self::poll_fetched) returns
    /// their places.
    ///
    /// # Errors
    /// See [`WriteError`]; a refused call has changed nothing.
    pub fn append_fetched(
        &mut self,
        at: GroupSlot,
        messages: &[Fetched],
    ) -> Result<(), WriteError> {
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
        member.staged.note(appended.at, bytes);
        Ok(())
    }

    /// Returns how many of these messages, from the first on, one call of
    /// [`append_fetched`](Self::append_fetched) should take: all of them, unless the log has reserved too
    /// little of its segments for so many.
    #[must_use]
    pub fn fetched_at_once(&self, messages: &[Fetched]) -> usize {
        let mut bytes = 0;
        let over = messages.iter().position(|message| {
            bytes += message.entry.len() as u64;
            bytes > self.batch_bytes_max()
        });
        over.map_or(messages.len(), |at| at.max(1))
    }

    /// Returns the next message of the catch-up that has become durable in this member's log, so that the
    /// new state can refer to its place. The messages come in the order in which the store appended them.
    pub fn poll_fetched(&mut self, at: GroupSlot) -> Option<Relocated> {
        let member = &mut self.members[at];
        let fetched = member.catching_up.fetched.pop_front()?;
        member.staged.insert(&fetched);
        Some(fetched)
    }

    /// Returns the messages that this member has fetched and that no state of its own includes yet, so that
    /// a catch-up does not fetch them again. Messages of broken-off catch-ups count, too.
    #[must_use]
    pub fn apart(&self, at: GroupSlot) -> &Staged {
        &self.members[at].staged
    }

    /// Appends copies of messages that are damaged in this member's log; the caller has fetched the copies
    /// from another member. Once the copies are durable, the store returns them as relocated messages. The
    /// store refuses the copies while this node catches up, because places must not change then.
    ///
    /// # Errors
    /// See [`WriteError`]; a refused call has changed nothing.
    pub fn append_repaired(
        &mut self,
        at: GroupSlot,
        messages: &[Fetched],
    ) -> Result<(), WriteError> {
        if self.holds() {
            return Err(WriteError::Full);
        }
        let (appended, moved) = self.append_messages(at, records::KIND_RELOCATED, messages)?;
        self.compaction.handle_appended(at, appended.end, moved);
        Ok(())
    }

    fn append_messages(
        &mut self,
        at: GroupSlot,
        kind: u8,
        messages: &[Fetched],
    ) -> Result<(Appended, Vec<Relocated>), WriteError> {
        // The store first writes the entries that wait in its groups, because callers wait for these entries.
        if self.has_entries() {
            return Err(WriteError::Full);
        }
        let group = self.members[at].group.number().get();
        let records = messages.iter().map(|message| Record {
            group,
            kind,
            index: message.seq.get(),
            term: u64::from(message.stream.get()),
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

    /// Returns counts of live bytes for a new state without messages: all segments of the log, each with 0
    /// bytes. A catch-up adds the messages of the state.
    #[must_use]
    pub fn fresh_live(&self) -> Live {
        let mut live = Live::default();
        let known = self.members.iter().map(|m| &m.live);
        known.for_each(|known| live.begin_as(known));
        live
    }

    /// Takes over a state that ends with the entry `entry` and has these counts of live bytes. All messages
    /// of the state must be durable at their places. [`poll_installed`](Self::poll_installed) returns the
    /// entry once the takeover is complete. If the store cannot write the checkpoint,
    /// [`is_installing`](Self::is_installing) turns `false`, and `poll_installed` returns nothing.
    ///
    /// # Errors
    /// See [`InstallError`]; a refused call has changed nothing.
    pub fn install(
        &mut self,
        at: GroupSlot,
        entry: EntryId,
        mut live: Live,
        parts: Parts,
    ) -> Result<(), InstallError> {
        let rests = self.rests(at);
        let member = &mut self.members[at];
        if member.catching_up.begun.is_none() {
            // The store gave up the catch-up, so the log may have released some of the fetched messages.
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
        let begun = member.group.begin_install(entry);
        begun.map_err(|_| InstallError::Unneeded)?;
        let header = Header {
            entry,
            hard_state: member.group.hard_state(),
            next: self.end,
            live: live.counts(),
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

    /// Returns whether the store is taking over a new state of the group, and is still writing the state's
    /// checkpoint.
    #[must_use]
    pub fn is_installing(&self, at: GroupSlot) -> bool {
        self.members[at].catching_up.is_installing()
    }

    /// Returns, once, the last entry of the state that the group took over. The caller then replaces the
    /// group's streams by that state. Until this call the store returns no due work of the group.
    pub fn poll_installed(&mut self, at: GroupSlot) -> Option<EntryId> {
        self.members[at].catching_up.installed.take()
    }

    /// Hands the new state to the checkpoint thread, once the log is durable up to the position at which it
    /// continues behind the checkpoint.
    pub(super) fn write_install(&mut self, at: GroupSlot) {
        let durable = self.log.durable();
        let member = &mut self.members[at];
        if let Some(install) = &mut member.catching_up.install
            && install.header.next <= durable
            && let Some(parts) = install.parts.take()
        {
            member.checkpoints.write(install.header.clone(), parts);
        }
    }

    /// Handles the end of the write of a checkpoint. If the checkpoint holds a new state, completes the
    /// takeover of the state, or aborts the takeover if the write failed.
    pub(super) fn finish_install(&mut self, at: GroupSlot, written: bool) {
        let member = &mut self.members[at];
        let written_one = member.catching_up.install.take_if(|i| i.parts.is_none());
        let Some(install) = written_one else {
            return;
        };
        if !written {
            member.group.abort_install();
            return;
        }
        let (entry, next) = (install.header.entry, install.header.next);
        let before = std::mem::replace(&mut member.live, install.live);
        member.live.begin_as(&before);
        member.staged = Staged::default();
        member.applied = Applied { entry, next };
        member.tried = next;
        member.group.handle_installed();
        member.catching_up.forget();
        member.catching_up.installed = Some(entry);
        // The group's record of the takeover must come before any other record of the group, so the store
        // appends it now.
        let _ = self.append_entries();
    }

    /// Returns the message at `place` in the form of an entry that holds only this message, or the reason why
    /// the store cannot return it now.
    pub(super) fn copy(&mut self, at: GroupSlot, place: Place) -> Result<Bytes, Fetch> {
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
