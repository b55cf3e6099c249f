//! Simulates three members with lost, late and duplicated messages, with slow or hanging disks, and with
//! crashes. The simulation checks that every committed entry stays, is the same on all members, and is
//! durable on a quorum before the leader applies it. A seed determines each run, so that a failed run can be
//! repeated.

use std::collections::{BTreeMap, HashMap, VecDeque};

use bytes::Bytes;
use tidegate_cluster::groups::ALL;
use tidegate_log::Lsn;

use super::*;
use crate::lab::Lab;
use crate::replica::records::{KIND_COMMITTED, KIND_ENTRY, KIND_HARD_STATE, KIND_INSTALLED};
use crate::replica::{History, wire};

/// Draws pseudo-random numbers from a seed, so that a run can be repeated.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

const IDS: [u64; 3] = [11, 22, 33];

/// Entries by index, each with its term and its bytes.
type Entries = BTreeMap<Index, (Term, Bytes)>;

/// A checkpoint of a simulated member: the last entry in its state, the log position from which the log
/// continues behind it, and the state.
#[derive(Clone, Default)]
struct Checkpoint {
    entry: EntryId,
    next: u64,
    state: Entries,
}

/// A simulated member and its disk. A crash drops the member and keeps the disk.
struct Node {
    id: u64,
    group: Option<Group>,
    log: Vec<(Lsn, Record)>,
    end: u64,
    durable: u64,
    batches: VecDeque<u64>,
    checkpoint: Checkpoint,
    /// The entries that the simulated member has applied, by index.
    state: Entries,
    /// The id of the last entry that the simulated member has applied.
    applied: EntryId,
    /// A state of another member that the simulated member is writing as its checkpoint; `None` without a
    /// takeover.
    installing: Option<Checkpoint>,
    /// The turn of the simulation until which the member's disk hangs, and makes nothing durable.
    hangs_until: u64,
    released: u64,
}

impl Node {
    fn new(id: u64) -> Self {
        let mut node = Self {
            id,
            group: None,
            log: Vec::new(),
            end: 0,
            durable: 0,
            batches: VecDeque::new(),
            checkpoint: Checkpoint::default(),
            state: Entries::new(),
            applied: EntryId::ZERO,
            installing: None,
            hangs_until: 0,
            released: 0,
        };
        node.start();
        node
    }

    fn options(&self) -> GroupOptions {
        GroupOptions {
            group: ALL,
            id: self.id,
            voters: IDS.to_vec(),
            uncommitted_bytes_max: 1000,
            tail_bytes_max: 200,
            batch_bytes_max: 150,
            rejoined: None,
            lab: Lab::NONE,
        }
    }

    /// Returns the valid contents of the member's log at its restart: the hard state, the entries, the commit
    /// index, the history, and whether the log lacks a record of the checkpoint's takeover.
    fn restored(&self) -> (HardState, Entries, Index, History, bool) {
        let mut hard_state = HardState::default();
        let (mut entries, mut history) = (Entries::new(), History::default());
        let (mut committed, mut last) = (Index::ZERO, EntryId::ZERO);
        let mut before = None;
        for (lsn, record) in self.log.iter().filter(|(lsn, _)| lsn.get() < self.durable) {
            if lsn.get() >= self.checkpoint.next {
                before = before.or(Some(last));
            }
            let entry = EntryId::new(record.index, record.term);
            let EntryId { index, term } = entry;
            match record.kind {
                KIND_HARD_STATE => {
                    let vote = record.index;
                    hard_state = HardState { term, vote };
                }
                KIND_COMMITTED => committed = index,
                KIND_INSTALLED => {
                    entries.clear();
                    history = History::after(entry);
                    last = entry;
                }
                _ => {
                    entries.split_off(&index);
                    entries.insert(index, (term, record.payload.clone()));
                    if lsn.get() >= self.released {
                        history.push(entry, *lsn);
                    }
                    last = entry;
                }
            }
        }
        let checkpoint = self.checkpoint.entry;
        let unknown = before.unwrap_or(last) != checkpoint;
        let lost = unknown && before.is_none();
        if lost {
            entries.clear();
            history = History::after(checkpoint);
        }
        (
            hard_state,
            entries,
            committed.max(checkpoint.index),
            history,
            lost,
        )
    }

    fn start(&mut self) {
        self.log.retain(|(lsn, _)| lsn.get() < self.durable);
        (self.end, self.installing) = (self.durable, None);
        self.batches.clear();
        let (hard_state, entries, committed, history, installed) = self.restored();
        self.state = self.checkpoint.state.clone();
        self.applied = self.checkpoint.entry;
        let mut tail = Vec::new();
        for (&index, &(term, ref data)) in entries.range(self.applied.index.next()..) {
            let entry = EntryId { index, term };
            if index <= committed {
                self.applied = entry;
                if !data.is_empty() {
                    self.state.insert(index, (term, data.clone()));
                }
            } else {
                let of = |(_, r): &&(Lsn, Record)| {
                    r.kind == KIND_ENTRY && EntryId::new(r.index, r.term) == entry
                };
                tail.push(LoggedEntry {
                    index,
                    term,
                    lsn: self.log.iter().rev().find(of).unwrap().0,
                    data: data.clone(),
                });
            }
        }
        assert_eq!(self.applied.index, committed, "a committed entry is lost");
        let restored = Restored {
            hard_state,
            applied: self.applied,
            tail,
            history,
            installed,
        };
        self.group = Some(Group::open(self.options(), restored));
    }

    /// Appends all waiting batches of the member to its log.
    fn append(&mut self) {
        let Some(group) = &mut self.group else { return };
        while let Some(batch) = group.poll_append() {
            let mut positions = Vec::new();
            self.end += 48;
            for record in &batch.records {
                positions.push(Lsn::new(self.end));
                self.log.push((Lsn::new(self.end), record.clone()));
                self.end += record.stored_bytes();
            }
            self.batches.push_back(self.end);
            group.handle_appended(&positions, Lsn::new(self.end));
        }
    }

    fn sync(&mut self, batches: usize) {
        let count = batches.min(self.batches.len());
        if let Some(end) = self.batches.drain(..count).next_back() {
            self.durable = end;
            if let Some(group) = &mut self.group {
                group.handle_durable(Lsn::new(end));
            }
        }
    }

    /// Reads from the member's log the entries that lagging followers wait for, in place of the store.
    fn read(&mut self) {
        let Some(group) = &mut self.group else { return };
        while let Some(lagging) = group.poll_lagging() {
            let from = self.log.partition_point(|(lsn, _)| *lsn < lagging.near.lsn);
            assert_eq!(self.log[from].1.index, lagging.near.index.get());
            assert!(self.log[from].0.get() >= self.released, "it is gone");
            let mut next = lagging.index;
            let mut read = Vec::new();
            for (_, record) in &self.log[from..] {
                let id = EntryId::new(record.index, record.term);
                let counts = group.term_of(next) == Some(id.term);
                if record.kind == KIND_ENTRY && id.index == next && counts && read.len() < 5 {
                    read.push((id, record.payload.clone()));
                    next = next.next();
                }
            }
            assert!(!read.is_empty(), "the wanted entry is in the log");
            group.handle_read(lagging.index, read);
        }
    }
}

struct Sent {
    at: u64,
    to: u64,
    bytes: Bytes,
}

/// The simulated members, and the entries that the simulation checks; see the [module](self).
struct Cluster {
    dice: Dice,
    now: u64,
    nodes: Vec<Node>,
    network: Vec<Sent>,
    /// The id of the member that is cut off: it exchanges no messages with the others. `None` if all are
    /// connected.
    cut: Option<u64>,
    /// The simulation loses or duplicates about one message in this many, at random; 0 stands for a sound
    /// network.
    trouble: u64,
    leaders: HashMap<Term, u64>,
    /// All entries that any member has returned as committed.
    committed: Entries,
    /// The bytes of each entry that a member wrote, and the term of the entry before it.
    written: HashMap<EntryId, (Bytes, Term)>,
    proposals: u64,
    installed: u64,
    reads: u64,
}

impl Cluster {
    fn new(seed: u64) -> Self {
        Self {
            dice: Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            now: 0,
            nodes: IDS.map(Node::new).into(),
            network: Vec::new(),
            cut: None,
            trouble: 12,
            leaders: HashMap::new(),
            committed: Entries::new(),
            written: HashMap::new(),
            proposals: 0,
            installed: 0,
            reads: 0,
        }
    }

    fn deliver(&mut self) {
        let mut due = Vec::new();
        let now = self.now;
        self.network.retain_mut(|sent| {
            let waits = sent.at > now;
            if !waits {
                due.push((sent.to, std::mem::take(&mut sent.bytes)));
            }
            waits
        });
        for (to, bytes) in due {
            let (group, message) = wire::decode(&bytes).unwrap();
            assert_eq!(group, ALL);
            let cut = self.cut.is_some_and(|c| c == to || c == message.from);
            let node = self.nodes.iter_mut().find(|n| n.id == to).unwrap();
            if let Some(group) = node.group.as_mut().filter(|_| !cut) {
                let kind = message.get_msg_type();
                let stepped = group.step(message);
                assert_eq!(stepped, Ok(()), "{kind:?} to {to}");
            }
        }
    }

    fn send(&mut self, from: usize) {
        let Some(group) = &mut self.nodes[from].group else {
            return;
        };
        while let Some((to, message)) = group.poll_message() {
            let bytes: Bytes = wire::encode(ALL, &message).unwrap().concat().into();
            let copies = match self.trouble > 0 && self.dice.once_in(self.trouble) {
                true => 2 * self.dice.below(2),
                false => 1,
            };
            for _ in 0..copies {
                let late = match self.trouble > 0 && self.dice.once_in(self.trouble) {
                    true => self.dice.below(60),
                    false => self.dice.below(4),
                };
                let at = self.now + 1 + late;
                let bytes = bytes.clone();
                self.network.push(Sent { at, to, bytes });
            }
        }
    }

    /// Returns whether this entry is durable on a majority of the members, as every committed entry must be.
    fn is_safe(&self, EntryId { index, term }: EntryId) -> bool {
        let has = |node: &&Node| {
            let (_, entries, ..) = node.restored();
            node.checkpoint.entry.index >= index || entries.get(&index).is_some_and(|e| e.0 == term)
        };
        self.nodes.iter().filter(has).count() >= 2
    }

    fn apply(&mut self, at: usize) {
        let leads = self.nodes[at].group.as_ref().is_some_and(Group::leads);
        while let Some(entry) = self.nodes[at]
            .group
            .as_mut()
            .and_then(Group::poll_committed)
        {
            let node = &mut self.nodes[at];
            let id = entry.id();
            assert!(id.index > node.applied.index, "applied twice");
            node.applied = id;
            if !entry.data.is_empty() {
                node.state.insert(entry.index, (entry.term, entry.data));
            }
            if leads {
                assert!(self.is_safe(id), "not durable on most");
            }
        }
        self.agree(at);
    }

    /// Checks that the member has applied the same entries as all other members, as Raft guarantees.
    fn agree(&mut self, at: usize) {
        let node = &self.nodes[at];
        let last = self
            .committed
            .last_key_value()
            .map_or(Index::ZERO, |(index, _)| *index);
        for (index, entry) in node.state.range(last.next()..) {
            self.committed.insert(*index, entry.clone());
        }
        let so_far = self.committed.range(..=node.applied.index);
        assert!(so_far.eq(node.state.iter()), "{} applied others", node.id);
    }

    fn start(&mut self, at: usize) {
        self.nodes[at].start();
        // Entries that the member's log records as committed count as committed, even if no member has
        // applied them before.
        self.agree(at);
    }

    /// Checks that each term has one leader, and that entries with the same index and term have the same
    /// bytes and the same entry before them.
    fn check(&mut self) {
        for node in &self.nodes {
            let Some(group) = &node.group else { continue };
            if group.leads() {
                let leader = *self.leaders.entry(group.term()).or_insert(node.id);
                assert_eq!(leader, node.id, "two lead in term {}", group.term());
            }
            let first = group.first_index();
            let counts = first..group.committed_index().next().max(first);
            for (index, (term, _)) in self.committed.range(counts) {
                assert_eq!(group.term_of(*index), Some(*term), "entry {index}");
            }
            for index in first.to(group.last_index()) {
                let term = group.term_of(index).unwrap();
                let before = if index == Index::new(1) {
                    Some(Term::ZERO)
                } else {
                    group.term_of(index.previous())
                };
                let (Some(before), Some((_, t, data))) = (before, group.raft.store().get(index))
                else {
                    continue;
                };
                assert_eq!(t, term);
                let value = (data.clone(), before);
                let known = self
                    .written
                    .entry(EntryId { index, term })
                    .or_insert_with(|| value.clone());
                assert_eq!(known, &value, "entry {index} of term {term} differs");
            }
        }
    }

    /// Lets a member that needs a state fetch the state from another member.
    fn catch_up(&mut self, at: usize) {
        let Some(wanted) = self.nodes[at].group.as_ref().and_then(Group::poll_catch_up) else {
            return;
        };
        let from = self.nodes.iter().find(|n| {
            n.group.is_some() && n.applied.index >= wanted.index && self.cut != Some(n.id)
        });
        let Some(from) = from.filter(|_| self.cut != Some(self.nodes[at].id)) else {
            return;
        };
        let (state, entry) = (from.state.clone(), from.applied);
        let node = &mut self.nodes[at];
        node.append();
        let Some(group) = &mut node.group else { return };
        if node.installing.is_none() && group.begin_install(entry).is_ok() {
            node.installing = Some(Checkpoint {
                entry,
                next: node.end,
                state,
            });
        }
    }

    /// Completes a takeover: makes the fetched state the member's durable checkpoint.
    fn installed(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        // The taken-over state stands behind the end of the member's log, so the member first syncs the whole
        // log.
        node.sync(usize::MAX);
        if let (Some(group), Some(checkpoint)) = (&mut node.group, node.installing.take()) {
            node.applied = checkpoint.entry;
            node.state = checkpoint.state.clone();
            node.checkpoint = checkpoint;
            group.handle_installed();
            self.installed += 1;
        }
    }

    /// Takes a new checkpoint of the member, and releases the log before the previous checkpoint, as the
    /// store does.
    fn release(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.installing.is_some() || node.group.is_none() {
            return;
        }
        let of = |(_, r): &&(Lsn, Record)| {
            r.kind == KIND_ENTRY && EntryId::new(r.index, r.term) == node.applied
        };
        let Some((lsn, record)) = node.log.iter().rev().find(of) else {
            return;
        };
        let next = lsn.after(record.stored_bytes());
        node.released = node.checkpoint.next;
        node.checkpoint = Checkpoint {
            entry: node.applied,
            next: next.get(),
            state: node.state.clone(),
        };
        if let Some(group) = &mut node.group {
            group.handle_released(Lsn::new(node.released));
        }
    }

    fn propose(&mut self, at: usize) {
        self.proposals += 1;
        let len = 1 + self.dice.below(60) as usize;
        let mut data = self.proposals.to_le_bytes().to_vec();
        data.resize(8 + len, 0);
        if let Some(group) = &mut self.nodes[at].group {
            let _ = group.propose(data.into(), 1);
        }
    }

    fn turn(&mut self) {
        self.now += 1;
        self.deliver();
        for at in 0..self.nodes.len() {
            // The members do not tick at the same moments, since their clocks differ a little.
            if self.dice.once_in(5) {
                self.nodes[at]
                    .group
                    .as_mut()
                    .map(Group::tick)
                    .unwrap_or_default();
            }
            if self.dice.once_in(3) {
                self.propose(at);
            }
            if !self.dice.once_in(4) {
                self.nodes[at].append();
            }
            if self.nodes[at].hangs_until <= self.now {
                let batches = self.dice.below(6) as usize;
                self.nodes[at].sync(batches);
                if self.dice.once_in(10) && self.nodes[at].installing.is_some() {
                    self.installed(at);
                }
            }
            if self.nodes[at]
                .group
                .as_ref()
                .is_some_and(|g| g.poll_lagging().is_some())
                && self.dice.once_in(3)
            {
                // The member reads entries for lagging followers only in some turns, as a real store takes
                // time to read.
                self.nodes[at].read();
                self.reads += 1;
            }
            self.catch_up(at);
            self.send(at);
            self.apply(at);
        }
    }

    /// Causes one random fault, or repairs the faults of an earlier turn.
    fn disturb(&mut self) {
        let at = self.dice.below(3) as usize;
        match self.dice.below(9) {
            0 => self.cut = Some(IDS[at]),
            1 | 2 => self.cut = None,
            3 => self.nodes[at].hangs_until = self.now + self.dice.below(300),
            4 | 5 => self.crash(at),
            6 => self.release(at),
            7 => {
                let to = IDS[self.dice.below(3) as usize];
                if let Some(group) = &mut self.nodes[at].group {
                    let _ = group.transfer_leadership(to);
                }
            }
            _ => {
                let down = |n: &usize| self.nodes[*n].group.is_none();
                let down: Vec<usize> = (0..IDS.len()).filter(down).collect();
                down.into_iter().for_each(|at| self.start(at));
            }
        }
    }

    /// Cuts a leader off with its proposals, while the other members continue and release the entries that
    /// the leader would need to catch up.
    fn strand(&mut self) {
        let leads = |n: &Node| n.group.as_ref().is_some_and(Group::leads);
        let Some(alone) = self.nodes.iter().position(leads) else {
            return;
        };
        self.cut = Some(IDS[alone]);
        for _ in 0..30 {
            self.propose(alone);
        }
        self.nodes[alone].append();
        self.nodes[alone].sync(usize::MAX);
        for _ in 0..200 {
            self.turn();
            let others = self.nodes.iter().filter(|n| n.id != IDS[alone]);
            if others.filter(|n| leads(n)).count() > 0 {
                break;
            }
        }
        for _ in 0..2 {
            for _ in 0..4 + self.dice.below(20) {
                self.turn();
            }
            let others = (0..IDS.len()).filter(|at| *at != alone);
            others.for_each(|at| self.release(at));
        }
        self.cut = None;
        for _ in 0..self.dice.below(120) {
            self.turn();
        }
        if self.dice.once_in(2) {
            self.crash(alone);
        }
    }

    /// Crashes a member. Some of its first undurable batches may become durable, as on a real disk.
    fn crash(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        if node.group.take().is_some() {
            let kept = self.dice.below(3) as usize;
            self.nodes[at].sync(kept);
        }
    }

    /// Repairs all faults and checks that all members reach the same state with every committed entry, and
    /// continue.
    fn heal(&mut self) {
        (self.cut, self.trouble) = (None, 0);
        for at in 0..self.nodes.len() {
            self.nodes[at].hangs_until = 0;
            if self.nodes[at].group.is_none() {
                self.start(at);
            }
        }
        let begun = self.committed.len();
        for turn in 0..4000 {
            self.turn();
            let settled = self
                .nodes
                .iter()
                .filter(|n| n.group.as_ref().is_some_and(Group::leads_settled));
            let same = self.nodes.iter().all(|n| n.state == self.committed);
            if settled.count() == 1 && same && self.committed.len() > begun + 10 {
                return;
            }
            assert!(turn < 3999, "no agreement: {}", self.describe());
        }
    }

    fn describe(&self) -> String {
        let node = |n: &Node| {
            let group = n.group.as_ref().unwrap();
            format!(
                "\n{}: {:?} of {:?} in {}, {}..{} committed {} applied {:?} state {} {:?} {:?} {:?}",
                n.id,
                group.role(),
                group.leader(),
                group.term(),
                group.first_index(),
                group.last_index(),
                group.committed_index(),
                n.applied,
                n.state.len(),
                group.installing,
                group.poll_catch_up(),
                group.progress()
            )
        };
        self.nodes.iter().map(node).collect()
    }
}

#[test]
fn committed_entries_are_the_same_everywhere_and_stay() {
    let (mut committed, mut installed, mut reads, mut terms) = (0, 0, 0, 0);
    for seed in 1..=200 {
        println!("seed {seed}");
        let mut cluster = Cluster::new(seed);
        for turn in 0..1200 {
            cluster.turn();
            if seed % 2 == 0 && turn % 200 == 100 {
                cluster.strand();
            }
            if turn % 25 == 0 {
                cluster.disturb();
                cluster.check();
            }
        }
        cluster.heal();
        cluster.check();
        committed += cluster.committed.len();
        installed += cluster.installed;
        reads += cluster.reads;
        terms += cluster.leaders.len();
    }
    println!("{committed} committed, {installed} states taken over, {reads} reads, {terms} terms");
    assert!(committed > 200 * 50 && installed > 20 && reads > 20 && terms > 400);
}

/// Runs the simulation until a member leads, and returns that member's place in `nodes`.
fn leader(cluster: &mut Cluster) -> usize {
    for _ in 0..2000 {
        cluster.turn();
        let leads = |n: &Node| n.group.as_ref().is_some_and(Group::leads_settled);
        if let Some(at) = cluster.nodes.iter().position(leads) {
            return at;
        }
    }
    panic!("no node leads: {}", cluster.describe());
}

#[test]
fn a_leader_with_a_hanging_disk_hands_over_and_stands_again_once_it_works() {
    let mut cluster = Cluster::new(5);
    cluster.trouble = 0;
    let first = leader(&mut cluster);
    cluster.nodes[first].hangs_until = u64::MAX;
    let before = cluster.committed.len();
    let mut turns = 0;
    while cluster.nodes[first]
        .group
        .as_ref()
        .is_some_and(Group::leads)
    {
        cluster.turn();
        turns += 1;
        assert!(turns < 1000, "it leads on");
    }
    let second = leader(&mut cluster);
    assert_ne!(second, first);
    let term = cluster.nodes[second].group.as_ref().unwrap().term();
    for _ in 0..2000 {
        cluster.turn();
    }
    let group = cluster.nodes[second].group.as_ref().unwrap();
    assert!(group.leads() && group.term() == term, "no node disturbs it");
    assert!(cluster.committed.len() > before + 50);
    let hung = cluster.nodes[first].group.as_mut().unwrap();
    assert!(hung.is_stalled() && hung.role() == Role::Follower);
    hung.campaign();
    assert_eq!(hung.role(), Role::Follower);
    cluster.heal();
    assert!(!cluster.nodes[first].group.as_ref().unwrap().is_stalled());
}

#[test]
fn a_dead_leader_is_replaced_within_a_few_ticks_of_its_silence() {
    let mut cluster = Cluster::new(9);
    cluster.trouble = 0;
    let first = leader(&mut cluster);
    cluster.crash(first);
    let ticks = |c: &Cluster| {
        let alive = c.nodes.iter().filter_map(|n| n.group.as_ref());
        alive.map(|g| g.ticks).max().unwrap()
    };
    let before = ticks(&cluster);
    leader(&mut cluster);
    let took = ticks(&cluster) - before;
    assert!(
        took <= 2 * (ELECTION_TICKS + 2 * RANK_TICKS),
        "{took} ticks"
    );
}
