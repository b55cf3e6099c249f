//! The batch actor: one handler, many senders, and a controller between them.
//!
//! Any number of threads and tasks send items through a [`Handle`]. One actor takes what waits, as much as
//! its [controller](crate::controller) allows, and gives it to a [`Handler`] that has its state to itself.
//! While the handler works the next batch gathers by itself: nobody waits for company unless that pays, and
//! nobody chooses a size.
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let rows = tidegate::batcher::spawn(|rows: &mut Vec<String>| {
//!     println!("INSERT of {} rows", rows.len()); // one expensive call for all of them
//! })?;
//! rows.blocking_cast("a row".to_owned())?; // fire and forget
//! rows.blocking_call("another".to_owned())?; // back when its batch is handled
//! rows.blocking_drain(Duration::from_secs(5))?; // everything accepted is handled
//! # Ok(())
//! # }
//! ```
//!
//! # What a sender can rely on
//!
//! - An item accepted is handled once, in order with the others of its sender, or given back by [`Handle::blocking_stop`], or lost with the
//!   batch its handler panicked in. An item not accepted is given back by the send that failed.
//! - A caller is always told: by a reply, or by a [`ReplyError`] that says what happened instead. A caller that gave up is
//!   skipped before the handler sees its item.
//! - What waits is bounded, in items and in bytes ([`Builder::capacity`], [`Builder::capacity_bytes`]). A full actor makes
//!   senders wait or refuses them ([`Full`]).
//! - A panic loses the batch it happened in, no more: see [`Handler::recover`].
//! - Dropping the last handle drains: see [`Handle`].
//!
//! # Coming from gen_batch_server
//!
//! | there | here |
//! | --- | --- |
//! | `cast`, `cast_batch` | [`Handle::blocking_cast`], [`Handle::blocking_cast_many`] |
//! | `call`, `send_request`, `reqids_*` | [`Handle::blocking_call`], [`Handle::blocking_send_request`], [`Requests`] |
//! | a stray message, `{info, Msg}` | [`Handle::blocking_info`], [`Op::Info`] |
//! | `init`, `handle_continue`, `handle_batch`, `terminate` | the same in [`Handler`] |
//! | `append_batch`, `finish_batch` | [`Fold`], [`Append::Finish`] |
//! | `{reply, From, Msg}` | [`Reply::send`], now or later, or [`Batch::answer`] |
//! | `sys:get_state` | [`Handle::blocking_inspect`] |
//! | `garbage_collect`, hibernation | [`Handler::idle`]; buffers shrink by themselves after a second of idleness |
//! | `stop/3` | [`Handle::blocking_stop`], which gives back what waited, or [`Handle::blocking_drain`] |
//! | min, max, growth | [`Builder::bounds`], [`Builder::controller`]; no need to set them |

mod actor;
mod arrivals;
mod batch;
mod block;
mod builder;
mod caster;
mod closure;
#[cfg(feature = "tokio")]
mod closure_async;
mod core;
#[cfg(feature = "tokio")]
mod driven;
mod error;
mod fold;
mod gate;
mod handle;
mod handler;
mod inspect;
mod mend;
mod reply;
mod requests;
mod send;
mod shared;
mod stats;
#[cfg(feature = "futures")]
mod stream;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod timer;

pub use batch::Batch;
pub use builder::{Builder, Full, Oversized};
pub use caster::Caster;
pub use closure::{
    EachBatch, MapBatch, MapResults, TryMapBatch, each_batch, map_batch, map_results, try_map_batch,
};
#[cfg(feature = "tokio")]
pub use closure_async::{
    EachBatchAsync, MapBatchAsync, TryMapBatchAsync, each_batch_async, map_batch_async,
    try_map_batch_async,
};
pub use error::{CallError, CastManyError, InspectError, SendError, SpawnError, StopError};
pub use fold::{Fold, Folded};
pub use handle::Handle;
pub use handler::{
    Append, Failure, Flow, Handled, Handler, Init, Op, Outcome, Recover, StopReason,
};
pub use reply::{Cause, Reply, ReplyError, Request};
pub use requests::{Answered, ReceiveError, Requests};
pub use stats::{Histogram, Stats};
#[cfg(feature = "futures")]
pub use stream::{Batched, BatchedExt, TryBatched};
#[cfg(feature = "tokio")]
pub use task::AsyncHandler;

/// Starts an actor on a thread of its own with everything by default: `handle` gets the items of each batch, as
/// by [`each_batch`]. Callers are answered `()` when their batch is handled. For more, see [`Builder`],
/// [`Handler`], [`map_batch`] and [`Fold`].
///
/// # Errors
/// The operating system gave no thread.
pub fn spawn<T, O, F>(handle: F) -> Result<Handle<T>, SpawnError>
where
    T: Send + 'static,
    O: Outcome + 'static,
    F: FnMut(&mut Vec<T>) -> O + Send + 'static,
{
    Builder::new().spawn(each_batch(handle))
}

/// Starts an actor as a task of the current tokio runtime with everything by default: the async closure `handle`
/// gets the items of each batch, as by [`each_batch_async`]. For more, see [`Builder::spawn_task`],
/// [`AsyncHandler`] and [`map_batch_async`].
///
/// # Errors
/// The runtime shuts down.
///
/// # Panics
/// Outside a tokio runtime.
#[cfg(feature = "tokio")]
pub async fn spawn_task<T, F, Fut>(handle: F) -> Result<Handle<T>, SpawnError>
where
    T: Send + 'static,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output: Outcome + Send> + Send + 'static,
{
    Builder::new().spawn_task(each_batch_async(handle)).await
}
