//! Formats the detailed report of one cell of the arena, for the developer of a controller.

use std::fmt::Write as _;

use tidegate::controller::Controller as _;
use tidegate::sim::arena::{Cell, Effort, SEEDS};
use tidegate_cli::report::Table;

use super::contest::{Contestant, Played};
use super::{backlog, matrix};

/// Formats the report of one cell: the simulated world, the figures by which it satisfies the premises of the
/// default controller, the best settings, every contestant on the first seed, and the backlog by mode.
pub(super) fn detail(cell: &Cell, played: &Played, effort: Effort) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{:.3?}", cell.world);
    let premises = &cell.premises;
    let _ = writeln!(
        text,
        "capacity {:.3} items/ms, arrivals {:.3} items/ms, cv {:.2}, slack {:.2}; L = {:.0} batches of the best setting, \
         {:.1?} ms by mode; modes end at {:.1?} ms",
        premises.capacity,
        cell.rate(),
        premises.cv,
        premises.slack,
        premises.learn_batches,
        premises.learn_ms,
        premises.ends_ms,
    );
    let [throughput, mean, p99] = &played.settings;
    let _ = writeln!(
        text,
        "best settings: throughput {throughput}, mean {mean}, p99 {p99}\n"
    );
    let mut table = Table::new([
        "",
        "items/ms",
        "mean ms",
        "p99 ms",
        "batch ms",
        "batch max",
        "in flight",
        "backlog max",
        "throughput",
        "mean",
        "p99",
    ]);
    let mut snapshot = None;
    for scores in &played.contestants {
        let Ok(mut controller) = scores.who.controller(&cell.world) else {
            continue;
        };
        let o = cell.play(SEEDS[0], effort, &mut controller);
        if scores.who == Contestant::Ours {
            snapshot = Some(controller.snapshot());
        }
        let shown = |share: Option<f64>| share.map(matrix::share).unwrap_or_default();
        table.row([
            scores.who.name().into(),
            format!("{:.3}", o.throughput),
            format!("{:.3}", o.mean),
            format!("{:.3}", o.p99),
            format!("{:.3}", o.batch_ms),
            o.batch_max.to_string(),
            format!("{:.1}", o.in_flight),
            o.backlog_max.to_string(),
            shown(scores.throughput),
            shown(scores.mean),
            shown(scores.p99),
        ]);
    }
    text.push_str(&table.print());
    if let Some(s) = snapshot {
        let _ = writeln!(
            text,
            "\nours at the end: limit {}, binding {}, {} resets, {:.0} items/s, batches {:?}",
            s.limit,
            s.binding.map_or("nothing", |reason| reason.as_str()),
            s.resets,
            s.rate_per_s,
            s.counts.by_reason,
        );
    }
    if backlog::has_promise(cell)
        && let Ok(judged) = backlog::judge(cell)
    {
        let _ = writeln!(text, "{}", backlog::lines(&judged));
    }
    text
}
