//! The one form of all results of the simulator and the benches, so that one reader understands all of them:
//! rows in one JSON document, or as tables.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name by which every row names this project's system, beside its rivals.
pub const OURS: &str = "tidegate";

/// The results of a bench or of `tidegate sim`, which the program prints at its end.
#[derive(Debug, Serialize)]
pub struct Document {
    /// The name of the bench, or `sim` for the simulator.
    pub bench: String,
    /// The model of the processor and the number of cores of the machine on which the bench ran, to compare
    /// results.
    pub machine: String,
    /// The commit of the working tree around the current directory, to find the measured code; `None` outside
    /// of a working tree.
    pub commit: Option<String>,
    /// One row for each system of each case.
    pub rows: Vec<Row>,
}

impl Document {
    /// Returns an empty document for this machine and commit.
    pub fn new(bench: &str) -> Self {
        Self {
            bench: bench.into(),
            machine: machine(),
            commit: commit(),
            rows: Vec::new(),
        }
    }

    /// Returns the document as one line of JSON, for other programs.
    pub fn json(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// The results of one system in one case: medians over the rounds. A value that the bench does not measure is
/// null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The name of the system: `tidegate` or a rival.
    pub system: String,
    /// The version of the row's system; `None` if the bench does not know the version.
    pub version: Option<String>,
    /// The workload of the row, in words. Only rows of the same workload are comparable.
    pub case: String,
    /// The controller that decides the batches, or the name of the way in which a rival makes its batches.
    pub controller: Option<String>,
    /// The number of operations a second that the system did.
    pub ops_per_s: Option<f64>,
    /// The first quartile of `ops_per_s` over the rounds, which shows how much the rounds differ.
    pub q1: Option<f64>,
    /// The third quartile of `ops_per_s` over the rounds, which shows how much the rounds differ.
    pub q3: Option<f64>,
    /// The number of rounds over which the bench took the medians.
    pub rounds: Option<u64>,
    /// The median latency of an operation, in microseconds.
    pub p50_us: Option<f64>,
    /// The 99th percentile of an operation's latency, in microseconds.
    pub p99_us: Option<f64>,
    /// The mean latency of an operation, in microseconds.
    pub mean_us: Option<f64>,
    /// The number of batches that the system made during one measurement.
    pub batches: Option<f64>,
    /// The mean number of items in a batch, over all batches of the measurement.
    pub batch_mean: Option<f64>,
    /// The number of items in the largest batch of the measurement.
    pub batch_max: Option<f64>,
    /// The processor time of the whole process during one measurement, in seconds.
    pub cpu_s: Option<f64>,
    /// The number of memory allocations during one measurement.
    pub allocs: Option<f64>,
    /// The resident memory after the measurement, in MiB.
    pub rss_mb: Option<f64>,
    /// Values that only some benches measure, such as `ratio` (to other systems of the case), `note`, or
    /// percentiles of batches.
    #[serde(flatten)]
    pub extra: BTreeMap<String, Value>,
}

impl Row {
    /// Returns the name under which tables show the row: its system and its controller.
    pub fn label(&self) -> String {
        match &self.controller {
            Some(controller) => format!("{} {controller}", self.system),
            None => self.system.clone(),
        }
    }

    /// Returns the row's note, which explains missing numbers.
    pub fn note(&self) -> Option<&str> {
        self.extra.get("note").and_then(Value::as_str)
    }

    /// Returns the number `key` among the values that only some benches measure.
    pub fn extra(&self, key: &str) -> Option<f64> {
        self.extra.get(key).and_then(Value::as_f64)
    }
}

/// A table of results for people. It leaves out columns in which no row has a value. The first column is
/// aligned to the left.
#[derive(Debug, Default)]
pub struct Table {
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with the columns `heads` and no rows.
    pub fn new(heads: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            heads: heads.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Appends a row of cells, one for each column.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Returns the table as text, one line a row.
    pub fn print(&self) -> String {
        let width = |column: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells
                .max()
                .filter(|&width| width > 0)
                .map(|width| width.max(self.heads[column].chars().count()))
        };
        let widths: Vec<_> = (0..self.heads.len()).map(width).collect();
        let mut text = String::new();
        for row in std::iter::once(&self.heads).chain(&self.rows) {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let Some(width) = widths[column] else {
                    continue;
                };
                let gap = if line.is_empty() { "" } else { "  " };
                let _ = if column == 0 {
                    write!(line, "{gap}{cell:<width$}")
                } else {
                    write!(line, "{gap}{cell:>width$}")
                };
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The head of a column, and the function that formats the row's cell in the column.
pub type Column = (&'static str, fn(&Row) -> Option<String>);

/// Formats the rows of one case as a table for people, with a column of ratios for every row that has them.
pub fn case_table(rows: &[&Row]) -> String {
    let columns: [Column; 29] = [
        ("ops/s", |row| row.ops_per_s.map(count)),
        ("q1", |row| row.q1.map(count)),
        ("q3", |row| row.q3.map(count)),
        ("mean us", |row| row.mean_us.map(number)),
        ("p50 us", |row| row.p50_us.map(number)),
        ("p99 us", |row| row.p99_us.map(number)),
        ("batches", |row| row.batches.map(count)),
        ("batch mean", |row| row.batch_mean.map(number)),
        ("batch max", |row| row.batch_max.map(number)),
        ("cpu s", |row| row.cpu_s.map(number)),
        ("allocs", |row| row.allocs.map(count)),
        ("rss MiB", |row| row.rss_mb.map(number)),
        ("messages", |row| row.extra("messages").map(count)),
        ("to (a)", |row| row.extra("factor").map(number)),
        ("published", |row| row.extra("published_factor").map(number)),
        ("cmds/entry", |row| {
            row.extra("commands_per_entry").map(number)
        }),
        ("entries/sync", |row| {
            row.extra("entries_per_sync").map(number)
        }),
        ("KiB/sync", |row| row.extra("kib_per_sync").map(number)),
        ("syncs/s", |row| row.extra("syncs_per_s").map(number)),
        ("MB/s", |row| row.extra("mb_per_s").map(number)),
        ("server us/msg", |row| {
            row.extra("server_cpu_us").map(number)
        }),
        ("by node", |row| costs_by_node(row)),
        ("cpu us/op", |row| row.extra("client_cpu_us").map(number)),
        ("redis us/op", |row| row.extra("redis_cpu_us").map(number)),
        ("proxy us/op", |row| row.extra("proxy_cpu_us").map(number)),
        ("cmds/read", |row| {
            row.extra("commands_per_read").map(number)
        }),
        ("allocs/op", |row| row.extra("allocs_per_op").map(number)),
        ("bytes/op", |row| {
            row.extra("alloc_bytes_per_op").map(number)
        }),
        ("rounds", |row| row.rounds.map(|n| n.to_string())),
    ];
    // The ratios that the table shows: of throughput, and of latency and processor time if both rows have
    // them.
    let kinds = [
        ("ratio", ""),
        ("mean_ratio", "mean: "),
        ("p99_ratio", "p99: "),
        ("cpu_ratio", "cpu: "),
        ("server_cpu_ratio", "server cpu: "),
    ];
    let mut subjects = Vec::new();
    for row in rows {
        let name = row.controller.as_ref().unwrap_or(&row.system);
        for (key, of) in kinds {
            if let Some(ratios) = row.extra.get(key) {
                subjects.push((ratios, format!("{of}{name} / it")));
            }
        }
    }
    let heads = std::iter::once("")
        .chain(columns.iter().map(|(head, _)| *head))
        .chain(subjects.iter().map(|(_, head)| head.as_str()));
    let mut table = Table::new(heads.chain([""]));
    for row in rows {
        let name = match &row.version {
            Some(version) if row.system != OURS => format!("{} ({version})", row.label()),
            _ => row.label(),
        };
        let cells = columns
            .iter()
            .map(|(_, cell)| cell(row).unwrap_or_default());
        let ratios = subjects.iter().map(|(ratios, _)| {
            let ratio = ratios.get(row.label()).and_then(Value::as_f64);
            ratio.map(|ratio| format!("{ratio:.3}")).unwrap_or_default()
        });
        let note = row.note().unwrap_or_default().to_owned();
        table.row([name].into_iter().chain(cells).chain(ratios).chain([note]));
    }
    table.print()
}

/// Formats the processor time for each message on each node of a cluster, in microseconds, so that people see
/// the load of the nodes. The leader comes first if the cluster has one.
fn costs_by_node(row: &Row) -> Option<String> {
    let others = ["follower", "node"].iter().flat_map(|role| {
        let cost = move |n| row.extra(&format!("{role}_{n}_cpu_us"));
        (1..).map_while(cost)
    });
    let costs = row.extra("leader_cpu_us").into_iter().chain(others);
    let costs: Vec<_> = costs.map(number).collect();
    (!costs.is_empty()).then(|| costs.join(" / "))
}

/// Formats a number with three or four significant digits, because results are not more precise.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

/// Formats a count; shortens a long count to thousands or millions, so that it fits into the table.
pub fn count(value: f64) -> String {
    match value.abs() {
        v if v >= 1e9 => format!("{:.2}G", value / 1e9),
        v if v >= 1e6 => format!("{:.2}M", value / 1e6),
        v if v >= 1e5 => format!("{:.1}k", value / 1e3),
        _ => number(value),
    }
}

/// Returns the processor model and the number of cores, because results depend on them.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    format!("{model}, {cores} cores")
}

/// Returns the commit checked out around the current directory, so that the document names the measured code.
fn commit() -> Option<String> {
    let git = Command::new("git")
        .args(["rev-parse", "--short", "HEAD"])
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let hash = String::from_utf8(git.stdout).ok()?.trim().to_owned();
    (git.status.success() && !hash.is_empty()).then_some(hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_key_is_there() {
        let mut row = Row {
            system: "tidegate".into(),
            case: "c".into(),
            ..Row::default()
        };
        row.extra.insert("note".into(), json!("hung"));
        let value = serde_json::to_value(&row).unwrap();
        for key in [
            "system",
            "version",
            "case",
            "controller",
            "ops_per_s",
            "q1",
            "q3",
            "rounds",
            "p50_us",
            "p99_us",
            "mean_us",
            "batches",
            "batch_mean",
            "batch_max",
            "cpu_s",
            "allocs",
            "rss_mb",
            "note",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(serde_json::from_value::<Row>(value).unwrap(), row);
    }

    #[test]
    fn a_document_names_the_machine() {
        assert!(Document::new("x").machine.ends_with("cores"));
    }

    #[test]
    fn columns_without_values_are_left_out() {
        let mut fast = Row {
            system: "tidegate".into(),
            ops_per_s: Some(2e6),
            ..Row::default()
        };
        fast.extra.insert("ratio".into(), json!({"slow x": 2.0}));
        let slow = Row {
            system: "slow".into(),
            controller: Some("x".into()),
            ops_per_s: Some(1e6),
            ..Row::default()
        };
        let text = case_table(&[&fast, &slow]);
        assert_eq!(
            text,
            "          ops/s  tidegate / it\n\
             tidegate  2.00M\n\
             slow x    1.00M          2.000\n"
        );
    }
}
