//! Starts nodes: with their disks or, after the loss of a disk, with the place that the other nodes give
//! them.

use tidegate_cluster::groups::{GroupId, GroupOf};
use tidegate_raft::replica::Term;
use tidegate_raft::replica::records::HardState;

use super::{Event, World};

use crate::bugs::{Bug, Crash, rewrite};
use crate::ledger::Ledgers;
use crate::node::{Disks, Up};
use crate::oracle::Verdict;

/// The interval at which a node that lost its disk asks the other nodes for its place.
const ASKS_EVERY_US: u64 = 50_000;

/// The bytes that an operator frees on a full disk: room for two catalogs of the log and the reserve that the
/// log makes again.
const LITTLE_BYTES: u64 = 80 << 10;

impl World {
    /// Loses the disk of a stopped node, if all other nodes have all entries. Returns whether it did.
    pub(super) fn lose_disk(&mut self, n: usize) -> bool {
        let whole = |node: &super::Node| !node.lost && node.options.rejoined.is_none();
        if !self.nodes.iter().all(whole) {
            return false;
        }
        self.trace(|| format!("the disk of node {} is lost", n + 1));
        self.seen.hit("disks lost");
        let node = &mut self.nodes[n];
        (node.disks, node.lost, node.full) = (Disks::default(), true, None);
        node.ledgers = Ledgers::after(node.ledgers.clone(), &node.groups);
        // Only the groups of which this node is the only member lose their contents.
        let alone = node.groups.iter().filter(|g| g.members.len() == 1);
        let alone: Vec<GroupId> = alone.map(|g| g.number).collect();
        for group in alone {
            self.oracles.forget(group);
            for c in 0..self.clients.len() {
                if self.clients[c].group == group && !self.clients[c].stopped {
                    self.clients[c].end();
                    self.add_client(group);
                }
            }
        }
        true
    }

    /// Gives a node that lost its disk its place again, if the node can reach all other nodes and they vouch
    /// for their terms.
    fn take_place(&mut self, n: usize) -> bool {
        let mut latest = 0;
        for m in (0..self.nodes.len()).filter(|m| *m != n) {
            let other = &self.nodes[m];
            let heard = !other.paused && !self.net.is_cut(n, m) && !self.net.is_cut(m, n);
            let up = other.up.as_ref().filter(|_| heard);
            // The node begins again in a term that is higher than any term of the groups.
            for group in self.nodes[n].several() {
                let of = up.and_then(|up| up.member(group).map(|m| up.store.group(m.at)));
                if other.groups.iter().all(|g| g.number != group) {
                    continue;
                }
                let Some(term) = of.and_then(|of| of.vouched_term()) else {
                    return false;
                };
                latest = latest.max(term.get());
            }
        }
        let term = latest + 1;
        self.trace(|| format!("node {} has its place again, from term {term} on", n + 1));
        self.seen.hit("places taken again");
        let node = &mut self.nodes[n];
        node.lost = false;
        node.options.rejoined = match self.plan.bug {
            Some(Bug::TermNotAsked) => Some(Term::new(1)),
            Some(Bug::VotesAtOnce) => {
                let crash = Crash {
                    now: self.now,
                    segment_bytes: node.options.segment_bytes,
                    groups: node.several(),
                };
                let begins = HardState {
                    term: Term::new(term),
                    vote: node.id,
                };
                node.disks.log = rewrite(&node.disks.log, &crash, &mut node.ledgers, |_| begins);
                for group in node.several() {
                    node.ledgers.of_mut(group).hard_state = begins;
                }
                None
            }
            _ => Some(Term::new(term)),
        };
        true
    }

    pub(super) fn start(&mut self, n: usize) -> Verdict {
        if self.nodes[n].up.is_some() {
            return Ok(());
        }
        if self.nodes[n].lost && !self.take_place(n) {
            self.push(self.now + ASKS_EVERY_US, Event::Start(n));
            return Ok(());
        }
        let groups = self.groups_of(n);
        let node = &mut self.nodes[n];
        let opened = Up::open(node, groups, self.now, self.plan, &mut self.oracles)?;
        match opened {
            Ok(up) => {
                node.life += 1;
                let members = up.members.iter();
                let knows = members.map(|m| (m.group, up.store.group(m.at).hard_state()));
                let knows: Vec<(GroupId, HardState)> = knows.collect();
                node.up = Some(up);
                (node.syncing, node.step_at) = (false, None);
                let (at, life) = (self.now + self.dice.below(node.tick_us), node.life);
                self.push(at, Event::Tick(n, life));
                self.look_at_disk(n)?;
                for (group, knows) in knows {
                    self.nodes[n].ledgers.of_mut(group).opened(knows);
                }
                self.trace(|| format!("node {} starts", n + 1));
                self.turn(n)
            }
            // Other data took the space of the log's own reserve after the log had used the reserve, so an
            // operator frees a little space.
            Err(error) if node.full.is_some() && error.to_string().contains("no storage space") => {
                self.seen.hit("starts that needed a little space");
                if let Some((_, (_, log))) = &mut node.full {
                    *log += LITTLE_BYTES;
                }
                node.fill_again();
                self.push(self.now + ASKS_EVERY_US, Event::Start(n));
                Ok(())
            }
            Err(error) => Err(format!("node {} does not start: {error}", node.id)),
        }
    }

    /// Returns the groups with which a node starts now.
    pub(super) fn groups_of(&self, n: usize) -> Vec<GroupOf> {
        let mut groups = self.nodes[n].groups.clone();
        if self.now < self.one_until {
            groups.truncate(1);
        }
        groups
    }

    /// Returns whether a node runs with only some of its groups.
    pub(super) fn is_small(&self, n: usize) -> bool {
        let node = &self.nodes[n];
        let small = |up: &Up| up.members.len() < node.groups.len();
        node.up.as_ref().is_some_and(small)
    }

    pub(super) fn resume(&mut self, n: usize) -> Verdict {
        self.nodes[n].paused = false;
        let held = std::mem::take(&mut self.nodes[n].held);
        for event in held {
            self.push(self.now, event);
        }
        Ok(())
    }
}
