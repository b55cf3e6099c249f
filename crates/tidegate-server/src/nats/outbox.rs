//! What waits to be written to one connection: bytes in chunks, appended at one end, taken by gathered writes
//! at the other.
//!
//! Chunks keep a large backlog from being moved when it grows, and give their memory back one by one when it
//! shrinks. An empty outbox holds no chunk, so that an idle connection costs none; whoever drains it may keep
//! chunks in a [`Pool`]. The bound on what waits is the session's (`max_pending`): it must know what to do
//! with a client that exceeds it.

use std::collections::VecDeque;

/// Bytes of a chunk; a larger message gets one of its own size.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// Chunks a pool keeps: 16 MiB.
const POOL_LEN_MAX: usize = 256;

/// Bytes waiting for a socket, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Vec<u8>>,
    /// Bytes of the first chunk that are written already.
    taken: usize,
    bytes: usize,
    spare: Option<Vec<u8>>,
}

impl Outbox {
    /// Appends `parts` one after the other, never torn apart between two chunks.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let fits = self
            .chunks
            .back()
            .is_some_and(|c| c.capacity() - c.len() >= len);
        if !fits {
            self.add_chunk(len);
        }
        // Just seen or made.
        if let Some(chunk) = self.chunks.back_mut() {
            for part in parts {
                chunk.extend_from_slice(part);
            }
            self.bytes += len;
        }
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether [`Outbox::append`] would need a new chunk for the next small message, and has none put
    /// by.
    #[must_use]
    pub fn wants_chunk(&self) -> bool {
        self.spare.is_none() && self.chunks.is_empty()
    }

    /// Puts a chunk by for the next time one is needed.
    pub fn give_chunk(&mut self, chunk: Option<Vec<u8>>) {
        self.spare = chunk;
    }

    /// The bytes that wait, first to last, in slices.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let taken = self.taken;
        self.chunks
            .iter()
            .enumerate()
            .map(move |(i, c)| if i == 0 { &c[taken..] } else { &c[..] })
    }

    /// Forgets the first `len` bytes: they are written. Emptied chunks go into the pool.
    pub fn take(&mut self, len: usize, pool: &mut Pool) {
        assert!(len <= self.bytes, "more written than there was");
        self.bytes -= len;
        let mut left = len + self.taken;
        while let Some(chunk) = self.chunks.front() {
            if left < chunk.len() {
                break;
            }
            left -= chunk.len();
            pool.put(self.chunks.pop_front());
        }
        self.taken = left;
        if self.bytes == 0 {
            pool.put(self.spare.take());
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.take(self.bytes, pool);
    }

    /// A copy of everything that waits, for tests and transcripts.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().flatten().copied().collect()
    }

    #[cold]
    fn add_chunk(&mut self, len: usize) {
        let chunk = match self.spare.take() {
            Some(chunk) if chunk.capacity() >= len => chunk,
            _ => Vec::with_capacity(len.max(CHUNK_BYTES)),
        };
        self.chunks.push_back(chunk);
    }
}

/// Emptied chunks, kept to be used again by any connection.
#[derive(Debug, Default)]
pub struct Pool(Vec<Vec<u8>>);

impl Pool {
    /// An empty chunk, if one is kept.
    pub fn get(&mut self) -> Option<Vec<u8>> {
        self.0.pop()
    }

    fn put(&mut self, chunk: Option<Vec<u8>>) {
        let Some(mut chunk) = chunk else { return };
        if self.0.len() < POOL_LEN_MAX && chunk.capacity() == CHUNK_BYTES {
            chunk.clear();
            self.0.push(chunk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_over_chunks_and_partial_writes() {
        let (mut out, mut pool) = (Outbox::default(), Pool::default());
        let mut expected = Vec::new();
        let mut got = Vec::new();
        for i in 0..2000_usize {
            let part = vec![(i % 251) as u8; i % 300];
            let large = vec![7; if i % 500 == 0 { CHUNK_BYTES * 2 } else { 0 }];
            out.append(&[&part, &large]);
            expected.extend_from_slice(&part);
            expected.extend_from_slice(&large);
            if i % 7 == 0 {
                let n = out.len() * (i % 5) / 4;
                got.extend(out.to_vec().drain(..n));
                out.take(n, &mut pool);
            }
        }
        got.extend(out.to_vec());
        out.clear(&mut pool);
        assert_eq!(got, expected);
        assert!(out.is_empty() && out.chunks.is_empty());
        assert!(
            pool.0
                .iter()
                .all(|c| c.is_empty() && c.capacity() == CHUNK_BYTES)
        );
    }
}
