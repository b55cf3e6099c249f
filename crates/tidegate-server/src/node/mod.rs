//! The node: all sessions and subscriptions as one pure state machine ([`core`]), and the one thread that
//! drives it ([`Server`], on `mio`).

pub mod core;
mod descriptors;
mod driver;
mod fair;
mod flow;
mod handle;
mod handshakes;
pub mod jetstream;
mod seldom;
mod socket;
mod timers;
mod tls;
mod verify;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use tidegate::controller::ChoiceError;

pub use driver::peers::{NotSent, PeerEvent, Peers, Received};
pub use driver::{IdentityError, Server};
pub use handle::{Busy, Handle};
pub use jetstream::{Messages, StreamStats};
pub use tls::TlsError;

use crate::api::level::API_LEVEL;
use crate::config::cluster::ClusterSettingsError;
use crate::config::{ExposureError, Settings};
use crate::nats::connect::Info;

/// The version of nats-server whose protocol is spoken: clients choose features by it.
pub const PROTOCOL_VERSION: &str = "2.14.0";

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {host}:{port}: {source}")]
    Listen {
        /// The address.
        host: String,
        /// The port.
        port: u16,
        /// Why.
        source: io::Error,
    },
    /// No event loop, or no thread.
    #[error("the system refuses what a server needs: {0}")]
    Loop(io::Error),
    /// The world could reach it, with nothing to guard it.
    #[error(transparent)]
    Exposure(#[from] ExposureError),
    /// The settings make no cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterSettingsError),
    /// The data directory does not say who this node is, or says that it is another.
    #[error("{}: {source}", directory.display())]
    Identity {
        /// Which.
        directory: PathBuf,
        /// Why.
        source: IdentityError,
    },
    /// TLS cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There cannot be TLS between nodes.
    #[error("cluster.tls: {0}")]
    ClusterTls(TlsError),
    /// The controller cannot be built.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
    /// The data directory cannot be opened.
    #[error("{}: {source}", directory.display())]
    Streams {
        /// Which.
        directory: PathBuf,
        /// Why.
        source: crate::store::OpenError,
    },
    /// The data directory of a member of a cluster is damaged.
    #[error(
        "{}: {source}; or empty it and start the node with --rejoin: the other nodes have everything",
        directory.display()
    )]
    Member {
        /// Which.
        directory: PathBuf,
        /// Why.
        source: crate::store::OpenError,
    },
    /// What the data directory holds is not what this version writes.
    #[error("{}: the streams cannot be read: {what}", directory.display())]
    State {
        /// Which.
        directory: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// Why a server cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Waiting for sockets fails.
    #[error("the system refuses to wait for sockets: {0}")]
    Loop(io::Error),
    /// A write or a sync failed: what was acknowledged is safe, nothing else can be promised.
    #[error(
        "the log failed: {0}; every acknowledgement that was sent is of something durable, nothing that was not acknowledged may be relied on"
    )]
    Log(#[from] tidegate_log::Failure),
    /// This node has lost entries that other nodes count on.
    #[error(
        "{0}: empty the data directory and start the node with --rejoin: the other nodes have everything"
    )]
    Forgotten(crate::replica::StepError),
    /// A committed entry cannot be applied.
    #[error(
        "an entry of the log cannot be applied: {0}; use the version that wrote it, or a later one"
    )]
    Entry(#[from] crate::stream::EntryError),
    /// The members of the cluster are fixed now, and the streams cannot be opened.
    #[error(transparent)]
    Start(#[from] StartError),
}

fn server_info(settings: &Settings, address: SocketAddr, id: &str) -> Info {
    Info {
        server_id: id.into(),
        server_name: settings.server_name.clone().unwrap_or_else(|| id.into()),
        version: PROTOCOL_VERSION.into(),
        proto: 1,
        go: "none (tidegate)".into(),
        host: address.ip().to_string(),
        port: address.port(),
        headers: true,
        max_payload: settings.max_payload,
        jetstream: settings.streams.is_some(),
        api_lvl: settings.streams.as_ref().map(|_| API_LEVEL),
        auth_required: settings.needs_credentials() && settings.no_auth_user.is_none(),
        tls_required: settings.tls.is_some() && !settings.allow_non_tls,
        tls_verify: settings.tls.as_ref().is_some_and(|t| t.verify),
        tls_available: settings.tls.is_some() && settings.allow_non_tls,
        cluster: settings.cluster.as_ref().map(|c| c.name.clone()),
        connect_urls: match &settings.cluster {
            Some(cluster) if cluster.no_advertise => Vec::new(),
            Some(_) => driver::peers::client_url(settings, address)
                .into_iter()
                .collect(),
            None => settings.client_advertise.iter().cloned().collect(),
        },
        ..Info::default()
    }
}

/// Unpredictable enough to seed choices that nobody must foresee cheaply: the keys of the standard library's
/// hashing.
fn seed() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// An id as nats-server's look: 56 characters of base 32, the first an N.
fn server_id() -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let words: Vec<u64> = (0..5).map(|_| seed()).collect();
    let letter = |i: usize| {
        let word = words[i / 12 % 5] >> (5 * (i % 12));
        LETTERS[(word % 32) as usize] as char
    };
    std::iter::once('N').chain((0..55).map(letter)).collect()
}
