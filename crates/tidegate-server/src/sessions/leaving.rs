//! Clients with many subscriptions that leave: the node removes these a part at a time.
//!
//! A client may have a million subscriptions, and the loop has other clients. The entry of such a
//! client stays until the last of them is removed, so that its key names no other connection meanwhile. A
//! leaving client gets no message, and its queue groups choose among the others.

use std::collections::{VecDeque, hash_map};

use tidegate_nats::sublist::SubKey;

use super::Node;
use crate::party::ClientKey;

/// The number of subscriptions that the node removes at a time.
#[cfg(not(test))]
const STEP: usize = 256;
/// In tests a handful takes several parts.
#[cfg(test)]
const STEP: usize = 2;

/// The subscriptions of clients that have left.
#[derive(Debug, Default)]
pub(super) struct Leaving(VecDeque<Left>);

#[derive(Debug)]
struct Left {
    key: ClientKey,
    subs: hash_map::IntoValues<Box<[u8]>, SubKey>,
}

impl Leaving {
    /// Returns whether no client is leaving.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the keys of the leaving clients.
    pub(super) fn keys(&self) -> impl Iterator<Item = ClientKey> {
        self.0.iter().map(|left| left.key)
    }

    /// Returns the number of subscriptions that are still to be removed.
    pub(super) fn subscriptions(&self) -> usize {
        self.0.iter().map(|left| left.subs.len()).sum()
    }
}

impl Node {
    /// Removes the subscriptions of a client that is closing, or begins to.
    pub(super) fn leave(&mut self, key: ClientKey) {
        let subs = std::mem::take(&mut self.entries[key].session.subs);
        if subs.len() > STEP {
            self.entries[key].leaving = true;
            let subs = subs.into_values();
            return self.leaving.0.push_back(Left { key, subs });
        }
        for sub in subs.into_values() {
            self.remove_subscription(sub);
        }
    }

    /// Removes a part of the subscriptions of the clients that have left; they take turns.
    pub(super) fn go_on_leaving(&mut self) {
        let Some(mut left) = self.leaving.0.pop_front() else {
            return;
        };
        for sub in left.subs.by_ref().take(STEP) {
            self.remove_subscription(sub);
        }
        if left.subs.len() > 0 {
            return self.leaving.0.push_back(left);
        }
        let entry = &mut self.entries[left.key];
        entry.leaving = false;
        if entry.gone {
            self.entries.remove(left.key);
        }
    }
}
