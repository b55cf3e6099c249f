//! A timer that fires within tens of microseconds, for the waits of flush policies; the timers
//! of the runtime have a resolution of one millisecond.
//!
//! The timer owns a Linux timerfd. It measures how late its wake-ups come, and sets the timerfd to fire that
//! much earlier. If the timer fires early, the driver waits for the rest of the time.

use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tidegate::Time;
use tokio::io::unix::AsyncFd;

/// The lateness of the timer's wake-ups, in nanoseconds, that the timer assumes before its first measurement.
const FIRST_GUESS_NS: f64 = 25_000.0;

#[derive(Debug)]
pub(crate) struct PreciseTimer {
    fd: Option<AsyncFd<OwnedFd>>,
    /// The time at which the timer fires; `None` while it is not armed.
    armed: Option<Time>,
    late_ns: f64,
    pub(crate) count: u64,
}

impl PreciseTimer {
    pub(crate) const fn new() -> Self {
        Self {
            fd: None,
            armed: None,
            late_ns: FIRST_GUESS_NS,
            count: 0,
        }
    }

    /// Returns the average lateness of the timer's wake-ups, in nanoseconds, for the statistics.
    pub(crate) const fn late_ns(&self) -> u64 {
        self.late_ns as u64
    }

    /// Arms the timer so that the task runs at about `at`. Returns false if `at` is too near for a sleep.
    pub(crate) fn arm(&mut self, now: Time, at: Time) -> io::Result<bool> {
        let ahead = at.since(now).saturating_sub(self.late_ns());
        if ahead < 1_000 {
            return Ok(false);
        }
        let due = now.after(ahead);
        if self.armed.is_some_and(|t| t == due) {
            return Ok(true);
        }
        self.set(ahead)?;
        self.armed = Some(due);
        self.count += 1;
        Ok(true)
    }

    /// Returns ready if the timer fired; otherwise the timer wakes the task as soon as it fires.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<()> {
        let (Some(due), Some(fd)) = (self.armed, &self.fd) else {
            return Poll::Pending;
        };
        loop {
            let Poll::Ready(Ok(mut guard)) = fd.poll_read_ready(cx) else {
                return Poll::Pending;
            };
            let mut count = [0; 8];
            match rustix::io::read(guard.get_inner(), &mut count) {
                Ok(_) => {
                    guard.clear_ready();
                    self.armed = None;
                    // A very late wake-up of a busy runtime says little about the next one, so the average
                    // counts only a bounded part of it.
                    let late = (now.since(due) as f64).min(4.0 * self.late_ns + 1_000.0);
                    self.late_ns += (late - self.late_ns) / 8.0;
                    return Poll::Ready(());
                }
                Err(_) => guard.clear_ready(),
            }
        }
    }

    pub(crate) fn disarm(&mut self) -> io::Result<()> {
        if self.armed.take().is_some() {
            self.set(0)?;
        }
        Ok(())
    }

    fn set(&mut self, ahead_ns: u64) -> io::Result<()> {
        if self.fd.is_none() {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            self.fd = Some(crate::link::register(fd)?);
        }
        let Some(fd) = &self.fd else {
            return Ok(());
        };
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let spec = Itimerspec {
            it_interval: zero,
            it_value: Timespec {
                tv_sec: (ahead_ns / 1_000_000_000) as i64,
                tv_nsec: (ahead_ns % 1_000_000_000) as _,
            },
        };
        timerfd_settime(fd.get_ref(), TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}
