//! Reports on the node for monitoring and tests: its counts, sessions and subscriptions, and a check of its
//! invariants.

use std::ops::Range;

use tidegate::Time;
use tidegate_nats::connect::Info;
use tidegate_nats::session::Session;
use tidegate_nats::settings::Account;
use tidegate_nats::sublist::{Matches, SubKey, SublistStats};
use tidegate_nats::system::{inner, outer};

use super::ack_times::AckTimes;
use super::recently_closed::RecentlyClosed;
use super::{Node, NodeStats};
use crate::config::Settings;
use crate::party::{ClientKey, Party};

/// A client's subscription, as the monitor shows it to an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClientSubscription<'a> {
    /// The number of the client's connection, by which an operator finds the client.
    pub(crate) cid: u64,
    pub(crate) account: Account,
    pub(crate) pattern: &'a [u8],
    pub(crate) queue: Option<&'a [u8]>,
    pub(crate) sid: &'a [u8],
    pub(crate) delivered: u64,
    /// The number of messages after which the subscription ends; 0 if it has no such maximum.
    pub(crate) max: u64,
}

impl Node {
    /// Returns the node's present settings, which a reload changes.
    #[must_use]
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the time at which the node got its present settings, for the monitor.
    #[must_use]
    pub(crate) const fn configured(&self) -> Time {
        self.configured
    }

    /// Returns the content of the INFO that the node sends to clients, for reports about the server.
    #[must_use]
    pub const fn info(&self) -> &Info {
        &self.info
    }

    /// Returns the node's counts since its start, for the monitor.
    #[must_use]
    pub const fn stats(&self) -> NodeStats {
        self.stats
    }

    /// Returns the times from publishes to their acknowledgements, for the monitor.
    pub(crate) const fn ack_times(&self) -> &AckTimes {
        &self.ack_times
    }

    /// Returns the counts of the node's subscriptions, for the monitor.
    #[must_use]
    pub const fn sublist_stats(&self) -> SublistStats {
        self.sublist.stats()
    }

    /// Returns the number of open client connections, for the monitor and the end of a drain.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.gone
    }

    /// Returns whether the node has no open client connections, so that a draining server may end.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Iterates over the sessions of all clients, for monitoring.
    pub fn sessions(&self) -> impl Iterator<Item = &Session> {
        let here = self.entries.iter().filter(|(_, entry)| !entry.gone);
        here.map(|(_, entry)| &entry.session)
    }

    /// Iterates over the sessions of the clients at these places in the table of connections, with the keys
    /// of their connections, for monitoring in parts.
    pub(crate) fn sessions_at(
        &self,
        places: Range<usize>,
    ) -> impl Iterator<Item = (ClientKey, &Session)> {
        let here = self.entries.range(places).filter(|(_, entry)| !entry.gone);
        here.map(|(key, entry)| (key, &entry.session))
    }

    /// Returns the number of places in the table of connections, for monitoring in parts.
    pub(crate) fn places(&self) -> usize {
        self.entries.places()
    }

    /// Returns the session of the client with this key; `None` if its connection has ended.
    pub(crate) fn session(&self, key: ClientKey) -> Option<&Session> {
        let entry = self.entries.get(key).filter(|entry| !entry.gone)?;
        Some(&entry.session)
    }

    /// Iterates over the patterns of a session's subscriptions, for monitoring.
    pub(crate) fn patterns<'a>(&'a self, session: &'a Session) -> impl Iterator<Item = &'a [u8]> {
        let pattern = |key: &SubKey| outer(&self.subs[*key as usize].pattern);
        session.subs.values().map(pattern)
    }

    /// Returns the connections that ended last, for monitoring.
    pub(crate) const fn recently_closed(&self) -> &RecentlyClosed {
        &self.recently_closed
    }

    /// Returns the keys of the clients' subscriptions in an account that match a subject, among at most
    /// `room` matches after the first `skip` ones, for monitoring in parts. Also returns the number of all
    /// matches, with those of peers.
    pub(crate) fn subscriptions_to(
        &self,
        account: Account,
        subject: &[u8],
        skip: usize,
        room: usize,
    ) -> (Vec<SubKey>, usize) {
        let mut scratch = Matches::default();
        let matches = match account {
            Account::Global => self.sublist.find(subject, &mut scratch),
            Account::System => self.sublist.find(&inner(subject), &mut scratch),
        };
        let of_client = |key: &SubKey| {
            let client = self.subs[*key as usize].owner.client();
            client.is_some_and(|client| !self.entries[client].leaving)
        };
        let part = matches.iter().skip(skip).take(room);
        (part.filter(of_client).collect(), matches.len())
    }

    /// Describes the subscription `key` of a client, for monitoring.
    pub(crate) fn client_subscription(&self, key: SubKey) -> ClientSubscription<'_> {
        let sub = &self.subs[key as usize];
        let Party::Client(client) = sub.owner else {
            unreachable!("the callers select the subscriptions of clients");
        };
        let session = &self.entries[client].session;
        ClientSubscription {
            cid: session.cid,
            account: session.account(),
            pattern: outer(&sub.pattern),
            queue: sub.queue.as_deref(),
            sid: &sub.sid,
            delivered: sub.delivered,
            max: sub.max,
        }
    }

    /// Checks the invariants of the node that hold between any two events. Tests call this after each event,
    /// to find an error where it arises.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        let by_sessions: usize = self.entries.iter().map(|(_, e)| e.session.subs.len()).sum();
        let by_peers = self.peers.as_ref().map_or(0, |p| p.interests());
        assert_eq!(
            by_sessions + self.leaving.subscriptions() + by_peers,
            self.subs.len(),
            "subscriptions by session and peer, and in all"
        );
        assert_eq!(
            self.subs.len(),
            self.sublist.stats().len,
            "subscriptions in all and by subject"
        );
        for (key, entry) in self.entries.iter() {
            assert!(
                !entry.dirty || self.dirty.contains(key),
                "a dirty connection is listed"
            );
            assert!(
                entry.session.out.is_empty()
                    || entry.dirty
                    || entry.session.deadline(&self.settings.sessions) < Time::NEVER
            );
        }
    }
}
