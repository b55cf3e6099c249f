//! Runs the monitor, which serves figures of the server over HTTP on a separate thread.
//!
//! This module has the paths ([`json::PATHS`]) and their parameters ([`query`]). The event loop gathers the
//! figures between two turns ([`Report`]), and the monitor's thread formats them ([`json`], [`metrics`]), so
//! that no message waits for a reader of the monitor. The monitor bounds the number of connections and the
//! time of each request, so that readers cannot exhaust it.

pub(crate) mod accounts;
mod alarms;
mod half_requests;
pub(crate) mod health;
pub(crate) mod json;
mod machine;
mod messages;
mod metrics;
mod options;
mod overview;
pub(crate) mod query;
mod sampling;
mod series;
mod why;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, LOCATION, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tidegate_monitor::page;
use tokio::sync::{Mutex, Semaphore, oneshot};

use self::half_requests::HalfRequests;
use self::options::{Closed, Doors};
pub use self::options::{Options, SERIES_DEFAULT, SERIES_MAX};
use self::sampling::{Sampling, Wanted};
use crate::event_loop::handle::{Busy, Handle};
use crate::event_loop::report::Report;
use crate::event_loop::report::gather::Gather;
use crate::event_loop::report::query::{List, Message, Query};
use crate::event_loop::report::series::Slice;
use crate::event_loop::report::why::Located;

/// The most connections that the monitor serves at the same moment. A further one takes the place of the
/// oldest connection without a whole request. If there is none, it waits, and others wait in the listener's
/// backlog, so that readers take bounded memory.
const READERS_MAX: usize = 32;
/// The least time between two log lines about a connection that the monitor failed to accept, so that the log
/// does not fill.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// The longest time in which a reader may send the head of a request. After it the monitor closes the
/// connection.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest time of a connection to the monitor, after which the monitor closes it.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest time that the monitor waits for the event loop's report. After it the reader gets an error.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The answer to a request for a dashboard that is off.
const DASHBOARD_OFF: &str = "the dashboard is off: beyond this machine the operator turns it on with \
                             `dashboard: true` in the configuration or with --dashboard";

/// The answer to a request for messages that the operator has not allowed.
const MESSAGES_OFF: &str = "the monitor shows no messages: the operator allows it with `message_token` in the \
                            configuration, and readers then send this token";
/// The answer to a request for messages without the right token.
const WRONG_TOKEN: &str = "expected the header `Authorization: Bearer TOKEN` with the `message_token` of the \
                           server's configuration";
/// The time that the monitor waits before it answers a wrong token.
const WRONG_TOKEN_WAIT: Duration = Duration::from_millis(250);

/// The running monitor. The monitor's thread ends once the owner drops this value, so that a stopping server
/// leaves no thread.
#[derive(Debug)]
pub struct Monitor {
    address: SocketAddr,
    shows_dashboard: bool,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts the monitor at `host` and `port`. The monitor answers with the figures of the server that
    /// `handle` controls.
    ///
    /// # Errors
    /// The monitor cannot bind the address, or cannot start its thread.
    pub fn start(host: &str, port: u16, handle: Handle) -> io::Result<Self> {
        let host = host.into();
        let options = Options {
            host,
            port,
            ..Options::default()
        };
        Self::start_with(&options, handle)
    }

    /// Starts the monitor with these `options`. The monitor answers with the figures of the server that
    /// `handle` controls.
    ///
    /// # Errors
    /// The monitor cannot bind the address, or cannot start its thread.
    pub fn start_with(options: &Options, handle: Handle) -> io::Result<Self> {
        let listener = TcpListener::bind((&*options.host, options.port))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let started = SystemTime::now();
        let base = options.base.as_str().into();
        let doors = Arc::new(Doors::new(options, address));
        let shows_dashboard = doors.dashboard;
        let bound = |n: usize| n.min(SERIES_MAX);
        let series = Slice::first(
            bound(options.metrics_streams),
            bound(options.metrics_consumers),
        );
        let thread = std::thread::Builder::new()
            .name("monitor".into())
            .spawn(move || {
                let serving = async move {
                    let source = Source {
                        sampling: Sampling::new(handle.clone(), doors.shows_messages()),
                        handle,
                        started,
                        base,
                        doors,
                        series,
                        asked: Arc::default(),
                        asking: Arc::default(),
                        reading: Arc::default(),
                        readers: Arc::new(Semaphore::new(READERS_MAX)),
                        half_requests: Arc::default(),
                    };
                    if let Err(e) = serve(listener, source).await {
                        tracing::error!(
                            "the HTTP monitor failed, and the server goes on without it: {e}"
                        );
                    }
                };
                runtime.block_on(async {
                    let serving = tokio::spawn(serving);
                    // The thread waits here until the owner of the monitor sends a message or drops the
                    // sender, and then ends.
                    let _ = stopped.await;
                    serving.abort();
                });
            })?;
        Ok(Self {
            address,
            shows_dashboard,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the address at which the monitor listens for readers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the monitor serves the dashboard.
    #[must_use]
    pub const fn shows_dashboard(&self) -> bool {
        self.shows_dashboard
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The send fails if the monitor's thread has ended already, which is harmless.
        let _ = self.stop.take().map(|s| s.send(()));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[derive(Clone)]
struct Source {
    handle: Handle,
    sampling: Sampling,
    started: SystemTime,
    /// The beginning of all paths of the monitor, which the operator sets.
    base: Arc<str>,
    doors: Arc<Doors>,
    /// The first slice of the series of single streams in `/metrics`, with the operator's bounds.
    series: Slice,
    asked: Arc<Asked>,
    /// The lock that a request holds while it waits for a report of the event loop, so that the loop makes
    /// one report at a time.
    asking: Arc<Mutex<()>>,
    /// The lock that a request holds while it reads messages from the log.
    reading: Arc<Mutex<()>>,
    /// A permit for each connection that the monitor may still accept.
    readers: Arc<Semaphore>,
    /// The connections of which no whole request has arrived yet.
    half_requests: Arc<HalfRequests>,
}

/// Counts the requests that the monitor has answered, by path, in the order of [`json::PATHS`]; `/varz` shows
/// them, so that an operator sees who reads.
#[derive(Debug, Default)]
struct Asked([AtomicU64; json::PATHS.len()]);

impl Asked {
    fn count(&self, path: &str) {
        if let Some(at) = json::PATHS.iter().position(|known| *known == path) {
            self.0[at].fetch_add(1, Relaxed);
        }
    }

    fn json(&self, base: &str) -> serde_json::Value {
        let counts = json::PATHS.iter().zip(&self.0);
        let one =
            |(path, n): (&&str, &AtomicU64)| (format!("{base}{path}"), n.load(Relaxed).into());
        serde_json::Value::Object(counts.map(one).collect())
    }
}

async fn serve(listener: TcpListener, source: Source) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut said = None;
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(e) => {
                if said.is_none_or(|said: Instant| said.elapsed() > SAID_EVERY) {
                    tracing::warn!(
                        "the HTTP monitor cannot accept a connection, and tries again soon: {e}"
                    );
                    said = Some(Instant::now());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        if source.readers.available_permits() == 0 {
            source.half_requests.close_oldest();
        }
        let Ok(permit) = Arc::clone(&source.readers).acquire_owned().await else {
            return Ok(());
        };
        let (half_requests, source) = (Arc::clone(&source.half_requests), source.clone());
        let half = HalfRequests::begin(&half_requests);
        let number = half.number();
        let task = tokio::spawn(async move {
            let service = service_fn(move |request| {
                half.complete();
                answer(request, source.clone())
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(TokioIo::new(stream), service);
            // The monitor logs nothing if the connection fails or exceeds its time, because only the reader
            // is to blame.
            let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
            drop(permit);
        });
        half_requests.set_task(number, task.abort_handle());
    }
}

async fn answer(
    request: Request<Incoming>,
    source: Source,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut response = match request.method() {
        &Method::GET => route(&request, &source).await,
        _ => plain(StatusCode::METHOD_NOT_ALLOWED, "only GET"),
    };
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // No page of another origin may embed an answer, either.
    let own = HeaderValue::from_static("same-origin");
    headers.insert("cross-origin-resource-policy", own);
    // Browsers keep their connections. With many of them, each gets its answer and makes room for others.
    if source.readers.available_permits() < READERS_MAX / 2 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(response)
}

async fn route(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    let path = match request.uri().path().strip_prefix(&*source.base) {
        Some("") => "/",
        Some(path) => path,
        None => "",
    };
    if let Some(file) = page::file(path) {
        return dashboard(request, source, file);
    }
    if path == "/" && source.doors.dashboard && accepts_html(request) {
        return to_dashboard(source);
    }
    let known = json::PATHS.contains(&path) || matches!(path, "/" | "/subscriptionsz");
    if !known {
        let expected = format!("expected one of {}", json::PATHS.join(", "));
        return plain(StatusCode::NOT_FOUND, &expected);
    }
    if let Err(refusal) = source.doors.check_figures(request.headers()) {
        return plain(StatusCode::FORBIDDEN, &refusal.to_string());
    }
    source.asked.count(path);
    if path == "/messages" {
        return messages(request, source).await;
    }
    match figures(path, request.uri().query().unwrap_or(""), source).await {
        Ok(response) => response,
        Err(message) => plain(StatusCode::BAD_REQUEST, &message),
    }
}

/// Makes the answer to a request for messages, if the request carries the token that the operator has set.
async fn messages(request: &Request<Incoming>, source: &Source) -> Response<Full<Bytes>> {
    match source.doors.check_messages(request.headers()) {
        Ok(()) => {}
        Err(Closed::Off) => return plain(StatusCode::FORBIDDEN, MESSAGES_OFF),
        Err(Closed::Token) => {
            // The wait bounds the guesses in a second, with the number of connections.
            tokio::time::sleep(WRONG_TOKEN_WAIT).await;
            let mut response = plain(StatusCode::UNAUTHORIZED, WRONG_TOKEN);
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(WWW_AUTHENTICATE, scheme);
            return response;
        }
    }
    let browse = match messages::parse(request.uri().query().unwrap_or("")) {
        Ok(browse) => browse,
        Err(message) => return plain(StatusCode::BAD_REQUEST, &message),
    };
    let mut looking = messages::Looking::new(browse);
    let mut next = looking.first();
    let page = loop {
        let Some(browsed) = ask(source, |to| source.handle.browse(next, to)).await else {
            return late();
        };
        match looking.take(browsed) {
            messages::Step::On(browse) => next = browse,
            messages::Step::Read(page) => break page,
            messages::Step::Nothing(status, why) => {
                let status = StatusCode::from_u16(status);
                return plain(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), why);
            }
        }
    };
    // One answer at a time reads the log, so that many readers take bounded memory.
    let _turn = source.reading.lock().await;
    let Ok(body) = tokio::task::spawn_blocking(move || json::bytes(&page.read())).await else {
        return plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the monitor cannot answer",
        );
    };
    let mut response = with_type(StatusCode::OK, "application/json", body);
    let no_store = HeaderValue::from_static("no-store");
    response.headers_mut().insert(CACHE_CONTROL, no_store);
    response
}

/// Makes the answer to a request for the dashboard's page or one of its files.
fn dashboard(
    request: &Request<Incoming>,
    source: &Source,
    file: page::File,
) -> Response<Full<Bytes>> {
    if !source.doors.dashboard {
        return plain(StatusCode::FORBIDDEN, DASHBOARD_OFF);
    }
    if let Err(refusal) = source.doors.check(request.headers()) {
        return plain(StatusCode::FORBIDDEN, &refusal.to_string());
    }
    let mut response = Response::new(Full::new(Bytes::from_static(file.body)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(file.content_type));
    for (name, value) in page::HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn accepts_html(request: &Request<Incoming>) -> bool {
    let accept = request.headers().get(ACCEPT);
    accept
        .and_then(|a| a.to_str().ok())
        .is_some_and(page::accepts_html)
}

/// Leads a browser from `/` to the dashboard.
fn to_dashboard(source: &Source) -> Response<Full<Bytes>> {
    let mut response = plain(StatusCode::FOUND, "the dashboard is at /dashboard");
    if let Ok(to) = HeaderValue::from_str(&format!("{}{}", source.base, page::PAGE)) {
        response.headers_mut().insert(LOCATION, to);
    }
    response
}

/// Makes the answer with the figures at `path`, by the parameters in `text`.
///
/// # Errors
/// A parameter has a wrong value.
async fn figures(path: &str, text: &str, source: &Source) -> Result<Response<Full<Bytes>>, String> {
    if let Some(wanted) = Wanted::at(path) {
        let history_s = sampling::history(text)?;
        return Ok(match source.sampling.answer(wanted, history_s).await {
            Some(body) => with_type(StatusCode::OK, "application/json", body),
            None => late(),
        });
    }
    let mut query = query::parse(path, text)?;
    if path == "/metrics" {
        query.series = Some(source.series.clone());
    }
    let Some(report) = report(source, query.clone()).await else {
        return Ok(late());
    };
    if let Some(message) = query.message {
        let located = report.streams.and_then(|s| s.located);
        return Ok(why(message, located).await);
    }
    let wall = json::WallClock::new(source.started, SystemTime::now());
    let body = match path {
        "/healthz" => {
            let check = query.health.as_deref().cloned().unwrap_or_default();
            let (code, body) = health::healthz(&report, &check);
            // The monitor writes the body as one line without indentation, as nats-server does for health
            // probes.
            let body = body.to_string().into_bytes();
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            return Ok(with_type(status, "application/json", body));
        }
        "/varz" => {
            let mut varz = json::varz(&report, &wall);
            varz["http_req_stats"] = source.asked.json(&source.base);
            varz
        }
        "/accountz" => accounts::accountz(&report, &query, &wall)?,
        "/raftz" => json::raftz(&report),
        "/accstatz" => accounts::accstatz(&report, &query, &wall),
        "/jsz" => json::jsz(&report, &query, &wall),
        "/connz" => json::connz(&report, &query, &wall),
        "/consumerz" => json::consumerz(&report, &query, &wall),
        "/routez" => json::routez(&report, &wall),
        "/subsz" | "/subscriptionsz" => json::subsz(&report, &query, &wall),
        "/metrics" => return Ok(metrics(report).await),
        _ => json::index(),
    };
    Ok(with_type(
        StatusCode::OK,
        "application/json",
        json::bytes(&body),
    ))
}

/// Requests a report from the event loop for a reader, and then the parts of the report's list and of its
/// series. Returns `None` if the loop does not answer in time.
async fn report(source: &Source, query: Query) -> Option<Report> {
    let mut gather = Gather::new(&query);
    let mut report = ask(source, |to| source.handle.report(query.clone(), to)).await?;
    while let Some(part) = gather.next_ask() {
        gather.take(ask(source, |to| source.handle.list(part, to)).await?);
    }
    report.listed = gather.finish();
    while let Some(streams) = &mut report.streams
        && let Some(next) = query.next_slice(&mut streams.series)
    {
        let more = ask(source, |to| source.handle.report(next, to)).await?;
        streams.series.append(more.streams?.series);
    }
    Some(report)
}

/// Waits for the event loop's answer to `send`, without blocking the other readers, who share the monitor's
/// thread. Returns `None` if the loop does not answer in time.
async fn ask<T: Send + 'static>(
    source: &Source,
    send: impl FnOnce(SyncSender<T>) -> Result<(), Busy>,
) -> Option<T> {
    // The loop makes one answer at a time, so that many readers do not keep it from its clients for long.
    let _turn = source.asking.lock().await;
    sampling::ask(send).await
}

/// Makes the answer to `/metrics`. A thread of its own asks the system for the room on the disk and formats
/// the figures, so that a slow disk and a long text do not stop the other readers.
async fn metrics(report: Report) -> Response<Full<Bytes>> {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match tokio::task::spawn_blocking(move || metrics::text(report)).await {
        Ok(text) => with_type(StatusCode::OK, kind, text),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the monitor cannot answer",
        ),
    }
}

/// Returns the answer to `/metrics`, for a program that hands the figures on, with series of at most this
/// many streams and consumers (see [`Options`]). Blocks the calling thread. Returns `None` if the event loop
/// does not answer in time.
#[must_use]
pub fn metrics_text(handle: &Handle, streams: usize, consumers: usize) -> Option<String> {
    let ask = |query| {
        let (sender, receiver) = sync_channel(1);
        handle.report(query, sender).ok()?;
        receiver.recv_timeout(REPORT_TIMEOUT).ok()
    };
    let mut query = Query::new(List::Nothing);
    let bound = |n: usize| n.min(SERIES_MAX);
    query.series = Some(Slice::first(bound(streams), bound(consumers)));
    let mut report = ask(query.clone())?;
    while let Some(streams) = &mut report.streams
        && let Some(next) = query.next_slice(&mut streams.series)
    {
        streams.series.append(ask(next)?.streams?.series);
    }
    String::from_utf8(metrics::text(report)).ok()
}

/// Answers why a message became durable when it did. A thread of its own reads the log for the answer, so
/// that a slow disk does not stop the other readers.
async fn why(message: Message, located: Option<Located>) -> Response<Full<Bytes>> {
    let answer = tokio::task::spawn_blocking(move || why::answer(&message, located.as_ref()));
    match answer.await {
        Ok((true, body)) => with_type(StatusCode::OK, "application/json", json::bytes(&body)),
        Ok((false, body)) => with_type(
            StatusCode::NOT_FOUND,
            "application/json",
            json::bytes(&body),
        ),
        Err(_) => plain(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the monitor cannot answer",
        ),
    }
}

/// Makes the answer to a reader for whom the event loop had no time.
fn late() -> Response<Full<Bytes>> {
    let error = br#"{"status":"unavailable","error":"the server did not answer in time"}"#;
    with_type(
        StatusCode::SERVICE_UNAVAILABLE,
        "application/json",
        error.to_vec(),
    )
}

fn plain(status: StatusCode, message: &str) -> Response<Full<Bytes>> {
    with_type(status, "text/plain", format!("{message}\n").into_bytes())
}

fn with_type(status: StatusCode, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
