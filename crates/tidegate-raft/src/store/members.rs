//! Connects the groups of the store with their other members: handles their messages, returns the messages
//! for them, and hands the groups' records to the log.

use tidegate_cluster::groups::GroupId;
use tidegate_cluster::slots::GroupSlot;

use super::Store;
use super::room::Admission;
use crate::replica::{Message, MessageType, PeerProgress, StepError, TransferError};

/// The greatest number of messages of a group's leader that this member holds until the log has allocated
/// its next segment. The member refuses further ones, to bound its memory.
const DELAYED_MAX: usize = 64;
/// The greatest number of bytes of entries in the messages that this member holds until the log has allocated
/// its next segment.
const DELAYED_BYTES_MAX: u64 = 64 << 20;

impl Store {
    /// Returns the slot of the group with this number, by which the store's methods know the group; `None`
    /// if this node is no member of the group.
    #[must_use]
    pub fn at(&self, group: GroupId) -> Option<GroupSlot> {
        self.members.position(|m| m.group.number() == group)
    }

    /// Handles a message of another member, for the group with this number.
    ///
    /// # Errors
    /// See [`StepError`]; a refused message has no effect. If the log has failed, [`poll`](Self::poll)
    /// reports that.
    pub fn step(&mut self, group: GroupId, message: Message) -> Result<(), StepError> {
        let at = self.at(group).ok_or(StepError::WrongGroup { group })?;
        let delayed = &mut self.members[at].delayed;
        if message.get_msg_type() == MessageType::MsgAppend
            && let Some(last) = delayed.back()
        {
            if message.index == last.index + last.entries.len() as u64 {
                let bytes: u64 = delayed.iter().chain([&message]).map(entries_bytes).sum();
                if delayed.len() >= DELAYED_MAX || bytes > DELAYED_BYTES_MAX {
                    return Err(StepError::Full);
                }
                delayed.push_back(message);
                return Ok(());
            }
            // The leader now sends entries from another index on, so the waiting messages are obsolete.
            delayed.clear();
        }
        self.take(at, message)
    }

    /// Handles the messages of a leader that waited for the log's next segment, as far as the log has room
    /// now.
    pub(super) fn take_delayed(&mut self, at: GroupSlot) {
        while let Some(message) = self.members[at].delayed.pop_front() {
            let waited = self.members[at].delayed.len();
            // The member ignores an error: it then lacks the message's entries, and the leader sends them
            // again.
            let _ = self.take(at, message);
            if self.members[at].delayed.len() > waited {
                break;
            }
        }
    }

    /// Handles a message of another member as far as the log has room for its entries. The other entries of
    /// the message wait for the log's next segment.
    fn take(&mut self, at: GroupSlot, mut message: Message) -> Result<(), StepError> {
        let admission = self.admit(at, &message);
        let kind = message.get_msg_type();
        let beats = matches!(kind, MessageType::MsgHeartbeat | MessageType::MsgSnapshot);
        let full = self.log.is_short();
        let member = &mut self.members[at];
        let (full, group) = (full || member.failed, &mut member.group);
        let stepped = match admission {
            Admission::No(bytes) => group.refuse(message, bytes),
            Admission::Later => {
                member.delayed.push_front(message);
                Ok(())
            }
            Admission::First(count) => {
                let rest = split(&mut message, count);
                member.delayed.push_front(rest);
                group.step(message)
            }
            // The disk is full, so this member cannot fetch the state that it needs. It does not answer the
            // heartbeat, so that the leader does not count this member in its quorum.
            Admission::All if full && beats && group.poll_catch_up().is_some() => {
                group.step_silently(message)
            }
            Admission::All => group.step(message),
        };
        self.hand_over();
        stepped
    }

    /// Advances the clocks of this node's members in all groups by one tick, which may start heartbeats and
    /// elections.
    pub fn tick(&mut self) {
        for member in &mut self.members {
            member.group.tick();
        }
        self.hand_over();
    }

    /// Returns the next message that the caller must send, and the id of its receiver. The caller calls this
    /// function after each [`step`](Self::step), [`tick`](Self::tick), [`propose`](Self::propose) and
    /// [`poll`](Self::poll), until it returns `None`. The caller drops messages that it cannot send, because
    /// Raft repeats them.
    pub fn poll_message(&mut self, at: GroupSlot) -> Option<(u64, Message)> {
        self.members[at].group.poll_message()
    }

    /// Returns the number of the group in this slot, by which other nodes and the log know the group.
    #[must_use]
    pub fn group_number(&self, at: GroupSlot) -> GroupId {
        self.members[at].group.number()
    }

    /// Returns the id of the leader of the group in this slot; `None` if this node knows no leader.
    #[must_use]
    pub fn leader(&self, at: GroupSlot) -> Option<u64> {
        self.members[at].group.leader()
    }

    /// Returns the term of the group in this slot, which each election raises, for the monitor.
    #[must_use]
    pub fn term(&self, at: GroupSlot) -> u64 {
        self.members[at].group.term().get()
    }

    /// Returns the progress of the other members of the group in this slot, as the leader knows it; nothing
    /// if this node does not lead the group.
    #[must_use]
    pub fn progress(&self, at: GroupSlot) -> Vec<PeerProgress> {
        self.members[at].group.progress()
    }

    /// Hands the leadership of the group in this slot over to member `to`, once `to` has all entries; see
    /// [`Group::transfer_leadership`](crate::replica::Group::transfer_leadership).
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer_leadership(&mut self, at: GroupSlot, to: u64) -> Result<(), TransferError> {
        let begun = self.members[at].group.transfer_leadership(to);
        self.hand_over();
        begun
    }

    /// Makes this node's member of the group stand for election now, without waiting for its timeout, if it
    /// could serve as a leader.
    pub fn campaign(&mut self, at: GroupSlot) {
        self.members[at].group.campaign();
        self.hand_over();
    }

    /// Reports to all groups that messages to node `to` do not arrive, for instance because the connection
    /// broke.
    pub fn report_unreachable(&mut self, to: u64) {
        for member in &mut self.members {
            member.group.report_unreachable(to);
        }
        self.hand_over();
    }

    /// Appends the records that the groups want to write to the log. If the log has no room for some, a later
    /// call appends them; if the log has failed, `poll` reports the failure.
    fn hand_over(&mut self) {
        let _ = self.append_entries();
    }
}

/// Splits a message of a leader, if the log has room only for a part: keeps the first `count` entries in the
/// message, and returns a second message with the other entries. The message must have entries.
fn split(message: &mut Message, count: usize) -> Message {
    let mut entries = std::mem::take(&mut message.entries).into_vec();
    let mut rest = message.clone();
    rest.entries = entries.split_off(count).into();
    message.entries = entries.into();
    if let Some(last) = message.entries.last() {
        (rest.index, rest.log_term) = (last.index, last.term);
    }
    rest
}

fn entries_bytes(message: &Message) -> u64 {
    message.entries.iter().map(|e| e.data.len() as u64).sum()
}
