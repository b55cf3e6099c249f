//! Answers the questions of the driver to the node: the next deadline, and the connections for which the
//! driver has something to do.

use tidegate::Time;
use tidegate::controller::Load;
use tidegate_nats::outbox::Outbox;
use tidegate_nats::session::CloseReason;

use super::{Node, Verify};
use crate::fair::Source;
use crate::party::ClientKey;

impl Node {
    /// Returns the time at which the driver must call [`Node::handle_timeouts`] next, so that the driver can
    /// set its timer.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if !self.leaving.is_empty() || !self.spreading.is_empty() {
            return Some(Time::ZERO);
        }
        let lame = self.lame.map(|l| l.next);
        let peers = self.peers.as_ref().and_then(|p| p.deadline());
        let times = [self.timers.next(), lame, peers];
        times.into_iter().flatten().min()
    }

    /// Takes the next connection with bytes to write, so that short outboxes go first. The driver writes the
    /// bytes and then calls [`Node::handle_written`].
    pub fn poll_dirty(&mut self) -> Option<ClientKey> {
        loop {
            let entries = &self.entries;
            let bytes = |key| entries.get(key).map_or(0, |entry| entry.session.out.len());
            let key = self.dirty.pop(bytes)?;
            // The listed connection may have ended meanwhile, and another connection may now have its key.
            // The node therefore skips a key without bytes to write.
            if self.entries.get(key).is_some_and(|entry| entry.dirty) {
                return Some(key);
            }
        }
    }

    /// Returns whether a client connection has bytes for the driver to write.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Returns whether a message has reached only a part of its many receivers so far, so that the driver
    /// calls the node again soon.
    #[must_use]
    pub fn is_spreading(&self) -> bool {
        !self.spreading.is_empty()
    }

    /// Returns whether [`Node::poll_closed`] has connections for the driver to drop.
    #[must_use]
    pub fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Returns the bytes that the driver has still to write to this client.
    #[must_use]
    pub fn outbox(&self, key: ClientKey) -> &Outbox {
        &self.entries[key].session.out
    }

    /// Takes the next password that the driver has a thread check. The driver calls this only when a thread
    /// can check the password now, because until then passwords of other connections may move ahead, or the
    /// connection may end.
    pub fn poll_verify(&mut self) -> Option<Verify> {
        self.poll_verify_of(|_| true).map(|(_, verify)| verify)
    }

    /// Takes the next password to check among the passwords from sources for which `may` returns true, with
    /// its source, so that the driver can bound the checks of each source.
    pub(crate) fn poll_verify_of(
        &mut self,
        may: impl Fn(Source) -> bool,
    ) -> Option<(Source, Verify)> {
        let (source, verify) = self.passwords.pop(may)?;
        Some((source, verify))
    }

    /// Returns the next connection from which the driver may read again after a pause. The driver first hands
    /// in the bytes that it received before the pause and that the node has not used.
    pub fn poll_resumed(&mut self) -> Option<ClientKey> {
        while let Some(key) = self.resumed.pop() {
            if self.contains(key) {
                return Some(key);
            }
        }
        None
    }

    /// Returns the next connection that has ended, and the reason. The driver must drop its socket.
    pub fn poll_closed(&mut self) -> Option<(ClientKey, CloseReason)> {
        let (key, reason) = self.closed.pop_front()?;
        let entry = &mut self.entries[key];
        entry.dropped = true;
        self.forget(key);
        Some((key, reason))
    }

    /// Takes the number of messages and bytes that the node put into outboxes since the last call, from which
    /// the driver learns the size of the next write, and resets the count.
    pub fn take_gathered(&mut self) -> Load {
        std::mem::take(&mut self.gathered)
    }

    /// Returns the number of messages and bytes that the node put into outboxes since the last
    /// [`Node::take_gathered`], from which the driver decides when to write.
    #[must_use]
    pub const fn gathered(&self) -> Load {
        self.gathered
    }

    /// Returns whether the copies that the outboxes have gathered since the last [`Node::take_gathered`]
    /// reach the messages or the bytes of `limit`. The driver should then write the outboxes before the node
    /// delivers more.
    pub(crate) const fn has_gathered(&self, limit: Load) -> bool {
        self.gathered.items >= limit.items || self.gathered.bytes >= limit.bytes
    }

    /// Returns the number of trie nodes and queue groups that look-ups of receivers have visited so far. The
    /// driver shares its time out by it, because one look-up may visit very many.
    pub(crate) const fn visits(&self) -> u64 {
        self.sublist.stats().visits
    }
}
