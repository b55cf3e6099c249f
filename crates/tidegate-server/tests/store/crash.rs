//! Tests crashes at random points that lose a random part of the unsynced bytes: after the restart the store
//! has every applied entry, which the server may have acknowledged, in order and unchanged. The store reports
//! failed syncs.

use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::store::WriteError;

use crate::common::{Disks, Node};
use crate::toy::{delete, store};

/// Draws numbers; a seed always draws equal numbers.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Runs some operations of a loop that does not wait until its proposals are applied.
fn live(node: &mut Node, dice: &mut Dice, steps: u64) {
    // The number counts proposed entries that are not applied yet, or else two entries would store the
    // messages under equal numbers.
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
fn applied_entries_survive_crashes() {
    for seed in 1..=40u64 {
        println!("seed {seed}");
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut disks = Disks::default();
        let mut applied: Vec<(u64, u64, bytes::Bytes)> = Vec::new();
        let mut term = 0;
        for life in 0..6 {
            let mut node = Node::on(&disks).unwrap();
            let replayed = node.entries.len();
            // The replay must have only entries that the node applied before, or entries that it never
            // reported.
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
            let now = node
                .store
                .group(GroupSlot::DIRECTORY)
                .hard_state()
                .term
                .get();
            assert!(now > term, "life {life}: term {now} after {term}");
            node.check_messages();
            let steps = 5 + dice.below(60);
            live(&mut node, &mut dice, steps);
            // The disk may not have had the election durable at the crash; its term can then come again.
            if node.entries.len() > replayed {
                term = now;
            }
            let first = node.entries.first().map_or(u64::MAX, |(lsn, ..)| *lsn);
            applied.retain(|(lsn, ..)| *lsn < first);
            applied.extend(node.entries.iter().cloned());
            let toy = node.toy.clone();
            disks = match dice.below(3) {
                // The store closes, so everything is durable.
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
            // After a crash the store must have every applied entry, even if the crash lost later ones.
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
    node.store
        .propose(GroupSlot::DIRECTORY, store(4, 1, 100), 1)
        .unwrap();
    let durable = node.store.log().durable();
    let failure = loop {
        match node.store.poll() {
            Ok(()) => std::thread::yield_now(),
            Err(failure) => break failure,
        }
    };
    assert_eq!(failure.durable, durable);
    assert_eq!(node.store.poll_due(), None);
    let refused = node
        .store
        .propose(GroupSlot::DIRECTORY, store(5, 1, 100), 1);
    assert!(matches!(refused, Err(WriteError::Failed(_))));
    assert!(node.store.close().is_err());
}
