//! Why two nodes do not go together: one line each, said alike by who refuses and who is refused.

use super::VERSION;
use super::wire::Frame;

/// Why a channel is not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks another version of the protocol.
    #[error(
        "{theirs} speaks version {version} of the protocol between nodes, `{ours}` (tidegate {}) version {VERSION}: \
         run the same version of tidegate on all nodes of a cluster, and stop them all to change it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// Its name in backquotes, or what stands for it where that cannot be read.
        theirs: String,
        /// The version it speaks.
        version: u16,
        /// This node's name.
        ours: String,
    },
    /// It belongs to another cluster.
    #[error(
        "a node of cluster `{theirs}` and one of cluster `{ours}`: give both the same --cluster_name, or other --routes"
    )]
    Cluster {
        /// Its cluster.
        theirs: String,
        /// This node's.
        ours: String,
    },
    /// It does not know the secret.
    #[error(
        "the secrets differ: give all nodes of cluster `{0}` the same cluster.authorization or TIDEGATE_CLUSTER_SECRET"
    )]
    Secret(String),
    /// It is this very process.
    #[error("a route leads back to the node itself")]
    Myself,
    /// Two processes with one identity.
    #[error("two servers run as `{0}` with copies of one data directory: stop one of them")]
    Copy(String),
    /// It has this node's name.
    #[error("two servers are named `{0}`: give each node of the cluster its own --name")]
    SameName(String),
    /// Another server with its name is connected.
    #[error(
        "`{0}` is already connected from {1}: give each node of the cluster its own --name, or stop the other server first"
    )]
    NameTaken(String, String),
    /// Another process with its data directory is connected.
    #[error(
        "`{0}` is still connected from {1} by the process it was before: it is let in when that has ended; if that goes on, two servers run as `{0}` with copies of one data directory, and the one that came later is to be stopped"
    )]
    Running(String, String),
    /// Its name is a member's, its data directory is not.
    #[error(
        "`{name}` comes with another data directory: the cluster knows it by {known:016x}, not by {came:016x}; give it back the directory it had, or say --rejoin there if that is lost"
    )]
    OtherDirectory {
        /// Its name.
        name: String,
        /// The member's id.
        known: u64,
        /// The id it has.
        came: u64,
    },
    /// The members were fixed without it.
    #[error("`{name}` is not a member of the cluster: its members are {members}")]
    NotAMember {
        /// Its name.
        name: String,
        /// Those who are.
        members: String,
    },
    /// Both have fixed members, others each.
    #[error(
        "`{0}` and `{1}` know different members for the cluster `{2}`: their data directories come from two clusters"
    )]
    MembersDiffer(String, String, String),
    /// One serves streams, the other does not.
    #[error("`{with}` serves streams and `{without}` does not: in a cluster all nodes do or none")]
    Streams {
        /// Who does.
        with: String,
        /// Who does not.
        without: String,
    },
    /// They do not agree on the groups there are.
    #[error(
        "`{name}` has {theirs} groups of all nodes and this node {ours}: give all nodes of a cluster the same cluster.shards"
    )]
    Shards {
        /// Its name.
        name: String,
        /// How many it has.
        theirs: u8,
        /// How many this node has.
        ours: u8,
    },
    /// There is no room.
    #[error("a cluster has at most {} nodes", super::PEERS_MAX + 1)]
    TooMany,
    /// The same channel is open by another route.
    #[error("two routes lead to `{0}`")]
    Twice(String),
    /// Whoever dials speaks no TLS here.
    #[error(
        "the node that dials speaks no TLS and the one it dials does: give all nodes of a cluster cluster.tls (--cluster_tlscert, --cluster_tlskey and --cluster_tlscacert)"
    )]
    NoTls,
    /// Whoever dials speaks TLS, and nobody answers it.
    #[error(
        "the node that dials speaks TLS and the one it dials does not: give all nodes of a cluster cluster.tls (--cluster_tlscert, --cluster_tlskey and --cluster_tlscacert)"
    )]
    OnlyTls,
    /// The other side's words, where it refused.
    #[error("{text}")]
    Theirs {
        /// For programs.
        code: u16,
        /// For people.
        text: String,
    },
}

impl Refusal {
    /// The number that stands for it on the wire.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Version { .. } => 1,
            Self::Cluster { .. } => 2,
            Self::Secret(_) => 3,
            Self::Myself => MYSELF,
            Self::Copy(_) => 5,
            Self::SameName(_) => 6,
            Self::NameTaken(..) => 7,
            Self::OtherDirectory { .. } => 8,
            Self::NotAMember { .. } => 9,
            Self::MembersDiffer(..) => 10,
            Self::Streams { .. } => 11,
            Self::TooMany => 12,
            Self::Twice(_) => TWICE,
            Self::NoTls => 14,
            Self::OnlyTls => 15,
            Self::Shards { .. } => 16,
            Self::Running(..) => RUNNING,
            Self::Theirs { code, .. } => *code,
        }
    }

    /// Returns whether it says that the other side is this node.
    #[must_use]
    pub const fn is_myself(&self) -> bool {
        self.code() == MYSELF
    }

    /// Returns whether there is nothing in it to worry about: a route to the node itself, or a second one to
    /// the same peer.
    #[must_use]
    pub const fn is_harmless(&self) -> bool {
        matches!(self.code(), MYSELF | TWICE)
    }

    /// Returns whether it passes by itself, most often: when the other side notices that a process is gone.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        self.code() == RUNNING
    }

    /// What the other side is told.
    pub(super) fn write(&self, out: &mut crate::nats::outbox::Outbox) {
        let (code, text) = (self.code(), self.to_string());
        let text = text.as_bytes();
        Frame::Refused { code, text }.write(out);
    }

    /// What the other side said.
    pub(super) fn theirs(code: u16, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
        Self::Theirs { code, text }
    }
}

const MYSELF: u16 = 4;
const TWICE: u16 = 13;
/// Of [`Refusal::Running`].
const RUNNING: u16 = 17;
