//! Reads the text of `/metrics` strictly, by the rules of OpenMetrics 1.0, and checks them on the way.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample, by name.
pub(super) type Labels = BTreeMap<String, String>;

/// One metric with its samples.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub(super) kind: String,
    help: String,
    pub(super) samples: Vec<(String, Labels, f64)>,
}

impl Family {
    /// Returns the name by which a query finds the samples of the family `name`.
    pub(super) fn queried(&self, name: &str) -> String {
        match self.kind.as_str() {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        }
    }

    /// Returns the names of the labels, the same in each sample; a histogram's `le` is none.
    pub(super) fn labels(&self) -> BTreeSet<String> {
        let names = |labels: &Labels| -> BTreeSet<String> {
            labels.keys().filter(|l| *l != "le").cloned().collect()
        };
        let first = names(&self.samples[0].1);
        let same = self
            .samples
            .iter()
            .all(|(_, labels, _)| names(labels) == first);
        assert!(same, "samples with different labels: {self:?}");
        first
    }
}

/// Reads all metrics by name.
pub(super) fn read(text: &str) -> BTreeMap<String, Family> {
    let body = text
        .strip_suffix("# EOF\n")
        .unwrap_or_else(|| panic!("no end: {text}"));
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let [what, name, value] = [(); 3].map(|()| words.next().unwrap_or_default());
            assert!(is_name(name, true) && !value.is_empty(), "{line}");
            if name != current {
                assert!(!all.contains_key(name), "twice or in two places: {line}");
                all.insert(name.to_owned(), Family::default());
                current = name.to_owned();
            }
            let family = all.get_mut(name).unwrap();
            assert!(family.samples.is_empty(), "behind a sample: {line}");
            let text = match what {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => {
                    assert!(name.ends_with(&format!("_{value}")), "{line}");
                    continue;
                }
                _ => panic!("{line}"),
            };
            assert!(text.is_empty(), "twice: {line}");
            *text = value.to_owned();
            continue;
        }
        let (name, labels, value) = sample(line);
        let family = all.get_mut(&current).unwrap_or_else(|| panic!("{line}"));
        let suffix = name
            .strip_prefix(&current)
            .unwrap_or_else(|| panic!("{line}"));
        let suffixes: &[&str] = match family.kind.as_str() {
            "gauge" => &[""],
            "counter" => &["_total"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("the type {kind}"),
        };
        assert!(
            suffixes.contains(&suffix) && !family.help.is_empty(),
            "{line}"
        );
        assert!(family.kind != "counter" || value >= 0.0, "{line}");
        family.samples.push((name, labels, value));
    }
    for (name, family) in &all {
        assert!(!family.samples.is_empty(), "{name} has no sample");
        let series: BTreeSet<_> = family.samples.iter().map(|(n, l, _)| (n, l)).collect();
        assert_eq!(
            series.len(),
            family.samples.len(),
            "{name} has a sample twice"
        );
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
    }
    all
}

fn check_histogram(name: &str, family: &Family) {
    let of = |suffix: &str| {
        let wanted = format!("{name}{suffix}");
        let found = family.samples.iter().filter(move |(n, ..)| *n == wanted);
        found.map(|(_, labels, value)| (labels.get("le").cloned(), *value))
    };
    let buckets: Vec<(f64, f64)> = of("_bucket")
        .map(|(le, value)| (le.unwrap().parse().unwrap(), value))
        .collect();
    let is_sorted = buckets
        .windows(2)
        .all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
    assert!(is_sorted, "{name}: {buckets:?}");
    let count = of("_count").next().unwrap().1;
    assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name}");
    assert!(of("_sum").next().is_some(), "{name}");
}

fn is_name(text: &str, colons: bool) -> bool {
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || colons && b == b':';
    !text.is_empty() && text.bytes().all(is_good) && !text.as_bytes()[0].is_ascii_digit()
}

/// Reads one sample: its name, its labels without escapes, and its value.
fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("{line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label, false), "{line}");
            let mut text = String::new();
            let mut chars = value.char_indices();
            let end = loop {
                match chars.next().unwrap_or_else(|| panic!("no end: {line}")) {
                    (at, '"') => break at,
                    (_, '\\') => text.push(match chars.next() {
                        Some((_, '\\')) => '\\',
                        Some((_, '"')) => '"',
                        Some((_, 'n')) => '\n',
                        other => panic!("the escape {other:?}: {line}"),
                    }),
                    (_, c) => text.push(c),
                }
            };
            assert_eq!(labels.insert(label.to_owned(), text), None, "{line}");
            rest = &value[end + 1..];
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = rest.strip_prefix(',').unwrap_or_else(|| panic!("{line}"));
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("{line}"));
    let value = value.parse().unwrap_or_else(|e| panic!("{e}: {line}"));
    (name.to_owned(), labels, value)
}

#[test]
fn wrong_texts_are_found() {
    let good = "# HELP a A.\n# TYPE a gauge\na{l=\"\\\"\\\\\\n\"} 1\n# EOF\n";
    let read_good = read(good);
    assert_eq!(read_good["a"].samples[0].1["l"], "\"\\\n");
    let help = "# HELP a A.\n# TYPE a gauge\n";
    for wrong in [
        "a 1\n".to_owned(),
        "# HELP a A.\na 1\n".to_owned(),
        format!("{help}a 1\na 1\n"),
        format!("{help}a 1\n# HELP b B.\n# TYPE b gauge\nb 1\n{help}a{{l=\"x\"}} 2\n"),
        format!("{help}# TYPE a gauge\na 1\n"),
        format!("{help}a_total 1\n"),
        format!("{help}a{{l=\"x}} 1\n"),
        format!("{help}a{{l=\"\\x\"}} 1\n"),
        format!("{help}a{{l=\"x\",l=\"y\"}} 1\n"),
        format!("{help}a one\n"),
        help.to_owned(),
    ] {
        let text = format!("{wrong}# EOF\n");
        let read = std::panic::catch_unwind(|| read(&text));
        assert!(read.is_err(), "{text}");
    }
}
