//! Gathers commands for the next entry, beside the clients that wait for the commands' outcomes.
//!
//! The bytes of an entry hold commands. The node keeps the clients that wait (*waiters*) beside the entry,
//! and never writes them to the log: only the node that proposed an entry answers the entry's waiters. The
//! group commits entries in the order in which the node proposed them, or never.

use std::collections::VecDeque;

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tidegate::Time;
use tidegate::boundary::{Boundary, Cut, DecisionLog};
use tidegate::controller::{Bounds, Knee, Load, Objective, Reason, SizeCosts, Snapshot};
use tidegate_raft::replica::EntryId;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{Command, ENTRY_HEADER_BYTES, EncodeError, Encoder, Kind};

use super::answered::{self, Publishes};
use crate::party::Party;
use crate::streams::serving::Key;
use crate::streams::spans::OfEntry;

/// The bounds, in bytes, between which the controller chooses the size at which the node closes an entry: the
/// upper bound, and (`ENTRY_BYTES_MIN`) the lower bound. Larger entries would save nothing, and would make
/// the read of a single message dearer, because a node reads a whole entry.
const ENTRY_BYTES_MAX: u64 = 512 * 1024;
const ENTRY_BYTES_MIN: u64 = 64 * 1024;
/// The limit on the number of commands in one entry, however few bytes they have. It bounds the time that a
/// node takes to apply an entry.
const ENTRY_COMMANDS_MAX: u64 = 16 * 1024;

/// A client that waits for the outcome of its command in an entry, and that the node then answers.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    /// The number of the client's command within the entry, from 0, by which the node finds the command's
    /// outcome.
    command: u32,
    /// The offset in bytes at which the client's reply subject starts in `subjects`, where the node reads it
    /// for the answer.
    start: u32,
    len: u32,
    /// The action that the node carries out once it knows the outcome of the client's command, such as an
    /// answer.
    pub(super) then: T,
}

/// The clients that wait for the outcomes of the commands of one entry, which the node then answers, in the
/// order of the commands.
#[derive(Debug)]
pub(super) struct Waiters<T> {
    subjects: Vec<u8>,
    list: Vec<Waiter<T>>,
    /// The publishes among the commands, by the time at which the loop read them.
    publishes: Vec<Publishes>,
    /// The facts about the entry for the spans of its publishes.
    pub(super) entry: OfEntry,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            list: Vec::new(),
            publishes: Vec::new(),
            entry: OfEntry::default(),
        }
    }
}

impl<T> Waiters<T> {
    fn add(&mut self, command: u32, reply: &[u8], then: T) {
        let small = "an entry's commands and their reply subjects are in memory, and few";
        let start = u32::try_from(self.subjects.len()).expect(small);
        // The operator's configuration bounds the length of a reply subject, but may allow more than 64 KiB,
        // so the length is a `u32`.
        let len = u32::try_from(reply.len()).expect(small);
        self.subjects.extend_from_slice(reply);
        self.list.push(Waiter {
            command,
            start,
            len,
            then,
        });
    }

    /// Removes and returns the waiters in the order of their commands, so that the caller answers them. Each
    /// item is the command's number in the entry, the waiter's reply subject and the action after the
    /// outcome.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (usize, &[u8], T)> {
        let subjects = &self.subjects;
        self.list.drain(..).map(|w| {
            let start = w.start as usize;
            let reply = &subjects[start..start + w.len as usize];
            (w.command as usize, reply, w.then)
        })
    }

    /// Returns the number of clients that wait for commands of the entry, which is the weight of the entry
    /// for the group.
    pub(super) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the publishes among the commands of the entry, from which the node measures the time to their
    /// acknowledgements.
    pub(super) fn publishes(&self) -> &[Publishes] {
        &self.publishes
    }

    fn clear(&mut self) {
        self.subjects.clear();
        self.list.clear();
        self.publishes.clear();
        self.entry = OfEntry::default();
    }
}

/// A closed entry, which takes no further command, with the clients that wait for its commands. The node
/// offers it to the group.
#[derive(Debug)]
pub(super) struct Sealed<T> {
    pub(super) entry: Bytes,
    pub(super) commands: usize,
    pub(super) waiters: Waiters<T>,
}

/// A command about a consumer that the log refused. The node keeps the command and proposes it again, because
/// a delta or a deletion must not be lost.
#[derive(Debug)]
pub(super) struct Postponed {
    kind: Kind,
    stream: StreamNumber,
    name: Box<[u8]>,
    payload: Box<[u8]>,
    /// The key, on this node, of the consumer that the command changes. By it the node keeps the commands of
    /// one consumer in order.
    pub(super) key: Key,
}

impl Postponed {
    pub(super) fn new(command: &Command<'_>, key: Key) -> Self {
        Self {
            kind: command.kind,
            stream: command.stream,
            name: command.subject.into(),
            payload: command.payload.into(),
            key,
        }
    }

    pub(super) fn command(&self) -> Command<'_> {
        Command::new(self.kind, self.stream, &self.name, &self.payload)
    }
}

/// The open entry, in which commands gather until the node closes it.
#[derive(Debug)]
pub(super) struct Proposals<T> {
    open: BytesMut,
    commands: u32,
    waiters: Waiters<T>,
    /// Empty collections of waiting clients, from earlier entries. The node reuses their memory for the next
    /// entries, to save allocations.
    spare: Vec<Waiters<T>>,
}

impl<T> Default for Proposals<T> {
    fn default() -> Self {
        Self {
            open: BytesMut::new(),
            commands: 0,
            waiters: Waiters::default(),
            spare: Vec::new(),
        }
    }
}

impl<T> Proposals<T> {
    /// Adds a command to the open entry, which the node later proposes. `waiter` is the reply subject of the
    /// client that waits, and the action that follows the outcome.
    pub(super) fn add(
        &mut self,
        command: &Command<'_>,
        waiter: Option<(&[u8], T)>,
    ) -> Result<(), EncodeError> {
        let mut encoder = if self.open.is_empty() {
            // The time 0 is a placeholder: `Proposals::seal` sets the time of the entry when the node closes
            // it.
            Encoder::begin(&mut self.open, 0)
        } else {
            Encoder::resume(&mut self.open)
        };
        encoder.command(command)?;
        if let Some((reply, then)) = waiter {
            self.waiters.add(self.commands, reply, then);
        }
        self.commands += 1;
        Ok(())
    }

    /// Counts the publish that the caller added last, which the loop read at `now` from `from`.
    #[inline]
    pub(super) fn count_publish(&mut self, now: Time, from: Party) {
        answered::count(&mut self.waiters.publishes, now, from);
    }

    /// Lets `write` add commands to the open entry, and notes `then` as the action that follows the outcome
    /// of the last of them. Returns whether `write` added a command, so that the caller knows if an outcome
    /// will come.
    pub(super) fn add_written(
        &mut self,
        then: T,
        write: impl FnOnce(&mut Encoder<'_, BytesMut>) -> Result<usize, EncodeError>,
    ) -> bool {
        let mut encoder = if self.open.is_empty() {
            Encoder::begin(&mut self.open, 0)
        } else {
            Encoder::resume(&mut self.open)
        };
        // If the entry is full, the leader writes the other commands by a later call, into a later entry.
        let written = write(&mut encoder).unwrap_or(0);
        self.commands +=
            u32::try_from(written).expect("an entry in memory has fewer than 2^32 commands");
        match self.commands.checked_sub(1).filter(|_| written > 0) {
            Some(last) => self.waiters.add(last, b"", then),
            None if self.commands == 0 => self.open.clear(),
            None => {}
        }
        written > 0
    }

    /// Returns the number of bytes of the gathered commands, as the open entry holds them, from which the
    /// gauge tells if the entry is full.
    pub(super) fn bytes(&self) -> usize {
        self.open.len()
    }

    /// Returns the number of commands in the open entry, from which the gauge tells if the entry is full.
    pub(super) const fn len(&self) -> usize {
        self.commands as usize
    }

    /// Returns whether the open entry has no command, so that there is nothing to propose.
    pub(super) const fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Closes the open entry, so that the node can propose it, and gives it the time `time_us`, in
    /// microseconds since the Unix epoch. Returns `None` if the entry has no command.
    pub(super) fn seal(&mut self, time_us: u64) -> Option<Sealed<T>> {
        if self.is_empty() {
            return None;
        }
        Encoder::resume(&mut self.open).set_time(time_us);
        let entry = self.open.split().freeze();
        self.open.reserve(ENTRY_HEADER_BYTES);
        let commands = std::mem::take(&mut self.commands) as usize;
        let fresh = self.spare.pop().unwrap_or_default();
        let mut waiters = std::mem::replace(&mut self.waiters, fresh);
        waiters.entry.commands = commands;
        waiters.entry.bytes = entry.len();
        Some(Sealed {
            entry,
            commands,
            waiters,
        })
    }

    /// Takes back an emptied collection of waiters, so that a later entry reuses its memory.
    pub(super) fn recycle(&mut self, mut waiters: Waiters<T>) {
        const SPARES_MAX: usize = 64;
        if self.spare.len() < SPARES_MAX {
            waiters.clear();
            self.spare.push(waiters);
        }
    }
}

/// Decides how large an entry may grow, with a controller of the engine at the boundary between publishers
/// and the group.
///
/// The controller's item is a command, its batch is an entry, and the cost of a batch is the time that the
/// proposal takes. No command waits for further commands: the node proposes the commands of a turn at the end
/// of the turn, since the log gathers the entries that arrive while a sync runs.
pub(super) struct Gauge {
    boundary: Boundary<Knee>,
    /// The numbers of commands and bytes that replace the controller's choice, for measurements; `None` if
    /// the controller chooses.
    fixed: Option<Load>,
}

impl Gauge {
    /// Creates the gauge. With `fixed`, a number of commands and a number of bytes, these numbers replace the
    /// controller's choice, for measurements.
    pub(super) fn new(fixed: Option<(u64, u64)>) -> Self {
        let bounds = Bounds {
            items_min: 1,
            items_max: ENTRY_COMMANDS_MAX,
            bytes_max: ENTRY_BYTES_MAX,
            age_max: Duration::from_millis(100),
            in_flight_max: None,
        };
        let knee = Knee::new(Objective::Lean, bounds).and_then(Knee::in_bytes);
        let knee = knee.unwrap_or_else(|e| unreachable!("these bounds are sound: {e}"));
        let boundary = Boundary::new(knee, bounds);
        Self {
            boundary: boundary.unwrap_or_else(|e| unreachable!("these bounds are sound: {e}")),
            fixed: fixed.map(|(commands, bytes)| Load::new(commands, bytes.min(ENTRY_BYTES_MAX))),
        }
    }

    /// Makes the controller write its decisions about the size of entries into `log`, under `name`, so that
    /// an operator can read them.
    pub(super) fn log_to(&mut self, log: &DecisionLog, name: &str) {
        self.boundary.log_to(log, name);
    }

    /// Returns whether an entry that holds `commands` commands in `held` bytes has no room for a further
    /// command of `bytes` bytes, so that the node closes the entry first.
    pub(super) fn is_full_for(&self, commands: usize, held: usize, bytes: usize) -> bool {
        let limit = self.limit();
        commands > 0 && ((held + bytes) as u64 > limit.bytes || commands as u64 >= limit.items)
    }

    fn limit(&self) -> Load {
        let Load { items, bytes } = self.boundary.limit();
        let bytes = bytes.clamp(ENTRY_BYTES_MIN, ENTRY_BYTES_MAX);
        self.fixed.unwrap_or_else(|| Load::new(items, bytes))
    }

    /// Tells the controller that the node has proposed an entry with this many commands and bytes, and that
    /// the proposal took `cost_ns` nanoseconds, from which the controller learns the cost of entries.
    pub(super) fn proposed(&mut self, now: Time, commands: usize, bytes: usize, cost_ns: u64) {
        let batch = Load::new(commands as u64, bytes as u64);
        let (left, cut) = (Load::default(), Cut::Forced(Reason::Drained));
        let now = self.boundary.at(now);
        let ran = self.boundary.ran(now, batch, left, cut, cost_ns, true);
        debug_assert!(ran.is_ok(), "{ran:?}");
    }

    /// Returns the state of the controller of the size of entries, which the monitor shows.
    pub(super) fn snapshot(&self) -> Snapshot {
        self.boundary.snapshot()
    }

    /// Returns the costs of entries by size that the controller has measured, which the monitor shows.
    pub(super) fn size_costs(&self) -> SizeCosts {
        self.boundary.size_costs()
    }
}

/// The entries that this node has proposed and the group has not committed yet, in order, each with the
/// clients that wait for it.
#[derive(Debug)]
pub(super) struct InFlight<T>(VecDeque<(EntryId, Waiters<T>)>);

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> InFlight<T> {
    /// Records a proposed entry until the group commits it: the index and term that the group gave the entry,
    /// and the clients that the node answers once the group commits it.
    pub(super) fn push(&mut self, at: EntryId, waiters: Waiters<T>) {
        // In another term the group may give the same index to another entry. The earlier entry with this
        // index is then lost. The node keeps its waiters until [`InFlight::take`] shows which entry the group
        // has committed.
        self.0.push_back((at, waiters));
    }

    /// Returns the waiters of this committed entry, so that the node answers them; `None` if this node did
    /// not propose the entry. An entry with this index and another term is a different entry. Calls `lost`
    /// with the waiters of earlier entries that the group will never commit, so that the caller can end their
    /// changes.
    pub(super) fn take(
        &mut self,
        EntryId { index, term }: EntryId,
        mut lost: impl FnMut(Waiters<T>),
    ) -> Option<Waiters<T>> {
        while let Some((first, _)) = self.0.front() {
            if (first.term, first.index) > (term, index) {
                return None;
            }
            let (first, waiters) = self.0.pop_front()?;
            if (first.term, first.index) == (term, index) {
                return Some(waiters);
            }
            lost(waiters);
        }
        None
    }

    /// Returns the number of entries that this node has proposed and the group has not committed yet, so that
    /// the node knows when it has no work left.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_stream::stream::Entry;

    #[test]
    fn waiters_find_their_commands() {
        let mut p = Proposals::default();
        assert!(p.seal(1).is_none());
        for i in 0..4_u32 {
            let command = Command::new(Kind::Publish, StreamNumber::new(i), b"a", b"x");
            let reply = format!("r.{i}");
            p.add(&command, (i % 2 == 1).then_some((reply.as_bytes(), i)))
                .unwrap();
        }
        let mut sealed = p.seal(7).unwrap();
        let entry = Entry::decode(&sealed.entry).unwrap();
        assert_eq!((entry.time_us(), entry.commands().count()), (7, 4));
        assert!(p.is_empty() && p.bytes() == 0);
        let mut flight = InFlight::default();
        let got: Vec<_> = sealed
            .waiters
            .drain()
            .map(|(n, reply, then)| (n, reply.to_vec(), then))
            .collect();
        assert_eq!(got, [(1, b"r.1".to_vec(), 1), (3, b"r.3".to_vec(), 3)]);
        let at = EntryId::new;
        flight.push(at(3, 1), sealed.waiters);
        flight.push(at(5, 1), Waiters::default());
        flight.push(at(5, 3), Waiters::default());
        let lost = std::cell::Cell::new(0);
        let take = |flight: &mut InFlight<u32>, index, term| {
            let count = |_| lost.set(lost.get() + 1);
            flight.take(at(index, term), count).is_some()
        };
        assert!(!take(&mut flight, 2, 1) && take(&mut flight, 3, 1));
        // Another node proposed the entry at 4. The node's entry at 5 of the first term is lost, because the
        // entry of term 3 replaced it.
        assert!(!take(&mut flight, 4, 2) && take(&mut flight, 5, 3));
        assert_eq!(lost.get(), 1);
        flight.push(at(6, 3), Waiters::default());
        // The group commits an entry of a later index, so the node's entry at 6 is lost.
        assert!(!take(&mut flight, 7, 4));
        assert_eq!((flight.len(), lost.get()), (0, 2));
    }
}
