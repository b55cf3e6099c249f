//! Removes the subscriptions of clients and peers that leave, a part at a time, so that no turn takes long.
//!
//! A client or a peer may have a million subscriptions, and removing all of them at once would keep the event
//! loop from the other clients. The node keeps the entry of a leaving client until it has removed the
//! client's last subscription, so that the client's key names no other connection in the meantime. A leaving
//! client gets no message, and its queue groups choose among their other members. The subscriptions of a peer
//! with a closed channel are void at once ([`Peers::is_void`]), even if the peer opens a new channel before
//! the node has removed the last of them.
//!
//! [`Peers::is_void`]: super::routes::Peers::is_void

use std::collections::VecDeque;

use hashbrown::hash_map as peers_map;
use tidegate_cluster::wire::InterestId;
use tidegate_nats::collections::IntoValues;
use tidegate_nats::sublist::SubKey;

use super::Node;
use crate::cures::cures;
use crate::party::ClientKey;

/// The number of subscriptions that the node removes at once. Then the node serves other clients before it
/// removes the next part, so that they do not wait for all of it.
#[cfg(not(test))]
const STEP: usize = 256;
/// The number of subscriptions that the node removes at once in tests: low, so that a few subscriptions take
/// several parts.
#[cfg(test)]
const STEP: usize = 2;

/// The subscriptions of clients and peers that have left, which the node has still to remove.
#[derive(Debug, Default)]
pub(super) struct Leaving(VecDeque<Left>);

#[derive(Debug)]
enum Left {
    Client(ClientKey, IntoValues<SubKey>),
    Peer(peers_map::IntoValues<InterestId, SubKey>),
}

impl Left {
    fn next(&mut self) -> Option<SubKey> {
        match self {
            Self::Client(_, subs) => subs.next(),
            Self::Peer(subs) => subs.next(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Client(_, subs) => subs.len(),
            Self::Peer(subs) => subs.len(),
        }
    }
}

impl Leaving {
    /// Returns whether the node has no subscriptions of a leaving client or peer to remove, so that the
    /// driver may sleep.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of subscriptions that the node has still to remove, for the check of invariants.
    pub(super) fn subscriptions(&self) -> usize {
        self.0.iter().map(Left::len).sum()
    }
}

/// Returns the number of subscriptions that the node removes at once: [`STEP`], or all if a simulation turns
/// the division off.
fn step() -> usize {
    match cures().leaving {
        true => STEP,
        false => usize::MAX,
    }
}

impl Node {
    /// Removes the subscriptions of a client that is closing. If the client has many, the node removes them
    /// later, a part at a time, so that other clients do not wait.
    pub(super) fn leave(&mut self, key: ClientKey) {
        let subs = std::mem::take(&mut self.entries[key].session.subs);
        if subs.len() > step() {
            self.entries[key].leaving = true;
            let left = Left::Client(key, subs.into_values());
            return self.leaving.0.push_back(left);
        }
        for sub in subs.into_values() {
            self.remove_subscription(sub);
        }
    }

    /// Removes the void subscriptions of a peer after its channel closed: a part of them now, the others
    /// later, so that clients do not wait.
    pub(super) fn leave_peer(&mut self, heard: peers_map::IntoValues<InterestId, SubKey>) {
        self.leaving.0.push_back(Left::Peer(heard));
        self.go_on_leaving();
    }

    /// Removes a part of the subscriptions of the clients and peers that have left, which take turns, so that
    /// none waits for another's million.
    pub(super) fn go_on_leaving(&mut self) {
        let Some(mut left) = self.leaving.0.pop_front() else {
            return;
        };
        for _ in 0..step() {
            let Some(sub) = left.next() else { break };
            self.remove_subscription(sub);
        }
        if left.len() > 0 {
            return self.leaving.0.push_back(left);
        }
        if let Left::Client(key, _) = left {
            self.entries[key].leaving = false;
            self.forget(key);
        }
    }
}
