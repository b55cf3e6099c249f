//! `tidegate send` and `tidegate receive` as programs: the received records, the error messages, and that
//! kills and cuts lose and repeat no record.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod basics;
mod chaos;
mod damage;
mod errors;
mod program;
mod proxy;
mod secure;
