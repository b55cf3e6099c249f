//! What the tests share: a store whose wake-ups can be waited for, and entries whose content tells where they belong.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_log::SimDisk;
use tidegate_server::replica::Committed;
use tidegate_server::store::{Fetch, OpenError, Opening, Options, Replayed, Store, WriteError};
use tidegate_server::stream::{Encoder, Place};

/// Far enough away that only a bug comes there.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Counts wake-ups.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn rung(&self) -> u64 {
        *self.rung.lock().unwrap()
    }

    /// Waits for a wake-up after the `seen`th, briefly: some conditions change without one.
    fn wait(&self, seen: u64) {
        let rung = self.rung.lock().unwrap();
        let later = |rung: &mut u64| *rung <= seen;
        drop(self.changed.wait_timeout_while(rung, Duration::from_millis(20), later));
    }
}

/// A store with what its loop would have.
pub(crate) struct Node {
    pub(crate) store: Store,
    bell: Arc<Bell>,
    /// What was applied, replayed or not.
    pub(crate) applied: Vec<Committed>,
    /// How much of it was replayed.
    pub(crate) replayed: usize,
}

/// Small segments, and the same salts every time.
pub(crate) fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        seed: Some(7),
        ..Options::default()
    }
}

/// Two simulated disks: for checkpoints, for the log.
#[derive(Clone, Default)]
pub(crate) struct Disks {
    pub(crate) state: SimDisk,
    pub(crate) log: SimDisk,
}

impl Node {
    pub(crate) fn at(dir: &Path) -> Self {
        Self::begin(|waker| Opening::begin(dir, options(), waker)).unwrap()
    }

    pub(crate) fn on(disks: &Disks) -> Result<Self, OpenError> {
        let (state, log) = (Arc::new(disks.state.clone()), Arc::new(disks.log.clone()));
        Self::begin(|waker| Opening::on(state, log, options(), waker))
    }

    pub(crate) fn begin(
        open: impl FnOnce(tidegate_server::store::Waker) -> Result<Opening, OpenError>,
    ) -> Result<Self, OpenError> {
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        let opening = open(Arc::new(move || rung.ring()))?;
        let mut applied = Vec::new();
        let store = opening.replay(|replayed| {
            if let Replayed::Entry(entry) = replayed {
                applied.push(entry);
            }
        })?;
        let replayed = applied.len();
        Ok(Self {
            store,
            bell,
            applied,
            replayed,
        })
    }

    /// One turn of the loop.
    pub(crate) fn turn(&mut self) {
        self.store.poll().unwrap();
        while let Some(entry) = self.store.poll_due() {
            self.applied.push(entry);
        }
    }

    /// Turns until it is so.
    pub(crate) fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            let seen = self.bell.rung();
            self.turn();
            if let Some(done) = done(self) {
                return done;
            }
            assert!(start.elapsed() < PATIENCE, "not in time");
            self.bell.wait(seen);
        }
    }

    /// Proposes as soon as there is room; the index.
    pub(crate) fn propose(&mut self, data: &Bytes) -> u64 {
        self.until(|node| match node.store.propose(data.clone(), 1) {
            Ok(proposed) => Some(proposed.index),
            Err(WriteError::Full) => None,
            Err(error) => panic!("{error}"),
        })
    }

    /// Waits until the entry of this index was applied.
    pub(crate) fn applied(&mut self, index: u64) {
        self.until(|node| node.applied.last().filter(|e| e.index >= index).map(drop));
    }

    /// What is at a place, waited for.
    pub(crate) fn read(&mut self, place: Place) -> Fetch {
        self.until(|node| Some(node.store.read(place)).filter(|f| *f != Fetch::Pending))
    }
}

/// An entry with so many messages for stream 1, each of `len` bytes that depend on their numbers; and where the messages begin.
pub(crate) fn entry(number: u64, messages: u64, len: usize) -> (Bytes, Vec<u32>) {
    let mut buffer = Vec::new();
    let mut encoder = Encoder::begin(&mut buffer, 1_000_000 + number);
    let offsets = (0..messages).map(|n| {
        let payload = vec![(number * 31 + n) as u8; len];
        encoder.publish(1, b"a.b", None, &payload).unwrap()
    });
    let offsets = offsets.collect();
    (buffer.into(), offsets)
}
