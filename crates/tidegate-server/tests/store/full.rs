//! Tests full disks and exceeded quotas of a node alone: the node refuses writes in time, still accepts
//! deletions, and goes on once it has space. The test `groups` covers several groups of a cluster.

use tidegate_cluster::slots::GroupSlot;
use tidegate_log::SimDisk;
use tidegate_raft::store::{Options, Space, WriteError};

use crate::common::{Disks, Node, options};
use crate::toy::{delete, store};

/// Writes messages until the store refuses one for lack of space, and returns the refusal.
fn fill(node: &mut Node) -> WriteError {
    node.until(|node| {
        let next = node.toy.seq + 1;
        match node
            .store
            .propose(GroupSlot::DIRECTORY, store(next, 7, 1000), 1)
        {
            Ok(proposed) => node.applied(proposed.index.get()),
            Err(WriteError::Full) => node.turn(),
            Err(error) => return (node.store.space() != Space::Free).then_some(error),
        }
        None
    })
}

fn delete_all(node: &mut Node) {
    let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
    node.write(&delete(seqs));
}

#[test]
fn a_full_disk_is_told_before_nothing_can_be_written_and_ends_with_space() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    node.write(&store(1, 7, 1000));
    disks.log.set_capacity(Some(4 * (64 << 10)));
    node.until(|node| {
        if node.store.space() != Space::Free {
            return Some(());
        }
        let next = node.toy.seq + 1;
        match node
            .store
            .propose(GroupSlot::DIRECTORY, store(next, 7, 1000), 1)
        {
            Ok(proposed) => node.applied(proposed.index.get()),
            Err(WriteError::Full) => node.turn(),
            // The store may refuse only here, because the allocation of a segment may have come late.
            Err(WriteError::DiskFull) => return Some(()),
            Err(error) => panic!("{error}"),
        }
        None
    });
    // The store still has room for entries that free space.
    let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
    node.write(&delete(seqs.into_iter().skip(1)));
    // The test fills the disk again. The deletions may release segments just then, and the disk is full only
    // a little later.
    let refused = fill(&mut node);
    assert!(matches!(refused, WriteError::DiskFull), "{refused}");
    // The store still serves reads.
    node.check_messages();
    // Even a store with a full disk accepts deletions.
    let seqs: Vec<u64> = node.toy.messages.keys().copied().take(9).collect();
    node.write(&delete(seqs));
    node.check_messages();
    disks.log.set_capacity(None);
    node.store.ask_for_space();
    node.until(|node| (node.store.space() == Space::Free).then_some(()));
    let next = node.toy.seq + 1;
    node.write(&store(next, 7, 1000));
    node.check_messages();
}

#[test]
fn a_quota_that_is_passed_is_told_and_ends_when_segments_go() {
    let disks = Disks::default();
    let options = Options {
        max_file_store: Some(512 << 10),
        checkpoint_bytes_min: 64 << 20,
        ..options()
    };
    let mut node = Node::with(&disks, options).unwrap();
    while node.store.space() == Space::Free {
        let next = node.toy.seq + 1;
        node.write(&store(next, 7, 1000));
    }
    assert!(node.store.used_bytes() > 512 << 10);
    delete_all(&mut node);
    // The store makes a checkpoint though the log has hardly grown, because only a checkpoint lets it release
    // the segments.
    node.until(|node| (node.store.space() == Space::Free).then_some(()));
    assert_eq!(node.checkpoints, 1);
}

/// Waits until the store has space for messages again, and looks for space as the server's loop does.
fn wait_for_space(node: &mut Node) {
    node.until(|node| {
        node.store.ask_for_space();
        (node.store.space() == Space::Free).then_some(())
    });
}

/// Writes entries of seven messages until the store has no space for more.
fn write_until_low(node: &mut Node, len: usize) {
    while node.store.space() == Space::Free {
        node.write(&store(node.toy.seq + 1, 7, len));
    }
}

/// Closes the node, opens it again, and checks that it has the same messages.
fn check_after_restart(node: Node, disks: &Disks, options: Options) {
    let toy = node.toy.clone();
    node.store.close().unwrap();
    let mut node = Node::with(&disks.copy(), options).unwrap();
    assert_eq!(node.toy, toy);
    node.check_messages();
}

/// Checks a quota below the length of a segment: no sealed segment holds the removed messages, and after the
/// refusals no further message seals the present one.
#[test]
fn a_quota_within_one_segment_makes_room_again_and_again() {
    let disks = Disks::default();
    let options = Options {
        max_file_store: Some(48 << 10),
        checkpoint_bytes_min: 64 << 20,
        ..options()
    };
    let mut node = Node::with(&disks, options.clone()).unwrap();
    for round in 1..=6 {
        write_until_low(&mut node, 100);
        let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
        // The first message of each round stays, so that the store must copy it.
        node.write(&delete(seqs.into_iter().skip(round)));
        wait_for_space(&mut node);
        assert!(node.store.used_bytes() < 24 << 10);
        assert_eq!(node.toy.messages.len(), round);
    }
    node.check_messages();
    check_after_restart(node, &disks, options);
}

/// Checks that copies behind the last entry of a segment do not keep the segment: no later entry may come.
#[test]
fn a_segment_that_ends_with_copies_makes_room_without_another_entry() {
    let disks = Disks::default();
    let options = Options {
        max_file_store: Some(96 << 10),
        checkpoint_bytes_min: 64 << 20,
        ..options()
    };
    let mut node = Node::with(&disks, options.clone()).unwrap();
    for _ in 0..6 {
        write_until_low(&mut node, 1000);
        let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
        // Each segment keeps some messages, which the store copies behind the messages of the next round.
        node.write(&delete(seqs.into_iter().filter(|seq| seq % 8 != 0)));
        wait_for_space(&mut node);
        let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
        node.write(&delete(seqs.into_iter().skip(2)));
        wait_for_space(&mut node);
    }
    node.check_messages();
    check_after_restart(node, &disks, options);
}

#[test]
fn a_quota_makes_room_when_half_of_each_segment_is_gone() {
    let disks = Disks::default();
    let options = Options {
        max_file_store: Some(512 << 10),
        checkpoint_bytes_min: 64 << 20,
        ..options()
    };
    let mut node = Node::with(&disks, options.clone()).unwrap();
    for _ in 0..2 {
        write_until_low(&mut node, 1000);
        let odd = |seq: &u64| seq % 2 == 1;
        let seqs: Vec<u64> = node.toy.messages.keys().copied().filter(odd).collect();
        node.write(&delete(seqs));
        wait_for_space(&mut node);
        node.check_messages();
        delete_all(&mut node);
    }
    check_after_restart(node, &disks, options);
}

/// Checks a stream that overwrites its messages all the time and keeps few old ones in each segment: the
/// quota must make room again each time, for any length of log that the last checkpoint covers.
#[test]
fn a_quota_makes_room_for_messages_that_replace_others_all_the_time() {
    for checkpoint_kib in [64, 256, 280, 64 << 10] {
        let disks = Disks::default();
        let options = Options {
            max_file_store: Some(300 << 10),
            checkpoint_bytes_min: checkpoint_kib << 10,
            ..options()
        };
        let mut node = Node::with(&disks, options.clone()).unwrap();
        for _ in 0..250 {
            let replaced: Vec<u64> = node.toy.messages.keys().copied().collect();
            node.write(&store(node.toy.seq + 1, 7, 1000));
            node.write(&delete(replaced.into_iter().filter(|seq| seq % 150 != 1)));
            if node.store.space() != Space::Free {
                wait_for_space(&mut node);
            }
        }
        node.check_messages();
        check_after_restart(node, &disks, options);
    }
}

/// Checks a quota smaller than the reserves that a large disk has room for.
#[test]
fn a_small_quota_has_room_for_messages() {
    let disks = Disks::default();
    let options = Options {
        segment_bytes: 1 << 20,
        max_file_store: Some(64 << 10),
        ..options()
    };
    let mut node = Node::with(&disks, options).unwrap();
    for _ in 0..6 {
        node.write(&store(node.toy.seq + 1, 7, 1000));
        assert_eq!(node.store.space(), Space::Free);
    }
    write_until_low(&mut node, 1000);
    delete_all(&mut node);
    wait_for_space(&mut node);
}

/// Checks a log that is too short of space for the next step of its reservation: it must use the space of
/// deleted messages again and again, and grow once there is space.
#[test]
fn a_short_log_uses_the_space_of_deleted_messages_again() {
    let disks = Disks::default();
    let options = Options {
        first_bytes: 16 << 10,
        ..options()
    };
    let mut node = Node::with(&disks, options.clone()).unwrap();
    disks.log.set_capacity(Some(disks.log.space() + (24 << 10)));
    for round in 0..6 {
        let refused = fill(&mut node);
        assert!(matches!(refused, WriteError::DiskFull), "{refused}");
        node.check_messages();
        delete_all(&mut node);
        node.until(|node| {
            node.store.ask_for_space();
            (node.store.space() == Space::Free).then_some(())
        });
        assert!(node.store.lacks_space(), "round {round}");
    }
    // A message that needs a longer segment is refused, and does not stop the others.
    let large = store(node.toy.seq + 1, 1, 20_000);
    let refused = node.until(|node| {
        let proposed = node.store.propose(GroupSlot::DIRECTORY, large.clone(), 1);
        (!matches!(proposed, Err(WriteError::Full))).then_some(proposed)
    });
    assert!(matches!(refused, Err(WriteError::DiskFull)), "{refused:?}");
    node.write(&store(node.toy.seq + 1, 7, 1000));
    let toy = node.toy.clone();
    node.store.close().unwrap();
    let mut node = Node::with(&disks.copy(), options).unwrap();
    assert_eq!(node.toy, toy);
    node.until(|node| {
        node.store.ask_for_space();
        (!node.store.lacks_space()).then_some(())
    });
    node.write(&store(node.toy.seq + 1, 1, 20_000));
    node.check_messages();
}

/// Returns the files on a disk and their lengths, in order.
fn files(disk: &SimDisk) -> Vec<(String, u64)> {
    let names = tidegate_log::Storage::list(disk).unwrap().into_iter();
    let mut files: Vec<_> = names
        .map(|n| (n.clone(), disk.content(&n).len() as u64))
        .collect();
    files.sort();
    files
}

fn states(disk: &SimDisk) -> Vec<(String, u64)> {
    let mut states = files(disk);
    states.retain(|(name, _)| name.starts_with("state-"));
    states
}

fn reserve(disk: &SimDisk) -> u64 {
    let files = files(disk).into_iter();
    files
        .filter(|(n, _)| n == "reserve")
        .map(|(_, bytes)| bytes)
        .sum()
}

fn total(files: &[(String, u64)]) -> u64 {
    files.iter().map(|(_, bytes)| bytes).sum()
}

#[test]
fn without_space_for_a_checkpoint_the_older_is_given_up_and_never_the_newer() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    let until_written = |node: &mut Node, checkpoints: usize| {
        while node.checkpoints < checkpoints {
            let next = node.toy.seq + 1;
            node.write(&store(next, 7, 1000));
            node.settled();
        }
    };
    until_written(&mut node, 3);
    let before = states(&disks.state);
    let last = before[1].1;
    node.until(|_| (reserve(&disks.state) == 2 * last).then_some(()));
    // The store first gives up its reserve, which frees enough space for the checkpoint.
    disks.state.set_capacity(Some(total(&files(&disks.state))));
    until_written(&mut node, 4);
    let after = states(&disks.state);
    assert_eq!((after.len(), &after[0]), (2, &before[1]));
    assert_eq!(reserve(&disks.state), 0, "it was needed");
    // The store then gives up the older checkpoint: the disk has room for one more than that.
    disks.state.set_capacity(Some(2 * after[1].1 + 10_000));
    until_written(&mut node, 5);
    let (before, after) = (after, states(&disks.state));
    assert_eq!((after.len(), &after[0]), (2, &before[1]));
    // If that does not free enough space, the newer checkpoint is still there, and no part of the unfinished
    // one.
    disks.state.set_capacity(Some(100));
    until_written(&mut node, 6);
    assert_eq!(states(&disks.state), [after[1].clone()]);
    let toy = node.toy.clone();
    node.store.close().unwrap();
    assert_eq!(Node::on(&disks.copy()).unwrap().toy, toy);
}

/// Creates a node with a full log and without any checkpoint.
fn full(disks: &Disks) -> Node {
    let options = Options {
        checkpoint_bytes_min: 64 << 20,
        ..options()
    };
    let mut node = Node::with(disks, options).unwrap();
    // The disk must also lack room for the segment for which the store may have asked while the log filled.
    disks.log.set_capacity(Some(5 * (64 << 10)));
    fill(&mut node);
    assert_eq!(node.checkpoints, 0);
    node
}

#[test]
fn a_disk_that_others_filled_before_the_first_checkpoint_can_be_emptied() {
    let disks = Disks::default();
    let mut node = full(&disks);
    node.until(|_| (reserve(&disks.state) > 0).then_some(()));
    disks.state.set_capacity(Some(total(&files(&disks.state))));
    delete_all(&mut node);
    node.until(|node| {
        node.store.ask_for_space();
        (node.store.space() == Space::Free).then_some(())
    });
    assert_eq!(states(&disks.state).len(), 1);
    // With space again, the store restores its reserve.
    disks.state.set_capacity(None);
    node.write(&store(node.toy.seq + 1, 7, 1000));
    node.until(|node| {
        node.store.ask_for_space();
        (reserve(&disks.state) > 0).then_some(())
    });
}

#[test]
fn a_checkpoint_that_a_full_disk_refused_is_tried_again_when_there_is_space() {
    let disks = Disks::default();
    // The disk does not even have room for the reserve.
    disks.state.set_capacity(Some(10));
    let mut node = full(&disks);
    delete_all(&mut node);
    node.until(|node| (node.checkpoints == 1 && !node.is_busy()).then_some(()));
    assert_ne!(node.store.space(), Space::Free);
    assert_eq!(states(&disks.state), []);
    disks.state.set_capacity(None);
    // The node only checks for space and writes nothing, so the log does not grow.
    node.until(|node| {
        node.store.ask_for_space();
        (node.store.space() == Space::Free).then_some(())
    });
    assert_eq!((states(&disks.state).len(), node.checkpoints), (1, 2));
}
