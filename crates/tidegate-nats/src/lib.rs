//! The NATS client protocol, as pure code: bytes and times in, operations and bytes out. No socket, no clock.
//!
//! [`parse`] reads operations from a buffer, [`op`] writes them into one, [`headers`] reads header blocks,
//! [`subject`] holds the rules of subjects and patterns, [`sublist`] finds the subscriptions to a subject,
//! [`permissions`] holds the rights of users, [`connect`] the two JSON documents of a greeting, and
//! [`session`] the state of one connection, [`settings`] its limits and the credentials that admit it.
//! [`collections`] has the maps and lists for very many subscriptions.
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
