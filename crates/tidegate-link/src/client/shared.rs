//! The state that the senders of one client share with its I/O task.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tidegate::queue::Queue;
use tokio::sync::{Notify, watch};

use super::front::{Filling, Front, Refused};
use super::producer::Item;
use crate::error::LinkError;
use crate::stats::ClientCounters;
use crate::{Seq, SessionId};

/// The shared state of one client. See the module.
#[derive(Debug)]
pub(crate) struct Shared {
    front: Mutex<Front>,
    /// Notified when the front has room again.
    pub(super) room: Notify,
    /// The last position acknowledged. The I/O task owns the watch's sender, so the watch ends with the task.
    pub(super) acked: watch::Receiver<Seq>,
    /// The last position handed to the system.
    pub(super) written: watch::Receiver<Seq>,
    pub(super) queue: Queue<Item>,
    /// The reason why the I/O task ended; set before the watches end.
    ended: OnceLock<LinkError>,
    /// True if there is, or was, a producer: then the I/O task must look at the queue.
    producers: AtomicBool,
    /// True if the client takes no more messages.
    closed: AtomicBool,
    /// True if the last handle of the client is gone: the I/O task then ends at once.
    stopped: AtomicBool,
    pub(super) counters: Arc<ClientCounters>,
    pub(super) resumed_at: Seq,
    pub(super) session: Option<SessionId>,
    pub(super) when_done: bool,
    pub(super) payload_max: usize,
}

/// The facts a client learns when its connection opens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) resumed_at: Seq,
    pub(super) session: Option<SessionId>,
    pub(super) when_done: bool,
    pub(super) payload_max: usize,
}

impl Shared {
    pub(super) fn new(
        front: Front,
        queue: Queue<Item>,
        (acked, written): (watch::Receiver<Seq>, watch::Receiver<Seq>),
        counters: Arc<ClientCounters>,
        facts: Facts,
    ) -> Self {
        Self {
            front: Mutex::new(front),
            room: Notify::new(),
            acked,
            written,
            queue,
            ended: OnceLock::new(),
            producers: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            counters,
            resumed_at: facts.resumed_at,
            session: facts.session,
            when_done: facts.when_done,
            payload_max: facts.payload_max,
        }
    }

    /// Locks the front. Senders copy payloads under the lock, so each must hold it only briefly.
    pub(super) fn front(&self) -> MutexGuard<'_, Front> {
        // A panic in an iterator of `send_many` leaves the front consistent: the front
        // takes each message whole or not at all.
        self.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn push(&self, payload: &[u8]) -> Result<Seq, Refused> {
        let mut front = self.front();
        let seq = front.push(payload)?;
        let sleeper = front.take_sleeper();
        drop(front);
        if let Some(io) = sleeper {
            io.wake();
        }
        Ok(seq)
    }

    /// Takes the items of `rest` until the iterator ends or an item does not fit; that item stays in `held`.
    /// The iterator runs without the lock, so it may block or send.
    pub(super) fn push_many<T: AsRef<[u8]>>(
        &self,
        rest: &mut impl Iterator<Item = T>,
        held: &mut Option<T>,
    ) -> Result<Seq, Refused> {
        let mut loan = Loan {
            filling: Some(self.front().lend()?),
            shared: self,
        };
        let Some(filling) = &mut loan.filling else {
            unreachable!("it was just put there")
        };
        while let Some(payload) = held.take().or_else(|| rest.next()) {
            if let Err(refused) = filling.push(payload.as_ref()) {
                *held = Some(payload);
                return Err(refused);
            }
        }
        Ok(filling.last())
    }

    /// Returns the number of the message taken last.
    pub(super) fn last(&self) -> Seq {
        self.front().last()
    }

    /// Closes the client for senders; the I/O task drains the messages that they gave before.
    pub(super) fn close(&self) {
        self.queue.close();
        self.closed.store(true, Ordering::SeqCst);
        let mut front = self.front();
        front.close();
        let sleeper = front.take_sleeper();
        drop(front);
        self.room.notify_waiters();
        if let Some(io) = sleeper {
            io.wake();
        }
    }

    /// Records that there is a producer.
    pub(super) fn add_producer(&self) {
        self.producers.store(true, Ordering::SeqCst);
        let sleeper = self.front().take_sleeper();
        if let Some(io) = sleeper {
            io.wake();
        }
    }

    pub(super) fn has_producers(&self) -> bool {
        self.producers.load(Ordering::SeqCst)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Ends the I/O task at once.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.close();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends the client: records the reason for the tasks that wait. The I/O task's watches end after this.
    pub(super) fn end(&self, why: LinkError) {
        // If several reasons arrive, the first one counts.
        let _ = self.ended.set(why);
        self.close();
    }

    /// Returns why the client ended.
    pub(super) fn ended(&self) -> LinkError {
        self.ended.get().cloned().unwrap_or(LinkError::Closed)
    }
}

/// The block on loan to one sender. Its drop gives the block back, also in a panic.
struct Loan<'a> {
    filling: Option<Filling>,
    shared: &'a Shared,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let Some(filling) = self.filling.take() else {
            return;
        };
        let mut front = self.shared.front();
        let missed = front.give_back(filling);
        let sleeper = front.take_sleeper();
        drop(front);
        // The drop wakes other senders only if needed: the borrower itself waits for room that only the I/O
        // task makes.
        if missed {
            self.shared.room.notify_waiters();
        }
        if let Some(io) = sleeper {
            io.wake();
        }
    }
}
