//! Measures how fast one connection on this machine carries messages of five bytes, each of
//! them acknowledged:
//!
//!     cargo run --release -p tidegate-link --example flood -- [MODE] [MESSAGES] [CLIENTS]
//!
//! `MODE` is many, send, producer, lockstep or spin.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_link::{Batch, Client, Server};
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const PAYLOAD: [u8; 5] = *b"hello";

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let mode = args.next().unwrap_or_else(|| "many".into());
    let messages: u64 = args.next().map_or(Ok(100_000_000), |n| n.parse())?;
    let clients: u64 = args.next().map_or(Ok(1), |n| n.parse())?;
    let spin = match mode.as_str() {
        "spin" => Duration::from_micros(200),
        _ => Duration::ZERO,
    };

    // The clients and the server have one runtime each, with one thread, so that neither takes the other's
    // core.
    let bytes = Arc::new(AtomicU64::new(0));
    let (server, address) = serve(spin, bytes.clone())?;
    let start = Instant::now();
    runtime()?.block_on(async {
        let tasks: Vec<_> = (0..clients)
            .map(|_| tokio::spawn(flood(address, mode.clone(), messages / clients, spin)))
            .collect();
        for task in tasks {
            task.await??;
        }
        Outcome::Ok(())
    })?;
    let took = start.elapsed().as_secs_f64();
    let stats = server.stats();
    println!(
        "{mode}: {:.2} M messages/s; a read {:.0} bytes, an acknowledgement every {:.0} messages",
        messages as f64 / took / 1e6,
        stats.bytes_read as f64 / stats.reads as f64,
        messages as f64 / stats.acks as f64,
    );
    assert_eq!(bytes.load(Relaxed), messages / clients * clients * 5);
    Ok(())
}

fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

fn serve(spin: Duration, bytes: Arc<AtomicU64>) -> Outcome<(Arc<Server>, SocketAddr)> {
    let (tell, told) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || -> Outcome<()> {
        runtime()?.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
            let server = Server::builder().spin(spin).serve(listener, move |_| {
                let bytes = bytes.clone();
                Ok(move |batch: Batch<'_>| {
                    let sum = batch.fold(0, |sum, payload| sum + payload.len() as u64);
                    bytes.fetch_add(sum, Relaxed);
                    Ok::<_, Infallible>(())
                })
            })?;
            tell.send(Arc::new(server))?;
            std::future::pending().await
        })
    });
    let server = told.recv()?;
    let address = server.local_addr();
    Ok((server, address))
}

async fn flood(address: SocketAddr, mode: String, messages: u64, spin: Duration) -> Outcome<()> {
    let client = Client::builder().spin(spin).connect(address.to_string());
    let client = client.await?;
    match mode.as_str() {
        "many" => {
            let payloads = (0..messages).map(|_| PAYLOAD);
            client.send_many(payloads).await?;
        }
        "send" => {
            for _ in 0..messages {
                client.send(&PAYLOAD).await?;
            }
        }
        "producer" => {
            let mut producer = client.producer();
            let pushing = move || (0..messages).try_for_each(|_| producer.blocking_push(&PAYLOAD));
            tokio::task::spawn_blocking(pushing).await??;
        }
        "lockstep" | "spin" => {
            for _ in 0..messages {
                client.send_acked(&PAYLOAD).await?;
            }
        }
        other => return Err(format!("no mode {other}").into()),
    }
    client.close().await?;
    Ok(())
}
