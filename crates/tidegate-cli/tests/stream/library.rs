//! Tests of the server with the client library async-nats, in the ways in which its users use it.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull, push};
use async_nats::jetstream::{self, AckKind, Context, kv, stream};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde_json::Value;

use super::raw::PATIENCE;
use super::server::Server;

fn block_on<F: Future>(f: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        tokio::time::timeout(2 * PATIENCE, f)
            .await
            .expect("in time")
    })
}

async fn connect(server: &Server) -> Context {
    let client = async_nats::connect(&server.url).await.unwrap();
    let mut context = jetstream::new(client);
    context.set_timeout(PATIENCE);
    context
}

fn config(name: &str, subject: &str) -> stream::Config {
    stream::Config {
        name: name.into(),
        subjects: vec![subject.into()],
        ..stream::Config::default()
    }
}

#[test]
fn streams() {
    let server = Server::start();
    block_on(async {
        let js = connect(&server).await;
        let mut s = js
            .create_stream(stream::Config {
                max_messages_per_subject: 3,
                allow_direct: true,
                allow_rollup: true,
                ..config("S", "s.>")
            })
            .await
            .unwrap();
        for i in 0..10_u64 {
            let subject = format!("s.{}", i % 3);
            let ack = js
                .publish(subject, i.to_string().into())
                .await
                .unwrap()
                .await
                .unwrap();
            assert_eq!(
                (ack.stream.as_str(), ack.sequence, ack.duplicate),
                ("S", i + 1, false)
            );
        }
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, "once");
        for duplicate in [false, true] {
            let ack = js
                .publish_with_headers("s.x", headers.clone(), "x".into())
                .await
                .unwrap()
                .await
                .unwrap();
            assert_eq!((ack.sequence, ack.duplicate), (11, duplicate));
        }
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Last-Sequence", "3");
        let refused = js
            .publish_with_headers("s.x", headers, "x".into())
            .await
            .unwrap()
            .await
            .unwrap_err();
        assert_eq!(
            refused.kind(),
            jetstream::context::PublishErrorKind::WrongLastSequence
        );
        let info = s.info().await.unwrap();
        // The stream has got ten messages of three subjects and one further message. It keeps at most three
        // messages of each subject, so it has removed the first message.
        assert_eq!(
            (
                info.state.messages,
                info.state.first_sequence,
                info.state.last_sequence
            ),
            (10, 2, 11)
        );
        let message = s.get_raw_message(5).await.unwrap();
        assert_eq!(
            (message.subject.as_str(), &message.payload[..]),
            ("s.1", &b"4"[..])
        );
        let message = s.direct_get(5).await.unwrap();
        assert_eq!(
            (message.subject.as_str(), &message.payload[..]),
            ("s.1", &b"4"[..])
        );
        let last = s.direct_get_last_for_subject("s.2").await.unwrap();
        assert_eq!(last.sequence, 9);
        assert!(s.delete_message(5).await.unwrap());
        assert!(s.get_raw_message(5).await.is_err());
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Rollup", "sub");
        js.publish_with_headers("s.0", headers, "all of it".into())
            .await
            .unwrap()
            .await
            .unwrap();
        assert_eq!(s.info().await.unwrap().state.messages, 7);
        s.purge().filter("s.1").await.unwrap();
        s.purge().await.unwrap();
        assert_eq!(s.info().await.unwrap().state.messages, 0);
        let changed = js
            .update_stream(stream::Config {
                max_messages: 5,
                ..s.cached_info().config.clone()
            })
            .await;
        assert_eq!(changed.unwrap().config.max_messages, 5);
        let names: Vec<String> = js.stream_names().try_collect().await.unwrap();
        assert_eq!(names, ["S"]);
        assert!(js.create_stream(config("T", "s.one")).await.is_err());
        js.delete_stream("S").await.unwrap();
        assert!(js.get_stream("S").await.is_err());
    });
}

async fn filled(server: &Server, messages: u64) -> (Context, stream::Stream) {
    let js = connect(server).await;
    let s = js.create_stream(config("S", "s.*")).await.unwrap();
    let mut acks = Vec::new();
    for i in 0..messages {
        acks.push(
            js.publish(format!("s.{}", i % 2), i.to_string().into())
                .await
                .unwrap(),
        );
    }
    for ack in acks {
        ack.await.unwrap();
    }
    (js, s)
}

#[test]
fn pull_consumers() {
    let server = Server::start();
    block_on(async {
        let (js, s) = filled(&server, 1000).await;
        let consumer = s
            .create_consumer(pull::Config {
                durable_name: Some("pull".into()),
                ..pull::Config::default()
            })
            .await
            .unwrap();
        let mut batch = consumer.fetch().max_messages(300).messages().await.unwrap();
        let mut n = 0;
        while let Some(message) = batch.next().await {
            let message = message.unwrap();
            assert_eq!(message.payload, n.to_string());
            message.double_ack().await.unwrap();
            n += 1;
        }
        assert_eq!(n, 300);
        let mut messages = consumer.messages().await.unwrap();
        while n < 1000 {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(message.info().unwrap().stream_sequence, n + 1);
            message.ack().await.unwrap();
            n += 1;
        }
        // The stream must deliver a negatively acknowledged message again, at once and in order.
        js.publish("s.0", "again".into())
            .await
            .unwrap()
            .await
            .unwrap();
        let message = messages.next().await.unwrap().unwrap();
        message.ack_with(AckKind::Nak(None)).await.unwrap();
        let message = messages.next().await.unwrap().unwrap();
        assert_eq!(
            (&message.payload[..], message.info().unwrap().delivered),
            (&b"again"[..], 2)
        );
        message.ack_with(AckKind::Progress).await.unwrap();
        message.double_ack_with(AckKind::Term).await.unwrap();
        drop(messages);
        let mut same: jetstream::consumer::PullConsumer = s.get_consumer("pull").await.unwrap();
        let info = same.info().await.unwrap();
        assert_eq!(
            (
                info.num_pending,
                info.num_ack_pending,
                info.ack_floor.stream_sequence
            ),
            (0, 0, 1001)
        );
        // The stream is empty, and the answer to the request must say so.
        assert!(
            consumer
                .fetch()
                .max_messages(5)
                .messages()
                .await
                .unwrap()
                .next()
                .await
                .is_none()
        );
        s.delete_consumer("pull").await.unwrap();
        assert!(s.consumer_info("pull").await.is_err());
    });
}

/// Tests a durable consumer after the server was killed: it must continue with the same messages.
#[test]
fn a_durable_consumer_outlives_the_server() {
    let mut server = Server::start();
    block_on(async {
        let (_, s) = filled(&server, 20).await;
        let durable = pull::Config {
            durable_name: Some("d".into()),
            ..pull::Config::default()
        };
        let consumer = s.create_consumer(durable).await.unwrap();
        let mut batch = consumer.fetch().max_messages(7).messages().await.unwrap();
        while let Some(message) = batch.next().await {
            message.unwrap().double_ack().await.unwrap();
        }
    });
    server = server.restart();
    block_on(async {
        let js = connect(&server).await;
        let s = js.get_stream("S").await.unwrap();
        let consumer: jetstream::consumer::PullConsumer = s.get_consumer("d").await.unwrap();
        let batch = consumer.fetch().max_messages(100).messages().await.unwrap();
        let rest: Vec<_> = batch.try_collect().await.unwrap();
        let numbers: Vec<_> = rest
            .iter()
            .map(|m| String::from_utf8_lossy(&m.payload).into_owned())
            .collect();
        assert_eq!(numbers, (7..20).map(|n| n.to_string()).collect::<Vec<_>>());
    });
}

#[test]
fn ordered_and_push_consumers() {
    let server = Server::start();
    block_on(async {
        let (js, s) = filled(&server, 500).await;
        let ordered = s
            .create_consumer(pull::OrderedConfig::default())
            .await
            .unwrap();
        let mut messages = ordered.messages().await.unwrap();
        for n in 0..500 {
            assert_eq!(
                messages.next().await.unwrap().unwrap().payload,
                n.to_string()
            );
        }
        let inbox = js.client().new_inbox();
        let consumer = s
            .create_consumer(push::Config {
                deliver_subject: inbox.clone(),
                filter_subject: "s.1".into(),
                deliver_policy: DeliverPolicy::ByStartSequence {
                    start_sequence: 100,
                },
                ack_policy: AckPolicy::Explicit,
                flow_control: true,
                idle_heartbeat: Duration::from_secs(1),
                ..push::Config::default()
            })
            .await
            .unwrap();
        let mut messages = consumer.messages().await.unwrap();
        for n in (99..500).step_by(2) {
            let message = messages.next().await.unwrap().unwrap();
            assert_eq!(message.payload, n.to_string());
            message.ack().await.unwrap();
        }
        let ordered = push::OrderedConfig {
            deliver_subject: js.client().new_inbox(),
            ..push::OrderedConfig::default()
        };
        let mut messages = s
            .create_consumer(ordered)
            .await
            .unwrap()
            .messages()
            .await
            .unwrap();
        for n in 0..500 {
            assert_eq!(
                messages.next().await.unwrap().unwrap().payload,
                n.to_string()
            );
        }
    });
}

#[test]
fn key_value() {
    let server = Server::start();
    block_on(async {
        let js = connect(&server).await;
        let bucket = js
            .create_key_value(kv::Config {
                bucket: "conf".into(),
                history: 5,
                ..kv::Config::default()
            })
            .await
            .unwrap();
        let mut watch = bucket.watch("a").await.unwrap();
        let one = bucket.put("a", "one".into()).await.unwrap();
        let two = bucket.update("a", "two".into(), one).await.unwrap();
        assert!(bucket.update("a", "three".into(), one).await.is_err());
        bucket.create("b", "new".into()).await.unwrap();
        assert!(bucket.create("b", "newer".into()).await.is_err());
        assert_eq!(bucket.get("a").await.unwrap().unwrap(), "two");
        for expected in ["one", "two"] {
            assert_eq!(watch.next().await.unwrap().unwrap().value, expected);
        }
        let entry = bucket.entry_for_revision("a", one).await.unwrap().unwrap();
        assert_eq!((&entry.value[..], two > one), (&b"one"[..], true));
        bucket.delete("b").await.unwrap();
        assert!(bucket.get("b").await.unwrap().is_none());
        let keys: Vec<String> = bucket.keys().await.unwrap().try_collect().await.unwrap();
        assert_eq!(keys, ["a"]);
        let history: Vec<kv::Entry> = bucket
            .history("a")
            .await
            .unwrap()
            .try_collect()
            .await
            .unwrap();
        assert_eq!(history.len(), 2);
        bucket.purge("a").await.unwrap();
        assert!(bucket.get("a").await.unwrap().is_none());
        assert_eq!(bucket.status().await.unwrap().history(), 5);
        js.delete_key_value("conf").await.unwrap();
    });
}

/// Tests batches of messages that the server stores together or not at all, with the headers of section 9 of
/// ADR-50.
#[test]
fn atomic_batches() {
    let server = Server::start();
    block_on(async {
        let js = connect(&server).await;
        let client = js.client();
        let made = client.request("$JS.API.STREAM.CREATE.B", r#"{"name":"B","subjects":["b.*"],"retention":"limits","storage":"file","discard":"old","num_replicas":1,"allow_atomic":true}"#.into());
        assert!(!String::from_utf8_lossy(&made.await.unwrap().payload).contains("error"));
        let batch =
            |id: &str, seq: u64, commit: bool, more: Option<(&'static str, &'static str)>| {
                let mut headers = HeaderMap::new();
                headers.insert("Nats-Batch-Id", id);
                headers.insert("Nats-Batch-Sequence", seq.to_string());
                if commit {
                    headers.insert("Nats-Batch-Commit", "1");
                }
                if let Some((name, value)) = more {
                    headers.insert(name, value);
                }
                let client = client.clone();
                async move {
                    let text = seq.to_string();
                    client
                        .request_with_headers("b.x", headers, text.into())
                        .await
                }
            };
        for seq in 1..=9 {
            assert!(
                batch("first", seq, false, None)
                    .await
                    .unwrap()
                    .payload
                    .is_empty()
            );
        }
        let answer = |payload: &[u8]| serde_json::from_slice::<Value>(payload).unwrap();
        let ack = answer(&batch("first", 10, true, None).await.unwrap().payload);
        assert_eq!(
            (&ack["batch"], &ack["count"], &ack["seq"]),
            (&"first".into(), &10.into(), &10.into()),
            "{ack}"
        );
        // If the stream refuses one message, the whole batch must fail.
        let wrong = Some(("Nats-Expected-Last-Sequence", "3"));
        assert!(
            batch("second", 1, false, wrong)
                .await
                .unwrap()
                .payload
                .is_empty()
        );
        let refused = answer(&batch("second", 2, true, None).await.unwrap().payload);
        assert_eq!(refused["error"]["err_code"], 10071, "{refused}");
        // A gap in the numbers must fail the batch, too.
        assert!(
            batch("third", 1, false, None)
                .await
                .unwrap()
                .payload
                .is_empty()
        );
        let refused = answer(&batch("third", 3, true, None).await.unwrap().payload);
        assert_eq!(refused["error"]["err_code"], 10176, "{refused}");
        let mut b = js.get_stream("B").await.unwrap();
        assert_eq!(b.info().await.unwrap().state.messages, 10);
    });
}
