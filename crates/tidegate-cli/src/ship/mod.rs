//! `tidegate receive` and `tidegate send`: ship records reliably, like a pipe that survives a broken network.
//!
//! `records` defines the form of a record. `append` is the receiver's durable file, over the seam in `disk`,
//! and `spool` keeps the sender's records in a log (`tidegate-log`). The link (`tidegate-link`) carries the
//! records between the two programs. `receive` and `send` join these parts.

mod append;
pub(crate) mod args;
mod disk;
mod identity;
mod receive;
mod records;
mod send;
mod spool;

pub(crate) use receive::run as receive;
pub(crate) use records::Format;
pub(crate) use send::run as send;

/// The address and port on which a receiver listens by default, for this machine only.
pub(crate) const ADDRESS: &str = "127.0.0.1:7411";

/// Returns the largest frame, in bytes, for a record of at most `max_record` bytes. A last line without a
/// line feed needs one byte more on the link, see `records`.
const fn frame_max(max_record: u32) -> u32 {
    max_record + 1
}
