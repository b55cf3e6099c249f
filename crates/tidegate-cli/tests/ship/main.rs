//! Tests of `tidegate send` and `tidegate receive` as programs: they check the records that arrive and the
//! error messages, and that kills and cuts neither lose nor repeat a record.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod basics;
mod chaos;
mod damage;
mod errors;
mod program;
mod proxy;
mod rotation;
mod secure;
