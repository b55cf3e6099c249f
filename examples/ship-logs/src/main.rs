//! Ships log lines of many programs into one file on another machine. A line is acknowledged once it is
//! synced there, and the engine decides how many lines share a sync.
//!
//! `cargo run -p example-ship-logs -- receive 127.0.0.1:7411 all.log`, then
//! `app | cargo run -p example-ship-logs -- send 127.0.0.1:7411`

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use tidegate::batcher::{self, Flow, Handle, SendError};
use tidegate_link::{Acks, Batch, Client, Done, Handler, Opened, Seq, Server};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpListener;

/// Lines of one sender: the item of the actor that writes the file.
struct Lines {
    text: Vec<u8>,
    last: Seq,
    done: Done,
}

/// Hands the lines of one sender to the actor.
struct Session {
    file: Handle<Lines, ()>,
    done: Done,
}

impl Handler for Session {
    type Error = SendError<Lines>;

    async fn handle(&mut self, batch: Batch<'_>) -> Result<(), Self::Error> {
        let (last, done) = (batch.last_seq(), self.done.clone());
        let text = batch.flat_map(|line| [line, b"\n".as_slice()]).collect::<Vec<_>>().concat();
        // While the actor is full this waits, and the sender runs out of window.
        self.file.cast(Lines { text, last, done }).await
    }
}

async fn receive(address: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let mut file = File::options().append(true).create(true).open(path)?;
    let file = batcher::spawn(move |batch: &mut Vec<Lines>| {
        let text = batch.iter().map(|lines| lines.text.as_slice()).collect::<Vec<_>>().concat();
        if let Err(error) = file.write_all(&text).and_then(|()| file.sync_data()) {
            // The actor stops: an acknowledgement of later lines would count for these, too.
            return Flow::stop(error);
        }
        batch.iter().for_each(|lines| lines.done.done(lines.last));
        Flow::Continue
    })?;
    let actor = file.clone();
    let session = move |opened: Opened| Ok(Session { file: actor.clone(), done: opened.done });
    let server =
        Server::builder().acks(Acks::WhenDone).serve(TcpListener::bind(address).await?, session)?;
    println!("listening on {}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.drain(Duration::from_secs(5)).await;
    println!("{}", file.stats());
    println!("limit: {} blocks of lines", file.controller().await?.limit);
    Ok(())
}

async fn send(address: &str) -> Result<(), Box<dyn Error>> {
    let client = Client::builder().connect(address).await?;
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        client.send(line.as_bytes()).await?;
    }
    println!("{} lines are synced", client.close().await?);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", address, file] => receive(address, file).await,
        ["send", address] => send(address).await,
        _ => Err("expected `receive ADDRESS FILE` or `send ADDRESS`".into()),
    }
}
