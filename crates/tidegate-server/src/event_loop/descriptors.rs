//! Bounds the number of clients by the process's limit on descriptors (`ulimit -n`). The log needs one for
//! each of its segments. Without this bound, clients could use up all descriptors with their connections, and
//! the log would fail.

use rustix::process::{Resource, getrlimit};

use crate::config::Settings;

/// The share of the log: the server keeps one descriptor in this many for the log.
const LOG_SHARE: u64 = 4;
/// The number of descriptors that the server keeps for its other files and sockets, and for HTTP clients.
const OTHERS: u64 = 64;
/// The number of descriptors that the server keeps for connections from other nodes, and from clients that
/// pretend to be a node.
const NODES: u64 = 192;

/// Lowers the maximum of clients to the number for which the process has descriptors.
pub(super) fn bound_clients(settings: &mut Settings) {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let most = clients_max(limit, settings.cluster.is_some());
    if most < settings.max_connections {
        tracing::info!(
            "the server accepts at most {most} clients, because the process may have only {limit} files open (`ulimit -n`) and the log needs some of them"
        );
        settings.max_connections = most;
    }
}

/// Returns the most clients of a process that may have `limit` descriptors.
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
