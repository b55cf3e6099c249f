//! The batch actor: one handler, many senders, and a controller between them.
//!
//! Any number of threads and tasks send items through a [`Handle`]. One actor takes the waiting items, as
//! many as its [controller](crate::controller) allows, and passes them to a [`Handler`] that has exclusive
//! use of its state. While the handler works, the items of the next batch gather in the queue. The actor
//! waits for more items only if its controller expects the wait to pay off. Its controller finds the size
//! of the batches.
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
//! actor can also be a task, and its handler an async closure: see `spawn_task`.
//!
//! # Several batches at once
//!
//! The form of the handler decides whether several batches may run:
//!
//! | form of the handler | batches at once | order |
//! | --- | --- | --- |
//! | [`Handler`], `AsyncHandler`: `&mut self` | one | all items |
//! | `SharedHandler`: `&self`, a tokio task for each batch | several | any, or of each key |
//! | [`Dispatcher`]: takes an [`OwnedBatch`], finished later by [`OwnedBatch::done`] | several | the same |
//!
//! A closure needs no handler type: `Builder::spawn_shared` takes an async closure, and every closure that
//! takes an [`OwnedBatch`] is a dispatcher.
//!
//! The controller decides how many batches run, at most [`Builder::in_flight_max`]. [`Builder::key`]
//! keeps the items of each key in order: at most one batch in flight holds items of that key. An actor
//! ends when every batch is finished.
//!
//! # Guarantees for senders
//!
//! - The actor handles each accepted item once, in the order of its sender (with several batches at once:
//!   in the order of its key). This has three exceptions: [`Handle::stop`] gives unhandled items back, a
//!   panic of the handler loses the items of its batch, and a runtime that shuts down loses the batches in
//!   progress of its task actors, without [`Handler::terminate`]. A send that fails gives its item back;
//!   only [`CallError::TimedOut`] does not.
//! - A handler may give items back for another try ([`Batch::retry`]). The actor puts them first into the
//!   next batch, and their callers keep waiting.
//! - A caller gets a reply, or a [`ReplyError`] that names the cause. The actor skips the item of a caller
//!   that gave up; the item occupies its place in the queue until the actor reaches it.
//! - The backlog is bounded in items and in bytes ([`Builder::capacity`], [`Builder::capacity_bytes`]). A
//!   full actor makes senders wait, or refuses their items ([`Full`]).
//! - A call by which a thread or a handler would wait for itself returns an error, in the cases that
//!   [`Handle`] lists. The crate does not detect a ring of actors: if the handler of actor A waits for
//!   actor B, and the handler of B waits for A, both wait for ever.
//! - A panic of the handler loses only the batch in which it happened: see [`Handler::recover`].
//! - A handler that returns an error fails the callers of that batch: see [`Handler::handle_batch`].
//! - Dropping the last handle drains the actor: see [`Handle`].
//!
//! # Not included
//!
//! - An actor keeps neither items nor measured costs over a restart of the program.
//! - An actor never cancels or aborts a running batch, and items have no deadline, priority or delay in the
//!   queue. The deadline of a call ends only the wait of its caller.
//! - An actor does not form batches of one key, and does not merge equal items.
//! - A closure, unless it is a dispatcher, and a [`Fold`] cannot give items back for another try. A pause
//!   before a try is the handler's own wait, for the whole batch.
//! - There are no weak handles, monitors, supervisors or timers for handlers, and no export of metrics.
//!
//! # Coming from gen_batch_server
//!
//! The methods of [`Handle`] and [`Requests`] that may wait have a second form that begins with
//! `blocking_`. A call has no deadline by default: [`Handle::call_timeout`] sets one.
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
//! | `garbage_collect`, hibernation | [`Handler::idle`]; buffers shrink after a second of idleness |
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
// Without the feature `tokio`, no driver runs on a runtime, and the parts of the module `patience` for such
// drivers have no user. So the compiler's warning is off.
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

/// Starts an actor with default settings on a thread of its own. Blocks the calling thread until the actor
/// runs, even if the calling thread polls a task. The closure `handle` receives the items of each batch, as
/// with [`each_batch`], and returns an [`Outcome`]. For more control, see [`Builder`], [`Handler`],
/// [`map_results`] and [`Fold`].
///
/// # Errors
/// The operating system started no thread.
pub fn spawn<T, O, F>(handle: F) -> Result<Handle<T, O::Reply>, SpawnError>
where
    T: Send + 'static,
    O: Outcome + 'static,
    F: FnMut(&mut Vec<T>) -> O + Send + 'static,
{
    Builder::new().spawn(each_batch(handle))
}

/// Starts an actor with default settings as a task of the current tokio runtime. The async closure `handle`
/// receives the items of each batch, as with [`each_batch_async`]. For more control, see
/// [`Builder::spawn_task`], [`AsyncHandler`] and [`Outcome`].
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
