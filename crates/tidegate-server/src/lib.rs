//! A NATS server on one event loop.
//!
//! It serves core NATS (publish and subscribe with wildcards, queue groups, headers and request/reply),
//! durable streams, TLS, users and permissions, and a monitor over HTTP. `docs/nats-support.md` lists the
//! supported and the missing features.
//!
//! Messages take one path: **socket -> parse -> subscriptions -> outboxes -> sockets.** In each turn the
//! event loop takes the events that are ready, handles them together, and then writes the outboxes. A
//! [`tidegate`] controller decides how many messages the loop gathers before it writes.
//!
//! ```
//! use std::io::{BufRead as _, BufReader, Write as _};
//! use std::net::TcpStream;
//!
//! use tidegate_server::{Server, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::bind(Settings {
//!     port: 0,
//!     ..Settings::default()
//! })?;
//! let (address, handle) = (server.address(), server.handle());
//! let thread = std::thread::spawn(move || server.run());
//!
//! let mut client = TcpStream::connect(address)?;
//! client.write_all(b"CONNECT {\"verbose\":false}\r\nPING\r\n")?;
//! let mut lines = BufReader::new(client).lines();
//! assert!(lines.next().expect("a greeting")?.starts_with("INFO {"));
//! assert_eq!(lines.next().expect("an answer")?, "PONG");
//!
//! // Connections may finish their work, then the server ends.
//! handle.drain()?;
//! thread.join().expect("no panic")?;
//! # Ok(())
//! # }
//! ```

pub mod config;
// The product counts no works and turns no cures off, so some parts of these two modules are unused in it.
#[cfg_attr(not(feature = "sim"), allow(dead_code, unreachable_pub))]
mod cost;
#[cfg_attr(not(feature = "sim"), allow(unreachable_pub))]
mod cures;
mod event_loop;
mod fair;
mod monitor;
mod party;
mod sessions;
#[cfg(feature = "sim")]
mod simulated;
mod streams;
mod system;

pub use config::{Settings, SpanSampling};
pub use event_loop::errors::{RunError, StartError};
pub use event_loop::handle::{Busy, Handle};
pub use event_loop::members::IdentityError;
pub use event_loop::spans::{SpanReceiver, SpanSender, Spans, SpansEnded, span_channel};
pub use event_loop::tls::TlsError;
pub use event_loop::{Listening, Server};
pub use monitor::{Monitor, Options as MonitorOptions, SERIES_DEFAULT, SERIES_MAX, metrics_text};
// These types make the state machine without sockets public for tests and fuzz targets only. Their interface
// may change at any time.
#[doc(hidden)]
pub use event_loop::report::list_connections;
#[doc(hidden)]
pub use party::ClientKey;
#[doc(hidden)]
pub use sessions::{Node, NodeStats, Received, Verify};
pub use streams::spans::{PublishSpan, Published};
pub use system::{Load, serve_system};

// These types let tests drive the event loop on a simulated machine. They are public, because tests are
// crates of their own.
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use cost::Work;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use cures::Cures;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use event_loop::simulation::{
    ClientEnd, Footprint, Group, Happened, Listing, Simulation, TurnTaken,
};
#[cfg(feature = "sim")]
#[doc(hidden)]
pub use simulated::costs::{Costs, CostsError};

/// The version of nats-server that this server claims in INFO, because clients enable features by it.
pub const PROTOCOL_VERSION: &str = "2.14.0";
