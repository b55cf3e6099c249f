//! Tests several groups in one log: each group keeps its own entries, independent of the other groups, and no
//! group holds the log for itself.

use std::sync::Arc;

use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_cluster::slots::{GroupSlot, PerGroup};
use tidegate_log::{SimDisk, Storage as _};
use tidegate_raft::replica::Index;
use tidegate_raft::store::{OpenError, Opening, Options, REPAIRED_FILE, Space, WriteError};

use crate::cluster::{Cluster, IDS, Node, groups_of, old, short};
use crate::common::{Disks, options};
use crate::crash::Dice;
use crate::toy::{self, Toy, delete, payload, store};

/// The second group of all nodes, and (`ALONE`) the group of the first node alone.
const SHARD: GroupId = GroupId::new(ALL.get() + 1);
const ALONE: GroupId = alone(0);

/// Returns the group of this node alone.
const fn alone(at: usize) -> GroupId {
    GroupId::new(0x1000 + at as u32)
}

/// Stores and deletes messages in a group, so that its log grows and can shrink.
fn churn(cluster: &mut Cluster, group: GroupId, rounds: usize) {
    for _ in 0..rounds {
        cluster.fill(group, 5, 700);
        while !cluster.write(group, |toy| delete(old(toy, 10))) {}
    }
}

/// Returns the most bytes that the first node's log takes while this group stores and deletes messages.
fn most(cluster: &mut Cluster, group: GroupId) -> u64 {
    churn(cluster, group, 10);
    let mut most = 0;
    for _ in 0..30 {
        churn(cluster, group, 1);
        most = most.max(cluster.node(0).log_bytes());
    }
    most
}

#[test]
fn the_log_takes_no_more_than_the_busy_group_needs() {
    // The test first measures an equal load in a cluster with one group.
    let mut one = Cluster::new(short(), 1);
    let needed = most(&mut one, ALL);
    for busy in [ALL, SHARD, ALONE] {
        let mut cluster = Cluster::new(short(), 2);
        // Each group stores a message that it keeps.
        for group in [ALL, SHARD, ALONE] {
            cluster.fill(group, 1, 100);
        }
        let took = most(&mut cluster, busy);
        // The store makes the checkpoints of other groups a little later, so the log takes a few segments
        // more.
        assert!(
            took <= needed + 3 * cluster.options.segment_bytes,
            "{took} bytes with group {busy} busy, {needed} in one group"
        );
        cluster.agree();
        for at in 0..3 {
            cluster.kill(at);
            cluster.start(at);
        }
        cluster.agree();
        cluster.settle();
        let took = most(&mut cluster, busy);
        assert!(
            took <= needed + 3 * cluster.options.segment_bytes,
            "{took} bytes with group {busy} busy after a start, {needed} in one group"
        );
        cluster.agree();
    }
}

#[test]
fn a_node_cut_off_with_uncommitted_entries_keeps_no_log_for_them() {
    for leads in [true, false] {
        let mut cluster = Cluster::new(short(), 2);
        for group in [ALL, SHARD] {
            cluster.fill(group, 3, 300);
        }
        let first = cluster.until("somebody leads", |c| c.leader(ALL));
        // The test gives this node entries that only the node has, or that it does not know to be committed.
        let away = if leads { first } else { (first + 1) % 3 };
        let alone = alone(away);
        cluster.cut = Some(away);
        if leads {
            let seq = cluster.node(away).member(ALL).toy.seq + 1;
            for n in 0..3 {
                let proposed = cluster.node(away).store.propose(
                    GroupSlot::DIRECTORY,
                    store(seq + n, 1, 200),
                    1,
                );
                assert!(proposed.is_ok());
            }
        } else {
            cluster.kill(away);
            cluster.start(away);
        }
        churn(&mut cluster, alone, 10);
        let before = cluster.node(away).log_bytes();
        for _ in 0..3 {
            churn(&mut cluster, alone, 20);
            assert!(cluster.node(away).log_bytes() < before + 8 * (16 << 10));
            // The store begins the restart with these entries.
            cluster.kill(away);
            cluster.start(away);
            let store = &cluster.node(away).store;
            assert!(store.group(GroupSlot::DIRECTORY).last_index() > Index::ZERO);
        }
        let store = &cluster.node(away).store;
        if leads {
            let (group, applied) = (
                store.group(GroupSlot::DIRECTORY),
                store.applied(GroupSlot::DIRECTORY).index,
            );
            assert!(
                group.last_index() >= applied.after(3),
                "they are still there"
            );
        }
        cluster.cut = None;
        for group in [ALL, SHARD, alone] {
            cluster.fill(group, 3, 100);
        }
        cluster.agree();
    }
}

#[test]
fn followed_entries_leave_a_full_node_room_to_empty_its_own_streams() {
    let mut cluster = Cluster::new(options(), 1);
    let leader = cluster.until("somebody leads", |c| c.leader(ALL));
    let at = (leader + 1) % 3;
    let alone = alone(at);
    cluster.disks[at].log.set_capacity(Some(6 * (64 << 10)));
    // Every segment of the log holds a little that all groups keep.
    for round in 0.. {
        if round % 5 == 0 {
            cluster.fill(ALL, 1, 100);
        }
        let Node { store, members, .. } = cluster.node(at);
        let of = store.at(alone).unwrap();
        let next = toy::store(members[of].toy.seq + 1, 7, 1000);
        match store.propose(of, next, 1) {
            Ok(_) | Err(WriteError::Full | WriteError::NotLeader) => {}
            Err(WriteError::DiskFull) => break,
            Err(error) => panic!("{error}"),
        }
        while cluster.round() {}
        cluster.tick();
    }
    // The other nodes go on, with far more entries than this node's disk has room for.
    cluster.fill(ALL, 100, 1000);
    assert!(cluster.node(at).store.log().disk_full());
    while !cluster.write(alone, |toy| delete(old(toy, 0))) {}
    cluster.until("there to be space again", |c| {
        let node = c.node(at);
        node.store.ask_for_space();
        (node.store.space() == Space::Free).then_some(())
    });
    cluster.disks[at].log.set_capacity(None);
    cluster.node(at).store.ask_for_space();
    cluster.agree();
}

/// Checks that an operator can empty a full node first: a catch-up would hold segments, and its fetched
/// messages would take the room that a purge needs.
#[test]
fn a_full_node_that_is_to_take_over_a_state_can_be_emptied_first() {
    let mut cluster = Cluster::new(short(), 1);
    cluster.disks[0].log.set_capacity(Some(12 * (16 << 10)));
    cluster.fill(ALL, 5, 300);
    cluster.fill(ALONE, 1, 300);
    cluster.cut = Some(0);
    cluster.leave_behind(ALL, 0);
    cluster.fill(ALL, 100, 300);
    loop {
        let Node { store, members, .. } = cluster.node(0);
        let of = store.at(ALONE).unwrap();
        let next = toy::store(members[of].toy.seq + 1, 7, 1000);
        match store.propose(of, next, 1) {
            Ok(_) | Err(WriteError::Full) => {}
            Err(WriteError::DiskFull) => break,
            Err(error) => panic!("{error}"),
        }
        while cluster.round() {}
        cluster.tick();
    }
    cluster.cut = None;
    for _ in 0..100 {
        cluster.tick();
        cluster.round();
    }
    assert!(cluster.node(0).store.log().disk_full());
    assert_eq!(cluster.fetched.get(&ALL), None);
    while !cluster.write(ALONE, |toy| delete(old(toy, 0))) {}
    cluster.until("there to be space again", |c| {
        let node = c.node(0);
        node.store.ask_for_space();
        (node.store.space() == Space::Free).then_some(())
    });
    cluster.disks[0].log.set_capacity(None);
    cluster.node(0).store.ask_for_space();
    cluster.agree();
    assert_eq!(cluster.installed[&ALL], 1);
}

#[test]
fn entries_applied_in_any_group_survive_crashes_of_any_node() {
    let groups = [ALL, SHARD, ALONE, alone(1), alone(2)];
    for seed in 1..=150u64 {
        println!("seed {seed}");
        live_and_crash(Cluster::new(short(), 2), &groups, seed);
    }
    for seed in 1..=10u64 {
        println!("seed {seed}, with threads");
        live_and_crash(Cluster::with_threads(short(), 2), &groups, seed);
    }
    for seed in 1..=40u64 {
        println!("seed {seed}, one group, with threads");
        live_and_crash(Cluster::with_threads(options(), 0), &[ALL], seed);
    }
}

fn live_and_crash(mut cluster: Cluster, groups: &[GroupId], seed: u64) {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    for _ in 0..6 {
        // The test lets some groups rest for a while.
        let mut busy = groups.to_vec();
        busy.retain(|_| dice.below(3) > 0);
        for _ in 0..dice.below(30) {
            let Some(&group) = busy.get(dice.below(groups.len() as u64) as usize) else {
                continue;
            };
            let (count, len) = (1 + dice.below(4), dice.below(1500) as usize);
            let deletes = dice.below(3) == 0;
            let all = dice.below(2) == 0;
            cluster.write(group, |toy| match deletes && !toy.messages.is_empty() {
                true => delete(old(toy, 5).into_iter().filter(|seq| all || seq % 4 > 0)),
                false => store(toy.seq + 1, count, len),
            });
        }
        // The test stops the node in the middle of a proposal.
        for group in busy {
            if let Some(leader) = cluster.leader(group) {
                let node = cluster.node(leader);
                let at = node.store.at(group).unwrap();
                let seq = node.members[at].toy.seq + 1;
                let _ = node.store.propose(at, store(seq, 1, 500), 1);
            }
        }
        for _ in 0..dice.below(6) {
            cluster.round();
        }
        let (crashed, from) = (1 + dice.below(3) as usize, dice.below(3) as usize);
        let down: Vec<usize> = (0..crashed).map(|n| (from + n) % 3).collect();
        down.iter().for_each(|&at| cluster.crash(at, &mut dice));
        if crashed == 1 && dice.below(2) == 0 {
            cluster.fill(ALL, 2, 100);
        }
        for &at in &down {
            if dice.below(3) == 0 && cluster.installed.is_empty() {
                damage_newest(&cluster, at, groups[dice.below(2) as usize % groups.len()]);
            }
            cluster.start(at);
        }
    }
    for group in groups {
        cluster.fill(*group, 1, 10);
    }
    cluster.agree();
}

/// Damages the newest of two checkpoints of a group, as a bad disk would.
fn damage_newest(cluster: &Cluster, at: usize, group: GroupId) {
    let state = &cluster.disks[at].state;
    let newest = checkpoints(cluster, at, group).pop();
    if let Some(newest) = newest.filter(|_| checkpoints(cluster, at, group).len() > 1) {
        state.flip(&newest, 300);
    }
}

/// Returns the names of a group's checkpoints on a node's disk, the oldest first.
fn checkpoints(cluster: &Cluster, at: usize, group: GroupId) -> Vec<String> {
    let names = cluster.disks[at].state.list().unwrap();
    let prefix = format!("state-{group}-");
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|n| n.starts_with(&prefix) && !n.ends_with("new"))
        .collect();
    names.sort_by_key(|n| n.rsplit('-').next().map(str::to_owned));
    names
}

#[test]
fn groups_catch_up_while_others_are_busy_and_what_was_fetched_is_not_fetched_again() {
    for seed in 1..=20u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut cluster = Cluster::new(short(), 2);
        for group in [ALL, SHARD, ALONE] {
            cluster.fill(group, 1 + dice.below(10) as usize, 300);
        }
        cluster.cut = Some(0);
        cluster.leave_behind(ALL, 0);
        cluster.leave_behind(SHARD, 0);
        let there = 120;
        cluster.fill(ALL, there / 3, 50);
        // The node is busy with its own group, and each segment keeps a little of that group.
        for _ in 0..10 {
            cluster.fill(ALONE, 5, 700);
            while !cluster.write(ALONE, |toy| delete((1..toy.seq).filter(|s| s % 9 > 0))) {}
        }
        cluster.cut = None;
        cluster.until("it needs a state", |c| {
            let store = &c.node(0).store;
            store
                .poll_catch_up(GroupSlot::DIRECTORY)
                .or_else(|| store.poll_catch_up(GroupSlot::new(1)))
        });
        for _ in 0..2 {
            for _ in 0..dice.below(150) {
                cluster.round();
            }
            // The node writes much to its own group meanwhile.
            if dice.below(2) == 0 {
                churn(&mut cluster, ALONE, 5);
            }
            match dice.below(2) {
                0 => cluster.crash(0, &mut dice),
                _ => cluster.kill(0),
            }
            cluster.start(0);
        }
        cluster.agree();
        for group in [ALL, SHARD] {
            assert!(cluster.installed.contains_key(&group), "group {group}");
        }
        churn(&mut cluster, ALONE, 5);
        for group in [ALL, SHARD] {
            cluster.fill(group, 3, 100);
        }
        cluster.crash(0, &mut dice);
        cluster.start(0);
        cluster.agree();
    }
}

#[test]
fn fetched_messages_stay_though_another_group_fills_the_log_and_the_process_ends() {
    let mut cluster = Cluster::new(short(), 1);
    cluster.fill(ALL, 5, 300);
    cluster.fill(ALONE, 1, 300);
    cluster.cut = Some(0);
    cluster.leave_behind(ALL, 0);
    cluster.fill(ALL, 50, 50);
    cluster.cut = None;
    cluster.until("some is fetched", |c| {
        (c.fetched.get(&ALL).copied().unwrap_or(0) >= 60).then_some(())
    });
    // No node gives this node the state for a while, and the node writes many other entries.
    cluster.cut = Some(0);
    churn(&mut cluster, ALONE, 20);
    cluster.kill(0);
    cluster.start(0);
    // The node must not forget that it needs the state, however long it hears from no leader.
    for _ in 0..200 {
        cluster.tick();
        cluster.round();
    }
    churn(&mut cluster, ALONE, 1);
    let before = cluster.fetched[&ALL];
    cluster.cut = None;
    cluster.agree();
    assert_eq!(cluster.installed[&ALL], 1);
    let messages = cluster.node(0).member(ALL).toy.messages.len() as u64;
    let after = cluster.fetched[&ALL] - before;
    assert!(
        after + 50 <= messages,
        "{after} of {messages} messages were fetched after the start, {before} before"
    );
}

/// Checks that a catch-up holds a bounded part of the log, whether the process goes on or ends meanwhile.
#[test]
fn a_state_that_does_not_come_releases_the_log_in_the_end_and_is_fetched_again() {
    for restarts in [false, true] {
        let mut cluster = Cluster::new(short(), 1);
        cluster.fill(ALL, 5, 300);
        cluster.fill(ALONE, 1, 300);
        cluster.cut = Some(0);
        cluster.leave_behind(ALL, 0);
        cluster.fill(ALL, 50, 50);
        cluster.cut = None;
        cluster.until("some is fetched", |c| {
            (c.fetched.get(&ALL).copied().unwrap_or(0) >= 60).then_some(())
        });
        cluster.cut = Some(0);
        let (before, fetched) = (cluster.node(0).log_bytes(), cluster.fetched[&ALL]);
        let (end, mut most) = (cluster.node(0).store.log().durable(), 0);
        for round in 0..150 {
            churn(&mut cluster, ALONE, 1);
            most = most.max(cluster.node(0).log_bytes());
            if restarts && round % 10 == 9 {
                cluster.kill(0);
                cluster.start(0);
            }
        }
        let written = cluster.node(0).store.log().durable().since(end);
        let now = cluster.node(0).log_bytes();
        println!("{written} bytes written, the log took {before}, then {most}, now {now}");
        // The bound is eight times the sum of the bytes after which a checkpoint is due and the fetched
        // bytes, which came in batches of five. The store releases segments with the second checkpoint after
        // that.
        let segment = cluster.options.segment_bytes;
        let held = 8 * (cluster.options.checkpoint_bytes_min + (fetched + 5) * 300);
        assert!(written > 2 * held, "too little to see anything");
        assert!(most <= before + held + 12 * segment, "{most}, not {held}");
        assert!(now <= before + 6 * segment, "{now} after {before}");
        cluster.cut = None;
        cluster.agree();
        assert_eq!(cluster.installed[&ALL], 1);
        cluster.kill(0);
        cluster.start(0);
        cluster.agree();
    }
}

/// Other groups write much more than the node fetches, without an end. The node gives the catch-up up more
/// than once, and the log stays bounded all the while.
#[test]
fn a_state_that_comes_slowly_is_given_up_and_comes_whole_once_others_rest() {
    (1..=6).for_each(comes_slowly);
}

fn comes_slowly(seed: u64) {
    println!("seed {seed}");
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut cluster = Cluster::new(short(), 1);
    cluster.fill(ALL, 5, 300);
    cluster.fill(ALONE, 1, 300);
    cluster.cut = Some(0);
    cluster.leave_behind(ALL, 0);
    cluster.fill(ALL, 100, 50);
    cluster.cut = None;
    let (mut most, mut given_up) = (0, 0);
    for _ in 0..200 {
        cluster.until("a state is wanted", |c| {
            let wanted = c
                .node(0)
                .store
                .poll_catch_up(GroupSlot::DIRECTORY)
                .is_some();
            (wanted || c.installed.contains_key(&ALL)).then_some(())
        });
        cluster.cut = Some(0);
        churn(&mut cluster, ALONE, 3);
        most = most.max(cluster.node(0).log_bytes());
        given_up += usize::from(
            cluster
                .node(0)
                .store
                .poll_catch_up(GroupSlot::DIRECTORY)
                .is_none(),
        );
        cluster.cut = None;
        for _ in 0..dice.below(10) {
            cluster.round();
        }
        if dice.below(10) == 0 {
            cluster.crash(0, &mut dice);
            cluster.start(0);
        }
    }
    println!("given up {given_up} times, the log took {most} bytes at most");
    assert!(given_up > 1, "{given_up}");
    let held = 8 * (cluster.options.checkpoint_bytes_min + 300 * 300);
    let most_kept = 3 * held;
    assert!(most <= most_kept, "{most}, not {most_kept}");
    cluster.agree();
    cluster.kill(0);
    cluster.start(0);
    cluster.agree();
}

#[test]
fn a_group_that_is_not_configured_is_refused_by_its_records_and_by_its_checkpoints() {
    let mut cluster = Cluster::new(short(), 2);
    cluster.fill(SHARD, 1, 100);
    cluster.kill(0);
    let refused = cluster.open(0, groups_of(0, 1)).map(drop);
    assert!(matches!(refused, Err(OpenError::Stranger { group: SHARD })));
    cluster.kill(0);
    cluster.start(0);
    // After a purge of its messages, the log releases all segments with entries of the group.
    while !cluster.write(SHARD, |toy| delete(old(toy, 0))) {}
    cluster.settle();
    cluster.agree();
    let end = cluster.node(0).store.log().durable();
    churn(&mut cluster, ALONE, 30);
    assert!(cluster.node(0).store.log().first() >= end);
    cluster.kill(0);
    let refused = cluster.open(0, groups_of(0, 1)).map(drop);
    assert!(matches!(refused, Err(OpenError::Stranger { group: SHARD })));
    cluster.kill(0);
    // A start with all of the node's groups works, and the groups go on.
    cluster.start(0);
    for group in [ALL, SHARD, ALONE] {
        cluster.fill(group, 1, 100);
    }
    cluster.agree();
}

#[test]
fn a_directory_that_had_one_group_goes_on_with_more() {
    let mut cluster = Cluster::new(short(), 1);
    for at in 0..3 {
        cluster.nodes[at] = None;
        cluster.disks[at] = Disks::default();
        let node = cluster.open(at, groups_of(at, 1).drain(..1).collect());
        cluster.nodes[at] = Some(node.unwrap());
    }
    churn(&mut cluster, ALL, 20);
    let names = |cluster: &Cluster| {
        let mut names = cluster.disks[0].state.list().unwrap();
        names.retain(|n| n.starts_with("state-") && n.matches('-').count() == 1);
        names
    };
    assert_eq!(names(&cluster).len(), 2);
    assert!(cluster.node(0).store.log().first().get() > 0);
    cluster.shards = 2;
    for at in 0..3 {
        cluster.kill(at);
        cluster.start(at);
    }
    cluster.agree();
    for group in [SHARD, ALONE] {
        churn(&mut cluster, group, 20);
    }
    cluster.agree();
    assert_eq!(names(&cluster), Vec::<String>::new());
    for at in 0..3 {
        cluster.kill(at);
        cluster.start(at);
    }
    cluster.agree();
}

#[test]
fn a_group_at_rest_gives_parts_of_one_checkpoint() {
    let mut cluster = Cluster::new(short(), 2);
    cluster.fill(SHARD, 10, 300);
    churn(&mut cluster, ALONE, 10);
    let store = &cluster.node(0).store;
    let at = store.at(SHARD).unwrap();
    let first = store.read_checkpoint(at, Index::ZERO, 0, 40).unwrap();
    let rest = store.read_checkpoint(at, first.index, 40, 1 << 20).unwrap();
    let whole = store.read_checkpoint(at, first.index, 0, 1 << 20).unwrap();
    assert_eq!((rest.index, rest.total), (first.index, first.total));
    assert_eq!([first.bytes, rest.bytes].concat(), whole.bytes);
    let names = checkpoints(&cluster, 0, SHARD);
    assert_eq!(names.len(), 2);
    let index = |name: &str| name.split('-').nth(2).map(str::to_owned);
    assert_eq!(index(&names[0]), index(&names[1]), "{names:?}");
}

#[test]
fn a_full_log_is_freed_though_groups_at_rest_have_old_checkpoints() {
    let mut cluster = Cluster::new(
        Options {
            max_file_store: Some(256 << 10),
            checkpoint_bytes_min: 64 << 20,
            ..short()
        },
        2,
    );
    for group in [ALL, SHARD] {
        cluster.fill(group, 1, 100);
    }
    while cluster.node(0).store.space() == Space::Free {
        cluster.fill(ALONE, 1, 700);
    }
    while !cluster.write(ALONE, |toy| delete(old(toy, 0))) {}
    cluster.until("there is space", |c| {
        (c.node(0).store.space() == Space::Free).then_some(())
    });
    cluster.agree();
    cluster.kill(0);
    cluster.start(0);
    cluster.agree();
}

#[test]
fn a_quota_within_one_segment_is_freed_though_groups_at_rest_have_messages_there() {
    let mut cluster = Cluster::new(
        Options {
            max_file_store: Some(12 << 10),
            checkpoint_bytes_min: 64 << 20,
            ..short()
        },
        2,
    );
    for group in [ALL, SHARD] {
        cluster.fill(group, 1, 100);
    }
    for _ in 0..3 {
        while cluster.node(0).store.space() == Space::Free {
            cluster.fill(ALONE, 1, 500);
        }
        while !cluster.write(ALONE, |toy| delete(old(toy, 0))) {}
        cluster.until("there is space", |c| {
            (c.node(0).store.space() == Space::Free).then_some(())
        });
        cluster.agree();
    }
    cluster.kill(0);
    cluster.start(0);
    cluster.agree();
}

#[test]
fn entries_that_a_repair_gave_up_may_be_of_any_group() {
    let mut cluster = Cluster::new(options(), 2);
    for group in [ALL, SHARD, ALONE] {
        cluster.fill(group, 3, 333);
    }
    cluster.agree();
    let seq = cluster.node(0).member(ALL).toy.seq;
    // The test writes only to another group, so the log has no record of the first group after its last
    // entry.
    cluster.fill(ALONE, 3, 444);
    cluster.kill(0);
    let disks = cluster.disks[0].clone();
    let gone = payload(seq, 333);
    let names = disks.log.list().unwrap();
    let found = names.iter().find_map(|name| {
        let content = disks.log.content(name);
        let mut places = content.windows(gone.len());
        Some((name, places.position(|bytes| bytes == gone)?))
    });
    let (name, at) = found.unwrap();
    disks.log.flip(name, at * 8 + 3);
    let refused = cluster.open(0, groups_of(0, 2)).map(drop);
    assert!(matches!(refused, Err(OpenError::Log(_))));
    cluster.kill(0);
    let repaired = tidegate_log::repair(&cluster.disks[0].log, &SimDisk::new()).unwrap();
    assert!(!repaired.lost.is_empty());
    let note = cluster.disks[0].state.create(REPAIRED_FILE).unwrap();
    note.sync().unwrap();
    cluster.kill(0);
    // The store refuses to open, because other nodes may count on the lost records.
    let refused = cluster.open(0, groups_of(0, 2)).map(drop);
    assert!(matches!(refused, Err(OpenError::Damaged(_))));
    cluster.kill(0);
    // A node without other members goes on with the rest of its log.
    let mut groups = groups_of(0, 2);
    groups.iter_mut().for_each(|g| g.members = vec![IDS[0]]);
    let node = cluster.open(0, groups).unwrap();
    assert_eq!(node.member(ALONE).toy.messages.len(), 18);
    assert_eq!(node.member(ALL).toy.messages.len(), 6);
}

#[test]
fn where_a_disk_is_full_one_group_can_make_space_though_another_waits_for_it() {
    let mut cluster = Cluster::new(short(), 1);
    for group in [ALL, ALONE] {
        cluster.fill(group, 3, 100);
    }
    cluster.until("another leads", |c| {
        let leader = c.leader(ALL)?;
        if leader == 0 {
            let _ = c
                .node(0)
                .store
                .transfer_leadership(GroupSlot::DIRECTORY, IDS[1]);
        }
        (leader > 0).then_some(())
    });
    cluster.fill(ALONE, 20, 700);
    let disk = cluster.disks[0].log.clone();
    let names = disk.list().unwrap();
    let used: usize = names.iter().map(|n| disk.content(n).len()).sum();
    disk.set_capacity(Some(used as u64 + (64 << 10)));
    let waits = |c: &mut Cluster| {
        let store = &c.node(0).store;
        let (space, group) = (store.space(), store.group(GroupSlot::DIRECTORY));
        // The entries that the leader sends to the node wait for space here, or at the leader.
        let waits = group.poll_append().is_some() || group.refused_bytes(group.term()).is_some();
        space != Space::Free && waits
    };
    while !waits(&mut cluster) {
        cluster.fill(ALL, 1, 1300);
    }
    let all = |toy: &Toy| delete(old(toy, 0));
    assert!(cluster.write(ALONE, all), "what makes space is written");
    assert!(waits(&mut cluster));
    disk.set_capacity(None);
    cluster.node(0).store.ask_for_space();
    cluster.fill(ALL, 1, 1300);
    cluster.agree();
}

/// Checks that a node takes no entry for which its log may have no room: the log notices a full disk only at
/// the allocation of the next segment. Entries without room would hold back the votes of the node.
#[test]
fn a_node_takes_no_entry_without_room_before_it_knows_that_its_disk_is_full() {
    // The leader keeps the entries in memory, so that it sends all of them at once.
    let mut cluster = Cluster::new(
        Options {
            tail_bytes_max: 1 << 20,
            ..short()
        },
        1,
    );
    for group in [ALL, ALONE] {
        cluster.fill(group, 3, 100);
    }
    cluster.cut = Some(0);
    cluster.until("another leads", |c| c.leader(ALL).filter(|l| *l != 0));
    cluster.fill(ALL, 30, 1000);
    let disk = cluster.disks[0].log.clone();
    let names = disk.list().unwrap();
    let used: usize = names.iter().map(|n| disk.content(n).len()).sum();
    disk.set_capacity(Some(used as u64));
    assert!(!cluster.node(0).store.log().disk_full());
    cluster.cut = None;
    cluster.settle();
    let store = &cluster.node(0).store;
    assert!(store.log().disk_full());
    for at in store.slots() {
        assert!(store.group(at).poll_append().is_none(), "nothing is stuck");
    }
    let all = |toy: &Toy| delete(old(toy, 0));
    assert!(cluster.write(ALONE, all), "what makes space is written");
    disk.set_capacity(None);
    cluster.node(0).store.ask_for_space();
    cluster.agree();
}

#[test]
fn looking_at_a_directory_does_nothing_in_its_groups_names() {
    let mut cluster = Cluster::new(options(), 2);
    for group in [ALL, SHARD, ALONE] {
        cluster.fill(group, 3, 100);
    }
    cluster.agree();
    cluster.kill(0);
    let disks = cluster.disks[0].clone();
    let (state, log) = (Arc::new(disks.state.clone()), Arc::new(disks.log.clone()));
    let mut groups = groups_of(0, 2);
    groups.iter_mut().for_each(|g| g.members = vec![1]);
    let options = Options {
        groups,
        ..options()
    };
    let opening = Opening::on(state, log, options, Arc::new(|| ())).unwrap();
    let mut toys: PerGroup<Toy> = opening.slots().map(|_| Toy::default()).collect();
    opening
        .look(|at, due, live| toys[at].handle(due, live))
        .unwrap();
    assert!(toys.iter().all(|toy| toy.messages.len() == 9));
    // The other nodes must know of no term and no entry beyond those of this node.
    cluster.kill(0);
    cluster.start(0);
    for group in [ALL, SHARD] {
        let terms = cluster.nodes.iter().flatten().map(|n| {
            let group = n.store.group(n.store.at(group).unwrap());
            (group.hard_state().term.get(), group.last_index().get())
        });
        let terms: Vec<(u64, u64)> = terms.collect();
        assert!(terms.windows(2).all(|w| w[0] == w[1]), "{terms:?}");
    }
}
