//! The handlers of the bench `handlers`, which do real work, and the count that proves that a contestant
//! handled each item once.
//!
//! A handler does the same work for every contestant. [`Checked`] stands between contestant and handler: it
//! counts the items that the contestant gives to the handler, and answers each item with a number that
//! belongs to this item alone.

mod append;
mod cpu;
mod http;
mod memory;
#[cfg(feature = "peers")]
mod postgres;
#[cfg(feature = "peers")]
mod sqlite;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use tokio::runtime::Runtime;

use super::cell::Kind;
use crate::rounds::Failure;

/// One item that a caller hands to a contestant, for the contestant to batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// The item's id. The ids of a run start at 0, and each occurs once.
    pub(super) id: u64,
    /// The item's key, drawn by Zipf's law, by which the upserting handler finds duplicates.
    pub(super) key: u32,
}

impl Item {
    /// Returns the answer to this item, which differs from the answers to all other items, so that a confused
    /// answer shows.
    pub(super) const fn answer(self) -> u64 {
        let mixed = (self.id ^ 0x5851_F42D_4C95_7F2D).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 29)
    }
}

/// The result of a method of a handler that awaits, as a boxed future so that all handlers have one type.
pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// A handler that awaits. It may handle several batches at once.
pub(super) trait AsyncWork: Send + Sync {
    /// Empties the handler's store before a run, so that the run's count begins at 0.
    fn empty(&self) -> Pending<'_, ()>;
    /// Handles a batch of items, which is never empty.
    fn handle<'a>(&'a self, items: &'a [Item]) -> Pending<'a, ()>;
    /// Returns the number of items in the handler's store, to check that no item is missing.
    fn stored(&self) -> Pending<'_, u64>;
}

/// A handler that blocks its thread, one batch at a time.
pub(super) trait BlockingWork: Send + Sync {
    /// Empties the handler's store before a run, so that the run's count begins at 0.
    fn empty(&self) -> Result<(), Failure>;
    /// Handles a batch of items, which is never empty.
    fn handle(&self, items: &[Item]) -> Result<(), Failure>;
    /// Returns the number of items in the handler's store, to check that no item is missing.
    fn stored(&self) -> Result<u64, Failure>;
}

/// The handler of a cell, which either awaits or blocks its thread.
#[derive(Clone)]
pub(super) enum Work {
    Async(Arc<dyn AsyncWork>),
    Blocking(Arc<dyn BlockingWork>),
}

impl Work {
    /// Checks that the programs that a handler needs are installed, so that a long run does not fail in the
    /// middle.
    ///
    /// # Errors
    ///
    /// A program is missing ([`tidegate_cli::Usage`]).
    pub(super) fn check(kind: Kind) -> anyhow::Result<()> {
        #[cfg(feature = "peers")]
        if kind == Kind::Postgres {
            crate::postgres::programs()?;
        }
        let _ = kind;
        Ok(())
    }

    /// Starts the handler of a cell, with its files below `directory`.
    ///
    /// # Errors
    ///
    /// The handler needs a program that is not installed ([`tidegate_cli::Usage`]), or it does not start.
    pub(super) fn start(kind: Kind, runtime: &Runtime, directory: &Path) -> anyhow::Result<Self> {
        Ok(match kind {
            Kind::Http => Self::Async(Arc::new(http::Endpoint::start()?)),
            Kind::Append => Self::Blocking(Arc::new(append::Append::open(directory)?)),
            Kind::Padded => Self::Blocking(Arc::new(cpu::Padded::default())),
            Kind::Upsert => Self::Blocking(Arc::new(cpu::Upsert::default())),
            Kind::Memory => Self::Async(Arc::new(memory::Memory::default())),
            #[cfg(feature = "peers")]
            Kind::Sqlite => Self::Blocking(Arc::new(sqlite::Sqlite::open(directory)?)),
            #[cfg(feature = "peers")]
            Kind::Postgres => Self::Async(Arc::new(postgres::Postgres::start(runtime, directory)?)),
            #[cfg(not(feature = "peers"))]
            Kind::Sqlite | Kind::Postgres => {
                let _ = runtime;
                return Err(super::not_built(kind.name()).into());
            }
        })
    }

    pub(super) async fn empty(&self) -> Result<(), Failure> {
        match self {
            Self::Async(work) => work.empty().await,
            Self::Blocking(work) => work.empty(),
        }
    }

    pub(super) async fn stored(&self) -> Result<u64, Failure> {
        match self {
            Self::Async(work) => work.stored().await,
            Self::Blocking(work) => work.stored(),
        }
    }
}

/// The handler of one run, with counts of the items that it has handled, by which the bench finds lost items.
pub(super) struct Checked {
    work: Work,
    items: AtomicU64,
    batches: AtomicU64,
    /// The sum of the answers that the handler has given: a lost or repeated item changes the sum.
    sum: AtomicU64,
    cancelled: AtomicBool,
    failed: OnceLock<Failure>,
}

/// The number of items of a run and the sum of their answers, as the callers or the handler counted them. The
/// bench compares both counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) items: u64,
    /// The sum of the answers to the counted items.
    pub(super) sum: u64,
}

impl Checked {
    pub(super) fn new(work: Work) -> Self {
        Self {
            work,
            items: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            cancelled: AtomicBool::new(false),
            failed: OnceLock::new(),
        }
    }

    /// Returns whether the handler blocks its thread, so that it must not run on the runtime's threads.
    pub(super) const fn blocks(&self) -> bool {
        matches!(self.work, Work::Blocking(_))
    }

    /// Handles a batch, and returns one answer for each item, in order. If the handler blocks, it runs on a
    /// thread of tokio's pool for blocking calls.
    pub(super) async fn handle(self: &Arc<Self>, items: Vec<Item>) -> Result<Vec<u64>, Failure> {
        match &self.work {
            Work::Async(_) if self.cancelled.load(Relaxed) => Ok(self.count(&items)),
            Work::Async(work) => match work.handle(&items).await {
                Ok(()) => Ok(self.count(&items)),
                Err(failure) => Err(self.fail(failure)),
            },
            Work::Blocking(_) => {
                let this = Arc::clone(self);
                let handled = tokio::task::spawn_blocking(move || this.handle_blocking(&items));
                handled.await.map_err(|e| e.to_string())?
            }
        }
    }

    /// Handles a batch on the calling thread, which may block and must not belong to the runtime.
    pub(super) fn handle_blocking(&self, items: &[Item]) -> Result<Vec<u64>, Failure> {
        if !self.cancelled.load(Relaxed) {
            let handled = match &self.work {
                Work::Blocking(work) => work.handle(items),
                Work::Async(_) => Err("this handler awaits".to_owned()),
            };
            handled.map_err(|failure| self.fail(failure))?;
        }
        Ok(self.count(items))
    }

    /// Makes the handler answer all later batches without work. The load generator calls this once it has
    /// given up on a contestant, so that the contestant's backlog ends soon.
    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Relaxed);
    }

    /// Returns the count of the items that the handler has handled so far, to compare it with the callers'.
    pub(super) fn tally(&self) -> Tally {
        Tally {
            items: self.items.load(Relaxed),
            sum: self.sum.load(Relaxed),
        }
    }

    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Returns the first failure of the handler; `None` if it has not failed.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failed.get().cloned()
    }

    fn count(&self, items: &[Item]) -> Vec<u64> {
        let answers: Vec<u64> = items.iter().map(|item| item.answer()).collect();
        let sum = answers.iter().fold(0_u64, |sum, n| sum.wrapping_add(*n));
        self.items.fetch_add(items.len() as u64, Relaxed);
        self.sum.fetch_add(sum, Relaxed);
        self.batches.fetch_add(1, Relaxed);
        answers
    }

    fn fail(&self, failure: Failure) -> Failure {
        let _ = self.failed.set(failure.clone());
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: u64) -> Item {
        Item { id, key: 0 }
    }

    #[test]
    fn a_lost_and_a_repeated_item_change_the_tally() {
        let tally = |ids: &[u64]| {
            let checked = Checked::new(Work::Blocking(Arc::new(cpu::Upsert::default())));
            for &id in ids {
                checked.handle_blocking(&[item(id)]).unwrap();
            }
            checked.tally()
        };
        assert_eq!(tally(&[1, 2, 3]), tally(&[3, 1, 2]));
        assert_ne!(tally(&[1, 2, 3]), tally(&[1, 2]));
        assert_ne!(tally(&[1, 2, 3]), tally(&[1, 2, 2]));
    }

    #[test]
    fn a_cancelled_handler_answers_without_work() {
        let store = Arc::new(cpu::Upsert::default());
        let work: Arc<dyn BlockingWork> = store.clone();
        let checked = Checked::new(Work::Blocking(work));
        checked.cancel();
        let answers = checked.handle_blocking(&[item(1), item(2)]).unwrap();
        assert_eq!(answers, [item(1).answer(), item(2).answer()]);
        assert_eq!((checked.tally().items, store.stored().unwrap()), (2, 0));
    }
}
