//! What is read from peers: bytes into frames, frames to whom they concern.

use std::io::ErrorKind;

use bytes::Bytes;
use tidegate::Time;
use tidegate::controller::Load;

use super::ending::Why;
use super::{PeerEvent, Peers, Received};
use crate::cluster::Kind;
use crate::cluster::channel::Step;
use crate::cluster::greeting::Introduction;
use crate::cluster::members::{Member, Members};
use crate::cluster::proof::Side;
use crate::cluster::refusal::Refusal;
use crate::cluster::wire::Frame;
use crate::node::core::Node;
use crate::node::driver::{READ_BYTES, members};

/// Reads for one large frame at a time: a MiB.
const GATHERS_MAX: usize = 16;

/// Whether a frame was the last for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Next,
    /// Enough is gathered, or the channel is not to be read on for now.
    Stop,
}

impl Peers {
    /// The connections to be read in this turn.
    pub(in crate::node::driver) fn take_ready(&mut self) -> Vec<usize> {
        let ready = std::mem::take(&mut self.ready);
        for key in &ready {
            self.conns[*key].listed = false;
        }
        ready
    }

    /// Reads a connection once. Whether enough is gathered: write, then call it again.
    pub(in crate::node::driver) fn read(
        &mut self,
        now: Time,
        key: usize,
        node: &mut Node,
        scratch: &mut [u8],
        limit: Load,
    ) -> bool {
        if self.waits(key, node) {
            return false;
        }
        let Some(conn) = self.conns.get_mut(key) else {
            return false;
        };
        let kept = std::mem::take(&mut conn.input);
        // What was kept because enough was gathered comes first.
        if !kept.is_empty() && kept.len() >= conn.need {
            return self.consume(now, key, &kept, node, limit);
        }
        if conn.need > scratch.len() {
            return self.gather(now, key, kept, node, scratch, limit);
        }
        let start = kept.len();
        scratch[..start].copy_from_slice(&kept);
        match self.read_some(now, key, node, &mut scratch[start..]) {
            Some(0) => {
                self.conns[key].input = kept;
                false
            }
            Some(got) => self.consume(now, key, &scratch[..start + got], node, limit),
            None => false,
        }
    }

    /// Adds to a frame larger than a read.
    fn gather(
        &mut self,
        now: Time,
        key: usize,
        mut kept: Vec<u8>,
        node: &mut Node,
        scratch: &mut [u8],
        limit: Load,
    ) -> bool {
        let need = self.conns[key].need;
        // Several reads, since nothing comes of it before it is whole; not more, since others wait.
        for _ in 0..GATHERS_MAX {
            let Some(got) = self.read_some(now, key, node, scratch) else {
                return false;
            };
            if kept.capacity() < need {
                // Doubling up to what is needed: who announces much has to send it.
                let more = (2 * kept.len()).max(READ_BYTES);
                kept.reserve(more.min(need + READ_BYTES - kept.len()));
            }
            kept.extend_from_slice(&scratch[..got]);
            if kept.len() >= need {
                return self.consume(now, key, &kept, node, limit);
            }
            if got < scratch.len() {
                break;
            }
        }
        self.conns[key].input = kept;
        self.list(key);
        false
    }

    /// One read: how much came, 0 if there was nothing; `None` if that was the connection's end.
    fn read_some(
        &mut self,
        now: Time,
        key: usize,
        node: &mut Node,
        into: &mut [u8],
    ) -> Option<usize> {
        let conn = self.conns.get_mut(key)?;
        let why = match conn.socket.read(into) {
            Ok(0) => Why::Closed,
            Ok(got) => {
                conn.readable &= got == into.len() || conn.ended;
                conn.channel.handle_activity(now);
                return Some(got);
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                conn.readable = false;
                return Some(0);
            }
            Err(e) => Why::Io(e),
        };
        self.end(now, key, node, &why);
        None
    }

    /// Whether the connection is not to be read now.
    fn waits(&mut self, key: usize, node: &Node) -> bool {
        let Some(conn) = self.conns.get(key).filter(|c| !c.connecting) else {
            return true;
        };
        match (conn.slot, conn.side, conn.kind) {
            (Some(slot), Side::Dialled, Kind::Route) => !node.reads_peer(slot),
            (Some(_), Side::Dialled, Kind::Raft) => {
                let full = self.raft.is_full() || self.fetches.is_full();
                self.raft.held_back |= full;
                full
            }
            _ => false,
        }
    }

    fn consume(
        &mut self,
        now: Time,
        key: usize,
        bytes: &[u8],
        node: &mut Node,
        limit: Load,
    ) -> bool {
        let (mut used, mut full) = (0, false);
        let mut need = 0;
        while let Some(conn) = self.conns.get_mut(key) {
            let (step, n) = match conn.channel.next(now, &bytes[used..], &self.roster) {
                Ok(next) => next,
                Err(e) => {
                    self.end(now, key, node, &Why::Channel(e));
                    return false;
                }
            };
            used += n;
            match step {
                Step::Need(n) => {
                    need = n;
                    break;
                }
                Step::Done => {}
                Step::Open(theirs) => self.open(now, key, &theirs, node),
                Step::Frame(frame) => {
                    if self.take_frame(now, key, &frame, node, limit) == After::Stop {
                        let slot = self.conns.get(key).and_then(|c| c.slot);
                        full = slot.is_some_and(|slot| node.reads_peer(slot));
                        break;
                    }
                }
            }
        }
        if let Some(conn) = self.conns.get_mut(key) {
            conn.need = need;
            conn.input.clear();
            conn.input.extend_from_slice(&bytes[used..]);
            if conn.input.is_empty() && conn.input.capacity() > READ_BYTES {
                conn.input = Vec::new();
            }
            full &= !conn.input.is_empty();
            self.touch(key);
            if !full {
                self.list(key);
            }
        }
        full
    }

    fn take_frame(
        &mut self,
        now: Time,
        key: usize,
        frame: &Frame<'_>,
        node: &mut Node,
        limit: Load,
    ) -> After {
        let Some(slot) = self.conns[key].slot else {
            return After::Next;
        };
        let id = self.roster.peers()[slot].id;
        let received = |group: u32, payload: &[u8]| Received {
            from: id,
            group,
            payload: Bytes::copy_from_slice(payload),
        };
        match frame {
            Frame::Interest { id, pattern, queue } => {
                if let Err(e) = node.handle_interest(slot, *id, pattern, *queue) {
                    self.end(now, key, node, &Why::Interest(e));
                }
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
                }
                None => self.end(now, key, node, &Why::Members),
            },
            Frame::Raft { group, payload } => self.raft.push(received(*group, payload)),
            Frame::Fetch { group, payload } => self.fetches.push(received(*group, payload)),
            // The channel lets nothing else through.
            _ => {}
        }
        After::Next
    }

    /// A channel is open.
    fn open(&mut self, now: Time, key: usize, theirs: &Introduction, node: &mut Node) {
        let conn = &mut self.conns[key];
        let (side, kind, address, route) = (conn.side, theirs.kind(), conn.address, conn.route);
        conn.kind = kind;
        let opened = self.roster.handle_open(side, theirs, address);
        let slot = opened.slot;
        if opened.restarted {
            // Whatever is still here of the process before is dead.
            let all = self.told[slot].into_iter().chain(self.heard[slot]);
            for old in all.flatten().collect::<Vec<_>>() {
                self.end(now, old, node, &Why::Restarted);
            }
        }
        let table = match side {
            Side::Dialer => &mut self.told[slot],
            Side::Dialled => &mut self.heard[slot],
        };
        if let Some(old) = table[kind.index()].take() {
            self.end(now, old, node, &Why::Restarted);
        }
        // What ended may have ended the peer's part in this.
        self.roster.handle_open(side, theirs, address);
        let table = match side {
            Side::Dialer => &mut self.told[slot],
            Side::Dialled => &mut self.heard[slot],
        };
        table[kind.index()] = Some(key);
        self.conns[key].slot = Some(slot);
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
                tracing::info!("the route to `{}` at {address} is up", theirs.name);
            }
            (Side::Dialer, Kind::Raft) => self.note(PeerEvent::Up(theirs.id)),
            // Whoever dials is there: no need to wait before dialling back.
            (Side::Dialled, _) => {
                (0..self.routes.len()).for_each(|route| self.redial.hurry(now, route));
            }
        }
        node.set_peer_urls(self.roster.client_urls());
        self.tell_members(node);
        self.form(node);
    }

    /// A route that came to nothing may still have told where it leads.
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

    /// Tells every peer who the members are, as far as that is known here.
    fn tell_members(&self, node: &mut Node) {
        if self.identity.is_none() {
            return;
        }
        let Some(members) = self.roster.formation().telling() else {
            return;
        };
        let mut body = Vec::new();
        members.encode(&mut body);
        for slot in 0..self.told.len() {
            if self.told[slot][Kind::Route.index()].is_some() {
                node.tell_peer(slot, &Frame::Members(&body));
            }
        }
    }

    /// Fixes the members, if this is the moment.
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
                "the members of the cluster cannot be written down: {e}; it is not formed"
            );
        }
        tracing::info!(
            "the cluster `{}` is formed: {}",
            file.cluster,
            members.names()
        );
        self.roster.formation_mut().handle_formed(members);
        self.tell_members(node);
    }
}
