//! Decides once which nodes are the members of a cluster, because its Raft groups need a fixed set. A route
//! is the configured address of a node. This node fixes the members once it has reached a node over every
//! route, and every node that it reached reports the same members. From then on routes no longer decide
//! about members.
//!
//! A node that has fixed the members keeps reporting them, so that a node that was stopped at that time can
//! still fix them. Two nodes never fix different members: a node fixes a set only after each node of that set
//! reported the same set, with the same id for each node.

use std::collections::BTreeMap;

use super::members::{Member, Members};
use super::rejoin::{Rejoin, Rejoined};

/// Decides which nodes are the members of a node's cluster, from the reports of its peers; see the
/// [module](self).
#[derive(Clone, Debug)]
pub struct Formation {
    me: Member,
    /// The member to which each route led; `None` before this node has reached a node over the route.
    routes: Vec<Option<Member>>,
    /// The set of members that each connected peer reports, by the peer's id. The node compares them with
    /// its own set.
    told: BTreeMap<u64, Members>,
    formed: Option<Members>,
    /// The progress of a node that lost its disk and asks for its former place among the members; `None` for
    /// any other node.
    rejoin: Option<Rejoin>,
}

impl Formation {
    /// Creates the state of the node `me`, which has `routes` routes. `formed` are the members that the node
    /// has fixed in an earlier run; `None` if it has fixed none.
    #[must_use]
    pub fn new(me: Member, routes: usize, formed: Option<Members>) -> Self {
        Self {
            me,
            routes: vec![None; routes],
            told: BTreeMap::new(),
            formed,
            rejoin: None,
        }
    }

    /// Records that this node lost its disk, and asks the members for its former place.
    pub fn begin_rejoin(&mut self) {
        self.rejoin = Some(Rejoin::new(&self.me.name));
    }

    /// Returns whether this node lost its disk and asks the members for its former place, so that it must
    /// not act as a member yet.
    #[must_use]
    pub const fn rejoins(&self) -> bool {
        self.rejoin.is_some()
    }

    /// Records that a route led to this member. The member may be this node itself.
    pub fn handle_met(&mut self, route: usize, member: Member) {
        if let Some(met) = self.routes.get_mut(route) {
            *met = Some(member);
        }
    }

    /// Records the set of members that the peer with this id reports, for the comparison with this node's
    /// set.
    pub fn handle_told(&mut self, id: u64, members: Members) {
        if let Some(rejoin) = &mut self.rejoin {
            return rejoin.handle_told(id, members);
        }
        self.told.insert(id, members);
    }

    /// Records that the peer with this id vouches that it has been in no later term than `term`. A node that
    /// lost its disk needs this from each member before it takes its former place.
    pub fn handle_vouched(&mut self, id: u64, term: u64) {
        if let Some(rejoin) = &mut self.rejoin {
            rejoin.handle_vouched(id, term);
        }
    }

    /// Returns this node's former place among the members, once every other member has reported the same
    /// members and its latest term. Returns `None` before that, and for a node that has not lost its disk.
    /// The caller writes the place to the members' file, then calls [`Formation::handle_rejoined`].
    #[must_use]
    pub fn rejoin_due(&self) -> Option<Rejoined> {
        self.rejoin.as_ref()?.due()
    }

    /// Records that this node has its former place again. The caller has written the place to the members'
    /// file.
    pub fn handle_rejoined(&mut self, rejoined: Rejoined) {
        self.me.id = rejoined.id;
        self.formed = Some(rejoined.members);
        self.rejoin = None;
    }

    /// Forgets the members that a peer reported, because the peer is disconnected and may come back with
    /// other ones.
    pub fn handle_gone(&mut self, id: u64) {
        self.told.remove(&id);
    }

    /// Returns the members that this node reports to its peers: the fixed members, or before that the nodes
    /// to which its routes led. Returns `None` until this node has reached a node over every route, and if
    /// two nodes have the same name.
    #[must_use]
    pub fn telling(&self) -> Option<Members> {
        if self.formed.is_some() {
            return self.formed.clone();
        }
        if self.rejoin.is_some() {
            return None;
        }
        let met: Option<Vec<Member>> = self.routes.iter().cloned().collect();
        let mut all = met?;
        all.push(self.me.clone());
        all.sort();
        all.dedup();
        Members::new(all)
    }

    /// Returns the members that this node may fix now, because it has reached a node over every route and
    /// every node that it reached reports the same members. Returns `None` before that, after this node has
    /// fixed the members, and if it has met no other node. The caller writes the members to the members'
    /// file, then calls [`Formation::handle_formed`].
    #[must_use]
    pub fn due(&self) -> Option<Members> {
        if self.formed.is_some() {
            return None;
        }
        let mine = self.telling()?;
        if mine.len() == 1 {
            // A node that has met no other node fixes no members: no other node could join a cluster of one
            // node afterwards, and a single server needs no cluster.
            return None;
        }
        let others = mine.iter().filter(|m| m.id != self.me.id);
        let agreed = others
            .map(|m| self.told.get(&m.id))
            .all(|told| told == Some(&mine));
        agreed.then_some(mine)
    }

    /// Records that this node has fixed the members. The caller has written them to the members' file.
    pub fn handle_formed(&mut self, members: Members) {
        self.formed = Some(members);
    }

    /// Returns the fixed members of the cluster; `None` until this node has fixed them.
    #[must_use]
    pub const fn formed(&self) -> Option<&Members> {
        self.formed.as_ref()
    }

    /// Returns the names of members to which no route of this node leads; empty until this node has reached
    /// a node over every route. The node warns its operator, because it cannot send to these members.
    #[must_use]
    pub fn unrouted(&self) -> Vec<&str> {
        // The node compares the members with its routes by name and not by id, because a member that lost its
        // disk has another id until it has rejoined.
        let met: Option<Vec<&str>> = self
            .routes
            .iter()
            .map(|r| Some(&*r.as_ref()?.name))
            .collect();
        let (Some(met), Some(formed)) = (met, &self.formed) else {
            return Vec::new();
        };
        let missed = |m: &&Member| m.name != self.me.name && !met.contains(&&*m.name);
        formed
            .iter()
            .filter(missed)
            .map(|m| m.name.as_str())
            .collect()
    }

    /// Explains to the operator why this node has not fixed the members yet; `None` once it has.
    #[must_use]
    pub fn waiting_for(&self) -> Option<String> {
        if self.formed.is_some() {
            return None;
        }
        if let Some(rejoin) = &self.rejoin {
            return Some(rejoin.waiting_for());
        }
        let missing = self.routes.iter().filter(|r| r.is_none()).count();
        if missing > 0 {
            return Some(format!(
                "this node has reached no node over {missing} of its {} routes yet",
                self.routes.len()
            ));
        }
        let Some(mine) = self.telling() else {
            return Some("two nodes have the same name".into());
        };
        if mine.len() == 1 {
            let what = "its routes lead to this node alone: name all nodes in --routes, or leave --cluster out for a server that is alone";
            return Some(what.into());
        }
        let differing = self.told.iter().find(|(_, told)| **told != mine);
        Some(match differing {
            Some((id, told)) => format!(
                "`{}` counts {} as members, this node {}: give all nodes the same --routes",
                mine.name_of(*id).unwrap_or("another node"),
                told.names(),
                mine.names()
            ),
            None => "not every node has reached a node over each of its routes yet".into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(i: usize) -> Member {
        Member {
            name: format!("n{i}"),
            id: 10 + i as u64,
        }
    }

    fn tell(nodes: &mut [Formation], from: usize, to: usize) {
        if let Some(telling) = nodes[from].telling() {
            let id = nodes[from].me.id;
            nodes[to].handle_told(id, telling);
        }
    }

    #[test]
    fn three_nodes_with_all_routes_fix_the_same_members() {
        let mut nodes: Vec<Formation> =
            (0..3).map(|i| Formation::new(member(i), 3, None)).collect();
        for from in 0..3 {
            for to in 0..3 {
                assert!(nodes.iter().all(|n| n.due().is_none()));
                nodes[from].handle_met(to, member(to));
            }
        }
        for (from, to) in [(1, 0), (2, 0), (0, 1), (2, 1), (0, 2)] {
            tell(&mut nodes, from, to);
        }
        assert!(nodes[2].due().is_none() && nodes[2].waiting_for().is_some());
        let members = nodes[0].due().unwrap();
        assert_eq!(members.names(), "n0, n1, n2");
        nodes[0].handle_formed(members.clone());
        assert!(nodes[0].due().is_none() && nodes[0].waiting_for().is_none());
        // The node that was disconnected meanwhile learns the members from the nodes that have fixed them.
        nodes[2].handle_gone(member(0).id);
        tell(&mut nodes, 1, 2);
        assert_eq!(nodes[2].due(), None);
        tell(&mut nodes, 0, 2);
        assert_eq!(nodes[2].due(), Some(members));
    }

    #[test]
    fn a_node_that_lost_its_identity_in_between_is_not_fixed_twice() {
        let mut nodes: Vec<Formation> =
            (0..3).map(|i| Formation::new(member(i), 3, None)).collect();
        for node in &mut nodes {
            (0..3).for_each(|to| node.handle_met(to, member(to)));
        }
        tell(&mut nodes, 1, 0);
        tell(&mut nodes, 2, 0);
        let members = nodes[0].due().unwrap();
        nodes[0].handle_formed(members);
        // n2 restarts with another id. n1 meets the new id, but n0 reports the old one.
        let wiped = Member {
            name: "n2".into(),
            id: 99,
        };
        nodes[1].handle_met(2, wiped.clone());
        nodes[2] = Formation::new(wiped.clone(), 3, None);
        for to in 0..2 {
            nodes[2].handle_met(to, member(to));
        }
        nodes[2].handle_met(2, wiped);
        for (from, to) in [(0, 1), (2, 1), (0, 2), (1, 2)] {
            tell(&mut nodes, from, to);
        }
        assert!(nodes[1].due().is_none() && nodes[2].due().is_none());
        assert!(nodes[1].waiting_for().unwrap().contains("n0"));
    }

    #[test]
    fn nodes_with_other_routes_are_told() {
        let mut a = Formation::new(member(0), 1, None);
        a.handle_met(0, member(1));
        let all = Members::new((0..3).map(member).collect()).unwrap();
        a.handle_told(member(1).id, all);
        assert_eq!(a.due(), None);
        assert!(a.waiting_for().unwrap().contains("--routes"));
        // A node with fixed members also names the members to which no route leads.
        let members = Members::new((0..3).map(member).collect()).unwrap();
        let mut c = Formation::new(member(0), 2, Some(members));
        c.handle_met(0, member(0));
        assert!(c.unrouted().is_empty(), "the other route may lead there");
        c.handle_met(1, member(2));
        assert_eq!(c.unrouted(), ["n1"]);
        c.handle_met(
            1,
            Member {
                id: 77,
                ..member(1)
            },
        );
        assert_eq!(c.unrouted(), ["n2"]);
        // Two nodes with the same name can never be members.
        let mut b = Formation::new(member(0), 1, None);
        b.handle_met(0, Member { id: 5, ..member(0) });
        assert_eq!((b.telling(), b.due()), (None, None));
    }

    #[test]
    fn a_lone_node_is_no_cluster() {
        let mut seed = Formation::new(member(0), 1, None);
        seed.handle_met(0, member(0));
        assert_eq!(seed.due(), None);
        assert!(seed.waiting_for().unwrap().contains("--routes"));
        // A node with an earlier fixed set of one member goes on with this set.
        let alone = Members::new(vec![member(0)]);
        assert!(Formation::new(member(0), 1, alone).waiting_for().is_none());
    }
}
