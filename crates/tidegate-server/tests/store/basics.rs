//! A data directory through its life: opened, written, read, closed, opened again.

use tidegate_server::store::{Fetch, OpenError, Opening, WriteError};
use tidegate_server::stream::{Command, Place};

use crate::common::{Disks, Node, entry, options};

#[test]
fn what_was_applied_is_replayed_and_read_by_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Node::at(dir.path());
    let mut written = Vec::new();
    for number in 0..300 {
        let (data, offsets) = entry(number, 1 + number % 4, (number * 37 % 900) as usize);
        written.push((node.propose(&data), data, offsets));
    }
    node.applied(written.last().unwrap().0);
    let first_life = node.applied.clone();
    assert_eq!(first_life.len(), written.len());
    node.store.close().unwrap();

    let mut node = Node::at(dir.path());
    assert_eq!((node.replayed, &node.applied), (300, &first_life));
    for (entry, (index, data, offsets)) in first_life.iter().zip(&written) {
        assert_eq!((entry.index, &entry.data), (*index, data));
        for &offset in offsets {
            let place = Place {
                lsn: entry.lsn.get(),
                offset,
            };
            let Fetch::Ready(bytes) = node.read(place) else {
                panic!("{place:?} cannot be read");
            };
            let wanted = Command::read(data, offset).unwrap();
            assert_eq!(Command::read(&bytes, 0).unwrap().payload, wanted.payload);
        }
    }
    // It goes on where it ended.
    let (data, _) = entry(300, 1, 10);
    let index = node.propose(&data);
    assert!(index > written.last().unwrap().0);
    node.applied(index);
    assert_eq!(node.applied.last().unwrap().data, data);
    // What was just applied is in memory.
    let place = Place {
        lsn: node.applied.last().unwrap().lsn.get(),
        offset: 0,
    };
    assert_eq!(node.store.read(place), Fetch::Ready(data));
}

#[test]
fn a_place_where_nothing_begins_is_told_and_not_waited_for() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    let index = node.propose(&entry(0, 1, 10).0);
    node.applied(index);
    let beyond = Place {
        lsn: 1 << 40,
        offset: 0,
    };
    assert_eq!(node.read(beyond), Fetch::Gone);
    let lsn = node.applied[0].lsn.get();
    let behind = Place { lsn, offset: 10_000 };
    assert_eq!(node.read(behind), Fetch::Damaged);
}

#[test]
fn a_directory_in_use_or_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::at(dir.path());
    let again = Opening::begin(dir.path(), options(), std::sync::Arc::new(|| ()));
    assert!(matches!(again, Err(OpenError::InUse)));
    node.store.close().unwrap();
    let version = dir.path().join("tidegate/version");
    assert_eq!(std::fs::read_to_string(&version).unwrap(), "1\n");
    for (text, newer) in [("2\n", true), ("x", false), ("0", false)] {
        std::fs::write(&version, text).unwrap();
        let refused = Opening::begin(dir.path(), options(), std::sync::Arc::new(|| ()));
        let Err(error) = refused else {
            panic!("version {text:?} was accepted");
        };
        assert_eq!(matches!(error, OpenError::Newer { version: 2 }), newer, "{error}");
    }
}

#[test]
fn an_entry_too_long_for_a_segment_is_refused_and_nothing_has_changed() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    let (data, _) = entry(0, 1, 100_000);
    let refused = node.store.propose(data, 1);
    assert!(matches!(refused, Err(WriteError::TooLarge { .. })));
    let index = node.propose(&entry(1, 1, 100).0);
    node.applied(index);
    assert_eq!(node.applied.len(), 1);
}
