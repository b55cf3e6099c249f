//! Runs the clients of a world: chooses their streams, carries their requests, and hands them the replies.

use tidegate_cluster::groups::{ALL, GroupId};

use super::{Event, Node, World};
use crate::client::{Client, Reply};
use crate::node::Answer;
use crate::oracle::Verdict;

/// The number of the second group of all nodes.
const SECOND: GroupId = GroupId::new(ALL.get() + 1);

impl World {
    /// Adds the clients. Half of them publish into streams of the first group, the other half into streams of
    /// any group; one group may be at rest.
    pub(super) fn add_clients(&mut self) {
        let rests = self.dice.pick(&[None, Some(ALL), Some(SECOND)]);
        for _ in 0..self.dice.range(5, 10) {
            let any = self.dice.below(self.groups.len() as u64) as usize;
            let group = self.groups[self.dice.pick(&[0, 0, 1, any])].number;
            // Clients of the resting group publish into another group, so that the number of clients stays.
            let group = match rests.filter(|rests| *rests == group) {
                Some(ALL) => SECOND,
                Some(_) => ALL,
                None => group,
            };
            self.add_client(group);
        }
    }

    pub(super) fn add_client(&mut self, group: GroupId) {
        let c = self.clients.len();
        let has = |node: &&Node| node.groups.iter().any(|g| g.number == group);
        let nodes = self.nodes.iter().filter(has).map(|n| n.id as usize - 1);
        let of = (group, nodes.collect());
        let client = Client::new(c, of, self.limited, &mut self.dice);
        self.clients.push(client);
        self.push(self.now + 100_000, Event::Client(c));
    }

    pub(super) fn answers(&mut self, n: usize, answers: Vec<Answer>) -> Verdict {
        for (reply, entry) in answers {
            if let Some((index, term)) = entry
                && !self.plan.blind
            {
                let group = self.clients[reply.client].group;
                let has = |n: &&Node| n.groups.iter().any(|g| g.number == group);
                let members = self.nodes.iter().filter(has);
                let voters = members.clone().count();
                let disks = members.map(|n| n.ledgers.of(group));
                let oracle = self.oracles.of(group);
                oracle.acked(index, term, voters, disks)?;
            }
            let lost = self.clients[reply.client].node != n || self.dice.chance(self.net.lost);
            if !lost {
                let at = self.now + self.dice.range(50, 500);
                self.push(at, Event::Reply(reply));
            }
        }
        Ok(())
    }

    pub(super) fn reply(&mut self, reply: &Reply) -> Verdict {
        let acked = self.clients[reply.client].handle_reply(self.now, reply)?;
        let Some(acked) = acked else { return Ok(()) };
        self.acked += 1;
        let group = self.clients[reply.client].group;
        self.oracles.of_mut(group).told(acked)
    }

    pub(super) fn client(&mut self, c: usize) {
        // A client numbers streams in the order of their creation. Before a stream exists, its client has no
        // acknowledgements.
        let client = &self.clients[c];
        let floor = self.oracles.of(client.group).floor(client.stream());
        let (requests, again) = self.clients[c].act(self.now, floor);
        let node = self.clients[c].node;
        if !requests.is_empty() && !self.dice.chance(self.net.lost) {
            let at = self.now + self.dice.range(50, 400);
            self.push(at, Event::Request(node, requests));
        }
        self.push(again, Event::Client(c));
    }
}
