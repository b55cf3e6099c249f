//! Removes the messages that no consumer needs from streams that keep messages for their consumers: work
//! queues, and streams by interest.
//!
//! A command that changes a consumer decides which messages the consumer no longer needs, and the stream
//! removes those that no other consumer needs either. Every node applies the same commands to the same states
//! of consumers, so every node removes the same messages.
//!
//! - A delta lists the messages that its consumer has settled. The stream removes them at once. If they are
//!   many, the stream removes them as a purge does: the node frees their memory later, in parts.
//! - If a consumer of a stream by interest goes, changes its filters, or is reset, any message may have lost
//!   its last consumer. The stream then looks through its messages, a bounded number with each command: the
//!   rest is the *sweep*, for which the leader proposes further commands ([`super::Kind::Expire`]). The sweep
//!   is part of the replicated state.
//! - A stream by interest does not keep a message that no consumer wants when the message arrives.
//!
//! In a work queue, messages also wait for consumers that do not exist yet. So the stream removes only
//! settled messages.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use tidegate_nats::subject;

use super::consumers::StreamConsumer;
use super::outcome::Effect;
use super::single::Stream;
use super::wanted::Wanted;
use crate::consumer::{Released, Run};
use crate::schema::config::Retention;
use crate::schema::sequence::StreamSeq;

/// The limit on the messages that one command of a sweep looks at, so that no command takes long. The limit
/// is low in the tests of this crate, so that other commands come in between.
const SWEPT_MAX: usize = if cfg!(test) { 3 } else { 4096 };

/// The number of messages that a delta lists as settled above which the stream removes them in one pass, like
/// those of a purge: the node frees their memory later, in parts. After such a removal the consumers of the
/// stream count their messages again, so the usual deltas stay below this number.
const ONE_BY_ONE_MAX: u64 = if cfg!(test) { 4 } else { 1 << 14 };

impl Stream {
    /// Returns whether the stream keeps messages only as long as its consumers need them, as work queues and
    /// streams by interest do.
    pub(super) fn keeps_for_consumers(&self) -> bool {
        self.config.retention != Retention::Limits
    }

    pub(super) fn is_by_interest(&self) -> bool {
        self.config.retention == Retention::Interest
    }

    /// Returns whether the stream would not keep a message with this number and subject, because it keeps
    /// messages by interest and no consumer needs the message. Such a message only uses up a number.
    #[inline]
    pub(super) fn is_without_interest(&self, seq: StreamSeq, subject: &[u8]) -> bool {
        self.is_by_interest() && !self.is_needed(seq, subject)
    }

    /// Returns whether some consumer still needs the message: the filters of that consumer pass the subject,
    /// and it has not settled the message.
    fn is_needed(&self, seq: StreamSeq, subject: &[u8]) -> bool {
        needs(&self.wanted, &self.consumers, &mut None, seq, subject)
    }

    /// Adds a consumer, or replaces the consumer with this name, and keeps the index of the consumers'
    /// filters up to date.
    pub(super) fn put_consumer(&mut self, name: &str, mut consumer: StreamConsumer) {
        self.take_consumer(name);
        self.share_memory(name, &mut consumer);
        if self.keeps_for_consumers() {
            self.wanted.add(name, consumer.config.nameless());
        }
        self.consumers.insert(name.into(), consumer);
    }

    /// Lets a consumer that is not in the stream yet share its configuration, and its state until it changes,
    /// with other consumers. A stream may have a hundred thousand consumers that clients have not used yet:
    /// most of them have the same settings, and begin in the same state. Programs give the consumers that
    /// they make alike names alike, so the neighbours in the order of names are the likeliest to be equal.
    fn share_memory(&self, name: &str, consumer: &mut StreamConsumer) {
        let before = (Bound::Unbounded, Bound::Excluded(name));
        let after = (Bound::Excluded(name), Bound::Unbounded);
        let before = self.consumers.range::<str, _>(before).next_back();
        let after = self.consumers.range::<str, _>(after).next();
        let last = self.consumers.last_key_value();
        for (_, other) in before.into_iter().chain(after).chain(last) {
            consumer.config.share(&other.config);
            if consumer.state.is_at_rest() && other.state == consumer.state {
                consumer.state = Arc::clone(&other.state);
            }
        }
    }

    /// Takes a consumer out of the stream, if the stream has a consumer with this name, and keeps the index
    /// of the consumers' filters up to date.
    pub(super) fn take_consumer(&mut self, name: &str) -> Option<(String, StreamConsumer)> {
        let (name, consumer) = self.consumers.remove_entry(name)?;
        if self.keeps_for_consumers() {
            self.wanted.remove(&name, consumer.config.nameless());
        }
        Some((name.into(), consumer))
    }

    /// Renews the index of the consumers' filters, after a change of the retention or of all consumers. The
    /// index must match the consumers, so that the stream keeps each message that a consumer needs.
    pub(super) fn renew_wanted(&mut self) {
        self.wanted = self.index_consumers();
    }

    fn index_consumers(&self) -> Wanted {
        let mut wanted = Wanted::default();
        if self.keeps_for_consumers() {
            for (name, consumer) in &self.consumers {
                wanted.add(name, consumer.config.nameless());
            }
        }
        wanted
    }

    /// Removes the messages that a consumer has settled and that no consumer needs any more. The command is a
    /// delta of that consumer.
    pub(super) fn handle_released(&mut self, released: Released, effects: &mut Vec<Effect>) {
        if !self.keeps_for_consumers() {
            return;
        }
        let lens = released.settled.iter();
        let lens = lens.map(|run| run.end().distance(*run.start()) + 1);
        if lens.sum::<u64>() > ONE_BY_ONE_MAX {
            self.remove_settled(&released.settled, effects);
        } else {
            let mut last = None;
            for run in released.settled {
                let mut at = *run.start();
                while let Some(seq) = self.content.index.next(at).filter(|seq| run.contains(seq)) {
                    self.remove_unneeded(seq, &mut last, effects);
                    at = seq.next();
                }
            }
        }
        if let Some(run) = released.unlisted {
            self.begin_sweep(run, effects);
        }
    }

    /// Removes, in one pass, the messages in these runs that no consumer needs. The caller does this for many
    /// messages, because removing them one by one takes longer.
    fn remove_settled(&mut self, runs: &[Run], effects: &mut Vec<Effect>) {
        let (wanted, consumers, mut last) = (&self.wanted, &self.consumers, None);
        let goes =
            |seq: StreamSeq, subject: &[u8]| !needs(wanted, consumers, &mut last, seq, subject);
        let bulk = self.content.remove_runs(runs, goes);
        self.tell(bulk, effects);
    }

    /// Removes a message if no consumer needs it. `last` is the consumer that needed the last message that
    /// the caller looked at, because that consumer often needs the next one too.
    fn remove_unneeded(
        &mut self,
        seq: StreamSeq,
        last: &mut Option<String>,
        effects: &mut Vec<Effect>,
    ) {
        let slot = self.content.index.get(seq);
        let name = slot.and_then(|slot| self.content.subjects.name(slot.subject).cloned());
        if name.is_some_and(|name| !needs(&self.wanted, &self.consumers, last, seq, &name)) {
            self.remove(seq, effects);
        }
    }

    /// Begins to look for messages without a consumer and to remove them, because this consumer has gone or
    /// has other filters now. Messages that the consumer never needed stay out of the search.
    pub(super) fn begin_sweep_after(&mut self, of: &StreamConsumer, effects: &mut Vec<Effect>) {
        let first = of.state.first_needed();
        self.begin_sweep(first..=self.content.last_seq, effects);
    }

    /// Begins to look for messages without a consumer in this range, and removes the first of them. A search
    /// that is under way grows by the range.
    pub(super) fn begin_sweep(&mut self, run: Run, effects: &mut Vec<Effect>) {
        // A copy of a moving stream or a restored one does not have all of its consumers yet. It begins a
        // sweep once it is complete.
        if !self.is_by_interest() || self.is_incomplete() {
            return;
        }
        if self.consumers.is_empty() && !self.is_frozen() {
            self.sweep = None;
            let all = self.content.remove_all();
            self.tell(all, effects);
            return;
        }
        if run.is_empty() {
            return;
        }
        let (first, last) = match self.sweep {
            Some((first, last)) => (first.min(*run.start()), last.max(*run.end())),
            None => run.into_inner(),
        };
        self.sweep = Some((first, last));
        // A frozen stream does not change, so that its copy stays equal. The sweep continues if the stream
        // thaws.
        if !self.is_frozen() {
            self.go_on_sweep(effects);
        }
    }

    /// Looks at the next messages of the sweep, and removes those that no consumer needs. The number of
    /// messages is bounded, so that the command does not take long.
    pub(super) fn go_on_sweep(&mut self, effects: &mut Vec<Effect>) {
        let Some((first, last)) = self.sweep else {
            return;
        };
        let next = |at| self.content.index.next(at).filter(|seq| *seq <= last);
        let due = std::iter::successors(next(first), |seq| next(seq.next()));
        let due: Vec<StreamSeq> = due.take(SWEPT_MAX + 1).collect();
        self.sweep = due.get(SWEPT_MAX).map(|seq| (*seq, last));
        let mut last = None;
        for seq in due.into_iter().take(SWEPT_MAX) {
            self.remove_unneeded(seq, &mut last, effects);
        }
    }

    /// Makes the stream follow a changed retention: it removes messages that no consumer needs, or stops
    /// removing them.
    pub(super) fn change_retention(&mut self, old: Retention, effects: &mut Vec<Effect>) {
        if self.config.retention == old {
            return;
        }
        let (interest, last) = (self.is_by_interest(), self.content.last_seq);
        for consumer in self.consumers.values_mut() {
            let state = Arc::make_mut(&mut consumer.state);
            match interest {
                // The leader may have delivered and settled messages that no delta has listed, because the
                // stream did not need the list. So the stream looks at all messages once more.
                true => state.note_filters_changed(last),
                false => state.forget_settling(),
            }
        }
        self.renew_wanted();
        self.sweep = None;
        self.begin_sweep(StreamSeq::FIRST..=last, effects);
    }

    /// Panics if an invariant of the retention does not hold. Only tests call this, after each command.
    pub(super) fn check_retention(&self) {
        assert!(self.wanted == self.index_consumers());
        assert!(self.is_by_interest() || self.sweep.is_none());
    }
}

/// Returns whether one of the consumers still needs the message, see [`Stream::is_needed`]. A slow consumer
/// needs most of the messages that others settle, so the search begins with `last`, the consumer that the
/// search before found.
fn needs(
    wanted: &Wanted,
    consumers: &BTreeMap<Box<str>, StreamConsumer>,
    last: &mut Option<String>,
    seq: StreamSeq,
    subject: &[u8],
) -> bool {
    let needs = |name: &str| consumers.get(name).is_some_and(|c| c.state.needs(seq));
    let passes = |name: &str| {
        let config = consumers.get(name).map(|c| c.config.nameless());
        config.is_some_and(|config| {
            let unfiltered = config.filters().next().is_none();
            unfiltered
                || config
                    .filters()
                    .any(|f| subject::contains(f.as_bytes(), subject))
        })
    };
    if last
        .as_ref()
        .is_some_and(|name| needs(name) && passes(name))
    {
        return true;
    }
    wanted.any(subject, |name| {
        let found = needs(name);
        if found {
            *last = Some(name.to_owned());
        }
        found
    })
}

#[cfg(test)]
mod tests;
