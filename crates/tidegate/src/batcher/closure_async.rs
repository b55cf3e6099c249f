//! Async closures as handlers of task actors.
//!
//! A closure owns the vector of a batch's items, because its future may outlive the call of the closure.
//! The future must not borrow from the closure: if the future uses state that the closure captured, the
//! closure clones that state for it.
//!
//! ```
//! # use std::sync::{Arc, atomic::{AtomicUsize, Ordering::Relaxed}};
//! # let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
//! # runtime.block_on(async {
//! let rows = tidegate::batcher::spawn_task(async |rows: Vec<String>| {
//!     println!("INSERT of {} rows", rows.len());
//! })
//! .await?;
//! rows.call("a row".to_owned()).await?;
//!
//! let seen = Arc::new(AtomicUsize::new(0));
//! let counting = tidegate::batcher::spawn_task(move |rows: Vec<String>| {
//!     let seen = Arc::clone(&seen);
//!     async move {
//!         let added = u16::try_from(rows.len())?; // an error goes to the callers of this batch
//!         seen.fetch_add(added.into(), Relaxed);
//!         Ok::<(), std::num::TryFromIntError>(())
//!     }
//! })
//! .await?;
//! counting.call("another".to_owned()).await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use super::batch::Batch;
use super::handler::{Failure, Handled};
use super::outcome::Outcome;
use super::task::AsyncHandler;

/// Makes a handler for a task actor from an async closure, as [`each_batch`](super::each_batch) does from a
/// closure.
pub const fn each_batch_async<T, F, Fut>(f: F) -> EachBatchAsync<T, F>
where
    T: Send + 'static,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output: Outcome + Send> + Send + 'static,
{
    EachBatchAsync {
        f,
        item: PhantomData,
    }
}

/// Makes a handler for a task actor from an async closure, as [`map_batch`](super::map_batch) does from a
/// closure: one result an item.
pub const fn map_batch_async<T, R, F, Fut>(f: F) -> EachBatchAsync<T, F>
where
    T: Send + 'static,
    R: Send + 'static,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output = Vec<R>> + Send + 'static,
{
    each_batch_async(f)
}

/// Makes a handler for a task actor from an async closure, as [`try_map_batch`](super::try_map_batch) does
/// from a closure: one result an item, or an error for the whole batch.
pub const fn try_map_batch_async<T, R, E, F, Fut>(f: F) -> EachBatchAsync<T, F>
where
    T: Send + 'static,
    R: Send + 'static,
    E: Into<Failure> + Send + 'static,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output = Result<Vec<R>, E>> + Send + 'static,
{
    each_batch_async(f)
}

/// The handler that [`each_batch_async`], [`map_batch_async`] and [`try_map_batch_async`] make of a closure.
pub struct EachBatchAsync<T, F> {
    f: F,
    item: PhantomData<fn(T)>,
}

impl<T, F, Fut> AsyncHandler for EachBatchAsync<T, F>
where
    T: Send + 'static,
    F: FnMut(Vec<T>) -> Fut + Send + 'static,
    Fut: Future<Output: Outcome + Send> + Send + 'static,
{
    type Item = T;
    type Reply = <Fut::Output as Outcome>::Reply;
    type Info = Infallible;

    async fn handle_batch(&mut self, batch: &mut Batch<T, Self::Reply>) -> Handled {
        let mut items = Vec::new();
        batch.take_items(&mut items);
        (self.f)(items).await.answer(batch)
    }
}

impl<T, F> fmt::Debug for EachBatchAsync<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachBatchAsync").finish_non_exhaustive()
    }
}
