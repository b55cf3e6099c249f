//! `tidegate send` and `tidegate receive` as programs: what arrives, what they say when something is wrong,
//! and that killing and cutting loses and repeats nothing.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod basics;
mod chaos;
mod damage;
mod errors;
mod program;
mod proxy;
mod secure;
