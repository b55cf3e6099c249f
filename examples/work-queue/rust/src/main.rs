//! A work queue in Rust: `cargo run -p example-work-queue -- add 100` adds jobs, and `... -- work` does jobs
//! until none is left.

use std::env;
use std::error::Error;
use std::time::Duration;

use async_nats::jetstream::{self, Context, consumer::pull};
use futures_util::StreamExt as _;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

async fn add(js: &Context, count: usize) -> Outcome {
    // No publish waits for another: the server syncs those together that arrive during a sync.
    let mut added = Vec::with_capacity(count);
    for i in 0..count {
        added.push(js.publish("jobs.rust", format!("job {i}").into()).await?);
    }
    for job in added {
        job.await?;
    }
    println!("rust: {count} jobs are synced");
    print_batching()
}

async fn work(js: &Context) -> Outcome {
    // All workers, in every language, share this consumer: each job goes to one of them.
    let config = pull::Config { durable_name: Some("workers".to_owned()), ..Default::default() };
    let workers = js.create_consumer_on_stream(config, "JOBS").await?;
    let mut done = 0;
    loop {
        let before = done;
        let mut jobs =
            workers.fetch().max_messages(16).expires(Duration::from_secs(1)).messages().await?;
        while let Some(job) = jobs.next().await {
            let job = job?;
            println!("rust: {} {}", job.subject, String::from_utf8_lossy(&job.payload));
            // The acknowledgement removes the job. If a crash loses it, the job comes again, to any worker.
            job.ack().await?;
            done += 1;
        }
        if done == before {
            break;
        }
    }
    println!("rust: {done} jobs are done");
    // The acknowledgements leave before the program does.
    Ok(js.client().flush().await?)
}

/// Prints what the server's controller decided for its syncs.
fn print_batching() -> Outcome {
    let monitor = env::var("MONITOR_URL").unwrap_or_else(|_| "http://127.0.0.1:8222".to_owned());
    let varz: serde_json::Value =
        ureq::get(format!("{monitor}/varz")).call()?.body_mut().read_json()?;
    let syncs = &varz["batching"]["log_syncs"];
    println!(
        "the server's syncs: {} for {} writes, limit {}, by reason {}",
        syncs["batches"], syncs["items"], syncs["limit"], syncs["by_reason"]
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Outcome {
    let url = env::var("NATS_URL").unwrap_or_else(|_| "nats://127.0.0.1:4222".to_owned());
    let client = async_nats::connect(url).await?;
    let js = jetstream::new(client);
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["add", count] => add(&js, count.parse()?).await,
        ["work"] => work(&js).await,
        _ => Err("expected `add COUNT` or `work`".into()),
    }
}
