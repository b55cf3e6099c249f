//! The sources of the records to ship. A thread reads the records and gives them to the link's client, and
//! waits while the client has no room.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use tidegate_link::{Client, SendError};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::super::records::Records;
use super::super::spool::{Read, Reader};
use super::progress::Progress;
use crate::face;
use crate::input::Source;
use crate::interrupt;
use crate::ship::args::SendArgs;

/// The link's client as a source sees it: it takes the records of a block and counts them for the progress.
pub(super) struct Outlet {
    client: Client,
    runtime: Handle,
    progress: Arc<Progress>,
}

impl Outlet {
    /// Gives the records in `payloads` to the client, which sends them. Waits while the client has no room.
    /// Returns the number of the last record in the session.
    pub(super) fn send<'a>(
        &self,
        payloads: impl Iterator<Item = &'a [u8]>,
    ) -> Result<u64, SendError> {
        let mut bytes = 0;
        self.progress.begin();
        let counted = payloads.inspect(|payload| bytes += payload.len() as u64);
        let last = self.runtime.block_on(self.client.send_many(counted))?;
        self.progress.sent(last.get(), bytes);
        Ok(last.get())
    }
}

/// A source of the records that the sender ships.
pub(super) trait Feed: Send {
    /// Gives all records of the source to the client, until Ctrl-C.
    fn run(&mut self, outlet: &Outlet) -> anyhow::Result<()>;
}

/// Starts the thread that reads the source `feed`. The returned channel delivers the thread's outcome once.
pub(super) fn start(
    mut feed: Box<dyn Feed>,
    client: Client,
    progress: Arc<Progress>,
) -> std::io::Result<oneshot::Receiver<anyhow::Result<()>>> {
    let (ended, ending) = oneshot::channel();
    let outlet = Outlet {
        client,
        runtime: Handle::current(),
        progress,
    };
    let run = move || {
        let outcome = feed.run(&outlet);
        drop(outlet);
        // If the client has ended, the thread's error is only a consequence. The client reports its own
        // error, so the thread reports none.
        let outcome = outcome.or_else(|e| match e.downcast_ref() {
            Some(SendError::Ended(_)) => Ok(()),
            _ => Err(e),
        });
        let _ = ended.send(outcome);
    };
    std::thread::Builder::new().name("send".into()).spawn(run)?;
    Ok(ending)
}

/// The records of a file, or of standard input without a spool, which the thread ships as it reads them.
pub(super) struct Direct {
    path: PathBuf,
    records: Records<Source>,
    bytes: Option<u64>,
    /// The number of records that the receiver already has, which the source skips if the input is a file.
    skip: u64,
    /// The name of the session, for the messages to the user.
    session: String,
}

impl Direct {
    pub(super) fn open(args: &SendArgs) -> anyhow::Result<Self> {
        let path = args.file.clone();
        let source = Source::open(&path).with_context(|| path.display().to_string())?;
        Ok(Self {
            bytes: source.bytes(),
            records: Records::new(source, args.records.format, args.records.max_record),
            path,
            skip: 0,
            session: String::new(),
        })
    }

    /// Returns the number of bytes to send, for the progress bar; `None` if the length of the input is
    /// unknown.
    pub(super) const fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// Makes the source skip the first `records` records, because the receiver has them. If the input is not
    /// a file, it has only new records, so the source skips none.
    pub(super) fn after(mut self, records: u64, session: Option<&str>) -> Self {
        if self.bytes.is_some() {
            self.skip = records;
        }
        self.session = session.unwrap_or_default().to_owned();
        if records > 0 {
            let session = &self.session;
            let next = records + 1;
            face::note(format_args!(
                "the receiver has {records} records of session {session}: going on with record {next}"
            ));
        }
        self
    }
}

impl Feed for Direct {
    fn run(&mut self, outlet: &Outlet) -> anyhow::Result<()> {
        let path = self.path.display().to_string();
        let name = || path.clone();
        let (skip, session) = (self.skip, &self.session);
        if let Some(has) = self.records.skip(skip).with_context(name)? {
            anyhow::bail!(
                "{}: has {has} records, but the receiver has {skip} of session {session}: \
                it was cut or is another file; bring it back, or send under another name",
                path
            );
        }
        let mut places: Vec<Range<usize>> = Vec::new();
        loop {
            let whole = self.records.whole(&mut places);
            let buffer = self.records.buffer();
            if !places.is_empty() {
                outlet.send(places.iter().map(|place| &buffer[place.clone()]))?;
            }
            whole.with_context(name)?;
            if interrupt::asked() {
                return Ok(());
            }
            match self.records.read() {
                Err(_) if interrupt::asked() => return Ok(()),
                Ok(true) => {}
                ended => return ended.map(drop).with_context(name),
            }
        }
    }
}

/// The records that a spool holds, and the records that the reading thread adds meanwhile.
pub(super) struct Spooled(Reader);

impl Spooled {
    /// Creates the source, which skips the first `records` records of the spool, because the receiver has
    /// them.
    pub(super) fn new(mut reader: Reader, records: u64) -> anyhow::Result<Self> {
        reader.start_after(records)?;
        Ok(Self(reader))
    }
}

impl Feed for Spooled {
    fn run(&mut self, outlet: &Outlet) -> anyhow::Result<()> {
        while let Read::Records(records) = self.0.read()? {
            outlet.send(records.iter().map(|record| &record.payload[..]))?;
        }
        Ok(())
    }
}
