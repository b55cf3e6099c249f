//! Finds the place in the log of one message for the monitor, which then asks the log for the sync that made
//! the message durable.

use tidegate_log::{Log, Lsn};
use tidegate_raft::store::Store;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::schema::sequence::StreamSeq;

use super::query::Message;
use crate::sessions::Node;

/// The place of a message on this node, or the reason why the node has none.
#[derive(Clone, Debug)]
pub(crate) enum Located {
    /// The message is in this node's log.
    Here(Here),
    /// The stream keeps its messages in memory, so no sync makes them durable.
    InMemory,
    /// The stream had the message and has removed it.
    Removed,
    /// The stream has no message of this number yet. Its last one has this number, which is 0 in an empty
    /// stream.
    NotYet(u64),
    /// Other nodes keep the stream, and this one does not.
    Elsewhere,
    /// No stream has this name.
    UnknownStream,
}

/// A message in this node's log.
#[derive(Clone, Debug)]
pub(crate) struct Here {
    /// The log position of the record with the message.
    pub(crate) lsn: Lsn,
    pub(crate) bytes: u64,
    /// True if this node leads the group that keeps the stream, so that it decides about the group's entries.
    pub(crate) leads: bool,
    /// The node's log, from which the monitor reads the record and learns about the sync.
    pub(crate) log: Log,
}

/// Finds the message in the streams of this node.
pub(super) fn locate(node: &Node, store: &Store, message: &Message) -> Located {
    let name = &message.stream;
    let kept = store.slots().find_map(|at| {
        let stream = node.streams(at)?.kept(name)?;
        Some((at, stream))
    });
    let Some((at, stream)) = kept else {
        let listed = node.directory().and_then(|d| d.applied().by_name(name));
        return match listed {
            Some(_) => Located::Elsewhere,
            None => Located::UnknownStream,
        };
    };
    let last = stream.state().last_seq.get();
    if message.seq > last {
        return Located::NotYet(last);
    }
    if stream.config().storage == Storage::Memory {
        return Located::InMemory;
    }
    match stream.message(StreamSeq::new(message.seq)) {
        Some(stored) => Located::Here(Here {
            lsn: Lsn::new(stored.place.lsn),
            bytes: u64::from(stored.bytes),
            leads: store.leads_settled(at),
            log: store.log().clone(),
        }),
        None => Located::Removed,
    }
}
