//! The reasons for which a server cannot start or go on, and the identity that a starting server announces.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate::controller::ChoiceError;
use tidegate_nats::connect::Info;
use tidegate_stream::api::level::API_LEVEL;

use crate::config::cluster::ClusterSettingsError;
use crate::config::{ExposureError, Settings};
use crate::event_loop::IdentityError;
use crate::event_loop::tls::TlsError;

/// The version of nats-server that this server's protocol follows: clients choose features by it.
pub const PROTOCOL_VERSION: &str = "2.14.0";

/// The reasons for which a server cannot start.
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
    /// The controller cannot be built.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
    /// The data directory cannot be opened.
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
        /// The mistake in it.
        what: String,
    },
}

/// The reasons for which a server cannot go on.
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
    /// A committed entry cannot be applied.
    #[error(
        "an entry of the log cannot be applied: {0}; use the version that wrote it, or a later one"
    )]
    Entry(#[from] tidegate_stream::stream::EntryError),
    /// The members of the cluster are fixed now, and the node cannot open the streams.
    #[error(transparent)]
    Start(#[from] StartError),
}

pub(crate) fn server_info(settings: &Settings, address: SocketAddr, id: &str) -> Info {
    Info {
        server_id: id.into(),
        server_name: settings.server_name.clone().unwrap_or_else(|| id.into()),
        version: PROTOCOL_VERSION.into(),
        proto: 1,
        go: "none (tidegate)".into(),
        host: address.ip().to_string(),
        port: address.port(),
        headers: true,
        max_payload: settings.sessions.max_payload,
        jetstream: settings.streams.is_some(),
        api_lvl: settings.streams.as_ref().map(|_| API_LEVEL),
        auth_required: settings.sessions.needs_credentials()
            && settings.sessions.no_auth_user.is_none(),
        tls_required: settings.tls.is_some() && !settings.allow_non_tls,
        tls_verify: settings.tls.as_ref().is_some_and(|t| t.verify),
        tls_available: settings.tls.is_some() && settings.allow_non_tls,
        cluster: settings.cluster.as_ref().map(|c| c.name.clone()),
        connect_urls: match &settings.cluster {
            Some(cluster) if cluster.no_advertise => Vec::new(),
            Some(_) => crate::event_loop::peers::client_url(settings, address)
                .into_iter()
                .collect(),
            None => settings.client_advertise.iter().cloned().collect(),
        },
        ..Info::default()
    }
}

/// Returns a seed that an attacker cannot foresee cheaply, from the keys of the standard library's hashing.
pub(crate) fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// Returns an id in the form of nats-server's: 56 characters of base 32, the first an N.
pub(crate) fn server_id() -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let words: Vec<u64> = (0..5).map(|_| seed()).collect();
    let letter = |i: usize| {
        let word = words[i / 12 % 5] >> (5 * (i % 12));
        LETTERS[(word % 32) as usize] as char
    };
    std::iter::once('N').chain((0..55).map(letter)).collect()
}
