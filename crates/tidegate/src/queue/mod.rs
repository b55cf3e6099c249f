//! A bounded queue with many producers and one consumer.
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
//!   once, unless the setting [`Full`] makes the queue drop items. The queue has not accepted an item that
//!   it gives back. An accepted item is handed out or, if the consumer is dropped, dropped once.
//! - Every part is bounded: the ring by the capacity, each buffer by its limit, the lane by its own limit.
//! - An idle consumer takes every item, even out of producers' buffers; a busy consumer fetches the items
//!   in the buffers about once a linger. An idle queue wakes no thread.
//! - Threads and tasks that wait for room stand in one line, first come first served. Each waiter takes at
//!   most its share of the ring in its turn, and then goes to the end of the line. A waiter that the consumer
//!   woke for its turn and that does not take it, such as a future that is never polled again, delays the
//!   other waiters once: for a tenth of a second, or for a millisecond if the consumer is a task.
//! - A blocking call returns [`WouldBlock`](crate::WouldBlock) where its thread must not wait.
//!
//! # How the consumer never misses an item while it sleeps
//!
//! *A claim* changes the word in which the consumer leaves its mark before it sleeps. Claim and mark are
//! both compare-exchanges: either the consumer sees the claim and does not sleep, or the claim sees the
//! mark and wakes the consumer after publication. A producer that waits for room leaves a mark in the
//! consumer's word in the same way. This protocol needs no fence and no timeout.
//!
//! *A push into a buffer* is two plain stores and touches no word of the consumer's. A full fence between
//! the store and a look at the mark would suffice, because the consumer has a full fence between its mark
//! and its sweep of the buffers, and one of two such fences comes first. But the fence costs more than the
//! push. So the producer takes the fence only while the flag `IDLING` is up, and the consumer relies on it
//! only when the flag has been up for a millisecond:
//!
//! 1. Before its first sleep in a while, the consumer puts the flag up, leaves its mark, sweeps the
//!    buffers, and sleeps for at most a millisecond; then it sweeps once more. A push that looked at the
//!    flag too early has long left its processor's store buffer by then (that takes nanoseconds, and an
//!    interrupt of the thread empties it too), so this sweep finds it. This is the only step that rests on
//!    time.
//! 2. After that, every push sees the flag, takes the fence and looks at the mark. So the consumer may
//!    sleep without a timeout, any number of times.
//! 3. After 16 lingers and 16 milliseconds awake, or after 65,536 items, the consumer takes the flag down,
//!    and pushes are two stores again.
//!
//! A consumer that is a task has no timer of its own. In step 1 it asks to be polled again until the
//! millisecond has passed. So it is busy for at most one millisecond in 16, or one in 65,536 items. If no
//! producer has a buffer, the consumer leaves the step out.
//!
//! The same steps end a closed queue: the queue is finished when a sweep after step 1 finds nothing, or
//! when no producer is left.

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
