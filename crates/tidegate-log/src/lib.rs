//! A segmented, durable log: many groups share the log, and one sync serves all batches that gathered during
//! the sync before.
//!
//! **producer -> [`Appender`] -> controller -> one write, one sync -> durable position.** The appender gives
//! a batch its position ([`Lsn`]) and never blocks. The log thread writes and syncs the batches that
//! gathered. The log reports the position up to which it is durable by a [waker](Options::waker), a
//! [callback](Append::then) or a [wait](Log::wait_durable). The engine's controller decides how many batches
//! go together.
//!
//! ```
//! use std::sync::Arc;
//! use tidegate_log::{Append, Disk, Log, Options, Record};
//!
//! let dir = tempfile::tempdir()?;
//! let options = Options::default().segment_bytes(1 << 20);
//! let mut opened = Log::open(Arc::new(Disk::open(dir.path())?), options, |_| ())?;
//! let record = Record { group: 1, index: 1, payload: "hello".into(), ..Record::default() };
//! let appended = opened.appender.append(Append::new(vec![record])).map_err(|(_, e)| e)?;
//! opened.log.wait_durable(appended.end, None)?;
//! let read = opened.log.reader().read(appended.records[0], None)?;
//! assert_eq!(read.payload, "hello");
//! opened.appender.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An opening always reports the state of the log after a crash, as one of the four cases of [`Verdict`].
//! After a failed write or sync the log accepts nothing more ([`Failure`]). docs/log-format.md describes the
//! bytes.

mod ahead;
mod append;
mod batch;
mod catalog;
mod disk;
mod driver;
mod duty;
mod error;
mod examine;
mod gather;
mod group_index;
mod growth;
mod index;
mod keeper;
mod load;
mod log;
mod lsn;
mod open;
mod options;
mod planner;
mod read;
mod record;
mod recovery;
mod repair;
mod segment;
mod shared;
#[cfg(feature = "sim")]
mod sim;
#[cfg(feature = "sim")]
mod steps;
mod storage;
mod syncs;
mod wire;
mod writer;

pub use append::{Append, Appended, Appender};
pub use batch::batch_bytes;
pub use disk::Disk;
pub use duty::{Committed, Duty};
pub use error::{AppendError, Failure, OpenError, ReadError, ReleaseError};
pub use examine::{
    GroupReport, Report, SegmentReport, inspect, inspect_records, verify, verify_records,
};
pub use group_index::GroupIndex;
pub use index::RecordInfo;
pub use load::{Damage, DamageKind, SegmentDamage};
pub use log::{Log, Progress, SegmentInfo, Stats, compaction_candidate};
pub use lsn::Lsn;
pub use open::{Opened, Recovery};
pub use options::{Options, SYNC_BYTES_MAX};
pub use read::{Checked, Chunk, Reader};
pub use record::{KIND_LOST, Record};
pub use recovery::Verdict;
pub use repair::{RepairError, Repaired, repair};
pub use segment::{FORMAT_VERSION, SEGMENT_BYTES_MAX};
#[cfg(feature = "sim")]
pub use sim::{Cost, SECTOR, SimCounts, SimDisk};
#[cfg(feature = "sim")]
pub use steps::{Doing, Steps};
pub use storage::{Storage, StorageFile, is_full};
pub use syncs::{PastSync, SyncOf};
