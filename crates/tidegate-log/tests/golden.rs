//! Tests that the log's format stays as it is: the logs kept in `tests/golden` open, and the same appends
//! produce the same bytes.
//!
//! `v1-closed` and `v1-crashed` are whole logs. `v1` holds a small log as annotated hexadecimal, so that a
//! difference names the field that changed. After a change of the format and of its version number,
//! `GOLDEN=write cargo test -p tidegate-log --all-features --test golden` adds the directories of that
//! version. It never changes an existing file.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;
#[path = "golden/hex.rs"]
mod hex;
#[path = "golden/segment.rs"]
mod segment;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{append_sync, open, options, payload, record, try_open, wait_until};
use tidegate_log::{
    Disk, FORMAT_VERSION, Log, Options, RecordInfo, SimDisk, Storage, Verdict, inspect, repair,
    verify,
};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
}

fn quiet() -> Options {
    options().recycled_max(0)
}

/// Returns a simulated disk with a log of three segments, with several groups, kinds and terms, short and
/// long payloads, and one released segment, so that the kept files cover the whole format.
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

/// Returns the files that hold the log's content, for the comparison with the kept ones. Leaves out spare
/// segments, because their number varies, and the reserve file, because it holds no content.
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
    let dir = golden(&format!("v{FORMAT_VERSION}-{name}"));
    let disk = written(closed);
    if hex::writes() && !dir.exists() {
        fs::create_dir_all(&dir).unwrap();
        for (name, bytes) in files(&disk) {
            fs::write(dir.join(name), bytes).unwrap();
        }
    }
    for (name, bytes) in files(&disk) {
        if name != "catalog" {
            let kept = fs::read(dir.join(&name)).unwrap();
            assert!(
                kept == bytes,
                "{name} differs from what this version always wrote"
            );
        }
    }
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(&dir).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
    }
    // The golden directory omits the spare segments. The test creates them, because the catalog lists them
    // and the opening would report them as missing.
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
    let report = inspect(disk).unwrap();
    let damage = report.damage.map_or(Vec::new(), |d| d.segments);
    damage
        .iter()
        .map(|d| format!("{:020}.seg", d.segment))
        .collect()
}

#[test]
fn a_closed_log_of_version_1() {
    check("closed", true);
}

#[test]
fn a_log_of_version_1_that_was_not_closed() {
    check("crashed", false);
}

/// Returns a simulated disk with a log of small segments: a sealed one with its index, a recycled one, and
/// the last one, in which the log was closed.
fn small() -> SimDisk {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, quiet());
    for n in 0..26u64 {
        let records =
            (0..1 + n % 3).map(|k| record(k as u32, 100 * n + k, (n * 97 % 500) as usize));
        append_sync(&mut opened, records.collect());
    }
    opened.appender.close().unwrap();
    disk
}

fn text(name: &str, bytes: &[u8]) -> String {
    let mut text = hex::Text::new("A log of version 1, written by small() in tests/golden.rs.");
    text.section(name);
    match name {
        "catalog" => segment::catalog(bytes, &mut text),
        _ => segment::segment(bytes, &mut text, &segment::plain),
    }
    text.0
}

fn kept(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(dir).unwrap().map(|file| {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        let section = hex::read(&text).remove(0);
        (section.name.clone(), section.bytes())
    });
    files.collect()
}

/// Writes the small log that the repository keeps in `tests/golden/v1` to a new simulated disk.
fn restored() -> SimDisk {
    let disk = SimDisk::new();
    for (name, bytes) in kept(&golden("v1")) {
        disk.put(&name, bytes);
    }
    disk
}

#[test]
fn every_field_of_a_small_log_is_where_it_was() {
    let dir = golden(&format!("v{FORMAT_VERSION}"));
    for (name, bytes) in files(&small()) {
        let path = dir.join(format!("{name}.hex"));
        // The number of spare segments in the catalog depends on the timing of threads, so the test does not
        // compare a catalog that exists already.
        if name != "catalog" || !path.exists() {
            hex::check(&path, &text(&name, &bytes));
        }
        if name != "catalog" {
            let text = fs::read_to_string(&path).unwrap();
            assert!(
                hex::read(&text)[0].bytes() == bytes,
                "{name} as text is not whole"
            );
        }
    }
}

#[test]
fn a_small_log_of_version_1_opens() {
    let disk = restored();
    // The golden directory omits the spare segments that the catalog lists, so the test creates them.
    let report = inspect(&disk.copy()).unwrap();
    for damage in report.damage.map_or(Vec::new(), |d| d.segments) {
        disk.put(&format!("{:020}.seg", damage.segment), vec![0; 16 << 10]);
    }
    let (opened, records) = open(&disk.copy(), quiet());
    assert!(opened.recovery.closed);
    assert_eq!(opened.recovery.verdict, Verdict::Clean);
    assert_eq!(records.len(), 51);
    for info in records {
        let read = opened.log.reader().read(info.lsn, Some(info.len)).unwrap();
        assert_eq!(read, record(info.group, info.index, info.len as usize));
    }
}

#[test]
fn a_file_of_a_later_version_is_refused_by_name_and_left_alone() {
    for (name, bytes) in kept(&golden("v1")) {
        let disk = restored();
        let end = if name == "catalog" { bytes.len() } else { 64 };
        let mut later = bytes;
        later[8] = 2;
        let crc = crc32c::crc32c(&later[8..end]);
        later[4..8].copy_from_slice(&crc.to_le_bytes());
        disk.put(&name, later.clone());
        let says = format!(
            "{name} has format 2, this version reads up to 1: use the version that wrote it, or a later one"
        );
        let refused = |how: &dyn Fn(&SimDisk) -> Option<String>| {
            // Each check runs on a copy of the disk, because the log holds the lock of a disk until the disk
            // is dropped.
            let disk = disk.copy();
            assert_eq!(how(&disk), Some(says.clone()));
            assert!(disk.content(&name) == later, "{name} was changed");
        };
        refused(&|disk| Some(try_open(disk, quiet()).err()?.to_string()));
        refused(&|disk| Some(inspect(disk).err()?.to_string()));
        refused(&|disk| Some(verify(disk).err()?.to_string()));
        refused(&|disk| Some(repair(disk, &SimDisk::new()).err()?.to_string()));
    }
}
