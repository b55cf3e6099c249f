//! Keeps the received Raft messages and fetches until the groups take them. Beyond a bound of bytes the loop
//! does not read the channels, so that peers cannot fill the memory.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate_cluster::Kind;
use tidegate_cluster::groups::GroupId;

use super::Peers;
use crate::event_loop::tokens::ChannelKey;

/// The number of bytes of waiting messages above which the loop does not read the channels, so that they take
/// bounded memory.
const RECEIVED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A Raft message, or a request or answer of a fetch, that this node has received from another node and that
/// its group has still to take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The id of the node that sent the message, which Raft needs.
    pub from: u64,
    /// The group to which the message belongs, and which takes it.
    pub group: GroupId,
    /// The message, as the other node encoded it; the group decodes it.
    pub payload: Bytes,
}

/// The received messages of one kind that wait until the groups take them.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    waiting: VecDeque<Received>,
    bytes: usize,
    /// True if the loop left a channel unread because too many bytes wait in this list. The loop reads it
    /// again once the list is shorter.
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
    /// Takes the next received Raft message, for its group.
    pub(crate) fn poll_raft(&mut self) -> Option<Received> {
        let received = self.raft.pop();
        self.let_in();
        received
    }

    /// Takes the next received request or answer of a fetch, for its group.
    pub(crate) fn poll_fetch(&mut self) -> Option<Received> {
        let received = self.fetches.pop();
        self.let_in();
        received
    }

    /// Lists the channels that the loop left unread for reading again, once the groups have taken enough
    /// messages, because there is room again.
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
