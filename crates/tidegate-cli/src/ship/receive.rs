//! `tidegate receive`: listens for senders, and passes their records to the one thread that writes them.

mod session;
mod sink;

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use tidegate_link::{Acks, PeerError, Server, ServerTls};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use super::append::{Append, Cut};
use super::disk::Folder;
use super::{frame_max, identity};
use crate::face;
use crate::interrupt;
use crate::ship::args::ReceiveArgs;
use crate::tls_files;
use session::{Receiving, Store};
use sink::{Counters, Output, Sink, Target};

/// The greatest number of unacknowledged bytes of one sender, which suffices for a fast network and a slow
/// disk.
const WINDOW: u64 = 4 << 20;
/// The greatest number of sessions that the link's server knows at a time. The receiver's file keeps twice as
/// many, so that it always has an unused session to forget for a new one.
const SESSIONS: usize = super::append::SESSIONS_MAX / 2;
/// The time for which a sender may stay silent, before the receiver drops its connection as broken. A sender
/// notices a broken network after as long.
const IDLE: Duration = Duration::from_secs(30);
/// The interval between two updates of the progress bar, so that the updates cost little.
const DRAWN: Duration = Duration::from_millis(100);
/// The least interval between two printed lines about failed senders, so that they do not flood the terminal.
const COMPLAINTS: Duration = Duration::from_secs(1);
/// The time that connections and the writing thread have to end by themselves after Ctrl-C.
const GRACE: Duration = Duration::from_secs(10);

/// Receives records until Ctrl-C or SIGTERM, and then ends in order.
pub(crate) fn run(args: &ReceiveArgs) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(receive(args))
}

async fn receive(args: &ReceiveArgs) -> anyhow::Result<ExitCode> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    // Without a file, SIGHUP keeps its ordinary effect and ends the program.
    let mut hung_up = match args.append {
        Some(_) => Some(signal(SignalKind::hangup())?),
        None => None,
    };
    let has_terminal = on_terminal();
    let tls = tls(args)?;
    let token = identity::token(args.token_file.as_deref())?;
    let listener = listen(args, tls.is_some() && token.is_some()).await?;
    let address = listener.local_addr()?;

    let (output, note) = open(args.append.as_deref())?;
    let counters = Arc::new(Counters::default());
    let (failed, mut failure) = oneshot::channel();
    let sink = Sink::spawn(output, Arc::clone(&counters), failed)?;
    let frame_max = frame_max(args.records.max_record);
    let bar = progress(args.append.is_some());
    let complaints = Complaints::new(bar.clone());
    let mut server = Server::builder()
        .on_error(move |peer, why| complaints.say(peer, why))
        .frame_max(frame_max)
        .window(WINDOW.max(2 * (u64::from(frame_max) + 64)))
        .acks(Acks::WhenDone)
        .idle(IDLE)
        .sessions_max(SESSIONS)
        .connections_max(SESSIONS);
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    if let Some(token) = token {
        server = server.token(token);
    }
    if args.append.is_some() {
        server = server.store(Store::new(sink.clone()));
    }
    let (format, begun) = (args.records.format, args.append.is_some());
    let making = sink.clone();
    let make = move |opened| Ok(Receiving::new(opened, begun, format, making.clone()));
    let server = server
        .serve(listener, make)
        .with_context(|| args.listen.clone())?;
    face::note(format_args!("listening on {address}{note}"));

    let start = Instant::now();
    let mut drawn = tokio::time::interval(DRAWN);
    let outcome = loop {
        tokio::select! {
            error = &mut failure => break Err(error),
            _ = interrupted.recv() => break Ok(ExitCode::from(interrupt::EXIT_CODE)),
            _ = terminated.recv() => break Ok(ExitCode::SUCCESS),
            Some(_) = async { hung_up.as_mut()?.recv().await } => {
                // The kernel sends the same signal if the terminal of the program is gone.
                if has_terminal && !on_terminal() {
                    break Ok(ExitCode::SUCCESS);
                }
                sink.reopen().await;
            }
            _ = drawn.tick(), if !bar.is_hidden() => {
                let (records, bytes) = (counters.records(), counters.bytes());
                bar.set_position(bytes);
                bar.set_message(format!(
                    "{} records, {} in {} connections",
                    HumanCount(records),
                    HumanBytes(bytes),
                    server.stats().connections_open
                ));
            }
        }
    };
    bar.finish_and_clear();
    let code = match outcome {
        Ok(code) => code,
        // The writing thread has ended at its first failure. Until this return drops the server, it may send
        // acks, but only of records that the thread wrote before the failure.
        Err(error) => {
            return Err(error.unwrap_or_else(|_| anyhow::anyhow!("the writing thread ended")));
        }
    };
    server.drain(GRACE).await;
    sink.close().await;
    sink.drain(GRACE)
        .await
        .context("not everything received was written, and none of that acknowledged")?;
    face::note(format_args!(
        "received {} records, {} in {:.1} s",
        counters.records(),
        HumanBytes(counters.bytes()),
        start.elapsed().as_secs_f64()
    ));
    Ok(code)
}

/// Returns whether the program runs on a terminal, which a user may close.
fn on_terminal() -> bool {
    std::io::stdin().is_terminal() || std::io::stderr().is_terminal()
}

/// Prints a line about each sender that failed, but at most one a second, so that failing senders cannot slow
/// the receiver down.
struct Complaints {
    bar: ProgressBar,
    /// The time of the last printed line, and the number of lines left out since then, which the next line
    /// counts.
    last: Mutex<(Option<Instant>, u64)>,
}

impl Complaints {
    const fn new(bar: ProgressBar) -> Self {
        let last = Mutex::new((None, 0));
        Self { bar, last }
    }

    fn say(&self, peer: SocketAddr, why: &PeerError) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if last.0.is_some_and(|at| now - at < COMPLAINTS) {
            last.1 += 1;
            return;
        }
        let left_out = match std::mem::replace(&mut *last, (Some(now), 0)).1 {
            0 => String::new(),
            n => format!(" (and {n} connections more)"),
        };
        self.bar
            .suspend(|| face::complain(format_args!("tidegate: sender {peer}: {why}{left_out}")));
    }
}

/// Returns the progress bar. The bar is hidden without a terminal, or if the records go to the terminal.
fn progress(appending: bool) -> ProgressBar {
    if !appending && std::io::stdout().is_terminal() || !face::chats() {
        return ProgressBar::hidden();
    }
    // The template of the progress bar is a constant and valid, so the fallback never applies.
    let style = ProgressStyle::with_template("{spinner} {msg}, {bytes_per_sec}");
    ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn tls(args: &ReceiveArgs) -> anyhow::Result<Option<ServerTls>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return Ok(None);
    };
    Ok(Some(tls_files::certificate(certificate, key)?))
}

/// Listens for senders. Refuses addresses beyond this machine, unless `safe` is true or the user gave
/// --insecure.
async fn listen(args: &ReceiveArgs, safe: bool) -> anyhow::Result<TcpListener> {
    let address = &args.listen;
    let found = tokio::net::lookup_host(address).await;
    let found: Vec<SocketAddr> = found.with_context(|| address.clone())?.collect();
    let within = found
        .iter()
        .all(|found| found.ip().to_canonical().is_loopback());
    if !(within || safe || args.insecure) {
        return Err(anyhow::Error::new(crate::Usage::new(format_args!(
            "{address} is reached from beyond this machine: give --tls-cert, --tls-key and --token-file, or --insecure"
        ))));
    }
    let listener = TcpListener::bind(&found[..]).await;
    listener.with_context(|| format!("cannot listen on {address}"))
}

/// Opens the output for the records, and returns it with a note about it for the user.
fn open(path: Option<&Path>) -> anyhow::Result<(Output, String)> {
    let Some(path) = path else {
        return Ok((Output::stdout()?, String::new()));
    };
    let name = path
        .file_name()
        .context("--append needs the name of a file")?;
    let folder = Folder::new(path.parent().unwrap_or_else(|| Path::new("")));
    let (file, opened) = Append::open(&folder, name)?;
    let mut note = format!(
        ", appending to {} ({}, {} sessions)",
        path.display(),
        HumanBytes(opened.bytes),
        file.sessions().count()
    );
    if let Some(rotated) = &opened.rotated {
        let rotated = rotated.display();
        note.push_str(&format!("; its earlier records are in {rotated}"));
    }
    if let Some(cut) = &opened.cut {
        note.push_str(&said(cut));
    }
    let target = Target {
        append: file,
        folder,
        name: name.to_owned(),
        missing: None,
    };
    Ok((Output::File(Box::new(target)), note))
}

/// Describes the bytes that the start moved out of the file, for the note to the user.
fn said(cut: &Cut) -> String {
    let (bytes, at, path) = (cut.bytes, cut.at, cut.path.display());
    let why = match cut.in_doubt {
        false => "no acknowledgement covers them",
        true => {
            "its newest state is damaged or was cut short, so it is not known whether they were acknowledged"
        }
    };
    format!("; moved the {bytes} bytes from byte {at} on to {path}: {why}")
}
