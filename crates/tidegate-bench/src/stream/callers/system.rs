//! The systems that the bench `callers` compares: their names, their promises and the form of their answers.
//! Asks the programs for their versions, and is pure otherwise.

use super::super::server::{Kind, Programs};
use super::{amqp, etcd, http2, kafka, rabbitmq};
use crate::OURS;
use crate::redis::server::installed;

/// A system that the bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum System {
    Server(Kind),
    Redis,
    Postgres,
    Sqlite,
    Etcd,
    /// Kafka, with a producer for each caller.
    Kafka,
    /// Kafka, with one producer for all callers.
    KafkaShared,
    RabbitMq,
    /// A file that one caller writes and syncs; no socket.
    Disk,
    /// A server that answers each message without keeping it.
    Echo,
}

impl System {
    /// The rivals of every run with peers and one node.
    pub(super) const RIVALS: [Self; 4] = [
        Self::Server(Kind::Nats),
        Self::Server(Kind::NatsAlways),
        Self::Redis,
        Self::Postgres,
    ];
    /// The rivals that only the league adds.
    pub(super) const LEAGUE: [Self; 5] = [
        Self::Sqlite,
        Self::Etcd,
        Self::Kafka,
        Self::KafkaShared,
        Self::RabbitMq,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Server(Kind::Nats) => "nats-server default",
            Self::Server(Kind::NatsAlways) => "nats-server always",
            Self::Server(_) => OURS,
            Self::Redis => "redis always",
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::Etcd => "etcd",
            Self::Kafka => "kafka",
            Self::KafkaShared => "kafka, shared producer",
            Self::RabbitMq => "rabbitmq quorum",
            Self::Disk => "bare write + fdatasync",
            Self::Echo => "bare round trip",
        }
    }

    /// Returns whether the system is a rival, and neither ours nor a floor.
    pub(super) const fn is_rival(self) -> bool {
        match self {
            Self::Server(kind) => matches!(kind, Kind::Nats | Kind::NatsAlways),
            Self::Disk | Self::Echo => false,
            _ => true,
        }
    }

    /// Returns whether this build can measure the system. SQLite and PostgreSQL need the feature `peers`.
    pub(super) const fn is_built(self) -> bool {
        cfg!(feature = "peers") || !matches!(self, Self::Postgres | Self::Sqlite)
    }

    /// Returns whether the server promises to sync a message before it answers; `None` for a system without a
    /// server that keeps messages.
    pub(super) const fn syncs_first(self) -> Option<bool> {
        match self {
            Self::Server(Kind::Nats) => Some(false),
            Self::Sqlite | Self::Disk | Self::Echo => None,
            _ => Some(true),
        }
    }

    /// Returns whether the bytes that the server writes to the connection of a caller carry the answer to a
    /// message. The bytes may be cut.
    pub(super) fn is_answer(self, written: &[u8]) -> bool {
        let has = |part: &[u8]| written.windows(part.len()).any(|found| found == part);
        match self {
            Self::Server(_) => has(b"\"seq\":"),
            Self::Redis => written.starts_with(b"$"),
            Self::Postgres => has(b"INSERT 0 1"),
            Self::Etcd => http2::carries_message(written),
            Self::RabbitMq => amqp::carries_ack(written),
            // Kafka writes nothing but answers.
            Self::Kafka | Self::KafkaShared => !written.is_empty(),
            Self::Sqlite | Self::Disk | Self::Echo => false,
        }
    }

    /// Returns the version of our server, or the version that a rival's program reports, for the table.
    pub(super) fn version(self, programs: Option<&Programs>) -> Option<String> {
        match self {
            Self::Server(Kind::Nats | Kind::NatsAlways) => programs?.version(),
            Self::Server(_) => Some(env!("CARGO_PKG_VERSION").into()),
            Self::Redis => installed().ok(),
            #[cfg(feature = "peers")]
            Self::Postgres => super::postgres::version(),
            #[cfg(feature = "peers")]
            Self::Sqlite => Some(rusqlite::version().into()),
            #[cfg(not(feature = "peers"))]
            Self::Postgres | Self::Sqlite => None,
            Self::Etcd => etcd::version(),
            Self::Kafka | Self::KafkaShared => kafka::version(),
            Self::RabbitMq => rabbitmq::version(),
            Self::Disk | Self::Echo => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_from_other_writes() {
        let server = System::Server(Kind::Ours);
        let answer = b"MSG _INBOX.1.a 1 27\r\n{\"stream\":\"bench0\",\"seq\":7}\r\n";
        assert!(server.is_answer(answer) && !server.is_answer(b"PING\r\n"));
        let redis = System::Redis;
        assert!(redis.is_answer(b"$15\r\n1700000000000-0\r\n") && !redis.is_answer(b""));
        let postgres = System::Postgres;
        assert!(postgres.is_answer(b"2\0\0\0\x04C\0\0\0\x0fINSERT 0 1\0Z\0\0\0\x05I"));
        assert!(!postgres.is_answer(b"E\0\0\0\x04"));
        assert!(System::Kafka.is_answer(&[0]) && !System::Kafka.is_answer(&[]));
        let ack = [
            1, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xce,
        ];
        assert!(System::RabbitMq.is_answer(&ack));
    }

    #[test]
    fn only_the_default_of_nats_server_answers_before_it_syncs() {
        let early = |system: &System| system.syncs_first() == Some(false);
        let mut all = System::RIVALS.into_iter().chain(System::LEAGUE);
        assert_eq!(all.find(early), Some(System::Server(Kind::Nats)));
        assert!(System::RIVALS.iter().all(|system| system.is_rival()));
        assert!(!System::Echo.is_rival() && !System::Server(Kind::Ours).is_rival());
    }
}
