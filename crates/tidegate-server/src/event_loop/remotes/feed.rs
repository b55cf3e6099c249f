//! The messages of one origin in another cluster, read in the order of their numbers.
//!
//! The feed reads by a pull consumer of the other cluster. The consumer needs no acknowledgements and
//! disappears by itself. The numbers in its deliveries show each loss on the way; the feed then makes a new
//! consumer that begins behind the last message that the stream has. The feed refuses an origin that removes
//! messages once a consumer has got them, because a crash could lose them on the way. If the source names a
//! consumer of the origin, [`super::tapped`] reads by that one, also such an origin.

use std::time::Duration;

use async_nats::{HeaderMap, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tidegate_stream::schema::config::StreamSource;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::schema::timestamp::Timestamp;
use tidegate_stream::stream::{Origin, Progress, Row};
use tokio::time::{Instant, timeout};

use super::connections::{Connections, Open};
use super::tapped::Tapped;
use crate::streams::origins::giving::{ANSWER_BYTES, ANSWER_MESSAGES, HELD};
use crate::streams::origins::parcel::Parcel;
use crate::streams::taking::{Answer, Request};

/// The time without a pull after which the other cluster removes the consumer, in nanoseconds.
const INACTIVE_NS: u64 = 60_000_000_000;
/// The time beyond a pull's own for which the feed waits for the other cluster.
const LATE: Duration = Duration::from_secs(2);
/// The time after which a feed that waits for a message looks if the connection was cut meanwhile.
const LOOK: Duration = Duration::from_millis(50);
/// The number of messages for which the feed asks for the headers at a time.
const HEADERS_AT_ONCE: usize = 64;

/// The reading of one origin.
#[derive(Default)]
pub(super) struct Feed {
    /// The consumer in the other cluster; `None` before the first read and after a loss.
    consumer: Option<Consumer>,
    /// The reading by a consumer that the source names.
    tapped: Tapped,
}

struct Consumer {
    remote: String,
    stream: String,
    name: String,
    /// The number from which the consumer's next message follows.
    next: Option<StreamSeq>,
    /// The number of messages that the consumer has delivered and the feed has got.
    got: u64,
}

/// The facts about the origin from its info.
pub(super) struct Facts {
    pub(super) identity: Origin,
    first: StreamSeq,
    pub(super) last: StreamSeq,
}

/// The messages of one pull.
#[derive(Default)]
struct Pulled {
    messages: Vec<(Delivery, Message)>,
    /// True if the next message alone is larger than the pull asked for.
    too_large: bool,
    /// True if the consumer does not exist any more, or has lost messages.
    broken: bool,
}

/// The numbers with which a consumer delivers a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) seq: StreamSeq,
    pub(super) delivered: u64,
    time_us: u64,
    pub(super) pending: u64,
}

impl Feed {
    /// Answers a request with the messages that follow its progress. Waits up to [`HELD`] for the first one,
    /// unless the stream has taken in nothing yet.
    pub(super) async fn answer(
        &mut self,
        connections: &Connections,
        request: &Request,
    ) -> Result<Answer, ApiError> {
        let name = request.source.external.as_ref().and_then(|e| e.remote());
        let remote = connections.open(name.unwrap_or_default()).await?;
        let facts = facts(&remote, &request.source).await?;
        let from = request.from.filter(|from| from.origin == facts.identity);
        let taken_up = |logged: Progress| logged.origin != facts.identity;
        if request.is_mirror && request.logged.is_some_and(taken_up) {
            return Err(ApiError::mirror_failed(format_args!(
                "stream {} of remote {} was deleted and created again: create the mirror again, too",
                request.source.name, remote.name
            )));
        }
        if let Some(from) = from.filter(|from| from.seq > facts.last) {
            let why = format!(
                "stream {} ends at message {}, before message {} which this stream has: the remote has lost messages",
                request.source.name, facts.last, from.seq
            );
            return Err(remote.trouble(&why));
        }
        if let Some(consumer) = &request.source.consumer {
            self.close_in(&remote);
            let tapped = &mut self.tapped;
            return tapped
                .answer(&remote, request, consumer, &facts, from)
                .await;
        }
        let next = from.map(|from| from.seq.next());
        if self
            .consumer
            .as_ref()
            .is_none_or(|c| c.next != next || next.is_none())
        {
            self.close_in(&remote);
            check_last(&remote, request, from).await?;
            self.consumer = Some(begin(&remote, &request.source, next).await?);
        }
        let mut pulled = self.pull(&remote, ANSWER_MESSAGES, Duration::ZERO).await?;
        if pulled.messages.is_empty() && !pulled.broken && request.logged.is_some() {
            pulled = self.pull(&remote, 1, HELD).await?;
        }
        if pulled.too_large && pulled.messages.is_empty() {
            pulled = self.pull(&remote, 0, HELD).await?;
        }
        if pulled.broken && pulled.messages.is_empty() {
            self.close_in(&remote);
            check_last(&remote, request, from).await?;
            let start = next.or_else(|| first_of(&request.source, &facts));
            return single(&remote, request, &facts, start).await;
        }
        let last = pulled.messages.last().map(|(delivery, _)| delivery.seq);
        let to = match last {
            Some(seq) => seq,
            None if self.has_all(&remote).await? => facts
                .last
                .max(from.map_or(StreamSeq::ZERO, |from| from.seq)),
            // Messages are under way, and the next request gets them. The origin has removed those before its
            // first one.
            None if from.is_some() => facts
                .first
                .prev()
                .max(from.map_or(StreamSeq::ZERO, |from| from.seq)),
            None => return Err(remote.trouble(&"its first messages are late")),
        };
        let parcel = parcel(&remote, &request.source.name, pulled.messages, true).await;
        if pulled.broken {
            self.close_in(&remote);
        } else if let Some(consumer) = &mut self.consumer {
            consumer.next = Some(to.next());
        }
        let to = Progress {
            origin: facts.identity,
            seq: to,
        };
        Ok(parcel.into_answer(request.from, to, facts.last.max(to.seq)))
    }

    /// Removes the consumer from the other cluster.
    pub(super) async fn close(&mut self, connections: &Connections) {
        let Some(consumer) = &self.consumer else {
            return;
        };
        if let Ok(remote) = connections.open(&consumer.remote).await {
            self.close_in(&remote);
        }
    }

    /// Removes the consumer. If the request gets lost, the consumer disappears by itself later.
    fn close_in(&mut self, remote: &Open) {
        let Some(consumer) = self.consumer.take() else {
            return;
        };
        let subject = format!(
            "{}.CONSUMER.DELETE.{}.{}",
            remote.api, consumer.stream, consumer.name
        );
        let client = remote.client.clone();
        tokio::task::spawn_local(async move {
            let _ = client.publish(subject, "".into()).await;
        });
    }

    /// Asks for up to `batch` messages, and waits up to `wait` for them. A batch of 0 asks for one message of
    /// any size.
    async fn pull(
        &mut self,
        remote: &Open,
        batch: usize,
        wait: Duration,
    ) -> Result<Pulled, ApiError> {
        let mut pulled = Pulled::default();
        let Some(consumer) = &mut self.consumer else {
            pulled.broken = true;
            return Ok(pulled);
        };
        let inbox = remote.client.new_inbox();
        let subscribed = remote.client.subscribe(inbox.clone()).await;
        let mut messages = subscribed.map_err(|error| remote.trouble(&error))?;
        let mut body = json!({ "batch": batch.max(1) });
        if batch > 0 {
            body["max_bytes"] = ANSWER_BYTES.into();
        }
        match wait.is_zero() {
            true => body["no_wait"] = true.into(),
            false => body["expires"] = (wait.as_nanos() as u64).into(),
        }
        let subject = format!(
            "{}.CONSUMER.MSG.NEXT.{}.{}",
            remote.api, consumer.stream, consumer.name
        );
        let asked = remote
            .client
            .publish_with_reply(subject, inbox, body.to_string().into());
        asked.await.map_err(|error| remote.trouble(&error))?;
        let (deadline, connects) = (Instant::now() + wait + LATE, remote.connects());
        let mut bytes = 0;
        loop {
            let message = match timeout(LOOK, messages.next()).await {
                Ok(Some(message)) => message,
                Err(_) if Instant::now() < deadline && remote.connects() == connects => continue,
                // The other cluster answers each pull in time. So the connection was cut, perhaps by the
                // client library, which cannot read some messages.
                _ => {
                    pulled.broken = true;
                    break;
                }
            };
            match message.status.map(|status| status.as_u16()) {
                None => {}
                Some(100) => continue,
                Some(404 | 408) => break,
                Some(409) => {
                    let text = message.description.as_deref().unwrap_or_default();
                    pulled.too_large = text.contains("MaxBytes");
                    pulled.broken = !pulled.too_large && !text.contains("Batch Completed");
                    break;
                }
                Some(_) => {
                    pulled.broken = true;
                    break;
                }
            }
            let delivery = message.reply.as_ref().and_then(|reply| delivery(reply));
            let Some(delivery) = delivery.filter(|d| d.delivered == consumer.got + 1) else {
                pulled.broken = true;
                break;
            };
            consumer.got += 1;
            bytes += message.length;
            pulled.messages.push((delivery, message));
            let is_full = pulled.messages.len() >= batch || bytes >= ANSWER_BYTES;
            if delivery.pending == 0 || is_full {
                break;
            }
        }
        Ok(pulled)
    }

    /// Returns whether the feed has got each message that the consumer has to deliver.
    async fn has_all(&self, remote: &Open) -> Result<bool, ApiError> {
        let Some(consumer) = &self.consumer else {
            return Ok(false);
        };
        let request = format!("CONSUMER.INFO.{}.{}", consumer.stream, consumer.name);
        let info = remote.ask(&request, String::new()).await?;
        let delivered = info["delivered"]["consumer_seq"].as_u64();
        Ok(info["num_pending"] == 0 && delivered.unwrap_or(0) == consumer.got)
    }
}

/// Reads the info of the origin, and checks that this server can take in its messages.
async fn facts(remote: &Open, source: &StreamSource) -> Result<Facts, ApiError> {
    let stream = &source.name;
    let request = format!("STREAM.INFO.{stream}");
    let info = remote.ask(&request, String::new()).await?;
    let created = info["created"].as_str().and_then(Timestamp::parse);
    let (first, last) = (&info["state"]["first_seq"], &info["state"]["last_seq"]);
    let (Some(created), Some(first), Some(last)) = (created, first.as_u64(), last.as_u64()) else {
        return Err(remote
            .trouble(&"its info of the stream lacks the time of creation or the last message"));
    };
    let retention = info["config"]["retention"].as_str().unwrap_or("limits");
    if retention != "limits" && source.consumer.is_none() {
        let why = format!(
            "stream {stream} has retention {retention}, so messages could get lost on the way: take in streams with retention limits, or name a consumer with the ack policy flow_control"
        );
        return Err(remote.trouble(&why));
    }
    Ok(Facts {
        identity: Origin {
            number: DirectoryNumber::new(0),
            created_us: created.as_micros(),
        },
        first: StreamSeq::new(first),
        last: StreamSeq::new(last),
    })
}

/// Returns the number from which a source without progress takes in messages; `None` if the source names a
/// time.
fn first_of(source: &StreamSource, facts: &Facts) -> Option<StreamSeq> {
    match source.opt_start_time {
        _ if source.opt_start_seq > StreamSeq::ZERO => Some(source.opt_start_seq),
        Some(_) => None,
        None => Some(facts.first),
    }
}

/// Checks that the origin's message at the progress of a mirror is the mirror's last message. A remote that
/// came back with an old copy of its data may have given its number to another message.
pub(super) async fn check_last(
    remote: &Open,
    request: &Request,
    from: Option<Progress>,
) -> Result<(), ApiError> {
    let (Some(from), Some(last_us)) = (from, request.last_us) else {
        return Ok(());
    };
    let body = json!({ "seq": from.seq }).to_string();
    let name = &request.source.name;
    let found = remote.ask(&format!("STREAM.MSG.GET.{name}"), body).await;
    let time = found.ok().and_then(|answer| time_us(&answer));
    match time.is_some_and(|time| time != last_us) {
        true => Err(ApiError::mirror_failed(format_args!(
            "message {} of stream {name} of remote {} is another one than here: the remote has lost messages and given their numbers again, so create the mirror again, too",
            from.seq, remote.name
        ))),
        false => Ok(()),
    }
}

/// Returns the time of the message in an answer to a request for one message, in microseconds since 1970.
fn time_us(answer: &Value) -> Option<u64> {
    let time = answer["message"]["time"]
        .as_str()
        .and_then(Timestamp::parse);
    time.map(Timestamp::as_micros)
}

/// Answers a request with the next message alone, which the other cluster sends as JSON. The client library
/// cannot read some headers that a server stores, and cuts the connection at such a message.
async fn single(
    remote: &Open,
    request: &Request,
    facts: &Facts,
    start: Option<StreamSeq>,
) -> Result<Answer, ApiError> {
    let gone = || remote.trouble(&"its consumer is gone, and this server makes another one");
    let start = start.ok_or_else(gone)?;
    let filters: Vec<&str> = request.source.filters().collect();
    let filters = match filters.is_empty() {
        true => vec![">"],
        false => filters,
    };
    let subject = format!("STREAM.MSG.GET.{}", request.source.name);
    let mut next: Option<(u64, Value)> = None;
    for filter in filters {
        let body = json!({ "seq": start, "next_by_subj": filter }).to_string();
        let Ok(answer) = remote.ask(&subject, body).await else {
            continue;
        };
        let seq = answer["message"]["seq"].as_u64().unwrap_or(u64::MAX);
        if next.as_ref().is_none_or(|(least, _)| seq < *least) {
            next = Some((seq, answer));
        }
    }
    let (seq, answer) = next.ok_or_else(gone)?;
    let time_us = time_us(&answer).ok_or_else(gone)?;
    let message = &answer["message"];
    let decoded = |field: &str| message[field].as_str().map(|text| STANDARD.decode(text));
    let decoded = |field: &str| decoded(field).transpose().map_err(|_| gone());
    let (headers, payload) = (decoded("hdrs")?, decoded("data")?);
    let row = Row {
        seq: StreamSeq::new(seq),
        time_us,
    };
    let mut parcel = Parcel::default();
    let subject = message["subject"].as_str().unwrap_or_default().as_bytes();
    let (headers, payload) = (headers.unwrap_or_default(), payload.unwrap_or_default());
    parcel.add(row, subject, &headers, &payload);
    let to = Progress {
        origin: facts.identity,
        seq: row.seq,
    };
    Ok(parcel.into_answer(request.from, to, facts.last.max(to.seq)))
}

/// Creates the consumer that begins with message `next`, or where the configuration of the source says.
async fn begin(
    remote: &Open,
    source: &StreamSource,
    next: Option<StreamSeq>,
) -> Result<Consumer, ApiError> {
    // An inbox ends in a text that no other client has.
    let inbox = remote.client.new_inbox();
    let name = format!("tidegate-{}", inbox.rsplit('.').next().unwrap_or_default());
    let mut config = json!({
        "name": name,
        "description": "feeds a mirror or a source of a stream elsewhere",
        "ack_policy": "none",
        "max_deliver": -1,
        "mem_storage": true,
        "inactive_threshold": INACTIVE_NS,
    });
    let first = next.or_else(|| Some(source.opt_start_seq).filter(|seq| *seq > StreamSeq::ZERO));
    if let Some(first) = first {
        config["deliver_policy"] = "by_start_sequence".into();
        config["opt_start_seq"] = first.get().into();
    } else if let Some(time) = source.opt_start_time {
        config["deliver_policy"] = "by_start_time".into();
        config["opt_start_time"] = json!(time);
    } else {
        config["deliver_policy"] = "all".into();
    }
    let filters: Vec<&str> = source.filters().collect();
    match filters.as_slice() {
        [] => {}
        [filter] => config["filter_subject"] = (*filter).into(),
        _ => config["filter_subjects"] = json!(filters),
    }
    let stream = source.name.clone();
    let body = json!({ "stream_name": stream, "config": config, "action": "create" });
    let request = format!("CONSUMER.CREATE.{stream}.{name}");
    remote.ask(&request, body.to_string()).await?;
    Ok(Consumer {
        remote: remote.name.clone(),
        stream,
        name,
        next,
        got: 0,
    })
}

/// Gathers the messages for the answer. The client library sorts headers and trims their values, so the feed
/// asks for the headers as the origin stores them, if the stream wants them so (`exact`).
pub(super) async fn parcel(
    remote: &Open,
    stream: &str,
    messages: Vec<(Delivery, Message)>,
    exact: bool,
) -> Parcel {
    let with_headers = messages
        .iter()
        .filter(|(_, m)| exact && m.headers.is_some());
    let numbers: Vec<StreamSeq> = with_headers.map(|(delivery, _)| delivery.seq).collect();
    let request = format!("STREAM.MSG.GET.{stream}");
    let fetched = futures_util::stream::iter(numbers)
        .map(|seq| {
            let body = json!({ "seq": seq }).to_string();
            let answer = remote.ask(&request, body);
            async move { Some((seq, block(&answer.await.ok()?)?)) }
        })
        .buffer_unordered(HEADERS_AT_ONCE)
        .filter_map(|found| async { found });
    let fetched: std::collections::BTreeMap<StreamSeq, Vec<u8>> = fetched.collect().await;
    let mut parcel = Parcel::default();
    for (delivery, message) in messages {
        let row = Row {
            seq: delivery.seq,
            time_us: delivery.time_us,
        };
        // The origin may have removed the message meanwhile.
        let read = || message.headers.as_ref().map(written).unwrap_or_default();
        let headers = fetched.get(&delivery.seq).cloned().unwrap_or_else(read);
        parcel.add(row, message.subject.as_bytes(), &headers, &message.payload);
    }
    parcel
}

/// Returns the headers in an answer to a request for one message.
fn block(answer: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(answer["message"]["hdrs"].as_str()?).ok()
}

/// Writes headers as the protocol carries them, in the order of their names.
fn written(headers: &HeaderMap) -> Vec<u8> {
    let mut lines: Vec<String> = headers
        .iter()
        .flat_map(|(name, values)| {
            values
                .iter()
                .map(move |value| format!("{name}: {value}\r\n"))
        })
        .collect();
    lines.sort();
    format!("NATS/1.0\r\n{}\r\n", lines.concat()).into_bytes()
}

/// Reads the subject at which a client acknowledges a message:
/// `$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.TRIES.SEQ.DELIVERED.TIME.PENDING[.TOKEN]`.
pub(super) fn delivery(reply: &str) -> Option<Delivery> {
    let tokens: Vec<&str> = reply.split('.').collect();
    let numbers = match tokens.len() {
        9 => &tokens[5..9],
        11.. => &tokens[7..11],
        _ => return None,
    };
    let number = |at: usize| numbers[at].parse::<u64>().ok();
    Some(Delivery {
        seq: StreamSeq::new(number(0)?),
        delivered: number(1)?,
        time_us: number(2)? / 1000,
        pending: number(3)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_subjects_of_acknowledgements_have_two_forms() {
        let expected = Delivery {
            seq: StreamSeq::new(20),
            delivered: 7,
            time_us: 1_700_000_000_000_001,
            pending: 3,
        };
        let old = "$JS.ACK.S.C.1.20.7.1700000000000001999.3";
        let new = "$JS.ACK.hub.Account.S.C.1.20.7.1700000000000001999.3.token";
        assert_eq!(
            (delivery(old), delivery(new)),
            (Some(expected), Some(expected))
        );
        assert_eq!(delivery("$JS.ACK.S.C.1.20.7.x.3"), None);
        assert_eq!(delivery("_INBOX.a"), None);
    }

    #[test]
    fn headers_have_one_form() {
        let mut headers = HeaderMap::new();
        headers.append("B", "2");
        headers.append("A", "1");
        headers.append("A", "0");
        assert_eq!(
            written(&headers),
            b"NATS/1.0\r\nA: 0\r\nA: 1\r\nB: 2\r\n\r\n"
        );
    }
}
