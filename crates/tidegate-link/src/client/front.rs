//! The front: the block in which every sender of one client encodes its messages, until the I/O task takes
//! the block.
//!
//! Pure and small: the front sits behind one mutex that a sender holds for the few nanoseconds one message
//! takes. A sender copies its payload once, straight into the block that the I/O task will write to the
//! socket. The I/O task takes the whole block and leaves an empty one. While the task holds as many
//! unacknowledged bytes as it may, it takes no block; the front's block then fills up, and senders wait. A
//! sender of many messages borrows the block instead, so that its iterator does not run under the lock.
//!
//! Invariants: the block grows only for a single message that is larger than a whole block; the front gives
//! out numbers in the order of the messages in the block, without gaps; after [`close`](Front::close) the
//! front takes only messages that producers pushed into the queue before the close.

use std::task::Waker;

use crate::Seq;
use crate::frame::Layout;
use crate::proto::Block;

/// The reasons why a client's front does not take a message. The sender waits or fails by the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The block has no room for the message until the I/O task takes the block.
    Full,
    /// The message is longer than any block may be, so waiting is useless: `max` is the longest payload in
    /// bytes.
    TooLarge { max: usize },
    /// The client has ended or is closing, so its front takes no messages of senders.
    Closed,
}

/// The block that a client's senders fill now, with the state that numbers its messages.
#[derive(Debug)]
pub(crate) struct Filling {
    bytes: Vec<u8>,
    /// The length in bytes up to which messages may fill the block: the capacity of a block, or 0 while a
    /// sender has borrowed the front's block, and after the front's close.
    end: usize,
    count: u64,
    /// The number that the next message in the block gets, so that its sender learns it at once.
    next: Seq,
    layout: Layout,
    payload_max: usize,
}

impl Filling {
    /// Encodes `payload` into the block, for the I/O task to send; returns the number of the message.
    #[inline]
    pub(crate) fn push(&mut self, payload: &[u8]) -> Result<Seq, Refused> {
        let frame = self.layout.framed(payload.len());
        if frame > self.end.saturating_sub(self.bytes.len()) || payload.len() > self.payload_max {
            self.check_alone(payload.len())?;
        }
        let seq = self.next;
        self.layout.encode(seq, payload, &mut self.bytes);
        self.next = seq.next();
        self.count += 1;
        Ok(seq)
    }

    /// Checks that a message that does not fit into the rest of the block may have a block of its own: the
    /// block is empty, and will grow for the message.
    #[cold]
    fn check_alone(&self, len: usize) -> Result<(), Refused> {
        if len > self.payload_max {
            let max = self.payload_max;
            return Err(Refused::TooLarge { max });
        }
        if self.end == 0 || !self.bytes.is_empty() {
            return Err(Refused::Full);
        }
        Ok(())
    }

    /// Returns the number of the last message that the block took, for its sender.
    pub(crate) fn last(&self) -> Seq {
        Seq::new(self.next.get().wrapping_sub(1))
    }
}

/// A client's front, through which all senders hand messages to the I/O task: the block that the senders fill
/// now, and the wakers and flags that its lock protects.
#[derive(Debug)]
pub(crate) struct Front {
    filling: Filling,
    capacity: usize,
    /// The waker of the I/O task, if the task sleeps until a sender puts a message into the front's block.
    io: Option<Waker>,
    lent: bool,
    /// True if a sender found no room because the block was lent to another sender. The borrower then wakes
    /// it.
    missed: bool,
    closed: bool,
}

impl Front {
    /// Creates an empty front for blocks of `capacity` bytes.
    pub(crate) fn new(layout: Layout, next: Seq, payload_max: usize, capacity: usize) -> Self {
        let filling = Filling {
            bytes: Vec::with_capacity(capacity),
            end: capacity,
            count: 0,
            next,
            layout,
            payload_max,
        };
        Self {
            filling,
            capacity,
            io: None,
            lent: false,
            missed: false,
            closed: false,
        }
    }

    /// Encodes `payload` into the front's block, for the I/O task to send; returns the number of the message.
    #[inline]
    pub(crate) fn push(&mut self, payload: &[u8]) -> Result<Seq, Refused> {
        match self.filling.push(payload) {
            Err(Refused::Full) if self.closed => Err(Refused::Closed),
            Err(refused) => {
                self.missed |= self.lent;
                Err(refused)
            }
            taken => taken,
        }
    }

    /// Encodes a message that a producer pushed into the queue. A closed front takes it too, because the
    /// producer gave it before the close.
    #[inline]
    pub(crate) fn push_queued(&mut self, payload: &[u8]) -> Result<Seq, Refused> {
        if self.lent {
            return Err(Refused::Full);
        }
        self.filling.end = self.capacity;
        let pushed = self.filling.push(payload);
        if self.closed {
            self.filling.end = 0;
        }
        pushed
    }

    /// Lends the block to one sender, which encodes many messages without the lock. Until that sender gives
    /// the block back, other senders find no room.
    pub(crate) fn lend(&mut self) -> Result<Filling, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.lent {
            self.missed = true;
            return Err(Refused::Full);
        }
        self.lent = true;
        let mut kept = Filling {
            bytes: Vec::new(),
            end: 0,
            ..self.filling
        };
        kept.count = 0;
        Ok(std::mem::replace(&mut self.filling, kept))
    }

    /// Takes the lent block back. Returns whether another sender found no room meanwhile and must be woken.
    pub(crate) fn give_back(&mut self, mut filling: Filling) -> bool {
        debug_assert!(self.lent);
        self.lent = false;
        if self.closed {
            filling.end = 0;
        }
        self.filling = filling;
        std::mem::take(&mut self.missed)
    }

    /// Returns the block with all messages that senders gave since the last call, if there are any. An empty
    /// block replaces it.
    pub(crate) fn take(&mut self, spare: impl FnOnce() -> Option<Vec<u8>>) -> Option<Block> {
        let count = std::mem::take(&mut self.filling.count);
        if count == 0 {
            return None;
        }
        // The front does not keep a spare block that grew for a large message.
        let spare = spare().filter(|spare| spare.capacity() <= 2 * self.capacity);
        let mut empty = spare.unwrap_or_default();
        empty.reserve_exact(self.capacity);
        Some(Block {
            bytes: std::mem::replace(&mut self.filling.bytes, empty),
            first: Seq::new(self.filling.next.get().wrapping_sub(count)),
            count,
        })
    }

    /// Stores the I/O task's waker and returns true. If the block holds messages already, returns false,
    /// because the task must take them first.
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        if self.filling.count > 0 {
            return false;
        }
        match &mut self.io {
            Some(io) => io.clone_from(waker),
            io => *io = Some(waker.clone()),
        }
        true
    }

    /// Takes the I/O task's waker out, if the task sleeps. The sender of a message wakes the task after it
    /// has released the lock, so that the task does not wait for the lock.
    #[inline]
    pub(crate) fn take_sleeper(&mut self) -> Option<Waker> {
        self.io.take()
    }

    /// Closes the front, because the client closes: it takes no more messages, except those in the producers'
    /// queue.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.filling.end = 0;
    }

    /// Returns whether no sender can add a message any more, so that the client can end: the front is closed,
    /// empty, and not lent.
    pub(crate) fn is_finished(&self) -> bool {
        self.closed && self.filling.count == 0 && !self.lent
    }

    /// Returns the number of the last message that the front took, up to which a caller may wait.
    pub(crate) fn last(&self) -> Seq {
        self.filling.last()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn front(capacity: usize) -> Front {
        Front::new(Layout::Session, Seq::new(7), 16, capacity)
    }

    #[test]
    fn numbers_follow_the_bytes() {
        let mut front = front(40);
        assert_eq!(front.push(b"abcde"), Ok(Seq::new(7)));
        assert_eq!(front.push(b"f"), Ok(Seq::new(8)));
        let block = front.take(|| None).unwrap();
        assert_eq!((block.first, block.count), (Seq::new(7), 2));
        assert_eq!(block.bytes, b"\x05\0\0\0abcde\x01\0\0\0f");
        assert!(front.take(|| None).is_none());
        assert_eq!(front.push(b""), Ok(Seq::new(9)));
    }

    #[test]
    fn a_full_block_takes_nothing_until_it_is_taken() {
        let mut front = front(20);
        assert_eq!(front.push(&[0; 16]), Ok(Seq::new(7)));
        assert_eq!(front.push(b""), Err(Refused::Full));
        assert_eq!(front.push(&[0; 17]), Err(Refused::TooLarge { max: 16 }));
        let capacity = front.take(|| None).unwrap().bytes.capacity();
        assert_eq!(capacity, 20);
        assert_eq!(front.push(b""), Ok(Seq::new(8)));
    }

    #[test]
    fn a_message_larger_than_a_block_goes_alone() {
        let mut front = front(10);
        assert_eq!(front.push(&[0; 16]), Ok(Seq::new(7)));
        assert_eq!(front.push(b""), Err(Refused::Full));
        let grown = front.take(|| None).unwrap().bytes;
        assert_eq!(front.push(b"a"), Ok(Seq::new(8)));
        assert_eq!(front.push(&[0; 16]), Err(Refused::Full));
        let large = Vec::with_capacity(grown.capacity().max(30));
        assert_eq!(front.take(|| Some(large)).unwrap().count, 1);
        assert!(front.filling.bytes.capacity() < 20);
    }

    #[test]
    fn a_lent_block_leaves_no_room_and_loses_nothing() {
        let mut front = front(40);
        front.push(b"a").unwrap();
        let mut lent = front.lend().unwrap();
        assert_eq!(front.lend().unwrap_err(), Refused::Full);
        assert_eq!(front.push(b""), Err(Refused::Full));
        assert!(front.take(|| None).is_none());
        assert_eq!(lent.push(b"b"), Ok(Seq::new(8)));
        front.close();
        assert!(!front.is_finished());
        assert!(front.give_back(lent));
        assert_eq!(front.push(b""), Err(Refused::Closed));
        assert_eq!(front.take(|| None).unwrap().count, 2);
        assert!(front.is_finished());
    }
}
