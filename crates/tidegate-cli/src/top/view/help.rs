//! The help: all keys.

use ratatui::text::Line;

use super::style::{Look, Tone, cut};

const KEYS: [(&str, &str); 13] = [
    (
        "1 to 5",
        "show the overview, boundaries, streams, connections, cluster",
    ),
    ("tab", "show the next view; shift and tab: the view before"),
    (
        "p, space",
        "pause: keep the picture, and ask the server for nothing",
    ),
    (
        "up, down, k, j",
        "choose a boundary, a stream, a connection",
    ),
    ("page up, page down", "go twenty rows on"),
    ("home, end, g, G", "go to the first or the last row"),
    ("s, r", "sort by the next column; reverse the order"),
    ("/", "search the names; an empty search shows all"),
    ("enter", "show the consumers of the stream"),
    ("esc", "leave the search, or the consumers"),
    ("+, -", "show more or less time in the chart of boundaries"),
    ("?, h", "show or leave this help"),
    ("q, ctrl-c", "end"),
];

/// Returns the lines of the help.
pub(super) fn lines(look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.line(Tone::Strong, " Keys"), Line::default()];
    for (keys, does) in KEYS {
        let room = columns.saturating_sub(22);
        let does = cut(does, room);
        lines.push(Line::from(vec![
            look.span(Tone::Head, format!(" {keys:20}")),
            look.span(Tone::Plain, does),
        ]));
    }
    lines
}
