//! The read buffer of one connection. It holds, in one piece, the bytes that the server has read and the
//! receiver has not finished. The buffer grows while reads fill it, up to a bound, and grows beyond the bound
//! only for a larger message. All buffers of a server together keep to the server's [`Budget`].

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::budget::{Budget, Crowded, Share};

/// The number of bytes of the read buffer of a new or quiet connection: small, because many are quiet.
const START_BYTES: usize = 4 << 10;

/// The read buffer of one connection, from which the receiver takes whole messages: the bytes from `start` to
/// `end` are read and not finished.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    max: usize,
    /// The number of bytes that the connection's next frame needs in one piece, to which the buffer grows.
    wants: usize,
    /// True if the last read filled the buffer, so that a larger buffer would save reads.
    filled: bool,
    /// The buffer's share of the budget; `None` for the placeholder of a buffer that is lent.
    share: Option<Share>,
}

impl Input {
    /// Creates an empty buffer, of at most `max` bytes as long as no message is longer.
    pub(super) fn new(max: usize, budget: &Arc<Budget>) -> Self {
        Self {
            bytes: vec![0; START_BYTES.min(max)],
            max,
            share: Some(Share::of(budget)),
            ..Self::placeholder()
        }
    }

    /// Creates the placeholder of a buffer that is lent or given up. The server reads nothing into a
    /// placeholder.
    pub(super) const fn placeholder() -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            max: 0,
            wants: 0,
            filled: false,
            share: None,
        }
    }

    /// Returns the bytes that the server has read and the receiver has not finished, for the receiver.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Removes the first `n` bytes, which the receiver has finished. The frame after them needs `wants` bytes
    /// in one piece.
    pub(super) fn consume(&mut self, n: usize, wants: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        self.wants = wants;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Makes room for the next read, and waits for room while the budget is used up. Gives the buffer's
    /// memory back if the budget asks for it.
    ///
    /// # Errors
    /// Other connections need the memory, and the buffer holds a part of a message: the connection ends.
    pub(super) fn poll_make_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Crowded>> {
        // The bytes that the receiver has not finished are less than one frame, so moving them to the front
        // costs little beside a read.
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let Some(share) = &mut self.share else {
            return Poll::Ready(Ok(()));
        };
        if share.poll_asked(cx) {
            let least = START_BYTES.min(self.max);
            if self.end > least {
                return Poll::Ready(Err(Crowded));
            }
            self.bytes.truncate(least);
            self.bytes.shrink_to_fit();
            self.filled = false;
            share.release();
        }
        let len = self.bytes.len();
        if std::mem::take(&mut self.filled) && len < self.max {
            let to = (len * 4).min(self.max);
            if share.try_grow(to - len) {
                self.bytes.resize(to, 0);
            }
        }
        // The buffer grows for a long message as the message's bytes arrive: the announcement of a size costs
        // the peer nothing, so it must cost the server nothing.
        let (len, need) = (self.bytes.len(), self.end + 1);
        if need > len {
            let to = (len * 2).clamp(need, self.wants.max(need));
            ready!(share.poll_grow(cx, to - len))?;
            self.bytes.resize(to, 0);
        }
        Poll::Ready(Ok(()))
    }

    /// Returns the room for the next read. It is not empty once [`Input::poll_make_room`] is ready, nor
    /// before the end of the handshake, which is shorter than the first buffer.
    pub(super) fn room(&mut self) -> &mut [u8] {
        &mut self.bytes[self.end..]
    }

    /// Records that the server has read `n` bytes into the buffer's room.
    pub(super) fn filled(&mut self, n: usize) {
        self.end += n;
        self.filled = self.end == self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn make_room(input: &mut Input) -> Poll<Result<usize, Crowded>> {
        let made = input.poll_make_room(&mut Context::from_waker(Waker::noop()));
        made.map_ok(|()| input.room().len())
    }

    /// Fills all the room of the buffer with bytes, and returns their number.
    fn fill(input: &mut Input) -> usize {
        let Poll::Ready(Ok(n)) = make_room(input) else {
            panic!("no room");
        };
        input.filled(n);
        n
    }

    #[test]
    fn grows_with_what_comes_and_no_further() {
        let mut input = Input::new(64 << 10, &Budget::new(1 << 20));
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let n = fill(&mut input);
            sizes.push(n);
            input.consume(n, 0);
        }
        assert_eq!(sizes, [4 << 10, 16 << 10, 64 << 10, 64 << 10, 64 << 10]);
    }

    #[test]
    fn a_long_message_finds_room_as_it_comes() {
        let mut input = Input::new(16, &Budget::new(1 << 20));
        assert_eq!(make_room(&mut input), Poll::Ready(Ok(16)));
        input.room()[..10].copy_from_slice(b"aaaaabbbbb");
        input.filled(10);
        input.consume(5, 40);
        // The bytes left move to the front; the buffer allocates nothing for the size that a header
        // announces.
        assert_eq!(make_room(&mut input), Poll::Ready(Ok(11)));
        assert_eq!(input.bytes(), b"bbbbb");
        let mut sizes = Vec::new();
        while input.bytes().len() < 40 {
            sizes.push(fill(&mut input));
        }
        assert_eq!(sizes, [11, 16, 8]);
        input.consume(40, 0);
        assert_eq!(make_room(&mut input), Poll::Ready(Ok(40)));
    }

    #[test]
    fn buffers_keep_to_the_budget_together() {
        let budget = Budget::new(40 << 10);
        let start = 4 << 10;
        let hold = |parts: usize| {
            let mut input = Input::new(start, &budget);
            input.consume(0, 64 << 10);
            for _ in 0..parts {
                fill(&mut input);
            }
            input
        };
        // This buffer has 32 KiB, of which 28 KiB come from the budget.
        let mut large = hold(4);
        let mut small = hold(2);
        assert_eq!(large.bytes().len(), 32 << 10);
        // The small buffer needs 8 KiB, which the budget still has. Then the small buffer needs 16 KiB more,
        // which the budget lacks, so the large buffer's connection ends.
        fill(&mut small);
        assert!(make_room(&mut small).is_pending());
        assert_eq!(make_room(&mut large), Poll::Ready(Err(Crowded)));
        assert!(make_room(&mut small).is_pending());
        drop(large);
        fill(&mut small);
        // A large buffer that holds only a few bytes shrinks when the budget asks, and its connection goes
        // on.
        small.consume(32 << 10, 0);
        let mut other = hold(3);
        assert!(make_room(&mut other).is_pending());
        assert_eq!(make_room(&mut small), Poll::Ready(Ok(start)));
        assert!(matches!(make_room(&mut other), Poll::Ready(Ok(1..))));
    }
}
