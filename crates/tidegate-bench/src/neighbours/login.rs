//! Measures the logins of neighbours: each login opens a new connection and measures the time until the
//! server accepts the password. A login starts when it is due, even if earlier logins have not ended, so each
//! login has a thread.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::figures::{ByPhase, Recorder, Starts};
use crate::wire::Wire;

/// The greatest number of logins in progress at a time, to bound the threads; further logins fail at once.
const LOGINS_MAX: usize = 512;
/// The longest sleep of the thread, before it checks again if the last phase is over.
const SLEEP_MAX: Duration = Duration::from_millis(50);

/// The logins of one user, which start at a fixed pace.
pub(super) struct Logins {
    pub(super) addr: SocketAddr,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) first_ns: u64,
    pub(super) every_ns: u64,
    pub(super) clock: Instant,
    pub(super) starts: Arc<Starts>,
    /// The longest time that a login may take before it counts as failed.
    pub(super) patience: Duration,
}

impl Logins {
    /// Logs in at the pace until the last phase is over and every login has ended.
    pub(super) fn run(self) -> ByPhase {
        let recorder = Mutex::new(Recorder::new());
        let now = || self.clock.elapsed().as_nanos() as u64;
        let attempt = |due: u64| {
            let login = (self.user.as_str(), self.password.as_str());
            let outcome = Wire::open(self.addr, None, login, self.patience);
            let failure = outcome.err().map(|e| format!("{e:#}"));
            let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
            recorder.record(self.starts.phase(due), now() - due, failure.as_deref());
        };
        std::thread::scope(|scope| {
            let (mut due, mut open) = (self.first_ns, Vec::new());
            loop {
                let left = Duration::from_nanos(due.saturating_sub(now()));
                if self.starts.is_over(now()) {
                    break;
                }
                if !left.is_zero() {
                    std::thread::sleep(left.min(SLEEP_MAX));
                    continue;
                }
                open.retain(|login: &std::thread::ScopedJoinHandle<'_, ()>| !login.is_finished());
                if open.len() < LOGINS_MAX {
                    let attempt = &attempt;
                    open.push(scope.spawn(move || attempt(due)));
                } else {
                    let mut recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
                    recorder.record(self.starts.phase(due), 0, Some("too many logins at a time"));
                }
                due += self.every_ns;
            }
        });
        let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
        recorder.figures()
    }
}
