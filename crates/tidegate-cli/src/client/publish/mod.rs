//! `tidegate pub`: publishes one message, or each line of a file as a message.
//!
//! If a stream stores the subject, the stream acknowledges every message: [`acked`]. Otherwise the command
//! ends once the server has received all messages, because no acknowledgement will come.

mod acked;
mod lines;

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use clap::Args;

use super::connection::{Client, Stop};
use super::{ServerArgs, jetstream, names};
use crate::progress::Progress;
use crate::{Usage, face, input, interrupt, is_broken_pipe, output};
use lines::{Line, Lines};

/// The greatest number of messages that the client has sent and that neither the server nor a stream has
/// confirmed yet. It bounds the memory that the client needs to send messages again.
const UNACKED_MAX: usize = 16_384;
/// The most bytes of a message from standard input. No server takes more; its own limit is lower, as a rule.
const MESSAGE_MAX: usize = 64 << 20;
/// The number of bytes that one read of standard input takes.
const READ: usize = 64 << 10;
/// The header that marks a last line without a line feed, so that `tidegate consume` can print the line
/// unchanged.
pub(super) const OPEN_LINE: (&str, &str) = ("Tidegate-Line", "open");

/// The arguments with which the user runs `tidegate pub`.
#[derive(Args, Debug)]
pub(crate) struct PubArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// Publish the message or the lines to this subject.
    subject: String,
    /// Publish this text as a single message; `-` is standard input, up to its end, every byte of it. For a
    /// message for each line see --lines.
    message: Option<String>,
    /// Publish each line of this file (`-` is standard input) as a message, also empty lines, without the
    /// line feed; a carriage return stays. The command marks a last line without a line feed by a header, so
    /// that `tidegate consume` prints the line unchanged; a line within 50 bytes of the server's limit has no
    /// room for the header.
    #[arg(long, value_name = "FILE", conflicts_with = "message")]
    lines: Option<PathBuf>,
    /// Fail unless this stream stores the messages. Without the flag, messages on a subject of no stream
    /// reach only clients that are subscribed at the moment.
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Give the messages the ids PREFIX-1, PREFIX-2, ... (`Nats-Msg-Id`). After a second run with the same
    /// prefix within the stream's duplicate window, the server stores only the missing messages, instead of
    /// all messages a second time. Default: a prefix that no other run has.
    #[arg(long, value_name = "PREFIX")]
    id: Option<String>,
}

pub(crate) fn run(args: &PubArgs) -> anyhow::Result<ExitCode> {
    let subject = &args.subject;
    names::literal("SUBJECT", subject)?;
    if args.message.is_none() && args.lines.is_none() {
        return Err(Usage::new(
            "give a MESSAGE to publish (`-` is standard input), or `--lines -` to publish each line of standard input",
        )
        .into());
    }
    if let Some(stream) = &args.stream {
        names::stream("--stream", stream)?;
    }
    let id = args.id.as_deref().unwrap_or_default();
    let empty = args.id.is_some() && id.is_empty();
    if empty || id.contains(|c: char| c.is_control()) || id.starts_with(' ') {
        return Err(Usage::new("--id: give visible characters").into());
    }
    let input = match &args.lines {
        None => None,
        Some(path) => {
            let name = match path.as_os_str() == "-" {
                true => "standard input".to_owned(),
                false => path.display().to_string(),
            };
            let file = input::Source::open(path).with_context(|| name.clone())?;
            Some(Input { name, file })
        }
    };
    let message = match args.message.as_deref() {
        Some("-") => Some(whole(input::Source::open("-".as_ref())?)?),
        message => message.map(|text| Bytes::copy_from_slice(text.as_bytes())),
    };
    let mut client = Client::connect(&args.server)?;
    let stream = jetstream::stream_of(&mut client, subject)?;
    if let Some(wanted) = args.stream.as_ref().filter(|w| stream.as_ref() != Some(w)) {
        let taker = stream.map_or_else(|| "no stream".into(), |s| format!("the stream {s}"));
        bail!("{taker} takes {subject}, not {wanted}: nothing is published");
    }
    let mut source = Source::new(input, message, client.max_payload());
    let said = match &stream {
        None if args.id.is_some() => {
            bail!("no stream takes {subject}, so an id is of no use: nothing is published")
        }
        None => taken(&mut client, subject, &mut source)?,
        Some(stream) => acked::publish(&mut client, args, stream, &mut source)?,
    };
    // The exit code says what became of the messages: after a failure here, a script that publishes again
    // would store them a second time.
    if let Err(error) = output::print(format_args!("{said}\n"))
        && !is_broken_pipe(&error)
    {
        face::complain(format_args!("tidegate: {error:#}: {said}"));
    }
    Ok(interrupt::exit_code())
}

/// The input of which the command publishes each line: a file, or standard input.
struct Input {
    /// The name of the input, with which error messages begin.
    name: String,
    file: input::Source,
}

/// The source of the messages that `tidegate pub` publishes.
enum Source {
    One(Option<Bytes>),
    /// The lines of an input, and the name of the input, with which error messages begin.
    Lines(String, Lines),
}

impl Source {
    fn new(input: Option<Input>, message: Option<Bytes>, bytes_max: usize) -> Self {
        match input {
            None => Self::One(message),
            Some(Input { name, file }) => Self::Lines(name, Lines::of(file, bytes_max)),
        }
    }

    /// Returns the next message; `None` at the end of the source, and after Ctrl-C. A caller that cancels the
    /// wait loses no message.
    async fn next(&mut self) -> anyhow::Result<Option<Line>> {
        if interrupt::asked() {
            return Ok(None);
        }
        match self {
            Self::Lines(name, lines) => lines.next().await.with_context(|| name.clone()),
            // The source does not check the length of a single message: the client refuses a too long message
            // and names the server's limit.
            Self::One(message) => Ok(message.take().map(Line::Closed)),
        }
    }

    fn is_single(&self) -> bool {
        matches!(self, Self::One(_))
    }
}

/// Reads standard input to its end, as one message.
fn whole(mut input: impl Read) -> anyhow::Result<Bytes> {
    let mut message = BytesMut::new();
    let mut buffer = vec![0; READ];
    loop {
        interrupt::check()?;
        match input.read(&mut buffer) {
            Ok(0) => return Ok(message.freeze()),
            Ok(read) => message.extend_from_slice(&buffer[..read]),
            // Ctrl-C, or another signal.
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e).context("standard input"),
        }
        if message.len() > MESSAGE_MAX {
            let mib = MESSAGE_MAX >> 20;
            bail!(
                "standard input has more than {mib} MiB, and no server takes that much as one message: nothing is published"
            );
        }
    }
}

fn too_long(bytes_max: usize) -> String {
    format!("longer than the {bytes_max} bytes the server takes")
}

/// Publishes to a subject that no stream stores. Returns once the server has received every message.
fn taken(client: &mut Client, subject: &str, source: &mut Source) -> anyhow::Result<String> {
    let (mut published, mut synced) = (0, 0);
    let outcome = take(client, subject, source, &mut published, &mut synced);
    match outcome {
        Err(e) if e.is::<Stop>() && !source.is_single() => {
            return Err(e.context(format!(
                "the server took {synced} lines of {published} sent"
            )));
        }
        outcome => outcome?,
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
    let bytes_max = client.max_payload();
    let mut progress = Progress::start("lines published");
    loop {
        // The connection's task sends the earlier lines while the command waits for the next line.
        let line = match client.wait(std::time::Duration::MAX, source.next()) {
            Ok(line) => line?,
            Err(Stop::Interrupted(_)) => None,
            Err(stop) => return Err(stop.into()),
        };
        let bytes = match line {
            None => break,
            Some(Line::Closed(bytes) | Line::Open(bytes))
                if bytes.len() <= bytes_max || source.is_single() =>
            {
                bytes
            }
            Some(_) => {
                client.sync()?;
                *synced = *published;
                let (line, what) = (*published + 1, too_long(bytes_max));
                bail!("line {line} is {what}; the {published} lines before it are published");
            }
        };
        client.publish(subject, bytes)?;
        *published += 1;
        if published.is_multiple_of(UNACKED_MAX as u64) {
            client.sync()?;
            *synced = *published;
            progress.show(*published);
        }
    }
    Ok(client.sync()?)
}
