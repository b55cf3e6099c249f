//! Bounds the number of clients by the process's limit on file descriptors (`ulimit -n`). The log needs a
//! descriptor for each of its segments. Without this bound, the connections of clients could use up all
//! descriptors, and the log would fail.

use rustix::process::{Resource, getrlimit};

use crate::config::Settings;

/// The divisor for the log's share of the descriptors: the server reserves a quarter of them for the log.
const LOG_SHARE: u64 = 4;
/// The number of descriptors that the server reserves for its other files and sockets, and for readers of the
/// HTTP monitor.
const OTHERS: u64 = 64;
/// The number of descriptors that the server reserves for connections at the port for nodes, from other nodes
/// and from clients that pretend to be a node, so that clients cannot take them.
const NODES: u64 = 192;

/// A maximum of clients below the operator's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    most: usize,
    /// The process's limit on descriptors.
    limit: u64,
}

impl Bound {
    /// Tells the operator of the bound.
    pub(super) fn tell(self) {
        let Self { most, limit } = self;
        tracing::info!(
            "the server accepts at most {most} clients, because the process may have only {limit} files open and the log needs some of them: raise `ulimit -n` to allow more clients"
        );
    }
}

/// Lowers the operator's maximum of clients to the number for which the process has descriptors, so that the
/// log always gets one. Returns the bound if it is lower.
pub(super) fn bound_clients(settings: &mut Settings) -> Option<Bound> {
    let limit = getrlimit(Resource::Nofile).current?;
    let most = clients_max(limit, settings.cluster.is_some());
    if most >= settings.max_connections {
        return None;
    }
    settings.max_connections = most;
    Some(Bound { most, limit })
}

/// Returns the greatest number of clients that a process with at most `limit` descriptors may have, with the
/// reserved descriptors left free.
fn clients_max(limit: u64, clustered: bool) -> usize {
    let nodes = if clustered { NODES } else { 0 };
    let kept = limit / LOG_SHARE + OTHERS + nodes;
    usize::try_from(limit.saturating_sub(kept).max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_leave_some() {
        assert_eq!(clients_max(1024, false), 704);
        assert_eq!(clients_max(1024, true), 512);
        assert_eq!(clients_max(64, true), 1);
        assert!(clients_max(1 << 20, true) > 64 * 1024);
    }
}
