//! Tests the dashboard for Grafana and the alert rules of `observability/`: they parse, and they use only
//! metrics and labels that docs/observability.md has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

use super::{Documented, documented};

/// The labels that Prometheus gives each series.
const OF_PROMETHEUS: [&str; 2] = ["instance", "job"];

/// The keywords of PromQL with a list of labels.
const WITH_LABELS: [&str; 6] = [
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
];

fn file(name: &str) -> PathBuf {
    tidegate_testing::root().join("observability").join(name)
}

fn text(name: &str) -> String {
    std::fs::read_to_string(file(name)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&text("dashboard.json")).unwrap()
}

fn alerts() -> Yaml {
    let mut documents = YamlLoader::load_from_str(&text("alerts.yaml")).unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

/// The metrics and labels that an expression of PromQL uses.
#[derive(Debug, Default)]
struct Used {
    /// The metrics, each with the labels by which the expression selects its series.
    metrics: Vec<(String, BTreeSet<String>)>,
    /// The labels by which the expression groups or joins series.
    grouped: BTreeSet<String>,
}

/// Splits an expression into words and single characters, without strings.
fn words(expr: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut in_word = false;
    let mut chars = expr.chars();
    while let Some(c) = chars.next() {
        let is_part = c.is_ascii_alphanumeric() || c == '_' || c == '$' || c == ':';
        match (is_part, in_word) {
            (true, true) => all.last_mut().unwrap().push(c),
            (true, false) => all.push(c.into()),
            (false, _) if c == '"' => {
                assert!(!expr.contains('\\'), "this reader knows no escapes: {expr}");
                assert!(chars.any(|c| c == '"'), "a string without an end: {expr}");
            }
            (false, _) if c.is_whitespace() => {}
            (false, _) => all.push(c.into()),
        }
        in_word = is_part;
    }
    all
}

fn used(expr: &str) -> Used {
    let words = words(expr);
    let mut used = Used::default();
    let labels = |from: usize, end: &str| -> BTreeSet<String> {
        let inner = words[from..].iter().take_while(|w| *w != end);
        let is_label = |w: &&String| w.starts_with(|c: char| c.is_ascii_alphabetic());
        inner.filter(is_label).cloned().collect()
    };
    let next = |at: usize| words.get(at + 1).map(String::as_str);
    for (at, word) in words.iter().enumerate() {
        if word.starts_with("tidegate_") {
            let selected = match next(at) {
                Some("{") => labels(at + 2, "}"),
                _ => BTreeSet::new(),
            };
            used.metrics.push((word.clone(), selected));
        } else if WITH_LABELS.contains(&word.as_str()) && next(at) == Some("(") {
            used.grouped.extend(labels(at + 2, ")"));
        }
    }
    assert!(!used.metrics.is_empty(), "no metric of ours: {expr}");
    used
}

/// Returns the metric in the document that has the samples of this name.
fn lookup<'a>(all: &'a BTreeMap<String, Documented>, name: &str) -> Option<&'a Documented> {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| {
        let family = all.get(name.strip_suffix(suffix)?)?;
        (family.kind == "histogram").then_some(family)
    });
    let plain = all.get(name).filter(|one| one.kind != "histogram");
    plain.or(of_histogram)
}

/// Checks the metrics and labels of an expression, and of the text templates beside it.
///
/// # Panics
/// Panics with the first name that the document does not have.
fn check(all: &BTreeMap<String, Documented>, expr: &str, templates: &[&str]) {
    let used = used(expr);
    let mut known: BTreeSet<&str> = OF_PROMETHEUS.into();
    for (metric, selected) in &used.metrics {
        let Some(one) = lookup(all, metric) else {
            panic!("{metric} is not in the document: {expr}");
        };
        let mut own: BTreeSet<&str> = one.labels.iter().map(String::as_str).collect();
        own.extend(OF_PROMETHEUS);
        if metric.ends_with("_bucket") {
            own.insert("le");
        }
        for label in selected {
            assert!(
                own.contains(label.as_str()),
                "{metric} has no label {label}: {expr}"
            );
        }
        // A counter is only useful as a rate, and a rate of a gauge needs a reason.
        let ranged = expr.contains(&format!("rate({metric}"))
            || expr.contains(&format!("increase({metric}"));
        let rated = [
            "tidegate_cpu_seconds",
            "tidegate_stream_state_last_sequence",
            "tidegate_consumer_ack_floor_sequence",
        ];
        assert!(
            !ranged || one.kind != "gauge" || rated.contains(&metric.as_str()),
            "a rate of the gauge {metric}: {expr}"
        );
        known.extend(own);
    }
    for label in &used.grouped {
        assert!(
            known.contains(label.as_str()),
            "no metric has the label {label}: {expr}"
        );
    }
    for template in templates {
        for field in template.split("{{").skip(1) {
            let field = field.split("}}").next().unwrap().trim();
            let field = field.split([' ', '|']).next().unwrap();
            if field == "$value" {
                continue;
            }
            let label = field.strip_prefix("$labels.").unwrap_or(field);
            assert!(
                known.contains(label),
                "no metric has the label {label}: {template}"
            );
        }
    }
}

#[test]
fn the_alert_rules_use_documented_metrics_and_are_documented() {
    let all = documented();
    let rules = alerts();
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_vec().unwrap() {
        for rule in group["rules"].as_vec().unwrap() {
            let name = rule["alert"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "twice: {name}");
            let note = |key: &str| rule["annotations"][key].as_str().unwrap();
            check(
                &all,
                rule["expr"].as_str().unwrap(),
                &[note("summary"), note("description")],
            );
            let severity = rule["labels"]["severity"].as_str().unwrap();
            assert!(
                ["critical", "warning", "info"].contains(&severity),
                "{name}"
            );
        }
    }
    let path = tidegate_testing::root().join("docs/observability.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows = document
        .lines()
        .filter_map(|l| l.strip_prefix("| `Tidegate"));
    let listed = rows.map(|row| format!("Tidegate{}", row.split('`').next().unwrap()));
    assert_eq!(names, listed.collect());
}

/// Returns the expressions of the dashboard's panels with their legends, and checks the panels.
fn expressions(dashboard: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(
            ids.insert(panel["id"].as_u64().unwrap()),
            "twice: {}",
            panel["id"]
        );
        let title = panel["title"].as_str().unwrap();
        let place = &panel["gridPos"];
        let [x, w] = ["x", "w"].map(|side| place[side].as_u64().unwrap());
        assert!(
            x + w <= 24 && place["h"].as_u64().unwrap() > 0,
            "{title}: {place}"
        );
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{title}");
            let text = |key: &str| target[key].as_str().unwrap().to_owned();
            all.push((text("expr"), text("legendFormat")));
        }
    }
    all
}

#[test]
fn the_dashboard_uses_documented_metrics() {
    let (all, dashboard) = (documented(), dashboard());
    for (expr, legend) in expressions(&dashboard) {
        check(&all, &expr, &[&legend]);
    }
    let mut variables = BTreeSet::new();
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        variables.insert(format!("${}", variable["name"].as_str().unwrap()));
        if variable["type"] == "query" {
            let query = variable["definition"].as_str().unwrap();
            assert_eq!(variable["query"]["query"], query);
            let inner = query.strip_prefix("label_values(").unwrap();
            let (metric, label) = inner.strip_suffix(')').unwrap().rsplit_once(", ").unwrap();
            check(&all, metric, &[&format!("{{{{{label}}}}}")]);
        }
    }
    variables.insert("$__rate_interval".into());
    for (expr, _) in expressions(&dashboard) {
        let of_selectors = expr.split('"').filter(|part| part.starts_with('$'));
        let of_ranges = words(&expr).into_iter().filter(|w| w.starts_with('$'));
        for used in of_selectors.map(str::to_owned).chain(of_ranges) {
            assert!(variables.contains(&used), "no variable {used}: {expr}");
        }
    }
}

#[test]
fn wrong_names_and_labels_are_found() {
    let all = documented();
    check(
        &all,
        "sum by (stream) (rate(tidegate_stream_state_last_sequence{stream=~\"x\"}[5m]))",
        &["{{stream}}"],
    );
    check(
        &all,
        "rate(tidegate_loop_turn_cpu_seconds_bucket{le=\"1.0\"}[5m])",
        &["{{ $labels.instance }}"],
    );
    for (expr, template) in [
        ("tidegate_in_messages", ""),
        ("tidegate_loop_turn_cpu_seconds", ""),
        ("tidegate_ready_total", ""),
        ("tidegate_ready{stream=\"x\"}", ""),
        ("sum by (stream) (tidegate_ready)", ""),
        (
            "tidegate_ready * on (consumer) tidegate_stream_state_leader",
            "",
        ),
        ("tidegate_ready", "{{ $labels.peer }}"),
        ("tidegate_ready", "{{peer}}"),
        ("rate(tidegate_ready[5m])", ""),
        ("up == 0", ""),
    ] {
        let checked = std::panic::catch_unwind(|| check(&all, expr, &[template]));
        assert!(checked.is_err(), "{expr} {template}");
    }
}

/// Gives each expression of the dashboard to Prometheus's own parser, as a recording rule. `make check-rules`
/// runs this test with the program's path in `PROMTOOL`.
#[test]
#[ignore = "needs promtool: make check-rules"]
fn promtool_takes_every_expression_of_the_dashboard() {
    let program = std::env::var_os("PROMTOOL").expect("the path of promtool in PROMTOOL");
    let rules = expressions(&dashboard())
        .into_iter()
        .enumerate()
        .map(|(n, (expr, _))| {
            let expr = expr.replace("$__rate_interval", "5m").replace('$', "");
            serde_json::json!({ "record": format!("checked:{n}"), "expr": expr })
        });
    // JSON is YAML.
    let rules =
        serde_json::json!({ "groups": [{ "name": "checked", "rules": rules.collect::<Value>() }] });
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, rules.to_string()).unwrap();
    let output = Command::new(program)
        .args(["check", "rules"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
