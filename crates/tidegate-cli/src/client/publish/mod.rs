//! `tidegate pub`: publishes one message, or each line of a file as a message.
//!
//! If a stream takes the subject, the stream acknowledges every message, and the command keeps a bounded
//! number unacknowledged. Otherwise the command ends once the server has taken all messages. The command
//! never sends a message again by itself; with `--id` the user can run it again without duplicates.

mod lines;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use serde::Deserialize;

use super::jetstream::{self, ApiError};

use super::{CLOSED, Client, Message, PATIENCE, ServerArgs, names};
use crate::Usage;
use crate::interrupt;
use lines::Line;

/// The most unacknowledged messages.
const UNACKED_MAX: usize = 4096;
/// The most unacknowledged bytes; a larger message goes alone.
const UNACKED_BYTES_MAX: usize = 8 << 20;
/// The header of a last line without a line feed, so that `consume` can print the line unchanged.
pub(super) const OPEN_LINE: (&str, &str) = ("Tidegate-Line", "open");

/// The arguments of `tidegate pub`.
#[derive(Args, Debug)]
pub(crate) struct PubArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Publish to this subject.
    subject: String,
    /// Publish this message.
    #[arg(required_unless_present = "lines")]
    message: Option<String>,
    /// Publish each line of this file (`-` is standard input) as a message, also empty lines, without the
    /// line feed; a carriage return stays. A header marks a last line without a line feed, for `tidegate
    /// consume`.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    lines: Option<PathBuf>,
    /// Fail unless this stream takes the messages. Without the flag, messages on a subject of no stream reach
    /// only the subscribers of the moment.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Give the messages the ids PREFIX-1, PREFIX-2, ... (`Nats-Msg-Id`). A second run within the stream's
    /// duplicate window then stores only the missing messages, instead of all of them a second time.
    #[arg(long, value_name = "PREFIX")]
    id: Option<String>,
}

pub(crate) fn run(args: &PubArgs) -> anyhow::Result<ExitCode> {
    let subject = &args.subject;
    names::literal("SUBJECT", subject)?;
    if let Some(stream) = &args.stream {
        names::stream("--stream", stream)?;
    }
    let id = args.id.as_deref().unwrap_or_default();
    if id.contains(|c: char| c.is_control()) || id.starts_with(' ') {
        return Err(Usage::new("--id: give visible characters").into());
    }
    let mut source = match (&args.lines, &args.message) {
        (Some(path), _) if path.as_os_str() == "-" => Source::Lines(
            "standard input".to_owned(),
            Box::new(std::io::stdin().lock()),
        ),
        (Some(path), _) => {
            let name = path.display().to_string();
            let file = File::open(path).with_context(|| name.clone())?;
            Source::Lines(name, Box::new(BufReader::with_capacity(256 << 10, file)))
        }
        (None, message) => Source::One(message.clone()),
    };
    let mut client = Client::connect(&args.server)?;
    let stream = jetstream::stream_of(&mut client, subject)?;
    if let Some(wanted) = args.stream.as_ref().filter(|w| stream.as_ref() != Some(w)) {
        let taker = stream.map_or_else(|| "no stream".into(), |s| format!("the stream {s}"));
        bail!("{taker} takes {subject}, not {wanted}: nothing is published");
    }
    let said = match &stream {
        None if args.id.is_some() => {
            bail!("no stream takes {subject}, so an id is of no use: nothing is published")
        }
        None => taken(&mut client, subject, &mut source)?,
        Some(stream) => Acked::new(&mut client, args, stream)?.run(&mut source)?,
    };
    writeln!(std::io::stdout(), "{said}")?;
    Ok(if interrupt::asked() {
        ExitCode::from(interrupt::EXIT_CODE)
    } else {
        ExitCode::SUCCESS
    })
}

/// The source of the messages.
enum Source {
    One(Option<String>),
    /// The input's name for errors, and the input.
    Lines(String, Box<dyn BufRead>),
}

impl Source {
    /// Puts the next message into `line`.
    fn next(&mut self, line: &mut Vec<u8>, bytes_max: usize) -> anyhow::Result<Line> {
        if interrupt::asked() {
            return Ok(Line::End);
        }
        match self {
            Self::Lines(name, input) => {
                lines::read(&mut **input, line, bytes_max).with_context(|| name.clone())
            }
            Self::One(message) => Ok(match message.take() {
                // The server refuses a message that is too long with its own error.
                Some(message) => {
                    *line = message.into_bytes();
                    Line::Closed
                }
                None => Line::End,
            }),
        }
    }
}

fn too_long(bytes_max: usize) -> String {
    format!("longer than the {bytes_max} bytes the server takes")
}

/// Publishes to a subject that no stream takes; returns when the server has taken every message.
fn taken(client: &mut Client, subject: &str, source: &mut Source) -> anyhow::Result<String> {
    let (mut published, mut synced) = (0, 0);
    let outcome = take(client, subject, source, &mut published, &mut synced);
    if matches!(source, Source::Lines(..)) && synced < published {
        outcome.with_context(|| format!("the server took {synced} lines of {published} sent"))?;
    } else {
        outcome?;
    }
    Ok(format!("published {published} to {subject}"))
}

fn take(
    client: &mut Client,
    subject: &str,
    source: &mut Source,
    published: &mut u64,
    synced: &mut u64,
) -> anyhow::Result<()> {
    let mut line = Vec::new();
    let bytes_max = client.max_payload;
    loop {
        match source.next(&mut line, bytes_max)? {
            Line::End => break,
            Line::TooLong => {
                client.sync()?;
                *synced = *published;
                let (line, what) = (*published + 1, too_long(bytes_max));
                bail!("line {line} is {what}; the {published} lines before it are published");
            }
            Line::Closed | Line::Open => client.publish(subject, &line)?,
        }
        *published += 1;
        if published.is_multiple_of(UNACKED_MAX as u64) {
            client.sync()?;
            *synced = *published;
        }
    }
    client.sync()
}

/// A stream's answer to a published message.
#[derive(Deserialize)]
struct PubAck {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ApiError>,
}

/// Publishes into a stream that acknowledges each message.
struct Acked<'a> {
    client: &'a mut Client,
    subject: &'a str,
    stream: &'a str,
    id: Option<&'a str>,
    inbox: String,
    /// The size of each message sent, in order; `None` once it is acknowledged. The front is always
    /// unacknowledged.
    window: VecDeque<Option<usize>>,
    /// The unacknowledged bytes.
    bytes: usize,
    /// The number of messages that left the window, which is the number of its front, counted from 0.
    done: u64,
    acked: u64,
    duplicates: u64,
    /// The lowest and the highest sequence that the stream assigned.
    seqs: Option<(u64, u64)>,
    /// The first refusal: the number of its line and the reason.
    refused: Option<(u64, String)>,
}

impl<'a> Acked<'a> {
    fn new(client: &'a mut Client, args: &'a PubArgs, stream: &'a str) -> anyhow::Result<Self> {
        Ok(Self {
            inbox: client.inbox()?,
            client,
            subject: &args.subject,
            stream,
            id: args.id.as_deref(),
            window: VecDeque::new(),
            bytes: 0,
            done: 0,
            acked: 0,
            duplicates: 0,
            seqs: None,
            refused: None,
        })
    }

    fn run(mut self, source: &mut Source) -> anyhow::Result<String> {
        let outcome = self.pump(source);
        let sent = self.done + self.window.len() as u64;
        let lost = match (outcome, self.refused) {
            (Err(e), _) => format!("{e:#}"),
            (Ok(()), Some((_, why))) if matches!(source, Source::One(_)) => {
                bail!("{why}: the message is not stored")
            }
            (Ok(()), Some((line, why))) => format!("line {line}: {why}"),
            (Ok(()), None) if self.acked == sent => {
                let mut said = format!("published {sent} to {}", self.subject);
                if let Some((first, last)) = self.seqs {
                    said += &format!(", acked by {} as {first} to {last}", self.stream);
                }
                if self.duplicates > 0 {
                    said += &format!(", {} of them there before", self.duplicates);
                }
                return Ok(said);
            }
            (Ok(()), None) => "interrupted".into(),
        };
        let again = match self.id {
            Some(_) => "run again with the same --id: the server stores no message twice",
            None => "a second run would store acknowledged messages a second time (see --id)",
        };
        let (acked, not) = (self.acked, sent - self.acked);
        bail!("{lost}; {acked} are acked, {not} sent are not; {again}")
    }

    fn pump(&mut self, source: &mut Source) -> anyhow::Result<()> {
        let (mut line, mut more) = (Vec::new(), true);
        loop {
            while more && self.has_room() {
                more = self.refused.is_none() && self.send(source, &mut line)?;
            }
            if self.window.is_empty() {
                return Ok(());
            }
            self.client.flush()?;
            // Handles all answers that arrived together before it sends again, so that they make room
            // together.
            loop {
                let Some(message) = self.client.message_within(PATIENCE)? else {
                    bail!(if interrupt::asked() {
                        "interrupted"
                    } else {
                        CLOSED
                    });
                };
                self.handle_answer(&message)?;
                if !self.client.has_buffered() {
                    break;
                }
            }
        }
    }

    fn has_room(&self) -> bool {
        self.window.len() < UNACKED_MAX && self.bytes < UNACKED_BYTES_MAX
    }

    /// Sends the next message; returns false at the end of the source.
    fn send(&mut self, source: &mut Source, line: &mut Vec<u8>) -> anyhow::Result<bool> {
        let number = self.done + self.window.len() as u64;
        let mut headers = self.headers(number, false);
        let bytes_max = self.client.max_payload;
        match source.next(line, bytes_max - headers.len().min(bytes_max))? {
            Line::End => return Ok(false),
            Line::TooLong => {
                self.refused = Some((number + 1, too_long(bytes_max)));
                return Ok(false);
            }
            Line::Closed => {}
            // The header may push the message over the limit; then the message goes without it, and `consume`
            // adds a line feed.
            Line::Open => {
                let marked = self.headers(number, true);
                if marked.len() + line.len() <= bytes_max {
                    headers = marked;
                }
            }
        }
        let reply = format!("{}{number}", self.inbox);
        self.client
            .publish_with(self.subject, &reply, &headers, line)?;
        self.window.push_back(Some(line.len()));
        self.bytes += line.len();
        Ok(true)
    }

    fn headers(&self, number: u64, open: bool) -> Vec<u8> {
        let mut block = Vec::new();
        if let Some(id) = self.id {
            block.extend_from_slice(format!("Nats-Msg-Id: {id}-{}\r\n", number + 1).as_bytes());
        }
        if open {
            block.extend_from_slice(format!("{}: {}\r\n", OPEN_LINE.0, OPEN_LINE.1).as_bytes());
        }
        if block.is_empty() {
            return block;
        }
        [b"NATS/1.0\r\n", &block[..], b"\r\n"].concat()
    }

    fn handle_answer(&mut self, message: &Message) -> anyhow::Result<()> {
        let number = message.subject.strip_prefix(&self.inbox);
        let Some(number) = number.and_then(|n| n.parse::<u64>().ok()) else {
            return Ok(());
        };
        let slot = number
            .checked_sub(self.done)
            .and_then(|at| self.window.get_mut(usize::try_from(at).ok()?));
        let Some(slot) = slot else {
            return Ok(());
        };
        let refusal = match message.status() {
            Some((503, _)) => Some("no stream takes this subject now".to_owned()),
            Some((code, words)) => Some(format!("{code} {words}")),
            None => {
                let ack: PubAck = serde_json::from_slice(&message.payload)
                    .context("an acknowledgement cannot be read")?;
                match ack.error {
                    Some(error) => Some(error.to_string()),
                    None => {
                        if slot.take().is_some_and(|bytes| {
                            self.bytes -= bytes;
                            true
                        }) {
                            self.acked += 1;
                            self.duplicates += u64::from(ack.duplicate);
                            let (first, last) = self.seqs.unwrap_or((ack.seq, ack.seq));
                            self.seqs = Some((first.min(ack.seq), last.max(ack.seq)));
                        }
                        None
                    }
                }
            }
        };
        if let Some(why) = refusal {
            // A refused message stays unacknowledged and ends the reading of the source; the command still
            // waits for the messages sent.
            if let Some(bytes) = slot.take() {
                self.bytes -= bytes;
            }
            let first = self.refused.as_ref().is_none_or(|(line, _)| number < *line);
            if first {
                self.refused = Some((number + 1, why));
            }
        }
        while self.window.front().is_some_and(Option::is_none) {
            self.window.pop_front();
            self.done += 1;
        }
        Ok(())
    }
}
