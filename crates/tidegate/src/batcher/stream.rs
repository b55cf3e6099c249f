//! An adapter that turns the items of a stream into batches: each batch has the items that are ready, as
//! many as a controller allows.
//!
//! The adapter uses no task and no timer. Each poll makes a batch of the items that are ready at that
//! moment. A batch is never empty, and the adapter makes one only on a poll. The adapter never waits for
//! further items, so it ignores each wait that the controller asks for. A deadline around `next()` loses no
//! item, because the batch takes items only in the poll that returns them. The controller counts the time
//! until the next poll as the cost of a batch.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use crate::Clock;
use crate::boundary::{Boundary, BoundaryError, Cut};
use crate::controller::{BatchId, Bounds, BoundsError, Controller, Load, Reason};

/// Adds batching to every [`Stream`], for a consumer that handles the ready items of a stream together.
pub trait BatchedExt: Stream + Sized {
    /// Returns the items that are ready, in batches within the limits of `controller` and the default
    /// [`Bounds`]. A rule becomes a controller by its method `controller()`.
    fn batched<C: Controller>(self, controller: C) -> Batched<Self, C> {
        match self.batched_within(controller, Bounds::default()) {
            Ok(batched) => batched,
            Err(_) => unreachable!("the default bounds can be satisfied"),
        }
    }

    /// Returns the items that are ready, in batches, like [`batched`](Self::batched), but within `bounds`
    /// in place of the default bounds.
    ///
    /// # Errors
    /// No batch can satisfy the bounds.
    fn batched_within<C: Controller>(
        self,
        controller: C,
        bounds: Bounds,
    ) -> Result<Batched<Self, C>, BoundsError> {
        Ok(Batched {
            stream: Box::pin(self),
            boundary: Boundary::new(controller, bounds)?,
            clock: Clock::start(),
            running: None,
            ended: false,
        })
    }

    /// Returns batches like [`batched`](Self::batched) for a stream of results. An error in the stream ends
    /// its batch early. The adapter returns the items before the error as a batch, then the error alone, and
    /// then goes on with the results after the error.
    fn try_batched<T, E, C>(self, controller: C) -> TryBatched<Self, C, E>
    where
        Self: Stream<Item = Result<T, E>>,
        C: Controller,
    {
        TryBatched {
            batched: self.batched(controller),
            error: None,
        }
    }
}

impl<S: Stream> BatchedExt for S {}

/// A stream of the batches made from a stream of results: see [`BatchedExt::try_batched`].
pub struct TryBatched<S, C, E> {
    batched: Batched<S, C>,
    /// The error that ended the batch returned last, until the next poll returns the error; otherwise `None`.
    error: Option<E>,
}

impl<S, C: Controller, E> TryBatched<S, C, E> {
    /// Returns the boundary where the adapter cuts the batches, to read its counts and its controller.
    pub const fn boundary(&self) -> &Boundary<C> {
        self.batched.boundary()
    }

    /// Returns the controller, so that the caller can freeze or retune it.
    pub const fn controller_mut(&mut self) -> &mut C {
        self.batched.controller_mut()
    }
}

impl<S, C, E> Unpin for TryBatched<S, C, E> {}

impl<S, C, T, E> Stream for TryBatched<S, C, E>
where
    S: Stream<Item = Result<T, E>>,
    C: Controller,
{
    type Item = Result<Vec<T>, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { batched, error } = &mut *self;
        if let Some(error) = error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let mut items = Vec::new();
        let put = |result: Result<T, E>| match result {
            Ok(item) => {
                items.push(item);
                true
            }
            Err(failed) => {
                *error = Some(failed);
                false
            }
        };
        if !ready!(batched.poll_batch(cx, put)) {
            return Poll::Ready(None);
        }
        match error.take_if(|_| items.is_empty()) {
            Some(error) => Poll::Ready(Some(Err(error))),
            None => Poll::Ready(Some(Ok(items))),
        }
    }
}

impl<S, C, E> fmt::Debug for TryBatched<S, C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryBatched")
            .field("batched", &self.batched)
            .finish_non_exhaustive()
    }
}

/// A stream of the batches made from another stream's ready items: see [`BatchedExt::batched`].
pub struct Batched<S, C> {
    stream: Pin<Box<S>>,
    boundary: Boundary<C>,
    clock: Clock,
    /// The id of the batch that the stream returned last. The batch counts as running until the next poll,
    /// which reports its end.
    running: Option<BatchId>,
    ended: bool,
}

impl<S, C: Controller> Batched<S, C> {
    /// Returns the boundary where the adapter cuts the batches, to read its counts and its controller.
    pub const fn boundary(&self) -> &Boundary<C> {
        &self.boundary
    }

    /// Returns the controller, so that the caller can freeze or retune it.
    pub const fn controller_mut(&mut self) -> &mut C {
        self.boundary.controller_mut()
    }
}

impl<S, C> Unpin for Batched<S, C> {}

impl<S: Stream, C: Controller> Batched<S, C> {
    /// Polls the stream for a batch, and passes each of its items to `put`, which returns whether the batch
    /// takes more. Returns false at the end of the stream.
    fn poll_batch(
        &mut self,
        cx: &mut Context<'_>,
        mut put: impl FnMut(S::Item) -> bool,
    ) -> Poll<bool> {
        let now = self.boundary.at(self.clock.now());
        if let Some(id) = self.running.take() {
            self.boundary.done(now, id, true).unwrap_or_else(impossible);
        }
        if self.ended {
            return Poll::Ready(false);
        }
        let Some(first) = ready!(self.stream.as_mut().poll_next(cx)) else {
            self.ended = true;
            return Poll::Ready(false);
        };
        let more = self.stream.size_hint().0 as u64;
        let now = self.boundary.at(self.clock.now());
        let backlog = Load::items(more.saturating_add(1));
        // The adapter never waits for further items. It ignores a hold that the controller asks for, and
        // takes a batch within the controller's limit at once.
        let step = self.boundary.poll(now, backlog, now);
        step.map(drop).unwrap_or_else(impossible);
        let limit = self.boundary.limit().items;
        let (mut items, mut open) = (1, put(first));
        let mut cut = Cut::Items;
        while open && items < limit {
            match self.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => {
                    items += 1;
                    open = put(item);
                }
                Poll::Ready(None) => {
                    self.ended = true;
                    cut = Cut::Forced(Reason::Closing);
                    break;
                }
                Poll::Pending => {
                    cut = Cut::Forced(Reason::Drained);
                    break;
                }
            }
        }
        if !open {
            cut = Cut::Finished;
        }
        let left = Load::items(self.stream.size_hint().0 as u64);
        let started = self.boundary.started(now, Load::items(items), left, cut);
        self.running = Some(started.unwrap_or_else(impossible));
        Poll::Ready(true)
    }
}

/// Panics with `error`. A boundary refuses only calls that contradict each other, and the adapter makes no
/// such call, so the error is a bug of the adapter.
#[cold]
fn impossible<V>(error: BoundaryError) -> V {
    unreachable!("a stream keeps to the order of calls: {error}")
}

impl<S: Stream, C: Controller> Stream for Batched<S, C> {
    type Item = Vec<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut batch = Vec::new();
        let put = |item| {
            batch.push(item);
            true
        };
        let more = ready!(self.poll_batch(cx, put));
        Poll::Ready(more.then_some(batch))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.stream.size_hint();
        (usize::from(least > 0), most)
    }
}

impl<S: Stream, C: Controller> FusedStream for Batched<S, C> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl<S, C> fmt::Debug for Batched<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched")
            .field("boundary", &self.boundary)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
