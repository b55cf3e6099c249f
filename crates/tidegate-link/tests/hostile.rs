//! Client and server against peers that stall, disconnect, send nonsense or do not read, over real sockets.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use std::time::Duration;

use common::{PATIENCE, Seen, Stuck, remembering, remembering_when_done, until};
use tidegate::controller::Greedy;
use tidegate_link::frame::{self, CLOSE, Layout, REPLY_BYTES, Reply};
use tidegate_link::hello::{Answer, Hello, VERSION, Welcome};
use tidegate_link::proto::SenderError;
use tidegate_link::{
    Acks, Batch, Client, Code, ConnectError, Done, LinkError, Reconnect, SendError, Seq, Server,
    SessionId,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

const ID: SessionId = SessionId(*b"a hostile client");

fn hello(life: u64) -> Hello {
    Hello {
        version: VERSION,
        checked: false,
        session: ID,
        life,
        epoch: 0,
        acked: Seq::NONE,
        sent: Seq::NONE,
        frame_max: 0,
        token: Vec::new(),
    }
}

fn messages(layout: Layout, from: u64, to: u64) -> Vec<u8> {
    let mut out = Vec::new();
    (from..=to).for_each(|n| layout.encode(Seq::new(n), &n.to_le_bytes(), &mut out));
    out
}

async fn raw(server: &Server) -> TcpStream {
    TcpStream::connect(server.local_addr()).await.unwrap()
}

/// Reads all further bytes of the server, up to the end of the connection or an error.
async fn end_of(socket: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, socket.read_to_end(&mut rest))
        .await
        .unwrap();
    rest
}

async fn welcome(socket: &mut TcpStream) -> Welcome {
    let mut bytes = Vec::new();
    loop {
        match Answer::decode(&bytes).unwrap() {
            Some((Answer::Welcome(welcome), len)) => {
                assert_eq!(len, bytes.len(), "nothing follows before a message");
                return welcome;
            }
            Some((other, _)) => panic!("{other:?}"),
            None => bytes.push(timeout(PATIENCE, socket.read_u8()).await.unwrap().unwrap()),
        }
    }
}

/// Checks that the server still serves an ordinary client, after a hostile one.
async fn serves(server: &Server) {
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = timeout(PATIENCE, client).await.unwrap().unwrap();
    let seq = client.send(b"well?").await.unwrap();
    timeout(PATIENCE, client.wait_acked(seq))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn a_peer_that_never_finishes_a_handshake_is_closed_and_delays_no_other() {
    let builder = Server::builder().hello_within(Duration::from_millis(300));
    let (server, _) = remembering(builder).await;
    let whole = hello(1).encode();
    let mut slow = Vec::new();
    for n in [1, 8, 11, 12, 13, 40, whole.len() - 1] {
        let mut socket = raw(&server).await;
        socket.write_all(&whole[..n]).await.unwrap();
        slow.push(socket);
    }
    serves(&server).await;
    for socket in &mut slow {
        assert_eq!(end_of(socket).await, b"");
    }
    serves(&server).await;
}

/// The client sends one byte at a time, in the handshake and in messages, and reads the
/// server's answer one byte at a time.
#[tokio::test]
async fn one_byte_at_a_time() {
    let (server, seen) = remembering(Server::builder()).await;
    let mut socket = raw(&server).await;
    socket.set_nodelay(true).unwrap();
    for byte in hello(1).encode() {
        socket.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(welcome(&mut socket).await.received, Seq::NONE);
    for byte in messages(Layout::Session, 1, 40) {
        socket.write_all(&[byte]).await.unwrap();
    }
    socket.write_all(&frame::control(CLOSE)).await.unwrap();
    let said = end_of(&mut socket).await;
    let mut acked = 0;
    let mut bye = None;
    for unit in said.chunks(REPLY_BYTES) {
        match Reply::decode(Layout::Session, unit.try_into().unwrap()) {
            Reply::Ack { latest, omitted } => {
                assert_eq!(acked + u64::from(omitted) + 1, latest);
                acked = latest;
            }
            Reply::Bye(code) => bye = Some(code),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((acked, bye), (40, Some(Code::Drained)));
    assert_eq!(seen.numbers(), Vec::from_iter(1..=40));
}

/// Noise in every form: each connection ends or waits, the server counts it, and other clients
/// notice nothing.
#[tokio::test]
async fn noise() {
    let builder = Server::builder().frame_max(1000).window(1 << 16);
    let (server, _) = remembering(builder).await;
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..150 {
        let len = random() % 300;
        let noise: Vec<u8> = (0..len).map(|_| (random() >> 24) as u8).collect();
        let mut socket = raw(&server).await;
        let mut bytes = match round % 3 {
            0 => Vec::new(),
            // After a hello the client sends noise in place of frames.
            1 => Hello {
                session: SessionId([round as u8; 16]),
                ..hello(round)
            }
            .encode(),
            _ => hello(round).encode()[..(random() % 76) as usize].to_vec(),
        };
        bytes.extend_from_slice(&noise);
        let _ = socket.write_all(&bytes).await;
        let _ = socket.shutdown().await;
        end_of(&mut socket).await;
    }
    until("all are gone", || server.stats().connections_open == 0).await;
    let stats = server.stats();
    assert_eq!(stats.connections, 150);
    assert!(stats.errors_protocol > 50, "{stats:?}");
    serves(&server).await;
}

/// The connection is reset in the middle of a message: the server keeps the complete messages, and the
/// session's next connection continues after them.
#[tokio::test]
async fn a_reset_in_the_middle_of_a_message() {
    let (server, seen) = remembering(Server::builder()).await;
    let mut socket = raw(&server).await;
    socket.write_all(&hello(1).encode()).await.unwrap();
    let first = welcome(&mut socket).await;
    let bytes = messages(Layout::Session, 1, 4);
    socket.write_all(&bytes[..bytes.len() - 5]).await.unwrap();
    until("three arrive", || seen.len() == 3).await;
    socket.set_zero_linger().unwrap();
    drop(socket);

    let mut socket = raw(&server).await;
    let again = Hello {
        epoch: first.epoch,
        sent: Seq::new(4),
        ..hello(1)
    };
    socket.write_all(&again.encode()).await.unwrap();
    let second = welcome(&mut socket).await;
    assert_eq!((second.epoch, second.received), (first.epoch, Seq::new(3)));
    socket
        .write_all(&messages(Layout::Session, 4, 4))
        .await
        .unwrap();
    until("the fourth arrives", || seen.len() == 4).await;
    assert_eq!(seen.numbers(), [1, 2, 3, 4]);
}

/// Clients send parts of long messages and then nothing: the server's memory for all of them has a bound, and
/// another client's long message still arrives.
#[tokio::test]
async fn parts_of_long_messages_share_a_bound() {
    let builder = Server::builder()
        .frame_max(64 << 10)
        .read_bytes(4 << 10)
        .buffers_max(256 << 10);
    let (server, seen) = remembering(builder).await;
    let mut peers = Vec::new();
    for peer in 0..12 {
        let mut socket = raw(&server).await;
        let mut session = *b"a hostile client";
        session[0] = peer;
        let hello = Hello {
            session: SessionId(session),
            ..hello(1)
        };
        socket.write_all(&hello.encode()).await.unwrap();
        welcome(&mut socket).await;
        let mut message = Vec::new();
        Layout::Session.encode(Seq::new(1), &[0; 60_000], &mut message);
        // The server may end the connection meanwhile, so an error of this write is no failure.
        let _ = socket.write_all(&message[..50_000]).await;
        peers.push(socket);
    }
    // Each of the twelve connections needs 60 KiB, and the server has memory for at most four of them.
    until("most of them are closed", || server.stats().crowded >= 8).await;
    let client = Client::builder().connect(server.local_addr().to_string());
    let client = timeout(PATIENCE, client).await.unwrap().unwrap();
    let seq = client.send(&[1_u8; 60_000]).await.unwrap();
    let acked = timeout(PATIENCE, client.wait_acked(seq)).await;
    acked.unwrap().unwrap();
    assert_eq!(seen.payloads(), [vec![1; 60_000]]);
    serves(&server).await;
}

/// A client that sends and does not read: the server accepts every message, and its
/// acknowledgements are consistent as soon as the client reads them.
#[tokio::test]
async fn a_client_that_never_listens() {
    let builder = Server::builder().controller(|| Box::new(Greedy.controller()));
    let (server, seen) = remembering(builder).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    let mut socket = socket.connect(server.local_addr()).await.unwrap();
    socket.set_nodelay(true).unwrap();
    // These are far more acknowledgements than the buffers of both ends hold.
    let n = 60_000;
    let bytes = messages(Layout::Plain, 1, n);
    for part in bytes.chunks(5 * 20) {
        socket.write_all(part).await.unwrap();
    }
    until("all arrive", || seen.len() as u64 == n).await;
    socket.shutdown().await.unwrap();
    let said = end_of(&mut socket).await;
    assert_eq!(said.len() % REPLY_BYTES, 0);
    let mut previous = u64::MAX;
    for unit in said.chunks(REPLY_BYTES) {
        let Reply::Ack { latest, omitted } = Reply::decode(Layout::Plain, unit.try_into().unwrap())
        else {
            panic!("plain knows nothing else")
        };
        assert_eq!(previous.wrapping_add(u64::from(omitted) + 1), latest);
        previous = latest;
    }
    assert_eq!(previous, n - 1);
}

/// A client in a new life takes a session over. If the server could fall back to the last message done, the
/// later messages would be missing, and the new client does not have them. So the server admits the new
/// client only after all received messages are done.
#[tokio::test]
async fn a_new_life_waits_until_what_came_before_is_done() {
    let stuck = Stuck::default();
    let (server, seen) = remembering_when_done(stuck.clone()).await;
    let mut socket = raw(&server).await;
    socket.write_all(&hello(1).encode()).await.unwrap();
    welcome(&mut socket).await;
    socket
        .write_all(&messages(Layout::Session, 1, 5))
        .await
        .unwrap();
    until("all arrive", || seen.len() == 5).await;

    let mut second = raw(&server).await;
    second.write_all(&hello(2).encode()).await.unwrap();
    // The server tells the first connection, and closes it. It has not answered the second one yet.
    assert!(!end_of(&mut socket).await.is_empty());
    stuck.report(Seq::new(4));
    let mut byte = [0];
    assert!(second.try_read(&mut byte).is_err(), "message 5 is not done");
    stuck.report(Seq::new(5));
    let welcome = welcome(&mut second).await;
    assert_eq!(welcome.received, Seq::new(5));
}

/// Starts a proxy that forwards bytes in parts of random size, and breaks each of the first `breaks`
/// connections after at most some thousand bytes.
async fn bad_network(target: std::net::SocketAddr, breaks: u64, mut seed: u64) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        for n in 0.. {
            let Ok((near, _)) = listener.accept().await else {
                return;
            };
            let Ok(far) = TcpStream::connect(target).await else {
                return;
            };
            let mut random = move || {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                seed >> 33
            };
            // Messages go to the server, and only acknowledgements come back. Either direction may break.
            let (up, down) = match (n < breaks, random() % 3) {
                (false, _) => (u64::MAX, u64::MAX),
                (true, 0) => (u64::MAX, random() % 300),
                (true, _) => (random() % 8000, u64::MAX),
            };
            let part = 1 + random() as usize % 700;
            seed = random();
            tokio::spawn(async move {
                let (near_read, near_write) = near.into_split();
                let (far_read, far_write) = far.into_split();
                // The proxy ends both directions when one of them ends, as a broken connection does.
                tokio::select! {
                    () = forward(near_read, far_write, up, part) => {}
                    () = forward(far_read, near_write, down, part) => {}
                }
            });
        }
    });
    address
}

async fn forward(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    mut left: u64,
    part: usize,
) {
    let mut buffer = vec![0; part];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        let n = left.min(n as u64);
        if to.write_all(&buffer[..n as usize]).await.is_err() || n == left {
            return;
        }
        left -= n;
    }
}

/// Connections break anywhere: the server handles every message once and in order, and acknowledges it.
#[tokio::test]
async fn a_bad_network() {
    const N: u64 = 3000;
    for seed in 0..10 {
        let seen = Seen::default();
        let handlers = seen.clone();
        let when_done = seed % 2 == 0;
        let acks = if when_done {
            Acks::WhenDone
        } else {
            Acks::OnReceipt
        };
        // Another thread reports the messages as done some time later, as a disk would.
        let (disk, stored) = std::sync::mpsc::sync_channel::<(Done, Seq)>(1000);
        let storing = std::thread::spawn(move || {
            while let Ok((done, seq)) = stored.recv() {
                done.done(seq);
            }
        });
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = Server::builder().acks(acks).serve(listener, move |opened| {
            let (seen, disk, done) = (handlers.clone(), disk.clone(), opened.done);
            Ok(move |batch: Batch<'_>| {
                let last = batch.last_seq();
                seen.take_in(batch);
                disk.send((done.clone(), last)).map_err(|e| e.to_string())
            })
        });
        let server = server.unwrap();
        let address = bad_network(server.local_addr(), 12, seed).await;
        let reconnect = Reconnect {
            first: Duration::from_millis(1),
            longest: Duration::from_millis(5),
            ..Reconnect::default()
        };
        // The proxy may break the first connection before the client has opened its session.
        let client = loop {
            let client = Client::builder()
                .checked(seed % 3 == 0)
                .reconnect(reconnect);
            if let Ok(client) = client.connect(address.clone()).await {
                break client;
            }
        };
        for n in 1..=N {
            client.send(&n.to_le_bytes()).await.unwrap();
            // The client waits for an acknowledgement after each hundred messages, so that connections live
            // long enough to break among messages.
            if n % 100 == 0 {
                let acked = timeout(PATIENCE, client.wait_acked(Seq::new(n))).await;
                assert!(matches!(acked, Ok(Ok(()))), "seed {seed}: {acked:?}");
            }
        }
        let connections = client.stats().connections;
        let acked = timeout(PATIENCE, client.close()).await;
        assert!(
            matches!(acked, Ok(Ok(seq)) if seq.get() == N),
            "seed {seed}: {acked:?}"
        );
        assert_eq!(seen.numbers(), Vec::from_iter(1..=N), "seed {seed}");
        let want: Vec<_> = (1..=N).map(|n: u64| n.to_le_bytes().to_vec()).collect();
        assert_eq!(seen.payloads(), want, "seed {seed}");
        assert!(connections > 3, "seed {seed}: {connections} connections");
        server.stop().await;
        storing.join().unwrap();
    }
}

// ---- servers that misbehave

/// Accepts one connection and completes the handshake, as a server that misbehaves afterwards.
async fn strange_server() -> (TcpListener, String) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

async fn let_in(listener: &TcpListener, split: bool) -> TcpStream {
    let (mut socket, _) = listener.accept().await.unwrap();
    let mut bytes = Vec::new();
    let hello = loop {
        match Hello::decode(&bytes).unwrap() {
            Some((hello, _)) => break hello,
            None => bytes.push(timeout(PATIENCE, socket.read_u8()).await.unwrap().unwrap()),
        }
    };
    let welcome = Answer::Welcome(Welcome {
        version: VERSION,
        checked: hello.checked,
        when_done: false,
        session: hello.session,
        epoch: 7,
        received: hello.acked,
        acked: hello.acked,
        window: 1 << 20,
        frame_max: 1 << 16,
        idle_ms: 60_000,
    });
    let bytes = welcome.encode();
    socket.set_nodelay(true).unwrap();
    for part in bytes.chunks(if split { 1 } else { bytes.len() }) {
        socket.write_all(part).await.unwrap();
    }
    socket
}

#[tokio::test]
async fn a_server_that_acknowledges_what_it_should_not() {
    type Acks = &'static [(u64, u32)];
    type Expected = fn(&SenderError) -> bool;
    let cases: [(Acks, Expected); 4] = [
        (&[(3, 2)], |e| matches!(e, SenderError::Impossible { .. })),
        (&[(1, 0), (1, 0)], |e| {
            matches!(e, SenderError::Repeated { .. })
        }),
        (&[(2, 0)], |e| matches!(e, SenderError::Missing { .. })),
        (&[(9, 0xFFFF_FFF1)], |e| matches!(e, SenderError::Reply(_))),
    ];
    for (acks, is) in cases {
        let (listener, address) = strange_server().await;
        let server = tokio::spawn(async move {
            let mut socket = let_in(&listener, false).await;
            let mut two = [0; 2 * 5];
            socket.read_exact(&mut two).await.unwrap();
            for (latest, n) in acks {
                let unit = [&latest.to_le_bytes()[..], &n.to_le_bytes()].concat();
                socket.write_all(&unit).await.unwrap();
            }
            end_of(&mut socket).await
        });
        let client = Client::builder().connect(address).await.unwrap();
        client.send_many([b"a", b"b"]).await.unwrap();
        let ended = timeout(PATIENCE, client.wait_acked(Seq::new(3)))
            .await
            .unwrap();
        let Err(LinkError::Protocol(e)) = ended else {
            panic!("{ended:?}")
        };
        assert!(is(&e), "{e:?}");
        assert!(matches!(client.send(b"c").await, Err(SendError::Ended(_))));
        // The client closes, and must not connect again.
        server.await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_speaks_something_else() {
    let (listener, address) = strange_server().await;
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"220 mail.example ESMTP\r\n").await;
            end_of(&mut socket).await;
        }
    });
    let error = Client::builder().connect(address).await.unwrap_err();
    assert!(
        matches!(
            &error,
            ConnectError::Ended(LinkError::Protocol(SenderError::Handshake(_)))
        ),
        "{error:?}"
    );
    assert!(error.to_string().contains("session protocol"), "{error}");
}

/// The answers arrive byte by byte, and the connection breaks in the middle of an acknowledgement.
#[tokio::test]
async fn a_server_that_breaks_off_inside_an_acknowledgement() {
    let (listener, address) = strange_server().await;
    tokio::spawn(async move {
        let mut socket = let_in(&listener, true).await;
        let mut one = [0; 5];
        socket.read_exact(&mut one).await.unwrap();
        let ack = Reply::Ack {
            latest: 1,
            omitted: 0,
        }
        .encode();
        socket.write_all(&ack[..7]).await.unwrap();
        drop(socket);
        // The client reconnects, and sends the message again; this time it receives the whole
        // acknowledgement.
        let mut socket = let_in(&listener, true).await;
        socket.read_exact(&mut one).await.unwrap();
        assert_eq!(one, [1, 0, 0, 0, b'x']);
        for byte in ack {
            socket.write_all(&[byte]).await.unwrap();
        }
        end_of(&mut socket).await;
    });
    let client = Client::builder().connect(address).await.unwrap();
    let seq = client.send(b"x").await.unwrap();
    timeout(PATIENCE, client.wait_acked(seq))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(client.stats().connections, 2);
}

/// A server that reads nothing: the client holds as much as its limit permits, refuses more, and finally
/// returns the error that it makes no progress.
#[tokio::test]
async fn a_server_that_stops_reading() {
    let (listener, address) = strange_server().await;
    let (done, wait) = tokio::sync::oneshot::channel::<()>();
    tokio::spawn(async move {
        let socket = let_in(&listener, false).await;
        let _ = wait.await;
        drop(socket);
    });
    let buffer = 1 << 18;
    let client = Client::builder()
        .buffer_bytes(buffer)
        .block_bytes(1 << 16)
        .stalled_after(Duration::from_millis(500));
    let client = client.connect(address).await.unwrap();
    let mut taken = 0;
    let error = loop {
        match client.try_send(&[0; 1000]) {
            Ok(_) => taken += 1004,
            Err(SendError::Full) => tokio::task::yield_now().await,
            Err(e) => break e,
        }
        assert!(taken <= buffer + 3 * (1 << 16), "{taken} bytes were taken");
    };
    assert!(
        matches!(error, SendError::Ended(LinkError::Stalled { .. })),
        "{error:?}"
    );
    assert!(taken >= buffer / 2);
    drop(done);
}

/// A server that accepts connections and closes them, again and again: the client gives up
/// after its configured time.
#[tokio::test]
async fn a_server_that_hangs_up_on_everybody() {
    let (listener, address) = strange_server().await;
    let server = tokio::spawn(async move {
        for _ in 0..5 {
            drop(let_in(&listener, false).await);
        }
    });
    let reconnect = Reconnect {
        first: Duration::from_millis(10),
        longest: Duration::from_millis(20),
        give_up: Duration::from_millis(200),
    };
    let client = Client::builder()
        .reconnect(reconnect)
        .connect(address)
        .await
        .unwrap();
    let seq = client.send(b"x").await.unwrap();
    let ended = timeout(PATIENCE, client.wait_acked(seq)).await.unwrap();
    assert!(matches!(ended, Err(LinkError::Broken { .. })), "{ended:?}");
    server.await.unwrap();
}
