//! Asks the monitor of a server over HTTP, with a bound on the time and on the bytes of an answer.
//!
//! Each request has a connection of its own, because monitors close connections after some time.

mod failure;
mod url;

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONNECTION, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, timeout};

pub(crate) use self::failure::{Failure, Reply};
pub(crate) use self::url::Url;
use crate::interrupt::{self, Interrupted};

/// The address of a monitor that commands use by default.
pub(crate) const DEFAULT: &str = "http://127.0.0.1:8222";

/// The longest time for a connection, and for a request with its whole answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which a waiting request checks for Ctrl-C.
const LOOK: Duration = Duration::from_millis(50);
/// The most bytes of an answer. A page of streams has some hundred KiB.
const BODY_MAX: usize = 16 << 20;
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
    /// The system has no resources for an event loop.
    pub(crate) fn new(url: Url) -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self {
            runtime: Some(runtime),
            url,
        })
    }

    /// Requests this path, and waits for the answer. Returns its status and its JSON.
    ///
    /// # Errors
    /// The reason why there is no JSON, in one line with the address and a next step; [`Interrupted`] after
    /// Ctrl-C.
    pub(crate) fn get(&self, path: &str) -> anyhow::Result<(u16, Value)> {
        match self.ask(path) {
            Ok(reply) => Ok((reply.status, reply.body)),
            Err(Failure::Interrupted) => bail!(Interrupted),
            Err(why) => bail!("{}: {why}{}", self.url, why.hint()),
        }
    }

    /// Requests this path, and waits for the answer.
    ///
    /// # Errors
    /// The reason why there is no JSON.
    pub(crate) fn ask(&self, path: &str) -> Result<Reply, Failure> {
        let Some(runtime) = &self.runtime else {
            return Err(Failure::Interrupted);
        };
        let (status, body) = runtime.block_on(async {
            let mut asking = pin!(self.exchange(path));
            let until = Instant::now() + ANSWER_TIMEOUT;
            loop {
                match timeout(LOOK, &mut asking).await {
                    Ok(outcome) => return outcome,
                    Err(_) if interrupt::asked() => return Err(Failure::Interrupted),
                    Err(_) if Instant::now() >= until => {
                        return Err(Failure::Silent(ANSWER_TIMEOUT));
                    }
                    Err(_) => {}
                }
            }
        })?;
        match serde_json::from_slice::<Value>(&body) {
            Ok(body) => Ok(Reply { status, body }),
            Err(_) if status != 200 => Err(Failure::Status(status, said(&body))),
            Err(e) => Err(Failure::NotJson(e.to_string())),
        }
    }

    async fn exchange(&self, path: &str) -> Result<(u16, Bytes), Failure> {
        let connecting = TcpStream::connect((self.url.bare_host(), self.url.port));
        let stream = match timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) if e.kind() == ErrorKind::ConnectionRefused => return Err(Failure::Refused),
            Ok(Err(e)) => return Err(Failure::Unreachable(e.to_string())),
            Err(_) => return Err(Failure::Silent(CONNECT_TIMEOUT)),
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        let driver = tokio::spawn(connection);
        let request = hyper::Request::get(format!("{}{path}", self.url.base))
            .header(HOST, self.url.authority())
            .header(ACCEPT, "application/json")
            .header(CONNECTION, "close")
            .body(Empty::<Bytes>::new())
            .map_err(|e| Failure::Unreachable(e.to_string()))?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status().as_u16();
        let body = Limited::new(answer.into_body(), BODY_MAX).collect().await;
        driver.abort();
        match body {
            Ok(body) => Ok((status, body.to_bytes())),
            Err(e) if e.is::<http_body_util::LengthLimitError>() => {
                Err(Failure::TooLarge(BODY_MAX))
            }
            Err(e) => Err(Failure::Cut(e.to_string())),
        }
    }
}

/// Says how the exchange failed: with a peer that speaks another protocol, or with a broken connection.
fn broken(error: hyper::Error) -> Failure {
    // A server for NATS clients speaks first, which may cancel the exchange before the request has left.
    match error.is_parse() || error.is_canceled() {
        true => Failure::NotHttp,
        false => Failure::Cut(error.to_string()),
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
    use std::net::{SocketAddr, TcpListener};
    use std::thread::JoinHandle;

    use super::*;

    /// Answers one connection with these bytes, and returns the head of its request.
    fn answer(bytes: Vec<u8>) -> (SocketAddr, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap() == 0 {
                    break;
                }
                head.extend(byte);
            }
            // If the answer is too large, the client closes the connection.
            let _ = stream.write_all(&bytes);
            String::from_utf8(head).unwrap()
        });
        (address, answering)
    }

    fn client(address: &str) -> Monitor {
        Monitor::new(Url::parse(address).unwrap()).unwrap()
    }

    fn ask(bytes: impl Into<Vec<u8>>) -> Result<Reply, Failure> {
        let (address, answering) = answer(bytes.into());
        let outcome = client(&format!("{address}/base")).ask("/healthz");
        let head = answering.join().unwrap();
        assert!(head.starts_with("GET /base/healthz HTTP/1.1\r\n"), "{head}");
        outcome
    }

    fn with_body(status: &str, body: &str) -> String {
        let bytes = body.len();
        format!("HTTP/1.1 {status}\r\ncontent-length: {bytes}\r\n\r\n{body}")
    }

    #[test]
    fn answers() {
        let good = ask(with_body("200 OK", r#"{"status":"ok"}"#)).unwrap();
        assert_eq!((good.status, &good.body["status"]), (200, &"ok".into()));
        let unready = ask(with_body("503 Service Unavailable", r#"{"error":"x"}"#)).unwrap();
        assert_eq!(unready.status, 503);
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n\r\n";
        assert_eq!(ask(chunked).unwrap().body, serde_json::json!([]));
    }

    #[test]
    fn failures_have_their_reasons() {
        let missing = ask(with_body("404 Not Found", "\x1b[2J404 page not found\n"));
        let said = "[2J404 page not found".to_owned();
        assert_eq!(missing, Err(Failure::Status(404, said)));
        for cut in [r#"{"a":"#, "", "[1,"] {
            assert!(matches!(
                ask(with_body("200 OK", cut)),
                Err(Failure::NotJson(_))
            ));
        }
        assert_eq!(ask("INFO {\"server_id\":\"x\"}\r\n"), Err(Failure::NotHttp));
        let broken = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\"";
        assert!(matches!(ask(broken), Err(Failure::Cut(_))));
        assert!(matches!(ask(""), Err(Failure::Cut(_))));
        let mut endless = b"HTTP/1.1 200 OK\r\n\r\n[".to_vec();
        endless.resize(BODY_MAX + 100, b' ');
        assert_eq!(ask(endless), Err(Failure::TooLarge(BODY_MAX)));
    }

    #[test]
    fn a_message_names_the_address_and_a_next_step() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = listener.local_addr().unwrap().to_string();
        drop(listener);
        assert_eq!(client(&free).ask("/varz"), Err(Failure::Refused));
        let said = client(&free).get("/varz").unwrap_err().to_string();
        let wanted = format!("http://{free}: nothing listens there; start the server");
        assert!(said.starts_with(&wanted), "{said}");
    }

    #[test]
    fn names_are_encoded() {
        assert_eq!(encoded("A-b_1.~"), "A-b_1.~");
        assert_eq!(encoded("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
