//! Tests ways of writing that only measurements use: one entry in each sync, and messages written twice.

use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::lab::{Lab, RaftStep};
use tidegate_raft::store::{Options, WriteError};

use crate::cluster::{Cluster, Node, short};
use crate::common::options;
use crate::toy::{self, store};

/// The second group of all nodes, and (`ALONE`) the group of the first node alone.
const SHARD: GroupId = GroupId::new(ALL.get() + 1);
const ALONE: GroupId = GroupId::new(0x1000);

#[test]
fn entries_one_at_a_time_have_a_sync_each_and_a_second_one_for_each_message_where_that_is_asked_for()
 {
    for (raft_step, writes_twice) in [(RaftStep::OneWrite, false), (RaftStep::Baseline, true)] {
        let mut cluster = Cluster::new(
            Options {
                lab: Lab {
                    raft_step,
                    ..Lab::NONE
                },
                anticipation: false,
                ..options()
            },
            0,
        );
        let (mut entries, mut messages) = (0, 0);
        // A leader may send a late follower several entries at once, so the test counts syncs at the
        // proposing node.
        let mut proposed_by = [0; 3];
        while entries < 40 {
            let at = cluster.until("somebody leads", |c| c.leader(ALL));
            let store = &mut cluster.node(at).store;
            if !store.may_propose(GroupSlot::DIRECTORY) {
                cluster.round();
                continue;
            }
            let data = toy::store(messages + 1, 3, 100);
            let proposed = store.propose(GroupSlot::DIRECTORY, data.clone(), 3);
            assert!(proposed.is_ok(), "{proposed:?}");
            // The store refuses a second proposal, because it has not yet checked whether the first entry is
            // durable.
            assert!(!store.may_propose(GroupSlot::DIRECTORY));
            assert!(matches!(
                store.propose(GroupSlot::DIRECTORY, data, 3),
                Err(WriteError::Full)
            ));
            (entries, messages) = (entries + 1, messages + 3);
            proposed_by[at] += 1;
        }
        cluster.until("all is applied", |c| {
            let mut nodes = c.nodes.iter().flatten();
            let all =
                |n: &Node| n.members[GroupSlot::DIRECTORY].toy.messages.len() as u64 == messages;
            nodes.all(all).then_some(())
        });
        cluster.agree();
        for (node, entries) in cluster.nodes.iter().flatten().zip(proposed_by) {
            let stats = node.store.log().stats();
            assert!(stats.batches >= entries, "{stats:?}");
            assert!(stats.syncs - stats.markers >= stats.batches, "{stats:?}");
            let second = if writes_twice { messages } else { 0 };
            assert_eq!(node.store.second_syncs(), second);
        }
    }
}

#[test]
fn messages_written_twice_are_due_in_their_own_group() {
    let mut cluster = Cluster::new(
        Options {
            lab: Lab {
                raft_step: RaftStep::Baseline,
                ..Lab::NONE
            },
            ..short()
        },
        2,
    );
    let groups = [ALL, SHARD, ALONE];
    for round in 0..20 {
        for group in groups {
            let leader = cluster.until("a member leads", |c| c.leader(group));
            cluster.until("the entry before is durable", |c| {
                let store = &c.node(leader).store;
                let at = store.at(group).unwrap();
                store.may_propose(at).then_some(())
            });
            let node = cluster.node(leader);
            let at = node.store.at(group).unwrap();
            let proposed = node.store.propose(at, store(round + 1, 1, 100), 1);
            assert!(proposed.is_ok(), "{proposed:?}");
        }
        cluster.until("all are applied", |c| {
            let nodes = c.nodes.iter().flatten();
            let mut members = nodes.flat_map(|n| &n.members);
            let all = members.all(|m| m.number > ALONE || m.toy.seq == round + 1);
            all.then_some(())
        });
    }
    cluster.agree();
}
