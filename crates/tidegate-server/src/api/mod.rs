//! The JetStream API as pure code: requests in, answers out. No clock, no socket, no file.
//!
//! A request's subject is recognised ([`strip`]) and read ([`Request::parse`]) into one closed enum, or
//! refused with the answer to send. Answers are made from what streams and consumers show of themselves
//! ([`view`]); messages are read step by step ([`direct`]). What publishers are answered has a writer of its
//! own ([`puback`]), because it is said once a message.
//!
//! [`config`] holds what users ask of streams and consumers, [`error`] every error a client can be told,
//! [`level`] what clients may require, [`status`] the answers that are no JSON.

pub mod answer;
pub mod body;
pub mod config;
pub mod direct;
pub mod error;
mod json;
pub mod level;
pub mod pedantic;
pub mod puback;
mod request;
mod shown;
pub mod status;
pub mod timestamp;
pub mod view;

pub use request::{NAME_BYTES_MAX, Refusal, Request, strip};
pub use shown::{LiveConsumer, Messages};
