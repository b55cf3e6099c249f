//! Follows a file for `tidegate send --follow`, as `tail -F` does: waits for the file, reads on when it
//! grows, and goes on in its successor after a rotation.
//!
//! The session counts the records of the file and of all files before it. `position` keeps the place that
//! belongs to a count, so that a start finds it again, in a renamed or a copied file too (`files`). The bytes
//! that the receiver gets are those of the files, one after the other.

mod files;
mod position;
mod tailed;

use std::collections::VecDeque;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tidegate_link::SessionId;

use super::feed::{Feed, Outlet};
use crate::ship::args::{RecordArgs, SendArgs};
use crate::ship::records::Records;
use crate::{face, interrupt};
use files::{Found, Id};
pub(super) use position::Positions;
use position::{Mark, Position};
use tailed::Tailed;

/// The pause between two looks for a file that does not exist yet.
const POLL: Duration = Duration::from_millis(100);

/// The followed file as a source of records.
pub(super) struct Follow {
    path: PathBuf,
    form: RecordArgs,
    /// The name of the session, for the messages to the user.
    session: String,
    positions: Arc<Positions>,
    stored: Option<Position>,
    /// The number of records of the session that the receiver has.
    resumed: u64,
    /// The number of records of the session up to the place that the source has reached.
    records: u64,
    /// The rotated files that existed when the source began to read the present one. A later change of their
    /// times does not make them its successors.
    earlier: Vec<Id>,
}

/// A file to read, from an offset on.
struct Piece {
    found: Found,
    offset: u64,
    /// True if no later file of the list follows, so that the file may still grow.
    grows: bool,
}

impl Follow {
    /// Reads the stored position of the session. Contacts no receiver and waits for no file.
    pub(super) fn open(args: &SendArgs, session: SessionId) -> anyhow::Result<Self> {
        let name = args.session.clone();
        let path = args.state.clone().or_else(|| {
            let name = name.as_deref()?;
            Some(position::default_path(&args.file, name))
        });
        let positions = Arc::new(Positions::new(path, session));
        let stored = positions.load()?;
        // A mistake in the path is reported before the sender contacts the receiver.
        files::open(&args.file).with_context(|| args.file.display().to_string())?;
        Ok(Self {
            path: args.file.clone(),
            form: args.records,
            session: name.unwrap_or_default(),
            records: stored.as_ref().map_or(0, |s| s.records),
            positions,
            stored,
            resumed: 0,
            earlier: Vec::new(),
        })
    }

    /// Makes the source skip the records that the receiver has, which are the first `resumed` of the session.
    /// Returns the positions, to which the caller reports acknowledgements.
    pub(super) fn after(&mut self, resumed: u64) -> anyhow::Result<Arc<Positions>> {
        let session = &self.session;
        let records = self.records;
        anyhow::ensure!(
            resumed >= records,
            "the receiver has {resumed} records of session {session}, but acknowledged {records} before: bring its file back, or send under another --session name"
        );
        if resumed > 0 && self.stored.is_none() {
            let path = self.positions.path().unwrap_or(&self.path).display();
            anyhow::bail!(
                "the receiver has {resumed} records of session {session}, but {path} does not exist, so the place at which to go on is unknown: bring it back, or send under another --session name"
            );
        }
        if resumed > 0 {
            face::note(format_args!(
                "the receiver has {resumed} records of session {session}: going on with record {}",
                resumed + 1
            ));
        }
        self.resumed = resumed;
        self.positions.acked(resumed);
        Ok(Arc::clone(&self.positions))
    }

    /// Finds the file in which the stored position lies, and the files that followed it.
    fn resume(&self) -> anyhow::Result<VecDeque<Piece>> {
        let Some(stored) = &self.stored else {
            return Ok(VecDeque::new());
        };
        let id = stored.id();
        let now = files::open(&self.path)?;
        let mut all = files::rotated(&self.path, Some(id))?;
        all.extend(now);
        let has = |f: &Found| {
            stored.before.stands_in(&f.file, stored.offset) && stored.head.begins(&f.file)
        };
        let here = all.iter().position(|f| f.id == id && has(f));
        // A copy of the file has another identity. Only its bytes can tell it.
        let copy = || match stored.head.bytes {
            0 => None,
            _ => all.iter().rposition(has),
        };
        let Some(at) = here.or_else(copy) else {
            anyhow::bail!(
                "{}: the file in which session {} stopped is gone, compressed or changed, so records may be missing: bring it back beside this one, or send under another --session name",
                self.path.display(),
                self.session
            );
        };
        let mut pieces: VecDeque<Piece> = all.drain(at..).map(|f| piece(f, false)).collect();
        if let Some(first) = pieces.front_mut() {
            first.offset = stored.offset;
        }
        // While the name belongs to no file or to an empty one, the writer may still have the file before it
        // open. So that file may grow.
        let is_empty = |p: &Piece| p.found.file.metadata().is_ok_and(|m| m.len() == 0);
        let is_named = |p: &Piece| p.found.path == self.path;
        if pieces.len() > 1 && pieces.back().is_some_and(|p| is_named(p) && is_empty(p)) {
            pieces.pop_back();
        }
        if let Some(last) = pieces.back_mut() {
            last.grows = true;
        }
        Ok(pieces)
    }

    /// Returns the files after the file that the source has read: those of rotations in between, and the file
    /// that has the name now. Waits until there is one; returns nothing after Ctrl-C.
    fn next(&self, read: Option<&Tailed>) -> anyhow::Result<VecDeque<Piece>> {
        let name = || self.path.display().to_string();
        let mut waits = false;
        loop {
            let old = read.map(|r| r.place().0.1);
            let now = files::open(&self.path).with_context(name)?;
            if let Some(now) = now {
                let mut pieces = VecDeque::new();
                if let Some(old) = old {
                    let rotated = files::rotated(&self.path, Some(old)).with_context(name)?;
                    let behind = rotated.iter().position(|f| f.id == old);
                    let later = rotated
                        .into_iter()
                        .skip(behind.map_or(usize::MAX, |n| n + 1));
                    let between = later.filter(|f| !self.earlier.contains(&f.id));
                    pieces.extend(between.map(|f| piece(f, false)));
                }
                pieces.push_back(piece(now, true));
                return Ok(pieces);
            }
            if !waits {
                waits = true;
                face::note(format_args!("waiting for {}", name()));
            }
            if interrupt::asked() {
                return Ok(VecDeque::new());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Notes that the byte at `offset` of the file comes after the record with the number `records`.
    fn mark(&self, tailed: &Tailed, records: u64, offset: u64) {
        let ((file, id), _) = tailed.place();
        if let Some(mark) = Mark::at(records, &file, id, offset) {
            self.positions.mark(mark);
        }
    }

    /// Ships the records of one file. Returns the file once a rotation has replaced it, and `None` after
    /// Ctrl-C.
    fn ship(&mut self, piece: Piece, outlet: &Outlet) -> anyhow::Result<Option<Tailed>> {
        let name = piece.found.path.display().to_string();
        let named = || name.clone();
        let tailed = Tailed::new(&self.path, piece.found, piece.offset, piece.grows);
        let tailed = tailed.with_context(named)?;
        self.mark(&tailed, self.records, piece.offset);
        let earlier = files::rotated(&self.path, None).with_context(named)?;
        self.earlier = earlier.iter().map(|f| f.id).collect();
        let mut records = Records::new(tailed, self.form.format, self.form.max_record);
        let wanted = self.resumed.saturating_sub(self.records);
        let skipped = records.skip(wanted).with_context(named)?;
        self.records += skipped.unwrap_or(wanted);
        if skipped.is_some() || records.is_ended() {
            // The bytes of the last, unfinished line count as a record only if the file is complete.
            if piece.grows && !records.source_mut().is_replaced() {
                anyhow::bail!(
                    "{name}: has fewer records than the receiver has of session {}: it was cut or is another file; bring it back, or send under another --session name",
                    self.session
                );
            }
            return Ok(Some(records.into_source()));
        }
        records.source_mut().waits = true;
        let mut start = Some((
            self.records,
            records.source_mut().place().1 - records.unread() as u64,
        ));
        let mut places: Vec<Range<usize>> = Vec::new();
        loop {
            let whole = records.whole(&mut places);
            if !places.is_empty() {
                if let Some((before, offset)) = start.take() {
                    // A position in this file must be durable before the receiver has a record of the file:
                    // by its first bytes, the next start knows whether the file was cut meanwhile.
                    self.mark(records.source_mut(), before, offset);
                    self.positions.store(None)?;
                }
                let buffer = records.buffer();
                let payloads = places.iter().map(|place| &buffer[place.clone()]);
                self.records = outlet.send(payloads)?;
                let offset = records.source_mut().place().1 - records.unread() as u64;
                self.mark(records.source_mut(), self.records, offset);
            }
            whole.with_context(named)?;
            if interrupt::asked() {
                return Ok(None);
            }
            match records.read() {
                Err(_) if interrupt::asked() => return Ok(None),
                Ok(true) => {}
                ended => {
                    ended.with_context(named)?;
                    return Ok(Some(records.into_source()));
                }
            }
        }
    }
}

fn piece(found: Found, grows: bool) -> Piece {
    Piece {
        found,
        offset: 0,
        grows,
    }
}

impl Feed for Follow {
    fn run(&mut self, outlet: &Outlet) -> anyhow::Result<()> {
        let mut pieces = self.resume()?;
        let mut read = None;
        loop {
            while let Some(piece) = pieces.pop_front() {
                match self.ship(piece, outlet)? {
                    Some(tailed) => read = Some(tailed),
                    None => return Ok(()),
                }
            }
            if interrupt::asked() {
                return Ok(());
            }
            pieces = self.next(read.as_ref())?;
            if pieces.is_empty() {
                return Ok(());
            }
        }
    }
}
