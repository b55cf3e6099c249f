//! The one thread that writes received records, by the engine's batch actor. While the thread writes and
//! syncs one batch, records of all sessions gather into the next batch, so that they share its sync.
//!
//! At the first failure the thread ends: it writes and acks nothing more, and passes the error to the
//! program.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, Op, Reply, StopError};
use tidegate::controller::Bounds;
use tidegate_link::{Done, Seq};
use tokio::sync::oneshot;

use super::super::append::{Append, BeginError, Chunk, Progress};
use super::super::disk::{Disk as _, Folder, Holder};
use crate::face;

/// The greatest number of pieces of work in the thread's queue, to bound the memory. Each piece holds at most
/// the bytes of one read from a connection.
const CAPACITY: usize = 4096;
/// The greatest number of bytes in the thread's queue, of all sessions together. It exceeds the window of one
/// sender, so that a single sender on a slow disk waits for acks and never for room in the queue.
const CAPACITY_BYTES: u64 = 64 << 20;
/// The time for which no file may have the receiver's name before the receiver creates a new file. A rotation
/// that renames the file creates the next one within this time, with the rights that the user chose.
const MISSING: Duration = Duration::from_secs(2);
/// The greatest number of bytes of records in one batch of the thread, so that acks do not wait too long.
const BATCH_BYTES: u64 = 8 << 20;

/// The destination of the received records, which the user chose.
pub(super) enum Output {
    /// The end of a file.
    File(Box<Target>),
    /// Standard output.
    Stdout(File),
}

impl Output {
    /// Opens standard output without its line buffer, because the thread writes whole batches.
    pub(super) fn stdout() -> anyhow::Result<Self> {
        let stdout = crate::output::Output::open()?;
        Ok(Self::Stdout(stdout.into_file()))
    }

    fn write(&mut self, records: &[Records]) -> anyhow::Result<()> {
        match self {
            Self::File(target) => {
                target.look(Instant::now())?;
                target.append.append(records.iter().map(Records::chunk))?;
            }
            Self::Stdout(stdout) => {
                let mut written = records.iter();
                let outcome = written.try_for_each(|records| stdout.write_all(&records.bytes));
                outcome.context("standard output")?;
            }
        }
        Ok(())
    }
}

/// The receiver's file, its name, and the directory in which a rotation may give the name to another file.
pub(super) struct Target {
    pub(super) append: Append<File>,
    pub(super) folder: Folder,
    pub(super) name: OsString,
    /// The time since which no file has the name; `None` while a file has it.
    pub(super) missing: Option<Instant>,
}

impl Target {
    /// Goes on in the file that has the name now, if a rotation has renamed the receiver's file. While no
    /// file has the name, waits a while for the rotation to create one.
    fn look(&mut self, now: Instant) -> anyhow::Result<()> {
        let holder = self.append.holder(&self.folder, &self.name);
        match holder.with_context(|| self.path())? {
            Holder::Same => self.missing = None,
            Holder::Missing if now < *self.missing.get_or_insert(now) + MISSING => {}
            Holder::Other | Holder::Missing => self.reopen()?,
        }
        Ok(())
    }

    fn reopen(&mut self) -> anyhow::Result<()> {
        self.missing = None;
        if self.append.reopen(&self.folder, &self.name)? {
            face::note(format_args!(
                "{} was rotated: going on in the new file",
                self.path()
            ));
        }
        Ok(())
    }

    fn path(&self) -> String {
        self.folder.path(&self.name).display().to_string()
    }
}

/// A piece of work that connections and the program queue for the writing thread.
pub(super) enum Work {
    /// Records of a sender, which the thread writes and acknowledges.
    Records(Records),
    /// A session opens, and the thread answers with the session's position, from which the sender continues.
    Begin {
        /// The id of the session.
        session: u128,
        /// The number of the record after which the session begins, if the file does not have the session.
        acked: u64,
        /// The epoch that the session gets, if the file does not have the session.
        epoch: u64,
    },
    /// A connection of this session closes, so the receiver may forget the session if no other connection
    /// uses it.
    Release(u128),
    /// The user asks by SIGHUP to go on in the file that has the name now, after a rotation.
    Reopen,
    /// The receiver ends: the thread writes the records that it has and closes the file.
    Close,
}

/// Records of one session, with the call by which the thread reports them as written.
pub(super) struct Records {
    pub(super) session: Option<u128>,
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) bytes: Vec<u8>,
    pub(super) done: Done,
}

impl Records {
    const fn count(&self) -> u64 {
        self.last.since(self.first) + 1
    }

    fn chunk(&self) -> Chunk<'_> {
        Chunk {
            session: self.session,
            first: self.first.get(),
            records: self.count(),
            bytes: &self.bytes,
        }
    }
}

/// The writing thread's answer to [`Work::Begin`]: the position at which the session continues, or the reason
/// for a refusal.
pub(super) type Begun = Result<Progress, String>;

/// The numbers of records and bytes that the thread has written so far, for the progress and the note at the
/// end.
#[derive(Debug, Default)]
pub(super) struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Returns the number of records written, and synced if the output is a file.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Returns the bytes of the records written, and synced if the output is a file.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// A handle by which connections and the program queue work for the writing thread.
#[derive(Clone)]
pub(super) struct Sink(Handle<Work, Begun>);

/// The error for work that comes after the thread's end. The thread has reported the reason to the program.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nothing more can be written")]
pub(super) struct Ended;

impl Sink {
    /// Starts the writing thread. If the thread fails, it sends its error to `failed`, so that the program
    /// ends.
    pub(super) fn spawn(
        output: Output,
        counters: Arc<Counters>,
        failed: oneshot::Sender<anyhow::Error>,
    ) -> anyhow::Result<Self> {
        let writing = Writing {
            output,
            gathered: Vec::new(),
            counters,
            failed: Some(failed),
        };
        let handle = Builder::new()
            .name("append")
            .capacity(CAPACITY)
            .capacity_bytes(CAPACITY_BYTES)
            .weigh(|work| match work {
                Work::Records(records) => records.bytes.len() as u64,
                Work::Begin { .. } | Work::Release(_) | Work::Reopen | Work::Close => 0,
            })
            .bounds(Bounds {
                bytes_max: BATCH_BYTES,
                ..Bounds::default()
            })
            .spawn(writing)?;
        Ok(Self(handle))
    }

    /// Queues records for the writing thread, and waits while the thread's queue has no room.
    pub(super) async fn write(&self, records: Records) -> Result<(), Ended> {
        let sent = self.0.cast(Work::Records(records)).await;
        sent.map_err(|_| Ended)
    }

    /// Returns the position of `session`, which covers all records queued for the writing thread before.
    /// Blocks the calling thread, so a task must call this function in `block_in_place`.
    pub(super) fn begin(&self, session: u128, acked: u64, epoch: u64) -> Begun {
        let begin = Work::Begin {
            session,
            acked,
            epoch,
        };
        self.0.blocking_call(begin).map_err(|e| e.to_string())?
    }

    /// Ends one use of `session` in the file, which [`Sink::begin`] began. If the thread's queue is full, the
    /// release is lost, and the file keeps the session as one in use.
    pub(super) fn release(&self, session: u128) {
        let _ = self.0.try_cast(Work::Release(session));
    }

    /// Makes the thread write all records queued before, and then go on in the file that has the name now.
    pub(super) async fn reopen(&self) {
        // If the writing thread has ended already, the call fails and nothing is left to open.
        let _ = self.0.cast(Work::Reopen).await;
    }

    /// Makes the thread write all records queued before and close the file. [`Sink::drain`] waits for the
    /// end.
    pub(super) async fn close(&self) {
        // If the writing thread has ended already, the call fails and nothing is left to close.
        let _ = self.0.cast(Work::Close).await;
    }

    /// Waits until the thread has written all queued records and has ended, at most for the time `within`.
    pub(super) async fn drain(&self, within: Duration) -> Result<(), StopError> {
        self.0.drain(within).await
    }
}

/// The handler of the writing thread's batches, which writes the records of a batch with one sync.
struct Writing {
    output: Output,
    gathered: Vec<Records>,
    counters: Arc<Counters>,
    failed: Option<oneshot::Sender<anyhow::Error>>,
}

impl Handler for Writing {
    type Item = Work;
    type Reply = Begun;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<Work, Begun>) -> Handled {
        let worked = batch.drain().try_for_each(|op| match op {
            Op::Cast(work) => self.take(work, None),
            Op::Call(work, reply) => self.take(work, Some(reply)),
            _ => Ok(()),
        });
        match worked.and_then(|()| self.write()) {
            Ok(()) => Ok(Flow::Continue),
            Err(error) => {
                let why = format!("{error:#}");
                if let Some(failed) = self.failed.take() {
                    // The send fails only if the program is ending and no longer needs the error.
                    let _ = failed.send(error);
                }
                Ok(Flow::stop(why))
            }
        }
    }
}

impl Writing {
    fn take(&mut self, work: Work, reply: Option<Reply<Begun>>) -> anyhow::Result<()> {
        match (work, &mut self.output) {
            (Work::Records(records), _) => self.gathered.push(records),
            (
                Work::Begin {
                    session,
                    acked,
                    epoch,
                },
                _,
            ) => {
                self.write()?;
                let Output::File(target) = &mut self.output else {
                    return Ok(());
                };
                let begun = match target.append.begin(session, acked, epoch) {
                    Err(BeginError::Append(error)) => return Err(error.into()),
                    begun => begun.map_err(|e| e.to_string()),
                };
                if let Some(reply) = reply {
                    reply.send(begun);
                }
            }
            (Work::Release(session), Output::File(target)) => target.append.release(session),
            (Work::Reopen, _) => {
                self.write()?;
                if let Output::File(target) = &mut self.output {
                    target.reopen()?;
                }
            }
            (Work::Close, _) => {
                self.write()?;
                if let Output::File(target) = &mut self.output {
                    target.append.close()?;
                }
            }
            (Work::Release(_), Output::Stdout(_)) => {}
        }
        Ok(())
    }

    /// Writes the gathered records, and then marks them as done, so that the link may ack them.
    fn write(&mut self) -> anyhow::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        self.output.write(&self.gathered)?;
        for records in self.gathered.drain(..) {
            self.counters
                .records
                .fetch_add(records.count(), Ordering::Relaxed);
            self.counters
                .bytes
                .fetch_add(records.bytes.len() as u64, Ordering::Relaxed);
            records.done.done(records.last);
        }
        Ok(())
    }
}
