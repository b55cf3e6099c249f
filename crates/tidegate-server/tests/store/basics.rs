//! Tests a data directory through its life: the store opens, writes, reads, closes, and opens the directory
//! again.

use std::sync::Arc;

use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::store::{Fetch, OpenError, Opening, WriteError};
use tidegate_stream::stream::Place;

use crate::common::{Disks, Node, options};
use crate::toy::store;

#[test]
fn applied_entries_are_replayed_and_read_by_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::at(dir.path());
    let mut last = 0;
    for number in 0..300u64 {
        let seq = number * 3 + 1;
        last = node.propose(&store(seq, 3, (number * 37 % 900) as usize));
    }
    node.applied(last);
    assert_eq!((node.entries.len(), node.toy.messages.len()), (300, 900));
    node.settled();
    let (first_life, toy) = (node.entries.clone(), node.toy.clone());
    assert!(node.checkpoints > 0);
    node.store.close().unwrap();

    let mut node = Node::at(dir.path());
    assert!(node.replayed < 300, "there were checkpoints");
    assert_eq!(node.entries, first_life[300 - node.replayed..]);
    assert_eq!(node.toy, toy);
    node.check_messages();
    // The store goes on where it ended, with the next index.
    let data = store(901, 1, 10);
    assert!(node.propose(&data) > last);
    node.applied(last + 1);
    // The store has an entry that the node has just applied in memory.
    let place = Place {
        lsn: node.entries.last().unwrap().0,
        offset: 0,
    };
    assert_eq!(
        node.store.read(GroupSlot::DIRECTORY, place),
        Fetch::Ready(data)
    );
}

#[test]
fn a_place_where_nothing_begins_is_told_and_not_waited_for() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    node.write(&store(1, 1, 10));
    let beyond = Place {
        lsn: 1 << 40,
        offset: 0,
    };
    assert_eq!(node.read(beyond), Fetch::Gone);
    let lsn = node.entries[0].0;
    let behind = Place {
        lsn,
        offset: 10_000,
    };
    assert_eq!(node.read(behind), Fetch::Damaged);
}

#[test]
fn a_directory_in_use_or_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let begin = || Opening::begin(dir.path(), options(), Arc::new(|| ()));
    let node = Node::at(dir.path());
    assert!(matches!(begin(), Err(OpenError::InUse)));
    node.store.close().unwrap();
    let version = dir.path().join("tidegate/version");
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "1\n");
    for (text, newer) in [("2\n", true), ("x", false), ("0", false)] {
        std::fs::write(&version, text).unwrap();
        let Err(error) = begin() else {
            panic!("version {text:?} was accepted");
        };
        let named = matches!(error, OpenError::Newer { version: 2 });
        assert_eq!(named, newer, "{error}");
    }
}

#[test]
fn an_entry_too_long_for_a_segment_is_refused_and_nothing_has_changed() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    let refused = node
        .store
        .propose(GroupSlot::DIRECTORY, store(1, 1, 100_000), 1);
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })));
    node.write(&store(1, 1, 100));
    assert_eq!(node.entries.len(), 1);
}

#[test]
fn more_than_may_wait_is_refused_until_something_was_applied() {
    let disks = Disks::default();
    let options = tidegate_raft::store::Options {
        uncommitted_bytes_max: 1000,
        ..options()
    };
    let mut node = Node::with(&disks, options).unwrap();
    node.store
        .propose(GroupSlot::DIRECTORY, store(1, 1, 600), 1)
        .unwrap();
    let refused = node
        .store
        .propose(GroupSlot::DIRECTORY, store(2, 1, 600), 1);
    assert!(matches!(refused, Err(WriteError::Full)));
    node.write(&store(2, 1, 600));
    assert_eq!(node.entries.len(), 2);
}
