//! Reads entries of the log that are no longer in memory. A thread reads stretches of the log, so that a slow
//! disk does not block the event loop.
//!
//! The number of outstanding reads is bounded; a caller that finds no room asks again after the next
//! wake-up. This module returns only records with a right checksum, because the log's reader checks it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tidegate_log::{Chunk, Lsn, ReadError, Reader};

use super::Waker;
use super::chunks::{Chunks, Found, Wanted};
use super::worker::{By, Worker};

/// The greatest number of requests for stretches of the log that may wait for the reading thread, so that a
/// slow disk does not pile up work.
const ASKED_MAX: usize = 64;
/// The greatest number of positions of failed reads that this module remembers. The module remembers a
/// position until a caller asks for the record again.
const FAILED_MAX: usize = 1024;

/// The number of failed reads that the store logs one by one. Later it logs a failure only if the count of
/// failures is a power of two, because a dead disk fails thousands of reads.
const SAID_MAX: u64 = 16;

const fn is_said(failure: u64) -> bool {
    failure <= SAID_MAX || failure.is_power_of_two()
}

/// The answer of the store to a caller that asks for the bytes of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// The store has the bytes: from the message's place to the end of its entry.
    Ready(Bytes),
    /// The reading thread has not read the bytes yet: the caller asks again after the next wake-up.
    Pending,
    /// The bytes of the message are gone: the log has released or lost them.
    Gone,
    /// The bytes of the message are damaged: they differ from those that the store wrote, or the disk cannot
    /// read them.
    Damaged,
}

/// The answer to a caller that asks for the bytes of a message without a read of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// The bytes of the message if they are in memory. Otherwise the result of an earlier failed read, or
    /// [`Fetch::Pending`] if the store must first read the message.
    pub fetch: Fetch,
    /// True if the caller should call [`Store::read`](super::Store::read): to read the message, to read
    /// ahead, or to forget a failed read.
    pub ask: bool,
}

/// A job that the event loop gives to the reading thread.
#[derive(Clone, Copy, Debug)]
enum Asked {
    /// The reading thread reads a stretch of the log for the cache of messages.
    Payloads(Wanted),
    /// The reading thread reads a stretch of whole records of the log for a lagging follower.
    Records(Wanted),
}

type Outcome = Result<Chunk, ReadError>;
type Done = Arc<Mutex<Vec<(Asked, Outcome)>>>;

/// Reads stretches of the log on a thread, and keeps the requests, the results and a cache; see the
/// [module](self).
pub(super) struct Reading {
    chunks: Chunks,
    asked: BTreeMap<Lsn, usize>,
    failed: BTreeMap<Lsn, Fetch>,
    records: Option<Outcome>,
    /// The number of reads since the start of the node that the disk refused, or that found other bytes than
    /// the store wrote.
    failures: u64,
    done: Done,
    worker: Worker<Asked>,
}

impl Reading {
    pub(super) fn start(
        by: By,
        reader: Reader,
        bytes_max: usize,
        waker: Waker,
    ) -> std::io::Result<Self> {
        let done = Done::default();
        let told = Arc::clone(&done);
        let worker = Worker::start(by, "store-reader", ASKED_MAX, move |asked: Asked| {
            let (Asked::Payloads(wanted) | Asked::Records(wanted)) = asked;
            let outcome = reader.scan(wanted.from, wanted.bytes);
            let mut done = told.lock().unwrap_or_else(PoisonError::into_inner);
            done.push((asked, outcome));
            drop(done);
            waker();
        })?;
        Ok(Self {
            chunks: Chunks::new(bytes_max),
            asked: BTreeMap::new(),
            failed: BTreeMap::new(),
            records: None,
            failures: 0,
            done,
            worker,
        })
    }

    /// Does one waiting job of the reading thread on the calling thread, for simulations. Returns whether a
    /// job waited.
    #[cfg(feature = "sim")]
    pub(super) fn step(&mut self) -> bool {
        self.worker.step()
    }

    /// Takes the results of the reading thread, so that the next caller finds them: puts read bytes into the
    /// cache, and failed reads into their list.
    pub(super) fn poll(&mut self) {
        let done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        for (asked, outcome) in done {
            let wanted = match asked {
                Asked::Payloads(wanted) => wanted,
                Asked::Records(_) => {
                    self.records = Some(outcome);
                    continue;
                }
            };
            self.asked.remove(&wanted.from);
            match outcome {
                // The log has no durable record at this position, so the store never gave the position to a
                // caller as a place.
                Ok(chunk) if chunk.next == wanted.from => self.fail(wanted.from, Fetch::Gone),
                Ok(chunk) => self.chunks.insert(wanted, chunk),
                Err(ReadError::Released | ReadError::Lost) => self.fail(wanted.from, Fetch::Gone),
                Err(error) => {
                    self.failures += 1;
                    if is_said(self.failures) {
                        let n = self.failures;
                        tracing::error!(
                            "the server cannot read an entry of the log, and treats the entry as damaged: {error} (failure {n} since the start)"
                        );
                    }
                    self.fail(wanted.from, Fetch::Damaged);
                }
            }
        }
    }

    fn fail(&mut self, at: Lsn, why: Fetch) {
        // The list of failed reads is full, so this module forgets all of them. Each caller then asks again,
        // and the thread reads again.
        if self.failed.len() == FAILED_MAX {
            self.failed.clear();
        }
        self.failed.insert(at, why);
    }

    /// Returns the payload of the record at log position `lsn` if it is in memory, or the result of a failed
    /// read. Starts no read.
    pub(super) fn peek(&self, lsn: Lsn) -> Peeked {
        let (fetch, ask) = match self.chunks.find(lsn) {
            Found::Here(payload, ahead) => (Fetch::Ready(payload), ahead.is_some()),
            Found::NotThere => (Fetch::Gone, false),
            Found::Unread(_) => (
                self.failed.get(&lsn).cloned().unwrap_or(Fetch::Pending),
                true,
            ),
        };
        Peeked { fetch, ask }
    }

    /// Returns the payload of the record at `lsn` if it is in memory. Otherwise asks the thread to read the
    /// record. For a sequential reader, also asks the thread to read ahead.
    pub(super) fn read(&mut self, lsn: Lsn) -> Fetch {
        match self.chunks.find(lsn) {
            Found::Here(payload, ahead) => {
                // After a failed read at this position, the thread does not read ahead from it again, because
                // the log ends there.
                if let Some(ahead) = ahead.filter(|w| !self.failed.contains_key(&w.from)) {
                    self.ask(ahead);
                }
                Fetch::Ready(payload)
            }
            Found::NotThere => Fetch::Gone,
            Found::Unread(wanted) => match self.failed.remove(&lsn) {
                Some(failed) => failed,
                None => {
                    self.ask(wanted);
                    Fetch::Pending
                }
            },
        }
    }

    fn ask(&mut self, wanted: Wanted) {
        let before = self.asked.range(..=wanted.from).next_back();
        if before.is_some_and(|(&from, &bytes)| wanted.from < from.after(bytes as u64)) {
            return;
        }
        if self.try_ask(Asked::Payloads(wanted)) {
            self.asked.insert(wanted.from, wanted.bytes);
        }
    }

    /// Asks the thread for about `bytes` bytes of records from position `from` on, which
    /// [`take_records`](Self::take_records) returns later. Returns whether the thread's queue had room for
    /// the request. Only one such request may be outstanding.
    pub(super) fn ask_records(&self, from: Lsn, bytes: usize) -> bool {
        self.try_ask(Asked::Records(Wanted { from, bytes }))
    }

    /// Returns the stretch of records that [`ask_records`](Self::ask_records) asked for, once the thread has
    /// read it.
    pub(super) const fn take_records(&mut self) -> Option<Outcome> {
        self.records.take()
    }

    fn try_ask(&self, asked: Asked) -> bool {
        self.worker.ask(asked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_reads_nothing_any_more_does_not_fill_the_log_of_the_server() {
        let said: Vec<u64> = (1..=7000).filter(|n| is_said(*n)).collect();
        assert_eq!(
            said[..17],
            [&(1..=16).collect::<Vec<u64>>()[..], &[32]].concat()
        );
        assert_eq!(said.len(), 24);
    }
}
