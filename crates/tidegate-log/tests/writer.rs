//! Tests of the log's public interface on a simulated disk: positions, group commit by counts
//! of writes and syncs, limits, failures, space, release and recycling.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use common::{
    GoOn, append, append_sync, deadline, open, options, payload, record, try_open, wait_until,
};
use tidegate_log::{
    Append, AppendError, Log, Lsn, OpenError, ReadError, ReleaseError, SimDisk, Storage, Verdict,
    compaction_candidate,
};

#[test]
fn appended_records_are_read_back_before_and_after_a_restart() {
    let disk = SimDisk::new();
    let (mut opened, entries) = open(&disk, options());
    assert!(entries.is_empty());
    let mut places = Vec::new();
    for n in 0..100u64 {
        let lens = [0, 1, 7, 8, 9, 300, 2000];
        let records: Vec<_> = (0..=n % 3)
            .map(|k| record(k as u32, n, lens[(n + k) as usize % lens.len()]))
            .collect();
        let appended = append_sync(&mut opened, records.clone());
        places.extend(appended.records.into_iter().zip(records));
    }
    let check = |log: &Log| {
        for (lsn, record) in &places {
            let reader = log.reader();
            assert_eq!(reader.read(*lsn, None).unwrap(), *record);
            let len = Some(record.payload.len() as u32);
            assert_eq!(reader.read(*lsn, len).unwrap(), *record);
        }
    };
    check(&opened.log);
    assert!(opened.log.segments().len() > 3);
    opened.appender.close().unwrap();

    let (again, entries) = open(&disk.copy(), options());
    assert_eq!(again.recovery.verdict, Verdict::Clean);
    assert!(again.recovery.closed);
    assert_eq!(again.recovery.scanned, 1, "only the last segment is read");
    let told: Vec<_> = entries
        .iter()
        .map(|e| (e.lsn, e.group, e.index, e.len))
        .collect();
    let wrote = places.iter();
    let wrote = wrote.map(|(lsn, r)| (*lsn, r.group, r.index, r.payload.len() as u32));
    assert_eq!(told, wrote.collect::<Vec<_>>());
    check(&again.log);

    // A scan of the whole log must return all records again.
    let (mut at, mut scanned) = (again.recovery.first, Vec::new());
    loop {
        let chunk = again.log.reader().scan(at, 5000).unwrap();
        if chunk.next == at {
            break;
        }
        at = chunk.next;
        scanned.extend(chunk.records);
    }
    assert_eq!(scanned, places);
    assert_eq!(at, again.recovery.end);
}

#[test]
fn records_before_a_position_need_not_be_told() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let places: Vec<_> = (0..20)
        .map(|n| append_sync(&mut opened, vec![record(1, n, 2000)]).records[0])
        .collect();
    opened.appender.close().unwrap();
    for from in [0, 7, 19] {
        let (again, infos) = open(&disk.copy(), options().visit_from(places[from]));
        let told: Vec<_> = infos.iter().map(|i| i.lsn).collect();
        assert_eq!(told, places[from..]);
        assert_eq!(again.recovery.records, 20);
    }
}

#[test]
fn everything_that_gathers_during_a_sync_is_covered_by_the_next() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options().segment_bytes(1 << 20));
    append_sync(&mut opened, vec![record(1, 0, 100)]);
    let _go_on = GoOn(disk.clone());
    disk.hang_syncs_after(0);
    append(&mut opened, vec![record(1, 1, 100)]);
    disk.wait_until_hanging();
    let before = disk.counts();
    let mut last = Lsn::ZERO;
    for n in 2..200 {
        last = append(&mut opened, vec![record(1, n, 100)]).end;
    }
    assert!(opened.log.durable() < last);
    disk.go_on();
    opened.log.wait_durable(last, deadline()).unwrap();
    let after = disk.counts();
    // One of the two syncs is the hanging one, and the other one covers the remaining 198 records.
    assert_eq!(
        (after.writes - before.writes, after.syncs - before.syncs),
        (1, 2)
    );
}

#[test]
fn callbacks_come_in_order_after_the_sync_and_the_waker_once_a_sync() {
    let disk = SimDisk::new();
    let wakes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&wakes);
    let options = options().segment_bytes(1 << 20).waker(move || {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let (mut opened, _) = open(&disk, options);
    let _go_on = GoOn(disk.clone());
    disk.hang_syncs_after(0);
    let (send, receive) = sync_channel(100);
    let mut ends = Vec::new();
    for n in 0..50 {
        let send = send.clone();
        let batch = Append::new(vec![record(1, n, 10)]);
        let batch = batch.then(move |place| send.send(place.unwrap()).unwrap());
        let appended = opened.appender.append(batch).map_err(|(_, e)| e).unwrap();
        ends.push((appended.at, appended.end));
    }
    disk.wait_until_hanging();
    assert!(receive.try_recv().is_err(), "told before the sync");
    disk.go_on();
    for (at, _) in &ends {
        assert_eq!(
            receive.recv_timeout(std::time::Duration::from_secs(60)),
            Ok(*at)
        );
    }
    opened.log.wait_durable(ends[49].1, deadline()).unwrap();
    opened.appender.close().unwrap();
    // The log calls the waker after each sync. The keeper and the close may call it up to three times more.
    assert!(wakes.load(Ordering::SeqCst) <= disk.counts().syncs + 3);
}

#[test]
fn waiting_records_are_bounded_and_full_names_the_missing_bytes() {
    let disk = SimDisk::new();
    let options = options()
        .segment_bytes(1 << 20)
        .pending_bytes_max(10_000)
        .pending_batches_max(20);
    let (mut opened, _) = open(&disk, options);
    let _go_on = GoOn(disk.clone());
    disk.hang_syncs_after(0);
    let mut accepted = Vec::new();
    let error = loop {
        let n = accepted.len() as u64;
        match opened
            .appender
            .append(Append::new(vec![record(1, n, 1000)]))
        {
            Ok(appended) => accepted.push(appended),
            Err((_, error)) => break error,
        }
    };
    assert!(
        matches!(
            error,
            AppendError::Full {
                missing_bytes: 1..=1100
            }
        ),
        "{error:?}"
    );
    assert_eq!(accepted.len(), 9);
    let mut small = 0;
    while opened
        .appender
        .append(Append::new(vec![record(1, 0, 0)]))
        .is_ok()
    {
        small += 1;
    }
    assert_eq!(small, 3, "80 bytes each");
    disk.go_on();
    opened
        .log
        .wait_durable(accepted[8].end, deadline())
        .unwrap();
    append_sync(&mut opened, vec![record(1, 9, 20_000)]);
}

#[test]
fn a_batch_that_cannot_be_is_refused_and_changes_nothing() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let mut refused = |records| {
        let outcome = opened.appender.append(Append::new(records));
        outcome.map_err(|(_, error)| error).unwrap_err()
    };
    assert!(matches!(refused(vec![]), AppendError::Empty));
    let too_large = refused(vec![record(1, 0, 16 << 10)]);
    let AppendError::TooLarge { bytes, most } = too_large else {
        panic!("{too_large}")
    };
    assert!(bytes > most);
    let mut own = record(1, 0, 0);
    own.kind = 255;
    assert!(matches!(refused(vec![own]), AppendError::Kind));
    let largest = most as usize - 48 - 32;
    assert_eq!(
        append_sync(&mut opened, vec![record(1, 0, largest)]).at,
        Lsn::ZERO
    );
    append_sync(&mut opened, vec![record(1, 1, largest)]);
    let read = opened.log.reader().scan(Lsn::ZERO, 1).unwrap();
    assert_eq!(read.records[0].1.payload, payload(1, 0, largest));
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_and_everybody_is_told() {
    for fail_write in [false, true] {
        let disk = SimDisk::new();
        let (mut opened, _) = open(&disk, options());
        let good = append_sync(&mut opened, vec![record(1, 0, 100)]);
        match fail_write {
            true => disk.fail_writes_after(0),
            false => disk.fail_syncs_after(0),
        }
        let (send, receive) = sync_channel(1);
        let batch = Append::new(vec![record(1, 1, 100)]);
        let batch = batch.then(move |outcome| send.send(outcome).unwrap());
        let lost = opened.appender.append(batch).map_err(|(_, e)| e).unwrap();
        let told = receive
            .recv_timeout(std::time::Duration::from_secs(60))
            .unwrap();
        assert_eq!(told.unwrap_err().durable, good.end);
        assert!(opened.log.wait_durable(lost.end, None).is_err());
        assert_eq!(opened.log.durable(), good.end);
        let refused = opened.appender.append(Append::new(vec![record(1, 2, 1)]));
        assert!(matches!(refused, Err((_, AppendError::Failed(_)))));
        assert!(opened.appender.close().is_err());
    }
}

#[test]
fn a_full_disk_is_told_before_anything_is_accepted_and_passes() {
    let disk = SimDisk::new();
    disk.set_capacity(Some(180 << 10));
    let (mut opened, _) = open(&disk, options().recycled_max(0));
    let mut last = None;
    let error = loop {
        let n = opened.log.stats().records;
        let batch = Append::new(vec![record(1, n, 3000)]);
        assert!(opened.appender.wait_for_room(&batch, deadline()));
        match opened.appender.append(batch) {
            Ok(appended) => {
                opened.log.wait_durable(appended.end, deadline()).unwrap();
                last = Some(appended);
            }
            Err((_, error)) => break error,
        }
    };
    assert!(matches!(error, AppendError::DiskFull), "{error:?}");
    let last = last.unwrap();
    assert!(opened.log.failure().is_none());
    opened.log.reader().read(last.records[0], None).unwrap();
    // The disk has no space left. A release of a segment must free some nevertheless.
    disk.set_capacity(Some(0));
    let oldest = opened.log.segments()[0].segment;
    opened.log.release(oldest).unwrap();
    disk.set_capacity(Some(180 << 10));
    opened
        .log
        .release(opened.log.segments()[1].segment)
        .unwrap();
    let again = || Append::new(vec![record(1, 99, 3000)]);
    let until = deadline();
    // Each refused append asks the keeper for a segment, and the release has just freed space for one.
    let appended = loop {
        match opened.appender.append(again()) {
            Ok(appended) => break appended,
            Err((_, AppendError::DiskFull | AppendError::NotReady)) if until > now() => {}
            Err((_, error)) => panic!("{error}"),
        }
        std::thread::yield_now();
    };
    assert!(opened.log.wait_durable(appended.end, deadline()).unwrap());
}

fn now() -> Option<std::time::Instant> {
    Some(std::time::Instant::now())
}

#[test]
fn released_segments_are_used_again_and_never_read_as_what_they_were() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let first = append_sync(&mut opened, vec![record(1, 0, 3000)]);
    assert_eq!(opened.log.release(0), Err(ReleaseError::Open));
    assert_eq!(opened.log.release(77), Err(ReleaseError::Unknown));
    let mut last = first.clone();
    for n in 1..60 {
        last = append_sync(&mut opened, vec![record(1, n, 3000)]);
        // Repeated calls do not count a segment again that the log is already releasing.
        for _ in 0..3 {
            opened.log.release_before(last.at);
        }
    }
    let stats = opened.log.stats();
    assert!(stats.recycled >= 5, "{stats:?}");
    assert!(segment_files(&disk) <= 8);
    let read = opened.log.reader().read(first.records[0], None);
    assert!(matches!(read, Err(ReadError::Released)), "{read:?}");
    assert!(opened.log.first() > Lsn::ZERO);
    opened.appender.close().unwrap();
    let (again, entries) = open(&disk.copy(), options());
    assert_eq!(again.recovery.verdict, Verdict::Clean);
    assert_eq!(entries.last().unwrap().lsn, last.records[0]);
    assert_eq!(again.recovery.first, Lsn::new(entries[0].lsn.get() - 48));
}

#[test]
fn a_segment_that_is_left_ends_with_the_next_batch_and_can_be_released() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    assert!(!opened.appender.leave_segment(), "it has no batch");
    let first = append_sync(&mut opened, vec![record(1, 0, 1000)]);
    assert!(opened.appender.leave_segment());
    let released = opened.log.release(first.segment);
    assert_eq!(released, Err(ReleaseError::Open), "nothing follows it yet");
    let second = append_sync(&mut opened, vec![record(1, 1, 1000)]);
    assert_eq!((second.segment, second.at), (first.segment + 1, first.end));
    opened.appender.close().unwrap();
    let (again, entries) = open(&disk.copy(), options());
    assert_eq!(again.recovery.verdict, Verdict::Clean);
    assert_eq!(entries.len(), 2);
    again.log.release(first.segment).unwrap();
    wait_until(|| again.log.first() == second.at);
    again.log.reader().read(second.records[0], None).unwrap();
}

/// A log must keep a segment with records: after a crash, a log without records would give the same positions
/// again.
#[test]
fn the_newest_segment_with_durable_records_stays() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let mut last = append_sync(&mut opened, vec![record(1, 0, 2000)]);
    let _go_on = GoOn(disk.clone());
    let first = last.segment;
    // The log seals the first segment with a sync, and syncs the first batch of the second one.
    let mut n = 1;
    let begun = loop {
        disk.hang_syncs_after(1);
        last = append(&mut opened, vec![record(1, n, 2000)]);
        if last.segment != first {
            break last;
        }
        disk.go_on();
        opened.log.wait_durable(last.end, deadline()).unwrap();
        n += 1;
    };
    disk.wait_until_hanging();
    assert_eq!(opened.log.release(first), Err(ReleaseError::Open));
    assert_eq!(opened.log.release_before(begun.at), 0);
    let (after, entries) = open(&disk.crash(true, |_, _| false), options());
    assert_eq!((after.recovery.end, entries.len() as u64), (begun.at, n));
    disk.go_on();
    opened.log.wait_durable(begun.end, deadline()).unwrap();
    assert_eq!(opened.log.release(first), Ok(()));
}

#[test]
fn the_segment_with_least_that_is_needed_is_copied_forward() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let mut kept = Vec::new();
    for n in 0..20 {
        let appended = append_sync(&mut opened, vec![record(1, n, 3000)]);
        if n % 4 != 1 {
            kept.push((appended.segment, appended.records[0], n));
        }
    }
    let live = |segment| kept.iter().filter(|k| k.0 == segment).count() as u64 * 3032;
    let segments = opened.log.segments();
    let chosen = compaction_candidate(&segments, 0.6, live).unwrap().clone();
    assert!(
        segments
            .iter()
            .all(|s| !s.sealed || live(s.segment) >= live(chosen.segment))
    );
    assert_eq!(compaction_candidate(&segments, 0.01, live), None);
    let moved: Vec<_> = kept.iter().filter(|k| k.0 == chosen.segment).collect();
    let lsns: Vec<_> = moved.iter().map(|k| k.1).collect();
    let records = opened.log.reader().read_many(&lsns).unwrap();
    let appended = append_sync(&mut opened, records);
    opened.log.release(chosen.segment).unwrap();
    for (lsn, (_, _, n)) in appended.records.iter().zip(moved) {
        let read = opened.log.reader().read(*lsn, None).unwrap();
        assert_eq!(read.payload, payload(1, *n, 3000));
    }
}

#[test]
fn one_process_at_a_time_and_impossible_options_are_refused() {
    let disk = SimDisk::new();
    let (_opened, _) = open(&disk, options());
    assert!(matches!(try_open(&disk, options()), Err(OpenError::InUse)));
    let refused = try_open(&SimDisk::new(), options().segment_bytes(1000));
    assert!(matches!(refused, Err(OpenError::Options(_))));
}

#[test]
fn a_panic_in_a_callback_is_a_failure_of_the_log() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let batch = Append::new(vec![record(1, 0, 10)]).then(|_| panic!("in a callback"));
    let appended = opened.appender.append(batch).map_err(|(_, e)| e).unwrap();
    let beyond = Lsn::new(appended.end.get() + 1);
    assert!(opened.log.wait_durable(beyond, deadline()).is_err());
    let refused = opened.appender.append(Append::new(vec![record(1, 1, 10)]));
    assert!(matches!(refused, Err((_, AppendError::Failed(_)))));
    assert!(opened.appender.close().is_err());
}

#[test]
fn a_scrub_finds_what_went_bad_while_the_log_is_open() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let places: Vec<_> = (0..8)
        .map(|n| append_sync(&mut opened, vec![record(1, n, 3000)]))
        .collect();
    let reader = opened.log.reader();
    assert_eq!(reader.scrub(0).unwrap(), []);
    let file = disk.open("00000000000000000000.seg").unwrap();
    let offset = 4096 + places[1].records[0].get() + 500;
    file.write_at(&[std::io::IoSlice::new(b"bad")], offset)
        .unwrap();
    assert_eq!(
        reader.scrub(0).unwrap(),
        [places[1].records[0]..places[1].end]
    );
    assert!(matches!(
        reader.read(places[1].records[0], None),
        Err(ReadError::Damaged { .. })
    ));
    assert!(matches!(reader.scrub(99), Err(ReadError::Released)));
}

#[test]
fn a_check_goes_through_part_by_part_and_over_what_is_damaged() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    let places: Vec<_> = (0..12)
        .map(|n| append_sync(&mut opened, vec![record(1, n, 3000)]))
        .collect();
    let (reader, end) = (opened.log.reader(), opened.log.durable());
    let check = || {
        let (mut at, mut parts, mut lost) = (Lsn::ZERO, 0, Vec::new());
        while at < end {
            let checked = reader.check(at, 4000).unwrap();
            assert!(checked.next > at);
            (at, parts) = (checked.next, parts + 1);
            lost.extend(checked.lost);
        }
        (parts, lost)
    };
    let (parts, lost) = check();
    assert!(parts > opened.log.segments().len() && lost.is_empty());
    let file = disk.open("00000000000000000000.seg").unwrap();
    let offset = 4096 + places[1].records[0].get() + 500;
    file.write_at(&[std::io::IoSlice::new(b"bad")], offset)
        .unwrap();
    let (_, lost) = check();
    assert_eq!(lost, [places[1].records[0]..places[1].end]);
    // The check must also report a sector that the disk cannot read, and go on.
    let bad = 4096 + places[2].records[0].get() as usize + 100;
    disk.spoil("00000000000000000000.seg", bad..bad + 512);
    let (_, lost) = check();
    let is_lost = |n: usize| lost.iter().any(|l| l.contains(&places[n].records[0]));
    assert!(is_lost(1) && is_lost(2), "{lost:?}");
    assert!(!is_lost(0) && !is_lost(3), "{lost:?}");
    // The reader must still return the records before the bad sector.
    let scan = |n: usize| reader.scan(places[n].at, 1 << 20);
    assert!(matches!(scan(2), Err(ReadError::Io(_))));
    assert_eq!(scan(0).unwrap().records[0].0, places[0].records[0]);
    assert!(matches!(reader.check(end, 1), Err(ReadError::Released)));
}

#[test]
fn a_marker_is_written_once_the_log_is_idle_and_only_once() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options().marker_after(std::time::Duration::ZERO));
    let appended = append_sync(&mut opened, vec![record(1, 0, 10)]);
    wait_until(|| opened.log.stats().markers > 0);
    // The marker on the disk says that the last batch was durable. So the opening reports its loss as damage.
    let image = disk.crash(true, |_, _| false);
    image.flip("00000000000000000000.seg", (4096 + 48 + 10) * 8);
    let Err(OpenError::Damaged(damage)) = try_open(&image, options()) else {
        panic!("not noticed")
    };
    assert_eq!(damage.segments[0].lost, [appended.records[0]..appended.end]);
    let stats = opened.log.stats();
    append_sync(&mut opened, vec![record(1, 1, 10)]);
    opened.appender.close().unwrap();
    assert!(opened.log.stats().markers <= stats.markers + 2);
}

fn segment_files(disk: &SimDisk) -> usize {
    let names = disk.list().unwrap();
    names.iter().filter(|n| n.ends_with(".seg")).count()
}

#[test]
fn files_that_are_not_kept_go_in_the_end() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options().recycled_max(1));
    while opened.log.segments().len() < 6 {
        let n = opened.log.stats().records;
        append_sync(&mut opened, vec![record(1, n, 3000)]);
    }
    let sealed = opened.log.segments().into_iter().filter(|s| s.sealed);
    let sealed: Vec<u64> = sealed.map(|s| s.segment).collect();
    sealed.iter().for_each(|s| opened.log.release(*s).unwrap());
    // Three files remain: that of the open segment, that of the spare segment, and the one kept for reuse.
    wait_until(|| segment_files(&disk) == 3);
    opened.appender.close().unwrap();
}

/// Returns the total length of all files on a simulated disk.
fn used(disk: &SimDisk) -> u64 {
    let names = disk.list().unwrap();
    names.iter().map(|n| disk.content(n).len() as u64).sum()
}

#[test]
fn restarts_on_a_full_disk_keep_the_segment_ahead() {
    let mut disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options().recycled_max(0));
    for n in 0..10 {
        append_sync(&mut opened, vec![record(1, n, 3000)]);
    }
    wait_until(|| opened.appender.room_left() >= 16 << 10);
    let room = opened.appender.room_left();
    opened.appender.close().unwrap();
    for _ in 0..5 {
        disk = disk.killed();
        disk.set_capacity(Some(used(&disk)));
        let (opened, _) = open(&disk, options().recycled_max(0));
        assert!(!opened.log.disk_full());
        assert_eq!(opened.appender.room_left(), room);
        opened.appender.close().unwrap();
    }
}

#[test]
fn more_room_is_allocated_on_request_or_the_disk_counts_as_full() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options().recycled_max(0));
    append_sync(&mut opened, vec![record(1, 0, 300)]);
    let appender = &opened.appender;
    wait_until(|| appender.room_left() >= 16 << 10);
    assert_eq!(appender.room_behind([]), Some(appender.room_left()));
    assert_eq!(
        appender.room_behind([16 << 10]),
        None,
        "more than a segment"
    );
    // The second of these batches does not fit into the current segment, and leaves the rest of it unused.
    let left = appender.room_behind([6 << 10, 9 << 10]).unwrap();
    assert!(left < appender.room_left() - (15 << 10));
    disk.set_capacity(Some(used(&disk)));
    appender.ask_for_room();
    wait_until(|| opened.log.disk_full());
    disk.set_capacity(None);
    wait_until(|| {
        opened.log.ask_for_space();
        !opened.log.disk_full()
    });
    assert!(appender.room_behind([8 << 10, 8 << 10, 8 << 10]).is_some());
    let allocated = opened.log.stats().allocated;
    appender.ask_for_room();
    let log = opened.log.clone();
    opened.appender.close().unwrap();
    assert_eq!(
        log.stats().allocated,
        allocated,
        "one segment more is the most"
    );
}

#[test]
fn a_released_segment_ends_a_full_disk_though_one_more_was_asked_for() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    for n in 0..10 {
        append_sync(&mut opened, vec![record(1, n, 3000)]);
    }
    wait_until(|| opened.appender.room_left() >= 16 << 10);
    // The disk has space for a new catalog, but not for a segment.
    disk.set_capacity(Some(used(&disk) + (12 << 10)));
    let mut n = 10;
    while opened.appender.room_left() >= 9 << 10 {
        append_sync(&mut opened, vec![record(1, n, 3000)]);
        n += 1;
    }
    wait_until(|| opened.log.disk_full());
    opened.appender.ask_for_room();
    let oldest = opened.log.segments()[0].segment;
    opened.log.release(oldest).unwrap();
    wait_until(|| !opened.log.disk_full());
    assert!(opened.appender.room_left() >= 9 << 10);
    opened.appender.close().unwrap();
}

#[test]
fn a_file_that_a_kill_cut_short_does_not_hold_up_released_segments() {
    let disk = SimDisk::new();
    let (mut opened, _) = open(&disk, options());
    for n in 0..10 {
        append_sync(&mut opened, vec![record(1, n, 3000)]);
    }
    wait_until(|| opened.appender.room_left() >= 16 << 10);
    let next = opened.log.segments().last().unwrap().segment + 2;
    opened.appender.close().unwrap();
    // The test simulates a kill after the keeper had created the next segment's file, and before it had
    // allocated it.
    let disk = disk.killed();
    disk.put(&format!("{next:020}.seg"), Vec::new());
    disk.set_capacity(Some(used(&disk) + (12 << 10)));
    let (mut opened, _) = open(&disk, options());
    let mut n = 10;
    while opened.appender.room_left() >= 9 << 10 {
        append_sync(&mut opened, vec![record(1, n, 3000)]);
        n += 1;
    }
    wait_until(|| opened.log.disk_full());
    for segment in &opened.log.segments()[..2] {
        opened.log.release(segment.segment).unwrap();
    }
    wait_until(|| !opened.log.disk_full());
    assert!(opened.appender.room_left() >= 9 << 10);
    opened.appender.close().unwrap();
}

/// Returns the length of the first write after `before` appends to a new log, which a crash interrupts.
fn interrupted_write(before: u64) -> usize {
    let disk = SimDisk::new();
    let options = options().segment_bytes(4 << 20).first_bytes(4 << 20);
    let (mut opened, _) = open(&disk, options);
    for n in 0..before {
        append_sync(&mut opened, vec![record(1, n, 1000)]);
    }
    disk.crash_at(disk.changes());
    drop(append(&mut opened, vec![record(1, before, 1000)]));
    wait_until(|| opened.log.failure().is_some());
    disk.crashed_write().unwrap()
}

#[test]
fn a_short_write_to_a_new_file_brings_zeros_for_the_next_ones() {
    let page = 4096;
    assert_eq!(interrupted_write(0), 2 * page + (512 << 10));
    assert!(interrupted_write(1) <= 2 * page);
    assert!(interrupted_write(10) <= 2 * page);
}
