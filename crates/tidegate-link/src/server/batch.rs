//! The batch of messages that a session's handler receives in one call.

use crate::frame::{Layout, Payloads};
use crate::{Seq, SessionId};

/// Messages of one session for its handler, in order, borrowed from the read buffer: an iterator of payloads.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    payloads: Payloads<'a>,
    bytes: usize,
    first: Seq,
    len: u64,
    session: Option<SessionId>,
}

impl<'a> Batch<'a> {
    pub(crate) const fn new(
        layout: Layout,
        frames: &'a [u8],
        first: Seq,
        len: u64,
        session: Option<SessionId>,
    ) -> Self {
        Self {
            payloads: layout.payloads(frames),
            bytes: frames.len(),
            first,
            len,
            session,
        }
    }

    /// Returns the number of the batch's first message, for a handler that stores numbers.
    #[must_use]
    pub const fn first(&self) -> Seq {
        self.first
    }

    /// Returns the number of the batch's last message. (The name `last` belongs to the iterator.)
    #[must_use]
    pub const fn last_seq(&self) -> Seq {
        self.first.plus(self.len - 1)
    }

    /// Returns the number of messages of which the server made the batch: at least one. Messages that the
    /// iterator has returned still count.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // A batch is never empty.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of bytes that the batch's messages took on the wire, with their framing.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the session that the messages belong to; `None` on a plain connection.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        self.session
    }
}

impl<'a> Iterator for Batch<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.payloads.next()
    }
}
