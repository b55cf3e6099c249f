//! The open loop: which command is due when, whoever is free to send it. Latency counts from there, so that a
//! late answer is not forgiven those that wait behind it (no coordinated omission).

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

/// How often it looks what is due; at a low rate, just when something is.
const TICK: Duration = Duration::from_micros(100);
const PERIOD_MAX: Duration = Duration::from_millis(100);

/// See the module.
pub(crate) struct Pacer {
    rate: f64,
    /// When the first command was due.
    began: OnceLock<Instant>,
    /// A permit a command that is due: a count, however late the callers are.
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

    /// When the next command was due, once it is; `None` when the load has ended.
    pub(crate) async fn take(&self) -> Option<Instant> {
        self.due.acquire().await.ok()?.forget();
        let turn = self.taken.fetch_add(1, Relaxed);
        let began = self.began.get_or_init(Instant::now);
        Some(*began + Duration::from_secs_f64(turn as f64 / self.rate))
    }

    /// Wakes all who wait, for the end.
    pub(crate) fn close(&self) {
        self.due.close();
    }

    /// Hands out what is due until closed. Its timer is waited for by the runtime's own poller, as the
    /// clients' sockets are; what it costs counts as the application's, for every client alike.
    pub(crate) async fn run(&self) -> std::io::Result<()> {
        // Any descriptor that is polled and read is as good as a pipe.
        let period = Duration::from_secs_f64(1.0 / self.rate);
        let mut timer = Receiver::from_owned_fd_unchecked(timer(period.clamp(TICK, PERIOD_MAX))?)?;
        let began = *self.began.get_or_init(Instant::now);
        let mut given = 0;
        while !self.due.is_closed() {
            // Only that it expired matters: how much is due, the clock tells.
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
