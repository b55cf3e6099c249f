//! Keeps the bytes that wait to be written to one connection: the session appends bytes at the end, and
//! vectored writes take them from the front.
//!
//! An outbox keeps its bytes in chunks. So a growing outbox does not move its bytes, and a shrinking outbox
//! frees its memory chunk by chunk. An empty outbox has no chunk, so that an idle connection takes little
//! memory. The caller that writes the outbox to a socket keeps emptied chunks in a [`Pool`] for reuse. The
//! node, not the outbox, bounds the backlog (`max_pending`), because the node must decide about a client
//! that exceeds the bound.
//!
//! Outboxes can share the payload of one message: a chunk then holds a reference to the payload, and the
//! place in the chunk's bytes at which the payload belongs. Thus a thousand receivers that do not read keep
//! one copy.

use std::collections::VecDeque;
use std::iter;

use bytes::{Buf, Bytes};

/// The capacity of a chunk, in bytes. For a larger message, the outbox allocates a chunk of the message's
/// size.
pub const CHUNK_BYTES: usize = 64 * 1024;

/// The greatest number of emptied chunks that a pool keeps for reuse. The bound limits their memory to 16
/// MiB.
const POOL_LEN_MAX: usize = 256;

/// Keeps the bytes that wait to be written to one socket, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk's `own` bytes that the caller has already written to the socket.
    taken: usize,
    bytes: usize,
    spare: Option<Vec<u8>>,
}

/// A part of an outbox: bytes of this outbox alone, and between them payloads that several outboxes share.
#[derive(Debug, Default)]
struct Chunk {
    own: Vec<u8>,
    /// The shared payloads in order, each with the number of `own` bytes that come before it, so that a
    /// write puts both together in order.
    shared: VecDeque<(usize, Bytes)>,
}

impl Chunk {
    /// Iterates over the waiting bytes of the chunk in slices, without the first `taken` of its `own` bytes,
    /// because the caller has written these.
    fn slices(&self, taken: usize) -> impl Iterator<Item = &[u8]> {
        let starts = iter::once(taken).chain(self.shared.iter().map(|(at, _)| *at));
        let ends = self.shared.iter().map(|(at, _)| *at);
        let ends = ends.chain(iter::once(self.own.len()));
        let payloads = self.shared.iter().map(|(_, payload)| &payload[..]);
        let own = starts.zip(ends).map(|(start, end)| &self.own[start..end]);
        own.zip(payloads.chain(iter::once(&[][..])))
            .flat_map(|(own, payload)| [own, payload])
            .filter(|slice| !slice.is_empty())
    }
}

impl Outbox {
    /// Appends `parts` one after the other, all of them to the same chunk, so that a write needs few slices.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|p| p.len()).sum();
        let fits = self
            .chunks
            .back()
            .is_some_and(|c| c.own.capacity() - c.own.len() >= len);
        if !fits {
            self.add_chunk(len);
        }
        // A last chunk always exists, because the lines above find or add one.
        if let Some(chunk) = self.chunks.back_mut() {
            for part in parts {
                chunk.own.extend_from_slice(part);
            }
            self.bytes += len;
        }
    }

    /// Appends a payload behind the bytes appended so far. Several outboxes can share the payload, because
    /// the outbox does not copy it.
    pub fn append_shared(&mut self, payload: Bytes) {
        if payload.is_empty() {
            return;
        }
        if self.chunks.is_empty() {
            self.add_chunk(0);
        }
        // A last chunk always exists, because the lines above find or add one.
        if let Some(chunk) = self.chunks.back_mut() {
            self.bytes += payload.len();
            chunk.shared.push_back((chunk.own.len(), payload));
        }
    }

    /// Returns the number of bytes that wait in the outbox, which the node compares with its bound.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether no bytes wait in the outbox, so that there is nothing to write.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Returns whether the outbox has no chunk, so that the next [`Outbox::append`] would have to allocate
    /// one.
    #[must_use]
    pub fn wants_chunk(&self) -> bool {
        self.spare.is_none() && self.chunks.is_empty()
    }

    /// Gives the outbox a spare chunk from the pool, so that its next append allocates none. `None` removes
    /// the spare chunk.
    pub fn give_chunk(&mut self, chunk: Option<Vec<u8>>) {
        self.spare = chunk;
    }

    /// Iterates over the waiting bytes in slices, from first to last, for a vectored write.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let taken = self.taken;
        self.chunks
            .iter()
            .enumerate()
            .flat_map(move |(i, c)| c.slices(if i == 0 { taken } else { 0 }))
    }

    /// Drops the first `len` bytes, which the caller has written to the socket. Puts emptied chunks into
    /// `pool`.
    pub fn take(&mut self, len: usize, pool: &mut Pool) {
        assert!(len <= self.bytes, "more written than there was");
        self.bytes -= len;
        let mut left = len;
        while let Some(chunk) = self.chunks.front_mut() {
            let own_end = chunk.shared.front().map_or(chunk.own.len(), |(at, _)| *at);
            let own = left.min(own_end - self.taken);
            self.taken += own;
            left -= own;
            if self.taken < own_end {
                break;
            }
            if let Some((_, payload)) = chunk.shared.front_mut() {
                let part = left.min(payload.len());
                payload.advance(part);
                left -= part;
                if !payload.is_empty() {
                    break;
                }
                chunk.shared.pop_front();
            } else {
                pool.put(self.chunks.pop_front().map(|chunk| chunk.own));
                self.taken = 0;
            }
        }
        if self.bytes == 0 {
            pool.put(self.spare.take());
        }
    }

    /// Drops all waiting bytes of a closed connection, and puts the chunks into `pool` for reuse.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.take(self.bytes, pool);
    }

    /// Copies all waiting bytes into a vector, for tests and transcripts.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.slices().flatten().copied().collect()
    }

    #[cold]
    fn add_chunk(&mut self, len: usize) {
        let own = match self.spare.take() {
            Some(chunk) if chunk.capacity() >= len => chunk,
            _ => Vec::with_capacity(len.max(CHUNK_BYTES)),
        };
        self.chunks.push_back(Chunk {
            own,
            shared: VecDeque::new(),
        });
    }
}

/// Keeps emptied chunks that the outbox of any connection may reuse, to save allocations.
#[derive(Debug, Default)]
pub struct Pool(Vec<Vec<u8>>);

impl Pool {
    /// Takes an empty chunk out of the pool, for an outbox; `None` if the pool has none.
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
            if i % 3 == 0 {
                let payload = vec![(i % 241) as u8; i % 1000];
                expected.extend_from_slice(&payload);
                out.append_shared(payload.into());
            }
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
    #[test]
    fn outboxes_share_a_payload_until_each_has_written_it() {
        let (mut pool, payload) = (Pool::default(), Bytes::from(vec![7; 1000]));
        let mut outboxes: Vec<Outbox> = (0..3).map(|_| Outbox::default()).collect();
        for out in &mut outboxes {
            out.append(&[b"head "]);
            out.append_shared(payload.clone());
            out.append_shared(Bytes::new());
            out.append(&[b"\r\n"]);
            assert_eq!((out.len(), out.slices().count()), (1007, 3));
        }
        let start = payload.as_ptr();
        drop(payload);
        for (n, out) in outboxes.iter_mut().enumerate() {
            assert_eq!(out.slices().nth(1).unwrap().as_ptr(), start);
            out.take(5 + n * 300, &mut pool);
            assert_eq!(out.len(), 1002 - n * 300);
            assert_eq!(out.slices().next().unwrap().len(), 1000 - n * 300);
            out.take(1000 - n * 300, &mut pool);
            assert_eq!(out.to_vec(), b"\r\n");
            out.clear(&mut pool);
            assert!(out.chunks.is_empty());
        }
    }
}
