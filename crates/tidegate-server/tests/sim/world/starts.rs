//! How nodes start: with the disk they had, or, if that was lost, with the place the others give them.

use super::{Event, World};
use tidegate_server::replica::records::HardState;

use crate::bugs::{Bug, Crash, rewrite};
use crate::ledger::Ledger;
use crate::node::{Disks, Up};
use crate::oracle::Verdict;

/// A node that lost its disk asks the others again after so long.
const ASKS_EVERY_US: u64 = 50_000;

impl World {
    /// The disk of a node that is down is lost, if all others have everything.
    pub(super) fn lose_disk(&mut self, n: usize) -> bool {
        let whole = |node: &super::Node| !node.lost && node.options.rejoined.is_none();
        if !self.nodes.iter().all(whole) {
            return false;
        }
        self.trace(|| format!("the disk of node {} is lost", n + 1));
        self.seen.hit("disks lost");
        let node = &mut self.nodes[n];
        (node.disks, node.lost) = (Disks::default(), true);
        let before = std::mem::take(&mut node.ledger);
        node.ledger = Ledger::after(before);
        true
    }

    /// A node that lost its disk is given its place, if all others can be asked and vouch for their terms.
    fn take_place(&mut self, n: usize) -> bool {
        let mut latest = 0;
        for m in (0..self.nodes.len()).filter(|m| *m != n) {
            let other = &self.nodes[m];
            let heard = !other.paused && !self.net.is_cut(n, m) && !self.net.is_cut(m, n);
            let up = other.up.as_ref().filter(|_| heard);
            let Some(term) = up.and_then(|up| up.store.group().vouched_term()) else {
                return false;
            };
            latest = latest.max(term);
        }
        let term = latest + 1;
        self.trace(|| format!("node {} has its place again, from term {term} on", n + 1));
        self.seen.hit("places taken again");
        let node = &mut self.nodes[n];
        node.lost = false;
        node.options.rejoined = match self.plan.bug {
            Some(Bug::TermNotAsked) => Some(1),
            Some(Bug::VotesAtOnce) => {
                let crash = Crash {
                    now: self.now,
                    segment_bytes: node.options.segment_bytes,
                };
                let begins = HardState {
                    term,
                    vote: node.id,
                };
                node.disks.log = rewrite(&node.disks.log, &crash, &mut node.ledger, |_| begins);
                node.ledger.hard_state = begins;
                None
            }
            _ => Some(term),
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
        let ids: Vec<u64> = self.nodes.iter().map(|n| n.id).collect();
        let node = &mut self.nodes[n];
        let opened = Up::open(node, &ids, self.now, self.plan, &mut self.oracle)?;
        match opened {
            Ok(up) => {
                node.life += 1;
                let knows = up.store.group().hard_state();
                node.up = Some(up);
                (node.syncing, node.step_at) = (false, None);
                let (at, life) = (self.now + self.dice.below(node.tick_us), node.life);
                self.push(at, Event::Tick(n, life));
                self.look_at_disk(n)?;
                self.nodes[n].ledger.opened(knows);
                self.trace(|| format!("node {} starts", n + 1));
                self.turn(n)
            }
            Err(error) => Err(format!("node {} does not start: {error}", node.id)),
        }
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
