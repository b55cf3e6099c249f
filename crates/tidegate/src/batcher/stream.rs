//! Batches of a stream: its ready items, as many as a controller allows.
//!
//! There is no task and no timer here. A batch is made when it is asked for, of what is ready then: it is
//! never empty, nothing is emitted without demand, and nobody waits for company, so that a controller's waits
//! are not honoured. What the controller takes for the cost of a batch is the time until the next one is
//! asked for.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::{FusedStream, Stream};

use crate::controller::{BatchId, Bounded, Bounds, BoundsError, Controller, Event, Load, Reason};
use crate::{Clock, Time};

/// Batching for every [`Stream`].
pub trait StreamExt: Stream + Sized {
    /// The items that are ready, in batches within the limits of `controller` and the default [`Bounds`].
    fn batched<C: Controller>(self, controller: C) -> Batched<Self, C> {
        match self.batched_within(controller, Bounds::default()) {
            Ok(batched) => batched,
            Err(_) => unreachable!("the default bounds can be satisfied"),
        }
    }

    /// The same within bounds of the caller's own.
    ///
    /// # Errors
    /// Bounds no batch can satisfy.
    fn batched_within<C: Controller>(
        self,
        controller: C,
        bounds: Bounds,
    ) -> Result<Batched<Self, C>, BoundsError> {
        Ok(Batched {
            stream: Box::pin(self),
            controller: Bounded::new(controller, bounds)?,
            clock: Clock::start(),
            running: None,
            ended: false,
        })
    }
}

impl<S: Stream> StreamExt for S {}

/// See [`StreamExt::batched`].
pub struct Batched<S, C> {
    stream: Pin<Box<S>>,
    controller: Bounded<C>,
    clock: Clock,
    /// When the batch was emitted that is being worked on.
    running: Option<Time>,
    ended: bool,
}

impl<S, C> Batched<S, C> {
    /// The controller, to look at or to retune.
    pub const fn controller_mut(&mut self) -> &mut Bounded<C> {
        &mut self.controller
    }
}

impl<S, C> Unpin for Batched<S, C> {}

impl<S: Stream, C: Controller> Stream for Batched<S, C> {
    type Item = Vec<S::Item>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let now = this.clock.now();
        if let Some(started) = this.running.take() {
            let cost_ns = now.since(started);
            this.controller.on(
                now,
                Event::Done {
                    id: BatchId::default(),
                    cost_ns,
                    ok: true,
                },
            );
        }
        if this.ended {
            return Poll::Ready(None);
        }
        let Some(first) = ready!(this.stream.as_mut().poll_next(cx)) else {
            this.ended = true;
            return Poll::Ready(None);
        };
        let more = this.stream.size_hint().0 as u64;
        let now = this.clock.now();
        let decision = this.controller.on(
            now,
            Event::Ready {
                backlog: Load::items(more.saturating_add(1)),
                oldest: now,
            },
        );
        let limit = usize::try_from(decision.limit_items).unwrap_or(usize::MAX);
        let mut batch = vec![first];
        let mut reason = decision.reason;
        while batch.len() < limit {
            match this.stream.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => batch.push(item),
                Poll::Ready(None) => {
                    this.ended = true;
                    reason = Reason::Closing;
                    break;
                }
                Poll::Pending => {
                    reason = Reason::Drained;
                    break;
                }
            }
        }
        if batch.len() >= limit && reason == Reason::Drained {
            reason = Reason::Limit;
        }
        let started = Event::Started {
            id: BatchId::default(),
            batch: Load::items(batch.len() as u64),
            left: Load::items(this.stream.size_hint().0 as u64),
            reason,
        };
        this.controller.on(now, started);
        this.running = Some(now);
        Poll::Ready(Some(batch))
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

impl<S, C: fmt::Debug> fmt::Debug for Batched<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batched")
            .field("controller", &self.controller)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}
