//! Order per key, for an actor that runs several batches at once: at most one batch in flight holds items
//! of a key.
//!
//! While a batch runs, its keys are busy. The actor sets an entry of a busy key aside, in order, and takes
//! this entry first after that batch is done; entries of other keys pass it. The number of entries set
//! aside is bounded: when that many entries wait for busy keys, the actor takes no more entries out of the
//! queue. Entries that a batch gave back come before the entries set aside for its keys.
//!
//! Invariants: a key is busy from the gathering of its batch until that batch is done; an entry is set
//! aside only while its key is busy; the entries of a key never pass each other.

use std::collections::{HashMap, VecDeque};

use super::handler::Op;
use super::shared::Entry;

/// A function that returns the key of an item, as a hash. Items with equal keys keep their order.
pub(super) type KeyOf<T> = Box<dyn Fn(&T) -> u64 + Send + Sync>;

pub(super) struct Keys<T, R, M> {
    of: KeyOf<T>,
    busy: HashMap<u64, Busy<T, R, M>>,
    /// The keys of the batch that the actor is gathering, which become free when the batch is done.
    gathering: Vec<u64>,
    /// The id of the batch that the actor is gathering. The batches of an actor have ids in order. By the id
    /// the actor distinguishes a key of this batch from a key that a running batch holds.
    turn: u64,
    /// True if the entry admitted last is the first of its key in the batch being gathered, so that
    /// `refuse` must free the key.
    fresh: bool,
    held: usize,
    held_max: usize,
    /// Empty lists of keys, kept to reuse their memory.
    spare: Vec<Vec<u64>>,
}

struct Busy<T, R, M> {
    /// The id of the batch that holds this key: the value of `Keys::turn` while the actor gathered the batch.
    turn: u64,
    held: VecDeque<Entry<T, R, M>>,
}

impl<T, R, M> Keys<T, R, M> {
    /// Creates the state that keeps the order of items for which `of` returns equal keys, and that sets at
    /// most `held_max` entries aside for busy keys.
    pub(super) fn new(of: KeyOf<T>, held_max: usize) -> Self {
        Self {
            of,
            busy: HashMap::new(),
            gathering: Vec::new(),
            turn: 0,
            fresh: false,
            held: 0,
            held_max: held_max.max(1),
            spare: Vec::new(),
        }
    }

    /// Returns the number of entries set aside for busy keys, which still wait.
    pub(super) const fn held(&self) -> usize {
        self.held
    }

    /// Returns how many more entries the actor may take out of the queue. Every one of these entries may have
    /// a busy key, and then needs a place among the entries set aside.
    pub(super) const fn room(&self) -> usize {
        self.held_max.saturating_sub(self.held)
    }

    /// Returns the entry if the batch being gathered may take it. Otherwise sets the entry aside until the
    /// batch that holds its key is done.
    pub(super) fn admit(&mut self, entry: Entry<T, R, M>) -> Option<Entry<T, R, M>> {
        self.fresh = false;
        let key = match &entry {
            Entry::Cast(_, item) | Entry::Call(_, item, _) => (self.of)(item),
            Entry::Retry(retried) => match &retried.op {
                Op::Cast(item) | Op::Call(item, _) => (self.of)(item),
                Op::Info(_) => return Some(entry),
            },
            Entry::Info(_) | Entry::Wake => return Some(entry),
        };
        if let Some(busy) = self.busy.get_mut(&key) {
            if busy.turn == self.turn {
                return Some(entry);
            }
            busy.held.push_back(entry);
            self.held += 1;
            return None;
        }
        let busy = Busy {
            turn: self.turn,
            held: VecDeque::new(),
        };
        self.busy.insert(key, busy);
        self.gathering.push(key);
        self.fresh = true;
        Some(entry)
    }

    /// Undoes the last [`admit`](Self::admit), because the batch did not take the entry.
    pub(super) fn refuse(&mut self) {
        if std::mem::take(&mut self.fresh)
            && let Some(key) = self.gathering.pop()
        {
            self.busy.remove(&key);
        }
    }

    /// Ends the gathering of a batch. Returns the keys of the batch. The actor passes them to `release` when
    /// the batch is done.
    pub(super) fn seal(&mut self) -> Vec<u64> {
        self.turn += 1;
        self.fresh = false;
        let spare = self.spare.pop().unwrap_or_default();
        std::mem::replace(&mut self.gathering, spare)
    }

    /// Frees the keys of a batch that is done. Moves the entries set aside for these keys to the front of
    /// `stash`, so that the next batch takes them first.
    pub(super) fn release(&mut self, mut keys: Vec<u64>, stash: &mut VecDeque<Entry<T, R, M>>) {
        let mut next = VecDeque::new();
        for key in keys.drain(..) {
            if let Some(mut busy) = self.busy.remove(&key) {
                self.held -= busy.held.len();
                next.append(&mut busy.held);
            }
        }
        next.into_iter()
            .rev()
            .for_each(|entry| stash.push_front(entry));
        if self.spare.len() < SPARES {
            self.spare.push(keys);
        }
    }

    /// Returns every entry set aside for a busy key, when the actor ends.
    pub(super) fn end(&mut self) -> impl Iterator<Item = Entry<T, R, M>> {
        self.held = 0;
        let busy = std::mem::take(&mut self.busy);
        busy.into_values().flat_map(|busy| busy.held)
    }

    /// Frees the memory that an idle actor need not keep: the empty lists of keys and most of the table of
    /// busy keys.
    pub(super) fn shrink(&mut self) {
        self.spare.clear();
        self.busy.shrink_to(SPARES);
    }
}

/// The greatest number of empty lists of keys that an actor keeps for reuse, and the capacity, in keys, that
/// its table of busy keys keeps while the actor is idle.
const SPARES: usize = 64;
