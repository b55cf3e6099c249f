//! Three stores with a log and disks each, their messages carried by hand: what was applied anywhere is the same everywhere, and
//! survives crashes of any of them. Time passes only while nothing else happens.

use std::collections::BTreeMap;

use bytes::Bytes;
use tidegate_server::cluster::groups::groups;
use tidegate_server::replica::{Message, Role, wire};
use tidegate_server::store::{Fetch, Fetched, Options, WriteError};
use tidegate_server::stream::{Entry, Kind, Place};

use crate::common::{Disks, Node, options};
use crate::crash::Dice;
use crate::toy::{Toy, delete, store};

/// An entry of so many messages, of which the first will have this number.
fn store_of(seq: u64, messages: u64) -> Bytes {
    store(seq, messages, 100)
}

pub(crate) const IDS: [u64; 3] = [7, 8, 9];

/// More rounds than anything takes.
const ROUNDS_MAX: usize = 500_000;

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
    /// What each fetches: the state as of an entry, with those places that are known.
    fetching: Vec<Option<((u64, u64), Toy)>>,
    /// What each has fetched and is being installed.
    fetched: Vec<Option<(u64, Toy)>>,
    pub(crate) installed: u64,
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
            fetching: vec![None; IDS.len()],
            fetched: vec![None; IDS.len()],
            installed: 0,
        };
        (0..IDS.len()).for_each(|at| members.start(at));
        members
    }

    pub(crate) fn start(&mut self, at: usize) {
        let options = Options {
            id: IDS[at],
            groups: groups(IDS.to_vec(), 1).drain(..1).collect(),
            ..self.options.clone()
        };
        self.looked[at] = 0;
        (self.fetching[at], self.fetched[at]) = (None, None);
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
            let group = n.as_ref().map(|n| n.store.group(0));
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
            if let Some(installed) = node.store.poll_installed(0) {
                let (index, toy) = self.fetched[at].take().unwrap();
                assert_eq!(installed.0, index);
                node.toy = toy;
                self.installed += 1;
            }
            let node = self.nodes[at].as_mut().unwrap();
            while let Some((to, message)) = node.store.poll_message(0) {
                let bytes = wire::encode(node.store.group_number(0), &message).unwrap();
                let to = IDS.iter().position(|id| *id == to).unwrap();
                self.on_their_way.push((at, to, bytes.concat().into()));
            }
            busy |= node.store.log().stats().pending_bytes > 0;
            busy |= node.store.group(0).poll_append().is_some();
            busy |= node.is_busy();
            self.look(at);
            busy |= self.catch_up(at);
        }
        busy
    }

    /// What another has and this one needs is fetched; whether there is more to do.
    fn catch_up(&mut self, at: usize) -> bool {
        let node = self.nodes[at].as_mut().unwrap();
        if node.store.is_installing(0) {
            return true;
        }
        let Some(wanted) = node.store.poll_catch_up(0) else {
            node.store.abandon_catch_up(0);
            self.fetching[at] = None;
            return false;
        };
        if !node.store.begin_catch_up(0) || self.cut == Some(at) {
            return true;
        }
        let from = IDS.iter().position(|id| *id == wanted.from).unwrap();
        let Some(mut other) = self.nodes[from].take() else {
            // Time has to pass until somebody else leads.
            return false;
        };
        let mut node = self.nodes[at].take().unwrap();
        self.fetch(at, &mut node, &mut other, wanted.index);
        self.nodes[from] = Some(other);
        self.nodes[at] = Some(node);
        true
    }

    fn fetch(&mut self, at: usize, node: &mut Node, other: &mut Node, least: u64) {
        let applied = other.store.applied(0);
        let fetching = self.fetching[at].take_if(|f| f.0 == applied);
        let (_, mut toy) = fetching.unwrap_or_else(|| {
            let mut toy = other.toy.clone();
            // What this one has lies where it has it.
            for (seq, (place, _)) in &mut toy.messages {
                let ours = node.toy.messages.get(seq);
                *place = ours.map_or_else(Place::default, |(place, _)| *place);
            }
            (applied, toy)
        });
        while let Some(fetched) = node.store.poll_fetched(0) {
            if let Some((place, _)) = toy.messages.get_mut(&fetched.seq) {
                *place = fetched.place;
            }
        }
        let lacking = toy
            .messages
            .iter()
            .filter(|(_, (place, _))| *place == Place::default());
        let lacking: Vec<u64> = lacking.map(|(seq, _)| *seq).take(5).collect();
        if applied.0 >= least && lacking.is_empty() {
            let mut live = node.store.fresh_live();
            for (place, bytes) in toy.messages.values() {
                live.stored(*place, *bytes);
            }
            let parts = Box::new(toy.parts().into_iter());
            if node.store.install(0, applied, live, parts).is_ok() {
                self.fetched[at] = Some((applied.0, toy));
                return;
            }
        }
        let read = |seq: &u64| {
            let (place, _) = other.toy.messages.get(seq)?;
            match other.store.read_alone(0, *place) {
                Fetch::Ready(entry) => Some(Fetched {
                    stream: 1,
                    seq: *seq,
                    entry,
                }),
                _ => None,
            }
        };
        let messages: Vec<Fetched> = lacking.iter().filter_map(read).collect();
        if !messages.is_empty() && node.store.log().stats().pending_bytes == 0 {
            match node.store.append_fetched(0, &messages) {
                Ok(()) | Err(WriteError::Full) => {}
                Err(error) => panic!("{error}"),
            }
        }
        self.fetching[at] = Some((applied, toy));
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
            let group = n.store.group(0);
            let range = (
                group.first_index(),
                group.committed_index(),
                group.last_index(),
            );
            format!(
                "{:?} in {} {range:?} {} {:?} {:?}, to append {}, installing {}\n",
                group.role(),
                group.term(),
                n.toy.index,
                group.progress(),
                group.poll_catch_up(),
                group.poll_append().is_some(),
                n.store.is_installing(0),
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
        let proposed = match node.store.propose(0, data.clone(), 1) {
            Ok(proposed) => proposed,
            Err(WriteError::Full | WriteError::NotLeader) => return false,
            Err(error) => panic!("{error}"),
        };
        let (index, term) = (proposed.index, proposed.term);
        let done = self.until("an entry is applied", |m| {
            let node = m.nodes[at].as_ref()?;
            let is_still = node.store.group(0).leads() && node.store.group(0).term() == term;
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
fn entries_one_at_a_time_have_a_sync_each_and_a_second_one_for_each_message_where_that_is_asked_for()
 {
    for writes_twice in [false, true] {
        let mut members = Members::new(Options {
            one_at_a_time: true,
            writes_twice,
            anticipation: false,
            ..options()
        });
        let (mut entries, mut messages) = (0, 0);
        // A follower that is late is sent several at once.
        let mut proposed_by = [0; 3];
        while entries < 40 {
            let at = members.until("somebody leads", |m| m.leader());
            let store = &mut members.node(at).store;
            if !store.may_propose(0) {
                members.round();
                continue;
            }
            let data = store_of(messages + 1, 3);
            let proposed = store.propose(0, data.clone(), 3);
            assert!(proposed.is_ok(), "{proposed:?}");
            // Nobody has looked whether it is durable.
            assert!(!store.may_propose(0));
            assert!(matches!(store.propose(0, data, 3), Err(WriteError::Full)));
            (entries, messages) = (entries + 1, messages + 3);
            proposed_by[at] += 1;
        }
        members.until("all is applied", |m| {
            let mut nodes = m.nodes.iter().flatten();
            let all = |n: &Node| n.toy.messages.len() as u64 == messages;
            nodes.all(all).then_some(())
        });
        members.agree();
        for (node, entries) in members.nodes.iter().flatten().zip(proposed_by) {
            let stats = node.store.log().stats();
            assert!(stats.batches >= entries, "{stats:?}");
            assert!(stats.syncs - stats.markers >= stats.batches, "{stats:?}");
            let second = if writes_twice { messages } else { 0 };
            assert_eq!(node.store.second_syncs(), second);
        }
    }
}

#[test]
fn one_that_is_alone_decides_nothing_and_two_go_on() {
    let mut members = Members::new(options());
    members.fill(3, 100);
    let first = members.leader().unwrap();
    members.cut = Some(first);
    let proposed = members.node(first).store.propose(0, store(1000, 1, 10), 1);
    let lost = proposed.unwrap().index;
    let second = members.until("another leads", |m| {
        let leads = m.leader().filter(|at| *at != first);
        // The first notices that nobody hears it.
        leads.filter(|_| !m.node(first).store.group(0).leads())
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
    let refused = members.node(first).store.propose(0, store(1, 1, 1), 1);
    assert!(matches!(refused, Err(WriteError::NotLeader)));
    assert_eq!(members.node(first).store.group(0).uncommitted_bytes(), 0);
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
        .transfer_leadership(0, IDS[to])
        .unwrap();
    let before = members.ticks;
    members.until("the other leads", |m| m.leader().filter(|at| *at == to));
    assert!(members.ticks < before + 10, "nobody had to time out");
    members.fill(3, 100);
    members.agree();
}

#[test]
fn what_was_applied_survives_crashes_of_any_of_them() {
    for seed in 1..=40u64 {
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
                    .propose(0, store(toy.seq + 1, 1, 500), 1);
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

/// A log that soon lets go of what is not needed.
fn short() -> Options {
    Options {
        segment_bytes: 16 << 10,
        checkpoint_bytes_min: 24 << 10,
        tail_bytes_max: 4 << 10,
        ..options()
    }
}

/// Messages come and go while one of them is away, until nobody's log reaches back to it.
fn leave_behind(members: &mut Members, at: usize) {
    members.until("another leads", |m| m.leader().filter(|l| *l != at));
    let last = members.nodes[at]
        .as_ref()
        .map(|n| n.store.group(0).last_index());
    let last = last.unwrap_or(0);
    // The first stay, so that there is something both have.
    let old = |toy: &Toy| {
        let old = 3..toy.seq.saturating_sub(40);
        toy.messages
            .keys()
            .copied()
            .filter(|s| old.contains(s))
            .collect::<Vec<_>>()
    };
    loop {
        members.fill(10, 700);
        while !members.write(|toy| delete(old(toy))) {}
        let others = members.nodes.iter().enumerate().filter(|(n, _)| *n != at);
        let mut others = others.filter_map(|(_, n)| n.as_ref());
        if others.all(|n| n.store.group(0).first_index() > last + 1) {
            return;
        }
    }
}

#[test]
fn who_is_behind_everybodys_log_takes_over_the_state_and_goes_on() {
    let mut members = Members::new(short());
    members.fill(10, 300);
    let away = (members.leader().unwrap() + 1) % 3;
    members.cut = Some(away);
    leave_behind(&mut members, away);
    members.cut = None;
    members.agree();
    assert_eq!(members.installed, 1);
    members.fill(30, 20);
    members.agree();
    assert_eq!(members.installed, 1, "from there it is sent entries");
    // It is its own from now on.
    members.nodes[away].take().unwrap().store.close().unwrap();
    members.disks[away] = members.disks[away].copy();
    members.start(away);
    assert!(members.node(away).replayed >= 20);
    members.agree();
    // It could lead those it fetched from.
    let leader = members.leader().unwrap();
    let handed = members.node(leader).store.transfer_leadership(0, IDS[away]);
    assert_eq!(handed, Ok(()));
    members.until("it leads", |m| m.leader().filter(|at| *at == away));
    members.fill(3, 100);
    members.agree();
}

#[test]
fn a_crash_while_the_state_is_taken_over_loses_nothing() {
    for seed in 1..=40u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut members = Members::new(short());
        members.fill(1 + dice.below(10) as usize, 300);
        let away = (members.leader().unwrap() + 1) % 3;
        members.crash(away, &mut dice);
        leave_behind(&mut members, away);
        members.start(away);
        // In the middle of it, or a little later.
        let wanted = members.until("it needs the state", |m| {
            m.node(away).store.poll_catch_up(0)
        });
        assert!(wanted.index > 0);
        let rounds = dice.below(60);
        for _ in 0..rounds {
            members.round();
        }
        members.crash(away, &mut dice);
        members.start(away);
        members.fill(3, 500);
        members.agree();
        assert!(members.installed > 0);
        members.crash(away, &mut dice);
        members.start(away);
        members.agree();
    }
}
