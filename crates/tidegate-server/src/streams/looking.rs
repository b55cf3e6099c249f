//! Keeps the requests for stored messages for which the node has still to look at many subjects or messages,
//! in the order in which it goes on with them.
//!
//! The requests of one asker wait in a line, and the askers take turns, so that an asker with hundreds of
//! requests delays the request of another one by one part. The node knows an asker by its reply subjects
//! without their last tokens, because a client receives the answers to all of its requests under one prefix.

use std::collections::{BTreeMap, VecDeque};

use super::reads::Read;

/// The limit on the memory of the waiting requests, because a request may have a thousand patterns.
const BYTES_MAX: usize = if cfg!(test) {
    64 * 1024
} else {
    16 * 1024 * 1024
};

/// The requests for which the node has still to look at subjects or messages, see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Looking {
    /// The lines of the askers. No line is empty.
    lines: BTreeMap<Box<[u8]>, VecDeque<Read>>,
    /// The askers in the order of their turns. Each asker with a line occurs once.
    turns: VecDeque<Box<[u8]>>,
    len: usize,
    bytes: usize,
}

impl Looking {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the memory of the waiting requests allows one more of this many bytes. A request that
    /// waits alone may have any size, because the protocol bounds it.
    pub(super) const fn has_room_for(&self, bytes: usize) -> bool {
        self.len == 0 || self.bytes + bytes <= BYTES_MAX
    }

    /// Returns whether a request of the asker at this reply subject waits, so that a later one waits too.
    pub(super) fn has_asker_of(&self, reply: &[u8]) -> bool {
        self.lines.contains_key(asker_of(reply))
    }

    /// Adds a request at the end of the line of its asker.
    pub(super) fn push(&mut self, read: Read) {
        self.line_of(&read).push_back(read);
    }

    /// Takes the first request of the next asker. Its line gets its next turn after those of the others.
    pub(super) fn take(&mut self) -> Option<Read> {
        let asker = self.turns.pop_front()?;
        let line = self.lines.get_mut(&asker)?;
        let read = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&asker);
        } else {
            self.turns.push_back(asker);
        }
        self.len -= 1;
        self.bytes -= read.bytes();
        Some(read)
    }

    /// Puts a request back to the beginning of the line of its asker, because the node goes on with it later.
    pub(super) fn put_back(&mut self, read: Read) {
        self.line_of(&read).push_front(read);
    }

    /// Returns the line for a request that the caller adds.
    fn line_of(&mut self, read: &Read) -> &mut VecDeque<Read> {
        self.len += 1;
        self.bytes += read.bytes();
        let asker = asker_of(read.reply());
        if !self.lines.contains_key(asker) {
            self.turns.push_back(asker.into());
        }
        self.lines.entry(asker.into()).or_default()
    }
}

/// Returns the asker of a request with this reply subject: the subject without its last token, or a subject
/// of one token as it is.
fn asker_of(reply: &[u8]) -> &[u8] {
    let dot = memchr::memrchr(b'.', reply);
    dot.map_or(reply, |dot| &reply[..dot])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(looking: &mut Looking) -> Option<String> {
        let read = looking.take()?;
        Some(String::from_utf8(read.reply().to_vec()).unwrap())
    }

    #[test]
    fn askers_take_turns_and_each_keeps_its_order() {
        let mut looking = Looking::default();
        for reply in ["a.1", "a.2", "a.3", "b.1", "c", "b.2"] {
            looking.push(Read::of_test(reply, 100));
        }
        assert!(looking.has_asker_of(b"a.9") && !looking.has_asker_of(b"d.1"));
        let first = looking.take().unwrap();
        assert_eq!(first.reply(), b"a.1");
        // The node has not come to the end of the request, so the request stays the first of its asker.
        looking.put_back(first);
        let order: Vec<String> = std::iter::from_fn(|| take(&mut looking)).collect();
        assert_eq!(order, ["b.1", "c", "a.1", "b.2", "a.2", "a.3"]);
        assert!(looking.is_empty() && looking.lines.is_empty() && looking.turns.is_empty());
        assert_eq!((looking.len(), looking.bytes), (0, 0));
        // The only request of its asker comes back after the node has taken the line away.
        looking.push(Read::of_test("a.1", 100));
        let read = looking.take().unwrap();
        assert!(!looking.has_asker_of(b"a.1"));
        looking.put_back(read);
        assert_eq!(take(&mut looking).as_deref(), Some("a.1"));
    }

    #[test]
    fn the_memory_of_the_requests_is_bounded() {
        let mut looking = Looking::default();
        assert!(looking.has_room_for(2 * BYTES_MAX));
        looking.push(Read::of_test("a.1", BYTES_MAX - 100));
        let more = BYTES_MAX - looking.bytes;
        assert!(looking.has_room_for(more) && !looking.has_room_for(more + 1));
    }
}
