//! Tests that damage every file of a spool in every way, and check that the reader gets every durable record
//! or that an error names the file. Further tests open spools of other versions.

use super::super::entry::SESSION;
use super::*;

/// Returns the disk of a closed spool with 20 records, of which the receiver has acked 6.
fn at_rest() -> SimDisk {
    let disk = SimDisk::new();
    let (mut writer, _reader, acks, _) = open(&disk).unwrap();
    for number in 1..=20 {
        spool(&mut writer, number..=number).unwrap();
    }
    acks.acked(6);
    acks.finish().unwrap();
    drop((writer, acks, _reader));
    disk.copy()
}

fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap().into_iter();
    names
        .map(|name| (name.clone(), disk.content(&name)))
        .collect()
}

/// Opens and reads the spool. Returns the first error; without an error, checks that all records are there.
fn refusal(disk: &SimDisk) -> Option<String> {
    let (writer, mut reader, _, opened) = match open(disk) {
        Ok(ends) => ends,
        Err(error) => return Some(error.to_string()),
    };
    drop(writer);
    // If the last batch and its marker are both damaged, the damage looks like a torn write. The opening then
    // reports that records may be missing.
    assert!(opened.next == 21 || opened.is_doubtful, "{opened:?}");
    reader.start_after(6.max(opened.first - 1)).unwrap();
    let mut next = 7;
    loop {
        match reader.read() {
            Ok(Read::Ended) => break,
            Err(error) => return Some(error.to_string()),
            Ok(Read::Records(records)) => {
                for entry in records {
                    assert_eq!((entry.index, &entry.payload[..]), (next, &record(next)[..]));
                    next += 1;
                }
            }
        }
    }
    assert_eq!(next, opened.next);
    None
}

#[test]
fn damage_to_a_durable_record_is_refused() {
    let disk = at_rest();
    assert_eq!(refusal(&disk.copy()), None);
    let (mut opened, mut refused) = (0, 0);
    for (name, bytes) in files(&disk) {
        let mut try_with = |change: &dyn Fn(&SimDisk), what: String| {
            let copy = disk.copy();
            change(&copy);
            let before = copy.content(&name);
            match refusal(&copy) {
                None => opened += 1,
                Some(said) => {
                    refused += 1;
                    let is_named = said.contains(&name) || said.contains("no readable record");
                    assert!(is_named, "{what} of {name}: {said}");
                    assert!(
                        copy.content(&name) == before || name == "catalog",
                        "{what} of {name}"
                    );
                }
            }
        };
        try_with(&|disk| disk.unlink(&name), "removal".into());
        for at in (0..bytes.len()).filter(|at| at % 97 == 0 || *at < 24) {
            try_with(&|disk| disk.cut(&name, at), format!("cut at {at}"));
            let bit = 8 * at + at % 8;
            try_with(&|disk| disk.flip(&name, bit), format!("flip of bit {bit}"));
        }
    }
    assert!(opened > 100 && refused > 100, "{opened} {refused}");
}

#[test]
fn spools_of_other_versions_are_left_alone() {
    for (session, said) in [
        (
            &b"TGSPOOL1 and its slots"[..],
            "only that version can empty",
        ),
        (b"TGSPOOL2 and its slots", "only that version can empty"),
        (b"TGSPOOL4", "later version of tidegate (format 4)"),
        (b"something else", "missing or damaged"),
    ] {
        let disk = SimDisk::new();
        disk.put(SESSION, session.to_vec());
        let error = open(&disk).err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
        assert_eq!(files(&disk), [(SESSION.to_owned(), session.to_vec())]);
    }
    let disk = SimDisk::new();
    disk.put("00000000000000000001.spool", vec![1; 20]);
    assert!(matches!(open(&disk), Err(SpoolError::Old(_))));
    assert_eq!(disk.list().unwrap().len(), 1);
}
