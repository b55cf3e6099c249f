//! Parts that several test files of the link share: handlers that remember messages, a server, and a proxy
//! that cuts connections.

#![allow(dead_code, clippy::unwrap_used)] // Each test uses a part of it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_link::{Acks, Batch, Done, Seq, Server, ServerBuilder};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The time limit of each wait of these tests for a condition. A test that reaches it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The messages that the handlers of one server have seen, from all sessions.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Message>>>);

/// The number and the payload of a message, as a handler saw them.
type Message = (u64, Vec<u8>);

impl Seen {
    pub(crate) fn take_in(&self, batch: Batch<'_>) {
        let mut seen = self.0.lock().unwrap();
        let first = batch.first().get();
        for (i, payload) in (0..).zip(batch) {
            seen.push((first + i, payload.to_vec()));
        }
    }

    pub(crate) fn handler(&self) -> impl FnMut(Batch<'_>) -> Result<(), Infallible> + Send + use<> {
        let seen = self.clone();
        move |batch: Batch<'_>| {
            seen.take_in(batch);
            Ok(())
        }
    }

    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.lock().unwrap().iter().map(|(n, _)| *n).collect()
    }

    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        self.0
            .lock()
            .unwrap()
            .iter()
            .map(|(_, p)| p.clone())
            .collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// Starts a server on this machine. Its handlers remember the messages, so that a test can compare them.
pub(crate) async fn remembering(builder: ServerBuilder) -> (Server, Seen) {
    let seen = Seen::default();
    let handlers = seen.clone();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = builder
        .serve(listener, move |_| Ok(handlers.handler()))
        .unwrap();
    (server, seen)
}

/// Keeps the handlers' ways to report messages as done, so that the test decides when messages are done.
#[derive(Clone, Default)]
pub(crate) struct Stuck(Arc<Mutex<Vec<Done>>>);

impl Stuck {
    pub(crate) fn report(&self, seq: Seq) {
        for done in &*self.0.lock().unwrap() {
            done.done(seq);
        }
    }
}

/// Starts a server that acknowledges a message only once the test has reported it as done through `stuck`.
pub(crate) async fn remembering_when_done(stuck: Stuck) -> (Server, Seen) {
    let seen = Seen::default();
    let handlers = seen.clone();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let builder = Server::builder().acks(Acks::WhenDone);
    let serve = builder.serve(listener, move |opened| {
        stuck.0.lock().unwrap().push(opened.done);
        Ok(handlers.handler())
    });
    (serve.unwrap(), seen)
}

/// Listens on the address of a server that has ended, so that its clients can connect again.
pub(crate) async fn rebind(address: SocketAddr) -> TcpListener {
    let binding = async {
        loop {
            if let Ok(listener) = TcpListener::bind(address).await {
                return listener;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, binding).await.unwrap()
}

/// Waits until `condition` holds, without a fixed time; fails after [`PATIENCE`].
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::task::yield_now().await;
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, waiting).await;
    assert!(in_time.is_ok(), "never: {what}");
}

/// A proxy between clients and a server, which cuts all connections when a test asks for it.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn before(target: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cut = cut.clone();
                cut.mark_unchanged();
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        Self { address, cuts }
    }

    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }
}
