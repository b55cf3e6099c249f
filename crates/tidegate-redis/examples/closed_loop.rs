//! Measures a flush policy with callers that wait for each reply before they submit again, on one connection:
//! microseconds per operation, the CPU time of the client and of Redis, commands per read.
//!
//! ```text
//! cargo run --release -p tidegate-redis --example closed_loop -- \
//!     redis://127.0.0.1:6379 publish auto 1,2,16,64,256,1024 [threads]
//! ```
//!
//! Without a thread count the callers are tasks of one current-thread runtime; with `os` each caller is an
//! operating-system thread.

use std::error::Error;
use std::time::{Duration, Instant};

use tidegate_redis::{BlockingClient, Client, Concession, Config, Policy, cmd};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn policy(name: &str) -> Outcome<Policy> {
    let us = |s: &str| s.parse().map(Duration::from_micros);
    Ok(match name.split_once(':') {
        None if name.starts_with("auto") => Policy::Auto,
        None if name == "latency" => Policy::Latency,
        None if name == "off" => Policy::Off,
        Some(("fixed", d)) => Policy::Fixed(us(d)?),
        Some(("rueidis", d)) => Policy::RueidisStats(us(d)?),
        Some(("mincpu", x)) => Policy::MinCpu(Concession::ThroughputFraction(x.parse()?)),
        Some(("added", d)) => Policy::MinCpu(Concession::AddedLatency(us(d)?)),
        _ => return Err(format!("unknown policy {name}").into()),
    })
}

async fn caller(client: Client, command: String, until: Instant) -> Outcome<u64> {
    let value = [b'x'; 64];
    let mut n = 0;
    while Instant::now() < until {
        for _ in 0..8 {
            match command.as_str() {
                "publish" => drop(client.publish("pipelines", "test").await?),
                "get" => drop(client.get::<bytes::Bytes>("key").await?),
                _ => client.set("key", value).await?,
            }
            n += 1;
        }
    }
    Ok(n)
}

/// Runs the loop of a caller on its own operating-system thread, until the time `until`.
fn thread(redis: &BlockingClient, command: &str, until: Instant) -> Outcome<u64> {
    let value = [b'x'; 64];
    let mut n = 0;
    while Instant::now() < until {
        for _ in 0..8 {
            match command {
                "publish" => drop(redis.wait(|c| c.publish("pipelines", "test"))?),
                "get" => drop(redis.wait(|c| c.get::<bytes::Bytes>("key"))?),
                _ => redis.wait(|c| c.set("key", value))?,
            }
            n += 1;
        }
    }
    Ok(n)
}

fn threads(config: Config, command: &str, callers: usize, window: Duration) -> Outcome<()> {
    let redis = BlockingClient::open(config)?;
    let (began, cpu) = (Instant::now(), own_cpu());
    let run = || {
        let (redis, command) = (redis.clone(), command.to_owned());
        std::thread::spawn(move || thread(&redis, &command, began + window))
    };
    let all: Vec<_> = (0..callers).map(|_| run()).collect();
    let mut n = 0;
    for t in all {
        n += t.join().map_err(|_| "a caller panicked")??;
    }
    let us = |s: f64| s * 1e6 / n as f64;
    let (took, cpu) = (us(began.elapsed().as_secs_f64()), us(own_cpu() - cpu));
    println!(
        "{command:>8} {callers:>5} threads: {took:6.2} us/op  client {cpu:5.2}  {}",
        redis.stats()
    );
    Ok(())
}

/// Returns the server's CPU time in seconds, its commands and its reads of sockets so far.
async fn server(client: &Client) -> Outcome<(f64, f64, f64)> {
    let text: String = client.send(cmd("INFO").arg("cpu").arg("stats")).await?;
    let field = |name: &str| -> f64 {
        let line = text.lines().find_map(|l| l.strip_prefix(name));
        line.and_then(|v| v.trim_start_matches(':').trim().parse().ok())
            .unwrap_or(0.0)
    };
    Ok((
        field("used_cpu_sys:") + field("used_cpu_user:"),
        field("total_commands_processed"),
        field("total_reads_processed"),
    ))
}

fn own_cpu() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

async fn run(
    url: &str,
    command: &str,
    policy_name: &str,
    callers: usize,
    window: Duration,
) -> Outcome<()> {
    let config = Config::from_url(url)?
        .policy(policy(policy_name)?)
        .spin(policy_name != "auto-nospin");
    let client = Client::open(config).await?;
    client.set("key", [b'x'; 64]).await?;
    let probe = Client::connect(url).await?;
    let mut before = None;
    for phase in 0..2 {
        let warm = phase == 0;
        let until = Instant::now() + if warm { window / 3 } else { window };
        if !warm {
            before = Some((server(&probe).await?, own_cpu(), Instant::now()));
        }
        let tasks: Vec<_> = (0..callers)
            .map(|_| tokio::spawn(caller(client.clone(), command.to_owned(), until)))
            .collect();
        let mut n = 0;
        for t in tasks {
            n += t.await??;
        }
        if let Some(((cpu, commands, reads), own, began)) = before {
            let us = began.elapsed().as_secs_f64() * 1e6;
            let own = own_cpu() - own;
            let after = server(&probe).await?;
            let n = n as f64;
            println!(
                "{policy_name:>14} {command:>8} {callers:>5}: {:6.2} us/op  client {:5.2}  redis {:5.2}  depth {:6.1}  {}",
                us / n,
                own * 1e6 / n,
                (after.0 - cpu) * 1e6 / n,
                (after.1 - commands) / (after.2 - reads),
                client.stats(),
            );
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, command, policies, callers, rest @ ..] = &args[..] else {
        return Err("expected: URL publish|get|set POLICIES CALLERS [THREADS|os]".into());
    };
    if rest.first().is_some_and(|r| r == "os") {
        for n in callers.split(',') {
            for p in policies.split(',') {
                let config = Config::from_url(url)?.policy(policy(p)?);
                threads(config, command, n.parse()?, Duration::from_millis(600))?;
            }
        }
        return Ok(());
    }
    let mut builder = match rest.first() {
        None => tokio::runtime::Builder::new_current_thread(),
        Some(n) => {
            let mut b = tokio::runtime::Builder::new_multi_thread();
            b.worker_threads(n.parse()?);
            b
        }
    };
    let runtime = builder.enable_all().build()?;
    for n in callers.split(',') {
        for p in policies.split(',') {
            for command in command.split(',') {
                let run = run(url, command, p, n.parse()?, Duration::from_millis(600));
                runtime.block_on(run)?;
            }
        }
    }
    Ok(())
}
