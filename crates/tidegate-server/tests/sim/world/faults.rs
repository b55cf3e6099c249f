//! Draws the faults of a seed and their times by chance.

use tidegate_cluster::slots::GroupSlot;

use super::{Event, World};
use crate::audit::damaged;
use crate::bugs::{Bug, Crash};
use crate::member::Member;
use crate::node::{Disks, Up};
use crate::oracle::Verdict;

impl World {
    /// Ends the node's process or, with `power`, its machine: chance then decides which unsynced bytes the
    /// disk keeps.
    pub(super) fn crash(&mut self, n: usize, power: bool) {
        let node = &mut self.nodes[n];
        if let Some(up) = node.up.take() {
            self.seen.add("checkpoints", up.checkpoints);
        }
        (node.paused, node.life) = (false, node.life + 1);
        node.held.clear();
        node.loop_syncs = false;
        node.behind_sync.clear();
        if !power {
            node.disks = Disks {
                state: node.disks.state.killed(),
                log: node.disks.log.killed(),
            };
            node.fill_again();
            return;
        }
        let mut dice = self.dice.fork();
        let unsynced = node.disks.log.unsynced().len();
        let (names, keep) = (dice.chance(500), dice.pick(&[0, 300, 500, 900, 1000]));
        let mut torn = (false, false);
        node.disks = Disks {
            state: node.disks.state.crash(names, |_, _| dice.chance(keep)),
            log: node.disks.log.crash(names, |_, _| {
                let kept = dice.chance(keep);
                torn = (torn.0 || kept, torn.1 || !kept);
                kept
            }),
        };
        node.fill_again();
        if let Some(bug) = self.plan.bug {
            let log = node.disks.log.clone();
            let crash = Crash {
                now: self.now,
                segment_bytes: node.options.segment_bytes,
                groups: node.several(),
            };
            let planted = &mut node.planted;
            node.disks.log = planted.after_crash(bug, log, &crash, &mut node.ledgers);
        }
        if unsynced > 0 {
            self.seen.hit("crashes that lost what was not synced");
            if torn == (true, true) {
                self.seen.hit("torn tails");
            }
        }
    }

    /// Begins a fault that chance chooses, and schedules the next fault.
    pub(super) fn fault(&mut self) -> Verdict {
        if self.healing {
            return Ok(());
        }
        let again = self.now + self.dice.range(50_000, 1_200_000);
        self.push(again, Event::Fault);
        if self.calm {
            return Ok(());
        }
        let n = self.dice.below(self.nodes.len() as u64) as usize;
        let leader = self.nodes.iter().position(|n| {
            n.up.as_ref()
                .is_some_and(|up| up.members[GroupSlot::DIRECTORY].led)
        });
        let at = leader.filter(|_| self.dice.chance(500)).unwrap_or(n);
        let short = self.now + self.dice.range(1_000, 300_000);
        let long = self.now + self.dice.range(100_000, 4_000_000);
        let until = if self.dice.chance(500) { short } else { long };
        // The tests must find planted bugs within the same number of seeds as before, so these
        // worlds have no full disks.
        let kinds = if self.plan.bug.is_some() { 16 } else { 18 };
        match self.dice.below(kinds) {
            0..=3 => self.crash_node(at, until)?,
            4 if self.dice.chance(400) => {
                let to = self.nodes[n].id;
                let up = self.nodes[at].up.as_mut();
                let groups = up.as_ref().map_or(0, |up| up.members.len());
                let handed = up.is_some_and(|up| {
                    let over = GroupSlot::all(groups)
                        .map(|of| up.store.transfer_leadership(of, to).is_ok());
                    over.fold(false, |any, one| any | one)
                });
                if handed {
                    self.trace(|| format!("node {} is to hand over to {to}", at + 1));
                    self.seen.hit("leadership handed over");
                }
            }
            4 => {
                if self.nodes[at].up.is_some() {
                    self.trace(|| format!("node {} is killed", at + 1));
                    self.seen.hit("kills");
                    self.crash(at, false);
                    self.push(until, Event::Start(at));
                }
            }
            5 => {
                self.trace(|| "power is lost on all".to_owned());
                self.seen.hit("power losses on all");
                for n in 0..self.nodes.len() {
                    self.crash(n, true);
                    let at = until + self.dice.below(200_000);
                    self.push(at, Event::Start(n));
                }
            }
            6 => {
                self.trace(|| format!("node {} pauses", at + 1));
                self.seen.hit("pauses");
                self.nodes[at].paused = true;
                self.push(until, Event::Resume(at));
            }
            7..=9 => self.cut(at, until),
            10 | 11 => {
                self.seen.hit("bad networks");
                self.net.lost = self.dice.below(200);
                self.net.twice = self.dice.below(200);
                self.net.late = self.dice.below(300);
                self.net.delay_us = (100, self.dice.range(500, 60_000));
                self.trace(|| format!("the network is bad: {:?}", self.net.delay_us));
                self.net_until(until);
            }
            12 => {
                self.seen.hit("slow disks");
                let slow = self
                    .dice
                    .pick(&[(20, 200), (1_000, 8_000), (10_000, 90_000)]);
                self.nodes[at].sync_us = slow;
            }
            13 => {
                self.trace(|| format!("the disk of node {} hangs", at + 1));
                self.seen.hit("hanging disks");
                let more = if self.dice.chance(100) { 30_000_000 } else { 0 };
                self.nodes[at].hangs_until = until + more;
            }
            14 => {
                if self.nodes[at].up.is_some() {
                    self.trace(|| format!("the disk of node {} fails", at + 1));
                    let log = &self.nodes[at].disks.log;
                    match self.dice.chance(500) {
                        true => log.fail_syncs_after(self.dice.below(5)),
                        false => log.fail_writes_after(self.dice.below(5)),
                    }
                }
            }
            16 | 17 => {
                let until = self.now + self.dice.range(100_000, 8_000_000);
                self.fill_disk(at);
                self.push(until, Event::Space(at, self.filled));
            }
            _ => {
                self.seen.hit("clock jumps");
                let jump = self.dice.range(0, 7_200_000_000) as i64 - 3_600_000_000;
                self.nodes[at].wall_us = jump;
            }
        }
        Ok(())
    }

    pub(super) fn crash_node(&mut self, n: usize, until: u64) -> Verdict {
        if self.nodes[n].up.is_none() {
            return Ok(());
        }
        self.trace(|| format!("node {} loses power", n + 1));
        self.seen.hit("crashes");
        let led = |m: &Member, up: &Up| m.led && !up.store.group(m.at).is_alone();
        let led = |up: &Up| up.members.iter().any(|m| led(m, up));
        if self.nodes[n].up.as_ref().is_some_and(led) {
            self.seen.hit("crashes of a leader");
        }
        self.crash(n, true);
        self.push(until, Event::Start(n));
        let often = match self.plan.bug {
            None => 60,
            Some(Bug::TermNotAsked | Bug::VotesAtOnce) => 400,
            Some(_) => 0,
        };
        if self.dice.chance(often) && self.lose_disk(n) {
            return Ok(());
        }
        if self.plan.bug.is_none() && self.dice.chance(150) {
            let groups = self.groups_of(n);
            let (node, now, mut dice) = (&self.nodes[n], self.now, self.dice.fork());
            let (oracles, seen) = (&mut self.oracles, &mut self.seen);
            return damaged(node, groups, now, self.plan, oracles, &mut dice, seen);
        }
        Ok(())
    }

    fn cut(&mut self, n: usize, until: u64) {
        let others = (0..self.nodes.len()).filter(|m| *m != n);
        let kind = self.dice.below(4);
        self.trace(|| format!("node {} is cut off, kind {kind}", n + 1));
        match kind {
            0 => {
                self.seen.hit("nodes cut off");
                for m in others {
                    self.net.cut(n, m);
                    self.net.cut(m, n);
                }
            }
            1 => {
                self.seen.hit("nodes nobody hears");
                others.for_each(|m| self.net.cut(n, m));
            }
            2 => {
                self.seen.hit("nodes that hear nobody");
                others.for_each(|m| self.net.cut(m, n));
            }
            _ => {
                self.seen.hit("links cut");
                let m = (n + 1) % self.nodes.len();
                self.net.cut(n, m);
                self.net.cut(m, n);
            }
        }
        self.net_until(until);
    }

    fn net_until(&mut self, until: u64) {
        self.net_fault += 1;
        self.push(until, Event::NetHeals(self.net_fault));
    }
}
