//! The overview: alarms, rates, and the boundaries in a line each.

use ratatui::text::Line;

use super::boundaries;
use super::style::{Look, Tone, cut, width, wrap};
use crate::top::alarms::alarms;
use crate::top::state::State;
use crate::top::state::json::num;
use crate::top::state::overview::Overview;
use crate::top::state::server::{Rate, Server};
use crate::top::words::{bytes, count, name, ns, percent, several, spark};

/// The widths of the label and of the value of a line.
const LABEL: usize = 16;
const VALUE: usize = 12;
/// The widths of the text behind the value, and the least width of a line that also has bars.
const DETAIL: usize = 26;
/// The most threads in one line, and the share of a core from which a thread stands there.
const THREADS: usize = 4;
const IDLE: f64 = 0.005;
const WITH_BARS: usize = LABEL + VALUE + DETAIL + 12;

/// Returns the alarms, one or more lines each; one line that says so if there are none.
pub(super) fn alarm_lines(state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let all = alarms(state);
    if all.is_empty() {
        return vec![look.line(Tone::Good, " no alarms")];
    }
    let mut lines = Vec::new();
    for alarm in all {
        let tone = if alarm.bad { Tone::Bad } else { Tone::Warn };
        let parts = wrap(&alarm.words, columns.saturating_sub(4));
        for (at, part) in parts.into_iter().enumerate() {
            let mark = if at == 0 { " ! " } else { "   " };
            lines.push(look.line(tone, format!("{mark}{part}")));
        }
    }
    lines
}

/// Returns the lines of the overview, with at most `height` lines where there are more boundaries.
pub(super) fn lines(
    state: &State,
    look: Look,
    columns: usize,
    height: usize,
) -> Vec<Line<'static>> {
    let mut lines = alarm_lines(state, look, columns);
    let Some(server) = &state.server else {
        lines.push(look.line(Tone::Dim, " waiting for the first answer"));
        return lines;
    };
    lines.push(Line::default());
    lines.extend(
        figures(state, server)
            .into_iter()
            .map(|f| f.line(look, columns)),
    );
    if let Some(all) = &state.boundaries {
        lines.push(Line::default());
        let left = height.saturating_sub(lines.len());
        lines.extend(boundaries::table(all, None, look, columns, left));
    } else if state.missing.contains("/boundaries") {
        lines.push(Line::default());
        lines.push(look.line(Tone::Dim, format!(" {}", cut(boundaries::MISSING, columns))));
    }
    lines
}

/// A line of the overview.
struct Figure {
    label: &'static str,
    value: String,
    detail: String,
    /// The series of the value, for bars.
    series: Option<Rate>,
    bars: Vec<f64>,
}

impl Figure {
    fn line(&self, look: Look, columns: usize) -> Line<'static> {
        let label = look.span(Tone::Dim, format!(" {:LABEL$}", self.label));
        let value = format!("{:>VALUE$}", self.value);
        let value = look.span(Tone::Strong, value);
        let mut spans = vec![label, value];
        let room = columns.saturating_sub(1 + LABEL + VALUE + 2);
        if self.series.is_some() && columns >= WITH_BARS {
            let detail = cut(&self.detail, DETAIL);
            let pad = " ".repeat(DETAIL - width(&detail));
            spans.push(look.span(Tone::Plain, format!("  {detail}{pad}")));
            let room = room.saturating_sub(DETAIL + 2).min(60);
            let bars = spark(self.bars.iter().copied(), room);
            spans.push(look.span(Tone::Head, format!(" {bars}")));
        } else {
            let detail = cut(&self.detail, room);
            spans.push(look.span(Tone::Plain, format!("  {detail}")));
        }
        Line::from(spans)
    }
}

fn figures(state: &State, server: &Server) -> Vec<Figure> {
    let mut all = Vec::new();
    let rate = |of: Rate| server.rate(of);
    let per_s = |of: Rate| match rate(of) {
        Some(rate) => format!("{} /s", count(rate)),
        None => "- /s".into(),
    };
    let mut add = |label, value, detail, series: Option<Rate>| {
        let bars = series.map(|of| server.series(of).iter().copied().collect());
        all.push(Figure {
            label,
            value,
            detail,
            series,
            bars: bars.unwrap_or_default(),
        });
    };
    let traffic = |of| rate(of).map(|rate| format!("{}/s", bytes(rate)));
    let detail = traffic(Rate::InBytes).unwrap_or_default();
    add(
        "messages in",
        per_s(Rate::InMsgs),
        detail,
        Some(Rate::InMsgs),
    );
    let detail = traffic(Rate::OutBytes).unwrap_or_default();
    add(
        "messages out",
        per_s(Rate::OutMsgs),
        detail,
        Some(Rate::OutMsgs),
    );
    if server.num("log.syncs").is_some() {
        let syncs = rate(Rate::Syncs).filter(|syncs| *syncs > 0.0);
        let each = syncs.zip(rate(Rate::SyncNs));
        let commands = syncs.zip(rate(Rate::Commands));
        let each = each.map(|(syncs, cost)| ns(cost / syncs));
        let carried =
            commands.map(|(syncs, all)| format!(", {} each", several(all / syncs, "writes")));
        let detail = each.unwrap_or_default() + &carried.unwrap_or_default();
        add("syncs", per_s(Rate::Syncs), detail, Some(Rate::Syncs));
    }
    if let Some(overview) = state.overview.as_ref().filter(|o| o.measures_acks()) {
        let (value, detail) = match overview.acks() {
            Some(acks) => (
                ns(acks.p50_ns),
                format!(
                    "p99 {}, {} lately",
                    ns(acks.p99_ns),
                    several(acks.count, "acks")
                ),
            ),
            None => ("-".into(), "none in the last 10 s".into()),
        };
        add("publish to ack", value, detail, None);
    }
    if server.num("jetstream.stats.api.total").is_some() {
        let errors = server.num("jetstream.stats.api.errors").unwrap_or(0.0);
        let detail = format!("{} since the start", several(errors, "errors"));
        add("API requests", per_s(Rate::Requests), detail, None);
    }
    let cores = server.num("cores").filter(|n| *n > 1.0);
    match (rate(Rate::CpuSeconds), server.num("cpu")) {
        (Some(cpu), _) => {
            let detail = match cores {
                Some(cores) => format!("of one of {} cores", count(cores)),
                None => "of one core".to_owned(),
            };
            add(
                "processor",
                percent(cpu, 1.0),
                detail,
                Some(Rate::CpuSeconds),
            );
        }
        (None, Some(mean)) => {
            let detail = "of one core, as the server says".to_owned();
            add("processor", percent(mean, 100.0), detail, None);
        }
        (None, None) => {}
    }
    let threads = state.overview.as_ref().map(Overview::threads);
    let busy: Vec<String> = threads
        .iter()
        .flatten()
        .filter(|(_, cores)| *cores >= IDLE)
        .take(THREADS)
        .map(|(thread, cores)| format!("{} {}", name(thread), percent(*cores, 1.0)))
        .collect();
    if let Some(first) = threads.iter().flatten().next() {
        add(
            "busiest thread",
            percent(first.1, 1.0),
            busy.join(", "),
            None,
        );
    }
    let known = |path: &str| server.num(path);
    if let Some(memory) = known("mem") {
        let waits = known("log.waiting_bytes").filter(|n| *n > 0.0);
        let waits = waits.map(|n| format!("{} wait for the log", bytes(n)));
        add("memory", bytes(memory), waits.unwrap_or_default(), None);
    }
    if let Some(used) = known("log.used_bytes") {
        let checkpoints = known("log.checkpoint_bytes").unwrap_or(0.0);
        let free = state.overview.as_ref().and_then(Overview::disk);
        let free = free.map(|(free, all)| format!("; {} of {} free", bytes(free), bytes(all)));
        let checkpoints = format!("in the log, {} in checkpoints", bytes(checkpoints));
        let detail = checkpoints + &free.unwrap_or_default();
        add("disk", bytes(used), detail, None);
    } else if let Some(storage) = known("jetstream.stats.storage") {
        add("disk", bytes(storage), "in streams".into(), None);
    }
    if let Some(open) = known("connections") {
        let most = known("max_connections").map(|n| format!("of {}; ", count(n)));
        let ever = known("total_connections").map(|n| format!("{} since the start", count(n)));
        let detail = most.unwrap_or_default() + &ever.unwrap_or_default();
        add("connections", count(open), detail, None);
    }
    if let Some(subscriptions) = known("subscriptions") {
        add("subscriptions", count(subscriptions), String::new(), None);
    }
    if let Some(storage) = &state.storage {
        let of = |path: &str| num(storage, path).unwrap_or(0.0);
        match storage.get("disabled").is_some() {
            true => add("streams", "off".into(), "this server has none".into(), None),
            false => {
                let (consumers, messages) = (
                    several(of("consumers"), "consumers"),
                    several(of("messages"), "messages"),
                );
                let detail = format!("{consumers}; {messages}, {}", bytes(of("bytes")));
                add("streams", count(of("streams")), detail, None);
            }
        }
    }
    let held = known("log.publishers_held_back").unwrap_or(0.0);
    let stalled = known("stalled_clients").unwrap_or(0.0);
    if held + stalled > 0.0 {
        let detail = format!("times for the log, {} for slow receivers", count(stalled));
        add("publishers waited", count(held), detail, None);
    }
    all
}
