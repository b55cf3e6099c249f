//! A client's I/O task: it writes the senders' blocks to the socket, reads acknowledgements, and connects
//! again after a cut. `proto::Sender` makes the decisions. The task sleeps until a sending program, the
//! socket or the timer wakes it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use backon::ExponentialBackoff;
use tidegate::queue::Consumer;
use tidegate::{Time, nanos};
use tokio::sync::watch;
use tokio::time::sleep;

use super::config::{OnDoubt, Reconnect};
use super::connect::{Route, waits};
use super::front::Refused;
use super::producer::Item;
use super::shared::Shared;
use super::wire::{Cut, Wire};
use crate::Seq;
use crate::error::{ConnectError, LinkError};
use crate::frame::Code;
use crate::proto::{Decide, Event, SenderError};
use crate::stats::bump;
use crate::transport::Socket;

/// The greatest number of messages that the I/O task takes out of the producers' queue at once, so that it
/// also serves the socket.
const SCRATCH: usize = 1024;
/// The nanoseconds for which the I/O task polls an empty queue before it tells the producers that it sleeps.
/// While the task sleeps, each push of a producer pays for a memory fence, and the first push also pays for a
/// wake-up.
const QUEUE_LOOKS_NS: u64 = 50_000;
/// The number of turns of the I/O task's loop after which the task yields, so that other tasks of the runtime
/// run.
const TURNS: usize = 8;

/// An attempt to connect to the server, which the I/O task polls while the client has no connection.
type Attempt = Pin<Box<dyn Future<Output = Result<Socket, ConnectError>> + Send>>;

pub(super) struct Driver {
    wire: Wire,
    shared: Arc<Shared>,
    acked: watch::Sender<Seq>,
    written: watch::Sender<Seq>,
    queue: Option<Consumer<Item>>,
    /// True if the producers' queue was empty when the I/O task last looked at it. `queue_active` is the time
    /// at which the task first found the queue empty. A while after that time the task sleeps.
    queue_idle: bool,
    queue_active: Time,
    /// Messages that the I/O task took out of the producers' queue at once, to send them. The task has
    /// encoded the messages before index `scratch_at`, and has yet to encode the others.
    scratch: Vec<Item>,
    scratch_at: usize,
    route: Route,
    reconnect: Reconnect,
    waits: ExponentialBackoff,
    attempt: Option<Attempt>,
    /// The time at which the I/O task made the current connection. A connection that lasts is restored at
    /// once after a cut.
    attached: Time,
    /// The time and the cause of the loss of the client's last connection, for the error if the client gives
    /// up; `None` while the session is open.
    broken: Option<(Time, String)>,
    on_doubt: OnDoubt,
}

/// The next step of a client's I/O task after one turn of its loop.
enum Turn {
    /// The I/O task takes another turn at once, because this turn made progress.
    Again,
    /// The I/O task lets other tasks of the runtime run, then takes another turn.
    Yield,
    /// The I/O task has nothing to do until a sender, the socket or the timer wakes it.
    Rest,
}

impl Turn {
    const fn again_if(something: bool) -> Self {
        if something { Self::Again } else { Self::Rest }
    }
}

/// The parts from which [`Driver::new`] makes a client's I/O task.
pub(super) struct Begin {
    pub(super) wire: Wire,
    pub(super) shared: Arc<Shared>,
    pub(super) acked: watch::Sender<Seq>,
    pub(super) written: watch::Sender<Seq>,
    pub(super) queue: Consumer<Item>,
    pub(super) route: Route,
    pub(super) reconnect: Reconnect,
    pub(super) on_doubt: OnDoubt,
}

impl Driver {
    /// Creates the I/O task of a client that has its first connection.
    pub(super) fn new(begin: Begin) -> Self {
        Self {
            attached: begin.wire.now(),
            wire: begin.wire,
            shared: begin.shared,
            acked: begin.acked,
            written: begin.written,
            queue: Some(begin.queue),
            queue_idle: true,
            queue_active: Time::ZERO,
            scratch: Vec::with_capacity(SCRATCH),
            scratch_at: 0,
            route: begin.route,
            waits: waits(begin.reconnect),
            reconnect: begin.reconnect,
            attempt: None,
            broken: None,
            on_doubt: begin.on_doubt,
        }
    }

    /// Runs the I/O task until the client ends, and records the reason of the end.
    pub(super) async fn run(mut self) {
        let why = poll_fn(|cx| self.poll(cx)).await;
        // The client records the reason of its end before the I/O task drops the watches: a task that sees a
        // watch end then finds the reason.
        self.shared.end(why);
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<LinkError> {
        for _ in 0..TURNS {
            if self.shared.is_stopped() {
                return Poll::Ready(LinkError::Closed);
            }
            match self.turn(cx) {
                Ok(Turn::Again) => {}
                Ok(Turn::Yield) => break,
                Ok(Turn::Rest) => return Poll::Pending,
                Err(why) => return Poll::Ready(why),
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Does, once, all work that the I/O task can do now: messages, socket and connection. Returns the task's
    /// next step.
    fn turn(&mut self, cx: &mut Context<'_>) -> Result<Turn, LinkError> {
        let took = self.take_in(cx);
        if !self.wire.is_attached() {
            let connected = self.connect(cx)?;
            return Ok(Turn::again_if(took || connected));
        }
        let carried = match self.carry(cx) {
            Ok(carried) => carried,
            Err(cut) => return self.cut(cut).map(|()| Turn::Again),
        };
        // The bytes that arrived before the end of the connection count, so the task publishes their
        // acknowledgements before it handles the cut.
        let moved = self.publish();
        let told = self.listen()?;
        if moved {
            // The I/O task yields so that a task that waited for the acknowledgement runs first: a client in
            // lock-step sends nothing before that task has run.
            return Ok(Turn::Yield);
        }
        if took || carried || told {
            return Ok(Turn::Again);
        }
        match self.rest(cx) {
            Ok(true) if self.publish() => Ok(Turn::Yield),
            Ok(again) => Ok(Turn::again_if(again)),
            Err(cut) => self.cut(cut).map(|()| Turn::Again),
        }
    }

    fn carry(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        let wrote = self.wire.write(cx)?;
        let read = self.wire.read(cx)?;
        Ok(wrote | read)
    }

    /// Prepares the I/O task's sleep after a turn without work: senders, the socket or the timer will wake
    /// the task. Returns true if the task must take another turn instead.
    fn rest(&mut self, cx: &mut Context<'_>) -> Result<bool, Cut> {
        if self.wire.sender.has_room() && !self.shared.front().sleep(cx.waker()) {
            return Ok(true);
        }
        if self.wire.spin(cx)? {
            return Ok(true);
        }
        self.wire.keep_time(cx)?;
        Ok(false)
    }

    /// Moves the block that the client's senders filled into `proto::Sender`, if that has room for it.
    /// Returns whether messages moved.
    fn take_in(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.wire.sender.has_room() {
            return false;
        }
        let queued = self.drain_queue(cx);
        let mut front = self.shared.front();
        let sender = &mut self.wire.sender;
        let Some(block) = front.take(|| sender.take_spare()) else {
            let ended = front.is_finished() && self.queue.is_none() && self.scratch.is_empty();
            drop(front);
            if ended {
                sender.close();
            }
            return queued;
        };
        drop(front);
        self.shared.room.notify_waiters();
        bump(&self.shared.counters.blocks);
        let now = self.wire.now();
        if self.wire.sender.push(now, block).is_err() {
            unreachable!("there was room")
        }
        true
    }

    /// Encodes messages of producers into the front's block until the block is full or the queue is empty.
    /// Returns whether messages moved.
    fn drain_queue(&mut self, cx: &mut Context<'_>) -> bool {
        let mut moved = false;
        while self.queue.is_some() || !self.scratch.is_empty() {
            if self.scratch.is_empty() {
                self.refill(cx);
                if self.scratch.is_empty() {
                    break;
                }
            }
            let mut front = self.shared.front();
            let before = self.scratch_at;
            for item in &self.scratch[before..] {
                match front.push_queued(item.payload()) {
                    Ok(_) => self.scratch_at += 1,
                    Err(Refused::Full) => break,
                    // Room is the only reason for a refusal here: the producer has checked the message's
                    // length, and a closed front still takes messages of the queue.
                    Err(refused) => unreachable!("{refused:?}"),
                }
            }
            drop(front);
            moved |= self.scratch_at > before;
            if self.scratch_at < self.scratch.len() {
                break;
            }
            self.scratch.clear();
            self.scratch_at = 0;
        }
        moved
    }

    /// Takes messages out of the producers' queue. If the queue is empty, registers the I/O task to be woken
    /// by the next push.
    fn refill(&mut self, cx: &mut Context<'_>) {
        let Some(queue) = &mut self.queue else { return };
        // The I/O task reads `closed` before `has_producers`. So if a message was pushed before the close,
        // the task also sees that there is a producer.
        let closed = self.shared.is_closed();
        if !self.shared.has_producers() {
            // Without a producer the I/O task need not look at the queue: the call that makes the first
            // producer wakes the task.
            if closed {
                self.queue = None;
            }
            return;
        }
        if queue.drain_into(&mut self.scratch, SCRATCH).items > 0 {
            self.queue_idle = false;
            return;
        }
        let now = self.wire.now();
        if !std::mem::replace(&mut self.queue_idle, true) {
            self.queue_active = now;
        }
        if now.since(self.queue_active) < QUEUE_LOOKS_NS {
            cx.waker().wake_by_ref();
            return;
        }
        match queue.poll_ready(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => drop(queue.drain_into(&mut self.scratch, SCRATCH)),
            Poll::Ready(Err(_)) => self.queue = None,
        }
    }

    /// Publishes the highest acknowledged and the highest written message number in watches, for the tasks
    /// that wait on them. Returns whether the acknowledged number is higher than before.
    fn publish(&mut self) -> bool {
        let acked = self.wire.sender.acked();
        let moved = self.acked.send_if_modified(|known| {
            let moved = *known != acked;
            *known = acked;
            moved
        });
        // The client itself holds one receiver of the watch `written`, on which no task waits. Only a further
        // receiver belongs to a task that waits for a flush.
        if self.written.receiver_count() > 1 {
            let sender = &mut self.wire.sender;
            let written = match sender.unsent_bytes() {
                0 => sender.last(),
                // The socket may have taken only a part of the last message, so that message does not count
                // as written.
                _ => Seq::new(sender.sent().get().saturating_sub(1)),
            };
            self.written.send_if_modified(|known| {
                let moved = *known < written;
                *known = written.max(*known);
                moved
            });
        }
        moved
    }

    /// Handles the events of `proto::Sender` for the client: a session opened, messages are in doubt, or the
    /// server said bye. Returns whether an event came.
    fn listen(&mut self) -> Result<bool, LinkError> {
        let mut told = false;
        while let Some(event) = self.wire.sender.poll_event() {
            told = true;
            match event {
                Event::Opened { .. } => self.broken = None,
                Event::Doubt(doubt) => {
                    let decide: Decide = (self.on_doubt)(&doubt);
                    let now = self.wire.now();
                    self.wire.sender.decide(now, decide).map_err(explain)?;
                }
                Event::Bye(Code::Drained) if self.wire.sender.is_drained() => {
                    return Err(LinkError::Closed);
                }
                Event::Bye(code) if code.is_passing() => self.lost(code.to_string())?,
                Event::Bye(Code::Displaced) => return Err(LinkError::Displaced),
                Event::Bye(code) => return Err(LinkError::Bye(code)),
            }
        }
        Ok(told)
    }

    fn cut(&mut self, cut: Cut) -> Result<(), LinkError> {
        // The bytes that arrived before the cut count, so the task publishes their acknowledgements first.
        self.publish();
        self.listen()?;
        if !self.wire.is_attached() {
            return Ok(());
        }
        let cause = match cut {
            Cut::End => "the server closed it".to_owned(),
            Cut::Io(e) => e.to_string(),
            Cut::Rules(e) if e.is_passing() => e.to_string(),
            Cut::Rules(e) => return Err(explain(e)),
        };
        self.lost(cause)
    }

    /// Handles the loss of the connection: the client starts to connect again if it has a link session and
    /// less time than [`Reconnect::give_up`] has passed since the loss.
    fn lost(&mut self, cause: String) -> Result<(), LinkError> {
        self.wire.detach();
        let plain = self.shared.session.is_none();
        let drained = self.wire.sender.is_drained();
        let cut = self.wire.sender.handle_cut();
        if plain && cut.is_ok() && drained {
            return Err(LinkError::Closed);
        }
        if plain {
            return Err(self.give_up(cause));
        }
        let now = self.wire.now();
        let (since, _) = self.broken.get_or_insert_with(|| (now, cause.clone()));
        if now.since(*since) >= nanos(self.reconnect.give_up) {
            return Err(self.give_up(cause));
        }
        // If the connection lasted at least as long as the first wait, the client connects again at once:
        // usually only the connection broke, and the server still runs.
        let lasted = now.since(self.attached);
        if lasted >= nanos(self.reconnect.longest) {
            self.waits = waits(self.reconnect);
        }
        let wait = if lasted < nanos(self.reconnect.first) {
            self.waits.next()
        } else {
            None
        };
        self.try_again(wait);
        Ok(())
    }

    fn try_again(&mut self, wait: Option<Duration>) {
        let route = self.route.clone();
        self.attempt = Some(Box::pin(async move {
            if let Some(wait) = wait {
                sleep(wait).await;
            }
            route.connect().await
        }));
    }

    /// Polls the attempt to connect to the server, and begins one if there is none. Returns whether the I/O
    /// task must take another turn.
    fn connect(&mut self, cx: &mut Context<'_>) -> Result<bool, LinkError> {
        if self.wire.sender.is_drained() {
            // The program has closed the client, and the server has acknowledged everything. A new connection
            // would carry nothing, and the server may never come back.
            return Err(LinkError::Closed);
        }
        let Some(attempt) = &mut self.attempt else {
            let wait = self.waits.next();
            self.try_again(wait);
            return Ok(true);
        };
        match attempt.as_mut().poll(cx) {
            Poll::Ready(Ok(socket)) => {
                self.attempt = None;
                self.wire.attach(socket);
                self.attached = self.wire.now();
                return Ok(true);
            }
            Poll::Ready(Err(e)) => {
                self.attempt = None;
                bump(&self.shared.counters.connect_failures);
                let now = self.wire.now();
                let (since, _) = self.broken.get_or_insert_with(|| (now, e.to_string()));
                if now.since(*since) >= nanos(self.reconnect.give_up) {
                    return Err(self.give_up(e.to_string()));
                }
                return Ok(true);
            }
            Poll::Pending => {}
        }
        if self.wire.sender.has_room() && !self.shared.front().sleep(cx.waker()) {
            return Ok(true);
        }
        match self.wire.keep_time(cx) {
            Err(Cut::Rules(e)) => Err(explain(e)),
            _ => Ok(false),
        }
    }

    fn give_up(&mut self, cause: String) -> LinkError {
        LinkError::Broken {
            cause,
            acked: self.wire.sender.acked(),
            sent: self.wire.sender.sent(),
        }
    }
}

/// Translates an error of `proto::Sender` into the error that the client's user gets from its calls.
pub(super) fn explain(e: SenderError) -> LinkError {
    match e {
        SenderError::Refused(refused) if refused.code == Code::Displaced => LinkError::Displaced,
        SenderError::Refused(refused) => LinkError::Refused {
            code: refused.code,
            text: refused.text,
        },
        SenderError::InDoubt(doubt) => LinkError::Doubt(doubt),
        SenderError::Stalled { acked, last } => LinkError::Stalled { acked, last },
        e => LinkError::Protocol(e),
    }
}
