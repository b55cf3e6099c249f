//! `tidegate receive` and `tidegate send`: records shipped reliably, like a pipe that survives a broken network.

#![allow(dead_code)]
mod append;
mod disk;
mod records;
mod spool;
