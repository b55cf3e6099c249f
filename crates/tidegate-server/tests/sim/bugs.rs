//! Bugs planted by the harness, to see that they are found. None is in the server: the harness passes on something else than it was
//! given.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {}
