//! A handler that sends each batch in one request to a bulk endpoint over HTTP/1.1 on loopback. A request
//! takes 3 ms and 0.1 ms for each item. The server handles at most four requests at once, so further requests
//! wait. The client keeps its connections open.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};

use super::{AsyncWork, Item, Pending};
use crate::rounds::Failure;

const SLOTS: usize = 4;
const REQUEST: Duration = Duration::from_millis(3);
const ITEM: Duration = Duration::from_micros(100);
const ITEM_BYTES: usize = 8;

/// The server of the bulk endpoint, and the client's idle connections to the server.
pub(super) struct Endpoint {
    addr: SocketAddr,
    /// The number of items that the server has accepted since the handler last emptied the count.
    stored: Arc<AtomicU64>,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// The sender that keeps the server running: the server ends once the endpoint drops this sender.
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    pub(super) fn start() -> anyhow::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("the bulk endpoint: no port")?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(SLOTS)
            .enable_all()
            .build()?;
        let stored = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let taken = Arc::clone(&stored);
        let thread = std::thread::Builder::new().name("bulk-endpoint".into());
        let thread = thread.spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = serve(listener, taken) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self {
            addr,
            stored,
            idle: Mutex::new(Vec::new()),
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    async fn post(&self, body: Bytes) -> Result<usize, Failure> {
        let mut sender = self.connection().await?;
        let items = body.len() / ITEM_BYTES;
        let request = Request::post("/bulk")
            .header(hyper::header::HOST, "localhost")
            .body(Full::new(body))
            .map_err(|e| format!("the request: {e}"))?;
        let failed = |e: hyper::Error| format!("the bulk endpoint: {e}");
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let answer = response.into_body().collect().await.map_err(failed)?;
        let expected = items.to_string();
        if status != StatusCode::OK || answer.to_bytes() != expected.as_bytes() {
            return Err(format!("the bulk endpoint answered {status}"));
        }
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(sender);
        Ok(items)
    }

    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let failed = |e: &dyn std::fmt::Display| format!("connecting to the bulk endpoint: {e}");
        loop {
            let idle = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let Some(mut sender) = idle else { break };
            if sender.ready().await.is_ok() {
                return Ok(sender);
            }
        }
        let stream = TcpStream::connect(self.addr).await;
        let stream = stream.map_err(|e| failed(&e))?;
        stream.set_nodelay(true).map_err(|e| failed(&e))?;
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|e| failed(&e))?;
        // If the connection ends, the client's next request on it reports the error, so this task ignores the
        // error.
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl AsyncWork for Endpoint {
    fn empty(&self) -> Pending<'_, ()> {
        self.stored.store(0, Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }

    fn handle<'a>(&'a self, items: &'a [Item]) -> Pending<'a, ()> {
        Box::pin(async move {
            let bytes: Vec<u8> = items
                .iter()
                .flat_map(|item| item.id.to_le_bytes())
                .collect();
            self.post(bytes.into()).await.map(|_| ())
        })
    }

    fn stored(&self) -> Pending<'_, u64> {
        Box::pin(std::future::ready(Ok(self.stored.load(Relaxed))))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // If the server's thread panicked, it has already printed the panic.
            let _ = thread.join();
        }
    }
}

/// Answers requests with the delays of the endpoint, until the caller drops the future.
async fn serve(listener: std::net::TcpListener, stored: Arc<AtomicU64>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let slots = Arc::new(Semaphore::new(SLOTS));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (slots, stored) = (Arc::clone(&slots), Arc::clone(&stored));
        tokio::spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                answer(request, Arc::clone(&slots), Arc::clone(&stored))
            });
            let connection = hyper::server::conn::http1::Builder::new();
            // A client that disconnects is no failure of the server, so the server ignores the connection's
            // error.
            let _ = connection
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    slots: Arc<Semaphore>,
    stored: Arc<AtomicU64>,
) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let body = request.into_body().collect().await?.to_bytes();
    let items = body.len() / ITEM_BYTES;
    let slot = slots.acquire().await;
    let took = REQUEST + ITEM * u32::try_from(items).unwrap_or(u32::MAX);
    // A thread's sleep is exact to microseconds, tokio's timer only to a millisecond, so a thread sleeps for
    // the request.
    let slept = tokio::task::spawn_blocking(move || {
        let _ = rustix::thread::set_current_timer_slack(Some(NonZeroU64::MIN));
        std::thread::sleep(took);
    });
    let done = slept.await.is_ok();
    drop(slot);
    stored.fetch_add(items as u64, Relaxed);
    let mut response = Response::new(Full::new(items.to_string().into()));
    if !done {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_carries_a_batch_and_connections_are_kept() {
        let endpoint = Endpoint::start().unwrap();
        let items: Vec<_> = (0..20).map(|id| Item { id, key: 0 }).collect();
        for _ in 0..3 {
            endpoint.handle(&items).await.unwrap();
        }
        assert_eq!(endpoint.stored().await.unwrap(), 60);
        assert_eq!(endpoint.idle.lock().unwrap().len(), 1);
        let both = tokio::join!(endpoint.handle(&items), endpoint.handle(&items[..1]));
        assert_eq!(both, (Ok(()), Ok(())));
        assert_eq!(endpoint.idle.lock().unwrap().len(), 2);
        endpoint.empty().await.unwrap();
        assert_eq!(endpoint.stored().await.unwrap(), 0);
    }
}
