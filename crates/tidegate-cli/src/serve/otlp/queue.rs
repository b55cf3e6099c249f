//! Keeps the spans that the collector does not have yet, and says when the thread sends the next batch, pure.
//!
//! The queue is bounded: while the collector is down or slow it drops the newest spans, because the older
//! ones show the beginning of the trouble.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::traces::Followed;

/// The most publishes that wait for the collector, each some hundred bytes.
const WAITING_MAX: usize = 4096;
/// The most publishes in one request.
const BATCH_MAX: usize = 256;
/// The first and the longest wait after a failed request.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);

/// The spans of publishes that wait for the collector.
#[derive(Debug)]
pub(super) struct Queue {
    waiting: VecDeque<Followed>,
    /// The longest time that a span waits for others.
    delay: Duration,
    /// The moment at which the thread sends the next batch; `None` if nothing waits.
    due: Option<Instant>,
    /// The wait before the next request, after a failed one.
    retry: Option<Duration>,
}

impl Queue {
    pub(super) const fn new(delay: Duration) -> Self {
        Self {
            waiting: VecDeque::new(),
            delay,
            due: None,
            retry: None,
        }
    }

    /// Takes a span in. Returns false if the queue is full, and drops the span.
    pub(super) fn push(&mut self, now: Instant, span: Followed) -> bool {
        if self.waiting.len() >= WAITING_MAX {
            return false;
        }
        self.waiting.push_back(span);
        let due = self.due.get_or_insert(now + self.delay);
        if self.retry.is_none() && self.waiting.len() >= BATCH_MAX {
            *due = now.min(*due);
        }
        true
    }

    /// Returns the moment at which the thread sends the next batch; `None` if nothing waits.
    pub(super) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the next batch, which stays in the queue until the collector has answered; empty if nothing
    /// waits.
    pub(super) fn batch(&mut self) -> &[Followed] {
        let all = self.waiting.make_contiguous();
        &all[..all.len().min(BATCH_MAX)]
    }

    /// Removes the batch of `len` publishes, of which the collector has disposed.
    pub(super) fn handle_answer(&mut self, now: Instant, len: usize) {
        self.waiting.drain(..len);
        self.retry = None;
        self.due = match self.waiting.len() {
            0 => None,
            BATCH_MAX.. => Some(now),
            _ => Some(now + self.delay),
        };
    }

    /// Keeps the batch for another try, after a failure that may pass.
    pub(super) fn handle_failure(&mut self, now: Instant) {
        let wait = self
            .retry
            .map_or(RETRY_FIRST, |wait| RETRY_MAX.min(wait * 2));
        self.retry = Some(wait);
        self.due = Some(now + wait);
    }

    /// Returns the number of publishes that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::super::traces::tests::followed;
    use super::*;

    #[test]
    fn a_batch_goes_when_it_is_full_or_old() {
        let now = Instant::now();
        let delay = Duration::from_secs(5);
        let mut queue = Queue::new(delay);
        assert_eq!((queue.due(), queue.batch().len()), (None, 0));
        assert!(queue.push(now, followed(1)));
        assert_eq!(queue.due(), Some(now + delay));
        for n in 2..=300 {
            assert!(queue.push(now, followed(n)));
        }
        assert_eq!((queue.due(), queue.batch().len()), (Some(now), BATCH_MAX));
        queue.handle_answer(now, BATCH_MAX);
        assert_eq!((queue.due(), queue.batch().len()), (Some(now + delay), 44));
        queue.handle_answer(now, 44);
        assert_eq!((queue.due(), queue.len()), (None, 0));
    }

    #[test]
    fn a_collector_that_is_down_gets_the_oldest_spans_later_and_the_newest_never() {
        let now = Instant::now();
        let mut queue = Queue::new(Duration::ZERO);
        assert!(queue.push(now, followed(1)));
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            queue.handle_failure(now);
            assert_eq!(queue.due(), Some(now + Duration::from_secs(seconds)));
        }
        for n in 2..=WAITING_MAX as u64 {
            assert!(queue.push(now, followed(n)));
        }
        assert_eq!(
            queue.due(),
            Some(now + RETRY_MAX),
            "a full batch waits, too"
        );
        assert!(!queue.push(now, followed(9999)));
        assert_eq!(queue.batch()[0], followed(1));
        queue.handle_answer(now, BATCH_MAX);
        assert_eq!(queue.due(), Some(now));
    }
}
