//! `tidegate pub`: one message, or each line of a file as one, until the server has taken all.

use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;

use super::{Client, ServerArgs};
use crate::interrupt;

/// Messages written before the server is asked whether it has taken them.
const UNCONFIRMED_MAX: u64 = 4096;

/// What `tidegate pub` takes.
#[derive(Args, Debug)]
pub(crate) struct PubArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Where to.
    subject: String,
    /// The message.
    #[arg(required_unless_present = "lines")]
    message: Option<String>,
    /// Publish each line of this file (`-` is standard input), without its line feed, as a message.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    lines: Option<PathBuf>,
}

pub(crate) fn run(args: &PubArgs) -> anyhow::Result<ExitCode> {
    let subject = &args.subject;
    if !tidegate_server::nats::subject::is_literal(subject.as_bytes()) {
        return Err(
            crate::Usage::new(format!("`{subject}` is not a subject one can publish to")).into(),
        );
    }
    let mut client = Client::connect(&args.server)?;
    let published = match &args.lines {
        None => {
            client.publish(
                subject,
                args.message.as_deref().unwrap_or_default().as_bytes(),
            )?;
            client.sync()?;
            1
        }
        Some(path) => {
            let mut input: Box<dyn BufRead> = if path.as_os_str() == "-" {
                Box::new(std::io::stdin().lock())
            } else {
                Box::new(BufReader::new(
                    File::open(path).with_context(|| path.display().to_string())?,
                ))
            };
            lines(&mut client, subject, &mut input)?
        }
    };
    writeln!(std::io::stdout(), "published {published} to {subject}")?;
    Ok(if interrupt::asked() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}

fn lines(client: &mut Client, subject: &str, input: &mut dyn BufRead) -> anyhow::Result<u64> {
    let mut line = Vec::new();
    let mut published = 0_u64;
    while !interrupt::asked() {
        line.clear();
        // Two bytes more than fit: enough to know that a line is too long, whatever follows.
        let most = client.max_payload as u64 + 2;
        let got = std::io::Read::take(&mut *input, most).read_until(b'\n', &mut line)?;
        if got == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        if line.len() > client.max_payload {
            client.sync()?;
            bail!(
                "line {} is longer than the {} bytes the server takes; the {published} lines before it are published",
                published + 1,
                client.max_payload
            );
        }
        client.publish(subject, &line)?;
        published += 1;
        if published.is_multiple_of(UNCONFIRMED_MAX) {
            client.sync()?;
        }
    }
    client.sync()?;
    Ok(published)
}
