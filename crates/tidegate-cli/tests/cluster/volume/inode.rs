//! The contents of a file or a directory, the part of them that is durable, and the effect of a loss of power
//! on them. This module is pure.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// The sizes of a page and of a sector. A disk writes a sector as a whole.
pub(super) const PAGE: usize = 4096;
pub(super) const SECTOR: usize = 512;

type Page = Box<[u8; PAGE]>;

/// The unsynced changes that a loss of power destroys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    All,
    /// The seed decides for each page, and for the sectors of a mixed page, if the change is lost.
    Some(u64),
}

/// The numbers of changes that a loss of power destroyed, and of unsynced pages that survived it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) pages: u64,
    pub(crate) torn: u64,
    /// The number of unsynced pages that survived.
    pub(crate) kept: u64,
    /// The number of changes of names that were lost.
    pub(crate) names: u64,
}

impl std::ops::AddAssign for Lost {
    fn add_assign(&mut self, other: Self) {
        self.pages += other.pages;
        self.torn += other.torn;
        self.kept += other.kept;
        self.names += other.names;
    }
}

/// A file or a directory.
#[derive(Debug)]
pub(super) enum Inode {
    File(File),
    Directory(Directory),
}

#[derive(Debug, Default)]
pub(super) struct File {
    /// The pages of the file that are not all zero, by their number.
    pages: BTreeMap<u64, Page>,
    pub(super) bytes: u64,
    /// The contents that pages had at the last sync, for pages that have changed since; `None` stands for
    /// zeros.
    before: BTreeMap<u64, Option<Page>>,
    durable_bytes: u64,
    syncing: Option<Syncing>,
}

/// A running sync of a file. It covers the writes that came before its beginning.
#[derive(Debug)]
struct Syncing {
    bytes: u64,
    /// The contents that pages had at the beginning of the sync, for pages that have changed since.
    before: BTreeMap<u64, Option<Page>>,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) entries: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    /// The changes of names since the last sync, in order. A loss of power keeps each change as a whole or
    /// not at all.
    changes: Vec<Change>,
    /// The number of changes that the running sync covers.
    syncing: usize,
}

/// A change of names: each changed name, and the inode to which the name refers after the change.
pub(super) type Change = Vec<(OsString, Option<u64>)>;

impl Inode {
    pub(super) const fn as_directory(&mut self) -> Option<&mut Directory> {
        match self {
            Self::Directory(directory) => Some(directory),
            Self::File(_) => None,
        }
    }
}

impl File {
    pub(super) fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let len = len.min(usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(len));
        let mut out = vec![0; len];
        for (page, within, part) in pieces(offset, len) {
            if let Some(bytes) = self.pages.get(&page) {
                let n = part.len();
                out[part].copy_from_slice(&bytes[within..within + n]);
            }
        }
        out
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        for (page, within, part) in pieces(offset, data.len()) {
            let n = part.len();
            self.touch(page)[within..within + n].copy_from_slice(&data[part]);
        }
        self.bytes = self.bytes.max(offset + data.len() as u64);
    }

    /// Keeps the present contents of a page before a change, and returns the page for the change.
    fn touch(&mut self, page: u64) -> &mut Page {
        let now = self.pages.get(&page);
        if let Some(syncing) = &mut self.syncing {
            syncing.before.entry(page).or_insert_with(|| now.cloned());
        }
        self.before.entry(page).or_insert_with(|| now.cloned());
        let zero = || Box::new([0; PAGE]);
        self.pages.entry(page).or_insert_with(zero)
    }

    pub(super) fn resize(&mut self, bytes: u64) {
        if bytes < self.bytes {
            let (last, within) = (bytes / PAGE as u64, (bytes % PAGE as u64) as usize);
            let first_gone = last + u64::from(within > 0);
            let gone: Vec<u64> = self
                .pages
                .range(first_gone..)
                .map(|(page, _)| *page)
                .collect();
            for page in gone {
                self.touch(page);
                self.pages.remove(&page);
            }
            if within > 0 && self.pages.contains_key(&last) {
                self.touch(last)[within..].fill(0);
            }
        }
        self.bytes = bytes;
    }

    pub(super) fn begin_sync(&mut self) {
        self.syncing = Some(Syncing {
            bytes: self.bytes,
            before: BTreeMap::new(),
        });
    }

    pub(super) fn end_sync(&mut self) {
        if let Some(syncing) = self.syncing.take() {
            self.before = syncing.before;
            self.durable_bytes = syncing.bytes;
        }
    }

    pub(super) fn lose(&mut self, draw: &mut Draw) -> Lost {
        let mut lost = Lost::default();
        self.syncing = None;
        let mut end = self.durable_bytes;
        for (page, old) in std::mem::take(&mut self.before) {
            let kept = self.pages.remove(&page);
            let (is_kept, now) = draw.page(old, kept, &mut lost);
            if is_kept {
                end = end.max(self.bytes.min((page + 1) * PAGE as u64));
            }
            now.map(|now| self.pages.insert(page, now));
        }
        let resized = self.bytes != self.durable_bytes && draw.one_of(2) == 1;
        let bytes = if resized { self.bytes } else { end };
        // This code sets the bytes behind the file's end to zero, so that they do not come back in a later
        // write.
        self.bytes = self.bytes.max(end).max(bytes) + 1;
        self.resize(bytes);
        // The contents that remain after the loss of power are durable.
        self.begin_sync();
        self.end_sync();
        lost
    }
}

impl Directory {
    pub(super) fn change(&mut self, change: Change) {
        apply(&mut self.entries, &change);
        self.changes.push(change);
    }

    pub(super) fn begin_sync(&mut self) {
        self.syncing = self.changes.len();
    }

    pub(super) fn end_sync(&mut self) {
        for change in self.changes.drain(..std::mem::take(&mut self.syncing)) {
            apply(&mut self.durable, &change);
        }
    }

    /// Keeps the first changes of names, up to a number drawn at random, and drops the others.
    pub(super) fn lose(&mut self, draw: &mut Draw) -> Lost {
        let changes = std::mem::take(&mut self.changes);
        self.syncing = 0;
        let kept = draw.one_of(changes.len() as u64 + 1);
        let done = changes.iter().take(kept as usize);
        done.for_each(|change| apply(&mut self.durable, change));
        self.entries.clone_from(&self.durable);
        Lost {
            names: changes.len() as u64 - kept,
            ..Lost::default()
        }
    }

    /// Returns the inodes to which names refer now, or may refer after a loss of power.
    pub(super) fn named(&self) -> impl Iterator<Item = u64> {
        let changed = self.changes.iter().flatten().filter_map(|(_, ino)| *ino);
        let entries = self.entries.values().chain(self.durable.values());
        entries.copied().chain(changed)
    }
}

fn apply(entries: &mut BTreeMap<OsString, u64>, change: &Change) {
    for (name, ino) in change {
        match ino {
            Some(ino) => entries.insert(name.clone(), *ino),
            None => entries.remove(name),
        };
    }
}

/// Splits bytes from `offset` on into pieces, one for each page: the page's number, the offset in the page,
/// and the range of the bytes.
fn pieces(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let here = offset + at as u64;
        let within = (here % PAGE as u64) as usize;
        let n = (PAGE - within).min(len - at);
        let piece = (here / PAGE as u64, within, at..at + n);
        at += n;
        (n > 0).then_some(piece)
    })
}

/// The random choices of a loss of power (xorshift). Seed 0 makes the loss destroy every unsynced change.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn new(loss: Loss) -> Self {
        Self(match loss {
            Loss::All => 0,
            Loss::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        })
    }

    /// Draws a number from 0 up to `n` - 1.
    const fn one_of(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// Draws if a page keeps its old content, its new content or a mixture. Returns whether any part of the
    /// new content survives.
    fn page(
        &mut self,
        old: Option<Page>,
        new: Option<Page>,
        lost: &mut Lost,
    ) -> (bool, Option<Page>) {
        match self.one_of(3) {
            0 => {
                lost.pages += 1;
                (false, old)
            }
            1 => {
                lost.kept += 1;
                (true, new)
            }
            _ => {
                lost.torn += 1;
                let mut page = old.unwrap_or_else(|| Box::new([0; PAGE]));
                let new = new.unwrap_or_else(|| Box::new([0; PAGE]));
                for (old, new) in page.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
                    if self.one_of(2) == 1 {
                        old.copy_from_slice(new);
                    }
                }
                (true, Some(page))
            }
        }
    }
}
