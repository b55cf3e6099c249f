//! Lists the works of the event loop, each with a cost, which its simulation counts.
//!
//! The product counts nothing: [`spend`] is then an empty function. With the feature `sim` it advances the
//! virtual clock of the simulated machine (`simulated`) by the cost of the work. So a simulated turn takes as
//! long as the works that the loop does in it, and the loop's clock readings show the time as a real clock
//! would.

/// A work that the event loop or a thread of its pool does, and that costs time in a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// The loop runs a turn: it waits for events and looks at its timers. It costs time even if nothing has
    /// happened.
    Turn,
    /// The loop takes an event of a socket, such as a readable socket.
    Event,
    /// The loop accepts a connection, up to its INFO, which costs several calls of the system.
    Accept,
    /// The loop closes a connection: it ends the session and the socket, which costs a call of the system.
    Close,
    /// The loop calls the system to read a socket, which costs time even for few bytes.
    Read,
    /// The loop reads a byte from a socket; its copy costs time beside the call.
    ReadByte,
    /// The loop calls the system to write a socket, which costs time even for few bytes.
    Write,
    /// The loop writes a byte to a socket; its copy costs time beside the call.
    WriteByte,
    /// The session parses an operation of a client, such as a publish or a subscription.
    Operation,
    /// The node searches the receivers of a published message, which costs time even if there are none.
    Publish,
    /// The node puts a copy of a message into an outbox, which costs time for each receiver.
    Copy,
    /// The node copies a byte of a message into an outbox; its bytes cost time beside the copy.
    CopyByte,
    /// The node adds a subscription.
    Subscribe,
    /// The node removes a subscription, for example of a client that leaves.
    Unsubscribe,
    /// The loop handles a frame of another node, such as a message or an announcement.
    Frame,
    /// The loop sends a Raft message to another node, or receives one, and encodes or decodes it.
    RaftMessage,
    /// The loop proposes an entry to its group, which costs time for each entry.
    Propose,
    /// The loop applies a committed entry, which costs time for each entry.
    Entry,
    /// The loop applies a byte of a committed entry; its bytes cost time beside the entry.
    EntryByte,
    /// The loop removes a message at the entry of a command that removes many messages of a stream.
    Remove,
    /// The loop subtracts a removed message from its segment, so that the log can release the segment.
    Reclaim,
    /// The loop frees a part of the collections that removals of many messages have left: 256 names of
    /// subjects, and as many times of expiry.
    Free,
    /// The loop compares a subject with the pattern of a purge before the purge's entry.
    Foresee,
    /// The loop collects a subject for a page.
    Subject,
    /// The loop looks at a subject for the first messages of a consumer.
    Search,
    /// The loop compares a subject with patterns, or looks at a block of messages: for a request for stored
    /// messages, or for an entry with a publish that depends on a pattern.
    LookUp,
    /// A new leader takes up a consumer of its group.
    TakeUp,
    /// The loop serves a consumer, or a consumer looks at a message that it delivers or passes over. The
    /// message's way to its receivers costs time beside that.
    Deliver,
    /// The loop describes a stream or a consumer for a report.
    Describe,
    /// The loop lists a connection or a subscription for a report.
    List,
    /// The loop looks at a connection to decide whether a report lists it.
    Look,
    /// The loop ticks a Raft group.
    Tick,
    /// A thread of the pool answers the hello of a TLS handshake, with an operation of the private key.
    TlsHello,
    /// A thread of the pool does the last step of a TLS handshake, after which the client sends operations.
    TlsFinish,
    /// A thread of the pool checks a password against a bcrypt hash, which is slow on purpose.
    Password,
    /// A thread of the pool encodes a page of subjects for a client.
    Page,
}

/// Counts `n` times this work, and advances the simulation's clock by its cost, so that a turn takes as long
/// as its works.
#[cfg(feature = "sim")]
pub(crate) fn spend(work: Work, n: u64) {
    crate::simulated::spend(work, n);
}

/// Counts nothing, because only the simulation has costs.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn spend(work: Work, n: u64) {
    let _ = (work, n);
}

#[cfg(feature = "sim")]
impl Work {
    /// All works, in the order of their declaration, which is the order of the tables of costs.
    pub const ALL: [Self; 36] = [
        Self::Turn,
        Self::Event,
        Self::Accept,
        Self::Close,
        Self::Read,
        Self::ReadByte,
        Self::Write,
        Self::WriteByte,
        Self::Operation,
        Self::Publish,
        Self::Copy,
        Self::CopyByte,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Frame,
        Self::RaftMessage,
        Self::Propose,
        Self::Entry,
        Self::EntryByte,
        Self::Remove,
        Self::Reclaim,
        Self::Free,
        Self::Foresee,
        Self::Subject,
        Self::Search,
        Self::LookUp,
        Self::TakeUp,
        Self::Deliver,
        Self::Describe,
        Self::List,
        Self::Look,
        Self::Tick,
        Self::TlsHello,
        Self::TlsFinish,
        Self::Password,
        Self::Page,
    ];
}
