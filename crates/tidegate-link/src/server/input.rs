//! The read buffer of one connection: bytes read and not dealt with, in one piece. It grows with what comes,
//! to a bound, and beyond that only for a message that needs more.

/// What a quiet connection has.
const START_BYTES: usize = 4 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    max: usize,
    /// The next frame needs so many bytes in one piece.
    wants: usize,
    /// The last read filled all there was: more is worth having.
    filled: bool,
}

impl Input {
    /// Empty; of at most `max` bytes as long as no message is longer.
    pub(super) fn new(max: usize) -> Self {
        Self {
            bytes: vec![0; START_BYTES.min(max)],
            start: 0,
            end: 0,
            max,
            wants: 0,
            filled: false,
        }
    }

    /// What was read and is not dealt with.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `n` bytes are dealt with; the frame after them needs `wants` in one piece.
    pub(super) fn consume(&mut self, n: usize, wants: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        self.wants = wants;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Where to read to: never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        // What is left of the last read is less than one frame: moving it costs nothing beside reading.
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let len = self.bytes.len();
        if std::mem::take(&mut self.filled) && len < self.max {
            self.bytes.resize((len * 4).min(self.max), 0);
        }
        // A long message gets its room as it comes: announcing one costs the peer nothing, and shall cost
        // nothing here.
        let need = self.end + 1;
        if need > self.bytes.len() {
            let wants = self.wants.max(need);
            self.bytes.resize((len * 2).clamp(need, wants), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// `n` bytes were read there.
    pub(super) fn filled(&mut self, n: usize) {
        self.end += n;
        self.filled = self.end == self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_with_what_comes_and_no_further() {
        let mut input = Input::new(64 << 10);
        let mut sizes = Vec::new();
        for _ in 0..5 {
            let n = input.room().len();
            sizes.push(n);
            input.filled(n);
            input.consume(n, 0);
        }
        assert_eq!(sizes, [4 << 10, 16 << 10, 64 << 10, 64 << 10, 64 << 10]);
    }

    #[test]
    fn a_long_message_finds_room_as_it_comes() {
        let mut input = Input::new(16);
        input.room()[..10].copy_from_slice(b"aaaaabbbbb");
        input.filled(10);
        input.consume(5, 40);
        // What is left moves to the front; nothing is taken on the word of a header.
        assert_eq!(input.room().len(), 11);
        assert_eq!(input.bytes(), b"bbbbb");
        let mut sizes = Vec::new();
        while input.bytes().len() < 40 {
            let n = input.room().len();
            input.filled(n);
            sizes.push(n);
        }
        assert_eq!(sizes, [11, 16, 8]);
        input.consume(40, 0);
        assert_eq!(input.room().len(), 40);
    }
}
