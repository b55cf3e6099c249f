//! The node: all sessions and subscriptions as one pure state machine ([`core`]), and the one thread that drives it
//! ([`Server`], on `mio`).

pub mod core;
mod driver;
mod flow;
mod handle;
mod socket;
mod timers;
mod tls;
mod verify;

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;

use tidegate::controller::ChoiceError;

pub use driver::Server;
pub use handle::{Busy, Handle};
pub use tls::TlsError;

use crate::config::{ExposureError, Settings};
use crate::nats::connect::Info;

/// The version of nats-server whose protocol is spoken: clients choose features by it.
pub const PROTOCOL_VERSION: &str = "2.12.0";

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
    /// TLS cannot be served.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The controller cannot be built.
    #[error(transparent)]
    Controller(#[from] ChoiceError),
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
        jetstream: false,
        auth_required: settings.needs_credentials() && settings.no_auth_user.is_none(),
        tls_required: settings.tls.is_some() && !settings.allow_non_tls,
        tls_verify: settings.tls.as_ref().is_some_and(|t| t.verify),
        tls_available: settings.tls.is_some() && settings.allow_non_tls,
        connect_urls: settings.client_advertise.iter().cloned().collect(),
        ..Info::default()
    }
}

/// Unpredictable enough to seed choices that nobody must foresee cheaply: the keys of the standard library's hashing.
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
