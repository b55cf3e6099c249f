//! The received messages of groups that wait until the groups take them. Beyond a bound of bytes the loop
//! does not read the channels.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_cluster::Kind;
use tidegate_cluster::groups::GroupId;

use super::Peers;
use crate::event_loop::tokens::ChannelKey;

/// The number of bytes of waiting messages from which the loop does not read the channels.
const RECEIVED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A received message of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The id of the node that sent the message.
    pub from: u64,
    /// The number of the group.
    pub group: GroupId,
    /// The message.
    pub payload: Bytes,
}

/// The received messages that wait until the groups take them.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: VecDeque<Received>,
    bytes: usize,
    /// True if the loop left a channel unread because of the bound.
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

    /// Lists the channels for reading again that the loop left unread because of the bound.
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
