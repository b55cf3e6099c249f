//! The pictures of the state, pure: cells of a screen, or lines of plain text.

mod boundaries;
mod cluster;
mod help;
mod lists;
mod overview;
mod style;
mod table;
#[cfg(test)]
mod tests;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use self::style::{Look, Tone, cut, width, wrap};
use super::alarms::alarms;
use super::state::{State, View};
use super::words;

/// The least screen for a picture.
const COLUMNS_MIN: u16 = 40;
const ROWS_MIN: u16 = 10;
/// The most columns of the server's name.
const NAME_MAX: usize = 20;
/// The time from which the picture mentions an open request, in seconds.
const SLOW_S: u64 = 2;

/// Draws the picture of `state` into `area`.
pub(crate) fn draw(state: &State, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let look = Look {
        color: state.settings.color,
    };
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let (columns, rows) = (area.width, area.height);
        let text = format!("{columns}x{rows} is too small: needs {COLUMNS_MIN}x{ROWS_MIN}; q ends");
        let lines: Vec<_> = wrap(&text, usize::from(area.width))
            .into_iter()
            .map(|line| look.line(Tone::Plain, line))
            .collect();
        write(&lines, area, buf);
        return;
    }
    let columns = usize::from(area.width);
    let mut top = vec![title(state, look, columns), tabs(state, look, columns)];
    if state.view != View::Overview {
        top.extend(alarm_line(state, look, columns));
    }
    write(&top, area, buf);
    let body = Rect {
        y: area.y + top.len() as u16,
        height: area.height - top.len() as u16 - 1,
        ..area
    };
    let height = usize::from(body.height);
    if state.help {
        write(&help::lines(look, columns), body, buf);
    } else {
        match state.view {
            View::Boundaries => boundaries::draw(state, look, body, buf),
            view => {
                let lines = match view {
                    View::Overview | View::Boundaries => {
                        overview::lines(state, look, columns, height)
                    }
                    View::Streams => lists::streams(state, look, columns, height),
                    View::Connections => lists::connections(state, look, columns, height),
                    View::Cluster => cluster::lines(state, look, columns, height),
                };
                write(&lines, body, buf);
            }
        }
    }
    let keys = Rect {
        y: area.bottom() - 1,
        height: 1,
        ..area
    };
    write(&[keys_line(state, look, columns)], keys, buf);
}

/// Returns the picture of all views but the lists, as plain text of at most so many columns.
pub(crate) fn text(state: &State, columns: usize) -> String {
    let look = Look { color: false };
    let mut lines = vec![title(state, look, columns), Line::default()];
    lines.extend(overview::lines(state, look, columns, usize::MAX));
    for boundary in state.boundaries.iter().flatten() {
        lines.push(Line::default());
        lines.extend(boundaries::details(boundary, look, columns));
    }
    let nodes = state
        .routes
        .as_ref()
        .is_some_and(|routes| !routes.is_empty());
    if nodes || state.directory.is_some() {
        lines.push(Line::default());
        lines.extend(cluster::lines(state, look, columns, usize::MAX));
    }
    let plain = |line: Line<'_>| line.to_string().trim_end().to_owned() + "\n";
    lines.into_iter().map(plain).collect()
}

/// Writes the lines from the top of `area`, as far as they fit.
fn write(lines: &[Line<'_>], area: Rect, buf: &mut Buffer) {
    for (row, line) in area.rows().zip(lines) {
        buf.set_line(row.x, row.y, line, row.width);
    }
}

/// Returns the first line: the server at the left, the state of the picture at the right.
fn title(state: &State, look: Look, columns: usize) -> Line<'static> {
    let mut said = format!(" tidegate top {}", words::name(&state.settings.url));
    if let Some(server) = &state.server {
        // A server without a name of its own has its long id for a name.
        let name = server
            .text("server_name")
            .map(|n| cut(&words::name(n), NAME_MAX));
        let version = server.text("version").map(words::name);
        for part in [name, version].into_iter().flatten() {
            said += &format!(" {part}");
        }
    }
    let server = state.server.as_ref();
    if let Some(up) = server.and_then(|s| s.text("uptime")) {
        said += &format!(", up {}", words::name(up));
    }
    let (tone, status) = status(state);
    let status = cut(&status, columns);
    let room = columns - width(&status);
    let left = cut(&said, room.saturating_sub(1));
    let gap = " ".repeat(room - width(&left));
    Line::from(vec![
        look.span(Tone::Strong, left),
        Span::raw(gap),
        look.span(tone, status),
    ])
}

/// Says how fresh the picture is.
fn status(state: &State) -> (Tone, String) {
    if let Some(lost) = &state.lost {
        let since = words::since(state.now, lost.since);
        return (Tone::Bad, format!("no answer for {since} "));
    }
    if let Some(at) = state.paused {
        let since = words::since(state.now, at);
        return (Tone::Warn, format!("paused for {since} "));
    }
    if let Some((request, since)) = state.waits_for()
        && since.as_secs() >= SLOW_S
    {
        let since = words::span(since.as_secs_f64());
        return (
            Tone::Warn,
            format!("waiting for {} for {since} ", request.name()),
        );
    }
    let now = state.server.as_ref().and_then(|server| server.text("now"));
    let time = now.and_then(|now| now.get(11..19));
    (
        Tone::Dim,
        time.map(|t| format!("{} ", words::name(t)))
            .unwrap_or_default(),
    )
}

fn tabs(state: &State, look: Look, columns: usize) -> Line<'static> {
    let names = |view: View| match columns >= 66 || view == state.view {
        true => view.name(),
        false => "",
    };
    let mut spans = vec![Span::raw(" ")];
    for (at, view) in View::ALL.into_iter().enumerate() {
        let tone = match view == state.view {
            true => Tone::Chosen,
            false => Tone::Plain,
        };
        let text = format!(" {} {}", at + 1, names(view));
        spans.push(look.span(tone, format!("{} ", text.trim_end())));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

/// Returns the line with the worst alarm, if there is one.
fn alarm_line(state: &State, look: Look, columns: usize) -> Option<Line<'static>> {
    let all = alarms(state);
    let worst = all.first()?;
    let more = match all.len() {
        1 => String::new(),
        n => format!(" (and {} more: 1)", n - 1),
    };
    let room = columns.saturating_sub(3 + more.len());
    let tone = if worst.bad { Tone::Bad } else { Tone::Warn };
    Some(look.line(tone, format!(" ! {}{more}", cut(&worst.words, room))))
}

/// Returns the line of keys: those that fit, the most important ones first.
fn keys_line(state: &State, look: Look, columns: usize) -> Line<'static> {
    if state.typed.is_some() {
        return look.line(Tone::Dim, " enter search  esc cancel");
    }
    let mut keys: Vec<&str> = vec!["q end", "? help", "1-5 tab views"];
    keys.push(match state.paused {
        Some(_) => "p go on",
        None => "p pause",
    });
    match state.view {
        View::Streams | View::Connections => {
            keys.extend(["s sort", "r reverse", "/ search"]);
            if state.inside.is_some() || !state.search().is_empty() {
                keys.push("esc back");
            } else if state.view == View::Streams {
                keys.push("enter consumers");
            }
        }
        View::Boundaries => keys.extend(["up/down choose", "+/- time"]),
        View::Overview | View::Cluster => {}
    }
    let mut text = String::new();
    for key in keys {
        let next = format!(" {key} ");
        if width(&text) + width(&next) <= columns {
            text += &next;
        }
    }
    look.line(Tone::Dim, text)
}
