//! Does the event loop's part in streams: once a turn, carries entries from the streams to the Raft groups,
//! and committed entries back.
//!
//! This module decides only the order. First the loop hands the gathered entries to the log, so that the log
//! thread can begin the next sync. Then the loop applies the entries that the last sync made durable, and
//! answers the clients that wait for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;
use tidegate::boundary::DecisionLog;
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_log::{Disk, Verdict};
use tidegate_raft::store::{
    self, Due, Fetch, Opening, Options, Peeked, Replaying, Store, WriteError, account, relocate,
};
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::stream::{AccountLimits, Place, Streams};
#[cfg(feature = "sim")]
use tidegate_stream::stream::{Bulk, Effect};

use super::clock::{LoopClock, wall_clock_us};
use super::peers::Peers;
use super::recording::Recording;
use super::replication::Replication;
use super::{RunError, Server, StartError};
use crate::config::StreamSettings;
use crate::cost::{Work, spend};
use crate::event_loop::handle::Handle;
use crate::sessions::Node;
use crate::streams::{JetStream, Messages};

/// The interval at which the loop checks whether a full disk has space again, so that it accepts messages
/// again.
const LOOK_FOR_SPACE: Duration = Duration::from_millis(500);

/// The limit on the cost of the streams that the loop copies for a checkpoint in one turn, so that no turn
/// takes long. A stream costs 1, and its consumers and messages add to that ([`Streams::go_on_snapshot`]).
const COPIED_A_TURN: usize = 256;

/// Gives the streams of one group the stored messages of the group, from the store.
struct InStore<'a> {
    /// The slot of the group, by which the store finds the group's messages.
    at: GroupSlot,
    store: &'a Store,
    mends: bool,
    /// The log positions of damaged records with messages that no other node has, so that the streams do not
    /// wait for them.
    lost: &'a BTreeSet<u64>,
}

impl Messages for InStore<'_> {
    fn peek(&self, place: Place) -> Peeked {
        let peeked = self.store.peek(self.at, place);
        match peeked.fetch {
            Fetch::Damaged if is_mended(self.mends, self.lost, place) => Peeked {
                fetch: Fetch::Pending,
                ask: true,
            },
            _ => peeked,
        }
    }
}

/// Returns whether another node may still send the messages of the damaged record at `place`, so that the
/// streams wait for them.
fn is_mended(mends: bool, lost: &BTreeSet<u64>, place: Place) -> bool {
    mends && !lost.contains(&place.lsn)
}

/// The settings of the streams that the loop has not opened yet, and the lock of their data directory, which
/// this process holds in the meantime.
#[derive(Debug)]
pub(super) struct Waiting {
    kept: StreamSettings,
    claim: Disk,
}

impl Waiting {
    /// Locks the data directory for this process, so that no other server uses it until the streams open.
    pub(super) fn claim(kept: StreamSettings) -> Result<Self, StartError> {
        let failed = |source| StartError::Streams {
            directory: kept.directory.clone(),
            source,
        };
        let claim = store::claim(&kept.directory).map_err(failed)?;
        Ok(Self { kept, claim })
    }
}

/// Opens the store in the data directory and gives the node the streams in it, so that it can serve them.
/// `among` holds this node's groups and the other nodes; `None` means that the node is alone.
fn open(
    node: &mut Node,
    now: Time,
    kept: StreamSettings,
    mut among: Option<(&Replication, &mut Peers)>,
    handle: &Handle,
    decisions: Option<&DecisionLog>,
) -> Result<Store, StartError> {
    // The loop reads the wall clock before it opens the streams, because the reading must belong to the
    // moment `now`, and the opening may take long. After a later reading the streams' time would run ahead by
    // that time.
    let wall_us = wall_clock_us();
    let directory = kept.directory.clone();
    let clustered = among.is_some();
    let failed = |source: store::OpenError| {
        let directory = directory.clone();
        match clustered && source.is_damage() {
            true => StartError::Member { directory, source },
            false => StartError::Streams { directory, source },
        }
    };
    let waking = handle.clone();
    let options = Options {
        max_file_store: kept.max_file_bytes,
        segment_bytes: kept.segment_bytes,
        checkpoint_bytes_min: kept.checkpoint_bytes,
        scrub_period: kept.scrub_period,
        scrub_seed: crate::event_loop::identity::seed(),
        anticipation: kept.anticipation && kept.lab.anticipates(),
        decisions: decisions.cloned(),
        lab: kept.lab,
        ..Options::default()
    };
    let options = match &among {
        Some((replication, peers)) => Options {
            begun: peers.log_begun(),
            id: replication.id(),
            groups: replication.groups(),
            rejoined: replication.rejoined(),
            ..options
        },
        None => options,
    };
    let wake: store::Waker = Arc::new(move || waking.wake());
    let mut opening = begin(&kept.directory, options, wake).map_err(failed)?;
    tell_verdict(&opening);
    if let Some((_, peers)) = &mut among {
        let begun = peers.handle_log_begun();
        begun.map_err(|source| StartError::Identity {
            directory: directory.clone(),
            source,
        })?;
    }
    let limits = limits(&kept, clustered);
    let unreadable = |what: String| StartError::State {
        directory: directory.clone(),
        what,
    };
    let mut groups = PerGroup::new();
    for at in opening.slots() {
        let streams = match opening.take_state(at) {
            Some(state) => {
                Streams::restore(&state, limits).map_err(|e| unreadable(e.to_string()))?
            }
            None => Streams::new(limits),
        };
        groups.push((streams, Replaying::default()));
    }
    let store = opening.replay(|at, due, live| {
        let (streams, replaying) = &mut groups[at];
        replaying.take(streams, &due, live);
    });
    let store = store.map_err(failed)?;
    let mut entries = 0;
    for (at, (streams, replaying)) in store.slots().zip(groups) {
        entries += replaying.finish().map_err(|e| {
            unreadable(format!(
                "{e}; use the version that wrote it, or a later one"
            ))
        })?;
        let number = store.group_number(at);
        let seed = crate::event_loop::identity::seed();
        let mut streams = JetStream::new(now, kept.clone(), streams, seed).of_group(number);
        if let Some(log) = decisions {
            streams.log_to(log);
        }
        node.attach_streams(streams);
    }
    let streams = node.all_streams().flat_map(|s| s.applied().iter());
    let streams = streams.filter(|s| s.home().is_here()).count();
    tracing::info!(
        "at this start the server has found {streams} streams in {}, and has applied {entries} entries of the log again to restore their state",
        kept.directory.display()
    );
    node.set_wall_clock(now, wall_us);
    match among {
        Some((replication, _)) => {
            if let Some(directory) = node.directory_mut() {
                directory.set_groups(replication.all_groups());
            }
        }
        None => {
            let alone = ClusterInfo {
                leader: node.info().server_name.clone(),
                ..ClusterInfo::default()
            };
            if let Some(streams) = node.directory_mut() {
                streams.set_cluster(1, alone, None);
            }
            node.handle_leading(GroupSlot::DIRECTORY, now);
        }
    }
    Ok(store)
}

/// Begins to open the store that keeps the streams, in this directory, or on the simulated disks if the loop
/// runs on a simulated machine.
fn begin(
    directory: &Path,
    options: Options,
    wake: store::Waker,
) -> Result<Opening, store::OpenError> {
    #[cfg(feature = "sim")]
    if let Some(opening) = crate::simulated::open_store(&options) {
        return opening;
    }
    Opening::begin(directory, options, wake)
}

/// Converts the operator's settings into the limits that the streams enforce on clients.
fn limits(kept: &StreamSettings, replicated: bool) -> AccountLimits {
    let bound = |n: Option<u64>| n.unwrap_or(u64::MAX);
    AccountLimits {
        streams: bound(kept.max_streams.map(|n| n as u64)),
        file_bytes: bound(kept.max_file_bytes),
        memory_bytes: bound(kept.max_memory_bytes),
        replicated,
    }
}

/// Logs for the operator how the recovery found the end of the log, unless the log ended cleanly.
fn tell_verdict(opening: &Opening) {
    match &opening.recovery().verdict {
        Verdict::Clean => {}
        Verdict::Torn { .. } => {
            tracing::info!(
                "the previous server process ended in the middle of a write: this start has cut off the unfinished end of the log, which held no acknowledged message"
            );
        }
        verdict => tracing::warn!(
            "this start of the server found the end of the log incomplete or damaged, and acknowledged messages may be lost: {verdict}"
        ),
    }
}

impl Server {
    /// Opens the streams once the members of the cluster are fixed, because the groups depend on them, or at
    /// once without a cluster.
    pub(super) fn open_streams(&mut self, now: Time) -> Result<(), StartError> {
        let ready = |_: &mut Waiting| match &self.peers {
            Some(peers) => peers.formed().is_some(),
            None => true,
        };
        let Some(Waiting { kept, claim }) = self.waiting.take_if(ready) else {
            return Ok(());
        };
        let limits = limits(&kept, true);
        let peers = self.peers.as_deref_mut();
        let cluster = self.node.settings().cluster.as_ref();
        let shards = cluster.map_or(1, |c| c.shards);
        let unique = kept.unique_tag.clone().unwrap_or_default();
        let replication = |p: &&mut Peers| Replication::new(p, shards, limits, &unique, now);
        self.replication = peers.as_ref().and_then(replication);
        // The store locks the data directory itself when the node opens it, so the node releases its own lock
        // first.
        drop(claim);
        let (node, among) = (&mut self.node, self.replication.as_ref().zip(peers));
        let decisions = self.recording.as_ref().map(Recording::log);
        self.store = Some(open(node, now, kept, among, &self.handle, decisions)?);
        Ok(())
    }

    /// Begins to hand the leadership of all groups to other nodes, because this node stops.
    pub(super) fn hand_over(&mut self, now: Time) {
        if let Some(replication) = &mut self.replication {
            replication.begin_hand_over(now, &mut self.node);
        }
    }

    /// Does one turn's work for the streams of all groups: proposes and applies entries, serves the streams,
    /// and sends messages to other nodes.
    pub(super) fn turn_streams(&mut self, now: Time) -> Result<(), RunError> {
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        let node = &mut self.node;
        // The loop reads the wall clock first and the monotonic clock second. If the thread pauses between
        // the two, the streams' time then lags behind, and never runs ahead.
        let wall_us = wall_clock_us();
        node.set_wall_clock(self.clock.now(), wall_us);
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.receive(now, store, peers)?;
        }
        self.committing.note_rest(store);
        propose(node, store, &self.clock);
        #[cfg(feature = "sim")]
        if !crate::cures::cures().reclaiming {
            store.reclaim_all();
        }
        store.poll()?;
        #[cfg(feature = "sim")]
        spend(Work::Reclaim, store.take_reclaimed());
        while let Some((at, due)) = store.poll_due_if(|at, entry| node.prepare(at, entry)) {
            match &due {
                Due::Entry(committed) => {
                    spend(Work::Entry, 1);
                    spend(Work::EntryByte, committed.data.len() as u64);
                    let effects = node.handle_committed(at, now, committed)?;
                    #[cfg(feature = "sim")]
                    spend(Work::Remove, removed_together(effects));
                    account(effects, store.live_mut(at));
                }
                Due::Relocated(moved) => {
                    if let Some(streams) = node.streams_mut(at) {
                        relocate(streams.applied_mut(), moved, store.live_mut(at));
                    }
                }
            }
        }
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.take_over(now, node, store, peers);
            replication.look(now, node, store, peers);
        }
        let mends = self.replication.is_some();
        for at in store.slots() {
            let messages = InStore {
                at,
                store: &*store,
                mends,
                lost: &self.lost,
            };
            node.serve_streams(at, now, &messages)?;
        }
        let mut damaged = Vec::new();
        while let Some((at, place)) = node.poll_wanted() {
            let fetched = store.read(at, place);
            if fetched == Fetch::Damaged && is_mended(mends, &self.lost, place) {
                damaged.push((at, place.lsn));
            }
        }
        if let Some(replication) = &mut self.replication {
            for (at, lsn) in damaged {
                if !replication.mend(now, at, node, lsn) {
                    self.lost.insert(lsn);
                }
            }
        }
        self.look_for_damage(now);
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        let node = &mut self.node;
        // In this turn the streams have served consumers and publishers, which may have caused further
        // entries: consumers' states, and messages published into streams. The loop proposes these entries
        // now.
        propose(node, store, &self.clock);
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.send(now, node, store, peers);
        }
        checkpoint(node, store);
        let lacks = store.lacks_space();
        node.set_space(store.space());
        if lacks && self.look_for_space.is_none_or(|at| at <= now) {
            store.ask_for_space();
            self.look_for_space = Some(now + LOOK_FOR_SPACE);
        } else if !lacks {
            self.look_for_space = None;
        }
        Ok(())
    }

    /// Makes the scrub read a part of the log again, and asks other nodes for the messages in damaged ranges.
    fn look_for_damage(&mut self, now: Time) {
        let Some(store) = self.store.as_mut() else {
            return;
        };
        store.scrub(now);
        while let Some(range) = store.poll_damaged() {
            self.damage.handle_found(now, &range);
        }
        if self.damage.deadline() > now {
            return;
        }
        let groups: PerGroup<&Streams> = self.node.all_streams().map(|s| s.applied()).collect();
        let mut others = self.replication.as_mut();
        self.damage.turn(now, &groups, |at, stream, seq| {
            let asked = others.as_mut().map(|o| o.mend_one(now, at, stream, seq));
            asked == Some(true)
        });
    }

    /// Closes the streams: makes the entries in flight durable, and writes a checkpoint of the state so that
    /// the next start is quick.
    pub(super) fn close_streams(&mut self) -> Result<(), RunError> {
        let Some(mut store) = self.store.take() else {
            return Ok(());
        };
        let now = self.clock.now();
        self.node.stop_streams(now);
        propose(&mut self.node, &mut store, &self.clock);
        for (at, streams) in self.node.slots().zip(self.node.all_streams_mut()) {
            if !store.is_checkpointing(at) {
                store.begin_checkpoint(at);
                streams.applied_mut().begin_snapshot();
            }
            if store.awaits_state(at)
                && let Some(whole) = streams.applied_mut().go_on_snapshot(usize::MAX)
            {
                store.checkpoint(at, Box::new(whole.chunks()));
            }
        }
        Ok(store.close()?)
    }
}

/// Returns the number of messages that an entry removed one by one, for the costs of a simulation. The
/// removal of all messages of a stream looks at no message.
#[cfg(feature = "sim")]
fn removed_together(effects: &[Effect]) -> u64 {
    let purged = effects.iter().filter_map(|effect| match effect {
        Effect::Purged { messages, .. } => Some(messages),
        _ => None,
    });
    purged.filter(|m| !m.is_of_all()).map(Bulk::len).sum()
}

/// Proposes the gathered entries of all groups, as far as the groups accept them, so that they reach the log
/// and the other nodes.
fn propose(node: &mut Node, store: &mut Store, clock: &LoopClock) {
    for at in store.slots() {
        propose_in(at, node, store, clock);
    }
}

fn propose_in(at: GroupSlot, node: &mut Node, store: &mut Store, clock: &LoopClock) {
    let mut now = clock.now();
    while store.may_propose(at)
        && let Some((entry, callers)) = node.poll_proposal(at, now)
    {
        spend(Work::Propose, 1);
        let proposed = store.propose(at, entry, callers);
        let end = clock.now();
        let cost_ns = end.since(std::mem::replace(&mut now, end));
        match proposed {
            Ok(proposed) => node.handle_proposed(at, now, proposed, cost_ns),
            // A full queue of the log refuses the entry for now, so the loop proposes the entry again after
            // the next wake-up. If the log has failed, `poll` reports that.
            Err(WriteError::Full | WriteError::Failed(_)) => return,
            Err(WriteError::DiskFull) => {
                node.handle_refused(at, now, &ApiError::STORAGE_EXCEEDED);
            }
            Err(WriteError::TooLarge { .. }) => {
                node.handle_refused(at, now, &ApiError::MESSAGE_TOO_LARGE);
            }
            Err(WriteError::NotLeader) => {
                node.handle_refused(at, now, &ApiError::SYSTEM_UNAVAILABLE);
            }
        }
    }
}

/// Does the store's work on checkpoints that are due: copies streams into them, a part in each turn. Also
/// answers the store's question about the messages that streams still need in a segment.
fn checkpoint(node: &mut Node, store: &mut Store) {
    for (at, streams) in node.slots().zip(node.all_streams_mut()) {
        if store.wants_checkpoint(at) {
            store.begin_checkpoint(at);
            streams.applied_mut().begin_snapshot();
        }
        if store.awaits_state(at)
            && let Some(whole) = streams.applied_mut().go_on_snapshot(COPIED_A_TURN)
        {
            store.checkpoint(at, Box::new(whole.chunks()));
        }
    }
    if let Some(asked) = store.poll_lying()
        && let Some(streams) = node.streams(asked.at)
    {
        let (lying, next) = streams.applied().residents_in(&asked.lsns, asked.from);
        store.handle_lying(lying, next);
    }
}
