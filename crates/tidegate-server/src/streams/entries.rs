//! Keeps the commands and entries of one group before they are committed: the commands that gather for the
//! next entry, the closed entries that wait for the group, and the entries that the group has accepted and
//! not committed yet.
//!
//! [`JetStream`](super::JetStream) makes the commands, and answers the clients that wait for their outcomes.

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate::Time;
use tidegate::boundary::DecisionLog;
use tidegate::controller::{SizeCosts, Snapshot};
use tidegate_nats::subject;
use tidegate_raft::replica::EntryId;
use tidegate_stream::stream::{Command, Effect, Kind, Outcome, Streams};

use super::outcome::Then;
use super::proposals::{Gauge, InFlight, Postponed, Proposals, Sealed, Waiters};
use crate::cost::{Work, spend};
use crate::party::Party;

/// The number of bytes of commands that may wait for the log. Above it the node stops reading from
/// publishers, so that publishers do not fill the node's memory.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Keeps the commands and entries of one group until the group has committed them, so that the node can
/// answer their clients, see the [module](self).
pub(super) struct Entries {
    /// The commands that gather until the node closes the next entry, which then goes into the log.
    pub(super) durable: Proposals<Then>,
    /// The gathered commands for streams in memory. The node applies them at the end of the turn, and never
    /// writes them to the log, because no disk keeps these streams.
    pub(super) volatile: Proposals<Then>,
    /// The facts about the open entry by which the node decides whether it takes a publish that depends on a
    /// pattern.
    open: Open,
    /// The entry of closed commands for streams in memory that waits until the node has prepared it.
    held: Option<Sealed<Then>>,
    /// The number of steps that are left in this turn to prepare entries.
    steps_left: usize,
    /// True if an entry waits for its preparation since this turn, and (`waits`) since the turn before, so
    /// that the event loop starts another turn.
    waits_now: bool,
    waits: bool,
    /// The closed entries that wait, because the group has not accepted them yet. The node offers them to the
    /// group in this order.
    sealed: VecDeque<Sealed<Then>>,
    sealed_bytes: usize,
    gauge: Gauge,
    in_flight: InFlight<Then>,
    /// The commands about consumers, such as deltas, that the log refused. The leader proposes them again,
    /// because no client would repeat them.
    pub(super) postponed: Vec<Postponed>,
    /// The refused commands about consumers that free no disk space. The leader keeps them until disk space
    /// is no longer scarce, to keep the rest of the disk for commands that free space.
    pub(super) shelved: Vec<Postponed>,
    /// The time at which the leader proposes its own commands again, after the log has refused some for lack
    /// of room; `None` if the log has refused none.
    pub(super) again: Option<Time>,
    /// True while the leader has proposed to remove expired messages, and the group has not applied the
    /// proposal yet. Meanwhile the leader proposes no second removal, because it would remove nothing more.
    pub(super) expiring: bool,
    /// The time at which the leader next proposes to remove expired messages: the earliest time at which a
    /// message of the group's streams may expire, in microseconds since the Unix epoch; `None` if no message
    /// can expire, or while the leader may propose no expiry.
    pub(super) next_expiry: Option<u64>,
    /// The outcomes of the commands, and (`effects`) the changes, of the entry that this node applied last.
    /// The node reuses the buffers for the next entry, to save allocations.
    pub(super) outcomes: Vec<Outcome>,
    pub(super) effects: Vec<Effect>,
    counts: Counts,
}

/// The number of publishes in one entry that depend on patterns, because each stored message is compared with
/// all patterns of its entry.
const LOOK_UPS_MAX: u32 = 64;

/// The facts about the open entry by which the node decides whether the entry takes a publish that depends on
/// the last message under a pattern.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    /// True if the entry has a command that may remove messages. The removal of a last message under a
    /// pattern would void the preparation of the entry.
    removes: bool,
    look_ups: u32,
}

/// Counts the commands and entries that this node has made for the group since the node's start; the monitor
/// shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// The number of commands that the node has added to entries since its start, for the monitor.
    pub(super) commands: u64,
    /// The number of entries that the node has closed since its start, for the monitor.
    pub(super) entries: u64,
    /// The number of bytes of the entries that the node has closed since its start, for the monitor.
    pub(super) bytes: u64,
}

impl Entries {
    /// Makes the controller write its decisions about the size of entries into `log`, under `name`, so that
    /// an operator can read why the controller chose a size.
    pub(super) fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.gauge.log_to(log, name);
    }

    /// Creates the state without commands and entries. `fixed` is a number of commands and a number of bytes
    /// that bound an entry in place of the controller, for measurements.
    pub(super) fn new(fixed: Option<(u64, u64)>) -> Self {
        Self {
            durable: Proposals::default(),
            volatile: Proposals::default(),
            open: Open::default(),
            held: None,
            steps_left: 0,
            waits_now: false,
            waits: false,
            sealed: VecDeque::new(),
            sealed_bytes: 0,
            gauge: Gauge::new(fixed),
            in_flight: InFlight::default(),
            postponed: Vec::new(),
            shelved: Vec::new(),
            again: None,
            expiring: false,
            next_expiry: None,
            outcomes: Vec::new(),
            effects: Vec::new(),
            counts: Counts::default(),
        }
    }

    /// Adds a command to the open entry, even if the entry is full: the caller has closed a full entry
    /// before. `waiter` is the reply subject of the client that waits, and the action that follows the
    /// command's outcome.
    pub(super) fn add(
        &mut self,
        volatile: bool,
        command: &Command<'_>,
        waiter: Option<(&[u8], Then)>,
    ) {
        let proposals = match volatile {
            true => &mut self.volatile,
            false => &mut self.durable,
        };
        self.counts.commands += 1;
        if !volatile {
            // The roll-up of a message to a pattern removes messages of other subjects.
            let stores = command.kind == Kind::Publish && !subject::has_wildcard(command.subject);
            self.open.removes |= !stores;
        }
        // The addition never fails, because the protocol limits the lengths of subject and payload, so every
        // command fits into an entry.
        let added = proposals.add(command, waiter);
        debug_assert!(added.is_ok(), "{added:?}");
    }

    /// Counts the publish that the caller added last, which the loop read at `now` from `from`, so that the
    /// node measures the time to its acknowledgement.
    #[inline]
    pub(super) fn count_publish(&mut self, volatile: bool, now: Time, from: Party) {
        match volatile {
            true => self.volatile.count_publish(now, from),
            false => self.durable.count_publish(now, from),
        }
    }

    /// Begins a turn of the streams, in which the node may take `steps` steps to prepare entries.
    pub(super) const fn begin_turn(&mut self, steps: usize) {
        self.steps_left = steps;
        self.waits = self.waits_now;
        self.waits_now = false;
    }

    /// Prepares an entry that the node applies next with the steps that are left in this turn. Returns
    /// whether the node may apply the entry now.
    pub(super) fn prepare(&mut self, streams: &mut Streams, entry: &Bytes) -> bool {
        let before = self.steps_left;
        let is_ready = streams.prepare(entry, &mut self.steps_left);
        spend(Work::LookUp, (before - self.steps_left) as u64);
        self.waits_now |= !is_ready;
        is_ready
    }

    /// Returns whether an entry waits for its preparation, so that the event loop starts another turn.
    pub(super) const fn is_preparing(&self) -> bool {
        self.waits || self.waits_now
    }

    /// Returns the next entry of commands for streams in memory that the node applies now; `None` if there is
    /// none, or if the node has to prepare it first.
    pub(super) fn next_volatile(
        &mut self,
        streams: &mut Streams,
        time_us: u64,
    ) -> Option<Sealed<Then>> {
        let held = self.held.take();
        let sealed = held.or_else(|| self.volatile.seal(time_us))?;
        if self.prepare(streams, &sealed.entry) {
            return Some(sealed);
        }
        self.held = Some(sealed);
        None
    }

    /// Returns whether the caller should close the open entry before it adds a command of this many bytes,
    /// because the command does not fit.
    pub(super) fn has_no_room_for(&self, bytes: usize) -> bool {
        let (commands, held) = (self.durable.len(), self.durable.bytes());
        self.gauge.is_full_for(commands, held, bytes)
    }

    /// Notes that the open entry has commands that may remove messages, which [`Entries::add`] has not added.
    pub(super) const fn note_removals(&mut self) {
        self.open.removes = true;
    }

    /// Notes that the caller adds a publish that depends on a pattern. Returns whether the caller should
    /// close the open entry before.
    pub(super) const fn note_look_up(&mut self) -> bool {
        let closes = self.open.removes || self.open.look_ups >= LOOK_UPS_MAX;
        if closes {
            self.open = Open {
                removes: false,
                look_ups: 0,
            };
        }
        self.open.look_ups += 1;
        closes
    }

    /// Closes the open entry, unless it is empty, so that the node can offer it to the group. `time_us` is
    /// the time of the entry in microseconds since the Unix epoch.
    pub(super) fn seal(&mut self, time_us: u64) {
        if let Some(sealed) = self.durable.seal(time_us) {
            self.sealed_bytes += sealed.entry.len();
            self.counts.entries += 1;
            self.counts.bytes += sealed.entry.len() as u64;
            self.sealed.push_back(sealed);
            self.open = Open::default();
        }
    }

    /// Returns whether the group has accepted every closed entry, so that no closed entry waits.
    pub(super) fn none_sealed(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Returns the first closed entry that waits for the group, and the number of clients that wait for it.
    /// This entry stays the first until [`Entries::handle_proposed`] or [`Entries::take_refused`].
    pub(super) fn first(&self) -> Option<(Bytes, u64)> {
        let sealed = self.sealed.front()?;
        Some((sealed.entry.clone(), sealed.waiters.len().max(1) as u64))
    }

    /// Records that the group has accepted the first closed entry, as entry `at`, so that the node finds its
    /// waiters at the commit. The controller learns that the proposal took `cost_ns` nanoseconds.
    pub(super) fn handle_proposed(&mut self, now: Time, at: EntryId, cost_ns: u64) {
        if let Some(mut sealed) = self.pop() {
            sealed.waiters.entry.proposed = now;
            self.gauge
                .proposed(now, sealed.commands, sealed.entry.len(), cost_ns);
            self.in_flight.push(at, sealed.waiters);
        }
    }

    /// Removes and returns the first closed entry, because the group has refused it or this node no longer
    /// leads. The caller answers the clients that wait for it.
    pub(super) fn take_refused(&mut self) -> Option<Sealed<Then>> {
        self.pop()
    }

    /// Returns the clients that wait for the commands of a committed entry, so that the caller answers them,
    /// see [`InFlight::take`]; `None` if this node did not propose the entry.
    pub(super) fn committed(
        &mut self,
        entry: EntryId,
        lost: impl FnMut(Waiters<Then>),
    ) -> Option<Waiters<Then>> {
        self.in_flight.take(entry, lost)
    }

    /// Returns whether the leader still has to propose a delta again that the log refused, so that the leader
    /// can keep the order of deltas.
    pub(super) fn has_postponed(&self) -> bool {
        !self.postponed.is_empty() || !self.shelved.is_empty()
    }

    /// Forgets the commands that this node, as the leader, made without a client's request, because this node
    /// no longer leads.
    pub(super) fn rest(&mut self) {
        self.postponed.clear();
        self.shelved.clear();
        self.expiring = false;
        self.again = None;
        self.next_expiry = None;
    }

    /// Returns the number of bytes of the commands that the group has not accepted yet, which count towards
    /// the bound at which the node stops reading from publishers.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.sealed_bytes + self.durable.bytes()
    }

    /// Returns whether so many bytes wait for the log that the node should stop reading from publishers.
    pub(super) fn is_full(&self) -> bool {
        // Commands for streams in memory wait only behind an entry that the node prepares.
        let volatile = self.held.as_ref().map_or(0, |_| self.volatile.bytes());
        self.waiting_bytes().max(volatile) > WAITING_BYTES_MAX
    }

    /// Returns whether the node has no command that gathers, waits for the group, or is proposed and not
    /// committed, so that the node may stop.
    pub(super) fn is_idle(&self) -> bool {
        self.durable.is_empty()
            && self.volatile.is_empty()
            && self.held.is_none()
            && self.sealed.is_empty()
            && self.in_flight.len() == 0
    }

    /// Returns the counts of commands and entries since the node's start.
    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Returns the state of the controller that chooses how large an entry may grow, for the monitor.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.gauge.snapshot()
    }

    /// Returns the costs by size that this controller has measured, for the monitor.
    pub(super) fn size_costs(&self) -> SizeCosts {
        self.gauge.size_costs()
    }

    fn pop(&mut self) -> Option<Sealed<Then>> {
        let sealed = self.sealed.pop_front()?;
        self.sealed_bytes -= sealed.entry.len();
        Some(sealed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stream::schema::number::StreamNumber;

    const NOW: Time = Time::from_nanos(1);

    fn publish(entries: &mut Entries, volatile: bool, payload: &[u8]) {
        let command = Command::new(Kind::Publish, StreamNumber::FIRST, b"a", payload);
        entries.add(volatile, &command, Some((b"r", Then::Publish)));
    }

    #[test]
    fn an_entry_is_on_its_way_until_it_is_committed() {
        let mut entries = Entries::new(None);
        assert!(entries.is_idle() && entries.first().is_none());
        publish(&mut entries, false, b"x");
        publish(&mut entries, false, b"y");
        assert!(entries.first().is_none(), "the entry still gathers");
        entries.seal(7);
        let (entry, callers) = entries.first().unwrap();
        assert_eq!((callers, entries.waiting_bytes()), (2, entry.len()));
        let counts = Counts {
            commands: 2,
            entries: 1,
            bytes: entry.len() as u64,
        };
        assert_eq!(entries.counts(), counts);
        let place = EntryId::new(3, 1);
        entries.handle_proposed(NOW, place, 1000);
        assert!(entries.first().is_none() && !entries.is_idle());
        assert_eq!(entries.waiting_bytes(), 0);
        let lost = |_| unreachable!("nothing is lost");
        let mut waiters = entries.committed(place, lost).unwrap();
        assert_eq!(waiters.drain().count(), 2);
        assert!(entries.is_idle());
    }

    #[test]
    fn a_refused_entry_comes_back_with_its_callers() {
        let mut entries = Entries::new(None);
        publish(&mut entries, false, b"x");
        entries.seal(7);
        let refused = entries.take_refused().unwrap();
        assert_eq!((refused.commands, refused.waiters.len()), (1, 1));
        assert!(entries.is_idle() && entries.take_refused().is_none());
    }

    /// A publish that depends on a pattern does not share its entry with an earlier removal, nor with very
    /// many others.
    #[test]
    fn a_publish_that_depends_on_a_pattern_follows_no_removal_in_its_entry() {
        let mut entries = Entries::new(None);
        publish(&mut entries, false, b"x");
        assert!(!entries.note_look_up(), "publishes remove nothing");
        let purge = Command::new(Kind::Purge, StreamNumber::FIRST, b"", b"{}");
        entries.add(true, &purge, None);
        assert!(!entries.note_look_up(), "another entry has the purge");
        entries.add(false, &purge, None);
        assert!(entries.note_look_up());
        entries.seal(7);
        publish(&mut entries, false, b"x");
        let closes = (0..=LOOK_UPS_MAX).map(|_| entries.note_look_up());
        assert_eq!(closes.filter(|closes| *closes).count(), 1);
        entries.seal(7);
        let roll_up = Command::new(Kind::Publish, StreamNumber::FIRST, b"a.*", b"x");
        entries.add(false, &roll_up, None);
        assert!(entries.note_look_up());
    }

    #[test]
    fn what_waits_for_the_log_is_bounded() {
        let mut entries = Entries::new(Some((1, 1024)));
        let payload = vec![0; 1 << 20];
        let mut closed = 0;
        while !entries.is_full() {
            publish(&mut entries, false, &payload);
            assert!(entries.has_no_room_for(1));
            entries.seal(7);
            closed += 1;
        }
        assert_eq!(closed, 8);
        // Commands for streams in memory do not wait for the log, so they do not make the node stop reading
        // from publishers.
        publish(&mut entries, true, &payload);
        assert!(!entries.is_idle());
        entries.take_refused().unwrap();
        assert!(!entries.is_full());
    }
}
