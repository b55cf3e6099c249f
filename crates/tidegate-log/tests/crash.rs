//! Tests with crash images: copies of a simulated disk that lack unsynced sectors or have damaged bytes. The
//! log must open such an image without the batches that were never durable, or report the records that may
//! have been acknowledged, or report the damage. The log must report every loss.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use common::{GoOn, append, append_sync, deadline, open, options, record, try_open};
use tidegate::Time;
use tidegate_log::{
    Append, DamageKind, Doing, Log, Lsn, OpenError, Opened, Options, Record, RecordInfo, SECTOR,
    SimDisk, Storage, Verdict, repair, verify,
};

/// The batches that a test wrote with their positions, and the number of the batches that are durable.
struct Written {
    batches: Vec<(Range<Lsn>, Vec<Record>)>,
    durable: usize,
}

impl Written {
    /// Checks that the recovered `entries` are the first written batches, each whole and in order. Returns
    /// the number of these batches.
    fn count(&self, entries: &[RecordInfo]) -> usize {
        let mut rest = entries;
        for (n, (range, records)) in self.batches.iter().enumerate() {
            if rest.is_empty() {
                return n;
            }
            for (k, record) in records.iter().enumerate() {
                let entry = rest.first().expect("a batch is kept or cut as a whole");
                assert_eq!((entry.group, entry.index), (record.group, record.index));
                assert_eq!((entry.term, entry.kind), (record.term, record.kind));
                assert!(range.contains(&entry.lsn), "batch {n} record {k}");
                rest = &rest[1..];
            }
        }
        assert!(rest.is_empty(), "records nobody wrote: {rest:?}");
        self.batches.len()
    }

    fn end(&self, batches: usize) -> Lsn {
        self.batches[..batches]
            .last()
            .map_or(Lsn::ZERO, |b| b.0.end)
    }
}

fn batch(n: u64, records: u64, len: usize) -> Vec<Record> {
    (0..records)
        .map(|k| record(k as u32 % 2, 10 * n + k, len))
        .collect()
}

/// Writes the batches `durable` and makes them durable. Then writes the batches `pending` in one write, and
/// makes the sync of this write hang, so that the test can crash the disk there.
fn interrupted(
    disk: &SimDisk,
    opened: &mut Opened,
    durable: Vec<Vec<Record>>,
    pending: Vec<Vec<Record>>,
) -> Written {
    let mut written = Written {
        batches: Vec::new(),
        durable: durable.len(),
    };
    for records in durable {
        let appended = append_sync(opened, records.clone());
        written.batches.push((appended.at..appended.end, records));
    }
    // The sync of the first pending batch hangs. The other batches arrive meanwhile, so that the log writes
    // them together.
    disk.hang_syncs_after(0);
    for (n, records) in pending.into_iter().enumerate() {
        let appended = append(opened, records.clone());
        written.batches.push((appended.at..appended.end, records));
        if n == 0 {
            wait_for_unsynced(disk);
        }
    }
    written
}

/// Waits until a sync hangs while written sectors wait to become durable. The function looks at the sectors,
/// because the keeper thread also syncs files, without writing a sector of the log.
fn wait_for_unsynced(disk: &SimDisk) {
    disk.wait_until_hanging();
    while disk.unsynced().is_empty() {
        disk.hang_syncs_after(1);
        disk.wait_until_hanging();
    }
}

/// Opens one crash image for every possible set of surviving unsynced sectors. Checks that each image has
/// the outcome that the table in docs/log-format.md gives.
fn every_subset(
    written: &Written,
    disk: &SimDisk,
    options: fn() -> Options,
) -> BTreeSet<&'static str> {
    let unsynced = disk.unsynced();
    assert!(
        (1..=11).contains(&unsynced.len()),
        "{} sectors",
        unsynced.len()
    );
    let mut seen = BTreeSet::new();
    for subset in 0..1u32 << unsynced.len() {
        let kept = |file: &str, sector: usize| {
            let at = unsynced.iter().position(|(f, s)| f == file && *s == sector);
            at.is_some_and(|at| subset >> at & 1 == 1)
        };
        let image = disk.crash(true, kept);
        let (mut again, entries) = open(&image, options());
        let whole = written.count(&entries);
        assert!(
            whole >= written.durable,
            "subset {subset:b}: an acked batch is gone"
        );
        assert_eq!(again.recovery.end, written.end(whole));
        seen.insert(match again.recovery.verdict.clone() {
            Verdict::Clean => {
                // The recovery may call the image clean only if all batches survive, or no part of the next
                // batch's header.
                let next = written.batches.get(whole);
                assert!(
                    next.is_none_or(|(range, _)| blank(&image, range.start)),
                    "{subset:b}"
                );
                "clean"
            }
            Verdict::Torn { at, to } => {
                assert_eq!(at, written.end(whole));
                assert!(to > at);
                "torn"
            }
            Verdict::MaybeAcked { from, .. } => {
                assert_eq!(from, written.end(whole));
                "maybe acked"
            }
            other => panic!("subset {subset:b}: {other}"),
        });
        // The test appends another batch over the bytes of a batch that the recovery cut off. The cut-off
        // batch must not come back at the next opening.
        let more = batch(77, 1, 40);
        append_sync(&mut again, more.clone());
        drop(again);
        let (_, entries) = open(&image.copy(), options());
        assert_eq!(
            entries.len(),
            written.batches[..whole]
                .iter()
                .map(|b| b.1.len())
                .sum::<usize>()
                + 1
        );
        assert_eq!(entries.last().unwrap().index, more[0].index);
    }
    seen
}

/// Returns whether the last written segment holds zeros or a marker at `at`, so that no batch is lost there.
fn blank(disk: &SimDisk, at: Lsn) -> bool {
    let report = verify(&disk.copy()).unwrap();
    let Some(last) = report.segments.last() else {
        return true;
    };
    let bytes = disk.content(&format!("{:020}.seg", last.segment));
    let from = 4096 + (at.get() - last.range.start.get()) as usize;
    let header = &bytes[from..from + 48];
    let marker = header.starts_with(b"TgB1") && header[32..40] == [0; 8];
    marker || header.iter().all(|&b| b == 0)
}

#[test]
fn every_subset_of_lost_sectors_in_a_segment() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let durable = (0..3).map(|n| batch(n, 2, 100)).collect();
    let written = interrupted(&disk, &mut opened, durable, vec![batch(3, 3, 1000)]);
    let _go_on = GoOn(disk.clone());
    let seen = every_subset(&written, &disk, options);
    assert_eq!(seen, ["clean", "maybe acked"].into());
}

#[test]
fn every_subset_of_lost_sectors_of_several_batches_in_one_write() {
    let disk = SimDisk::new();
    let mut now = Time::ZERO;
    let opened = Log::open_stepped(Arc::new(disk.clone()), options(), now, |_| {});
    let (mut opened, mut steps) = opened.unwrap();
    let mut written = Written {
        batches: Vec::new(),
        durable: 2,
    };
    for n in 0..6 {
        let records = if n == 0 {
            batch(0, 1, 100)
        } else {
            batch(n, 2, 500)
        };
        let appended = append(&mut opened, records.clone());
        written.batches.push((appended.at..appended.end, records));
        // The log syncs the first batch alone and the second batch alone; the others arrive during the sync
        // of the second.
        while n < 2 && steps.step(now) != Doing::Syncing {
            now = now.after(1_000);
        }
        if n == 0 {
            steps.sync(now);
        }
    }
    // The sync of batch 1 ends, and the sync of the other four runs.
    while steps.sync(now) != Doing::Syncing {
        now = now.after(1_000);
    }
    let seen = every_subset(&written, &disk, options);
    assert!(
        seen.contains("torn") && seen.contains("maybe acked"),
        "{seen:?}"
    );
}

#[test]
fn every_subset_of_lost_sectors_of_a_segments_first_write() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let durable = (0..3).map(|n| batch(n, 1, 3500)).collect();
    let mut written = interrupted(&disk, &mut opened, durable, vec![batch(3, 1, 2000)]);
    let _go_on = GoOn(disk.clone());
    // The sync that seals the previous segment hangs first; one sync later, the sync of the new
    // segment hangs.
    let sealing = written.batches.pop().unwrap();
    every_subset(&written, &disk, options);
    written.batches.push(sealing);
    disk.hang_syncs_after(1);
    wait_for_unsynced(&disk);
    every_subset(&written, &disk, options);
}

#[test]
fn every_subset_of_lost_sectors_where_a_file_was_used_before() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let mut n = 0;
    while opened.log.stats().recycled < 3 {
        append_sync(&mut opened, batch(n, 1, 3500));
        let durable = opened.log.durable();
        opened.log.release_before(durable);
        n += 1;
    }
    // The durable position now lies in the middle of a recycled segment.
    let start = opened.log.durable();
    append_sync(&mut opened, batch(n, 1, 3500));
    drop(opened);
    let image = disk.copy();
    let (mut opened, before) = open(&image, options());
    assert!(start > Lsn::ZERO && !before.is_empty());
    let mut written = interrupted(
        &image,
        &mut opened,
        vec![batch(n + 1, 1, 60)],
        vec![batch(n + 2, 2, 900)],
    );
    let _go_on = GoOn(image.clone());
    let kept: Vec<_> = before.iter().map(|e| (e.lsn, e.index)).collect();
    for (lsn, index) in kept.into_iter().rev() {
        let end = written.batches[0].0.start;
        let range = Lsn::new(lsn.get() - 48)..end;
        written
            .batches
            .insert(0, (range, vec![record(0, index, 3500)]));
        written.durable += 1;
    }
    every_subset(&written, &image, options);
}

/// Tests the recovery of a batch that the log wrote in place of a batch that an earlier recovery had cut off:
/// the remains of the earlier batch lie under it, with records at the same positions.
#[test]
fn every_subset_of_lost_sectors_where_a_batch_was_cut_off_before() {
    // If the crash loses the header of the cut-off batch, only the catalog shows that the log was opened
    // before, so only the catalog's epoch tells the remains from the new batch.
    for lost in [0, 1] {
        let disk = SimDisk::new();
        let (mut opened, _) = open(&disk, options());
        let durable = vec![batch(0, 1, 100)];
        let first = interrupted(&disk, &mut opened, durable, vec![batch(1, 2, 900)]);
        let _go_on = GoOn(disk.clone());
        let lost = disk.unsynced()[lost].1;
        let image = disk.crash(true, |_, sector| sector != lost);
        let (mut opened, entries) = open(&image, options());
        assert_eq!(first.count(&entries), 1, "batch 1 is cut off");
        let mut written = interrupted(&image, &mut opened, vec![], vec![batch(2, 2, 900)]);
        let _go_on = GoOn(image.clone());
        assert_eq!(written.batches[0].0, first.batches[1].0);
        let kept = (first.batches[0].0.clone(), batch(0, 1, 100));
        written.batches.insert(0, kept);
        written.durable = 1;
        every_subset(&written, &image, options);
    }
}

/// Returns a log of two full segments and a part of a third. Unless it is `closed`, no later header or marker
/// confirms that its last durable batch is durable.
fn small(closed: bool) -> (SimDisk, Written) {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let mut written = Written {
        batches: Vec::new(),
        durable: 0,
    };
    for n in 0..9 {
        let records = batch(n, 1 + n % 3, 700 + 100 * n as usize);
        let appended = append_sync(&mut opened, records.clone());
        written.batches.push((appended.at..appended.end, records));
        written.durable += 1;
    }
    let image = match closed {
        true => {
            opened.appender.close().unwrap();
            disk.copy()
        }
        false => disk.crash(true, |_, _| true),
    };
    (image, written)
}

#[test]
fn every_truncation_of_the_last_batches_is_noticed() {
    for closed in [false, true] {
        let (disk, written) = small(closed);
        let report = verify(&disk.copy()).unwrap();
        let last = report.segments.last().unwrap();
        assert!(report.segments.len() >= 2 && report.damage.is_none());
        let name = format!("{:020}.seg", last.segment);
        let end_offset = 4096 + (last.range.end.get() - last.range.start.get()) as usize;
        let (each, some) = (0..end_offset + 100, end_offset + 100..16 << 10);
        for len in each.chain(some.step_by(97)) {
            let image = disk.copy();
            image.cut(&name, len);
            match try_open(&image, options()) {
                Ok((opened, entries)) => {
                    let whole = written.count(&entries);
                    let end = written.end(whole);
                    if closed && len >= end_offset + 48 {
                        // The marker of the close survives the cut, and no record follows this marker.
                        assert_eq!(opened.recovery.verdict, Verdict::Clean);
                        assert_eq!(whole, written.batches.len());
                        continue;
                    }
                    assert!(matches!(
                        opened.recovery.verdict,
                        Verdict::MaybeAcked { from, .. } if from == end
                    ));
                    // Only the last batch may be missing: its header confirms that the batch before it is
                    // durable.
                    assert!(
                        whole + 1 >= written.batches.len(),
                        "cut at {len}: {whole} whole"
                    );
                }
                Err(OpenError::Damaged(damage)) => {
                    assert_eq!(damage.segments.last().unwrap().segment, last.segment);
                }
                Err(error) => panic!("cut at {len}: {error}"),
            }
        }
    }
}

#[test]
fn every_bit_of_a_closed_log_flipped_changes_nothing_or_is_told() {
    let (disk, written) = small(true);
    // The test removes the reserve file: it holds no content of the log, and only makes each image larger.
    disk.remove("reserve").unwrap();
    let sound = verify(&disk.copy()).unwrap();
    assert_eq!(
        (sound.verdict.clone(), &sound.damage),
        (Verdict::Clean, &None)
    );
    let records =
        |report: &tidegate_log::Report| -> u64 { report.segments.iter().map(|s| s.records).sum() };
    let all = records(&sound);
    let (mut told, mut cut, mut harmless) = (0, 0, 0);
    for name in disk.list().unwrap() {
        let bytes = disk.content(&name);
        // The test flips every bit near bytes other than zero, and every 67th bit in long runs of zeros.
        let bits = (0..bytes.len() * 8).filter(|bit| {
            let around = &bytes[(bit / 8).saturating_sub(8)..(bit / 8 + 8).min(bytes.len())];
            around.iter().any(|&b| b != 0) || bit % 67 == 0
        });
        for bit in bits {
            let image = disk.copy();
            image.flip(&name, bit);
            let report = verify(&image).unwrap();
            if report.damage.is_some() {
                told += 1;
            } else if records(&report) < all || report.verdict != Verdict::Clean {
                // The flipped bit can only make the recovery cut off records after the last marker.
                assert!(
                    matches!(report.verdict, Verdict::MaybeAcked { .. }),
                    "{name} {bit}: {}",
                    report.verdict
                );
                cut += 1;
            } else {
                assert_eq!(records(&report), all);
                harmless += 1;
            }
        }
    }
    assert!(
        told > 10_000 * 5 && cut > 0 && harmless > 0,
        "{told} {cut} {harmless}"
    );
    assert_eq!(written.batches.len(), 9);
}

#[test]
fn a_bit_flipped_anywhere_is_never_read_and_never_hinders_an_open_silently() {
    let (disk, written) = small(true);
    let report = verify(&disk.copy()).unwrap();
    for segment in &report.segments {
        let name = format!("{:020}.seg", segment.segment);
        let end = 4096 + (segment.range.end.get() - segment.range.start.get()) as usize;
        for bit in (0..end * 8).step_by(1237) {
            let image = disk.copy();
            image.flip(&name, bit);
            let Ok((opened, entries)) = try_open(&image, options()) else {
                continue;
            };
            written.count(&entries);
            let reader = opened.log.reader();
            let mut unreadable = 0;
            for entry in &entries {
                match reader.read(entry.lsn, Some(entry.len)) {
                    Ok(read) => {
                        assert_eq!(read, record(entry.group, entry.index, entry.len as usize));
                    }
                    Err(_) => unreadable += 1,
                }
            }
            assert!(unreadable <= 1);
            assert!(opened.recovery.verdict == Verdict::Clean);
        }
    }
}

#[test]
fn a_repair_keeps_what_can_be_read_and_lists_what_cannot() {
    let (disk, written) = small(true);
    let names: Vec<_> = disk.list().unwrap();
    let records: usize = written.batches.iter().map(|b| b.1.len()).sum();
    for name in names
        .iter()
        .filter(|n| n.ends_with(".seg") || *n == "catalog")
    {
        let len = disk.content(name).len();
        for bit in (0..len * 8).step_by(if len > 1000 { 4099 } else { 13 }) {
            let image = disk.copy();
            image.flip(name, bit);
            if verify(&image).unwrap().damage.is_none() {
                continue;
            }
            let aside = SimDisk::new();
            let image = image.copy();
            let repaired =
                repair(&image, &aside).unwrap_or_else(|e| panic!("{name} bit {bit}: {e}"));
            assert!(!repaired.damage.is_empty());
            let (mut opened, entries) = open(&image.copy(), options());
            let kept = entries.iter().filter(|e| e.kind != 255).count();
            if repaired.lost.is_empty() {
                assert_eq!(kept, records, "{name} bit {bit}");
            } else {
                assert!(
                    kept < records && kept + 4 >= records,
                    "{name} bit {bit}: {kept}"
                );
                assert_eq!(repaired.quarantined, std::slice::from_ref(name));
                assert_eq!(aside.content(name).len(), len);
            }
            for entry in entries.iter().filter(|e| e.kind != 255) {
                assert!(repaired.lost.iter().all(|lost| !lost.contains(&entry.lsn)));
                let read = opened.log.reader().read(entry.lsn, None).unwrap();
                assert_eq!(read, record(entry.group, entry.index, entry.len as usize));
            }
            append_sync(&mut opened, batch(99, 1, 10));
        }
    }
}

#[test]
fn a_file_that_is_gone_is_missed_and_can_be_given_up() {
    let (disk, written) = small(true);
    let names = disk.list().unwrap();
    let used = verify(&disk.copy()).unwrap().segments.len();
    for (n, name) in names.iter().filter(|n| n.ends_with(".seg")).enumerate() {
        let image = disk.copy();
        image.remove(name).unwrap();
        let Err(OpenError::Damaged(damage)) = try_open(&image, options()) else {
            panic!("{name} is not missed")
        };
        assert_eq!(damage.segments.len(), 1);
        let image = image.copy();
        let repaired = repair(&image, &SimDisk::new()).unwrap();
        assert_eq!(repaired.removed.len(), 1);
        assert_eq!(
            repaired.lost.is_empty(),
            n + 1 >= used,
            "a range is known where something follows"
        );
        let (mut opened, _) = open(&image.copy(), options());
        append_sync(&mut opened, batch(99, 1, 10));
    }
    let image = disk.copy();
    image.remove("catalog").unwrap();
    assert!(matches!(try_open(&image, options()), Err(OpenError::Damaged(d)) if d.catalog));
    let image = image.copy();
    let repaired = repair(&image, &SimDisk::new()).unwrap();
    assert!(repaired.lost.is_empty());
    let (_, entries) = open(&image.copy(), options());
    assert_eq!(written.count(&entries), 9);
}

#[test]
fn records_that_a_killed_process_left_unsynced_are_synced_before_they_count() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let written = interrupted(
        &disk,
        &mut opened,
        vec![batch(0, 1, 100)],
        vec![batch(1, 2, 900)],
    );
    let _go_on = GoOn(disk.clone());
    let image = disk.killed();
    assert!(!image.unsynced().is_empty());
    let (again, entries) = open(&image, options());
    assert_eq!(written.count(&entries), 2);
    assert_eq!(again.recovery.end, written.end(2));
    let (_, entries) = open(&image.crash(false, |_, _| false), options());
    assert_eq!(written.count(&entries), 2);
}

#[test]
fn records_that_a_failed_sync_lost_do_not_count_though_they_are_still_cached() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    append_sync(&mut opened, batch(0, 1, 100));
    disk.fail_syncs_after(0);
    let lost = append(&mut opened, batch(1, 2, 900));
    assert!(opened.log.wait_durable(lost.end, None).is_err());
    drop(opened);
    let (again, entries) = open(&disk.killed(), options());
    assert_eq!((entries.len(), again.recovery.end), (1, lost.at));
}

#[test]
fn whichever_write_or_sync_fails_what_was_acked_is_there_after_it() {
    for writes in [false, true] {
        for n in 0..40 {
            let disk = SimDisk::new();
            let (mut opened, _) = open(&disk, options());
            match writes {
                true => disk.fail_writes_after(n),
                false => disk.fail_syncs_after(n),
            }
            let mut acked = Vec::new();
            for index in 0..60 {
                let append = Append::new(vec![record(1, index, 2000)]);
                if !opened.appender.wait_for_room(&append, deadline()) {
                    panic!("no room in time");
                }
                let Ok(appended) = opened.appender.append(append) else {
                    break;
                };
                if opened.log.wait_durable(appended.end, deadline()).is_err() {
                    break;
                }
                acked.push(appended.records[0]);
            }
            assert!(opened.log.failure().is_some(), "writes {writes}, the {n}th");
            drop(opened);
            let (again, infos) = open(&disk.killed(), options());
            let there: Vec<_> = infos.iter().map(|i| i.lsn).collect();
            assert!(there.starts_with(&acked), "writes {writes}, the {n}th");
            for (lsn, index) in there.iter().zip(0..) {
                let read = again.log.reader().read(*lsn, None).unwrap();
                assert_eq!(read, record(1, index, 2000));
            }
        }
    }
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let (disk, _) = small(true);
    for name in ["catalog", "00000000000000000001.seg"] {
        let image = disk.copy();
        let mut bytes = disk.content(name);
        bytes[8] = 9;
        let end = if name == "catalog" { bytes.len() } else { 64 };
        let crc = crc32c::crc32c(&bytes[8..end]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        image.put(name, bytes);
        let Err(OpenError::Newer {
            name: told,
            version: 9,
        }) = try_open(&image, options())
        else {
            panic!("{name} is not refused")
        };
        assert_eq!(told, name);
    }
}

#[test]
fn bytes_made_to_look_like_batches_stay_payload() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    append_sync(&mut opened, batch(0, 1, 100));
    // The payload imitates batches: it repeats bytes of the log's first batch. The test then overwrites the
    // payload's end with zeros.
    let name = "00000000000000000000.seg";
    let bytes = disk.content(name)[4096..4096 + 232].repeat(9);
    let mut forged = record(1, 1, 0);
    forged.payload = bytes.into();
    let appended = append_sync(&mut opened, vec![forged]);
    drop(opened);
    let image = disk.copy();
    let mut content = image.content(name);
    let sector = (4096 + appended.at.get() as usize + 1500) / SECTOR;
    content[sector * SECTOR..].fill(0);
    image.put(name, content);
    let (again, entries) = open(&image, options());
    assert_eq!(entries.len(), 1);
    assert!(
        matches!(again.recovery.verdict, Verdict::MaybeAcked { .. }),
        "{:?}",
        again.recovery
    );
}

/// Tests the option `refuse_shortened`, for a caller that cannot fetch lost records elsewhere: the log does
/// not open, and the opening changes nothing.
#[test]
fn a_shortened_file_is_refused_if_the_caller_asks_for_that() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    append_sync(&mut opened, batch(0, 3, 100));
    opened.appender.close().unwrap();
    let name = "00000000000000000000.seg";
    let bytes = disk.content(name).len();
    for cut in [1, SECTOR, bytes - 4096] {
        let image = disk.copy();
        image.cut(name, bytes - cut);
        let before = image.content("catalog");
        match try_open(&image, options().refuse_shortened(true)) {
            Err(OpenError::Damaged(damage)) => {
                assert_eq!(damage.segments[0].what, DamageKind::Shortened, "{cut}");
            }
            _ => panic!("{cut}: opened"),
        }
        assert_eq!(image.content("catalog"), before, "{cut}");
        let (again, _) = open(&image.copy(), options());
        assert!(again.recovery.shortened, "{cut}");
    }
}
