//! Decides what a user may do: by allow and deny lists of patterns for publishing and subscribing, and by
//! the right to answer requests.
//!
//! This module applies the rules; the configuration provides the lists. Without an allow list a user may use
//! each subject that no deny pattern matches.

use std::collections::HashMap;
use std::time::Duration;

use tidegate::Time;

use super::subject::{contains, has_wildcard, overlaps};

/// The greatest number of reply subjects to which one client may answer at the same time, which bounds the
/// memory for them. Beyond this number the server drops the reply subject that expires first.
const RESPONSES_LEN_MAX: usize = 4096;

/// The allowed and the denied patterns of a user, for publishing or for subscribing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The allowed patterns. `None` allows every subject; an empty list allows none.
    pub allow: Option<Vec<Pattern>>,
    /// The denied patterns, which take precedence over `allow`.
    pub deny: Vec<Pattern>,
}

/// A pattern in a user's allow list or deny list. In a list for subscribing, the rule may also have a
/// pattern for the names of queue groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The pattern of the subjects that the rule concerns.
    pub subject: Box<[u8]>,
    /// The pattern of the queue groups that the rule concerns. With `None` the rule concerns subscriptions in
    /// any queue group and in none.
    pub queue: Option<Box<[u8]>>,
}

impl Pattern {
    fn applies(&self, queue: Option<&[u8]>) -> bool {
        match (&self.queue, queue) {
            (None, _) => true,
            (Some(rule), Some(queue)) => contains(rule, queue),
            (Some(_), None) => false,
        }
    }
}

/// The limits within which a client may answer a request without a publish rule: the number of answers and
/// their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseRule {
    /// The greatest number of messages that a client may send to one reply subject; `None` allows any number.
    pub max: Option<u64>,
    /// The time after the delivery of a request in which the client may answer; `None` sets no limit.
    pub expires: Option<Duration>,
}

/// The permissions of a user, which the session checks for each message and subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The rules for the subjects to which the user may publish.
    pub publish: Rules,
    /// The rules for the patterns to which the user may subscribe.
    pub subscribe: Rules,
    /// The limits within which the user may publish to the reply subjects of messages that it received,
    /// independently of `publish`; `None` grants no such right.
    pub responses: Option<ResponseRule>,
}

impl Permissions {
    /// Returns whether the user's publish rules allow messages to the literal `subject`.
    #[must_use]
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        let rules = &self.publish;
        let allowed = match &rules.allow {
            // If the configuration allows answers and gives no allow list, the user may only answer requests.
            None => self.responses.is_none(),
            Some(allow) => allow.iter().any(|p| contains(&p.subject, subject)),
        };
        allowed && !rules.deny.iter().any(|p| contains(&p.subject, subject))
    }

    /// Returns whether the user may subscribe to `pattern`, in the queue group `queue` if there is one.
    #[must_use]
    pub fn may_subscribe(&self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        let rules = &self.subscribe;
        let has = |list: &[Pattern]| {
            list.iter()
                .any(|p| p.applies(queue) && contains(&p.subject, pattern))
        };
        rules.allow.as_deref().is_none_or(has) && !has(&rules.deny)
    }

    /// Returns whether the server must check each message for a subscription to `pattern`, because the deny
    /// list covers a part of the subjects that the pattern matches.
    #[must_use]
    pub fn filters(&self, pattern: &[u8]) -> bool {
        has_wildcard(pattern)
            && self
                .subscribe
                .deny
                .iter()
                .any(|p| overlaps(&p.subject, pattern))
    }

    /// Returns whether the deny list permits the delivery of a message of `subject` to a subscription for
    /// which [`filters`](Self::filters) is true.
    #[must_use]
    pub fn may_receive(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let denies = |p: &Pattern| p.applies(queue) && contains(&p.subject, subject);
        !self.subscribe.deny.iter().any(denies)
    }
}

/// Keeps the reply subjects to which one client may still publish its answers.
#[derive(Debug, Default)]
pub struct Responses(HashMap<Box<[u8]>, Response>);

#[derive(Debug)]
struct Response {
    until: Time,
    left: u64,
}

impl Responses {
    /// Allows the client to answer to the reply subject `reply` within the limits of `rule`, because the
    /// server has delivered a request with this reply subject to the client.
    pub fn allow(&mut self, now: Time, reply: &[u8], rule: ResponseRule) {
        if self.0.len() >= RESPONSES_LEN_MAX {
            self.0.retain(|_, r| r.until > now);
        }
        if self.0.len() >= RESPONSES_LEN_MAX {
            let oldest = self.0.iter().min_by_key(|(_, r)| r.until);
            if let Some(reply) = oldest.map(|(k, _)| k.clone()) {
                self.0.remove(&reply);
            }
        }
        let response = Response {
            until: rule.expires.map_or(Time::NEVER, |d| now + d),
            left: rule.max.unwrap_or(u64::MAX),
        };
        self.0.insert(reply.into(), response);
    }

    /// Returns whether the client may publish to `subject` as an answer to a request, and counts the answer
    /// against the limit on answers to that request.
    pub fn take(&mut self, now: Time, subject: &[u8]) -> bool {
        let Some(response) = self.0.get_mut(subject) else {
            return false;
        };
        let good = response.until > now && response.left > 0;
        response.left = response.left.saturating_sub(1);
        if !good || response.left == 0 {
            self.0.remove(subject);
        }
        good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> Vec<Pattern> {
        let pattern = |p: &&str| {
            let (subject, queue) = p.split_once(' ').map_or((*p, None), |(s, q)| (s, Some(q)));
            Pattern {
                subject: subject.as_bytes().into(),
                queue: queue.map(|q| q.as_bytes().into()),
            }
        };
        patterns.iter().map(pattern).collect()
    }

    #[test]
    fn publishing() {
        let p = Permissions {
            publish: Rules {
                allow: Some(list(&["a.>", "b"])),
                deny: list(&["a.secret.*"]),
            },
            ..Permissions::default()
        };
        assert!(p.may_publish(b"a.x") && p.may_publish(b"b") && p.may_publish(b"a.secret"));
        assert!(!p.may_publish(b"a.secret.x") && !p.may_publish(b"c"));
        assert!(Permissions::default().may_publish(b"anything"));
    }

    #[test]
    fn subscribing() {
        let p = Permissions {
            subscribe: Rules {
                allow: Some(list(&["a.>", "jobs workers.*"])),
                deny: list(&["a.secret"]),
            },
            ..Permissions::default()
        };
        assert!(p.may_subscribe(b"a.*", None) && p.filters(b"a.*") && !p.filters(b"a.b.*"));
        assert!(!p.may_subscribe(b">", None) && !p.may_subscribe(b"a.secret", None));
        assert!(!p.may_receive(b"a.secret", None) && p.may_receive(b"a.b", None));
        assert!(p.may_subscribe(b"jobs", Some(b"workers.1")) && !p.may_subscribe(b"jobs", None));
        assert!(!p.may_subscribe(b"jobs", Some(b"others")));
    }

    #[test]
    fn answers_are_counted_and_expire() {
        let rule = ResponseRule {
            max: Some(2),
            expires: Some(Duration::from_nanos(10)),
        };
        let only = Permissions {
            responses: Some(rule),
            ..Permissions::default()
        };
        assert!(!only.may_publish(b"x"));
        let mut r = Responses::default();
        let at = Time::from_nanos;
        r.allow(at(0), b"r", rule);
        assert!(r.take(at(1), b"r") && r.take(at(2), b"r") && !r.take(at(3), b"r"));
        r.allow(at(0), b"r", rule);
        assert!(!r.take(at(10), b"r") && !r.take(at(1), b"other"));
        for i in 0..2 * RESPONSES_LEN_MAX {
            r.allow(at(0), i.to_string().as_bytes(), rule);
        }
        assert!(r.0.len() <= RESPONSES_LEN_MAX);
    }
}
