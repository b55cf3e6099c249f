//! The server's half of a link: takes frames in, decides which messages to acknowledge and when, and why to
//! close the connection.
//!
//! The receiver never copies a message: it reads the driver's buffer and returns the place of the next batch
//! in that buffer. The receiver sends replies of 12 bytes, called units. It completes each unit before it
//! begins the next.
//!
//! Invariants, as numbers of messages: acknowledged <= done by the handler <= received; acknowledgements only
//! go up; the driver sends at most one unit at a time.

use std::ops::Range;
use std::time::Duration;

use tidegate::controller::{ByReason, Controller, Load, Reason, Snapshot};
use tidegate::{Time, nanos};

use super::cadence::Cadence;
use super::error::ReceiverError;
use super::marks::{Mark, Marks};
use crate::Seq;
use crate::frame::{self, CLOSE, Code, Layout, OMITTED_MAX, PING, REPLY_BYTES, Reply, SKIP, Stop};
use crate::hello::Welcome;

/// The settings of a server's receiver, for one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// The longest message that the receiver takes from the client, in bytes.
    pub frame_max: u32,
    /// The greatest number of bytes of frames that the client may have unacknowledged. The receiver
    /// acknowledges at once when a quarter of this is used.
    pub window: u64,
    /// True if the receiver acknowledges messages only after [`Receiver::done`], and not on receipt.
    pub when_done: bool,
    /// The time for which the client may be silent before the receiver closes the connection; zero for no
    /// limit.
    pub idle: Duration,
}

/// The place of the next whole messages in the driver's read buffer, for the handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The number of the batch's first message; the others follow without gaps.
    pub first: Seq,
    /// The number of messages in the batch; 0 if the buffer holds no whole message.
    pub count: u64,
    /// The range of the buffer in which the frames of the batch's messages are, for [`Layout::payloads`].
    pub frames: Range<usize>,
    /// The number of bytes of the buffer that the receiver has finished and the driver can drop: at least up
    /// to the end of the frames.
    pub taken: usize,
    /// The length of the next frame in bytes, or 0 if it is unknown. The buffer must have room for the whole
    /// frame.
    pub wants: usize,
}

/// The counters of one connection's receiver, for the server's statistics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverStats {
    /// The number of messages that the receiver has received on this connection.
    pub messages: u64,
    /// The number of bytes of the frames of all messages that the receiver has received on this connection.
    pub bytes: u64,
    /// The number of acknowledgements that the receiver has sent on this connection.
    pub acks: u64,
    /// The number of acknowledgements that the receiver has sent, counted by the reason why each one left.
    pub acks_by_reason: ByReason,
}

/// The phases of a connection on the server's side, from open to finished, which decide what the receiver
/// still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The connection is open, and messages arrive.
    Open,
    /// The client sends no more messages. The receiver acknowledges the messages that it has, then sends a
    /// bye with the code, if there is a code.
    Draining(Option<Code>),
    /// The server closes the connection. The receiver acknowledges the messages that are ready, then sends a
    /// bye with the code, if there is a code.
    Leaving(Option<Code>),
    /// The receiver has sent everything, so the driver may close the socket.
    Finished,
}

/// The kind of the reply of 12 bytes that the driver is sending now, so that the receiver can count it when
/// it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    Ack,
    Pong,
    Bye,
}

/// The server's half of one connection. The [module](super) lists the order of its calls.
#[derive(Debug)]
pub struct Receiver {
    layout: Layout,
    config: ReceiverConfig,
    phase: Phase,
    /// The number of the last message received. It ends at position `received_pos`, the number of bytes of
    /// frames since the beginning of this connection.
    received: Seq,
    received_pos: u64,
    /// The number of the last message that the receiver may acknowledge now. `ready_pos` is the lowest
    /// position in bytes at which this message can end: the receiver knows only the positions at the ends of
    /// batches.
    ready: Seq,
    ready_pos: u64,
    ready_exact: bool,
    ready_since: Time,
    acked: Seq,
    /// The lowest (`acked_pos`) and the highest (`acked_most`) position in bytes at which the last
    /// acknowledged message, `acked`, can end.
    acked_pos: u64,
    acked_most: u64,
    /// The id that a plain client gave to the message `ready`, which its acknowledgement repeats.
    ready_id: u64,
    done: Seq,
    marks: Marks,
    /// The messages that the client gave up, as two numbers: the messages after the first number, up to the
    /// second. Once the handler is done with all messages up to the first number, the receiver counts those
    /// up to the second as done.
    skipped: Option<(Seq, Seq)>,
    /// True until the client's first frame arrives: only that frame may be a skip.
    untouched: bool,
    unit: Option<Unit>,
    out: [u8; REPLY_BYTES],
    out_at: usize,
    cost_ns: u64,
    pong: bool,
    heard: Time,
    spoke: Time,
    idle_ns: u64,
    cadence: Cadence,
    stats: ReceiverStats,
}

impl Receiver {
    /// Creates the receiver of a connection that speaks the plain protocol.
    #[must_use]
    pub fn plain(now: Time, config: ReceiverConfig, controller: Box<dyn Controller>) -> Self {
        Self::new(now, Layout::Plain, config, Seq::NONE, Seq::NONE, controller)
    }

    /// Creates the receiver of a connection to which the server answered `welcome`. The welcome also holds
    /// the receiver's settings.
    #[must_use]
    pub fn session(now: Time, welcome: &Welcome, controller: Box<dyn Controller>) -> Self {
        let layout = if welcome.checked {
            Layout::Checked
        } else {
            Layout::Session
        };
        let config = ReceiverConfig {
            frame_max: welcome.frame_max,
            window: welcome.window,
            when_done: welcome.when_done,
            idle: Duration::from_millis(welcome.idle_ms.into()),
        };
        Self::new(
            now,
            layout,
            config,
            welcome.received,
            welcome.acked,
            controller,
        )
    }

    fn new(
        now: Time,
        layout: Layout,
        mut config: ReceiverConfig,
        received: Seq,
        acked: Seq,
        controller: Box<dyn Controller>,
    ) -> Self {
        config.frame_max = config.frame_max.min(frame::SIZE_MAX);
        let ready = if config.when_done { acked } else { received };
        Self {
            layout,
            config,
            phase: Phase::Open,
            received,
            received_pos: 0,
            ready,
            ready_pos: 0,
            ready_exact: true,
            ready_since: now,
            acked,
            acked_pos: 0,
            acked_most: 0,
            ready_id: u64::MAX,
            done: ready,
            marks: Marks::default(),
            skipped: None,
            untouched: true,
            unit: None,
            out: [0; REPLY_BYTES],
            out_at: 0,
            cost_ns: 0,
            pong: false,
            heard: now,
            spoke: now,
            idle_ns: nanos(config.idle),
            cadence: Cadence::new(controller),
            stats: ReceiverStats::default(),
        }
    }

    // ---- inputs

    /// Finds the next batch of whole messages in `bytes`, which begin where the last batch ended. The driver
    /// calls this after each batch until [`Batch::taken`] is 0.
    ///
    /// A batch is at most a quarter of the window, or one message. The driver must call
    /// [`poll_transmit`](Self::poll_transmit) between batches, so that acknowledgements leave before half of
    /// the window is used.
    ///
    /// # Errors
    /// The client's breach of the protocol, once earlier calls have returned all messages before it. The
    /// driver must close the connection once [`poll_transmit`](Self::poll_transmit) has nothing left.
    pub fn handle_read(&mut self, now: Time, bytes: &[u8]) -> Result<Batch, ReceiverError> {
        self.heard = now;
        let read = self.read(now, bytes);
        if let Err(e) = &read {
            self.leave(Some(e.code()));
        }
        read
    }

    fn read(&mut self, now: Time, bytes: &[u8]) -> Result<Batch, ReceiverError> {
        match self.phase {
            Phase::Open => {}
            Phase::Draining(_) if !bytes.is_empty() => return Err(ReceiverError::AfterClose),
            _ => return Ok(self.nothing(bytes.len(), 0)),
        }
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let scan = self.scan(rest)?;
            if scan.count > 0 {
                let frames = at..at + scan.bytes;
                let first = self.received.next();
                self.take_in(now, scan, &bytes[frames.clone()])?;
                let wants = match scan.stop {
                    Stop::Incomplete(n) => n,
                    _ => 0,
                };
                return Ok(Batch {
                    first,
                    count: scan.count,
                    taken: frames.end,
                    frames,
                    wants,
                });
            }
            let used = match scan.stop {
                Stop::Size(kind) if self.layout != Layout::Plain && kind >= frame::CONTROL => {
                    self.control(now, kind, rest)?
                }
                Stop::Size(size) => {
                    let max = self.config.frame_max;
                    return Err(ReceiverError::TooLarge { size, max });
                }
                Stop::Incomplete(wants) => return Ok(self.nothing(at, wants)),
                Stop::Enough => 0,
            };
            if used == 0 {
                return Ok(self.nothing(at, 12));
            }
            at += used;
            if self.phase != Phase::Open {
                if at < bytes.len() {
                    return Err(ReceiverError::AfterClose);
                }
                return Ok(self.nothing(at, 0));
            }
        }
    }

    const fn nothing(&self, taken: usize, wants: usize) -> Batch {
        Batch {
            first: self.received.next(),
            count: 0,
            frames: taken..taken,
            taken,
            wants,
        }
    }

    /// Finds the next batch of whole messages, of at most a quarter of the window so that acknowledgements
    /// leave in time, and verifies their checksums.
    fn scan(&self, bytes: &[u8]) -> Result<frame::Scan, ReceiverError> {
        let max = self.config.frame_max;
        let most = usize::try_from(self.config.window / 4).unwrap_or(usize::MAX);
        let mut scan = self.layout.scan(&bytes[..bytes.len().min(most)], max);
        if scan.count == 0 && bytes.len() > most {
            scan = self.layout.scan_some(bytes, max, 1);
        }
        if self.layout == Layout::Checked {
            let good = self.verify(&bytes[..scan.bytes]);
            if good == 0 && scan.count > 0 {
                let seq = self.received.next();
                return Err(ReceiverError::Checksum { seq });
            }
            if good < scan.count {
                scan = self.layout.scan_some(bytes, max, good);
            }
        }
        Ok(scan)
    }

    /// Returns how many frames at the start of `frames` have a correct checksum: only these form the batch.
    fn verify(&self, frames: &[u8]) -> u64 {
        let mut seq = self.received;
        let mut at = 0;
        for payload in self.layout.payloads(frames) {
            let end = at + self.layout.header() + payload.len();
            let carried = frames[end..].first_chunk().map(|c| u32::from_le_bytes(*c));
            if carried != Some(frame::checksum(seq.next(), payload)) {
                break;
            }
            seq = seq.next();
            at = end + self.layout.trailer();
        }
        seq.since(self.received)
    }

    fn take_in(
        &mut self,
        now: Time,
        scan: frame::Scan,
        frames: &[u8],
    ) -> Result<(), ReceiverError> {
        let (len, count) = (frames.len() as u64, scan.count);
        let unacked = self.received_pos + len - self.acked_most;
        if self.layout != Layout::Plain && unacked > self.config.window {
            let window = self.config.window;
            return Err(ReceiverError::Window { unacked, window });
        }
        self.untouched = false;
        self.received = self.received.plus(count);
        self.received_pos += len;
        self.stats.messages += count;
        self.stats.bytes += len;
        let id = if self.layout == Layout::Plain {
            frame::id_at(frames, scan.last)
        } else {
            0
        };
        let end = Mark {
            end: self.received,
            pos: self.received_pos,
            id,
        };
        if self.config.when_done {
            self.marks.push(end);
        } else {
            self.done = self.received;
            self.ready_to(now, end);
        }
        Ok(())
    }

    /// Handles a control frame at the start of `bytes`; returns its length in bytes, or 0 if it is not
    /// complete.
    fn control(&mut self, now: Time, kind: u32, bytes: &[u8]) -> Result<usize, ReceiverError> {
        match kind {
            CLOSE => self.phase = Phase::Draining(Some(Code::Drained)),
            PING => self.pong = true,
            SKIP => {
                let Some(next) = bytes.get(4..).and_then(<[u8]>::first_chunk) else {
                    return Ok(0);
                };
                self.skip(now, Seq::new(u64::from_le_bytes(*next)))?;
                return Ok(12);
            }
            kind => return Err(ReceiverError::Control(kind)),
        }
        self.untouched = false;
        Ok(4)
    }

    fn skip(&mut self, now: Time, next: Seq) -> Result<(), ReceiverError> {
        let received = self.received;
        if !self.untouched || next <= received.next() || next > Seq::LAST {
            return Err(ReceiverError::Skip { next, received });
        }
        self.untouched = false;
        self.received = Seq::new(next.get() - 1);
        self.skipped = Some((received, self.received));
        if self.done == received {
            self.done_to(now, self.received);
        }
        Ok(())
    }

    /// Records that the handler is done with every message up to `seq`, so that the receiver may acknowledge
    /// them. Numbers beyond the last message received do not count.
    pub fn done(&mut self, now: Time, seq: Seq) {
        if !self.config.when_done {
            return;
        }
        let mut seq = seq.min(self.received);
        if let Some((from, to)) = self.skipped
            && seq >= from
        {
            seq = seq.max(to);
            self.skipped = None;
        }
        if seq > self.done {
            self.done_to(now, seq);
        }
    }

    fn done_to(&mut self, now: Time, seq: Seq) {
        self.done = seq;
        let mark = self.marks.reach(seq);
        match (mark, self.layout) {
            // A plain acknowledgement can only repeat an id of the client, and the receiver knows ids only at
            // the ends of batches. So a report that the handler is done with a part of a batch makes no
            // message ready.
            (None, Layout::Plain) => {}
            (Some(mark), Layout::Plain) => self.ready_to(now, mark),
            (mark, _) => {
                let pos = mark.map_or(self.ready_pos, |m| m.pos);
                let id = 0;
                self.ready_to(now, Mark { end: seq, pos, id });
                self.ready_exact = mark.is_some_and(|m| m.end == seq);
            }
        }
    }

    fn ready_to(&mut self, now: Time, mark: Mark) {
        if self.ready == self.acked {
            self.ready_since = now;
        }
        self.ready = mark.end;
        self.ready_pos = mark.pos;
        self.ready_exact = true;
        self.ready_id = mark.id;
    }

    /// Handles the end of the client's direction of the connection. `left` is the number of bytes in the
    /// buffer that the receiver has not finished. The receiver still acknowledges the messages that it has.
    ///
    /// # Errors
    /// The connection ended inside a frame.
    pub fn handle_eof(&mut self, now: Time, left: usize) -> Result<(), ReceiverError> {
        self.heard = now;
        if self.phase == Phase::Open {
            self.phase = Phase::Draining(None);
        }
        if left > 0 && matches!(self.phase, Phase::Draining(_)) {
            self.leave(None);
            return Err(ReceiverError::Truncated { bytes: left });
        }
        Ok(())
    }

    /// Closes the connection from the server's side: the receiver acknowledges the messages that are ready,
    /// then sends the reason.
    pub fn close(&mut self, code: Code) {
        self.leave(Some(code));
    }

    fn leave(&mut self, code: Option<Code>) {
        if matches!(self.phase, Phase::Open | Phase::Draining(_)) {
            self.phase = Phase::Leaving(code);
        }
    }

    // ---- outputs

    /// Returns the bytes to send next: the rest of one reply of 12 bytes. Then call [`wrote`](Self::wrote).
    pub fn poll_transmit(&mut self, now: Time) -> Option<&[u8]> {
        if self.unit.is_none() {
            let (unit, reply) = self.next_unit(now)?;
            self.unit = Some(unit);
            self.out = reply.encode();
            self.out_at = 0;
            self.cost_ns = 0;
            self.spoke = now;
        }
        Some(&self.out[self.out_at..])
    }

    fn next_unit(&mut self, now: Time) -> Option<(Unit, Reply)> {
        if self.phase == Phase::Finished {
            return None;
        }
        if let Some(ack) = self.next_ack(now) {
            return Some((Unit::Ack, ack));
        }
        let session = self.layout != Layout::Plain;
        let code = match self.phase {
            Phase::Leaving(code) => Some(code),
            Phase::Draining(code) if self.acked == self.received => Some(code),
            _ => None,
        };
        match code {
            Some(Some(code)) if session => return Some((Unit::Bye, Reply::Bye(code))),
            Some(_) => {
                self.phase = Phase::Finished;
                return None;
            }
            None => {}
        }
        if self.pong || (session && self.keepalive().is_some_and(|t| now >= t)) {
            self.pong = false;
            let received = self.received.get();
            return Some((Unit::Pong, Reply::Pong { received }));
        }
        None
    }

    fn next_ack(&mut self, now: Time) -> Option<Reply> {
        let items = self.ready.since(self.acked);
        if items == 0 {
            return None;
        }
        let forced = self.forced();
        let bytes = self.ready_pos - self.acked_pos;
        let backlog = Load::new(items, bytes);
        if forced.is_none() && !self.cadence.allows(now, backlog, self.ready_since) {
            return None;
        }
        let reason = self.cadence.started(now, backlog, forced);
        self.stats.acks += 1;
        self.stats.acks_by_reason.add(reason, 1);
        // The count field of an acknowledgement is bounded: more messages than it can count go out in several
        // acknowledgements.
        let items = items.min(u64::from(OMITTED_MAX) + 1);
        let omitted = (items - 1) as u32;
        self.acked = self.acked.plus(items);
        self.acked_pos = self.ready_pos;
        self.acked_most = match self.ready_exact {
            true => self.ready_pos,
            // The handler is done with a part of a batch. The receiver does not know where that part ends, so
            // it takes the position at the end of the batch.
            false => self.marks.next().map_or(self.received_pos, |m| m.pos),
        };
        let latest = match self.layout {
            Layout::Plain => self.ready_id,
            _ => self.acked.get(),
        };
        Some(Reply::Ack { latest, omitted })
    }

    /// Returns the reason why the receiver must acknowledge at once, regardless of the controller, if there
    /// is one.
    fn forced(&self) -> Option<Reason> {
        if self.phase != Phase::Open {
            return Some(Reason::Closing);
        }
        let used = self.received_pos - self.acked_pos;
        (used >= self.config.window / 4).then_some(Reason::Memory)
    }

    /// Records that the socket took `n` of the polled bytes, at a cost of `cost_ns` nanoseconds.
    pub fn wrote(&mut self, now: Time, n: usize, cost_ns: u64) {
        let Some(unit) = self.unit else {
            assert!(n == 0, "nothing was to be written");
            return;
        };
        self.out_at += n;
        assert!(
            self.out_at <= REPLY_BYTES,
            "more was written than there was"
        );
        self.cost_ns = self.cost_ns.saturating_add(cost_ns);
        if self.out_at < REPLY_BYTES {
            return;
        }
        self.unit = None;
        match unit {
            Unit::Ack => self.cadence.finished(now, self.cost_ns),
            Unit::Pong => {}
            Unit::Bye => self.phase = Phase::Finished,
        }
    }

    /// Returns the latest time at which the driver must call [`handle_timeout`](Self::handle_timeout); after
    /// that call the driver polls everything again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        if self.phase == Phase::Finished {
            return None;
        }
        let due = self
            .cadence
            .due()
            .filter(|_| self.unit.is_none() && self.ready > self.acked);
        let alive = self
            .keepalive()
            .filter(|_| self.layout != Layout::Plain && self.unit.is_none());
        [due, alive, self.silence()].into_iter().flatten().min()
    }

    /// Returns the time of the receiver's next sign of life, which tells the client that the server is alive.
    fn keepalive(&self) -> Option<Time> {
        (self.idle_ns > 0).then(|| self.spoke.after(self.idle_ns / 3))
    }

    /// Returns the time from which the client counts as silent for too long. While the server owes the client
    /// an acknowledgement, the client may be silent, unless it does not read the server's replies.
    fn silence(&self) -> Option<Time> {
        let since = match self.unit {
            Some(_) => self.spoke,
            None if self.received == self.acked => self.heard,
            None => return None,
        };
        (self.idle_ns > 0).then(|| since.after(self.idle_ns))
    }

    /// Handles the receiver's deadlines that are due at `now`.
    ///
    /// # Errors
    /// The client was silent, or read nothing, for too long: the driver must close the connection.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), ReceiverError> {
        if self.silence().is_none_or(|t| now < t) {
            return Ok(());
        }
        if self.unit.is_some() {
            self.phase = Phase::Finished;
            return Err(ReceiverError::Stuck);
        }
        self.leave(Some(Code::Idle));
        Err(ReceiverError::Idle)
    }

    // ---- state

    /// Returns the layout of the connection's frames, for the reader of their payloads.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the highest message number that the server has received with none missing.
    #[must_use]
    pub const fn received(&self) -> Seq {
        self.received
    }

    /// Returns the highest message number that the server has acknowledged.
    #[must_use]
    pub const fn acked(&self) -> Seq {
        self.acked
    }

    /// Returns the highest message number that the receiver may acknowledge: the last message received or, if
    /// acknowledgements wait for the handler, the last one done or given up. A server keeps this and
    /// [`received`](Self::received) of a session.
    #[must_use]
    pub fn ready(&self) -> Seq {
        self.ready
    }

    /// Returns whether the receiver takes no more messages, so that the driver may close the socket as soon
    /// as nothing is left to send.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Returns whether the receiver has sent everything: the driver must then close the socket.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Returns the counters of this connection's receiver.
    #[must_use]
    pub const fn stats(&self) -> &ReceiverStats {
        &self.stats
    }

    /// Returns the state of the controller that decides when acknowledgements leave.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.cadence.snapshot()
    }

    /// Asserts the receiver's invariants; for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&self) {
        assert!(self.acked <= self.ready && self.ready <= self.done && self.done <= self.received);
        assert!(self.acked_pos <= self.ready_pos && self.ready_pos <= self.received_pos);
        assert!(self.acked_pos <= self.acked_most && self.acked_most <= self.received_pos);
        assert!(self.out_at <= REPLY_BYTES);
        if !self.config.when_done {
            assert_eq!(self.ready, self.received);
            assert_eq!(self.marks.next(), None);
        }
        self.marks.check_invariants();
    }
}
