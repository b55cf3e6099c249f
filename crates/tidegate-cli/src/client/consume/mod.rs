//! `tidegate consume`: writes the messages of a stream to standard output, as their publishers sent them.
//!
//! The command pulls batch after batch through a consumer. Either the command creates a consumer and deletes
//! the consumer at the end, or it uses a durable consumer and acknowledges each batch once the batch is
//! written. The command holds only one batch in memory, which has limits in messages and in bytes. After a
//! lost connection the command continues after the last message that it has written.

mod delivery;
mod run;

use std::io::{BufWriter, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use super::connection::Client;
use super::jetstream::{self, ConsumerInfo, StreamInfo};
use super::{ServerArgs, names};
use crate::output::Output;
use crate::{interrupt, values};
use run::Run;

/// The time for which the server keeps the command's temporary consumer without a pull, because a slow reader
/// may block standard output for long.
const INACTIVE: Duration = Duration::from_secs(300);

/// The arguments with which the user runs `tidegate consume`.
#[derive(Args, Debug)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the messages of this stream, each followed by a line feed, its own bytes unchanged. Messages of
    /// `tidegate pub --lines` come back byte for byte, also a last line without a line feed.
    stream: String,
    /// Exit after the last message that the stream has at the start, instead of waiting for more messages, so
    /// that a script can continue.
    #[arg(long)]
    until_end: bool,
    /// Continue where this durable consumer stopped, or create the consumer if the stream has none of this
    /// name. The command acknowledges the messages that it has written. After a lost connection it writes no
    /// message twice; messages that were on their way come later, when the server delivers them again.
    #[arg(long, value_name = "NAME")]
    durable: Option<String>,
    /// Print only messages with a subject that matches this pattern, to select some of the stream's messages.
    /// With several such flags, a message must match one of the patterns.
    #[arg(long, value_name = "PATTERN")]
    filter: Vec<String>,
    /// Begin at the message with this sequence in the stream, instead of the first message, to skip earlier
    /// ones.
    #[arg(long, value_name = "SEQ", value_parser = values::sequence)]
    from: Option<u64>,
    /// Exit after this many messages, instead of waiting for more messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the subject before each message, to tell messages of several subjects apart.
    #[arg(long)]
    subjects: bool,
}

pub(crate) fn run(args: &ConsumeArgs) -> anyhow::Result<ExitCode> {
    names::stream("STREAM", &args.stream)?;
    if let Some(durable) = &args.durable {
        names::consumer("--durable", durable)?;
    }
    for filter in &args.filter {
        names::pattern("--filter", filter)?;
    }
    let mut out = BufWriter::new(Output::open()?);
    let mut client = Client::connect(&args.server)?;
    let info = jetstream::ask(
        &mut client,
        &format!("STREAM.INFO.{}", args.stream),
        &json!({}),
    )
    .with_context(|| args.stream.clone())?;
    let info: StreamInfo = serde_json::from_value(info)?;
    let consumer = consumer(&mut client, args, args.from)?;
    let mut run = Run::new(client, args, &consumer, info.state.last_seq);
    let outcome = if args.until_end && consumer.num_pending + consumer.num_ack_pending == 0 {
        Ok(())
    } else {
        run.all(&mut out)
    };
    out.flush()?;
    if args.durable.is_none() {
        // The server deletes the consumer by itself once it is inactive; an earlier error matters more than
        // an error of this request.
        let gone = run.delete_consumer();
        if outcome.is_ok() && !interrupt::asked() {
            gone.context("deleting the consumer")?;
        }
    }
    outcome?;
    Ok(interrupt::exit_code())
}

/// Returns the user's durable consumer, or creates a consumer that begins at the stream sequence `from`.
fn consumer(
    client: &mut Client,
    args: &ConsumeArgs,
    from: Option<u64>,
) -> anyhow::Result<ConsumerInfo> {
    let stream = &args.stream;
    if let Some(name) = &args.durable
        && let Ok(info) = jetstream::ask(
            client,
            &format!("CONSUMER.INFO.{stream}.{name}"),
            &json!(null),
        )
    {
        let info: ConsumerInfo = serde_json::from_value(info)?;
        if info.config.deliver_subject.is_some() {
            bail!("{name} is a push consumer: its messages go where it was told to send them");
        }
        let mut filters = info.config.filter_subjects.clone();
        filters.extend(Some(info.config.filter_subject.clone()).filter(|f| !f.is_empty()));
        if !args.filter.is_empty() && filters != args.filter {
            let has = match filters.is_empty() {
                true => "none".to_owned(),
                false => filters.join(", "),
            };
            bail!("{name} exists with another filter: {has}");
        }
        if args.from.is_some() {
            bail!("{name} exists and knows where it stopped: --from is of no use");
        }
        return Ok(info);
    }
    let mut config = json!({ "replay_policy": "instant", "deliver_policy": "all" });
    match &args.durable {
        Some(name) => {
            config["durable_name"] = json!(name);
            config["name"] = json!(name);
            // With the policy `all`, one acknowledgement would cover messages that an earlier run received
            // and did not write.
            config["ack_policy"] = json!("explicit");
            config["max_ack_pending"] = json!(-1);
        }
        None => {
            config["ack_policy"] = json!("none");
            config["mem_storage"] = json!(true);
            config["num_replicas"] = json!(1);
            config["inactive_threshold"] = json!(nanos(INACTIVE));
        }
    }
    if let Some(seq) = from {
        config["deliver_policy"] = json!("by_start_sequence");
        config["opt_start_seq"] = json!(seq);
    }
    match &args.filter[..] {
        [] => {}
        [one] => config["filter_subject"] = json!(one),
        several => config["filter_subjects"] = json!(several),
    }
    let mut what = format!("CONSUMER.CREATE.{stream}");
    if let Some(name) = &args.durable {
        what += &format!(".{name}");
    }
    let body = json!({ "stream_name": stream, "config": config, "action": "create" });
    Ok(serde_json::from_value(jetstream::ask(
        client, &what, &body,
    )?)?)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
