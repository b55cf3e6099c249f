//! Decides for a leader that takes in messages from one origin: when the leader asks for the next messages,
//! which answers it accepts, and when it asks again. The code is pure.
//!
//! The taker has no progress of its own that counts. The caller passes the progress that the group's log
//! holds, and the taker accepts an answer only if the answer begins there. So a late or repeated answer, or
//! an answer to an earlier leader, does no harm. One request or one proposal is under way at a time.

use std::time::Duration;

use tidegate::Time;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{Origin, Progress};

/// The time after which the leader asks the origin again if no answer has come, because the request or the
/// answer may be lost. The origin answers within [`super::giving::HELD`] even if it has no new messages.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// The time after which the leader takes a proposal without an outcome for lost, and asks the origin again.
const LOST: Duration = Duration::from_secs(12);
/// The time after which the leader asks the origin again after an error. The leader doubles it with each
/// further error, so that a broken origin costs little.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest time that the leader waits after errors before it asks the origin again, so that an origin
/// that comes back is found soon.
const AGAIN_MAX: Duration = Duration::from_secs(8);
/// The time for which a stream takes in nothing because of errors before the monitor warns of it: a change of
/// leaders is shorter.
const STUCK: Duration = Duration::from_secs(10);
/// The number of messages that the stream's filters do not pass and that the leader skips without an intake.
/// After more of them the leader proposes an intake, so that the log has the progress.
const UNNOTED_MAX: u64 = 4096;

/// The work of a leader for one origin of a stream: the leader's next step and the state that it has heard of
/// the origin.
#[derive(Debug)]
pub(super) struct Taker {
    step: Step,
    /// The number of errors in a row, from which the leader computes how long it waits.
    errors: u32,
    /// The progress beyond the progress in the log. The leader has reached it by skipping messages that the
    /// stream does not want, so the log need not record each skip.
    passed: Option<Progress>,
    /// The facts about the origin in its last answer, from which clients see the lag.
    seen: Option<Seen>,
    /// The time of the origin's last answer, which clients see as the last activity.
    heard: Option<Time>,
    error: Option<ApiError>,
    /// The time since which the leader has taken in nothing because of errors.
    failing: Option<Time>,
    /// The number of the stream's configuration at which the leader last looked.
    config: u64,
}

/// The facts about an origin in an answer of its leader.
#[derive(Clone, Copy, Debug)]
struct Seen {
    origin: Origin,
    /// The number before the first message that the stream wants of the origin, as far as the answer shows.
    start: StreamSeq,
    last: StreamSeq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The leader asks the origin for messages at this time.
    Idle(Time),
    /// The leader waits for the origin's answer until this time, and then asks again.
    Asked(Time),
    /// The group has not yet applied or refused the intake that the leader proposed. At this time the leader
    /// asks again, because the proposal may be lost. A second intake from the same progress has no effect.
    Proposed(Time),
}

/// The facts about messages that an origin's leader has sent, by which the taker judges them: the progress
/// from which they follow, and the progress with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Given {
    pub(super) from: Option<Progress>,
    pub(super) to: Progress,
    /// The number of messages in the answer of the origin's leader. With messages, the leader proposes an
    /// intake.
    pub(super) messages: usize,
    /// The number before the first of these messages, or that of `to` without messages. A stream without
    /// progress lags behind from there.
    pub(super) start: StreamSeq,
    /// The sequence of the last message that the origin has, from which the taker computes the lag.
    pub(super) last: StreamSeq,
}

impl Taker {
    /// Creates the work for an origin, from which the leader asks for messages at once.
    pub(super) const fn new() -> Self {
        Self {
            step: Step::Idle(Time::ZERO),
            errors: 0,
            passed: None,
            seen: None,
            heard: None,
            error: None,
            failing: None,
            config: 0,
        }
    }

    /// Records the number of the stream's configuration. If the configuration has changed, a leader that
    /// waits after an error asks at once, because the change may have removed the cause.
    pub(super) fn handle_config(&mut self, changed: u64) {
        let is_new = std::mem::replace(&mut self.config, changed) != changed;
        if is_new && self.errors > 0 && matches!(self.step, Step::Idle(_)) {
            self.errors = 0;
            self.step = Step::Idle(Time::ZERO);
        }
    }

    /// Returns the time at which the leader next has to ask the origin, for the event loop's timer.
    pub(super) const fn deadline(&self) -> Time {
        match self.step {
            Step::Idle(at) | Step::Asked(at) | Step::Proposed(at) => at,
        }
    }

    /// Returns whether the leader has to ask the origin for messages now.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.deadline() <= now
    }

    /// Returns the progress that the leader states in its next request: the origin's next messages follow it,
    /// so that no message comes twice. `logged` is the progress in the log.
    pub(super) fn from(&self, logged: Option<Progress>) -> Option<Progress> {
        let logged = logged?;
        let passed = self.passed.filter(|passed| passed.origin == logged.origin);
        Some(
            passed
                .filter(|passed| passed.seq > logged.seq)
                .unwrap_or(logged),
        )
    }

    /// Records that the leader has asked the origin for the next messages, so that it does not ask again too
    /// early. If the leader asks again because its last step led to nothing, the stream's info shows that.
    pub(super) fn handle_asked(&mut self, now: Time) {
        let in_vain = match self.step {
            Step::Idle(_) => None,
            Step::Asked(_) => {
                Some("the origin has not answered for 3 s: look at the node that leads it")
            }
            Step::Proposed(_) => {
                Some("the nodes of this stream have not stored its messages for 12 s")
            }
        };
        if let Some(why) = in_vain {
            let before = self.error.take();
            self.fail(now, before.unwrap_or_else(|| ApiError::stream_general(why)));
        }
        self.step = Step::Asked(now + PATIENCE);
    }

    /// Makes the leader wait a moment before it asks the origin. The stream's info shows `why`; `None` for a
    /// wait that needs no operator.
    pub(super) fn wait(&mut self, now: Time, why: Option<ApiError>) {
        if let Some(error) = why {
            self.fail(now, error);
        }
        self.step = Step::Idle(now + AGAIN);
    }

    fn fail(&mut self, now: Time, error: ApiError) {
        self.error = Some(error);
        self.failing.get_or_insert(now);
    }

    fn recover(&mut self) {
        self.errors = 0;
        (self.error, self.failing) = (None, None);
    }

    /// Records an answer of the origin. Returns whether the leader must propose an intake with the answer's
    /// messages, because the answer begins at the stream's progress.
    pub(super) fn handle_given(
        &mut self,
        now: Time,
        logged: Option<Progress>,
        given: &Given,
    ) -> bool {
        if matches!(self.step, Step::Proposed(_)) || given.from != self.from(logged) {
            return false;
        }
        self.heard = Some(now);
        self.seen = Some(Seen {
            origin: given.to.origin,
            start: given.start,
            last: given.last,
        });
        let skipped = logged.map_or(u64::MAX, |logged| match logged.origin == given.to.origin {
            true => given.to.seq.saturating_distance(logged.seq),
            false => u64::MAX,
        });
        // The error of the last attempt stays until the stream has taken in the messages. Otherwise the error
        // of a full stream would come and go, and its leader would ask again at once each time.
        if given.messages > 0 || skipped > UNNOTED_MAX {
            self.step = Step::Proposed(now + LOST);
            return true;
        }
        self.recover();
        self.passed = Some(given.to);
        self.step = Step::Idle(now);
        false
    }

    /// Records that the origin cannot give messages, or that the stream could not take them. The leader then
    /// waits before it asks again, so that a lasting error costs little.
    pub(super) fn handle_error(&mut self, now: Time, error: ApiError) {
        let wait = AGAIN * (1 << self.errors.min(5));
        self.errors = self.errors.saturating_add(1);
        self.fail(now, error);
        self.passed = None;
        self.step = Step::Idle(now + wait.min(AGAIN_MAX));
    }

    /// Records the outcome of the intake that the leader proposed: the leader then asks for the next
    /// messages, or waits after an error.
    pub(super) fn handle_outcome(&mut self, now: Time, outcome: Result<(), ApiError>) {
        match outcome {
            Ok(()) => {
                self.recover();
                self.step = Step::Idle(now);
            }
            Err(error) => self.handle_error(now, error),
        }
    }

    /// Returns the number of messages that the origin had beyond the progress when it last answered, for the
    /// stream's info; 0 if it has never answered. `logged` is the progress in the log.
    pub(super) fn lag(&self, logged: Option<Progress>) -> u64 {
        let Some(seen) = self.seen else {
            return 0;
        };
        let reached = self.from(logged).filter(|at| at.origin == seen.origin);
        let reached = reached.map_or(seen.start, |at| at.seq.max(seen.start));
        seen.last.saturating_distance(reached)
    }

    /// Returns the time of the origin's last answer, for the stream's info.
    pub(super) const fn heard(&self) -> Option<Time> {
        self.heard
    }

    /// Returns the error because of which the leader has taken in nothing for [`STUCK`] or longer, for the
    /// monitor; `None` if the leader takes in messages, or has failed for a moment only.
    pub(super) fn stuck(&self, now: Time) -> Option<&ApiError> {
        let since = self.failing?;
        self.error.as_ref().filter(|_| since + STUCK <= now)
    }

    /// Returns the error of the last attempt to take in messages, for the stream's info; `None` if the
    /// attempt succeeded.
    pub(super) const fn error(&self) -> Option<&ApiError> {
        self.error.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidegate_stream::schema::number::DirectoryNumber;
    use tidegate_stream::stream::Origin;

    use super::*;

    #[derive(Clone, Debug)]
    enum Act {
        /// The test lets this number of milliseconds pass, and the leader asks the origin if it has to.
        Wait(u64),
        /// The origin stores this number of messages.
        Publish(u64),
        /// The origin answers a request, the last one or an earlier one, with at most this number of
        /// messages.
        Answer(prop::sample::Index, u64),
        /// The origin refuses the request, or the group refuses the intake.
        Refuse,
        /// The group applies the intake that the leader proposed.
        Apply,
        /// Another leader goes on from the progress in the log.
        Lead,
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            4 => (0..4000_u64).prop_map(Act::Wait),
            4 => (0..9000_u64).prop_map(Act::Publish),
            6 => (any::<prop::sample::Index>(), 0..9000_u64).prop_map(|(i, n)| Act::Answer(i, n)),
            1 => Just(Act::Refuse),
            6 => Just(Act::Apply),
            1 => Just(Act::Lead),
        ]
    }

    const ORIGIN: Origin = Origin {
        number: DirectoryNumber::new(3),
        created_us: 1,
    };

    fn at(seq: u64) -> Progress {
        Progress {
            origin: ORIGIN,
            seq: StreamSeq::new(seq),
        }
    }

    proptest! {
        /// Checks that the leader's proposals follow each other without gap and overlap, and that the leader
        /// always asks again.
        #[test]
        fn proposals_follow_each_other(acts in prop::collection::vec(act(), 1..100)) {
            let (mut taker, mut now) = (Taker::new(), Time::from_nanos(1));
            let (mut logged, mut last) = (None, 0);
            let mut asked: Vec<Option<Progress>> = Vec::new();
            let mut proposed: Option<(Option<Progress>, Progress)> = None;
            for act in acts {
                match act {
                    Act::Wait(ms) => now = now + Duration::from_millis(ms),
                    Act::Publish(n) => last += n,
                    Act::Answer(index, n) if !asked.is_empty() => {
                        let from = asked[index.index(asked.len())];
                        let to = (from.map_or(0, |f| f.seq.get()) + n).min(last);
                        let messages = usize::from(n % 2 == 1);
                        let start = from.map_or(StreamSeq::ZERO, |from| from.seq);
                        let given = Given { from, to: at(to), messages, start, last: StreamSeq::new(last) };
                        if taker.handle_given(now, logged, &given) {
                            prop_assert_eq!(from.or(logged), taker.from(logged));
                            proposed = Some((logged, at(to)));
                        }
                    }
                    Act::Refuse => {
                        proposed = None;
                        taker.handle_error(now, ApiError::BAD_REQUEST);
                        prop_assert!(taker.deadline() <= now + AGAIN_MAX);
                    }
                    Act::Apply => {
                        if let Some((before, after)) = proposed.take() {
                            let holds = before == logged;
                            if holds {
                                prop_assert!(logged.is_none_or(|l: Progress| l.seq <= after.seq));
                                logged = Some(after);
                            }
                            taker.handle_outcome(now, holds.then_some(()).ok_or(ApiError::BAD_REQUEST));
                        }
                    }
                    Act::Lead => {
                        taker = Taker::new();
                        proposed = None;
                    }
                    Act::Answer(..) => {}
                }
                if taker.is_due(now) {
                    asked.push(taker.from(logged));
                    taker.handle_asked(now);
                }
                prop_assert!(taker.deadline() <= now + LOST);
                prop_assert!(taker.lag(logged) <= last);
            }
        }
    }

    #[test]
    fn errors_slow_the_leader_down() {
        let mut taker = Taker::new();
        let now = Time::from_nanos(1);
        let mut waits = Vec::new();
        for _ in 0..8 {
            taker.handle_error(now, ApiError::STREAM_NOT_FOUND);
            waits.push(taker.deadline().since(now) / 1_000_000);
        }
        assert_eq!(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
        assert_eq!(taker.error(), Some(&ApiError::STREAM_NOT_FOUND));
        let given = Given {
            from: None,
            to: at(0),
            messages: 0,
            start: StreamSeq::ZERO,
            last: StreamSeq::new(5),
        };
        // The origin's first answer names the origin, so the leader proposes an intake that records the
        // origin in the log. The error stays until the log has it.
        assert!(taker.handle_given(now, None, &given));
        assert_eq!(taker.error(), Some(&ApiError::STREAM_NOT_FOUND));
        taker.handle_outcome(now, Ok(()));
        assert_eq!((taker.error(), taker.lag(Some(at(0)))), (None, 5));
    }

    #[test]
    fn a_stream_that_takes_in_nothing_shows_its_lag_and_why() {
        let mut taker = Taker::new();
        let mut now = Time::from_nanos(1);
        assert_eq!((taker.lag(None), taker.heard()), (0, None));
        // The stream refuses each intake, because it is full, while the origin grows.
        let mut waits = Vec::new();
        for last in [7, 8, 9] {
            taker.handle_asked(now);
            let given = Given {
                from: None,
                to: at(last),
                messages: 1,
                start: StreamSeq::new(4),
                last: StreamSeq::new(last),
            };
            assert!(taker.handle_given(now, None, &given));
            taker.handle_outcome(now, Err(ApiError::STORAGE_EXCEEDED));
            assert_eq!(taker.lag(None), last - 4);
            assert_eq!(taker.error(), Some(&ApiError::STORAGE_EXCEEDED));
            waits.push(taker.deadline().since(now) / 1_000_000);
            now = taker.deadline();
        }
        assert_eq!(waits, [250, 500, 1000]);
        assert_eq!(taker.stuck(now), None);
        assert_eq!(taker.stuck(now + STUCK), Some(&ApiError::STORAGE_EXCEEDED));
        // A change of the configuration may have made room.
        taker.handle_config(1);
        assert!(taker.is_due(Time::ZERO));
        taker.handle_asked(now);
        taker.handle_config(1);
        taker.handle_config(2);
        assert!(!taker.is_due(now));
        // A part of the messages is stored.
        assert_eq!(taker.lag(Some(at(6))), 3);
        taker.handle_outcome(now, Ok(()));
        assert_eq!((taker.error(), taker.stuck(now + STUCK)), (None, None));
    }

    #[test]
    fn silence_is_shown_until_an_answer_comes() {
        let mut taker = Taker::new();
        let now = Time::from_nanos(1);
        taker.handle_asked(now);
        assert_eq!(taker.error(), None);
        taker.handle_asked(taker.deadline());
        let error = taker.error().map(|error| error.to_string());
        assert!(error.is_some_and(|e| e.contains("has not answered")));
        let given = |messages| Given {
            from: Some(at(3)),
            to: at(3),
            messages,
            start: StreamSeq::new(3),
            last: StreamSeq::new(3),
        };
        assert!(!taker.handle_given(now, Some(at(3)), &given(0)));
        assert_eq!(taker.error(), None);
        taker.handle_asked(now);
        assert!(taker.handle_given(now, Some(at(3)), &given(1)));
        taker.handle_asked(taker.deadline());
        let error = taker.error().map(|error| error.to_string());
        assert!(error.is_some_and(|e| e.contains("have not stored")));
        // A wait for room leaves the error, and a wait with a reason shows the reason.
        taker.wait(now, None);
        assert!(taker.error().is_some());
        taker.wait(now, Some(ApiError::STORAGE_EXCEEDED));
        assert_eq!(taker.error(), Some(&ApiError::STORAGE_EXCEEDED));
    }
}
