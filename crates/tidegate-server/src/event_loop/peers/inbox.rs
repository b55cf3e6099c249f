//! Received messages of groups that wait to be taken: bounded. Beyond the bound the loop does not
//! read the channels.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_cluster::Kind;
use tidegate_cluster::groups::GroupId;

use super::Peers;
use crate::event_loop::tokens::ChannelKey;

/// The most bytes of such messages, beyond which the loop reads no more.
const RECEIVED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A received message of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The id of the node that sent it.
    pub from: u64,
    /// The group.
    pub group: GroupId,
    /// The message.
    pub payload: Bytes,
}

/// Received messages that wait to be taken.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: VecDeque<Received>,
    bytes: usize,
    /// The loop left a channel unread because of the bound.
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
    /// Returns the next message of a group.
    pub(crate) fn poll_raft(&mut self) -> Option<Received> {
        let received = self.raft.pop();
        self.let_in();
        received
    }

    /// Returns the next request or answer of a fetch.
    pub(crate) fn poll_fetch(&mut self) -> Option<Received> {
        let received = self.fetches.pop();
        self.let_in();
        received
    }

    /// Reads channels again that the bound held back.
    fn let_in(&mut self) {
        let full = self.raft.is_full() || self.fetches.is_full();
        if !full && (self.raft.held_back || self.fetches.held_back) {
            (self.raft.held_back, self.fetches.held_back) = (false, false);
            let raft = Kind::Raft.index();
            let keys: Vec<ChannelKey> = self.heard.iter().filter_map(|conns| conns[raft]).collect();
            for key in keys {
                self.conns[key.index()].readable = true;
                self.list(key);
            }
        }
    }
}
