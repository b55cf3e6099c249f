//! The queue: bounded, many producers, one consumer.
//!
//! A [`Queue`] is a ring of items that producers fill by *claims* and the [`Consumer`] drains in batches. A
//! [`Producer`] may own a buffer, so that its items share one claim; the batch length is a constant or a
//! [`Controller`](crate::controller::Controller)'s decision. Threads and tasks of any runtime can be on
//! either side at the same time.
//!
//! ```
//! let (queue, mut consumer) = tidegate::queue::bounded::<u32>(1024)?;
//! let mut producer = queue.fixed(100)?;
//! std::thread::spawn(move || (0..250).for_each(|i| producer.blocking_push(i).expect("open")));
//! drop(queue);
//! let mut sum = 0;
//! while let Ok(batch) = consumer.blocking_recv(64, |i| sum += i) {
//!     assert!(batch.items <= 64);
//! }
//! assert_eq!(sum, 249 * 250 / 2);
//! # Ok::<(), tidegate::queue::QueueError>(())
//! ```
//!
//! # Guarantees
//!
//! - The consumer hands out the items of one producer in the order the producer pushed them, each exactly
//!   once, unless the queue's setting is to drop items. An item given back was not accepted. An accepted item
//!   is handed out or, if the consumer is dropped, dropped once.
//! - Every part is bounded: the ring by the capacity, each buffer by its limit, the lane by its own limit.
//! - An idle consumer takes every item; a busy one fetches a quiet producer's items about once a linger. An
//!   idle queue wakes no thread.
//! - Threads and tasks that wait for room stand in one line, first come first served. Each takes at most its
//!   share of the ring in its turn, and then goes to the end of the line. A called waiter that does not take
//!   its turn, such as a future that is never polled again, delays the others once: for a tenth of a second,
//!   or for a millisecond if the consumer is a task.
//! - A blocking call returns [`WouldBlock`](crate::WouldBlock) where its thread must not wait.
//!
//! # How the consumer never misses an item while it sleeps
//!
//! *A claim* changes the word in which the consumer leaves its mark before it sleeps, and both do so by
//! compare-exchange: either the consumer sees the claim and does not sleep, or the claim sees the mark and
//! wakes the consumer after publication. The same holds, the other way round, for a producer that waits for
//! room. This needs no fence and no timeout.
//!
//! *A push into a buffer* is two plain stores and touches no word of the consumer's. A full fence between the
//! store and a look at the mark would do (the consumer has one between its mark and its sweep of the buffers,
//! and of two such fences one comes first), but costs more than the push. So the producer takes the fence
//! only while the flag `IDLING` is up, and the consumer relies on it only when the flag has been up for a
//! millisecond:
//!
//! 1. Going to sleep for the first time in a while, the consumer puts the flag up, marks, sweeps, and sleeps
//!    for at most a millisecond; then it sweeps once more. A push that looked at the flag too early has long
//!    left its processor's store buffer by then (that takes nanoseconds, and an interrupt of the thread
//!    empties it too), so this sweep finds it. This is the only step that rests on time.
//! 2. From then on every push sees the flag, takes the fence and looks at the mark: the consumer sleeps
//!    without a timeout, as often as it likes.
//! 3. After 16 lingers and 16 milliseconds awake, or after 65,536 items, the consumer takes the flag down,
//!    and pushes are two stores again.
//!
//! A task has no timer of its own. In step 1 it asks to be polled again until the millisecond has passed, so
//! it is busy for at most one in 16, or in so many items; without producers that have a buffer the step is
//! left out.
//!
//! The same steps end a closed queue: it is finished when a sweep after step 1 finds nothing, or when no
//! producer is left.

mod builder;
mod claims;
mod consumer;
mod control;
mod error;
mod growth;
mod handle;
mod lane;
mod metrics;
mod producer;
mod ring;
mod shared;
mod sync;
mod wait;

pub use builder::{Builder, CAPACITY_MAX, Full, Wait, bounded};
pub use consumer::{Consumer, Drained, Visit};
pub use error::{Closed, FlushError, PushError, QueueError, RecvError};
pub use handle::Queue;
pub use metrics::Metrics;
pub use producer::{Flush, Producer};
