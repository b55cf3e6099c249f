//! Streams of messages and their consumers, as pure code that uses no socket, no file and no clock: the
//! replicated state machine, to which each node of a Raft group applies the same log entries, and the
//! JetStream API by which clients use the streams.
//!
//! [`stream`] holds the streams and applies entries to them. [`consumer`] decides deliveries, redeliveries
//! and acknowledgements. [`ingest`] follows the batches of messages that publishers send. [`api`] reads the
//! requests of clients and writes the answers; [`backup`] reads and writes backups of streams; [`schema`]
//! holds the configurations and errors that all of them share.
//!
//! ```
//! use bytes::Bytes;
//! use tidegate_stream::schema::config::StreamConfig;
//! use tidegate_stream::schema::number::StreamNumber;
//! use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Outcome, Streams};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config = StreamConfig {
//!     name: "ORDERS".into(),
//!     subjects: vec!["orders.>".into()],
//!     ..StreamConfig::default()
//! };
//! let config = serde_json::to_vec(&config)?;
//! let mut entry = Vec::new();
//! let mut encoder = Encoder::begin(&mut entry, 1_700_000_000_000_000);
//! encoder.command(&Command::new(Kind::CreateStream, StreamNumber::NONE, b"", &config))?;
//! encoder.publish(StreamNumber::FIRST, b"orders.new", None, b"hello")?;
//!
//! // Each node of a group applies the same entries and has the same state.
//! let mut streams = Streams::new(AccountLimits::NONE);
//! let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
//! streams.apply(0, &Bytes::from(entry), &mut outcomes, &mut effects)?;
//! assert!(matches!(outcomes[1], Outcome::Stored { stream: StreamNumber::FIRST, seq } if seq.get() == 1));
//! assert_eq!(streams.taker(b"orders.old").map(|s| s.state().messages), Some(1));
//! # Ok(())
//! # }
//! ```

pub mod api;
pub mod backup;
mod bits;
pub mod consumer;
mod convert;
pub mod ingest;
mod overlaps;
pub mod schema;
pub mod stream;
