//! A seed: nodes, network, disks, clients and time in one queue of events, and the faults that befall them. The same seed is the same run.

mod faults;
mod judge;
mod starts;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use raft::eraftpb::{Message, MessageType};
use tidegate_log::Doing;
use tidegate_server::store::Options;

use crate::bugs::{Bug, Planted};
use crate::client::{Acked, Client, Reply, Request};
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::ledger::Ledger;
use crate::net::Net;
use crate::node::{Answer, Disks, Up, wall};
use crate::oracle::{Oracle, Verdict, ensure};

/// Microseconds between two ticks of a node whose clock is right.
const TICK_US: u64 = 60_000;
/// A seed acknowledges at least so many messages.
const ACKS: usize = 1000;
/// So long a seed may take before it is called stuck, and so long all may take to come to the same once nothing is wrong any more.
const SEED_US: u64 = 300_000_000;
const HEAL_US: u64 = 60_000_000;

/// What a seed is about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    pub(crate) trace: Trace,
    /// Only what clients and other nodes could see is judged, not what is on disks.
    pub(crate) blind: bool,
}

/// What of a seed is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Events,
    /// Messages between nodes, too.
    Messages,
}

/// A seed in which something did not hold.
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
    Deliver(usize, Message),
    Tick(usize, u32),
    /// The log's sync ends.
    Sync(usize, u32),
    /// The log wanted to be asked again.
    Step(usize, u32),
    Start(usize),
    Resume(usize),
    Request(usize, Vec<Request>),
    Reply(Reply),
    Client(usize),
    Fault,
    /// The node's machine loses power, if it still lives this life.
    PowerLoss(usize, u32),
    /// A fault that lasts has lasted.
    NetHeals(u64),
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

/// A node, running or not, and what befalls it.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) disks: Disks,
    pub(crate) up: Option<Up>,
    pub(crate) ledger: Ledger,
    /// Counts its starts: events of an earlier life are void.
    life: u32,
    paused: bool,
    held: Vec<Event>,
    options: Options,
    /// What a sync takes, and until when none ends.
    sync_us: (u64, u64),
    hangs_until: u64,
    syncing: bool,
    step_at: Option<u64>,
    tick_us: u64,
    wall_us: i64,
    planted: Planted,
    /// Its disk is gone, and it has no place yet.
    lost: bool,
}

/// See the [module](self).
pub(crate) struct World {
    plan: Plan,
    dice: Dice,
    now: u64,
    order: u64,
    queue: BinaryHeap<Reverse<Queued>>,
    pub(crate) nodes: Vec<Node>,
    net: Net,
    net_fault: u64,
    clients: Vec<Client>,
    pub(crate) oracle: Oracle,
    acked: Vec<Acked>,
    floors: BTreeMap<u32, u64>,
    healing: bool,
    pub(crate) seen: Coverage,
}

impl World {
    /// Runs a seed to its end.
    pub(crate) fn run(plan: Plan) -> Result<Coverage, Failure> {
        let mut world = Self::new(plan);
        let outcome = world.live().and_then(|()| world.heal());
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
        let nodes = (0..count).map(|n| Node::new(n, &mut dice)).collect();
        // Where most messages go again, segments do, and who is away for long is behind everybody's log.
        let limited = dice.chance(300);
        let clients = (0..dice.range(5, 10))
            .map(|c| Client::new(c as usize, count, limited, &mut dice))
            .collect();
        let mut world = Self {
            plan,
            now: 0,
            order: 0,
            queue: BinaryHeap::new(),
            nodes,
            net: Net::new(count),
            net_fault: 0,
            clients,
            oracle: Oracle::default(),
            acked: Vec::new(),
            floors: BTreeMap::new(),
            healing: false,
            seen: Coverage::default(),
            dice,
        };
        for n in 0..count {
            let at = world.dice.below(50_000);
            world.push(at, Event::Start(n));
        }
        for c in 0..world.clients.len() {
            world.push(100_000, Event::Client(c));
        }
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

    /// Lives through faults until enough was acknowledged and enough has happened.
    fn live(&mut self) -> Verdict {
        while self.acked.len() < ACKS
            || self.oracle.terms_led() < 2
            || self.seen.of("crashes") + self.seen.of("power losses on all") == 0
        {
            ensure!(
                self.now < SEED_US,
                "stuck: {} messages acknowledged, {} terms led",
                self.acked.len(),
                self.oracle.terms_led()
            );
            self.next()?;
        }
        Ok(())
    }

    /// Nothing is wrong any more: all that run come to the same, and what was acknowledged is there.
    fn heal(&mut self) -> Verdict {
        self.healing = true;
        self.trace(|| "everything heals".to_owned());
        self.net.heal();
        for n in 0..self.nodes.len() {
            self.nodes[n].hangs_until = 0;
            self.nodes[n].sync_us = (50, 300);
            self.resume(n)?;
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
            Some(up) => format!(
                "node {} applied {:?}, leads {}, durable {}",
                n.id,
                up.applied,
                up.store.group().leads(),
                n.ledger.last()
            ),
            None => format!("node {} is down", n.id),
        };
        let nodes: Vec<_> = self.nodes.iter().map(of).collect();
        let waiting = self.clients.iter().filter(|c| !c.is_done()).count();
        format!("{waiting} clients wait, {}", nodes.join("; "))
    }

    fn is_settled(&self) -> bool {
        let last = self.oracle.last_committed();
        let done =
            |up: &Up| up.applied.0 >= last && up.consumed_all() && up.store.group().is_whole();
        let applied = |n: &Node| n.up.as_ref().is_some_and(done);
        self.clients.iter().all(Client::is_done) && self.nodes.iter().all(applied)
    }

    fn count(&mut self) {
        self.seen.add("acked messages", self.acked.len() as u64);
        self.seen
            .add("terms with a leader", self.oracle.terms_led() as u64);
        self.seen
            .add("entries committed", self.oracle.last_committed());
        self.seen
            .add("duplicates told", self.oracle.model.duplicates);
        self.seen
            .add("conditional publishes refused", self.oracle.model.refused);
        for node in &self.nodes {
            self.seen
                .add("entries overwritten on a disk", node.ledger.overwritten);
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
            Event::Deliver(n, _)
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
        match event {
            Event::Deliver(n, message) => self.deliver(n, message),
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
                if self.nodes[n].life == life && !self.healing {
                    let until = self.now + self.dice.range(1_000, 100_000);
                    return self.crash_node(n, until);
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

    fn deliver(&mut self, n: usize, message: Message) -> Verdict {
        let Some(up) = self.nodes[n].up.as_mut() else {
            return Ok(());
        };
        if let Err(error) = up.step(message) {
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
            up.serve(wall(self.now, node.wall_us), &self.oracle)
                .map_err(|what| format!("node {}: {what}", node.id))?;
            up.consume(&mut self.dice, &self.oracle, &mut self.seen)
                .map_err(|what| format!("node {}: {what}", node.id))?;
        }
        if up.store.group().is_whole() {
            // As the server's own file: what it says is no longer needed.
            node.options.rejoined = None;
        }
        let at = self.now + node.tick_us;
        self.push(at, Event::Tick(n, life));
        self.catch_up(n)?;
        self.turn(n)
    }

    /// A node that needs the state of another asks for some of it.
    fn catch_up(&mut self, n: usize) -> Verdict {
        let Some(mut up) = self.nodes[n].up.take() else {
            return Ok(());
        };
        let mut outcome = Ok(());
        if up.store.poll_catch_up().is_some() {
            let others = self.nodes.len() as u64 - 1;
            let m = (n + 1 + self.dice.below(others) as usize) % self.nodes.len();
            let reach = !self.net.is_cut(n, m) && !self.net.is_cut(m, n);
            let other = &mut self.nodes[m];
            if let Some(other) = other.up.as_mut().filter(|_| reach && !other.paused) {
                let mut catching_up = std::mem::take(&mut up.catching_up);
                outcome = catching_up.step(&mut up, other, &mut self.seen);
                up.catching_up = catching_up;
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
        if self.now < node.hangs_until {
            let at = node.hangs_until;
            self.push(at, Event::Sync(n, life));
            return Ok(());
        }
        node.syncing = false;
        let up = node.up.as_mut().ok_or("it runs")?;
        match self.plan.bug {
            // It was told before.
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

    /// A turn of a node's loop, and what comes of it.
    fn turn(&mut self, n: usize) -> Verdict {
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_mut() else {
            return Ok(());
        };
        if self.dice.chance(250) {
            up.work();
        }
        let mut answers = Vec::new();
        let alive = up.turn(self.now, node.wall_us, &mut self.oracle, &mut answers);
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
        while let Some(mut message) = self.nodes[n].up.as_mut().and_then(Up::poll_message) {
            if let Some(bug) = self.plan.bug {
                self.nodes[n].planted.message(bug, &mut message);
            }
            if !self.plan.blind {
                self.promises(n, &message)?;
            }
            if self.plan.trace == Trace::Messages {
                self.trace(|| {
                    format!(
                        "{} -> {} {:?} term {} index {} of {} commit {} entries {} reject {}",
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
                self.push(at, Event::Deliver(to, message.clone()));
            }
            // The worst moment is just after a promise.
            let votes = message.get_msg_type() == MessageType::MsgRequestVoteResponse;
            if votes && !message.reject && self.dice.chance(250) {
                let (at, life) = (self.now + self.dice.below(20_000), self.nodes[n].life);
                self.seen.hit("crashes after a vote");
                self.push(at, Event::PowerLoss(n, life));
            }
        }
        Ok(())
    }

    /// Has events come when the node's log next wants something.
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

    fn answers(&mut self, n: usize, answers: Vec<Answer>) -> Verdict {
        for (reply, entry) in answers {
            if let Some((index, term)) = entry
                && !self.plan.blind
            {
                let disks = self.nodes.iter().map(|n| &n.ledger);
                self.oracle.acked(index, term, self.nodes.len(), disks)?;
            }
            let lost = self.clients[reply.client].node != n || self.dice.chance(self.net.lost);
            if !lost {
                let at = self.now + self.dice.range(50, 500);
                self.push(at, Event::Reply(reply));
            }
        }
        Ok(())
    }

    fn reply(&mut self, reply: &Reply) -> Verdict {
        let acked = self.clients[reply.client].handle_reply(self.now, reply)?;
        let Some(acked) = acked else { return Ok(()) };
        let model = self.oracle.model.streams.get(&acked.stream);
        ensure!(
            model.and_then(|s| s.messages.get(&acked.seq)) == Some(&acked.crc),
            "an ack names message {} of stream {}, which is another",
            acked.seq,
            acked.stream
        );
        ensure!(
            acked.again || acked.seq > acked.floor,
            "message {} of stream {} was stored before {}, which was acknowledged before it was sent",
            acked.seq,
            acked.stream,
            acked.floor
        );
        let floor = self.floors.entry(acked.stream).or_default();
        *floor = (*floor).max(acked.seq);
        self.acked.push(acked);
        Ok(())
    }

    fn client(&mut self, c: usize) {
        // By the streams' order of creation; where there are none yet, nothing was acknowledged.
        let stream = self.clients[c].stream();
        let floor = self.floors.get(&stream).copied().unwrap_or(0);
        let (requests, again) = self.clients[c].act(self.now, floor);
        let node = self.clients[c].node;
        if !requests.is_empty() && !self.dice.chance(self.net.lost) {
            let at = self.now + self.dice.range(50, 400);
            self.push(at, Event::Request(node, requests));
        }
        self.push(again, Event::Client(c));
    }
}

impl Node {
    fn new(n: usize, dice: &mut Dice) -> Self {
        let options = Options {
            segment_bytes: dice.pick(&[32, 64, 128]) << 10,
            checkpoint_bytes_min: dice.pick(&[16, 64, 256]) << 10,
            tail_bytes_max: dice.pick(&[4, 64, 32 << 10]) << 10,
            uncommitted_bytes_max: dice.pick(&[32, 1024, 16 << 10]) << 10,
            seed: Some(dice.next()),
            ..Options::default()
        };
        Self {
            id: n as u64 + 1,
            disks: Disks::default(),
            up: None,
            ledger: Ledger::default(),
            life: 0,
            paused: false,
            held: Vec::new(),
            options,
            sync_us: dice.pick(&[(30, 200), (100, 1_000), (500, 6_000)]),
            hangs_until: 0,
            syncing: false,
            step_at: None,
            tick_us: TICK_US * dice.range(90, 110) / 100,
            wall_us: 0,
            planted: Planted::default(),
            lost: false,
        }
    }

    pub(crate) fn options(&self) -> Options {
        self.options.clone()
    }

    /// The same node on other disks, not running.
    pub(crate) fn on(&self, disks: Disks) -> Self {
        Self {
            disks,
            up: None,
            held: Vec::new(),
            ledger: self.ledger.clone(),
            options: self.options.clone(),
            planted: Planted::default(),
            ..*self
        }
    }
}
