//! Hands the spans of followed publishes to a thread that exports them, without ever waiting for it.
//!
//! The event loop takes the spans once it has written the acknowledgements of a turn, and stamps them with
//! that time. The channel is bounded; if the thread is behind, the loop drops spans and counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate::Time;

use super::Server;
use super::clock::wall_clock_us;
use crate::streams::spans::PublishSpan;

/// The most turns with spans that may wait for the thread. A turn has at most some hundred spans.
const TURNS_MAX: usize = 256;

/// The spans of one turn; their acknowledgements left at the same moment.
#[derive(Clone, Debug)]
pub struct Spans {
    /// The followed publishes.
    pub publishes: Vec<PublishSpan>,
    /// The time at which the event loop had written the acknowledgements, by its own clock.
    pub acknowledged: Time,
    /// The same moment by the clock of the machine.
    pub at: SystemTime,
}

/// The end of the channel that the event loop has.
#[derive(Clone, Debug)]
pub struct SpanSender {
    to: SyncSender<Spans>,
    dropped: Arc<AtomicU64>,
}

/// The end of the channel that the exporting thread has.
#[derive(Debug)]
pub struct SpanReceiver {
    from: Receiver<Spans>,
    dropped: Arc<AtomicU64>,
}

/// Makes the channel between an event loop and a thread that exports its spans.
#[must_use]
pub fn span_channel() -> (SpanSender, SpanReceiver) {
    let (to, from) = sync_channel(TURNS_MAX);
    let dropped = Arc::<AtomicU64>::default();
    let of_thread = Arc::clone(&dropped);
    (
        SpanSender { to, dropped },
        SpanReceiver {
            from,
            dropped: of_thread,
        },
    )
}

impl SpanReceiver {
    /// Waits at most `timeout` for the spans of a turn; `None` if none came.
    ///
    /// # Errors
    /// The server has ended, and all its spans are taken.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Spans>, SpansEnded> {
        match self.from.recv_timeout(timeout) {
            Ok(spans) => Ok(Some(spans)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(SpansEnded),
        }
    }

    /// Returns the number of spans that the server has dropped since the last call, because the thread was
    /// behind.
    #[must_use]
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Relaxed)
    }
}

/// The server has ended, so no more spans come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server has ended, so no more spans come")]
pub struct SpansEnded;

impl Server {
    /// Makes the server hand the spans of followed publishes to the receiver of `to`. The settings of the
    /// streams say which publishes the server follows ([`crate::SpanSampling`]).
    pub fn send_spans(&mut self, to: SpanSender) {
        self.spans = Some(to);
    }

    /// Hands over the spans of publishes that the loop has acknowledged.
    pub(super) fn hand_spans_over(&mut self) {
        let Some(sender) = &self.spans else {
            return;
        };
        let mut all = Vec::new();
        let mut lost = 0;
        for streams in self.node.all_streams_mut() {
            let (spans, dropped) = streams.take_spans();
            all.extend(spans);
            lost += dropped;
        }
        if !all.is_empty() {
            let len = all.len() as u64;
            let spans = Spans {
                publishes: all,
                acknowledged: self.clock.now(),
                at: UNIX_EPOCH + Duration::from_micros(wall_clock_us()),
            };
            if sender.to.try_send(spans).is_err() {
                lost += len;
            }
        }
        if lost > 0 {
            sender.dropped.fetch_add(lost, Relaxed);
        }
    }
}
