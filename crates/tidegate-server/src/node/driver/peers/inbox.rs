//! What came for groups and was not taken yet: bounded, and a channel that brings more is not read meanwhile.

use std::collections::VecDeque;

use bytes::Bytes;

use super::Peers;
use crate::cluster::Kind;

/// Bytes of groups' messages that came and were not taken, beyond which no more is read.
const RECEIVED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What a group's message is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The id of the node that sent it.
    pub from: u64,
    /// The group.
    pub group: u32,
    /// The message.
    pub payload: Bytes,
}

/// Messages that came and were not taken.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: VecDeque<Received>,
    bytes: usize,
    /// Some channel was not read because of that.
    pub(super) held_back: bool,
}

impl Inbox {
    pub(super) fn push(&mut self, received: Received) {
        self.bytes += received.payload.len();
        self.waiting.push_back(received);
    }

    fn pop(&mut self) -> Option<Received> {
        let received = self.waiting.pop_front()?;
        self.bytes -= received.payload.len();
        Some(received)
    }

    pub(super) const fn is_full(&self) -> bool {
        self.bytes > RECEIVED_BYTES_MAX
    }
}

impl Peers {
    /// The next message of a group.
    pub fn poll_raft(&mut self) -> Option<Received> {
        let received = self.raft.pop();
        self.let_in();
        received
    }

    /// The next message that concerns fetching.
    pub fn poll_fetch(&mut self) -> Option<Received> {
        let received = self.fetches.pop();
        self.let_in();
        received
    }

    /// Channels that were not read because too much had come are read again.
    fn let_in(&mut self) {
        let full = self.raft.is_full() || self.fetches.is_full();
        if !full && (self.raft.held_back || self.fetches.held_back) {
            (self.raft.held_back, self.fetches.held_back) = (false, false);
            let raft = Kind::Raft.index();
            let keys: Vec<usize> = self.heard.iter().filter_map(|conns| conns[raft]).collect();
            for key in keys {
                self.conns[key].readable = true;
                self.list(key);
            }
        }
    }
}
