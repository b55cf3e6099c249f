//! Keeps the consumers that this node serves: finds a consumer by name, wakes the consumer for messages,
//! pulls and timers, and gives it access to its stream and to the connections of clients.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate::Time;
use tidegate_nats::subject::{contains, tokens};
use tidegate_raft::store::Space;
use tidegate_stream::consumer::{Consumer, Ending, Identity, Progress, Record, State};
use tidegate_stream::schema::config::Retention;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    Command, Effect, HOLDER_PREFIX, Kind, SharedConfig, Transit, consumer_filter,
};

use super::Key;
use super::asleep::may_sleep;
use super::interest::{Interest, same_filters};
use super::live::{Live, Seen, Unread};
use super::preparing::SUBJECTS_A_TURN;
use super::resets::Resets;
use super::unlogged::lasts_us;
use crate::cost::{Work, spend};
use crate::cures::{cures, part};
use crate::streams::context::Context;
use crate::streams::events::Advised;
use crate::streams::outcome::Then;
use crate::streams::reads::Held;
use crate::streams::{JetStream, Messages, Voice};

/// The limit on the number of messages that one consumer delivers in a turn, so that the other consumers also
/// get their turn.
const BUDGET: usize = 1024;
/// The limit on the number of messages that all consumers of a group together deliver in a turn, so that no
/// turn takes long. A consumer that the node serves counts as one more.
const STEPS_A_TURN: usize = if cfg!(test) { 40 } else { 2 * BUDGET };
/// The limit on the number of consumers with timers that a turn handles, so that a hundred thousand timers at
/// one moment do not make it long.
const TIMERS_A_TURN: usize = if cfg!(test) { 8 } else { 1024 };

/// Keeps the consumers of one group's streams that this node serves, with the indexes by which the node finds
/// them.
#[derive(Default)]
pub(crate) struct Consumers {
    live: HashMap<Key, Box<Live>, RandomState>,
    names: HashMap<StreamNumber, BTreeMap<Box<str>, Key>, RandomState>,
    /// For each stream, an index by which the node finds the consumers that want a stored message.
    interests: HashMap<StreamNumber, Interest, RandomState>,
    /// The keys of the push consumers by deliver subject, so that a new subscription there wakes them.
    pushed: BTreeMap<Box<[u8]>, Vec<Key>>,
    /// The reply subjects of waiting pulls to which no client listens at present, each with the key of the
    /// consumer that keeps the pull. A new subscription there wakes the consumer.
    away: BTreeSet<(Box<[u8]>, Key)>,
    /// The consumers that have work, so that the node must serve them in this turn or the next one.
    due: Vec<Key>,
    /// The consumers that the node has still to serve, in this turn or, if the turn has done its share, first
    /// of all in the next one.
    serving: VecDeque<Key>,
    /// The consumers that the node must serve in a later turn, after the store has read a message or a
    /// connection has written bytes.
    waiting: Vec<Key>,
    /// The times at which the node must serve consumers again. A consumer has at most one time here, the time
    /// in its field `armed`.
    timers: BTreeSet<(Time, Key)>,
    next: Key,
    /// For each stream, the number of its consumers that the log does not keep, to which API answers add the
    /// others; a stream without an entry has none.
    unlogged: HashMap<StreamNumber, usize, RandomState>,
    /// The consumers that must learn that the stream removed a message. Each removal reuses the buffer, to
    /// save allocations.
    concerned: Vec<Key>,
    /// The number of subjects that consumers may still look at in this turn to find their first messages. The
    /// bound keeps turns short.
    subjects_left: usize,
    /// The number of messages that consumers may still deliver in this turn, see [`STEPS_A_TURN`].
    steps_left: usize,
}

impl Consumers {
    /// Returns the number of consumers of this stream that only this node knows, because the log does not
    /// keep them.
    pub(crate) fn unlogged_of(&self, stream: StreamNumber) -> usize {
        self.unlogged.get(&stream).copied().unwrap_or(0)
    }

    /// Returns the number of consumers that only this node knows, because the log does not keep them.
    pub(crate) fn unlogged(&self) -> usize {
        self.unlogged.values().sum()
    }

    /// Records that the log keeps the consumer from now on, so that the node counts it only once.
    pub(crate) fn note_logged(&mut self, key: Key) {
        if let Some(live) = self.live.get_mut(&key)
            && !std::mem::replace(&mut live.logged, true)
        {
            let stream = live.stream;
            self.count_unlogged(stream, false);
        }
    }

    fn count_unlogged(&mut self, stream: StreamNumber, more: bool) {
        let count = self.unlogged.entry(stream).or_default();
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.unlogged.remove(&stream);
        }
    }

    pub(crate) fn find(&self, stream: StreamNumber, name: &str) -> Option<Key> {
        self.names.get(&stream)?.get(name).copied()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Live> {
        self.live.get(&key).map(|live| &**live)
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Live> {
        self.live.get_mut(&key).map(|live| &mut **live)
    }

    /// Returns whether the leader has proposed to delete the consumer because no client used it, so that the
    /// leader does not propose that twice.
    fn is_deleted(&self, key: Key) -> bool {
        self.live.get(&key).is_some_and(|live| live.deleted)
    }

    /// Records that the leader has proposed to delete the consumer because no client used it.
    fn note_deleted(&mut self, key: Key) {
        if let Some(live) = self.live.get_mut(&key) {
            live.deleted = true;
        }
    }

    /// Iterates over the names of a stream's consumers that the log does not keep, in order, for lists of
    /// consumers: the names after `name`, or all.
    pub(crate) fn unlogged_after<'a>(
        &'a self,
        stream: StreamNumber,
        name: Option<&str>,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.get(&stream);
        let names = names.map(|n| n.range::<str, _>((from, Bound::Unbounded)));
        let names = names.into_iter().flatten();
        let unlogged = names.filter(|(_, key)| self.get(**key).is_some_and(|live| !live.logged));
        unlogged.map(|(name, _)| &**name)
    }

    pub(crate) fn keys_of(&self, stream: StreamNumber) -> Vec<Key> {
        let names = self.names.get(&stream).into_iter();
        names.flat_map(|names| names.values().copied()).collect()
    }

    /// Returns the keys of all consumers that the node serves, so that the caller can change the consumers
    /// meanwhile.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.live.keys().copied().collect()
    }

    /// Puts the consumer on the list of consumers that the node serves in this turn or the next one, because
    /// the consumer has work.
    pub(crate) fn wake(&mut self, key: Key) {
        if let Some(live) = self.live.get_mut(&key)
            && !std::mem::replace(&mut live.listed, true)
        {
            self.due.push(key);
        }
    }

    /// Handles a client's new subscription to this pattern: wakes the consumers that push to a matching
    /// subject, and the consumers with waiting pulls at a matching reply subject, because they may deliver
    /// now.
    pub(crate) fn handle_subscribed(&mut self, pattern: &[u8]) {
        if !self.away.is_empty() {
            self.listens_again(pattern);
        }
        if self.pushed.is_empty() {
            return;
        }
        let keys: Vec<Key> = match tidegate_nats::subject::has_wildcard(pattern) {
            false => self.pushed.get(pattern).cloned().unwrap_or_default(),
            true => self
                .pushed
                .iter()
                .filter(|(to, _)| contains(pattern, to))
                .flat_map(|(_, keys)| keys.iter().copied())
                .collect(),
        };
        for key in keys {
            self.wake(key);
        }
    }

    /// Wakes the consumers with pulls at reply subjects that match the pattern and had no listener, because a
    /// client has subscribed to the pattern.
    fn listens_again(&mut self, pattern: &[u8]) {
        for key in self.awaiting(pattern) {
            if let Some(live) = self.live.get_mut(&key) {
                live.consumer.handle_subscribed(pattern);
            }
            self.wake(key);
        }
    }

    /// Returns the consumers that keep a pull without a listener, if the pull's reply subject matches this
    /// pattern. The index saves a look at all consumers.
    fn awaiting(&self, pattern: &[u8]) -> Vec<Key> {
        // Every subject that matches the pattern begins with the pattern's literal tokens, so the search
        // starts behind these tokens.
        let literal = tokens(pattern).take_while(|t| *t != b"*" && *t != b">");
        let len = literal.map(|t| t.len() + 1).sum::<usize>();
        let start = &pattern[..len.min(pattern.len())];
        let found = self
            .away
            .range((Box::from(start), 0)..)
            .take_while(|(to, _)| to.starts_with(start))
            .filter(|(to, _)| contains(pattern, to));
        let mut keys: Vec<Key> = found.map(|(_, key)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Updates [`Consumers::away`], the index of pulls without a listener, after the pulls of one consumer
    /// may have changed, so that a new subscription finds them.
    fn note_away(&mut self, key: Key) {
        let Some(live) = self.live.get_mut(&key) else {
            return;
        };
        let Some(away) = live.consumer.take_away() else {
            return;
        };
        for old in std::mem::replace(&mut live.away, away.clone()) {
            self.away.remove(&(old, key));
        }
        self.away.extend(away.into_iter().map(|to| (to, key)));
    }

    /// Counts a stored message for the consumers that want its subject, and wakes the consumers that can
    /// deliver it.
    fn handle_stored(&mut self, stream: StreamNumber, seq: StreamSeq, subject: &[u8]) {
        let Some(interest) = self.interests.get_mut(&stream) else {
            return;
        };
        let (live, due) = (&mut self.live, &mut self.due);
        interest.for_each(subject, |key| {
            if let Some(live) = live.get_mut(&key)
                && live.consumer.handle_stored(seq, subject)
                && !std::mem::replace(&mut live.listed, true)
            {
                due.push(key);
            }
        });
    }

    fn note_push(&mut self, to: &str, key: Key) {
        if !to.is_empty() {
            self.pushed
                .entry(to.as_bytes().into())
                .or_default()
                .push(key);
        }
    }

    fn forget_push(&mut self, to: &str, key: Key) {
        if let Some(keys) = self.pushed.get_mut(to.as_bytes()) {
            keys.retain(|k| *k != key);
            if keys.is_empty() {
                self.pushed.remove(to.as_bytes());
            }
        }
    }

    /// Clears the lists of consumers that have work, because this node serves no consumer from now on. With
    /// an entry left in a list, the event loop would start turns without end.
    pub(crate) fn rest(&mut self) {
        self.due.clear();
        self.serving.clear();
        self.waiting.clear();
    }

    /// Returns the number of entries in the lists and indexes of consumers, for a simulation that looks for
    /// entries which deletions leave.
    #[cfg(feature = "sim")]
    pub(crate) fn items(&self) -> usize {
        let by_stream = self.names.len() + self.interests.len() + self.unlogged.len();
        let by_subject = self.pushed.len() + self.away.len();
        let lists = self.due.len() + self.serving.len() + self.waiting.len() + self.timers.len();
        self.live.len() + by_stream + by_subject + lists
    }

    pub(crate) fn is_busy(&self) -> bool {
        !self.due.is_empty() || !self.serving.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Removes a consumer that this node no longer serves from all lists and indexes, so that no event wakes
    /// it. Returns the consumer, so that the caller can refuse its waiting requests.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Live>> {
        self.arm(key, Time::NEVER);
        let mut live = self.live.remove(&key)?;
        for to in std::mem::take(&mut live.away) {
            self.away.remove(&(to, key));
        }
        if let Some(names) = self.names.get_mut(&live.stream) {
            names.remove(&live.name);
            if names.is_empty() {
                self.names.remove(&live.stream);
            }
        }
        if let Some(interest) = self.interests.get_mut(&live.stream) {
            interest.remove(key, live.config.nameless());
        }
        if !self.names.contains_key(&live.stream) {
            self.interests.remove(&live.stream);
        }
        if !live.logged {
            self.count_unlogged(live.stream, false);
        }
        self.forget_push(&live.config.nameless().deliver_subject, key);
        Some(live)
    }

    fn arm(&mut self, key: Key, at: Time) {
        let Some(live) = self.live.get_mut(&key) else {
            return;
        };
        let old = std::mem::replace(&mut live.armed, at);
        if old == at {
            return;
        }
        self.timers.remove(&(old, key));
        if at != Time::NEVER {
            self.timers.insert((at, key));
        }
    }
}

/// The configuration and the state from which the node begins to serve a consumer.
pub(crate) struct Known<'a> {
    pub(crate) name: &'a str,
    pub(crate) config: &'a SharedConfig,
    pub(crate) created_us: u64,
    pub(crate) state: &'a State,
    /// True if the log keeps the consumer; false if only this node knows the consumer, which then ends with
    /// the leader.
    pub(crate) logged: bool,
}

impl JetStream {
    /// Begins to serve a consumer that the log has or that a client's request creates, and adds it to the
    /// indexes, so that messages and timers wake it.
    pub(crate) fn take_up(
        &mut self,
        now: Time,
        stream: StreamNumber,
        known: &Known<'_>,
    ) -> Option<Key> {
        let Known {
            name,
            config,
            created_us,
            state,
            logged,
        } = *known;
        let wall_us = self.wall.tell(now);
        let of = self.streams.get(stream)?;
        let settings = config.nameless();
        let mut filter = consumer_filter(settings);
        let identity = Identity {
            stream: of.name(),
            consumer: name,
            record: record(logged, config, of.config().retention),
        };
        let mut source = Seen {
            stream: of,
            filter: &mut filter,
            messages: &Unread,
            held: Held::default(),
            wanted: Vec::new(),
        };
        let consumer = Consumer::new(wall_us, identity, settings, state, &mut source);
        let changed = consumer.awaits_unwanted(&mut source);
        let all = &mut self.consumers;
        let key = all.next;
        all.next += 1;
        let interest = all.interests.entry(stream).or_default();
        interest.add(key, settings);
        if changed {
            interest.add_changed(key);
        }
        all.note_push(&settings.deliver_subject, key);
        if !logged {
            all.count_unlogged(stream, true);
        }
        all.names
            .entry(stream)
            .or_default()
            .insert(name.into(), key);
        all.live.insert(
            key,
            Box::new(Live {
                consumer,
                stream,
                name: name.into(),
                config: config.clone(),
                created_us,
                filter,
                start: state.start(),
                logged,
                told: false,
                lasts_us: lasts_us(config, wall_us).filter(|_| !logged),
                resets: Resets::default(),
                questions: Vec::new(),
                away: Vec::new(),
                listed: false,
                armed: Time::NEVER,
                ending: false,
                deleted: false,
            }),
        );
        all.wake(key);
        Some(key)
    }

    /// Stops serving a consumer on this node. Ends the consumer's pulls with the reason `why`, and refuses
    /// its waiting resets, so that no client waits in vain.
    pub(crate) fn let_go(&mut self, cx: &mut Context<'_>, now: Time, key: Key, why: Ending) {
        self.with_consumer(cx, now, key, |live, voice| {
            live.consumer.handle_end(why, voice);
        });
        if let Some(live) = self.consumers.remove(key) {
            self.refuse_resets(cx, now, live.resets, why);
            let error = match why {
                Ending::Deleted => ApiError::CONSUMER_NOT_FOUND,
                _ => ApiError::SYSTEM_UNAVAILABLE,
            };
            self.refuse_questions(cx, now, live.questions, &error);
        }
    }

    /// Calls `f` with a consumer and with a voice, by which the consumer sends messages. Afterwards the node
    /// puts the consumer on the list of consumers with work, because `f` may have changed it.
    pub(crate) fn with_consumer<R>(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        key: Key,
        f: impl FnOnce(&mut Live, &mut Voice<'_>) -> R,
    ) -> Option<R> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.live.get_mut(&key)?;
        let mut voice = Voice {
            cx: cx.again(),
            streams: &self.streams,
            wall_us,
            speech: &mut self.speech,
        };
        let result = f(live, &mut voice);
        // The node updates the index of pulls without a listener at once, because a client may subscribe
        // again before the node serves the consumer.
        self.consumers.note_away(key);
        self.consumers.wake(key);
        Some(result)
    }

    /// Tells a consumer that the group has applied its oldest proposed delta, so that the consumer answers
    /// the clients that wait for it.
    pub(crate) fn delta_durable(&mut self, cx: &mut Context<'_>, now: Time, key: Key) {
        self.with_consumer(cx, now, key, |live, voice| {
            live.consumer.handle_delta_durable(voice);
        });
    }

    /// Tells the consumers the changes that an entry made, so that they deliver new messages and forget
    /// removed ones.
    ///
    /// The node has applied the whole entry by then. So consumers that count the messages of a stream again
    /// do that last: the count already includes the messages that later commands of the entry stored, after
    /// the creation of a consumer or after a purge, and the consumer must not add these messages a second
    /// time.
    pub(crate) fn tell_consumers(&mut self, cx: &mut Context<'_>, now: Time, effects: &[Effect]) {
        let mut counting = false;
        for effect in effects {
            match effect {
                Effect::Purged { .. }
                | Effect::StreamFilled { .. }
                | Effect::StreamThawed { .. }
                | Effect::ConsumerCreated { .. }
                | Effect::ConsumerUpdated { .. }
                | Effect::ConsumerReset { .. } => counting = true,
                Effect::Stored {
                    stream,
                    seq,
                    subject,
                    ..
                } => {
                    self.consumers.handle_stored(*stream, *seq, subject);
                }
                Effect::Removed {
                    stream,
                    seq,
                    subject,
                    ..
                } => {
                    let Some(interest) = self.consumers.interests.get_mut(stream) else {
                        continue;
                    };
                    let mut concerned = std::mem::take(&mut self.consumers.concerned);
                    interest.concerned(subject, &mut concerned);
                    for key in &concerned {
                        self.with_consumer(cx, now, *key, |live, voice| {
                            let wall_us = voice.wall_us;
                            live.consumer.handle_removed(wall_us, *seq, subject, voice);
                        });
                    }
                    self.consumers.concerned = concerned;
                }
                Effect::StreamDeleted { stream, .. } => {
                    self.publishing.handle_stream_gone(*stream);
                    for key in self.consumers.keys_of(*stream) {
                        self.let_go(cx, now, key, Ending::Deleted);
                    }
                }
                Effect::StreamFrozen { stream } => self.end_frozen(*stream),
                Effect::StreamStays { stream } => {
                    self.moves.handle_moved(DirectoryNumber::of_entry(*stream));
                }
                Effect::StreamMoved { stream } => {
                    self.publishing.pub_acks.remove(stream);
                    self.moves.handle_moved(DirectoryNumber::of_entry(*stream));
                }
                Effect::StreamUpdated { stream } => {
                    let config = self.streams.get(*stream).map(|s| s.config());
                    if config.is_some_and(|c| !c.allow_atomic) {
                        self.publishing.atomic.handle_stream_gone(*stream);
                    }
                    if config.is_some_and(|c| !c.allow_batched) {
                        self.publishing.fast.handle_stream_gone(*stream);
                    }
                    self.follow_retention(cx, now, *stream);
                }
                Effect::ConsumerDeleted { stream, name } => {
                    if let Some(key) = self.consumers.find(*stream, name) {
                        self.let_go(cx, now, key, Ending::Deleted);
                    }
                }
                _ => {}
            }
        }
        if counting {
            self.count_anew(cx, now, effects);
        }
    }

    /// Makes some consumers count the messages that they have still to deliver again: the consumers that an
    /// entry has created, changed or reset, and the consumers of purged streams. Their old counts no longer
    /// hold.
    fn count_anew(&mut self, cx: &mut Context<'_>, now: Time, effects: &[Effect]) {
        for effect in effects {
            match effect {
                Effect::Purged { stream, messages } => {
                    let last = messages.last().unwrap_or(StreamSeq::MAX);
                    self.tell_purged(now, *stream, last);
                }
                // A later command of the entry may have deleted the stream or the consumer. The node then
                // finds nothing to serve, which is no error.
                Effect::StreamFilled { stream } | Effect::StreamThawed { stream }
                    if self.role.serves =>
                {
                    self.take_up_all(now, *stream);
                }
                Effect::ConsumerCreated { stream, name } if self.role.serves => {
                    self.take_up_unless_asleep(now, *stream, name);
                }
                Effect::ConsumerUpdated { stream, name } => {
                    self.update_consumer(now, *stream, name);
                }
                Effect::ConsumerReset { stream, name } => {
                    self.begin_again(cx, now, *stream, name);
                }
                _ => {}
            }
        }
    }

    /// Makes the consumers of a stream follow the stream's retention, which may have changed. A stream that
    /// keeps messages for its consumers must learn from the log which messages each of them needs. So a
    /// consumer with progress outside of the log ends, or starts again from its state in the log. The client
    /// of such a consumer expects that at any time, and creates another consumer.
    fn follow_retention(&mut self, cx: &mut Context<'_>, now: Time, stream: StreamNumber) {
        let Some(of) = self.streams.get(stream) else {
            return;
        };
        let (stream_name, retention) = (of.name().to_owned(), of.config().retention);
        let keeps = retention != Retention::Limits;
        for key in self.consumers.keys_of(stream) {
            let Some(live) = self.consumers.live.get_mut(&key) else {
                continue;
            };
            if !keeps || (live.logged && live.config.yields_deltas(Retention::Limits)) {
                live.consumer.set_lists_settled(keeps);
                continue;
            }
            if live.consumer.lists_settled() {
                continue;
            }
            let (name, told) = (live.name.clone(), live.is_told());
            self.let_go(cx, now, key, Ending::Deleted);
            if told {
                self.take_up_unless_asleep(now, stream, &name);
            } else {
                let (stream, consumer) = (&*stream_name, &*name);
                let advised = Advised::ConsumerDeleted { stream, consumer };
                self.voice(cx, now).advise(&advised);
            }
        }
    }

    fn tell_purged(&mut self, now: Time, stream: StreamNumber, last: StreamSeq) {
        let wall_us = self.wall.tell(now);
        for key in self.consumers.keys_of(stream) {
            let (Some(live), Some(of)) =
                (self.consumers.live.get_mut(&key), self.streams.get(stream))
            else {
                continue;
            };
            let mut source = Seen {
                stream: of,
                filter: &mut live.filter,
                messages: &Unread,
                held: Held::default(),
                wanted: Vec::new(),
            };
            live.consumer.handle_purged(wall_us, last, &mut source);
            self.consumers.wake(key);
        }
    }

    /// Begins to serve all consumers of a stream with their states in the log, except consumers that are
    /// asleep, because this node now leads the group.
    pub(crate) fn take_up_all(&mut self, now: Time, stream: StreamNumber) {
        let Some(of) = self.streams.get(stream) else {
            return;
        };
        if of.transit() != Transit::None {
            // The stream is moving to or from another group, so the node does not serve its consumers.
            return;
        }
        let awake = of
            .consumers()
            .filter(|(_, known)| !may_sleep(known.config(), known.state()));
        let names: Vec<String> = awake.map(|(name, _)| name.to_owned()).collect();
        for name in names {
            self.take_up_logged(now, stream, &name);
        }
    }

    /// Begins to serve a consumer that the log keeps, unless the consumer is asleep. A consumer that is
    /// asleep needs no live part until a client uses it.
    fn take_up_unless_asleep(&mut self, now: Time, stream: StreamNumber, name: &str) {
        let known = self.streams.get(stream).and_then(|s| s.consumer(name));
        if known.is_some_and(|known| !may_sleep(known.config(), known.state())) {
            self.take_up_logged(now, stream, name);
        }
    }

    /// Begins to serve a consumer that the log keeps, with its state from the log, so that it continues where
    /// an earlier leader stopped.
    pub(crate) fn take_up_logged(
        &mut self,
        now: Time,
        stream: StreamNumber,
        name: &str,
    ) -> Option<Key> {
        if name.starts_with(HOLDER_PREFIX) {
            // The node serves no holder, because no client receives from a holder.
            return None;
        }
        if self.consumers.find(stream, name).is_some() {
            // One entry has created the consumer, deleted it and created it again, so the node already serves
            // it.
            return None;
        }
        let known = self.streams.get(stream)?.consumer(name)?;
        let (config, created_us) = (known.config().clone(), known.created_us());
        let state = known.state().clone();
        let known = Known {
            name,
            config: &config,
            created_us,
            state: &state,
            logged: true,
        };
        self.take_up(now, stream, &known)
    }

    fn update_consumer(&mut self, now: Time, stream: StreamNumber, name: &str) -> Option<()> {
        let Some(key) = self.consumers.find(stream, name) else {
            // The consumer was asleep. Its new configuration may have timers, and it must be awake for them.
            if self.role.serves {
                self.take_up_unless_asleep(now, stream, name);
            }
            return None;
        };
        let config = self.streams.get(stream)?.consumer(name)?.config().clone();
        self.reconfigure(now, key, &config)
    }

    /// Applies a changed configuration to a consumer that this node serves, and to its filter and indexes, so
    /// that the consumer delivers by the new configuration.
    pub(crate) fn reconfigure(&mut self, now: Time, key: Key, config: &SharedConfig) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.live.get_mut(&key)?;
        let of = self.streams.get(live.stream)?;
        let old = std::mem::replace(&mut live.config, config.clone());
        let (old, config) = (old.nameless(), config.nameless());
        live.filter = consumer_filter(config);
        let mut source = Seen {
            stream: of,
            filter: &mut live.filter,
            messages: &Unread,
            held: Held::default(),
            wanted: Vec::new(),
        };
        live.consumer.handle_update(wall_us, config, &mut source);
        if !same_filters(old, config)
            && let Some(interest) = self.consumers.interests.get_mut(&live.stream)
        {
            interest.remove(key, old);
            interest.add(key, config);
            interest.add_changed(key);
        }
        if old.deliver_subject != config.deliver_subject {
            self.consumers.forget_push(&old.deliver_subject, key);
            self.consumers.note_push(&config.deliver_subject, key);
        }
        self.consumers.wake(key);
        Some(())
    }

    /// Ends the pulls of all consumers with the reason `why`, and proposes a last delta of each consumer, so
    /// that no client waits in vain and the log has the consumer's last state.
    pub(crate) fn end_consumers(&mut self, cx: &mut Context<'_>, now: Time, why: Ending) {
        for key in self.consumers.keys() {
            self.with_consumer(cx, now, key, |live, voice| {
                live.consumer.handle_end(why, voice);
            });
            self.propose_delta(now, key);
        }
    }

    /// Proposes the changes of a consumer since its last delta, so that the next leader knows them, unless
    /// the log does not keep the consumer or a reset of the consumer is proposed.
    pub(crate) fn propose_delta(&mut self, now: Time, key: Key) {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.live.get_mut(&key);
        // If the leader has proposed a reset, the group would apply this delta after the reset. The delta
        // describes the consumer before the reset, so it would change the consumer wrongly.
        let Some(live) = live.filter(|l| l.logged && !l.resets.is_proposed()) else {
            return;
        };
        let (stream, name) = (live.stream, live.name.clone());
        // A delta has a bound, so the consumer's changes may need several deltas.
        let deltas = std::iter::from_fn(|| live.consumer.take_delta(wall_us));
        for delta in deltas.collect::<Vec<_>>() {
            let command = Command::new(Kind::of_delta(&delta), stream, name.as_bytes(), &delta);
            self.command(now, false, &command, Some((b"", Then::Delta(key))));
        }
    }

    /// Begins the turn of the consumers: wakes the consumers with a timer that is due, and lists the
    /// consumers that the node serves in this turn. If the last turn has left some, the node serves these
    /// first.
    pub(crate) fn begin_consumers(&mut self, cx: &mut Context<'_>, now: Time) {
        for _ in 0..part(cures().deliveries, TIMERS_A_TURN) {
            let first = self.consumers.timers.first().copied();
            let Some((_, key)) = first.filter(|(at, _)| *at <= now) else {
                break;
            };
            self.consumers.arm(key, Time::NEVER);
            self.with_consumer(cx, now, key, |live, voice| {
                let wall_us = voice.wall_us;
                live.consumer.handle_timeouts(wall_us, voice);
            });
        }
        // The node serves all consumers of a round before it begins the next round. Otherwise consumers that
        // wait for the store would take turns without end, and the loop would not sleep meanwhile.
        if self.consumers.serving.is_empty() {
            for key in std::mem::take(&mut self.consumers.waiting) {
                self.consumers.wake(key);
            }
            self.consumers.serving.extend(self.consumers.due.drain(..));
        }
        self.consumers.steps_left = part(cures().deliveries, STEPS_A_TURN);
        self.consumers.subjects_left = part(cures().searching, SUBJECTS_A_TURN);
    }

    /// Returns the next consumer that the node must serve in this turn. Each consumer comes once in a turn,
    /// so that no consumer holds up the others. A turn that has done its share leaves the rest to the next
    /// one.
    pub(crate) fn next_consumer(&mut self) -> Option<Key> {
        if self.consumers.steps_left == 0 {
            return None;
        }
        self.consumers.steps_left -= 1;
        self.consumers.serving.pop_front()
    }

    /// Serves a consumer in this turn, because it has work: the consumer delivers its messages, and the
    /// leader proposes the consumer's changes.
    pub(crate) fn serve_consumer(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        key: Key,
        messages: &dyn Messages,
    ) -> Option<()> {
        let wall_us = self.wall.tell(now);
        let live = self.consumers.live.get_mut(&key)?;
        live.listed = false;
        let stream = self.streams.get(live.stream)?;
        let mut source = Seen {
            stream,
            filter: &mut live.filter,
            messages,
            held: Held::default(),
            wanted: Vec::new(),
        };
        let mut voice = Voice {
            cx: cx.again(),
            streams: &self.streams,
            wall_us,
            speech: &mut self.speech,
        };
        let (unprepared, subjects) = (!live.consumer.is_prepared(), self.consumers.subjects_left);
        if unprepared && subjects > 0 {
            self.consumers.subjects_left = 0;
            let all = stream.state().num_subjects;
            spend(Work::Search, all.min(subjects as u64));
            live.consumer
                .prepare(wall_us, subjects, &mut source, &mut voice);
        }
        let prepared = unprepared && live.consumer.is_prepared();
        let resets = !live.resets.is_empty();
        let mut budget = BUDGET.min(self.consumers.steps_left.max(1));
        let budgeted = budget;
        let progress = match (resets, unprepared) {
            // The clients that wait for the consumer's state get the answer before the first delivery, so
            // that they see the count of all pending messages.
            (_, true) => Progress::More,
            (true, false) => Progress::Idle,
            (false, false) => live
                .consumer
                .deliver(wall_us, &mut budget, &mut source, &mut voice),
        };
        let steps = budgeted - budget;
        self.consumers.steps_left = self.consumers.steps_left.saturating_sub(steps);
        spend(Work::Deliver, 1 + steps as u64);
        let (id, abandoned) = (live.stream, live.consumer.is_abandoned(wall_us));
        let wanted = source.wanted;
        cx.outputs.read(wanted);
        if prepared {
            self.handle_prepared(cx, now, key);
        }
        self.consumers.note_away(key);
        // The node proposes the deltas of a consumer in order, so it proposes no new delta before the deltas
        // that the log refused.
        let free = !self.is_full() && self.entries.postponed.is_empty();
        let room = free && self.room.space != Space::Scarce && self.entries.shelved.is_empty();
        let live = self.consumers.live.get_mut(&key)?;
        // If disk space is scarce, the log still takes the deltas after which the stream removes messages,
        // because they free space.
        let settled = live.consumer.has_settled();
        let takes = room || (free && settled && self.entries.shelved.iter().all(|p| p.key != key));
        // The leader proposes the last delta of a consumer before the consumer's deletion. Otherwise the
        // stream would keep the messages that the consumer has settled.
        let ends = abandoned && (takes || !settled);
        let delta = match takes && live.logged && !resets && !ends {
            true => live.consumer.poll_delta(wall_us),
            false => None,
        };
        let at = live.consumer.deadline(wall_us);
        let name = live.name.clone();
        let ends = ends && !std::mem::replace(&mut live.ending, ends);
        let (logged, told) = (live.logged, live.is_told());
        let lasts = live.lasts_us.filter(|_| !ends);
        match progress {
            Progress::Idle => {}
            Progress::More => self.consumers.wake(key),
            Progress::Reading | Progress::Behind => self.consumers.waiting.push(key),
        }
        if logged && !room {
            // The time of the consumer's next delta may have passed, and then no timer fires for this delta,
            // so the consumer waits on a list until the log has room.
            self.consumers.waiting.push(key);
        }
        let lasted = lasts.is_some_and(|us| us <= wall_us);
        if lasted && !room {
            self.consumers.waiting.push(key);
        }
        let at = at.into_iter().chain(lasts.filter(|_| !lasted)).min();
        let at = at.map_or(Time::NEVER, |us| self.wall.when(us));
        self.consumers.arm(key, at);
        if lasted && room {
            self.propose_lasting(now, key);
        }
        if resets && !ends {
            self.next_reset(cx, now, key, room);
        }
        if let Some(delta) = delta {
            let command = Command::new(Kind::of_delta(&delta), id, name.as_bytes(), &delta);
            self.command(now, false, &command, Some((b"", Then::Delta(key))));
        }
        if ends {
            match told {
                // The leader has already proposed the deletion, so it proposes no second one. A second
                // deletion could delete a later consumer with the same name.
                true if self.consumers.is_deleted(key) => {}
                true => {
                    if takes {
                        self.propose_delta(now, key);
                    }
                    let command = Command::new(Kind::DeleteConsumer, id, name.as_bytes(), b"");
                    // The leader treats the deletion of the unused consumer like a delta, so that it proposes
                    // the deletion again if the log refuses it.
                    self.command(now, false, &command, Some((b"", Then::Delta(key))));
                    self.consumers.note_deleted(key);
                }
                false => {
                    if let Some(stream) = self.streams.get(id).map(|s| s.name().to_owned()) {
                        let (stream, consumer) = (&*stream, &*name);
                        let advised = Advised::ConsumerDeleted { stream, consumer };
                        self.voice(cx, now).advise(&advised);
                    }
                    self.let_go(cx, now, key, Ending::Deleted);
                }
            }
        }
        Some(())
    }
}

/// Returns the content that a consumer's deltas have: nothing, the consumer's state, or the messages that it
/// has settled. The stream's retention decides which of them the log needs.
fn record(logged: bool, config: &SharedConfig, retention: Retention) -> Record {
    match retention {
        _ if !logged || !config.yields_deltas(retention) => Record::None,
        Retention::Limits => Record::State,
        Retention::Interest | Retention::WorkQueue => Record::Settled,
    }
}

#[cfg(test)]
mod tests;
