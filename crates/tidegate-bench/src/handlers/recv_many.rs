//! A contestant: the loop that users of tokio write by hand. The loop takes items from a channel by
//! `recv_many`, handles them, and answers the callers. It is a rival with tuned settings. It also runs the
//! settings of the grid that have several batches in flight.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use super::setting::Fixed;
use super::work::{Checked, Item};
use crate::rounds::Failure;

/// The capacity of the channel in items, equal to the library's default, so that the comparison is fair.
const CAPACITY: usize = 16_384;

/// An item on its way to the loop, with the channel that takes the answer to the item's caller.
struct Call {
    item: Item,
    answer: oneshot::Sender<Result<u64, Failure>>,
}

/// A contestant that takes items from a channel by `recv_many`. After its drop it handles every accepted
/// item, and then ends.
pub(super) struct Loop {
    calls: mpsc::Sender<Call>,
}

impl Loop {
    /// Starts the loop as a task, or on a thread of its own if the handler blocks.
    pub(super) fn start(fixed: Fixed, work: Arc<Checked>) -> Result<Self, Failure> {
        let (calls, received) = mpsc::channel(CAPACITY);
        if work.blocks() {
            let thread = std::thread::Builder::new().name("recv_many".into());
            let limit = fixed.limit as usize;
            let spawned = thread.spawn(move || block(received, limit, &work));
            spawned.map_err(|e| format!("no thread: {e}"))?;
        } else {
            tokio::spawn(run(received, fixed, work));
        }
        Ok(Self { calls })
    }

    pub(super) async fn call(&self, item: Item) -> Result<u64, Failure> {
        let (answer, answered) = oneshot::channel();
        let ended = || "the loop has ended".to_owned();
        let sent = self.calls.send(Call { item, answer }).await;
        sent.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

/// Runs the loop for a handler that awaits, with several batches in flight.
async fn run(mut received: mpsc::Receiver<Call>, fixed: Fixed, work: Arc<Checked>) {
    let slots = Arc::new(Semaphore::new(fixed.in_flight as usize));
    let limit = fixed.limit as usize;
    loop {
        // The loop takes the permit of a batch before its items, so that items gather while all permits are
        // in use.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let mut calls = Vec::with_capacity(limit.min(1024));
        if received.recv_many(&mut calls, limit).await == 0 {
            return;
        }
        if fixed.linger_us > 0 {
            let until = Instant::now() + Duration::from_micros(fixed.linger_us.into());
            while calls.len() < limit {
                let room = limit - calls.len();
                let more = received.recv_many(&mut calls, room);
                if !matches!(timeout_at(until, more).await, Ok(1..)) {
                    break;
                }
            }
        }
        let (items, answers) = apart(calls);
        let work = Arc::clone(&work);
        let batch = async move {
            let handled = work.handle(items).await;
            deliver(handled, answers);
            drop(slot);
        };
        if fixed.in_flight == 1 {
            batch.await;
        } else {
            tokio::spawn(batch);
        }
    }
}

/// Runs the loop for a handler that blocks its thread, one batch at a time.
fn block(mut received: mpsc::Receiver<Call>, limit: usize, work: &Checked) {
    loop {
        let mut calls = Vec::with_capacity(limit.min(1024));
        if received.blocking_recv_many(&mut calls, limit) == 0 {
            return;
        }
        let (items, answers) = apart(calls);
        deliver(work.handle_blocking(&items), answers);
    }
}

type Answers = Vec<oneshot::Sender<Result<u64, Failure>>>;

fn apart(calls: Vec<Call>) -> (Vec<Item>, Answers) {
    calls
        .into_iter()
        .map(|call| (call.item, call.answer))
        .unzip()
}

fn deliver(handled: Result<Vec<u64>, Failure>, answers: Answers) {
    // A caller may have stopped waiting and needs no answer, so the loop ignores the failed send.
    match handled {
        Ok(values) => {
            for (answer, value) in answers.into_iter().zip(values) {
                let _ = answer.send(Ok(value));
            }
        }
        Err(failure) => {
            for answer in answers {
                let _ = answer.send(Err(failure.clone()));
            }
        }
    }
}
