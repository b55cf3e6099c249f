//! Client and server over loopback: what is sent arrives once, in order, and is acknowledged, whatever happens to connections.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use common::{Proxy, remembering, until};
use tidegate_link::{Client, Seq, Server};

fn payload(i: u32) -> [u8; 5] {
    let [a, b, c, d] = i.to_le_bytes();
    [a, b, c, d, 7]
}

#[tokio::test]
async fn messages_arrive_in_order_and_are_acknowledged() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder();
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    assert_eq!(client.resumed_at(), Seq::NONE);
    assert_eq!(client.send(b"one").await.unwrap(), Seq::FIRST);
    assert_eq!(client.try_send(b"").unwrap(), Seq::new(2));
    let last = client.send_many([b"three", b"four."]).await.unwrap();
    assert_eq!(last, Seq::new(4));
    client.wait_acked(last).await.unwrap();
    assert_eq!(client.acked(), last);
    assert_eq!(client.close().await.unwrap(), last);
    assert_eq!(seen.numbers(), [1, 2, 3, 4]);
    assert_eq!(seen.payloads(), [&b"one"[..], b"", b"three", b"four."]);
    server.stop().await;
}

#[tokio::test]
async fn a_session_survives_cuts() {
    let (server, seen) = remembering(Server::builder()).await;
    let proxy = Proxy::before(server.local_addr()).await;
    let client = Client::builder().connect(proxy.address.to_string());
    let client = client.await.unwrap();
    for round in 0..20_u32 {
        let batch = (0..5000).map(|i| payload(round * 5000 + i));
        let last = client.send_many(batch).await.unwrap();
        if round % 2 == 0 {
            client.wait_acked(last).await.unwrap();
        }
        proxy.cut();
    }
    client.close().await.unwrap();
    assert_eq!(seen.numbers(), (1..=100_000).collect::<Vec<_>>());
    let expected: Vec<_> = (0..100_000).map(|i| payload(i).to_vec()).collect();
    assert!(seen.payloads() == expected);
    assert!(server.stats().connections > 10);
}

#[tokio::test]
async fn producers_keep_their_order() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    let threads: Vec<_> = (0..2)
        .map(|who| {
            let mut producer = client.producer();
            std::thread::spawn(move || {
                for i in 0..20_000 {
                    producer.push(&payload(i * 2 + who)).unwrap();
                }
            })
        })
        .collect();
    until("all arrive", || seen.len() == 40_000).await;
    for thread in threads {
        thread.join().unwrap();
    }
    client.close().await.unwrap();
    for who in 0..2 {
        let of_one: Vec<_> = seen
            .payloads()
            .into_iter()
            .filter(|p| p[0] % 2 == who)
            .collect();
        let expected: Vec<_> = (0..20_000)
            .map(|i| payload(i * 2 + u32::from(who)).to_vec())
            .collect();
        assert!(of_one == expected);
    }
}
