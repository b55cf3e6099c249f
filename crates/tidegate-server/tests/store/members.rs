//! Tests the members of one group: their leader, their applied entries, and the catching up of a member that
//! is behind.

use tidegate_cluster::groups::ALL;
use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::replica::Index;
use tidegate_raft::store::WriteError;

use crate::cluster::{Cluster, IDS, short};
use crate::common::options;
use crate::crash::Dice;
use crate::toy::store;

#[test]
fn all_members_apply_a_leaders_entries_and_have_them_after_a_restart() {
    let mut cluster = Cluster::new(options(), 0);
    cluster.fill(ALL, 50, 300);
    cluster.agree();
    let applied = cluster.applied[&ALL].clone();
    assert_eq!(applied.len(), 50);
    for at in 0..3 {
        cluster.nodes[at].take().unwrap().store.close().unwrap();
        cluster.disks[at] = cluster.disks[at].copy();
    }
    (0..3).for_each(|at| cluster.start(at));
    // A member applies at once the entries that it knew to be committed, and the other entries under a
    // leader.
    assert!(cluster.nodes.iter().flatten().any(|n| n.replayed >= 40));
    cluster.fill(ALL, 1, 10);
    cluster.agree();
    assert_eq!(cluster.applied[&ALL].len(), 51);
}

#[test]
fn one_that_is_alone_decides_nothing_and_two_go_on() {
    let mut cluster = Cluster::new(options(), 0);
    cluster.fill(ALL, 3, 100);
    let first = cluster.leader(ALL).unwrap();
    cluster.cut = Some(first);
    let proposed = cluster
        .node(first)
        .store
        .propose(GroupSlot::DIRECTORY, store(1000, 1, 10), 1);
    let lost = proposed.unwrap().index;
    let second = cluster.until("another leads", |c| {
        let leads = c.leader(ALL).filter(|at| *at != first);
        // The first leader notices that it reaches no other node.
        leads.filter(|_| !c.node(first).store.group(GroupSlot::DIRECTORY).leads())
    });
    assert!(cluster.node(first).member(ALL).toy.index < lost.get());
    cluster.fill(ALL, 3, 100);
    cluster.cut = None;
    cluster.agree();
    assert_eq!(
        cluster.leader(ALL),
        Some(second),
        "who comes back deposes nobody"
    );
    let refused = cluster
        .node(first)
        .store
        .propose(GroupSlot::DIRECTORY, store(1, 1, 1), 1);
    assert!(matches!(refused, Err(WriteError::NotLeader)));
    assert_eq!(
        cluster
            .node(first)
            .store
            .group(GroupSlot::DIRECTORY)
            .uncommitted_bytes(),
        0
    );
}

#[test]
fn leadership_is_handed_over() {
    let mut cluster = Cluster::new(options(), 0);
    cluster.fill(ALL, 3, 100);
    let first = cluster.leader(ALL).unwrap();
    let to = (first + 1) % 3;
    cluster
        .node(first)
        .store
        .transfer_leadership(GroupSlot::DIRECTORY, IDS[to])
        .unwrap();
    let before = cluster.ticks;
    cluster.until("the other leads", |c| c.leader(ALL).filter(|at| *at == to));
    assert!(cluster.ticks < before + 10, "nobody had to time out");
    cluster.fill(ALL, 3, 100);
    cluster.agree();
}

#[test]
fn a_member_behind_all_logs_takes_over_the_state_and_goes_on() {
    let mut cluster = Cluster::new(short(), 0);
    cluster.fill(ALL, 10, 300);
    let away = (cluster.leader(ALL).unwrap() + 1) % 3;
    cluster.cut = Some(away);
    cluster.leave_behind(ALL, away);
    cluster.cut = None;
    cluster.agree();
    assert_eq!(cluster.installed[&ALL], 1);
    cluster.fill(ALL, 30, 20);
    cluster.agree();
    assert_eq!(cluster.installed[&ALL], 1, "from there it is sent entries");
    // From now on the node has the state on its own disk.
    cluster.nodes[away].take().unwrap().store.close().unwrap();
    cluster.disks[away] = cluster.disks[away].copy();
    cluster.start(away);
    assert!(cluster.node(away).replayed >= 20);
    cluster.agree();
    // The node could lead the nodes from which it fetched the state.
    let leader = cluster.leader(ALL).unwrap();
    let handed = cluster
        .node(leader)
        .store
        .transfer_leadership(GroupSlot::DIRECTORY, IDS[away]);
    assert_eq!(handed, Ok(()));
    cluster.until("it leads", |c| c.leader(ALL).filter(|at| *at == away));
    cluster.fill(ALL, 3, 100);
    cluster.agree();
}

#[test]
fn a_crash_while_the_state_is_taken_over_loses_nothing() {
    for seed in 1..=40u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut cluster = match seed % 4 {
            0 => Cluster::with_threads(short(), 0),
            _ => Cluster::new(short(), 0),
        };
        cluster.fill(ALL, 1 + dice.below(10) as usize, 300);
        let away = (cluster.leader(ALL).unwrap() + 1) % 3;
        cluster.crash(away, &mut dice);
        cluster.leave_behind(ALL, away);
        cluster.start(away);
        // The test kills the node in the middle of the fetch, or a little later.
        let wanted = cluster.until("it needs the state", |c| {
            c.node(away).store.poll_catch_up(GroupSlot::DIRECTORY)
        });
        assert!(wanted.index > Index::ZERO);
        let rounds = dice.below(60);
        for _ in 0..rounds {
            cluster.round();
        }
        cluster.crash(away, &mut dice);
        cluster.start(away);
        cluster.fill(ALL, 3, 500);
        cluster.agree();
        assert!(cluster.installed[&ALL] > 0);
        cluster.crash(away, &mut dice);
        cluster.start(away);
        cluster.agree();
    }
}
