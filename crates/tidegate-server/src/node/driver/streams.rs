//! The loop's part in streams: entries to the group and back, once a turn.
//!
//! Decides nothing but the order: first what gathered is handed to the log, so that it can begin the next sync, then what the last
//! sync made durable is applied and answered.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate::{Clock, Time};
use tidegate_log::{Disk, Verdict};

use super::replication::Replication;
use super::{RunError, Server, StartError};
use crate::api::answer::ClusterInfo;
use crate::api::error::ApiError;
use crate::config::StreamSettings;
use crate::node::core::Node;
use crate::node::handle::Handle;
use crate::node::jetstream::{JetStream, Messages};
use crate::store::{
    self, Due, Fetch, Opening, Options, Replaying, Space, Store, WriteError, account, relocate,
};
use crate::stream::{AccountLimits, Place, Streams};

/// How often a full disk is looked at again.
const LOOK_FOR_SPACE: Duration = Duration::from_millis(500);

/// The store as streams read it. What is damaged is as if it were still being read, as long as another node may have it.
struct Reading<'a> {
    store: &'a mut Store,
    mends: bool,
    /// Records that nobody has.
    lost: &'a BTreeSet<u64>,
    damaged: Vec<u64>,
}

impl Messages for Reading<'_> {
    fn read(&mut self, place: Place) -> Fetch {
        match self.store.read(place) {
            Fetch::Damaged if self.mends && !self.lost.contains(&place.lsn) => {
                self.damaged.push(place.lsn);
                Fetch::Pending
            }
            fetch => fetch,
        }
    }
}

/// Streams that are not open yet. The data directory is this process's meanwhile.
#[derive(Debug)]
pub(super) struct Waiting {
    kept: StreamSettings,
    claim: Disk,
}

impl Waiting {
    /// Claims the data directory.
    pub(super) fn claim(kept: StreamSettings) -> Result<Self, StartError> {
        let failed = |source| StartError::Streams {
            directory: kept.directory.clone(),
            source,
        };
        let claim = store::claim(&kept.directory).map_err(failed)?;
        Ok(Self { kept, claim })
    }
}

/// Opens the data directory and gives the node the streams in it. Without `among` this node is alone.
fn open(
    node: &mut Node,
    now: Time,
    kept: StreamSettings,
    among: Option<&Replication>,
    handle: &Handle,
) -> Result<Store, StartError> {
    let directory = kept.directory.clone();
    let failed = |source: store::OpenError| {
        let directory = directory.clone();
        match among.is_some() && source.is_damage() {
            true => StartError::Member { directory, source },
            false => StartError::Streams { directory, source },
        }
    };
    let waking = handle.clone();
    let options = Options {
        max_file_store: kept.max_file_bytes,
        sync_delay: kept.sync_delay,
        segment_bytes: kept.segment_bytes,
        checkpoint_bytes_min: kept.checkpoint_bytes,
        scrub_period: kept.scrub_period,
        scrub_seed: super::super::seed(),
        anticipation: kept.anticipation && kept.raft_step.anticipates(),
        one_at_a_time: kept.raft_step.one_at_a_time(),
        writes_twice: kept.raft_step.writes_twice(),
        ..Options::default()
    };
    let options = match among {
        Some(replication) => Options {
            id: replication.id(),
            voters: replication.voters(),
            rejoined: replication.rejoined(),
            ..options
        },
        None => options,
    };
    let opening = Opening::begin(&kept.directory, options, Arc::new(move || waking.wake()));
    let mut opening = opening.map_err(failed)?;
    tell_verdict(&opening);
    let limits = limits(&kept, among.is_some());
    let unreadable = |what: String| StartError::State {
        directory: directory.clone(),
        what,
    };
    let mut streams = match opening.take_state() {
        Some(state) => Streams::restore(&state, limits).map_err(|e| unreadable(e.to_string()))?,
        None => Streams::new(limits),
    };
    let mut replaying = Replaying::default();
    let store = opening.replay(|due, live| replaying.take(&mut streams, &due, live));
    let store = store.map_err(failed)?;
    let entries = replaying.finish().map_err(|e| unreadable(e.to_string()))?;
    tracing::info!(
        "Streams are kept in {}: {} streams, {} entries replayed",
        kept.directory.display(),
        streams.len(),
        entries
    );
    let mut streams = JetStream::new(now, kept, streams, super::super::seed());
    if among.is_none() {
        let alone = ClusterInfo {
            leader: node.info().server_name.clone(),
            ..ClusterInfo::default()
        };
        streams.set_cluster(1, alone, None);
    }
    node.attach_streams(streams);
    node.set_wall_clock(now, wall_clock_us());
    if among.is_none() {
        node.handle_leading(now);
    }
    Ok(store)
}

/// What the operator allows.
fn limits(kept: &StreamSettings, replicated: bool) -> AccountLimits {
    let bound = |n: Option<u64>| n.unwrap_or(u64::MAX);
    AccountLimits {
        streams: bound(kept.max_streams.map(|n| n as u64)),
        file_bytes: bound(kept.max_file_bytes),
        memory_bytes: bound(kept.max_memory_bytes),
        replicated,
    }
}

/// Says how the end of the log was found, where that is of interest.
fn tell_verdict(opening: &Opening) {
    match &opening.recovery().verdict {
        Verdict::Clean => {}
        Verdict::Torn { .. } => {
            tracing::info!("the log's end was being written when the last process ended: cut off");
        }
        verdict => tracing::warn!("the log's end: {verdict}"),
    }
}

impl Server {
    /// Opens the streams once it is known who keeps them.
    pub(super) fn open_streams(&mut self, now: Time) -> Result<(), StartError> {
        let ready = |_: &mut Waiting| match &self.peers {
            Some(peers) => peers.formed().is_some(),
            None => true,
        };
        let Some(Waiting { kept, claim }) = self.waiting.take_if(ready) else {
            return Ok(());
        };
        let limits = limits(&kept, true);
        let peers = self.peers.as_ref();
        self.replication = peers.and_then(|p| Replication::new(p, limits, now));
        // The store claims the directory for itself.
        drop(claim);
        let (node, among) = (&mut self.node, self.replication.as_ref());
        self.store = Some(open(node, now, kept, among, &self.handle)?);
        Ok(())
    }

    /// Another node is to lead, because this one ends.
    pub(super) fn hand_over(&mut self, now: Time) {
        if let Some(replication) = &mut self.replication {
            replication.begin_hand_over(now, &mut self.node, None);
        }
    }

    /// One turn's work for streams.
    pub(super) fn turn_streams(&mut self, now: Time) -> Result<(), RunError> {
        let Some(store) = self.store.as_mut() else {
            return Ok(());
        };
        let node = &mut self.node;
        node.set_wall_clock(now, wall_clock_us());
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.receive(now, store, peers)?;
        }
        propose(node, store, &self.clock);
        store.poll()?;
        while let Some(due) = store.poll_due() {
            match &due {
                Due::Entry(committed) => {
                    let effects = node.handle_committed(now, committed)?;
                    account(effects, store.live_mut());
                }
                Due::Relocated(moved) => {
                    if let Some(streams) = node.streams_mut() {
                        relocate(streams.applied_mut(), moved, store.live_mut());
                    }
                }
            }
        }
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.take_over(now, node, store, peers);
            replication.look(now, node, store, peers);
        }
        let mut reading = Reading {
            store,
            mends: self.replication.is_some(),
            lost: &self.lost,
            damaged: Vec::new(),
        };
        node.serve_streams(now, &mut reading)?;
        let damaged = reading.damaged;
        if let Some(replication) = &mut self.replication {
            for lsn in damaged {
                if !replication.mend(now, node, lsn) {
                    self.lost.insert(lsn);
                }
            }
        }
        store.scrub(now);
        while let Some(range) = store.poll_damaged() {
            self.damage.handle_found(now, &range);
        }
        if let Some(streams) = node.streams() {
            let mut others = self.replication.as_mut();
            self.damage.turn(now, streams.applied(), |stream, seq| {
                let asked = others.as_mut().map(|o| o.mend_one(now, stream, seq));
                asked == Some(true)
            });
        }
        // What was served may have led to more: what consumers did, messages that went into streams.
        propose(node, store, &self.clock);
        if let (Some(replication), Some(peers)) = (&mut self.replication, &mut self.peers) {
            replication.send(now, store, peers);
        }
        checkpoint(node, store);
        let space = store.space();
        let low = space != Space::Free;
        node.set_space(space);
        if low && self.look_for_space.is_none_or(|at| at <= now) {
            store.ask_for_space();
            self.look_for_space = Some(now + LOOK_FOR_SPACE);
        } else if !low {
            self.look_for_space = None;
        }
        Ok(())
    }

    /// The streams' end: what is in flight becomes durable, and the state is written down so that the next start is quick.
    pub(super) fn close_streams(&mut self) -> Result<(), RunError> {
        let Some(mut store) = self.store.take() else {
            return Ok(());
        };
        let now = self.clock.now();
        self.node.stop_streams(now);
        propose(&mut self.node, &mut store, &self.clock);
        if let Some(streams) = self.node.streams()
            && !store.is_checkpointing()
        {
            let parts = streams.applied().snapshot().chunks();
            store.checkpoint(Box::new(parts));
        }
        Ok(store.close()?)
    }
}

/// Hands what is gathered to the group, as far as it takes it.
fn propose(node: &mut Node, store: &mut Store, clock: &Clock) {
    let mut now = clock.now();
    while store.may_propose()
        && let Some((entry, callers)) = node.poll_proposal(now)
    {
        let proposed = store.propose(entry, callers);
        let end = clock.now();
        let cost_ns = end.since(std::mem::replace(&mut now, end));
        match proposed {
            Ok(proposed) => node.handle_proposed(now, proposed, cost_ns),
            // The next wake-up tries again; a failure is what `poll` tells.
            Err(WriteError::Full | WriteError::Failed(_)) => return,
            Err(WriteError::DiskFull) => {
                node.handle_refused(now, &ApiError::STORAGE_EXCEEDED);
            }
            Err(WriteError::TooLarge { .. }) => {
                node.handle_refused(now, &ApiError::MESSAGE_TOO_LARGE);
            }
            Err(WriteError::NotLeader) => node.handle_refused(now, &ApiError::SYSTEM_UNAVAILABLE),
        }
    }
}

/// Has the state written down when that is due, and answers what segments still hold.
fn checkpoint(node: &mut Node, store: &mut Store) {
    let Some(streams) = node.streams() else {
        return;
    };
    if store.wants_checkpoint() {
        let parts = streams.applied().snapshot().chunks();
        store.checkpoint(Box::new(parts));
    }
    if let Some(asked) = store.poll_lying() {
        let (lying, next) = streams.applied().lying_in(&asked.lsns, asked.from);
        store.handle_lying(lying, next);
    }
}

/// Microseconds since the Unix epoch, as the machine has it.
pub(super) fn wall_clock_us() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX))
}
