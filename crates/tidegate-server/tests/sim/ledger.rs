//! Keeps the durable contents of a node's disk: the ledger reads the log's records as they become durable,
//! independent of the node's own view, and separately for each group.

use std::collections::BTreeMap;

use tidegate_cluster::groups::{GroupId, GroupOf};
use tidegate_log::{Log, Lsn, Record};
use tidegate_raft::replica::Term;
use tidegate_raft::replica::records::{HardState, KIND_ENTRY, KIND_HARD_STATE, KIND_INSTALLED};

/// A durable entry on a node's disk, by its term and checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) term: u64,
    pub(crate) crc: u32,
}

/// Keeps the ledgers of a node's groups, see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Ledgers {
    /// The ledgers have read all bytes of the log before this position, which are durable.
    pub(crate) durable: Lsn,
    groups: BTreeMap<GroupId, Ledger>,
}

impl Ledgers {
    /// Creates the ledgers of a new disk of a node with these groups.
    pub(crate) fn new(groups: &[GroupOf]) -> Self {
        let groups = groups.iter().map(|g| (g.number, Ledger::default()));
        Self {
            durable: Lsn::ZERO,
            groups: groups.collect(),
        }
    }

    /// Creates the ledgers of a new disk in the place of a lost disk. A group without other members loses
    /// everything.
    pub(crate) fn after(before: Self, groups: &[GroupOf]) -> Self {
        let mut after = Self::new(groups);
        let several = groups.iter().filter(|g| g.members.len() > 1);
        for number in several.map(|g| g.number) {
            let before = before.of(number).clone();
            after.of_mut(number).before = Some(Box::new(before));
        }
        after
    }

    /// Returns the ledger of a group of the node.
    pub(crate) fn of(&self, group: GroupId) -> &Ledger {
        &self.groups[&group]
    }

    pub(crate) fn of_mut(&mut self, group: GroupId) -> &mut Ledger {
        self.groups.get_mut(&group).unwrap()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Ledger> {
        self.groups.values()
    }

    /// Reads the log on to its durable end, so that the oracle can judge new records. Passes each entry to
    /// `each`, with its group, its index and the entry before it.
    pub(crate) fn read_on(
        &mut self,
        log: &Log,
        mut each: impl FnMut(GroupId, u64, Held, Option<Held>) -> Result<(), String>,
    ) -> Result<(), String> {
        let (reader, durable) = (log.reader(), log.durable());
        let mut outcome = Ok(());
        while self.durable < durable {
            let bytes = durable.since(self.durable) as usize;
            let chunk = reader.scan(self.durable, bytes.min(64 << 10));
            let chunk = chunk.map_err(|e| format!("the durable log cannot be read: {e}"))?;
            if chunk.next == self.durable {
                break;
            }
            for (_, record) in chunk.records {
                let group = GroupId::new(record.group);
                let each = |index, held, before| each(group, index, held, before);
                let noted = self.of_mut(group).note(&record, each);
                outcome = outcome.and(noted);
            }
            self.durable = chunk.next;
        }
        outcome
    }
}

/// The durable records of one group on a node's disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// The durable entries by index; `None` before the first entry of this disk.
    entries: Vec<Option<Held>>,
    pub(crate) hard_state: HardState,
    /// The votes that the node has made durable, by term.
    pub(crate) votes: BTreeMap<u64, u64>,
    /// The index and the term of the last entry in the state that the node took over.
    installed: (u64, u64),
    /// The number of entries that the log replaced by other entries.
    pub(crate) overwritten: u64,
    /// The number of entries that the log wrote once more without a change.
    pub(crate) renewed: u64,
    /// The contents of the disk that the node lost before; other nodes may count on them.
    before: Option<Box<Self>>,
}

impl Ledger {
    /// Records the state with which a node opens: a starting node knows only the contents of its disks. A
    /// checkpoint has a sync of its own, so it may have a later term and vote than the log.
    pub(crate) fn opened(&mut self, state: HardState) {
        let (ours, theirs) = (self.hard_state, state);
        if (theirs.term, theirs.vote.min(1)) > (ours.term, ours.vote.min(1)) {
            self.hard_state = theirs;
            self.votes.insert(theirs.term.get(), theirs.vote);
        }
    }

    fn note(
        &mut self,
        record: &Record,
        mut each: impl FnMut(u64, Held, Option<Held>) -> Result<(), String>,
    ) -> Result<(), String> {
        match record.kind {
            KIND_HARD_STATE => {
                let state = HardState {
                    term: Term::new(record.term),
                    vote: record.index,
                };
                let before = std::mem::replace(&mut self.hard_state, state);
                self.votes.insert(state.term.get(), state.vote);
                if state.term < before.term {
                    return Err(format!(
                        "the term went from {} to {}",
                        before.term, state.term
                    ));
                }
                if state.term == before.term && before.vote != 0 && state.vote != before.vote {
                    return Err(format!(
                        "the vote in term {} went from {} to {}",
                        state.term, before.vote, state.vote
                    ));
                }
            }
            KIND_ENTRY => {
                let held = Held {
                    term: record.term,
                    crc: crc32c::crc32c(&record.payload),
                };
                let at = record.index as usize;
                match self.get(record.index) == Some(held) {
                    true => self.renewed += 1,
                    false => self.overwritten += self.entries.len().saturating_sub(at) as u64,
                }
                self.entries.resize(at, None);
                let before = record.index.checked_sub(1).and_then(|i| self.get(i));
                self.entries.push(Some(held));
                each(record.index, held, before)?;
            }
            KIND_INSTALLED => {
                self.entries.clear();
                self.entries.resize(record.index as usize + 1, None);
                self.installed = (record.index, record.term);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether this entry is durable on the node's disk, by itself or in a state that the node took
    /// over.
    pub(crate) fn has(&self, index: u64, term: u64) -> bool {
        index <= self.installed.0 || self.get(index).is_some_and(|h| h.term == term)
    }

    /// Returns whether this entry is durable on the node's disk, or was so on a disk that the node has lost
    /// since.
    pub(crate) fn holds(&self, index: u64, term: u64) -> bool {
        self.has(index, term) || self.before.as_ref().is_some_and(|b| b.holds(index, term))
    }

    /// Returns the entry with this index, if it is durable on the node's disk.
    pub(crate) fn get(&self, index: u64) -> Option<Held> {
        self.entries.get(index as usize).copied().flatten()
    }

    /// Returns the index of the last durable entry of the group.
    pub(crate) fn last(&self) -> u64 {
        (self.entries.len() as u64).saturating_sub(1)
    }
}
