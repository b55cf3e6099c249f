//! Spools standard input, so that its records survive the sender. One thread reads and appends to the spool's
//! log, where one sync covers all records that arrived during the sync before.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_link::SessionId;
use tidegate_log::Disk;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use super::super::records::Records;
use super::super::spool::{self, Acks, Opened, Reader, SpoolError, Writer};
use crate::face;
use crate::input::Source;
use crate::interrupt;
use crate::ship::args::SendArgs;

/// The longest time that the sender waits for the close of the spool, before it reports an error.
const GRACE: Duration = Duration::from_secs(10);

/// The files of a spool beside its segments, with which other files of the directory must not collide.
const OWN_FILES: [&str; 4] = ["catalog", "lock", "reserve", "session"];

/// An open spool with its writer, its reader and its acks, before the sender starts the threads.
pub(super) struct Spooling {
    writer: Writer,
    reader: Reader,
    acks: Acks,
    opened: Opened,
}

impl Spooling {
    /// Opens the spool in the directory `path`, or creates it. Returns the session under which the sender
    /// ships the spool's records.
    pub(super) fn open(
        path: &Path,
        limit_bytes: u64,
        named: Option<SessionId>,
        random: SessionId,
    ) -> anyhow::Result<(Self, SessionId)> {
        check_files(path)?;
        let disk = Disk::open(path).with_context(|| path.display().to_string())?;
        let key = |session: SessionId| u128::from_le_bytes(session.0);
        let (named, random) = (named.map(key), key(random));
        let (writer, reader, acks, opened) =
            spool::open(Arc::new(disk), path, named, random, limit_bytes)?;
        let Opened { first, next, .. } = opened;
        let cut = match opened.cut_bytes {
            0 => String::new(),
            bytes => format!(" ({bytes} bytes of a batch a crash left unfinished are cut off)"),
        };
        let doubtful = match opened.is_doubtful {
            true => "; its last bytes are torn, or were damaged, so later records may be missing",
            false => "",
        };
        if face::chats() || opened.is_doubtful {
            face::complain(format_args!(
                "tidegate: spool {}: {} records from before{cut}{doubtful}; standard input goes on with record {next}",
                path.display(),
                next - first
            ));
        }
        let spool = Self {
            writer,
            reader,
            acks,
            opened,
        };
        Ok((spool, SessionId(opened.session.to_le_bytes())))
    }

    /// Starts the thread that reads standard input into the spool. If the thread fails, it sends its error to
    /// `failed`, so that the program ends.
    pub(super) fn start(
        self,
        args: &SendArgs,
        failed: oneshot::Sender<anyhow::Error>,
    ) -> anyhow::Result<(Reader, Tidy)> {
        let source = Source::open(&args.file)?;
        let mut records = Records::new(source, args.records.format, args.records.max_record);
        let mut writer = self.writer;
        let run = move || {
            if let Err(error) = read(&mut records, &mut writer) {
                // The send fails only if the program is ending and needs the error no more.
                let _ = failed.send(error);
            }
        };
        std::thread::Builder::new().name("read".into()).spawn(run)?;
        let tidy = Tidy {
            acks: Arc::new(self.acks),
            opened: self.opened,
        };
        Ok((self.reader, tidy))
    }
}

/// Checks that no directory has the name of a file of the spool, because the spool could not create its file.
fn check_files(spool: &Path) -> anyhow::Result<()> {
    // If the directory is missing or not readable, this check passes: the opening of the spool then creates
    // the directory or reports the error.
    let entries = std::fs::read_dir(spool).into_iter().flatten().flatten();
    for entry in entries {
        let (path, name) = (entry.path(), entry.file_name());
        let ours = OWN_FILES.iter().any(|own| name == *own)
            || path.extension().is_some_and(|e| e == "seg");
        anyhow::ensure!(
            !ours || !path.is_dir(),
            "{}: expected a file of the spool, found a directory: remove it, or give another --spool",
            path.display()
        );
    }
    Ok(())
}

/// Reads the records of standard input into the spool, until the input ends or Ctrl-C.
fn read(records: &mut Records<Source>, spool: &mut Writer) -> anyhow::Result<()> {
    let mut places: Vec<Range<usize>> = Vec::new();
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
            let (start, end) = (first.start, last.end);
            for place in &mut places {
                *place = place.start - start..place.end - start;
            }
            spool.append(records.buffer()[start..end].to_vec(), &places)?;
        }
        whole.context("standard input")?;
    }
}

/// The part of the spool that follows the receiver: it passes the receiver's acks to the spool, and converts
/// the session's positions into the spool's.
pub(super) struct Tidy {
    acks: Arc<Acks>,
    opened: Opened,
}

impl Tidy {
    /// Returns the number of the spool's records before the session's first record. This number plus a
    /// position in the session is the position in the spool.
    pub(super) const fn base(&self) -> u64 {
        self.opened.base
    }

    /// Checks the receiver's position against the records that the spool had when the sender opened it. This
    /// process has not sent any record yet, so a receiver with more records got them from another spool, or
    /// from a later state of this spool.
    ///
    /// # Errors
    /// The receiver has more records than the spool.
    pub(super) const fn check(&self, position: u64) -> Result<(), SpoolError> {
        let (received, spooled) = (position + self.opened.base, self.opened.next - 1);
        match received > spooled {
            true => Err(SpoolError::Behind { received, spooled }),
            false => Ok(()),
        }
    }

    /// Returns whether the receiver has acked records of the session before this run. If it has no record of
    /// the session now, it has forgotten the session, and the sender must begin another one.
    pub(super) const fn is_forgotten(&self) -> bool {
        self.opened.first - 1 > self.opened.base
    }

    /// Moves the records left in the spool to `session`, because the receiver forgot the old session.
    pub(super) async fn restart(&mut self, session: SessionId) -> anyhow::Result<()> {
        self.opened.base = self.opened.first - 1;
        let (acks, base) = (Arc::clone(&self.acks), self.opened.base);
        let session = u128::from_le_bytes(session.0);
        spawn_blocking(move || acks.restart(session, base)).await??;
        Ok(())
    }

    /// Records in the spool that the receiver has acked all records of the session up to `position`.
    pub(super) fn acked(&self, position: u64) {
        self.acks.acked(position + self.opened.base);
    }

    /// Closes the spool after the receiver's last ack, so that the next start finds no records.
    pub(super) async fn finish(self) -> anyhow::Result<()> {
        let closing = spawn_blocking(move || self.acks.finish());
        let closed = tokio::time::timeout(GRACE, closing).await;
        closed.context("the spool could not be emptied")???;
        Ok(())
    }
}
