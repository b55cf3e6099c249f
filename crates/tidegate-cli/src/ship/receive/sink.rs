//! The one thread that writes what was received: the engine's batch actor. While one batch is written and
//! synced the next gathers, of all sessions together, so that a sync is shared by whoever came meanwhile.
//!
//! The first failure ends it: nothing more is written, nothing more is acked, and the program is told why.

use std::convert::Infallible;
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, Op, Reply, StopError};
use tidegate::controller::Bounds;
use tidegate_link::{Done, Seq};
use tokio::sync::oneshot;

use super::super::append::{Append, BeginError, Chunk, Progress};

/// Pieces of work that wait, each at most what was read from a connection at once.
const CAPACITY: usize = 4096;
/// Bytes that wait to be written, of all sessions together: more than one sender may have unacked, so that a
/// slow disk keeps a lone one waiting for acks, and not for an answer.
const CAPACITY_BYTES: u64 = 64 << 20;
/// Bytes of one write.
const BATCH_BYTES: u64 = 8 << 20;

/// Where records go.
pub(super) enum Output {
    /// The end of a file.
    File(Box<Append<File>>),
    /// Standard output.
    Stdout(File),
}

impl Output {
    /// Standard output without the buffer of lines in front of it.
    pub(super) fn stdout() -> std::io::Result<Self> {
        let stdout = std::io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Self::Stdout(stdout.into()))
    }

    fn write(&mut self, records: &[Records]) -> anyhow::Result<()> {
        match self {
            Self::File(file) => file.append(records.iter().map(Records::chunk))?,
            Self::Stdout(stdout) => {
                let mut written = records.iter();
                written.try_for_each(|records| stdout.write_all(&records.bytes))?;
            }
        }
        Ok(())
    }
}

/// A piece of work.
pub(super) enum Work {
    /// Records to write.
    Records(Records),
    /// A session that opens; the answer is where it goes on.
    Begin {
        /// Which one.
        session: u128,
        /// Where it begins if it is new.
        acked: u64,
        /// And under which epoch.
        epoch: u64,
    },
    /// A session that will not come back without opening again.
    Release(u128),
    /// The end of all work.
    Close,
}

/// Records of one session, as they are written.
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

/// The answer to [`Work::Begin`]; why not, in words.
pub(super) type Begun = Result<Progress, String>;

/// What was written so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    records: AtomicU64,
    bytes: AtomicU64,
}

impl Counters {
    /// Records written, and synced if that was asked for.
    pub(super) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// The thread, as others see it.
#[derive(Clone)]
pub(super) struct Sink(Handle<Work, Begun>);

/// The thread ended, and has said why elsewhere.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nothing more can be written")]
pub(super) struct Ended;

impl Sink {
    /// Starts it. What ends it before its time is sent to `failed`.
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
                Work::Begin { .. } | Work::Release(_) | Work::Close => 0,
            })
            .bounds(Bounds {
                bytes_max: BATCH_BYTES,
                ..Bounds::default()
            })
            .spawn(writing)?;
        Ok(Self(handle))
    }

    /// Hands in records, and waits for room.
    pub(super) async fn write(&self, records: Records) -> Result<(), Ended> {
        let sent = self.0.cast(Work::Records(records)).await;
        sent.map_err(|_| Ended)
    }

    /// Returns where `session` goes on; everything handed in before is counted. Blocks the thread, so a task
    /// calls it in `block_in_place`.
    pub(super) fn begin(&self, session: u128, acked: u64, epoch: u64) -> Begun {
        let begin = Work::Begin {
            session,
            acked,
            epoch,
        };
        self.0.blocking_call(begin).map_err(|e| e.to_string())?
    }

    /// The session will not come back without [`Sink::begin`]. Without room that is not told, and the file
    /// goes on counting it as in use.
    pub(super) fn release(&self, session: u128) {
        let _ = self.0.try_cast(Work::Release(session));
    }

    /// Nothing more comes: [`Sink::drain`] waits until the file says so.
    pub(super) async fn close(&self) {
        // A thread that has ended has nothing to close.
        let _ = self.0.cast(Work::Close).await;
    }

    /// Writes what was handed in, and ends.
    pub(super) async fn drain(&self, within: Duration) -> Result<(), StopError> {
        self.0.drain(within).await
    }
}

/// The handler: see the module.
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
                let why = error.to_string();
                if let Some(failed) = self.failed.take() {
                    // Nobody listens any more only if the program ends anyway.
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
                let Output::File(file) = &mut self.output else {
                    return Ok(());
                };
                let begun = match file.begin(session, acked, epoch) {
                    Err(BeginError::Append(error)) => return Err(error.into()),
                    begun => begun.map_err(|e| e.to_string()),
                };
                if let Some(reply) = reply {
                    reply.send(begun);
                }
            }
            (Work::Release(session), Output::File(file)) => file.release(session),
            (Work::Close, _) => {
                self.write()?;
                if let Output::File(file) = &mut self.output {
                    file.close()?;
                }
            }
            (Work::Release(_), Output::Stdout(_)) => {}
        }
        Ok(())
    }

    /// Writes what was gathered; then it is done, and may be acked.
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
