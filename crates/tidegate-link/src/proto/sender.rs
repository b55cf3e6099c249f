//! The client's half of a link: sends messages, keeps them until they are acknowledged, and checks
//! acknowledgements.
//!
//! One sender lives as long as its client and through any number of connections. It keeps blocks of frames
//! until the server has acknowledged them, sends no more than the window allows, and after a cut goes on from
//! the server's position. `replies` reads the server's bytes; `config` holds the types between sender and
//! client.
//!
//! Invariants: acknowledged <= sent <= pushed by the client; acknowledgements only go up; the sender never
//! sends a message again that the server has; the sender holds at most its memory bound and one block more.

mod config;
mod replies;

use tidegate::boundary::{Boundary, Cut, Step};
use tidegate::controller::{Bounded, Bounds, Controller, Knee, Load, Objective, Snapshot};
use tidegate::{Time, nanos};

pub use self::config::{Decide, Doubt, Event, SenderConfig, SessionConfig};
use super::cadence;
use super::error::SenderError;
use super::outbox::{Block, Outbox};
use crate::Seq;
use crate::frame::{self, CLOSE, Layout, PING};
use crate::hello::{Hello, VERSION};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The sender has no connection.
    Apart,
    /// The sender has queued or sent the hello, and waits for the server's answer.
    Opening {
        until: Time,
    },
    /// The server has lost the session's state, and the client's program must decide about messages in doubt.
    Doubtful(Doubt),
    Open,
    /// The sender has queued or sent the close frame, and waits for the last acknowledgements.
    Closing,
    /// The server said bye: the sender neither sends nor reads more on this connection.
    Left,
    /// The sender has ended for good, and does not connect again.
    Ended,
}

/// The client's half of a session, or of a plain connection. The [module](super) lists the order of its
/// calls.
pub struct Sender {
    config: SenderConfig,
    layout: Layout,
    phase: Phase,
    outbox: Outbox,
    /// Handshake and control frames, which the sender sends before any block of messages.
    control: Vec<u8>,
    control_at: usize,
    /// The bytes of the server's answer or reply that the sender has read so far, while that answer or reply
    /// is not complete.
    input: Vec<u8>,
    /// The number of the message that the server's last acknowledgement on this connection named. The next
    /// one must name a later message.
    previous: Seq,
    acked: Seq,
    /// The number of acknowledgements that the server has sent on all connections, for the client's counters.
    acks: u64,
    /// The range of messages that the client gave up and the server has not yet confirmed to skip; `None` if
    /// there are none.
    dropped: Option<Doubt>,
    epoch: u64,
    window: u64,
    idle_ns: u64,
    /// True if the client has closed and will push no more blocks.
    closing: bool,
    heard: Time,
    spoke: Time,
    progress: Time,
    stall_ns: u64,
    events: [Option<Event>; 2],
    writes: Boundary,
}

impl std::fmt::Debug for Sender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender")
            .field("phase", &self.phase)
            .field("acked", &self.acked)
            .field("last", &self.outbox.last())
            .field("held", &self.outbox.held())
            .finish_non_exhaustive()
    }
}

/// Returns the default controller of writes. It decides how many bytes a write takes: at most `write_max`.
#[must_use]
pub fn writes(write_max: u64) -> Box<dyn Controller> {
    let bounds = Bounds {
        items_max: u64::MAX,
        bytes_max: write_max.max(1),
        ..Bounds::default()
    };
    let knee = Knee::new(Objective::Lean, bounds)
        .and_then(Knee::in_bytes)
        .map(Knee::without_drain_chunks);
    match knee.map(|knee| Bounded::new(knee, bounds)) {
        Ok(Ok(c)) => Box::new(c),
        _ => unreachable!("the bounds are valid"),
    }
}

impl Sender {
    /// Creates a sender without a connection. `writes` decides how many bytes a write takes: [`writes`] by
    /// default.
    #[must_use]
    pub fn new(now: Time, config: SenderConfig, writes: Box<dyn Controller>) -> Self {
        let layout = match &config.session {
            None => Layout::Plain,
            Some(s) if s.checked => Layout::Checked,
            Some(_) => Layout::Session,
        };
        Self {
            layout,
            phase: Phase::Apart,
            outbox: Outbox::new(layout),
            control: Vec::new(),
            control_at: 0,
            input: Vec::new(),
            previous: Seq::NONE,
            acked: Seq::NONE,
            acks: 0,
            dropped: None,
            epoch: 0,
            window: config.plain_window,
            idle_ns: 0,
            closing: false,
            heard: now,
            spoke: now,
            progress: now,
            stall_ns: nanos(config.stall),
            events: [None; 2],
            writes: cadence::boundary(writes),
            config,
        }
    }

    // ---- inputs

    /// Handles a new connection to the server: a session sends its hello, a plain connection begins at once.
    /// A plain sender connects only once.
    pub fn handle_connected(&mut self, now: Time) {
        assert!(
            self.phase == Phase::Apart,
            "connected in phase {:?}",
            self.phase
        );
        self.heard = now;
        self.spoke = now;
        let Some(session) = &self.config.session else {
            self.phase = Phase::Open;
            let received = Seq::NONE;
            self.tell(Event::Opened {
                received,
                when_done: false,
                frame_max: frame::SIZE_MAX,
            });
            return;
        };
        let hello = Hello {
            version: VERSION,
            checked: session.checked,
            session: session.id,
            life: session.life,
            epoch: self.epoch,
            acked: self.confirmed(),
            sent: self.outbox.sent_ever(),
            frame_max: session.frame_max,
            token: session.token.clone(),
        };
        self.control = hello.encode();
        self.phase = Phase::Opening {
            until: now + self.config.opening,
        };
    }

    /// Handles `bytes` read from the server.
    ///
    /// # Errors
    /// The fault of the server. If [`SenderError::is_passing`] is true, the driver must cut the connection;
    /// otherwise the sender has ended.
    pub fn handle_read(&mut self, now: Time, bytes: &[u8]) -> Result<(), SenderError> {
        self.heard = now;
        let read = self.read(now, bytes);
        read.map_err(|e| self.failed(e))
    }

    fn failed(&mut self, e: SenderError) -> SenderError {
        if !e.is_passing() {
            self.phase = Phase::Ended;
        }
        e
    }

    /// Carries out the client's decision about the messages in doubt.
    ///
    /// # Errors
    /// [`SenderError::InDoubt`] if the decision is to fail the session.
    pub fn decide(&mut self, now: Time, decide: Decide) -> Result<(), SenderError> {
        let Phase::Doubtful(doubt) = self.phase else {
            return Ok(());
        };
        match decide {
            Decide::Resend => {}
            Decide::Drop => {
                let first = self.dropped.map_or(doubt.first, |d| d.first);
                self.dropped = Some(Doubt { first, ..doubt });
                self.acknowledge(now, doubt.last);
                self.outbox.rewind(doubt.last);
            }
            Decide::Fail => return Err(self.failed(SenderError::InDoubt(doubt))),
        }
        self.go_on();
        Ok(())
    }

    /// Handles the loss of the connection. A session may connect again.
    ///
    /// # Errors
    /// A plain connection had messages that were not acknowledged, or the server stopped in the middle of a
    /// reply. A session returns no error.
    pub fn handle_cut(&mut self) -> Result<(), SenderError> {
        self.control.clear();
        self.control_at = 0;
        let cut_reply = !self.input.is_empty() && !matches!(self.phase, Phase::Opening { .. });
        self.input.clear();
        if self.phase == Phase::Ended {
            return Ok(());
        }
        self.phase = Phase::Apart;
        if self.config.session.is_some() {
            return Ok(());
        }
        let (acked, last) = (self.acked, self.outbox.last());
        self.phase = Phase::Ended;
        if acked < last {
            let first = acked.next();
            return Err(SenderError::InDoubt(Doubt { first, last }));
        }
        match cut_reply {
            true => Err(SenderError::Truncated),
            false => Ok(()),
        }
    }

    // ---- the client's requests

    /// Keeps `block` and sends it after the blocks before. Returns the block if the memory held has reached
    /// its bound.
    ///
    /// # Errors
    /// The block, for which the sender has no room now.
    ///
    /// # Panics
    /// If the block's first number does not follow the last message's, or after [`close`](Self::close).
    pub fn push(&mut self, now: Time, block: Block) -> Result<(), Block> {
        assert!(!self.closing, "a block after the end");
        if !self.has_room() {
            return Err(block);
        }
        if self.acked == self.outbox.last() {
            self.progress = now;
        }
        self.outbox.push(block);
        Ok(())
    }

    /// Returns whether the sender has room for another block, so that the client may push one.
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.outbox.held() < self.config.held_max
    }

    /// Returns the memory of a block that the server has acknowledged, so that the client fills it again.
    pub fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.outbox.take_spare()
    }

    /// Ends the sending: the client will push no more messages. Once all blocks are sent, the sender of a
    /// session tells the server, and the server says bye after it has acknowledged everything. On a plain
    /// connection the driver closes its direction once nothing is left to send.
    pub fn close(&mut self) {
        self.closing = true;
        self.reclose();
    }

    fn reclose(&mut self) {
        if self.closing && self.phase == Phase::Open && self.outbox.unsent() == 0 {
            self.phase = Phase::Closing;
            if self.layout != Layout::Plain {
                self.control.extend_from_slice(&frame::control(CLOSE));
            }
        }
    }

    // ---- outputs

    /// Returns the oldest event that the client has not taken yet, for the client to act on.
    pub fn poll_event(&mut self) -> Option<Event> {
        let event = self.events[0].take();
        self.events.swap(0, 1);
        event
    }

    fn tell(&mut self, event: Event) {
        match &mut self.events {
            [first @ None, _] => *first = Some(event),
            // The newer event replaces the older one, because both are about the same connection.
            [_, second] => *second = Some(event),
        }
    }

    /// Fills `slices` with the bytes to write next; returns the number of slices filled. Then call
    /// [`wrote`](Self::wrote).
    pub fn poll_transmit<'a>(&'a mut self, now: Time, slices: &mut [&'a [u8]]) -> usize {
        if self.control_at < self.control.len() {
            let Some(slot) = slices.first_mut() else {
                return 0;
            };
            *slot = &self.control[self.control_at..];
            return 1;
        }
        if self.phase != Phase::Open {
            return 0;
        }
        let unsent = self.outbox.unsent();
        let backlog = self.outbox.allowance(self.acked, self.window, unsent);
        let now = self.writes.at(now);
        let load = Load::new(u64::from(backlog > 0), backlog);
        let step = self.writes.poll(now, load, now);
        match step.unwrap_or_else(cadence::impossible) {
            Step::Take(limit) => self.outbox.slices(backlog.min(limit.bytes), slices),
            Step::Hold { .. } | Step::Busy { .. } | Step::Rest => 0,
        }
    }

    /// Records that the socket took `n` of the polled bytes, at a cost of `cost_ns` nanoseconds.
    pub fn wrote(&mut self, now: Time, n: usize, cost_ns: u64) {
        if n == 0 {
            return;
        }
        self.spoke = now;
        if self.control_at < self.control.len() {
            self.control_at += n;
            assert!(
                self.control_at <= self.control.len(),
                "more was written than there was"
            );
            if self.control_at == self.control.len() {
                self.control.clear();
                self.control_at = 0;
            }
            return;
        }
        self.outbox.sent(n as u64);
        let left = self.outbox.unsent();
        let (batch, left) = (Load::new(1, n as u64), Load::new(u64::from(left > 0), left));
        let (now, cut) = (self.writes.at(now), Cut::Forced(self.writes.reason()));
        let ran = self.writes.ran(now, batch, left, cut, cost_ns, true);
        ran.unwrap_or_else(cadence::impossible);
        self.reclose();
    }

    /// Returns the latest time at which the driver must call [`handle_timeout`](Self::handle_timeout); after
    /// that call the driver polls everything again.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let opening = match self.phase {
            Phase::Opening { until } => Some(until),
            _ => None,
        };
        let ping = self.ping_due();
        [
            opening,
            ping,
            self.silence(),
            self.stalled(),
            self.writes.due().filter(|_| self.phase == Phase::Open),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn is_open(&self) -> bool {
        matches!(
            self.phase,
            Phase::Open | Phase::Closing | Phase::Doubtful(_)
        )
    }

    /// Returns the time of the next ping. A ping can only stand between two frames, so the sender sends it
    /// after everything else.
    fn ping_due(&self) -> Option<Time> {
        let quiet =
            self.phase == Phase::Open && self.outbox.unsent() == 0 && self.control.is_empty();
        (quiet && self.idle_ns > 0).then(|| self.spoke.after(self.idle_ns / 3))
    }

    fn silence(&self) -> Option<Time> {
        (self.is_open() && self.idle_ns > 0).then(|| self.heard.after(self.idle_ns))
    }

    fn stalled(&self) -> Option<Time> {
        let waiting = self.acked < self.outbox.last() && self.phase != Phase::Ended;
        (waiting && self.stall_ns > 0).then(|| self.progress.after(self.stall_ns))
    }

    /// Handles the sender's deadlines that are due at `now`.
    ///
    /// # Errors
    /// The server did not answer the hello, was silent, or acknowledged nothing for too long.
    pub fn handle_timeout(&mut self, now: Time) -> Result<(), SenderError> {
        let past = |t: Option<Time>| t.is_some_and(|t| now >= t);
        if past(self.stalled()) {
            let (acked, last) = (self.acked, self.outbox.last());
            return Err(self.failed(SenderError::Stalled { acked, last }));
        }
        if let Phase::Opening { until } = self.phase
            && now >= until
        {
            return Err(self.failed(SenderError::Unanswered));
        }
        if past(self.silence()) {
            return Err(self.failed(SenderError::Silent));
        }
        if past(self.ping_due()) {
            self.spoke = now;
            self.control.extend_from_slice(&frame::control(PING));
        }
        Ok(())
    }

    // ---- state

    /// Returns the layout of the connection's frames, for the encoder of blocks.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// Returns the highest number of a message that the server has acknowledged or the client has given up.
    #[must_use]
    pub const fn acked(&self) -> Seq {
        self.acked
    }

    /// Returns the number of acknowledgements that the server has sent. One acknowledgement covers any number
    /// of messages.
    #[must_use]
    pub const fn acks(&self) -> u64 {
        self.acks
    }

    /// Returns the number of the last message that the client pushed, up to which acknowledgements must come.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.outbox.last()
    }

    /// Returns the number of the last message ever sent, whole or in part: the server may have it.
    pub fn sent(&mut self) -> Seq {
        self.outbox.sent_ever()
    }

    /// Returns the number of bytes of frames that the sender has yet to send on this connection.
    #[must_use]
    pub const fn unsent_bytes(&self) -> u64 {
        self.outbox.unsent()
    }

    /// Returns the number of bytes of the frames that the server has not acknowledged, to compare with the
    /// window.
    pub fn unacked_bytes(&mut self) -> u64 {
        self.outbox.unacked(self.acked)
    }

    /// Returns the number of bytes of memory of the blocks that the server has not acknowledged, to compare
    /// with the bound.
    #[must_use]
    pub const fn held_bytes(&self) -> usize {
        self.outbox.held()
    }

    /// Returns whether the connection is open: the handshake is over, and the server has not said bye.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.is_open()
    }

    /// Returns whether the sender has ended for good. A session that has not ended may connect again.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// Returns whether the client has called [`close`](Self::close) and the server has acknowledged all
    /// messages.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.closing && self.acked == self.outbox.last()
    }

    /// Returns whether the driver must close the client's direction of a plain connection: after
    /// [`close`](Self::close) all bytes are out. A session keeps its direction open, because a middlebox may
    /// treat one closed direction as both.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.layout == Layout::Plain && matches!(self.phase, Phase::Closing | Phase::Ended)
    }

    /// Returns the state of the controller that decides how many bytes a write takes.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.writes.snapshot()
    }

    /// Asserts the sender's invariants; for tests.
    ///
    /// # Panics
    /// If an invariant does not hold.
    pub fn check_invariants(&mut self) {
        self.outbox.check_invariants();
        let (acked, sent, last) = (self.acked, self.outbox.sent_ever(), self.outbox.last());
        assert!(acked <= sent.max(acked) && sent.max(acked) <= last.max(acked));
        assert!(self.previous <= self.acked || self.layout != Layout::Plain);
        assert!(self.input.len() <= crate::hello::HANDSHAKE_MAX);
    }
}
