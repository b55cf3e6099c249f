//! Joins several servers to one cluster: decides about the members, greets other nodes, encodes the frames
//! between nodes, and collects the subjects that each node wants from its peers. The crate does no I/O: in
//! tidegate-server, `event_loop` owns the sockets, and reads and writes the members' file; `sessions` routes
//! the messages.
//!
//! Every node dials every other node up to twice: a channel of kind [`Kind::Route`] for subscriptions and
//! messages, and a channel of kind [`Kind::Raft`] for the messages of Raft groups. A channel carries the
//! frames of its dialer. The dialled node answers the greeting and sends pongs. So a node forgets a peer's
//! subscriptions together with the channel that carried them.
//!
//! ```text
//! dialer   Hello ─────────>          who I am, a nonce
//!          <───────── Challenge      who I am, a nonce        (or Refused)
//!          Proof ─────────>          HMAC(secret, both)
//!          <─────────── Welcome      HMAC(secret, both)       (or Refused)
//!          Members, Vouch, Interest, Message, Raft, Ping ... ─────────>
//!          <───────────── Pong
//! ```
//!
//! ```
//! use tidegate_cluster::interest::Wanted;
//!
//! // The node announces the first subscription to a pattern to its peers, and the end of the last one.
//! let mut wanted = Wanted::default();
//! let (id, is_first) = wanted.add(b"orders.*", None);
//! assert!(is_first);
//! assert_eq!(wanted.add(b"orders.*", None), (id, false));
//! assert_eq!(wanted.remove(b"orders.*", None), None);
//! assert_eq!(wanted.remove(b"orders.*", None), Some(id));
//! ```

pub mod channel;
pub mod formation;
pub mod greeting;
pub mod groups;
pub mod interest;
pub mod members;
pub mod proof;
pub mod redial;
pub mod refusal;
pub mod rejoin;
pub mod roster;
pub mod slots;
pub mod wire;

/// The version of the protocol between nodes. Both nodes of a channel must speak this version.
pub const VERSION: u16 = 6;
/// The greatest number of nodes that a cluster may have besides this node, so that a set of peers fits into
/// 32 bits.
pub const PEERS_MAX: usize = 31;
/// The greatest length of the name of a cluster or a node, in bytes, so that names fit into a greeting.
pub const NAME_BYTES_MAX: usize = 128;

/// The use of a channel between two nodes. Each channel carries one kind of traffic, so that large Raft
/// messages do not delay messages of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The channel carries subscriptions and messages of clients, and the reports about members.
    Route,
    /// The channel carries the messages of Raft groups, and the data that nodes fetch while they catch up.
    Raft,
}

impl Kind {
    /// Both kinds of channels between nodes, for a loop over them.
    pub const ALL: [Self; 2] = [Self::Route, Self::Raft];

    /// Returns the index of this kind of channel in a table of both kinds.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the name of this kind of channel, for log lines.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Raft => "raft",
        }
    }
}
