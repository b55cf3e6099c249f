//! Formats the table of a cell of the bench `handlers`, and the verdict over all cells, with the losses of
//! the library first. Pure.

use std::fmt::Write as _;

use tidegate_cli::report::{Table, count, number};

use super::outcome::{Outcome, Played, Row};
use super::setting::System;
use crate::compare::Interval;
use crate::rounds::{median, quantile};

/// The bound on the library's ratio to the best fixed setting, below which the library loses a cell: it loses
/// if the whole interval of the ratio lies below the bound.
const LOST: f64 = 0.9;
/// The goal for the median, over all cells, of the library's ratio to the best fixed setting.
const WANTED: f64 = 0.95;
/// The greatest width of the ratio's interval with which a cell counts as resolved, as a share of the ratio's
/// median. The ratio is that of the library to the best fixed setting.
const RESOLVED: f64 = 0.05;

/// Formats one cell as a table for the user, with a row for every contestant.
pub(super) fn cell_table(played: &Played) -> String {
    let mut table = Table::new([
        "",
        "ops/s",
        "mean us",
        "p50 us",
        "p99 us",
        "cold ops/s",
        "batch mean",
        "cpu us/op",
        "ours / it [95 %]",
        "",
    ]);
    for row in &played.rows {
        let of = |figure: fn(&Outcome) -> f64| median(row.rounds.iter().map(figure).collect());
        let text =
            |value: Option<f64>, form: fn(f64) -> String| value.map(form).unwrap_or_default();
        let ratios = ratios_to(played, row);
        let mut name = row.system.clone();
        if let Some(version) = &row.version {
            let _ = write!(name, " {version}");
        }
        if row.system != System::Greedy.name() {
            let _ = write!(name, " ({})", row.setting);
        }
        table.row([
            name,
            text(of(|o| o.ops_per_s), count),
            text(of(|o| o.mean_us), number),
            text(of(|o| o.p50_us), number),
            text(of(|o| o.p99_us), number),
            text(of(|o| o.cold_ops_per_s), count),
            text(of(|o| o.batch_mean), number),
            text(of(|o| o.cpu_us), number),
            shown(&ratios),
            note(row),
        ]);
    }
    let mut text = played.cell.clone();
    if let Some(per_s) = played.offered_per_s {
        let _ = write!(
            text,
            ", {} arrivals/s; ratios are of mean latency",
            count(per_s)
        );
    }
    let best = shown(&played.against_best());
    let times = shown(&played.p99_times_best());
    let _ = writeln!(
        text,
        " ({:.0} s)\n{}",
        played.wall_s,
        table.print().trim_end()
    );
    let _ = writeln!(
        text,
        "best setting: ours / it {best}; p99 {times} times its"
    );
    text
}

/// Returns the ratios of the library's figure to the figure of this row's contestant, one ratio for each
/// round.
fn ratios_to(played: &Played, row: &Row) -> Vec<f64> {
    if row.system == System::Ours.name() || row.note.is_some() {
        return Vec::new();
    }
    let score = played.score();
    let ours = played
        .row(System::Ours)
        .map_or(&[][..], |ours| &ours.rounds);
    let rounds = ours.iter().zip(&row.rounds);
    rounds
        .map(|(ours, other)| score(ours) / score(other))
        .collect()
}

fn note(row: &Row) -> String {
    if let Some(note) = &row.note {
        return note.clone();
    }
    match row.rounds.iter().filter(|outcome| outcome.overrun).count() {
        0 => String::new(),
        rounds => format!("overrun in {rounds} of {} rounds", row.rounds.len()),
    }
}

/// Formats the median of ratios with its interval, or the median alone if the rounds are too few for an
/// interval.
fn shown(ratios: &[f64]) -> String {
    match (Interval::of(ratios), median(ratios.to_vec())) {
        (Some(of), _) => format!("{:.2} [{:.2}, {:.2}]", of.median, of.low, of.high),
        (None, Some(median)) => format!("{median:.2}"),
        (None, None) => String::new(),
    }
}

/// Formats the verdict over all `cells` of a run, for the user.
pub(super) fn verdict(cells: &[Played]) -> String {
    let best: Vec<(&Played, Vec<f64>)> = with_ratios(cells, Played::against_best);
    let mut text = String::new();
    losses(&mut text, &best);
    rivals_ahead(&mut text, cells);
    unresolved(&mut text, &best);
    if !best.is_empty() {
        text.push('\n');
        text.push_str(&summary(cells, &best));
    }
    if let Some(middle) = median(medians(&best)) {
        let met = if middle >= WANTED { "met" } else { "not met" };
        let _ = writeln!(
            text,
            "ours / best setting, median over {} cells: {middle:.3} (wanted: {WANTED}): {met}",
            best.len()
        );
    }
    for (loop_, is_open) in [("closed", false), ("open", true)] {
        let of_kind: Vec<Played> = cells
            .iter()
            .filter(|c| c.is_open() == is_open)
            .cloned()
            .collect();
        let times = medians(&with_ratios(&of_kind, Played::p99_times_best));
        if let (Some(middle), Some(most)) = (median(times.clone()), quantile(times, 0.95)) {
            let _ = writeln!(
                text,
                "p99 in {loop_} loops: {middle:.2} times the best setting's in the median of cells, {most:.2} at \
                 the 95th percentile"
            );
        }
    }
    failures(&mut text, cells);
    text
}

fn with_ratios(cells: &[Played], ratios: impl Fn(&Played) -> Vec<f64>) -> Vec<(&Played, Vec<f64>)> {
    let all = cells.iter().map(|played| (played, ratios(played)));
    all.filter(|(_, ratios)| !ratios.is_empty()).collect()
}

fn medians(cells: &[(&Played, Vec<f64>)]) -> Vec<f64> {
    cells
        .iter()
        .filter_map(|(_, ratios)| median(ratios.clone()))
        .collect()
}

/// Lists the cells that the library loses, because the whole interval of the ratio lies below the bound.
fn losses(text: &mut String, best: &[(&Played, Vec<f64>)]) {
    let mut lost: Vec<_> = best
        .iter()
        .filter_map(|(played, ratios)| Some((played, Interval::of(ratios)?)))
        .filter(|(_, of)| of.high < LOST)
        .collect();
    lost.sort_by(|(_, a), (_, b)| a.median.total_cmp(&b.median));
    let _ = writeln!(
        text,
        "where we lose (interval of ours / best setting wholly below {LOST}): {} of {} cells",
        lost.len(),
        best.len()
    );
    for (played, of) in lost {
        let _ = writeln!(
            text,
            "  {}: {:.2} [{:.2}, {:.2}]",
            played.cell, of.median, of.low, of.high
        );
    }
    if best
        .iter()
        .any(|(_, ratios)| Interval::of(ratios).is_none())
    {
        let _ = writeln!(
            text,
            "  (fewer than six rounds give no interval, so that none of those cells counts)"
        );
    }
}

/// Lists the cells in which a rival's median figure is better than the library's, so that no loss stays
/// hidden.
fn rivals_ahead(text: &mut String, cells: &[Played]) {
    let mut ahead = Vec::new();
    for played in cells {
        for rival in System::RIVALS {
            let ratios = played.against(rival);
            if let Some(middle) = median(ratios.clone()).filter(|middle| *middle < 1.0) {
                ahead.push((middle, played, rival, ratios));
            }
        }
    }
    ahead.sort_by(|a, b| a.0.total_cmp(&b.0));
    let cells_ahead = cells
        .iter()
        .filter(|c| ahead.iter().any(|a| a.1.cell == c.cell))
        .count();
    let _ = writeln!(
        text,
        "where a rival is ahead: {cells_ahead} of {} cells",
        cells.len()
    );
    for (_, played, rival, ratios) in ahead {
        let clearly = Interval::of(&ratios).is_some_and(|of| of.high < 1.0);
        let _ = writeln!(
            text,
            "  {}: ours / {} {}{}",
            played.cell,
            rival.name(),
            shown(&ratios),
            if clearly { ", clearly" } else { "" }
        );
    }
}

/// Lists the cells in which the rounds differ too much for a verdict on a few per cent.
fn unresolved(text: &mut String, best: &[(&Played, Vec<f64>)]) {
    let wide = |ratios: &[f64]| Interval::of(ratios).is_some_and(|of| of.width() > RESOLVED);
    let cells: Vec<&str> = best
        .iter()
        .filter(|(_, ratios)| wide(ratios))
        .map(|(played, _)| &played.cell[..])
        .collect();
    if !cells.is_empty() {
        let _ = writeln!(
            text,
            "not resolved to {:.0} %: {} of {} cells: {}",
            RESOLVED * 100.0,
            cells.len(),
            best.len(),
            cells.join(", ")
        );
    }
}

/// Formats the spread over cells of the library's ratio to each contestant, as a table.
fn summary(cells: &[Played], best: &[(&Played, Vec<f64>)]) -> String {
    let mut table = Table::new([
        "ours / it",
        "cells",
        "median",
        "5th percentile",
        "worst",
        "in",
        "it is clearly ahead",
        "we are clearly ahead",
    ]);
    let mut line = |name: &str, of: &[(&Played, Vec<f64>)]| {
        let all = medians(of);
        let worst = of.iter().zip(&all).min_by(|a, b| a.1.total_cmp(b.1));
        let Some(((played, _), worst)) = worst else {
            return;
        };
        let clear = |is: fn(Interval) -> bool| {
            of.iter()
                .filter(|(_, ratios)| Interval::of(ratios).is_some_and(is))
                .count()
        };
        let shown = |value: Option<f64>| value.map(|v| format!("{v:.3}")).unwrap_or_default();
        table.row([
            name.to_owned(),
            of.len().to_string(),
            shown(median(all.clone())),
            shown(quantile(all.clone(), 0.05)),
            shown(Some(*worst)),
            played.cell.clone(),
            clear(|of| of.high < 1.0).to_string(),
            clear(|of| of.low > 1.0).to_string(),
        ]);
    };
    line("best setting", best);
    for system in [System::Greedy].into_iter().chain(System::RIVALS) {
        line(
            system.name(),
            &with_ratios(cells, |played| played.against(system)),
        );
    }
    table.print()
}

/// Lists the contestants that failed in a cell, with their failures.
fn failures(text: &mut String, cells: &[Played]) {
    for played in cells {
        for row in &played.rows {
            if let Some(note) = &row.note {
                let _ = writeln!(
                    text,
                    "failed: {}: {} ({}): {note}",
                    played.cell, row.system, row.setting
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::row;
    use super::*;

    fn played(cell: &str, ours: f64, fixed: f64, rival: f64) -> Played {
        // The rounds differ a little, equally for all contestants, so that the ratios stay exact.
        let rounds = |ops: f64| {
            let noise = [1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.0];
            noise.map(|noise| ops * noise)
        };
        Played {
            cell: cell.into(),
            rows: vec![
                row(System::Ours, "default", &rounds(ours)),
                row(System::Fixed, "limit 16", &rounds(fixed)),
                row(System::Amate, "limit 64, workers 1", &rounds(rival)),
            ],
            ..Played::default()
        }
    }

    #[test]
    fn where_we_lose_comes_first() {
        let cells = [
            played("http/callers-4", 100.0, 100.0, 50.0),
            played("http/callers-64", 50.0, 100.0, 60.0),
            played("http/callers-256", 70.0, 100.0, 20.0),
        ];
        let text = verdict(&cells);
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].ends_with("wholly below 0.9): 2 of 3 cells"),
            "{text}"
        );
        assert_eq!(lines[1], "  http/callers-64: 0.50 [0.50, 0.50]");
        assert_eq!(lines[2], "  http/callers-256: 0.70 [0.70, 0.70]");
        assert_eq!(lines[3], "where a rival is ahead: 1 of 3 cells");
        assert_eq!(
            lines[4],
            "  http/callers-64: ours / amate 0.83 [0.83, 0.83], clearly"
        );
        let best = lines
            .iter()
            .find(|line| line.starts_with("best setting"))
            .unwrap();
        let columns: Vec<_> = best.split_whitespace().skip(2).collect();
        assert_eq!(
            columns,
            ["3", "0.700", "0.520", "0.500", "http/callers-64", "2", "0"]
        );
        assert!(
            text.contains("median over 3 cells: 0.700 (wanted: 0.95): not met"),
            "{text}"
        );
    }

    #[test]
    fn a_cell_of_uneven_rounds_is_called_unresolved() {
        let mut uneven = played("append/callers-4", 100.0, 100.0, 50.0);
        uneven.rows[0].rounds[3].ops_per_s = 130.0;
        let text = verdict(&[played("http/callers-4", 100.0, 100.0, 50.0), uneven]);
        let line = "not resolved to 5 %: 1 of 2 cells: append/callers-4";
        assert!(text.lines().any(|found| found == line), "{text}");
    }

    #[test]
    fn a_contestant_that_failed_is_named() {
        let mut cell = played("sqlite/callers-4", 100.0, 100.0, 50.0);
        cell.rows[2].note = Some("2 of 3 items were handled".into());
        let text = verdict(std::slice::from_ref(&cell));
        let line =
            "failed: sqlite/callers-4: amate (limit 64, workers 1): 2 of 3 items were handled";
        assert!(text.contains(line), "{text}");
        assert!(cell_table(&cell).contains("2 of 3 items were handled"));
    }

    #[test]
    fn a_few_rounds_give_a_median_without_an_interval() {
        let cell = Played {
            cell: "http/callers-1".into(),
            rows: vec![
                row(System::Ours, "default", &[50.0]),
                row(System::Fixed, "limit 1", &[100.0]),
            ],
            ..Played::default()
        };
        let text = verdict(std::slice::from_ref(&cell));
        assert!(text.starts_with(
            "where we lose (interval of ours / best setting wholly below 0.9): 0 of 1"
        ));
        assert!(text.contains("fewer than six rounds"), "{text}");
        assert!(cell_table(&cell).contains("ours / it 0.50; p99 2.00 times its"));
    }

    #[test]
    fn a_table_without_cells_is_no_error() {
        assert!(verdict(&[]).contains("0 of 0 cells"));
    }
}
