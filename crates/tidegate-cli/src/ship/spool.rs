//! The sender's spool: keeps the records of standard input on disk until the receiver acked them, so that
//! they survive the sender.
//!
//! The spool is a directory with a log (`tidegate-log`) and the file `session`, which names the version of
//! the spool's format. The log gathers the records, and only durable records reach the reader. `entry`
//! describes the records of the log. Each batch begins with the state of the spool, so that any segment that
//! is left names the session of its records. So the spool can release each segment that holds only acked
//! records.
//!
//! A start tells a crash from damage, as the log does: it cuts off a batch that a crash tore, and refuses a
//! spool that lacks durable bytes. For a batch that the log wrote in its last milliseconds, the start may not
//! be able to tell: then it cuts the batch off and reports that records may be missing.
//!
//! [`Writer`] appends, on one thread. [`Reader`] follows behind the writer, at its own pace, so that a
//! receiver that is away costs disk and not memory. [`Acks`] tells the spool which records the receiver
//! acked. The three share one lock, and none of them holds the lock while it waits.

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

/// The greatest number of bytes that the spool's reader takes from the log at once.
const BLOCK: usize = 256 * 1024;
