//! The store among other members of its group: what they say goes in, what they are told comes out, and what the group wants
//! written because of it is handed to the log.

use super::{GROUP, Store};
use crate::replica::{Message, PeerProgress, StepError, TransferError};

impl Store {
    /// A message of another member, for this group.
    ///
    /// # Errors
    /// See [`StepError`]: it had no effect. That the log failed is what [`poll`](Self::poll) tells.
    pub fn step(&mut self, group: u32, message: Message) -> Result<(), StepError> {
        if group != GROUP {
            return Err(StepError::WrongGroup { group });
        }
        let stepped = self.group.step(message);
        self.hand_over();
        stepped
    }

    /// Time goes on by one tick of the group.
    pub fn tick(&mut self) {
        self.group.tick();
        self.hand_over();
    }

    /// What is to be sent next, and to whom. Ask after each [`step`](Self::step), [`tick`](Self::tick),
    /// [`propose`](Self::propose) and [`poll`](Self::poll), until there is nothing more; what cannot be sent is dropped.
    pub fn poll_message(&mut self) -> Option<(u64, Message)> {
        self.group.poll_message()
    }

    /// The number of its group.
    #[must_use]
    pub const fn group_number(&self) -> u32 {
        GROUP
    }

    /// Who leads, as far as is known.
    #[must_use]
    pub fn leader(&self) -> Option<u64> {
        self.group.leader()
    }

    /// What a leader knows of the others; nothing of anybody else.
    #[must_use]
    pub fn progress(&self) -> Vec<PeerProgress> {
        self.group.progress()
    }

    /// Hands leadership over: see [`Group::transfer_leadership`](crate::replica::Group::transfer_leadership).
    ///
    /// # Errors
    /// See [`TransferError`].
    pub fn transfer_leadership(&mut self, to: u64) -> Result<(), TransferError> {
        let begun = self.group.transfer_leadership(to);
        self.hand_over();
        begun
    }

    /// Stands for election now, if that may lead to anything.
    pub fn campaign(&mut self) {
        self.group.campaign();
        self.hand_over();
    }

    /// Messages to this member do not arrive: for instance, its connection broke.
    pub fn report_unreachable(&mut self, to: u64) {
        self.group.report_unreachable(to);
        self.hand_over();
    }

    /// What the group wants written. That there is no room passes; a failure is what `poll` tells.
    fn hand_over(&mut self) {
        let _ = self.append_entries();
    }
}
