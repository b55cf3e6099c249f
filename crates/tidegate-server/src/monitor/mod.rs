//! The monitor: figures of a running server over HTTP.

pub(crate) mod snapshot;
