//! Tests the spool together with the receiver's file: both sides crash at any change, and the sender starts
//! again. The file must get each record once and in order. The producer, which writes the records to the
//! sender, never repeats a record that the spool has reported as spooled.

use std::ffi::OsStr;

use super::super::super::append::{Append, Chunk};
use super::super::super::disk::sim::{Random, SimFolder};
use super::*;

/// The number of records that the producer writes.
const RECORDS: u64 = 30;

/// Spools the records that the producer still has, and ships the spool's records into the file. Returns `Err`
/// if either side crashes. `reported` is the last record that an earlier spool reported as spooled.
fn ship(spool_disk: &SimDisk, folder: &SimFolder, reported: &mut u64) -> Result<(), ()> {
    let (mut writer, mut reader, acks, opened) = open(spool_disk).map_err(drop)?;
    assert!(opened.next > *reported, "{opened:?} after {reported}");
    *reported = opened.next - 1;
    let (mut file, _) = Append::open(folder, OsStr::new("out")).map_err(drop)?;
    let position = file.begin(opened.session, 0, 1).map_err(drop)?.position;
    assert!(
        position < opened.next,
        "the file has records that the spool lost"
    );
    reader.start_after(position + opened.base).unwrap();
    acks.acked(position + opened.base);
    let mut ship_to = |last: u64| -> Result<(), ()> {
        while reader.next <= last {
            let Read::Records(records) = reader.read().map_err(drop)? else {
                panic!("the spool ended before record {last}");
            };
            for entry in records {
                let chunk = Chunk {
                    session: Some(opened.session),
                    first: entry.index - opened.base,
                    records: 1,
                    bytes: &entry.payload,
                };
                file.append([chunk]).map_err(drop)?;
                acks.acked(entry.index);
            }
        }
        Ok(())
    };
    for first in (opened.next..=RECORDS).step_by(3) {
        let last = RECORDS.min(first + 2);
        spool(&mut writer, first..=last).map_err(drop)?;
        *reported = last;
        // The test ships only after the records with even numbers, so that the receiver is behind for a
        // while.
        if last.is_multiple_of(2) {
            ship_to(last)?;
        }
    }
    ship_to(RECORDS)?;
    acks.finish().map_err(drop)
}

#[test]
fn each_record_arrives_once_and_in_order_after_any_crashes() {
    let whole: Vec<u8> = (1..=RECORDS).flat_map(record).collect();
    let (disk, folder) = (SimDisk::new(), SimFolder::default());
    ship(&disk, &folder, &mut 0).unwrap();
    assert!(folder.read("out").unwrap() == whole);
    let changes = (disk.changes(), folder.disk.changes());
    for seed in 0..60 {
        let mut random = Random(seed);
        let (mut disk, mut folder) = (SimDisk::new(), SimFolder::default());
        let mut reported = 0;
        let mut crashes = 0;
        loop {
            if crashes < 4 {
                disk.crash_at(random.next() % (changes.0 + 20));
                folder.disk.crash_at(random.next() % (changes.1 + 20));
            }
            if ship(&disk, &folder, &mut reported).is_ok() {
                break;
            }
            crashes += 1;
            assert!(crashes < 10, "seed {seed}: it does not end");
            let torn = |bytes: Option<usize>, random: &mut Random| {
                (random.next() % (bytes.unwrap_or(0) as u64 + 1)) as usize
            };
            let bytes = whole_sectors(torn(disk.crashed_write(), &mut random));
            disk = crash(&disk, bytes, Fate::Any(random.next()));
            let bytes = torn(folder.disk.crashed_write(), &mut random);
            folder = folder.crash(bytes, Fate::Any(random.next()));
        }
        assert!(folder.read("out").unwrap() == whole, "seed {seed}");
    }
}
