//! The lists of streams, consumers and connections.

use ratatui::text::Line;

use super::style::{Look, Tone, cut};
use super::table::{Column, Table, left, right};
use crate::top::state::State;
use crate::top::state::browse::Browse;
use crate::top::state::lists::{Connection, Consumer, Row, Stream};
use crate::top::words::{bytes, count, name, several};

const STREAMS: [Column; 8] = [
    left("stream", 0),
    right("messages", 0),
    right("bytes", 1),
    right("new/s", 2),
    right("consumers", 3),
    right("subjects", 6),
    right("copies", 5),
    left("leader", 4),
];
const CONSUMERS: [Column; 7] = [
    left("consumer", 0),
    right("pending", 0),
    right("unacked", 1),
    right("delivered/s", 2),
    right("redelivered", 3),
    right("pulls", 4),
    left("filter", 5),
];
const CONNECTIONS: [Column; 11] = [
    left("client", 0),
    right("number", 1),
    left("address", 3),
    right("msgs/s", 0),
    right("in", 2),
    right("out", 2),
    right("pending", 4),
    right("subs", 6),
    left("user", 5),
    left("library", 8),
    right("idle", 7),
];

/// Returns the lines of the view of streams, or of the consumers of the opened stream.
pub(super) fn streams(
    state: &State,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let disabled = state
        .storage
        .as_ref()
        .is_some_and(|s| s.get("disabled").is_some());
    if disabled {
        return vec![look.line(Tone::Dim, " this server has no streams")];
    }
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".into(), count);
    if let Some(inside) = &state.inside {
        let list = &inside.consumers;
        let row = |c: &Consumer| {
            vec![
                name(&c.name),
                count(c.pending),
                count(c.unacknowledged),
                rate(list.rate(c)),
                count(c.redelivered),
                count(c.waiting),
                c.filter.as_deref().map(name).unwrap_or_default(),
            ]
        };
        let of = format!(" of {}", name(inside.stream()));
        if inside.gone {
            let text = format!(" there is no stream {} any more", name(inside.stream()));
            return vec![look.line(Tone::Warn, cut(&text, columns))];
        }
        let of = ("consumers", of.as_str());
        return browsed(state, list, of, &CONSUMERS, row, look, columns, height);
    }
    let list = &state.streams;
    let row = |s: &Stream| {
        let copies = match s.behind {
            0 => (s.copies + 1).to_string(),
            behind => format!("{}, {behind} behind", s.copies + 1),
        };
        vec![
            name(&s.name),
            count(s.messages),
            bytes(s.bytes),
            rate(list.rate(s)),
            count(s.consumers),
            s.subjects.map(count).unwrap_or_default(),
            copies,
            s.leader.as_deref().map(name).unwrap_or_default(),
        ]
    };
    browsed(
        state,
        list,
        ("streams", ""),
        &STREAMS,
        row,
        look,
        columns,
        height,
    )
}

/// Returns the lines of the view of connections.
pub(super) fn connections(
    state: &State,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let list = &state.connections;
    let row = |c: &Connection| {
        let client = match c.name.is_empty() {
            true => "(no name)".into(),
            false => name(&c.name),
        };
        vec![
            client,
            name(&c.cid),
            name(&c.address),
            list.rate(c).map_or_else(|| "-".into(), count),
            count(c.in_msgs),
            count(c.out_msgs),
            bytes(c.pending_bytes),
            count(c.subscriptions),
            c.user.as_deref().map(name).unwrap_or_default(),
            name(&c.library),
            name(&c.idle),
        ]
    };
    browsed(
        state,
        list,
        ("connections", ""),
        &CONNECTIONS,
        row,
        look,
        columns,
        height,
    )
}

#[expect(
    clippy::too_many_arguments,
    reason = "the list, its words and its place"
)]
fn browsed<R: Row>(
    state: &State,
    list: &Browse<R>,
    of: (&str, &str),
    columns_of: &[Column],
    row: impl Fn(&R) -> Vec<String>,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = vec![look.line(Tone::Dim, cut(&extent(list, of), columns))];
    if let Some(typed) = &state.typed {
        let text = format!(" search: {}_", name(typed));
        lines.push(look.line(Tone::Strong, cut(&text, columns)));
    }
    let rows = list.rows();
    if rows.is_empty() {
        let text = match list.waits() {
            true if state.paused.is_some() => " not asked for: the picture is paused",
            true => " waiting for the server",
            false if list.search().is_empty() => " none",
            false if list.extent().seen.is_some() => " none fits the search so far",
            false => " none fits the search",
        };
        lines.push(look.line(Tone::Dim, text));
        return lines;
    }
    let table = Table {
        columns: columns_of,
        rows: rows.len(),
        selected: Some(list.selected()),
        row: |at: usize| row(&rows[at]),
    };
    let room = height.saturating_sub(lines.len());
    lines.extend(table.lines(look, columns, room));
    lines
}

/// Says which part of a list the rows are, in which order.
fn extent<R: Row>(list: &Browse<R>, (things, of): (&str, &str)) -> String {
    let extent = list.extent();
    let (order, descending) = list.order();
    let total = extent.total.map(|n| n as f64);
    let first = extent.before as f64 + 1.0;
    let last = extent.before as f64 + extent.kept as f64;
    let mut text = match (extent.matched, total) {
        (Some(matched), _) => {
            let kept = extent.kept as f64;
            let part = match (matched as f64) > kept {
                true => format!("the first {} of ", count(kept)),
                false => String::new(),
            };
            let search = name(list.search());
            let matched = count(matched as f64);
            format!(" {things}{of} with `{search}`: {part}{matched}")
        }
        (None, Some(total)) if total > extent.kept as f64 => {
            format!(
                " {things}{of}: {} to {} of {}",
                count(first),
                count(last),
                count(total)
            )
        }
        (None, _) => format!(" {}", several(extent.kept as f64, things)) + of,
    };
    text += &match descending {
        true => format!(", by {order}, greatest first"),
        false => format!(", by {order}"),
    };
    if let Some(seen) = extent.seen {
        let total = total.unwrap_or(seen as f64);
        let seen = count((seen as f64).min(total));
        text += &format!("; {seen} of {} read so far", count(total));
    } else if list.waits() && extent.kept > 0 {
        text += "; waiting for the server";
    }
    text
}
