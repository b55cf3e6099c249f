//! `tidegate consume`: writes the messages of a stream to standard output, as their publishers sent them.
//!
//! The command pulls batch after batch through a consumer. Either it makes a consumer and deletes it at the
//! end, or it uses a durable one and acknowledges each batch once its messages are written. One batch, in
//! messages and in bytes, bounds the memory.

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use serde_json::json;

use super::jetstream::{self, ConsumerInfo, StreamInfo};
use super::publish::OPEN_LINE;
use super::{CLOSED, Client, Message, PATIENCE, ServerArgs, names};
use crate::interrupt;

/// The most messages of one pull.
const BATCH: u64 = 5000;
/// The most bytes of one pull; a larger message comes alone.
const BATCH_BYTES: usize = 8 << 20;
/// How long a pull waits for new messages, and how often the server sends a heartbeat meanwhile.
const EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A server that sends nothing for this long counts as gone.
const SILENCE: Duration = Duration::from_secs(15);
/// How long the server keeps the command's own consumer while a slow reader blocks standard output.
const INACTIVE: Duration = Duration::from_secs(300);

/// The arguments of `tidegate consume`.
#[derive(Args, Debug)]
pub(crate) struct ConsumeArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Print the messages of this stream, each followed by a line feed, its own bytes unchanged. Messages of
    /// `tidegate pub --lines` come back byte for byte, also a last line without a line feed.
    stream: String,
    /// Exit after the last message that the stream has now, instead of waiting for more.
    #[arg(long)]
    until_end: bool,
    /// Continue where this durable consumer stopped, or create it. The command acknowledges the messages that
    /// it has written.
    #[arg(long, value_name = "NAME")]
    durable: Option<String>,
    /// Print only messages with matching subjects. The flag may be given several times.
    #[arg(long, value_name = "PATTERN")]
    filter: Vec<String>,
    /// Begin at this stream sequence instead of the first.
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Exit after so many messages.
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Print the subject before each message.
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
    let mut client = Client::connect(&args.server)?;
    let info = jetstream::ask(
        &mut client,
        &format!("STREAM.INFO.{}", args.stream),
        &json!({}),
    )
    .with_context(|| args.stream.clone())?;
    let info: StreamInfo = serde_json::from_value(info)?;
    let consumer = consumer(&mut client, args)?;
    let mut run = Run {
        last_seq: info.state.last_seq,
        left: args.count.unwrap_or(u64::MAX),
        acks: Acks::of(&consumer.config.ack_policy),
        consumer_seq: None,
        args,
        name: consumer.name.clone(),
        client: &mut client,
    };
    let mut out = std::io::stdout().lock();
    let outcome = if args.until_end && consumer.num_pending + consumer.num_ack_pending == 0 {
        Ok(())
    } else {
        run.all(&mut out)
    };
    if args.durable.is_none() {
        // The server deletes the consumer by itself once it is inactive; an earlier error matters more than
        // an error of this request.
        let gone = jetstream::ask(
            &mut client,
            &format!("CONSUMER.DELETE.{}.{}", args.stream, consumer.name),
            &json!(null),
        );
        if outcome.is_ok() && !interrupt::asked() {
            gone.context("deleting the consumer")?;
        }
    }
    outcome?;
    Ok(if interrupt::asked() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}

/// Returns the durable consumer, or creates a consumer.
fn consumer(client: &mut Client, args: &ConsumeArgs) -> anyhow::Result<ConsumerInfo> {
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
            bail!("{name} exists with another filter: {}", filters.join(", "));
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
            config["ack_policy"] = json!("all");
            config["max_ack_pending"] = json!(-1);
        }
        None => {
            config["ack_policy"] = json!("none");
            config["mem_storage"] = json!(true);
            config["num_replicas"] = json!(1);
            config["inactive_threshold"] = json!(nanos(INACTIVE));
        }
    }
    if let Some(seq) = args.from {
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

/// Which messages the consumer wants acknowledged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    /// The last message; its acknowledgement covers all messages before it.
    All,
    Each,
}

impl Acks {
    fn of(policy: &str) -> Self {
        match policy {
            "none" => Self::None,
            "all" => Self::All,
            _ => Self::Each,
        }
    }
}

struct Run<'a> {
    client: &'a mut Client,
    args: &'a ConsumeArgs,
    name: String,
    acks: Acks,
    /// The stream's last sequence when the command began.
    last_seq: u64,
    left: u64,
    /// The consumer sequence of the previous message: a gap after it shows that a message is missing.
    consumer_seq: Option<u64>,
}

/// How a pull ended.
#[derive(PartialEq, Eq)]
enum Pull {
    More,
    Empty,
    End,
}

impl Run<'_> {
    fn all(&mut self, out: &mut impl Write) -> anyhow::Result<()> {
        let inbox = self.client.inbox()?;
        for turn in 0_u64.. {
            if self.left == 0 || interrupt::asked() {
                break;
            }
            let reply = format!("{inbox}p{turn}");
            let outcome = self.pull(&reply, out)?;
            out.flush()?;
            if outcome == Pull::End || (outcome == Pull::Empty && self.args.until_end) {
                break;
            }
        }
        Ok(())
    }

    /// Pulls one batch, writes it and acknowledges it.
    fn pull(&mut self, reply: &str, out: &mut impl Write) -> anyhow::Result<Pull> {
        let wanted = BATCH.min(self.left);
        let mut ask = json!({
            "batch": wanted,
            "max_bytes": BATCH_BYTES.max(self.client.max_payload + (64 << 10)),
        });
        if self.args.until_end {
            ask["no_wait"] = json!(true);
        } else {
            ask["expires"] = json!(nanos(EXPIRES));
            ask["idle_heartbeat"] = json!(nanos(HEARTBEAT));
        }
        let subject = format!(
            "$JS.API.CONSUMER.MSG.NEXT.{}.{}",
            self.args.stream, self.name
        );
        self.client
            .publish_with(&subject, reply, b"", ask.to_string().as_bytes())?;
        self.client.flush()?;
        let mut acks = Vec::new();
        let mut end = Pull::More;
        let mut got = 0;
        let silence = if self.args.until_end {
            PATIENCE
        } else {
            SILENCE
        };
        while got < wanted {
            // A reader of the output sees every printed message before the command waits for more.
            if !self.client.has_buffered() {
                out.flush()?;
            }
            let Some(message) = self.client.message_within(silence)? else {
                if interrupt::asked() {
                    end = Pull::End;
                    break;
                }
                bail!(CLOSED);
            };
            if message.subject == reply && message.status().is_some() {
                match message.status() {
                    Some((100, _)) => continue,
                    Some((404, _)) => end = Pull::Empty,
                    Some((408, _)) => {}
                    Some((409, words)) if words.eq_ignore_ascii_case("Batch Completed") => {}
                    Some((409, words)) if got > 0 && words.contains("MaxBytes") => {}
                    Some((503, _)) => bail!("the consumer {} is gone", self.name),
                    Some((code, words)) => bail!("the server ends the batch: {code} {words}"),
                    None => continue,
                }
                break;
            }
            let Some(at) = message.reply.as_deref().and_then(Delivery::parse) else {
                continue;
            };
            self.write(&message, &at, out)?;
            got += 1;
            match self.acks {
                Acks::None => {}
                Acks::All => {
                    acks.clear();
                    acks.extend(message.reply);
                }
                Acks::Each => acks.extend(message.reply),
            }
            if self.args.until_end && (at.stream_seq >= self.last_seq || at.pending == 0) {
                end = Pull::End;
                break;
            }
        }
        self.left -= got;
        out.flush()?;
        self.acknowledge(&acks)?;
        Ok(end)
    }

    fn write(
        &mut self,
        message: &Message,
        at: &Delivery,
        out: &mut impl Write,
    ) -> anyhow::Result<()> {
        if self.args.durable.is_none() {
            let expected = self.consumer_seq.map_or(1, |seq| seq + 1);
            if at.consumer_seq != expected {
                bail!(
                    "delivery {} came after {}: something is missing",
                    at.consumer_seq,
                    expected - 1
                );
            }
            self.consumer_seq = Some(at.consumer_seq);
        }
        if self.args.subjects {
            write!(out, "{} ", message.subject)?;
        }
        out.write_all(&message.payload)?;
        if message.headers.is_empty() || !message.has_header(OPEN_LINE.0, OPEN_LINE.1) {
            out.write_all(b"\n")?;
        }
        Ok(())
    }

    /// Acknowledges every message of a batch. The server answers the last acknowledgement once it has
    /// recorded it, and the earlier ones arrive before it.
    fn acknowledge(&mut self, acks: &[String]) -> anyhow::Result<()> {
        let Some((last, before)) = acks.split_last() else {
            return Ok(());
        };
        for ack in before {
            self.client.publish(ack, b"+ACK")?;
        }
        let answer = self.client.request(last, b"+ACK")?;
        if matches!(answer.status(), Some((503, _))) {
            bail!(
                "the consumer {} is gone: the last batch is not acknowledged",
                self.name
            );
        }
        Ok(())
    }
}

/// The fields of a delivered message's reply subject.
#[derive(Debug, PartialEq, Eq)]
struct Delivery {
    stream_seq: u64,
    consumer_seq: u64,
    pending: u64,
}

impl Delivery {
    /// Parses a reply subject of 9 words, or of 11 and more with a domain and an account in front.
    fn parse(reply: &str) -> Option<Self> {
        let words: Vec<&str> = reply.strip_prefix("$JS.ACK.")?.split('.').collect();
        let rest = match words.len() {
            7 => &words[..],
            9.. => &words[2..],
            _ => return None,
        };
        let number = |at: usize| rest.get(at)?.parse().ok();
        Some(Self {
            stream_seq: number(3)?,
            consumer_seq: number(4)?,
            pending: number(6)?,
        })
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_reply_subject() {
        let found = Some(Delivery {
            stream_seq: 7,
            consumer_seq: 8,
            pending: 9,
        });
        assert_eq!(Delivery::parse("$JS.ACK.S.C.1.7.8.123.9"), found);
        assert_eq!(Delivery::parse("$JS.ACK._.abc.S.C.1.7.8.123.9"), found);
        assert_eq!(Delivery::parse("$JS.ACK._.abc.S.C.1.7.8.123.9.more"), found);
        for wrong in [
            "$JS.ACK.S.C.1.7.8.123",
            "$JS.ACK.S.C.1.7.8.123.9.1",
            "$JS.ACK.S.C.1.x.8.1.9",
            "x",
        ] {
            assert_eq!(Delivery::parse(wrong), None, "{wrong}");
        }
    }
}
