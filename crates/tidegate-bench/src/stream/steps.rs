//! Names the steps of the replication as contestants: from a server with one sync and one message for each
//! entry to our server. The table shows beside them the figures that nats-server's pull request 7355
//! published for its steps (one laptop, three nodes, `sync_interval: always`, 10 clients, 100,000 messages of
//! 1 KiB). The table compares factors relative to the first step of the same cell, because the absolute
//! figures of one disk say nothing about another disk.

use serde_json::json;
use tidegate_raft::lab::RaftStep;

use tidegate_cli::report::Row;

/// Returns the name of a step's row in the table.
pub(super) const fn name(step: RaftStep) -> &'static str {
    match step {
        RaftStep::Baseline => "(a) a sync per entry and one per message",
        RaftStep::OneWrite => "(b) without the second",
        RaftStep::Leftovers => "(c) b + leftovers",
        RaftStep::Unblocked => "(d) b + not blocked by the log",
        RaftStep::Combined => "(e) all of these",
        RaftStep::Parallel => "+ leader's sync in parallel",
        RaftStep::All => "+ anticipation",
    }
}

/// Returns the rate that the pull request published for a step, in messages a second; `None` for our own
/// steps.
const fn published(step: RaftStep) -> Option<f64> {
    match step {
        RaftStep::Baseline => Some(91.0),
        RaftStep::OneWrite => Some(584.0),
        RaftStep::Leftovers => Some(593.0),
        RaftStep::Unblocked => Some(21_964.0),
        RaftStep::Combined => Some(22_967.0),
        RaftStep::Parallel | RaftStep::All => None,
    }
}

/// Adds two factors relative to the first step to each row: the measured factor and the published one.
pub(super) fn compare(rows: &mut [Row]) {
    let of = |row: &Row| {
        let mut steps = RaftStep::STEPS.into_iter();
        steps.find(|step| row.controller.as_deref() == Some(name(*step)))
    };
    let mut all = rows.iter();
    let first = all.find(|row| of(row) == Some(RaftStep::Baseline));
    let first = first.and_then(|row| row.ops_per_s);
    for row in rows {
        if let (Some(first), Some(rate)) = (first, row.ops_per_s) {
            row.extra.insert("factor".into(), json!(rate / first));
        }
        let Some(step) = of(row) else { continue };
        row.extra.insert("step".into(), json!(step.name()));
        if let (Some(first), Some(rate)) = (published(RaftStep::Baseline), published(step)) {
            row.extra.insert("published_per_s".into(), json!(rate));
            let factor = json!(rate / first);
            row.extra.insert("published_factor".into(), factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_to_the_first_step() {
        let row = |controller: &str, ops_per_s| Row {
            controller: Some(controller.into()),
            ops_per_s: Some(ops_per_s),
            ..Row::default()
        };
        let mut rows = [
            row(name(RaftStep::Unblocked), 400.0),
            row(name(RaftStep::Baseline), 4.0),
            row(name(RaftStep::All), 2000.0),
            row("always", 8.0),
        ];
        compare(&mut rows);
        let factors = rows.each_ref().map(|row| row.extra("factor"));
        assert_eq!(factors, [100.0, 1.0, 500.0, 2.0].map(Some));
        let published = rows.each_ref().map(|row| row.extra("published_factor"));
        assert_eq!(published, [Some(21_964.0 / 91.0), Some(1.0), None, None]);
        assert_eq!(rows[0].extra["step"], "d");
    }
}
