//! A connection and its callers: the pipeline behind a lock, the connection's clock, and the task that serves
//! it.
//!
//! This module submits commands, waits for their replies, and runs the task: it connects, drives the
//! connection and reconnects. `pipeline` makes the decisions, and `driver` carries the bytes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::ClientConfig;
use tidegate::{Clock, Time, nanos};
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::config::{Shared, WhenFull};
use crate::connect::{Ready, establish};
use crate::driver::{End, Session};
use crate::error::{CommandError, ConnectError, Executed};
use crate::pipeline::{Failure, Full, Outcome, Pipeline, Room, SlotId, Submission, Ticket};
use crate::policy::{Manner, Plan};
use crate::pubsub::registry::Registry;
use crate::pulse::Pulse;
use crate::stats::Stats;
use crate::wire::Wire;

/// One connection to the server, shared by its callers and the task that serves it.
pub(crate) struct Conn {
    pipeline: Mutex<Pipeline>,
    pub(crate) clock: Clock,
    pub(crate) manner: Manner,
    pub(crate) shared: Shared,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) gauges: Gauges,
}

/// The state and the counters of a connection that the connection's task updates without the pipeline's lock,
/// for the client's statistics.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) connected: AtomicBool,
    pub(crate) protocol: AtomicU8,
    pub(crate) reconnects: AtomicU64,
    pub(crate) polls: AtomicU64,
    pub(crate) busy_ns: AtomicU64,
    pub(crate) timers: AtomicU64,
    pub(crate) late_ns: AtomicU64,
}

impl Conn {
    /// Connects to the server, logs in, and spawns the task that serves the connection.
    pub(crate) async fn open(
        shared: &Shared,
        tls: Option<Arc<ClientConfig>>,
        plan: Plan,
        registry: Option<Arc<Registry>>,
    ) -> Result<Arc<Self>, ConnectError> {
        let runtime = Handle::try_current().map_err(|_| ConnectError::Runtime)?;
        let ready = establish(&shared.login, tls.as_ref()).await?;
        let room = Room {
            commands_max: shared.limits.commands_max,
            bytes_max: shared.limits.bytes_max.min(u64::from(u32::MAX)),
        };
        let mut pipeline = Pipeline::new(plan.boundary, room);
        if let Some(gain) = plan.manner.parts_gain {
            pipeline.pulse = Pulse::pricing(gain);
        }
        let reconnects = registry.is_some();
        let conn = Arc::new(Self {
            pipeline: Mutex::new(pipeline),
            clock: Clock::start(),
            manner: Manner {
                many_threads: plan.manner.many_threads
                    || runtime.runtime_flavor() != RuntimeFlavor::CurrentThread,
                ..plan.manner
            },
            shared: shared.clone(),
            registry,
            gauges: Gauges::default(),
        });
        conn.stands(ready.protocol);
        let end = CloseOnDrop(Arc::clone(&conn));
        runtime.spawn(serve(end, ready, tls, reconnects));
        Ok(conn)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pipeline> {
        // A panic under the lock is a bug of this crate. The pipeline is consistent between statements that
        // can panic, so the lock stays usable.
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stands(&self, protocol: u8) {
        self.gauges.protocol.store(protocol, Ordering::Relaxed);
        self.gauges.connected.store(true, Ordering::Relaxed);
    }

    /// Queues the commands that `encode` writes, and wakes the connection's task if it sleeps.
    pub(crate) fn submit(
        &self,
        what: Submission,
        encode: impl FnOnce(&mut Wire),
    ) -> Result<Option<SlotId>, Refusal> {
        self.submit_or(what, encode, |_| ())
    }

    /// Submits commands. If the pipeline has no room for them, calls `full` with the pipeline. The pipeline's
    /// lock is held over both steps, so that no room appears between them.
    fn submit_or(
        &self,
        what: Submission,
        encode: impl FnOnce(&mut Wire),
        full: impl FnOnce(&mut Pipeline),
    ) -> Result<Option<SlotId>, Refusal> {
        let mut pipeline = self.lock();
        if let Some(failure) = pipeline.closed() {
            return Err(Refusal::Closed(failure.clone()));
        }
        let now = if pipeline.is_asleep() {
            self.clock.now()
        } else {
            pipeline.last_seen()
        };
        match pipeline.submit(now, what, encode) {
            Ok((slot, waker)) => {
                drop(pipeline);
                wake(waker);
                Ok(slot)
            }
            Err(refusal) => {
                full(&mut pipeline);
                Err(Refusal::Full(refusal))
            }
        }
    }

    fn leave_line(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            self.lock().leave_line(ticket);
        }
    }

    pub(crate) fn drain(&self) {
        let waker = self.lock().drain();
        wake(waker);
    }

    /// Ends the connection at once. All commands without a reply, queued or in flight, fail with the error
    /// that the client is closed.
    pub(crate) fn abort(&self) {
        let mut wakers = Vec::new();
        let driver = self.lock().close(&Failure::Closed, &mut wakers);
        wake_all(&mut wakers);
        wake(driver);
    }

    pub(crate) fn stats(&self) -> Stats {
        let pipeline = self.lock();
        let g = &self.gauges;
        let us = |ns: u64| ns as f64 / 1e3;
        let pulse = pipeline.pulse;
        let policy = pipeline.snapshot();
        let per_command = 1.0 / pulse.commands.max(1) as f64;
        Stats {
            connected: g.connected.load(Ordering::Relaxed),
            protocol: g.protocol.load(Ordering::Relaxed),
            reconnects: g.reconnects.load(Ordering::Relaxed),
            commands: pulse.commands,
            replies: pulse.replies,
            queued: pipeline.queued(),
            in_flight: pipeline.in_flight(),
            depths: pipeline.depths,
            rtt_us: pulse.rtt_ns / 1e3,
            rtt_min_us: if pulse.rtt_min_ns == u64::MAX {
                0.0
            } else {
                us(pulse.rtt_min_ns)
            },
            write_us: pulse.write_ns / 1e3,
            overshoot_us: us(g.late_ns.load(Ordering::Relaxed)),
            delay_us: us(policy.counts.regret_ns) * per_command,
            cpu_us: us(g.busy_ns.load(Ordering::Relaxed)) * per_command,
            spins: pulse.spins,
            timers: g.timers.load(Ordering::Relaxed),
            polls: g.polls.load(Ordering::Relaxed),
            closed_loop: pulse.closed_loop(),
            policy,
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

pub(crate) fn wake_all(wakers: &mut Vec<Waker>) {
    wakers.drain(..).for_each(Waker::wake);
}

/// The reasons why the pipeline did not accept a submission of commands.
#[derive(Debug)]
pub(crate) enum Refusal {
    Full(Full),
    Closed(Failure),
}

impl From<Refusal> for CommandError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Full(full) => Self::Full {
                commands: full.commands,
                bytes: full.bytes,
            },
            Refusal::Closed(failure) => failure.into(),
        }
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Lost { executed, cause } => Self::Lost { executed, cause },
            Failure::TimedOut(executed) => Self::TimedOut(executed),
            Failure::Closed => Self::Closed,
        }
    }
}

/// The future of a submission. It queues its commands as soon as the pipeline has room for them, and then
/// waits for the outcome. If the caller drops the future, the client still sends commands that it has queued,
/// and discards their replies; commands that are not queued yet are never sent.
pub(crate) struct Pending {
    conn: Arc<Conn>,
    state: State,
}

enum State {
    Inside(SlotId),
    /// The submission found no room in the pipeline, and waits in the line of callers for room.
    Outside(Box<Outside>),
    /// No caller waits for the replies to the submission, or its caller has taken the outcome.
    Done,
    Refused(Box<CommandError>),
}

struct Outside {
    what: Submission,
    bytes: Wire,
    /// The submission's place in the line for room, which it keeps until it finds room; `None` before the
    /// submission first stands in the line.
    ticket: Option<Ticket>,
}

impl Pending {
    pub(crate) fn new(conn: Arc<Conn>, what: Submission, encode: impl Fn(&mut Wire)) -> Self {
        let state = match conn.submit(what, &encode) {
            Ok(slot) => State::of(slot),
            Err(Refusal::Full(_)) if conn.shared.limits.when_full == WhenFull::Wait => {
                let mut bytes = Wire::default();
                encode(&mut bytes);
                State::Outside(Box::new(Outside {
                    what,
                    bytes,
                    ticket: None,
                }))
            }
            Err(refusal) => State::Refused(Box::new(refusal.into())),
        };
        Self { conn, state }
    }

    /// Polls the outcome of the submission. The outcome is `None` if the submission wants no replies, or if
    /// the caller has taken the outcome already.
    pub(crate) fn poll_outcome(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<Outcome>, CommandError>> {
        loop {
            match &mut self.state {
                State::Inside(slot) => {
                    let Some(outcome) = self.conn.lock().take_outcome(*slot, cx.waker()) else {
                        return Poll::Pending;
                    };
                    self.state = State::Done;
                    return Poll::Ready(match outcome {
                        Outcome::Failed(failure) => Err(failure.into()),
                        outcome => Ok(Some(outcome)),
                    });
                }
                State::Outside(outside) => {
                    let Outside {
                        what,
                        bytes,
                        ticket,
                    } = &mut **outside;
                    let encode = |out: &mut Wire| out.append(bytes);
                    let full = |pipeline: &mut Pipeline| {
                        pipeline.wait_for_room(ticket, what.commands, cx.waker());
                    };
                    let submitted = self.conn.submit_or(*what, encode, full);
                    if let Err(Refusal::Full(_)) = submitted {
                        return Poll::Pending;
                    }
                    self.conn.leave_line(ticket.take());
                    self.state = match submitted {
                        Ok(slot) => State::of(slot),
                        Err(refusal) => State::Refused(Box::new(refusal.into())),
                    };
                }
                State::Refused(_) => {
                    if let State::Refused(e) = std::mem::replace(&mut self.state, State::Done) {
                        return Poll::Ready(Err(*e));
                    }
                }
                State::Done => return Poll::Ready(Ok(None)),
            }
        }
    }
}

impl State {
    fn of(slot: Option<SlotId>) -> Self {
        slot.map_or(Self::Done, Self::Inside)
    }
}

impl Future for Pending {
    type Output = Result<Option<Outcome>, CommandError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(cx)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        match &self.state {
            State::Inside(slot) => self.conn.lock().abandon(*slot),
            State::Outside(outside) => self.conn.leave_line(outside.ticket),
            State::Done | State::Refused(_) => {}
        }
    }
}

/// Runs the connection's task, which drives the connection until the client is closed, and reconnects when
/// the connection breaks.
async fn serve(end: CloseOnDrop, ready: Ready, tls: Option<Arc<ClientConfig>>, reconnects: bool) {
    let conn = &end.0;
    let mut ready = ready;
    loop {
        let mut session = Session::new(Arc::clone(conn), ready);
        let end = std::future::poll_fn(|cx| session.poll(cx)).await;
        drop(session);
        conn.gauges.connected.store(false, Ordering::Relaxed);
        let End::Lost(cause) = end else { return };
        let mut wakers = Vec::new();
        conn.lock().lost(&cause, &mut wakers);
        wake_all(&mut wakers);
        if !reconnects {
            let failure = Failure::Lost {
                executed: Executed::No,
                cause,
            };
            conn.lock().close(&failure, &mut wakers);
            return wake_all(&mut wakers);
        }
        let Some(again) = reconnect(conn, tls.as_ref()).await else {
            return;
        };
        conn.stands(again.protocol);
        conn.gauges.reconnects.fetch_add(1, Ordering::Relaxed);
        if let Some(registry) = &conn.registry {
            registry.resubscribe(conn);
        }
        ready = again;
    }
}

/// Connects again after a cut, and retries until an attempt succeeds; meanwhile queued commands time out.
/// Returns `None` once the client is closed.
async fn reconnect(conn: &Arc<Conn>, tls: Option<&Arc<ClientConfig>>) -> Option<Ready> {
    let (first, last) = conn.shared.limits.backoff;
    let mut pause = first;
    loop {
        if conn.lock().closed().is_some() {
            return None;
        }
        let attempt = async {
            let ready = establish(&conn.shared.login, tls).await;
            if let Err(e) = &ready {
                refuse_if_final(conn, e);
                tokio::time::sleep(jittered(pause, conn.clock.now())).await;
            }
            ready
        };
        if let Ok(ready) = (Expiring {
            conn,
            attempt: Box::pin(attempt),
            sleep: Box::pin(tokio::time::sleep(Duration::ZERO)),
        })
        .await?
        {
            return Some(ready);
        }
        pause = (pause * 2).min(last);
    }
}

/// Fails the queued commands if the server refuses the login, because the server would refuse later attempts,
/// too.
fn refuse_if_final(conn: &Conn, e: &ConnectError) {
    if let ConnectError::Refused(_) = e {
        let failure = Failure::Lost {
            executed: Executed::No,
            cause: e.to_string().into(),
        };
        let mut wakers = Vec::new();
        conn.lock().refuse(&failure, &mut wakers);
        wake_all(&mut wakers);
    }
}

/// Draws a pause between half of `pause` and all of it, so that many clients do not reconnect at the same
/// moment. The draw uses the clock's low digits, which are random enough.
fn jittered(pause: Duration, now: Time) -> Duration {
    let half = pause / 2;
    half + half.mul_f64((now.as_nanos() % 1000) as f64 / 1000.0)
}

/// The future of an attempt to reconnect, which meanwhile lets queued commands time out. It returns `None`
/// once the client is closed.
struct Expiring<'a, F> {
    conn: &'a Conn,
    attempt: Pin<Box<F>>,
    sleep: Pin<Box<tokio::time::Sleep>>,
}

impl<F: Future> Future for Expiring<'_, F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(out) = self.attempt.as_mut().poll(cx) {
            return Poll::Ready(Some(out));
        }
        loop {
            let timeout_ns = nanos(self.conn.shared.limits.timeout);
            let now = self.conn.clock.now();
            let mut wakers = Vec::new();
            let (next, closed) = {
                let mut pipeline = self.conn.lock();
                let next = pipeline.expire(now, timeout_ns, &mut wakers);
                pipeline.park(cx.waker());
                (next, pipeline.closed().is_some())
            };
            wake_all(&mut wakers);
            if closed {
                return Poll::Ready(None);
            }
            let Some(next) = next else {
                return Poll::Pending;
            };
            let after = next - now + Duration::from_millis(1);
            self.sleep
                .as_mut()
                .reset(tokio::time::Instant::now() + after);
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

/// Closes the connection when its task ends in any way: with the runtime, by a panic, or before its first
/// poll. So no caller waits for a reply for ever.
struct CloseOnDrop(Arc<Conn>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.abort();
        if let Some(registry) = &self.0.registry {
            registry.close();
        }
        self.0.gauges.connected.store(false, Ordering::Relaxed);
    }
}
