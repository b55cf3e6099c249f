//! Tests of the whole report, over made-up results. The figures are no measurements.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidegate_cli::report::{count, number};

use super::kept::{Kept, Machine};
use super::plan::{Length, Step, steps};
use super::rows::shown_ratio;
use super::{html, markdown, page};

/// The results of some steps, with a peer that is better, a peer that is not installed, a step that failed
/// and names that would be markup.
fn fixture() -> Vec<(Step, Kept)> {
    let machine = Machine {
        model: "made up, 3 cores".into(),
        kernel: "Linux 0".into(),
        sync_us: 123.0,
        round_trip_ns: 77.0,
    };
    let outputs = [
        (
            "queue",
            json!({"rows": [
                {"system": "tidegate", "version": "0", "case": "single", "controller": "knee", "ops_per_s": 1111.0,
                 "p99_us": 8.0, "rounds": 3, "ratio": {"rival <b>": 0.55, "tidegate fixed": 0.11}},
                {"system": "tidegate", "version": "0", "case": "single", "controller": "fixed", "ops_per_s": 9999.0},
                {"system": "rival <b>", "version": "1.2", "case": "single", "ops_per_s": 2222.0, "p99_us": 16.0},
                {"system": "absent", "case": "hello", "note": "not built: run bench/peers/install.sh absent"},
            ]}),
        ),
        ("handlers-http", json!({"rows": open_loop()})),
        (
            "arena",
            json!({"matrix": [
                {"metric": "throughput", "name": "saturated", "several": false, "spreads": [
                    ["ours", {"cells": 5, "median": 0.875, "most": 0.75, "worst": 0.5, "seed": 41}],
                    ["greedy", {"cells": 5, "median": 0.9375, "most": 0.75, "worst": 0.25, "seed": 42}]]},
                {"metric": "throughput", "name": "closed", "several": false, "spreads": [
                    ["ours", {"cells": 6, "median": 0.96, "most": 0.9, "worst": 0.8, "seed": 43}],
                    ["greedy", {"cells": 6, "median": 0.6, "most": 0.5, "worst": 0.4, "seed": 44}]]},
            ]}),
        ),
        (
            "response",
            json!({"rows": [{"system": "tidegate", "case": "step", "controller": "knee",
                             "series": [[50.0, 6.5, 300.0], [150.0, 13.25, 900.0]]}]}),
        ),
        ("stream", Value::Null),
    ];
    let steps = steps(Length::Usual);
    let result = |(name, output)| {
        let step = steps.iter().find(|step| step.name == name).unwrap().clone();
        let mut kept = Kept::new(name, &step.args, &[], machine.clone());
        kept.complete = output != Value::Null;
        kept.failure = (!kept.complete).then(|| "not built: bench/peers/install.sh go-nats".into());
        (kept.began, kept.seconds) = ("2000-01-01 00:00:00 UTC".into(), 345.0);
        kept.output = output;
        (step, kept)
    };
    outputs.map(result).into()
}

fn open_loop() -> Vec<Value> {
    let row = |system: &str, load: u32, p99: f64| {
        json!({"system": system, "case": format!("http/poisson-{load}"), "controller": "default",
               "ops_per_s": 100.0 * f64::from(load), "p99_us": p99, "cpu_us": 2.0 + p99 / 64.0})
    };
    let both = |(load, ours, theirs)| [row("tidegate", load, ours), row("recv_many", load, theirs)];
    [(10, 64.0, 128.0), (60, 256.0, 192.0), (90, 512.0, 1024.0)]
        .map(both)
        .into_iter()
        .flatten()
        .collect()
}

/// Collects all numbers of a document in the forms in which a report may show them.
fn numbers(value: &Value, forms: &mut BTreeSet<String>) {
    match value {
        Value::Number(value) => {
            let value = value.as_f64().unwrap();
            forms.extend([number(value), count(value), shown_ratio(value)]);
        }
        Value::Array(all) => all.iter().for_each(|value| numbers(value, forms)),
        Value::Object(all) => all.values().for_each(|value| numbers(value, forms)),
        _ => {}
    }
}

/// Adds the quotients of equal figures of two rows of a case. Computes them from the document alone.
fn quotients(output: &Value, forms: &mut BTreeSet<String>) {
    let rows = output["rows"].as_array().into_iter().flatten().cloned();
    let spreads = output["matrix"]
        .as_array()
        .into_iter()
        .flatten()
        .flat_map(|group| {
            let of_one =
                |spread: &Value| json!({"case": group["name"], "median": spread[1]["median"]});
            group["spreads"]
                .as_array()
                .unwrap()
                .iter()
                .map(of_one)
                .collect::<Vec<_>>()
        });
    let rows: Vec<Value> = rows.chain(spreads).collect();
    for a in &rows {
        for b in rows.iter().filter(|b| b["case"] == a["case"]) {
            for (key, value) in a.as_object().unwrap() {
                if let (Some(a), Some(b)) = (value.as_f64(), b[key].as_f64()) {
                    forms.insert(shown_ratio(a / b));
                }
            }
        }
    }
}

/// Returns the cells of all tables that are nothing but a number.
fn cells_with_numbers(text: &str) -> Vec<String> {
    let rows = text
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---"));
    let cells = rows.flat_map(|row| row.trim_matches('|').split(" | "));
    let is_number = |cell: &&str| {
        let digits = cell.trim_end_matches(['k', 'M', 'G']);
        !digits.is_empty() && digits.parse::<f64>().is_ok()
    };
    cells
        .map(str::trim)
        .filter(is_number)
        .map(Into::into)
        .collect()
}

#[test]
fn every_number_of_the_report_is_in_the_documents() {
    let results = fixture();
    let mut forms = BTreeSet::new();
    for (_, kept) in &results {
        numbers(&serde_json::to_value(kept).unwrap(), &mut forms);
        quotients(&kept.output, &mut forms);
        // The loads stand in the names of cells.
        forms.extend(["10", "60", "90"].map(Into::into));
    }
    // Versions are names.
    forms.extend(["0", "1.2"].map(Into::into));
    let text = markdown::markdown(&page::page(&results, &[], false));
    let cells = cells_with_numbers(&text);
    assert!(cells.len() > 60, "{} cells", cells.len());
    for cell in &cells {
        assert!(forms.contains(cell), "{cell} is in no document: {text}");
    }
    // The page shows the same tables, and each point that a plot draws.
    let page = html::html(&page::page(&results, &[], false)).unwrap();
    for cell in &cells {
        assert!(page.contains(&format!(">{cell}<")), "{cell}");
    }
    // The plots: operations and p99 and processor time against load, p99 against processor time, the arena,
    // and two of the response.
    assert_eq!(page.matches("<svg ").count(), 3 + 1 + 1 + 2);
    assert_eq!(page.matches("<circle ").count(), 3 * 6 + 6 + 4 + 2 * 2);
}

#[test]
fn losses_come_first_and_only_where_a_peer_is_better() {
    let text = markdown::markdown(&page::page(&fixture(), &[], false));
    let (_, losses) = text.split_once("## Where we lose").unwrap();
    let (losses, rest) = losses.split_once("\n## ").unwrap();
    assert!(
        !text
            .split_once("## Where we lose")
            .unwrap()
            .0
            .contains("| "),
        "no table comes before"
    );
    let rows: Vec<&str> = losses
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(2)
        .collect();
    assert_eq!(
        rows,
        [
            "| single: knee | ops/s | 1111 | rival &lt;b> (1.2) | 2222 | 0.55 | rounds | queue |",
            "| http/poisson-60: default | p99 us | 256 | recv\\_many default | 192 | 1.33 | medians | handlers-http |",
            "| http/poisson-60: default | CPU us/op | 6 | recv\\_many default | 5 | 1.20 | medians | handlers-http |",
            "| throughput, one batch: saturated | share of the best throughput | 0.88 | greedy | 0.94 | 0.93 | medians | arena |",
        ]
    );
    assert!(rest.starts_with("Not measured"), "{rest}");
}

#[test]
fn a_peer_that_is_not_installed_names_the_command_and_has_no_figure() {
    let missing: Vec<Step> = steps(Length::Usual)
        .into_iter()
        .filter(|step| step.name == "raft")
        .collect();
    let text = markdown::markdown(&page::page(&fixture(), &missing, false));
    let line = |start: &str| {
        text.lines()
            .find(|line| line.starts_with(start))
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(
        line("| raft |"),
        "| raft |  |  | no result yet: tidegate-bench report --only raft |"
    );
    assert_eq!(
        line("| stream |"),
        "| stream |  |  | not built: bench/peers/install.sh go-nats |"
    );
    let absent = "| queue | absent | all | not built: run bench/peers/install.sh absent |";
    assert_eq!(line("| queue | absent"), absent);
}

#[test]
fn names_are_escaped_and_quick_results_say_so() {
    let page = page::page(&fixture(), &[], true);
    let html = html::html(&page).unwrap();
    assert!(
        html.contains("rival &lt;b&gt; (1.2)") && !html.contains("<b>"),
        "{html}"
    );
    for foreign in ["<script", "<link", "<img", "@import", "src=", "url("] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    for text in [html, markdown::markdown(&page)] {
        assert!(text.contains("These measurements are brief."), "{text}");
        assert!(
            text.contains("made up, 3 cores") && text.contains("2000-01-01 00:00:00 UTC"),
            "{text}"
        );
        assert!(
            text.contains("tidegate-bench queue --peers --full --json"),
            "{text}"
        );
    }
}
