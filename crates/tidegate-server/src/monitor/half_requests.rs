//! The monitor's connections of which no whole request has arrived yet.
//!
//! A reader that connects and sends no whole request keeps a place of the monitor until its time is over. So
//! when all places are taken, the monitor closes the oldest such connection, and a reader with a whole
//! request gets its answer at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::task::AbortHandle;

/// The connections without a whole request, in the order of their arrival; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct HalfRequests(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: u64,
    /// The task of each connection, by the number of its arrival; `None` until the task has started.
    waiting: BTreeMap<u64, Option<AbortHandle>>,
}

/// The entry of one connection in [`HalfRequests`], which ends with its first whole request.
#[derive(Debug)]
pub(super) struct HalfRequest {
    of: Arc<HalfRequests>,
    number: u64,
}

impl HalfRequests {
    /// Adds a new connection.
    pub(super) fn begin(of: &Arc<Self>) -> HalfRequest {
        let mut state = of.lock();
        state.last += 1;
        let number = state.last;
        state.waiting.insert(number, None);
        drop(state);
        let of = Arc::clone(of);
        HalfRequest { of, number }
    }

    /// Notes the task of the connection with this number, unless its whole request has arrived already.
    pub(super) fn set_task(&self, number: u64, task: AbortHandle) {
        if let Some(waiting) = self.lock().waiting.get_mut(&number) {
            *waiting = Some(task);
        }
    }

    /// Ends the task of the oldest connection, if there is one, and with it the connection.
    pub(super) fn close_oldest(&self) {
        let oldest = self.lock().waiting.pop_first();
        if let Some((_, Some(task))) = oldest {
            task.abort();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HalfRequest {
    /// Returns the number of the connection's arrival, by which its task is noted.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Records that a whole request of the connection has arrived, so that the connection keeps its place.
    pub(super) fn complete(&self) {
        self.of.lock().waiting.remove(&self.number);
    }
}

impl Drop for HalfRequest {
    fn drop(&mut self) {
        self.complete();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_without_a_request_goes_first() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        runtime.block_on(async {
            let all: Arc<HalfRequests> = Arc::default();
            let tasks: Vec<_> = (0..4)
                .map(|at| {
                    let half = HalfRequests::begin(&all);
                    let number = half.number();
                    let task = tokio::spawn(async move {
                        if at == 0 {
                            half.complete();
                        }
                        std::future::pending::<()>().await;
                        drop(half);
                    });
                    all.set_task(number, task.abort_handle());
                    task
                })
                .collect();
            tokio::task::yield_now().await;
            for expected in [[false, true, false, false], [false, true, true, false]] {
                all.close_oldest();
                tokio::task::yield_now().await;
                let ended: Vec<bool> = tasks.iter().map(|task| task.is_finished()).collect();
                assert_eq!(ended, expected);
            }
            all.close_oldest();
            all.close_oldest();
            tokio::task::yield_now().await;
            assert!(!tasks[0].is_finished() && tasks[3].is_finished());
            assert!(all.lock().waiting.is_empty());
        });
    }
}
