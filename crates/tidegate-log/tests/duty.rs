//! Tests how the log thread and the appending thread pass the duty of writing the log to each other.

// Clippy knows tests by their attribute; the helpers here are tests too.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidegate_log::{Append, Appended, Committed, Disk, Duty, Log, Opened, Options, Record};

fn open(dir: &tempfile::TempDir, wakes: &Arc<AtomicUsize>) -> Opened {
    let wakes = Arc::clone(wakes);
    let options = Options::default()
        .segment_bytes(1 << 20)
        .waker(move || _ = wakes.fetch_add(1, Ordering::SeqCst));
    Log::open(Arc::new(Disk::open(dir.path()).unwrap()), options, |_| ()).unwrap()
}

fn append(opened: &mut Opened, index: u64) -> Appended {
    let record = Record {
        group: 1,
        index,
        payload: vec![index as u8; 100].into(),
        ..Record::default()
    };
    let appended = opened.appender.append(Append::new(vec![record]));
    appended.map_err(|(_, e)| e).unwrap()
}

/// Appends until the log thread offers the duty, takes it, and makes all batches durable.
fn take(opened: &mut Opened, index: &mut u64) -> Duty {
    opened.appender.want_duty(true);
    loop {
        *index += 1;
        let end = append(opened, *index).end;
        while opened.log.durable() < end {
            if let Some(mut duty) = opened.appender.take_duty() {
                while opened.log.durable() < end {
                    duty.commit();
                }
                return duty;
            }
            std::thread::yield_now();
        }
    }
}

/// Closes the log, so that the test can open it again.
fn close(opened: Opened) {
    drop(opened.log);
    opened.appender.close().unwrap();
}

#[test]
fn the_appender_writes_and_syncs_itself_without_a_wake_up() {
    let (dir, wakes) = (tempfile::tempdir().unwrap(), Arc::default());
    let mut opened = open(&dir, &wakes);
    let mut index = 0;
    let mut duty = take(&mut opened, &mut index);
    let before = (wakes.load(Ordering::SeqCst), opened.log.progress().syncs);
    for _ in 0..100 {
        index += 1;
        let end = append(&mut opened, index).end;
        assert!(opened.log.durable() < end);
        assert!(matches!(duty.commit(), Committed::Synced { .. }));
        assert_eq!(opened.log.durable(), end);
    }
    let Committed::Nothing { again: Some(_) } = duty.commit() else {
        panic!("the log is to note that it is idle");
    };
    let after = (wakes.load(Ordering::SeqCst), opened.log.progress().syncs);
    assert_eq!(after, (before.0, before.1 + 100));
    drop(duty);
    close(opened);
    assert_eq!(reopened(&dir), index);
}

#[test]
fn an_idle_log_notes_its_end_while_the_appender_has_the_duty() {
    let (dir, wakes) = (tempfile::tempdir().unwrap(), Arc::default());
    let mut opened = open(&dir, &wakes);
    let mut index = 0;
    let mut duty = take(&mut opened, &mut index);
    append(&mut opened, index + 1);
    let Committed::Synced { again: Some(after) } = duty.commit() else {
        panic!("a batch waited");
    };
    let markers = opened.log.stats().markers;
    let due = std::time::Instant::now() + after;
    while opened.log.stats().markers == markers {
        let early = std::time::Instant::now() < due;
        let committed = duty.commit();
        assert!(matches!(committed, Committed::Nothing { .. }));
        assert!(early || opened.log.stats().markers == markers + 1);
    }
    assert!(matches!(duty.commit(), Committed::Nothing { again: None }));
    drop(duty);
    close(opened);
}

#[test]
fn the_log_thread_goes_on_with_batches_that_wait_when_the_duty_is_dropped() {
    let (dir, wakes) = (tempfile::tempdir().unwrap(), Arc::default());
    let mut opened = open(&dir, &wakes);
    let mut index = 0;
    for _ in 0..20 {
        let duty = take(&mut opened, &mut index);
        index += 1;
        let end = append(&mut opened, index).end;
        drop(duty);
        assert!(opened.log.wait_durable(end, None).unwrap());
    }
    close(opened);
    assert_eq!(reopened(&dir), index);
}

#[test]
fn a_wish_that_is_withdrawn_leaves_the_duty_with_the_log_thread() {
    let (dir, wakes) = (tempfile::tempdir().unwrap(), Arc::default());
    let mut opened = open(&dir, &wakes);
    for index in 1..=100 {
        opened.appender.want_duty(true);
        append(&mut opened, index);
        opened.appender.want_duty(false);
        let end = append(&mut opened, index + 1000).end;
        assert!(opened.log.wait_durable(end, None).unwrap());
        assert!(opened.appender.take_duty().is_none());
    }
    opened.appender.want_duty(true);
    close(opened);
    assert_eq!(reopened(&dir), 200);
}

#[test]
fn another_thread_may_hold_the_duty_while_the_appender_appends() {
    let (dir, wakes) = (tempfile::tempdir().unwrap(), Arc::default());
    let mut opened = open(&dir, &wakes);
    let mut index = 0;
    let mut duty = take(&mut opened, &mut index);
    let syncing = std::thread::spawn(move || {
        while !matches!(duty.commit(), Committed::Synced { .. }) {
            std::thread::yield_now();
        }
    });
    let mut end = opened.log.durable();
    for _ in 0..100 {
        index += 1;
        end = append(&mut opened, index).end;
    }
    syncing.join().unwrap();
    assert!(opened.log.wait_durable(end, None).unwrap());
    close(opened);
    assert_eq!(reopened(&dir), index);
}

/// Opens the log again and returns the number of records that the opening finds.
fn reopened(dir: &tempfile::TempDir) -> u64 {
    let mut records = 0;
    let disk = Arc::new(Disk::open(dir.path()).unwrap());
    close(Log::open(disk, Options::default(), |_| records += 1).unwrap());
    records
}
