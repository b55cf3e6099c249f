//! The connection half of a client's I/O task: a socket, the sender that decides which bytes go through it,
//! and one timer. The half carries bytes and time between them and decides nothing.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tidegate::{Clock, Time, nanos};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::proto::{Sender, SenderError};
use crate::stats::{ClientCounters, add, bump};
use crate::transport::Socket;

/// The bytes of one read: more than a thousand acknowledgements.
const READ_BYTES: usize = 16 << 10;
/// The number of slices of one write.
const SLICES: usize = 16;
/// How often a connection that spins looks at the socket between two turns of the runtime.
const LOOKS: usize = 16;

/// How a connection ended.
#[derive(Debug)]
pub(super) enum Cut {
    /// The peer closed its direction.
    End,
    /// The system reported an error.
    Io(io::Error),
    /// The peer broke the rules, or missed a deadline.
    Rules(SenderError),
}

/// The connection half of the I/O task. See the module.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) sender: Sender,
    pub(super) counters: Arc<ClientCounters>,
    socket: Option<Socket>,
    clock: Clock,
    origin: Instant,
    buffer: Box<[u8]>,
    timer: Pin<Box<Sleep>>,
    /// The time at which the timer fires; it may be earlier than needed, never later.
    armed: Time,
    /// True after a write of bytes that the encryption may hold back.
    unflushed: bool,
    shut: bool,
    spin_ns: u64,
    active: Time,
}

impl Wire {
    pub(super) fn new(
        sender: Sender,
        clock: Clock,
        spin: Duration,
        counters: Arc<ClientCounters>,
    ) -> Self {
        let origin = Instant::now()
            .checked_sub(Duration::from_nanos(clock.now().as_nanos()))
            .unwrap_or_else(Instant::now);
        Self {
            sender,
            counters,
            socket: None,
            clock,
            origin,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            timer: Box::pin(sleep_until(origin)),
            armed: Time::NEVER,
            unflushed: false,
            shut: false,
            spin_ns: nanos(spin),
            active: Time::ZERO,
        }
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Attaches a fresh connection.
    pub(super) fn attach(&mut self, socket: Socket) {
        self.socket = Some(socket);
        self.unflushed = false;
        self.shut = false;
        self.active = self.now();
        bump(&self.counters.connections);
        self.sender.handle_connected(self.active);
    }

    /// Releases the connection.
    pub(super) fn detach(&mut self) {
        self.socket = None;
    }

    pub(super) const fn is_attached(&self) -> bool {
        self.socket.is_some()
    }

    /// Writes the bytes that are due, once. Returns whether it wrote any.
    pub(super) fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        let before = self.clock.now();
        let mut slices: [&[u8]; SLICES] = [&[]; SLICES];
        let count = self.sender.poll_transmit(before, &mut slices);
        if count == 0 {
            return self.settle(cx);
        }
        let bufs = slices.map(IoSlice::new);
        match socket.poll_write(cx, &bufs[..count]) {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(e)) => Err(Cut::Io(e)),
            Poll::Ready(Ok(0)) => Err(Cut::Io(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(n)) => {
                let now = self.clock.now();
                self.sender.wrote(now, n, now.since(before));
                self.unflushed = true;
                self.active = now;
                bump(&self.counters.writes);
                add(&self.counters.bytes_written, n as u64);
                Ok(true)
            }
        }
    }

    /// Handles a turn without bytes to write: flushes those that the encryption holds back, and closes the
    /// connection's direction at the end.
    fn settle(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        if self.unflushed {
            match socket.poll_flush(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(outcome) => outcome.map_err(Cut::Io)?,
            }
            self.unflushed = false;
        }
        if !self.shut
            && self.sender.is_closing()
            && let Poll::Ready(outcome) = socket.poll_shutdown(cx)
        {
            outcome.map_err(Cut::Io)?;
            self.shut = true;
        }
        Ok(false)
    }

    /// Reads once. Returns whether the socket had bytes.
    pub(super) fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        let Some(socket) = &mut self.socket else {
            return Ok(false);
        };
        match socket.poll_read(cx, &mut self.buffer) {
            Poll::Pending => Ok(false),
            Poll::Ready(outcome) => self.took_in(outcome).map(|()| true),
        }
    }

    fn took_in(&mut self, outcome: io::Result<usize>) -> Result<(), Cut> {
        let n = match outcome {
            Err(e) => return Err(Cut::Io(e)),
            Ok(0) => return Err(Cut::End),
            Ok(n) => n,
        };
        self.active = self.clock.now();
        bump(&self.counters.reads);
        let taken = self.sender.handle_read(self.active, &self.buffer[..n]);
        taken.map_err(Cut::Rules)
    }

    /// Polls the socket for a while if spinning is set and an acknowledgement is due. Returns whether bytes
    /// arrived, or whether the task must poll again at once.
    pub(super) fn spin(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        if self.spin_ns == 0 || self.sender.acked() >= self.sender.last() {
            return Ok(false);
        }
        for _ in 0..LOOKS {
            let Some(socket) = &mut self.socket else {
                return Ok(false);
            };
            if let Some(outcome) = socket.read_now(&mut self.buffer) {
                return self.took_in(outcome).map(|()| true);
            }
            std::hint::spin_loop();
        }
        if self.clock.now().since(self.active) < self.spin_ns {
            cx.waker().wake_by_ref();
        }
        Ok(false)
    }

    /// Gives the sender the time if a deadline is due, and arms the timer.
    pub(super) fn keep_time(&mut self, cx: &mut Context<'_>) -> Result<(), Cut> {
        loop {
            let Some(due) = self.sender.poll_timeout() else {
                return Ok(());
            };
            let now = self.clock.now();
            if due <= now {
                self.sender.handle_timeout(now).map_err(Cut::Rules)?;
                // The driver carries out the sender's response in this turn or the next one.
                if self.sender.poll_timeout().is_some_and(|again| again <= now) {
                    cx.waker().wake_by_ref();
                    return Ok(());
                }
                continue;
            }
            // Deadlines move with every message; the timer catches up only when it fires.
            if due < self.armed {
                self.armed = due;
                let at = self.origin + Duration::from_nanos(due.as_nanos());
                self.timer.as_mut().reset(at);
            }
            if self.timer.as_mut().poll(cx).is_pending() {
                return Ok(());
            }
            self.armed = Time::NEVER;
        }
    }
}
