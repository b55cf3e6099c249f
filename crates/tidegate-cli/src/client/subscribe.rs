//! `tidegate sub`: prints each published message on a line.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;

use super::{CLOSED, Client, ServerArgs, names};
use crate::interrupt;

/// The arguments of `tidegate sub`.
#[derive(Args, Debug)]
pub(crate) struct SubArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Subscribe to this subject or pattern.
    subject: String,
    /// Join this queue group: its members share the messages.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Exit after so many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the subject before each message.
    #[arg(long)]
    subjects: bool,
}

pub(crate) fn run(args: &SubArgs) -> anyhow::Result<ExitCode> {
    names::pattern("SUBJECT", &args.subject)?;
    if let Some(queue) = &args.queue {
        names::queue_group("--queue", queue)?;
    }
    let mut client = Client::connect(&args.server)?;
    client.subscribe(&args.subject, args.queue.as_deref())?;
    eprintln!("subscribed to {}", args.subject);
    let mut out = std::io::stdout().lock();
    let mut received = 0;
    while received < args.count.unwrap_or(u64::MAX) {
        let Some(message) = client.message()? else {
            if interrupt::asked() {
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
            bail!("{CLOSED}, after {received} messages");
        };
        if args.subjects {
            write!(out, "{} ", message.subject)?;
        }
        out.write_all(&message.payload)?;
        out.write_all(b"\n")?;
        out.flush()?;
        received += 1;
    }
    Ok(ExitCode::SUCCESS)
}
