//! Transfers a group's state from other nodes to this node, and from this node to others: carries requests
//! and answers between [`tidegate_raft::catchup`], the store and the peers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tidegate::Time;
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::catchup::wire::{self, Answer, Frame};
use tidegate_raft::catchup::{Giver, Mender, Own, Read, Source, Taken, Taker};
use tidegate_raft::replica::{EntryId, Index};
use tidegate_raft::store::{Fetch, Fetched, InstallError, Live, Store, read_given};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Filter, Place, Streams};

use super::peers::Peers;
use crate::event_loop::log_limit::LogLimit;
use crate::sessions::Node;

/// The least time between two lookups of the messages in the same damaged record, because a lookup is slow.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The greatest number of answers about this group's state that the node sends to other nodes in one turn, so
/// that no turn takes long.
const ANSWERS_MAX: usize = 4;

/// The transfers of one group's state between this node and others: this node fetches the whole state or
/// single damaged messages from other nodes, and answers other nodes that fetch them.
#[derive(Debug)]
pub(super) struct TakingOver {
    /// The slot of the group, by which the store and the node find the group's state.
    at: GroupSlot,
    giver: Giver,
    mender: Mender,
    /// The damaged records of which the node has looked up the messages, by log position. Each has the time
    /// until which the node does not look them up again, because a lookup is slow.
    damaged: BTreeMap<u64, Time>,
    /// The rate limit of the log line with which the node says that it has repaired a message.
    mended: LogLimit,
    limits: AccountLimits,
    taking: Option<Taking>,
}

#[derive(Debug)]
enum Taking {
    /// This node is fetching the state from another node, because it lacks entries that no log has any more.
    Coming {
        taker: Box<Taker>,
        /// The fetched messages that this node has not appended to its log yet, because the log takes them
        /// only as it has room.
        fetched: Vec<Fetched>,
        /// The number of fetched messages that the log has and that no sync has covered yet; the node counts
        /// them as fetched only then.
        undurable: usize,
    },
    /// The fetched state is complete, and the store writes a checkpoint of it, so that the node keeps it.
    Whole(Box<Whole>),
}

#[derive(Debug)]
struct Whole {
    /// The last log entry of the group that the fetched state contains, after which the node applies entries
    /// again.
    entry: EntryId,
    streams: Streams,
    live: Live,
    /// True from the time at which the store has accepted the state for a checkpoint. The node sets it to
    /// false again if the store could not write that checkpoint.
    handed_over: bool,
}

/// The state of this node from which it answers other nodes that fetch the state.
struct Given<'a> {
    at: GroupSlot,
    store: &'a mut Store,
    streams: &'a Streams,
}

/// This node's own messages, among which a fetch finds those messages of the fetched state that the node need
/// not fetch.
struct Known<'a> {
    at: GroupSlot,
    streams: &'a Streams,
    store: &'a Store,
}

impl Own for Known<'_> {
    fn place(&self, stream: StreamNumber, seq: StreamSeq) -> Option<Place> {
        let known = self.streams.place(stream, seq);
        known.or_else(|| self.store.apart(self.at).place(stream, seq))
    }

    fn next(&self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        let known = self.streams.next(stream, from);
        let apart = self.store.apart(self.at).next(stream, from);
        known.into_iter().chain(apart).min()
    }
}

impl Source for Given<'_> {
    fn state(&mut self, index: Index, offset: u64, len: usize) -> Option<(Index, u64, Vec<u8>)> {
        let part = self.store.read_checkpoint(self.at, index, offset, len)?;
        Some((part.index, part.total, part.bytes))
    }

    fn next(&mut self, stream: StreamNumber, from: StreamSeq) -> Option<StreamSeq> {
        let stream = self.streams.get(stream)?;
        stream.next_at(from, &mut Filter::all())
    }

    fn message(&mut self, stream: StreamNumber, seq: StreamSeq) -> Read {
        let place = self.streams.get(stream).and_then(|s| s.place(seq));
        match place.map(|place| self.store.read_alone(self.at, place)) {
            Some(Fetch::Ready(entry)) => Read::Ready(entry),
            Some(Fetch::Pending) => Read::Pending,
            _ => Read::Gone,
        }
    }
}

impl TakingOver {
    pub(super) fn new(at: GroupSlot, limits: AccountLimits, others: Vec<u64>) -> Self {
        Self {
            at,
            giver: Giver::default(),
            mender: Mender::new(others),
            damaged: BTreeMap::new(),
            mended: LogLimit::default(),
            limits,
            taking: None,
        }
    }

    /// Returns the time at which the node must next work on the transfers, if no message of another node
    /// arrives before.
    pub(super) fn deadline(&self) -> Time {
        match &self.taking {
            _ if !self.giver.is_idle() => Time::ZERO,
            Some(Taking::Coming { taker, fetched, .. }) if fetched.is_empty() => {
                taker.deadline().min(self.mender.deadline())
            }
            _ => self.mender.deadline(),
        }
    }

    /// Does one turn's work of the transfers: asks for missing state, answers other nodes, and puts the
    /// fetched state in place.
    pub(super) fn turn(
        &mut self,
        now: Time,
        node: &mut Node,
        store: &mut Store,
        peers: &mut Peers,
    ) {
        let at = self.at;
        let group = store.group_number(at);
        if let Some(streams) = node.streams(at) {
            let mut given = Given {
                at,
                store,
                streams: streams.applied(),
            };
            for _ in 0..ANSWERS_MAX {
                let Some((to, answer)) = self.giver.poll(&mut given) else {
                    break;
                };
                // A failed send does no harm, because a node that gets no answer asks again.
                let _ = peers.send_fetch(to, group, &answer);
            }
        }
        while let Some((to, ask)) = self.mender.poll(now, store.applied(at).index) {
            let _ = peers.send_fetch(to, group, &ask.encode());
        }
        self.begin_or_end(store);
        self.place(store);
        if let Some(Taking::Coming { taker, fetched, .. }) = &mut self.taking
            && fetched.is_empty()
            && let Some(streams) = node.streams(at)
        {
            let streams = streams.applied();
            let known = Known { at, streams, store };
            if let Some((to, ask)) = taker.poll(now, &known) {
                let _ = peers.send_fetch(to, group, &ask.encode());
            }
        }
        self.finish(now, node, store);
    }

    /// Returns the number of messages of the fetched state that are durable on this node so far, for the
    /// monitor; `None` if this node fetches no state.
    pub(super) fn fetched(&self) -> Option<u64> {
        match &self.taking {
            Some(Taking::Coming { taker, .. }) => Some(taker.placed()),
            _ => None,
        }
    }

    /// Asks other nodes for the messages in the damaged record at log position `lsn`. Returns whether another
    /// node may still send at least one of them, so that the streams wait for it.
    pub(super) fn mend(&mut self, now: Time, streams: &Streams, lsn: u64) -> bool {
        if self.damaged.get(&lsn).is_some_and(|until| *until > now) {
            return true;
        }
        // The node looks up the messages in a record at most once a second, because the lookup is slow.
        self.damaged.retain(|_, until| *until > now);
        self.damaged.insert(lsn, now + LOOK_AGAIN);
        let (mut from, mut comes) = (Some((StreamNumber::NONE, StreamSeq::ZERO)), false);
        while let Some(at) = from {
            let (lying, next) = streams.residents_in(&(lsn..lsn + 1), at);
            for message in lying {
                comes |= self.mender.handle_damaged(now, message.stream, message.seq);
            }
            from = next;
        }
        comes
    }

    /// Asks other nodes for one message that this node cannot read. Returns false if no other node can send
    /// it, because all other members lack it or the group has no other members.
    pub(super) fn mend_one(&mut self, now: Time, stream: StreamNumber, seq: StreamSeq) -> bool {
        self.mender.handle_damaged(now, stream, seq)
    }

    /// Handles a message of another node about this group's state: a request for the state or for messages,
    /// or an answer to a request of this node.
    pub(super) fn receive(&mut self, now: Time, store: &mut Store, from: u64, payload: &Bytes) {
        match wire::decode(payload) {
            Ok(Frame::Ask(ask)) => self
                .giver
                .handle_ask(store.applied(self.at).index, from, ask),
            Ok(Frame::Answer(answer)) => self.take_answer(now, store, from, answer),
            Err(error) => tracing::warn!(
                "this node ignores a catch-up message from another node, because it cannot decode the message: {error}"
            ),
        }
    }

    fn take_answer(&mut self, now: Time, store: &mut Store, from: u64, answer: Answer) {
        if let Some((stream, seq, entry)) = self.mender.handle_answer(now, from, &answer) {
            let message = Fetched { stream, seq, entry };
            // If the log has no room, this node drops the message. The message stays on the list of damaged
            // messages, so this node asks for it again later.
            if store.append_repaired(self.at, &[message]).is_ok() {
                if let Some(more) = self.mended.due(now) {
                    tracing::warn!(
                        "message {seq} of the stream with number {stream} was damaged in this node's log, and this node has fetched the message again from another node{more}"
                    );
                }
                self.mender.handle_mended(stream, seq);
            }
            return;
        }
        let Some(Taking::Coming { taker, fetched, .. }) = &mut self.taking else {
            return;
        };
        match taker.handle_answer(answer) {
            Taken::Nothing => {}
            Taken::State(bytes) => match read_given(&bytes, self.limits) {
                Ok((entry, streams)) => taker.handle_state(entry, streams),
                Err(error) => {
                    tracing::error!(
                        "this node cannot use the state that another node has sent, and asks again: {error}"
                    );
                    taker.handle_refused(now);
                }
            },
            Taken::Messages(stream, messages) => {
                let all = messages
                    .into_iter()
                    .map(|(seq, entry)| Fetched { stream, seq, entry });
                fetched.extend(all);
            }
        }
    }

    fn begin_or_end(&mut self, store: &mut Store) {
        match (store.poll_catch_up(self.at), &mut self.taking) {
            (Some(wanted), None) if store.begin_catch_up(self.at) => {
                tracing::info!(
                    "the logs of the other nodes begin after this node's last entry: this node fetches the state as of entry {} or later from another node",
                    wanted.index
                );
                self.taking = Some(Taking::Coming {
                    taker: Box::new(Taker::new(wanted.from)),
                    fetched: Vec::new(),
                    undurable: 0,
                });
            }
            (Some(wanted), Some(Taking::Coming { taker, .. })) => taker.ask(wanted.from),
            // The store no longer needs the state, for example because the leader has sent the missing
            // entries after all. This node gives the fetch up, even before it has begun.
            (None, None | Some(Taking::Coming { .. })) => {
                store.abandon_catch_up(self.at);
                self.taking = None;
            }
            _ => {}
        }
    }

    /// Appends the fetched messages to the log, and records the log places of the durable ones, from which
    /// the streams later read them.
    fn place(&mut self, store: &mut Store) {
        let Some(Taking::Coming {
            taker,
            fetched,
            undurable,
        }) = &mut self.taking
        else {
            return;
        };
        // If the log has no room, the messages wait here, and this node requests no further messages, to
        // bound its memory.
        while !fetched.is_empty() {
            let count = store.fetched_at_once(fetched);
            if store.append_fetched(self.at, &fetched[..count]).is_err() {
                break;
            }
            *undurable += count;
            fetched.drain(..count);
        }
        while let Some(placed) = store.poll_fetched(self.at) {
            taker.handle_placed(placed.stream, placed.seq, placed.place);
            *undurable = undurable.saturating_sub(1);
        }
    }

    fn finish(&mut self, now: Time, node: &mut Node, store: &mut Store) {
        self.taking = match self.taking.take() {
            Some(Taking::Coming {
                taker,
                fetched,
                undurable: 0,
            }) if taker.is_done() && fetched.is_empty() => whole(*taker, store),
            other => other,
        };
        let Some(Taking::Whole(whole)) = &mut self.taking else {
            return;
        };
        if !whole.handed_over {
            let parts = Box::new(whole.streams.snapshot().chunks());
            match store.install(self.at, whole.entry, whole.live.clone(), parts) {
                Ok(()) => whole.handed_over = true,
                Err(InstallError::Busy) => {}
                Err(_) => {
                    store.abandon_catch_up(self.at);
                    self.taking = None;
                }
            }
        } else if store.poll_installed(self.at).is_some() {
            if let Some(Taking::Whole(whole)) = self.taking.take()
                && let Some(streams) = node.streams_mut(self.at)
            {
                tracing::info!(
                    "to catch up, this node took over the state as of entry {} from another node, and now applies the later entries",
                    whole.entry.index
                );
                streams.replace(now, whole.entry.index.get(), whole.streams);
            }
        } else if !store.is_installing(self.at) {
            // The store could not write the checkpoint of the fetched state, so this node offers the store
            // the state again.
            whole.handed_over = false;
        }
    }
}

/// Builds the complete state from a finished fetch, with the places of its messages in this node's log, so
/// that the node can serve it.
fn whole(taker: Taker, store: &Store) -> Option<Taking> {
    let (entry, streams, fetched) = taker.into_state()?;
    let index = entry.index;
    tracing::info!(
        "this node, which lacked old entries, has fetched the state as of entry {index}, and {fetched} messages, from another node"
    );
    let mut live = store.fresh_live();
    let mut all = Filter::all();
    for stream in streams.iter().filter(|s| !s.in_memory()) {
        let mut seq = StreamSeq::ZERO;
        while let Some(next) = stream.next_at(seq, &mut all) {
            seq = next.next();
            if let Some(message) = stream.message(next)
                && message.place != Place::default()
            {
                live.stored(message.place, message.bytes);
            }
        }
    }
    Some(Taking::Whole(Box::new(Whole {
        entry,
        streams,
        live,
        handed_over: false,
    })))
}
