//! What gathers for the next entry, and who waits for what became of it.
//!
//! An entry's bytes hold commands; who is to be answered stands beside them, never in the log: only the node that proposed an
//! entry answers, and only for what it proposed. Entries come back in the order they left, or never.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use crate::stream::{Command, ENTRY_HEADER_BYTES, EncodeError, Encoder};

/// Bytes gathered in one entry before it is closed. Larger ones save nothing (a turn of the loop gathers less, nearly always),
/// and are what one reads to get a single message.
pub(super) const ENTRY_BYTES_MAX: usize = 512 * 1024;
/// Commands in one entry.
pub(super) const ENTRY_COMMANDS_MAX: usize = 16 * 1024;

/// Whoever waits for the outcome of a command.
#[derive(Debug)]
pub(super) struct Waiter<T> {
    /// Which of the entry's commands.
    command: u32,
    /// Where its reply subject lies in the arena.
    start: u32,
    len: u16,
    /// What is answered.
    pub(super) then: T,
}

/// Those who wait for one entry.
#[derive(Debug)]
pub(super) struct Waiters<T> {
    subjects: Vec<u8>,
    list: Vec<Waiter<T>>,
}

impl<T> Default for Waiters<T> {
    fn default() -> Self {
        Self {
            subjects: Vec::new(),
            list: Vec::new(),
        }
    }
}

impl<T> Waiters<T> {
    fn add(&mut self, command: u32, reply: &[u8], then: T) {
        // An arena of one entry: replies are bounded by the control line, commands by `ENTRY_COMMANDS_MAX`.
        let start = u32::try_from(self.subjects.len()).unwrap_or(u32::MAX);
        let len = u16::try_from(reply.len()).unwrap_or(0);
        self.subjects.extend_from_slice(&reply[..usize::from(len)]);
        self.list.push(Waiter {
            command,
            start,
            len,
            then,
        });
    }

    /// In the order of the commands they wait for: the command's number, the reply subject, what is answered.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (usize, &[u8], T)> {
        let subjects = &self.subjects;
        self.list.drain(..).map(|w| {
            let start = w.start as usize;
            let reply = &subjects[start..start + usize::from(w.len)];
            (w.command as usize, reply, w.then)
        })
    }

    /// How many.
    pub(super) const fn len(&self) -> usize {
        self.list.len()
    }

    fn clear(&mut self) {
        self.subjects.clear();
        self.list.clear();
    }
}

/// An entry, closed.
#[derive(Debug)]
pub(super) struct Sealed<T> {
    pub(super) entry: Bytes,
    pub(super) waiters: Waiters<T>,
}

/// The entry that is being gathered.
#[derive(Debug)]
pub(super) struct Proposals<T> {
    open: BytesMut,
    commands: u32,
    waiters: Waiters<T>,
    /// Emptied, to be used again.
    spare: Vec<Waiters<T>>,
}

impl<T> Default for Proposals<T> {
    fn default() -> Self {
        Self {
            open: BytesMut::new(),
            commands: 0,
            waiters: Waiters::default(),
            spare: Vec::new(),
        }
    }
}

impl<T> Proposals<T> {
    /// Adds a command; whoever waits for it is `waiter`: the reply subject and what is answered.
    pub(super) fn add(
        &mut self,
        command: &Command<'_>,
        waiter: Option<(&[u8], T)>,
    ) -> Result<(), EncodeError> {
        let mut encoder = if self.open.is_empty() {
            // The time is set when it closes.
            Encoder::begin(&mut self.open, 0)
        } else {
            Encoder::resume(&mut self.open)
        };
        encoder.command(command)?;
        if let Some((reply, then)) = waiter {
            self.waiters.add(self.commands, reply, then);
        }
        self.commands += 1;
        Ok(())
    }

    /// Lets somebody write commands; the last of them is waited for. Whether there was any.
    pub(super) fn add_written(
        &mut self,
        then: T,
        write: impl FnOnce(&mut Encoder<'_, BytesMut>) -> Result<usize, EncodeError>,
    ) -> bool {
        let mut encoder = if self.open.is_empty() {
            Encoder::begin(&mut self.open, 0)
        } else {
            Encoder::resume(&mut self.open)
        };
        // What did not fit comes with the next entry.
        let written = write(&mut encoder).unwrap_or(0);
        self.commands += u32::try_from(written).unwrap_or(0);
        match self.commands.checked_sub(1).filter(|_| written > 0) {
            Some(last) => self.waiters.add(last, b"", then),
            None if self.commands == 0 => self.open.clear(),
            None => {}
        }
        written > 0
    }

    /// Bytes gathered.
    pub(super) fn bytes(&self) -> usize {
        self.open.len()
    }

    /// Commands gathered.
    pub(super) const fn len(&self) -> usize {
        self.commands as usize
    }

    /// Nothing is gathered.
    pub(super) const fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// A command of so many bytes would be one too many for this entry.
    pub(super) fn is_full_for(&self, bytes: usize) -> bool {
        !self.is_empty()
            && (self.open.len() + bytes > ENTRY_BYTES_MAX || self.len() >= ENTRY_COMMANDS_MAX)
    }

    /// Closes the entry as of `time_us`; `None` if nothing is gathered.
    pub(super) fn seal(&mut self, time_us: u64) -> Option<Sealed<T>> {
        if self.is_empty() {
            return None;
        }
        Encoder::resume(&mut self.open).set_time(time_us);
        let entry = self.open.split().freeze();
        self.open.reserve(ENTRY_HEADER_BYTES);
        self.commands = 0;
        let fresh = self.spare.pop().unwrap_or_default();
        Some(Sealed {
            entry,
            waiters: std::mem::replace(&mut self.waiters, fresh),
        })
    }

    /// Takes back what is not needed any more.
    pub(super) fn recycle(&mut self, mut waiters: Waiters<T>) {
        const SPARES_MAX: usize = 64;
        if self.spare.len() < SPARES_MAX {
            waiters.clear();
            self.spare.push(waiters);
        }
    }
}

/// Entries that were proposed and have not come back, in order.
#[derive(Debug)]
pub(super) struct InFlight<T>(VecDeque<(u64, Waiters<T>)>);

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> InFlight<T> {
    /// The entry was given `index`.
    pub(super) fn push(&mut self, index: u64, waiters: Waiters<T>) {
        self.0.push_back((index, waiters));
    }

    /// Who waits for the entry with this index; `None` if it was not proposed here.
    pub(super) fn take(&mut self, index: u64) -> Option<Waiters<T>> {
        while let Some((first, _)) = self.0.front() {
            if *first > index {
                return None;
            }
            let (first, waiters) = self.0.pop_front()?;
            if first == index {
                return Some(waiters);
            }
        }
        None
    }

    /// Entries on their way.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Entry, Kind};

    #[test]
    fn waiters_find_their_commands() {
        let mut p = Proposals::default();
        assert!(p.seal(1).is_none());
        for i in 0..4_u32 {
            let command = Command::new(Kind::Publish, i, b"a", b"x");
            let reply = format!("r.{i}");
            p.add(&command, (i % 2 == 1).then_some((reply.as_bytes(), i)))
                .unwrap();
        }
        let mut sealed = p.seal(7).unwrap();
        let entry = Entry::decode(&sealed.entry).unwrap();
        assert_eq!((entry.time_us(), entry.commands().count()), (7, 4));
        assert!(p.is_empty() && p.bytes() == 0);
        let mut flight = InFlight::default();
        let got: Vec<_> = sealed
            .waiters
            .drain()
            .map(|(n, reply, then)| (n, reply.to_vec(), then))
            .collect();
        assert_eq!(got, [(1, b"r.1".to_vec(), 1), (3, b"r.3".to_vec(), 3)]);
        flight.push(3, sealed.waiters);
        flight.push(5, Waiters::default());
        assert!(flight.take(2).is_none() && flight.take(3).is_some());
        // 4 was somebody else's, 5 was lost.
        assert!(flight.take(6).is_none());
        assert_eq!(flight.len(), 0);
    }
}
