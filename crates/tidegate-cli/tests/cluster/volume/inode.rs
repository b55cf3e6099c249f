//! What is in a file or a directory, and which of it is durable; what a loss of power leaves of it. Pure.

use std::collections::BTreeMap;
use std::ffi::OsString;

/// A page and a sector: what a disk writes whole.
pub(super) const PAGE: usize = 4096;
pub(super) const SECTOR: usize = 512;

type Page = Box<[u8; PAGE]>;

/// What a loss of power takes of what no sync has covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    All,
    /// Page by page, and in them sector by sector, drawn from this seed.
    Some(u64),
}

/// What was taken, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) pages: u64,
    pub(crate) torn: u64,
    /// That would have been lost, and were not.
    pub(crate) kept: u64,
    /// Changes of names.
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
    /// Those that are not zero.
    pages: BTreeMap<u64, Page>,
    pub(super) bytes: u64,
    /// Pages that were changed since the last sync, as they were then: zero if `None`.
    before: BTreeMap<u64, Option<Page>>,
    durable_bytes: u64,
    syncing: Option<Syncing>,
}

/// A sync of a file that has begun and not ended: it covers what was written before it began.
#[derive(Debug)]
struct Syncing {
    bytes: u64,
    /// Pages that were changed since it began, as they were then.
    before: BTreeMap<u64, Option<Page>>,
}

#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) entries: BTreeMap<OsString, u64>,
    durable: BTreeMap<OsString, u64>,
    /// What was done since the last sync, in order; each is done whole or not at all.
    changes: Vec<Change>,
    /// So many of them are covered by the sync that has begun.
    syncing: usize,
}

/// Names, and what they stand for from now on.
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

    /// A page that is about to change.
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
        // What lies behind the end is not to come back.
        self.bytes = self.bytes.max(end).max(bytes) + 1;
        self.resize(bytes);
        // What is there is on the disk.
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

    /// The first of the changes are kept, none or more of them.
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

    /// What names stand for, or may once the power was lost.
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

/// Where bytes from `offset` on are: the page, where in it, and which of the bytes.
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

/// Chance (xorshift); 0 is none, and everything is lost.
pub(super) struct Draw(u64);

impl Draw {
    pub(super) const fn new(loss: Loss) -> Self {
        Self(match loss {
            Loss::All => 0,
            Loss::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
        })
    }

    /// One of `0..n`.
    const fn one_of(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    /// What becomes of a page, and whether anything of the new one is there.
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
