//! Does the timed work on connections between nodes: dials routes that are due, sends pings, and ends dead
//! connections, so that the nodes stay connected.

use tidegate::Time;
use tidegate_cluster::Kind;
use tidegate_cluster::channel::PING_EVERY;
use tidegate_cluster::proof::Side;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::Frame;

use super::ending::Why;
use super::{Conn, Peers};
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;

impl Peers {
    /// Returns the time at which the loop must next call [`Peers::handle_timeouts`].
    pub(crate) fn deadline(&self) -> Option<Time> {
        let pings = (!self.conns.is_empty()).then_some(self.next_ping);
        let channels = self.conns.iter().map(|(_, c)| c.channel.deadline());
        let all = [pings, self.redial.deadline()];
        all.into_iter().flatten().chain(channels).min()
    }

    /// Dials the routes that are due, sends pings to peers, and ends connections to peers that have been
    /// silent for too long, so that the node dials them again.
    pub(crate) fn handle_timeouts(&mut self, now: Time, node: &mut Node) {
        for (_, conn) in &mut self.conns {
            // Bytes that this node has not read yet prove that the peer is alive, so the node does not count
            // the peer as silent.
            if conn.readable && conn.side == Side::Dialled {
                conn.channel.handle_activity(now);
            }
        }
        let overdue =
            |(at, conn): (usize, &Conn)| Some((ChannelKey::new(at), conn.channel.overdue(now)?));
        let dead: Vec<_> = self.conns.iter().filter_map(overdue).collect();
        for (key, why) in dead {
            self.end(now, key, node, &Why::Channel(why));
        }
        if self.next_ping <= now {
            self.next_ping = now + PING_EVERY;
            self.ping(now, node);
        }
        while let Some((route, kind, outcome)) = self.resolving.poll() {
            self.dial_resolved(now, route, kind, outcome);
        }
        while let Some((route, kind)) = self.redial.poll(now) {
            self.dial(now, route, kind);
        }
    }

    fn ping(&mut self, now: Time, node: &mut Node) {
        for slot in PeerSlot::all(self.told.len()) {
            if self.told[slot.index()][Kind::Route.index()].is_some() {
                node.tell_peer(slot, &Frame::Ping);
            }
            self.vouch(slot, node);
            if let Some(key) = self.told[slot.index()][Kind::Raft.index()] {
                Frame::Ping.write(&mut self.conns[key.index()].channel.out);
                self.touch(key);
            }
            for key in self.heard[slot.index()].into_iter().flatten() {
                self.conns[key.index()].channel.pong();
                self.touch(key);
            }
        }
        self.pings += 1;
        // Nodes that an operator started together need some time to connect, so the node logs nothing in that
        // time.
        if self.identity.is_some() && self.pings > 3 {
            self.say_what_is_missing(now);
        }
    }

    /// Logs the reason why the node cannot open its streams yet, or the members to which no route leads, for
    /// the operator.
    fn say_what_is_missing(&mut self, now: Time) {
        let formation = self.roster.formation();
        let line = if let Some(why) = formation.waiting_for() {
            let what = match formation.rejoins() {
                true => "this node does not have its place in the cluster again",
                false => "the cluster is not formed",
            };
            format!("{what}, streams are not served: {why}")
        } else {
            let missed = formation.unrouted().join(", ");
            if missed.is_empty() {
                return;
            }
            format!(
                "no route leads to {missed}, though the cluster was formed with it: give all nodes the same --routes"
            )
        };
        if self.roster.is_news(now, &line) {
            tracing::warn!("{line}");
        }
    }
}
