//! The configuration of a consumer in memory: the consumer's names apart, and the rest shared with the
//! consumers that differ only by their names.
//!
//! A server may have a hundred thousand consumers, which a program made with a few configurations. A
//! configuration takes half a kilobyte. So a consumer has a reference to the rest of its configuration, and
//! its name stands only in the list of the stream's consumers. [`super::retention`] chooses the consumers
//! with which a new one shares.

use std::sync::Arc;

use crate::consumer::rules;
use crate::schema::config::{ConsumerConfig, Retention};

/// The configuration of one consumer, of which the caller knows the name. Copies share its memory, and so do
/// consumers with the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedConfig(Arc<Apart>);

/// A configuration with the names taken out of it.
#[derive(Debug, PartialEq, Eq)]
struct Apart {
    /// The configuration. A name in it is empty if the consumer's own name stands for it.
    config: ConsumerConfig,
    /// True if the consumer's name is the durable name of the configuration.
    durable_name: bool,
    /// True if the consumer's name is the name in the configuration.
    name: bool,
}

impl SharedConfig {
    /// Takes the names out of a configuration of the consumer `name`. A name that differs stays in the
    /// configuration, as only a program other than this server writes it.
    #[must_use]
    pub fn new(name: &str, mut config: ConsumerConfig) -> Self {
        let take = |text: &mut String| {
            let same = !text.is_empty() && text == name;
            if same {
                *text = String::new();
            }
            same
        };
        let durable_name = take(&mut config.durable_name);
        let name = take(&mut config.name);
        Self(Arc::new(Apart {
            config,
            durable_name,
            name,
        }))
    }

    /// Returns the configuration as the log has it; `name` must be the name of the consumer.
    #[must_use]
    pub fn full(&self, name: &str) -> ConsumerConfig {
        let text = |stands: bool, kept: &String| match stands {
            true => name.to_owned(),
            false => kept.clone(),
        };
        ConsumerConfig {
            durable_name: text(self.0.durable_name, &self.0.config.durable_name),
            name: text(self.0.name, &self.0.config.name),
            ..self.0.config.clone()
        }
    }

    /// Returns the configuration without the consumer's names, for callers that need the other settings.
    #[must_use]
    pub fn nameless(&self) -> &ConsumerConfig {
        &self.0.config
    }

    /// Returns whether the consumer is durable: the server keeps it while no client uses it.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        self.0.durable_name || !self.0.config.durable_name.is_empty()
    }

    /// Returns whether the log must have the consumer, see [`rules::is_logged`].
    #[must_use]
    pub fn is_logged(&self, retention: Retention) -> bool {
        self.is_durable() || rules::is_logged(&self.0.config, retention)
    }

    /// Returns whether the log keeps the progress of the consumer, see [`rules::yields_deltas`].
    #[must_use]
    pub fn yields_deltas(&self, retention: Retention) -> bool {
        self.is_durable() || rules::yields_deltas(&self.0.config, retention)
    }

    /// Shares the memory of another consumer's configuration, if both have the same settings.
    pub(super) fn share(&mut self, other: &Self) {
        if self == other {
            *self = other.clone();
        }
    }

    /// Returns whether both consumers have one configuration in memory, for tests.
    #[cfg(test)]
    pub(super) fn is_shared_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The size of the allocation that consumers share, for tests.
    #[cfg(test)]
    pub(super) const BYTES: usize = size_of::<Apart>();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(durable_name: &str, name: &str) -> ConsumerConfig {
        ConsumerConfig {
            durable_name: durable_name.into(),
            name: name.into(),
            ack_wait: 5,
            ..ConsumerConfig::default()
        }
    }

    #[test]
    fn the_names_come_back() {
        for (durable_name, name) in [
            ("C", "C"),
            ("C", ""),
            ("", "C"),
            ("", ""),
            ("D", "C"),
            ("C", "D"),
            ("D", "E"),
        ] {
            let shared = SharedConfig::new("C", config(durable_name, name));
            assert_eq!(shared.full("C"), config(durable_name, name));
            assert_eq!(shared.is_durable(), !durable_name.is_empty());
            let kept = [
                (durable_name, &shared.nameless().durable_name),
                (name, &shared.nameless().name),
            ];
            for (given, kept) in kept {
                assert_eq!(kept, if given == "C" { "" } else { given });
            }
        }
    }

    /// The rules that look at a durable name give the same results for a configuration without it.
    #[test]
    fn the_rules_see_a_durable_name() {
        for durable_name in ["", "C", "D"] {
            let full = config(durable_name, "C");
            let shared = SharedConfig::new("C", full.clone());
            for retention in [Retention::Limits, Retention::Interest, Retention::WorkQueue] {
                assert_eq!(
                    shared.is_logged(retention),
                    rules::is_logged(&full, retention)
                );
                assert_eq!(
                    shared.yields_deltas(retention),
                    rules::yields_deltas(&full, retention)
                );
            }
        }
    }

    #[test]
    fn consumers_share_what_is_equal() {
        let mut one = SharedConfig::new("A", config("A", "A"));
        let other = SharedConfig::new("B", config("B", "B"));
        assert!(one == other && !one.is_shared_with(&other));
        one.share(&other);
        assert!(one.is_shared_with(&other));
        assert_eq!(one.full("A"), config("A", "A"));
        let mut third = SharedConfig::new("C", config("", "C"));
        third.share(&other);
        assert!(!third.is_shared_with(&other));
    }
}
