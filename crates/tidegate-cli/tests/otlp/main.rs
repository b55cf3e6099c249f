//! Tests of the export over OTLP, of the program `tidegate serve` with a collector that decodes requests.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod collector;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::{Pid, Signal, kill_process};

use self::collector::{Answer, Collector};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";
/// The longest time that a test waits for the server.
const PATIENCE: Duration = Duration::from_secs(60);
/// An interval that no test waits for.
const NEVER_MS: &str = "3600000";

/// A server that exports.
struct Serve {
    child: Child,
    log: BufReader<ChildStderr>,
    /// The lines of the log up to "Server is ready".
    start: String,
    client: BufReader<TcpStream>,
    monitor: String,
}

impl Serve {
    /// Starts a server with these variables, and with the stream `S`.
    fn start(data: &Path, variables: &[(&str, &str)]) -> Self {
        let mut command = program();
        command.args(["serve", "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--data"]);
        command.arg(data).envs(variables.iter().copied());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut start = String::new();
        while !start.contains("Server is ready") {
            assert!(log.read_line(&mut start).unwrap() > 0, "{start}");
        }
        let after = |mark: &str| {
            let (_, rest) = start.split_once(mark).unwrap();
            rest.split_whitespace().next().unwrap().to_owned()
        };
        let client = TcpStream::connect(after("Listening for client connections on ")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let monitor = after("Starting http monitor on ");
        let client = BufReader::new(client);
        let mut serve = Self {
            child,
            log,
            start,
            client,
            monitor,
        };
        serve.send("CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB r 1\r\n");
        let config = "{\"name\":\"S\",\"subjects\":[\"s.>\"]}";
        let len = config.len();
        serve.send(&format!(
            "PUB $JS.API.STREAM.CREATE.S r {len}\r\n{config}\r\n"
        ));
        let created = serve.reply();
        assert!(created.contains("\"did_create\":true"), "{created}");
        serve
    }

    fn send(&mut self, text: &str) {
        self.client.get_mut().write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the next reply, and returns its payload.
    fn reply(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("MSG r ") {
            line.clear();
            assert!(self.client.read_line(&mut line).unwrap() > 0);
        }
        line.clear();
        self.client.read_line(&mut line).unwrap();
        line
    }

    /// Publishes a message into the stream with these header lines, and waits for its acknowledgement.
    fn publish(&mut self, headers: &str) {
        let headers = format!("NATS/1.0\r\n{headers}\r\n");
        let (head, all) = (headers.len(), headers.len() + 2);
        self.send(&format!("HPUB s.x r {head} {all}\r\n{headers}ab\r\n"));
        let ack = self.reply();
        assert!(ack.contains("\"stream\":\"S\""), "{ack}");
    }

    fn log_until(&mut self, mark: &str) -> String {
        let mut seen = String::new();
        while !seen.contains(mark) {
            assert!(
                self.log.read_line(&mut seen).unwrap() > 0,
                "no `{mark}`: {seen}"
            );
        }
        seen
    }

    fn terminate(&self) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Ends the server. Returns the rest of its log.
    fn end(mut self) -> String {
        self.terminate();
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(
            status.success() && rest.contains("Server Exiting"),
            "{status}: {rest}"
        );
        rest
    }

    /// Publishes this many messages and ends the server. Checks that the rest of its log has this text.
    fn publish_and_end(mut self, messages: usize, expected: &str) {
        for _ in 0..messages {
            self.publish("");
        }
        let rest = self.end();
        assert!(rest.contains(expected), "{rest}");
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // The process may have ended already, and then the kill fails without harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the program without variables that concern it.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("OTEL_") || text.starts_with("TIDEGATE_") {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
    command
}

fn recorded() -> String {
    format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn value(attributes: &[KeyValue], key: &str) -> Option<Value> {
    let found = attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

fn text(value: &str) -> Option<Value> {
    Some(Value::StringValue(value.to_owned()))
}

fn number(value: i64) -> Option<Value> {
    Some(Value::IntValue(value))
}

/// Checks that the spans are a publish with its three steps, and returns the publish.
fn tree(spans: &[Span]) -> &Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["publish S", "proposed", "durable", "acknowledged"]);
    let (whole, steps) = spans.split_first().unwrap();
    let mut at = whole.start_time_unix_nano;
    for step in steps {
        assert_eq!(
            (&step.trace_id, &step.parent_span_id),
            (&whole.trace_id, &whole.span_id)
        );
        assert_ne!(step.span_id, whole.span_id);
        assert_eq!(step.start_time_unix_nano, at);
        at = step.end_time_unix_nano;
    }
    assert_eq!(at, whole.end_time_unix_nano);
    whole
}

#[test]
fn a_recorded_publish_is_a_span_below_that_of_its_client() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Ok);
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20secret"),
            ("OTEL_SERVICE_NAME", "orders"),
            (
                "OTEL_RESOURCE_ATTRIBUTES",
                "deployment.environment.name=test",
            ),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
            ("OTEL_METRIC_EXPORT_INTERVAL", NEVER_MS),
        ],
    );
    serve.publish("");
    serve.publish(&recorded());
    let request = collector.traces();
    assert!(
        request.head.starts_with("POST /v1/traces HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    for header in ["x-key: a secret", "content-type: application/x-protobuf"] {
        assert!(request.head.contains(header), "{}", request.head);
    }
    let resource = &request.message.resource_spans[0]
        .resource
        .as_ref()
        .unwrap()
        .attributes;
    assert_eq!(value(resource, "service.name"), text("orders"));
    assert_eq!(value(resource, "deployment.environment.name"), text("test"));
    assert_eq!(
        value(resource, "service.version"),
        text(env!("CARGO_PKG_VERSION"))
    );
    assert!(value(resource, "service.instance.id").is_some());
    let spans = request.spans();
    let whole = tree(&spans);
    assert_eq!(hex(&whole.trace_id), TRACE);
    assert_eq!(hex(&whole.parent_span_id), PARENT);
    // The first publish names no trace, so no span is for it.
    assert_eq!(value(&whole.attributes, "tidegate.sequence"), number(2));
    assert_eq!(value(&whole.attributes, "tidegate.stream"), text("S"));
    assert_eq!(value(&whole.attributes, "tidegate.result"), text("stored"));
    assert_eq!(
        value(&whole.attributes, "messaging.destination.name"),
        text("s.x")
    );
    assert_eq!(
        value(&whole.attributes, "tidegate.entry.commands"),
        number(1)
    );
    let bytes = "NATS/1.0\r\n".len() + recorded().len() + "\r\nab".len();
    assert_eq!(
        value(&whole.attributes, "tidegate.bytes"),
        number(bytes as i64)
    );
    let rest = serve.end();
    assert!(!rest.contains("does not take everything"), "{rest}");
}

#[test]
fn the_sampler_follows_publishes_without_a_trace() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Ok);
    let mut serve = Serve::start(
        directory.path(),
        &[
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                &format!("{}/own", collector.url),
            ),
            ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.5"),
            ("OTEL_BSP_SCHEDULE_DELAY", NEVER_MS),
        ],
    );
    for _ in 0..6 {
        serve.publish("");
    }
    // The end of the server sends the spans, which wait for others.
    serve.end();
    let request = collector.traces();
    assert!(
        request.head.starts_with("POST /own HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    let spans = request.spans();
    let trees: Vec<&Span> = spans.chunks(4).map(tree).collect();
    let sequences = trees
        .iter()
        .map(|span| value(&span.attributes, "tidegate.sequence"));
    assert_eq!(
        sequences.collect::<Vec<_>>(),
        [number(2), number(4), number(6)]
    );
    assert!(
        trees
            .iter()
            .all(|span| span.parent_span_id.is_empty() && span.trace_id.len() == 16)
    );
    assert_ne!(trees[0].trace_id, trees[1].trace_id);
}

#[test]
fn metrics_have_the_names_of_the_monitor() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Ok);
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
        ],
    );
    serve.publish("");
    // A request that was on its way before the publish does not count it.
    let request = std::iter::repeat_with(|| collector.metrics())
        .find(|request| {
            let metrics = request.metrics();
            let ack = metrics
                .iter()
                .find(|m| m.name == "tidegate_publish_ack_seconds");
            matches!(&ack.unwrap().data, Some(Data::Histogram(h)) if h.data_points[0].count == 1)
        })
        .unwrap();
    assert!(
        request.head.starts_with("POST /v1/metrics HTTP/1.1\r\n"),
        "{}",
        request.head
    );
    let metrics = request.metrics();
    let mut names: Vec<&str> = metrics.iter().map(|m| m.name.as_str()).collect();
    names.sort_unstable();
    let page = serve_page(&serve.monitor);
    let mut wanted: Vec<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            _ => name.to_owned(),
        })
        .collect();
    wanted.sort_unstable();
    // A family without figures is in the page only.
    wanted.retain(|name| names.contains(&name.as_str()) || page.contains(&format!("\n{name}")));
    assert_eq!(names, wanted);
    let named = |name: &str| {
        metrics
            .iter()
            .find(|m| m.name == name)
            .unwrap()
            .data
            .clone()
    };
    let Some(Data::Gauge(messages)) = named("tidegate_stream_state_messages") else {
        panic!("no gauge");
    };
    assert_eq!(
        value(&messages.data_points[0].attributes, "stream"),
        text("S")
    );
    let Some(Data::Sum(published)) = named("tidegate_in_messages_total") else {
        panic!("no sum");
    };
    assert!(published.is_monotonic);
    let point = &published.data_points[0];
    assert!(point.start_time_unix_nano > 0 && point.start_time_unix_nano < point.time_unix_nano);
    let Some(Data::Histogram(turns)) = named("tidegate_loop_turn_cpu_seconds") else {
        panic!("no histogram");
    };
    let point = &turns.data_points[0];
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), point.count);
}

/// Returns the page of metrics of the monitor at `address`.
fn serve_page(address: &str) -> String {
    let mut http = TcpStream::connect(address).unwrap();
    http.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut page = String::new();
    http.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn a_collector_that_is_down_costs_a_log_line() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let directory = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &url),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
            ("OTEL_METRIC_EXPORT_INTERVAL", NEVER_MS),
        ],
    );
    serve.publish("");
    let log = serve.log_until("does not take everything");
    assert!(
        log.contains(&format!("{url}/v1/traces")) && log.contains("cannot connect"),
        "{log}"
    );
    serve.publish_and_end(100, "lost since the last such line: 101 publishes");
}

#[test]
fn a_collector_that_never_answers_holds_up_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Never);
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", NEVER_MS),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "1"),
        ],
    );
    serve.publish("");
    // Both threads wait for the collector from now on.
    collector.traces();
    collector.metrics();
    // The timeout of a request is an hour, so the end of the program alone ends both.
    serve.publish_and_end(1000, "publishes with their spans: the program ends");
}

#[test]
fn a_collector_that_is_busy_gets_the_same_spans_again_and_one_that_refuses_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Status("503 Service Unavailable"));
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ],
    );
    serve.publish(&recorded());
    let first = collector.traces();
    serve.log_until("the collector answers 503 Service Unavailable");
    collector.answer(Answer::Ok);
    // The server may have tried once more before.
    assert_eq!(collector.traces().spans(), first.spans());
    drop(serve);

    let directory = tempfile::tempdir().unwrap();
    let collector = Collector::start(Answer::Status("400 Bad Request"));
    let mut serve = Serve::start(
        directory.path(),
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ],
    );
    serve.publish(&recorded());
    let log = serve.log_until("the collector answers 400 Bad Request");
    assert!(
        log.contains("lost since the last such line: 1 publishes"),
        "{log}"
    );
    serve.publish(&recorded());
    let (first, second) = (collector.traces().spans(), collector.traces().spans());
    let sequence = |spans: &[Span]| value(&tree(spans).attributes, "tidegate.sequence");
    assert_eq!(
        (sequence(&first), sequence(&second)),
        (number(1), number(2))
    );
}

#[test]
fn a_wrong_variable_ends_the_start_in_one_line() {
    for (name, wrong, part) in [
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "localhost:4318",
            "expected an http:// or https:// URL",
        ),
        (
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "http://",
            "expected an http:// or https:// URL",
        ),
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "expected http/protobuf",
        ),
        (
            "OTEL_TRACES_SAMPLER",
            "always_on",
            "expected parentbased_always_off",
        ),
    ] {
        let mut command = program();
        command.env("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://127.0.0.1:1");
        command
            .env(name, wrong)
            .args(["serve", "-p", "-1", "--data", "/nonexistent/x"]);
        for more in [&[][..], &["-t"]] {
            let output = command.args(more).output().unwrap();
            let said = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{said}");
            let is_named = said.contains(&format!("{name}={wrong}: {part}"));
            assert!(is_named && said.lines().count() == 1, "{said}");
        }
    }
}

#[test]
fn without_an_endpoint_there_is_no_export() {
    let directory = tempfile::tempdir().unwrap();
    let mut serve = Serve::start(
        directory.path(),
        &[("OTEL_TRACES_SAMPLER", "parentbased_always_on")],
    );
    serve.publish(&recorded());
    let tasks = format!("/proc/{}/task", serve.child.id());
    let names = std::fs::read_dir(tasks)
        .unwrap()
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let threads: Vec<String> = names.collect();
    assert!(
        threads.iter().any(|name| name.starts_with("monitor")),
        "{threads:?}"
    );
    assert!(
        !threads.iter().any(|name| name.starts_with("otlp")),
        "{threads:?}"
    );
    assert!(!serve.start.contains("collector"), "{}", serve.start);
}
