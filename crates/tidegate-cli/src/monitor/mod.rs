//! Asks the monitor of a server over HTTP, with a bound on the time and on the bytes of an answer.

mod url;

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::time::Duration;

use anyhow::bail;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

pub(crate) use self::url::Url;

/// The address of a monitor that commands use by default.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8222";

/// The longest time for a connection, and for a request with its whole answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an answer.
const BODY_MAX: usize = 4 << 20;
/// The most bytes of a text that explains a failure.
const SAID_MAX: usize = 200;

/// A client of one monitor.
pub(crate) struct Monitor {
    /// `None` only while the client is dropped.
    runtime: Option<Runtime>,
    url: Url,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        // The system may still look a name up on another thread, and no signal ends that.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Monitor {
    /// Creates a client of the monitor at this address; the first request connects.
    ///
    /// # Errors
    /// The address is wrong, or the system has no resources for an event loop.
    pub(crate) fn new(url: &str) -> anyhow::Result<Self> {
        let url = Url::parse(url)?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            runtime: Some(runtime),
            url,
        })
    }

    /// Requests this path, and waits for the answer. Returns its status and its JSON.
    ///
    /// # Errors
    /// The reason why there is no JSON, in one line with the address.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        let Some(runtime) = &self.runtime else {
            bail!("the client ends");
        };
        let (status, body) = runtime.block_on(async {
            match timeout(ANSWER_TIMEOUT, self.exchange(path)).await {
                Ok(outcome) => outcome,
                Err(_) => bail!("{}: no answer within {ANSWER_TIMEOUT:?}", self.url),
            }
        })?;
        match serde_json::from_slice(&body) {
            Ok(answer) => Ok((status, answer)),
            Err(_) if status != 200 => {
                bail!(
                    "{}: status {status} ({}): is this the monitor of a tidegate server, and is it as new as this program?",
                    self.url,
                    said(&body)
                )
            }
            Err(e) => bail!("{}: the answer to {path} is no JSON: {e}", self.url),
        }
    }

    async fn exchange(&self, path: &str) -> anyhow::Result<(u16, Bytes)> {
        let url = &self.url;
        let connecting = TcpStream::connect((url.bare_host(), url.port));
        let stream = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused => bail!(
                "{url}: nothing listens there: start the server with a monitor, as in `tidegate serve -m {}`, or give its URL",
                url.port
            ),
            Ok(Err(e)) => bail!("{url}: {e}"),
            Err(_) => bail!("{url}: no connection within {CONNECT_TIMEOUT:?}"),
        };
        // A server for NATS clients speaks first, which ends the exchange before the request has left.
        let broken = |e: hyper::Error| match e.is_parse() || e.is_canceled() {
            true => anyhow::anyhow!(
                "{url}: the peer does not speak HTTP: give the port of the monitor, not that of clients"
            ),
            false => anyhow::anyhow!("{url}: the connection broke: {e}"),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let driver = tokio::spawn(connection);
        let request = hyper::Request::get(format!("{}{path}", url.base))
            .header(HOST, url.authority())
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        driver.abort();
        match body {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => {
                bail!("{url}: the answer has more than {BODY_MAX} bytes")
            }
            Err(e) => bail!("{url}: the answer is cut off: {e}"),
        }
    }
}

/// Encodes a text as the value of a parameter in a request.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(byte as char);
            }
            // The write goes to memory and does not fail.
            _ => drop(write!(encoded, "%{byte:02X}")),
        }
    }
    encoded
}

/// Returns the first line of an answer that is not JSON, without control characters, for a message.
fn said(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(&body[..body.len().min(SAID_MAX)]);
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Asks a peer that answers with these bytes and closes the connection.
    fn asked(answer: &[u8]) -> anyhow::Result<(u16, Value)> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answer = answer.to_vec();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() > 0 {
                head.extend(byte);
            }
            // The client closes a connection if the answer is too long.
            let _ = stream.write_all(&answer);
            head
        });
        let outcome = Monitor::new(&format!("http://{address}/base"))
            .unwrap()
            .get("/x");
        assert!(
            answering
                .join()
                .unwrap()
                .starts_with(b"GET /base/x HTTP/1.1\r\n")
        );
        outcome
    }

    #[test]
    fn answers_and_failures_in_one_line() {
        let answer =
            asked(b"HTTP/1.1 404 Not Found\r\ncontent-length: 8\r\n\r\n{\"a\": 1}").unwrap();
        assert_eq!((answer.0, &answer.1["a"]), (404, &1.into()));
        let long = [
            b"HTTP/1.1 200 OK\r\n\r\n[".to_vec(),
            vec![b' '; BODY_MAX + 100],
        ]
        .concat();
        for (bytes, part) in [
            (
                &b"HTTP/1.1 404 Not Found\r\ncontent-length: 6\r\n\r\n\x1b[2Jno"[..],
                "status 404",
            ),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n{\"a\"",
                "no JSON",
            ),
            (
                b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\"",
                "cut off",
            ),
            (b"INFO {\"server_id\":\"x\"}\r\n", "does not speak HTTP"),
            (b"", "broke"),
            (&long, "more than"),
        ] {
            let said = asked(bytes).unwrap_err().to_string();
            assert!(said.contains(part), "{said}");
            assert!(!said.contains(char::is_control), "{said}");
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = listener.local_addr().unwrap().to_string();
        drop(listener);
        let said = Monitor::new(&free)
            .unwrap()
            .get("/x")
            .unwrap_err()
            .to_string();
        assert!(said.contains("nothing listens"), "{said}");
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("A-b_1.~"), "A-b_1.~");
        assert_eq!(encoded("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
