//! Provides the shared parts of the tests: a store with its loop, which can wait for wake-ups.

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::SimDisk;
use tidegate_raft::store::{
    Due, Fetch, OpenError, Opening, Options, Parts, Store, Waker, WriteError,
};
use tidegate_stream::stream::{Command, Place};

use crate::toy::{self, Toy};

/// The time for which a test waits for the store; only a bug makes it wait so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Counts the store's wake-ups, so that the loop can wait for the next one.
#[derive(Default)]
struct Bell {
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

    /// Waits for a wake-up of the store after the `seen`th.
    fn wait(&self, seen: u64) {
        let rung = self.rung.lock().unwrap();
        let (rung, _) = self
            .changed
            .wait_timeout_while(rung, PATIENCE, |rung| *rung <= seen)
            .unwrap();
        assert!(*rung > seen, "no wake-up in time");
    }
}

/// Makes options with small segments, and with equal salts in each run.
pub(crate) fn options() -> Options {
    Options {
        segment_bytes: 64 << 10,
        checkpoint_bytes_min: 128 << 10,
        seed: Some(7),
        ..Options::default()
    }
}

/// The two simulated disks of a node: one for checkpoints, one for the log.
#[derive(Clone, Default)]
pub(crate) struct Disks {
    pub(crate) state: SimDisk,
    pub(crate) log: SimDisk,
}

impl Disks {
    /// Copies the disks for another process, as if all written bytes were durable.
    pub(crate) fn copy(&self) -> Self {
        Self {
            state: self.state.copy(),
            log: self.log.copy(),
        }
    }
}

/// A store with the parts that the server's loop would have.
pub(crate) struct Node {
    pub(crate) store: Store,
    pub(crate) toy: Toy,
    /// Every entry that the node has applied, replayed or not, with its place and its index.
    pub(crate) entries: Vec<(u64, u64, Bytes)>,
    /// The number of entries that the node's start replayed.
    pub(crate) replayed: usize,
    /// The number of checkpoints for which the store has asked.
    pub(crate) checkpoints: usize,
    bell: Arc<Bell>,
}

impl Node {
    pub(crate) fn at(dir: &Path) -> Self {
        Self::begin(|waker| Opening::begin(dir, options(), waker)).unwrap()
    }

    pub(crate) fn on(disks: &Disks) -> Result<Self, OpenError> {
        Self::with(disks, options())
    }

    pub(crate) fn with(disks: &Disks, options: Options) -> Result<Self, OpenError> {
        let (state, log) = (Arc::new(disks.state.clone()), Arc::new(disks.log.clone()));
        Self::begin(|waker| Opening::on(state, log, options, waker))
    }

    fn begin(open: impl FnOnce(Waker) -> Result<Opening, OpenError>) -> Result<Self, OpenError> {
        let bell = Arc::new(Bell::default());
        let rung = Arc::clone(&bell);
        let mut opening = open(Arc::new(move || rung.ring()))?;
        let state = opening.take_state(GroupSlot::DIRECTORY);
        let mut toy = state.map_or_else(Toy::default, |state| Toy::restore(&state));
        let mut entries = Vec::new();
        let store = opening.replay(|_, due, live| {
            if let Due::Entry(entry) = &due {
                entries.push((entry.lsn.get(), entry.index.get(), entry.data.clone()));
            }
            toy.handle(due, live);
        })?;
        Ok(Self {
            replayed: entries.len(),
            store,
            toy,
            entries,
            checkpoints: 0,
            bell,
        })
    }

    /// Runs one turn of the loop: polls the store and carries out its requests.
    pub(crate) fn turn(&mut self) {
        self.store.poll().unwrap();
        while let Some((_, due)) = self.store.poll_due() {
            if let Due::Entry(entry) = &due {
                self.entries
                    .push((entry.lsn.get(), entry.index.get(), entry.data.clone()));
            }
            self.toy
                .handle(due, self.store.live_mut(GroupSlot::DIRECTORY));
        }
        if let Some(asked) = self.store.poll_lying() {
            let (lying, next) = self.toy.residents_in(&asked);
            self.store.handle_lying(lying, next);
        }
        if self.store.wants_checkpoint(GroupSlot::DIRECTORY) {
            self.checkpoint();
        }
    }

    pub(crate) fn checkpoint(&mut self) {
        let parts: Parts = Box::new(self.toy.parts().into_iter());
        self.store.begin_checkpoint(GroupSlot::DIRECTORY);
        self.store.checkpoint(GroupSlot::DIRECTORY, parts);
        self.checkpoints += 1;
    }

    /// Runs turns of the loop until `done` returns a value.
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

    /// Proposes an entry as soon as the store has room, and returns the entry's index.
    pub(crate) fn propose(&mut self, data: &Bytes) -> u64 {
        self.until(
            |node| match node.store.propose(GroupSlot::DIRECTORY, data.clone(), 1) {
                Ok(proposed) => Some(proposed.index.get()),
                Err(WriteError::Full) => None,
                Err(error) => panic!("{error}"),
            },
        )
    }

    /// Proposes an entry, and waits until the node has applied it.
    pub(crate) fn write(&mut self, data: &Bytes) {
        let index = self.propose(data);
        self.applied(index);
    }

    /// Waits until the node has applied the entry with this index.
    pub(crate) fn applied(&mut self, index: u64) {
        self.until(|node| (node.toy.index >= index).then_some(()));
    }

    /// Returns whether another thread works for the store on a checkpoint.
    pub(crate) fn is_busy(&self) -> bool {
        self.store.is_checkpointing(GroupSlot::DIRECTORY)
    }

    /// Waits until no thread writes a checkpoint any more.
    pub(crate) fn settled(&mut self) {
        self.until(|node| (!node.store.is_checkpointing(GroupSlot::DIRECTORY)).then_some(()));
    }

    /// Reads a place through the store, and waits for the result.
    pub(crate) fn read(&mut self, place: Place) -> Fetch {
        self.until(|node| {
            Some(node.store.read(GroupSlot::DIRECTORY, place)).filter(|f| *f != Fetch::Pending)
        })
    }

    /// Reads every message and compares it with the stored one. Runs turns of the loop while copies have not
    /// arrived.
    pub(crate) fn check_messages(&mut self) {
        self.check_contents(|seq, bytes| toy::payload(seq, bytes as usize));
    }

    /// Checks messages as [`check_messages`](Self::check_messages) does, with payloads that `wanted` returns
    /// by number and length.
    pub(crate) fn check_contents(&mut self, wanted: impl Fn(u64, u32) -> Vec<u8>) {
        let messages: Vec<_> = self.toy.messages.keys().copied().collect();
        for seq in messages {
            self.until(|node| {
                let (place, bytes) = node.toy.messages[&seq];
                match node.store.read(GroupSlot::DIRECTORY, place) {
                    Fetch::Ready(entry) => {
                        let command = Command::read(&entry, 0).unwrap();
                        let same = command.payload == wanted(seq, bytes);
                        assert!(same, "message {seq} at {place:?}");
                        Some(())
                    }
                    Fetch::Pending => None,
                    other => panic!("message {seq} at {place:?}: {other:?}"),
                }
            });
        }
    }
}
