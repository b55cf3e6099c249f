//! Formats the results of the bench `neighbours` as rows and as tables. Pure.

use serde_json::{Value, json};
use tidegate_cli::report::{Row, Table, number};

use super::attack::Attack;
use super::clients::{BARE_ECHO, BARE_SYNC, HASH_LOGIN, PING, PLAIN_LOGIN, PUBLISHER, SUBSCRIBER};
use super::figures::{ByPhase, Figures};
use super::turn::Outcome;
use crate::systems::System;

/// The name of the row with the server's own figures.
const SERVER: &str = "server";

/// The neighbours and the floors in the order of the report. Each neighbour stands with its floor, the bare
/// operation that shows the least possible latency.
const ORDER: [(&str, Option<&str>); 7] = [
    (PUBLISHER, Some(BARE_SYNC)),
    (BARE_SYNC, None),
    (SUBSCRIBER, Some(BARE_ECHO)),
    (PING, Some(BARE_ECHO)),
    (BARE_ECHO, None),
    (PLAIN_LOGIN, None),
    (HASH_LOGIN, None),
];

/// The system that the attackers attacked, with its version.
#[derive(Clone, Debug)]
pub(super) struct Contestant {
    pub(super) system: System,
    pub(super) version: Option<String>,
}

impl Contestant {
    fn row(&self, attack: &Attack, who: &str) -> Row {
        Row {
            system: self.system.name().into(),
            version: self.version.clone(),
            case: attack.name.into(),
            controller: Some(who.into()),
            ..Row::default()
        }
    }

    /// Returns the single row for an attack that the bench could not run, with the reason.
    pub(super) fn failed(&self, attack: &Attack, why: &str) -> Vec<Row> {
        let mut row = self.row(attack, SERVER);
        row.extra.insert("note".into(), json!(why));
        vec![row]
    }

    /// Returns the rows of all neighbours and floors, and the server's row. `hash_us` is the duration of one
    /// check of a password hash, in microseconds.
    pub(super) fn rows(&self, attack: &Attack, outcome: &Outcome, hash_us: f64) -> Vec<Row> {
        let mut rows = Vec::new();
        for (who, floor) in ORDER {
            let mut row = self.row(attack, who);
            let Some(all) = outcome.report.get(who) else {
                row.extra.insert("note".into(), json!("no figures"));
                rows.push(row);
                continue;
            };
            row.p50_us = all.during.p50_us;
            row.p99_us = all.during.p99_us;
            let floor = floor.and_then(|floor| outcome.report.get(floor));
            put_latencies(&mut row, all, floor);
            if who == HASH_LOGIN
                && let Some(worst) = all.during.worst_us
            {
                row.extra.insert("hash_us".into(), json!(hash_us));
                row.extra
                    .insert("worst_in_hashes".into(), json!(worst / hash_us));
            }
            rows.push(row);
        }
        rows.push(self.server(attack, outcome));
        rows
    }

    fn server(&self, attack: &Attack, outcome: &Outcome) -> Row {
        let mut row = self.row(attack, SERVER);
        row.rss_mb = outcome.rss_peak_mb;
        row.cpu_s = outcome.cpu_s;
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                row.extra.insert(key.into(), value);
            }
        };
        put("rss_before_mb", json!(outcome.rss_before_mb));
        put("rss_after_mb", json!(outcome.rss_after_mb));
        put("elections", json!(outcome.elections));
        put("scale", json!(outcome.scale));
        put("phase_s", json!(outcome.phase_s));
        put("note", json!(outcome.note()));
        put("carried_out", json!(outcome.deeds.is_some()));
        for (key, value) in outcome.deeds.iter().flat_map(|deeds| &deeds.figures) {
            put(&format!("attack_{key}"), json!(value));
        }
        row
    }
}

fn put_latencies(row: &mut Row, all: &ByPhase, floor: Option<&ByPhase>) {
    let mut put = |key: String, value: Value| {
        if !value.is_null() {
            row.extra.insert(key, value);
        }
    };
    let during = &all.during;
    put("p999_us".into(), json!(during.p999_us));
    put("worst_us".into(), json!(during.worst_us));
    put("count".into(), json!(during.count));
    put("failures".into(), json!(during.failures));
    if let Some(floor) = floor {
        let (p999, worst) = during.excess_us(&floor.during);
        put("excess_p999_us".into(), json!(p999));
        put("excess_worst_us".into(), json!(worst));
    }
    for (phase, of) in [("before", &all.before), ("after", &all.after)] {
        put(format!("{phase}_p50_us"), json!(of.p50_us));
        put(format!("{phase}_p99_us"), json!(of.p99_us));
        put(format!("{phase}_p999_us"), json!(of.p999_us));
        put(format!("{phase}_worst_us"), json!(of.worst_us));
        put(format!("{phase}_count"), json!(of.count));
        put(format!("{phase}_failures"), json!(of.failures));
    }
    let phases = [&all.during, &all.after, &all.before];
    let said = phases
        .iter()
        .find_map(|figures: &&Figures| figures.said.as_ref());
    put("note".into(), json!(said));
}

/// Formats the rows of one attack as tables for the user: first the latencies in milliseconds, then the
/// servers' figures.
pub(super) fn table(attack: &Attack, rows: &[Row]) -> String {
    let ms = |value: Option<f64>| value.map(|us| number(us / 1e3)).unwrap_or_default();
    let plain = |value: Option<f64>| value.map(number).unwrap_or_default();
    let mut latencies = Table::new([
        "ms",
        "",
        "before p99",
        "p50",
        "p99",
        "p99.9",
        "worst",
        "p99.9 above floor",
        "worst above floor",
        "after p99.9",
        "after worst",
        "n",
        "failed",
        "after failed",
        "",
    ]);
    let mut servers = Table::new([
        "",
        "RSS before MiB",
        "peak",
        "after",
        "CPU s",
        "of s",
        "elections",
        "attack",
        "",
    ]);
    for row in rows {
        let who = row.controller.clone().unwrap_or_default();
        let system = match &row.version {
            Some(version) if row.system != crate::OURS => format!("{} ({version})", row.system),
            _ => row.system.clone(),
        };
        let extra = |key: &str| row.extra(key);
        let note = row.note().unwrap_or_default().to_owned();
        if who == SERVER {
            servers.row([
                system,
                plain(extra("rss_before_mb")),
                plain(row.rss_mb),
                plain(extra("rss_after_mb")),
                plain(row.cpu_s),
                plain(extra("phase_s")),
                plain(extra("elections")),
                deeds(row),
                note,
            ]);
            continue;
        }
        let some = |key: &str| plain(extra(key).filter(|count| *count > 0.0));
        latencies.row([
            system,
            who,
            ms(extra("before_p99_us")),
            ms(row.p50_us),
            ms(row.p99_us),
            ms(extra("p999_us")),
            ms(extra("worst_us")),
            ms(extra("excess_p999_us")),
            ms(extra("excess_worst_us")),
            ms(extra("after_p999_us")),
            ms(extra("after_worst_us")),
            plain(extra("count")),
            some("failures"),
            some("after_failures"),
            note,
        ]);
    }
    format!(
        "{}: {}\n{}\n{}",
        attack.name,
        attack.text,
        latencies.print(),
        servers.print()
    )
}

/// Formats the figures that the attackers reported about their attack.
fn deeds(row: &Row) -> String {
    let figures = row.extra.iter().filter_map(|(key, value)| {
        let key = key.strip_prefix("attack_")?;
        Some(format!("{key} {}", number(value.as_f64()?)))
    });
    figures.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::attack::ATTACKS;
    use super::super::strike::Deeds;
    use super::*;

    fn figures(p999: f64, worst: f64) -> ByPhase {
        let during = Figures {
            count: 1000,
            p999_us: Some(p999),
            worst_us: Some(worst),
            ..Figures::default()
        };
        ByPhase {
            during,
            ..ByPhase::default()
        }
    }

    fn outcome() -> Outcome {
        let mut outcome = Outcome {
            deeds: Some(Deeds::default()),
            rss_peak_mb: Some(70.0),
            elections: Some(2),
            ..Outcome::default()
        };
        for (who, p999, worst) in [
            (PUBLISHER, 9000.0, 30_000.0),
            (BARE_SYNC, 4000.0, 5000.0),
            (HASH_LOGIN, 1.0, 800_000.0),
        ] {
            outcome.report.insert(who.into(), figures(p999, worst));
        }
        outcome
    }

    #[test]
    fn each_neighbour_has_a_row_with_its_excess() {
        let ours = Contestant {
            system: System::Ours,
            version: None,
        };
        let rows = ours.rows(&ATTACKS[0], &outcome(), 200_000.0);
        let row = |who: &str| {
            let named = |row: &&Row| row.controller.as_deref() == Some(who);
            rows.iter().find(named).unwrap()
        };
        assert_eq!(rows.len(), ORDER.len() + 1);
        assert_eq!(row(PUBLISHER).extra("excess_p999_us"), Some(5000.0));
        assert_eq!(row(PUBLISHER).extra("excess_worst_us"), Some(25_000.0));
        assert_eq!(row(BARE_SYNC).extra("excess_p999_us"), None);
        assert_eq!(row(HASH_LOGIN).extra("worst_in_hashes"), Some(4.0));
        // If a neighbour has no figures, its row says so.
        assert_eq!(row(PING).note(), Some("no figures"));
        assert_eq!(row(SERVER).extra("elections"), Some(2.0));
        let text = table(&ATTACKS[0], &rows);
        assert!(text.contains("publisher") && text.contains("25"), "{text}");
    }

    #[test]
    fn an_attack_that_did_not_take_place_says_why() {
        let nats = Contestant {
            system: System::Nats,
            version: Some("2.15.2".into()),
        };
        let rows = nats.failed(&ATTACKS[0], "the server ended");
        let text = table(&ATTACKS[0], &rows);
        assert!(text.contains("nats-server default (2.15.2)"), "{text}");
        assert!(text.contains("the server ended"), "{text}");
    }
}
