//! Ends connections with other nodes: removes a connection's state, schedules the next dial of its route, and
//! logs the reason for the operator.

use std::io;

use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::channel::ChannelError;
use tidegate_cluster::proof::Side;
use tidegate_cluster::roster::PeerSlot;

use super::{Conn, PeerEvent, Peers};
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;
use crate::sessions::routes::TooMuchInterest;

/// The reason why a connection between nodes ends, which the log states.
#[derive(Debug, thiserror::Error)]
pub(super) enum Why {
    #[error(transparent)]
    Channel(ChannelError),
    #[error("{0}")]
    Io(io::Error),
    #[error("{0}")]
    Tls(String),
    #[error("the other node closed the connection")]
    Closed,
    #[error("the other node reads too slowly, so too many bytes wait for it")]
    Behind,
    #[error("the other node has opened a newer connection, which replaces the old one")]
    Replaced,
    #[error("{0}")]
    Interest(TooMuchInterest),
    #[error(
        "the other node does not name the members of the cluster, so this node cannot rejoin through it"
    )]
    Members,
    #[error("this node has its place among the members again")]
    Rejoined,
}

impl Peers {
    /// Closes a connection and removes its state, for the reason `why`, which it logs.
    pub(super) fn end(&mut self, now: Time, key: ChannelKey, node: &mut Node, why: &Why) {
        let Some(mut conn) = self.conns.try_remove(key.index()) else {
            return;
        };
        // The other node must receive the refusal in the channel's outbox. This node tries a single write,
        // which suffices because a new socket has room for so few bytes.
        if matches!(why, Why::Channel(_)) && !conn.channel.out.is_empty() && !conn.connecting {
            let _ = conn.socket.write(&conn.channel.out);
        }
        let _ = self.registry.deregister(&mut conn.socket.stream);
        conn.socket.close();
        self.ready.retain(|k| *k != key);
        self.dirty.retain(|k| *k != key);
        self.withdrawn.extend(conn.place.take());
        let refusal = match why {
            Why::Channel(e) => e.refusal(),
            _ => None,
        };
        if let Some(slot) = conn.slot {
            self.leave(slot, &conn, node);
        }
        if let Some(route) = conn.route {
            // This node takes a failure of certificates for a lasting refusal and dials less often, because
            // only an operator can remove the cause.
            let stays = refusal.as_ref().is_some_and(|r| !r.is_passing());
            let refused = stays || matches!(why, Why::Tls(_));
            self.redial.handle_down(now, route, conn.kind, refused);
            self.meet_again(route, refusal, node);
        }
        self.tell_why(now, &conn, why);
    }

    /// Removes the ended channel of the peer in this slot from the tables, the roster and the node, so that
    /// the node no longer uses it.
    fn leave(&mut self, slot: PeerSlot, conn: &Conn, node: &mut Node) {
        let kind = conn.kind.index();
        match conn.side {
            Side::Dialer => self.told[slot.index()][kind] = None,
            Side::Dialled => self.heard[slot.index()][kind] = None,
        }
        let id = self.roster.peers()[slot.index()].id;
        self.roster.handle_over(slot, conn.side, conn.kind);
        match (conn.side, conn.kind) {
            (Side::Dialer, Kind::Route) => node.handle_peer_down(slot),
            (Side::Dialled, Kind::Route) => node.handle_peer_lost(slot),
            (Side::Dialer, Kind::Raft) => self.note(PeerEvent::Down(id)),
            (Side::Dialled, Kind::Raft) => {}
        }
        node.set_peer_urls(self.roster.client_urls());
    }

    fn tell_why(&mut self, now: Time, conn: &Conn, why: &Why) {
        let at = match conn.route {
            Some(route) => self.routes[route].to_string(),
            None => conn.address.to_string(),
        };
        let name = conn
            .slot
            .map(|slot| self.roster.peers()[slot.index()].name.as_str());
        match (name, conn.side, why) {
            (_, _, Why::Channel(e)) if e.refusal().is_some_and(|r| r.is_harmless()) => {
                tracing::debug!(
                    "this node closes its connection to {at}, because it does not need the connection: {why}"
                );
            }
            (Some(name), Side::Dialer, why) => {
                tracing::info!(
                    "the {} connection to `{name}` at {at} is down, and this node dials again, because: {why}",
                    conn.kind.as_str()
                );
            }
            (Some(name), Side::Dialled, why) => {
                tracing::debug!(
                    "the {} connection from `{name}` at {at} has ended, because: {why}",
                    conn.kind.as_str()
                );
            }
            (None, side, Why::Channel(e)) if e.refusal().is_some() => {
                let line = match side {
                    Side::Dialer => format!("this node cannot join the node at {at}: {why}"),
                    // The log line names the refused node's IP address without the port, because each
                    // connection has another port, and the roster recognises repeated lines about one node
                    // only if they are equal.
                    Side::Dialled => {
                        format!("this node refused a node from {}: {why}", conn.address.ip())
                    }
                };
                if let Some(more) = self.due(now, side, &line) {
                    tracing::warn!("{line}{more}");
                }
            }
            (None, side, Why::Tls(why)) => {
                let line = match side {
                    Side::Dialer => {
                        format!("this node gets no TLS connection to the node at {at}: {why}")
                    }
                    Side::Dialled => {
                        format!(
                            "this node gets no TLS connection with a node from {}: {why}",
                            conn.address.ip()
                        )
                    }
                };
                if let Some(more) = self.due(now, side, &line) {
                    tracing::warn!("{line}{more}");
                }
            }
            (None, side, why) => {
                let line = match side {
                    Side::Dialer => {
                        format!("this node cannot reach the node at {at}, and tries again: {why}")
                    }
                    Side::Dialled => {
                        format!(
                            "this node closed a connection from {}: {why}",
                            conn.address.ip()
                        )
                    }
                };
                if let Some(more) = self.due(now, side, &line) {
                    tracing::info!("{line}{more}");
                }
            }
        }
    }

    /// Returns the suffix of a log line about a connection with an unknown other end, if the line is due.
    /// Lines about accepted connections are rate-limited, because any program can cause them, from many
    /// addresses.
    fn due(&mut self, now: Time, side: Side, line: &str) -> Option<String> {
        match side {
            Side::Dialer => self.roster.is_news(now, line).then(String::new),
            // Once the rate limit is spent, the line must not displace other lines from the roster's list of
            // recent lines.
            Side::Dialled if !self.strangers.is_spent(now) && !self.roster.is_news(now, line) => {
                None
            }
            Side::Dialled => self.strangers.due(now),
        }
    }
}
