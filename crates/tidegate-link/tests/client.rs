//! Client and server over loopback: each message arrives once and in order, and the server
//! acknowledges it, even if connections break.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Proxy, Seen, Stuck, rebind, remembering, remembering_when_done, until};
use tidegate_link::hello::{Answer, Hello, Welcome};
use tidegate_link::{
    Client, Code, ConnectError, Decide, LinkError, Reconnect, SendError, Seq, Server, SessionId,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

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
                    producer.blocking_push(&payload(i * 2 + who)).unwrap();
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

#[tokio::test]
async fn full_blocks_wait_for_room_and_lose_nothing() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().block_bytes(64).buffer_bytes(1 << 10);
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    let tasks: Vec<_> = (0..8_u32)
        .map(|who| {
            let client = client.clone();
            tokio::spawn(async move {
                for i in 0..500 {
                    client.send(&payload(i * 8 + who)).await.unwrap();
                }
                client
                    .send_many((500..1000).map(|i| payload(i * 8 + who)))
                    .await
                    .unwrap();
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    client.close().await.unwrap();
    assert_eq!(seen.numbers(), (1..=8000).collect::<Vec<_>>());
    let mut payloads = seen.payloads();
    payloads.sort();
    let mut expected: Vec<_> = (0..8000).map(|i| payload(i).to_vec()).collect();
    expected.sort();
    assert!(payloads == expected);
}

#[tokio::test]
async fn an_iterator_may_use_its_own_client() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    let inner = client.clone();
    let payloads = (0..10).map(move |i| {
        // While the iterator holds the block, the client has no room for other messages. It refuses the
        // message at once, so there is no deadlock.
        assert_eq!(inner.try_send(b"x").unwrap_err(), SendError::Full);
        payload(i)
    });
    client.send_many(payloads).await.unwrap();
    client.close().await.unwrap();
    assert_eq!(seen.len(), 10);
}

#[tokio::test]
async fn plain_speaks_to_the_same_server_and_tells_what_is_in_doubt() {
    let (server, seen) = remembering(Server::builder()).await;
    let proxy = Proxy::before(server.local_addr()).await;
    let client = Client::builder().plain().connect(proxy.address.to_string());
    let client = client.await.unwrap();
    assert_eq!(client.session(), None);
    for i in 0..100 {
        let seq = client.send_acked(&payload(i)).await.unwrap();
        assert_eq!(seq, Seq::new(u64::from(i) + 1));
    }
    let last = client.send_many((100..20_000).map(payload)).await.unwrap();
    client.wait_acked(last).await.unwrap();
    assert_eq!(seen.numbers(), (1..=20_000).collect::<Vec<_>>());
    proxy.cut();
    let ended = loop {
        match client.send_acked(b"?").await {
            Ok(_) => {}
            Err(SendError::Ended(why)) => break why,
            Err(other) => panic!("{other}"),
        }
    };
    assert!(matches!(ended, LinkError::Broken { .. }), "{ended}");
    assert!(ended.to_string().contains("in doubt"), "{ended}");

    // After an orderly close of a plain client no message is in doubt.
    let client = Client::builder().plain().connect(proxy.address.to_string());
    let client = client.await.unwrap();
    client.send(b"last").await.unwrap();
    assert_eq!(client.close().await.unwrap(), Seq::FIRST);
}

#[tokio::test]
async fn the_newest_client_of_a_session_wins() {
    let (server, seen) = remembering(Server::builder()).await;
    let address = server.local_addr().to_string();
    let id = SessionId([7; 16]);
    let old = Client::builder()
        .session(id)
        .connect(&address)
        .await
        .unwrap();
    old.send_acked(b"1").await.unwrap();
    let new = Client::builder()
        .session(id)
        .connect(&address)
        .await
        .unwrap();
    assert_eq!(new.resumed_at(), Seq::FIRST);
    assert_eq!(
        old.wait_acked(Seq::new(2)).await.unwrap_err(),
        LinkError::Displaced
    );
    assert_eq!(
        old.send(b"x").await.unwrap_err(),
        SendError::Ended(LinkError::Displaced)
    );
    assert_eq!(new.send_acked(b"2").await.unwrap(), Seq::new(2));
    assert_eq!(new.close().await.unwrap(), Seq::new(2));
    assert_eq!(seen.payloads(), [b"1", b"2"]);
    assert_eq!(server.stats().displaced, 1);
}

#[tokio::test]
async fn a_server_without_its_state_is_a_matter_of_decision() {
    for decide in [Decide::Resend, Decide::Drop, Decide::Fail] {
        // This server accepts every message and acknowledges none.
        let stuck = Stuck::default();
        let (first, held) = remembering_when_done(stuck.clone()).await;
        let address = first.local_addr();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let told = asked.clone();
        let client = Client::builder().on_doubt(move |doubt| {
            told.lock().unwrap().push((doubt.first, doubt.last));
            decide
        });
        let client = client.connect(address.to_string()).await.unwrap();
        assert!(client.acks_when_done());
        client.send(b"1").await.unwrap();
        until("it arrives", || held.len() == 1).await;
        stuck.report(Seq::FIRST);
        client.wait_acked(Seq::FIRST).await.unwrap();
        for payload in [b"2", b"3"] {
            client.send(payload).await.unwrap();
        }
        until("all arrive", || held.len() == 3).await;
        first.stop().await;

        let listener = rebind(address).await;
        let seen = Seen::default();
        let handlers = seen.clone();
        let second = Server::builder()
            .serve(listener, move |_| Ok(handlers.handler()))
            .unwrap();
        until("it is asked", || !asked.lock().unwrap().is_empty()).await;
        let outcome = client.send_acked(b"4").await;
        assert_eq!(*asked.lock().unwrap(), [(Seq::new(2), Seq::new(3))]);
        match decide {
            Decide::Resend => {
                assert_eq!(outcome.unwrap(), Seq::new(4));
                assert_eq!(seen.numbers(), [2, 3, 4]);
            }
            Decide::Drop => {
                assert_eq!(outcome.unwrap(), Seq::new(4));
                assert_eq!(seen.numbers(), [4]);
            }
            Decide::Fail => {
                let why = outcome.unwrap_err();
                assert!(
                    matches!(why, SendError::Ended(LinkError::Doubt(_))),
                    "{why}"
                );
                assert_eq!(seen.len(), 0);
            }
        }
        second.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_is_gone_is_given_up() {
    let (server, _) = remembering(Server::builder()).await;
    let client = Client::builder().reconnect(Reconnect {
        first: Duration::from_millis(1),
        longest: Duration::from_millis(5),
        give_up: Duration::from_millis(50),
    });
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    client.send_acked(b"1").await.unwrap();
    server.stop().await;
    client.send(b"2").await.unwrap();
    let why = client.wait_acked(Seq::new(2)).await.unwrap_err();
    let LinkError::Broken { acked, sent, .. } = &why else {
        panic!("{why}")
    };
    assert_eq!(*acked, Seq::FIRST);
    assert!(*sent <= Seq::new(2));
    assert!(client.stats().connect_failures > 0);
}

#[tokio::test]
async fn a_silent_and_an_absent_server() {
    let nobody = {
        let (server, _) = remembering(Server::builder()).await;
        let address = server.local_addr();
        server.stop().await;
        address
    };
    let why = Client::builder()
        .connect(nobody.to_string())
        .await
        .unwrap_err();
    assert!(matches!(why, ConnectError::Io { .. }), "{why}");

    // The backlog of this listener accepts connections, and no server answers them.
    let silent = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let client = Client::builder().answer_within(Duration::from_millis(50));
    let why = client
        .connect(silent.local_addr().unwrap().to_string())
        .await
        .unwrap_err();
    assert!(matches!(why, ConnectError::NoAnswer { .. }), "{why}");
    assert!(why.to_string().contains("within 50 ms"), "{why}");
}

#[tokio::test]
async fn large_messages_pass_and_larger_ones_are_refused() {
    let (server, seen) = remembering(Server::builder().frame_max(300_000)).await;
    let client = Client::builder().checked(true).block_bytes(1 << 10);
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    let large: Vec<u8> = (0..300_000_u32).map(|i| i as u8).collect();
    client.send(b"small").await.unwrap();
    client.send(&large).await.unwrap();
    client.send(b"small").await.unwrap();
    let why = client.try_send(&[0; 300_001]).unwrap_err();
    let too_large = SendError::TooLarge {
        len: 300_001,
        max: 300_000,
    };
    assert_eq!(why, too_large);
    client.close().await.unwrap();
    assert!(seen.payloads() == [b"small".to_vec(), large, b"small".to_vec()]);

    let asking = Client::builder().frame_max(300_001);
    let why = asking
        .connect(server.local_addr().to_string())
        .await
        .unwrap_err();
    let ConnectError::Ended(LinkError::Refused { code, .. }) = &why else {
        panic!("{why}")
    };
    assert_eq!(*code, Code::TooLarge);
}

#[tokio::test]
async fn flush_hands_everything_to_the_system() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    for i in 0..50 {
        client.send(&payload(i)).await.unwrap();
        client.flush().await.unwrap();
        assert!(client.stats().bytes_written >= 9 * (u64::from(i) + 1));
    }
    until("all arrive", || seen.len() == 50).await;
    // A client that is dropped without a close ends its connection, and withdraws no message that it sent.
    drop(client);
    until("it is gone", || server.stats().connections_open == 0).await;
}

#[tokio::test]
async fn settings_that_cannot_be_are_refused() {
    let impossible = [
        Client::builder().block_bytes(1),
        Client::builder().token(vec![0; 1025]),
        Client::builder().plain().checked(true),
        Client::builder().plain().session(SessionId([1; 16])),
        Client::builder().plain().token("secret"),
    ];
    for builder in impossible {
        let why = builder.connect("127.0.0.1:1").await.unwrap_err();
        assert!(matches!(why, ConnectError::Config(_)), "{why}");
    }
}

/// Starts a server that answers a hello, and then reads nothing.
async fn deaf_server() -> std::net::SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut bytes = Vec::new();
        let hello = loop {
            socket.read_buf(&mut bytes).await.unwrap();
            if let Some((hello, _)) = Hello::decode(&bytes).unwrap() {
                break hello;
            }
        };
        let welcome = Welcome {
            version: hello.version,
            checked: hello.checked,
            when_done: false,
            session: hello.session,
            epoch: 1,
            received: Seq::NONE,
            acked: Seq::NONE,
            window: 1 << 40,
            frame_max: 1 << 20,
            idle_ms: 0,
        };
        let answer = Answer::Welcome(welcome).encode();
        socket.write_all(&answer).await.unwrap();
        std::future::pending::<()>().await;
        drop(socket);
    });
    address
}

#[tokio::test]
async fn a_server_that_reads_nothing_fills_no_more_than_the_buffers() {
    let address = deaf_server().await;
    let client = Client::builder()
        .buffer_bytes(256 << 10)
        .block_bytes(16 << 10)
        .stalled_after(Duration::from_millis(500));
    let client = client.connect(address.to_string()).await.unwrap();
    let mut taken = 0;
    let why = loop {
        match client.try_send(&[7; 1000]) {
            Ok(_) => taken += 1004,
            Err(SendError::Full) => tokio::task::yield_now().await,
            Err(SendError::Ended(why)) => break why,
            Err(other) => panic!("{other}"),
        }
    };
    // The client holds its limit of unacknowledged bytes, one block beyond the limit, and one block that
    // senders fill.
    assert!(taken <= (256 + 16 + 16) << 10, "{taken}");
    assert!(matches!(why, LinkError::Stalled { .. }), "{why}");
}

#[test]
fn many_tasks_on_many_threads_share_a_client() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (server, seen) = remembering(Server::builder()).await;
        let client = Client::builder().block_bytes(1 << 10);
        let client = client
            .connect(server.local_addr().to_string())
            .await
            .unwrap();
        let tasks: Vec<_> = (0..16)
            .map(|who| {
                let client = client.clone();
                tokio::spawn(async move {
                    for i in 0..500 {
                        let payload = payload(who * 500 + i);
                        match i % 3 {
                            0 => client.send_acked(&payload).await.map(drop).unwrap(),
                            1 => client.send(&payload).await.map(drop).unwrap(),
                            _ => client.send_many([payload]).await.map(drop).unwrap(),
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        client.close().await.unwrap();
        assert_eq!(seen.numbers(), (1..=8000).collect::<Vec<_>>());
        let mut payloads = seen.payloads();
        payloads.sort();
        payloads.dedup();
        assert_eq!(payloads.len(), 8000);
    });
}
