//! Streams on the node: what clients publish into them and ask of them, and what they are told.
//!
//! Pure, like the node it speaks through. Owns the order of things: a command gathers in an entry ([`proposals`]), the entry goes to
//! the group, comes back committed and is applied ([`crate::stream`]), and only then whoever waits is answered ([`outcome`]). Requests
//! that change nothing are answered at once or, where a message must be read, at the end of the turn ([`reads`]). Consumers are
//! served then, too ([`consumers`]).
//!
//! Polling order, once a turn: [`Node::poll_proposal`] until it answers `None` (each followed by [`Node::handle_proposed`] or
//! [`Node::handle_refused`]), [`Node::handle_committed`] for what the group hands out, [`Node::serve_streams`].

mod consumers;
mod outcome;
mod proposals;
mod publish;
mod reads;
mod requests;
mod wall;

use std::collections::VecDeque;

use bytes::Bytes;
use tidegate::Time;

use self::consumers::Consumers;
use self::outcome::Then;
use self::proposals::{InFlight, Proposals, Sealed};
use self::reads::Reads;
use self::wall::Wall;
use super::core::Node;
use crate::api::error::ApiError;
use crate::config::StreamSettings;
use crate::ingest::Ingest;
use crate::replica::Committed;
use crate::store::Fetch;
use crate::stream::{Effect, Outcome, Place, Streams};

/// Bytes of entries that may wait for the log before publishers are not read any more.
const WAITING_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Where applied messages are read from.
pub trait Messages {
    /// The bytes of the message at this place, with whatever follows it.
    fn read(&mut self, place: Place) -> Fetch;
}

/// Counts of what streams did on this node since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamStats {
    /// Requests of the API.
    pub api_requests: u64,
    /// Of those, refused.
    pub api_errors: u64,
    /// Entries proposed.
    pub entries: u64,
    /// Commands in them.
    pub commands: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Publishers paused because too much waited for the log.
    pub pauses: u64,
    /// Requests and publishers refused because too much waited.
    pub refused: u64,
}

/// The streams of a node.
pub struct JetStream {
    streams: Streams,
    settings: StreamSettings,
    wall: Wall,
    /// Goes into the log.
    durable: Proposals<Then>,
    /// Concerns streams in memory: applied at the turn's end, never written.
    volatile: Proposals<Then>,
    /// Closed and not yet taken by the group.
    sealed: VecDeque<Sealed<Then>>,
    sealed_bytes: usize,
    in_flight: InFlight<Then>,
    consumers: Consumers,
    ingest: Ingest,
    reads: Reads,
    /// Connections that are not read until there is room.
    paused: Vec<usize>,
    stats: StreamStats,
    /// Scratch of one entry.
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    /// Scratch of one answer.
    body: Vec<u8>,
}
