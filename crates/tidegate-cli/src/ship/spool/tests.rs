//! The spool against a model, over every crash; the states it refuses; and its bound.

mod damage;
mod old;

use super::super::disk::image::{Any, Everything, Fate, Image, ImageFile, Nothing};
use super::*;

/// A limit so small that a handful of records fill several segments.
const LIMIT: u64 = 8 * 100;

type Ends = (Writer<Image>, Reader<ImageFile>, Acks<ImageFile>, Opened);

fn open(disk: &Image) -> Result<Ends, SpoolError> {
    super::open(disk.clone(), Some(7), 8, LIMIT)
}

fn record(number: u64) -> Vec<u8> {
    let mut record = format!("record {number} ").into_bytes();
    record.resize(record.len() + number as usize * 7 % 30, b'.');
    record
}

fn append(
    writer: &mut Writer<Image>,
    numbers: std::ops::RangeInclusive<u64>,
) -> Result<(), SpoolError> {
    let records: Vec<_> = numbers.map(record).collect();
    writer.append(records.iter().map(Vec::as_slice))
}

/// Returns every record that the reader has, after the spool has ended.
fn rest(reader: &mut Reader<ImageFile>) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    while let Read::Records(payloads) = reader.read().unwrap() {
        let first = payloads.next;
        all.extend((first..).zip(payloads.map(<[u8]>::to_vec)));
    }
    all
}

/// The progress of a script before its disk crashed: the numbers of durable records and of acked records.
#[derive(Default)]
struct Done {
    durable: u64,
    acked: u64,
}

/// Spools batches of different lengths, with acks behind them, and ends the spool.
fn run(disk: &Image) -> Done {
    let mut done = Done::default();
    let Ok((mut writer, _reader, acks, opened)) = open(disk) else {
        return done;
    };
    assert_eq!(opened.next, 1);
    for (at, count) in [1, 3, 2, 5, 1, 4, 4, 1].into_iter().enumerate() {
        if append(&mut writer, done.durable + 1..=done.durable + count).is_err() {
            return done;
        }
        done.durable += count;
        if at % 2 == 1 {
            done.acked = done.durable - 1;
            if acks.acked(done.acked) && writer.release().is_err() {
                return done;
            }
        }
    }
    done.acked = done.durable;
    acks.acked(done.acked);
    let _ = writer.end();
    done
}

/// Checks a disk after a crash: the spool has every durable record that was not acked, takes the next one,
/// and keeps them all.
fn check(disk: &Image, done: &Done) {
    let (mut writer, mut reader, _, opened) = open(disk).unwrap();
    assert!(opened.next > done.durable, "{opened:?}");
    assert!(opened.first <= done.acked + 1, "{opened:?}");
    reader
        .start_after(done.acked.max(opened.first - 1))
        .unwrap();
    append(&mut writer, opened.next..=opened.next).unwrap();
    drop(writer);
    let expected: Vec<_> = (done.acked + 1..=opened.next)
        .map(|number| (number, record(number)))
        .collect();
    assert_eq!(rest(&mut reader), expected);
}

#[test]
fn every_crash_leaves_what_was_durable_and_not_acked() {
    let whole = Image::default();
    let done = run(&whole);
    assert_eq!((done.durable, done.acked), (21, 21));
    let mut images = 0;
    for change in 0..whole.changes() {
        let disk = Image::default();
        disk.crash_at(change);
        let done = run(&disk);
        for torn in 0..=disk.crashed_write().unwrap_or(0) {
            check(&disk.kill(torn), &done);
            let fates: [Box<dyn Fate>; 4] = [
                Box::new(Nothing),
                Box::new(Everything),
                Box::new(Any(torn as u64)),
                Box::new(Any((change * 1000 + torn) as u64)),
            ];
            for mut fate in fates {
                check(&disk.crash(torn, &mut *fate), &done);
                images += 1;
            }
        }
    }
    assert!(images > 2000, "{images}");
}

/// Kills a sender, sends the records of its spool in the next one, and then cuts the power.
#[test]
fn records_read_are_durable() {
    let whole = Image::default();
    run(&whole);
    for change in 0..whole.changes() {
        let disk = Image::default();
        disk.crash_at(change);
        run(&disk);
        let disk = disk.kill(usize::MAX);
        let told = open(&disk).unwrap().3.next;
        for seed in 0..20 {
            let (.., opened) = open(&disk.crash(0, &mut Any(seed))).unwrap();
            assert_eq!(opened.next, told, "change {change} seed {seed}");
        }
    }
}

#[test]
fn an_acked_spool_keeps_its_numbers_and_nothing_else() {
    let disk = Image::default();
    run(&disk);
    assert_eq!(disk.names().unwrap(), [&*name(22), SESSION]);
    let (.., opened) = open(&disk).unwrap();
    let expected = Opened {
        session: 7,
        base: 0,
        first: 22,
        next: 22,
        cut_bytes: 0,
        is_doubtful: false,
    };
    assert_eq!(opened, expected);
}

#[test]
fn a_full_spool_waits_for_acks_and_stays_in_its_bound() {
    let disk = Image::default();
    let (mut writer, mut reader, acks, _) = open(&disk).unwrap();
    let writing = std::thread::spawn(move || {
        for number in 1..=200 {
            append(&mut writer, number..=number).unwrap();
            assert!(writer.shared.lock().bytes() <= LIMIT);
        }
        writer.end().unwrap();
    });
    let mut next = 1;
    while let Read::Records(payloads) = reader.read().unwrap() {
        assert_eq!(payloads.next, next);
        for payload in payloads {
            assert_eq!(payload, record(next));
            acks.acked(next);
            next += 1;
        }
    }
    assert_eq!(next, 201);
    writing.join().unwrap();
}

#[test]
fn large_records_pass() {
    let disk = Image::default();
    let (mut writer, mut reader, ..) = super::open(disk, None, 8, 1 << 30).unwrap();
    let large = vec![b'x'; 3 * BLOCK as usize];
    writer.append([&b"small"[..], &large, b"", &large]).unwrap();
    writer.end().unwrap();
    let records = rest(&mut reader).into_iter().map(|record| record.1.len());
    assert_eq!(
        records.collect::<Vec<_>>(),
        [5, large.len(), 0, large.len()]
    );
}

#[test]
fn a_receiver_that_does_not_fit_is_told() {
    let disk = Image::default();
    let (mut writer, mut reader, acks, _) = open(&disk).unwrap();
    for number in 1..=20 {
        append(&mut writer, number..=number).unwrap();
        acks.acked(number.saturating_sub(5));
        writer.release().unwrap();
    }
    assert!(matches!(
        reader.start_after(21),
        Err(SpoolError::Behind {
            received: 21,
            spooled: 20
        })
    ));
    assert!(matches!(
        reader.start_after(0),
        Err(SpoolError::Ahead { received: 0, .. })
    ));
    reader.start_after(17).unwrap();
    writer.end().unwrap();
    assert_eq!(rest(&mut reader).len(), 3);
}

#[test]
fn another_session_another_process_and_damage_are_refused() {
    let disk = Image::default();
    let (mut writer, reader, acks, _) = open(&disk).unwrap();
    for number in 1..=10 {
        append(&mut writer, number..=number).unwrap();
    }
    assert!(matches!(open(&disk), Err(SpoolError::Locked(_))));
    drop((writer, reader, acks));
    let other = super::open(disk.clone(), Some(9), 8, LIMIT);
    assert!(matches!(other, Err(SpoolError::OtherSession(_))));
    // Without a name the spool continues under its own session.
    assert_eq!(
        super::open(disk.clone(), None, 8, LIMIT).unwrap().3.session,
        7
    );
    let names = disk.names().unwrap();
    assert!(names.len() > 2, "{names:?}");
    let first = disk.read(&name(1)).unwrap();
    disk.overwrite(&name(1), &first[..first.len() - 1]);
    assert!(matches!(open(&disk), Err(SpoolError::Damaged { .. })));
    disk.overwrite(&name(1), &first);
    disk.unlink(names[1].to_str().unwrap());
    assert!(matches!(open(&disk), Err(SpoolError::Damaged { .. })));
    disk.overwrite(SESSION, b"something else");
    assert!(matches!(open(&disk), Err(SpoolError::Unreadable { .. })));
}

/// A receiver forgot the session: the records left move to another one, at every crash.
#[test]
fn another_session_is_begun_whole_or_not_at_all() {
    let begin = |disk: &Image| {
        let Ok((mut writer, ..)) = open(disk) else {
            return;
        };
        for (session, base) in [(100, 5), (200, 9)] {
            let _ = writer.restart(session, base);
        }
    };
    let whole = Image::default();
    drop(open(&whole).unwrap());
    let before = whole.changes();
    begin(&whole);
    let mut seen = std::collections::BTreeSet::new();
    for change in before..=whole.changes() {
        let disk = Image::default();
        drop(open(&disk).unwrap());
        disk.crash_at(change);
        begin(&disk);
        for torn in 0..=disk.crashed_write().unwrap_or(0) {
            for seed in 0..10 {
                let left = disk.crash(torn, &mut Any(seed));
                // The spool still belongs to the session it was created for.
                let opened = open(&left).unwrap().3;
                seen.insert((opened.session, opened.base));
            }
        }
    }
    assert_eq!(
        seen.into_iter().collect::<Vec<_>>(),
        [(7, 0), (100, 5), (200, 9)]
    );
}

#[test]
fn a_failed_sync_ends_it_for_good() {
    let disk = Image::default();
    let (mut writer, ..) = open(&disk).unwrap();
    disk.fail_syncs();
    assert!(matches!(
        append(&mut writer, 1..=1),
        Err(SpoolError::Io { .. })
    ));
    assert!(matches!(
        append(&mut writer, 1..=1),
        Err(SpoolError::Poisoned(_))
    ));
}
