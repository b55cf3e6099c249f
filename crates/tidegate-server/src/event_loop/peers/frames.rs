//! Passes frames of peers to the modules that they concern, and does the node's work when a channel opens.

use bytes::Bytes;
use tidegate::Time;
use tidegate::controller::Load;
use tidegate_cluster::Kind;
use tidegate_cluster::greeting::Introduction;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::members::{Member, Members};
use tidegate_cluster::proof::Side;
use tidegate_cluster::refusal::Refusal;
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::wire::Frame;

use super::ending::Why;
use super::inbox::Received;
use super::{PeerEvent, Peers};
use crate::cost::{Work, spend};
use crate::event_loop::members;
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;

/// The loop's next step after it has handled a frame: to go on with the next frame or to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Next,
    /// The loop stops reading this connection for now, because enough messages have gathered for a write, or
    /// because the node has paused the peer.
    Stop,
}

impl Peers {
    pub(super) fn take_frame(
        &mut self,
        now: Time,
        key: ChannelKey,
        frame: &Frame<'_>,
        node: &mut Node,
        limit: Load,
    ) -> After {
        let Some(slot) = self.conns[key.index()].slot else {
            return After::Next;
        };
        spend(Work::Frame, 1);
        let id = self.roster.peers()[slot.index()].id;
        let received = |group: GroupId, payload: &[u8]| Received {
            from: id,
            group,
            payload: Bytes::copy_from_slice(payload),
        };
        match frame {
            Frame::Interest(told) => {
                if let Err(e) = node.handle_interest(slot, told) {
                    self.end(now, key, node, &Why::Interest(e));
                }
            }
            Frame::InterestMembers { id, members } => {
                node.handle_interest_members(slot, *id, *members);
            }
            Frame::InterestEnd { id } => node.handle_interest_end(slot, *id),
            Frame::Message(message) => {
                let full = node.handle_routed(now, slot, message, limit);
                if full || !node.reads_peer(slot) {
                    return After::Stop;
                }
            }
            Frame::Members(bytes) => match Members::decode(bytes) {
                Some(members) => {
                    self.roster.formation_mut().handle_told(id, members);
                    self.form(node);
                    self.rejoin(now, node);
                }
                None => self.end(now, key, node, &Why::Members),
            },
            Frame::Vouch { term } => {
                self.roster.formation_mut().handle_vouched(id, *term);
                self.rejoin(now, node);
            }
            Frame::Raft { group, payload } => self.raft.push(received(*group, payload)),
            Frame::Fetch { group, payload } => self.fetches.push(received(*group, payload)),
            // No other frame reaches this place, because the channel has already refused all other frames.
            _ => {}
        }
        After::Next
    }

    /// Handles the opening of a channel, after both nodes have completed the greeting: records the peer in
    /// the tables, so that frames pass, and announces this node's subscriptions.
    pub(super) fn open(
        &mut self,
        now: Time,
        key: ChannelKey,
        theirs: &Introduction,
        node: &mut Node,
    ) {
        let conn = &mut self.conns[key.index()];
        let (side, kind, address, route) = (conn.side, theirs.kind(), conn.address, conn.route);
        conn.kind = kind;
        let slot = self.roster.handle_open(side, theirs, address);
        let table = match side {
            Side::Dialer => &mut self.told[slot.index()],
            Side::Dialled => &mut self.heard[slot.index()],
        };
        if let Some(old) = table[kind.index()].take() {
            self.end(now, old, node, &Why::Replaced);
        }
        // The end of the old connection may have made the roster mark the channel as closed, so the roster
        // records the opening again.
        self.roster.handle_open(side, theirs, address);
        let table = match side {
            Side::Dialer => &mut self.told[slot.index()],
            Side::Dialled => &mut self.heard[slot.index()],
        };
        table[kind.index()] = Some(key);
        self.conns[key.index()].slot = Some(slot);
        if let Some(route) = route {
            self.redial.handle_up(route, kind);
            let member = Member {
                name: theirs.name.clone(),
                id: theirs.id,
            };
            self.roster.formation_mut().handle_met(route, member);
        }
        match (side, kind) {
            (Side::Dialer, Kind::Route) => {
                node.handle_peer_up(slot);
                tracing::info!(
                    "this node has reached its peer: the route connection to `{}` at {address} is up",
                    theirs.name
                );
            }
            (Side::Dialer, Kind::Raft) => self.note(PeerEvent::Up(theirs.id)),
            // The node that dialled is reachable, so this node dials its routes at once and does not wait for
            // their time.
            (Side::Dialled, _) => {
                (0..self.routes.len()).for_each(|route| self.redial.hurry(now, route));
            }
        }
        node.set_peer_urls(self.roster.client_urls());
        self.tell_members(node);
        self.vouch(slot, node);
        self.form(node);
    }

    /// Records to which node a failed route leads, if that node's refusal shows it, because the cluster forms
    /// only once the node of each route is known.
    pub(super) fn meet_again(&mut self, route: usize, refusal: Option<&Refusal>, node: &mut Node) {
        let me = self.roster.me();
        let met = match refusal {
            Some(r) if r.is_myself() => {
                self.redial.give_up(route);
                Some((me.name.clone(), me.id))
            }
            Some(Refusal::Twice(name)) => {
                let peer = self.roster.peers().iter().find(|p| p.name == *name);
                peer.map(|p| (p.name.clone(), p.id))
            }
            _ => None,
        };
        if let Some((name, id)) = met {
            let member = Member { name, id };
            self.roster.formation_mut().handle_met(route, member);
            self.tell_members(node);
            self.form(node);
        }
    }

    /// Sends each peer the list of members, as far as this node knows it, so that all nodes agree on the
    /// members.
    fn tell_members(&self, node: &mut Node) {
        if self.identity.is_none() {
            return;
        }
        let Some(members) = self.roster.formation().telling() else {
            return;
        };
        let mut body = Vec::new();
        members.encode(&mut body);
        for slot in PeerSlot::all(self.told.len()) {
            if self.told[slot.index()][Kind::Route.index()].is_some() {
                node.tell_peer(slot, &Frame::Members(&body));
            }
        }
    }

    /// Fixes the members of the cluster in the members' file, if
    /// [`Formation`](tidegate_cluster::formation::Formation) allows that now, so that the groups can begin.
    fn form(&mut self, node: &mut Node) {
        let Some((disk, file)) = &mut self.identity else {
            return;
        };
        let Some(members) = self.roster.formation().due() else {
            return;
        };
        file.members = Some(members.clone());
        if let Err(e) = members::save(disk, file) {
            file.members = None;
            return tracing::error!(
                "this node cannot write its file `members`, and does not form the cluster yet: {e}"
            );
        }
        tracing::info!(
            "all nodes have met for the first time, so the cluster `{}` is formed: {}",
            file.cluster,
            members.names()
        );
        self.roster.formation_mut().handle_formed(members);
        self.tell_members(node);
    }
}
