//! Runs a seed: nodes, network, disks, clients and time in one queue of events, and their faults. Each run of
//! a seed is equal.

mod clients;
mod faults;
mod full;
mod judge;
mod starts;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use raft::eraftpb::{Message, MessageType};
use tidegate_cluster::groups::{ALL, GroupId, GroupOf, groups};
use tidegate_log::Doing;
use tidegate_raft::store::Options;

use crate::bugs::{Bug, Planted};
use crate::catch_up::CatchingUp;
use crate::client::{Client, Reply, Request};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::ledger::Ledgers;
use crate::member::Member;
use crate::net::Net;
use crate::node::{Disks, Up, wall};
use crate::oracle::{Oracles, Verdict, ensure};

/// The number of microseconds between two ticks of a node with an accurate clock.
const TICK_US: u64 = 60_000;
/// The number of groups of all nodes.
const SHARDS: u32 = 2;
/// The least number of messages that the nodes acknowledge in a seed before it ends.
const ACKS: usize = 1000;
/// The longest virtual time that a seed may take before it counts as stuck, and (`HEAL_US`) the longest that
/// the nodes may take to reach one state after the last fault.
const SEED_US: u64 = 300_000_000;
const HEAL_US: u64 = 600_000_000;

/// The parameters of a run of a seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    pub(crate) trace: Trace,
    /// True if the oracles judge only effects that clients and other nodes can see, and not the disks.
    pub(crate) blind: bool,
}

/// The events of a seed that the run prints for a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Events,
    /// The run prints all events, and also the messages between nodes.
    Messages,
}

/// A failure of a seed: the run broke an invariant.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) seed: u64,
    pub(crate) at_us: u64,
    pub(crate) what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "SEED={} after {:.6} s: {}",
            self.seed,
            self.at_us as f64 / 1e6,
            self.what
        )
    }
}

enum Event {
    /// A message of this group reaches the node with this index.
    Deliver(usize, GroupId, Message),
    Tick(usize, u32),
    /// The sync of the node's log ends.
    Sync(usize, u32),
    /// The node's log asked to go on with its next step now.
    Step(usize, u32),
    Start(usize),
    Resume(usize),
    Request(usize, Vec<Request>),
    Reply(Reply),
    Client(usize),
    Fault,
    /// The node's machine loses power, unless the node has ended since.
    PowerLoss(usize, u32),
    /// A fault of the network ends.
    NetHeals(u64),
    /// The disks of this node have space again, unless they have filled once more since.
    Space(usize, u64),
}

struct Queued {
    at: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Queued {}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A node of the cluster, running or not, with its disks and faults.
pub(crate) struct Node {
    pub(crate) id: u64,
    /// The groups of which the node is a member.
    pub(crate) groups: Vec<GroupOf>,
    pub(crate) disks: Disks,
    pub(crate) up: Option<Up>,
    pub(crate) ledgers: Ledgers,
    /// The number of the node's starts, by which the world drops events of an earlier life.
    life: u32,
    paused: bool,
    held: Vec<Event>,
    options: Options,
    /// The duration of a sync of the node's log, and (`hangs_until`) the time before which no sync ends.
    sync_us: (u64, u64),
    hangs_until: u64,
    syncing: bool,
    /// True if the loop's own thread syncs. The node then handles no event before the sync ends, unless the
    /// sync hangs.
    loop_syncs: bool,
    /// The events that the node handles after the sync of its loop's thread.
    behind_sync: Vec<Event>,
    step_at: Option<u64>,
    tick_us: u64,
    wall_us: i64,
    planted: Planted,
    /// True if the node lost its disk and has no place in the cluster again yet.
    lost: bool,
    /// The number of the fault that filled the node's disks, and the bytes that its files can have on each
    /// disk.
    full: Option<(u64, (u64, u64))>,
}

/// The world of a seed, see the [module](self).
pub(crate) struct World {
    plan: Plan,
    dice: Dice,
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub(crate) nodes: Vec<Node>,
    net: Net,
    net_fault: u64,
    /// The number of times that faults filled disks, by which the world numbers these faults.
    filled: u64,
    /// All groups of the cluster; each node has the groups of which it is a member.
    groups: Vec<GroupOf>,
    /// Until this time, a node starts with its first group only.
    one_until: u64,
    clients: Vec<Client>,
    /// True if some streams drop most of their messages again.
    limited: bool,
    pub(crate) oracles: Oracles,
    acked: usize,
    healing: bool,
    /// True if no fault begins by chance.
    calm: bool,
    pub(crate) seen: Coverage,
}

impl World {
    /// Runs a seed to its end, and returns its coverage or the failure.
    pub(crate) fn run(plan: Plan) -> Result<Coverage, Failure> {
        let mut world = Self::new(plan);
        let outcome = world.live().and_then(|()| world.stay_full());
        let outcome = outcome.and_then(|()| world.heal());
        match outcome {
            Ok(()) => {
                world.count();
                Ok(world.seen)
            }
            Err(what) => Err(Failure {
                seed: plan.seed,
                at_us: world.now,
                what,
            }),
        }
    }

    fn new(plan: Plan) -> Self {
        let mut dice = Dice::new(plan.seed);
        let count = if dice.chance(150) { 5 } else { 3 };
        let groups = groups((1..=count as u64).collect(), SHARDS);
        let nodes = (0..count).map(|n| Node::new(n, &groups, &mut dice));
        let nodes = nodes.collect();
        // In some worlds streams drop most messages, so that logs release segments and a node that is away
        // for long falls behind all logs.
        let limited = dice.chance(300);
        // A planted bug affects all groups, so the nodes have all of them from the start.
        let one_until = dice.pick(&[0, 0, 0, 3_000_000]);
        let one_until = plan.bug.map_or(one_until, |_| 0);
        let mut world = Self {
            plan,
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            nodes,
            net: Net::new(count),
            net_fault: 0,
            filled: 0,
            oracles: Oracles::new(&groups),
            groups,
            one_until,
            clients: Vec::new(),
            limited,
            acked: 0,
            healing: false,
            calm: false,
            seen: Coverage::default(),
            dice,
        };
        for n in 0..count {
            let at = world.dice.below(50_000);
            world.push(at, Event::Start(n));
        }
        world.add_clients();
        world.push(1_000_000, Event::Fault);
        world
    }

    fn push(&mut self, at: u64, event: Event) {
        self.order += 1;
        let order = self.order;
        self.queue.push(Reverse(Queued { at, order, event }));
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.plan.trace != Trace::Off {
            println!("{:>12.6} {}", self.now as f64 / 1e6, what());
        }
    }

    /// Runs the world through faults until the clients have enough acknowledgements and enough faults have
    /// happened.
    fn live(&mut self) -> Verdict {
        while self.acked < ACKS
            || self.oracles.of(ALL).terms_led() < 2
            || self.seen.of("crashes") + self.seen.of("power losses on all") == 0
        {
            ensure!(
                self.now < SEED_US,
                "stuck: {} messages acknowledged, {} terms led",
                self.acked,
                self.oracles.of(ALL).terms_led()
            );
            self.next()?;
        }
        Ok(())
    }

    /// Ends all faults, and lets time pass: all running nodes must reach one state, with every acknowledged
    /// message.
    fn heal(&mut self) -> Verdict {
        (self.healing, self.one_until) = (true, 0);
        self.trace(|| "everything heals".to_owned());
        self.net.heal();
        for n in 0..self.nodes.len() {
            self.find_space(n);
            // The world cancels disk failures that have not happened yet, because they would end a node
            // during the check.
            self.nodes[n].disks.log.fail_no_more();
            self.nodes[n].hangs_until = 0;
            self.nodes[n].sync_us = (50, 300);
            self.resume(n)?;
            if self.is_small(n) {
                self.crash(n, false);
            }
            if self.nodes[n].up.is_none() {
                self.push(self.now, Event::Start(n));
            }
        }
        self.clients.iter_mut().for_each(|c| c.stopped = true);
        let until = self.now + HEAL_US;
        while !self.is_settled() {
            ensure!(self.now < until, "not settled: {}", self.lags());
            self.next()?;
        }
        self.check_end()
    }

    fn lags(&self) -> String {
        let of = |n: &Node| match &n.up {
            Some(up) => {
                let of = |m: &Member| {
                    let (leads, last) = (m.led, n.ledgers.of(m.group).last());
                    let applied = (m.applied.index.get(), m.applied.term.get());
                    let (consumed, left) = (m.consumed(), m.retained());
                    format!(
                        "{}: {applied:?} of {last}, leads {leads}, {consumed:?}, left {left:?}",
                        m.group
                    )
                };
                let of: Vec<_> = up.members.iter().map(of).collect();
                format!("node {} applied {}", n.id, of.join(", "))
            }
            None => format!("node {} is down", n.id),
        };
        let nodes: Vec<_> = self.nodes.iter().map(of).collect();
        let waiting = self.clients.iter().filter(|c| !c.is_done()).count();
        format!("{waiting} clients wait, {}", nodes.join("; "))
    }

    fn is_settled(&self) -> bool {
        let shared = self.groups.iter().filter(|g| g.members.len() > 1);
        let mut shared = shared.map(|g| g.number);
        let done = |up: &Up, m: &Member| {
            let last = self.oracles.of(m.group).last_committed();
            m.applied.index.get() >= last
                && m.consumed_all()
                && m.retains_nothing()
                && m.taken_all()
                && up.store.group(m.at).is_whole()
        };
        let all = |up: &Up| up.members.iter().all(|m| done(up, m));
        let applied = |n: &Node| n.up.as_ref().is_some_and(all);
        self.clients.iter().all(Client::is_done)
            && self.nodes.iter().all(applied)
            && shared.all(|group| self.leader_of(group).is_some())
    }

    fn count(&mut self) {
        let seen = &mut self.seen;
        seen.add("acked messages", self.acked as u64);
        for group in &self.groups {
            let oracle = self.oracles.of(group.number);
            seen.add("entries committed", oracle.last_committed());
            seen.add("duplicates told", oracle.model.duplicates);
            seen.add("conditional publishes refused", oracle.model.refused);
            let retained = &oracle.model.retained;
            seen.add("messages without a consumer left", retained.removed);
            seen.add("messages without interest", retained.without_interest);
            seen.add("messages taken in", oracle.model.takers.taken);
            seen.add("intakes refused", oracle.model.takers.refused);
            let acknowledged = oracle.model.takers.tapped.acknowledged;
            seen.add("messages acknowledged by a taker", acknowledged);
            let alone = group.members.len() == 1;
            let terms = match alone {
                true => "terms of a node alone",
                false => "terms with a leader",
            };
            seen.add(terms, oracle.terms_led() as u64);
            let acked = match group.number {
                ALL => "acked messages of the first group",
                _ if alone => "acked messages of nodes alone",
                _ => "acked messages of other groups",
            };
            seen.add(acked, oracle.acked.len() as u64);
            if oracle.acked.is_empty() && !alone {
                seen.hit("groups at rest");
            }
        }
        for ledger in self.nodes.iter().flat_map(|n| n.ledgers.all()) {
            seen.add("entries overwritten on a disk", ledger.overwritten);
            seen.add("entries written once more", ledger.renewed);
        }
        self.seen.add("simulated milliseconds", self.now / 1000);
        self.seen.add("events", self.order);
        if self.nodes.len() == 5 {
            self.seen.hit("five nodes");
        }
    }

    fn next(&mut self) -> Verdict {
        let Some(Reverse(queued)) = self.queue.pop() else {
            return Err("nothing happens any more".to_owned());
        };
        self.now = self.now.max(queued.at);
        self.handle(queued.event)
    }

    fn handle(&mut self, event: Event) -> Verdict {
        let node = match &event {
            Event::Deliver(n, ..)
            | Event::Tick(n, _)
            | Event::Sync(n, _)
            | Event::Step(n, _)
            | Event::Request(n, _) => Some(*n),
            _ => None,
        };
        if let Some(node) = node.map(|n| &mut self.nodes[n]).filter(|n| n.paused) {
            node.held.push(event);
            return Ok(());
        }
        if let Some(node) = node.map(|n| &mut self.nodes[n])
            && node.loop_syncs
            && !matches!(event, Event::Sync(..))
        {
            node.behind_sync.push(event);
            return Ok(());
        }
        match event {
            Event::Deliver(n, group, message) => self.deliver(n, group, message),
            Event::Tick(n, life) => self.tick(n, life),
            Event::Sync(n, life) => self.sync_ends(n, life),
            Event::Step(n, life) => {
                let node = &mut self.nodes[n];
                if node.life != life {
                    return Ok(());
                }
                node.step_at = None;
                self.turn(n)
            }
            Event::Start(n) => self.start(n),
            Event::Resume(n) => self.resume(n),
            Event::Request(n, requests) => {
                let mut answers = Vec::new();
                if let Some(up) = self.nodes[n].up.as_mut() {
                    for request in requests {
                        up.request(request, &mut answers);
                    }
                }
                self.answers(n, answers)?;
                self.turn(n)
            }
            Event::Reply(reply) => self.reply(&reply),
            Event::Client(c) => {
                self.client(c);
                Ok(())
            }
            Event::Fault => self.fault(),
            Event::PowerLoss(n, life) => {
                if self.nodes[n].life == life && !self.healing && !self.calm {
                    let until = self.now + self.dice.range(1_000, 100_000);
                    return self.crash_node(n, until);
                }
                Ok(())
            }
            Event::Space(n, filled) => {
                if self.nodes[n].full.is_some_and(|(of, _)| of == filled) {
                    self.find_space(n);
                }
                Ok(())
            }
            Event::NetHeals(fault) => {
                if fault == self.net_fault {
                    self.net.heal();
                }
                Ok(())
            }
        }
    }

    fn deliver(&mut self, n: usize, group: GroupId, message: Message) -> Verdict {
        let Some(up) = self.nodes[n].up.as_mut() else {
            return Ok(());
        };
        if let Err(error) = up.step(group, message) {
            self.seen.hit("messages refused");
            self.trace(|| format!("node {} refuses a message: {error}", n + 1));
        }
        self.turn(n)
    }

    fn tick(&mut self, n: usize, life: u32) -> Verdict {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_mut().filter(|_| node.life == life) else {
            return Ok(());
        };
        up.tick();
        up.work();
        if self.dice.chance(300) || self.healing {
            let wall = wall(self.now, node.wall_us);
            for member in &mut up.members {
                let oracle = self.oracles.of(member.group);
                let served = member.serve(&mut up.store, wall, oracle);
                let (dice, seen) = (&mut self.dice, &mut self.seen);
                let heals = self.healing && self.clients.iter().all(Client::is_done);
                let of = (oracle, &mut *dice);
                let served =
                    served.and_then(|()| member.work(&mut up.store, wall, of, heals, seen));
                let served = served.and_then(|()| {
                    let of = (heals, &mut *dice);
                    member.take_in(&mut up.store, wall, of, seen)
                });
                let read = served.and_then(|()| member.consume(&mut up.store, dice, oracle, seen));
                read.map_err(|what| format!("node {}, group {}: {what}", node.id, member.group))?;
            }
        }
        if up.members.iter().all(|m| up.store.group(m.at).is_whole()) {
            // The node no longer needs that term, so the world removes it, as the server removes it from its
            // file.
            node.options.rejoined = None;
        }
        let at = self.now + node.tick_us;
        self.push(at, Event::Tick(n, life));
        self.look_for_room(n);
        self.catch_up(n)?;
        self.turn(n)
    }

    /// Lets a node that needs another node's state fetch a part of it.
    fn catch_up(&mut self, n: usize) -> Verdict {
        let Some(mut up) = self.nodes[n].up.take() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        for member in &mut up.members {
            if up.store.poll_catch_up(member.at).is_none() {
                CatchingUp::end(member, &mut up.store, &mut self.seen);
                continue;
            }
            let others = self.nodes.len() as u64 - 1;
            let m = (n + 1 + self.dice.below(others) as usize) % self.nodes.len();
            let reach = !self.net.is_cut(n, m) && !self.net.is_cut(m, n);
            let other = &mut self.nodes[m];
            let Some(other) = other.up.as_mut().filter(|_| reach && !other.paused) else {
                continue;
            };
            let theirs = other.members.iter().find(|m| m.group == member.group);
            if let Some(theirs) = theirs {
                let ours = (member, &mut up.store);
                let caught_up = CatchingUp::step(ours, (theirs, &mut other.store), &mut self.seen);
                outcome = outcome.and(caught_up);
            }
        }
        self.nodes[n].up = Some(up);
        outcome
    }

    fn sync_ends(&mut self, n: usize, life: u32) -> Verdict {
        let node = &mut self.nodes[n];
        if node.life != life || node.up.is_none() {
            return Ok(());
        }
        let hangs_until = node.hangs_until;
        // The sync hangs, so another thread takes over the loop and handles the waiting events.
        node.loop_syncs = false;
        for event in std::mem::take(&mut node.behind_sync) {
            self.push(self.now, event);
        }
        if self.now < hangs_until {
            self.push(hangs_until, Event::Sync(n, life));
            return Ok(());
        }
        let node = &mut self.nodes[n];
        node.syncing = false;
        let up = node.up.as_mut().ok_or("it runs")?;
        match self.plan.bug {
            // The harness has already reported this sync to the node, because of the planted bug.
            Some(Bug::AckBeforeSync) => {
                if !node.planted.after_sync() {
                    return Ok(());
                }
            }
            Some(bug) => {
                node.planted.before_sync(bug, &node.disks.log);
                up.sync(self.now);
            }
            None => up.sync(self.now),
        }
        self.seen.hit("syncs");
        self.look_at_disk(n)?;
        self.turn(n)
    }

    /// Runs a turn of a node's loop, and carries out its results: messages, answers and the next events.
    fn turn(&mut self, n: usize) -> Verdict {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_mut() else {
            return Ok(());
        };
        if self.dice.chance(250) {
            up.work();
        }
        let mut answers = Vec::new();
        let alive = up.turn(self.now, node.wall_us, &mut self.oracles, &mut answers);
        let alive = alive.map_err(|what| format!("node {}: {what}", node.id))?;
        self.answers(n, answers)?;
        if !alive {
            self.trace(|| format!("node {} ends: its disk failed", n + 1));
            self.seen.hit("nodes ended by a failed disk");
            self.crash(n, false);
            let at = self.now + self.dice.range(10_000, 2_000_000);
            self.push(at, Event::Start(n));
            return Ok(());
        }
        self.judge(n)?;
        self.send(n)?;
        self.schedule(n);
        Ok(())
    }

    fn send(&mut self, n: usize) -> Verdict {
        while let Some((group, mut message)) = self.nodes[n].up.as_mut().and_then(Up::poll_message)
        {
            if let Some(bug) = self.plan.bug {
                self.nodes[n].planted.message(bug, group, &mut message);
            }
            if !self.plan.blind {
                self.promises(n, group, &message)?;
            }
            if self.plan.trace == Trace::Messages {
                self.trace(|| {
                    format!(
                        "{} -> {} group {group} {:?} term {} index {} of {} commit {} entries {} reject {}",
                        message.from,
                        message.to,
                        message.get_msg_type(),
                        message.term,
                        message.index,
                        message.log_term,
                        message.commit,
                        message.entries.len(),
                        message.reject
                    )
                });
            }
            let Some(to) = self.nodes.iter().position(|node| node.id == message.to) else {
                return Err(format!("a message for nobody: {message:?}"));
            };
            let arrivals = self.net.arrivals(&mut self.dice, self.now, (n, to));
            match arrivals.len() {
                0 => self.seen.hit("messages lost"),
                1 => {}
                _ => self.seen.hit("messages doubled"),
            }
            for at in arrivals {
                self.push(at, Event::Deliver(to, group, message.clone()));
            }
            // The world likes to crash a node just after a promise, because that is the worst moment.
            let votes = message.get_msg_type() == MessageType::MsgRequestVoteResponse;
            if votes && !message.reject && self.dice.chance(250) {
                let (at, life) = (self.now + self.dice.below(20_000), self.nodes[n].life);
                self.seen.hit("crashes after a vote");
                self.push(at, Event::PowerLoss(n, life));
            }
        }
        Ok(())
    }

    /// Schedules the next events of the node's log, such as the end of a sync.
    fn schedule(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_ref() else { return };
        match up.doing {
            Doing::Syncing if self.plan.bug == Some(Bug::AckBeforeSync) => {
                node.planted
                    .before_sync(Bug::AckBeforeSync, &node.disks.log);
                let at = self.now + self.dice.range(node.sync_us.0, node.sync_us.1);
                let life = node.life;
                if let Some(up) = node.up.as_mut() {
                    up.sync(self.now);
                }
                self.push(at, Event::Sync(n, life));
                self.push(self.now, Event::Step(n, life));
            }
            Doing::Syncing if !node.syncing => {
                node.syncing = true;
                node.loop_syncs = self.dice.chance(300);
                if node.loop_syncs {
                    self.seen.hit("syncs on the loop's thread");
                }
                let at = self.now + self.dice.range(node.sync_us.0, node.sync_us.1);
                let life = node.life;
                self.push(at, Event::Sync(n, life));
            }
            Doing::Waiting(Some(at)) => {
                let at = (at.as_nanos() / 1000 + 1).max(self.now + 1);
                if node.step_at.is_none_or(|s| s > at) {
                    node.step_at = Some(at);
                    let life = node.life;
                    self.push(at, Event::Step(n, life));
                }
            }
            _ => {}
        }
    }
}

impl Node {
    fn new(n: usize, groups: &[GroupOf], dice: &mut Dice) -> Self {
        let id = n as u64 + 1;
        let has = |group: &&GroupOf| group.members.contains(&id);
        let groups: Vec<GroupOf> = groups.iter().filter(has).cloned().collect();
        let mut options = Options {
            segment_bytes: dice.pick(&[32, 64, 128]) << 10,
            checkpoint_bytes_min: dice.pick(&[16, 64, 256]) << 10,
            tail_bytes_max: dice.pick(&[4, 64, 32 << 10]) << 10,
            uncommitted_bytes_max: dice.pick(&[32, 1024, 16 << 10]) << 10,
            seed: Some(dice.next()),
            ..Options::default()
        };
        // The logs of about half of the nodes reserve their first segments in steps, some from a few pages
        // on.
        options.first_bytes = match options.seed.map(|seed| seed % 4) {
            Some(0) => options.segment_bytes / 4,
            Some(2) => (options.segment_bytes / 8).max(8 << 10),
            _ => options.segment_bytes,
        };
        Self {
            id,
            disks: Disks::default(),
            up: None,
            ledgers: Ledgers::new(&groups),
            groups,
            life: 0,
            paused: false,
            held: Vec::new(),
            loop_syncs: false,
            behind_sync: Vec::new(),
            options,
            sync_us: dice.pick(&[(30, 200), (100, 1_000), (500, 6_000)]),
            hangs_until: 0,
            syncing: false,
            step_at: None,
            tick_us: TICK_US * dice.range(90, 110) / 100,
            wall_us: 0,
            planted: Planted::default(),
            lost: false,
            full: None,
        }
    }

    pub(crate) fn options(&self) -> Options {
        self.options.clone()
    }

    /// Returns the numbers of the node's groups with other members.
    pub(crate) fn several(&self) -> Vec<GroupId> {
        let several = self.groups.iter().filter(|g| g.members.len() > 1);
        several.map(|g| g.number).collect()
    }

    /// Makes the node's disks as full as they were before a crash. Files that the crash brings back keep
    /// their space.
    fn fill_again(&mut self) {
        let (state, log) = self.disks.used();
        let capacity = self.full.map(|(_, had)| (state.max(had.0), log.max(had.1)));
        self.disks.set_capacity(capacity);
    }

    /// Returns a copy of the node on other disks, not running.
    pub(crate) fn on(&self, disks: Disks) -> Self {
        Self {
            disks,
            up: None,
            held: Vec::new(),
            loop_syncs: false,
            behind_sync: Vec::new(),
            ledgers: self.ledgers.clone(),
            groups: self.groups.clone(),
            options: self.options.clone(),
            planted: Planted::default(),
            ..*self
        }
    }
}
