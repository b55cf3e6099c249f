//! Tests of `tidegate headroom` against a server, and a measurement of its error (`make measure-headroom`).

use std::time::{Duration, Instant};

use async_nats::jetstream;
use serde_json::Value;
use tidegate::sim::Rng;
use tokio::task::JoinSet;

use super::server::{Server, other};
use super::why::{assert_refused, said, tidegate};

#[test]
fn headroom_is_predicted_or_a_reason_is_given() {
    if other().is_some() {
        println!("a command of our own, so not asked of nats-server");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start_in(&directory.path().join("data"), "");
    let headroom = |p99: &str, flags: &[&str]| {
        let args = ["headroom", "--p99", p99, &server.monitor, "--over", "10ms"];
        tidegate(&[&args, flags].concat())
    };
    assert_refused(&headroom("5ms", &[]), 4, "no fit of its costs yet");
    server.good(&["stream", "add", "S", "--subjects", "s"]);
    // Messages that come one by one, and lines that come together, give syncs of different sizes.
    let lines = directory.path().join("lines");
    std::fs::write(&lines, "one line of text\n".repeat(5_000)).unwrap();
    let mut rounds = 0;
    while headroom("10s", &[]).status.code() == Some(4) {
        assert!(rounds < 50, "no fit: {}", said(&headroom("10s", &[])));
        server.good(&["pub", "s", "alone"]);
        server.good(&["pub", "s", "--lines", lines.to_str().unwrap()]);
        rounds += 1;
    }
    let output = headroom("3600s", &[]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(
        said(&output).contains("headroom  up to"),
        "{}",
        said(&output)
    );
    let output = headroom("1us", &["--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{answer}");
    assert_eq!(answer["outcome"], "cannot_be_met");
    assert!(answer["least_p99_ns"].as_f64() > Some(1000.0), "{answer}");
    for p99 in [
        "0", "0ms", "-5ms", "5", "nan", "infs", "1e9s", "5 ms", "", "5h",
    ] {
        assert_eq!(headroom(p99, &[]).status.code(), Some(2), "{p99}");
    }
    let ask = |url: &str| tidegate(&["headroom", "--p99", "5ms", url, "--over", "10ms"]);
    assert_refused(&ask(&server.url), 1, "does not speak HTTP");
    assert_refused(&ask("127.0.0.1:1"), 1, "nothing listens");
    assert_refused(&ask(&format!("{}/base", server.monitor)), 1, "answers 404");
    assert_eq!(ask("ftp://x").status.code(), Some(2));
    let bare = Server::start_without_streams(directory.path());
    let asked = tidegate(&["headroom", "--p99", "5ms", &bare.monitor, "--over", "10ms"]);
    assert_refused(&asked, 5, "no streams");
    let asked = tidegate(&["why", "S", "1", &bare.monitor]);
    assert_refused(&asked, 11, "no streams");
}

/// Publishes at `rate` messages a second, at random times that do not depend on the answers, for `span`.
/// Returns the rate of acknowledgements and the 99th percentile of the latency, from the due time of a
/// message to its acknowledgement.
async fn load(js: &jetstream::Context, rate: f64, span: Duration, bytes: usize) -> (f64, Duration) {
    let payload = bytes::Bytes::from(vec![b'x'; bytes]);
    let mut rng = Rng::new(7);
    let mut latencies = JoinSet::new();
    let begun = Instant::now();
    let mut due = Duration::ZERO;
    while due < span {
        due += Duration::from_secs_f64(rng.exponential(rate));
        tokio::time::sleep_until((begun + due).into()).await;
        let ack = js.publish("s", payload.clone()).await.unwrap();
        latencies.spawn(async move {
            ack.await.unwrap();
            begun.elapsed() - due
        });
    }
    let mut all = latencies.join_all().await;
    let acked = all.len() as f64 / begun.elapsed().as_secs_f64();
    all.sort_unstable();
    (acked, all[all.len() * 99 / 100])
}

/// Measures the 99th percentile at parts of the predicted rate, for HEADROOM_SECONDS each, with messages of
/// HEADROOM_BYTES and the bound HEADROOM_P99. It asserts nothing about times, and prints.
#[test]
fn measure_headroom() {
    let setting = |name: &str| std::env::var(name).ok();
    let Some(seconds) = setting("HEADROOM_SECONDS").and_then(|s| s.parse().ok()) else {
        println!("a measurement, which `make measure-headroom` runs");
        return;
    };
    let span = Duration::from_secs_f64(seconds);
    let bytes = setting("HEADROOM_BYTES").map_or(16 << 10, |s| s.parse().unwrap());
    let bound = setting("HEADROOM_P99").unwrap_or_else(|| "10ms".into());
    let server = Server::start();
    server.good(&[
        "stream",
        "add",
        "S",
        "--subjects",
        "s",
        "--max-bytes",
        "1GiB",
    ]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let js = runtime.block_on(async {
        let mut js = jetstream::new(async_nats::connect(&server.url).await.unwrap());
        js.set_timeout(Duration::from_secs(60));
        js
    });
    // The log learns its costs at small and large batches.
    for rate in [100.0, 300.0, 1000.0, 3000.0] {
        let (acked, p99) = runtime.block_on(load(&js, rate, span, bytes));
        println!("before, {rate}/s: {acked:.0}/s acknowledged, p99 {p99:?}");
    }
    let present = js.clone();
    let loading = runtime.spawn(async move { load(&present, 1000.0, 2 * span, bytes).await });
    let asked = tidegate(&[
        "headroom",
        "--p99",
        &bound,
        &server.monitor,
        "--over",
        "1s",
        "--json",
    ]);
    let answer: Value =
        serde_json::from_slice(&asked.stdout).unwrap_or_else(|_| panic!("{}", said(&asked)));
    println!("{answer:#}");
    runtime.block_on(loading).unwrap();
    let predicted = answer["rate_per_s"].as_f64().expect("the bound can be met");
    for part in [0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2] {
        let rate = part * predicted;
        let (acked, p99) = runtime.block_on(load(&js, rate, span, bytes));
        println!(
            "{part} of it, {rate:.0}/s: {acked:.0}/s acknowledged, p99 {p99:?} against {bound}"
        );
    }
}
