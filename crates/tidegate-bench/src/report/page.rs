//! Composes the report from the results of its steps, as blocks that HTML and Markdown show alike. Pure.
//!
//! Every figure in a table is a figure of a bench's document, or the quotient of two of them. The losses come
//! first, then all else.

use std::collections::BTreeMap;

use tidegate_cli::report::{Row, number};

use super::curves::{self, Plot};
use super::grid::{Grid, case_table};
use super::kept::Kept;
use super::losses::Losses;
use super::plan::Step;
use super::rows::{cases, name, rows, shown_ratio};

/// A part of the report, in the order of reading.
#[derive(Clone, Debug)]
pub(super) enum Block {
    /// A heading with its level, from 1 on.
    Heading(u8, String),
    Text(String),
    Table(Grid),
    Plots(Vec<Plot>),
    /// Details that the page shows on demand, below a summary.
    Folded(String, Vec<Self>),
}

/// The rows of one step, with its result.
struct Part<'a> {
    step: &'a Step,
    kept: &'a Kept,
    rows: Vec<Row>,
    lost: usize,
}

/// Composes the report. `results` has the steps of the plan that have a result, `missing` the others.
pub(super) fn page(results: &[(Step, Kept)], missing: &[Step], is_quick: bool) -> Vec<Block> {
    let parts: Vec<Part<'_>> = results
        .iter()
        .map(|(step, kept)| {
            let (rows, lost) = rows(kept);
            Part {
                step,
                kept,
                rows,
                lost,
            }
        })
        .collect();
    let version = env!("CARGO_PKG_VERSION");
    let mut page = vec![
        Block::Heading(1, format!("Benchmarks of Tidegate {version}")),
        Block::Text(
            "`tidegate-bench report` measured every figure here and wrote this text. A ratio is our figure divided by \
             the peer's. A ratio marked as one of rounds is the median over rounds in which both ran one after the \
             other; the others are quotients of medians."
                .into(),
        ),
    ];
    if is_quick {
        page.push(Block::Text(
            "**These measurements are brief. They prove that the report works, and nothing about speed.**".into(),
        ));
    }
    page.extend(lost(&parts));
    page.extend(not_measured(&parts, missing));
    page.push(Block::Heading(2, "Benches".into()));
    for part in &parts {
        page.extend(section(part));
    }
    page.extend(versions(&parts));
    page.extend(circumstances(&parts));
    page
}

fn lost(parts: &[Part<'_>]) -> Vec<Block> {
    let mut losses = Losses::default();
    for part in parts {
        losses.add(part.step.name, &part.rows);
    }
    let mut table = Grid::new([
        "case",
        "figure",
        "ours",
        "peer",
        "theirs",
        "ours / theirs",
        "ratio of",
        "bench",
    ]);
    for loss in &losses.all {
        let value = |row: &Row| {
            loss.figure
                .of(row)
                .map(|value| loss.figure.shown(value))
                .unwrap_or_default()
        };
        let mut case = loss.ours.case.clone();
        if let Some(controller) = &loss.ours.controller {
            case = format!("{case}: {controller}");
        }
        table.rows.push(vec![
            case,
            loss.figure.head.into(),
            value(loss.ours),
            name(loss.peer),
            value(loss.peer),
            shown_ratio(loss.ratio),
            if loss.within_rounds {
                "rounds"
            } else {
                "medians"
            }
            .into(),
            loss.step.into(),
        ]);
    }
    let text = match losses.compared {
        0 => "No step with a peer has a result yet.".into(),
        compared => format!(
            "A peer is better in {} of {compared} compared figures, the largest factor first. Figures that differ by \
             less than half a per cent count as equal.",
            losses.all.len()
        ),
    };
    let mut blocks = vec![Block::Heading(2, "Where we lose".into()), Block::Text(text)];
    if !table.rows.is_empty() {
        blocks.push(Block::Table(table));
    }
    blocks
}

/// Lists the steps and the systems without figures, with the reasons.
fn not_measured(parts: &[Part<'_>], missing: &[Step]) -> Vec<Block> {
    let mut table = Grid::new(["bench", "system", "case", "reason"]);
    for step in missing {
        let reason = "no result yet: tidegate-bench report --only ".to_owned() + step.name;
        table
            .rows
            .push(vec![step.name.into(), String::new(), String::new(), reason]);
    }
    for part in parts {
        let step = part.step.name.to_owned();
        if let Some(failure) = &part.kept.failure {
            table.rows.push(vec![
                step.clone(),
                String::new(),
                String::new(),
                failure.clone(),
            ]);
        }
        if step.starts_with("handlers") && !part.kept.args.iter().any(|word| word == "--peers") {
            let reason = "its peers are not in this build: cargo build --release -p tidegate-bench --features peers";
            table.rows.push(vec![
                step.clone(),
                String::new(),
                String::new(),
                reason.into(),
            ]);
        }
        if part.lost > 0 {
            let reason = "this version cannot read some rows of the document";
            table.rows.push(vec![
                step.clone(),
                String::new(),
                String::new(),
                reason.into(),
            ]);
        }
        for row in &part.rows {
            if let Some(note) = row.note().filter(|_| row.ops_per_s.is_none()) {
                let case = row.case.replace("hello", "all");
                table
                    .rows
                    .push(vec![step.clone(), row.label(), case, note.into()]);
            }
        }
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    vec![
        Block::Heading(2, "Not measured".into()),
        Block::Table(table.without_empty_columns()),
    ]
}

fn section(part: &Part<'_>) -> Vec<Block> {
    let mut blocks = vec![
        Block::Heading(3, part.step.name.into()),
        Block::Text(format!("{}.", capital(part.step.about))),
    ];
    let plots = curves::plots(part.step.name, &part.rows);
    if !plots.is_empty() {
        blocks.push(Block::Plots(plots));
    }
    let tables = cases(&part.rows).into_iter().map(|(case, rows)| {
        [
            Block::Heading(4, case.to_owned()),
            Block::Table(case_table(&rows)),
        ]
    });
    let tables: Vec<_> = tables.flatten().collect();
    if !tables.is_empty() {
        blocks.push(Block::Folded(
            format!("All figures of {}", part.step.name),
            tables,
        ));
    }
    blocks
}

fn versions(parts: &[Part<'_>]) -> Vec<Block> {
    let mut systems: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for part in parts {
        for row in &part.rows {
            let version = row.version.as_deref().unwrap_or_default();
            let steps = systems.entry((&row.system, version)).or_default();
            if !steps.contains(&part.step.name) {
                steps.push(part.step.name);
            }
        }
    }
    let mut table = Grid::new(["system", "version", "benches"]);
    for ((system, version), steps) in systems {
        let version = if version.is_empty() {
            "not named by the bench"
        } else {
            version
        };
        table
            .rows
            .push(vec![system.into(), version.into(), steps.join(", ")]);
    }
    if table.rows.is_empty() {
        return Vec::new();
    }
    vec![Block::Heading(2, "Systems".into()), Block::Table(table)]
}

fn circumstances(parts: &[Part<'_>]) -> Vec<Block> {
    if parts.is_empty() {
        return Vec::new();
    }
    let mut table = Grid::new([
        "bench",
        "began",
        "seconds",
        "commit",
        "machine",
        "kernel",
        "sync us",
        "cache line ns",
        "command",
    ]);
    for Part { step, kept, .. } in parts {
        let words = kept.args.iter().map(|word| match word.contains(' ') {
            true => format!("'{word}'"),
            false => word.clone(),
        });
        let command = words.collect::<Vec<_>>().join(" ");
        table.rows.push(vec![
            step.name.into(),
            kept.began.clone(),
            number(kept.seconds),
            kept.commit.clone().unwrap_or_default(),
            kept.machine.model.clone(),
            kept.machine.kernel.clone(),
            number(kept.machine.sync_us),
            number(kept.machine.round_trip_ns),
            format!("{} {command}", step.program.name()),
        ]);
    }
    vec![
        Block::Heading(2, "Machine, commands and dates".into()),
        Block::Text(
            "The time of a bare write with fdatasync, and of a cache line's round trip between two threads, were \
             measured right before each bench."
                .into(),
        ),
        Block::Table(table.without_empty_columns()),
    ]
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().collect::<String>());
    first.unwrap_or_default() + chars.as_str()
}
