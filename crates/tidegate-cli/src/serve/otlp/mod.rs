//! Exports traces and metrics over OTLP (HTTP with protobuf) to a collector of OpenTelemetry.
//!
//! Each of the two has a thread of its own, which waits for the collector. The event loop never waits: it
//! hands spans over through a bounded channel, and drops and counts those that find it full. [`settings`]
//! reads the environment, [`traces`] and [`metrics`] make the messages, [`queue`] keeps spans until the
//! collector has them, [`post`] sends, and [`losses`] bounds the log lines.

mod losses;
mod metrics;
mod post;
mod queue;
mod settings;
mod threads;
mod traces;

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use tidegate_server::config::StreamSettings;
use tidegate_server::{Server, span_channel};
use tokio::sync::watch;
use tokio::time::Instant;

use self::post::Poster;
pub(super) use self::settings::Settings;

/// The longest time that the end of the program waits for the collector to take the last spans.
const FLUSH_MAX: Duration = Duration::from_secs(2);

/// The threads that export. They end with [`Export::end`].
pub(super) struct Export {
    /// The moment at which the threads give up, once the program ends.
    stop: watch::Sender<Option<Instant>>,
    threads: Vec<JoinHandle<()>>,
}

impl Settings {
    /// Makes the server follow publishes, if there is a collector for their spans.
    pub(super) const fn follow(&self, streams: &mut StreamSettings) {
        if self.traces.is_some() {
            streams.spans = self.sampling;
        }
    }

    /// Starts the threads for which there is a collector. `name` is the name that the operator gave the
    /// server, and `series` is the most streams and consumers with metrics of their own.
    ///
    /// # Errors
    /// No certificate of an authority for a collector with TLS, or no resources for a thread.
    pub(super) fn start(
        self,
        server: &mut Server,
        name: Option<&str>,
        series: (usize, usize),
    ) -> anyhow::Result<Export> {
        let (stop, stopped) = watch::channel(None);
        let mut threads = Vec::new();
        let resource = self.resource(name)?;
        let thread = |name: &str| std::thread::Builder::new().name(name.into());
        if let Some(target) = self.traces
            && self.sampling.is_some()
        {
            let poster = Poster::new(target, stopped.clone())
                .context("the export of traces over OTLP cannot start")?;
            let (to, spans) = span_channel();
            server.send_spans(to);
            let (resource, delay) = (resource.clone(), self.spans_delay);
            threads.push(thread("otlp-traces").spawn(move || {
                threads::export_traces(&spans, &poster, &resource, delay);
            })?);
        }
        if let Some(target) = self.metrics {
            let poster = Poster::new(target, stopped)
                .context("the export of metrics over OTLP cannot start")?;
            let (handle, interval) = (server.handle(), self.metrics_interval);
            threads.push(thread("otlp-metrics").spawn(move || {
                threads::export_metrics(&handle, &poster, &resource, interval, series);
            })?);
        }
        Ok(Export { stop, threads })
    }

    /// Returns the attributes of this server, which are the same for all spans and metrics.
    fn resource(&self, name: Option<&str>) -> anyhow::Result<Resource> {
        let mut attributes = self.resource.clone();
        let mut complete = |key: &str, value: String| {
            if !attributes.iter().any(|(known, _)| known == key) {
                attributes.push((key.to_owned(), value));
            }
        };
        complete("service.name", "tidegate".into());
        complete("service.version", env!("CARGO_PKG_VERSION").into());
        let instance = match name {
            Some(name) => name.to_owned(),
            None => {
                let mut id = [0; 16];
                getrandom::fill(&mut id).context("no random numbers for service.instance.id")?;
                format!("{:032x}", u128::from_be_bytes(id))
            }
        };
        complete("service.instance.id", instance);
        let attributes = attributes.into_iter();
        Ok(Resource {
            attributes: attributes.map(|(key, value)| text(&key, value)).collect(),
            ..Resource::default()
        })
    }
}

impl Export {
    /// Lets the threads hand the last spans to the collector, for a short time, and ends them. The server has
    /// ended already.
    pub(super) fn end(self) {
        let deadline = Some(Instant::now() + FLUSH_MAX);
        // The send fails if no thread runs, which is harmless.
        let _ = self.stop.send(deadline);
        for thread in self.threads {
            // A thread that panicked has nothing more to export, and the log has the panic.
            let _ = thread.join();
        }
    }
}

/// Returns the name under which this program makes spans and metrics.
fn scope() -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: "tidegate".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        ..InstrumentationScope::default()
    })
}

fn text(key: &str, value: impl Into<String>) -> KeyValue {
    attribute(key, Value::StringValue(value.into()))
}

fn attribute(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}
