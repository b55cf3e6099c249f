//! Keeps the facts about the connections that ended last, for the monitor. Their number and the bytes of
//! their texts have bounds.

// The import is from `core::net` and not `std::net`, because an address is plain data and this module uses no
// sockets.
use core::net::SocketAddr;
use std::collections::VecDeque;

use tidegate::Time;
use tidegate_nats::session::{CloseReason, Session, Traffic};
use tidegate_nats::settings::Account;

/// The greatest number of closed connections that the node remembers, as many as nats-server does.
const CONNECTIONS_MAX: usize = 10_000;
/// The greatest number of bytes of the texts that clients chose, such as their names, over all remembered
/// connections, so that they take bounded memory.
const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The facts about a client connection that has ended, which the monitor shows.
#[derive(Debug)]
pub(crate) struct ClosedConnection {
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    pub(crate) since: Time,
    pub(crate) active: Time,
    pub(crate) stop: Time,
    pub(crate) reason: CloseReason,
    pub(crate) traffic: Traffic,
    /// The number of the client's subscriptions when the connection began to close, for the monitor.
    pub(crate) subscriptions: usize,
    pub(crate) name: Box<str>,
    pub(crate) lang: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) user: Option<Box<str>>,
    pub(crate) account: Account,
    pub(crate) tls: bool,
}

impl ClosedConnection {
    /// Describes a connection that ends now. Takes the texts of the client's CONNECT out of the session, to
    /// save a copy.
    pub(super) fn take(
        session: &mut Session,
        now: Time,
        reason: CloseReason,
        subscriptions: usize,
    ) -> Self {
        let options = &mut session.options;
        let [name, lang, version] = [&mut options.name, &mut options.lang, &mut options.version]
            .map(|text| std::mem::take(text).into_boxed_str());
        Self {
            cid: session.cid,
            address: session.address,
            since: session.since,
            active: session.active,
            stop: now,
            reason,
            traffic: session.traffic,
            subscriptions,
            name,
            lang,
            version,
            user: session.user().map(Into::into),
            account: session.account(),
            tls: session.secured,
        }
    }

    fn text_bytes(&self) -> usize {
        let user = self.user.as_ref().map_or(0, |user| user.len());
        self.name.len() + self.lang.len() + self.version.len() + user
    }
}

/// The client connections that ended last, the oldest first, from which the monitor answers.
#[derive(Debug, Default)]
pub(crate) struct RecentlyClosed {
    connections: VecDeque<ClosedConnection>,
    /// The number of bytes of the texts of all remembered connections, which [`TEXT_BYTES_MAX`] bounds.
    text_bytes: usize,
    /// The number of connections that the node has forgotten, so that each remembered one keeps its number.
    forgotten: u64,
}

impl RecentlyClosed {
    /// Adds a connection that has ended, and drops the oldest connections beyond the bounds, so that the
    /// memory stays bounded.
    pub(super) fn push(&mut self, connection: ClosedConnection) {
        self.text_bytes += connection.text_bytes();
        self.connections.push_back(connection);
        while (self.connections.len() > CONNECTIONS_MAX || self.text_bytes > TEXT_BYTES_MAX)
            && let Some(oldest) = self.connections.pop_front()
        {
            self.text_bytes -= oldest.text_bytes();
            self.forgotten += 1;
        }
    }

    /// Returns the number of closed connections that the node remembers, for the monitor.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.connections.len()
    }

    /// Iterates over the remembered connections in the order in which they ended, from the connection with
    /// the number `at` on. Each has the number of connections that ended before it.
    pub(crate) fn starting_at(&self, at: u64) -> impl Iterator<Item = (u64, &ClosedConnection)> {
        let skipped = at.saturating_sub(self.forgotten);
        let first = usize::try_from(skipped).unwrap_or(usize::MAX);
        let rest = self.connections.range(first.min(self.connections.len())..);
        (self.forgotten + first as u64..).zip(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(cid: u64, name_bytes: usize) -> ClosedConnection {
        let at = Time::from_nanos(cid);
        let settings = tidegate_nats::settings::SessionSettings::default();
        let mut session = Session::new(at, cid, ([127, 0, 0, 1], 1).into(), None, &settings);
        session.options.name = "n".repeat(name_bytes);
        ClosedConnection::take(&mut session, at, CloseReason::ClientClosed, 0)
    }

    #[test]
    fn the_ring_keeps_the_newest_connections() {
        let mut ring = RecentlyClosed::default();
        for cid in 0..CONNECTIONS_MAX as u64 + 3 {
            ring.push(closed(cid, 1));
        }
        assert_eq!(ring.len(), CONNECTIONS_MAX);
        assert_eq!(ring.starting_at(0).next().unwrap().1.cid, 3);
    }

    #[test]
    fn long_names_leave_room_for_fewer_connections() {
        let mut ring = RecentlyClosed::default();
        for cid in 0..8 {
            ring.push(closed(cid, TEXT_BYTES_MAX / 4));
        }
        let kept: Vec<u64> = ring.starting_at(0).map(|(_, c)| c.cid).collect();
        assert_eq!(kept, [4, 5, 6, 7]);
        assert!(ring.text_bytes <= TEXT_BYTES_MAX);
    }
}
