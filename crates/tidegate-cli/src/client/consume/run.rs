//! Pulls the messages of a consumer, writes them to the output and acknowledges them, for `tidegate consume`.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use anyhow::bail;
use async_nats::{HeaderMap, Message, Subject};
use serde_json::json;

use super::super::PATIENCE;
use super::super::connection::{Client, Stop, Subscription, literal};
use super::super::jetstream::{self, ConsumerInfo};
use super::super::publish::OPEN_LINE;
use super::delivery::Delivery;
use super::{ConsumeArgs, consumer, nanos};
use crate::progress::Progress;
use crate::{face, interrupt};

/// The greatest number of messages that the command asks for in one pull, so that one batch takes little
/// memory.
const BATCH: u64 = 5000;
/// The greatest number of bytes that the server sends for one pull; a larger message comes alone.
const BATCH_BYTES: usize = 8 << 20;
/// The time for which the server lets a pull wait for new messages. `HEARTBEAT` is the interval of the
/// server's heartbeats meanwhile.
const EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The longest silence of the server, after which the command treats the connection as lost.
const SILENCE: Duration = Duration::from_secs(15);
/// The pause before the command asks again for messages that the server will redeliver, so that the command
/// does not ask in a busy loop.
const PAUSE: Duration = Duration::from_millis(500);

/// The messages of a batch that the command must acknowledge, as the consumer's policy demands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acks {
    None,
    /// The command acknowledges only the last message of a batch, which covers all messages before it.
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

pub(super) struct Run<'a> {
    client: Client,
    args: &'a ConsumeArgs,
    /// The name under which the server knows the consumer.
    name: String,
    acks: Acks,
    /// The sequence of the stream's last message when the command began, at which `--until-end` stops.
    last_seq: u64,
    /// The number of messages that the command still has to print, because of `--count`.
    left: u64,
    /// The stream sequence of the last message that the command has written, after which it continues on a
    /// new connection; 0 before the first message.
    written: u64,
    /// The stream sequences of messages that the command has written and the server has not confirmed as
    /// acknowledged. The command does not write them again when the server redelivers them.
    unconfirmed: BTreeSet<u64>,
    /// The consumer sequence of the previous message: a gap after it shows that a message is missing.
    consumer_seq: Option<u64>,
    /// True if the consumer may hold unacknowledged messages that it delivered into an earlier connection.
    resumed: bool,
    progress: Progress,
}

/// The outcomes of a successful pull, by which the loop decides whether it pulls again.
#[derive(PartialEq, Eq)]
enum Pull {
    More,
    Empty,
    End,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        client: Client,
        args: &'a ConsumeArgs,
        consumer: &ConsumerInfo,
        last_seq: u64,
    ) -> Self {
        Self {
            client,
            args,
            name: consumer.name.clone(),
            acks: Acks::of(&consumer.config.ack_policy),
            last_seq,
            left: args.count.unwrap_or(u64::MAX),
            written: 0,
            unconfirmed: BTreeSet::new(),
            consumer_seq: None,
            resumed: consumer.num_ack_pending > 0,
            progress: Progress::start("messages"),
        }
    }

    /// Pulls and writes messages until the command has written all messages that the user wants, or until
    /// Ctrl-C.
    pub(super) fn all(&mut self, out: &mut impl Write) -> anyhow::Result<()> {
        let mut inbox = self.client.inbox();
        let mut answers = self.client.subscribe(&format!("{inbox}>"), None)?;
        self.await_redelivery()?;
        for turn in 0_u64.. {
            if self.left == 0 || interrupt::asked() {
                break;
            }
            let reply = format!("{inbox}{turn}");
            let outcome = self.pull(&reply, &mut answers, out);
            out.flush()?;
            match outcome {
                Ok(Pull::End) => break,
                Ok(Pull::Empty) if self.args.until_end && self.is_at_end()? => break,
                Ok(_) => {}
                Err(e) => match e.downcast_ref() {
                    Some(Stop::Interrupted(_)) => break,
                    Some(Stop::Lost | Stop::Silent(_)) => {
                        inbox = self.client.inbox();
                        answers = self.client.resubscribe(&format!("{inbox}>"), None)?;
                        self.resume()?;
                    }
                    _ => return Err(e),
                },
            }
        }
        Ok(())
    }

    pub(super) fn delete_consumer(&mut self) -> anyhow::Result<()> {
        let what = format!("CONSUMER.DELETE.{}.{}", self.args.stream, self.name);
        jetstream::ask(&mut self.client, &what, &json!(null)).map(drop)
    }

    /// Prepares the consumer on a new connection, so that the command continues after the last message
    /// written.
    fn resume(&mut self) -> anyhow::Result<()> {
        self.resumed = true;
        if self.args.durable.is_some() {
            return self.await_redelivery();
        }
        // The server may still have the old consumer, because it does not know that the consumer's reader is
        // gone. A restarted server has forgotten the consumer, so the command ignores an error here.
        let _ = self.delete_consumer();
        let from = match self.written {
            0 => self.args.from,
            written => Some(written + 1),
        };
        let consumer = consumer(&mut self.client, self.args, from)?;
        self.name = consumer.name;
        self.consumer_seq = None;
        Ok(())
    }

    /// Waits until the server has delivered unacknowledged messages again, if the consumer's policy is `all`.
    /// Without the wait, the first acknowledgement of this connection would cover messages that an earlier
    /// connection received and the command did not write.
    fn await_redelivery(&mut self) -> anyhow::Result<()> {
        if self.acks != Acks::All || !self.resumed {
            return Ok(());
        }
        let info = self.info()?;
        if info.num_ack_pending > 0 {
            let wait = Duration::from_nanos(info.config.ack_wait);
            face::note(format_args!(
                "the command waits, because the consumer {} delivers {} unacknowledged messages again in {} s",
                self.name,
                info.num_ack_pending,
                wait.as_secs()
            ));
            self.rest(wait)?;
        }
        Ok(())
    }

    fn rest(&mut self, time: Duration) -> Result<(), Stop> {
        let rest = async move { tokio::time::sleep(time).await };
        self.client.wait(Duration::MAX, rest)
    }

    fn info(&mut self) -> anyhow::Result<ConsumerInfo> {
        let what = format!("CONSUMER.INFO.{}.{}", self.args.stream, self.name);
        let info = jetstream::ask(&mut self.client, &what, &json!(null))?;
        Ok(serde_json::from_value(info)?)
    }

    /// Returns whether the consumer holds no more messages for this command, so that `--until-end` may stop.
    fn is_at_end(&mut self) -> anyhow::Result<bool> {
        if !self.resumed || self.acks == Acks::None {
            return Ok(true);
        }
        let info = self.info()?;
        if info.num_pending + info.num_ack_pending == 0 {
            return Ok(true);
        }
        self.rest(PAUSE)?;
        Ok(false)
    }

    /// Pulls one batch, writes its messages and acknowledges them. Returns how the pull ended.
    fn pull(
        &mut self,
        reply: &str,
        answers: &mut Subscription,
        out: &mut impl Write,
    ) -> anyhow::Result<Pull> {
        let wanted = BATCH.min(self.left);
        self.ask(wanted, reply)?;
        let (mut acks, mut covered) = (Vec::new(), 0);
        let mut end = Pull::More;
        let mut got = 0;
        let silence = match self.args.until_end {
            true => PATIENCE,
            false => SILENCE,
        };
        while got < wanted {
            let message = match answers.arrived() {
                Some(message) => message,
                None => {
                    // The flush lets a reader of the output see every message before the command waits for
                    // more.
                    out.flush()?;
                    match self.client.next(answers, silence) {
                        Ok(message) => message,
                        Err(Stop::Interrupted(_)) => {
                            end = Pull::End;
                            break;
                        }
                        Err(stop) => return Err(stop.into()),
                    }
                }
            };
            if let Some(status) = message.status {
                if message.subject.as_str() != reply {
                    continue;
                }
                let words = message.description.as_deref().unwrap_or_default();
                match status.as_u16() {
                    100 => continue,
                    404 => end = Pull::Empty,
                    408 => {}
                    409 if words.eq_ignore_ascii_case("Batch Completed") => {}
                    409 if got > 0 && words.contains("MaxBytes") => {}
                    409 if words.contains("Server Shutdown")
                        || words.contains("Leadership Change") =>
                    {
                        return Err(Stop::Lost.into());
                    }
                    503 if self.resumed && self.args.durable.is_none() => {
                        return Err(Stop::Lost.into());
                    }
                    503 => bail!("the consumer {} is gone", self.name),
                    code => bail!("the server ends the batch: {code} {words}"),
                }
                break;
            }
            let Some(at) = message.reply.as_deref().and_then(Delivery::parse) else {
                continue;
            };
            got += 1;
            if !self.unconfirmed.contains(&at.stream_seq) {
                self.write(&message, &at, out)?;
            }
            match self.acks {
                Acks::None => {}
                // A message that the server delivers again may be older than the message before it. The
                // acknowledgement of the newer one covers both.
                Acks::All if at.stream_seq < covered => {}
                Acks::All => {
                    covered = at.stream_seq;
                    acks.clear();
                    acks.extend(message.reply);
                }
                Acks::Each => acks.extend(message.reply),
            }
            let last = at.stream_seq >= self.last_seq || at.pending == 0;
            if self.args.until_end && last && !(self.resumed && self.acks != Acks::None) {
                end = Pull::End;
                break;
            }
            if self.left == 0 {
                break;
            }
        }
        self.progress.show(self.consumer_seq.unwrap_or_default());
        out.flush()?;
        self.acknowledge(acks)?;
        Ok(end)
    }

    /// Asks the consumer for a batch of `wanted` messages, which the server sends to the subject `reply`.
    fn ask(&mut self, wanted: u64, reply: &str) -> anyhow::Result<()> {
        let mut ask = json!({
            "batch": wanted,
            "max_bytes": BATCH_BYTES.max(self.client.max_payload() + (64 << 10)),
        });
        if self.args.until_end {
            ask["no_wait"] = json!(true);
        } else {
            ask["expires"] = json!(nanos(EXPIRES));
            ask["idle_heartbeat"] = json!(nanos(HEARTBEAT));
        }
        let (stream, name) = (&self.args.stream, &self.name);
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}");
        let ask = ask.to_string().into();
        Ok(self
            .client
            .publish_with(literal(&subject)?, reply.to_owned(), HeaderMap::new(), ask)?)
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
        let mark = message.headers.as_ref().and_then(|h| h.get(OPEN_LINE.0));
        if mark.is_none_or(|value| value.as_str() != OPEN_LINE.1) {
            out.write_all(b"\n")?;
        }
        self.written = at.stream_seq;
        self.left -= 1;
        if self.acks != Acks::None {
            self.unconfirmed.insert(at.stream_seq);
        }
        Ok(())
    }

    /// Acknowledges every message of a batch. The last acknowledgement is a request: the server answers it
    /// once it has recorded the acknowledgement, and the earlier ones reach the server before it.
    fn acknowledge(&mut self, mut acks: Vec<Subject>) -> anyhow::Result<()> {
        let Some(last) = acks.pop() else {
            return Ok(());
        };
        for ack in acks {
            self.client.publish(&ack, "+ACK".into())?;
        }
        if self.client.request(&last, b"+ACK".to_vec())?.is_none() {
            bail!(
                "the consumer {} is gone: the last batch is not acknowledged",
                self.name
            );
        }
        self.unconfirmed.clear();
        Ok(())
    }
}
