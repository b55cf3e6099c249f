//! Connects a client to its server (address, TCP, TLS) within the time set, and computes the waits between
//! attempts.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsStream;

use super::config::{ClientBuilder, Reconnect};
use crate::error::ConnectError;
use crate::tls::ClientTls;
use crate::transport::{Socket, prepare};

/// The address of a server, and the settings with which a client connects to it: TLS, and the time limit of
/// an attempt.
#[derive(Clone, Debug)]
pub(super) struct Route {
    address: String,
    tls: Option<ClientTls>,
    /// True if the client has a token, which is a secret: the connection must then use TLS or stay on this
    /// machine.
    private: bool,
    within: Duration,
}

impl Route {
    pub(super) fn new(config: &ClientBuilder, address: String) -> Self {
        Self {
            address,
            tls: config.tls.clone(),
            private: !config.token.is_empty(),
            within: config.answer_within,
        }
    }

    /// Makes one attempt to connect to the server, which fails at the time limit.
    pub(super) async fn connect(self) -> Result<Socket, ConnectError> {
        let within = self.within;
        let late = self.no_answer();
        timeout(within, self.attempt()).await.unwrap_or(Err(late))
    }

    /// Returns the error for a server that does not answer within the time limit, for the program.
    pub(super) fn no_answer(&self) -> ConnectError {
        ConnectError::NoAnswer {
            address: self.address.clone(),
            within_ms: u64::try_from(self.within.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the error for a connection to the server that broke before the session was open, for the
    /// program.
    pub(super) fn broken(&self, error: std::io::Error) -> ConnectError {
        ConnectError::Io {
            address: self.address.clone(),
            error,
        }
    }

    async fn attempt(self) -> Result<Socket, ConnectError> {
        let tcp = TcpStream::connect(&self.address).await;
        let tcp = tcp.and_then(|tcp| prepare(&tcp).map(|()| tcp));
        let tcp = tcp.map_err(|error| self.broken(error))?;
        let Some(tls) = &self.tls else {
            let peer = tcp.peer_addr().map_err(|error| self.broken(error))?;
            if self.private && !crate::transport::is_loopback(&peer) {
                return Err(ConnectError::TokenInClear { peer });
            }
            return Ok(Socket::Tcp(tcp));
        };
        let (connector, name) = tls.connector();
        match connector.connect(name, tcp).await {
            Ok(tls) => Ok(Socket::Tls(Box::new(TlsStream::Client(tls)))),
            Err(error) => Err(ConnectError::Tls {
                address: self.address,
                error,
            }),
        }
    }
}

/// Returns the waits between a client's attempts to connect: each wait is about twice the wait before, so
/// that a server that is down gets few attempts.
pub(super) fn waits(reconnect: Reconnect) -> ExponentialBackoff {
    // The builder's jitter adds a random time of up to one more wait to each wait, so the builder gets half
    // of the configured waits.
    ExponentialBuilder::default()
        .with_min_delay(reconnect.first / 2)
        .with_max_delay(reconnect.longest / 2)
        .with_factor(2.0)
        .with_jitter()
        .without_max_times()
        .build()
}
