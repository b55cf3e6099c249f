//! Who serves the streams: the leader of the group, and nobody else.
//!
//! A node that follows applies the same entries and says nothing. What clients ask of it is handed to the
//! leader, because the leader lets the others know that it leads and which streams it serves (`interest`).
//! Whoever becomes leader serves once it has applied everything committed before; whoever stops being it
//! forgets what only a leader knows.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate::Time;

use super::told::{subject_of_group, subject_of_stream};
use super::unled::Unled;
use super::{Ending, JetStream};
use crate::api::answer::ClusterInfo;
use crate::api::error::ApiError;
use crate::cluster::groups::ALL;
use crate::ingest::{Atomic, AtomicLimits, Fast, FastLimits};
use crate::node::core::Node;
use crate::stream::{Effect, Outcome, Streams};

use super::outcome::Then;

/// How long after a node was heard to serve others may not have heard it yet.
const SETTLING: Duration = Duration::from_millis(50);
/// Pulls that wait for somebody to lead, at most.
const PARKED_MAX: usize = 4096;
/// Streams with changes that other nodes are yet to hear of.
const CHANGED_MAX: usize = 4096;
/// What ends a pull that another node is to be asked for.
const LED_ELSEWHERE: &[u8] = b"NATS/1.0 409 Leadership Change\r\n\r\n";
/// How long who was told that a consumer is lost has to ask for another through this node, if it ends: a few
/// round trips.
const ASKING: Duration = Duration::from_millis(100);

impl JetStream {
    /// Returns whether this node serves.
    #[must_use]
    pub const fn serves(&self) -> bool {
        self.serves
    }

    /// Which nodes keep the streams, how many there are, and why this one is behind, if it is.
    pub fn set_cluster(&mut self, nodes: usize, cluster: ClusterInfo, behind: Option<String>) {
        self.nodes = nodes;
        self.cluster = cluster;
        self.behind = behind;
    }

    /// How many nodes keep the streams.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Why this node does not have what the others have, if it has not.
    #[must_use]
    pub fn behind(&self) -> Option<&str> {
        self.behind.as_deref()
    }

    /// Which nodes keep the streams.
    #[must_use]
    pub const fn cluster(&self) -> &ClusterInfo {
        &self.cluster
    }

    /// What other nodes are to send here; empty unless this node serves.
    #[must_use]
    pub fn interest(&self) -> Vec<Box<[u8]>> {
        let reasons = self.reasons();
        let of = reasons
            .into_iter()
            .map(|(stream, _)| self.interest_for(stream));
        of.flatten().collect()
    }

    /// What other nodes are to send something here for: streams by number, and 0, the group itself; each with
    /// a number that is another once what they are to send is. None unless this node serves.
    pub(in crate::node) fn reasons(&self) -> Vec<(u32, u64)> {
        if !self.serves || self.parting.is_some() {
            return Vec::new();
        }
        let mut all = vec![(0, 0)];
        let heard = self.streams.iter().filter(|s| self.is_open_here(s));
        all.extend(heard.map(|s| (s.id(), s.changed())));
        all
    }

    /// The number [`JetStream::reasons`] has for this stream.
    pub(in crate::node) fn reason_of(&self, stream: u32) -> Option<u64> {
        let speaks = self.serves && self.parting.is_none();
        let stream = self.streams.get(stream).filter(|_| speaks)?;
        self.is_open_here(stream).then(|| stream.changed())
    }

    /// What they are to send for one of these.
    pub(in crate::node) fn interest_for(&self, stream: u32) -> Vec<Box<[u8]>> {
        let mut all = Vec::new();
        match self.streams.get(stream) {
            None => all.push(subject_of_group(self.group)),
            Some(of) => {
                all.extend(of.config().subjects.iter().cloned());
                all.push(subject_of_stream(of.name()));
            }
        }
        all.into_iter().map(|s| s.into_bytes().into()).collect()
    }

    /// Returns whether another node is known to lead the group.
    fn is_led_elsewhere(&self, node: &mut Node) -> bool {
        node.is_led_by_peer(self.group)
    }

    /// Of which streams what other nodes are to send may have changed since this was last asked.
    pub(in crate::node) fn take_interest_changed(&mut self) -> InterestChanged {
        let streams = std::mem::take(&mut self.interest_changed_of);
        match std::mem::take(&mut self.interest_changed) {
            true => InterestChanged::All,
            false => InterestChanged::Of(streams),
        }
    }

    /// What somebody asked for who wants another leader, once.
    pub(in crate::node) const fn take_step_down(&mut self) -> Option<StepDown> {
        self.step_down.take()
    }

    /// What consumers did since their last deltas is proposed, so that the next leader knows it.
    pub(in crate::node) fn flush_consumers(&mut self, now: Time) {
        if self.is_full() || !self.postponed.is_empty() {
            return;
        }
        for key in self.consumers.keys() {
            self.propose_delta(now, key);
        }
    }

    /// These are the streams from now on, taken over from another node as of the entry of this index. Not
    /// while this one serves.
    pub fn replace(&mut self, now: Time, index: u64, streams: Streams) {
        debug_assert!(!self.serves, "who leads has everything");
        self.directory.applied = index;
        let before = std::mem::replace(&mut self.streams, streams);
        self.streams.follow(&before);
        self.pub_acks.clear();
        self.wall.not_before(now, self.streams.now_us());
    }

    /// This node is going to end. What it keeps alone goes with it: nothing more is to be sent here.
    pub(in crate::node) fn handle_parting(&mut self, now: Time) {
        if self.group != ALL && self.nodes <= 1 {
            self.parting.get_or_insert(now);
            self.interest_changed = true;
        }
    }

    /// Everything committed is applied: from now on this node decides, and serves consumers.
    pub(in crate::node) fn handle_leading(&mut self, now: Time) {
        if std::mem::replace(&mut self.serves, true) {
            return;
        }
        self.interest_changed = true;
        self.wall.not_before(now, self.streams.now_us());
        let known: Vec<u32> = self.streams.iter().map(|s| s.id()).collect();
        for stream in known {
            self.take_up_all(now, stream);
        }
    }

    /// Another node decides from now on, or nobody does. What was not proposed is refused; what was proposed
    /// may yet be committed, and is answered then, if it is.
    pub(in crate::node) fn handle_following(&mut self, node: &mut Node, now: Time) {
        if !std::mem::replace(&mut self.serves, false) {
            return;
        }
        self.interest_changed = true;
        self.close_admissions(node, now);
        self.close_keeping(node, now);
        self.close_directory(node, now);
        self.moves.close();
        self.unled = Unled::default();
        self.postponed.clear();
        self.seal(now);
        while let Some(mut sealed) = self.sealed.pop_front() {
            self.sealed_bytes -= sealed.entry.len();
            self.refuse_all(
                node,
                now,
                sealed.waiters.drain(),
                &ApiError::SYSTEM_UNAVAILABLE,
            );
            self.durable.recycle(sealed.waiters);
        }
        for key in self.consumers.keys() {
            self.orphans.extend(self.consumers.remove(key));
        }
        self.consumers.rest();
        self.atomic = new_atomic();
        self.fast = Fast::new(FastLimits::default());
        self.batches = super::batches::Pending::default();
        self.expiring = false;
        self.again = None;
        self.next_expiry = None;
    }

    /// Who pulled, and who listens to a consumer that the log did not know and that is gone with the lead, is
    /// told when there is a node to be asked instead: sooner, it would ask in vain, and then only when it
    /// misses heartbeats.
    pub(super) fn tell_orphans(&mut self, node: &mut Node, now: Time) {
        let nobody = self.orphans.is_empty() && self.parked.is_empty();
        if nobody || !(self.serves || self.is_led_elsewhere(node)) {
            self.settles = None;
            return;
        }
        if *self.settles.get_or_insert(now + SETTLING) > now {
            return;
        }
        for mut orphan in std::mem::take(&mut self.orphans) {
            let ending = match orphan.logged {
                true => Ending::LeadershipChange,
                false => Ending::Lost,
            };
            let mut voice = self.voice(node, now);
            orphan.consumer.handle_end(ending, &mut voice);
        }
        for reply in std::mem::take(&mut self.parked) {
            self.voice(node, now).status_to(&reply, LED_ELSEWHERE);
        }
        self.orphans_told = Some(now);
    }

    /// Somebody pulls while nobody leads: it is told when somebody does. Whether there is room to keep that
    /// in mind.
    pub(super) fn park(&mut self, reply: &[u8]) -> bool {
        let room = self.parked.len() < PARKED_MAX;
        if room {
            self.parked.push(reply.into());
        }
        room
    }

    /// Returns whether nothing of a lead is left: another node has it, and who has to ask there for another
    /// consumer had time to.
    #[must_use]
    pub fn has_handed_over(&self, now: Time) -> bool {
        let asked = self.orphans_told.is_none_or(|at| at + ASKING <= now);
        let gone = !self.serves && self.orphans.is_empty() && self.parked.is_empty() && asked;
        // What one node keeps alone has nowhere to go: others know that it is away soon, and what they had
        // sent by then is here.
        gone || self.parting.is_some_and(|at| at + ASKING <= now)
    }

    fn refuse_all<'a>(
        &mut self,
        node: &mut Node,
        now: Time,
        waiters: impl Iterator<Item = (usize, &'a [u8], Then)>,
        error: &ApiError,
    ) {
        for (_, reply, then) in waiters {
            let outcome = Outcome::Refused {
                stream: 0,
                error: error.clone(),
            };
            self.tell(node, now, reply, then, &outcome);
        }
    }

    /// Notes what an entry means for what other nodes are to send.
    pub(super) fn note_interest(&mut self, effects: &[Effect]) {
        if !self.serves {
            return;
        }
        let changed = effects.iter().filter_map(|effect| match effect {
            Effect::StreamCreated { stream }
            | Effect::StreamUpdated { stream }
            | Effect::StreamDeleted { stream, .. }
            | Effect::StreamFrozen { stream }
            | Effect::StreamThawed { stream }
            | Effect::StreamStays { stream }
            | Effect::StreamFilled { stream }
            | Effect::StreamMoved { stream } => Some(*stream),
            _ => None,
        });
        self.interest_changed_of.extend(changed);
        if self.interest_changed_of.len() > CHANGED_MAX {
            // No node has asked for long: a look at all costs no more.
            self.interest_changed = true;
            self.interest_changed_of.clear();
        }
    }

    /// Whether so many copies can be kept.
    pub(super) fn check_replicas(&self, replicas: i64) -> Result<(), ApiError> {
        match usize::try_from(replicas) {
            Ok(wanted) if wanted <= self.nodes.max(1) => Ok(()),
            _ if self.nodes <= 1 => Err(ApiError::REPLICAS_NOT_SUPPORTED),
            _ => Err(ApiError::no_peers(format_args!(
                "no suitable peers for placement, insufficient replicas: {replicas} asked for, {} nodes",
                self.nodes
            ))),
        }
    }
}

/// Of which streams what other nodes are to send may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) enum InterestChanged {
    /// Any of them, or the group itself.
    All,
    /// Those with these numbers.
    Of(BTreeSet<u32>),
}

/// Another node is to lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node) struct StepDown {
    /// Which; any if `None`.
    pub(in crate::node) preferred: Option<String>,
}

/// Atomic batches, none begun.
pub(super) fn new_atomic() -> Atomic {
    Atomic::new(AtomicLimits {
        batch_bytes_max: super::BATCH_BYTES_MAX,
        ..AtomicLimits::default()
    })
}

#[cfg(test)]
mod tests;
