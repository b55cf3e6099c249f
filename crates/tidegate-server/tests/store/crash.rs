//! Crashes at random points, with a random part of what was not synced lost: what was applied, and so could be acknowledged, is there
//! after the restart, in order and unchanged; full disks and failed syncs are told.

use tidegate_server::store::{Space, WriteError};

use crate::common::{Disks, Node, options};
use crate::toy::{delete, store};

/// Draws numbers; the same for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Some operations of a loop that does not wait for what it proposes.
fn live(node: &mut Node, dice: &mut Dice, steps: u64) {
    // Proposed and not yet applied counts too, or two entries would store the same numbers.
    let mut seq = node.toy.seq;
    for _ in 0..steps {
        let data = match dice.below(8) {
            0 if !node.toy.messages.is_empty() => {
                let keys: Vec<u64> = node.toy.messages.keys().copied().collect();
                delete(keys.into_iter().filter(|_| dice.below(3) > 0))
            }
            _ => {
                let count = 1 + dice.below(5);
                let data = store(seq + 1, count, dice.below(3000) as usize);
                seq += count;
                data
            }
        };
        node.propose(&data);
        if dice.below(4) == 0 {
            node.turn();
        }
    }
}

#[test]
fn what_was_applied_survives_crashes() {
    for seed in 1..=40u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut disks = Disks::default();
        let mut applied: Vec<(u64, u64, bytes::Bytes)> = Vec::new();
        let mut term = 0;
        for life in 0..6 {
            let mut node = Node::on(&disks).unwrap();
            let replayed = node.entries.len();
            // All of the replay is of entries known, or of such as nobody was told of.
            let known: Vec<_> = applied
                .iter()
                .filter(|(lsn, ..)| node.entries.first().is_some_and(|(first, ..)| lsn >= first))
                .cloned()
                .collect();
            assert!(
                known.len() <= replayed,
                "life {life}: applied entries are lost"
            );
            assert_eq!(known, node.entries[..known.len()], "life {life}");
            if node.replayed == 0 {
                let last = applied.last().map_or(0, |(lsn, ..)| *lsn);
                assert!(node.store.log().durable().get() >= last);
            }
            let now = node.store.group(0).hard_state().term;
            assert!(now > term, "life {life}: term {now} after {term}");
            node.check_messages();
            let steps = 5 + dice.below(60);
            live(&mut node, &mut dice, steps);
            // The election may not have been durable; then its term can come again.
            if node.entries.len() > replayed {
                term = now;
            }
            let first = node.entries.first().map_or(u64::MAX, |(lsn, ..)| *lsn);
            applied.retain(|(lsn, ..)| *lsn < first);
            applied.extend(node.entries.iter().cloned());
            let toy = node.toy.clone();
            disks = match dice.below(3) {
                // Everything is durable.
                0 => {
                    node.store.close().unwrap();
                    disks.copy()
                }
                kept => Disks {
                    state: disks.state.crash(dice.below(2) == 0, |_, _| kept == 1),
                    log: disks
                        .log
                        .crash(dice.below(2) == 0, |_, _| dice.below(3) == 0),
                },
            };
            // What had been applied is there, whatever came after it.
            let after = Node::on(&disks.copy()).unwrap();
            assert!(after.toy.index >= toy.index, "life {life}");
            assert!(after.toy.seq >= toy.seq, "life {life}");
        }
    }
}

#[test]
fn a_failed_sync_is_told_and_nothing_is_committed_after_it() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    node.write(&store(1, 3, 100));
    disks.log.fail_syncs_after(0);
    node.store.propose(0, store(4, 1, 100), 1).unwrap();
    let durable = node.store.log().durable();
    let failure = loop {
        match node.store.poll() {
            Ok(()) => std::thread::yield_now(),
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure.durable, durable);
    assert_eq!(node.store.poll_due(), None);
    let refused = node.store.propose(0, store(5, 1, 100), 1);
    assert!(matches!(refused, Err(WriteError::Failed(_))));
    assert!(node.store.close().is_err());
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
        match node.store.propose(0, store(next, 7, 1000), 1) {
            Ok(proposed) => node.applied(proposed.index),
            Err(WriteError::Full) => node.turn(),
            // Whoever allocates may have come late.
            Err(WriteError::DiskFull) => return Some(()),
            Err(error) => panic!("{error}"),
        }
        None
    });
    // There is room yet for what makes room.
    let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
    node.write(&delete(seqs.into_iter().skip(1)));
    // Until it is full in earnest, which what was deleted may put off once more by being let go just then.
    let (refused, space) = node.until(|node| {
        let next = node.toy.seq + 1;
        match node.store.propose(0, store(next, 7, 1000), 1) {
            Ok(proposed) => node.applied(proposed.index),
            Err(WriteError::Full) => node.turn(),
            Err(error) => {
                let space = node.store.space();
                return (space != Space::Free).then_some((error, space));
            }
        }
        None
    });
    assert!(matches!(refused, WriteError::DiskFull), "{refused}");
    assert_ne!(space, Space::Free);
    // Reads go on.
    node.check_messages();
    // Even then something can be deleted.
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
    let options = tidegate_server::store::Options {
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
    let seqs: Vec<u64> = node.toy.messages.keys().copied().collect();
    node.write(&delete(seqs));
    // A checkpoint is made though the log has hardly grown, and lets the segments go.
    node.until(|node| (node.store.space() == Space::Free).then_some(()));
    assert_eq!(node.checkpoints, 1);
}

#[test]
fn without_space_for_a_checkpoint_the_older_is_given_up_and_never_the_newer() {
    let disks = Disks::default();
    let mut node = Node::on(&disks).unwrap();
    while node.checkpoints < 3 {
        let next = node.toy.seq + 1;
        node.write(&store(next, 7, 1000));
        node.settled();
    }
    // Room for two and a bit.
    let names = |disks: &Disks| -> Vec<(String, usize)> {
        let names = tidegate_log::Storage::list(&disks.state).unwrap();
        let mut names: Vec<_> = names
            .into_iter()
            .filter(|n| n.starts_with("state-"))
            .map(|n| (n.clone(), disks.state.content(&n).len()))
            .collect();
        names.sort();
        names
    };
    let before = names(&disks);
    let room: usize = before.iter().map(|(_, bytes)| bytes).sum();
    disks.state.set_capacity(Some(room as u64 + 1000));
    while node.checkpoints < 4 {
        let next = node.toy.seq + 1;
        node.write(&store(next, 7, 1000));
    }
    node.settled();
    let after = names(&disks);
    assert_eq!((after.len(), &after[0]), (2, &before[1]));
    // And if that is not enough, there are still the ones before.
    disks.state.set_capacity(Some(100));
    while node.checkpoints < 5 {
        let next = node.toy.seq + 1;
        node.write(&store(next, 7, 1000));
    }
    node.settled();
    assert!(names(&disks).contains(&after[1]));
    let toy = node.toy.clone();
    node.store.close().unwrap();
    assert_eq!(Node::on(&disks.copy()).unwrap().toy, toy);
}
