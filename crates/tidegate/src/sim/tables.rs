//! Results as rows, in one form for every scenario.

/// The rows of one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The name of the workload.
    pub case: String,
    /// One row a controller.
    pub rows: Vec<Row>,
}

/// The figures of one controller. Figures that the scenario does not measure are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The name of the controller.
    pub controller: String,
    /// Items a second.
    pub ops_per_s: f64,
    /// Mean latency, in microseconds.
    pub mean_us: Option<f64>,
    /// Median latency.
    pub p50_us: Option<f64>,
    /// 99th percentile.
    pub p99_us: Option<f64>,
    /// Batches.
    pub batches: Option<u64>,
    /// Mean batch, in items.
    pub batch_mean: Option<f64>,
    /// Largest batch.
    pub batch_max: Option<u64>,
    /// The figures that only this scenario measures, by name.
    pub extra: Vec<(&'static str, f64)>,
}
