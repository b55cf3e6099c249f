//! Compares the log with a simple model of its content, during random appends, syncs, releases, crashes and
//! restarts.
//!
//! A crash keeps a random part of the bytes not yet durable. After each restart the log must have all
//! durable records, in order and unchanged. The log may also have the first of the other batches, each as a
//! whole. No released and no cut-off record may come back.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{GoOn, append, deadline, open, options, record, wait_until};
use proptest::prelude::*;
use tidegate_log::{Append, Lsn, Opened, Options, ReadError, Record, SimDisk, Verdict, verify};

#[derive(Clone, Debug)]
enum Op {
    /// Append a batch of `records` records of `len` bytes each, and wait until it is durable if `wait` is
    /// true.
    Append {
        records: usize,
        len: usize,
        wait: bool,
    },
    /// Release the oldest `share` 255ths of the durable records, as far as they lie in sealed segments.
    Release { share: u8 },
    /// Close the log and open it again.
    Restart,
    /// Crash, and let `chance` choose the bytes and file names that survive. If `hang` is true, the syncs of
    /// a last batch hang at the crash.
    Crash { chance: u64, hang: bool },
    /// Read the record that the number `which` selects.
    Read { which: usize },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (1..5usize, 0..2500usize, any::<bool>())
            .prop_map(|(records, len, wait)| Op::Append { records, len, wait }),
        1 => (0..=255u8).prop_map(|share| Op::Release { share }),
        1 => Just(Op::Restart),
        2 => (any::<u64>(), any::<bool>()).prop_map(|(chance, hang)| Op::Crash { chance, hang }),
        3 => any::<usize>().prop_map(|which| Op::Read { which }),
    ]
}

struct World {
    disk: SimDisk,
    opened: Opened,
    /// The batches that the log may hold: the end of each batch, and its records with their positions.
    batches: Vec<(Lsn, Vec<(Lsn, Record)>)>,
    /// The position up to which the log was durable: all batches before it must survive a crash.
    durable: Lsn,
    index: u64,
}

fn small() -> Options {
    // The log reserves its first segment in two steps.
    options().recycled_max(2).first_bytes(8 << 10)
}

impl World {
    fn new() -> Self {
        let disk = SimDisk::new();
        let opened = open(&disk, small()).0;
        Self {
            disk,
            opened,
            batches: Vec::new(),
            durable: Lsn::ZERO,
            index: 0,
        }
    }

    fn step(&mut self, op: &Op) {
        match *op {
            Op::Append { records, len, wait } => {
                let first = self.index;
                self.index += records as u64;
                let records: Vec<_> = (first..self.index)
                    .map(|i| record(i as u32 % 3, i, len))
                    .collect();
                let appended = append(&mut self.opened, records.clone());
                let placed = appended.records.into_iter().zip(records).collect();
                assert!(
                    self.batches.last().is_none_or(|b| b.0 <= appended.at),
                    "positions go on"
                );
                self.batches.push((appended.end, placed));
                if wait {
                    self.opened
                        .log
                        .wait_durable(appended.end, deadline())
                        .unwrap();
                    self.durable = appended.end;
                }
            }
            Op::Release { share } => {
                let (first, end) = (self.opened.log.first(), self.opened.log.durable());
                let to = first.after(end.since(first) * u64::from(share) / 255);
                self.opened.log.release_before(to);
            }
            Op::Restart => {
                let end = self.batches.last().map_or(Lsn::ZERO, |b| b.0);
                self.opened.log.wait_durable(end, deadline()).unwrap();
                self.durable = self.durable.max(end);
                self.reopen(|disk| disk.copy());
            }
            Op::Crash { chance, hang } => {
                if hang {
                    self.disk.hang_syncs_after(0);
                    let _go_on = GoOn(self.disk.clone());
                    self.unsynced_append();
                    self.crash(chance);
                } else {
                    self.crash(chance);
                }
            }
            Op::Read { which } => self.read(which),
        }
    }

    /// Appends a batch, and waits until its sync hangs. If the keeper thread has not yet allocated the
    /// segment for the batch, appends nothing and does not wait, because no sync might ever hang then.
    fn unsynced_append(&mut self) {
        let records: Vec<_> = (0..2).map(|k| record(1, self.index + k, 700)).collect();
        if let Ok(appended) = self.opened.appender.append(Append::new(records.clone())) {
            self.index += 2;
            let placed = appended.records.into_iter().zip(records).collect();
            self.batches.push((appended.end, placed));
            self.disk.wait_until_hanging();
        }
    }

    fn crash(&mut self, chance: u64) {
        // The crash image comes later, so all records that are durable at this point must survive in it.
        self.durable = self.durable.max(self.opened.log.durable());
        let mut state = chance | 1;
        self.reopen(|disk| {
            disk.crash(chance & 2 == 0, |_, _| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                state >> 63 == 1
            })
        });
    }

    fn reopen(&mut self, image: impl FnOnce(&SimDisk) -> SimDisk) {
        let image = image(&self.disk);
        self.disk.go_on();
        let report = verify(&image.copy()).unwrap();
        assert_eq!(report.damage, None);
        let (opened, entries) = open(&image, small());
        let recovery = &opened.recovery;
        assert_eq!(report.verdict, recovery.verdict);
        assert!(
            recovery.end >= self.durable,
            "{recovery:?} {:?}",
            self.durable
        );
        assert!(!matches!(recovery.verdict, Verdict::Damaged { .. }));
        // The crash may lose a release, so released segments may survive. The surviving records form whole
        // batches without a gap up to the end.
        self.batches
            .retain(|b| b.0 <= recovery.end && b.1[0].0 >= recovery.first);
        let expected: Vec<_> = self.batches.iter().flat_map(|b| &b.1).collect();
        let told: Vec<_> = entries
            .iter()
            .map(|e| (e.lsn, e.group, e.index, e.len as usize))
            .collect();
        let known = expected.iter();
        let known: Vec<_> = known
            .map(|(l, r)| (*l, r.group, r.index, r.payload.len()))
            .collect();
        assert_eq!(told, known);
        self.durable = recovery.end;
        (self.disk, self.opened) = (image, opened);
    }

    fn read(&self, which: usize) {
        let all: Vec<_> = self
            .batches
            .iter()
            .flat_map(|b| b.1.iter().map(move |r| (b.0, r)))
            .collect();
        if all.is_empty() {
            return;
        }
        let (end, (lsn, record)) = all[which % all.len()];
        let durable = self.opened.log.durable();
        match self.opened.log.reader().read(*lsn, None) {
            Ok(read) => assert_eq!(read, *record),
            Err(ReadError::NotDurable { .. }) => assert!(end > durable),
            Err(ReadError::Released) => {
                assert!(*lsn < self.opened.log.segments().last().unwrap().range.start)
            }
            Err(error) => panic!("{lsn}: {error}"),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn durable_records_stay_and_cut_off_records_stay_off(ops in prop::collection::vec(op(), 1..60)) {
        let mut world = World::new();
        for op in &ops {
            world.step(op);
        }
        world.step(&Op::Restart);
    }
}

#[test]
fn the_world_is_shared_between_threads() {
    // Readers on other threads run while the log seals, releases and reuses segments.
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, small());
    let done = Arc::new(AtomicBool::new(false));
    let read = Arc::new(AtomicU64::new(0));
    let reader = {
        let (log, done, read) = (opened.log.clone(), Arc::clone(&done), Arc::clone(&read));
        std::thread::spawn(move || {
            while !done.load(Ordering::SeqCst) {
                let mut at = log.first();
                while let Ok(chunk) = log.reader().scan(at, 3000) {
                    for (_, got) in &chunk.records {
                        assert_eq!(*got, record(got.group, got.index, 1500));
                    }
                    read.fetch_add(chunk.records.len() as u64, Ordering::SeqCst);
                    if chunk.next == at {
                        break;
                    }
                    at = chunk.next;
                }
            }
        })
    };
    for n in 0..600 {
        append(&mut opened, vec![record(n as u32 % 3, n, 1500)]);
        let keep = opened.log.durable().get().saturating_sub(40_000);
        opened.log.release_before(Lsn::new(keep));
    }
    wait_until(|| read.load(Ordering::SeqCst) > 0 || reader.is_finished());
    done.store(true, Ordering::SeqCst);
    reader.join().unwrap();
}
