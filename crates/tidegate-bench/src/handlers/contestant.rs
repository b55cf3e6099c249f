//! A running contestant of the bench `handlers`: it takes an item, forms batches, and answers the item once
//! the handler has handled its batch.

use std::sync::Arc;

use super::ours::{Actor, Rule};
use super::recv_many::Loop;
#[cfg(feature = "peers")]
use super::rivals::{Amate, BatchAintOne, UltraBatch};
use super::setting::{Fixed, Setting};
use super::work::{Checked, Item};
use crate::rounds::Failure;

/// A running contestant of the bench `handlers`, which takes items and answers them. After its drop it
/// handles every accepted item, then ends.
pub(super) enum Contestant {
    Actor(Actor),
    Loop(Loop),
    #[cfg(feature = "peers")]
    BatchAintOne(BatchAintOne),
    #[cfg(feature = "peers")]
    UltraBatch(UltraBatch),
    #[cfg(feature = "peers")]
    Amate(Amate),
}

impl Contestant {
    /// Starts the contestant with this setting, inside the runtime of its callers, so that they can hand it
    /// items.
    pub(super) async fn start(setting: Setting, work: Arc<Checked>) -> Result<Self, Failure> {
        let looped = |limit, in_flight| Fixed {
            limit,
            linger_us: 0,
            in_flight,
        };
        match setting {
            Setting::Default => Actor::start(Rule::Default, work).await.map(Self::Actor),
            Setting::Greedy => Actor::start(Rule::Greedy, work).await.map(Self::Actor),
            Setting::Fixed(fixed) => Actor::start(Rule::Fixed(fixed), work)
                .await
                .map(Self::Actor),
            Setting::RecvMany { limit, in_flight } => {
                Loop::start(looped(limit, in_flight), work).map(Self::Loop)
            }
            #[cfg(feature = "peers")]
            Setting::BatchAintOne {
                prefer,
                limit,
                in_flight,
            } => Ok(Self::BatchAintOne(BatchAintOne::start(
                prefer, limit, in_flight, work,
            ))),
            #[cfg(feature = "peers")]
            Setting::UltraBatch { delay_ms, eager } => {
                Ok(Self::UltraBatch(UltraBatch::start(delay_ms, eager, work)))
            }
            #[cfg(feature = "peers")]
            Setting::Amate {
                limit,
                workers,
                window_us,
            } => Ok(Self::Amate(Amate::start(limit, workers, window_us, work))),
            #[cfg(not(feature = "peers"))]
            Setting::BatchAintOne { .. } | Setting::UltraBatch { .. } | Setting::Amate { .. } => {
                Err(super::not_built(setting.system().name()).to_string())
            }
        }
    }

    /// Hands an item to the contestant, waits until the contestant has handled it, and returns the item's
    /// answer.
    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        match self {
            Self::Actor(actor) => actor.call(item).await,
            Self::Loop(looped) => looped.call(item).await,
            #[cfg(feature = "peers")]
            Self::BatchAintOne(batcher) => batcher.call(item).await,
            #[cfg(feature = "peers")]
            Self::UltraBatch(batcher) => batcher.call(item).await,
            #[cfg(feature = "peers")]
            Self::Amate(batcher) => batcher.call(item).await,
        }
    }
}
