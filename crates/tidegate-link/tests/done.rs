//! A server whose handler stores: what an acknowledgement means, and where a new life of a session goes on.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use common::until;
use tidegate_link::{Acks, Batch, Client, Done, Seq, Server, SessionId};
use tokio::net::TcpListener;

/// A new client does not send again what the server received from an earlier one, so that must be done first: a server that
/// is lost before would lose it for good.
#[tokio::test]
async fn a_new_life_goes_on_after_what_is_done() {
    let seen: Arc<Mutex<Vec<(Seq, Done)>>> = Arc::default();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let handlers = Arc::clone(&seen);
    let server = Server::builder().acks(Acks::WhenDone);
    let make = move |opened: tidegate_link::Opened| {
        let (seen, done) = (Arc::clone(&handlers), opened.done);
        Ok(move |batch: Batch<'_>| {
            let last = batch.first().plus(batch.len() - 1);
            seen.lock().unwrap().push((last, done.clone()));
            Ok::<_, Infallible>(())
        })
    };
    let server = server.serve(listener, make).unwrap();
    let connect = || {
        let session = Client::builder().session(SessionId([7; 16]));
        session.connect(server.local_addr().to_string())
    };
    let received = || seen.lock().unwrap().last().cloned();

    let first = connect().await.unwrap();
    let last = first.send_many(["a", "b", "c"]).await.unwrap();
    until("received", || {
        received().is_some_and(|(seq, _)| seq == last)
    })
    .await;
    assert_eq!(first.acked(), Seq::NONE);
    drop(first);

    let second = tokio::spawn(connect());
    until("connected", || server.stats().connections == 2).await;
    let (_, done) = received().unwrap();
    done.done(last);
    let second = second.await.unwrap().unwrap();
    assert_eq!((second.resumed_at(), second.acked()), (last, last));
    server.stop().await;
}
