//! A collector of OTLP over HTTP: it decodes each request, hands it to the test, and answers as the test
//! says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

use super::PATIENCE;

/// The most requests that wait for the test.
const REQUESTS_MAX: usize = 4096;

/// The answer of the collector to each request.
#[derive(Clone, Copy)]
pub(crate) enum Answer {
    Ok,
    /// The status of a refusal, with its reason.
    Status(&'static str),
    /// The collector takes the request and keeps its connection open.
    Never,
}

/// A request that the collector got.
pub(crate) struct Request<T> {
    /// The line of the request and its headers.
    pub(crate) head: String,
    pub(crate) message: T,
}

/// A collector on a port of its own.
pub(crate) struct Collector {
    pub(crate) url: String,
    answer: Arc<Mutex<Answer>>,
    traces: Receiver<Request<ExportTraceServiceRequest>>,
    metrics: Receiver<Request<ExportMetricsServiceRequest>>,
}

impl Request<ExportTraceServiceRequest> {
    /// Returns all spans of the request.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let scopes = self
            .message
            .resource_spans
            .iter()
            .flat_map(|r| &r.scope_spans);
        scopes.flat_map(|scope| scope.spans.clone()).collect()
    }
}

impl Request<ExportMetricsServiceRequest> {
    /// Returns all metrics of the request.
    pub(crate) fn metrics(&self) -> Vec<Metric> {
        let scopes = self
            .message
            .resource_metrics
            .iter()
            .flat_map(|r| &r.scope_metrics);
        scopes.flat_map(|scope| scope.metrics.clone()).collect()
    }
}

impl Collector {
    pub(crate) fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(answer));
        let (to_traces, traces) = sync_channel(REQUESTS_MAX);
        let (to_metrics, metrics) = sync_channel(REQUESTS_MAX);
        let told = Arc::clone(&answer);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (to_traces, to_metrics) = (to_traces.clone(), to_metrics.clone());
                let told = Arc::clone(&told);
                std::thread::spawn(move || {
                    // A server that ends closes its connections, which is no fault.
                    let _ = serve(stream.unwrap(), &to_traces, &to_metrics, &told);
                });
            }
        });
        Self {
            url,
            answer,
            traces,
            metrics,
        }
    }

    /// Makes the collector answer later requests in this way.
    pub(crate) fn answer(&self, answer: Answer) {
        *self.answer.lock().unwrap() = answer;
    }

    /// Waits for the next request with spans.
    pub(crate) fn traces(&self) -> Request<ExportTraceServiceRequest> {
        self.traces.recv_timeout(PATIENCE).unwrap()
    }

    /// Waits for the next request with metrics.
    pub(crate) fn metrics(&self) -> Request<ExportMetricsServiceRequest> {
        self.metrics.recv_timeout(PATIENCE).unwrap()
    }
}

/// Serves the one request of a connection.
fn serve(
    stream: TcpStream,
    to_traces: &SyncSender<Request<ExportTraceServiceRequest>>,
    to_metrics: &SyncSender<Request<ExportMetricsServiceRequest>>,
    told: &Mutex<Answer>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let (_, len) = headers.find(|(name, _)| *name == "content-length").unwrap();
    let mut body = vec![0; len.parse().unwrap()];
    reader.read_exact(&mut body)?;
    let answer = *told.lock().unwrap();
    // The test may have ended, and then no receiver is left.
    match head.contains("metrics") {
        true => drop(to_metrics.send(request(head, &body))),
        false => drop(to_traces.send(request(head, &body))),
    }
    let stream = reader.get_mut();
    match answer {
        Answer::Ok => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"),
        Answer::Status(status) => {
            write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n")
        }
        // The read ends when the client has closed the connection.
        Answer::Never => stream.read(&mut [0]).map(drop),
    }
}

fn request<T: Message + Default>(head: String, body: &[u8]) -> Request<T> {
    let message = T::decode(body).unwrap();
    Request { head, message }
}
