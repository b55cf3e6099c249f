//! The parts of a spool that its writer, its reader and its acks share: the log, the state, and a signal that
//! wakes the threads that wait for one of them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_log::{Append, AppendError, Appender, Failure, Log, Lsn, Record, ReleaseError};

use super::SpoolError;
use super::entry::State;

/// The time for which an append tries again on a full disk before it fails. The system frees the space of
/// released segments a little later.
const FULL: Duration = Duration::from_secs(1);
/// The pause between two tries to append on a full disk.
const FULL_RETRY: Duration = Duration::from_millis(50);

/// The parts of a spool that its writer, its reader and its acks share, each on its own thread.
pub(super) struct Shared {
    pub(super) directory: PathBuf,
    pub(super) log: Log,
    pub(super) signal: Arc<Signal>,
    /// The greatest number of segments with records, by the user's limit: while the spool holds more, appends
    /// wait.
    pub(super) held_max: usize,
    pub(super) state: Mutex<Inner>,
}

/// The state of a spool, which its writer, its reader and its acks change under one lock.
pub(super) struct Inner {
    /// The appender of the log; `None` once the spool is closed.
    pub(super) appender: Option<Appender>,
    pub(super) state: State,
    /// The number of the last record that the writer has begun, whole or not.
    pub(super) begun: u64,
    /// The number that the spool's next record gets: one more than that of the last whole record.
    pub(super) next: u64,
    /// The number of the last record that the receiver has acked.
    pub(super) acked: u64,
    /// The position in the log behind the last appended batch, up to which the reader may read once it is
    /// durable.
    pub(super) end: Lsn,
    /// True once the writer appends no more records, so that the reader can end.
    pub(super) ended: bool,
    /// The segments of the log that hold records, oldest first.
    pub(super) held: VecDeque<Held>,
}

/// A segment of the spool's log that holds records, which acks may release.
pub(super) struct Held {
    pub(super) segment: u64,
    pub(super) base: Lsn,
    /// The number of the last record that the writer had begun when the segment began.
    pub(super) begun: u64,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends one batch of records with the spool's state in front, and returns the end of the log. Waits
    /// for an ack while the spool has no room for records, and for the log while the log has no room.
    pub(super) fn append(&self, records: &[Record]) -> Result<Lsn, SpoolError> {
        let mut full_since = None;
        loop {
            let seen = self.signal.seen();
            let refused = {
                let mut inner = self.lock();
                inner.release(&self.log);
                match records.is_empty() || inner.has_room(self.held_max) {
                    true => match inner.append(records) {
                        Ok(end) => return Ok(end),
                        Err(error) => Some(error),
                    },
                    false => None,
                }
            };
            match refused {
                None | Some(AppendError::Full { .. } | AppendError::NotReady) => {
                    self.check()?;
                    self.signal.wait(seen, None);
                }
                // The spool has just released segments, and their space may suffice, so the append tries
                // again for a while before it fails.
                Some(AppendError::DiskFull)
                    if full_since.get_or_insert_with(Instant::now).elapsed() < FULL =>
                {
                    self.signal.wait(seen, Some(FULL_RETRY));
                }
                Some(error) => return Err(SpoolError::append(&self.directory, error)),
            }
        }
    }

    /// Waits until all bytes of the log before `end` are durable.
    pub(super) fn wait_durable(&self, end: Lsn) -> Result<(), SpoolError> {
        let durable = self.log.wait_durable(end, None);
        durable.map(drop).map_err(|failure| self.failed(failure))
    }

    /// Returns an error if the spool's log has failed, so that a waiting thread ends.
    pub(super) fn check(&self) -> Result<(), SpoolError> {
        self.log
            .failure()
            .map_or(Ok(()), |failure| Err(self.failed(failure)))
    }

    pub(super) fn failed(&self, failure: Failure) -> SpoolError {
        let path = self.directory.clone();
        SpoolError::Failed { path, failure }
    }
}

impl Inner {
    /// Returns whether the spool accepts more records. It always accepts the rest of a record that the writer
    /// has begun, because no ack could make room for that rest.
    fn has_room(&self, held_max: usize) -> bool {
        self.held.len() <= held_max || self.acked + 1 >= self.next
    }

    fn append(&mut self, records: &[Record]) -> Result<Lsn, AppendError> {
        let mut batch = Vec::with_capacity(records.len() + 1);
        batch.push(self.state.entry(self.begun));
        batch.extend_from_slice(records);
        let Some(appender) = &mut self.appender else {
            return Ok(self.end);
        };
        let appended = appender.append(Append::new(batch));
        let appended = appended.map_err(|(_, error)| error)?;
        if self
            .held
            .back()
            .is_none_or(|held| held.segment != appended.segment)
        {
            self.held.push_back(Held {
                segment: appended.segment,
                base: appended.at,
                begun: self.begun,
            });
        }
        for record in records {
            self.begun = record.index;
            if record.term == 0 {
                self.next = record.index + 1;
            }
        }
        self.end = appended.end;
        Ok(appended.end)
    }

    /// Releases the segments of the log that hold only acked records, to free their space; never the newest
    /// segment.
    pub(super) fn release(&mut self, log: &Log) {
        while let (Some(oldest), Some(newer)) = (self.held.front(), self.held.get(1))
            && newer.begun <= self.acked
            && log.release(oldest.segment) != Err(ReleaseError::Open)
        {
            self.held.pop_front();
        }
    }
}

/// Counts the events for which threads wait on a spool: acks, ends, and events of the log.
#[derive(Default)]
pub(super) struct Signal {
    events: Mutex<u64>,
    changed: Condvar,
}

impl Signal {
    fn events(&self) -> MutexGuard<'_, u64> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an event, and wakes the threads that wait for an event.
    pub(super) fn raise(&self) {
        *self.events() += 1;
        self.changed.notify_all();
    }

    /// Returns the number of events so far. A thread reads this number before it reads the spool's state, so
    /// that its wait misses no later event.
    pub(super) fn seen(&self) -> u64 {
        *self.events()
    }

    /// Waits until more than `seen` events have come, at most for `patience`.
    pub(super) fn wait(&self, seen: u64, patience: Option<Duration>) {
        let events = self.events();
        let is_same = |events: &mut u64| *events == seen;
        // A poisoned lock ends the wait without harm, because the caller reads the state again.
        match patience {
            None => drop(self.changed.wait_while(events, is_same)),
            Some(patience) => drop(self.changed.wait_timeout_while(events, patience, is_same)),
        }
    }
}
