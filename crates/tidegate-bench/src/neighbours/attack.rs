//! Lists the attacks of the bench `neighbours`, with the action and the size of each attack. Pure.

use std::time::Duration;

/// An attack by one hostile or clumsy client, or by a crowd of clients, which the neighbours should not feel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// The description of the attack, for the user.
    pub(super) text: &'static str,
    pub(super) deed: Deed,
    /// The number of messages, clients, subscriptions or streams of the attack, before `--scale` multiplies
    /// it.
    pub(super) amount: u64,
    /// The number of nodes of the attacked server.
    pub(super) nodes: usize,
    /// The length in bits of the server's RSA key, if the server speaks TLS.
    pub(super) rsa_bits: Option<u32>,
}

/// The action of an attacker during the attack, by which the attacker's client tries to load the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    /// Does nothing, as the control that shows the noise of the machine and of the neighbours' own load.
    Nothing,
    /// Publishes to subjects that 4,096 patterns of one reader cover, so that the server delivers each
    /// message often. `after` is the number of subscriptions of another client that left before the attack,
    /// which the server had to remove.
    Wildcards {
        after: u64,
    },
    /// Sends the first message of a TLS handshake on many connections at once, so that the server computes
    /// signatures.
    Hellos,
    /// Asks the server again and again for the list of all subjects of a stream, which the server has to
    /// collect.
    SubjectsPage,
    /// Purges the messages of half of a stream's subjects, so that the server must search and remove many
    /// messages.
    PurgeHalf,
    PurgeAll,
    /// Makes subscriptions and removes them one by one, so that the server changes its subscriptions all the
    /// time.
    SubscriptionsComeAndGo,
    /// Closes a connection that has made many subscriptions, so that the server must remove all of them at
    /// once.
    SubscriptionsLeave,
    /// Subscribes and never reads, while another client publishes large messages, so that bytes pile up in
    /// the server.
    SlowSubscribers,
    /// Logs in with a wrong password, again and again, so that the server checks password hashes.
    WrongPasswords,
    /// Lets all messages of a stream expire at the same moment, so that the server must remove all of them at
    /// once.
    AgeOut,
    /// Lowers the limit of a full stream to one message, so that the server must remove all others.
    LimitLowered,
    /// Deletes a consumer that waits for the acknowledgements of all messages.
    ConsumerDeleted,
    /// Creates consumers that begin at the last message of each subject, so that the server must find these
    /// messages.
    ConsumerMade,
    StreamDeleted,
    /// Asks the monitor again and again for a list: of connections (`Connz`), subscriptions (`Subsz`) or
    /// streams (`Jsz`). The attackers have first made as many of them as the attack's amount.
    Connz,
    Subsz,
    Jsz,
}

const MILLION: u64 = 1_000_000;
/// The duration of an attack that would otherwise continue without end.
pub(super) const LASTS: Duration = Duration::from_secs(10);

/// All attacks of the bench, in the order of their runs.
pub(super) const ATTACKS: [Attack; 22] = [
    attack(
        "nothing",
        "no attack: the neighbours alone",
        Deed::Nothing,
        0,
    ),
    attack(
        "wildcards-alone",
        "4,096 overlapping wildcards that one client reads fast, 84 KB of pipelined PUB",
        Deed::Wildcards { after: 0 },
        2400,
    ),
    attack(
        "wildcards-after-million",
        "the same, after another client made a million subscriptions and left",
        Deed::Wildcards { after: MILLION },
        2400,
    ),
    Attack {
        nodes: 3,
        ..attack(
            "wildcards-at-leader",
            "the same at the leader of three nodes",
            Deed::Wildcards { after: 0 },
            2400,
        )
    },
    Attack {
        rsa_bits: Some(2048),
        ..attack(
            "hellos-2048",
            "1,000 TLS hellos at once, RSA-2048",
            Deed::Hellos,
            1000,
        )
    },
    Attack {
        rsa_bits: Some(4096),
        ..attack(
            "hellos-4096",
            "300 TLS hellos at once, RSA-4096",
            Deed::Hellos,
            300,
        )
    },
    Attack {
        rsa_bits: Some(4096),
        nodes: 3,
        ..attack(
            "hellos-at-leader",
            "300 TLS hellos at once at the leader of three nodes, RSA-4096",
            Deed::Hellos,
            300,
        )
    },
    attack(
        "subjects-page",
        "info pages of all subjects of a stream of a million subjects, again and again",
        Deed::SubjectsPage,
        MILLION,
    ),
    attack(
        "purge-half",
        "a purge of every second of a million subjects",
        Deed::PurgeHalf,
        MILLION,
    ),
    attack(
        "purge-all",
        "a purge of a stream of a million subjects",
        Deed::PurgeAll,
        MILLION,
    ),
    attack(
        "subscriptions-come-and-go",
        "a million subscriptions that come and go",
        Deed::SubscriptionsComeAndGo,
        MILLION,
    ),
    attack(
        "subscriptions-leave",
        "a client with a million subscriptions leaves",
        Deed::SubscriptionsLeave,
        MILLION,
    ),
    attack(
        "slow-subscribers",
        "1,000 subscribers that do not read, 96 messages of 60 kB in 15 s",
        Deed::SlowSubscribers,
        1000,
    ),
    attack(
        "wrong-passwords",
        "64 connections log in with a wrong password as a user with a hash, for 10 s",
        Deed::WrongPasswords,
        64,
    ),
    attack(
        "age-out",
        "a million messages expire at once",
        Deed::AgeOut,
        MILLION,
    ),
    attack(
        "max-msgs-lowered",
        "max_msgs of a stream of a million messages becomes 1",
        Deed::LimitLowered,
        MILLION,
    ),
    attack(
        "consumer-deleted",
        "a consumer with a million pending messages is deleted",
        Deed::ConsumerDeleted,
        MILLION,
    ),
    attack(
        "consumer-made",
        "consumers are made at the last message of each of half a million subjects",
        Deed::ConsumerMade,
        MILLION,
    ),
    attack(
        "stream-deleted",
        "a stream of a million messages (--messages) is deleted",
        Deed::StreamDeleted,
        MILLION,
    ),
    attack(
        "connz",
        "/connz of 10,000 connections, again and again",
        Deed::Connz,
        10_000,
    ),
    attack(
        "subsz",
        "/subsz of 100,000 subscriptions, again and again",
        Deed::Subsz,
        100_000,
    ),
    attack(
        "jsz",
        "/jsz of 1,000 streams and consumers, again and again",
        Deed::Jsz,
        1000,
    ),
];

const fn attack(name: &'static str, text: &'static str, deed: Deed, amount: u64) -> Attack {
    Attack {
        name,
        text,
        deed,
        amount,
        nodes: 1,
        rsa_bits: None,
    }
}

impl Attack {
    /// Returns the attack of this name, for the attackers' process; `None` if there is no such attack.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        ATTACKS.iter().find(|attack| attack.name == name)
    }
}

/// Returns `amount` multiplied by `scale`. The result is at least one unless `amount` is 0, so that a small
/// scale keeps the attack.
pub(super) fn scaled(amount: u64, scale: f64) -> u64 {
    ((amount as f64 * scale).round() as u64).max(u64::from(amount > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        for attack in &ATTACKS {
            assert_eq!(Attack::named(attack.name), Some(attack));
        }
    }

    #[test]
    fn amounts_are_scaled() {
        assert_eq!(scaled(1000, 0.01), 10);
        assert_eq!((scaled(64, 0.001), scaled(0, 1.0)), (1, 0));
    }
}
