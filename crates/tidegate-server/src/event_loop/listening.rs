//! A server that listens for clients and has not opened its data.
//!
//! Opening may take long, and a program may want to name the address before. The type keeps the program from
//! running a server without its streams.

use std::net::SocketAddr;

use super::errors::StartError;
use super::handle::Handle;
use super::{Server, warn_of_shown_credentials};

/// A server that listens at its address and has not opened its data; [`Listening::open_data`] makes it a
/// [`Server`], which serves clients.
#[derive(Debug)]
#[must_use = "only a server that has opened its data serves clients"]
pub struct Listening(pub(super) Server);

impl Listening {
    /// Returns the address at which the server listens for clients, which has the real port if the settings
    /// ask for any free one.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Returns the address at which the server listens for the other nodes of its cluster; `None` without a
    /// cluster.
    #[must_use]
    pub fn cluster_address(&self) -> Option<SocketAddr> {
        self.0.cluster_address()
    }

    /// Returns a handle with which other threads send commands to the server. The server takes them once it
    /// runs.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.0.handle()
    }

    /// Tells the operator of remarks on the settings, and opens the data.
    ///
    /// # Errors
    /// The server cannot open its data, or the file of the recording.
    pub fn open_data(self) -> Result<Server, StartError> {
        let Self(mut server) = self;
        if server.shows_credentials {
            warn_of_shown_credentials();
        }
        if let Some(bound) = server.bound.take() {
            bound.tell();
        }
        server.open_streams(server.clock.now())?;
        let record = server.node.settings().record.clone();
        if let (Some(recording), Some(file)) = (&mut server.recording, &record) {
            recording.start(file)?;
        }
        Ok(server)
    }
}
