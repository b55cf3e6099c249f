//! The reasons why a server cannot start or continue.

use std::io;
use std::path::PathBuf;

use tidegate::controller::ChoiceError;

use super::members::IdentityError;
use super::tls::TlsError;
use crate::config::ClusterSettingsError;
use crate::config::ExposureError;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot listen on the address.
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        /// The address.
        host: String,
        /// The port.
        port: u16,
        /// The cause.
        source: io::Error,
    },
    /// The server cannot write the file for the decisions of controllers.
    #[error("cannot record decisions in {}: {source}", file.display())]
    Record {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The system refused an event loop or a thread.
    #[error("the system refuses what a server needs: {0}")]
    Loop(io::Error),
    /// The server would be reachable from the network without any protection.
    #[error(transparent)]
    Exposure(#[from] ExposureError),
    /// The settings do not describe a cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterSettingsError),
    /// The data directory lacks this node's identity, or holds that of another node.
    #[error("{}: {source}", directory.display())]
    Identity {
        /// The data directory.
        directory: PathBuf,
        /// The cause.
        source: IdentityError,
    },
    /// The server cannot offer TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The nodes cannot use TLS between them.
    #[error("cluster.tls: {0}")]
    ClusterTls(TlsError),
    /// The settings describe no controller.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
    /// The server cannot open the data directory.
    #[error("{}: {source}", directory.display())]
    Streams {
        /// The data directory.
        directory: PathBuf,
        /// The cause.
        source: tidegate_raft::store::OpenError,
    },
    /// The data directory of a member of a cluster is damaged.
    #[error(
        "{}: {source}; or empty it and start the node with --rejoin: the other nodes have everything",
        directory.display()
    )]
    Member {
        /// The data directory.
        directory: PathBuf,
        /// The cause.
        source: tidegate_raft::store::OpenError,
    },
    /// The data directory holds data that this version does not write.
    #[error("{}: the streams cannot be read: {what}", directory.display())]
    State {
        /// The data directory.
        directory: PathBuf,
        /// The mistake in the data.
        what: String,
    },
}

/// The reason why a server cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The wait for socket events failed.
    #[error("the system refuses to wait for sockets: {0}")]
    Loop(io::Error),
    /// A write or a sync failed: acknowledged messages are durable, and the server can promise nothing else.
    #[error(
        "the log failed: {0}; every acknowledgement that was sent is of something durable, nothing that was not acknowledged may be relied on"
    )]
    Log(#[from] tidegate_log::Failure),
    /// This node has lost entries that other nodes count on.
    #[error(
        "{0}: empty the data directory and start the node with --rejoin: the other nodes have everything"
    )]
    Forgotten(tidegate_raft::replica::StepError),
    /// The node cannot apply a committed entry.
    #[error(
        "an entry of the log cannot be applied: {0}; use the version that wrote it, or a later one"
    )]
    Entry(#[from] tidegate_stream::stream::EntryError),
    /// The members of the cluster are fixed now, and the node cannot open the streams.
    #[error(transparent)]
    Start(#[from] StartError),
}
