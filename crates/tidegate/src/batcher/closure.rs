//! Closures as handlers, for the many cases that need no more.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use super::batch::Batch;
use super::handler::{Flow, Handler};

/// A closure given the items of each batch. Callers are answered `()` once their batch is handled, so that a
/// call is also a barrier for every cast before it. Items left in the vector are dropped; the vector itself
/// is used again.
pub const fn each_batch<T, F>(f: F) -> EachBatch<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Vec<T>) + 'static,
{
    EachBatch {
        f,
        item: PhantomData,
    }
}

/// A closure given the items of each batch that returns one result an item, in order: each caller gets its
/// own. With any other number of results every caller gets
/// [`ReplyError::ResultCount`](super::ReplyError::ResultCount).
pub const fn map_batch<T, R, F>(f: F) -> MapBatch<T, R, F>
where
    T: Send + 'static,
    R: Send + 'static,
    F: FnMut(&mut Vec<T>) -> Vec<R> + 'static,
{
    MapBatch {
        f,
        types: PhantomData,
    }
}

/// See [`each_batch`].
pub struct EachBatch<T, F> {
    f: F,
    item: PhantomData<fn(T)>,
}

/// See [`map_batch`].
pub struct MapBatch<T, R, F> {
    f: F,
    types: PhantomData<fn(T) -> R>,
}

impl<T, F> Handler for EachBatch<T, F>
where
    T: Send + 'static,
    F: FnMut(&mut Vec<T>) + 'static,
{
    type Item = T;
    type Reply = ();
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<T>) -> Flow {
        let mut items = std::mem::take(&mut batch.spare);
        batch.take_items(&mut items);
        let results = items.len();
        (self.f)(&mut items);
        items.clear();
        batch.spare = items;
        batch.answer(std::iter::repeat_n((), results));
        Flow::Continue
    }
}

impl<T, R, F> Handler for MapBatch<T, R, F>
where
    T: Send + 'static,
    R: Send + 'static,
    F: FnMut(&mut Vec<T>) -> Vec<R> + 'static,
{
    type Item = T;
    type Reply = R;
    type Info = Infallible;

    fn handle_batch(&mut self, batch: &mut Batch<T, R>) -> Flow {
        let mut items = std::mem::take(&mut batch.spare);
        batch.take_items(&mut items);
        let results = (self.f)(&mut items);
        items.clear();
        batch.spare = items;
        batch.answer(results);
        Flow::Continue
    }
}

impl<T, F> fmt::Debug for EachBatch<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EachBatch").finish_non_exhaustive()
    }
}

impl<T, R, F> fmt::Debug for MapBatch<T, R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapBatch").finish_non_exhaustive()
    }
}
