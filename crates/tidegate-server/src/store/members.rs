//! The store among other members of its groups: what they say goes in, what they are told comes out, and what
//! the group wants written because of it is handed to the log.

use tidegate_log::{Record, batch_bytes};

use super::{Store, makes_space};
use crate::replica::records::{self, HardState};
use crate::replica::{Message, MessageType, PeerProgress, StepError, TransferError};

impl Store {
    /// The place of the group with this number, if this node is a member of it.
    #[must_use]
    pub fn at(&self, group: u32) -> Option<usize> {
        self.members.iter().position(|m| m.group.number() == group)
    }

    /// A message of another member, for the group with this number.
    ///
    /// # Errors
    /// See [`StepError`]: it had no effect. That the log failed is what [`poll`](Self::poll) tells.
    pub fn step(&mut self, group: u32, message: Message) -> Result<(), StepError> {
        let at = self.at(group).ok_or(StepError::WrongGroup { group })?;
        let full = self.log.disk_full();
        let kind = message.get_msg_type();
        let bytes = match kind {
            MessageType::MsgAppend => self.bytes_without_room(at, &message),
            MessageType::MsgHeartbeat => self.members[at].group.refused_bytes(message.term),
            _ => None,
        };
        let refused = bytes.filter(|bytes| !self.leaves_reserve(*bytes));
        let beats = matches!(kind, MessageType::MsgHeartbeat | MessageType::MsgSnapshot);
        let member = &mut self.members[at];
        let (full, group) = (full || member.failed, &mut member.group);
        let stepped = match refused {
            Some(bytes) => group.refuse(message, bytes),
            // Without space this member fetches no state, so a leader must not count it in its quorum.
            None if full && beats && group.poll_catch_up().is_some() => {
                group.step_silently(message)
            }
            None => group.step(message),
        };
        self.hand_over();
        stepped
    }

    /// Counts the bytes that a message's entries, and all that waits for the log, take of a full disk's log.
    /// `None` if there is space, or if the entries only make some.
    fn bytes_without_room(&self, at: usize, message: &Message) -> Option<u64> {
        let group = &self.members[at].group;
        if !self.log.disk_full() || message.entries.is_empty() || message.term < group.term() {
            return None;
        }
        let entries = message.entries.iter();
        let records = entries.map(|e| records::entry(0, e.index, e.term, e.data.clone()));
        let records: Vec<Record> = records.collect();
        if makes_space(&records) {
            return None;
        }
        // Each entry may go into a batch of its own, and a term, a vote and a commit index come along.
        let each = records.into_iter().map(|record| batch_bytes(&[record]));
        let along = [
            records::hard_state(0, HardState::default()),
            records::committed(0, 0),
        ];
        let waiting = self.members.iter().map(|m| m.group.outgoing_bytes());
        Some(each.chain(waiting).sum::<u64>() + batch_bytes(&along))
    }

    /// Time goes on by one tick of all groups.
    pub fn tick(&mut self) {
        for member in &mut self.members {
            member.group.tick();
        }
        self.hand_over();
    }

    /// What is to be sent next, and to whom. Ask after each [`step`](Self::step), [`tick`](Self::tick),
    /// [`propose`](Self::propose) and [`poll`](Self::poll), until there is nothing more; what cannot be sent
    /// is dropped.
    pub fn poll_message(&mut self, at: usize) -> Option<(u64, Message)> {
        self.members[at].group.poll_message()
    }

    /// The number of a group.
    #[must_use]
    pub fn group_number(&self, at: usize) -> u32 {
        self.members[at].group.number()
    }

    /// Who leads, as far as is known.
    #[must_use]
    pub fn leader(&self, at: usize) -> Option<u64> {
        self.members[at].group.leader()
    }

    /// What a leader knows of the others; nothing of anybody else.
    #[must_use]
    pub fn progress(&self, at: usize) -> Vec<PeerProgress> {
        self.members[at].group.progress()
    }

    /// Hands leadership over: see [`Group::transfer_leadership`](crate::replica::Group::transfer_leadership).
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer_leadership(&mut self, at: usize, to: u64) -> Result<(), TransferError> {
        let begun = self.members[at].group.transfer_leadership(to);
        self.hand_over();
        begun
    }

    /// Stands for election now, if that may lead to anything.
    pub fn campaign(&mut self, at: usize) {
        self.members[at].group.campaign();
        self.hand_over();
    }

    /// Messages to this member do not arrive: for instance, its connection broke.
    pub fn report_unreachable(&mut self, to: u64) {
        for member in &mut self.members {
            member.group.report_unreachable(to);
        }
        self.hand_over();
    }

    /// What the groups want written. That there is no room passes; a failure is what `poll` tells.
    fn hand_over(&mut self) {
        let _ = self.append_entries();
    }
}
