//! The NATS client protocol, as pure code for servers: the caller passes bytes and times in, and gets
//! operations and bytes out. This crate opens no socket and reads no clock, so tests can simulate both.
//!
//! [`parse`] reads a client's operations from a buffer, [`op`] writes a server's operations into one,
//! [`headers`] reads header blocks, [`subject`] holds the rules of subjects and patterns, [`transform`] maps
//! subjects to others, [`sublist`] finds the subscriptions to a subject, [`permissions`] holds the rights of
//! users, [`connect`] the JSON documents of INFO and CONNECT, [`session`] the state of one client connection,
//! [`settings`] the limits of sessions and the credentials that admit clients, and [`system`] the subjects of
//! the system account. [`url`] decodes the credentials in URLs. [`collections`] has the maps and lists for
//! very many subscriptions.
//!
//! ```
//! use tidegate_nats::parse::{Op, ParseLimits, Parser};
//! use tidegate_nats::sublist::Sublist;
//!
//! let mut subscriptions = Sublist::new();
//! subscriptions.insert(b"orders.*", None, 7);
//!
//! let limits = ParseLimits {
//!     control_line_bytes_max: 4096,
//!     payload_bytes_max: 1 << 20,
//! };
//! let input = b"PUB orders.new 5\r\nhello\r\nPIN";
//! let (op, bytes) = Parser::default().next(input, &limits)?.expect("a whole operation");
//! let Op::Publish(message) = op else {
//!     panic!("not a message: {op:?}");
//! };
//! assert_eq!((message.payload, &input[bytes..]), (&b"hello"[..], &b"PIN"[..]));
//! assert_eq!(subscriptions.matches(message.subject).plain, [7]);
//! # Ok::<(), tidegate_nats::parse::ParseError>(())
//! ```

mod close;
pub mod collections;
pub mod connect;
pub mod headers;
pub mod op;
pub mod outbox;
pub mod parse;
pub mod permissions;
pub mod session;
pub mod settings;
pub mod subject;
pub mod sublist;
pub mod system;
pub mod transform;
pub mod url;
