//! The ownership of sessions. A session outlives its connections: the server keeps its position, its handler
//! and its epoch between them. The newest of several connections that claim a session wins.
//!
//! Each session is one entry with one lock that the owning connection holds as long as it lives. A newcomer
//! raises the entry's count of claims, which the owner watches; the owner lets go after the batch in its
//! handler's hands, and the newcomer takes over. Bounded: with as many sessions as allowed, the server
//! forgets the session that is idle for longest; if none is idle it refuses a new one.

use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Mutex as Turn, OwnedMutexGuard, watch};

use super::done::Reports;
use crate::hello::Hello;
use crate::{Seq, SessionId};

/// The state the server keeps of a session without a connection.
#[derive(Debug)]
pub(crate) struct Kept<H> {
    pub(crate) handler: H,
    /// The place where the handler reports messages as done.
    pub(crate) reports: Arc<Reports>,
    pub(crate) epoch: u64,
    pub(crate) received: Seq,
    pub(crate) acked: Seq,
}

/// The sessions of one server.
#[derive(Debug)]
pub(crate) struct Sessions<H> {
    entries: Mutex<Entries<H>>,
    max: usize,
}

#[derive(Debug)]
struct Entries<H> {
    by_id: HashMap<SessionId, Arc<Entry<H>>>,
    /// Counts uses, to find the session that is idle for longest.
    clock: u64,
}

#[derive(Debug)]
struct Entry<H> {
    /// The connection that owns the session holds this lock. `None`: the server has no state, yet or any
    /// more.
    turn: Arc<Turn<Option<Kept<H>>>>,
    /// The number of connections that have claimed the session: only the newest may keep it.
    claims: watch::Sender<u64>,
    /// The life of the client that came last: see [`Hello::life`].
    client: Mutex<Option<u64>>,
    used: AtomicU64,
}

/// The reasons why a connection cannot get its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// All sessions are in use.
    Full,
    /// A newer connection claimed the session meanwhile.
    Displaced,
    /// The connection that owns the session does not release it.
    Held,
}

/// A session in the hands of one connection.
#[derive(Debug)]
pub(crate) struct Lease<H> {
    kept: OwnedMutexGuard<Option<Kept<H>>>,
    claims: watch::Receiver<u64>,
    mine: u64,
}

impl<H> Sessions<H> {
    pub(crate) fn new(max: usize) -> Self {
        let entries = Entries {
            by_id: HashMap::new(),
            clock: 0,
        };
        Self {
            entries: Mutex::new(entries),
            max,
        }
    }

    /// Takes over the session that `hello` names. Waits at most `patience` for the connection that owns it. A
    /// displaced client cannot take the session back from the client that displaced it.
    pub(crate) async fn claim(
        &self,
        hello: &Hello,
        patience: Duration,
    ) -> Result<Lease<H>, Unavailable> {
        let entry = self.entry(hello.session)?;
        let mut mine = 0;
        {
            let mut client = entry.client.lock().unwrap_or_else(PoisonError::into_inner);
            if hello.epoch != 0 && client.is_some_and(|life| life != hello.life) {
                return Err(Unavailable::Displaced);
            }
            *client = Some(hello.life);
            entry.claims.send_modify(|claims| {
                *claims += 1;
                mine = *claims;
            });
        }
        let mut claims = entry.claims.subscribe();
        let turn = tokio::time::timeout(patience, entry.turn.clone().lock_owned());
        let kept = turn.await.map_err(|_| Unavailable::Held)?;
        if *claims.borrow_and_update() != mine {
            return Err(Unavailable::Displaced);
        }
        Ok(Lease { kept, claims, mine })
    }

    /// Returns how many sessions the server knows.
    pub(crate) fn len(&self) -> usize {
        self.lock().by_id.len()
    }

    fn entry(&self, id: SessionId) -> Result<Arc<Entry<H>>, Unavailable> {
        let mut entries = self.lock();
        entries.clock += 1;
        let now = entries.clock;
        if let Some(entry) = entries.by_id.get(&id) {
            entry.used.store(now, Relaxed);
            return Ok(entry.clone());
        }
        if entries.by_id.len() >= self.max {
            // An idle entry has no other clone: connections clone entries under this lock.
            let idle = entries
                .by_id
                .iter()
                .filter(|(_, entry)| {
                    Arc::strong_count(entry) == 1 && Arc::strong_count(&entry.turn) == 1
                })
                .min_by_key(|(_, entry)| entry.used.load(Relaxed))
                .map(|(id, _)| *id);
            let idle = idle.ok_or(Unavailable::Full)?;
            entries.by_id.remove(&idle);
        }
        let entry = Arc::new(Entry {
            turn: Arc::new(Turn::new(None)),
            claims: watch::Sender::new(0),
            client: Mutex::new(None),
            used: now.into(),
        });
        entries.by_id.insert(id, entry.clone());
        Ok(entry)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries<H>> {
        // Nothing panics under the lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> Lease<H> {
    /// Resolves when everything received is done.
    pub(crate) fn settled(&self) -> impl Future<Output = ()> + Send + use<H> {
        let kept = self.kept.as_ref();
        let owed = kept.map(|kept| (kept.reports.clone(), kept.received));
        poll_fn(move |cx| {
            let Some((reports, received)) = &owed else {
                return Poll::Ready(());
            };
            reports.register(cx.waker());
            if reports.done() < *received {
                return Poll::Pending;
            }
            Poll::Ready(())
        })
    }

    /// Takes the kept state out; [`keep`](Self::keep) puts it back. The server forgets a state that is not
    /// put back.
    pub(crate) fn take(&mut self) -> Option<Kept<H>> {
        self.kept.take()
    }

    /// Keeps the state for the next connection.
    pub(crate) fn keep(&mut self, kept: Kept<H>) {
        *self.kept = Some(kept);
    }

    /// Resolves when a newer connection wants the session.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + Send + use<H> {
        let (mut claims, mine) = (self.claims.clone(), self.mine);
        // The sender lives in the entry, and an entry in use is not forgotten.
        async move { drop(claims.wait_for(|claims| *claims != mine).await) }
    }
}
