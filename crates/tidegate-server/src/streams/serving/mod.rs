//! Serves consumers: their messages, acknowledgements, interest and resets.

pub(crate) mod acks;
pub(crate) mod consumers;
pub(crate) mod interest;
pub(crate) mod lasting;
pub(crate) mod resets;
