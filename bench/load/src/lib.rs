//! Runs callers of a Redis client, for a bench that controls them by lines on standard input
//! (bench/peers/README.md). The programs of our own client and of the rivals in Rust use this crate, so that
//! the same code measures all of them. The crate contains no client. `tidegate-bench redis` handles Redis,
//! the rounds and the report.

mod histogram;
mod pacer;
mod request;
mod running;
mod serve;

pub use request::{Ask, Command};
pub use running::{Allocated, Client, Running};
pub use serve::{System, serve};
