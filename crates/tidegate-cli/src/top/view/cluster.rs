//! The cluster: the directory's leader and its copies, and the routes of the watched node.

use ratatui::text::Line;

use super::style::{Look, Tone, cut};
use super::table::{Table, left, right};
use crate::top::state::State;
use crate::top::state::lists::{Replica, Route};
use crate::top::words::{bytes, count, name, ns};

/// Returns the lines of the view.
pub(super) fn lines(
    state: &State,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let cluster = state.server.as_ref().and_then(|s| s.text("cluster.name"));
    let routes = state.routes.as_deref().unwrap_or_default();
    if cluster.is_none() && routes.is_empty() && state.directory.is_none() {
        let text = match state.server {
            Some(_) => " this server is in no cluster",
            None => " waiting for the server",
        };
        return vec![look.line(Tone::Dim, text)];
    }
    let mut lines = Vec::new();
    let own = state.server.as_ref().and_then(|s| s.text("server_name"));
    let mut head = format!(" cluster {}", cluster.map(name).unwrap_or_default());
    if let Some(directory) = &state.directory {
        let leader = directory.leader.as_deref();
        let leader = leader.map_or_else(
            || "no leader".into(),
            |leader| match Some(leader) == own {
                true => format!("leader {}, the watched node", name(leader)),
                false => format!("leader {}", name(leader)),
            },
        );
        let size = directory.size.map(|n| format!(", {} nodes", count(n)));
        head += &format!(
            ": directory of streams: {leader}{}",
            size.unwrap_or_default()
        );
    }
    lines.push(look.line(Tone::Strong, cut(&head, columns)));
    lines.push(Line::default());
    if let Some(directory) = state.directory.as_ref().filter(|d| !d.replicas.is_empty()) {
        let row = |at: usize| {
            let r: &Replica = &directory.replicas[at];
            let says = match (r.offline, r.current) {
                (true, _) => "not connected",
                (_, true) => "up to date",
                _ => "behind",
            };
            let heard = match r.active_ns > 0.0 {
                true => format!("{} ago", ns(r.active_ns)),
                false => "-".into(),
            };
            vec![name(&r.name), says.into(), count(r.lag), heard]
        };
        let table = Table {
            columns: &[
                left("node, as the leader sees it", 0),
                left("copy", 0),
                right("entries missing", 1),
                right("heard", 2),
            ],
            rows: directory.replicas.len(),
            selected: None,
            row,
        };
        let room = height.saturating_sub(lines.len());
        lines.extend(table.lines(look, columns, room));
        lines.push(Line::default());
    }
    let row = |at: usize| {
        let r: &Route = &routes[at];
        let heard = match r.heard {
            Some(false) => "no",
            Some(true) => "yes",
            None => "",
        };
        vec![
            name(&r.name),
            name(&r.address),
            heard.into(),
            format!("{} in {}", count(r.in_msgs), bytes(r.in_bytes)),
            format!("{} in {}", count(r.out_msgs), bytes(r.out_bytes)),
            bytes(r.pending_bytes),
            count(r.subscriptions),
        ]
    };
    let table = Table {
        columns: &[
            left("route to", 0),
            left("address", 1),
            left("heard", 4),
            right("messages from it", 2),
            right("messages to it", 2),
            right("waiting", 3),
            right("subscriptions", 5),
        ],
        rows: routes.len(),
        selected: None,
        row,
    };
    match routes.is_empty() {
        true => lines.push(look.line(Tone::Dim, " no routes to other nodes")),
        false => {
            let room = height.saturating_sub(lines.len());
            lines.extend(table.lines(look, columns, room));
        }
    }
    lines
}
