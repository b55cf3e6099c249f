//! The driver: the task that serves one connection. At each poll it writes commands, reads replies and hands
//! them to their callers, in that order, so that reads make progress while a large batch is being written.
//!
//! The driver decides little: the controller says, through the pipeline, when to flush, and the pulse says
//! whether to look for replies without sleeping. After the driver has handed out replies it yields. So the
//! answered callers run first, and their next commands are queued when the driver looks at the queue again.
//! If callers share the driver's thread, yielding costs nothing.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidegate::controller::Reason;
use tidegate::{Time, nanos};

use crate::command::cmd;
use crate::conn::{Conn, wake_all};
use crate::connect::Ready;
use crate::link::Link;
use crate::pipeline::{Answer, Next, Submission};
use crate::pulse::SPIN_NS;
use crate::reply::Value;
use crate::resp::{Decoder, ProtocolError};
use crate::timer::PreciseTimer;
use crate::wire::Wire;

/// The reason why the driver's session on one connection to the server ends: only a broken connection is
/// replaced.
#[derive(Debug)]
pub(crate) enum End {
    /// The program closed the client, and the server has answered every command.
    Closed,
    Lost(Arc<str>),
}

/// The greatest number of replies that the driver hands out while it holds the pipeline's lock. Between two
/// such chunks callers on other threads can take the lock.
const CHUNK: usize = 64;
/// The number of parts into which the driver splits the replies to the commands in flight, while the task
/// looks for replies without sleeping. After each part the driver flushes the next commands of the answered
/// callers.
const PARTS_SPINNING: u64 = 2;
/// The greatest number of replies that the driver hands out between two flushes: `PART_MAX` if it splits the
/// replies to the commands in flight into parts, `WHOLE` if it does not.
const PART_MAX: u64 = 256;
const WHOLE: u64 = 4096;
/// The number of commands in flight from which on the driver always splits the replies, because a flush of
/// half of so many commands costs little beside the commands. Below this number a trial decides. A trial
/// would not decide here: callers that got their replies in halves keep returning in halves for a while, even
/// if the driver no longer splits the replies.
const SPLIT: u64 = 192;
/// The longest wait for callers, in nanoseconds, that the driver bridges by yielding to other tasks. For a
/// longer wait the driver arms a timer and sleeps.
const YIELD_NS: u64 = 60_000;
/// The memory, in bytes, that the driver keeps in its write buffer after a large batch, for the next batch.
const KEEP: usize = 1 << 20;

/// The longest time for which the task sleeps without a check for commands that have timed out.
const WATCH_MAX: Duration = Duration::from_secs(3600);

pub(crate) struct Session {
    conn: Arc<Conn>,
    link: Link,
    decoder: Decoder,
    /// The bytes of the flush that the driver is writing to the socket.
    writing: Wire,
    /// The time, in nanoseconds, that the driver has spent so far on writing the present flush, for the
    /// controller.
    cost_ns: u64,
    /// True if the socket accepted no more bytes at the last write. The next write then waits until the
    /// runtime reports room in the socket.
    blocked: bool,
    /// True if the driver skipped reading in its last turn. It then reads in this turn. So a caller that
    /// submits commands without pause cannot keep the driver from reading.
    skipped: bool,
    /// The time until which the driver looks for replies without sleeping; `None` while it may sleep.
    spin_until: Option<Time>,
    /// True if the task slept since its last read. The next read then asks the runtime whether bytes have
    /// arrived.
    slept: bool,
    in_flight: u64,
    /// The number of queued commands when the driver last looked at the queue. If the number has changed
    /// since, the task does not sleep.
    seen: u64,
    /// The number of queued commands when the driver last held a flush back; 0 after a flush. If the number
    /// is larger at the next look, the last yield brought commands.
    held: u64,
    /// True if the driver may spend CPU on spinning and on small flushes, because the client then answers
    /// more commands: see [`Pulse::pays`](crate::pulse::Pulse::pays).
    pays: bool,
    may_spin: bool,
    timer: PreciseTimer,
    /// The timer for timeouts and keepalive, with a resolution of milliseconds, which suffices for these.
    watchdog: Pin<Box<tokio::time::Sleep>>,
    watchdog_at: Time,
    /// The time at which the driver next checks for commands that have timed out and for silence of the
    /// server.
    watch_at: Time,
    last_read: Time,
    pinged: bool,
    values: Vec<Value>,
    wakers: Vec<Waker>,
    pushes: Vec<Value>,
    polls: u64,
    busy_ns: u64,
}

/// The result of the first step of the driver's turn, in which it may flush queued commands. The later steps
/// depend on it.
#[derive(Clone, Copy, Debug)]
enum Flushed {
    /// The driver wrote nothing more in this step: no command is queued, an earlier flush is still being
    /// written, or the policy waits with the timer armed.
    Idle,
    /// The driver took a flush from the pipeline, and wrote as much as the socket accepted.
    Wrote,
    /// The policy holds the flush back for such a short time that the task yields instead of sleeping.
    Hold,
}

impl Session {
    pub(crate) fn new(conn: Arc<Conn>, ready: Ready) -> Self {
        let now = conn.clock.now();
        let polls = conn.gauges.polls.load(Ordering::Relaxed);
        let busy_ns = conn.gauges.busy_ns.load(Ordering::Relaxed);
        Self {
            conn,
            link: ready.link,
            decoder: ready.decoder,
            writing: Wire::default(),
            cost_ns: 0,
            blocked: false,
            skipped: false,
            spin_until: None,
            slept: true,
            in_flight: 0,
            seen: 0,
            held: 0,
            pays: false,
            may_spin: false,
            timer: PreciseTimer::new(),
            watchdog: Box::pin(tokio::time::sleep(Duration::ZERO)),
            watchdog_at: Time::NEVER,
            watch_at: Time::ZERO,
            last_read: now,
            pinged: false,
            values: Vec::new(),
            wakers: Vec::new(),
            pushes: Vec::new(),
            polls,
            busy_ns,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End> {
        let entered = self.conn.clock.now();
        let mut outcome = self.turn(cx, entered);
        while self.conn.manner.many_threads && matches!(outcome, Ok(Some(Turn::Look))) {
            outcome = self.turn(cx, self.conn.clock.now());
        }
        self.polls += 1;
        self.busy_ns += self.conn.clock.now().since(entered);
        let gauges = &self.conn.gauges;
        gauges.polls.store(self.polls, Ordering::Relaxed);
        gauges.busy_ns.store(self.busy_ns, Ordering::Relaxed);
        gauges.timers.store(self.timer.count, Ordering::Relaxed);
        gauges
            .late_ns
            .store(self.timer.late_ns(), Ordering::Relaxed);
        match outcome {
            Ok(Some(Turn::Again | Turn::Look)) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Ok(Some(Turn::Sleep)) => Poll::Pending,
            Ok(None) => Poll::Ready(End::Closed),
            Err(e) => Poll::Ready(End::Lost(e.to_string().into())),
        }
    }

    /// Runs one turn: writes, reads and hands out replies. Returns `None` once the client is closed and every
    /// command was answered.
    fn turn(&mut self, cx: &mut Context<'_>, now: Time) -> Result<Option<Turn>, Broken> {
        if now >= self.watch_at {
            self.watch(now)?;
        }
        let flushed = self.flush(cx, now)?;
        if self.hear(cx, now, flushed)? {
            self.spin_until = None;
            // No command is in flight. If callers run on other threads, the task may sleep at once: an
            // answered caller wakes it when the caller submits its next command.
            let finished = self.in_flight == 0 && !matches!(flushed, Flushed::Hold);
            if self.conn.manner.many_threads && finished {
                return self.sleep(cx, now);
            }
            return Ok(Some(Turn::Again));
        }
        match flushed {
            Flushed::Wrote => self.spin_until = None,
            Flushed::Hold => return Ok(Some(Turn::Again)),
            Flushed::Idle => {}
        }
        if self.spins(now) {
            return Ok(Some(Turn::Look));
        }
        self.sleep(cx, now)
    }

    // ---- writing (flushes the queued commands)

    fn flush(&mut self, cx: &mut Context<'_>, now: Time) -> Result<Flushed, Broken> {
        let conn = Arc::clone(&self.conn);
        let mut pipeline = conn.lock();
        pipeline.unpark();
        self.in_flight = pipeline.in_flight();
        self.seen = pipeline.queued();
        self.pays = pipeline.pulse.pays();
        self.may_spin = conn.manner.spin && self.pays;
        if self.is_writing() {
            drop(pipeline);
            self.write(cx, now)?;
            return Ok(Flushed::Idle);
        }
        let mut next = pipeline.poll_flush(now);
        if let Next::Wait(until, reason) = next {
            let near = reason == Reason::Anticipate && until.since(now) <= YIELD_NS;
            let grew = self.seen > std::mem::replace(&mut self.held, self.seen);
            // If the policy saves CPU, the driver holds the flush back only as long as each yield brings a
            // further command into the queue.
            if near && (conn.manner.precise || grew) {
                return Ok(Flushed::Hold);
            }
            if !near && self.timer.arm(now, until)? {
                return Ok(Flushed::Idle);
            }
            if conn.manner.precise {
                return Ok(Flushed::Hold);
            }
            // The deadline is so near that a timer would fire after it, so the driver flushes now.
            next = pipeline.poll_flush(until);
        }
        if let Next::Wait(until, _) = next {
            let armed = self.timer.arm(now, until)?;
            return Ok(if armed { Flushed::Idle } else { Flushed::Hold });
        }
        let Next::Write(entries, reason) = next else {
            return Ok(Flushed::Idle);
        };
        pipeline.take(now, entries, reason, &mut self.writing);
        self.in_flight = pipeline.in_flight();
        self.seen = pipeline.queued();
        self.held = 0;
        drop(pipeline);
        self.cost_ns = 0;
        self.timer.disarm()?;
        self.write(cx, now)?;
        Ok(Flushed::Wrote)
    }

    /// Returns whether the driver has not finished writing a flush, and so must not take the next one. A read
    /// may finish the flush, too: under TLS both reads and writes send the bytes that TLS holds.
    fn is_writing(&self) -> bool {
        !self.writing.is_empty() || self.link.holds_bytes()
    }

    fn write(&mut self, cx: &mut Context<'_>, mut began: Time) -> Result<(), Broken> {
        while !self.writing.is_written() || self.link.holds_bytes() {
            let result = if self.blocked {
                match self.link.poll_write(cx, &self.writing) {
                    Poll::Pending => return Ok(()),
                    Poll::Ready(result) => result,
                }
            } else {
                self.link.write(&self.writing)
            };
            let now = self.conn.clock.now();
            self.cost_ns += now.since(began);
            began = now;
            match result {
                Ok(n) => {
                    self.writing.wrote(n);
                    self.blocked = false;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.blocked = true,
                Err(e) => return Err(e.into()),
            }
        }
        self.writing.clear(KEEP);
        self.conn.lock().written(began, self.cost_ns, true);
        Ok(())
    }

    // ---- reading (hands out replies)

    /// Hands out a part of the replies to their callers, and reads first if no whole reply has arrived.
    /// Returns false if there was nothing to read.
    fn hear(&mut self, cx: &mut Context<'_>, now: Time, flushed: Flushed) -> Result<bool, Broken> {
        let part = self.part();
        self.decode(part)?;
        if self.values.is_empty() {
            // The server cannot have answered the flush just written, and the driver looked for earlier
            // replies a moment ago, so it skips reading. It skips only one turn, because a caller that
            // submits without pause must not keep it from reading.
            if matches!(flushed, Flushed::Wrote) && !self.slept && !self.skipped {
                self.skipped = true;
                return Ok(false);
            }
            self.skipped = false;
            let slept = std::mem::take(&mut self.slept);
            if !self.read(cx, slept)? {
                return Ok(false);
            }
            self.noted(now);
            self.decode(part)?;
            if self.values.is_empty() {
                return Ok(true);
            }
        }
        if self.spin_until.is_some() {
            self.conn.lock().pulse.spun(true);
        }
        let mut asked = true;
        while asked && !self.values.is_empty() {
            let some = self.values.len().min(CHUNK);
            let values = self.values.drain(..some);
            {
                let mut pipeline = self.conn.lock();
                asked = pipeline.deliver(now, values, &mut self.wakers, &mut self.pushes);
                self.in_flight = pipeline.in_flight();
            }
            wake_all(&mut self.wakers);
        }
        if let Some(registry) = &self.conn.registry {
            registry.publish(&mut self.pushes);
        }
        self.pushes.clear();
        if asked {
            Ok(true)
        } else {
            Err(ProtocolError::Unasked.into())
        }
    }

    /// Returns how many replies the driver hands out before it flushes the next commands of the answered
    /// callers.
    fn part(&self) -> u64 {
        let manner = &self.conn.manner;
        let parts = match manner.parts {
            1 => return WHOLE,
            _ if manner.parts_gain.is_some() && !self.pays && self.in_flight < SPLIT => {
                return WHOLE;
            }
            // No command is in flight, so only messages of pub/sub arrive, and these cause no new commands to
            // flush.
            _ if self.in_flight == 0 => return PART_MAX,
            _ if self.may_spin => PARTS_SPINNING,
            parts => parts,
        };
        self.in_flight
            .div_ceil(parts)
            .clamp(manner.part_min, PART_MAX)
    }

    fn decode(&mut self, part: u64) -> Result<(), Broken> {
        while (self.values.len() as u64) < part {
            let Some(value) = self.decoder.next()? else {
                break;
            };
            self.values.push(value);
        }
        Ok(())
    }

    /// Reads from the socket once. If `slept` is true, the driver asks the runtime whether bytes have
    /// arrived, and has the task woken as soon as bytes arrive. Returns whether there were bytes.
    fn read(&mut self, cx: &mut Context<'_>, slept: bool) -> Result<bool, Broken> {
        let space = self.decoder.space();
        let result = if slept {
            match self.link.poll_read(cx, space) {
                Poll::Pending => return Ok(false),
                Poll::Ready(result) => result,
            }
        } else {
            self.link.read(space)
        };
        match result {
            Ok(0) => Err(Broken::Closed {
                midway: self.decoder.is_midway(),
            }),
            Ok(n) => {
                self.decoder.filled(n);
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    // ---- timeouts and keepalive

    /// Records that the server has sent bytes, so that the driver need not test whether the server is alive.
    fn noted(&mut self, now: Time) {
        self.last_read = now;
        if std::mem::take(&mut self.pinged) {
            let silent = now.after(nanos(self.conn.shared.limits.keepalive));
            self.watch_at = self.watch_at.min(silent);
        }
    }

    /// Fails the commands that have timed out, sends `PING` on a silent connection, and gives the connection
    /// up if the server stays silent.
    fn watch(&mut self, now: Time) -> Result<(), Broken> {
        let limits = &self.conn.shared.limits;
        let (timeout_ns, keepalive_ns) = (nanos(limits.timeout), nanos(limits.keepalive));
        let (next, waiting) = {
            let mut pipeline = self.conn.lock();
            let next = pipeline.expire(now, timeout_ns, &mut self.wakers);
            (next, pipeline.waiting_since())
        };
        wake_all(&mut self.wakers);
        let silent = now.since(self.last_read);
        if self.pinged && silent > timeout_ns.saturating_add(keepalive_ns) {
            return Err(Broken::Silent(Duration::from_nanos(silent)));
        }
        let mut next = next.unwrap_or(Time::NEVER);
        // The server was silent for the keepalive time. If a command waits, its reply serves as the sign of
        // life. On an idle connection the driver sends a PING.
        if silent >= keepalive_ns && !self.pinged {
            self.pinged = true;
            if waiting.is_none() {
                self.ping();
            }
        }
        let patience = if self.pinged {
            timeout_ns.saturating_add(keepalive_ns)
        } else {
            keepalive_ns
        };
        next = next.min(self.last_read.after(patience));
        self.watch_at = next.max(now.after(1_000_000));
        Ok(())
    }

    fn ping(&self) {
        let ping = cmd("PING");
        let what = Submission {
            commands: 1,
            wanted: false,
            urgent: true,
            own: true,
            answer: Answer::Replies,
        };
        // If the client is closed, the pipeline refuses the PING, which is then not needed, so the failure
        // needs no handling.
        let _ = self.conn.submit(what, |out| ping.encode(out));
    }

    // ---- resting (waits for the next event)

    /// Returns whether the driver looks for replies again at once, without sleeping, because a reply is near.
    fn spins(&mut self, now: Time) -> bool {
        if self.in_flight == 0 || self.blocked {
            self.spin_until = None;
            return false;
        }
        match self.spin_until {
            Some(until) if now < until => true,
            Some(_) => {
                self.spin_until = None;
                self.conn.lock().pulse.spun(false);
                false
            }
            None => {
                self.spin_until = self.may_spin.then(|| now.after(SPIN_NS));
                self.may_spin
            }
        }
    }

    fn sleep(&mut self, cx: &mut Context<'_>, now: Time) -> Result<Option<Turn>, Broken> {
        let writing = self.is_writing();
        {
            let mut pipeline = self.conn.lock();
            if !writing {
                if pipeline.closed().is_some() && pipeline.is_idle() {
                    return Ok(None);
                }
                if pipeline.queued() != self.seen {
                    return Ok(Some(Turn::Again));
                }
                pipeline.park(cx.waker());
            }
            if let Some(due) = pipeline.due(nanos(self.conn.shared.limits.timeout)) {
                self.watch_at = self.watch_at.min(due);
            }
        }
        // The driver polls the socket and the timers, so that each of them wakes the task. If one is ready
        // already, the next turn handles it.
        if self.read(cx, true)? {
            self.noted(now);
            return Ok(Some(Turn::Again));
        }
        if writing {
            self.blocked = true;
            self.write(cx, now)?;
            if !self.is_writing() {
                return Ok(Some(Turn::Again));
            }
        }
        if self.timer.poll(cx, now).is_ready() || self.watchdog_fired(cx, now) {
            return Ok(Some(Turn::Again));
        }
        self.slept = true;
        Ok(Some(Turn::Sleep))
    }

    fn watchdog_fired(&mut self, cx: &mut Context<'_>, now: Time) -> bool {
        if self.watchdog_at != self.watch_at {
            self.watchdog_at = self.watch_at;
            // The runtime's timers have a resolution of one millisecond. The driver adds a millisecond, so
            // that the timer never wakes the task too early.
            let after = (self.watch_at - now).min(WATCH_MAX) + Duration::from_millis(1);
            self.watchdog
                .as_mut()
                .reset(tokio::time::Instant::now() + after);
        }
        self.watchdog.as_mut().poll(cx).is_ready()
    }
}

enum Turn {
    /// The task yields, so that the callers that it has just woken run first, and then takes the next turn.
    Again,
    /// The driver looks for replies again without sleeping, because a reply is expected shortly.
    Look,
    Sleep,
}

/// The failures that end the driver's session on one connection. The shared connection of a client then
/// reconnects.
#[derive(Debug)]
enum Broken {
    Io(io::Error),
    Protocol(ProtocolError),
    Closed { midway: bool },
    Silent(Duration),
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Protocol(e) => e.fmt(f),
            Self::Closed { midway: true } => {
                f.write_str("the server closed it in the middle of a reply")
            }
            Self::Closed { midway: false } => f.write_str("the server closed it"),
            Self::Silent(after) => write!(f, "the server has been silent for {after:.0?}"),
        }
    }
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

impl From<ProtocolError> for Broken {
    fn from(e: ProtocolError) -> Self {
        Self::Protocol(e)
    }
}
