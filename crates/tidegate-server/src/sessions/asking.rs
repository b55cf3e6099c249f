//! Routes messages with subjects under `$JS.` (requests to the streams' API, pulls, acknowledgements): at any
//! moment one node has such a message, from its publication to its answer.
//!
//! The node that serves a stream announces the stream's name to its peers, and the leader of the directory
//! announces itself; the nodes announce no other subjects of the API. A node sends a message to the peer that
//! serves the stream in its subject. If the node knows no such peer, or the message concerns all streams, it
//! sends the message to the leader of the directory. The receiving node then answers the message, passes it
//! on to a node that it knows, or refuses it. So each message has one answer, even while some nodes lack an
//! announcement. Clients that subscribe to `$JS.>` also get a copy, as of any other message.

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_cluster::roster::PeerSlot;
use tidegate_cluster::slots::GroupSlot;
use tidegate_cluster::wire::Routed;
use tidegate_nats::parse::Publish;
use tidegate_stream::stream::Home;

use super::Node;
use super::slots::JETSTREAM;
use crate::party::Party;
use crate::streams::context::Way;
use crate::streams::subjects::{About, about, is_flow, is_pull};
use crate::streams::{JetStream, Taken};

/// The slot of the directory's group, to which the node gives messages for streams that no group of this node
/// keeps.
const DIRECTORY: GroupSlot = GroupSlot::DIRECTORY;

impl Node {
    /// Handles a message under `$JS.` that `from` published: gives it to the streams on this node, or hands
    /// it to the node that can handle it. Returns whether a stream took the message or another node gets it,
    /// and the slot of the group for which the publisher must wait if that group is behind: the stream's
    /// group, or the directory's group if the message left the node.
    pub(super) fn ask(
        &mut self,
        now: Time,
        from: Party,
        message: &Publish<'_>,
        way: Way,
    ) -> (GroupSlot, Taken) {
        if self.peers.is_none() {
            return (DIRECTORY, self.ask_slot(DIRECTORY, now, message));
        }
        let (subject, domain) = (message.subject, self.domain());
        let (flows, pulls) = (is_flow(subject, domain), is_pull(subject, domain));
        let name = match about(subject, domain) {
            About::None => return self.publish_into(now, Some(from), message),
            About::Group(group) => return self.ask_group(now, from, group, message, way),
            About::All => return (DIRECTORY, self.ask_directory(now, from, None, message, way)),
            About::Stream(name) => name,
        };
        if let Some(at) = self.open_at(name) {
            return (at, self.ask_slot(at, now, message));
        }
        // The message has passed through a node that does not serve the stream, and that node handed it to
        // this one. So one of the two lacks an announcement. The leader of the directory keeps the message
        // until the nodes have caught up.
        let to = match way.passed > 1 && self.leads_directory() {
            true => None,
            false => self.peer_that_serves(name),
        };
        if to.is_some_and(|to| self.hand(now, Some(from), to, message, way)) {
            return (DIRECTORY, Taken::Yes);
        }
        if !flows {
            let taken = self.ask_directory(now, from, Some(name), message, way);
            return (DIRECTORY, taken);
        }
        match self.follows_at(name) {
            // A follower of the stream's group keeps a pull until the group has a leader again, because the
            // client takes an error for a message.
            Home::Elsewhere { group, .. } => match self.slot_of_group(group) {
                Some(at) if pulls && !self.serves_at(at) => (at, self.ask_slot(at, now, message)),
                _ => {
                    let taken = self.with_streams(now, DIRECTORY, |streams, _| {
                        streams.handle_pull_away(name, message)
                    });
                    (DIRECTORY, taken.unwrap_or(Taken::No))
                }
            },
            _ => {
                // The leader may have withdrawn the stream because the stream is frozen. The pull waits on
                // this node until a node announces the stream again, as pulls do on the leader's node.
                let away = pulls && !self.leads_directory();
                let parked = away
                    && self.with_streams(now, DIRECTORY, |streams, _| {
                        streams.handle_pull_away(name, message)
                    }) == Some(Taken::Yes);
                match parked {
                    true => (DIRECTORY, Taken::Yes),
                    false => (DIRECTORY, self.ask_slot(DIRECTORY, now, message)),
                }
            }
        }
    }

    /// Hands a part of a backup, or the confirmation of a part, to the leader of the group that sends or
    /// receives the backup.
    fn ask_group(
        &mut self,
        now: Time,
        from: Party,
        group: GroupId,
        message: &Publish<'_>,
        way: Way,
    ) -> (GroupSlot, Taken) {
        if let Some(at) = self.slot_of_group(group).filter(|at| self.serves_at(*at)) {
            return (at, self.ask_slot(at, now, message));
        }
        let to = self.peer_that_leads(group);
        let taken = match to.is_some_and(|to| self.hand(now, Some(from), to, message, way)) {
            true => Taken::Yes,
            false => Taken::No,
        };
        (DIRECTORY, taken)
    }

    /// Handles a message under `$JS.` that the peer in this slot handed to this node alone, because the peer
    /// takes this node for the stream's server or the directory's leader.
    pub(super) fn handle_handed(&mut self, now: Time, slot: PeerSlot, routed: &Routed<'_>) {
        let (from, message) = (Party::Peer(slot), &routed.message);
        if !message.subject.starts_with(JETSTREAM) {
            return;
        }
        let way = Way {
            passed: routed.passed,
            asks: routed.asks,
        };
        match self.ask(now, from, message, way) {
            // The publisher's node expected a responder on this node, and this node has none. So this node
            // sends the publisher the status `no responders`.
            (_, Taken::No) if way.asks => self.tell_nobody_is_there(now, message),
            // The requester did not ask for `no responders`. It would take the status for an answer, because
            // without headers the status looks like one.
            (_, Taken::Yes | Taken::No) => {}
            (at, Taken::Full) => self.hold_back(now, from, at),
        }
    }

    /// Returns whether a message that another node sent with this subject goes to all subscribers, so that
    /// each node delivers it, rather than to one node.
    pub(super) fn is_published(&self, subject: &[u8]) -> bool {
        !subject.starts_with(JETSTREAM) || about(subject, self.domain()) == About::None
    }

    pub(super) fn domain(&self) -> Option<&str> {
        // A node that has not opened its streams yet takes the domain from the settings, so that it still
        // passes on messages for streams of other nodes.
        let kept = self.directory().map(JetStream::settings);
        kept.or(self.settings.streams.as_ref())?.domain.as_deref()
    }

    /// Hands a message under `$JS.` to a peer. Returns false if no channel to the peer is open, or if too
    /// many nodes have handed the message on already.
    pub(crate) fn hand(
        &mut self,
        now: Time,
        from: Option<Party>,
        slot: PeerSlot,
        message: &Publish<'_>,
        way: Way,
    ) -> bool {
        let (size, max) = (message.size(), self.settings.max_pending);
        let Some(peers) = self.peers.as_mut().filter(|_| way.goes_on()) else {
            return false;
        };
        let Some(pending) = peers.choose(now, slot, None, size, max) else {
            return false;
        };
        let routed = Routed {
            plain: false,
            groups: &[],
            asks: way.asks,
            handed: true,
            passed: way.passed + 1,
            to: None,
            message: *message,
        };
        let copies = peers.send(routed, false);
        self.stats.routed_out += copies;
        self.gathered.items += copies;
        self.gathered.bytes += copies * size as u64;
        let behind = pending > super::stall_bytes(&self.settings);
        self.settle(now, from, behind.then_some(Party::Peer(slot)));
        true
    }

    /// Hands a message to the leader of the directory: for a message about all streams, or about a stream
    /// that no known node serves.
    fn ask_directory(
        &mut self,
        now: Time,
        from: Party,
        stream: Option<&str>,
        message: &Publish<'_>,
        way: Way,
    ) -> Taken {
        if !self.leads_directory() {
            let to = self.peer_that_leads(ALL);
            if to.is_some_and(|to| self.hand(now, Some(from), to, message, way)) {
                return Taken::Yes;
            }
            return self.ask_slot(DIRECTORY, now, message);
        }
        let away = |name: &&str| matches!(self.follows_at(name), Home::Elsewhere { .. });
        match stream.filter(away) {
            Some(name) => {
                let taken = self.with_streams(now, DIRECTORY, |streams, cx| {
                    streams.handle_request_away(cx, now, name, message, way)
                });
                taken.unwrap_or(Taken::No)
            }
            None => self.ask_slot(DIRECTORY, now, message),
        }
    }

    fn ask_slot(&mut self, at: GroupSlot, now: Time, message: &Publish<'_>) -> Taken {
        let taken = self.with_streams(now, at, |streams, cx| {
            streams.handle_request(cx, now, message)
        });
        taken.unwrap_or(Taken::No)
    }

    /// Finds the slot of the group that serves the stream of this name on this node, so that its streams
    /// handle the message; `None` if this node does not serve the stream.
    fn open_at(&self, name: &str) -> Option<GroupSlot> {
        let directory = self.directory()?;
        let known = directory.applied();
        let entry = known.get(known.by_name(name)?)?;
        let Home::Elsewhere { group, .. } = entry.home() else {
            return directory.serves().then_some(DIRECTORY);
        };
        let open = |s: &JetStream| s.serves() && s.is_open(entry.entry_number());
        let at = self.slot_of_group(group)?;
        self.streams(at).is_some_and(open).then_some(at)
    }

    /// Finds the home group of the stream of this name, to which a request for the stream belongs, by this
    /// node's copy of the directory; the directory's own group for an unknown name.
    fn follows_at(&self, name: &str) -> Home {
        let known = self.directory().map(JetStream::applied);
        let entry = known.and_then(|known| known.get(known.by_name(name)?));
        entry.map_or(Home::Here, |entry| entry.home())
    }

    fn leads_directory(&self) -> bool {
        self.serves_at(DIRECTORY)
    }

    fn serves_at(&self, at: GroupSlot) -> bool {
        self.streams(at).is_some_and(JetStream::serves)
    }
}
