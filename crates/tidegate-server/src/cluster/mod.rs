//! Several servers as one: who belongs, how two of them greet each other, what is on the wire between them,
//! and what each wants to hear of the others. Pure: sockets are `node/driver`'s, the members' file is read
//! and written by it, the way of a message is `node/core`'s.
//!
//! Every node dials every other one, up to twice: a channel of kind [`Kind::Route`] for subscriptions and
//! messages, one of kind [`Kind::Raft`] for the group's messages. A channel carries what its dialer says; the
//! other end answers the greeting and says that it is there. So what is known of a peer's subscriptions lives
//! and dies with the channel that told it.
//!
//! ```text
//! dialer   Hello ─────────>          who I am, a nonce
//!          <───────── Challenge      who I am, a nonce        (or Refused)
//!          Proof ─────────>          HMAC(secret, both)
//!          <─────────── Welcome      HMAC(secret, both)       (or Refused)
//!          Members, Vouch, Interest, Message, Raft, Ping ... ─────────>
//!          <───────────── Pong
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
pub mod wire;

/// The version of what is spoken between nodes.
pub const VERSION: u16 = 3;
/// Nodes of a cluster at most, besides this one.
pub const PEERS_MAX: usize = 31;
/// Bytes a cluster's or a node's name may have.
pub const NAME_BYTES_MAX: usize = 128;

/// What a channel is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Subscriptions and messages.
    Route,
    /// The messages of groups, and what those who are behind fetch.
    Raft,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Route, Self::Raft];

    /// Where it stands in a table of both.
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Raft => "raft",
        }
    }
}
