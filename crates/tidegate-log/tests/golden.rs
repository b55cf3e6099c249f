//! The format does not change: logs written once and kept in `tests/golden` open as ever, and the same appends give the same
//! bytes.
//!
//! After a change of the format that is meant, and a new version number: `GOLDEN=write cargo test -p tidegate-log
//! --all-features --test golden` beside the old directories, which must still be read.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{append_sync, open, options, payload, record, wait_until};
use tidegate_log::{Disk, Log, Options, RecordInfo, SimDisk, Storage, Verdict, verify};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn quiet() -> Options {
    options().recycled_max(0)
}

/// Three segments, several groups, kinds and terms, payloads short and long, and one segment released.
fn written(closed: bool) -> SimDisk {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, quiet());
    for n in 0..24u64 {
        let records =
            (0..1 + n % 3).map(|k| record(k as u32, 100 * n + k, (n * 97 % 2800) as usize));
        append_sync(&mut opened, records.collect());
    }
    let sealed = opened.log.segments()[1].clone();
    assert!(sealed.sealed);
    opened.log.release(sealed.segment).unwrap();
    let name = format!("{:020}.seg", sealed.segment);
    wait_until(|| !disk.list().unwrap().contains(&name));
    if closed {
        opened.appender.close().unwrap();
        return disk.copy();
    }
    disk.crash(true, |_, _| true)
}

/// What belongs to the log for good: not spares, whose number may differ, nor what is only reserved.
fn files(disk: &SimDisk) -> Vec<(String, Vec<u8>)> {
    let names = disk.list().unwrap();
    let used = verify(&disk.copy()).unwrap().segments;
    let kept = names.into_iter().filter(|name| {
        name == "catalog"
            || used
                .iter()
                .any(|s| *name == format!("{:020}.seg", s.segment))
    });
    kept.map(|name| (name.clone(), disk.content(&name)))
        .collect()
}

fn check(name: &str, closed: bool) {
    let dir = golden(name);
    let disk = written(closed);
    if std::env::var_os("GOLDEN").is_some() {
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in files(&disk) {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    for (name, bytes) in files(&disk) {
        if name != "catalog" {
            let kept = fs::read(dir.join(&name)).unwrap();
            assert!(kept == bytes, "{name} differs from what was always written");
        }
    }
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    // Its spares are not kept with it: the catalog names them, and they are missed.
    let disk = Disk::open(copy.path()).unwrap();
    for spare in missing(&disk) {
        disk.create(&spare).unwrap().reserve(16 << 10).unwrap();
    }
    let mut entries: Vec<RecordInfo> = Vec::new();
    let opened = Log::open(Arc::new(disk), options(), |entry| entries.push(entry)).unwrap();
    assert_eq!(
        (opened.recovery.closed, &opened.recovery.verdict),
        (closed, &Verdict::Clean)
    );
    assert_eq!(opened.recovery.scanned, 1);
    assert_eq!(entries.len() as u64, opened.recovery.records);
    assert_eq!((entries.len(), entries[0].index), (39, 0));
    assert_eq!(
        (entries[38].group, entries[38].index, entries[38].term),
        (2, 2302, 23)
    );
    for entry in &entries {
        let read = opened
            .log
            .reader()
            .read(entry.lsn, Some(entry.len))
            .unwrap();
        assert_eq!(
            read.payload,
            payload(entry.group, entry.index, entry.len as usize)
        );
    }
}

fn missing(disk: &Disk) -> Vec<String> {
    let report = tidegate_log::inspect(disk).unwrap();
    let damage = report.damage.map_or(Vec::new(), |d| d.segments);
    damage
        .iter()
        .map(|d| format!("{:020}.seg", d.segment))
        .collect()
}

#[test]
fn a_closed_log_of_version_1() {
    check("v1-closed", true);
}

#[test]
fn a_log_of_version_1_that_was_not_closed() {
    check("v1-crashed", false);
}
