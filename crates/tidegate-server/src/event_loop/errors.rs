//! Defines the errors with which a server fails to start or cannot continue.

use std::io;
use std::path::PathBuf;

use tidegate::controller::ChoiceError;

use super::members::IdentityError;
use super::tls::TlsError;
use crate::config::ClusterSettingsError;
use crate::config::ExposureError;

/// The reason why a server cannot start, as the operator reads it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The server cannot listen on its address for clients or for other nodes.
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        /// The host or address on which the server should listen.
        host: String,
        /// The port on which the server should listen.
        port: u16,
        /// The error of the operating system, which names the cause.
        source: io::Error,
    },
    /// The server cannot write the file for the decisions of controllers.
    #[error("cannot record decisions in {}: {source}", file.display())]
    Record {
        /// The path of the file for the controllers' decisions.
        file: PathBuf,
        /// The error of the operating system, which names the cause.
        source: io::Error,
    },
    /// The operating system refused to create the event loop's poller or a thread, without which the server
    /// cannot run.
    #[error(
        "the operating system refuses a resource that the event loop needs, such as a socket or a thread: {0}"
    )]
    Loop(io::Error),
    /// Other machines could reach the server without any protection, so the server refuses to start.
    #[error(transparent)]
    Exposure(#[from] ExposureError),
    /// The settings of the cluster are incomplete or wrong, so the node could not join it.
    #[error(transparent)]
    Cluster(#[from] ClusterSettingsError),
    /// The data directory lacks this node's identity in the cluster, or belongs to another node, so the node
    /// must not use it.
    #[error("{}: {source}", directory.display())]
    Identity {
        /// The data directory that the operator configured, by which the message names it.
        directory: PathBuf,
        /// The reason why the server cannot take the identity from the directory.
        source: IdentityError,
    },
    /// The server cannot offer clients TLS with the files that the operator configured.
    #[error("tls: {0}")]
    Tls(#[from] TlsError),
    /// The node cannot use TLS with other nodes with the files that the operator configured.
    #[error("cluster.tls: {0}")]
    ClusterTls(TlsError),
    /// The operator's settings describe no controller that the engine has.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
    /// The server cannot open the data directory, for example because it is damaged or another server uses
    /// it.
    #[error("{}: {source}", directory.display())]
    Streams {
        /// The data directory that the operator configured, by which the message names it.
        directory: PathBuf,
        /// The error of the store.
        source: tidegate_raft::store::OpenError,
    },
    /// The data directory of a member of a cluster is damaged, so the node must rejoin with an empty one.
    #[error(
        "{}: {source}; or empty the directory and start the node with --rejoin, so that it fetches everything from the other nodes",
        directory.display()
    )]
    Member {
        /// The data directory that the operator configured, by which the message names it.
        directory: PathBuf,
        /// The error of the store, which describes the damage.
        source: tidegate_raft::store::OpenError,
    },
    /// The data directory holds data that this version of the server cannot read, so the operator must start
    /// the version that wrote it.
    #[error("{}: the server cannot read the streams: {what}", directory.display())]
    State {
        /// The data directory that the operator configured, by which the message names it.
        directory: PathBuf,
        /// A description of the unreadable data, for the operator.
        what: String,
    },
}

/// The reason why a running server cannot continue, as the operator reads it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The operating system refused to wait for socket events, without which the loop cannot run.
    #[error("the operating system refuses to wait for the server's sockets: {0}")]
    Loop(io::Error),
    /// A write or a sync of the log failed, so the server accepts nothing more. Acknowledged messages are
    /// durable, but all other data may be lost.
    #[error(
        "the server cannot write or sync its log: {0}; all acknowledged messages are durable, and the others may be lost"
    )]
    Log(#[from] tidegate_log::Failure),
    /// This node has lost log entries that other nodes count on, so it must not take part in the cluster.
    #[error(
        "{0}: empty the data directory and start the node with --rejoin, so that it fetches everything from the other nodes"
    )]
    Forgotten(tidegate_raft::replica::StepError),
    /// The node cannot apply a committed entry of the log, so its state would differ from that of other
    /// nodes.
    #[error(
        "the server cannot apply an entry of the log: {0}; start the version of the server that wrote the entry, or a later one"
    )]
    Entry(#[from] tidegate_stream::stream::EntryError),
    /// The node cannot open the streams, which it tries once the members of the cluster are fixed.
    #[error(transparent)]
    Start(#[from] StartError),
}
