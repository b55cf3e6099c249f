//! A connection's buffer of outgoing bytes: it copies short arguments into one block, and keeps long
//! arguments as references.
//!
//! This module keeps the order of the bytes and the progress of writing. `command` and `resp`
//! give the bytes their meaning, and `link` writes them.
//!
//! Invariant: the long arguments are sorted by their position in the block, and no position is beyond the
//! block's end.

use std::io::IoSlice;

use bytes::Bytes;

/// The length, in bytes, from which an argument stays in its own memory. A copy of a shorter argument costs
/// less than a separate piece in a vectored write.
const LARGE: usize = 16 << 10;
/// The greatest number of pieces of memory in one vectored write, as many as its array holds.
pub(crate) const PIECES: usize = 64;

#[derive(Clone, Debug, Default)]
pub(crate) struct Wire {
    block: Vec<u8>,
    apart: Vec<Apart>,
    apart_bytes: usize,
    /// The progress of writing: the written bytes of the block, the number of long arguments written whole,
    /// and the written bytes of the next long argument.
    block_at: usize,
    apart_at: usize,
    within: usize,
}

#[derive(Clone, Debug)]
struct Apart {
    /// The number of bytes of the block that the client writes before this long argument, which keeps the
    /// order of bytes.
    before: usize,
    bytes: Bytes,
}

/// A position at the end of the buffer, to which [`Wire::go_back`] returns by removing later bytes, after a
/// refused command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    block: usize,
    apart: usize,
    bytes: usize,
}

impl Wire {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self {
            block: Vec::with_capacity(bytes),
            ..Self::default()
        }
    }

    /// Returns the number of bytes in the buffer, whether or not the socket has accepted them.
    pub(crate) const fn len(&self) -> usize {
        self.block.len() + self.apart_bytes
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer's block, to which the caller appends short arguments.
    pub(crate) const fn block(&mut self) -> &mut Vec<u8> {
        &mut self.block
    }

    /// Appends `bytes`, without a copy if they are 16 KiB or more.
    pub(crate) fn put(&mut self, bytes: &Bytes) {
        if bytes.len() < LARGE {
            return self.block.extend_from_slice(bytes);
        }
        self.apart.push(Apart {
            before: self.block.len(),
            bytes: bytes.clone(),
        });
        self.apart_bytes += bytes.len();
    }

    /// Appends all bytes of `other`, such as a command encoded before, to the buffer.
    pub(crate) fn append(&mut self, other: &Self) {
        let base = self.block.len();
        self.block.extend_from_slice(&other.block);
        self.apart.extend(other.apart.iter().map(|a| Apart {
            before: base + a.before,
            bytes: a.bytes.clone(),
        }));
        self.apart_bytes += other.apart_bytes;
    }

    /// Replaces the byte at `at` in the block, the placeholder of a command's number of arguments, with
    /// `digits`. Only bytes of the same command may follow that byte.
    pub(crate) fn replace(&mut self, at: usize, digits: &[u8]) {
        self.block.splice(at..=at, digits.iter().copied());
        for apart in self.apart.iter_mut().rev() {
            if apart.before <= at {
                break;
            }
            apart.before += digits.len() - 1;
        }
    }

    pub(crate) const fn mark(&self) -> Mark {
        Mark {
            block: self.block.len(),
            apart: self.apart.len(),
            bytes: self.apart_bytes,
        }
    }

    /// Removes the bytes that were appended after the position `to`, because the pipeline refused their
    /// command.
    pub(crate) fn go_back(&mut self, to: Mark) {
        self.block.truncate(to.block);
        self.apart.truncate(to.apart);
        self.apart_bytes = to.bytes;
    }

    /// Clears the buffer. Keeps at most `keep` bytes of memory, or the size of the present flush if that is
    /// larger: in a row of large flushes, a new allocation for each costs more than the copy of its bytes.
    pub(crate) fn clear(&mut self, keep: usize) {
        let keep = keep.max(self.block.len());
        self.block.clear();
        self.block.shrink_to(keep);
        self.apart.clear();
        self.apart.shrink_to(keep / size_of::<Apart>());
        (self.apart_bytes, self.block_at) = (0, 0);
        (self.apart_at, self.within) = (0, 0);
    }

    /// Moves the first `bytes` bytes of the buffer to `into`, which is empty. The last of these bytes lies in
    /// the block, not in a long argument.
    pub(crate) fn move_front(&mut self, bytes: usize, into: &mut Self) {
        let (mut count, mut apart_bytes) = (0, 0);
        for apart in &self.apart {
            if apart.before + apart_bytes + apart.bytes.len() > bytes {
                break;
            }
            count += 1;
            apart_bytes += apart.bytes.len();
        }
        let block = bytes - apart_bytes;
        into.block.extend(self.block.drain(..block));
        into.apart.extend(self.apart.drain(..count));
        into.apart_bytes = apart_bytes;
        self.apart_bytes -= apart_bytes;
        for apart in &mut self.apart {
            apart.before -= block;
        }
    }

    // ---- reading the buffer

    /// Returns the piece at `at` in the block and the position after it. The piece is the long
    /// argument at that position if there is one, otherwise `len` bytes of the block.
    pub(crate) fn piece(&self, at: usize, len: usize) -> Option<(&[u8], usize)> {
        let index = self.apart.partition_point(|a| a.before < at);
        match self.apart.get(index) {
            Some(apart) if apart.before == at && len >= LARGE => Some((&apart.bytes, at)),
            _ => Some((self.block.get(at..at + len)?, at + len)),
        }
    }

    /// Returns the bytes of the block from position `at` on, such as a command encoded last.
    pub(crate) fn block_from(&self, at: usize) -> &[u8] {
        self.block.get(at..).unwrap_or_default()
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let (mut all, mut at) = (Vec::with_capacity(self.len()), 0);
        for apart in &self.apart {
            all.extend_from_slice(&self.block[at..apart.before]);
            all.extend_from_slice(&apart.bytes);
            at = apart.before;
        }
        all.extend_from_slice(&self.block[at..]);
        all
    }

    // ---- writing to the socket

    /// Returns whether the socket has accepted all bytes of the buffer, so that the flush is finished.
    pub(crate) const fn is_written(&self) -> bool {
        self.block_at == self.block.len() && self.apart_at == self.apart.len()
    }

    /// Fills `into` with the pieces to write next in one vectored write, and returns their number.
    pub(crate) fn pieces<'a>(&'a self, into: &mut [IoSlice<'a>; PIECES]) -> usize {
        let (mut n, mut at, mut skip) = (0, self.block_at, self.within);
        for apart in &self.apart[self.apart_at..] {
            if n + 2 >= PIECES {
                return n;
            }
            if at < apart.before {
                into[n] = IoSlice::new(&self.block[at..apart.before]);
                n += 1;
                at = apart.before;
            }
            into[n] = IoSlice::new(&apart.bytes[skip..]);
            n += 1;
            skip = 0;
        }
        if at < self.block.len() {
            into[n] = IoSlice::new(&self.block[at..]);
            n += 1;
        }
        n
    }

    /// Records that the socket accepted `bytes` more bytes, so that the next write goes on after them.
    pub(crate) fn wrote(&mut self, mut bytes: usize) {
        while let Some(apart) = self.apart.get(self.apart_at) {
            let gap = bytes.min(apart.before - self.block_at);
            self.block_at += gap;
            bytes -= gap;
            let left = apart.bytes.len() - self.within;
            if self.block_at < apart.before || bytes < left {
                self.within += bytes;
                return;
            }
            bytes -= left;
            (self.apart_at, self.within) = (self.apart_at + 1, 0);
        }
        self.block_at += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a buffer of short and long pieces with bytes that differ, and returns it with all of these
    /// bytes.
    fn built(lens: &[usize]) -> (Wire, Vec<u8>) {
        let (mut wire, mut plain) = (Wire::default(), Vec::new());
        for (i, &len) in lens.iter().enumerate() {
            let bytes = Bytes::from(vec![i as u8; len]);
            wire.put(&bytes);
            wire.block().extend_from_slice(b"\r\n");
            plain.extend_from_slice(&bytes);
            plain.extend_from_slice(b"\r\n");
        }
        (wire, plain)
    }

    /// Writes the whole buffer, at most `step` bytes at a time, and returns the bytes.
    fn written(wire: &mut Wire, step: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !wire.is_written() {
            let mut n = 0;
            let mut pieces = [IoSlice::new(&[]); PIECES];
            let count = wire.pieces(&mut pieces);
            for piece in &pieces[..count] {
                let some = piece.len().min(step - n);
                all.extend_from_slice(&piece[..some]);
                n += some;
            }
            assert!(n > 0, "nothing to write, and not written");
            wire.wrote(n);
        }
        all
    }

    const LONG: usize = LARGE + 5;

    #[test]
    fn long_bytes_are_not_copied() {
        let (wire, plain) = built(&[3, LONG, LARGE - 1, LONG]);
        assert_eq!(wire.len(), plain.len());
        assert_eq!(wire.apart.len(), 2);
        assert_eq!(wire.block.len(), 3 + LARGE - 1 + 4 * 2);
    }

    #[test]
    fn a_mark_is_gone_back_to() {
        let (mut wire, plain) = built(&[3, LONG]);
        let mark = wire.mark();
        wire.append(&built(&[LONG, 4]).0);
        wire.go_back(mark);
        assert_eq!(wire.len(), plain.len());
        assert_eq!(written(&mut wire, usize::MAX), plain);
    }

    #[test]
    fn a_byte_becomes_several() {
        let (mut wire, plain) = built(&[1, LONG, 1]);
        wire.replace(0, b"123");
        let mut expected = b"123".to_vec();
        expected.extend_from_slice(&plain[1..]);
        assert_eq!(written(&mut wire, usize::MAX), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn all_of_it_is_written_in_order(
            lens in prop::collection::vec(prop_oneof![0..40usize, LARGE..LARGE + 40], 0..90usize),
            cut in 0..90usize,
            step in prop_oneof![1_000..20_000usize, 100_000..2_000_000usize],
        ) {
            let (mut wire, plain) = built(&lens);
            let mut front = Wire::default();
            let bytes = lens.iter().take(cut).map(|len| len + 2).sum();
            wire.move_front(bytes, &mut front);
            prop_assert_eq!(front.len(), bytes);
            let mut all = written(&mut front, step);
            all.extend(written(&mut wire, step));
            prop_assert!(all == plain);
        }
    }
}
