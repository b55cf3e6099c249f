//! `tidegate sub`: subscribes to a subject, and prints each message that clients publish, one a line.

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::connection::{Client, Stop};
use super::{ServerArgs, names};
use crate::output::Output;
use crate::{face, interrupt};

/// The arguments with which the user runs `tidegate sub`.
#[derive(Args, Debug)]
pub(crate) struct SubArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Subscribe to this subject or pattern. After a lost connection the command subscribes again; messages
    /// published meanwhile are missing.
    subject: String,
    /// Join this queue group, to share the messages with its other members: the server sends each message to
    /// one of them.
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Exit after this many messages, instead of waiting for more messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the subject before each message, to tell messages of several subjects apart.
    #[arg(long)]
    subjects: bool,
}

pub(crate) fn run(args: &SubArgs) -> anyhow::Result<ExitCode> {
    names::pattern("SUBJECT", &args.subject)?;
    if let Some(queue) = &args.queue {
        names::queue_group("--queue", queue)?;
    }
    let mut out = BufWriter::new(Output::open()?);
    let mut client = Client::connect(&args.server)?;
    let mut subscription = client.subscribe(&args.subject, args.queue.as_deref())?;
    face::complain(format_args!("subscribed to {}", args.subject));
    let mut received = 0;
    while received < args.count.unwrap_or(u64::MAX) {
        let message = match subscription.arrived() {
            Some(message) => message,
            None => {
                // The flush lets a reader of the output see every message before the command waits.
                out.flush()?;
                match client.next(&mut subscription, Duration::MAX) {
                    Ok(message) => message,
                    Err(Stop::Interrupted(_)) => return Ok(interrupt::exit_code()),
                    Err(Stop::Lost) => {
                        let again = client.resubscribe(&args.subject, args.queue.as_deref());
                        subscription =
                            again.with_context(|| format!("after {received} messages"))?;
                        if !client.is_flapping() {
                            face::note(format_args!("subscribed to {} again", args.subject));
                        }
                        continue;
                    }
                    Err(stop) => return Err(stop.into()),
                }
            }
        };
        if client.is_probe(&message) {
            continue;
        }
        if args.subjects {
            write!(out, "{} ", message.subject)?;
        }
        out.write_all(&message.payload)?;
        out.write_all(b"\n")?;
        received += 1;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
