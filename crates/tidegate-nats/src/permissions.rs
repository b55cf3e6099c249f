//! The subjects that a user may publish and subscribe to: allow and deny lists of patterns, and answers to
//! requests.
//!
//! Owns the rules; the configuration provides the lists. Without an allow list a user may use every subject
//! that is not denied.

use std::collections::HashMap;
use std::time::Duration;

use tidegate::Time;

use super::subject::{contains, has_wildcard, overlaps};

/// The most reply subjects that a client may answer at the same time. Beyond this number the server forgets
/// the oldest.
const RESPONSES_LEN_MAX: usize = 4096;

/// The allowed and the denied patterns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The allowed patterns. `None` allows everything; an empty list allows nothing.
    pub allow: Option<Vec<Pattern>>,
    /// The denied patterns. They override `allow`.
    pub deny: Vec<Pattern>,
}

/// A pattern of a subscription rule, which may name a queue group (itself a pattern).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The pattern.
    pub subject: Box<[u8]>,
    /// The queue group; `None` matches subscriptions in any queue group and in none.
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

/// The time and the number of messages that a client has to answer a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseRule {
    /// The most messages to one reply subject; `None` is any number.
    pub max: Option<u64>,
    /// The time from the request on; `None` is for ever.
    pub expires: Option<Duration>,
}

/// The rights of a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permissions {
    /// The rules for publishing.
    pub publish: Rules,
    /// The rules for subscribing.
    pub subscribe: Rules,
    /// Allows publishing to the reply subjects of received messages, independently of `publish`.
    pub responses: Option<ResponseRule>,
}

impl Permissions {
    /// Returns whether `publish` allows the literal `subject`.
    #[must_use]
    pub fn may_publish(&self, subject: &[u8]) -> bool {
        let rules = &self.publish;
        let allowed = match &rules.allow {
            // With a rule for answers and without a list, the user may only answer requests.
            None => self.responses.is_none(),
            Some(allow) => allow.iter().any(|p| contains(&p.subject, subject)),
        };
        allowed && !rules.deny.iter().any(|p| contains(&p.subject, subject))
    }

    /// Returns whether a subscription is allowed.
    #[must_use]
    pub fn may_subscribe(&self, pattern: &[u8], queue: Option<&[u8]>) -> bool {
        let rules = &self.subscribe;
        let has = |list: &[Pattern]| {
            list.iter()
                .any(|p| p.applies(queue) && contains(&p.subject, pattern))
        };
        rules.allow.as_deref().is_none_or(has) && !has(&rules.deny)
    }

    /// Returns whether the server must check the messages of an allowed subscription one by one, because the
    /// rules deny a part of the subjects that the subscription matches.
    #[must_use]
    pub fn filters(&self, pattern: &[u8]) -> bool {
        has_wildcard(pattern)
            && self
                .subscribe
                .deny
                .iter()
                .any(|p| overlaps(&p.subject, pattern))
    }

    /// Returns whether the server may deliver a message of `subject` to a filtered subscription.
    #[must_use]
    pub fn may_receive(&self, subject: &[u8], queue: Option<&[u8]>) -> bool {
        let denies = |p: &Pattern| p.applies(queue) && contains(&p.subject, subject);
        !self.subscribe.deny.iter().any(denies)
    }
}

/// The reply subjects to which one client may still publish.
#[derive(Debug, Default)]
pub struct Responses(HashMap<Box<[u8]>, Response>);

#[derive(Debug)]
struct Response {
    until: Time,
    left: u64,
}

impl Responses {
    /// Records that the server delivered a message with this reply subject to the client.
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

    /// Returns whether the client may publish to `subject` as an answer, and counts the answer.
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
