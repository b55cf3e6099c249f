//! Closures as handlers, for actors that need no handler type.
//!
//! A closure gets the items of a batch in one vector. The actor answers a call after the closure has
//! handled its batch. So a call that returns also tells its sender that all earlier casts of the same
//! sender are handled.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use super::batch::Batch;
use super::handler::{Failure, Flow, Handled, Handler};
use super::outcome::Outcome;
use super::reply::Cause;

/// Makes a handler of a closure that gets the items of each batch and returns an [`Outcome`]. With `()` or
/// a [`Flow`](super::Flow), each caller gets `()`. With a `Vec`, each caller gets the result of its item,
/// in order. With a `Result` of any of these, callers get the error of a failed batch. The actor drops the
/// items that the closure leaves in the vector, and reuses the vector.
///
/// ```
/// # fn insert(rows: &[u64]) -> std::io::Result<()> { Ok(()) }
/// use tidegate::batcher::{Builder, each_batch};
///
/// let rows = Builder::new().spawn(each_batch(|rows: &mut Vec<u64>| {
///     insert(rows)?; // an error goes to the callers of this batch; the actor goes on
///     std::io::Result::Ok(())
/// }))?;
/// rows.blocking_call(7)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const fn each_batch<T, O, F>(f: F) -> EachBatch<T, F>
where
    T: Send + 'static,
    O: Outcome,
    F: FnMut(&mut Vec<T>) -> O + 'static,
{
    EachBatch {
        f,
        item: PhantomData,
    }
}

/// Makes a handler of a closure that gets the items of each batch and returns one result an item, in order:
/// each caller gets the result of its item. With any other number of results every caller gets
/// [`ReplyError::ResultCount`](super::ReplyError::ResultCount).
pub const fn map_batch<T, R, F>(f: F) -> EachBatch<T, F>
where
    T: Send + 'static,
    R: Send + 'static,
    F: FnMut(&mut Vec<T>) -> Vec<R> + 'static,
{
    each_batch(f)
}

/// Makes a handler of a closure like [`map_batch`], for a closure that may fail a batch as a whole: every
/// caller of a failed batch gets the error.
pub const fn try_map_batch<T, R, E, F>(f: F) -> EachBatch<T, F>
where
    T: Send + 'static,
    R: Send + 'static,
    E: Into<Failure>,
    F: FnMut(&mut Vec<T>) -> Result<Vec<R>, E> + 'static,
{
    each_batch(f)
}

/// Makes a handler of a closure like [`map_batch`], for a closure that may fail each item separately: only
/// the caller of a failed item gets the error.
pub const fn map_results<T, R, E, F>(f: F) -> MapResults<T, R, F>
where
    T: Send + 'static,
    R: Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: FnMut(&mut Vec<T>) -> Vec<Result<R, E>> + 'static,
{
    MapResults {
        f,
        types: PhantomData,
    }
}

/// The handler that [`each_batch`], [`map_batch`] and [`try_map_batch`] make of a closure.
pub struct EachBatch<T, F> {
    f: F,
    item: PhantomData<fn(T)>,
}

/// The handler that [`map_results`] makes of a closure.
pub struct MapResults<T, R, F> {
    f: F,
    types: PhantomData<fn(T) -> R>,
}

/// Passes the items of a batch to `f` in a vector. The batch keeps the vector, so that later batches reuse
/// its memory.
fn with_items<T, R, V>(batch: &mut Batch<T, R>, f: impl FnOnce(&mut Vec<T>) -> V) -> V {
    let mut items = std::mem::take(&mut batch.spare);
    batch.take_items(&mut items);
    let returned = f(&mut items);
    items.clear();
    batch.spare = items;
    returned
}

impl<T, O, F> Handler for EachBatch<T, F>
where
    T: Send + 'static,
    O: Outcome,
    F: FnMut(&mut Vec<T>) -> O + 'static,
{
    type Item = T;
    type Reply = O::Reply;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<T, O::Reply>) -> Handled {
        with_items(batch, |items| (self.f)(items)).answer(batch)
    }
}

impl<T, R, E, F> Handler for MapResults<T, R, F>
where
    T: Send + 'static,
    R: Send + 'static,
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: FnMut(&mut Vec<T>) -> Vec<Result<R, E>> + 'static,
{
    type Item = T;
    type Reply = R;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<T, R>) -> Handled {
        let results = with_items(batch, |items| (self.f)(items));
        batch.answer_each(results.into_iter().map(shared));
        Ok(Flow::Continue)
    }
}

fn shared<R, E>(result: Result<R, E>) -> Result<R, Cause>
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    result.map_err(|error| Cause::from(error.into()))
}

impl<T, F> fmt::Debug for EachBatch<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachBatch").finish_non_exhaustive()
    }
}

impl<T, R, F> fmt::Debug for MapResults<T, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapResults").finish_non_exhaustive()
    }
}
