//! Measures how long commands take that remove many messages of a stream with a million subjects, and how
//! long the largest part of the work takes that they leave, so that a slow event loop shows.
//!
//!     cargo run --release -p tidegate-stream --example large_removals

use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::stream::{AccountLimits, Command, Effect, Encoder, Kind, Streams};

const MESSAGES: u64 = 1_000_000;
/// The number of the stream that this program fills.
const ONE: StreamNumber = StreamNumber::FIRST;

/// The streams of a node, which the program fills and then removes messages from.
struct Filled {
    streams: Streams,
    lsn: u64,
}

impl Filled {
    /// Fills a stream with a million messages, each with a subject of its own if `distinct` is true. `more`
    /// adds settings to the stream's configuration.
    fn new(distinct: bool, more: &serde_json::Value) -> Self {
        let mut filled = Self {
            streams: Streams::new(AccountLimits::NONE),
            lsn: 0,
        };
        filled.command(Kind::CreateStream, StreamNumber::NONE, &config(more));
        for first in (0..MESSAGES).step_by(500) {
            filled.apply(|entry| {
                for n in first..first + 500 {
                    let subject = match distinct {
                        true => format!("attack.{n}.{}", n % 2),
                        false => "attack.x.x".to_owned(),
                    };
                    let added = entry.publish(ONE, subject.as_bytes(), None, b"xx");
                    added.expect("the entry has room for 500 small messages");
                }
            });
        }
        filled
    }

    fn apply(&mut self, write: impl FnOnce(&mut Encoder<'_, Vec<u8>>)) -> (Duration, Vec<Effect>) {
        let (mut entry, mut out, mut effects) = (Vec::new(), Vec::new(), Vec::new());
        write(&mut Encoder::begin(&mut entry, 1_000_000));
        let entry = Bytes::from(entry);
        self.lsn += 64 * 1024;
        let start = Instant::now();
        let applied = self.streams.apply(self.lsn, &entry, &mut out, &mut effects);
        applied.expect("this program writes entries that this version knows");
        (start.elapsed(), effects)
    }

    fn command(
        &mut self,
        kind: Kind,
        stream: StreamNumber,
        payload: &serde_json::Value,
    ) -> (Duration, Vec<Effect>) {
        let payload = payload.to_string();
        let command = Command::new(kind, stream, b"", payload.as_bytes());
        self.apply(|entry| {
            entry.command(&command).expect("a command fits an entry");
        })
    }
}

fn config(more: &serde_json::Value) -> serde_json::Value {
    let mut config = json!({"name": "S", "subjects": ["attack.>"]});
    for (key, value) in more.as_object().into_iter().flatten() {
        config[key] = value.clone();
    }
    config
}

fn main() {
    let none = json!({});
    let memory = json!({"storage": "memory"});
    let cases = [
        (
            "purge of every second subject",
            true,
            &none,
            Kind::Purge,
            json!({"filter": "attack.*.1"}),
        ),
        (
            "prepared purge of every second subject",
            true,
            &none,
            Kind::Purge,
            json!({"filter": "attack.*.1"}),
        ),
        (
            "purge of every second subject in memory",
            true,
            &memory,
            Kind::Purge,
            json!({"filter": "attack.*.1"}),
        ),
        (
            "max_msgs_per_subject raised to 5",
            true,
            &none,
            Kind::UpdateStream,
            config(&json!({"max_msgs_per_subject": 5})),
        ),
        (
            "purge of one subject",
            true,
            &none,
            Kind::Purge,
            json!({"filter": "attack.7.1"}),
        ),
        (
            "purge of half by number",
            true,
            &none,
            Kind::Purge,
            json!({"seq": MESSAGES / 2}),
        ),
        (
            "purge of all but 10",
            true,
            &none,
            Kind::Purge,
            json!({"keep": 10}),
        ),
        (
            "max_msgs lowered to 1, one subject",
            false,
            &none,
            Kind::UpdateStream,
            config(&json!({"max_msgs": 1})),
        ),
        (
            "max_msgs lowered to 1, many subjects",
            true,
            &none,
            Kind::UpdateStream,
            config(&json!({"max_msgs": 1})),
        ),
        (
            "max_bytes lowered to 1000",
            true,
            &none,
            Kind::UpdateStream,
            config(&json!({"max_bytes": 1000})),
        ),
        (
            "max_msgs_per_subject lowered to 1",
            false,
            &none,
            Kind::UpdateStream,
            config(&json!({"max_msgs_per_subject": 1})),
        ),
        ("deletion", true, &none, Kind::DeleteStream, none.clone()),
    ];
    let only = std::env::args().nth(1).unwrap_or_default();
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    for (name, distinct, more, kind, payload) in cases {
        if !name.contains(&only) {
            continue;
        }
        let mut filled = Filled::new(distinct, more);
        if name.contains("prepared") {
            let (mut most, all) = (Duration::ZERO, Instant::now());
            filled.streams.foresee(ONE, "attack.*.1");
            while filled.streams.is_foreseeing() {
                let start = Instant::now();
                filled.streams.go_on_foreseeing(8192);
                most = most.max(start.elapsed());
            }
            println!(
                "    prepared in {:.2} ms, each part in {:.2} ms or less",
                ms(all.elapsed()),
                ms(most)
            );
        }
        let (took, effects) = filled.command(kind, ONE, &payload);
        let start = Instant::now();
        drop(effects);
        let dropped = start.elapsed();
        let (mut most, mut parts, all) = (Duration::ZERO, 0, Instant::now());
        while filled.streams.is_reclaiming() {
            let start = Instant::now();
            filled.streams.reclaim(1);
            most = most.max(start.elapsed());
            parts += 1;
        }
        println!(
            "{name:40} {:7.2} ms, effects dropped in {:6.2} ms, {parts:5} parts in {:7.2} ms, at most {:.2} ms",
            ms(took),
            ms(dropped),
            ms(all.elapsed()),
            ms(most)
        );
    }
}
