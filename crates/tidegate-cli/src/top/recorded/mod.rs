//! Answers of servers for tests. `boundaries.json`, `overview.json` and `routez.json` are written by hand in
//! the form of a server's answers, with round figures; the others are as they came.

/// An answer to `/boundaries?history=5`.
pub(super) const BOUNDARIES: &str = include_str!("boundaries.json");
/// An answer to `/overview?history=5`.
pub(super) const OVERVIEW: &str = include_str!("overview.json");
/// A loaded server's `/varz`.
pub(super) const VARZ: &str = include_str!("varz.json");
/// A page of streams with consumers.
pub(super) const JSZ: &str = include_str!("jsz.json");
/// A page of connections.
pub(super) const CONNZ: &str = include_str!("connz.json");
/// The routes of a node of three.
pub(super) const ROUTEZ: &str = include_str!("routez.json");
/// `/varz` of nats-server 2.
pub(super) const OTHER_VARZ: &str = include_str!("other_varz.json");
/// A page of streams of nats-server 2.
pub(super) const OTHER_JSZ: &str = include_str!("other_jsz.json");
