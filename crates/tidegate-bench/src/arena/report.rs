//! Formats the report of the arena over all cells, as text for people and as a JSON document for programs.

use std::fmt::Write as _;

use serde::Serialize;

use super::Chosen;
use super::contest::{Contestant, Played};
use super::goals::{Verdict, judge, learning, verdicts};
use super::matrix::{Group, Metric, groups, share, tables};

/// The greatest number of cells that a list in the report shows, so that the report stays short.
const LISTED: usize = 30;

/// Formats the whole report of the arena, with the losses of the default controller first.
pub(super) fn text(chosen: &Chosen, played: &[Played]) -> String {
    let mut text = losses(played);
    text.push_str(&rivals_ahead(played));
    text.push('\n');
    for several in [false, true] {
        let cells = played.iter().filter(|cell| cell.several == several).count();
        if cells == 0 {
            continue;
        }
        let heading = match several {
            false => "one batch at a time",
            true => "several batches at once",
        };
        let _ = writeln!(
            text,
            "{heading}, {cells} cells: shares of the best setting's figure, in the median, in 95 % of the cells and in the \
             worst\n"
        );
        let by_load = groups(played.iter(), several, |c| c.group, |c| c.kind.clone());
        text.push_str(&tables(&by_load));
        let by_family = groups(played.iter(), several, |c| c.family, |c| c.family.into());
        text.push_str(&tables(&by_family));
        text.push_str(&verdicts(played, several));
        text.push_str(&learning(played, several));
    }
    let open = played.iter().filter_map(|cell| cell.of(Contestant::Ours));
    let unresolved = open.filter(|scores| !scores.resolved).count();
    let _ = writeln!(
        text,
        "not resolved to 5 %: {unresolved} of {} cells",
        played.len()
    );
    text.push_str(&chosen.left_out());
    text
}

/// A cell in which the default controller misses the goal for 95 % of the cells.
#[derive(Clone, Copy, Debug)]
struct Loss<'a> {
    played: &'a Played,
    metric: Metric,
    share: f64,
    /// The factor by which the controller misses the goal in this cell: a number above 1.
    factor: f64,
}

fn lost(played: &[Played]) -> Vec<Loss<'_>> {
    let mut losses = Vec::new();
    for cell in played {
        let of = |metric: Metric| {
            let share = metric.of(cell.of(Contestant::Ours)?)?;
            let goal = metric.goals(cell.group).1;
            let factor = match metric {
                Metric::Throughput => goal / share,
                Metric::Mean | Metric::P99 => share / goal,
            };
            Some(Loss {
                played: cell,
                metric,
                share,
                factor,
            })
        };
        let worst = Metric::ALL.into_iter().filter_map(of);
        let worst = worst.max_by(|a, b| a.factor.total_cmp(&b.factor));
        losses.extend(worst.filter(|loss| loss.factor > 1.0));
    }
    losses.sort_by(|a, b| b.factor.total_cmp(&a.factor));
    losses
}

fn losses(played: &[Played]) -> String {
    let losses = lost(played);
    let mut text = format!(
        "where we lose (beyond the goal for 95 % of the cells): {} of {} cells\n",
        losses.len(),
        played.len()
    );
    for several in [false, true] {
        let of_kind: Vec<_> = losses
            .iter()
            .filter(|l| l.played.several == several)
            .collect();
        for loss in of_kind.iter().take(LISTED) {
            let cell = loss.played;
            let [throughput, mean, p99] = &cell.settings;
            let best = match loss.metric {
                _ if cell.of(Contestant::Ours).is_some_and(|s| s.mean.is_none()) => throughput,
                Metric::P99 => p99,
                _ => mean,
            };
            let _ = writeln!(
                text,
                "  seed {}: {} {} times the best ({best}): {}, {}, {}",
                cell.seed,
                loss.metric.name(),
                share(loss.share),
                cell.family,
                cell.kind,
                cell.world,
            );
        }
        if of_kind.len() > LISTED {
            let _ = writeln!(text, "  and {} more", of_kind.len() - LISTED);
        }
    }
    text
}

/// The factor by which a rival must be better than the default controller for the report to name the rival.
const AHEAD: f64 = 1.05;

fn rivals_ahead(played: &[Played]) -> String {
    let mut text = String::new();
    for who in &Contestant::ALL[1..] {
        let mut seeds = Vec::new();
        let mut cells = 0;
        for cell in played {
            let (Some(ours), Some(theirs)) = (cell.of(Contestant::Ours), cell.of(*who)) else {
                continue;
            };
            cells += 1;
            // The report compares a rival with the default controller by mean latency if the cell has this
            // figure, otherwise by throughput.
            let factor = match (
                ours.mean.zip(theirs.mean),
                ours.throughput.zip(theirs.throughput),
            ) {
                (Some((ours, theirs)), _) => ours / theirs,
                (None, Some((ours, theirs))) => theirs / ours,
                (None, None) => continue,
            };
            if factor > AHEAD {
                seeds.push((factor, cell.seed));
            }
        }
        if cells > 0 {
            seeds.sort_by(|a, b| b.0.total_cmp(&a.0));
            let most = seeds
                .iter()
                .take(5)
                .map(|(f, s)| format!("seed {s} by {}", share(*f)));
            let most: Vec<_> = most.collect();
            let _ = writeln!(
                text,
                "where {} is ahead by more than 5 %: {} of {cells} cells{}{}",
                who.name(),
                seeds.len(),
                if most.is_empty() { "" } else { ": " },
                most.join(", ")
            );
        }
    }
    text
}

/// Formats the report of the arena as one JSON document.
pub(super) fn json(seed: u32, chosen: &Chosen, played: &[Played]) -> anyhow::Result<String> {
    #[derive(Serialize)]
    struct Document<'a> {
        bench: &'static str,
        seed: u32,
        left_out: Vec<(u32, String)>,
        goals: Vec<Verdict>,
        matrix: Vec<Group>,
        cells: &'a [Played],
    }
    let of = |several| groups(played.iter(), several, |c| c.group, |c| c.kind.clone());
    let document = Document {
        bench: "arena",
        seed,
        left_out: chosen
            .breaches
            .iter()
            .map(|(seed, breach)| (*seed, breach.to_string()))
            .collect(),
        goals: [judge(played, false), judge(played, true)]
            .into_iter()
            .flatten()
            .collect(),
        matrix: [of(false), of(true)].into_iter().flatten().collect(),
        cells: played,
    };
    Ok(serde_json::to_string(&document)?)
}

#[cfg(test)]
mod tests {
    use tidegate::sim::arena::Kind;

    use super::super::contest::Scores;
    use super::*;

    fn played(seed: u32, group: Kind, ours: [Option<f64>; 3], greedy: [Option<f64>; 3]) -> Played {
        let scores = |who, [throughput, mean, p99]: [Option<f64>; 3]| Scores {
            who,
            throughput,
            mean,
            p99,
            resolved: true,
        };
        Played {
            seed,
            family: "linear",
            kind: group.to_string(),
            group,
            several: false,
            world: "Serial".into(),
            settings: ["64", "32", "16"].map(Into::into),
            contestants: vec![
                scores(Contestant::Ours, ours),
                scores(Contestant::Greedy, greedy),
            ],
            learning: Some(0.5),
        }
    }

    #[test]
    fn losses_come_first_and_goals_are_judged() {
        let cells = [
            played(
                1,
                Kind::Saturated,
                [Some(0.5), None, None],
                [Some(1.0), None, None],
            ),
            played(
                2,
                Kind::Saturated,
                [Some(0.99), None, None],
                [Some(0.2), None, None],
            ),
            played(
                3,
                Kind::Open(95),
                [None, Some(1.9), Some(1.0)],
                [None, Some(1.9), Some(1.0)],
            ),
            played(
                4,
                Kind::Open(50),
                [None, Some(1.6), Some(9.0)],
                [None, Some(1.0), Some(9.0)],
            ),
        ];
        let chosen = Chosen {
            cells: Vec::new(),
            breaches: Vec::new(),
        };
        let text = text(&chosen, &cells);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].ends_with("2 of 4 cells"), "{text}");
        assert!(
            lines[1]
                .starts_with("  seed 4: p99 latency 9.000 times the best (16): linear, open 50 %"),
            "{text}"
        );
        assert!(
            lines[2].starts_with("  seed 1: throughput 0.50 times the best (64)"),
            "{text}"
        );
        assert!(
            lines[3].starts_with(
                "where greedy is ahead by more than 5 %: 2 of 4 cells: seed 1 by 2.000"
            ),
            "{text}"
        );
        let verdict = |name: &str| {
            let line = lines.iter().find(|line| line.starts_with(name)).unwrap();
            line.ends_with("  met")
        };
        assert!(!verdict("throughput, saturated and closed"), "{text}");
        assert!(!verdict("mean, open to 90 %"), "{text}");
        assert!(!verdict("mean, open at 95 %"), "{text}");
        assert!(verdict("p99, open at 95 %"), "{text}");
    }
}
