//! Reads the boundaries at which the server cuts batches, as the sampler of the monitor keeps them.
//!
//! docs/dashboard.md says for each boundary what an item and a batch of it is.

use tidegate_cluster::groups::ALL;
use tidegate_monitor::{BOUNDARIES_MAX, Observed};
use tidegate_raft::store::Store;

use crate::event_loop::flow::Flow;
use crate::sessions::Node;

/// Reads the boundaries of the node, its socket writes and, if it keeps streams, its log. The entries of a
/// group beyond the group of all nodes have a boundary of their own once the node has proposed one.
pub(in crate::event_loop) fn observe(
    node: &Node,
    flow: &Flow,
    store: Option<&Store>,
) -> Vec<Observed> {
    let mut all = Vec::with_capacity(4);
    if let Some(store) = store {
        let log = store.log();
        let (controller, costs) = (log.stats().controller, log.size_costs());
        all.push(Observed::new("log_syncs", "commands", controller, costs));
    }
    for streams in node.all_streams() {
        let (snapshot, costs) = streams.entry_sizes();
        let group = streams.group();
        let name = match group {
            ALL => "entries".into(),
            _ if snapshot.counts.items == 0 => continue,
            group => format!("entries_group_{group}"),
        };
        all.push(Observed::new(name, "commands", snapshot, costs));
    }
    let (snapshot, costs) = flow.observe();
    all.push(Observed::new("socket_writes", "messages", snapshot, costs));
    if let Some(streams) = node.directory() {
        let (snapshot, costs) = streams.flow_acks();
        all.push(Observed::new("flow_acks", "messages", snapshot, costs));
    }
    all.truncate(BOUNDARIES_MAX);
    all
}
