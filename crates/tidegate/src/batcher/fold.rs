//! Folding: the actor passes each operation at once into a batch of the user's own type, so that a handler
//! needs no list of items. The actor never inspects that batch.
//!
//! A fold suits a handler with a batch that is no list: a buffer of encoded bytes, a map that keeps the
//! last write of each key, an aggregate. The fold decides when its batch is complete, as `append_batch` of
//! gen_batch_server does. A fold gives no items back for another try, but repeats the work of its own
//! batch.

use super::batch::Batch;
use super::handler::{Append, Flow, Handled, Handler, Init, Op, Recover, StopReason};

/// User code that folds operations into a batch of its own type. [`Folded`] turns a fold into a
/// [`Handler`]. Methods with the same name in both traits mean the same.
pub trait Fold: 'static {
    /// The items that producers send to the actor of this fold.
    type Item: Send + 'static;
    /// The reply that the caller of an item gets from the fold.
    type Reply: Send + 'static;
    /// The messages, other than items, that producers send to the fold.
    type Info: Send + 'static;
    /// The batch into which the fold takes operations. The batch also keeps each [`Reply`](super::Reply)
    /// that the fold answers later.
    type Batch: 'static;

    /// Returns an empty batch, into which the actor then folds operations. A fold that keeps the buffers of
    /// earlier batches may reuse them here.
    fn start(&mut self) -> Self::Batch;

    /// Folds `op` into `batch`, and returns whether this operation completes the batch.
    fn append(
        &mut self,
        batch: &mut Self::Batch,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append;

    /// Handles a complete batch, which has at least one operation.
    ///
    /// # Errors
    /// The batch failed: see [`Handler::handle_batch`].
    fn handle_batch(&mut self, batch: Self::Batch) -> Handled;

    /// Prepares the fold. The actor calls `init` before every other method: see [`Handler::init`].
    fn init(&mut self) -> Init {
        Init::Ready
    }

    /// Does further work of the fold between two batches. The actor calls this only if the fold asked for
    /// the call: see [`Handler::handle_continue`].
    fn handle_continue(&mut self) -> Flow {
        Flow::Continue
    }

    /// Does the idle work of the fold. The actor calls `idle` when no item waits: see [`Handler::idle`].
    fn idle(&mut self) {}

    /// Decides how the actor continues after the fold panicked: see [`Handler::recover`]. [`Folded`] drops
    /// the batch in progress before this call.
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// Ends the fold. The actor calls `terminate` last: see [`Handler::terminate`].
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

/// A [`Handler`] made of a [`Fold`], so that an actor can run it.
#[derive(Debug)]
pub struct Folded<F: Fold> {
    fold: F,
    open: Option<F::Batch>,
}

impl<F: Fold> Folded<F> {
    /// Wraps `fold` as a handler, so that an actor can run it.
    #[must_use]
    pub const fn new(fold: F) -> Self {
        Self { fold, open: None }
    }

    /// Returns the fold inside this handler, for inspections.
    pub const fn fold(&self) -> &F {
        &self.fold
    }
}

impl<F: Fold> Handler for Folded<F> {
    type Item = F::Item;
    type Reply = F::Reply;
    type Info = F::Info;

    fn init(&mut self) -> Init {
        self.fold.init()
    }

    fn handle_continue(&mut self) -> Flow {
        self.fold.handle_continue()
    }

    fn append(
        &mut self,
        _batch: &mut Batch<F::Item, F::Reply, F::Info>,
        op: Op<F::Item, F::Reply, F::Info>,
    ) -> Append {
        let Self { fold, open } = self;
        let batch = open.get_or_insert_with(|| fold.start());
        fold.append(batch, op)
    }

    fn handle_batch(&mut self, _batch: &mut Batch<F::Item, F::Reply, F::Info>) -> Handled {
        match self.open.take() {
            Some(batch) => self.fold.handle_batch(batch),
            None => Ok(Flow::Continue),
        }
    }

    fn idle(&mut self) {
        self.fold.idle();
    }

    fn recover(&mut self) -> Recover {
        self.open = None;
        self.fold.recover()
    }

    fn terminate(&mut self, reason: &StopReason) {
        self.fold.terminate(reason);
    }
}
