//! The state that the senders of one client share with its I/O task, so that messages and results pass
//! between them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tidegate::queue::Queue;
use tokio::sync::{Notify, watch};

use super::front::{Filling, Front, Refused};
use super::producer::Item;
use crate::error::LinkError;
use crate::stats::ClientCounters;
use crate::{Seq, SessionId};

/// The front, the counters and the flags that the senders of one client share with its I/O task.
#[derive(Debug)]
pub(crate) struct Shared {
    front: Mutex<Front>,
    /// Wakes the senders that wait for room, once the front's block has room for messages again.
    pub(super) room: Notify,
    /// The highest acknowledged message number. The I/O task owns the watch's sender, so the watch ends with
    /// the task.
    pub(super) acked: watch::Receiver<Seq>,
    /// The highest number of a message that the operating system has accepted whole, for tasks that wait for
    /// a flush.
    pub(super) written: watch::Receiver<Seq>,
    pub(super) queue: Queue<Item>,
    /// The reason why the client's I/O task ended. The task sets the reason before the watches end, so that a
    /// task that sees a watch end finds it.
    ended: OnceLock<LinkError>,
    /// True if the client has, or had, a producer: then the I/O task must look at the queue.
    producers: AtomicBool,
    /// True if the client is closed and takes no more messages.
    closed: AtomicBool,
    /// True if the program has dropped the last handle of the client: the I/O task then ends at once.
    stopped: AtomicBool,
    pub(super) counters: Arc<ClientCounters>,
    pub(super) resumed_at: Seq,
    pub(super) session: Option<SessionId>,
    pub(super) when_done: bool,
    pub(super) payload_max: usize,
}

/// The facts about a client that its I/O task learns from the first connection, and that senders need: they
/// do not change later.
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
        // A panic in an iterator of `send_many` leaves the front consistent, because the front takes each
        // message whole or not at all.
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

    /// Encodes the items of `rest` until the iterator ends or an item does not fit; that item stays in
    /// `held`. The front's lock is free while the iterator runs, so the iterator may block or send messages
    /// itself.
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

    /// Returns the number of the last message that the client took from a sender, up to which a caller may
    /// wait.
    pub(super) fn last(&self) -> Seq {
        self.front().last()
    }

    /// Closes the client for senders; the I/O task still sends the messages that they gave before the close.
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

    /// Records that the client has a producer, and wakes the I/O task so that it looks at the queue.
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

    /// Makes the I/O task end at once; the task waits for no acknowledgement.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.close();
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Ends the client: records the reason for the tasks that wait on it. The watches end after this call.
    pub(super) fn end(&self, why: LinkError) {
        // The first reason for the client's end counts: a later one does not replace it.
        let _ = self.ended.set(why);
        self.close();
    }

    /// Returns the reason why the client ended, for the errors of later calls.
    pub(super) fn ended(&self) -> LinkError {
        self.ended.get().cloned().unwrap_or(LinkError::Closed)
    }
}

/// The front's block while one sender borrows it. Its drop gives the block back to the front, also in a
/// panic.
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
        // The sender that borrowed the block wakes other senders only if one of them found the block lent. It
        // wakes no sender that waits for room, because only the I/O task makes room.
        if missed {
            self.shared.room.notify_waiters();
        }
        if let Some(io) = sleeper {
            io.wake();
        }
    }
}
