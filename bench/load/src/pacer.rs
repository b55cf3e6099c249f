//! The pacer of a load with a fixed rate, which decides when each command is due, independent of the callers.
//! Latency counts from the due time, so that a late answer also counts for the commands that wait behind it
//! (no coordinated omission).

use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::Semaphore;

/// The shortest and the longest interval at which the pacer checks for due commands. Between these bounds the
/// interval is the time between two commands at the load's rate.
const TICK: Duration = Duration::from_micros(100);
const PERIOD_MAX: Duration = Duration::from_millis(100);

/// Decides when each command of a load with a fixed rate is due.
pub(crate) struct Pacer {
    rate: f64,
    /// The time at which the first command was due, from which the pacer computes all due times.
    began: OnceLock<Instant>,
    /// A permit for each command that is due and not yet taken; the count grows while the callers are late.
    due: Semaphore,
    taken: AtomicU64,
}

impl Pacer {
    pub(crate) fn new(rate: f64) -> Self {
        Self {
            rate,
            began: OnceLock::new(),
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Waits for the next due command and returns its due time; `None` once the load has ended.
    pub(crate) async fn take(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        let turn = self.taken.fetch_add(1, Relaxed);
        let began = self.began.get_or_init(Instant::now);
        Some(*began + Duration::from_secs_f64(turn as f64 / self.rate))
    }

    /// Ends the pacer, and wakes all callers that wait for a due command, so that they end.
    pub(crate) fn close(&self) {
        self.due.close();
    }

    /// Adds permits for due commands until the load closes the pacer. The runtime's own poller waits for the
    /// timer, as for the clients' sockets, so the cost of the timer counts equally for every client.
    pub(crate) async fn run(&self) -> std::io::Result<()> {
        // The runtime's type for pipes can poll and read any descriptor, so the pacer uses it for a timer.
        let period = Duration::from_secs_f64(1.0 / self.rate);
        let mut timer = Receiver::from_owned_fd_unchecked(timer(period.clamp(TICK, PERIOD_MAX))?)?;
        let began = *self.began.get_or_init(Instant::now);
        let mut given = 0;
        while !self.due.is_closed() {
            // The pacer ignores the number of expiries that the timer returns, because the clock tells how
            // many commands are due.
            timer.read_exact(&mut [0; 8]).await?;
            let due = (began.elapsed().as_secs_f64() * self.rate) as u64 + 1;
            self.due.add_permits((due - given) as usize);
            given = due;
        }
        Ok(())
    }
}

fn timer(every: Duration) -> std::io::Result<OwnedFd> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
    let every = Timespec {
        tv_sec: 0,
        tv_nsec: every.subsec_nanos().into(),
    };
    let times = Itimerspec {
        it_interval: every,
        it_value: every,
    };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &times)?;
    Ok(timer)
}
