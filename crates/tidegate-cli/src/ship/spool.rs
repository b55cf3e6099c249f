//! The sender's spool: keeps the records of standard input on disk until the receiver has acked them, so that
//! they survive the end of the sender.
//!
//! The spool is a directory with a log (`tidegate-log`) and the file `session`, which names the version of
//! the spool's format. The log holds the records, and only durable records reach the reader. `entry`
//! describes the log's entries. Each batch begins with the state of the spool, so that any remaining segment
//! names the session of its records. So the spool can release each segment that holds only acked records.
//!
//! At a start, the spool distinguishes a crash from damage, as the log does: it cuts off a batch that a crash
//! tore, and refuses a spool that lacks durable bytes. For a batch that the log wrote in its last
//! milliseconds, the start may not be able to distinguish them. Then it cuts the batch off and reports that
//! records may be missing.
//!
//! [`Writer`] appends, on one thread. [`Reader`] follows behind the writer at its own pace, so that the
//! records for an absent receiver take disk space and not memory. [`Acks`] passes the receiver's acks to the
//! spool. The three share one lock, and none of them holds the lock while it waits.

mod entry;
mod error;
mod open;
mod reader;
mod shared;
#[cfg(test)]
mod tests;
mod writer;

pub(super) use error::SpoolError;
pub(super) use open::{Opened, open};
pub(super) use reader::{Read, Reader};
pub(super) use writer::{Acks, Writer};

/// The greatest number of bytes that the spool's reader takes from the log at once, to bound the memory.
const BLOCK: usize = 256 * 1024;
