//! Parts that the tests of the log share: small logs on a simulated disk, and records with payloads that
//! depend on the group and the index.

// Clippy knows tests by their attribute; these helpers are tests too. Not every test file uses all of them.
#![allow(clippy::unwrap_used, dead_code)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_log::{
    Append, AppendError, Appended, Log, OpenError, Opened, Options, Record, RecordInfo, SimDisk,
};

/// Returns the options of the tests' logs: segments so small that a few batches fill one, a fixed seed for
/// the salts, and a marker only after an hour without an append.
pub(crate) fn options() -> Options {
    let options = Options::default().segment_bytes(16 << 10).seed(7);
    options.marker_after(Duration::from_secs(3600))
}

/// Waits until `done` returns true, and fails the test if that takes too long.
pub(crate) fn wait_until(mut done: impl FnMut() -> bool) {
    let deadline = deadline();
    while !done() {
        assert!(Some(Instant::now()) < deadline, "not in time");
        std::thread::yield_now();
    }
}

/// Returns a record with a payload of `len` bytes that depend on its group and index.
pub(crate) fn record(group: u32, index: u64, len: usize) -> Record {
    Record {
        group,
        kind: (index % 3) as u8,
        index,
        term: index / 100,
        payload: payload(group, index, len),
    }
}

/// Returns the payload of the record that [`record`] returns for the same arguments, so that a test can
/// check a read.
pub(crate) fn payload(group: u32, index: u64, len: usize) -> Bytes {
    let mut state = u64::from(group) << 32 ^ index ^ 0x9e37_79b9;
    let bytes = (0..len).map(|_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    });
    bytes.collect()
}

/// Opens the log on a simulated disk, and returns it with the entries of its records.
pub(crate) fn open(disk: &SimDisk, options: Options) -> (Opened, Vec<RecordInfo>) {
    try_open(disk, options).unwrap()
}

/// Opens the log like [`open`], or returns the error, for tests that expect one.
pub(crate) fn try_open(
    disk: &SimDisk,
    options: Options,
) -> Result<(Opened, Vec<RecordInfo>), OpenError> {
    let mut entries = Vec::new();
    let opened = Log::open(Arc::new(disk.clone()), options, |entry| entries.push(entry))?;
    Ok((opened, entries))
}

/// Returns a deadline so far away that only a bug reaches it.
pub(crate) fn deadline() -> Option<Instant> {
    Some(Instant::now() + Duration::from_secs(60))
}

/// Appends the records as one batch. If the log is full, waits until it has room.
pub(crate) fn append(opened: &mut Opened, records: Vec<Record>) -> Appended {
    let mut append = Append::new(records);
    loop {
        match opened.appender.append(append) {
            Ok(appended) => return appended,
            Err((back, AppendError::NotReady | AppendError::Full { .. })) => {
                append = back;
                assert!(
                    opened.appender.wait_for_room(&append, deadline()),
                    "no room in time"
                );
            }
            Err((_, error)) => panic!("{error}"),
        }
    }
}

/// Appends the records as one batch, and waits until the batch is durable.
pub(crate) fn append_sync(opened: &mut Opened, records: Vec<Record>) -> Appended {
    let appended = append(opened, records);
    assert!(opened.log.wait_durable(appended.end, deadline()).unwrap());
    appended
}

/// Lets the hanging syncs of a simulated disk end when the test ends, even after a panic. Otherwise closing
/// the log would wait for ever.
pub(crate) struct GoOn(pub(crate) SimDisk);

impl Drop for GoOn {
    fn drop(&mut self) {
        self.0.go_on();
    }
}
