//! Callers of a Redis client, told what to do by lines on standard input (bench/peers/README.md): the driver
//! of our own client and of the rivals in Rust, so that they are measured by the same code. It knows no
//! client; it leaves Redis, the rounds and the report to `tidegate-bench redis`.

mod histogram;
mod pacer;
mod request;
mod running;
mod serve;

pub use request::{Ask, Command};
pub use running::{Allocated, Client, Running};
pub use serve::{System, serve};
