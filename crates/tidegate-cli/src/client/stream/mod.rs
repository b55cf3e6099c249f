//! `tidegate stream`: lists streams, and creates, empties and removes them.
//!
//! This module owns the commands; [`show`] formats their output, and [`add`] has the flags of a new stream.

mod add;
mod show;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::connection::Client;
use super::jetstream::{self, StreamInfo};
use super::{ServerArgs, names};
use crate::{Usage, output};

/// The subcommands of `tidegate stream`, by which the user manages streams.
#[derive(Debug, Subcommand)]
pub(crate) enum StreamCommand {
    /// List the streams of the server.
    Ls(LsArgs),
    /// Show a stream's configuration, and its state such as the number of messages.
    Info(InfoArgs),
    /// Create a stream, which stores the messages published to its subjects.
    Add(Box<add::AddArgs>),
    /// Remove a stream with all its messages and consumers.
    Rm(RmArgs),
    /// Remove messages of a stream, and keep the stream and its consumers.
    Purge(PurgeArgs),
}

/// The arguments that all subcommands of `tidegate stream` share.
#[derive(Args, Clone, Debug)]
struct Common {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the server's answer as JSON, for other programs, instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct LsArgs {
    #[command(flatten)]
    common: Common,
    /// List only streams with a subject that matches this pattern, to find the stream of a subject.
    #[arg(long, value_name = "PATTERN")]
    subject: Option<String>,
    /// Print only the names of the streams, a line each, for scripts.
    #[arg(short, long, conflicts_with = "json")]
    names: bool,
}

#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    #[command(flatten)]
    common: Common,
    /// Show the stream of this name.
    name: String,
}

#[derive(Args, Debug)]
pub(crate) struct RmArgs {
    #[command(flatten)]
    common: Common,
    /// Remove the stream of this name.
    name: String,
    /// Remove the stream without asking for confirmation, as scripts need.
    #[arg(short, long)]
    force: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PurgeArgs {
    #[command(flatten)]
    common: Common,
    /// Remove messages of the stream of this name.
    name: String,
    /// Remove only messages with a subject that matches this pattern, and keep all others.
    #[arg(long, value_name = "PATTERN")]
    subject: Option<String>,
    /// Remove only messages before the message with this sequence in the stream, and keep the later ones.
    #[arg(long, value_name = "SEQ", conflicts_with = "keep")]
    before: Option<u64>,
    /// Keep the newest N messages, and remove all older ones.
    #[arg(long, value_name = "N")]
    keep: Option<u64>,
    /// Remove the messages without asking for confirmation, as scripts need.
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(command: &StreamCommand) -> anyhow::Result<ExitCode> {
    match command {
        StreamCommand::Ls(args) => ls(args),
        StreamCommand::Info(args) => info(args),
        StreamCommand::Add(args) => add(args),
        StreamCommand::Rm(args) => rm(args),
        StreamCommand::Purge(args) => purge(args),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn ls(args: &LsArgs) -> anyhow::Result<()> {
    if let Some(subject) = &args.subject {
        names::pattern("--subject", subject)?;
    }
    let mut client = Client::connect(&args.common.server)?;
    let streams = jetstream::streams(&mut client, args.subject.as_deref())?;
    if args.common.json {
        return print(&serde_json::to_string_pretty(&streams)?);
    }
    let streams: Vec<StreamInfo> = serde_json::from_value(Value::Array(streams))?;
    if args.names {
        for stream in &streams {
            print(&stream.config.name)?;
        }
        return Ok(());
    }
    if streams.is_empty() {
        return print("no streams");
    }
    print(show::list(&streams).trim_end())
}

fn info(args: &InfoArgs) -> anyhow::Result<()> {
    let name = checked(&args.name)?;
    let mut client = Client::connect(&args.common.server)?;
    let answer = jetstream::ask(&mut client, &format!("STREAM.INFO.{name}"), &json!({}));
    answered(answer.with_context(|| name.to_owned())?, args.common.json)
}

fn add(args: &add::AddArgs) -> anyhow::Result<()> {
    let name = checked(&args.name)?;
    let config = args.config()?;
    let mut client = Client::connect(&args.common.server)?;
    let answer = jetstream::ask(&mut client, &format!("STREAM.CREATE.{name}"), &config);
    answered(answer.with_context(|| name.to_owned())?, args.common.json)
}

fn rm(args: &RmArgs) -> anyhow::Result<()> {
    let name = checked(&args.name)?;
    let mut client = Client::connect(&args.common.server)?;
    let info = jetstream::ask(&mut client, &format!("STREAM.INFO.{name}"), &json!({}));
    let info: StreamInfo = serde_json::from_value(info.with_context(|| name.to_owned())?)?;
    let messages = info.state.messages;
    sure(
        args.force,
        &format!("remove {name} with {messages} messages"),
    )?;
    let answer = jetstream::ask(&mut client, &format!("STREAM.DELETE.{name}"), &json!(null));
    let answer = answer.with_context(|| name.to_owned())?;
    if args.common.json {
        return print(&serde_json::to_string_pretty(&answer)?);
    }
    print(&format!("removed {name} with {messages} messages"))
}

fn purge(args: &PurgeArgs) -> anyhow::Result<()> {
    let name = checked(&args.name)?;
    let mut body = json!({});
    if let Some(subject) = &args.subject {
        names::pattern("--subject", subject)?;
        body["filter"] = json!(subject);
    }
    if let Some(seq) = args.before {
        body["seq"] = json!(seq);
    }
    if let Some(keep) = args.keep {
        body["keep"] = json!(keep);
    }
    let mut client = Client::connect(&args.common.server)?;
    sure(args.force, &format!("purge {name}"))?;
    let answer = jetstream::ask(&mut client, &format!("STREAM.PURGE.{name}"), &body);
    let answer = answer.with_context(|| name.to_owned())?;
    if args.common.json {
        return print(&serde_json::to_string_pretty(&answer)?);
    }
    let purged = answer["purged"].as_u64().unwrap_or(0);
    print(&format!("purged {purged} messages of {name}"))
}

/// Prints the stream's info from the server's answer, as JSON or as text, as the user chose.
fn answered(answer: Value, json: bool) -> anyhow::Result<()> {
    if json {
        return print(&serde_json::to_string_pretty(&answer)?);
    }
    let info: StreamInfo = serde_json::from_value(answer)?;
    print(show::one(&info).trim_end())
}

/// Checks a stream name that the user gave as an argument, before it becomes part of a request.
fn checked(name: &str) -> anyhow::Result<&str> {
    names::stream("NAME", name)?;
    Ok(name)
}

/// Asks the user to confirm the action `what`, because it removes messages. Without a terminal only `--force`
/// confirms the action.
fn sure(force: bool, what: &str) -> anyhow::Result<()> {
    if force {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(Usage::new(format!(
            "give --force to {what}: standard input is no terminal, so the command cannot ask"
        ))
        .into());
    }
    eprint!("{what}? [y/N] ");
    std::io::stderr().flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if !matches!(answer.trim(), "y" | "Y" | "yes") {
        bail!("nothing was changed");
    }
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    output::print(format_args!("{text}\n"))
}

#[cfg(test)]
mod tests {
    use super::checked;

    #[test]
    fn names_are_one_word() {
        for good in ["ORDERS", "a-b_c", "KV_x", "ü"] {
            checked(good).unwrap();
        }
        for bad in [
            "",
            "a.b",
            "a*",
            ">",
            "a b",
            "../x",
            "a\\b",
            &"x".repeat(256),
        ] {
            assert!(checked(bad).is_err(), "{bad}");
        }
    }
}
