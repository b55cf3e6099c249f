//! The place of the export over OTLP in a program that was built without the feature `otlp`: it tells an
//! operator who asks for the export that this program has none.

use std::convert::Infallible;

use tidegate_server::Server;
use tidegate_server::config::StreamSettings;

/// The variables by which an operator asks for the export.
const ENDPOINTS: [&str; 3] = [
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
];

/// The settings of the export, of which this program has none.
pub(super) struct Settings;

/// The export, which this program does not have.
pub(super) struct Export;

impl Settings {
    /// Returns the settings, which are always valid.
    pub(super) const fn from_environment() -> Result<Self, Infallible> {
        Ok(Self)
    }

    /// Changes nothing, because nothing takes the spans.
    pub(super) const fn follow(&self, _streams: &mut StreamSettings) {}

    /// Warns an operator who asks for the export.
    pub(super) fn start(
        self,
        _server: &mut Server,
        _name: Option<&str>,
        _series: (usize, usize),
    ) -> anyhow::Result<Export> {
        let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        if let Some(name) = ENDPOINTS.iter().find(|name| is_set(name)) {
            tracing::warn!(
                "{name} has no effect, because this program was built without the feature `otlp`"
            );
        }
        Ok(Export)
    }
}

impl Export {
    /// Does nothing.
    pub(super) const fn end(self) {}
}
