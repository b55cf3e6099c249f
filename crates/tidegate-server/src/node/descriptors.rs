//! The descriptors a process may have (`ulimit -n`): clients leave enough of them to the log, each of whose
//! segments has one. Without that whoever opens connections could end the server.

use rustix::process::{Resource, getrlimit};

use crate::config::Settings;

/// One in so many is kept for the log.
const LOG_SHARE: u64 = 4;
/// Kept for everything else there is once, and for who asks by HTTP.
const OTHERS: u64 = 64;
/// Kept for connections of other nodes, and of who pretends to be one.
const NODES: u64 = 192;

/// Lets no more clients in than there are descriptors for.
pub(super) fn bound_clients(settings: &mut Settings) {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return;
    };
    let most = clients_max(limit, settings.cluster.is_some());
    if most < settings.max_connections {
        tracing::info!(
            "at most {most} clients are let in: the process may have {limit} files open, and the log needs some of them"
        );
        settings.max_connections = most;
    }
}

/// So many clients of a process that may have `limit` descriptors.
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
