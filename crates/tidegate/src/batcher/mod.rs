//! The batch actor: one handler, many senders, and a controller between them.
//!
//! Any number of threads and tasks send items through a [`Handle`]. One actor takes the items that wait, as
//! many as its [controller](crate::controller) allows, and gives them to a [`Handler`] that has its state to
//! itself. While the handler works the next batch gathers by itself. The actor waits for more items only
//! where that pays, and finds the size of its batches by itself.
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
//! A task awaits the same calls without `blocking_`: `rows.call(row).await?`. With the feature `tokio` the
//! actor can be a task, too, and its handler an async closure: see `spawn_task`.
//!
//! # Several batches at once
//!
//! The form of the handler says whether several batches may run:
//!
//! | form of the handler | batches at once | order |
//! | --- | --- | --- |
//! | [`Handler`], `AsyncHandler`: `&mut self` | one | all items |
//! | `SharedHandler`: `&self`, a tokio task for each batch | several | any, or of each key |
//! | [`Dispatcher`]: takes an [`OwnedBatch`], finished later by [`OwnedBatch::done`] | several | the same |
//!
//! Closures need no handler of their own: `Builder::spawn_shared`, and every closure is a dispatcher.
//!
//! How many run is the controller's decision, within [`Builder::in_flight_max`]. [`Builder::key`] keeps the
//! items of a key in order: at most one batch in flight holds items of it. An actor ends when every batch
//! is finished.
//!
//! # What a sender can rely on
//!
//! - The actor handles each accepted item once, in order with the others of its sender (with several batches
//!   at once: of its key); or [`Handle::stop`] gives it back; or it is lost with the batch in which its
//!   handler panicked. A send that fails gives its item back.
//! - A handler may give items back for another try ([`Batch::retry`]). They come first in the next batch, and
//!   their callers wait on.
//! - A caller gets a reply, or a [`ReplyError`] that names the cause. The actor skips the item of a caller
//!   that gave up; the item keeps its room until the actor reaches it.
//! - The items that wait are bounded, in number and in bytes ([`Builder::capacity`],
//!   [`Builder::capacity_bytes`]). A full actor makes senders wait or refuses them ([`Full`]).
//! - A call by which a thread or a handler would wait for itself is an error: see [`Handle`]. A ring of
//!   actors is not found: where the handler of A waits for B and that of B for A, both wait for ever.
//! - A panic loses the batch in which it happened, no more: see [`Handler::recover`].
//! - A handler that returns an error fails the callers of that batch: see [`Handler::handle_batch`].
//! - Dropping the last handle drains: see [`Handle`].
//!
//! # Coming from gen_batch_server
//!
//! Each of these calls has a form that begins with `blocking_`.
//!
//! | there | here |
//! | --- | --- |
//! | `cast`, `cast_batch` | [`Handle::cast`], [`Handle::cast_many`] |
//! | `call`, `send_request`, `reqids_*` | [`Handle::call`], [`Handle::send_request`], [`Requests`] |
//! | a stray message, `{info, Msg}` | [`Handle::info`], [`Op::Info`] |
//! | `init`, `handle_continue`, `handle_batch`, `terminate` | the same in [`Handler`] |
//! | `append_batch`, `finish_batch` | [`Fold`], [`Append::Finish`] |
//! | `{reply, From, Msg}` | [`Reply::send`], now or later, or [`Batch::answer`] |
//! | `sys:get_state` | [`Handle::inspect`] |
//! | `garbage_collect`, hibernation | [`Handler::idle`]; buffers shrink by themselves after a second of idleness |
//! | `stop/3` | [`Handle::stop`], which gives back the items that waited, or [`Handle::drain`] |
//! | min, max, growth | [`Builder::bounds`], [`Builder::controller`]; no need to set them |

mod actor;
mod ages;
mod arrivals;
mod batch;
mod block;
mod builder;
mod caster;
mod closure;
#[cfg(feature = "tokio")]
mod closure_async;
#[cfg(feature = "tokio")]
mod concurrent;
mod core;
mod dispatch;
#[cfg(feature = "tokio")]
mod driven;
mod error;
mod fold;
mod gate;
mod gathered;
mod handle;
mod handler;
mod inspect;
mod keys;
mod mend;
mod outcome;
mod owned;
// Without tokio there are no drivers on a runtime.
#[cfg_attr(not(feature = "tokio"), allow(dead_code))]
mod patience;
mod reply;
mod requests;
mod retry;
mod send;
mod several;
mod shared;
mod stats;
#[cfg(feature = "futures")]
mod stream;
#[cfg(feature = "tokio")]
mod task;
mod thread;
mod timer;
#[cfg(feature = "tokio")]
mod waits;

pub use batch::Batch;
pub use builder::{Builder, Full, Oversized};
pub use caster::Caster;
pub use closure::{EachBatch, MapResults, each_batch, map_batch, map_results, try_map_batch};
#[cfg(feature = "tokio")]
pub use closure_async::{EachBatchAsync, each_batch_async, map_batch_async, try_map_batch_async};
#[cfg(feature = "tokio")]
pub use concurrent::SharedHandler;
pub use dispatch::Dispatcher;
pub use error::{CallError, CastManyError, InspectError, SendError, SpawnError, StopError};
pub use fold::{Fold, Folded};
pub use handle::Handle;
pub use handler::{Append, Failure, Flow, Handled, Handler, Init, Op, Recover, StopReason};
pub use outcome::Outcome;
pub use owned::OwnedBatch;
pub use reply::{Cause, Reply, ReplyError, Request};
pub use requests::{Answered, ReceiveError, Requests};
pub use retry::Drain;
pub use stats::{Histogram, Stats};
#[cfg(feature = "futures")]
pub use stream::{Batched, BatchedExt, TryBatched};
#[cfg(feature = "tokio")]
pub use task::AsyncHandler;

/// Starts an actor on a thread of its own with everything by default: `handle` gets the items of each batch,
/// as by [`each_batch`], and returns an [`Outcome`]. For more, see [`Builder`], [`Handler`], [`map_results`]
/// and [`Fold`].
///
/// # Errors
/// The operating system gave no thread.
pub fn spawn<T, O, F>(handle: F) -> Result<Handle<T, O::Reply>, SpawnError>
where
    T: Send + 'static,
    O: Outcome + 'static,
    F: FnMut(&mut Vec<T>) -> O + Send + 'static,
{
    Builder::new().spawn(each_batch(handle))
}

/// Starts an actor as a task of the current tokio runtime with everything by default: the async closure
/// `handle` gets the items of each batch, as by [`each_batch_async`]. For more, see [`Builder::spawn_task`],
/// [`AsyncHandler`] and [`Outcome`].
///
/// # Errors
/// The runtime shuts down.
///
/// # Panics
/// Outside a tokio runtime.
#[cfg(feature = "tokio")]
pub async fn spawn_task<T, O, F, Fut>(handle: F) -> Result<Handle<T, O::Reply>, SpawnError>
where
    T: Send + 'static,
    O: Outcome + Send,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output = O> + Send + 'static,
{
    Builder::new().spawn_task(each_batch_async(handle)).await
}
