//! Publishes messages for `tidegate pub` into a stream that acknowledges each of them.
//!
//! The publisher limits the number of unacknowledged messages, and keeps them until the stream acknowledges
//! them. After a lost connection it sends the oldest of these messages alone, until the stream acknowledges
//! it, and then the others in order. Each message has an id, so that the stream stores no message twice.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use async_nats::header::NATS_MESSAGE_ID;
use async_nats::{HeaderMap, Message, StatusCode, Subject};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::super::PATIENCE;
use super::super::connection::{Client, Stop, Subscription};
use super::super::jetstream::{self, ApiError, StreamInfo};
use super::{Line, OPEN_LINE, PubArgs, Source, UNACKED_MAX, too_long};
use crate::interrupt::{self, Interrupted};
use crate::progress::Progress;

/// The greatest number of bytes of unacknowledged payloads, which bounds the publisher's memory. The
/// publisher sends a larger message alone.
const UNACKED_BYTES_MAX: usize = 8 << 20;
/// The longest silence of a stream that has unacknowledged messages, before the publisher connects again.
const SILENCE: Duration = Duration::from_secs(5);
/// The pause before the publisher repeats a message that no node could store, so that the nodes can elect a
/// leader.
const PAUSE: Duration = Duration::from_millis(250);

/// Publishes all messages of `source` into `stream`. Returns the line that the command prints for the user.
pub(super) fn publish(
    client: &mut Client,
    args: &PubArgs,
    stream: &str,
    source: &mut Source,
) -> anyhow::Result<String> {
    let info = jetstream::ask(client, &format!("STREAM.INFO.{stream}"), &json!({}))?;
    let info: StreamInfo = serde_json::from_value(info).context("STREAM.INFO")?;
    let inbox = client.inbox();
    let mut publisher = Publisher {
        answers: client.subscribe(&format!("{inbox}>"), None)?,
        client,
        subject: Subject::from(args.subject.as_str()),
        stream,
        id: args.id.as_deref(),
        prefix: match &args.id {
            Some(id) => format!("{id}-"),
            None => inbox.replace("_INBOX.", "").replace('.', "-"),
        },
        inbox,
        duplicate_window: Duration::from_nanos(info.config.duplicate_window),
        window: VecDeque::new(),
        order: Order::default(),
        bytes: 0,
        done: 0,
        acked: 0,
        duplicates: 0,
        seqs: None,
        refused: None,
        probing: false,
        heard: Instant::now(),
        now: Instant::now(),
    };
    let outcome = publisher.run(source);
    publisher.report(outcome, source)
}

/// A stream's answer to a published message: the acknowledgement, or the error with which the stream refuses
/// it.
#[derive(Deserialize)]
struct PubAck {
    #[serde(default)]
    seq: u64,
    #[serde(default)]
    duplicate: bool,
    error: Option<ApiError>,
}

/// The headers that the publisher adds to one message, so that the stream finds duplicates and `tidegate
/// consume` prints the line unchanged.
#[derive(Clone, Copy)]
struct Marks {
    id: bool,
    /// True if the message is the last line of the input and that line has no line feed, which `tidegate
    /// consume` must not add.
    open: bool,
}

/// A message that the publisher has sent and keeps, because the stream has not acknowledged it.
struct Unacked {
    payload: Bytes,
    marks: Marks,
    /// The time at which the publisher first sent the message, to tell how long the stream still remembers
    /// the message's id.
    sent: Instant,
    again: bool,
}

struct Publisher<'a> {
    client: &'a mut Client,
    answers: Subscription,
    subject: Subject,
    stream: &'a str,
    id: Option<&'a str>,
    /// The first part of the ids of this run's messages. The message's number follows, so that each id is
    /// unique.
    prefix: String,
    inbox: String,
    /// The time for which the stream remembers the ids of messages. After it, the publisher cannot send a
    /// message again safely.
    duplicate_window: Duration,
    /// The messages that the publisher has sent, in order; `None` once the stream has acknowledged the
    /// message. The queue's first message is always unacknowledged.
    window: VecDeque<Option<Unacked>>,
    order: Order,
    /// The number of bytes in the payloads of all unacknowledged messages, which [`UNACKED_BYTES_MAX`]
    /// limits.
    bytes: usize,
    /// The number of messages that have left `window`, because the stream acknowledged them. The first
    /// message in `window` has this number, counted from 0.
    done: u64,
    acked: u64,
    duplicates: u64,
    /// The lowest and the highest stream sequence that the stream assigned to messages of this run, for the
    /// report.
    seqs: Option<(u64, u64)>,
    /// The stream's first refusal of a message: the number of the message's line, and the reason for the
    /// user.
    refused: Option<(u64, String)>,
    /// True after a loss, while the publisher sends only the oldest message, until the stream acknowledges
    /// it.
    probing: bool,
    /// The time of the stream's last acknowledgement, or of the first message after the stream had
    /// acknowledged all messages. The publisher measures the stream's silence from it.
    heard: Instant,
    /// The time at which the publisher's last wait ended, which it takes as the time of the messages it sends
    /// next.
    now: Instant,
}

/// Detects that the stream stored a message of this run behind a later one, so that the report can warn the
/// user. A cluster does so if it loses messages while no node leads the stream, and the next leader stores
/// later messages first.
#[derive(Debug, Default)]
struct Order {
    /// The message with the highest stream sequence so far: the stream sequence, and the message's number in
    /// this run.
    newest: (u64, u64),
    /// The message with the highest number so far: the message's number in this run, and its stream sequence.
    last: (u64, u64),
    /// The lowest number of a message that the stream stored behind a later message, for the report.
    displaced: Option<u64>,
}

impl Order {
    /// Records the stream sequence of message `number`. The stream's answers may arrive in any order.
    fn handle_stored(&mut self, number: u64, seq: u64) {
        if number < self.last.0 && seq > self.last.1 {
            self.displace(number);
        }
        if number > self.newest.1 && seq < self.newest.0 {
            self.displace(self.newest.1);
        }
        self.newest = self.newest.max((seq, number));
        self.last = self.last.max((number, seq));
    }

    fn displace(&mut self, number: u64) {
        self.displaced = Some(self.displaced.map_or(number, |first| first.min(number)));
    }
}

/// The event that ended a wait of the publisher, to which the publisher then reacts.
enum Next {
    Line(anyhow::Result<Option<Line>>),
    Answer(Option<Message>),
    Silence,
}

impl Publisher<'_> {
    /// Publishes messages until the source ends and the stream has answered every message, or refuses one.
    fn run(&mut self, source: &mut Source) -> anyhow::Result<()> {
        let mut progress = Progress::start("lines acked");
        let mut more = true;
        loop {
            let wanted = more && self.refused.is_none() && self.has_room();
            if !wanted && self.window.is_empty() {
                return Ok(());
            }
            let silence = self.silence_max().saturating_sub(self.heard.elapsed());
            let (answers, waiting) = (&mut self.answers, !self.window.is_empty());
            let next = async {
                tokio::select! {
                    biased;
                    answer = answers.next(), if waiting => Next::Answer(answer),
                    line = source.next(), if wanted => Next::Line(line),
                    () = tokio::time::sleep(silence), if waiting => Next::Silence,
                }
            };
            let next = self.client.wait(Duration::MAX, next);
            self.now = Instant::now();
            match next {
                Ok(Next::Line(line)) => {
                    more = self.take(line?, source.is_single())?;
                    // The publisher takes all lines that the source has now, before the connection's task
                    // runs.
                    while more && self.refused.is_none() && self.has_room() {
                        let Some(line) = now(source.next()) else {
                            break;
                        };
                        more = self.take(line?, source.is_single())?;
                    }
                }
                Ok(Next::Answer(Some(answer))) => {
                    let mut again = self.handle_answer(&answer)?;
                    // The publisher handles all answers that have arrived before it sends more, because each
                    // answer makes room in the window.
                    while let Some(answer) = self.answers.arrived() {
                        again |= self.handle_answer(&answer)?;
                    }
                    if again {
                        self.send_again()?;
                    }
                    progress.show(self.acked);
                }
                Ok(Next::Silence) | Ok(Next::Answer(None)) | Err(Stop::Lost) => self.recover()?,
                Err(Stop::Interrupted(why)) => return Err(why.into()),
                Err(stop) => return Err(stop.into()),
            }
        }
    }

    fn silence_max(&self) -> Duration {
        match self.client.waits() {
            true => SILENCE,
            false => PATIENCE,
        }
    }

    fn has_room(&self) -> bool {
        !self.probing && self.window.len() < UNACKED_MAX && self.bytes < UNACKED_BYTES_MAX
    }

    /// Sends the next message of the source. Returns false at the end of the source, so that the loop takes
    /// no more.
    fn take(&mut self, line: Option<Line>, single: bool) -> anyhow::Result<bool> {
        let number = self.done + self.window.len() as u64;
        let bytes_max = self.client.max_payload();
        let (payload, open) = match line {
            None => return Ok(false),
            Some(Line::Closed(payload)) => (payload, false),
            Some(Line::Open(payload)) => (payload, true),
            Some(Line::TooLong) => {
                self.refused = Some((number + 1, too_long(bytes_max)));
                return Ok(false);
            }
        };
        let fits = |marks| self.header_bytes(number, marks) + payload.len() <= bytes_max;
        // A header may push the message over the server's limit. The publisher then leaves out headers, first
        // the mark of an open line, although `tidegate consume` then adds a line feed. Next it leaves out an
        // id that the user did not ask for, although it cannot send the message again without one.
        let wanted = Marks { id: true, open };
        let fewer = Marks {
            id: self.id.is_some(),
            open: false,
        };
        let without_mark = Marks {
            id: true,
            open: false,
        };
        let mut choices = [wanted, without_mark, fewer].into_iter();
        let marks = match choices.find(|marks| fits(*marks)) {
            Some(marks) => marks,
            None if single => without_mark,
            None => {
                let why = match payload.len() > bytes_max {
                    true => too_long(bytes_max),
                    false => {
                        format!("too long to have an id within the server's {bytes_max} bytes")
                    }
                };
                self.refused = Some((number + 1, why));
                return Ok(false);
            }
        };
        if self.window.is_empty() {
            self.heard = self.now;
        }
        self.bytes += payload.len();
        self.window.push_back(Some(Unacked {
            payload,
            marks,
            sent: self.now,
            again: false,
        }));
        self.send(number)?;
        Ok(true)
    }

    /// Sends message `number`, unless the stream has acknowledged the message already.
    fn send(&mut self, number: u64) -> Result<(), Stop> {
        let at = self.at(number);
        let Some(Some(unacked)) = self.window.get(at) else {
            return Ok(());
        };
        let headers = self.headers(number, unacked.marks);
        let reply = format!("{}{number}", self.inbox);
        let payload = unacked.payload.clone();
        match self
            .client
            .publish_with(self.subject.clone(), reply, headers, payload)
        {
            // The publisher's next wait also finds the loss of the connection, and handles it.
            Err(Stop::Lost) => Ok(()),
            outcome => outcome,
        }
    }

    fn headers(&self, number: u64, marks: Marks) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if marks.id {
            headers.insert(NATS_MESSAGE_ID, format!("{}{}", self.prefix, number + 1));
        }
        if marks.open {
            headers.insert(OPEN_LINE.0, OPEN_LINE.1);
        }
        headers
    }

    /// Returns the number of bytes of the header block of message `number`, which count towards the server's
    /// limit.
    fn header_bytes(&self, number: u64, marks: Marks) -> usize {
        let line = |name: &str, value| name.len() + ": \r\n".len() + value;
        let mut bytes = 0;
        if marks.id {
            let digits = (number + 1).ilog10() as usize + 1;
            bytes += line("Nats-Msg-Id", self.prefix.len() + digits);
        }
        if marks.open {
            bytes += line(OPEN_LINE.0, OPEN_LINE.1.len());
        }
        match bytes {
            0 => 0,
            lines => "NATS/1.0\r\n\r\n".len() + lines,
        }
    }

    /// Handles the stream's answer to a message. Returns true if the publisher has to send messages again.
    fn handle_answer(&mut self, message: &Message) -> anyhow::Result<bool> {
        let number = message.subject.strip_prefix(self.inbox.as_str());
        let Some(number) = number.and_then(|n| n.parse::<u64>().ok()) else {
            return Ok(false);
        };
        let at = number.checked_sub(self.done);
        let slot = at.and_then(|at| self.window.get_mut(usize::try_from(at).ok()?));
        let Some(slot) = slot else {
            return Ok(false);
        };
        let ack = match message.status {
            Some(StatusCode::NO_RESPONDERS) => Err("no stream takes this subject now".to_owned()),
            Some(code) => bail!("the server answers line {} with {code}", number + 1),
            None => {
                let ack: PubAck = serde_json::from_slice(&message.payload)
                    .context("an acknowledgement cannot be read")?;
                match ack.error {
                    None => Ok((ack.seq, ack.duplicate)),
                    // No node leads the stream at the moment, so the publisher sends the message again later.
                    Some(error) if error.passes() => Err(error.to_string()),
                    Some(error) => {
                        self.refuse(number, error.to_string());
                        return Ok(false);
                    }
                }
            }
        };
        match ack {
            Ok((seq, duplicate)) => {
                if let Some(unacked) = slot.take() {
                    self.bytes -= unacked.payload.len();
                    self.acked += 1;
                    self.duplicates += u64::from(duplicate && !unacked.again);
                    let (first, last) = self.seqs.unwrap_or((seq, seq));
                    self.seqs = Some((first.min(seq), last.max(seq)));
                    self.heard = self.now;
                    self.order.handle_stored(number, seq);
                }
                self.advance();
                // The stream stores messages again, so the publisher sends all other unacknowledged messages.
                Ok(std::mem::take(&mut self.probing))
            }
            Err(why) => {
                let waited = self.heard.elapsed();
                if waited >= self.client.patience() {
                    self.refuse(number, why);
                    return Ok(false);
                }
                // The stream refuses the messages behind the oldest for the same reason, so the publisher
                // regards only its answer to the oldest message.
                if !self.probing || number == self.done {
                    self.probing = true;
                    self.pause()?;
                    self.send_oldest()?;
                }
                Ok(false)
            }
        }
    }

    /// Records that the stream refused message `number`, which ends the run: the publisher reads no more of
    /// the source, and only waits for the answers to the messages already sent.
    fn refuse(&mut self, number: u64, why: String) {
        let at = self.at(number);
        if let Some(unacked) = self.window.get_mut(at).and_then(Option::take) {
            self.bytes -= unacked.payload.len();
        }
        let first = self.refused.as_ref().is_none_or(|(line, _)| number < *line);
        if first {
            self.refused = Some((number + 1, why));
        }
        self.advance();
    }

    fn advance(&mut self) {
        while self.window.front().is_some_and(Option::is_none) {
            self.window.pop_front();
            self.done += 1;
        }
    }

    /// Connects again after a lost connection or a silent stream, and sends the oldest unacknowledged
    /// message, to find out if the stream stores messages again.
    fn recover(&mut self) -> anyhow::Result<()> {
        if self.heard.elapsed() >= self.client.patience() && !self.window.is_empty() {
            return Err(Stop::Silent(self.heard.elapsed()).into());
        }
        self.answers = self.client.resubscribe(&format!("{}>", self.inbox), None)?;
        if !self.window.is_empty() {
            self.probing = true;
            self.send_oldest()?;
        }
        Ok(())
    }

    fn send_oldest(&mut self) -> anyhow::Result<()> {
        self.resend(self.done)
    }

    /// Sends every unacknowledged message again, in order, because the stream may have lost them.
    fn send_again(&mut self) -> anyhow::Result<()> {
        (self.done..self.done + self.window.len() as u64).try_for_each(|n| self.resend(n))
    }

    fn resend(&mut self, number: u64) -> anyhow::Result<()> {
        let (at, window) = (self.at(number), self.duplicate_window);
        let Some(Some(unacked)) = self.window.get_mut(at) else {
            return Ok(());
        };
        if !unacked.marks.id {
            bail!(
                "line {} is too long for an id: it may be stored",
                number + 1
            );
        }
        if unacked.sent.elapsed() >= window {
            let seconds = window.as_secs();
            bail!("the stream remembers ids for {seconds} s, too short for this interruption");
        }
        unacked.again = true;
        Ok(self.send(number)?)
    }

    /// Returns the index of message `number` in `window`, the messages that the publisher has sent and keeps.
    fn at(&self, number: u64) -> usize {
        usize::try_from(number - self.done).unwrap_or(usize::MAX)
    }

    fn pause(&self) -> Result<(), Stop> {
        let pause = async { tokio::time::sleep(PAUSE).await };
        match self.client.wait(Duration::MAX, pause) {
            // The publisher's next wait also finds the loss of the connection, and handles it.
            Err(Stop::Lost) => Ok(()),
            outcome => outcome,
        }
    }

    /// Returns the line that the command prints after a success, or the error that counts the unacknowledged
    /// messages.
    fn report(&self, outcome: anyhow::Result<()>, source: &Source) -> anyhow::Result<String> {
        let sent = self.done + self.window.len() as u64;
        let lost = match (outcome, &self.refused) {
            (Err(e), _) if interrupt::caused(&e) => {
                return Err(e.context(self.counted("interrupted", sent)));
            }
            (Err(e), _) => format!("{e:#}"),
            (Ok(()), Some((_, why))) if source.is_single() => {
                bail!("{why}: the message is not stored")
            }
            (Ok(()), Some((line, why))) => format!("line {line}: {why}"),
            // After Ctrl-C the source ends early, so its end does not mean that the input has ended.
            (Ok(()), None) if self.acked == sent && !interrupt::asked() => {
                let mut said = format!("published {sent} to {}", self.subject);
                match self.seqs {
                    Some((first, last)) if first == last => {
                        said += &format!(", acked by {} as {first}", self.stream);
                    }
                    Some((first, last)) => {
                        said += &format!(", acked by {} as {first} to {last}", self.stream);
                    }
                    None => {}
                }
                if self.duplicates > 0 {
                    said += &format!(", {} of them there before", self.duplicates);
                }
                if let Some(number) = self.order.displaced {
                    let line = number + 1;
                    said += &format!("; line {line} or more stand behind later ones");
                }
                return Ok(said);
            }
            (Ok(()), None) => {
                return Err(anyhow!(Interrupted).context(self.counted("interrupted", sent)));
            }
        };
        bail!(self.counted(&lost, sent))
    }

    /// Returns the text of an error for the user: the cause, the counts of messages, and the way to continue.
    fn counted(&self, lost: &str, sent: u64) -> String {
        let again = match self.id {
            Some(_) => "run again with the same --id: the server stores no message twice",
            None => "a second run would store acknowledged messages a second time (see --id)",
        };
        let (acked, not) = (self.acked, sent - self.acked);
        format!("{lost}; {acked} are acked, {not} sent are not; {again}")
    }
}

/// Returns the result of `future` if it is ready, without a wait.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    futures_util::FutureExt::now_or_never(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn displaced(stored: &[(u64, u64)]) -> Option<u64> {
        let mut order = Order::default();
        for (number, seq) in stored {
            order.handle_stored(*number, *seq);
        }
        order.displaced
    }

    #[test]
    fn a_message_behind_a_later_one_is_found() {
        assert_eq!(displaced(&[(0, 1), (1, 2), (2, 5), (3, 9)]), None);
        // The answers of the stream arrive in another order than the messages were sent, and no message is
        // displaced.
        assert_eq!(displaced(&[(1, 2), (0, 1), (3, 4), (2, 3)]), None);
        // The publisher sent lines 1 and 2 again after the stream had lost them, so they stand behind later
        // lines.
        assert_eq!(
            displaced(&[(0, 1), (3, 2), (4, 3), (1, 4), (2, 5)]),
            Some(1)
        );
        assert_eq!(displaced(&[(0, 1), (1, 4), (3, 2)]), Some(1));
    }
}
