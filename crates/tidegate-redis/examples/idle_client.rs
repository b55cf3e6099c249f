//! Measures the cost of an idle connection: the wake-ups of its thread, and its CPU.
//!
//! `cargo run --release -p tidegate-redis --example idle_client -- redis://127.0.0.1:6379 60`
//!
//! The example opens a client in a current-thread runtime and a [`BlockingClient`], and sends some commands
//! on both. Linux counts each thread's sleeps (`voluntary_ctxt_switches`), and each wake-up of an idle thread
//! ends one sleep.

use std::error::Error;
use std::fs;
use std::time::Duration;

use tidegate_redis::{BlockingClient, Client, Config};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Returns the sleeps and CPU ticks of each thread of this process, by name and number.
fn threads() -> Outcome<Vec<(String, u64, u64)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc/self/task")? {
        let path = entry?.path();
        let status = fs::read_to_string(path.join("status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name));
            line.map(str::trim).unwrap_or_default().to_owned()
        };
        let stat = fs::read_to_string(path.join("stat"))?;
        // User and system ticks are the 14th and 15th field. The second field, a name in
        // brackets, may contain spaces.
        let after = stat.rsplit(')').next().unwrap_or_default();
        let ticks = after.split_whitespace().skip(11).take(2);
        let ticks = ticks.filter_map(|t| t.parse::<u64>().ok()).sum();
        let name = format!("{} {}", field("Name:"), field("Pid:"));
        all.push((name, field("voluntary_ctxt_switches:").parse()?, ticks));
    }
    Ok(all)
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, seconds] = &args[..] else {
        return Err("expected: URL SECONDS".into());
    };
    let idle = Duration::from_secs(seconds.parse()?);
    let blocking = BlockingClient::open(Config::from_url(url)?)?;
    for _ in 0..1000 {
        let _: i64 = blocking.wait(|c| c.incr("idle"))?;
    }
    let (url, (started, start)) = (url.clone(), std::sync::mpsc::sync_channel(1));
    std::thread::Builder::new()
        .name("client".to_owned())
        .spawn(move || -> Outcome<()> {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let client = Client::connect(&url).await?;
                for _ in 0..1000 {
                    let _: i64 = client.incr("idle").await?;
                }
                started.send(())?;
                std::future::pending().await
            })
        })?;
    start.recv()?;
    // The example waits until the callers' threads have given the connection back to its own thread.
    std::thread::sleep(Duration::from_secs(1));
    let before = threads()?;
    std::thread::sleep(idle);
    let after = threads()?;
    for (name, sleeps, ticks) in after {
        let Some((_, sleeps_before, ticks_before)) = before.iter().find(|(n, ..)| *n == name)
        else {
            continue;
        };
        println!(
            "{name}: {} wake-ups, {} ticks of CPU in {idle:?}",
            sleeps - sleeps_before,
            ticks - ticks_before
        );
    }
    Ok(())
}
