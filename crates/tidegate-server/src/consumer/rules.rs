//! Rules and defaults of consumer configurations.

/// The most messages that are unacknowledged, where nothing is said.
pub(super) const MAX_ACK_PENDING_DEFAULT: i64 = 1000;
