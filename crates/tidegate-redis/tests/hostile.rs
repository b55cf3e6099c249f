//! Tests with servers that misbehave: the client returns typed errors, hands no reply to the
//! wrong caller, and does not hang.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::{Scripted, expect, greet, soon, until, write};
use tidegate_redis::{
    Client, CommandError, Config, ConnectError, ProtocolError, ServerErrorKind, Value, cmd,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;

async fn hang_up_after(answer: &'static [u8]) -> Result<Value, CommandError> {
    let server = Scripted::start(move |mut socket, _| async move {
        greet(&mut socket).await;
        expect(&mut socket, b"GET").await;
        write(&mut socket, answer).await;
        // After an incomplete answer the server closes the connection; after a whole one it waits until the
        // client does.
        if !answer.ends_with(b"\n") {
            return;
        }
        let _ = socket.read(&mut [0; 64]).await;
    })
    .await;
    let c = soon("connect", Client::connect(&server.url)).await.unwrap();
    soon("an end", c.get("k")).await
}

#[tokio::test]
async fn replies_that_are_none_end_the_connection() {
    let deep = b"*1\r\n".repeat(40);
    let cases: &[(&'static [u8], &str)] = &[
        (
            b"HTTP/1.1 400 Bad Request\r\n",
            "expected a RESP reply, got one beginning with byte 0x48",
        ),
        (b":12x\r\n", "expected a number"),
        (b":99999999999999999999\r\n", "expected a number"),
        (b"$-2\r\n", "expected a number"),
        (b"$3\r\nabcd\r\n", "expected CR LF"),
        (b"+OK\rX\r\n", "expected CR LF"),
        (b"$999999999999\r\n", "larger than the configured bound"),
        (b"*999999999999\r\n", "larger than the configured bound"),
        (
            b"*1\r\n$999999999999\r\n",
            "larger than the configured bound",
        ),
        (b"#x\r\n", "expected a reply Redis sends"),
        (b"$?\r\n", "expected a number"),
        (b"*2\r\n:1\r\n>1\r\n:1\r\n", "expected a reply Redis sends"),
        (Box::leak(deep.into_boxed_slice()), "at most 32 levels"),
        (b"$5\r\nab", "the server closed it in the middle of a reply"),
        (b"", "the server closed it"),
    ];
    for (answer, wanted) in cases {
        let e = hang_up_after(answer).await.unwrap_err();
        let text = String::from_utf8_lossy(answer);
        assert!(e.maybe_executed(), "{text}: {e}");
        assert!(e.to_string().contains(wanted), "{text}: {e}");
    }
}

#[tokio::test]
async fn refusals_are_typed() {
    let cases: &[(&'static [u8], ServerErrorKind)] = &[
        (
            b"-WRONGTYPE Operation against a key\r\n",
            ServerErrorKind::WrongType,
        ),
        (
            b"-OOM command not allowed\r\n",
            ServerErrorKind::OutOfMemory,
        ),
        (b"-READONLY You can't write\r\n", ServerErrorKind::ReadOnly),
        (
            b"-MOVED 1 10.0.0.1:7000\r\n",
            ServerErrorKind::Moved {
                slot: 1,
                node: "10.0.0.1:7000".into(),
            },
        ),
        (
            b"-ASK 16383 host:1\r\n",
            ServerErrorKind::Ask {
                slot: 16383,
                node: "host:1".into(),
            },
        ),
        (b"!10\r\nERR blob x\r\n", ServerErrorKind::Err),
    ];
    for (answer, wanted) in cases {
        let e = hang_up_after(answer).await.unwrap_err();
        assert_eq!(e.server().unwrap().kind(), wanted);
    }
}

#[tokio::test]
async fn an_unsolicited_reply_ends_the_connection() {
    let server = Scripted::start(|mut socket, n| async move {
        greet(&mut socket).await;
        if n == 0 {
            write(&mut socket, b":1\r\n").await;
        }
        expect(&mut socket, b"GET").await;
        write(&mut socket, b":2\r\n").await;
        let _ = socket.read(&mut [0; 64]).await;
    })
    .await;
    let c = Client::connect(&server.url).await.unwrap();
    until("the reconnect", || c.stats().reconnects == 1).await;
    assert_eq!(
        soon("a reply", c.get::<i64>("k")).await.unwrap(),
        2,
        "the stray reply reached nobody"
    );
}

/// The server sends two replies to one command: the caller gets the first, the second ends the connection.
#[tokio::test]
async fn a_surplus_reply_reaches_no_caller() {
    let server = Scripted::start(|mut socket, n| async move {
        greet(&mut socket).await;
        expect(&mut socket, b"GET").await;
        write(
            &mut socket,
            if n == 0 { b":1\r\n:2\r\n" } else { b":3\r\n" },
        )
        .await;
        let _ = socket.read(&mut [0; 64]).await;
    })
    .await;
    let c = Client::connect(&server.url).await.unwrap();
    assert_eq!(soon("a reply", c.get::<i64>("k")).await.unwrap(), 1);
    until("the reconnect", || c.stats().reconnects == 1).await;
    assert_eq!(soon("a reply", c.get::<i64>("k")).await.unwrap(), 3);
}

/// The server sends replies byte by byte, and later many at once.
#[tokio::test]
async fn replies_may_be_cut_anywhere() {
    let wire: &[u8] = b"$5\r\nhello\r\n*2\r\n$1\r\na\r\n%1\r\n+k\r\n,1.5\r\n:-3\r\n_\r\n|1\r\n+ttl\r\n:1\r\n#t\r\n";
    let server = Scripted::start(move |mut socket, n| async move {
        greet(&mut socket).await;
        expect(&mut socket, b"five").await;
        match n {
            0 => write(&mut socket, wire).await,
            _ => {
                for byte in wire.chunks(1) {
                    write(&mut socket, byte).await;
                    tokio::task::yield_now().await;
                }
            }
        }
        let _ = socket.read(&mut [0; 64]).await;
    })
    .await;
    for _ in 0..2 {
        let c = Client::connect(&server.url).await.unwrap();
        let (a, b, d, e) = (
            c.get::<Bytes>("one"),
            c.get::<Value>("two"),
            c.get::<i64>("three"),
            c.get::<Option<i64>>("four"),
        );
        let f = c.get::<bool>("five");
        assert_eq!(&soon("a", a).await.unwrap()[..], b"hello");
        let map = Value::Map(vec![(Value::Simple("k".into()), Value::Double(1.5))]);
        assert_eq!(
            soon("b", b).await.unwrap(),
            Value::Array(vec![Value::Bulk("a".into()), map])
        );
        assert_eq!(
            (soon("d", d).await.unwrap(), soon("e", e).await.unwrap()),
            (-3, None)
        );
        assert!(
            soon("f", f).await.unwrap(),
            "an attribute is dropped, the reply behind it is not"
        );
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_is_given_up() {
    let server = Scripted::start(|mut socket, n| async move {
        greet(&mut socket).await;
        loop {
            let mut buf = [0; 1024];
            match socket.read(&mut buf).await {
                Ok(0) | Err(_) => return,
                Ok(_) if n == 0 => {}
                Ok(_) => write(&mut socket, b"+PONG\r\n").await,
            }
        }
    })
    .await;
    let config = Config::from_url(&server.url).unwrap();
    let (timeout, keepalive) = (Duration::from_millis(40), Duration::from_millis(40));
    let c = Client::open(config.timeout(timeout).keepalive(keepalive))
        .await
        .unwrap();
    let e = soon("the timeout", c.ping()).await.unwrap_err();
    assert!(matches!(e, CommandError::TimedOut(_)), "{e}");
    until("the reconnect", || c.stats().reconnects == 1).await;
    soon("a reply", c.ping()).await.unwrap();
}

#[tokio::test]
async fn handshakes_fail_with_a_reason() {
    async fn open(answer: &'static [u8]) -> ConnectError {
        let server = Scripted::start(move |mut socket, _| async move {
            expect(&mut socket, b"HELLO").await;
            write(&mut socket, answer).await;
            if !answer.is_empty() {
                let _ = socket.read(&mut [0; 64]).await;
            }
        })
        .await;
        let config = Config::from_url(&server.url)
            .unwrap()
            .connect_timeout(Duration::from_millis(200));
        soon("an end", Client::open(config)).await.unwrap_err()
    }
    assert!(matches!(
        open(b"SSH-2.0-OpenSSH_9.2\r\n").await,
        ConnectError::Protocol(ProtocolError::UnknownType(b'S'))
    ));
    assert!(matches!(
        open(b"-LOADING Redis is loading\r\n").await,
        ConnectError::Refused(_)
    ));
    assert!(matches!(open(b"+OK\r\n").await, ConnectError::Protocol(_)));
    assert!(matches!(open(b"").await, ConnectError::Closed));
    // This server accepts connections and sends nothing, so the client must time out.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let config = Config::from_url(&url)
        .unwrap()
        .connect_timeout(Duration::from_millis(50));
    assert!(matches!(
        soon("an end", Client::open(config)).await,
        Err(ConnectError::TimedOut(_))
    ));
}

/// A server that accepts requests without reading them blocks neither reading nor the timeouts.
#[tokio::test]
async fn a_server_that_does_not_read_is_timed_out() {
    let server = Scripted::start(|mut socket, _| async move {
        greet(&mut socket).await;
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await;
    let config = Config::from_url(&server.url)
        .unwrap()
        .timeout(Duration::from_millis(50));
    let c = Client::open(config).await.unwrap();
    let huge = vec![0u8; 30 << 20];
    let replies = [
        c.send::<Value>(cmd("ECHO").arg(&huge)),
        c.send::<Value>(cmd("PING")),
    ];
    for reply in replies {
        let e = soon("the timeout", reply).await.unwrap_err();
        assert!(matches!(e, CommandError::TimedOut(_)), "{e}");
    }
}
