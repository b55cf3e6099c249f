//! Formats the results of the bench `handlers` as rows of the one form of all benches, with the same figures
//! as its tables. Pure.

use serde_json::{Map, Value, json};
use tidegate_cli::report::{OURS, Row};

use super::outcome::{self, Outcome, Played, Score};
use super::setting::System;
use crate::compare::Interval;
use crate::rounds::median;

/// Returns a row for each contestant of a cell. The library's own contestants have the library's name and
/// their settings, because they are no rivals.
pub(super) fn rows(played: &Played) -> Vec<Row> {
    let mut rows: Vec<Row> = played
        .rows
        .iter()
        .map(|row| of_contestant(played, row))
        .collect();
    let own = |row: &&outcome::Row| row.system == System::Ours.name() && row.note.is_none();
    let Some(at) = played.rows.iter().position(|row| own(&row)) else {
        return rows;
    };
    let ours = &played.rows[at];
    let figures: [(&str, Score); 3] = [
        ("ratio", |o| o.ops_per_s),
        ("mean_ratio", |o| o.mean_us),
        ("p99_ratio", |o| o.p99_us),
    ];
    for (key, figure) in figures {
        let mut ratios = Map::new();
        for (other, label) in played.rows.iter().zip(rows.iter().map(Row::label)) {
            if std::ptr::eq(other, ours) || other.note.is_some() {
                continue;
            }
            let rounds = ours.rounds.iter().zip(&other.rounds);
            let all = rounds.map(|(ours, other)| figure(ours) / figure(other));
            if let Some(ratio) = median(all.filter(|ratio| ratio.is_finite()).collect()) {
                ratios.insert(label, json!(ratio));
            }
        }
        if !ratios.is_empty() {
            rows[at].extra.insert(key.into(), Value::Object(ratios));
        }
    }
    for (key, ratios) in [
        ("best", played.against_best()),
        ("best_p99", played.p99_times_best()),
    ] {
        let mut put = |name: String, value: f64| rows[at].extra.insert(name, json!(value));
        if let Some(middle) = median(ratios.clone()) {
            put(format!("{key}_ratio"), middle);
        }
        if let Some(of) = Interval::of(&ratios) {
            put(format!("{key}_ratio_low"), of.low);
            put(format!("{key}_ratio_high"), of.high);
        }
    }
    rows
}

fn of_contestant(played: &Played, of: &outcome::Row) -> Row {
    let own = [System::Ours, System::Greedy, System::Fixed]
        .iter()
        .any(|own| own.name() == of.system);
    let controller = match of.system == System::Ours.name() || !own {
        true => of.setting.clone(),
        false if of.system == System::Greedy.name() => of.system.clone(),
        false => format!("{} {}", of.system, of.setting),
    };
    let mut row = Row {
        system: if own { OURS.into() } else { of.system.clone() },
        version: of
            .version
            .clone()
            .or_else(|| own.then(|| env!("CARGO_PKG_VERSION").into())),
        case: played.cell.clone(),
        controller: Some(controller).filter(|controller| !controller.is_empty()),
        ..Row::default()
    };
    if let Some(note) = &of.note {
        row.extra.insert("note".into(), json!(note));
        return row;
    }
    let mid = |figure: fn(&Outcome) -> f64| median(of.rounds.iter().map(figure).collect());
    row.rounds = Some(of.rounds.len() as u64);
    row.ops_per_s = mid(|o| o.ops_per_s);
    row.mean_us = mid(|o| o.mean_us);
    row.p50_us = mid(|o| o.p50_us);
    row.p99_us = mid(|o| o.p99_us);
    row.batch_mean = mid(|o| o.batch_mean);
    let overruns = of.rounds.iter().filter(|outcome| outcome.overrun).count();
    let overruns = (overruns > 0).then_some(overruns as f64);
    for (key, value) in [
        ("cpu_us", mid(|o| o.cpu_us)),
        ("cold_ops_per_s", mid(|o| o.cold_ops_per_s)),
        ("offered_per_s", played.offered_per_s),
        ("overrun_rounds", overruns),
    ] {
        if let Some(value) = value {
            row.extra.insert(key.into(), json!(value));
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::row;
    use super::*;

    #[test]
    fn rows_have_the_figures_of_the_tables() {
        let played = Played {
            cell: "http/callers-4".into(),
            rows: vec![
                row(System::Ours, "default", &[20.0, 30.0, 40.0]),
                row(System::Greedy, "", &[10.0, 10.0, 10.0]),
                row(System::Fixed, "limit 16", &[10.0, 15.0, 10.0]),
                row(System::Amate, "limit 64", &[40.0, 60.0, 80.0]),
            ],
            ..Played::default()
        };
        let rows = rows(&played);
        let labels: Vec<_> = rows.iter().map(Row::label).collect();
        assert_eq!(
            labels,
            [
                "tidegate default",
                "tidegate greedy",
                "tidegate fixed limit 16",
                "amate limit 64"
            ]
        );
        assert_eq!((rows[0].ops_per_s, rows[0].rounds), (Some(30.0), Some(3)));
        let ratio = |key: &str| rows[0].extra[key]["amate limit 64"].as_f64();
        assert_eq!(
            (ratio("ratio"), ratio("mean_ratio")),
            (Some(0.5), Some(2.0))
        );
        assert_eq!(rows[0].extra("best_ratio"), median(played.against_best()));
        // Three rounds are too few for an interval.
        assert_eq!(rows[0].extra("best_ratio_low"), None);
    }

    #[test]
    fn a_contestant_that_failed_has_only_its_note() {
        let mut failed = row(System::Amate, "limit 64", &[1.0]);
        failed.note = Some("lost items".into());
        let played = Played {
            rows: vec![row(System::Ours, "default", &[20.0]), failed],
            ..Played::default()
        };
        let rows = rows(&played);
        assert_eq!(
            (rows[1].note(), rows[1].ops_per_s),
            (Some("lost items"), None)
        );
        assert!(!rows[0].extra.contains_key("ratio"));
    }
}
