//! Simulates disks without a free byte: of single nodes for a while, and of up to three nodes that restart
//! one by one while the disks stay full.

use tidegate_cluster::groups::GroupId;
use tidegate_raft::store::Space;

use super::{Event, World, wall};
use crate::oracle::{Verdict, ensure};

/// The shortest and the longest time for which clients publish while disks stay full, in microseconds.
const FILLS_US: (u64, u64) = (1_000_000, 6_000_000);
/// The time after the last restart within which the leader of each group must commit an entry that frees
/// space.
const LEADS_US: u64 = 60_000_000;

impl World {
    /// Fills a node's disk with other data, so that the node has no space.
    pub(super) fn fill_disk(&mut self, n: usize) {
        if self.nodes[n].up.is_none() {
            // The world does not fill the disks of a stopped node, because the node may have lost its disk
            // and needs space to start.
            return;
        }
        self.trace(|| format!("the disk of node {} is full", n + 1));
        self.seen.hit("full disks");
        self.filled += 1;
        let node = &mut self.nodes[n];
        let used = node.disks.used();
        node.full = Some((self.filled, used));
        node.disks.set_capacity(Some(used));
    }

    pub(super) fn find_space(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        if node.full.take().is_some() {
            node.disks.set_capacity(None);
            self.trace(|| format!("the disk of node {} has space", n + 1));
        }
    }

    /// Gives space to each node that has used up its reserve. The reserve of a simulated segment is a
    /// thousandth of a real one's, so some hundred votes are enough.
    fn end_without_reserve(&mut self, full: &[usize]) -> Verdict {
        let used_up = |n: &usize| {
            let up = self.nodes[*n].up.as_ref();
            up.is_some_and(|up| up.store.has_used_up_reserve())
        };
        let ended: Vec<usize> = full.iter().copied().filter(used_up).collect();
        for &n in &ended {
            self.seen.hit("reserves used up");
            self.find_space(n);
        }
        match ended.is_empty() {
            true => Ok(()),
            false => self.pass(LEADS_US / 4),
        }
    }

    /// Tells a node which of its groups have too few members with space. While a member has none, members
    /// that are down do not count as able, as in the server.
    pub(super) fn look_for_room(&mut self, n: usize) {
        let space = |n: &super::Node| n.up.as_ref().map(|up| up.store.space());
        let spaces: Vec<_> = self.nodes.iter().map(|n| (n.id, space(n))).collect();
        let node = &mut self.nodes[n];
        let Some(up) = node.up.as_mut() else { return };
        for (member, group) in up.members.iter_mut().zip(&node.groups) {
            let of = || spaces.iter().filter(|(id, _)| group.members.contains(id));
            let free = of()
                .filter(|(_, space)| *space == Some(Space::Free))
                .count();
            let full = of().any(|(_, space)| space.is_some_and(|s| s != Space::Free));
            member.crowded = group.members.len() > 1 && full && 2 * free <= group.members.len();
        }
    }

    /// Returns the node that leads a group and knows its state.
    pub(super) fn leader_of(&self, group: GroupId) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let up = node.up.as_ref();
            let at = up.and_then(|up| up.store.at(group));
            up.zip(at)
                .is_some_and(|(up, at)| up.store.leads_settled(at))
        })
    }

    /// Fills the disks of up to three nodes in some worlds, and restarts these nodes one by one. There is no
    /// other fault then, so each group must have a leader that commits entries that free space.
    pub(super) fn stay_full(&mut self) -> Verdict {
        let chance = if self.nodes.len() == 5 { 500 } else { 150 };
        if self.plan.bug.is_some() || self.now < self.one_until || !self.dice.chance(chance) {
            return Ok(());
        }
        self.calm = true;
        self.net.heal();
        for n in 0..self.nodes.len() {
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
        self.pass(5_000_000)?;
        if self
            .nodes
            .iter()
            .any(|n| n.lost || n.options.rejoined.is_some())
        {
            // The world leaves such a node out, because it votes only after it has fetched all its entries.
            self.calm = false;
            return Ok(());
        }
        let (first, count) = (self.dice.below(5) as usize, self.dice.range(1, 3) as usize);
        let full: Vec<usize> = (first..first + count)
            .map(|n| n % self.nodes.len())
            .collect();
        self.seen.hit("disks that stay full");
        for &n in &full {
            self.fill_disk(n);
        }
        let fills = self.dice.range(FILLS_US.0, FILLS_US.1);
        self.pass(fills)?;
        for &n in &full {
            let power = self.dice.chance(500);
            self.trace(|| format!("node {} restarts", n + 1));
            self.crash(n, power);
            let (down, up) = (
                self.dice.range(10_000, 3_000_000),
                self.dice.range(10_000, 3_000_000),
            );
            self.push(self.now + down, Event::Start(n));
            self.pass(down + up)?;
        }
        self.pass(LEADS_US / 4)?;
        self.end_without_reserve(&full)?;
        for &n in &full {
            ensure!(
                !self.has_stuck_entries(n),
                "node {} took entries without room: {}",
                n + 1,
                self.rooms()
            );
        }
        let until = self.now + LEADS_US;
        let groups = self.groups.iter().map(|g| g.number);
        for number in groups.collect::<Vec<_>>() {
            loop {
                ensure!(
                    self.now < until,
                    "group {number} does not take what makes space: {}, {}",
                    self.rooms(),
                    self.lags()
                );
                if self.purge(number)? {
                    break;
                }
                self.end_without_reserve(&full)?;
            }
        }
        self.calm = false;
        Ok(())
    }

    /// Returns whether a node took entries for which its log has no room. These entries would hold back the
    /// node's votes until it has space.
    fn has_stuck_entries(&self, n: usize) -> bool {
        let up = self.nodes[n].up.as_ref();
        up.is_some_and(|up| {
            let mut groups = up.members.iter().map(|m| up.store.group(m.at));
            groups.any(|g| g.poll_append().is_some())
        })
    }

    /// Makes the leader of a group commit an entry that frees space. Without a leader, lets time pass.
    fn purge(&mut self, group: GroupId) -> Result<bool, String> {
        let Some(n) = self.leader_of(group) else {
            self.pass(100_000)?;
            return Ok(false);
        };
        let node = &mut self.nodes[n];
        let (wall, mut index) = (wall(self.now, node.wall_us), None);
        if let Some(up) = node.up.as_mut()
            && let Some(member) = up.members.iter().find(|m| m.group == group)
        {
            if member.streams.is_empty() {
                return Ok(true);
            }
            index = member.propose_purge(&mut up.store, wall);
        }
        self.pass(500_000)?;
        let up = self.nodes[n].up.as_ref();
        let member = up.and_then(|up| up.member(group));
        Ok(index
            .zip(member)
            .is_some_and(|(index, m)| m.applied.index.get() >= index))
    }

    fn pass(&mut self, us: u64) -> Verdict {
        let until = self.now + us;
        while self.now < until {
            self.next()?;
        }
        Ok(())
    }

    /// Describes the nodes' space, for the text of a failure.
    fn rooms(&self) -> String {
        let of = |n: &super::Node| {
            let space = n.up.as_ref().map(|up| up.store.space());
            let stuck = self.has_stuck_entries(n.id as usize - 1);
            format!(
                "node {} full {} space {space:?} stuck {stuck}",
                n.id,
                n.full.is_some()
            )
        };
        let all: Vec<_> = self.nodes.iter().map(of).collect();
        all.join(", ")
    }
}
