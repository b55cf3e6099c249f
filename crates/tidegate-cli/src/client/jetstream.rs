//! Sends requests to the JetStream API (`$JS.API`) and parses the answers, for the commands of streams.
//!
//! Answers stay JSON, so that `--json` prints the server's own answer. [`StreamInfo`] and [`ConsumerInfo`]
//! hold the parts that the commands read. A refusal of the server becomes an error.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Value, json};

use super::connection::Client;

/// The pause between two requests while no node leads the streams, so that the client does not load the
/// nodes.
const PAUSE: Duration = Duration::from_millis(250);

/// The error with which the server's JetStream API refuses a request.
#[derive(Debug, Deserialize, thiserror::Error)]
#[error("{description} ({err_code})")]
pub(super) struct ApiError {
    #[serde(default)]
    err_code: u16,
    #[serde(default)]
    description: String,
}

impl ApiError {
    /// Returns whether the same request may succeed soon, because no node leads the stream at the moment or
    /// the stream's node is away.
    pub(super) fn passes(&self) -> bool {
        /// The server's error code for "JetStream system temporarily unavailable".
        const UNAVAILABLE: u16 = 10008;
        /// The server's error code for "stream is offline".
        const OFFLINE: u16 = 10118;
        matches!(self.err_code, UNAVAILABLE | OFFLINE)
    }
}

/// Sends a request to `$JS.API.<what>` and returns the server's answer.
///
/// # Errors
/// An [`ApiError`], no server that answers the request, or an answer that is not JSON.
pub(super) fn ask(client: &mut Client, what: &str, body: &Value) -> anyhow::Result<Value> {
    let text = if body.is_null() {
        Vec::new()
    } else {
        serde_json::to_vec(body)?
    };
    let Some(answer) = client.request(&format!("$JS.API.{what}"), text)? else {
        bail!("the server has no JetStream: there is no answer to $JS.API");
    };
    let mut value: Value = serde_json::from_slice(&answer.payload)
        .with_context(|| format!("the answer to {what} is no JSON"))?;
    match value.get_mut("error").map(Value::take) {
        Some(error) => Err(serde_json::from_value::<ApiError>(error)?.into()),
        None => Ok(value),
    }
}

/// Returns the name of the stream that stores messages on `subject`; `None` if no stream does or the server
/// has no JetStream. While no node leads the streams, asks again for as long as the client's patience lasts.
///
/// # Errors
/// No node leads the streams for too long, or an answer that is not JSON.
pub(super) fn stream_of(client: &mut Client, subject: &str) -> anyhow::Result<Option<String>> {
    #[derive(Deserialize)]
    struct Names {
        streams: Option<Vec<String>>,
        error: Option<ApiError>,
    }
    let body = serde_json::to_vec(&json!({ "subject": subject }))?;
    let begun = Instant::now();
    loop {
        let Some(answer) = client.request("$JS.API.STREAM.NAMES", body.clone())? else {
            return Ok(None);
        };
        let names = serde_json::from_slice::<Names>(&answer.payload).context("STREAM.NAMES")?;
        match names.error {
            Some(error) if error.passes() && begun.elapsed() < client.patience() => {
                let pause = async { tokio::time::sleep(PAUSE).await };
                client.wait(Duration::MAX, pause)?;
            }
            Some(error) if error.passes() => return Err(error.into()),
            // Another error has no names: JetStream is off for this user.
            _ => return Ok(names.streams.unwrap_or_default().into_iter().next()),
        }
    }
}

/// Returns the infos of all streams, or of the streams that store `subject`. Asks page by page, because the
/// server limits the length of one answer.
pub(super) fn streams(client: &mut Client, subject: Option<&str>) -> anyhow::Result<Vec<Value>> {
    let mut all = Vec::new();
    loop {
        let mut body = json!({ "offset": all.len() });
        if let Some(subject) = subject {
            body["subject"] = json!(subject);
        }
        let mut page = ask(client, "STREAM.LIST", &body)?;
        let total = page["total"].as_u64().unwrap_or(0);
        let streams = page["streams"].take();
        let Value::Array(streams) = streams else {
            break;
        };
        if streams.is_empty() {
            break;
        }
        all.extend(streams);
        if all.len() as u64 >= total {
            break;
        }
    }
    Ok(all)
}

/// A stream's info as the server answers it, with the fields that the text output shows. Other fields appear
/// only in the JSON output.
#[derive(Debug, Deserialize)]
pub(super) struct StreamInfo {
    pub(super) config: StreamConfig,
    #[serde(default)]
    pub(super) created: String,
    pub(super) state: StreamState,
}

#[derive(Debug, Deserialize)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) subjects: Vec<String>,
    pub(super) retention: String,
    pub(super) discard: String,
    pub(super) storage: String,
    pub(super) num_replicas: u64,
    pub(super) max_consumers: i64,
    pub(super) max_msgs: i64,
    pub(super) max_bytes: i64,
    pub(super) max_msgs_per_subject: i64,
    pub(super) max_msg_size: i64,
    pub(super) max_age: u64,
    pub(super) duplicate_window: u64,
    #[serde(flatten)]
    pub(super) rest: BTreeMap<String, Value>,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self {
            name: String::new(),
            description: String::new(),
            subjects: Vec::new(),
            retention: String::new(),
            discard: String::new(),
            storage: String::new(),
            num_replicas: 1,
            max_consumers: -1,
            max_msgs: -1,
            max_bytes: -1,
            max_msgs_per_subject: -1,
            max_msg_size: -1,
            max_age: 0,
            duplicate_window: 0,
            rest: BTreeMap::new(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct StreamState {
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) first_seq: u64,
    pub(super) first_ts: String,
    pub(super) last_seq: u64,
    pub(super) last_ts: String,
    pub(super) consumer_count: u64,
    pub(super) num_subjects: u64,
    pub(super) num_deleted: u64,
}

/// The fields of a consumer's info that `tidegate consume` needs.
#[derive(Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    pub(super) name: String,
    pub(super) config: ConsumerConfig,
    #[serde(default)]
    pub(super) num_ack_pending: u64,
    #[serde(default)]
    pub(super) num_pending: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ConsumerConfig {
    pub(super) ack_policy: String,
    /// The time in nanoseconds after which the server delivers an unacknowledged message again.
    pub(super) ack_wait: u64,
    pub(super) deliver_subject: Option<String>,
    pub(super) filter_subject: String,
    pub(super) filter_subjects: Vec<String>,
}
