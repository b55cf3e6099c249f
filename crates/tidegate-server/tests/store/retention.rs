//! Tests retention: released segments, messages that the store copies forward, kept checkpoints, and a start
//! after each of them.

use tidegate_log::Storage as _;
use tidegate_raft::store::OpenError;

use crate::common::{Disks, Node};
use crate::toy::{delete, store};

/// Stores `messages` messages of a KiB, several in an entry, and waits until the node has applied all of
/// them.
fn fill(node: &mut Node, messages: u64) {
    let mut left = messages;
    while left > 0 {
        let count = left.min(7);
        node.write(&store(node.toy.seq + 1, count, 1024));
        left -= count;
    }
}

fn segments(node: &Node) -> usize {
    node.store.log().segments().len()
}

fn checkpoints(disks: &Disks) -> Vec<String> {
    let names = disks.state.list().unwrap();
    names
        .into_iter()
        .filter(|n| n.starts_with("state-"))
        .collect()
}

#[test]
fn a_segment_without_messages_goes_once_two_checkpoints_have_passed_it() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    fill(&mut node, 400);
    let before = segments(&node);
    assert!(before > 6);
    node.write(&delete(1..=390));
    // New messages bring new checkpoints, and these let the store release the old segments.
    let mut rounds = 0;
    while node
        .toy
        .messages
        .keys()
        .next()
        .is_some_and(|&seq| seq <= 400)
        && rounds < 100
    {
        fill(&mut node, 20);
        let oldest: Vec<u64> = node.toy.messages.keys().copied().take(20).collect();
        node.write(&delete(oldest));
        rounds += 1;
    }
    node.settled();
    node.until(|node| (segments(node) < before).then_some(()));
    node.check_messages();
    let toy = node.toy.clone();
    node.settled();
    assert_eq!(checkpoints(&disks).len(), 2);
    node.store.close().unwrap();
    let mut node = Node::on(&disks.copy()).unwrap();
    assert_eq!(node.toy, toy);
    node.check_messages();
}

#[test]
fn the_last_needed_messages_of_a_segment_are_copied_and_the_segment_goes() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    fill(&mut node, 400);
    // The stream keeps one message in ten.
    node.write(&delete((1..=400).filter(|seq| seq % 10 != 0)));
    let first = node.store.log().first();
    for _ in 0..60 {
        fill(&mut node, 10);
        // The store releases only segments before the older checkpoint, so a slow thread of checkpoints would
        // leave too few of them.
        node.settled();
    }
    node.until(|node| (node.store.log().first() > first).then_some(()));
    node.until(|node| (node.toy.relocated >= 30).then_some(()));
    assert!(
        (10..=400)
            .step_by(10)
            .all(|seq| node.toy.messages.contains_key(&seq))
    );
    node.check_messages();
    node.settled();
    let toy = node.toy.clone();
    // The test starts as after a kill: the replay repeats the copies since the last checkpoint.
    let after = disks.copy();
    drop(node);
    let mut node = Node::on(&after).unwrap();
    assert_eq!(node.toy.messages, toy.messages);
    node.check_messages();
}

#[test]
fn a_damaged_checkpoint_is_passed_over_for_the_one_before() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    fill(&mut node, 600);
    node.settled();
    let toy = node.toy.clone();
    node.store.close().unwrap();
    let names = checkpoints(&disks);
    assert_eq!(names.len(), 2);
    let undamaged = Node::on(&disks.copy()).unwrap();
    for bit in [3, 300, 8 * 100] {
        let damaged = disks.copy();
        damaged.state.flip(&names[1], bit);
        let mut node = Node::on(&damaged).unwrap();
        assert!(node.replayed > undamaged.replayed);
        assert_eq!(node.toy, toy);
        node.check_messages();
    }
    // Without both checkpoints the node must start from the log alone, which must have every entry.
    let without = disks.copy();
    names.iter().for_each(|n| without.state.remove(n).unwrap());
    let node = Node::on(&without).unwrap();
    assert_eq!(node.toy.messages, toy.messages);
}

#[test]
fn a_log_that_lacks_what_no_checkpoint_has_is_refused() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    fill(&mut node, 300);
    node.write(&delete(1..=300));
    for _ in 0..40 {
        fill(&mut node, 10);
    }
    node.until(|node| (node.store.log().first().get() > 0).then_some(()));
    node.settled();
    node.store.close().unwrap();
    for name in checkpoints(&disks) {
        disks.state.remove(&name).unwrap();
    }
    let refused = Node::on(&disks.copy());
    assert!(matches!(refused.map(drop), Err(OpenError::Damaged(_))));
}

#[test]
fn a_log_shorter_than_its_checkpoint_is_refused() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    fill(&mut node, 10);
    let young = disks.log.copy();
    fill(&mut node, 100);
    node.settled();
    node.checkpoint();
    node.store.close().unwrap();
    let mixed = Disks {
        state: disks.state.copy(),
        log: young,
    };
    let refused = Node::on(&mixed);
    assert!(matches!(refused.map(drop), Err(OpenError::Damaged(_))));
}
