//! Small messages over one TCP connection, each one acknowledged, none lost when the connection breaks.
//!
//! The sender never waits for an acknowledgement before it sends the next message. Under load the receiver
//! sends one acknowledgement for many messages: it names the latest message, and how many acknowledgements
//! the receiver left out before it. In a session the client keeps messages until they are acknowledged,
//! connects again after a cut and sends those that the server lacks; the server's handler sees each message
//! once, in order.
//!
//! ```
//! use tidegate_link::{Batch, Client, Server};
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?.to_string();
//! let server = Server::builder().serve(listener, |_session| {
//!     Ok(|batch: Batch<'_>| {
//!         for message in batch {
//!             println!("{} bytes", message.len());
//!         }
//!         Ok::<(), std::io::Error>(())
//!     })
//! })?;
//!
//! let client = Client::builder().connect(address).await?;
//! for n in 0..1000u32 {
//!     client.send(&n.to_le_bytes()).await?; // waits for room, never for an acknowledgement
//! }
//! let acked = client.close().await?; // drains: everything is acknowledged
//! assert_eq!(acked.get(), 1000);
//! # server.stop().await;
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(example())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`proto`] holds the rules, pure; [`frame`] and [`hello`] hold the bytes (docs/link-protocol.md has tables
//! of them).

mod client;
mod error;
pub mod frame;
pub mod hello;
pub mod proto;
mod seq;
mod server;
mod stats;
mod tls;
mod transport;

pub use client::{Client, ClientBuilder, Producer, Reconnect};
pub use error::{ConfigError, ConnectError, LinkError, PeerError, SendError, ServeError};
pub use frame::Code;
pub use hello::SessionId;
pub use proto::{Decide, Doubt};
pub use seq::Seq;
pub use server::{
    Acks, Batch, Done, Handler, Opened, Opening, Position, Server, ServerBuilder, SessionStore,
};
pub use stats::{ClientStats, ServerStats};
pub use tls::{ClientTls, ServerTls, TlsError};
