//! The works of the event loop that its simulation counts, each with a cost.
//!
//! The product counts nothing: [`spend`] is then an empty function. With the feature `sim` it advances the
//! virtual clock of the simulated machine (`simulated`) by the cost of the work. So a simulated turn takes as
//! long as the work done in it, and its clock readings show the time as a real clock would.

/// A work of the event loop, or of a thread of its pool, with a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// A turn of the loop: the wait for events, the look at the timers.
    Turn,
    /// An event of a socket.
    Event,
    /// An accepted connection, up to its INFO.
    Accept,
    /// A closed connection: the end of its session and its socket.
    Close,
    /// A call that reads a socket.
    Read,
    /// A byte that a socket gave.
    ReadByte,
    /// A call that writes a socket.
    Write,
    /// A byte that a socket took.
    WriteByte,
    /// An operation of a client that the session parsed.
    Operation,
    /// A published message: the search of its receivers.
    Publish,
    /// A copy of a message in an outbox.
    Copy,
    /// A new subscription.
    Subscribe,
    /// A removed subscription.
    Unsubscribe,
    /// A frame of another node.
    Frame,
    /// A message of Raft from or to another node.
    RaftMessage,
    /// An entry that the loop proposed.
    Propose,
    /// An entry that the loop applied.
    Entry,
    /// A byte of an entry that the loop applied.
    EntryByte,
    /// A removed message that the loop subtracted from its segment.
    Reclaim,
    /// A subject that the loop collected for a page.
    Subject,
    /// A tick of a Raft group.
    Tick,
    /// The step of a TLS handshake that answers a hello, with an operation of the private key.
    TlsHello,
    /// The last step of a TLS handshake.
    TlsFinish,
    /// A check of a password against a bcrypt hash.
    Password,
    /// A page of subjects that a thread of the pool encoded.
    Page,
}

/// Counts `n` times this work.
#[cfg(feature = "sim")]
pub(crate) fn spend(work: Work, n: u64) {
    crate::simulated::spend(work, n);
}

/// Counts nothing: only the simulation has costs.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub(crate) const fn spend(work: Work, n: u64) {
    let _ = (work, n);
}

#[cfg(feature = "sim")]
impl Work {
    /// All works, in the order of their declaration.
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
