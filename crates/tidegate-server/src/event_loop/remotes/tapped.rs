//! The messages of one origin in another cluster, read by a consumer there that the source names. A client
//! has created that consumer, with the ack policy `flow_control`.
//!
//! The feed listens at the consumer's deliver subject, and resets the consumer when it begins. The numbers of
//! the deliveries, which begin at 1 then, show each loss on the way; the feed then begins again. It answers
//! flow control only once the stream has all messages for good that the feed has got, because the answer lets
//! a work queue remove them. So a crash on either side loses no message. It repeats deliveries, and the feed
//! leaves out those up to the progress of the stream.

use std::time::Duration;

use async_nats::{HeaderMap, Message, Subscriber};
use futures_util::StreamExt as _;
use tidegate_stream::schema::config::OriginConsumer;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::Progress;
use tokio::time::{Instant, timeout_at};

use super::connections::Open;
use super::feed::{Delivery, Facts, check_last, delivery, parcel};
use crate::streams::origins::giving::{ANSWER_BYTES, ANSWER_MESSAGES, HELD};
use crate::streams::taking::{Answer, Request};

/// The time without a message and without a heartbeat after which the feed takes the consumer for gone. The
/// consumer sends a heartbeat each second, also while it is paused.
const SILENT: Duration = Duration::from_secs(5);
/// The time for which the feed waits for further messages once it has one, so that an intake has several.
const MORE: Duration = Duration::from_millis(5);
const LAST_CONSUMER: &str = "Nats-Last-Consumer";
const LAST_STREAM: &str = "Nats-Last-Stream";
const STALLED: &str = "Nats-Consumer-Stalled";

/// The reading of one origin by a consumer there.
#[derive(Default)]
pub(super) struct Tapped {
    /// The subscription to the consumer's messages; `None` before the first read and after a loss.
    bound: Option<Bound>,
}

struct Bound {
    consumer: OriginConsumer,
    messages: Subscriber,
    /// The number of times that the client library had connected when the feed subscribed. A cut connection
    /// may have lost messages.
    connects: u64,
    headers_only: bool,
    /// The time at which the feed last got a message or a heartbeat.
    heard: Instant,
    /// The number up to which the stream has what the feed has handed out.
    at: StreamSeq,
    /// The number of the last delivery that the feed has got, and of its message in the stream; 0 before the
    /// first one.
    got: u64,
    last: StreamSeq,
    /// The subject at which the consumer waits for an answer to its last flow control request.
    flow: Option<String>,
}

/// The deliveries that the feed has gathered.
#[derive(Default)]
struct Gathered {
    messages: Vec<(Delivery, Message)>,
    /// True if a delivery is missing, or the connection was cut.
    broken: bool,
}

impl Tapped {
    /// Answers a request with the messages that follow its progress `from`. Waits up to [`HELD`] for the
    /// first one, unless the stream has taken in nothing yet.
    pub(super) async fn answer(
        &mut self,
        remote: &Open,
        request: &Request,
        consumer: &OriginConsumer,
        facts: &Facts,
        from: Option<Progress>,
    ) -> Result<Answer, ApiError> {
        let at = from.map_or(StreamSeq::ZERO, |from| from.seq);
        let bound = self.bound.take().filter(|bound| {
            bound.consumer == *consumer && bound.at == at && bound.connects == remote.connects()
        });
        let mut bound = match bound {
            Some(bound) => bound,
            None => {
                check_last(remote, request, from).await?;
                bind(remote, request, consumer, at).await?
            }
        };
        let logged = request
            .logged
            .filter(|logged| logged.origin == facts.identity);
        let logged = logged.map_or(StreamSeq::ZERO, |logged| logged.seq);
        bound.acknowledge(remote, logged).await?;
        let held = match request.logged {
            Some(_) => HELD,
            None => Duration::ZERO,
        };
        let gathered = bound.gather(remote, logged, Instant::now() + held).await?;
        if gathered.broken && gathered.messages.is_empty() {
            return Err(
                remote.trouble(&"it lost messages on the way, and this server begins again")
            );
        }
        if bound.heard.elapsed() > SILENT {
            let why = format_args!(
                "consumer {} has sent nothing for {} s: it may be gone, or deliver elsewhere",
                consumer.name,
                SILENT.as_secs()
            );
            return Err(remote.trouble(&why));
        }
        let to = gathered.messages.last().map_or(at, |(last, _)| last.seq);
        let exact = !bound.headers_only;
        let parcel = parcel(remote, &request.source.name, gathered.messages, exact).await;
        bound.at = to;
        self.bound = Some(bound).filter(|_| !gathered.broken);
        let to = Progress {
            origin: facts.identity,
            seq: to,
        };
        Ok(parcel.into_answer(request.from, to, facts.last.max(to.seq)))
    }
}

/// Subscribes to the consumer's messages, and resets the consumer to the first message that is not
/// acknowledged.
async fn bind(
    remote: &Open,
    request: &Request,
    consumer: &OriginConsumer,
    at: StreamSeq,
) -> Result<Bound, ApiError> {
    let (connects, to) = (remote.connects(), consumer.deliver_subject.clone());
    let subscribed = remote.client.subscribe(to).await;
    let messages = subscribed.map_err(|error| remote.trouble(&error))?;
    let flushed = remote.client.flush().await;
    flushed.map_err(|error| remote.trouble(&error))?;
    let reset = format!("CONSUMER.RESET.{}.{}", request.source.name, consumer.name);
    let info = remote.ask(&reset, String::new()).await?;
    let config = &info["config"];
    if config["ack_policy"] != "flow_control" {
        return Err(match request.is_mirror {
            true => ApiError::MIRROR_CONSUMER_NEEDS_FLOW_ACKS,
            false => ApiError::SOURCE_CONSUMER_NEEDS_FLOW_ACKS,
        });
    }
    if config["deliver_subject"] != consumer.deliver_subject.as_str() {
        return Err(remote.trouble(&format_args!(
            "consumer {} delivers to {}, and the configuration of this stream names '{}'",
            consumer.name, config["deliver_subject"], consumer.deliver_subject
        )));
    }
    Ok(Bound {
        consumer: consumer.clone(),
        messages,
        connects,
        headers_only: config["headers_only"] == true,
        heard: Instant::now(),
        at,
        got: 0,
        last: StreamSeq::ZERO,
        flow: None,
    })
}

impl Bound {
    /// Answers the last flow control request, if the stream has all messages that the feed has got: if it has
    /// all of them up to `logged`.
    async fn acknowledge(&mut self, remote: &Open, logged: StreamSeq) -> Result<(), ApiError> {
        let Some(flow) = self.flow.take_if(|_| self.last <= logged) else {
            return Ok(());
        };
        let mut headers = HeaderMap::new();
        headers.insert(LAST_CONSUMER, self.got.to_string().as_str());
        headers.insert(LAST_STREAM, self.last.to_string().as_str());
        let client = &remote.client;
        let sent = client.publish_with_headers(flow, headers, "".into()).await;
        sent.map_err(|error| remote.trouble(&error))
    }

    /// Gathers the next messages. Waits for the first one until `until`, and answers flow control requests
    /// that come before it.
    async fn gather(
        &mut self,
        remote: &Open,
        logged: StreamSeq,
        until: Instant,
    ) -> Result<Gathered, ApiError> {
        let (mut gathered, mut bytes) = (Gathered::default(), 0);
        loop {
            let wait = match gathered.messages.is_empty() {
                true => until,
                false => Instant::now() + MORE,
            };
            let message = match timeout_at(wait, self.messages.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => {
                    gathered.broken = true;
                    break;
                }
                Err(_) => break,
            };
            self.heard = Instant::now();
            match message.status.map(|status| status.as_u16()) {
                Some(100) => {
                    gathered.broken = !self.handle_control(&message);
                    if gathered.messages.is_empty() {
                        self.acknowledge(remote, logged).await?;
                    }
                    if gathered.broken || self.flow.is_some() {
                        break;
                    }
                    continue;
                }
                Some(_) => continue,
                None => {}
            }
            // A subject without numbers is not the consumer's, but that of a client which publishes here.
            let Some(delivery) = message.reply.as_ref().and_then(|reply| delivery(reply)) else {
                continue;
            };
            if delivery.delivered != 1 && delivery.delivered != self.got + 1 {
                if self.got == 0 {
                    // The consumer sent this message before its reset.
                    continue;
                }
                gathered.broken = true;
                break;
            }
            (self.got, self.last) = (delivery.delivered, delivery.seq);
            let behind = gathered
                .messages
                .last()
                .map_or(self.at, |(last, _)| last.seq);
            if delivery.seq <= behind {
                continue;
            }
            let pending = delivery.pending;
            bytes += message.length;
            gathered.messages.push((delivery, message));
            let is_full = gathered.messages.len() >= ANSWER_MESSAGES || bytes >= ANSWER_BYTES;
            if pending == 0 || is_full {
                break;
            }
        }
        gathered.broken |= remote.connects() != self.connects;
        Ok(gathered)
    }

    /// Handles a flow control request or a heartbeat. Returns whether the feed has got all deliveries that
    /// the heartbeat counts.
    fn handle_control(&mut self, message: &Message) -> bool {
        if let Some(reply) = &message.reply {
            self.flow = Some(reply.to_string());
            return true;
        }
        let header = |name: &str| message.headers.as_ref()?.get(name);
        if let Some(flow) = header(STALLED) {
            self.flow = Some(flow.as_str().to_owned());
        }
        let sent = header(LAST_CONSUMER).and_then(|sent| sent.as_str().parse().ok());
        sent.is_none_or(|sent: u64| sent == self.got)
    }
}
