//! Runs the event loop on one thread, while another thread stands by.
//!
//! Where a sync is short, the loop's thread writes and syncs the log itself (`place`), because two wake-ups
//! between the threads take longer. A disk may hang in any sync, and the loop must not hang with it. So
//! before such a sync the thread lends the loop to the relay. If the sync takes longer than [`LATE`], the
//! thread that stands by takes the loop and runs it from then on. The first thread returns the duty of
//! writing to the log thread once its sync ends, and stands by in turn.

use std::ops::ControlFlow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

use mio::Events;
use tidegate_log::Duty;

use super::committing::NextCommit;
use super::{EVENTS_LEN, RunError, Server};

/// The time after which a sync on the loop's thread counts as late, so that the other thread takes the loop.
const LATE: Duration = Duration::from_millis(2);

/// The event loop between two turns, which one thread can hand to the other.
struct Loop {
    server: Box<Server>,
    events: Events,
    /// The longest time for which the next turn waits for events; `None` means no limit, because no timer is
    /// set.
    wait: Option<Duration>,
}

/// The state that the two threads share under a lock, by which they hand the loop over.
#[derive(Default)]
struct State {
    /// The loop, which its thread lends while it syncs the log, and the time at which the sync began. The
    /// other thread takes the loop if the sync is late.
    lent: Option<(Loop, Instant)>,
    /// The number of times that a thread lent the loop, by which the other thread sees a new sync.
    lends: u64,
    /// True if the thread that stands by sleeps until the loop's thread wakes it; false while it looks for a
    /// late sync.
    asleep: bool,
    /// True if the server has a thread that stands by, so that the loop may be lent.
    has_partner: bool,
    /// The result with which the loop has ended; `None` while it runs.
    result: Option<Result<(), RunError>>,
}

/// The state by which the two threads hand the loop to each other, see the [module](self).
#[derive(Default)]
struct Relay {
    state: Mutex<State>,
    changed: Condvar,
}

/// Runs the event loop of the server on this thread until the loop ends, while a second thread stands by in
/// case a sync hangs.
pub(super) fn run(server: Server) -> Result<(), RunError> {
    let relay = Relay::default();
    std::thread::scope(|scope| {
        let first = Loop {
            server: Box::new(server),
            events: Events::with_capacity(EVENTS_LEN),
            // The first turn does not wait for events, so that the node dials its routes at once.
            wait: Some(Duration::ZERO),
        };
        relay.serve(scope, Some(first));
    });
    let mut state = relay.lock();
    let ended = state.result.take();
    ended.unwrap_or_else(|| unreachable!("both threads return only once the loop has ended"))
}

impl Relay {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the loop on this thread whenever the thread has it, and stands by otherwise, until the loop has
    /// ended.
    fn serve<'s>(&'s self, scope: &'s Scope<'s, '_>, mut of: Option<Loop>) {
        // The guard ends the thread that stands by even if the loop panics, so that the process does not
        // hang.
        let _end = End(self);
        loop {
            match of.take().or_else(|| self.stand_by()) {
                Some(mine) => match self.drive(scope, mine) {
                    Some(result) => {
                        self.lock().result = Some(result);
                        return;
                    }
                    None => continue,
                },
                None => return,
            }
        }
    }

    /// Runs the loop until it ends, or returns `None` once the other thread has taken the loop because of a
    /// late sync.
    fn drive<'s>(&'s self, scope: &'s Scope<'s, '_>, mut of: Loop) -> Option<Result<(), RunError>> {
        let mut duty: Option<Duty> = None;
        loop {
            match of.server.turn(&mut of.events, of.wait) {
                Ok(ControlFlow::Continue(wait)) => of.wait = wait,
                Ok(ControlFlow::Break(())) => {
                    drop(duty);
                    return Some(of.server.end());
                }
                Err(error) => return Some(Err(error)),
            }
            duty = of.server.hold_duty(duty);
            if duty.is_some() && !self.has_partner(scope) {
                duty = None;
                of.server.handle_no_partner();
            }
            let Some(held) = &mut duty else { continue };
            match of.server.next_commit() {
                NextCommit::Commit => {}
                NextCommit::Nothing => continue,
                NextCommit::Look => {
                    // A caller that sends its next message may need this processor.
                    std::thread::yield_now();
                    of.wait = Some(Duration::ZERO);
                    continue;
                }
            }
            let begun = Instant::now();
            self.lend(of, begun);
            let committed = held.commit();
            let took = begun.elapsed();
            match self.take_back() {
                Some(mine) => of = mine,
                // The other thread runs the loop now. This thread drops the duty, so that the log thread goes
                // on.
                None => return None,
            }
            of.server.handle_committed_here(took, committed);
            of.wait = Some(Duration::ZERO);
        }
    }

    /// Starts the thread that stands by, unless the thread runs already. Returns whether the thread runs,
    /// because the loop must not be lent otherwise.
    fn has_partner<'s>(&'s self, scope: &'s Scope<'s, '_>) -> bool {
        if std::mem::replace(&mut self.lock().has_partner, true) {
            return true;
        }
        let partner = std::thread::Builder::new().name("loop-partner".to_owned());
        let started = partner.spawn_scoped(scope, || self.serve(scope, None));
        let Err(error) = started else { return true };
        tracing::error!(
            "the operating system refuses to start the second thread of the event loop, so the log thread syncs the log at all times: {error}"
        );
        self.lock().has_partner = false;
        false
    }

    fn lend(&self, of: Loop, begun: Instant) {
        let mut state = self.lock();
        state.lent = Some((of, begun));
        state.lends += 1;
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.changed.notify_one();
        }
    }

    fn take_back(&self) -> Option<Loop> {
        self.lock().lent.take().map(|(of, _)| of)
    }

    /// Waits until the loop is lent and its thread's sync is late, and takes the loop, so that clients do not
    /// wait for the disk. Returns `None` once the loop has ended.
    fn stand_by(&self) -> Option<Loop> {
        let mut state = self.lock();
        let mut seen = 0;
        loop {
            if state.result.is_some() {
                return None;
            }
            if let Some((mut of, since)) = state.lent.take() {
                let late = since.elapsed();
                if late >= LATE {
                    // The first thread takes this lock after its sync, so this thread releases the lock
                    // before it logs.
                    drop(state);
                    of.server.handle_late_sync();
                    of.wait = Some(Duration::ZERO);
                    return Some(of);
                }
                state.lent = Some((of, since));
            } else if state.lends == seen {
                state.asleep = true;
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            seen = state.lends;
            let woken = self.changed.wait_timeout(state, LATE);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A guard that ends the thread that stands by once the other thread leaves [`Relay::serve`], even by a
/// panic.
struct End<'a>(&'a Relay);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if std::thread::panicking() && state.result.is_none() {
            // The panic goes on in the thread that waits for both threads, so this result reaches no caller
            // and only ends the other thread.
            state.result = Some(Ok(()));
        }
        drop(state);
        self.0.changed.notify_all();
    }
}
