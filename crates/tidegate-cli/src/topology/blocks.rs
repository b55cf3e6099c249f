//! Reads a source in blocks that end between words, for the count topology. The sizes of the reads do not
//! matter: a word that spans two reads is whole in its block. A word longer than the buffer makes the buffer
//! grow, up to a bound.

use std::io::{self, Read};
use std::sync::Arc;

use super::words::is_space;

/// The greatest length of a word in bytes. Without this bound, a file without blanks, such as `/dev/zero`,
/// would fill the memory.
pub const WORD_BYTES_MAX: usize = 16 << 20;

/// Cuts the text of one source into blocks of whole words.
pub struct Blocks<R> {
    source: R,
    /// The bytes that are read and not yet returned; only `..filled` holds bytes of the source.
    buffer: Vec<u8>,
    filled: usize,
    /// The number of bytes at the buffer's front that hold no end of line, so that the search skips them.
    searched: usize,
    ended: bool,
}

impl<R: Read> Blocks<R> {
    /// Creates a reader that cuts `source` into blocks of about `len` bytes.
    pub fn new(source: R, len: usize) -> Self {
        Self {
            source,
            buffer: vec![0; len.max(1)],
            filled: 0,
            searched: 0,
            ended: false,
        }
    }

    /// Reads from the source once. Returns `Some(block)`, never empty, if a word or line ended. Returns
    /// `Ok(None)` if the caller must read again, unless the source has [ended](Self::ended).
    ///
    /// # Errors
    /// The error of the source. [`rest`](Self::rest) returns the bytes that were read before the error. Or a
    /// word of more than [`WORD_BYTES_MAX`] bytes, which `rest` leaves out.
    pub fn read(&mut self) -> io::Result<Option<Arc<[u8]>>> {
        if self.filled == self.buffer.len() {
            if self.filled > WORD_BYTES_MAX {
                // A full buffer holds only the beginning of one word.
                self.filled = 0;
                return Err(io::Error::other(format!(
                    "a word is longer than {WORD_BYTES_MAX} bytes: give a file of text"
                )));
            }
            let len = (self.filled * 2).min(WORD_BYTES_MAX + 1);
            self.buffer.resize(len, 0);
        }
        match self.source.read(&mut self.buffer[self.filled..]) {
            Ok(0) => {
                self.ended = true;
                Ok(self.rest())
            }
            Ok(read) => {
                self.filled += read;
                Ok(self.cut())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns whether the source has ended, so that only [`rest`](Self::rest) has more bytes.
    pub const fn ended(&self) -> bool {
        self.ended
    }

    /// Returns the bytes that were read and not yet returned, as the last block of the source.
    pub fn rest(&mut self) -> Option<Arc<[u8]>> {
        let end = self.filled;
        self.take(end)
    }

    /// Returns the bytes up to the buffer's last end of line. If one line fills the buffer, returns the bytes
    /// up to its last space.
    fn cut(&mut self) -> Option<Arc<[u8]>> {
        let read = &self.buffer[..self.filled];
        let line = memchr::memrchr(b'\n', &read[self.searched..]).map(|at| self.searched + at);
        let full = self.filled == self.buffer.len();
        let last = line.or_else(|| read.iter().rposition(|&byte| full && is_space(byte)));
        self.searched = self.filled;
        last.and_then(|last| self.take(last + 1))
    }

    fn take(&mut self, end: usize) -> Option<Arc<[u8]>> {
        let block = (end > 0).then(|| Arc::from(&self.buffer[..end]));
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        self.searched = 0;
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::words::words;
    use proptest::prelude::*;

    /// A reader that returns, at each read, at most the next number of bytes in a list, so that words span
    /// reads.
    struct Dribble<'a>(&'a [u8], Vec<usize>, usize);

    impl Read for Dribble<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let most = self.1[self.2 % self.1.len()];
            self.2 += 1;
            let len = most.min(buffer.len()).min(self.0.len());
            buffer[..len].copy_from_slice(&self.0[..len]);
            self.0 = &self.0[len..];
            Ok(len)
        }
    }

    proptest! {
        #[test]
        fn words_are_whole_however_reads_fall(
            text in proptest::collection::vec(prop_oneof![2 => Just(b' '), 1 => Just(b'\n'), 9 => any::<u8>()], 0..400),
            reads in proptest::collection::vec(1usize..40, 1..6),
            len in 1usize..50,
        ) {
            let mut blocks = Blocks::new(Dribble(&text, reads, 0), len);
            let (mut seen, mut joined) = (Vec::new(), Vec::new());
            while !blocks.ended() {
                if let Some(block) = blocks.read().unwrap() {
                    prop_assert!(!block.is_empty());
                    seen.extend(words(&block).map(|word| block[word].to_vec()));
                    joined.extend_from_slice(&block);
                }
            }
            prop_assert_eq!(&joined, &text);
            let plain: Vec<_> = words(&text).map(|word| text[word].to_vec()).collect();
            prop_assert_eq!(seen, plain);
        }
    }

    #[test]
    fn a_word_has_a_bound() {
        let long = vec![b'x'; WORD_BYTES_MAX];
        let mut blocks = Blocks::new(&long[..], 64);
        let mut seen = Vec::new();
        while !blocks.ended() {
            seen.extend(blocks.read().unwrap());
        }
        assert!(seen.len() == 1 && *seen[0] == long);
        let mut endless = Blocks::new((&b"a b\n"[..]).chain(io::repeat(0)), 64);
        assert_eq!(endless.read().unwrap().as_deref(), Some(&b"a b\n"[..]));
        let error = loop {
            match endless.read() {
                Ok(block) => assert_eq!(block, None),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("longer than 16777216 bytes"), "{error}");
        assert_eq!(endless.rest(), None);
    }

    #[test]
    fn a_failing_source_gives_what_it_had() {
        struct Fails(bool);
        impl Read for Fails {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                if std::mem::replace(&mut self.0, true) {
                    return Err(io::Error::other("gone"));
                }
                buffer[..3].copy_from_slice(b"a\nb");
                Ok(3)
            }
        }
        let mut blocks = Blocks::new(Fails(false), 64);
        assert_eq!(blocks.read().unwrap().as_deref(), Some(&b"a\n"[..]));
        assert!(blocks.read().is_err());
        assert_eq!(blocks.rest().as_deref(), Some(&b"b"[..]));
        assert_eq!(blocks.rest(), None);
    }
}
