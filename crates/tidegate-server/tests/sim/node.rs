//! Runs a node: the real store with its groups in one log on simulated disks, and a [`Member`] for each
//! group. The world takes the part of the server's sockets.

use std::sync::Arc;

use tidegate::Time;
use tidegate_cluster::groups::{GroupId, GroupOf};
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_log::{Doing, SimDisk, Steps, Storage as _};
use tidegate_raft::replica::{Message, StepError};
use tidegate_raft::store::{Due, OpenError, Opening, Options, Replaying, Store};
use tidegate_stream::stream::{AccountLimits, Streams};

use crate::bugs::{Bug, without_ids};
use crate::client::{Reply, Request};
use crate::member::Member;
use crate::oracle::{Oracles, ensure};
use crate::world::{Node, Plan};

/// The time that all wall clocks show at the start, in microseconds.
const EPOCH_US: u64 = 1_700_000_000_000_000;

/// The number of ticks after which a node without space checks whether it has space again.
const SPACE_TICKS: u64 = 8;

/// The two simulated disks of a node: one for checkpoints, one for the log.
#[derive(Clone, Default)]
pub(crate) struct Disks {
    pub(crate) state: SimDisk,
    pub(crate) log: SimDisk,
}

impl Disks {
    /// Returns the bytes of the node's files on the disk for checkpoints, and on the log's disk.
    pub(crate) fn used(&self) -> (u64, u64) {
        let used = |disk: &SimDisk| {
            let names = disk.list().unwrap_or_default();
            names
                .iter()
                .map(|name| disk.content(name).len() as u64)
                .sum()
        };
        (used(&self.state), used(&self.log))
    }

    /// Bounds the bytes that the node's files can have on these disks, or ends the bounds.
    pub(crate) fn set_capacity(&self, bytes: Option<(u64, u64)>) {
        self.state.set_capacity(bytes.map(|(state, _)| state));
        self.log.set_capacity(bytes.map(|(_, log)| log));
    }
}

/// A running node: its store and its members.
pub(crate) struct Up {
    pub(crate) store: Store,
    steps: Steps,
    pub(crate) doing: Doing,
    pub(crate) members: PerGroup<Member>,
    pub(crate) checkpoints: u64,
}

/// A node's answer to a request, with the index and the term of the entry that carried the request.
pub(crate) type Answer = (Reply, Option<(u64, u64)>);

pub(crate) const fn time(now_us: u64) -> Time {
    Time::from_nanos(now_us * 1000)
}

/// Returns the time that a wall clock shows that is off by `off_us`.
pub(crate) const fn wall(now_us: u64, off_us: i64) -> u64 {
    (EPOCH_US + now_us).saturating_add_signed(off_us)
}

impl Up {
    pub(crate) fn open(
        of: &Node,
        groups: Vec<GroupOf>,
        now: u64,
        plan: Plan,
        oracles: &mut Oracles,
    ) -> Result<Result<Self, OpenError>, String> {
        let (node, ledgers) = (of.id, &of.ledgers);
        let (state, log) = (of.disks.state.clone(), of.disks.log.clone());
        let options = Options {
            id: node,
            groups: groups.clone(),
            ..of.options()
        };
        let opened = Opening::stepped(Arc::new(state), Arc::new(log), options, time(now));
        let (mut opening, steps) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let end = opening.recovery().end;
        ensure!(
            plan.blind || end >= ledgers.durable,
            "what was durable is lost: the log of node {node} ends at {end}, and was durable up to {}",
            ledgers.durable
        );
        let (mut members, mut replaying) = (PerGroup::new(), PerGroup::new());
        for (at, group) in opening.slots().zip(&groups) {
            let state = opening.take_state(at).map(|state| match plan.bug {
                Some(Bug::DedupLost) => without_ids(&state).into(),
                _ => state,
            });
            let streams = match state {
                Some(state) => Streams::restore(&state, AccountLimits::NONE)
                    .map_err(|e| format!("a checkpoint of node {node}: {e}"))?,
                None => Streams::new(AccountLimits::NONE),
            };
            members.push(Member::new(at, group.number, streams));
            replaying.push(Replaying::default());
        }
        let mut wrong = Ok(());
        let store = opening.replay(|at, due, live| {
            let (member, replaying) = (&mut members[at], &mut replaying[at]);
            replaying.take(&mut member.streams, &due, live);
            if let Due::Entry(entry) = &due
                && wrong.is_ok()
            {
                let term = ledgers.of(member.group).hard_state.term.get();
                let oracle = oracles.of_mut(member.group);
                wrong = oracle.applied(entry, replaying.outcomes(), term);
            }
        });
        wrong.map_err(|what| format!("node {node} replays: {what}"))?;
        let store = match store {
            Ok(store) => store,
            Err(error) => return Ok(Err(error)),
        };
        for (member, replaying) in members.iter_mut().zip(replaying) {
            member.applied = store.applied(member.at);
            replaying
                .finish()
                .map_err(|e| format!("node {node} replays: {e}"))?;
            let index = member.applied.index.get();
            if index > 0 {
                let oracle = oracles.of_mut(member.group);
                oracle.state(index, &member.streams)?;
            }
        }
        Ok(Ok(Self {
            store,
            steps,
            doing: Doing::Waiting(None),
            members,
            checkpoints: 0,
        }))
    }

    /// Returns the node's member in the group with this number, if it has one.
    pub(crate) fn member(&self, group: GroupId) -> Option<&Member> {
        self.members.iter().find(|m| m.group == group)
    }

    pub(crate) fn request(&mut self, request: Request, answers: &mut Vec<Answer>) {
        let at = self.store.at(request.group);
        let member = at.map(|at| &mut self.members[at]);
        match member.filter(|m| self.store.group(m.at).leads_settled()) {
            Some(member) => member.request(request),
            None => answers.push((request.elsewhere(), None)),
        }
    }

    /// Hands a Raft message of another node to the store.
    pub(crate) fn step(&mut self, group: GroupId, message: Message) -> Result<(), StepError> {
        self.store.step(group, message)
    }

    pub(crate) fn tick(&mut self) {
        self.store.tick();
        if self.store.lacks_space()
            && self
                .store
                .group(GroupSlot::DIRECTORY)
                .ticks()
                .is_multiple_of(SPACE_TICKS)
        {
            self.store.ask_for_space();
        }
    }

    /// Takes the next Raft message of the node, with its group, for the world to carry.
    pub(crate) fn poll_message(&mut self) -> Option<(GroupId, Message)> {
        self.members.iter().find_map(|m| {
            let (_, message) = self.store.poll_message(m.at)?;
            Some((m.group, message))
        })
    }

    /// Ends the running sync of the node's log.
    pub(crate) fn sync(&mut self, now: u64) {
        self.doing = self.steps.sync(time(now));
    }

    /// Does the work of the store's threads, which the server runs beside the loop.
    pub(crate) fn work(&mut self) {
        self.steps.keep();
        while self.store.work() {}
    }

    /// Runs one turn of the node's loop. Returns false if the node has to end.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        wall_us: i64,
        oracles: &mut Oracles,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, String> {
        let Self { store, members, .. } = self;
        let wall = wall(now, wall_us);
        self.doing = self.steps.step(time(now));
        for member in members.iter_mut() {
            member.propose(store, wall, answers);
        }
        if store.poll().is_err() {
            return Ok(false);
        }
        for member in members.iter_mut() {
            member.take_over(store, oracles.of_mut(member.group))?;
        }
        while let Some((at, due)) = store.poll_due() {
            let member = &mut members[at];
            let oracle = oracles.of_mut(member.group);
            member.handle(store, due, oracle, answers)?;
        }
        for member in members.iter_mut() {
            if store.wants_checkpoint(member.at) {
                self.checkpoints += 1;
                store.begin_checkpoint(member.at);
                member.streams.begin_snapshot();
                member.promised = member
                    .streams
                    .snapshot()
                    .chunks()
                    .collect::<Vec<_>>()
                    .concat();
            }
            // The members work in parts of another length on each node and in each turn, so that no test
            // depends on the lengths.
            let part = 1 + (now as usize ^ member.streams.len()) % 3;
            member.streams.reclaim((now / 7 % 3) as usize);
            member.streams.go_on_foreseeing((now / 5 % 4) as usize);
            if store.awaits_state(member.at)
                && let Some(whole) = member.streams.go_on_snapshot(part)
            {
                let promised = std::mem::take(&mut member.promised);
                ensure!(
                    whole.clone().chunks().collect::<Vec<_>>().concat() == promised,
                    "a snapshot taken in parts is not the state at its beginning"
                );
                store.checkpoint(member.at, Box::new(whole.chunks()));
            }
        }
        if let Some(asked) = store.poll_lying() {
            let streams = &members[asked.at].streams;
            let (lying, next) = streams.residents_in(&asked.lsns, asked.from);
            store.handle_lying(lying, next);
        }
        self.doing = self.steps.step(time(now));
        Ok(true)
    }
}
