//! The boundaries: a table, and the decisions of one of them over time and in words.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget as _};

use super::style::{Look, Tone, cut, wrap};
use super::table::{Table, left, right};
use crate::top::state::State;
use crate::top::state::boundaries::{Boundary, Forecast, History};
use crate::top::words::{bytes, count, name, ns, percent, several, span};

/// The text for a server without `/boundaries`.
pub(super) const MISSING: &str =
    "this server has no /boundaries: it is no Tidegate server, or an older one";
/// The largest limit that the chart tells from larger ones, as a power of two.
const POWER_MAX: f64 = 24.0;
/// The least and the greatest height of the chart.
const CHART_MIN: usize = 7;
const CHART_MAX: usize = 14;

/// Returns the table of boundaries with at most `height` lines.
pub(super) fn table(
    all: &[Boundary],
    selected: Option<usize>,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let known = |value: Option<f64>| value.map_or_else(|| "-".into(), count);
    let row = |at: usize| {
        let b: &Boundary = &all[at];
        let items = b.rate_per_s.map(|rate| format!("{} /s", count(rate)));
        let running = match (b.running, b.in_flight) {
            (Some(running), Some(most)) => format!("{} of {}", count(running), count(most)),
            _ => "-".into(),
        };
        vec![
            name(&b.name),
            b.limit.map_or_else(|| "-".into(), |n| sized(b, n)),
            known(mean(b)),
            items.unwrap_or_else(|| "-".into()),
            b.reason.as_deref().map_or_else(|| "-".into(), name),
            running,
            known(b.batches),
            regret_short(b),
            name(&b.unit),
        ]
    };
    let table = Table {
        columns: &[
            left("boundary", 0),
            right("limit", 0),
            right("mean batch", 1),
            right("items", 2),
            left("reason", 3),
            right("running", 5),
            right("batches", 4),
            right("regret each", 6),
            left("unit", 7),
        ],
        rows: all.len(),
        selected,
        row,
    };
    table.lines(look, columns, height)
}

/// Draws the whole view.
pub(super) fn draw(state: &State, look: Look, area: Rect, buf: &mut Buffer) {
    let columns = usize::from(area.width);
    let height = usize::from(area.height);
    let Some((at, chosen)) = state.chosen_boundary() else {
        let text = match state.missing.contains("/boundaries") {
            true => MISSING,
            false => "no boundaries yet",
        };
        super::write(
            &[look.line(Tone::Dim, format!(" {}", cut(text, columns)))],
            area,
            buf,
        );
        return;
    };
    let all = state.boundaries.as_deref().unwrap_or_default();
    let most = (height / 3).max(4);
    let mut lines = table(all, Some(at), look, columns, most.min(all.len() + 1));
    lines.push(Line::default());
    let details = details(chosen, look, columns);
    let room = height.saturating_sub(lines.len() + details.len());
    let history = chosen.history.as_ref().filter(|_| room >= CHART_MIN);
    if let Some(history) = history {
        let rows = room.min(CHART_MAX);
        let top = lines.len();
        let chart = Rect {
            y: area.y + top as u16,
            height: rows as u16,
            ..area
        };
        lines.extend(std::iter::repeat_n(Line::default(), rows));
        lines.extend(details);
        super::write(&lines, area, buf);
        draw_chart(history, chosen, state.window, look, chart, buf);
    } else {
        lines.extend(details);
        super::write(&lines, area, buf);
    }
}

/// Returns the decisions and costs of one boundary in words.
pub(super) fn details(b: &Boundary, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |label: &str, text: String| {
        let room = columns.saturating_sub(LABEL + 2);
        for (at, part) in wrap(&text, room).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            let label = look.span(Tone::Dim, format!(" {label:LABEL$}"));
            lines.push(Line::from(vec![label, look.span(Tone::Plain, part)]));
        }
    };
    let unit = name(&b.unit);
    let now = now_words(b, &unit);
    say(&cut(&name(&b.name), LABEL - 1), now);
    if b.infeasible {
        say(
            "objective",
            "cannot be met at the present rate and costs".into(),
        );
    } else if let Some(missed) = b.infeasible_ns.filter(|n| *n > 0.0) {
        say("objective", format!("could not be met for {}", ns(missed)));
    }
    let (reasons, over) = match &b.history {
        Some(history) => (
            &history.by_reason,
            format!(", of the last {} s", history.limit.len()),
        ),
        None => (&b.by_reason, ", of all batches".into()),
    };
    if !reasons.is_empty() {
        let all: f64 = reasons.iter().map(|(_, n)| n).sum();
        let share = |(reason, n): &(String, f64)| format!("{} {}", name(reason), percent(*n, all));
        let shares: Vec<_> = reasons.iter().take(REASONS).map(share).collect();
        say("cut because", shares.join(", ") + &over);
    }
    match &b.model {
        Some(model) => {
            let about = |err: Option<f64>| match err {
                Some(err) => format!(" \u{b1} {}", ns(err)),
                None => String::new(),
            };
            // The cost of one byte would be a fraction of a nanosecond.
            let (one, many) = match b.in_bytes {
                true => ("KiB".to_owned(), 1024.0),
                false => (singular(&unit), 1.0),
            };
            let (a, each) = (ns(model.a_ns), ns(model.b_ns * many));
            let a_err = about(model.a_err_ns);
            let each_err = about(model.b_err_ns.map(|err| err * many));
            let noise = model
                .noise
                .map(|n| format!("; one batch scatters by {}", percent(n, 1.0)));
            let noise = noise.unwrap_or_default();
            say(
                "a batch costs",
                format!("{a}{a_err} and {each}{each_err} for each {one}{noise}"),
            );
        }
        None => say(
            "a batch costs",
            "not known: too few batches, or the controller fits no line".into(),
        ),
    }
    if !b.sizes.is_empty() {
        let each = |size: &crate::top::state::boundaries::Size| {
            format!("{}: {}", sized(b, size.items), ns(size.cost_ns))
        };
        let all: Vec<_> = b.sizes.iter().map(each).collect();
        say(
            "measured",
            format!("{} (cost of a batch by its size)", all.join(", ")),
        );
    }
    if let Some(words) = regret_words(b, &unit) {
        say("regret", words);
    }
    let learning = learning(b);
    if !learning.is_empty() {
        say("controller", learning);
    }
    for (rule, forecast) in &b.forecasts {
        say(rule_words(rule), forecast_words(forecast, &unit));
    }
    lines
}

/// The width of a label before a text, and the most reasons that the text names.
const LABEL: usize = 16;
const REASONS: usize = 6;

fn now_words(b: &Boundary, unit: &str) -> String {
    let of = if b.in_bytes { "" } else { unit };
    let limit = b.limit.map(|n| format!("takes up to {} {of}", sized(b, n)));
    let limit = limit.map(|text| format!("{} a batch", text.trim_end()));
    let mut said = vec![limit.unwrap_or_else(|| format!("takes {unit}"))];
    if let Some(mean) = mean(b) {
        said.push(format!("{} {unit} at the mean", count(mean)));
    }
    if let Some(most) = b.items_max {
        said.push(format!("{} at most so far", count(most)));
    }
    if let Some(rate) = b.rate_per_s {
        said.push(format!("{} {unit} arrive a second", count(rate)));
    }
    let reason = b.reason.as_deref().map(|reason| match meaning(reason) {
        Some(meaning) => format!("; {reason}: {meaning}"),
        None => format!("; {}", name(reason)),
    });
    said.join(", ") + &reason.unwrap_or_default()
}

/// Returns the mean number of items in a batch: of the last seconds if the server told a history.
fn mean(b: &Boundary) -> Option<f64> {
    let recent = b.history.as_ref().and_then(|history| history.recent_items);
    let ever = || b.items.zip(b.batches).filter(|(_, batches)| *batches > 0.0);
    recent.or_else(|| ever().map(|(items, batches)| items / batches))
}

/// Formats a size in the unit of the boundary's limit.
fn sized(b: &Boundary, size: f64) -> String {
    match b.in_bytes {
        true => bytes(size),
        false => count(size),
    }
}

fn regret_short(b: &Boundary) -> String {
    let each = b.regret_ns.zip(b.items).filter(|(_, items)| *items > 0.0);
    each.map_or_else(|| "-".into(), |(regret, items)| ns(regret / items))
}

/// Says what the waits of the controller have cost.
fn regret_words(b: &Boundary, unit: &str) -> Option<String> {
    let regret = b.regret_ns?;
    let waits = b.waits.unwrap_or(0.0);
    if waits == 0.0 && regret == 0.0 {
        return Some("none: the controller never held a batch back".into());
    }
    let total = span_or_ns(regret);
    let items = b.items.filter(|items| *items > 0.0);
    let each = items.map(|items| {
        format!(
            ", {} for each of {} {unit}",
            ns(regret / items),
            count(items)
        )
    });
    let vain = b
        .waits_vain
        .map(|vain| format!(", {} of them in vain", count(vain)));
    let (each, vain) = (each.unwrap_or_default(), vain.unwrap_or_default());
    let waits = count(waits);
    Some(format!(
        "{total} of waiting that a greedy rule avoids{each}; {waits} waits{vain}"
    ))
}

fn span_or_ns(value: f64) -> String {
    match value >= 60e9 {
        true => span(value / 1e9),
        false => ns(value),
    }
}

fn learning(b: &Boundary) -> String {
    let mut said = Vec::new();
    if b.frozen {
        said.push("frozen: it learns nothing".to_owned());
    }
    if let Some(resets) = b.resets.filter(|n| *n > 0.0) {
        said.push(format!(
            "costs changed {} times, and were learned again",
            count(resets)
        ));
    }
    if let Some(clipped) = b.clipped.filter(|n| *n > 0.0) {
        said.push(format!("{} outliers count for less", count(clipped)));
    }
    said.join("; ")
}

fn rule_words(rule: &str) -> &'static str {
    match rule {
        "now" => "as now",
        "greedy" => "if greedy",
        "half" => "half the limit",
        _ => "twice the limit",
    }
}

fn forecast_words(f: &Forecast, unit: &str) -> String {
    let batches = f.batches_per_s.map(|n| format!("{} batches/s", count(n)));
    let items = f.batch_items.map(|n| format!("of {}", several(n, unit)));
    let said: Vec<_> = [batches, items].into_iter().flatten().collect();
    let cost = f.batch_ns.map(|cost| format!("{} each", ns(cost)));
    let most = f
        .items_per_s_max
        .map(|n| format!("at most {} {unit}/s", count(n)));
    let said = match said.is_empty() {
        true => "batches grow without end".into(),
        false => said.join(" "),
    };
    let said: Vec<_> = [Some(said), cost, most].into_iter().flatten().collect();
    said.join(", ")
}

fn singular(unit: &str) -> String {
    match unit.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => unit.strip_suffix('s').unwrap_or(unit).to_owned(),
    }
}

/// Returns the meaning of a reason of the engine.
fn meaning(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "drained" => "the batch took all that waited",
        "limit" => "a fixed limit or a simple rule cut the batch",
        "efficiency" => "a larger batch would hardly cost less for each item",
        "memory" => "the hard bound cut the batch",
        "latency" => "the latency objective cut the batch",
        "convexity" => "larger batches were measured to be worse",
        "drain_chunk" => "a backlog is cut into equal parts, for the least mean latency",
        "probe" => "a batch of another size, to learn its cost",
        "anticipate" => "the batch waits for callers that are about to return",
        "pace" => "the batch waits, because the objective puts a price on a flush",
        "age" => "the oldest item has waited as long as it may",
        "linger" => "the wait for company ended",
        "blocking" => "the producer was about to block",
        "asked" => "a flush was asked for",
        "closing" => "the boundary is closing",
        "oversized" => "one item is larger than the limit on bytes",
        "backlog" => "the backlog grows, so the limit is larger than usual",
        "shared" => "several batches share the backlog",
        _ => return None,
    })
}

/// Draws the limit and the mean batch over time, on a logarithmic axis.
fn draw_chart(
    history: &History,
    b: &Boundary,
    window: u16,
    look: Look,
    area: Rect,
    buf: &mut Buffer,
) {
    let power = |value: f64| value.max(1.0).log2().min(POWER_MAX);
    let span = f64::from(window);
    let points = |values: &[f64]| -> Vec<(f64, f64)> {
        let seen = values.iter().zip(&history.age_s);
        let seen = seen.filter(|(value, age)| **value > 0.0 && **age <= span);
        seen.map(|(value, age)| (span - age, power(*value)))
            .collect()
    };
    let (limits, batches) = (points(&history.limit), points(&history.batch));
    let tallest = limits
        .iter()
        .chain(&batches)
        .map(|(_, y)| *y)
        .fold(1.0, f64::max);
    let lowest = limits
        .iter()
        .chain(&batches)
        .map(|(_, y)| *y)
        .fold(tallest, f64::min);
    // Even powers, so that the label in the middle is a whole number.
    let bottom = (lowest / 2.0).floor() * 2.0;
    let top = ((tallest / 2.0).ceil() * 2.0).max(bottom + 2.0);
    let axis = look.style(Tone::Dim);
    let label = |power: f64| look.span(Tone::Dim, sized(b, power.exp2()));
    let unit = if b.in_bytes {
        "bytes".into()
    } else {
        name(&b.unit)
    };
    let title = format!("limit (line) and mean batch (dots) in {unit}, on a logarithmic scale");
    let series = [
        Dataset::default()
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(look.style(Tone::Warn))
            .data(&limits),
        Dataset::default()
            .marker(Marker::Dot)
            .graph_type(GraphType::Scatter)
            .style(look.style(Tone::Good))
            .data(&batches),
    ];
    let times = [format!("-{window} s"), "now".into()].map(|text| look.span(Tone::Dim, text));
    let inner = Rect {
        y: area.y + 1,
        height: area.height.saturating_sub(1),
        ..area
    };
    super::write(&[look.line(Tone::Dim, format!(" {title}"))], area, buf);
    Chart::new(series.to_vec())
        .x_axis(
            Axis::default()
                .style(axis)
                .bounds([0.0, span])
                .labels(times),
        )
        .y_axis(Axis::default().style(axis).bounds([bottom, top]).labels([
            label(bottom),
            label((bottom + top) / 2.0),
            label(top),
        ]))
        .legend_position(None)
        .render(inner, buf);
}
