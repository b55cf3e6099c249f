//! `tidegate receive` and `tidegate send`: records shipped reliably, like a pipe that survives a broken
//! network.
//!
//! `records` says what a record is, `append` and `spool` are the two ends' durable files, over the seam in
//! `disk`; the link (`tidegate-link`) carries what is between. `receive` and `send` join them.

mod append;
mod disk;
mod identity;
mod receive;
mod records;
mod send;
mod spool;

pub(crate) use receive::run as receive;
pub(crate) use records::Format;
pub(crate) use send::run as send;

/// Where a receiver listens if not told otherwise.
pub(crate) const ADDRESS: &str = "127.0.0.1:7411";

/// The most bytes one record takes as a message: the last line's missing line feed is told in one byte more.
const fn frame_max(max_record: u32) -> u32 {
    max_record + 1
}
