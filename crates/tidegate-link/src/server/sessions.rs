//! The ownership of a server's sessions. A session outlives its connections: between two connections the
//! server keeps the session's position, handler and epoch. If several connections claim a session, the newest
//! wins.
//!
//! Each session is one entry with one lock, which the connection that owns the session holds as long as it
//! lives. A newer connection raises the entry's count of claims, which the owner watches. The owner finishes
//! the batch that its handler has and releases the lock; then the newer connection takes over. Bounded: if
//! the server has as many sessions as it may, it forgets the session that has had no connection for longest.
//! If every session has a connection, the server refuses a new session.

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

/// The state of a session that a server keeps while the session has no connection.
#[derive(Debug)]
pub(crate) struct Kept<H> {
    pub(crate) handler: H,
    /// The place where the session's handler reports messages as done.
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
    /// A count of all openings of sessions. Each entry stores the count at its last opening, so the lowest
    /// stored count marks the session to forget first.
    clock: u64,
}

#[derive(Debug)]
struct Entry<H> {
    /// The lock that the connection holds while it owns the session. It contains `None` while the server has
    /// no state of the session, because the session is new or its state was dropped.
    turn: Arc<Turn<Option<Kept<H>>>>,
    /// The number of connections that have claimed the session so far. Only the newest of them may own the
    /// session.
    claims: watch::Sender<u64>,
    /// The life of the client that claimed the session last: see [`Hello::life`].
    client: Mutex<Option<u64>>,
    used: AtomicU64,
}

/// The reasons why a connection cannot get its session, which the server tells the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The server has as many sessions as it may, and all of them are in use.
    Full,
    /// A newer connection claimed the session before this connection got it, or another client had taken the
    /// session from this client.
    Displaced,
    /// The connection that owns the session did not release it in the time that this connection waited.
    Held,
}

/// The ownership of a session by one connection, until the connection drops this lease.
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

    /// Makes the connection that said `hello` the owner of its session. First tells the present owner to
    /// release the session, and waits for that up to `patience`; after that time it fails with
    /// [`Unavailable::Held`]. If another client has taken the session over, the earlier client cannot take it
    /// back.
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

    /// Returns how many sessions the server knows, for its counters.
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
            // Connections clone entries only under this lock, so an entry without another clone is idle.
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
        // No code panics while it holds the lock of the sessions, so the entries are whole even under a
        // poisoned lock.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<H> Lease<H> {
    /// Returns a future that resolves when the session's handler is done with every message received, so that
    /// a client in a new life can take over.
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

    /// Takes the session's state out; [`keep`](Self::keep) puts it back. If the connection does not put the
    /// state back, the server forgets it.
    pub(crate) fn take(&mut self) -> Option<Kept<H>> {
        self.kept.take()
    }

    /// Stores the session's state for the next connection of the session.
    pub(crate) fn keep(&mut self, kept: Kept<H>) {
        *self.kept = Some(kept);
    }

    /// Returns a future that resolves when a newer connection claims the session, so that this connection
    /// ends.
    pub(crate) fn displaced(&self) -> impl Future<Output = ()> + Send + use<H> {
        let (mut claims, mine) = (self.claims.clone(), self.mine);
        // The wait cannot fail: the watch's sender lives in the session's entry, and the server does not
        // forget the entry of a session that has a connection.
        async move { drop(claims.wait_for(|claims| *claims != mine).await) }
    }
}
