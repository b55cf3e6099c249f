//! Tests of the simulated disk itself, without a mount.

use super::inode::{PAGE, SECTOR};
use super::*;

fn sync(volume: &mut Volume, ino: u64) -> Result<(), Errno> {
    volume.begin_sync(ino)?;
    volume.end_sync(ino)
}

fn with_file(names: Names) -> (Volume, u64) {
    let mut volume = Volume::new(names);
    let file = volume.make(ROOT, OsStr::new("a"), false).unwrap().ino;
    (volume, file)
}

fn durable(names: Names) -> (Volume, u64) {
    let (mut volume, file) = with_file(names);
    volume.write(file, 0, &[1; 3 * PAGE]).unwrap();
    sync(&mut volume, file).unwrap();
    sync(&mut volume, ROOT).unwrap();
    (volume, file)
}

#[test]
fn synced_writes_stay_and_the_others_go() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.write(file, 5000, &[2; 10]).unwrap();
    volume.write(file, 5 * PAGE as u64, &[2; PAGE]).unwrap();
    assert_eq!(volume.read(file, 5000, 10).unwrap(), [2; 10]);
    let lost = volume.lose_power(Loss::All);
    assert_eq!((lost.pages, lost.torn, lost.kept), (2, 0, 0));
    assert_eq!(volume.facts(file).unwrap().bytes, 3 * PAGE as u64);
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap(), [1; 3 * PAGE]);
}

#[test]
fn a_shorter_file_is_as_long_as_before_unless_synced() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.resize(file, 100).unwrap();
    volume.resize(file, 200).unwrap();
    assert_eq!(volume.read(file, 0, 1000).unwrap(), {
        let mut all = vec![1; 100];
        all.resize(200, 0);
        all
    });
    volume.lose_power(Loss::All);
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap(), [1; 3 * PAGE]);
    volume.resize(file, 100).unwrap();
    sync(&mut volume, file).unwrap();
    volume.lose_power(Loss::All);
    assert_eq!(volume.read(file, 0, 1000).unwrap(), [1; 100]);
}

#[test]
fn a_sync_covers_what_was_written_before_it_began() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.write(file, 0, &[2; 10]).unwrap();
    volume.begin_sync(file).unwrap();
    volume.write(file, 5, &[3; 10]).unwrap();
    volume.write(file, 3 * PAGE as u64, &[3; 10]).unwrap();
    let name = OsStr::new("b");
    volume.end_sync(file).unwrap();
    volume.begin_sync(ROOT).unwrap();
    volume.make(ROOT, name, false).unwrap();
    volume.end_sync(ROOT).unwrap();
    volume.lose_power(Loss::All);
    assert_eq!(
        volume.read(file, 0, 11).unwrap(),
        [[2; 10].as_slice(), &[1]].concat()
    );
    assert_eq!(volume.facts(file).unwrap().bytes, 3 * PAGE as u64);
    assert!(volume.look_up(ROOT, name).is_err());
    // A loss of power before the end of a sync must undo the sync.
    volume.write(file, 0, &[4; 10]).unwrap();
    volume.begin_sync(file).unwrap();
    volume.cut_after(0);
    assert_eq!(volume.end_sync(file), Err(Errno::IO));
    volume.lose_power(Loss::All);
    assert_eq!(volume.read(file, 0, 10).unwrap(), [2; 10]);
}

#[test]
fn a_name_needs_the_sync_of_its_directory_or_of_anything() {
    let there = |volume: &mut Volume| volume.look_up(ROOT, OsStr::new("a")).is_ok();
    for (names, kept) in [(Names::OfDirectory, false), (Names::WithAnySync, true)] {
        let (mut volume, file) = with_file(names);
        sync(&mut volume, file).unwrap();
        volume.lose_power(Loss::All);
        assert_eq!(there(&mut volume), kept, "{names:?}");
    }
    let (mut volume, _) = durable(Names::OfDirectory);
    volume.remove(ROOT, OsStr::new("a"), false).unwrap();
    volume.lose_power(Loss::All);
    assert!(there(&mut volume));
}

#[test]
fn a_rename_happens_whole() {
    for seed in 1..50 {
        let (mut volume, _) = durable(Names::OfDirectory);
        let names = ["a", "b"].map(OsStr::new);
        volume.make(ROOT, names[1], false).unwrap();
        volume.rename((ROOT, names[0]), (ROOT, names[1])).unwrap();
        volume.lose_power(Loss::Some(seed));
        let there = names.map(|name| volume.look_up(ROOT, name).map(|f| f.bytes).ok());
        let old = Some(3 * PAGE as u64);
        let allowed = [[old, None], [old, Some(0)], [None, old]];
        assert!(allowed.contains(&there), "{seed}: {there:?}");
    }
}

#[test]
fn pages_are_lost_kept_and_torn_and_never_what_was_synced() {
    let mut all = Lost::default();
    for seed in 1..50 {
        let (mut volume, file) = durable(Names::OfDirectory);
        volume.write(file, PAGE as u64, &[2; 4 * PAGE]).unwrap();
        all += volume.lose_power(Loss::Some(seed));
        let content = volume.read(file, 0, 1 << 20).unwrap();
        assert!(content.len() >= 3 * PAGE);
        assert_eq!(content[..PAGE], [1; PAGE]);
        assert!(
            content[PAGE..]
                .chunks(SECTOR)
                .all(|s| s.iter().all(|b| *b == s[0]))
        );
    }
    assert!(all.pages > 0 && all.kept > 0 && all.torn > 0, "{all:?}");
}

#[test]
fn without_power_nothing_is_done() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.cut_after(1);
    volume.write(file, 0, &[2; 10]).unwrap();
    assert!(volume.is_off());
    assert_eq!(sync(&mut volume, file), Err(Errno::IO));
    assert_eq!(volume.read(file, 0, 1), Err(Errno::IO));
    volume.lose_power(Loss::All);
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap(), [1; 3 * PAGE]);
}

#[test]
fn a_disk_that_lies_loses_what_was_synced() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.ignore_syncs();
    volume.write(file, 0, &[2; 10]).unwrap();
    sync(&mut volume, file).unwrap();
    volume.lose_power(Loss::All);
    assert_eq!(volume.read(file, 0, 1 << 20).unwrap(), [1; 3 * PAGE]);
}

#[test]
fn unreachable_files_take_no_space() {
    let (mut volume, file) = durable(Names::OfDirectory);
    volume.opened(file);
    volume.remove(ROOT, OsStr::new("a"), false).unwrap();
    sync(&mut volume, ROOT).unwrap();
    assert!(volume.read(file, 0, 1).is_ok());
    volume.closed(file);
    sync(&mut volume, ROOT).unwrap();
    assert_eq!(volume.read(file, 0, 1), Err(Errno::STALE));
}
