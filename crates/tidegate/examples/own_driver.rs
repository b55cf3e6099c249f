//! A custom driver: an event loop that takes items from a channel and asks a `Boundary` when to cut a batch.
//!
//! `cargo run -p tidegate --example own_driver`

use std::collections::VecDeque;
use std::error::Error;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use tidegate::boundary::{Boundary, Cut, Step};
use tidegate::controller::{Bounds, Knee, Load, Objective};
use tidegate::{Clock, Time};

/// The greatest number of items that wait in the loop; further items wait in the channel.
const BACKLOG_MAX: usize = 1024;

/// A waiting item, with its arrival time first, from which the boundary computes its age.
type Waiting = (Time, u64);

/// Serves the channel in batches until its senders are gone.
fn serve(items: &Receiver<u64>, mut handle: impl FnMut(&[u64])) -> Result<(), Box<dyn Error>> {
    // The boundary holds no batch back that has reached the bounds, so a full backlog goes immediately.
    let bounds = Bounds::items(1, BACKLOG_MAX as u64);
    let mut boundary = Boundary::new(Knee::new(Objective::Lean, bounds)?, bounds)?;
    let clock = Clock::start();
    let mut backlog = VecDeque::<Waiting>::new();
    let mut first = None;
    loop {
        // 1. The loop reports the items that arrived.
        let now = clock.now();
        let (before, room) = (backlog.len(), BACKLOG_MAX - backlog.len());
        let arrived = first.take().into_iter().chain(items.try_iter());
        backlog.extend(arrived.take(room).map(|item| (now, item)));
        boundary.arrived(now, Load::items((backlog.len() - before) as u64))?;
        // 2. The loop asks the boundary for the next step.
        let oldest = backlog.front().map_or(now, |(at, _)| *at);
        match boundary.poll(now, Load::items(backlog.len() as u64), oldest)? {
            Step::Take(limit) => {
                let n = backlog.len().min(limit.items as usize);
                let batch: Vec<u64> = backlog.drain(..n).map(|(_, item)| item).collect();
                let left = Load::items(backlog.len() as u64);
                let cut = if backlog.is_empty() {
                    Cut::Drained
                } else {
                    Cut::Items
                };
                // 3. The loop reports the start and the end of the batch.
                let id = boundary.started(clock.now(), Load::items(n as u64), left, cut)?;
                handle(&batch);
                boundary.done(clock.now(), id, true)?;
            }
            // The loop waits for more items, at most until this moment.
            Step::Hold { until, .. } => {
                let wait = Duration::from_nanos(until.since(clock.now()));
                first = match items.recv_timeout(wait) {
                    Ok(item) => Some(item),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => {
                        // All senders are gone, so no item can join the batch any more.
                        thread::sleep(wait);
                        None
                    }
                };
            }
            Step::Rest => match items.recv() {
                Ok(item) => first = Some(item),
                Err(_) => break,
            },
            // This loop runs one batch at a time and does not poll while the batch runs, so the boundary is
            // never busy.
            Step::Busy { .. } => return Err("a batch runs already".into()),
        }
    }
    println!("{:#?}", boundary.snapshot());
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (to_loop, items) = sync_channel(256);
    let producer = thread::spawn(move || (0..20_000).all(|item| to_loop.send(item).is_ok()));
    let mut sum = 0;
    // Each batch costs 100 us, and each item 1 us.
    serve(&items, |batch| {
        thread::sleep(Duration::from_micros(100 + batch.len() as u64));
        sum += batch.iter().sum::<u64>();
    })?;
    producer.join().map_err(|_| "the producer panicked")?;
    println!("sum of all items: {sum}");
    Ok(())
}
