//! Makes the configuration of a new stream from the flags of `tidegate stream add`, for the request to create
//! it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::{Common, names};
use crate::values;

/// The arguments with which the user runs `tidegate stream add`. The server chooses each setting without a
/// flag.
#[derive(Args, Debug)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Create a stream of this name.
    pub(super) name: String,
    /// Store messages that clients publish to these subjects, which may have wildcards; separated by commas,
    /// or one flag each. Default: the stream's name.
    #[arg(long, value_name = "PATTERN", value_delimiter = ',')]
    subjects: Vec<String>,
    /// Choose where the server keeps the messages. The server acknowledges messages in memory without a sync,
    /// and loses these messages when the server ends. Default: file.
    #[arg(long, value_enum)]
    storage: Option<Storage>,
    /// Describe the purpose of the stream, for people who list the streams.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Keep the stream on this many nodes of the cluster, so that the stream survives the loss of some of
    /// them.
    #[arg(long, value_name = "N", value_parser = values::replicas)]
    replicas: Option<u8>,
    /// Choose when the server removes messages: only at the limits of the stream, after a worker has
    /// acknowledged them (workqueue), or after all interested consumers have acknowledged them (interest).
    /// Default: limits.
    #[arg(long, value_enum)]
    retention: Option<Retention>,
    /// Remove the oldest messages (old) or refuse new messages (new) when the stream reaches --max-msgs or
    /// --max-bytes. Default: old.
    #[arg(long, value_enum)]
    discard: Option<Discard>,
    /// Refuse also new messages on a subject that has reached --max-msgs-per-subject, instead of removing the
    /// subject's oldest message. Needs --discard new.
    #[arg(long)]
    discard_per_subject: bool,
    /// Remove messages at this age, such as 500ms, 30s, 5m, 2h or 7d, to free their space.
    #[arg(long, value_name = "DURATION", value_parser = values::some_time)]
    max_age: Option<Duration>,
    /// Keep at most this many messages in the stream, to bound its size; -1 sets no limit. At this limit
    /// --discard applies.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::limit)]
    max_msgs: Option<i64>,
    /// Keep at most this many bytes in the stream, such as 512M or 10GB: K, M, G and T are powers of 1024, as
    /// in the `nats` program. At this limit --discard applies.
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    max_bytes: Option<u64>,
    /// Refuse messages of more bytes than this, headers included, such as 64K, so that a few messages cannot
    /// fill the stream.
    #[arg(long, value_name = "BYTES", value_parser = values::bytes)]
    max_msg_size: Option<u64>,
    /// Keep at most this many messages of each subject; -1 sets no limit. At this limit the server removes
    /// the oldest message of the subject, or refuses the new message with --discard-per-subject.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::limit)]
    max_msgs_per_subject: Option<i64>,
    /// Allow at most this many consumers of the stream, to bound the server's work; -1 sets no limit.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = values::limit)]
    max_consumers: Option<i64>,
    /// Skip messages with the Nats-Msg-Id of a message that the stream stored within this time, so that a
    /// publisher can send a message again safely.
    #[arg(long, value_name = "DURATION", value_parser = values::some_time)]
    dupe_window: Option<Duration>,
    /// Let publishers replace all earlier messages of the stream or of a subject by one message with the
    /// header Nats-Rollup, to keep only a summary.
    #[arg(long)]
    allow_rollup: bool,
    /// Let publishers set the age limit of a message, with the header Nats-TTL, so that the stream removes
    /// the message earlier than the others.
    #[arg(long)]
    allow_msg_ttl: bool,
    /// Let clients read single messages directly from any node of the stream, without a consumer.
    #[arg(long)]
    allow_direct: bool,
    /// Let publishers send batches of messages that the server stores as a whole or not at all, for changes
    /// that belong together.
    #[arg(long)]
    allow_batch: bool,
    /// Refuse clients' requests to delete single messages, so that the stream keeps its history.
    #[arg(long)]
    deny_delete: bool,
    /// Refuse clients' requests to purge the stream, that is to remove many messages at once, so that the
    /// stream keeps its history.
    #[arg(long)]
    deny_purge: bool,
    /// Take the configuration of the stream from this file, JSON as `tidegate stream info --json` prints it,
    /// to copy a stream. Flags override the file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Storage {
    File,
    Memory,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Retention {
    Limits,
    Interest,
    Workqueue,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Discard {
    Old,
    New,
}

impl AddArgs {
    /// Returns the configuration for the request to create the stream, as JSON.
    pub(super) fn config(&self) -> anyhow::Result<Value> {
        for subject in &self.subjects {
            names::word("--subjects", subject)?;
        }
        let mut config = match &self.config {
            None => json!({}),
            Some(path) => {
                let text = std::fs::read(path).with_context(|| path.display().to_string())?;
                let mut value: Value =
                    serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
                // The file may hold a stream's whole info, which contains the configuration as one of its
                // fields.
                match value.get_mut("config") {
                    Some(config) => config.take(),
                    None => value,
                }
            }
        };
        anyhow::ensure!(config.is_object(), "the configuration is no JSON object");
        config["name"] = json!(self.name);
        let word = |value: Option<String>| value.map(|v| json!(v));
        let flag = |value: bool| value.then_some(Value::Bool(true));
        let number = |value: Option<i64>| value.map(|v| json!(v));
        let nanos = |value: Option<Duration>| {
            value.map(|v| json!(u64::try_from(v.as_nanos()).unwrap_or(u64::MAX)))
        };
        let subjects = Some(&self.subjects).filter(|s| !s.is_empty());
        let said = [
            ("subjects", subjects.map(|s| json!(s))),
            ("description", word(self.description.clone())),
            ("storage", word(name_of(self.storage))),
            ("retention", word(name_of(self.retention))),
            ("discard", word(name_of(self.discard))),
            ("discard_new_per_subject", flag(self.discard_per_subject)),
            ("num_replicas", self.replicas.map(|n| json!(n))),
            ("max_age", nanos(self.max_age)),
            ("max_msgs", number(self.max_msgs)),
            ("max_bytes", self.max_bytes.map(|n| json!(n))),
            ("max_msg_size", self.max_msg_size.map(|n| json!(n))),
            ("max_msgs_per_subject", number(self.max_msgs_per_subject)),
            ("max_consumers", number(self.max_consumers)),
            ("duplicate_window", nanos(self.dupe_window)),
            ("allow_rollup_hdrs", flag(self.allow_rollup)),
            ("allow_msg_ttl", flag(self.allow_msg_ttl)),
            ("allow_direct", flag(self.allow_direct)),
            ("allow_atomic", flag(self.allow_batch)),
            ("deny_delete", flag(self.deny_delete)),
            ("deny_purge", flag(self.deny_purge)),
        ];
        for (key, value) in said {
            if let Some(value) = value {
                config[key] = value;
            }
        }
        // The server has no defaults for these settings, so the command sends the defaults of other NATS
        // clients.
        for (key, default) in [
            ("retention", "limits"),
            ("discard", "old"),
            ("storage", "file"),
        ] {
            if config.get(key).is_none() {
                config[key] = json!(default);
            }
        }
        Ok(config)
    }
}

/// Returns the name of a flag's value on the command line, which is also its name in JSON.
fn name_of<T: ValueEnum>(value: Option<T>) -> Option<String> {
    Some(value?.to_possible_value()?.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Just {
        #[command(flatten)]
        add: AddArgs,
    }

    #[test]
    fn flags_become_a_configuration() {
        let args = "x S --subjects a.*,b --storage memory --max-age 7d --max-bytes 1MB --max-msg-size 512k --dupe-window 30s --allow-batch";
        let config = Just::parse_from(args.split(' ')).add.config().unwrap();
        assert_eq!(
            config,
            json!({
                "name": "S", "subjects": ["a.*", "b"], "storage": "memory", "retention": "limits", "discard": "old",
                "max_age": 604_800_000_000_000_u64, "max_bytes": 1 << 20, "max_msg_size": 512 << 10,
                "duplicate_window": 30_000_000_000_u64,
                "allow_atomic": true,
            })
        );
    }
}
