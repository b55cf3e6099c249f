//! The results of the simulator's scenarios as rows, in one form for every scenario.

/// The results of one simulated workload, with a row for each controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The name of the workload.
    pub case: String,
    /// The figures of each controller.
    pub rows: Vec<Row>,
}

/// The figures of one controller in a simulated workload, for comparison. Figures that the scenario does not
/// measure are `None`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Row {
    /// The name of the controller.
    pub controller: String,
    /// The number of items that the server handled in a second.
    pub ops_per_s: f64,
    /// The mean latency of an item, in microseconds.
    pub mean_us: Option<f64>,
    /// The median latency of an item, in microseconds.
    pub p50_us: Option<f64>,
    /// The 99th percentile of the latency of an item, in microseconds.
    pub p99_us: Option<f64>,
    /// The number of batches that the controller ran.
    pub batches: Option<u64>,
    /// The mean number of items in a batch.
    pub batch_mean: Option<f64>,
    /// The number of items of the largest batch.
    pub batch_max: Option<u64>,
    /// The figures that only this scenario measures, as names and values.
    pub extra: Vec<(&'static str, f64)>,
}
