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
    /// The loop runs a turn: it waits for events and looks at its timers.
    Turn,
    /// The loop takes an event of a socket.
    Event,
    /// The loop accepts a connection, up to its INFO.
    Accept,
    /// The loop closes a connection: it ends the session and the socket.
    Close,
    /// The loop calls the system to read a socket.
    Read,
    /// The loop reads a byte from a socket.
    ReadByte,
    /// The loop calls the system to write a socket.
    Write,
    /// The loop writes a byte to a socket.
    WriteByte,
    /// The session parses an operation of a client.
    Operation,
    /// The node searches the receivers of a published message.
    Publish,
    /// The node puts a copy of a message into an outbox.
    Copy,
    /// The node adds a subscription.
    Subscribe,
    /// The node removes a subscription.
    Unsubscribe,
    /// The loop handles a frame of another node.
    Frame,
    /// The loop sends a Raft message to another node, or receives one.
    RaftMessage,
    /// The loop proposes an entry to its group.
    Propose,
    /// The loop applies a committed entry.
    Entry,
    /// The loop applies a byte of a committed entry.
    EntryByte,
    /// The loop subtracts a removed message from its segment.
    Reclaim,
    /// The loop collects a subject for a page.
    Subject,
    /// The loop ticks a Raft group.
    Tick,
    /// A thread of the pool answers the hello of a TLS handshake, with an operation of the private key.
    TlsHello,
    /// A thread of the pool does the last step of a TLS handshake.
    TlsFinish,
    /// A thread of the pool checks a password against a bcrypt hash.
    Password,
    /// A thread of the pool encodes a page of subjects.
    Page,
}

/// Counts `n` times this work, and advances the simulation's clock by its cost.
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
    pub const ALL: [Self; 25] = [
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
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Frame,
        Self::RaftMessage,
        Self::Propose,
        Self::Entry,
        Self::EntryByte,
        Self::Reclaim,
        Self::Subject,
        Self::Tick,
        Self::TlsHello,
        Self::TlsFinish,
        Self::Password,
        Self::Page,
    ];
}
