//! Writes the facts about the server with which each message of the system account begins.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::{Value, json};
use tidegate_nats::connect::Info;
use time::OffsetDateTime;
use time::format_description::well_known::Iso8601;

use crate::config::Settings;

/// The flag in these facts by which a server says that it serves streams.
const SERVES_STREAMS: u64 = 1;

/// The facts about a server that seldom change, so that the event loop can write them without a report.
#[derive(Clone, Debug)]
pub(crate) struct ServerFacts {
    pub(crate) info: Info,
    pub(crate) domain: Option<String>,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl ServerFacts {
    /// Gathers the facts from the settings and the INFO of the server, so that each message can have them.
    pub(crate) fn new(settings: &Settings, info: &Info) -> Self {
        Self {
            info: info.clone(),
            domain: settings.streams.as_ref().and_then(|s| s.domain.clone()),
            tags: settings.tags.clone(),
            metadata: settings.metadata.clone(),
        }
    }

    /// Writes the facts as JSON with nats-server's names, for the message with the number `seq` at `now`.
    pub(crate) fn json(&self, seq: u64, now: SystemTime) -> Value {
        let info = &self.info;
        let mut out = json!({
            "name": info.server_name,
            "host": info.host,
            "id": info.server_id,
            "ver": info.version,
            "jetstream": info.jetstream,
            "flags": if info.jetstream { SERVES_STREAMS } else { 0 },
            "seq": seq,
            "time": rfc3339(now),
        });
        if let Some(cluster) = &info.cluster {
            out["cluster"] = cluster.as_str().into();
        }
        if let Some(domain) = &self.domain {
            out["domain"] = domain.as_str().into();
        }
        if !self.tags.is_empty() {
            out["tags"] = self.tags.clone().into();
        }
        if !self.metadata.is_empty() {
            out["metadata"] = json!(self.metadata);
        }
        out
    }
}

/// Writes a point in time as the API does, for answers and events.
pub(crate) fn rfc3339(at: SystemTime) -> String {
    let text = OffsetDateTime::from(at).format(&Iso8601::DEFAULT);
    text.expect("the system's clock shows a year of four digits")
}
