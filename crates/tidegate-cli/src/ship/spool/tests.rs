//! Tests of the spool: the tests crash it at every change of its disk, open states that it must refuse, and
//! check the bound on its bytes and the numbers of its records.

mod damage;
mod resume;

use std::path::Path;
use std::sync::Arc;

use tidegate_log::{SECTOR, SimDisk, Storage as _};

use super::super::disk::sim::{Fate, crash};
use super::*;

/// A limit so small that a handful of records fill several segments, so that the tests release segments.
const LIMIT: u64 = 128 << 10;

type Ends = (Writer, Reader, Acks, Opened);

fn open_for(disk: &SimDisk, session: Option<u128>) -> Result<Ends, SpoolError> {
    super::open(
        Arc::new(disk.clone()),
        Path::new("spool"),
        session,
        8,
        LIMIT,
    )
}

fn open(disk: &SimDisk) -> Result<Ends, SpoolError> {
    open_for(disk, Some(7))
}

/// Makes the record with this number. Every fifth record is ten times as long, so that batches differ in
/// length.
fn record(number: u64) -> Vec<u8> {
    let mut record = format!("record {number} ").into_bytes();
    let more = if number.is_multiple_of(5) { 7000 } else { 700 };
    record.resize(record.len() + number as usize * 7 % 30 + more, b'.');
    record
}

/// Appends the records with these numbers in one call.
fn append(writer: &mut Writer, numbers: std::ops::RangeInclusive<u64>) -> Result<(), SpoolError> {
    let (mut block, mut places) = (Vec::new(), Vec::new());
    for number in numbers {
        let start = block.len();
        block.extend(record(number));
        places.push(start..block.len());
    }
    writer.append(block, &places)
}

/// Appends the records with these numbers, and waits until they are durable.
fn spool(writer: &mut Writer, numbers: std::ops::RangeInclusive<u64>) -> Result<(), SpoolError> {
    append(writer, numbers)?;
    let end = writer.shared.lock().end;
    writer.shared.wait_durable(end)
}

/// Returns every record that the reader still returns, after the writer has ended the spool.
fn rest(reader: &mut Reader) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Read::Records(records) = reader.read().unwrap() {
        all.extend(records.into_iter().map(|r| (r.index, r.payload.to_vec())));
    }
    all
}

fn expected(numbers: impl Iterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
    numbers.map(|number| (number, record(number))).collect()
}

fn whole_sectors(bytes: usize) -> usize {
    bytes / SECTOR * SECTOR
}

/// The progress of a test's run before its disk crashed: the numbers of durable records and of acked records.
#[derive(Default)]
struct Done {
    durable: u64,
    acked: u64,
}

/// Spools batches of different lengths, acks some of their records, and closes the spool.
fn run(disk: &SimDisk) -> Done {
    let mut done = Done::default();
    let Ok((mut writer, _reader, acks, opened)) = open(disk) else {
        return done;
    };
    assert_eq!(opened.next, 1);
    for (at, count) in [1, 3, 2, 5, 1, 4, 4, 1].into_iter().enumerate() {
        if spool(&mut writer, done.durable + 1..=done.durable + count).is_err() {
            return done;
        }
        done.durable += count;
        if at % 2 == 1 {
            done.acked = done.durable - 1;
            acks.acked(done.acked);
        }
    }
    done.acked = done.durable;
    acks.acked(done.acked);
    let _ = acks.finish();
    done
}

/// Checks a disk after a crash: the spool still has every durable record that was not acked, accepts the next
/// record, and keeps all of them.
fn check(disk: &SimDisk, done: &Done) {
    let (mut writer, mut reader, _, opened) = open(disk).unwrap();
    assert!(opened.next > done.durable, "{opened:?}");
    assert!(opened.first <= done.acked + 1, "{opened:?}");
    reader.start_after(done.acked).unwrap();
    append(&mut writer, opened.next..=opened.next).unwrap();
    drop(writer);
    assert_eq!(rest(&mut reader), expected(done.acked + 1..=opened.next));
}

#[test]
fn every_crash_leaves_what_was_durable_and_not_acked() {
    let whole = SimDisk::new();
    let done = run(&whole);
    assert_eq!((done.durable, done.acked), (21, 21));
    let mut images = 0;
    for change in 0..whole.changes() {
        let disk = SimDisk::new();
        disk.crash_at(change);
        let done = run(&disk);
        let bytes = disk.crashed_write().unwrap_or(0);
        // The test tears the write at the boundaries of sectors, because a disk writes a sector as a whole.
        for torn in [0, SECTOR, 4096, whole_sectors(bytes / 2), bytes] {
            check(&crash(&disk, torn, Fate::Nothing), &done);
            check(&crash(&disk, torn, Fate::Everything), &done);
            check(
                &crash(&disk, torn, Fate::Any(change * 1000 + torn as u64)),
                &done,
            );
            images += 3;
        }
    }
    assert!(images > 500, "{images}");
}

/// Kills a sender, opens its spool in a second sender, which reports its records, and then cuts the power.
/// Tests that the reported records are still there.
#[test]
fn records_reported_are_durable() {
    let whole = SimDisk::new();
    run(&whole);
    for change in 0..whole.changes() {
        let disk = SimDisk::new();
        disk.crash_at(change);
        run(&disk);
        let disk = disk.killed();
        disk.tear(usize::MAX);
        let told = open(&disk).unwrap().3.next;
        for seed in 0..5 {
            let (.., opened) = open(&crash(&disk, 0, Fate::Any(seed))).unwrap();
            assert_eq!(opened.next, told, "change {change} seed {seed}");
        }
    }
}

#[test]
fn an_acked_spool_keeps_its_numbers_and_no_record() {
    let disk = SimDisk::new();
    run(&disk);
    let (writer, mut reader, _, opened) = open(&disk.killed()).unwrap();
    let expected = Opened {
        session: 7,
        base: 0,
        first: 22,
        next: 22,
        cut_bytes: 0,
        is_doubtful: false,
    };
    assert_eq!(opened, expected);
    drop(writer);
    reader.start_after(21).unwrap();
    assert_eq!(rest(&mut reader), []);
}

#[test]
fn a_full_spool_waits_for_acks_and_stays_in_its_bound() {
    let disk = SimDisk::new();
    let (mut writer, mut reader, acks, _) = open(&disk).unwrap();
    let files = disk.clone();
    let writing = std::thread::spawn(move || {
        for number in 1..=300 {
            append(&mut writer, number..=number).unwrap();
            let names = files.list().unwrap().into_iter();
            let segments = names.filter(|name| name.ends_with(".seg"));
            let bytes: usize = segments.map(|name| files.content(&name).len()).sum();
            assert!(bytes as u64 <= LIMIT, "{bytes}");
        }
    });
    let mut next = 1;
    while let Read::Records(records) = reader.read().unwrap() {
        for entry in records {
            assert_eq!((entry.index, &entry.payload[..]), (next, &record(next)[..]));
            acks.acked(next);
            next += 1;
        }
    }
    assert_eq!(next, 301);
    writing.join().unwrap();
}

/// Tests that the spool accepts a record larger than its limit, because no ack could make room for it.
#[test]
fn large_records_pass() {
    let disk = SimDisk::new();
    let (mut writer, mut reader, ..) = open(&disk).unwrap();
    let large = 3 * LIMIT as usize;
    let block: Vec<u8> = (0..2 * large + 5).map(|at| (at % 251) as u8).collect();
    let places = [0..5, 5..5 + large, 5..5, 5 + large..5 + 2 * large];
    let (copy, all) = (block.clone(), places.clone());
    let writing = std::thread::spawn(move || writer.append(copy, &all).unwrap());
    let mut got = Vec::new();
    while let Read::Records(records) = reader.read().unwrap() {
        for entry in records {
            got.push(entry.payload.to_vec());
            Acks(Arc::clone(&reader.shared)).acked(entry.index);
        }
    }
    writing.join().unwrap();
    assert!(got == places.map(|place| block[place].to_vec()));
}

#[test]
fn a_receiver_that_does_not_fit_is_told() {
    let disk = SimDisk::new();
    let (mut writer, mut reader, acks, _) = open(&disk).unwrap();
    for number in 1..=40 {
        spool(&mut writer, number..=number).unwrap();
        acks.acked(number.saturating_sub(5));
    }
    assert!(matches!(
        reader.start_after(41),
        Err(SpoolError::Behind {
            received: 41,
            spooled: 40
        })
    ));
    assert!(matches!(
        reader.start_after(0),
        Err(SpoolError::Ahead { received: 0, .. })
    ));
    reader.start_after(37).unwrap();
    drop(writer);
    assert_eq!(rest(&mut reader), expected(38..=40));
}

#[test]
fn another_session_and_another_process_are_refused() {
    let disk = SimDisk::new();
    let (mut writer, ..) = open(&disk).unwrap();
    spool(&mut writer, 1..=10).unwrap();
    assert!(matches!(open(&disk), Err(SpoolError::Locked(_))));
    drop(writer);
    let other = open_for(&disk.killed(), Some(9));
    assert!(matches!(other, Err(SpoolError::OtherSession(_))));
    // Without a name from the user, the spool continues under its own session.
    assert_eq!(open_for(&disk.killed(), None).unwrap().3.session, 7);
}

/// Tests that the remaining records move to another session as a whole at every crash, after a receiver
/// forgot their session.
#[test]
fn another_session_is_begun_whole_or_not_at_all() {
    let created = SimDisk::new();
    drop(open(&created).unwrap());
    let begin = |disk: &SimDisk| {
        let Ok((_writer, _, acks, _)) = open(disk) else {
            return;
        };
        for (session, base) in [(100, 5), (200, 9)] {
            let _ = acks.restart(session, base);
        }
    };
    let whole = created.copy();
    begin(&whole);
    let mut seen = std::collections::BTreeSet::new();
    for change in 0..=whole.changes() {
        let disk = created.copy();
        disk.crash_at(change);
        begin(&disk);
        let bytes = disk.crashed_write().unwrap_or(0);
        for (torn, seed) in [
            (0, 0),
            (SECTOR, 1),
            (whole_sectors(bytes / 2), 2),
            (bytes, 3),
        ] {
            let opened = open(&crash(&disk, torn, Fate::Any(seed))).unwrap().3;
            seen.insert((opened.session, opened.base));
        }
    }
    let seen: Vec<_> = seen.into_iter().collect();
    assert_eq!(seen, [(7, 0), (100, 5), (200, 9)]);
}

#[test]
fn a_failed_sync_ends_it_for_good() {
    let disk = SimDisk::new();
    let (mut writer, mut reader, ..) = open(&disk).unwrap();
    disk.fail_syncs_after(0);
    assert!(matches!(
        spool(&mut writer, 1..=1),
        Err(SpoolError::Failed { .. })
    ));
    assert!(matches!(
        spool(&mut writer, 1..=1),
        Err(SpoolError::Failed { .. })
    ));
    assert!(matches!(reader.read(), Err(SpoolError::Failed { .. })));
}

/// Tests that the spool uses the space that acks free. Without acks a full disk is an error, and the records
/// stay.
#[test]
fn a_full_disk_ends_it_and_a_freed_one_goes_on() {
    let disk = SimDisk::new();
    let (mut writer, _, acks, opened) = open(&disk).unwrap();
    let used: usize = disk
        .list()
        .unwrap()
        .iter()
        .map(|n| disk.content(n).len())
        .sum();
    disk.set_capacity(Some(used as u64 + (20 << 10)));
    let (mut durable, mut failed) = (0, false);
    for number in opened.next..=60 {
        if spool(&mut writer, number..=number).is_err() {
            failed = true;
            break;
        }
        durable = number;
    }
    assert!(failed && durable > 5, "{durable}");
    drop((writer, acks));
    let disk = disk.killed();
    let (mut writer, mut reader, _, opened) = open(&disk).unwrap();
    assert!(opened.next > durable, "{opened:?}");
    spool(&mut writer, opened.next..=opened.next).unwrap();
    drop(writer);
    assert_eq!(rest(&mut reader), expected(1..=opened.next));
}

/// Tests that the bytes on disk are those that docs/link-protocol.md describes.
#[test]
fn the_format_is_as_documented() {
    let disk = SimDisk::new();
    let (_writer, _, acks, _) = open(&disk).unwrap();
    acks.restart(0x0102, 3).unwrap();
    assert_eq!(disk.content(entry::SESSION), b"TGSPOOL3");
    let mut state = [0; 48];
    (state[0], state[16], state[17], state[32], state[40]) = (7, 2, 1, 3, 1);
    let log = disk.content("00000000000000000000.seg");
    assert!(log.windows(48).any(|bytes| bytes == state));
}
