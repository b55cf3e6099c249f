//! Folding: the actor passes each operation at once into a batch of the user's own
//! type, which the actor never inspects.
//!
//! For handlers with a batch that is not a list: a buffer of encoded bytes, a map that keeps the last write
//! of a key, an aggregate. The fold decides when its batch is complete (gen_batch_server's `append_batch`).
//! A fold gives no items back for another try: the fold repeats the work of its own batch instead.

use super::batch::Batch;
use super::handler::{Append, Flow, Handled, Handler, Init, Op, Recover, StopReason};

/// User code that folds operations into a batch of its own type. [`Folded`] makes it a [`Handler`]. The
/// methods that both traits share mean the same.
pub trait Fold: 'static {
    /// The item that producers send.
    type Item: Send + 'static;
    /// The reply that callers get.
    type Reply: Send + 'static;
    /// Messages that are no items.
    type Info: Send + 'static;
    /// The batch into which the fold takes operations. It keeps the [`Reply`](super::Reply)s that the fold
    /// answers later.
    type Batch: 'static;

    /// Returns an empty batch. A fold that reuses its buffers keeps them and returns them here.
    fn start(&mut self) -> Self::Batch;

    /// Folds `op` into `batch`, and returns whether the batch is complete with it.
    fn append(
        &mut self,
        batch: &mut Self::Batch,
        op: Op<Self::Item, Self::Reply, Self::Info>,
    ) -> Append;

    /// Handles a complete batch, with at least one operation.
    ///
    /// # Errors
    /// The batch failed: see [`Handler::handle_batch`].
    fn handle_batch(&mut self, batch: Self::Batch) -> Handled;

    /// The actor calls this before every other method: see [`Handler::init`].
    fn init(&mut self) -> Init {
        Init::Ready
    }

    /// The actor calls this if the fold asked for it: see [`Handler::handle_continue`].
    fn handle_continue(&mut self) -> Flow {
        Flow::Continue
    }

    /// The actor calls this when the backlog is empty: see [`Handler::idle`].
    fn idle(&mut self) {}

    /// Decides how the actor continues after a panic: see [`Handler::recover`]. [`Folded`] drops the open
    /// batch before the call.
    fn recover(&mut self) -> Recover {
        Recover::Rebuild
    }

    /// The actor calls this last when it ends: see [`Handler::terminate`].
    fn terminate(&mut self, reason: &StopReason) {
        let _ = reason;
    }
}

/// Makes a [`Fold`] a [`Handler`].
#[derive(Debug)]
pub struct Folded<F: Fold> {
    fold: F,
    open: Option<F::Batch>,
}

impl<F: Fold> Folded<F> {
    /// Wraps `fold` as a handler.
    #[must_use]
    pub const fn new(fold: F) -> Self {
        Self { fold, open: None }
    }

    /// Returns the fold itself, for inspections.
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
