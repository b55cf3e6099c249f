//! Posts a message to the collector over HTTP, with or without TLS, with a bound on the time and on the bytes
//! of the answer. Each request has a connection of its own, because requests are seconds apart.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::settings::Target;

/// The most bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// The most bytes of an answer that stand in a log line.
const SAID_MAX: usize = 200;

/// A client of one collector.
pub(super) struct Poster {
    /// `None` only while the client is dropped.
    runtime: Option<Runtime>,
    target: Target,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// The moment at which requests end, once the program ends.
    stop: watch::Receiver<Option<Instant>>,
}

/// The reason why the collector does not have a message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Failure {
    /// Another try may succeed.
    #[error("{0}")]
    Again(String),
    /// The collector refuses the message, and would refuse it again.
    #[error("{0}")]
    Refused(String),
    /// The program ends.
    #[error("the program ends")]
    Stopped,
}

impl Drop for Poster {
    fn drop(&mut self) {
        // The system may still look a name up on another thread, and nothing ends that.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Poster {
    /// Creates a client; each request connects. Once `stop` has a moment, requests end at that moment.
    ///
    /// # Errors
    /// The authorities of a collector with TLS are unusable, or the system has no resources for an event
    /// loop.
    pub(super) fn new(
        target: Target,
        stop: watch::Receiver<Option<Instant>>,
    ) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tls = match target.endpoint.is_tls {
            true => Some(tls(&target)?),
            false => None,
        };
        Ok(Self {
            runtime: Some(runtime),
            target,
            tls,
            stop,
        })
    }

    /// Returns the address of the collector, for log lines.
    pub(super) fn address(&self) -> String {
        self.target.endpoint.to_string()
    }

    /// Posts a message, and returns the collector's answer.
    ///
    /// # Errors
    /// The collector does not have the message.
    pub(super) fn post(&self, message: Vec<u8>) -> Result<Bytes, Failure> {
        let Some(runtime) = &self.runtime else {
            return Err(Failure::Stopped);
        };
        let time = self.target.timeout;
        runtime.block_on(async {
            tokio::select! {
                outcome = timeout(time, self.exchange(message.into())) => outcome.unwrap_or_else(|_| {
                    Err(Failure::Again(format!("no answer within {} ms", time.as_millis())))
                }),
                () = self.stopped() => Err(Failure::Stopped),
            }
        })
    }

    /// Waits for this time. Returns false at once when the program ends.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let mut stop = self.stop.clone();
        let Some(runtime) = &self.runtime else {
            return false;
        };
        runtime.block_on(async { timeout(time, stop.wait_for(Option::is_some)).await.is_err() })
    }

    /// Ends at the moment at which requests end.
    async fn stopped(&self) {
        let mut stop = self.stop.clone();
        // The sender lives as long as the threads that post, so that an error means a lost owner: an end,
        // too.
        let deadline = match stop.wait_for(Option::is_some).await {
            Ok(deadline) => *deadline,
            Err(_) => None,
        };
        sleep_until(deadline.unwrap_or_else(Instant::now)).await;
    }

    async fn exchange(&self, message: Bytes) -> Result<Bytes, Failure> {
        let endpoint = &self.target.endpoint;
        let connecting = TcpStream::connect((endpoint.bare_host(), endpoint.port));
        let stream = connecting.await.map_err(|e| again("cannot connect", &e))?;
        match &self.tls {
            None => self.request(TokioIo::new(stream), message).await,
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await;
                let stream = stream.map_err(|e| again("no connection with TLS", &e))?;
                self.request(TokioIo::new(stream), message).await
            }
        }
    }

    async fn request<S>(&self, stream: S, message: Bytes) -> Result<Bytes, Failure>
    where
        S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
    {
        let broken = |e: hyper::Error| again("the connection broke", &e);
        let endpoint = &self.target.endpoint;
        let (mut sender, connection) = http1::handshake(stream).await.map_err(broken)?;
        let driver = tokio::spawn(connection);
        let mut request = Request::post(endpoint.path.as_str())
            .header(HOST, endpoint.authority())
            .header(CONTENT_TYPE, "application/x-protobuf")
            .header(USER_AGENT, concat!("tidegate/", env!("CARGO_PKG_VERSION")))
            .header(CONNECTION, "close");
        for (name, value) in &self.target.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(message));
        let request = request.map_err(|e| Failure::Refused(e.to_string()))?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        driver.abort();
        // The status says everything that matters, so a body that is cut or too long is like none.
        let body = body.map(|body| body.to_bytes()).unwrap_or_default();
        judged(status, body)
    }
}

/// Decides by the status of an answer, as the protocol says, if another try may succeed.
fn judged(status: StatusCode, body: Bytes) -> Result<Bytes, Failure> {
    let said = || format!("the collector answers {status}{}", said(&body));
    match status.as_u16() {
        200..=299 => Ok(body),
        429 | 502..=504 => Err(Failure::Again(said())),
        _ => Err(Failure::Refused(said())),
    }
}

/// Returns the readable part of an answer's first line, for a message. Collectors answer with protobuf, in
/// which the text stands behind a few bytes.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SAID_MAX)]);
    let is_readable = |c: &char| !c.is_control() && *c != char::REPLACEMENT_CHARACTER;
    let text: String = text.chars().filter(is_readable).collect();
    match text.is_empty() {
        true => text,
        false => format!(": {text}"),
    }
}

fn again(what: &str, error: &dyn std::error::Error) -> Failure {
    let mut said = format!("{what}: {error}");
    // An error of the HTTP library names its cause only here.
    if let Some(cause) = error.source().map(ToString::to_string)
        && !said.contains(&cause)
    {
        said = format!("{said}: {cause}");
    }
    Failure::Again(said)
}

/// Makes the part of a client that verifies the collector's certificate.
fn tls(target: &Target) -> anyhow::Result<(TlsConnector, ServerName<'static>)> {
    let mut roots = RootCertStore::empty();
    match &target.ca_file {
        Some(path) => {
            let shown = || format!("cannot read authorities from {}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).with_context(shown)? {
                roots
                    .add(certificate.with_context(shown)?)
                    .with_context(shown)?;
            }
        }
        None => {
            // Some of the system's certificates may be unreadable, and a single readable one may be enough.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        bail!("no certificate of an authority: name a PEM file in OTEL_EXPORTER_OTLP_CERTIFICATE");
    }
    let host = target.endpoint.bare_host();
    let name = ServerName::try_from(host.to_owned());
    let name = name.with_context(|| format!("`{host}` is no name of a server"))?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok((TlsConnector::from(Arc::new(config)), name))
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Read as _, Write as _};
    use std::net::TcpListener;
    use std::path::Path;

    use hyper::header::HeaderMap;
    use tokio_rustls::rustls::pki_types::PrivateKeyDer;
    use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

    use super::super::settings::Endpoint;
    use super::*;

    /// Starts a collector at `localhost` with this certificate, which takes one request. Returns its port.
    fn collector(made: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
        let key = made.signing_key.serialize_pem();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            let tls = ServerConnection::new(Arc::new(config)).unwrap();
            let mut stream = BufReader::new(StreamOwned::new(tls, stream));
            let mut head = String::new();
            // A client that does not trust the certificate closes the connection.
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|n| n > 0) {}
            let mut body = [0; 7];
            if stream.read_exact(&mut body).is_ok() {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n";
                stream
                    .get_mut()
                    .write_all(&[answer, &body[..]].concat())
                    .unwrap();
            }
        });
        port
    }

    fn post(port: u16, ca_file: &Path) -> Result<Bytes, Failure> {
        let target = Target {
            endpoint: Endpoint::parse(&format!("https://localhost:{port}/v1/traces")).unwrap(),
            headers: HeaderMap::new(),
            timeout: Duration::from_secs(60),
            ca_file: Some(ca_file.to_owned()),
        };
        let (_stop, stopped) = watch::channel(None);
        Poster::new(target, stopped)
            .unwrap()
            .post(b"message".to_vec())
    }

    #[test]
    fn a_collector_with_tls_must_prove_its_name() {
        let make = || rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (made, other) = (make(), make());
        let directory = tempfile::tempdir().unwrap();
        let [good, bad] = ["good.pem", "bad.pem"].map(|name| directory.path().join(name));
        std::fs::write(&good, made.cert.pem()).unwrap();
        std::fs::write(&bad, other.cert.pem()).unwrap();
        assert_eq!(
            post(collector(&made), &good),
            Ok(Bytes::from_static(b"message"))
        );
        let refused = post(collector(&made), &bad);
        let Err(Failure::Again(why)) = &refused else {
            panic!("{refused:?}");
        };
        assert!(why.starts_with("no connection with TLS"), "{why}");
    }

    #[test]
    fn the_status_decides_about_another_try() {
        let of = |status: u16, body: &'static [u8]| {
            judged(
                StatusCode::from_u16(status).unwrap(),
                Bytes::from_static(body),
            )
        };
        assert_eq!(of(200, b"x"), Ok(Bytes::from_static(b"x")));
        for status in [429, 502, 503, 504] {
            assert!(
                matches!(of(status, b""), Err(Failure::Again(_))),
                "{status}"
            );
        }
        let why = "the collector answers 400 Bad Request: bad\u{1b} data";
        let why = why.replace('\u{1b}', "");
        assert_eq!(
            of(400, b"\x12\x08bad\x1b data\xff"),
            Err(Failure::Refused(why))
        );
        assert!(matches!(of(404, b""), Err(Failure::Refused(_))));
    }
}
