//! Runs three nodes with one group or several in one log each, in one thread: each round does the work of the
//! stores' threads, and a sync takes until the next round. With threads, the stores do that work themselves.
//! Every node applies the same entries of a group.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId, GroupOf, groups};
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_log::{Doing, Steps};
use tidegate_raft::replica::{Message, StepError, wire};
use tidegate_raft::store::{Due, Fetch, Fetched, OpenError, Opening, Options, Store, WriteError};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Command, Entry, Kind, Place};

use crate::common::{Disks, options};
use crate::crash::Dice;
use crate::toy::{Toy, delete, store};

pub(crate) const IDS: [u64; 3] = [7, 8, 9];

/// The number of rounds after which a test fails: more than any test takes, even with waits for threads.
const ROUNDS_MAX: usize = 2_000_000;
/// The time that a round takes, in microseconds.
const ROUND_US: u64 = 200;

/// A node's part in one of its groups.
pub(crate) struct Member {
    pub(crate) number: GroupId,
    pub(crate) toy: Toy,
    /// The messages of another node's state that the member has fetched since its start, and their places.
    fetching: BTreeMap<u64, Place>,
    installing: Option<(u64, Toy)>,
}

pub(crate) struct Node {
    pub(crate) store: Store,
    /// The steps of the store's log, which the rounds run; `None` if threads do the work.
    steps: Option<Steps>,
    syncing: bool,
    pub(crate) members: PerGroup<Member>,
    /// The number of entries that the node's start replayed.
    pub(crate) replayed: usize,
    pub(crate) checkpoints: u64,
}

/// The three nodes, see the [module](self).
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Option<Node>>,
    pub(crate) disks: Vec<Disks>,
    pub(crate) options: Options,
    /// The number of groups of all nodes, see [`groups_of`].
    pub(crate) shards: u32,
    threads: bool,
    /// The node of which the network loses all messages.
    pub(crate) cut: Option<usize>,
    on_their_way: Vec<(usize, usize, Bytes)>,
    now_us: u64,
    pub(crate) ticks: u64,
    /// The entries of each group by index, as the first node applied them; the other nodes must apply equal
    /// ones.
    pub(crate) applied: BTreeMap<GroupId, BTreeMap<u64, Bytes>>,
    /// The numbers of fetched messages, and (`installed`) of states that nodes took over, by group.
    pub(crate) fetched: BTreeMap<GroupId, u64>,
    pub(crate) installed: BTreeMap<GroupId, u64>,
}

type Applied = BTreeMap<GroupId, BTreeMap<u64, Bytes>>;

/// Checks that a node applies the entry that all other nodes apply at this index.
fn look(applied: &mut Applied, group: GroupId, due: &Due) {
    if let Due::Entry(entry) = due {
        let entries = applied.entry(group).or_default();
        let known = entries
            .entry(entry.index.get())
            .or_insert_with(|| entry.data.clone());
        assert_eq!(known, &entry.data, "entry {} of {group}", entry.index);
    }
}

/// Returns the groups of one of the nodes: `shards` groups of all nodes and the node's own group; for 0, only
/// one group of all nodes.
pub(crate) fn groups_of(at: usize, shards: u32) -> Vec<GroupOf> {
    let mut groups = groups(IDS.to_vec(), shards);
    groups.retain(|g| match shards {
        0 => g.number == ALL,
        _ => g.members.contains(&IDS[at]),
    });
    groups
}

/// Makes options for a log that soon releases old segments, so that nodes fall behind it.
pub(crate) fn short() -> Options {
    Options {
        segment_bytes: 16 << 10,
        checkpoint_bytes_min: 24 << 10,
        tail_bytes_max: 4 << 10,
        ..options()
    }
}

/// Returns the numbers of all messages but the last `keep`, which a test deletes.
pub(crate) fn old(toy: &Toy, keep: u64) -> Vec<u64> {
    let to = toy.seq.saturating_sub(keep);
    let keys = toy.messages.keys().copied();
    keys.filter(|seq| *seq <= to).collect()
}

impl Node {
    /// Opens the store on these disks, and replays its entries.
    pub(crate) fn open(
        disks: &Disks,
        options: Options,
        (now, threads): (Time, bool),
        applied: &mut Applied,
    ) -> Result<Self, OpenError> {
        let (state, log) = (Arc::new(disks.state.clone()), Arc::new(disks.log.clone()));
        let groups = options.groups.clone();
        let (mut opening, steps) = if threads {
            (Opening::on(state, log, options, Arc::new(|| ()))?, None)
        } else {
            let (opening, steps) = Opening::stepped(state, log, options, now)?;
            (opening, Some(steps))
        };
        let member = |(at, group): (GroupSlot, &GroupOf)| {
            let state = opening.take_state(at);
            Member {
                number: group.number,
                toy: state.map_or_else(Toy::default, |state| Toy::restore(&state)),
                fetching: BTreeMap::new(),
                installing: None,
            }
        };
        let slots = GroupSlot::all(groups.len());
        let mut members: PerGroup<Member> = slots.zip(&groups).map(member).collect();
        let mut replayed = 0;
        let store = opening.replay(|at, due, live| {
            replayed += usize::from(matches!(due, Due::Entry(_)));
            look(applied, members[at].number, &due);
            members[at].toy.handle(due, live);
        })?;
        Ok(Self {
            store,
            steps,
            syncing: false,
            members,
            replayed,
            checkpoints: 0,
        })
    }

    /// Runs one turn of the node's loop, and of its threads.
    pub(crate) fn turn(&mut self, now: Time, applied: &mut Applied) {
        if let Some(steps) = &mut self.steps {
            if std::mem::take(&mut self.syncing) {
                steps.sync(now);
            }
            steps.keep();
            self.store.work();
        }
        self.store.poll().unwrap();
        while let Some((at, due)) = self.store.poll_due() {
            look(applied, self.members[at].number, &due);
            self.members[at].toy.handle(due, self.store.live_mut(at));
        }
        for (at, member) in self.members.with_slots() {
            if self.store.wants_checkpoint(at) {
                let parts = Box::new(member.toy.parts().into_iter());
                self.store.begin_checkpoint(at);
                self.store.checkpoint(at, parts);
                self.checkpoints += 1;
            }
        }
        if let Some(asked) = self.store.poll_lying() {
            let (lying, next) = self.members[asked.at].toy.residents_in(&asked);
            self.store.handle_lying(lying, next);
        }
        let doing = self.steps.as_mut().map(|steps| steps.step(now));
        self.syncing = doing == Some(Doing::Syncing);
    }

    fn is_busy(&self) -> bool {
        let store = &self.store;
        let busy = |at| {
            store.group(at).poll_append().is_some()
                || store.is_checkpointing(at)
                || store.poll_catch_up(at).is_some()
        };
        store.log().stats().pending_bytes > 0 || self.members.slots().any(busy)
    }

    /// Describes the positions of the node's groups, for the text of a failure.
    fn tell(&self) -> String {
        let of = |(at, member): (GroupSlot, &Member)| {
            let group = self.store.group(at);
            let range = (
                group.first_index(),
                group.committed_index(),
                group.last_index(),
            );
            format!(
                "{}: {:?} in {} {range:?} {} {:?} {:?}, to append {}, installing {}\n",
                member.number,
                group.role(),
                group.term(),
                member.toy.index,
                group.progress(),
                group.poll_catch_up(),
                group.poll_append().is_some(),
                self.store.is_installing(at),
            )
        };
        self.members.with_slots().map(of).collect()
    }

    pub(crate) fn member(&self, group: GroupId) -> &Member {
        &self.members[self.store.at(group).unwrap()]
    }

    /// Returns the number of bytes that the node's log takes.
    pub(crate) fn log_bytes(&self) -> u64 {
        let segments = self.store.log().segments();
        let bytes = segments.iter().map(|s| s.range.end.since(s.range.start));
        bytes.sum()
    }
}

impl Cluster {
    pub(crate) fn new(options: Options, shards: u32) -> Self {
        Self::begin(options, shards, false)
    }

    pub(crate) fn with_threads(options: Options, shards: u32) -> Self {
        Self::begin(options, shards, true)
    }

    fn begin(options: Options, shards: u32, threads: bool) -> Self {
        let mut cluster = Self {
            nodes: IDS.map(|_| None).into(),
            disks: IDS.map(|_| Disks::default()).into(),
            options,
            shards,
            threads,
            cut: None,
            on_their_way: Vec::new(),
            now_us: 0,
            ticks: 0,
            applied: BTreeMap::new(),
            fetched: BTreeMap::new(),
            installed: BTreeMap::new(),
        };
        (0..IDS.len()).for_each(|at| cluster.start(at));
        cluster
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.now_us * 1000)
    }

    /// Opens a node with these groups beside the running nodes.
    pub(crate) fn open(&mut self, at: usize, groups: Vec<GroupOf>) -> Result<Node, OpenError> {
        let options = Options {
            id: IDS[at],
            groups,
            ..self.options.clone()
        };
        let by = (self.now(), self.threads);
        Node::open(&self.disks[at], options, by, &mut self.applied)
    }

    pub(crate) fn start(&mut self, at: usize) {
        let node = self.open(at, groups_of(at, self.shards));
        self.nodes[at] = Some(node.unwrap());
    }

    /// Crashes a node, so that its disk loses part of its unsynced bytes.
    pub(crate) fn crash(&mut self, at: usize, dice: &mut Dice) {
        let (names, kept) = (dice.below(2) == 0, dice.below(3));
        let disks = &self.disks[at];
        self.disks[at] = Disks {
            state: disks.state.crash(names, |_, _| kept == 1),
            log: disks.log.crash(names, |_, _| dice.below(3) == 0),
        };
        self.nodes[at] = None;
    }

    /// Kills a node's process, so that its disk loses no written byte.
    pub(crate) fn kill(&mut self, at: usize) {
        self.nodes[at] = None;
        self.disks[at] = self.disks[at].copy();
    }

    pub(crate) fn node(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().unwrap()
    }

    pub(crate) fn leader(&self, group: GroupId) -> Option<usize> {
        let leads = |n: &Option<Node>| {
            let store = n.as_ref().map(|n| &n.store);
            let at = store.and_then(|s| Some((s, s.at(group)?)));
            at.is_some_and(|(s, at)| s.leads_settled(at))
        };
        self.nodes.iter().position(leads)
    }

    /// Runs one round of all nodes, and delivers messages. Returns whether anything happened.
    pub(crate) fn round(&mut self) -> bool {
        self.now_us += ROUND_US;
        let now = self.now();
        let mut busy = !self.on_their_way.is_empty();
        for (from, to, bytes) in std::mem::take(&mut self.on_their_way) {
            let cut = self.cut.is_some_and(|c| c == from || c == to);
            if let Some(node) = self.nodes[to].as_mut().filter(|_| !cut) {
                let (group, message): (GroupId, Message) = wire::decode(&bytes).unwrap();
                match node.store.step(group, message) {
                    // The node drops a message for which it has no room, as the server does, and the leader
                    // sends it again.
                    Ok(()) | Err(StepError::Full) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        for at in 0..self.nodes.len() {
            let Some(mut node) = self.nodes[at].take() else {
                continue;
            };
            node.turn(now, &mut self.applied);
            for of in node.members.slots() {
                self.catch_up(at, &mut node, of);
                while let Some((to, message)) = node.store.poll_message(of) {
                    let bytes = wire::encode(node.members[of].number, &message).unwrap();
                    let to = IDS.iter().position(|id| *id == to).unwrap();
                    self.on_their_way.push((at, to, bytes.concat().into()));
                }
            }
            busy |= node.is_busy();
            self.nodes[at] = Some(node);
        }
        busy
    }

    /// Fetches the state that this node needs from another member, a part in each round.
    fn catch_up(&mut self, at: usize, node: &mut Node, of: GroupSlot) {
        let Node { store, members, .. } = node;
        let member = &mut members[of];
        if let Some(entry) = store.poll_installed(of) {
            let (fetched, toy) = member.installing.take().unwrap();
            assert_eq!(entry.index.get(), fetched);
            member.toy = toy;
            *self.installed.entry(member.number).or_default() += 1;
        }
        if store.is_installing(of) {
            return;
        }
        let Some(wanted) = store.poll_catch_up(of) else {
            store.abandon_catch_up(of);
            member.fetching.clear();
            return;
        };
        if !store.begin_catch_up(of) || self.cut == Some(at) {
            return;
        }
        while let Some(fetched) = store.poll_fetched(of) {
            member.fetching.insert(fetched.seq.get(), fetched.place);
        }
        let from = IDS.iter().position(|id| *id == wanted.from).unwrap();
        let Some(other) = self.nodes[from].as_mut() else {
            return;
        };
        let theirs = other.store.at(member.number).unwrap();
        let applied = other.store.applied(theirs);
        if applied.index < wanted.index {
            return;
        }
        let mut toy = other.members[theirs].toy.clone();
        let mut lacking = Vec::new();
        for (seq, (place, _)) in &mut toy.messages {
            let ours = member.toy.messages.get(seq).map(|(place, _)| *place);
            let ours = ours.or_else(|| member.fetching.get(seq).copied());
            match ours.or_else(|| {
                store
                    .apart(of)
                    .place(StreamNumber::FIRST, StreamSeq::new(*seq))
            }) {
                Some(ours) => *place = ours,
                None => lacking.push((*seq, *place)),
            }
        }
        if lacking.is_empty() {
            let mut live = store.fresh_live();
            for (place, bytes) in toy.messages.values() {
                live.stored(*place, *bytes);
            }
            let parts = Box::new(toy.parts().into_iter());
            if store.install(of, applied, live, parts).is_ok() {
                member.installing = Some((applied.index.get(), toy));
            }
            return;
        }
        let mut messages = Vec::new();
        for (seq, place) in lacking.into_iter().take(5) {
            if let Fetch::Ready(entry) = other.store.read_alone(theirs, place) {
                let stream = 1;
                messages.push(Fetched {
                    stream: StreamNumber::new(stream),
                    seq: StreamSeq::new(seq),
                    entry,
                });
            }
        }
        if !messages.is_empty() && store.log().stats().pending_bytes == 0 {
            match store.append_fetched(of, &messages) {
                Ok(()) => {
                    *self.fetched.entry(member.number).or_default() += messages.len() as u64;
                }
                Err(WriteError::Full) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Runs rounds until `done` returns a value. Lets time pass while nothing else happens, and now and then.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        for round in 0..ROUNDS_MAX {
            let busy = self.round();
            if let Some(done) = done(self) {
                return done;
            }
            if busy && self.threads {
                std::thread::yield_now();
            } else if !busy || round % 300 == 299 {
                self.tick();
            }
        }
        let told: Vec<String> = self.nodes.iter().flatten().map(Node::tell).collect();
        panic!(
            "not in time: {what}, {} ticks\n{}",
            self.ticks,
            told.concat()
        );
    }

    pub(crate) fn tick(&mut self) {
        self.ticks += 1;
        for node in self.nodes.iter_mut().flatten() {
            node.store.tick();
        }
    }

    /// Lets enough time pass that all groups know the committed index, and that each node knows whether it
    /// needs another node's state.
    pub(crate) fn settle(&mut self) {
        for _ in 0..40 {
            self.tick();
            while self.round() {}
        }
    }

    /// Proposes an entry to the leader of the group, and waits until that node has applied it. Returns
    /// whether the node did.
    pub(crate) fn write(&mut self, group: GroupId, data: impl Fn(&Toy) -> Bytes) -> bool {
        let at = self.until("somebody leads", |c| c.leader(group));
        let node = self.node(at);
        let of = node.store.at(group).unwrap();
        let data = data(&node.members[of].toy);
        let proposed = match node.store.propose(of, data.clone(), 1) {
            Ok(proposed) => proposed,
            Err(WriteError::Full | WriteError::NotLeader) => {
                self.round();
                return false;
            }
            Err(error) => panic!("{error}"),
        };
        let (index, term) = (proposed.index.get(), proposed.term);
        let done = self.until("an entry is applied", |c| {
            let node = c.nodes[at].as_ref()?;
            let group = node.store.group(of);
            let still = group.leads() && group.term() == term;
            let applied = node.members[of].toy.index >= index;
            (applied || !still).then_some(applied)
        });
        done && self.applied[&group].get(&index) == Some(&data)
    }

    /// Stores further messages in a group, three in each entry.
    pub(crate) fn fill(&mut self, group: GroupId, entries: usize, len: usize) {
        for _ in 0..entries {
            while !self.write(group, |toy| store(toy.seq + 1, 3, len)) {}
        }
    }

    /// Stores and deletes messages in a group while a node is away, until no log reaches back to its last
    /// entry. The group keeps the first messages, so that all nodes have something in common.
    pub(crate) fn leave_behind(&mut self, group: GroupId, away: usize) {
        self.until("another leads", |c| c.leader(group).filter(|l| *l != away));
        let left = self.last(group);
        let goes = |toy: &Toy| old(toy, 40).into_iter().filter(|seq| *seq > 2);
        let reaches = |n: &Node| {
            let at = n.store.at(group).unwrap();
            n.store.group(at).first_index().get() <= left + 1
        };
        loop {
            self.fill(group, 10, 700);
            while !self.write(group, |toy| delete(goes(toy))) {}
            let others = self.nodes.iter().enumerate().filter(|(n, _)| *n != away);
            if !others.filter_map(|(_, n)| n.as_ref()).any(reaches) {
                return;
            }
        }
    }

    /// Returns the index of the last entry of a group that a node has applied.
    fn last(&self, group: GroupId) -> u64 {
        let last = self.applied.get(&group).and_then(|a| a.last_key_value());
        last.map_or(0, |(index, _)| *index)
    }

    /// Waits until every running node has applied all entries of every group, and checks that each node can
    /// read all messages.
    pub(crate) fn agree(&mut self) {
        self.until("everybody agrees", |c| {
            let all = |m: &Member| m.toy.index >= c.last(m.number);
            let mut nodes = c.nodes.iter().flatten();
            nodes.all(|n| n.members.iter().all(all)).then_some(())
        });
        let now = self.now();
        for node in self.nodes.iter_mut().flatten() {
            for at in node.members.slots() {
                let contents = contents(&self.applied, node.members[at].number);
                let messages = node.members[at].toy.messages.clone();
                assert!(messages.keys().eq(contents.keys()));
                for (seq, wanted) in contents {
                    let entry = loop {
                        let (place, _) = node.members[at].toy.messages[&seq];
                        match node.store.read(at, place) {
                            Fetch::Ready(entry) => break entry,
                            Fetch::Pending => node.turn(now, &mut self.applied),
                            other => panic!("message {seq} at {place:?}: {other:?}"),
                        }
                    };
                    let command = Command::read(&entry, 0).unwrap();
                    assert_eq!(command.payload, wanted, "message {seq}");
                }
            }
        }
    }
}

/// Computes the messages to which the applied entries of a group lead.
fn contents(applied: &Applied, group: GroupId) -> BTreeMap<u64, Vec<u8>> {
    let (mut seq, mut contents) = (0, BTreeMap::new());
    for data in applied.get(&group).into_iter().flat_map(|a| a.values()) {
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
