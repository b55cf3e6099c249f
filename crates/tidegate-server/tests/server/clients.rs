//! Tests stock clients in ordinary use with a real server.

use std::process::Command;

use async_nats::{Client, ConnectOptions, HeaderMap};
use futures_util::{FutureExt, StreamExt};

use super::raw::PATIENCE;
use super::{Running, start};

fn block_on<F: Future>(f: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, f).await.expect("in time") })
}

async fn connect(server: &Running) -> Client {
    async_nats::connect(server.url()).await.unwrap()
}

/// Waits until the server has handled all requests of the client and the client has received all earlier
/// messages: a request goes the whole way through the server, which the client's `flush` does not.
async fn settled(client: &Client) {
    let e = client
        .request("nobody.is.here", "".into())
        .await
        .unwrap_err();
    assert_eq!(e.kind(), async_nats::RequestErrorKind::NoResponders);
}

#[test]
fn publish_subscribe_and_headers() {
    let server = start("");
    block_on(async {
        let (a, b) = (connect(&server).await, connect(&server).await);
        let mut sub = b.subscribe("greet.*").await.unwrap();
        settled(&b).await;
        let mut headers = HeaderMap::new();
        headers.insert("Lang", "en");
        a.publish("greet.joe", "hello".into()).await.unwrap();
        a.publish_with_headers("greet.sue", headers, "hi".into())
            .await
            .unwrap();
        let large = vec![7_u8; 1024 * 1024];
        a.publish("greet.large", large.clone().into())
            .await
            .unwrap();
        let first = sub.next().await.unwrap();
        assert_eq!(
            (first.subject.as_str(), &first.payload[..]),
            ("greet.joe", &b"hello"[..])
        );
        let second = sub.next().await.unwrap();
        assert_eq!(second.headers.unwrap().get("Lang").unwrap().as_str(), "en");
        assert_eq!(&sub.next().await.unwrap().payload[..], &large[..]);
        sub.unsubscribe_after(4).await.unwrap();
        a.publish("greet.last", "".into()).await.unwrap();
        a.publish("greet.never", "".into()).await.unwrap();
        assert_eq!(sub.next().await.unwrap().subject.as_str(), "greet.last");
        assert!(sub.next().await.is_none());
    });
}

#[test]
fn requests_are_answered_or_hear_that_there_is_no_responder() {
    let server = start("");
    block_on(async {
        let (a, b) = (connect(&server).await, connect(&server).await);
        let e = a.request("svc", "".into()).await.unwrap_err();
        assert_eq!(e.kind(), async_nats::RequestErrorKind::NoResponders);
        let mut sub = b.queue_subscribe("svc", "workers".into()).await.unwrap();
        settled(&b).await;
        let worker = tokio::spawn(async move {
            while let Some(m) = sub.next().await {
                b.publish(m.reply.unwrap(), m.payload).await.unwrap();
            }
        });
        for i in 0..200 {
            let answer = a.request("svc", i.to_string().into()).await.unwrap();
            assert_eq!(answer.payload, i.to_string());
        }
        worker.abort();
    });
}

/// Checks that the server delivers every message once, in its publisher's order, to one member of the group.
#[test]
fn queue_groups_share_and_order_is_kept() {
    const MESSAGES: u32 = 20_000;
    let server = start("");
    block_on(async {
        let publisher = connect(&server).await;
        let mut members = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..3 {
            let client = connect(&server).await;
            members.push(client.queue_subscribe("work", "pool".into()).await.unwrap());
            settled(&client).await;
            clients.push(client);
        }
        let all = connect(&server).await;
        let mut everything = all.subscribe("work").await.unwrap();
        settled(&all).await;
        for i in 0..MESSAGES {
            publisher
                .publish("work", i.to_string().into())
                .await
                .unwrap();
        }
        publisher.publish("work", "end".into()).await.unwrap();
        settled(&publisher).await;
        for i in 0..MESSAGES {
            assert_eq!(everything.next().await.unwrap().payload, i.to_string());
        }
        // The server has sent all messages of the members: the answer to a later request closes each count.
        let mut seen = vec![false; MESSAGES as usize];
        for (member, client) in members.iter_mut().zip(&clients) {
            settled(client).await;
            let mut last = None;
            // The test reads outside of the runtime's budget, which must not hide a message that has arrived.
            while let Some(Some(m)) = tokio::task::unconstrained(member.next()).now_or_never() {
                let Ok(i) = std::str::from_utf8(&m.payload).unwrap().parse::<u32>() else {
                    continue;
                };
                assert!(last < Some(i), "out of order");
                assert!(!std::mem::replace(&mut seen[i as usize], true), "{i} twice");
                last = Some(i);
            }
            assert!(last.is_some(), "a member got nothing of {MESSAGES}");
        }
        assert!(seen.iter().all(|s| *s), "some message reached no member");
    });
}

#[test]
fn credentials() {
    // The server has the password "hashed" only as a bcrypt hash.
    let hash = bcrypt::hash("hashed", 4).unwrap();
    let server = start(&format!(
        "authorization {{ users = [ {{user: plain, password: secret}}, {{user: slow, password: \"{hash}\"}} ] }}"
    ));
    block_on(async {
        let connect = |user: &str, pass: &str| {
            let options = ConnectOptions::with_user_and_password(user.into(), pass.into());
            options.connect(server.url())
        };
        connect("plain", "secret")
            .await
            .unwrap()
            .flush()
            .await
            .unwrap();
        connect("slow", "hashed")
            .await
            .unwrap()
            .flush()
            .await
            .unwrap();
        for (user, pass) in [
            ("plain", "Secret"),
            ("slow", "hash"),
            ("nobody", "secret"),
            ("slow", ""),
        ] {
            let e = connect(user, pass).await.unwrap_err();
            assert_eq!(
                e.kind(),
                async_nats::ConnectErrorKind::AuthorizationViolation,
                "{user} {pass}: {e}"
            );
        }
        async_nats::connect(server.url()).await.unwrap_err();
    });
}

/// Tests the `nats` program with the server.
#[test]
fn the_nats_program() {
    let Some(program) = tidegate_testing::nats() else {
        return;
    };
    let server = start("");
    let nats = |args: &[&str]| {
        let output = Command::new(&program)
            .arg("-s")
            .arg(server.url())
            .args(args)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    let (good, text) = nats(&["pub", "foo", "hello"]);
    assert!(good && text.contains("Published 5 bytes"), "{text}");
    let (good, text) = nats(&["rtt"]);
    assert!(good, "{text}");
    let (_, text) = nats(&["request", "nobody", "hello"]);
    assert!(text.to_lowercase().contains("no responders"), "{text}");
    let (_, text) = nats(&["stream", "ls"]);
    assert!(
        text.to_lowercase().contains("jetstream not enabled")
            || text.to_lowercase().contains("no responders"),
        "{text}"
    );
    let (good, text) = nats(&["bench", "pub", "foo", "--msgs=2000", "--no-progress"]);
    assert!(good, "{text}");
}

/// Tests the client library nats.py with the server.
#[test]
fn nats_py() {
    let Some(python) = tidegate_testing::python_with_nats() else {
        return;
    };
    let server = start("");
    let script = r#"
import asyncio, sys, nats
from nats.errors import NoRespondersError
async def main():
    a = await nats.connect(sys.argv[1]); b = await nats.connect(sys.argv[1])
    sub = await b.subscribe("greet.*"); await b.flush()
    await a.publish("greet.joe", b"hello", headers={"Lang": "en"})
    m = await sub.next_msg(timeout=20)
    assert (m.subject, m.data, m.headers) == ("greet.joe", b"hello", {"Lang": "en"}), m
    try:
        await a.request("nobody", b"", timeout=20)
        assert False
    except NoRespondersError:
        pass
    async def answer(m): await m.respond(m.data)
    await b.subscribe("echo", queue="q", cb=answer); await b.flush()
    for i in range(100):
        assert (await a.request("echo", b"%d" % i, timeout=20)).data == b"%d" % i
    await a.drain(); await b.drain()
asyncio.run(main())
print("good")
"#;
    let output = Command::new(python)
        .args(["-c", script, &server.url()])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
