//! Makes metrics of OTLP from the text of `/metrics`, pure, so that both have the same names, labels and
//! figures.
//!
//! The text is this server's own, so the reader takes the part of OpenMetrics that the server writes, and
//! skips lines that it does not know.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use super::{scope, text};

/// The times of the figures, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The time at which the counters were 0.
    pub(super) start_ns: u64,
    pub(super) now_ns: u64,
}

/// Makes the request that hands the figures in `page` to the collector.
pub(super) fn request(
    resource: &Resource,
    page: &str,
    times: Times,
) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![ScopeMetrics {
                scope: scope(),
                metrics: metrics(page, times),
                ..ScopeMetrics::default()
            }],
            ..ResourceMetrics::default()
        }],
    }
}

/// The family of the lines that follow.
#[derive(Default)]
struct Family<'a> {
    name: &'a str,
    help: String,
    kind: &'a str,
}

/// A line with a figure.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, String)>,
    value: &'a str,
}

fn metrics(page: &str, times: Times) -> Vec<Metric> {
    let mut all: Vec<Metric> = Vec::new();
    let mut family = Family::default();
    for line in page.lines() {
        if let Some(line) = line.strip_prefix("# ") {
            let mut words = line.splitn(3, ' ');
            let (word, name) = (words.next(), words.next().unwrap_or_default());
            let rest = words.next().unwrap_or_default();
            if name != family.name {
                family = Family {
                    name,
                    ..Family::default()
                };
            }
            match word {
                Some("HELP") => family.help = unescaped(rest),
                Some("TYPE") => family.kind = rest,
                _ => {}
            }
        } else if let Some(sample) = Sample::parse(line) {
            add(&mut all, &family, sample, times);
        }
    }
    all
}

/// Adds a figure to the metric of its family, which it begins if the figure is the first one.
fn add(all: &mut Vec<Metric>, family: &Family<'_>, sample: Sample<'_>, times: Times) {
    let rest = sample.name.strip_prefix(family.name);
    let (name, empty) = match (family.kind, rest) {
        ("counter", Some("_total")) => (sample.name, sum as fn() -> Data),
        ("gauge", Some("")) => (sample.name, gauge as fn() -> Data),
        ("histogram", Some("_sum" | "_count" | "_bucket")) => {
            (family.name, histogram as fn() -> Data)
        }
        _ => return,
    };
    if all.last().is_none_or(|metric| metric.name != name) {
        all.push(Metric {
            name: name.to_owned(),
            description: family.help.clone(),
            unit: unit(name).to_owned(),
            data: Some(empty()),
            ..Metric::default()
        });
    }
    match all.last_mut().and_then(|metric| metric.data.as_mut()) {
        Some(Data::Sum(sum)) => sum.data_points.extend(point(&sample, times)),
        Some(Data::Gauge(gauge)) => gauge.data_points.extend(point(&sample, times)),
        Some(Data::Histogram(histogram)) => {
            add_to_histogram(&mut histogram.data_points, &sample, times);
        }
        _ => {}
    }
}

const CUMULATIVE: AggregationTemporality = AggregationTemporality::Cumulative;

fn sum() -> Data {
    Data::Sum(Sum {
        data_points: Vec::new(),
        aggregation_temporality: CUMULATIVE.into(),
        is_monotonic: true,
    })
}

fn gauge() -> Data {
    Data::Gauge(Gauge::default())
}

fn histogram() -> Data {
    Data::Histogram(Histogram {
        data_points: Vec::new(),
        aggregation_temporality: CUMULATIVE.into(),
    })
}

fn point(sample: &Sample<'_>, times: Times) -> Option<NumberDataPoint> {
    let value = match sample.value.parse() {
        Ok(whole) => Value::AsInt(whole),
        Err(_) => Value::AsDouble(sample.value.parse().ok()?),
    };
    Some(NumberDataPoint {
        attributes: attributes(&sample.labels),
        start_time_unix_nano: times.start_ns,
        time_unix_nano: times.now_ns,
        value: Some(value),
        ..NumberDataPoint::default()
    })
}

/// Adds a line of a histogram to the point with its labels. The text counts the values up to each bound, and
/// OTLP those between two bounds.
fn add_to_histogram(points: &mut Vec<HistogramDataPoint>, sample: &Sample<'_>, times: Times) {
    let (bounds, labels): (Vec<_>, Vec<_>) = sample
        .labels
        .iter()
        .cloned()
        .partition(|(name, _)| *name == "le");
    let attributes = attributes(&labels);
    let at = points
        .iter()
        .position(|point| point.attributes == attributes);
    let at = at.unwrap_or_else(|| {
        points.push(HistogramDataPoint {
            attributes,
            start_time_unix_nano: times.start_ns,
            time_unix_nano: times.now_ns,
            ..HistogramDataPoint::default()
        });
        points.len() - 1
    });
    let point = &mut points[at];
    match (sample.value.parse(), bounds.first()) {
        (Ok(within), Some((_, bound))) => {
            let below: u64 = point.bucket_counts.iter().sum();
            let own = u64::saturating_sub(within, below);
            let bound: Option<f64> = bound.parse().ok();
            point
                .explicit_bounds
                .extend(bound.filter(|bound| bound.is_finite()));
            point.bucket_counts.push(own);
        }
        (Ok(count), None) if sample.name.ends_with("_count") => point.count = count,
        _ => point.sum = sample.value.parse().ok(),
    }
}

fn attributes(labels: &[(&str, String)]) -> Vec<KeyValue> {
    let labels = labels.iter();
    labels
        .map(|(name, value)| text(name, value.as_str()))
        .collect()
}

/// Returns the unit in the form of OTLP, which the name of a metric ends with.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let Some((name, mut rest)) = line.split_once('{') else {
            let (name, value) = line.split_once(' ')?;
            let labels = Vec::new();
            return Some(Self {
                name,
                labels,
                value,
            });
        };
        let mut labels = Vec::new();
        while let Some((label, after)) = rest.split_once("=\"") {
            let end = end_of_value(after)?;
            labels.push((label, unescaped(&after[..end])));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        let value = rest.strip_prefix("} ")?;
        Some(Self {
            name,
            labels,
            value,
        })
    }
}

/// Returns the place of the quotation mark that ends the value of a label.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => out.push('\n'),
                Some(other) => out.push(other),
                None => out.push('\\'),
            },
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times {
        start_ns: 1,
        now_ns: 2,
    };

    const PAGE: &str = r#"# HELP tidegate_in_bytes Bytes of messages.
# TYPE tidegate_in_bytes counter
tidegate_in_bytes_total 12
# HELP tidegate_loop_turn_cpu_seconds CPU time.
# TYPE tidegate_loop_turn_cpu_seconds histogram
# UNIT tidegate_loop_turn_cpu_seconds seconds
tidegate_loop_turn_cpu_seconds_sum 0.5
tidegate_loop_turn_cpu_seconds_count 10
tidegate_loop_turn_cpu_seconds_bucket{le="0.001"} 3
tidegate_loop_turn_cpu_seconds_bucket{le="0.01"} 3
tidegate_loop_turn_cpu_seconds_bucket{le="+Inf"} 10
# HELP tidegate_boundary_batches Batches, by\\the reason.
# TYPE tidegate_boundary_batches counter
tidegate_boundary_batches_total{boundary="entries",reason="a"} 4
tidegate_boundary_batches_total{boundary="x\"},\\\n",reason=""} 5
# HELP tidegate_uptime_seconds Time.
# TYPE tidegate_uptime_seconds gauge
tidegate_uptime_seconds 1.5
a line that nothing knows
# EOF
"#;

    #[test]
    fn the_text_becomes_metrics_with_the_same_names() {
        let all = metrics(PAGE, TIMES);
        let names: Vec<_> = all
            .iter()
            .map(|m| (m.name.as_str(), m.unit.as_str()))
            .collect();
        let wanted = [
            ("tidegate_in_bytes_total", "By"),
            ("tidegate_loop_turn_cpu_seconds", "s"),
            ("tidegate_boundary_batches_total", ""),
            ("tidegate_uptime_seconds", "s"),
        ];
        assert_eq!(names, wanted);
        assert_eq!(all[2].description, "Batches, by\\the reason.");
        let Some(Data::Sum(sum)) = &all[0].data else {
            panic!("{:?}", all[0]);
        };
        assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
        let point = &sum.data_points[0];
        assert_eq!(point.value, Some(Value::AsInt(12)));
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        let Some(Data::Gauge(gauge)) = &all[3].data else {
            panic!("{:?}", all[3]);
        };
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(1.5)));
    }

    #[test]
    fn a_histogram_has_the_counts_between_its_bounds() {
        let all = metrics(PAGE, TIMES);
        let Some(Data::Histogram(histogram)) = &all[1].data else {
            panic!("{:?}", all[1]);
        };
        let [point] = &histogram.data_points[..] else {
            panic!("{histogram:?}");
        };
        assert_eq!((point.count, point.sum), (10, Some(0.5)));
        assert_eq!(point.explicit_bounds, [0.001, 0.01]);
        assert_eq!(point.bucket_counts, [3, 0, 7]);
    }

    #[test]
    fn labels_keep_every_character() {
        let all = metrics(PAGE, TIMES);
        let Some(Data::Sum(sum)) = &all[2].data else {
            panic!("{:?}", all[2]);
        };
        let labels: Vec<_> = sum
            .data_points
            .iter()
            .map(|p| p.attributes.clone())
            .collect();
        assert_eq!(
            labels[0],
            [text("boundary", "entries"), text("reason", "a")]
        );
        assert_eq!(
            labels[1],
            [text("boundary", "x\"},\\\n"), text("reason", "")]
        );
    }
}
