//! The NATS client protocol, as pure code: bytes and times in, operations and bytes out. No socket, no clock.
//!
//! [`parse`] reads operations from a buffer, [`op`] writes them into one, [`headers`] reads header blocks,
//! [`subject`] holds the rules of subjects and patterns, [`sublist`] finds the subscriptions to a subject,
//! [`permissions`] holds the rights of users, [`connect`] the two JSON documents of a greeting, and
//! [`session`] the state of one connection, [`settings`] its limits and the credentials that admit it.

mod close;
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
