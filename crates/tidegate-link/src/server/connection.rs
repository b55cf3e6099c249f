//! The I/O of one open connection of a server: reads, hands batches to the handler, writes the receiver's
//! replies, and ends. `proto::Receiver` makes the decisions.
//!
//! While the handler works on a batch, acknowledgements still leave, but the connection reads nothing more.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidegate::{Clock, Time, nanos};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::Batch;
use super::done::Reports;
use super::handler::Handler;
use super::input::Input;
use crate::SessionId;
use crate::frame::Code;
use crate::proto::{Receiver, ReceiverError};
use crate::stats::{ServerCounters, add, bump};
use crate::transport::Socket;

/// The reasons why a server's connection ended, for its counters and the program's callback.
#[derive(Debug)]
pub(super) enum Ended {
    /// The connection ended in order: neither the client nor the server had more to send.
    Finished,
    /// The connection to the client broke by an error of the network.
    Io,
    /// The client broke the protocol, or missed a deadline.
    Rules(ReceiverError),
    /// The handler of the session failed, so the server forgets the session.
    Handler,
    /// The memory for all read buffers is used up, and this connection has the largest buffer.
    Crowded,
}

/// A future that resolves, with the reason, when the server must end the connection.
pub(super) type Leave = Pin<Box<dyn Future<Output = Code> + Send>>;

/// The time that a client has to read the server's last replies before the server cuts its connection.
const LINGER: Duration = Duration::from_secs(1);
/// The greatest number of bytes from the client that the server discards during [`LINGER`], to bound its
/// work.
const LINGER_BYTES: usize = 16 << 20;
/// The number of times that a connection with `ServerBuilder::spin` looks at its socket before its task
/// returns to the runtime, so that other tasks run, too.
const LOOKS: usize = 16;

/// One open connection of a server: its receiver, socket, read buffer and timer.
pub(super) struct Connection {
    pub(super) receiver: Receiver,
    socket: Socket,
    input: Input,
    session: Option<SessionId>,
    when_done: bool,
    reports: Arc<Reports>,
    leave: Option<Leave>,
    counters: Arc<ServerCounters>,
    clock: Clock,
    origin: Instant,
    timer: Pin<Box<Sleep>>,
    /// The time at which the timer fires. It may be earlier than the receiver's next deadline, and is never
    /// later, so that no deadline is missed.
    armed: Time,
    unflushed: bool,
    eof: bool,
    spin_ns: u64,
    active: Time,
    acks: u64,
}

/// The parts from which [`Connection::new`] makes an open connection.
pub(super) struct Parts {
    pub(super) receiver: Receiver,
    pub(super) socket: Socket,
    pub(super) input: Input,
    pub(super) session: Option<SessionId>,
    pub(super) when_done: bool,
    pub(super) reports: Arc<Reports>,
    pub(super) leave: Leave,
    pub(super) counters: Arc<ServerCounters>,
    pub(super) clock: Clock,
    pub(super) spin: Duration,
}

impl Connection {
    pub(super) fn new(parts: Parts) -> Self {
        let now = parts.clock.now();
        let origin = Instant::now()
            .checked_sub(Duration::from_nanos(now.as_nanos()))
            .unwrap_or_else(Instant::now);
        Self {
            receiver: parts.receiver,
            socket: parts.socket,
            input: parts.input,
            session: parts.session,
            when_done: parts.when_done,
            reports: parts.reports,
            leave: Some(parts.leave),
            counters: parts.counters,
            clock: parts.clock,
            origin,
            timer: Box::pin(sleep_until(origin)),
            armed: Time::NEVER,
            unflushed: false,
            eof: false,
            spin_ns: nanos(parts.spin),
            active: now,
            acks: 0,
        }
    }

    /// Serves the connection to its end, with `handler` for its messages. The caller then calls
    /// [`farewell`](Self::farewell).
    pub(super) async fn run<H: Handler>(&mut self, handler: &mut H) -> Ended {
        loop {
            let now = self.clock.now();
            let found = match self.receiver.handle_read(now, self.input.bytes()) {
                Ok(found) => found,
                Err(e) => return Ended::Rules(e),
            };
            if found.count == 0 {
                self.input.consume(found.taken, found.wants);
                match poll_fn(|cx| self.poll_input(cx)).await {
                    Ok(true) => continue,
                    Ok(false) => return Ended::Finished,
                    Err(ended) => return ended,
                }
            }
            let layout = self.receiver.layout();
            // The handler borrows the read buffer while the connection goes on sending acknowledgements, so
            // the buffer is taken out of the connection for that time.
            let input = std::mem::replace(&mut self.input, Input::placeholder());
            let frames = &input.bytes()[found.frames];
            let batch = Batch::new(layout, frames, found.first, found.count, self.session);
            let handled = self.hand_over(handler, batch).await;
            self.input = input;
            self.input.consume(found.taken, found.wants);
            bump(&self.counters.batches);
            add(&self.counters.messages, found.count);
            if let Err(ended) = handled {
                return ended;
            }
        }
    }

    /// Hands a batch to the handler. Acknowledgements leave while the handler works.
    async fn hand_over<H: Handler>(
        &mut self,
        handler: &mut H,
        batch: Batch<'_>,
    ) -> Result<(), Ended> {
        let mut handling = pin!(handler.handle(batch));
        let mut broken = None;
        let handled = poll_fn(|cx| {
            let handled = handling.as_mut().poll(cx);
            if broken.is_none() {
                // If the connection breaks while the handler works, the handler still finishes its batch.
                broken = self.speak(cx).err();
            }
            handled
        });
        if handled.await.is_err() {
            self.receiver.close(Code::Failed);
            return Err(Ended::Handler);
        }
        broken.map_or(Ok(()), Err)
    }

    /// Waits for bytes from the client, and handles the connection's deadlines meanwhile. Returns false if no
    /// more bytes will come.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Ended>> {
        if let Some(leave) = &mut self.leave
            && let Poll::Ready(code) = leave.as_mut().poll(cx)
        {
            self.leave = None;
            if code == Code::Displaced {
                bump(&self.counters.displaced);
            }
            self.receiver.close(code);
        }
        self.speak(cx)?;
        if self.receiver.is_finished() {
            return Poll::Ready(Ok(false));
        }
        if self.eof {
            return Poll::Pending;
        }
        if ready!(self.input.poll_make_room(cx)).is_err() {
            // The server refuses this connection because memory is short, so the connection gives its
            // buffer's memory back before the client has read the reason.
            self.input = Input::placeholder();
            self.receiver.close(Code::Full);
            return Poll::Ready(Err(Ended::Crowded));
        }
        match self.socket.poll_read(cx, self.input.room()) {
            Poll::Ready(read) => Poll::Ready(self.took_in(read)),
            Poll::Pending => self.spin(cx),
        }
    }

    fn took_in(&mut self, read: io::Result<usize>) -> Result<bool, Ended> {
        let n = read.map_err(|_| Ended::Io)?;
        self.active = self.clock.now();
        if n == 0 {
            self.eof = true;
            let left = self.input.bytes().len();
            let ended = self.receiver.handle_eof(self.active, left);
            self.input = Input::placeholder();
            return ended.map(|()| true).map_err(Ended::Rules);
        }
        self.input.filled(n);
        bump(&self.counters.reads);
        add(&self.counters.bytes_read, n as u64);
        Ok(true)
    }

    /// Looks at the socket several times before the task sleeps, if the program has set
    /// `ServerBuilder::spin`.
    fn spin(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Ended>> {
        if self.spin_ns == 0 {
            return Poll::Pending;
        }
        for _ in 0..LOOKS {
            if let Some(read) = self.socket.read_now(self.input.room()) {
                return Poll::Ready(self.took_in(read));
            }
            std::hint::spin_loop();
        }
        if self.clock.now().since(self.active) < self.spin_ns {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// Sends the receiver's replies, as far as the socket takes them, and handles the receiver's deadlines.
    fn speak(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        if self.when_done {
            self.reports.register(cx.waker());
            let done = self.reports.done();
            if done > self.receiver.ready() {
                self.receiver.done(self.clock.now(), done);
            }
        }
        self.write(cx).map_err(|_| Ended::Io)?;
        loop {
            let Some(due) = self.receiver.poll_timeout() else {
                return Ok(());
            };
            let now = self.clock.now();
            if due <= now {
                self.receiver.handle_timeout(now).map_err(Ended::Rules)?;
                self.write(cx).map_err(|_| Ended::Io)?;
                if self
                    .receiver
                    .poll_timeout()
                    .is_some_and(|again| again <= now)
                {
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

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        loop {
            let before = self.clock.now();
            let Some(bytes) = self.receiver.poll_transmit(before) else {
                break;
            };
            match self.socket.poll_write(cx, &[IoSlice::new(bytes)]) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(outcome) => {
                    let n = outcome?;
                    let now = self.clock.now();
                    self.receiver.wrote(now, n, now.since(before));
                    add(&self.counters.ack_cost_ns, now.since(before));
                    self.unflushed = true;
                }
            }
        }
        let acks = self.receiver.stats().acks;
        if acks > self.acks {
            add(&self.counters.acks, acks - self.acks);
            self.acks = acks;
        }
        if self.unflushed && self.socket.poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(())
    }

    /// Sends the last replies, and waits up to one second for the client to read them: closing a socket with
    /// unread bytes would discard the replies.
    pub(super) async fn farewell(mut self) {
        let hear = async {
            poll_fn(|cx| {
                let said = self.write(cx);
                if said.is_err() || self.receiver.is_finished() {
                    return Poll::Ready(());
                }
                Poll::Pending
            })
            .await;
            if self.eof || poll_fn(|cx| self.socket.poll_shutdown(cx)).await.is_err() {
                return;
            }
            let mut scrap = vec![0; 4 << 10];
            let mut left = LINGER_BYTES;
            while let Ok(n @ 1..) = poll_fn(|cx| self.socket.poll_read(cx, &mut scrap)).await {
                left = left.saturating_sub(n);
                if left == 0 {
                    break;
                }
            }
        };
        let heard = timeout(LINGER, hear).await;
        if heard.is_err() {
            self.socket.abort();
        }
    }
}
