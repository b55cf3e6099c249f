//! Spools standard input: one thread reads, and the engine's batch actor writes, so that all records that
//! arrive during one sync share the next.

use std::convert::Infallible;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, Op};
use tidegate::controller::Bounds;
use tidegate_link::SessionId;
use tokio::sync::oneshot;

use super::super::disk::{Disk as _, Folder};
use super::super::records::Records;
use super::super::spool::{self, Acks, Opened, Reader, SpoolError, Writer};
use crate::face;
use crate::input::Source;
use crate::interrupt;
use crate::ship::args::SendArgs;

/// The most blocks in the queue between reading and writing.
const CAPACITY: usize = 64;
/// The most bytes in that queue.
const CAPACITY_BYTES: u64 = 8 << 20;
/// The most bytes of one write.
const BATCH_BYTES: u64 = 4 << 20;
/// How long the removal of the last segments may take.
const GRACE: Duration = Duration::from_secs(10);

/// An open spool.
pub(super) struct Spooling {
    writer: Writer<Folder>,
    reader: Reader<File>,
    acks: Acks<File>,
    opened: Opened,
}

impl Spooling {
    /// Opens the spool in `path`, creates the directory if it is missing, and returns the session of its
    /// records.
    pub(super) fn open(
        path: &Path,
        limit_bytes: u64,
        named: Option<SessionId>,
        random: SessionId,
    ) -> anyhow::Result<(Self, SessionId)> {
        let on = || path.display().to_string();
        std::fs::create_dir_all(path).with_context(on)?;
        if let Some(parent) = path.parent() {
            Folder::new(parent).sync_names().with_context(on)?;
        }
        let key = |session: SessionId| u128::from_le_bytes(session.0);
        let (writer, reader, acks, opened) =
            spool::open(Folder::new(path), named.map(key), key(random), limit_bytes)?;
        let Opened { first, next, .. } = opened;
        let cut = match opened.cut_bytes {
            0 => String::new(),
            bytes => format!(" ({bytes} bytes of a batch a crash left unfinished are cut off)"),
        };
        let doubtful = match opened.is_doubtful {
            true => {
                "; a slot of its file `session` is not readable, so later records may be missing"
            }
            false => "",
        };
        if face::chats() || opened.is_doubtful {
            eprintln!(
                "tidegate: spool {}: {} records from before{cut}{doubtful}; standard input goes on with record {next}",
                path.display(),
                next - first
            );
        }
        let spool = Self {
            writer,
            reader,
            acks,
            opened,
        };
        Ok((spool, SessionId(opened.session.to_le_bytes())))
    }

    /// Starts to read standard input. Sends the error to `failed` if the spool's thread ends early.
    pub(super) fn start(
        self,
        args: &SendArgs,
        failed: oneshot::Sender<anyhow::Error>,
    ) -> anyhow::Result<(Reader<File>, Tidy)> {
        let handle = Builder::new()
            .name("spool")
            .capacity(CAPACITY)
            .capacity_bytes(CAPACITY_BYTES)
            .weigh(|work| match work {
                Work::Records(block) => block.bytes.len() as u64,
                Work::Restart(..) | Work::Release | Work::End(_) => 0,
            })
            .bounds(Bounds {
                bytes_max: BATCH_BYTES,
                ..Bounds::default()
            })
            .spawn(Writing {
                writer: self.writer,
                gathered: Vec::new(),
                failed: Some(failed),
            })?;
        let source = Source::open(&args.file)?;
        let mut records = Records::new(source, args.records.format, args.records.max_record);
        let reading = handle.clone();
        let run = move || {
            let read = read(&mut records, &reading);
            // A spool thread that has ended has reported its error.
            let _ = reading.blocking_cast(Work::End(read.err()));
        };
        std::thread::Builder::new().name("read".into()).spawn(run)?;
        let tidy = Tidy {
            acks: self.acks,
            opened: self.opened,
            handle,
        };
        Ok((self.reader, tidy))
    }
}

/// Hands in the records of standard input, until it ends or Ctrl-C.
fn read(records: &mut Records<Source>, spool: &Handle<Work>) -> anyhow::Result<()> {
    let mut places = Vec::new();
    loop {
        if interrupt::asked() {
            return Ok(());
        }
        match records.read() {
            Err(_) if interrupt::asked() => return Ok(()),
            Ok(true) => {}
            ended => return ended.map(drop).context("standard input"),
        }
        let whole = records.whole(&mut places);
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            let start = first.start;
            let block = Block {
                bytes: records.buffer()[start..last.end].to_vec(),
                places: places
                    .iter()
                    .map(|place| place.start - start..place.end - start)
                    .collect(),
            };
            if spool.blocking_cast(Work::Records(block)).is_err() {
                return Ok(());
            }
        }
        whole.context("standard input")?;
    }
}

/// Records in the form in which they were read.
struct Block {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
}

enum Work {
    /// Records to write.
    Records(Block),
    /// The records move to this session, from the record after this number on.
    Restart(u128, u64),
    /// Some segments may have become free.
    Release,
    /// Reading has ended, with an error unless standard input ended.
    End(Option<anyhow::Error>),
}

/// The spool's view of the receiver: acks, and the session's position.
pub(super) struct Tidy {
    acks: Acks<File>,
    opened: Opened,
    handle: Handle<Work>,
}

impl Tidy {
    /// Returns the number of records before the session's first one: adding it turns the session's position
    /// into the spool's.
    pub(super) const fn base(&self) -> u64 {
        self.opened.base
    }

    /// Compares the receiver's position with the records that the spool had when it was opened. This process
    /// has not sent any record yet, so a receiver with more of them got them from another spool, or from a
    /// later state of this one.
    ///
    /// # Errors
    /// The receiver has more.
    pub(super) const fn check(&self, position: u64) -> Result<(), SpoolError> {
        let (received, spooled) = (position + self.opened.base, self.opened.next - 1);
        match received > spooled {
            true => Err(SpoolError::Behind { received, spooled }),
            false => Ok(()),
        }
    }

    /// Returns whether a receiver without any record of the session had some before.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.opened.first - 1 > self.opened.base
    }

    /// Moves the records left in the spool to `session`, because the receiver forgot the old one.
    pub(super) async fn restart(&mut self, session: SessionId) -> anyhow::Result<()> {
        self.opened.base = self.opened.first - 1;
        let restart = Work::Restart(u128::from_le_bytes(session.0), self.opened.base);
        let request = self.handle.send_request(restart).await;
        let request = request.ok().context("the spool could not be written")?;
        request.await.context("the spool could not be written")
    }

    /// Notes that the receiver acked everything of the session up to `position`.
    pub(super) fn acked(&self, position: u64) {
        if self.acks.acked(position + self.opened.base) {
            // A full queue holds work that releases segments, too.
            let _ = self.handle.try_cast(Work::Release);
        }
    }

    /// Ends the spool after the last ack, and leaves almost no bytes on the disk.
    pub(super) async fn finish(self) -> anyhow::Result<()> {
        // The spool's thread may have ended at the end of standard input already.
        let _ = self.handle.cast(Work::End(None)).await;
        self.handle
            .drain(GRACE)
            .await
            .context("the spool could not be emptied")
    }
}

struct Writing {
    writer: Writer<Folder>,
    gathered: Vec<Block>,
    failed: Option<oneshot::Sender<anyhow::Error>>,
}

impl Handler for Writing {
    type Item = Work;
    type Reply = ();
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<Work>) -> Handled {
        let worked = batch.drain().try_for_each(|op| match op {
            Op::Cast(work) => self.take(work),
            Op::Call(work, reply) => self.take(work).map(|()| reply.send(())),
            _ => Ok(()),
        });
        match worked.and_then(|()| self.write()) {
            Ok(()) => Ok(Flow::Continue),
            Err(error) => {
                let why = error.to_string();
                if let Some(failed) = self.failed.take() {
                    // The receiver is gone only if the program is ending anyway.
                    let _ = failed.send(error);
                }
                Ok(Flow::stop(why))
            }
        }
    }
}

impl Writing {
    fn take(&mut self, work: Work) -> anyhow::Result<()> {
        match work {
            Work::Records(block) => self.gathered.push(block),
            Work::Restart(session, base) => self.writer.restart(session, base)?,
            Work::Release => {
                self.write()?;
                self.writer.release()?;
            }
            Work::End(why) => {
                self.write()?;
                self.writer.end()?;
                return why.map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    fn write(&mut self) -> anyhow::Result<()> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let records = self.gathered.iter().flat_map(|block| {
            let places = block.places.iter();
            places.map(|place| &block.bytes[place.clone()])
        });
        self.writer.append(records)?;
        self.gathered.clear();
        Ok(())
    }
}
