//! Three stores with a log and disks each, their messages carried by hand: what was applied anywhere is the same everywhere, and
//! survives crashes of any of them. Time passes only while nothing else happens.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_server::replica::{Message, Role, wire};
use tidegate_server::store::{Options, WriteError};
use tidegate_server::stream::{Entry, Kind};

use crate::common::{Disks, Node, options};
use crate::crash::Dice;
use crate::toy::{Toy, delete, store};

pub(crate) const IDS: [u64; 3] = [7, 8, 9];

/// More rounds than anything takes.
const ROUNDS_MAX: usize = 2_000_000;

pub(crate) struct Members {
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) disks: Vec<Disks>,
    pub(crate) options: Options,
    /// Messages to and from this one are lost.
    pub(crate) cut: Option<usize>,
    on_their_way: Vec<(usize, usize, Bytes)>,
    pub(crate) ticks: u64,
    /// Entries by index, as anybody applied them.
    pub(crate) applied: BTreeMap<u64, Bytes>,
    /// How many of its entries each node was looked at for.
    looked: Vec<usize>,
}

impl Members {
    pub(crate) fn new(options: Options) -> Self {
        let mut members = Self {
            nodes: IDS.map(|_| None).into(),
            disks: IDS.map(|_| Disks::default()).into(),
            options,
            cut: None,
            on_their_way: Vec::new(),
            ticks: 0,
            applied: BTreeMap::new(),
            looked: vec![0; IDS.len()],
        };
        (0..IDS.len()).for_each(|at| members.start(at));
        members
    }

    pub(crate) fn start(&mut self, at: usize) {
        let options = Options {
            id: IDS[at],
            voters: IDS.to_vec(),
            ..self.options.clone()
        };
        self.looked[at] = 0;
        self.nodes[at] = Some(Node::with(&self.disks[at], options).unwrap());
    }

    /// The node is gone, and a part of what it did not sync.
    pub(crate) fn crash(&mut self, at: usize, dice: &mut Dice) {
        let (names, kept) = (dice.below(2) == 0, dice.below(3));
        let disks = &self.disks[at];
        self.disks[at] = Disks {
            state: disks.state.crash(names, |_, _| kept == 1),
            log: disks.log.crash(names, |_, _| dice.below(3) == 0),
        };
        self.nodes[at] = None;
    }

    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().unwrap()
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads = |n: &Option<Node>| {
            let group = n.as_ref().map(|n| n.store.group());
            group.is_some_and(|g| g.role() == Role::Leader && g.leads_settled())
        };
        self.nodes.iter().position(leads)
    }

    /// One round of everybody; whether anything happened.
    fn round(&mut self) -> bool {
        let mut busy = !self.on_their_way.is_empty();
        for (from, to, bytes) in std::mem::take(&mut self.on_their_way) {
            let cut = self.cut.is_some_and(|c| c == from || c == to);
            if let Some(node) = self.nodes[to].as_mut().filter(|_| !cut) {
                let (group, message): (u32, Message) = wire::decode(&bytes).unwrap();
                node.store.step(group, message).unwrap();
            }
        }
        for at in 0..self.nodes.len() {
            let Some(node) = &mut self.nodes[at] else {
                continue;
            };
            node.turn();
            while let Some((to, message)) = node.store.poll_message() {
                let bytes = wire::encode(node.store.group_number(), &message).unwrap();
                let to = IDS.iter().position(|id| *id == to).unwrap();
                self.on_their_way.push((at, to, bytes.concat().into()));
            }
            busy |= node.store.log().stats().pending_bytes > 0;
            busy |= node.store.group().poll_append().is_some();
            busy |= node.is_busy();
            self.look(at);
        }
        busy
    }

    /// What it applied is what everybody did.
    fn look(&mut self, at: usize) {
        let node = self.nodes[at].as_ref().unwrap();
        for (_, index, data) in &node.entries[self.looked[at]..] {
            let known = self.applied.entry(*index).or_insert_with(|| data.clone());
            assert_eq!(known, data, "entry {index} differs on {at}");
        }
        self.looked[at] = node.entries.len();
    }

    /// Rounds until it is so.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        for _ in 0..ROUNDS_MAX {
            let busy = self.round();
            if let Some(done) = done(self) {
                return done;
            }
            if busy {
                std::thread::yield_now();
                continue;
            }
            self.ticks += 1;
            for node in self.nodes.iter_mut().flatten() {
                node.store.tick();
            }
        }
        let tell = |n: &Node| {
            let group = n.store.group();
            let range = (
                group.first_index(),
                group.committed_index(),
                group.last_index(),
            );
            format!(
                "{:?} in {} {range:?} {} {:?}, to append {}, {:?} durable {:?}\n",
                group.role(),
                group.term(),
                n.toy.index,
                group.progress(),
                group.poll_append().is_some(),
                n.store.log().stats(),
                n.store.log().durable(),
            )
        };
        let told: String = self.nodes.iter().flatten().map(tell).collect();
        panic!("not in time: {what}, {} ticks\n{told}", self.ticks);
    }

    /// Proposes to whoever leads, and waits until that one has applied it; whether it did.
    pub(crate) fn write(&mut self, data: impl Fn(&Toy) -> Bytes) -> bool {
        let at = self.until("somebody leads", |m| m.leader());
        let node = self.node(at);
        let data = data(&node.toy);
        let proposed = match node.store.propose(data.clone(), 1) {
            Ok(proposed) => proposed,
            Err(WriteError::Full | WriteError::NotLeader) => return false,
            Err(error) => panic!("{error}"),
        };
        let (index, term) = (proposed.index, proposed.term);
        let done = self.until("an entry is applied", |m| {
            let node = m.nodes[at].as_ref()?;
            let is_still = node.store.group().leads() && node.store.group().term() == term;
            (node.toy.index >= index || !is_still).then_some(node.toy.index >= index)
        });
        done && self.applied.get(&index) == Some(&data)
    }

    /// Everybody there has applied everything.
    pub(crate) fn agree(&mut self) {
        self.until("everybody agrees", |m| {
            let all = m.applied.last_key_value().map_or(0, |(index, _)| *index);
            let mut nodes = m.nodes.iter().flatten();
            nodes.all(|n| n.toy.index >= all).then_some(())
        });
        let contents = self.contents();
        for node in self.nodes.iter_mut().flatten() {
            assert!(node.toy.messages.keys().eq(contents.keys()));
            node.check_contents(|seq, _| contents[&seq].clone());
        }
    }

    /// The messages that what was applied leads to.
    fn contents(&self) -> BTreeMap<u64, Vec<u8>> {
        let (mut seq, mut contents) = (0, BTreeMap::new());
        for data in self.applied.values() {
            for command in Entry::decode(data).unwrap().commands() {
                let command = command.unwrap();
                if command.kind == Kind::Publish {
                    seq += 1;
                    contents.insert(seq, command.payload.to_vec());
                    continue;
                }
                for gone in command.payload.chunks_exact(8) {
                    contents.remove(&u64::from_le_bytes(gone.try_into().unwrap()));
                }
            }
        }
        contents
    }

    /// Some messages more.
    pub(crate) fn fill(&mut self, entries: usize, len: usize) {
        for _ in 0..entries {
            while !self.write(|toy| store(toy.seq + 1, 3, len)) {}
        }
    }
}

#[test]
fn what_one_leads_all_apply_and_it_is_there_after_all_restart() {
    let mut members = Members::new(options());
    members.fill(50, 300);
    members.agree();
    let applied = members.applied.clone();
    assert_eq!(applied.len(), 50);
    for at in 0..3 {
        members.nodes[at].take().unwrap().store.close().unwrap();
        members.disks[at] = members.disks[at].copy();
    }
    (0..3).for_each(|at| members.start(at));
    // What one of them knew to be committed it applies at once, the rest when somebody leads.
    assert!(members.nodes.iter().flatten().any(|n| n.replayed >= 40));
    members.fill(1, 10);
    members.agree();
    assert_eq!(members.applied.len(), 51);
}

#[test]
fn one_that_is_alone_decides_nothing_and_two_go_on() {
    let mut members = Members::new(options());
    members.fill(3, 100);
    let first = members.leader().unwrap();
    members.cut = Some(first);
    let proposed = members.node(first).store.propose(store(1000, 1, 10), 1);
    let lost = proposed.unwrap().index;
    let second = members.until("another leads", |m| {
        let leads = m.leader().filter(|at| *at != first);
        // The first notices that nobody hears it.
        leads.filter(|_| !m.node(first).store.group().leads())
    });
    assert!(members.node(first).toy.index < lost);
    members.fill(3, 100);
    members.cut = None;
    members.agree();
    assert_eq!(
        members.leader(),
        Some(second),
        "who comes back deposes nobody"
    );
    let refused = members.node(first).store.propose(store(1, 1, 1), 1);
    assert!(matches!(refused, Err(WriteError::NotLeader)));
    assert_eq!(members.node(first).store.group().uncommitted_bytes(), 0);
}

#[test]
fn leadership_is_handed_over() {
    let mut members = Members::new(options());
    members.fill(3, 100);
    let first = members.leader().unwrap();
    let to = (first + 1) % 3;
    members
        .node(first)
        .store
        .transfer_leadership(IDS[to])
        .unwrap();
    let before = members.ticks;
    members.until("the other leads", |m| m.leader().filter(|at| *at == to));
    assert!(members.ticks < before + 10, "nobody had to time out");
    members.fill(3, 100);
    members.agree();
}

#[test]
fn what_was_applied_survives_crashes_of_any_of_them() {
    for seed in 1..=12u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut members = Members::new(options());
        let mut acknowledged = Vec::new();
        for _ in 0..8 {
            for _ in 0..dice.below(20) {
                let (count, len) = (1 + dice.below(4), dice.below(3000) as usize);
                let deletes = dice.below(4) == 0;
                let written = members.write(|toy| match deletes && !toy.messages.is_empty() {
                    true => delete(toy.messages.keys().copied().filter(|seq| seq % 3 > 0)),
                    false => store(toy.seq + 1, count, len),
                });
                if written {
                    acknowledged.push(*members.applied.last_key_value().unwrap().0);
                }
            }
            let crashed = 1 + dice.below(3) as usize;
            let from = dice.below(3) as usize;
            // In the middle of something.
            if let Some(leader) = members.leader() {
                let toy = members.node(leader).toy.clone();
                let _ = members
                    .node(leader)
                    .store
                    .propose(store(toy.seq + 1, 1, 500), 1);
                for _ in 0..dice.below(4) {
                    members.round();
                }
            }
            let down: Vec<usize> = (0..crashed).map(|n| (from + n) % 3).collect();
            down.iter().for_each(|&at| members.crash(at, &mut dice));
            if crashed == 1 && dice.below(2) == 0 {
                members.fill(2, 100);
            }
            down.iter().for_each(|&at| members.start(at));
        }
        members.fill(1, 10);
        members.agree();
        assert!(
            acknowledged
                .iter()
                .all(|index| members.applied.contains_key(index))
        );
    }
}
