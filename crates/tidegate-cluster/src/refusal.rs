//! The reasons why a node refuses another node. Each is one line of text, the same on the node that refuses
//! and on the refused node.

use super::VERSION;
use super::wire::Frame;

/// The reason why a node refuses to open a channel with another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The peer speaks another version of the protocol.
    #[error(
        "{theirs} speaks version {version} of the protocol between nodes, `{ours}` (tidegate {}) version {VERSION}: \
         run the same version of tidegate on all nodes of a cluster, and stop them all to change it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The peer's name in backquotes, or a substitute if it cannot be read.
        theirs: String,
        /// The version that the peer speaks.
        version: u16,
        /// This node's name.
        ours: String,
    },
    /// The peer belongs to another cluster.
    #[error(
        "a node of cluster `{theirs}` and one of cluster `{ours}`: give both the same --cluster-name, or other --routes"
    )]
    Cluster {
        /// The peer's cluster.
        theirs: String,
        /// This node's cluster.
        ours: String,
    },
    /// The peer does not know the secret.
    #[error(
        "the secrets differ: give all nodes of cluster `{0}` the same cluster.authorization or TIDEGATE_CLUSTER_SECRET"
    )]
    Secret(String),
    /// The peer is this process: the node dialled itself.
    #[error("a route leads back to the node itself")]
    Myself,
    /// The peer is another process with this node's identity.
    #[error("two servers run as `{0}` with copies of one data directory: stop one of them")]
    Copy(String),
    /// The peer has this node's name.
    #[error("two servers are named `{0}`: give each node of the cluster its own --name")]
    SameName(String),
    /// Another server with the peer's name is connected.
    #[error(
        "`{0}` is already connected from {1}: give each node of the cluster its own --name, or stop the other server first"
    )]
    NameTaken(String, String),
    /// Another process with the peer's data directory is connected.
    #[error(
        "`{0}` is still connected from {1} by an earlier process: it is let in once that process has ended; if this line comes again and again, two servers run as `{0}` with copies of one data directory: stop the later server"
    )]
    Running(String, String),
    /// The peer has the name of a member, but another data directory.
    #[error(
        "`{name}` comes with another data directory: the cluster knows it by {known:016x}, not by {came:016x}; give it back the directory it had, or say --rejoin there if that is lost"
    )]
    OtherDirectory {
        /// The peer's name.
        name: String,
        /// The member's id.
        known: u64,
        /// The peer's id.
        came: u64,
    },
    /// The members were fixed without the peer.
    #[error("`{name}` is not a member of the cluster: its members are {members}")]
    NotAMember {
        /// The peer's name.
        name: String,
        /// The names of the members.
        members: String,
    },
    /// Both nodes have fixed members, and the members differ.
    #[error(
        "`{0}` and `{1}` know different members for the cluster `{2}`: their data directories come from two clusters"
    )]
    MembersDiffer(String, String, String),
    /// One node serves streams, the other does not.
    #[error("`{with}` serves streams and `{without}` does not: in a cluster all nodes do or none")]
    Streams {
        /// The node that serves streams.
        with: String,
        /// The node that serves none.
        without: String,
    },
    /// The two nodes have different numbers of groups.
    #[error(
        "`{name}` has {theirs} groups of all nodes and this node {ours}: give all nodes of a cluster the same cluster.shards"
    )]
    Shards {
        /// The peer's name.
        name: String,
        /// The number of groups on the peer.
        theirs: u8,
        /// The number of groups on this node.
        ours: u8,
    },
    /// The cluster has no room for another node.
    #[error("a cluster has at most {} nodes", super::PEERS_MAX + 1)]
    TooMany,
    /// The same channel is already open through another route.
    #[error("two routes lead to `{0}`")]
    Twice(String),
    /// The dialer speaks no TLS, and the dialled node requires it.
    #[error(
        "the node that dials speaks no TLS and the one it dials does: give all nodes of a cluster cluster.tls (--cluster-tlscert, --cluster-tlskey and --cluster-tlscacert)"
    )]
    NoTls,
    /// The dialer speaks TLS, and the dialled node does not.
    #[error(
        "the node that dials speaks TLS and the one it dials does not: give all nodes of a cluster cluster.tls (--cluster-tlscert, --cluster-tlskey and --cluster-tlscacert)"
    )]
    OnlyTls,
    /// The peer refused this node, for the reason that the peer states.
    #[error("{text}")]
    Theirs {
        /// The number of the refusal, for programs.
        code: u16,
        /// The reason as a text, for people.
        text: String,
    },
}

impl Refusal {
    /// Returns the number of the refusal on the wire.
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

    /// Returns whether the refusal says that the peer is this node.
    #[must_use]
    pub const fn is_myself(&self) -> bool {
        self.code() == MYSELF
    }

    /// Returns whether the refusal needs no attention: a route to the node itself, or a second route to the
    /// same peer.
    #[must_use]
    pub const fn is_harmless(&self) -> bool {
        matches!(self.code(), MYSELF | TWICE)
    }

    /// Returns whether the cause of the refusal usually ends by itself, as soon as a node notices that a
    /// process has ended.
    #[must_use]
    pub const fn is_passing(&self) -> bool {
        self.code() == RUNNING
    }

    /// Appends the frame that tells the peer of the refusal.
    pub(super) fn write(&self, out: &mut tidegate_nats::outbox::Outbox) {
        let (code, text) = (self.code(), self.to_string());
        let text = text.as_bytes();
        Frame::Refused { code, text }.write(out);
    }

    /// Creates the refusal that the peer sent.
    pub(super) fn theirs(code: u16, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
        Self::Theirs { code, text }
    }
}

const MYSELF: u16 = 4;
const TWICE: u16 = 13;
/// The code of [`Refusal::Running`].
const RUNNING: u16 = 17;
