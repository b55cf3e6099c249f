//! Compares our client with the rivals in the cells of the bench `redis`, for each rival with its best
//! setting *for that cell*. At a fixed rate the bench also compares our client with each rival at equal
//! median latency, because one delay has different effects in two clients.

use serde_json::Value;

use super::cell::SWEEP;
use crate::OURS;
use tidegate_cli::report::{Row, Table, count, number};

/// Returns the tables of comparisons to print, given the rows of all cells.
pub(super) fn tables(rows: &[Row]) -> Vec<String> {
    let mut cases: Vec<&str> = rows.iter().map(|row| row.case.as_str()).collect();
    cases.dedup();
    let (mut best, mut equal) = (
        Table::new([
            "against the best setting of each",
            "ops/s",
            "/ rueidis",
            "",
            "/ others",
            "",
            "/ off",
            "2 workers / rueidis",
            "client cpu / rueidis",
            "ops per cpu-s / rueidis",
            "Redis busy",
        ]),
        Table::new([
            "at equal p50",
            "",
            "p50 us",
            "client cpu / it",
            "Redis cpu / it",
            "p99 / it",
        ]),
    );
    let mut swept = Table::new([
        "MinCpu(0.95) against a sweep of delays",
        "ops/s",
        "/ the most of the sweep",
        "",
        "client cpu / the least",
        "both cpus / the least",
        "",
        "commands/read / off",
        "ops/s / auto",
    ]);
    let (mut any_best, mut any_equal, mut any_swept) = (false, false, false);
    for case in cases {
        let of_case: Vec<_> = rows.iter().filter(|row| row.case == case).collect();
        if case.ends_with(SWEEP) {
            if let Some(line) = against_sweep(case, &of_case) {
                swept.row(line);
                any_swept = true;
            }
        } else if case.ends_with("/s") {
            for line in at_equal_p50(&of_case) {
                equal.row(line);
                any_equal = true;
            }
        } else if let Some(line) = against_best(case, &of_case) {
            best.row(line);
            any_best = true;
        }
    }
    let wanted = [(any_best, best), (any_equal, equal), (any_swept, swept)];
    let wanted = wanted.into_iter().filter(|(any, _)| *any);
    wanted.map(|(_, table)| table.print()).collect()
}

fn best<'a>(rows: &[&'a Row], of: fn(&Row) -> Option<f64>) -> Option<&'a Row> {
    let known = rows.iter().filter_map(|row| Some((of(row)?, *row)));
    known.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, row)| row)
}

fn ops(row: &Row) -> Option<f64> {
    row.ops_per_s
}

fn against_best(case: &str, rows: &[&Row]) -> Option<Vec<String>> {
    let ours = rows.iter().find(|row| row.extra.contains_key("ratio"))?;
    let of = |wanted: bool| -> Vec<&Row> {
        let rivals = rows.iter().copied().filter(|row| row.system != OURS);
        rivals
            .filter(|row| (row.system == "rueidis") == wanted)
            .collect()
    };
    let (rueidis, others) = (of(true), of(false));
    let ratio = |rival: Option<&Row>| {
        let ratios = ours.extra.get("ratio").and_then(Value::as_object);
        let ratio = rival.and_then(|rival| ratios?.get(&rival.label())?.as_f64());
        ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
    };
    let share = |key: &str, rival: Option<&Row>| {
        let share = rival.and_then(|rival| Some(ours.extra(key)? / rival.extra(key)?));
        share.map(|share| format!("{share:.2}")).unwrap_or_default()
    };
    let label = |row: Option<&Row>| row.map(Row::label).unwrap_or_default();
    let (fastest, other) = (best(&rueidis, ops), best(&others, ops));
    let own = |setting: &str| {
        let mut own = rows.iter().copied().filter(|row| row.system == OURS);
        own.find(|row| row.controller.as_deref() == Some(setting))
    };
    // Only our first setting has ratios within rounds, so the ratio of the setting with two workers is a
    // ratio of medians.
    let two_workers = own("auto, 2 workers").and_then(|row| {
        let ratio = row.ops_per_s? / fastest?.ops_per_s?;
        Some(format!("{ratio:.2}"))
    });
    let leanest = best(&rueidis, |row| row.extra("ops_per_cpu_s"));
    Some(vec![
        case.into(),
        ours.ops_per_s.map(count).unwrap_or_default(),
        ratio(fastest),
        label(fastest),
        ratio(other),
        label(other),
        ratio(own("off")),
        two_workers.unwrap_or_default(),
        share("client_cpu_us", fastest),
        share("ops_per_cpu_s", leanest),
        ours.extra("redis_busy").map(number).unwrap_or_default(),
    ])
}

/// The share of the best throughput that a fixed delay must reach to take part in the comparison with
/// `MinCpu`.
const KEPT: f64 = 0.95;

/// Compares our policy `MinCpu` with our fixed delays and with no delay: first with the fastest of these
/// settings, then with the cheapest of the settings that are about as fast.
fn against_sweep(case: &str, rows: &[&Row]) -> Option<Vec<String>> {
    let named = |name: &str| {
        let mut rows = rows.iter().copied();
        rows.find(|row| row.controller.as_deref() == Some(name))
    };
    let ours = named("min-cpu:0.95")?;
    let off = named("off")?;
    let fixed = |row: &&&Row| {
        let setting = row.controller.as_deref().unwrap_or_default();
        setting == "off" || setting.starts_with("fixed:")
    };
    let sweep: Vec<&Row> = rows.iter().filter(fixed).copied().collect();
    let fastest = best(&sweep, ops)?;
    let enough = KEPT * fastest.ops_per_s?;
    let kept = sweep.iter().filter(|row| ops(row) >= Some(enough));
    let kept: Vec<&Row> = kept.copied().collect();
    // `best` takes the row with the greatest value, so the comparison passes the reciprocal of the processor
    // time.
    let client = best(&kept, |row| row.extra("client_cpu_us").map(f64::recip))?;
    let both = best(&kept, |row| row.extra("ops_per_cpu_s"))?;
    let ratio = |a: Option<f64>, b: Option<f64>| {
        let ratio = a.zip(b).map(|(a, b)| format!("{:.2}", a / b));
        ratio.unwrap_or_default()
    };
    let of = |row: &Row, key: &str| row.extra(key);
    Some(vec![
        case.into(),
        ours.ops_per_s.map(count).unwrap_or_default(),
        ratio(ours.ops_per_s, fastest.ops_per_s),
        fastest.label(),
        ratio(of(ours, "client_cpu_us"), of(client, "client_cpu_us")),
        ratio(of(both, "ops_per_cpu_s"), of(ours, "ops_per_cpu_s")),
        both.label(),
        ratio(of(ours, "commands_per_read"), of(off, "commands_per_read")),
        ratio(ours.ops_per_s, named("auto").and_then(ops)),
    ])
}

/// Compares our client with each rival at the rival's median latency. Interpolates our figures between our
/// two settings with the nearest latencies above and below. If all of our settings are faster, takes the
/// slowest of them. If all are slower, there is no comparison.
fn at_equal_p50(rows: &[&Row]) -> Vec<Vec<String>> {
    // Only policies on one thread take part, because a second thread changes the relation between latency and
    // processor time.
    let one_thread = |row: &&&Row| row.system == OURS && !row.label().contains(", ");
    let ours: Vec<_> = rows.iter().filter(one_thread).collect();
    let rivals = rows.iter().filter(|row| row.system != OURS);
    let line = |rival: &&Row| {
        let p50 = rival.p50_us?;
        let share = |of: fn(&Row) -> Option<f64>| {
            let ours = at(
                &ours
                    .iter()
                    .filter_map(|row| Some((row.p50_us?, of(row)?)))
                    .collect::<Vec<_>>(),
                p50,
            );
            let share = ours.and_then(|ours| Some(ours / of(rival)?));
            share.map(|share| format!("{share:.2}")).unwrap_or_default()
        };
        Some(vec![
            rival.case.clone(),
            rival.label(),
            number(p50),
            share(|row| row.extra("client_cpu_us")),
            share(|row| row.extra("redis_cpu_us")),
            share(|row| row.p99_us),
        ])
    };
    if ours.is_empty() {
        return Vec::new();
    }
    rivals.filter_map(line).collect()
}

/// Returns the value at `x` on the line through `points`; `None` if `x` lies before the first point.
fn at(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let mut points = points.to_vec();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let above = points.partition_point(|point| point.0 <= x);
    let (x0, y0) = *points.get(above.checked_sub(1)?)?;
    Some(match points.get(above) {
        Some(&(x1, y1)) => y0 + (y1 - y0) * (x - x0) / (x1 - x0),
        None => y0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(case: &str, system: &str, controller: &str, numbers: [f64; 4]) -> Row {
        let [ops, p50, p99, cpu] = numbers;
        let mut row = Row {
            system: system.into(),
            case: case.into(),
            controller: Some(controller.into()),
            ops_per_s: Some(ops),
            p50_us: Some(p50),
            p99_us: Some(p99),
            ..Row::default()
        };
        for (key, value) in [
            ("client_cpu_us", cpu),
            ("redis_cpu_us", 1.0),
            ("ops_per_cpu_s", 1e6 / (cpu + 1.0)),
        ] {
            row.extra.insert(key.into(), json!(value));
        }
        row
    }

    #[test]
    fn the_best_setting_of_a_cell_counts() {
        let mut ours = row("c", OURS, "auto", [30.0, 1.0, 1.0, 1.0]);
        let ratios = json!({
            "rueidis no delay": 3.0, "rueidis 20 us": 1.5, "rustis x": 2.0, "tidegate off": 1.25,
        });
        ours.extra.insert("ratio".into(), ratios);
        let rows = [
            ours,
            row("c", OURS, "auto, 2 workers", [22.0, 1.0, 1.0, 1.0]),
            row("c", OURS, "off", [24.0, 1.0, 1.0, 1.0]),
            row("c", "rueidis", "no delay", [10.0, 1.0, 1.0, 3.0]),
            row("c", "rueidis", "20 us", [20.0, 1.0, 1.0, 4.0]),
            row("c", "rustis", "x", [15.0, 1.0, 1.0, 3.0]),
        ];
        let tables = tables(&rows);
        assert_eq!(tables.len(), 1);
        let cells: Vec<_> = tables[0]
            .lines()
            .nth(1)
            .unwrap()
            .split_whitespace()
            .collect();
        // The delay of 20 us is the fastest setting, and no delay is the cheapest: 2 us a command against 4
        // us.
        assert_eq!(
            cells,
            [
                "c", "30", "1.50", "rueidis", "20", "us", "2.00", "rustis", "x", "1.25", "1.10",
                "0.25", "2.00"
            ]
        );
    }

    #[test]
    fn at_a_rate_equal_medians_are_compared() {
        let case = "c, 100 k/s";
        let rows = [
            row(case, OURS, "auto", [1.0, 100.0, 200.0, 4.0]),
            row(case, OURS, "slow", [1.0, 200.0, 400.0, 2.0]),
            row(case, OURS, "auto, 2 workers", [1.0, 149.0, 9.0, 9.0]),
            row(case, "rueidis", "between", [1.0, 150.0, 600.0, 6.0]),
            row(case, "rueidis", "above", [1.0, 900.0, 800.0, 4.0]),
            row(case, "rueidis", "below", [1.0, 50.0, 800.0, 4.0]),
        ];
        let tables = tables(&rows);
        let lines: Vec<_> = tables[0].lines().collect();
        assert!(
            lines[1].ends_with("150             0.50            1.00      0.50"),
            "{}",
            tables[0]
        );
        assert!(
            lines[2].ends_with("900             0.50            1.00      0.50"),
            "{}",
            tables[0]
        );
        assert!(lines[3].ends_with("50"), "{}", tables[0]);
    }

    #[test]
    fn a_sweep_counts_delays_about_as_fast_as_the_fastest() {
        let case = "c, sweep";
        let rows = [
            row(case, OURS, "min-cpu:0.95", [96.0, 1.0, 1.0, 1.0]),
            row(case, OURS, "off", [100.0, 1.0, 1.0, 4.0]),
            row(case, OURS, "fixed:5us", [96.0, 1.0, 1.0, 2.0]),
            row(case, OURS, "fixed:500us", [50.0, 1.0, 1.0, 0.5]),
            row(case, OURS, "auto", [120.0, 1.0, 1.0, 5.0]),
        ];
        let tables = tables(&rows);
        assert_eq!(tables.len(), 1);
        let line = tables[0].lines().nth(1).unwrap();
        let cells: Vec<_> = line.split_whitespace().collect();
        // The delay of 500 us is cheap, but half as fast. The setting to compare with is 5 us: it costs 2 us
        // of the client's processor time and 1 us of Redis's.
        let label = ["tidegate", "off", "0.50", "0.67", "tidegate", "fixed:5us"];
        assert_eq!(cells[..4], ["c,", "sweep", "96", "0.96"]);
        assert_eq!(cells[4..10], label);
        assert_eq!(cells[10..], ["0.80"]);
    }

    #[test]
    fn without_ours_there_is_nothing_to_compare() {
        let alone = row("c", "rueidis", "x", [1.0; 4]);
        let open = row("c, 100 k/s", "rueidis", "x", [1.0; 4]);
        assert!(tables(&[alone, open]).is_empty());
    }
}
