//! Spools of the first format: they open with every record, become the new format at every crash, and are
//! refused if the damage is detectable.

use super::*;

/// Encodes `session` in the first format, with one slot written.
fn session(generation: u64, name: u128, session: u128, base: u64) -> Vec<u8> {
    let mut slot = b"TGSPOOL1".to_vec();
    slot.extend_from_slice(&generation.to_le_bytes());
    slot.extend_from_slice(&name.to_le_bytes());
    slot.extend_from_slice(&session.to_le_bytes());
    slot.extend_from_slice(&base.to_le_bytes());
    slot.extend_from_slice(&crc32c::crc32c(&slot).to_le_bytes());
    let mut bytes = vec![0; (generation % 2) as usize * slot.len()];
    bytes.extend_from_slice(&slot);
    bytes
}

/// Creates records 3 to 9 in two segments, with `tail` behind them.
fn spool(tail: &[u8]) -> Image {
    let disk = Image::default();
    disk.overwrite(SESSION, &session(1, 7, 100, 2));
    for (first, next) in [(3, 6), (6, 10)] {
        let mut bytes = Vec::new();
        (first..next).for_each(|number| codec::encode(number, &record(number), &mut bytes));
        if first == 6 {
            bytes.extend_from_slice(tail);
        }
        disk.overwrite(&name(first), &bytes);
    }
    disk
}

fn expect(disk: &Image, cut_bytes: u64) {
    let (mut writer, mut reader, _, opened) = open(disk).unwrap();
    let expected = Opened {
        session: 100,
        base: 2,
        first: 3,
        next: 10,
        cut_bytes,
        is_doubtful: false,
    };
    assert_eq!(opened, expected);
    append(&mut writer, 10..=10).unwrap();
    drop(writer);
    let expected: Vec<_> = (3..11).map(|number| (number, record(number))).collect();
    assert_eq!(rest(&mut reader), expected);
}

#[test]
fn a_spool_of_the_first_format_opens() {
    expect(&spool(b""), 0);
    // A crash tore the batch behind them.
    let mut torn = Vec::new();
    codec::encode(10, &record(10), &mut torn);
    for end in 1..torn.len() {
        expect(&spool(&torn[..end]), end as u64);
    }
    let disk = Image::default();
    disk.overwrite(SESSION, &session(0, 7, 7, 0));
    assert_eq!(open(&disk).unwrap().3.next, 1);
}

#[test]
fn it_becomes_the_new_format_at_every_crash() {
    let whole = spool(b"torn");
    drop(open(&whole).unwrap());
    assert!(whole.read(SESSION).unwrap().starts_with(b"TGSPOOL2"));
    for change in 0..whole.changes() {
        let disk = spool(b"torn");
        disk.crash_at(change);
        assert!(open(&disk).is_err());
        for torn in 0..=disk.crashed_write().unwrap_or(0) {
            for seed in 0..5 {
                let left = disk.crash(torn, &mut Any(seed));
                let opened = open(&left).unwrap().3;
                assert_eq!((opened.session, opened.base), (100, 2));
                assert_eq!((opened.first, opened.next), (3, 10));
            }
        }
    }
}

#[test]
fn its_damage_is_refused_where_a_whole_record_follows() {
    let good = spool(b"");
    let last = {
        let mut last = Vec::new();
        codec::encode(9, &record(9), &mut last);
        last.len()
    };
    for name in [name(3), name(6)] {
        let bytes = good.read(&name).unwrap();
        let end = bytes.len() - if name == super::name(6) { last } else { 0 };
        for at in 0..end {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let disk = good.kill(0);
                disk.overwrite(&name, &changed);
                let error = open(&disk).err().unwrap();
                let damaged = matches!(error, SpoolError::Damaged { .. });
                assert!(damaged && error.to_string().contains(&name), "{error}");
            }
        }
    }
    for gone in [name(3), name(6)] {
        let disk = good.kill(0);
        disk.unlink(&gone);
        // The remaining files look like a spool that never had more records, or that had them acked: the
        // first format cannot tell.
        assert!(open(&disk).is_ok());
    }
}

#[test]
fn a_spool_of_a_later_version_is_left_alone() {
    let disk = Image::default();
    drop(open(&disk).unwrap());
    let mut bytes = disk.read(SESSION).unwrap();
    for slot in [0, 4096] {
        bytes[slot + 7] = b'3';
    }
    disk.overwrite(SESSION, &bytes);
    let error = open(&disk).err().unwrap();
    assert!(
        matches!(error, SpoolError::Later { version: '3', .. }),
        "{error}"
    );
}
