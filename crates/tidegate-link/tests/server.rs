//! Tests the server with many, silent, faulty or hostile clients, and its shutdown.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use std::convert::Infallible;
use std::time::Duration;

use common::{PATIENCE, Seen, Stuck, remembering, remembering_when_done, until};
use tidegate_link::{
    Batch, Client, Code, ConnectError, Decide, Handler, LinkError, Opening, PeerError, Position,
    SendError, Seq, Server, SessionId, SessionStore,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

async fn raw(server: &Server) -> TcpStream {
    TcpStream::connect(server.local_addr()).await.unwrap()
}

async fn rest_of(mut socket: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // A reset after the server's last byte is an end of the connection, too.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest))
        .await
        .unwrap();
    rest
}

fn plain(id: u64, payload: &[u8]) -> Vec<u8> {
    let mut frame = id.to_le_bytes().to_vec();
    frame.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn an_old_plain_client_is_acknowledged_to_the_last_byte() {
    let (server, seen) = remembering(Server::builder()).await;
    let mut socket = raw(&server).await;
    socket.write_all(&plain(0, b"hello")).await.unwrap();
    let mut ack = [0; 12];
    socket.read_exact(&mut ack).await.unwrap();
    assert_eq!(ack, [0; 12]);
    // The client sends one byte at a time, and gives its messages ids of its own.
    for byte in [plain(1, b"a"), plain(2, b"")].concat() {
        socket.write_all(&[byte]).await.unwrap();
    }
    socket.shutdown().await.unwrap();
    let rest = rest_of(socket).await;
    assert_eq!(rest.len() % 12, 0, "{rest:?}");
    let mut position = 0;
    for ack in rest.chunks(12) {
        let id = u64::from_le_bytes(ack[..8].try_into().unwrap());
        let omitted = u32::from_le_bytes(ack[8..].try_into().unwrap());
        assert_eq!(id, position + u64::from(omitted) + 1);
        position = id;
    }
    assert_eq!(position, 2);
    assert_eq!(seen.payloads(), [&b"hello"[..], b"a", b""]);
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    client.send_acked(b"before").await.unwrap();
    let hostile: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"tidegate\xff\xff\xff\xff\xff\xffxxxxxxxx",
        b"nonsense\xff\xff\xff\xffnonsense",
        &[0xAA; 4096],
    ];
    for bytes in hostile {
        let mut socket = raw(&server).await;
        // The server may cut the connection before all bytes are written.
        let _ = socket.write_all(bytes).await;
        rest_of(socket).await;
    }
    until("all are counted", || server.stats().errors_protocol == 4).await;
    client.send_acked(b"after").await.unwrap();
    assert_eq!(seen.payloads(), [&b"before"[..], b"after"]);
}

#[tokio::test]
async fn silent_clients_are_closed() {
    let builder = Server::builder()
        .idle(Duration::from_secs(1))
        .hello_within(Duration::from_secs(1));
    let (server, _) = remembering(builder).await;
    // One client is silent from the start, one in the middle of a handshake, one after a message.
    let silent = raw(&server).await;
    let mut halfway = raw(&server).await;
    halfway
        .write_all(b"tidegate\xff\xff\xff\xff")
        .await
        .unwrap();
    let mut once = raw(&server).await;
    once.write_all(&plain(0, b"x")).await.unwrap();
    assert_eq!(rest_of(silent).await, b"");
    assert_eq!(rest_of(halfway).await, b"");
    assert_eq!(rest_of(once).await, [0; 12]);
    until("all are gone", || server.stats().connections_open == 0).await;
}

#[tokio::test]
async fn one_connection_too_many_is_told_so() {
    let (server, _) = remembering(Server::builder().connections_max(1)).await;
    let address = server.local_addr().to_string();
    let first = Client::builder().connect(&address).await.unwrap();
    let why = Client::builder().connect(&address).await.unwrap_err();
    let ConnectError::Ended(LinkError::Refused { code, .. }) = &why else {
        panic!("{why}")
    };
    assert_eq!(*code, Code::Full);
    first.send_acked(b"undisturbed").await.unwrap();
    first.close().await.unwrap();
    until("there is room", || server.stats().connections_open == 0).await;
    Client::builder().connect(&address).await.unwrap();
}

#[tokio::test]
async fn sessions_are_bounded_and_the_idle_one_is_forgotten() {
    let (server, _) = remembering(Server::builder().sessions_max(2)).await;
    let address = server.local_addr().to_string();
    let id = |n| SessionId([n; 16]);
    let open = |n| Client::builder().session(id(n)).connect(address.clone());
    let kept = open(1).await.unwrap();
    kept.send_acked(b"x").await.unwrap();
    let idle = open(2).await.unwrap();
    idle.send_acked(b"x").await.unwrap();
    idle.close().await.unwrap();
    until("it is gone", || server.stats().connections_open == 1).await;
    let third = open(3).await.unwrap();
    assert_eq!(server.stats().sessions, 2);
    // Clients are connected to both sessions, so the server cannot forget one of them.
    let why = open(2).await.unwrap_err();
    assert!(
        matches!(
            why,
            ConnectError::Ended(LinkError::Refused {
                code: Code::Full,
                ..
            })
        ),
        "{why}"
    );
    third.close().await.unwrap();
    until("it is gone", || server.stats().connections_open == 1).await;
    // The server has forgotten this session, so it starts from the beginning.
    assert_eq!(open(2).await.unwrap().resumed_at(), Seq::NONE);
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let (server, _) = remembering(Server::builder().token("secret")).await;
    let address = server.local_addr().to_string();
    for token in ["", "wrong", "secreT"] {
        let why = Client::builder()
            .token(token)
            .connect(&address)
            .await
            .unwrap_err();
        let ConnectError::Ended(LinkError::Refused { code, .. }) = &why else {
            panic!("{why}")
        };
        assert_eq!(*code, Code::Token);
    }
    let client = Client::builder()
        .token("secret")
        .connect(&address)
        .await
        .unwrap();
    client.send_acked(b"in").await.unwrap();
    // The plain protocol has no token, so a server with a token must refuse it.
    let mut socket = raw(&server).await;
    socket.write_all(&plain(0, b"x")).await.unwrap();
    assert_eq!(rest_of(socket).await, b"");

    let open = TcpListener::bind(("0.0.0.0", 0)).await.unwrap();
    let serve = Server::builder()
        .token("secret")
        .serve(open, |_| Ok(Seen::default().handler()));
    assert!(serve.unwrap_err().to_string().contains("TLS"));
}

#[tokio::test]
async fn acknowledgements_wait_until_the_handler_is_done() {
    let stuck = Stuck::default();
    let (server, seen) = remembering_when_done(stuck.clone()).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    for _ in 0..10 {
        client.send(b"x").await.unwrap();
    }
    until("all arrive", || seen.len() == 10).await;
    assert_eq!(client.acked(), Seq::NONE);
    stuck.report(Seq::new(4));
    client.wait_acked(Seq::new(4)).await.unwrap();
    assert_eq!(client.acked(), Seq::new(4));
    // The reports come from another thread: first one beyond the last message received, then an earlier one.
    std::thread::spawn(move || {
        stuck.report(Seq::new(99));
        stuck.report(Seq::FIRST);
    });
    assert_eq!(client.close().await.unwrap(), Seq::new(10));
}

#[tokio::test]
async fn a_drained_server_tells_its_clients_and_ends() {
    let (server, seen) = remembering(Server::builder()).await;
    let client = Client::builder().reconnect(tidegate_link::Reconnect {
        give_up: Duration::ZERO,
        ..Default::default()
    });
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    let last = client.send_many([b"a", b"b"]).await.unwrap();
    client.wait_acked(last).await.unwrap();
    assert!(server.drain(PATIENCE).await);
    assert_eq!(seen.len(), 2);
    let why = client.wait_acked(Seq::new(3)).await.unwrap_err();
    assert!(matches!(why, LinkError::Broken { .. }), "{why}");
}

/// A handler that fails at one payload, to test the end of its session.
struct Choosy(Seen);

impl Handler for Choosy {
    type Error = String;

    async fn handle(&mut self, batch: Batch<'_>) -> Result<(), String> {
        tokio::task::yield_now().await;
        if batch.clone().any(|payload| payload == b"poison") {
            return Err("it is poison".into());
        }
        self.0.take_in(batch);
        Ok(())
    }
}

#[tokio::test]
async fn a_handler_that_fails_ends_its_session_only() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let seen = Seen::default();
    let handlers = seen.clone();
    let server = Server::builder()
        .serve(listener, move |_| Ok(Choosy(handlers.clone())))
        .unwrap();
    let address = server.local_addr().to_string();
    let good = Client::builder().connect(&address).await.unwrap();
    let bad = Client::builder().connect(&address).await.unwrap();
    good.send_acked(b"1").await.unwrap();
    bad.send(b"poison").await.unwrap();
    let why = bad.wait_acked(Seq::new(2)).await.unwrap_err();
    assert_eq!(why, LinkError::Bye(Code::Failed));
    good.send_acked(b"2").await.unwrap();
    assert_eq!(seen.payloads(), [b"1", b"2"]);
    assert_eq!(server.stats().errors_handler, 1);
}

#[tokio::test]
async fn a_handler_that_panics_ends_no_other_connection() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = Server::builder()
        .serve(listener, |_| {
            Ok(|mut batch: Batch<'_>| {
                assert!(
                    batch.all(|payload| payload != b"poison"),
                    "as the test wants"
                );
                Ok::<_, Infallible>(())
            })
        })
        .unwrap();
    let address = server.local_addr().to_string();
    let good = Client::builder().connect(&address).await.unwrap();
    let bad = Client::builder()
        .on_doubt(|_| Decide::Drop)
        .connect(&address)
        .await
        .unwrap();
    bad.send(b"poison").await.unwrap();
    // A message given up counts as acknowledged, and the session continues.
    bad.wait_acked(Seq::FIRST).await.unwrap();
    bad.send_acked(b"2").await.unwrap();
    good.send_acked(b"1").await.unwrap();
    until("it is counted", || server.stats().errors_handler == 1).await;
}

/// A session store that remembers the position of one session, as a durable store would.
struct Remembers(Position);

impl SessionStore for Remembers {
    fn open(&mut self, _: Opening) -> Result<Position, String> {
        Ok(self.0)
    }
}

#[tokio::test]
async fn a_session_goes_on_where_the_store_says() {
    let position = Position {
        epoch: 5,
        received: Seq::new(41),
    };
    let (server, seen) = remembering(Server::builder().store(Remembers(position))).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = client.await.unwrap();
    assert_eq!(client.resumed_at(), Seq::new(41));
    assert_eq!(client.send_acked(b"x").await.unwrap(), Seq::new(42));
    assert_eq!(seen.numbers(), [42]);
}

#[tokio::test]
async fn a_handler_that_waits_holds_its_client_back_in_bounds() {
    let (gate, gated) = tokio::sync::watch::channel(false);
    struct Gated(tokio::sync::watch::Receiver<bool>, Seen);
    impl Handler for Gated {
        type Error = Infallible;
        async fn handle(&mut self, batch: Batch<'_>) -> Result<(), Infallible> {
            let _ = self.0.wait_for(|open| *open).await;
            self.1.take_in(batch);
            Ok(())
        }
    }
    let seen = Seen::default();
    let handlers = seen.clone();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let server = Server::builder()
        .frame_max(1000)
        .window(64 << 10)
        .serve(listener, move |_| {
            Ok(Gated(gated.clone(), handlers.clone()))
        })
        .unwrap();
    let client = Client::builder()
        .buffer_bytes(64 << 10)
        .block_bytes(16 << 10);
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    // The client accepts messages until the window and the buffers are full, and no further.
    // Acknowledgements on receipt may free some room meanwhile.
    let mut taken = 0_u64;
    let mut refused = 0;
    while refused < 1000 {
        match client.try_send(&[7; 1000]) {
            Ok(_) => (taken, refused) = (taken + 1, 0),
            Err(SendError::Full) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        tokio::task::yield_now().await;
    }
    assert!(
        taken < 1000,
        "{taken} KB were taken for a handler that takes nothing"
    );
    gate.send_replace(true);
    client.close().await.unwrap();
    assert_eq!(seen.len() as u64, taken);
}

#[tokio::test]
async fn a_server_reports_the_connections_it_ended_and_why() {
    let (tell, mut told) = tokio::sync::mpsc::channel(8);
    let builder = Server::builder().frame_max(100).on_error(move |peer, why| {
        let _ = tell.try_send((peer, why.clone()));
    });
    let (server, _) = remembering(builder).await;

    let mut garbage = raw(&server).await;
    let from = garbage.local_addr().unwrap();
    garbage.write_all(&[0xFF; 4000]).await.unwrap();
    let (peer, why) = timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(peer, from);
    assert!(matches!(why, PeerError::Handshake(_)), "{why}");

    let mut large = raw(&server).await;
    let from = large.local_addr().unwrap();
    large.write_all(&plain(0, &[0; 101])).await.unwrap();
    let (peer, why) = timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
    assert_eq!(peer, from);
    assert!(matches!(why, PeerError::Rules(_)), "{why}");

    // The server must report no error for a client that keeps to the rules and ends.
    let mut good = raw(&server).await;
    good.write_all(&plain(0, b"a")).await.unwrap();
    good.shutdown().await.unwrap();
    rest_of(good).await;
    assert!(server.drain(PATIENCE).await);
    assert!(told.try_recv().is_err());
}
