//! The future of an actor that runs as a task. The future marks the thread that polls it as the actor's, so
//! that blocking calls of the handler are detected. If the runtime drops the future before its end, callers
//! get an error.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::reply::abandoned;
use crate::blocking::{ActorId, Enter};

/// The future that runs an actor from its start to its end, as a task of a runtime.
pub(super) struct Driven<F> {
    actor: ActorId,
    /// The code of the actor; `None` after the actor has ended.
    life: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = ()>> Driven<F> {
    pub(super) fn new(actor: ActorId, life: F) -> Self {
        let life = Some(Box::pin(life));
        Self { actor, life }
    }
}

impl<F: Future<Output = ()>> Future for Driven<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _inside = Enter::new(self.actor);
        let Some(life) = &mut self.life else {
            return Poll::Ready(());
        };
        if life.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.life = None;
        Poll::Ready(())
    }
}

impl<F> Drop for Driven<F> {
    /// Drops the rest of the actor's code if the runtime shuts down before the actor ends. Callers without
    /// an answer get `ReplyError::Abandoned`.
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            abandoned(|| drop(life));
        }
    }
}
