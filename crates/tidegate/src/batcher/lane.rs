//! Stand-in for the queue until it is here: a locked deque.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::reply::lock;

struct State<E> {
    queue: VecDeque<E>,
    closed: bool,
    consumer: Option<Waker>,
    producers: Vec<Waker>,
}

struct Lane<E> {
    capacity: usize,
    state: Mutex<State<E>>,
    filled: Condvar,
    freed: Condvar,
}

pub(super) struct Sender<E>(Arc<Lane<E>>);
pub(super) struct Receiver<E>(Arc<Lane<E>>);

pub(super) enum Refused<E> {
    Full(E),
    Closed(E),
}

pub(super) fn lane<E>(capacity: usize) -> Result<(Sender<E>, Receiver<E>), super::SpawnError> {
    let lane = Arc::new(Lane {
        capacity,
        state: Mutex::new(State {
            queue: VecDeque::with_capacity(capacity),
            closed: false,
            consumer: None,
            producers: Vec::new(),
        }),
        filled: Condvar::new(),
        freed: Condvar::new(),
    });
    Ok((Sender(Arc::clone(&lane)), Receiver(lane)))
}

impl<E> Sender<E> {
    pub(super) fn try_push(&self, e: E) -> Result<(), Refused<E>> {
        let mut s = lock(&self.0.state);
        if s.closed {
            return Err(Refused::Closed(e));
        }
        if s.queue.len() >= self.0.capacity {
            return Err(Refused::Full(e));
        }
        s.queue.push_back(e);
        let w = s.consumer.take();
        drop(s);
        self.0.filled.notify_one();
        if let Some(w) = w {
            w.wake();
        }
        Ok(())
    }

    pub(super) fn push(&self, mut e: E) -> Result<(), E> {
        loop {
            match self.try_push(e) {
                Ok(()) => return Ok(()),
                Err(Refused::Closed(e)) => return Err(e),
                Err(Refused::Full(back)) => e = back,
            }
            let s = lock(&self.0.state);
            if s.queue.len() >= self.0.capacity && !s.closed {
                drop(super::reply::wait(&self.0.freed, s));
            }
        }
    }

    pub(super) async fn push_async(&self, e: E) -> Result<(), E> {
        let mut slot = Some(e);
        poll_fn(|cx| {
            let Some(e) = slot.take() else {
                return Poll::Ready(Ok(()));
            };
            match self.try_push(e) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(Refused::Closed(e)) => Poll::Ready(Err(e)),
                Err(Refused::Full(e)) => {
                    slot = Some(e);
                    let mut s = lock(&self.0.state);
                    if s.queue.len() < self.0.capacity || s.closed {
                        cx.waker().wake_by_ref();
                    } else {
                        s.producers.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    pub(super) fn close(&self) {
        let mut s = lock(&self.0.state);
        s.closed = true;
        self.0.wake_all(s);
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.0.state).closed
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0.state).queue.len()
    }
}

impl<E> Lane<E> {
    fn wake_all(&self, mut s: std::sync::MutexGuard<'_, State<E>>) {
        let c = s.consumer.take();
        let p = std::mem::take(&mut s.producers);
        drop(s);
        self.filled.notify_all();
        self.freed.notify_all();
        c.into_iter().chain(p).for_each(Waker::wake);
    }
}

impl<E> Receiver<E> {
    pub(super) fn drain(&mut self, max: usize, mut f: impl FnMut(E)) -> usize {
        let mut s = lock(&self.0.state);
        let n = s.queue.len().min(max);
        s.queue.drain(..n).for_each(&mut f);
        let p = std::mem::take(&mut s.producers);
        drop(s);
        if n > 0 {
            self.0.freed.notify_all();
            p.into_iter().for_each(Waker::wake);
        }
        n
    }

    /// Until something is there, the lane is closed, or the deadline passed.
    pub(super) fn wait(&mut self, deadline: Option<Instant>) {
        let mut s = lock(&self.0.state);
        while s.queue.is_empty() && !s.closed {
            match deadline {
                None => s = super::reply::wait(&self.0.filled, s),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return;
                    }
                    s = super::reply::wait_timeout(&self.0.filled, s, left);
                }
            }
        }
    }

    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut s = lock(&self.0.state);
        if !s.queue.is_empty() || s.closed {
            return Poll::Ready(());
        }
        s.consumer = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.0.state).queue.len()
    }
}
