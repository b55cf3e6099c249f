//! Sends commands at a fixed rate, independent of the replies. Measures the latency from the moment at which
//! each command was due, the CPU time of the client and of Redis, and the commands in a read.
//!
//! ```text
//! cargo run --release -p tidegate-redis --example open_loop -- \
//!     redis://127.0.0.1:6379 auto,off,fixed:100,mincpu:0.95,added:200 100000 100
//! ```
//!
//! The last argument is the interval of the pacer in microseconds: the commands that fell due within one
//! interval leave together.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_redis::{Client, Concession, Config, Policy, cmd};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const WINDOW: Duration = Duration::from_millis(1_500);

fn policy(name: &str) -> Outcome<Policy> {
    let us = |s: &str| s.parse().map(Duration::from_micros);
    Ok(match name.split_once(':') {
        None if name == "auto" => Policy::Auto,
        None if name == "latency" => Policy::Latency,
        None if name == "off" => Policy::Off,
        Some(("fixed", d)) => Policy::Fixed(us(d)?),
        Some(("mincpu", x)) => Policy::MinCpu(Concession::ThroughputFraction(x.parse()?)),
        Some(("added", d)) => Policy::MinCpu(Concession::AddedLatency(us(d)?)),
        _ => return Err(format!("unknown policy {name}").into()),
    })
}

async fn redis_cpu(client: &Client) -> Outcome<f64> {
    let text: String = client.send(cmd("INFO").arg("cpu")).await?;
    let field = |name| {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|v| v.trim().parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    Ok(field("used_cpu_sys:") + field("used_cpu_user:"))
}

fn own_cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

async fn run(url: &str, name: &str, rate: f64, pace: Duration) -> Outcome<()> {
    let client = Client::open(Config::from_url(url)?.policy(policy(name)?)).await?;
    let probe = Client::connect(url).await?;
    // The pacer is a separate thread, because a runtime's timer ticks once a millisecond.
    let (due, mut arrivals) = tokio::sync::mpsc::channel::<(Instant, u64)>(1024);
    let pacer = std::thread::spawn(move || {
        let (began, mut sent) = (Instant::now(), 0);
        while began.elapsed() < WINDOW {
            std::thread::sleep(pace);
            let all = (began.elapsed().as_secs_f64() * rate) as u64;
            if due.blocking_send((Instant::now(), all - sent)).is_err() {
                break;
            }
            sent = all;
        }
    });
    let latencies = Arc::new(Mutex::new(Vec::new()));
    let (cpu, redis) = (own_cpu(), redis_cpu(&probe).await?);
    while let Some((due, n)) = arrivals.recv().await {
        for _ in 0..n {
            let (client, latencies) = (client.clone(), Arc::clone(&latencies));
            tokio::spawn(async move {
                if client.publish("pipelines", "test").await.is_ok() {
                    let took = due.elapsed().as_secs_f64() * 1e6;
                    if let Ok(mut all) = latencies.lock() {
                        all.push(took);
                    }
                }
            });
        }
    }
    let _ = pacer.join();
    let (cpu, redis) = (own_cpu() - cpu, redis_cpu(&probe).await? - redis);
    let mut all = latencies.lock().map(|l| l.clone()).unwrap_or_default();
    all.sort_unstable_by(f64::total_cmp);
    let n = all.len().max(1) as f64;
    let at = |q: f64| all.get((q * n) as usize).copied().unwrap_or(f64::NAN);
    println!(
        "{name:>14}: client {:5.2} us/op  redis {:5.2}  p50 {:6.0} us  p99 {:6.0}  {} spins  {}",
        cpu * 1e6 / n,
        redis * 1e6 / n,
        at(0.5),
        at(0.99),
        client.stats().spins,
        client.stats()
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, policies, rate, pace] = &args[..] else {
        return Err("expected: URL POLICIES RATE PACE_US".into());
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    for p in policies.split(',') {
        runtime.block_on(run(
            url,
            p,
            rate.parse()?,
            Duration::from_micros(pace.parse()?),
        ))?;
    }
    Ok(())
}
