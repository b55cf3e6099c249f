//! Decides whether a history of conditional publishes is linearizable, that is, if all of them could have
//! happened one after the other, each at some moment between its call and its answer.
//!
//! A stream makes this simple, because its sequences give the order of the successful publishes. A refusal
//! that names the last sequence is a read of the subject: its place in the order is behind the message with
//! that sequence and before the subject's next message. The history is linearizable exactly if no attempt in
//! that order was answered before an earlier attempt was called. The check treats each subject by itself (a
//! history is linearizable if it is for each object: Herlihy and Wing, 1990).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// One attempt to publish, on the condition that the last message of the subject has the sequence `expected`.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) expected: u64,
    pub(crate) called: Instant,
    /// The time and the outcome of the answer to the attempt; `None` if the outcome is unknown.
    pub(crate) answered: Option<(Instant, Outcome)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stored(u64),
    /// The stream refused the attempt; holds the last sequence of the subject if the answer names it.
    Refused(Option<u64>),
}

/// A message that the stream has at the end of the test, against which the checker compares the history.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) seq: u64,
    pub(crate) subject: String,
    pub(crate) id: String,
}

/// The numbers of checked attempts: those that the stream stored, and refusals that named the last sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) stored: usize,
    pub(crate) refused: usize,
}

/// Checks a history of attempts against the final contents of the stream, and counts the checked attempts.
///
/// # Errors
/// An observation that no order of the attempts allows.
pub(crate) fn check(attempts: &[Attempt], content: &[Stored]) -> Result<Checked, String> {
    let by_id: BTreeMap<&str, &Attempt> = attempts.iter().map(|a| (a.id.as_str(), a)).collect();
    let mut places: BTreeMap<&str, u64> = BTreeMap::new();
    for message in content {
        if places.insert(&message.id, message.seq).is_some() {
            return Err(format!("{} is in the stream twice", message.id));
        }
    }
    for attempt in attempts {
        let there = places.get(attempt.id.as_str()).copied();
        match attempt.answered.map(|(_, outcome)| outcome) {
            Some(Outcome::Stored(seq)) if there != Some(seq) => {
                return Err(format!("{attempt:?}: in the stream it is {there:?}"));
            }
            Some(Outcome::Refused(_)) if there.is_some() => {
                return Err(format!(
                    "{attempt:?}: refused, and in the stream as {there:?}"
                ));
            }
            _ => {}
        }
    }
    let mut checked = Checked::default();
    let subjects: BTreeSet<&str> = attempts.iter().map(|a| a.subject.as_str()).collect();
    for subject in subjects {
        let mut order = Vec::new();
        let mut last = 0;
        for message in content.iter().filter(|m| m.subject == subject) {
            let attempt = by_id.get(message.id.as_str());
            let attempt = attempt.ok_or_else(|| format!("{message:?}: nobody sent it"))?;
            if attempt.expected != last {
                return Err(format!(
                    "{attempt:?}: it is {}, and the last was {last}",
                    message.seq
                ));
            }
            last = message.seq;
            order.push((last, vec![*attempt]));
        }
        order.insert(0, (0, Vec::new()));
        checked.stored += order.len() - 1;
        let refusals = attempts.iter().filter(|a| a.subject == subject);
        for attempt in refusals {
            let Some((_, Outcome::Refused(Some(named)))) = attempt.answered else {
                continue;
            };
            if named == attempt.expected {
                return Err(format!(
                    "{attempt:?}: refused although it is what was expected"
                ));
            }
            let place = order.binary_search_by_key(&named, |(seq, _)| *seq);
            let place = place
                .map_err(|_| format!("{attempt:?}: {named} was never the last of {subject}"))?;
            order[place].1.push(attempt);
            checked.refused += 1;
        }
        in_time(&order)?;
    }
    Ok(checked)
}

/// Checks that no attempt was answered before an earlier attempt of the order was called. In each group the
/// first attempt is a success, and the refusals behind it may have happened in any order.
fn in_time(order: &[(u64, Vec<&Attempt>)]) -> Result<(), String> {
    let mut latest: Option<&Attempt> = None;
    let later = |attempt: &Attempt, latest: Option<&Attempt>| match (attempt.answered, latest) {
        (Some((at, _)), Some(before)) if at < before.called => Err(format!(
            "{attempt:?} was answered before {before:?} was called, and comes after it"
        )),
        _ => Ok(()),
    };
    let newer = |a: &Attempt, b: Option<&Attempt>| b.is_none_or(|b| a.called > b.called);
    for (seq, group) in order {
        let (success, refusals) = group.split_at(usize::from(*seq > 0));
        for attempt in success {
            later(attempt, latest)?;
            if newer(attempt, latest) {
                latest = Some(attempt);
            }
        }
        for attempt in refusals {
            later(attempt, latest)?;
        }
        for attempt in refusals {
            if newer(attempt, latest) {
                latest = Some(attempt);
            }
        }
    }
    Ok(())
}

/// Tests that the checker detects each kind of violation.
mod tests {
    use std::time::Duration;

    use super::*;

    struct Clock(Instant);

    impl Clock {
        fn attempt(
            &self,
            id: &str,
            expected: u64,
            from: u64,
            to: Option<(u64, Outcome)>,
        ) -> Attempt {
            let at = |ms| self.0 + Duration::from_millis(ms);
            Attempt {
                id: id.into(),
                subject: "s".into(),
                expected,
                called: at(from),
                answered: to.map(|(ms, outcome)| (at(ms), outcome)),
            }
        }
    }

    fn stored(all: &[(u64, &str)]) -> Vec<Stored> {
        let stored = |(seq, id): &(u64, &str)| Stored {
            seq: *seq,
            subject: "s".into(),
            id: (*id).into(),
        };
        all.iter().map(stored).collect()
    }

    #[test]
    fn possible_histories_are_accepted() {
        let clock = Clock(Instant::now());
        let attempts = [
            clock.attempt("a", 0, 0, Some((10, Outcome::Stored(1)))),
            // The outcome of this attempt is unknown to its client, and the stream stored the message.
            clock.attempt("b", 1, 5, None),
            // This refusal read the subject between the two stored messages.
            clock.attempt("c", 0, 5, Some((30, Outcome::Refused(Some(1))))),
            clock.attempt("d", 1, 20, Some((30, Outcome::Refused(Some(4))))),
            clock.attempt("e", 9, 20, Some((30, Outcome::Refused(None)))),
        ];
        let content = stored(&[(1, "a"), (4, "b")]);
        let checked = check(&attempts, &content).unwrap();
        assert_eq!((checked.stored, checked.refused), (2, 2));
    }

    #[test]
    fn impossible_histories_are_refused() {
        let clock = Clock(Instant::now());
        let a = clock.attempt("a", 0, 0, Some((10, Outcome::Stored(1))));
        let wrong = |attempts: &[Attempt], content: &[(u64, &str)], part: &str| {
            let error = check(attempts, &stored(content)).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        let with = |b: Attempt| [a.clone(), b];
        wrong(
            &with(clock.attempt("b", 1, 20, Some((30, Outcome::Stored(2))))),
            &[(1, "a")],
            "in the stream it is None",
        );
        wrong(std::slice::from_ref(&a), &[(1, "a"), (2, "a")], "twice");
        wrong(
            std::slice::from_ref(&a),
            &[(1, "a"), (2, "z")],
            "nobody sent it",
        );
        let refused = clock.attempt("b", 1, 20, Some((30, Outcome::Refused(Some(3)))));
        wrong(
            &with(refused.clone()),
            &[(1, "a"), (2, "b")],
            "refused, and in the stream",
        );
        // The refusal names a message that the stream does not have, so the stream lost that message.
        wrong(&with(refused), &[(1, "a")], "never the last");
        wrong(
            &with(clock.attempt("b", 1, 20, Some((30, Outcome::Refused(Some(1)))))),
            &[(1, "a")],
            "what was expected",
        );
        // The stream stored two messages although both had the same condition.
        wrong(
            &with(clock.attempt("b", 0, 20, None)),
            &[(1, "a"), (2, "b")],
            "the last was 1",
        );
        // A stale read: the stream had acknowledged the first message before this attempt was called, and the
        // refusal does not know of it.
        wrong(
            &with(clock.attempt("b", 7, 20, Some((30, Outcome::Refused(Some(0)))))),
            &[(1, "a")],
            "was answered before",
        );
        // The stream answered this refusal before a client called the publish of the message that the refusal
        // names.
        let early = clock.attempt("c", 9, 0, Some((5, Outcome::Refused(Some(2)))));
        let b = clock.attempt("b", 1, 20, Some((30, Outcome::Stored(2))));
        wrong(
            &[a.clone(), b, early],
            &[(1, "a"), (2, "b")],
            "was answered before",
        );
    }
}
