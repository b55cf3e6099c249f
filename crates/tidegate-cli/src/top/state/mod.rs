//! The figures of a running server, read from the answers of its monitor, pure.

pub(crate) mod boundaries;
pub(crate) mod json;
pub(crate) mod request;
pub(crate) mod server;
