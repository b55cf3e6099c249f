//! Tests how a new log reserves its first segments in steps: an empty log takes little space, a crash at any
//! change of the disk loses no durable record, and a full disk between two steps fails no accepted batch.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::{append_sync, options, record};
use tidegate::Time;
use tidegate_log::{
    Append, AppendError, Disk, Doing, Log, Lsn, Opened, Options, RecordInfo, SimDisk, Steps,
    batch_bytes,
};

/// Segments of eight times the first reservation, so that the log takes three steps.
fn growing() -> Options {
    options().segment_bytes(64 << 10).first_bytes(8 << 10)
}

/// A log without threads, which the test runs step by step, with the records that the log called durable.
struct World {
    opened: Opened,
    steps: Steps,
    now: Time,
    index: u64,
    durable: Vec<(Lsn, u64)>,
}

impl World {
    fn open(disk: &SimDisk) -> (Self, Vec<RecordInfo>) {
        let mut found = Vec::new();
        let storage = Arc::new(disk.clone());
        let opened = Log::open_stepped(storage, growing(), Time::ZERO, |r| found.push(r));
        let (opened, steps) = opened.unwrap();
        let world = Self {
            opened,
            steps,
            now: Time::ZERO,
            index: found.last().map_or(0, |r| r.index + 1),
            durable: Vec::new(),
        };
        (world, found)
    }

    /// Appends a record of `len` bytes and makes it durable. Runs the keeper only if the log needs it.
    fn append(&mut self, len: usize) -> Result<(), AppendError> {
        let mut append = Append::new(vec![record(1, self.index, len)]);
        let appended = loop {
            match self.opened.appender.append(append) {
                Ok(appended) => break appended,
                Err((back, AppendError::NotReady)) => {
                    append = back;
                    self.steps.keep();
                }
                Err((_, error)) => return Err(error),
            }
        };
        loop {
            self.now = self.now.after(1_000_000);
            match self.steps.step(self.now) {
                Doing::Syncing => _ = self.steps.sync(self.now),
                Doing::Failed => {
                    let failure = self.opened.log.failure().unwrap();
                    return Err(AppendError::Failed(failure));
                }
                _ => {}
            }
            if self.opened.log.durable() >= appended.end {
                break;
            }
        }
        self.durable.push((appended.records[0], self.index));
        self.index += 1;
        Ok(())
    }
}

/// Returns the space of a log's files without the keeper's reserve, which is no segment.
fn segments_space(disk: &SimDisk) -> u64 {
    disk.space() - disk.content("reserve").len() as u64
}

#[test]
fn an_empty_log_takes_two_first_reservations_and_a_grown_one_whole_segments() {
    let disk = SimDisk::new();
    let (mut world, _) = World::open(&disk);
    let least = 2 * (8 << 10);
    assert!((least..least + 1024).contains(&segments_space(&disk)));
    assert_eq!(world.opened.appender.reserved_bytes(), 8 << 10);
    let mut steps = vec![8 << 10];
    while world.opened.log.segments().len() < 3 {
        world.append(500).unwrap();
        world.steps.keep();
        let reserved = world.opened.appender.reserved_bytes();
        if steps.last() != Some(&reserved) {
            steps.push(reserved);
        }
        let room = world.opened.appender.room_left();
        assert!(room > reserved / 2, "the keeper reserves ahead: {room}");
    }
    assert_eq!(steps, [8 << 10, 16 << 10, 32 << 10, 64 << 10]);
    assert!(segments_space(&disk) >= 4 * (64 << 10));
    // The bytes of the files do not depend on the steps.
    let whole = SimDisk::new();
    let storage = Arc::new(whole.clone());
    let (opened, steps) =
        Log::open_stepped(storage, growing().first_bytes(1 << 20), Time::ZERO, |_| {}).unwrap();
    let mut other = World {
        opened,
        steps,
        now: Time::ZERO,
        index: 0,
        durable: Vec::new(),
    };
    for _ in 0..world.index {
        other.append(500).unwrap();
        other.steps.keep();
    }
    for name in ["00000000000000000000.seg", "00000000000000000001.seg"] {
        assert!(disk.content(name) == whole.content(name), "{name}");
    }
}

#[test]
fn a_large_first_batch_gets_its_room_at_once() {
    let disk = SimDisk::new();
    let (mut world, _) = World::open(&disk);
    world.append(50 << 10).unwrap();
    assert_eq!(world.opened.log.segments().len(), 1);
    world.append(50 << 10).unwrap();
    assert_eq!(world.opened.log.segments().len(), 2);
    assert!(matches!(
        world.append(70 << 10),
        Err(AppendError::TooLarge { .. })
    ));
}

#[test]
fn a_power_loss_at_any_change_between_the_steps_loses_nothing_durable() {
    let lens = [300, 2000, 7000, 40, 12_000];
    let write = |disk: &SimDisk| {
        let mut world = World::open(disk).0;
        let mut failed = false;
        while !failed && world.opened.log.segments().len() < 3 {
            let len = lens[world.index as usize % lens.len()];
            failed = world.append(len).is_err();
            // The keeper runs only now and then, so that the crash also meets appends that wait for it.
            if world.index.is_multiple_of(3) {
                world.steps.keep();
            }
        }
        world
    };
    let whole = SimDisk::new();
    let all = write(&whole).durable.len();
    let (mut crashes, mut spaces) = (0, std::collections::BTreeSet::new());
    let fresh = SimDisk::new();
    drop(World::open(&fresh));
    for change in fresh.changes()..whole.changes() {
        let disk = SimDisk::new();
        disk.crash_at(change);
        let world = write(&disk);
        assert!(world.durable.len() <= all);
        for kept in 0..3 {
            let image = disk.crash(kept > 0, |_, sector| kept == 2 || sector % 2 == kept);
            spaces.insert(segments_space(&image));
            // On every second image the disk has become full meanwhile.
            let full = change % 2 == 0;
            let again = image.copy();
            if full {
                again.set_capacity(Some(again.space() + 1024));
            }
            let (mut opened, found) = World::open(&again);
            let found: Vec<_> = found.iter().map(|r| (r.lsn, r.index)).collect();
            assert!(found.starts_with(&world.durable), "change {change}");
            assert!(found.len() <= world.durable.len() + 1);
            if full {
                while opened.append(900).is_ok() {}
                assert!(opened.opened.log.failure().is_none(), "change {change}");
                again.set_capacity(None);
                opened.opened.log.ask_for_space();
                opened.steps.keep();
            }
            for len in lens.iter().cycle().take(12) {
                opened.append(*len).unwrap();
                opened.steps.keep();
            }
            crashes += 1;
        }
    }
    assert!(crashes > 100 && spaces.len() > 5, "{crashes} {spaces:?}");
}

#[test]
fn on_a_disk_that_fills_between_two_steps_every_accepted_batch_becomes_durable() {
    let mut reached = std::collections::BTreeSet::new();
    for kib in (90..420).step_by(3) {
        let disk = SimDisk::new();
        disk.set_capacity(Some(kib << 10));
        let (mut world, _) = World::open(&disk);
        let error = loop {
            if let Err(error) = world.append(700) {
                break error;
            }
            world.steps.keep();
        };
        assert!(matches!(error, AppendError::DiskFull), "{kib}: {error}");
        assert!(world.opened.log.failure().is_none() && world.opened.log.disk_full());
        // The log has used the room of every reserved part before it refused.
        assert!(world.opened.appender.room_left() < 1024, "{kib}");
        reached.insert(world.opened.appender.reserved_bytes());
        // A release of the older segments frees their space, so the log goes on.
        let released = world.opened.log.release_before(world.opened.log.durable());
        world.steps.keep();
        if released == 0 {
            disk.set_capacity(None);
            world.opened.log.ask_for_space();
            world.steps.keep();
        }
        world.append(700).unwrap();
        let durable = world.durable.clone();
        drop(world);
        let (_, found) = World::open(&disk.crash(true, |_, _| false));
        let found: Vec<_> = found.iter().map(|r| (r.lsn, r.index)).collect();
        assert!(durable.ends_with(&found) && !found.is_empty(), "{kib}");
    }
    assert_eq!(
        reached,
        [8 << 10, 16 << 10, 32 << 10, 64 << 10].into(),
        "the disk fills at every step"
    );
}

/// Appends records until the disk has no space for another one, and runs the keeper after each.
fn fill(world: &mut World) {
    loop {
        match world.append(700) {
            Ok(()) => _ = world.steps.keep(),
            Err(AppendError::DiskFull) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_full_log_goes_on_with_the_space_of_released_segments_at_every_step() {
    let mut reached = std::collections::BTreeSet::new();
    for kib in (84..420).step_by(6) {
        let disk = SimDisk::new();
        disk.set_capacity(Some(kib << 10));
        let (mut world, _) = World::open(&disk);
        for round in 0..4 {
            fill(&mut world);
            assert!(world.opened.log.disk_full() && world.opened.log.is_short());
            let released = world.opened.log.release_before(world.opened.log.durable());
            assert!(released > 0, "{kib} {round}");
            world.steps.keep();
            assert!(!world.opened.log.disk_full(), "{kib} {round}");
            world.append(700).unwrap();
        }
        reached.insert(world.opened.appender.reserved_bytes());
        let durable = world.durable.clone();
        drop(world);
        let (mut world, found) = World::open(&disk.copy());
        let found: Vec<_> = found.iter().map(|r| (r.lsn, r.index)).collect();
        assert!(durable.ends_with(&found) && !found.is_empty(), "{kib}");
        world.append(700).unwrap();
    }
    assert_eq!(reached.last(), Some(&(64 << 10)), "{reached:?}");
    assert!(reached.len() > 2, "{reached:?}");
}

#[test]
fn a_step_without_space_takes_none_and_the_log_grows_once_there_is_space() {
    let disk = SimDisk::new();
    let (mut world, _) = World::open(&disk);
    let before = disk.space();
    // Too little for the step of the two segments, and enough for one of them.
    disk.set_capacity(Some(before + (12 << 10)));
    while !world.opened.log.is_short() {
        world.append(500).unwrap();
        world.steps.keep();
    }
    assert!(!world.opened.log.disk_full());
    assert_eq!(disk.space(), before, "the failed step gave its space back");
    let refused = world.append(9 << 10).unwrap_err();
    assert!(matches!(refused, AppendError::DiskFull), "{refused}");
    world.steps.keep();
    assert!(!world.opened.log.disk_full() && world.opened.log.is_short());
    world.append(500).unwrap();
    disk.set_capacity(None);
    world.opened.log.ask_for_space();
    world.steps.keep();
    assert!(!world.opened.log.is_short());
    world.append(9 << 10).unwrap();
}

#[test]
fn a_short_log_takes_no_more_than_one_segment_ahead() {
    let disk = SimDisk::new();
    let (mut world, _) = World::open(&disk);
    disk.set_capacity(Some(disk.space() + (12 << 10)));
    while !world.opened.log.is_short() {
        world.append(500).unwrap();
        world.steps.keep();
    }
    let room = world.opened.appender.room_left();
    world.opened.appender.ask_for_room();
    world.steps.keep();
    assert!(world.opened.appender.room_left() > room, "one segment more");
    assert!(!world.opened.log.disk_full());
    // The sealed segments of a short log count with the space that they take.
    fill(&mut world);
    let segments = world.opened.log.segments();
    assert!(segments.iter().filter(|s| s.sealed).count() >= 2);
    for segment in segments.iter().filter(|s| s.sealed) {
        assert_eq!(segment.file_bytes, 8 << 10, "{segment:?}");
    }
}

#[test]
fn a_short_log_keeps_its_segment_ahead_in_restarts_on_a_full_disk() {
    let mut disk = SimDisk::new();
    let (mut world, _) = World::open(&disk);
    disk.set_capacity(Some(disk.space() + (12 << 10)));
    while !world.opened.log.is_short() {
        world.append(500).unwrap();
        world.steps.keep();
    }
    let room = world.opened.appender.room_left();
    for _ in 0..3 {
        drop(world);
        disk = disk.killed();
        disk.set_capacity(Some(disk.space() + (12 << 10)));
        world = World::open(&disk).0;
        assert!(!world.opened.log.disk_full());
        assert!(world.opened.appender.room_left() >= room);
    }
    fill(&mut world);
    assert!(world.opened.log.failure().is_none());
}

#[test]
fn a_power_loss_at_any_change_of_a_short_log_loses_nothing_durable() {
    let capacity = 100 << 10;
    let write = |disk: &SimDisk| {
        disk.set_capacity(Some(capacity));
        let mut world = World::open(disk).0;
        for n in 0..50 {
            match world.append(700) {
                Ok(()) => {}
                Err(AppendError::DiskFull) => {
                    let durable = world.opened.log.durable();
                    world.opened.log.release_before(durable);
                    world.steps.keep();
                }
                Err(_) => break,
            }
            if n % 3 == 0 {
                world.steps.keep();
            }
        }
        world
    };
    let whole = SimDisk::new();
    assert!(write(&whole).opened.log.first() > Lsn::ZERO);
    let fresh = SimDisk::new();
    fresh.set_capacity(Some(capacity));
    drop(World::open(&fresh));
    let mut crashes = 0;
    for change in fresh.changes()..whole.changes() {
        let disk = SimDisk::new();
        disk.crash_at(change);
        let world = write(&disk);
        for kept in 0..3 {
            let image = disk.crash(kept > 0, |_, sector| kept == 2 || sector % 2 == kept);
            image.set_capacity(Some(capacity.max(image.space() + 1024)));
            let (mut opened, found) = World::open(&image);
            let found: Vec<_> = found.iter().map(|r| (r.lsn, r.index)).collect();
            let first = found.first().map_or(Lsn::ZERO, |&(lsn, _)| lsn);
            let known = world.durable.iter().filter(|&&(lsn, _)| lsn >= first);
            let known: Vec<_> = known.copied().collect();
            assert!(found.starts_with(&known), "change {change}");
            assert!(found.len() <= known.len() + 1, "change {change}");
            assert_eq!(
                known.is_empty(),
                world.durable.is_empty(),
                "change {change}"
            );
            fill(&mut opened);
            assert!(opened.opened.log.failure().is_none(), "change {change}");
            crashes += 1;
        }
    }
    assert!(crashes > 200, "{crashes}");
}

#[test]
fn a_release_does_not_forget_a_batch_that_waits_for_the_next_step() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(100 << 10));
    let (mut world, _) = World::open(&disk);
    while world.append(700).is_ok() {
        world.steps.keep();
    }
    assert!(world.opened.log.segments()[0].sealed, "the disk is full");
    disk.set_capacity(None);
    let large = record(1, world.index, 40 << 10);
    let bytes = batch_bytes(std::slice::from_ref(&large));
    let refused = world.opened.appender.append(Append::new(vec![large]));
    assert!(refused.is_err());
    // The keeper gets the request of the batch and the release together.
    world.opened.log.release(0).unwrap();
    world.steps.keep();
    assert!(world.opened.appender.room_behind([bytes]).is_some());
}

#[test]
fn an_empty_log_on_a_real_disk_takes_less_than_three_mebibytes() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        Log::open(
            Arc::new(Disk::open(dir.path()).unwrap()),
            Options::default(),
            |_| (),
        )
    };
    let taken = || -> u64 {
        let files = std::fs::read_dir(dir.path()).unwrap();
        let blocks = files.map(|f| f.unwrap().metadata().unwrap().blocks());
        blocks.sum::<u64>() * 512
    };
    let mut opened = open().unwrap();
    append_sync(&mut opened, vec![record(1, 0, 100)]);
    let empty = taken();
    assert!(empty < 3 << 20, "{empty} bytes");
    for n in 1..80 {
        append_sync(&mut opened, vec![record(1, n, 1 << 20)]);
    }
    assert!(taken() > 80 << 20);
    opened.appender.close().unwrap();
    drop(opened.log);
    let mut records = 0;
    Log::open(
        Arc::new(Disk::open(dir.path()).unwrap()),
        Options::default(),
        |_| records += 1,
    )
    .unwrap();
    assert_eq!(records, 80);
}
