//! The read buffer of one connection: bytes read and not dealt with, in one piece. It
//! grows with the input up to a bound, and beyond the bound only for a larger message.

/// The buffer of a quiet connection.
const START_BYTES: usize = 4 << 10;

/// The read buffer of one connection. See the module.
#[derive(Debug)]
pub(super) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    max: usize,
    /// The next frame needs so many bytes in one piece.
    wants: usize,
    /// The last read filled the buffer, so more room is useful.
    filled: bool,
}

impl Input {
    /// Creates an empty buffer, of at most `max` bytes as long as no message is longer.
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

    /// The bytes read and not dealt with.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Removes the first `n` bytes; the frame after them needs `wants` in one piece.
    pub(super) fn consume(&mut self, n: usize, wants: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        self.wants = wants;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// The room for the next read: never empty.
    pub(super) fn room(&mut self) -> &mut [u8] {
        // The rest of the last read is less than one frame: moving it costs little beside reading.
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let len = self.bytes.len();
        if std::mem::take(&mut self.filled) && len < self.max {
            self.bytes.resize((len * 4).min(self.max), 0);
        }
        // A long message gets its room as its bytes arrive: an announcement costs the
        // peer nothing, so it must cost nothing here.
        let need = self.end + 1;
        if need > self.bytes.len() {
            let wants = self.wants.max(need);
            self.bytes.resize((len * 2).clamp(need, wants), 0);
        }
        &mut self.bytes[self.end..]
    }

    /// Records that `n` bytes were read into the room.
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
        // The rest moves to the front; the buffer allocates nothing for a header's announcement.
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
