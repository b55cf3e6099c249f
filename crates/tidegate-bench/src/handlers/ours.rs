//! The contestant of the bench `handlers` that uses this library; no other file of the bench uses the
//! library's actors. The contestant is an actor with several batches in flight if the handler awaits, and an
//! actor on a thread if the handler blocks.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tidegate::batcher::{Batch, Builder, Flow, Handle, Handled, Handler, SharedHandler};
use tidegate::controller::{Fixed as FixedRule, Greedy};

use super::setting::Fixed;
use super::work::{Checked, Item};
use crate::rounds::Failure;

/// The rule by which the library's actor decides the size of batches.
#[derive(Clone, Copy, Debug)]
pub(super) enum Rule {
    /// The actor uses the library's default controller.
    Default,
    /// The actor takes the whole backlog into each batch.
    Greedy,
    /// The actor uses a fixed setting of the grid: a limit, a linger and a number of batches in flight.
    Fixed(Fixed),
}

/// An actor of the library, which takes part as a contestant. After its drop it handles every accepted item,
/// and then ends.
pub(super) struct Actor(Handle<Item, u64>);

impl Actor {
    pub(super) async fn start(rule: Rule, work: Arc<Checked>) -> Result<Self, Failure> {
        let builder = Builder::new();
        let builder = match rule {
            Rule::Default => builder,
            Rule::Greedy => builder.controller(Greedy.controller()),
            Rule::Fixed(fixed) => {
                let linger = Duration::from_micros(fixed.linger_us.into());
                let rule = FixedRule::new(fixed.limit.into())
                    .with_linger(linger)
                    .with_in_flight(fixed.in_flight);
                builder.controller(rule.controller())
            }
        };
        let items = Vec::new();
        let started = if work.blocks() {
            builder.spawn(Blocking { work, items })
        } else {
            builder.spawn_shared_handler(Awaiting { work }).await
        };
        started.map(Self).map_err(|e| e.to_string())
    }

    /// Sends an item to the actor and waits until the actor has handled it.
    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        self.0.call(item).await.map_err(|e| e.to_string())
    }
}

/// The actor's handler for work that awaits: it handles as many batches at once as the controller lets run.
struct Awaiting {
    work: Arc<Checked>,
}

impl SharedHandler for Awaiting {
    type Item = Item;
    type Reply = u64;
    type Info = Infallible;

    async fn handle_batch(&self, batch: &mut Batch<Item, u64>) -> Handled {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        match self.work.handle(items).await {
            Ok(answers) => batch.answer(answers),
            Err(failure) => batch.fail(failure),
        }
        Ok(Flow::Continue)
    }
}

/// The actor's handler for work that blocks its thread while it handles a batch.
struct Blocking {
    work: Arc<Checked>,
    /// The items of a batch. The handler keeps the vector between batches to reuse its memory.
    items: Vec<Item>,
}

impl Handler for Blocking {
    type Item = Item;
    type Reply = u64;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<Item, u64>) -> Handled {
        self.items.clear();
        batch.take_items(&mut self.items);
        match self.work.handle_blocking(&self.items) {
            Ok(answers) => batch.answer(answers),
            Err(failure) => batch.fail(failure),
        }
        Ok(Flow::Continue)
    }
}
