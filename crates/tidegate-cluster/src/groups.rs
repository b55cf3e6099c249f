//! Computes the Raft groups that keep the streams of a cluster: groups of all nodes, a group of each node
//! alone, and, in clusters of more than three nodes, groups of three nodes. This module does no I/O.
//!
//! Every node computes the groups from the members of the cluster, so all nodes know the same groups without
//! sending any list of groups. All groups of a node share its log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a Raft group, by which all nodes, logs and messages name the group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GroupId(u32);

impl GroupId {
    /// Creates the id of a group from a plain number, which the caller has read from the log or from a
    /// message.
    #[inline]
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the group's number as a plain number, for a log record or a message.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Shows the number without the name of the type, because the name of the field already says that the number
/// is a group's.
impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first Raft group of all nodes. Besides streams, it keeps the directory: the list of all streams with
/// their home groups.
pub const ALL: GroupId = GroupId(1);
/// The number of the first group that consists of one node. Further groups of all nodes have numbers between
/// [`ALL`] and this number.
const ALONE: u32 = 0x1000;
const TRIPLES: u32 = 0x2000;
/// The greatest number of Raft groups that may consist of all nodes of a cluster, which bounds the work of a
/// node.
pub const SHARDS_MAX: u32 = 64;

/// A Raft group of a cluster with its members, as every node computes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOf {
    /// The group's number, by which all nodes know the group.
    pub number: GroupId,
    /// The ids of the nodes that are members of the group, in ascending order.
    pub members: Vec<u64>,
}

/// Returns all groups among the nodes with these ids, [`ALL`] first, so that every node computes an equal
/// list. `shards` of the groups consist of all nodes.
#[must_use]
pub fn groups(mut ids: Vec<u64>, shards: u32) -> Vec<GroupOf> {
    ids.sort_unstable();
    let nodes = ids.len();
    let all = (ALL.0..ALL.0 + shards.clamp(1, SHARDS_MAX)).map(|number| GroupOf {
        number: GroupId(number),
        members: ids.clone(),
    });
    let mut groups: Vec<GroupOf> = all.collect();
    if nodes > 1 {
        let alone = ids.iter().zip(ALONE..);
        groups.extend(alone.map(|(id, number)| GroupOf {
            number: GroupId(number),
            members: vec![*id],
        }));
    }
    if nodes > 3 {
        // Each set of three is a node and the two nodes after it in the order of ids. So each node is in
        // three sets, and no two sets have the same members.
        groups.extend((0..nodes).zip(TRIPLES..).map(|(first, number)| {
            let mut members: Vec<u64> = (0..3).map(|i| ids[(first + i) % nodes]).collect();
            members.sort_unstable();
            let number = GroupId(number);
            GroupOf { number, members }
        }));
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_alone_has_one_and_three_have_one_each_besides() {
        assert_eq!(
            groups(vec![7], 1),
            [GroupOf {
                number: ALL,
                members: vec![7]
            }]
        );
        let three = groups(vec![30, 10, 20], 1);
        let numbers: Vec<u32> = three.iter().map(|g| g.number.get()).collect();
        assert_eq!(numbers, [ALL.get(), ALONE, ALONE + 1, ALONE + 2]);
        assert_eq!(three[0].members, [10, 20, 30]);
        assert_eq!(three[3].members, [30]);
    }

    #[test]
    fn each_of_five_nodes_is_in_three_sets_of_three_and_shards_have_all() {
        let five = groups((1..=5).collect(), 3);
        assert_eq!(five.iter().filter(|g| g.members.len() == 5).count(), 3);
        for id in 1..=5 {
            let of = five
                .iter()
                .filter(|g| g.members.len() == 3 && g.members.contains(&id));
            assert_eq!(of.count(), 3);
        }
        let mut numbers: Vec<GroupId> = five.iter().map(|g| g.number).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), five.len());
    }
}
