//! The reasons why a node refuses another node. Each reason is one line of text for the logs of both nodes,
//! so that the operator finds the cause on either.

use super::VERSION;
use super::wire::Frame;

/// The reason why a node refuses to open a channel with another node, for the logs of both.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The peer speaks another version of the protocol between nodes, so the two could misread each other's
    /// frames.
    #[error(
        "{theirs} speaks version {version} of the protocol between nodes, `{ours}` (tidegate {}) version {VERSION}: \
         run the same version of tidegate on all nodes of a cluster, and stop them all to change it",
        env!("CARGO_PKG_VERSION")
    )]
    Version {
        /// The peer's name in backquotes, or a substitute if the introduction has no readable name.
        theirs: String,
        /// The version of the protocol that the peer speaks.
        version: u16,
        /// The name of this node, which refuses the peer.
        ours: String,
    },
    /// The peer belongs to a cluster with another name.
    #[error(
        "a node of cluster `{theirs}` and one of cluster `{ours}`: give both the same --cluster-name, or other --routes"
    )]
    Cluster {
        /// The name of the peer's cluster.
        theirs: String,
        /// The name of this node's cluster.
        ours: String,
    },
    /// The peer does not know the cluster's secret. The field is the name of the cluster.
    #[error(
        "the secrets differ: give all nodes of cluster `{0}` the same cluster.authorization or TIDEGATE_CLUSTER_SECRET"
    )]
    Secret(String),
    /// The peer is this process: the node dialled itself.
    #[error("a route leads back to the node itself")]
    Myself,
    /// The peer is another process with this node's id. The field is the peer's name.
    #[error("two servers run as `{0}` with copies of one data directory: stop one of them")]
    Copy(String),
    /// The peer has the name of this node but another id. The field is the name.
    #[error("two servers are named `{0}`: give each node of the cluster its own --name")]
    SameName(String),
    /// Another server with the peer's name is connected. The fields are the name and that server's address.
    #[error(
        "`{0}` is already connected from {1}: give each node of the cluster its own --name, or stop the other server first"
    )]
    NameTaken(String, String),
    /// Another process with the peer's data directory is connected. The fields are the peer's name and that
    /// process's address.
    #[error(
        "`{0}` is still connected from {1} by an earlier process: it is let in once that process has ended; if this line comes again and again, two servers run as `{0}` with copies of one data directory: stop the later server"
    )]
    Running(String, String),
    /// The peer has the name of a member, but another data directory, so another id.
    #[error(
        "`{name}` comes with another data directory: the cluster knows it by {known:016x}, not by {came:016x}; give it back the directory it had, or say --rejoin there if that is lost"
    )]
    OtherDirectory {
        /// The name of the refused peer.
        name: String,
        /// The id that the members' file has for the peer's name.
        known: u64,
        /// The id that the peer stated in its introduction.
        came: u64,
    },
    /// The cluster has fixed its members, and the peer is none of them, so it cannot take part in their Raft
    /// groups.
    #[error("`{name}` is not a member of the cluster: its members are {members}")]
    NotAMember {
        /// The name of the refused peer.
        name: String,
        /// The names of all members of the cluster.
        members: String,
    },
    /// Both nodes have fixed members, and the members differ. The fields are the peer's name, this node's
    /// name and the cluster's name.
    #[error(
        "`{0}` and `{1}` know different members for the cluster `{2}`: their data directories come from two clusters"
    )]
    MembersDiffer(String, String, String),
    /// One of the two nodes serves streams, and the other does not.
    #[error("`{with}` serves streams and `{without}` does not: in a cluster all nodes do or none")]
    Streams {
        /// The name of the node that serves streams.
        with: String,
        /// The name of the node that serves no streams.
        without: String,
    },
    /// The two nodes have different numbers of groups that consist of all nodes.
    #[error(
        "`{name}` has {theirs} groups of all nodes and this node {ours}: give all nodes of a cluster the same cluster.shards"
    )]
    Shards {
        /// The name of the refused peer.
        name: String,
        /// The number of groups of all nodes on the peer.
        theirs: u8,
        /// The number of groups of all nodes on this node.
        ours: u8,
    },
    /// The cluster has no room for another node, because this node has all the peers that it can have.
    #[error("a cluster has at most {} nodes", super::PEERS_MAX + 1)]
    TooMany,
    /// The same kind of channel to the peer is already open through another route. The field is the peer's
    /// name.
    #[error("two routes lead to `{0}`")]
    Twice(String),
    /// The dialer speaks no TLS, and the dialled node requires TLS.
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
        /// The number of the refusal on the wire, for programs.
        code: u16,
        /// The reason of the refusal as a text, for people.
        text: String,
    },
}

impl Refusal {
    /// Returns the number of the refusal on the wire, by which the peer's program knows the reason.
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

    /// Returns whether the refusal says that the peer is this node itself, so that the node stops dialling
    /// the route.
    #[must_use]
    pub const fn is_myself(&self) -> bool {
        self.code() == MYSELF
    }

    /// Returns whether the refusal needs no attention of an operator: a route to the node itself, or a second
    /// route to the same peer.
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

    /// Appends the frame that tells the peer of the refusal to the channel's outbox `out`.
    pub(super) fn write(&self, out: &mut tidegate_nats::outbox::Outbox) {
        let (code, text) = (self.code(), self.to_string());
        let text = text.as_bytes();
        Frame::Refused { code, text }.write(out);
    }

    /// Creates the refusal [`Refusal::Theirs`] from the number and the text of the peer's frame. The text
    /// goes into log lines, so blanks replace control characters.
    pub(super) fn theirs(code: u16, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text).replace(char::is_control, " ");
        Self::Theirs { code, text }
    }
}

const MYSELF: u16 = 4;
const TWICE: u16 = 13;
/// The number of [`Refusal::Running`] on the wire, by which a refused node knows that the cause usually ends
/// by itself.
const RUNNING: u16 = 17;
