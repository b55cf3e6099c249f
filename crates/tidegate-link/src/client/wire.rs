//! The connection half of a client's I/O task: a socket, the `proto::Sender` that decides which bytes go
//! through the socket, and one timer. This half carries bytes and time between them and decides nothing.

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

/// The greatest number of bytes that the client reads at once: more than a thousand acknowledgements of 12
/// bytes.
const READ_BYTES: usize = 16 << 10;
/// The most slices of memory in one vectored write. One write sends several blocks, to save system calls; the
/// bound keeps the list of slices on the stack.
const SLICES: usize = 16;
/// The number of times that a client with `ClientBuilder::spin` looks at its socket before its I/O task
/// returns to the runtime, so that other tasks run, too.
const LOOKS: usize = 16;

/// The reasons why a client's connection ended, by which the client decides whether to connect again.
#[derive(Debug)]
pub(super) enum Cut {
    /// The server closed its direction of the connection, so no more replies follow.
    End,
    /// The operating system reported an error of the client's socket.
    Io(io::Error),
    /// The server broke the protocol, or missed a deadline.
    Rules(SenderError),
}

/// The connection half of a client's I/O task, which moves bytes: the socket, `proto::Sender` and the timer.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) sender: Sender,
    pub(super) counters: Arc<ClientCounters>,
    socket: Option<Socket>,
    clock: Clock,
    origin: Instant,
    buffer: Box<[u8]>,
    timer: Pin<Box<Sleep>>,
    /// The time at which the connection's timer fires. It may be earlier than the sender's next deadline, and
    /// is never later, so that no deadline is missed.
    armed: Time,
    /// True after a write, while TLS may hold back some of the bytes. The client flushes them once it has no
    /// bytes to write.
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

    /// Takes over a new connection to the server, and begins the handshake.
    pub(super) fn attach(&mut self, socket: Socket) {
        self.socket = Some(socket);
        self.unflushed = false;
        self.shut = false;
        self.active = self.now();
        bump(&self.counters.connections);
        self.sender.handle_connected(self.active);
    }

    /// Gives up the connection to the server, and closes the socket, so that the client can connect again.
    pub(super) fn detach(&mut self) {
        self.socket = None;
    }

    pub(super) const fn is_attached(&self) -> bool {
        self.socket.is_some()
    }

    /// Writes once the bytes that `proto::Sender` wants to send now. Returns whether the socket took any.
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

    /// Handles a turn without bytes to write: flushes the bytes that TLS holds back, and closes the client's
    /// direction of the connection once a plain client has sent everything.
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

    /// Reads once from the socket. Returns whether the socket had bytes.
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
        let before = self.sender.acks();
        let taken = self.sender.handle_read(self.active, &self.buffer[..n]);
        add(&self.counters.acks, self.sender.acks() - before);
        taken.map_err(Cut::Rules)
    }

    /// Looks at the socket several times, if the program has set `ClientBuilder::spin` and an acknowledgement
    /// is missing. Wakes the I/O task again until no bytes have moved for the spin time. Returns whether
    /// bytes arrived.
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

    /// Tells `proto::Sender` the time if one of its deadlines is due, and arms the timer for the next
    /// deadline.
    pub(super) fn keep_time(&mut self, cx: &mut Context<'_>) -> Result<(), Cut> {
        loop {
            let Some(due) = self.sender.poll_timeout() else {
                return Ok(());
            };
            let now = self.clock.now();
            if due <= now {
                self.sender.handle_timeout(now).map_err(Cut::Rules)?;
                // If a deadline is still due, the I/O task must first carry out the response of
                // `proto::Sender`, so the task wakes itself for another turn.
                if self.sender.poll_timeout().is_some_and(|again| again <= now) {
                    cx.waker().wake_by_ref();
                    return Ok(());
                }
                continue;
            }
            // Every message moves the deadlines to a later time. The timer follows only when it fires,
            // because setting it for every message would cost more.
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
