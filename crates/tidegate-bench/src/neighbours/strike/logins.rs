//! The attack by logins: several connections log in again and again with a wrong password, as a user with a
//! password hash, so that the server computes hashes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{Deeds, Job, Strike};
use crate::wire::Wire;

pub(super) fn prepare(job: Job) -> Strike {
    Box::new(move |until| Ok(strike(&job, until)))
}

fn strike(job: &Job, until: Instant) -> Deeds {
    let end = until.min(Instant::now() + job.lasts());
    let (refused, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..job.amount {
            scope.spawn(|| {
                while Instant::now() < end {
                    let left = end.saturating_duration_since(Instant::now());
                    let login = (job.hashed.as_str(), "wrong");
                    let outcome = Wire::open(job.addr, job.source, login, left);
                    let said = outcome.err().map(|e| format!("{e:#}"));
                    let by_server = said.is_some_and(|e| e.contains("Authorization"));
                    let counter = if by_server { &refused } else { &failed };
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    Deeds::default()
        .put("connections", job.amount as f64)
        .put("refused", refused.into_inner() as f64)
        .put("timed_out_or_closed", failed.into_inner() as f64)
}
