//! Replicates the streams of a node in Raft groups: the node's membership in each group, and the data
//! directory. All groups of a node share one log.
//!
//! [`replica`] is one member of one group, pure code around the consensus of the crate `raft`. [`store`]
//! keeps the data directory: it writes the log and the checkpoints of each group, and releases log segments
//! that no group needs. [`catchup`] is the protocol by which a member fetches the state of another member,
//! as pure code.
//!
//! ```
//! use bytes::Bytes;
//! use tidegate_cluster::groups::ALL;
//! use tidegate_log::{Lsn, batch_bytes};
//! use tidegate_raft::lab::Lab;
//! use tidegate_raft::replica::{Group, GroupOptions, Restored};
//!
//! let options = GroupOptions {
//!     group: ALL,
//!     id: 1,
//!     voters: vec![1],
//!     uncommitted_bytes_max: 16 << 20,
//!     tail_bytes_max: 1 << 20,
//!     batch_bytes_max: 1 << 20,
//!     rejoined: None,
//!     lab: Lab::NONE,
//! };
//! let mut group = Group::open(options, Restored::default());
//!
//! // The caller owns the log: it writes the records that the group hands out, and reports the sync.
//! let mut end = 0;
//! let mut sync = |group: &mut Group| {
//!     while let Some(batch) = group.poll_append() {
//!         let mut at = end + 48;
//!         let mut positions = Vec::new();
//!         for record in &batch.records {
//!             positions.push(Lsn::new(at));
//!             at += record.stored_bytes();
//!         }
//!         end += batch_bytes(&batch.records);
//!         group.handle_appended(&positions, Lsn::new(end));
//!     }
//!     group.handle_durable(Lsn::new(end));
//! };
//! sync(&mut group);
//! while group.poll_committed().is_some() {}
//! let proposed = group.propose(Bytes::from_static(b"an entry"), 1).expect("there is room");
//! assert!(group.poll_committed().is_none(), "it is not durable yet");
//! sync(&mut group);
//! let committed = group.poll_committed().expect("a group of one needs only its own disk");
//! assert_eq!(committed.index, proposed.index);
//! ```

pub mod catchup;
pub mod lab;
pub mod replica;
pub mod store;
