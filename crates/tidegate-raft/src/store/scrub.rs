//! Reads the whole log again, slowly, to find damage in places that no client reads while other members still
//! have the messages.
//!
//! The scrub reads parts of sealed segments, one at a time, spaced so that it completes a round in
//! [`Options::scrub_period`]; then it begins again. After a start the scrub begins at a segment that a seed
//! picks, so that even a process with frequent restarts covers the whole log. A thread reads the parts. The
//! scrub keeps the damaged ranges, up to a bound, until the event loop [takes](Store::poll_damaged) them.
//! The scrub drops ranges beyond the bound, because the next round finds them again.
//!
//! [`Options::scrub_period`]: super::Options::scrub_period

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::slots::GroupSlot;
use tidegate_log::{Checked, Lsn, ReadError, Reader, SegmentInfo};

use super::worker::{By, Worker};
use super::{Store, Waker};

/// The number of bytes of log that the scrub reads at a time, as one part: few, so that clients hardly wait
/// for the disk.
const PART_BYTES: usize = 1 << 20;
/// The greatest number of damaged ranges that the scrub holds until the event loop takes them. The scrub
/// drops further ranges, because its next round finds them again.
const FOUND_MAX: usize = 256;
/// The time for which the scrub waits before it looks again, if the log has no sealed segment to read.
const IDLE: Duration = Duration::from_secs(1);

type Outcome = Result<Checked, ReadError>;
type Done = Arc<Mutex<Option<Outcome>>>;

/// The counts of the scrub's work since the start of the process, for monitoring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrubbed {
    /// The number of times since the start of the process that the scrub has reached the end of the log and
    /// begun again at its beginning.
    pub rounds: u64,
    /// The number of bytes that the scrub has read since the start of the process, in all rounds together.
    pub bytes: u64,
    /// The number of damaged bytes that the scrub has found since the start of the process. A byte that
    /// several rounds found damaged counts in each of them.
    pub damaged_bytes: u64,
}

/// Plans the scrub, as a pure state machine: which part of the log the scrub reads next, and at which time.
#[derive(Debug)]
struct Plan {
    period: Duration,
    /// The number that chooses the segment with which the scrub begins; `None` once the scrub has begun.
    seed: Option<u64>,
    /// The log position from which the scrub reads its next part: the end of the previous part.
    at: Lsn,
    next: Time,
    rounds: u64,
}

/// Runs the scrub with its reading thread; see the [module](self).
pub(super) struct Scrub {
    plan: Plan,
    /// True while the scrub's thread reads a part of the log, so that the scrub asks for no other part.
    reading: bool,
    found: VecDeque<Range<Lsn>>,
    /// The log position behind the last damaged range that the scrub has found since the start of the
    /// process. A start of the node must not have to read the log before it.
    damaged_to: Lsn,
    scrubbed: Scrubbed,
    done: Done,
    worker: Worker<Lsn>,
}

impl Scrub {
    /// Starts the scrub and its reading thread. A `period` of zero turns the scrub off.
    pub(super) fn start(
        by: By,
        reader: Reader,
        (period, seed): (Duration, u64),
        waker: Waker,
    ) -> std::io::Result<Self> {
        let done = Done::default();
        let told = Arc::clone(&done);
        let worker = Worker::start(by, "scrub", 1, move |from: Lsn| {
            let outcome = reader.check(from, PART_BYTES);
            *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
            waker();
        })?;
        Ok(Self {
            plan: Plan {
                period,
                seed: Some(seed),
                at: Lsn::ZERO,
                next: Time::ZERO,
                rounds: 0,
            },
            reading: false,
            found: VecDeque::new(),
            damaged_to: Lsn::ZERO,
            scrubbed: Scrubbed::default(),
            done,
            worker,
        })
    }

    fn poll(&mut self) {
        let outcome = self
            .done
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(outcome) = outcome else { return };
        self.reading = false;
        match outcome {
            Ok(checked) => {
                self.scrubbed.bytes += checked.next.since(self.plan.at);
                self.plan.at = checked.next;
                for lost in checked.lost {
                    self.scrubbed.damaged_bytes += lost.end.since(lost.start);
                    self.damaged_to = self.damaged_to.max(lost.end);
                    if self.found.len() < FOUND_MAX {
                        self.found.push_back(lost);
                    }
                }
            }
            // The log released the segment before the scrub read the part. The scrub takes the next part
            // from another segment.
            Err(ReadError::Released) => {}
            Err(error) => {
                tracing::warn!(
                    "the scrub, which searches the log for damage, cannot read a part of the log, and starts again at the log's beginning: {error}"
                );
                // The scrub goes back to the beginning of the log, so that it does not retry the unreadable
                // part forever.
                self.plan.at = Lsn::ZERO;
            }
        }
    }
}

impl Plan {
    /// Returns the log position from which the scrub reads next, given these segments, or `None` if no
    /// segment is sealed. Sets the time of the next call.
    fn poll(&mut self, now: Time, segments: &[SegmentInfo]) -> Option<Lsn> {
        let sealed = || segments.iter().filter(|s| s.sealed);
        let bytes: u64 = sealed().map(|s| s.range.end.since(s.range.start)).sum();
        if bytes == 0 {
            self.next = now + IDLE;
            return None;
        }
        if let Some(seed) = self.seed.take() {
            let at = seed as usize % sealed().count();
            self.at = sealed().nth(at).map_or(Lsn::ZERO, |s| s.range.start);
        }
        // Each part must begin with a record: at the start of a segment, or at the end of the previous part.
        let here = sealed().find(|s| self.at < s.range.end);
        let (from, again) = match here {
            Some(s) => (self.at.max(s.range.start), false),
            None => (sealed().next().map_or(Lsn::ZERO, |s| s.range.start), true),
        };
        self.rounds += u64::from(again);
        let parts = bytes.div_ceil(PART_BYTES as u64);
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        self.next = now + self.period / parts;
        self.at = from;
        Some(from)
    }
}

impl Store {
    /// Makes the scrub's thread read the next part of the log, if the time for that part has come at `now`.
    pub fn scrub(&mut self, now: Time) {
        let scrub = &mut self.scrub;
        scrub.poll();
        if scrub.plan.period.is_zero() || scrub.reading || now < scrub.plan.next {
            return;
        }
        if let Some(from) = scrub.plan.poll(now, &self.log.segments()) {
            scrub.reading = scrub.worker.ask(from);
        }
    }

    /// Returns the time at which the caller must call [`scrub`](Self::scrub) again for the next part of the
    /// log.
    #[must_use]
    pub const fn scrub_deadline(&self) -> Time {
        match self.scrub.reading || self.scrub.plan.period.is_zero() {
            // The caller needs no deadline if the scrub is off, or while the scrub's thread reads a part: the
            // thread wakes the event loop at the end of the part.
            true => Time::NEVER,
            false => self.scrub.plan.next,
        }
    }

    /// Returns the next damaged range of the log, so that the caller can mend its messages. Returns each
    /// range once in a round. If a start of the node would have to read the range, a checkpoint becomes due.
    pub fn poll_damaged(&mut self) -> Option<Range<Lsn>> {
        self.scrub.found.pop_front()
    }

    /// Returns the counts of the scrub's work since the start of the process, for monitoring.
    #[must_use]
    pub const fn scrubbed(&self) -> Scrubbed {
        Scrubbed {
            rounds: self.scrub.plan.rounds,
            ..self.scrub.scrubbed
        }
    }

    /// Returns whether a start of the node would have to read a damaged range of the log. A checkpoint of the
    /// present state avoids that, so it is due.
    pub(super) fn starts_on_damage(&self, at: GroupSlot) -> bool {
        let kept = self.members[at].checkpoints.kept();
        let newest = kept.last().map_or(Lsn::ZERO, |k| k.next);
        let to = self.scrub.damaged_to;
        newest < to && to <= self.covered(at)
    }

    #[cfg(feature = "sim")]
    pub(super) fn step_scrub(&mut self) -> bool {
        self.scrub.worker.step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn segment(number: u64, from_mib: u64, to_mib: u64) -> SegmentInfo {
        SegmentInfo {
            segment: number,
            range: Lsn::new(from_mib * MIB)..Lsn::new(to_mib * MIB),
            records: 1,
            sealed: true,
            file_bytes: 4 * MIB,
        }
    }

    fn plan(seed: u64) -> Plan {
        Plan {
            period: Duration::from_secs(60),
            seed: Some(seed),
            at: Lsn::ZERO,
            next: Time::ZERO,
            rounds: 0,
        }
    }

    #[test]
    fn all_sealed_segments_are_through_in_a_period_and_it_begins_again() {
        let mut open = segment(9, 9, 12);
        open.sealed = false;
        // The log has released the segment between the first two, so the plan must skip a gap.
        let segments = [segment(1, 1, 3), segment(3, 5, 9), open];
        let (mut plan, mut now, mut read) = (plan(1), Time::ZERO, Vec::new());
        for _ in 0..8 {
            let from = plan.poll(now, &segments).unwrap();
            read.push(from.get() / MIB);
            plan.at = from.after(MIB);
            now = plan.next;
        }
        assert_eq!(read, [5, 6, 7, 8, 1, 2, 5, 6]);
        assert_eq!(
            now,
            Time::ZERO + Duration::from_secs(80),
            "six parts a minute"
        );
        assert_eq!(plan.rounds, 1);
    }

    #[test]
    fn without_a_sealed_segment_it_is_looked_again_later() {
        let mut open = segment(0, 0, 3);
        open.sealed = false;
        let mut plan = plan(7);
        assert_eq!(plan.poll(Time::ZERO, &[open]), None);
        assert_eq!(plan.next, Time::ZERO + IDLE);
        let from = plan.poll(plan.next, &[segment(0, 0, 3)]);
        assert_eq!(from, Some(Lsn::ZERO), "the seed counts then");
    }
}
