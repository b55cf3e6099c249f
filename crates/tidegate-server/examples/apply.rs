//! Measures how streams apply messages of 128 bytes: without arguments, the time of each, with few and many
//! subjects; with a number of messages and one of subjects, the memory that so many messages take, and the
//! time that a snapshot of them takes.
//!
//!     cargo run --release -p tidegate-server --example apply
//!     cargo run --release -p tidegate-server --example apply 10000000 1000

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Filter, Kind, Streams};

const BATCH: usize = 256;
const PAYLOAD: [u8; 128] = [b'x'; 128];
/// The number of messages that a subject keeps: as many as there are.
const ALL: i64 = -1;

fn main() {
    let number = |arg: String| arg.parse().expect("expected a number");
    let numbers: Vec<usize> = std::env::args().skip(1).map(number).collect();
    // This measurement has a process of its own, because it would otherwise reuse the memory that another
    // measurement gave back.
    if let [messages, subjects] = numbers[..] {
        big(messages, subjects);
        return;
    }
    println!("apply, plain publishes of 128 bytes, {BATCH} an entry:");
    for subjects in [1, 1000, 1_000_000] {
        for (kept, what) in [(ALL, "all kept"), (1, "one a subject kept")] {
            let round = || nanos(publish(1_000_000, subjects, kept).1, 1_000_000);
            let mut rounds: Vec<f64> = (0..3).map(|_| round()).collect();
            rounds.sort_by(f64::total_cmp);
            println!(
                "  {subjects:>8} subjects, {what:<20} {:>6.0} ns a message",
                rounds[1]
            );
        }
    }
}

fn big(messages: usize, subjects: usize) {
    let before = resident_bytes();
    let (mut streams, took) = publish(messages, subjects, ALL);
    let resident = resident_bytes().saturating_sub(before);
    let stream = streams.get(StreamNumber::FIRST).expect("it was made");
    let state = stream.state();
    println!("{messages} messages, {} subjects:", state.num_subjects);
    println!("  {:.0} ns a message", nanos(took, messages));
    println!(
        "  {:.1} bytes a message counted, {:.1} resident",
        stream.memory_bytes() as f64 / messages as f64,
        resident as f64 / messages as f64
    );
    let at = Instant::now();
    let mut pattern = Filter::new(["s.7", "s.8"]);
    let found = stream.count_from(StreamSeq::new(2), &mut pattern);
    println!("  counting {found} wanted: {:?}", at.elapsed());
    let at = Instant::now();
    let snapshot = streams.snapshot();
    println!("  taking a snapshot: {:?}", at.elapsed());
    let at = Instant::now();
    let bytes: Vec<u8> = snapshot.clone().chunks().flatten().collect();
    println!(
        "  encoding it: {:?}, {:.1} bytes a message",
        at.elapsed(),
        bytes.len() as f64 / messages as f64
    );
    drop(snapshot);
    let at = Instant::now();
    let restored = Streams::restore(&bytes, AccountLimits::NONE).expect("it was just made");
    println!("  restoring it: {:?}", at.elapsed());
    drop((restored, bytes));
    let at = Instant::now();
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, 1);
    let purge = Command::new(Kind::Purge, StreamNumber::FIRST, b"", b"{}");
    encoder.command(&purge).expect("it fits");
    apply(&mut streams, 1 << 60, entry.into());
    println!("  purging all: {:?}", at.elapsed());
}

/// Creates streams with this number of messages, and returns the time that the streams took to apply them.
fn publish(messages: usize, subjects: usize, kept: i64) -> (Streams, Duration) {
    let mut streams = Streams::new(AccountLimits::NONE);
    let config = StreamConfig {
        name: "S".to_owned(),
        subjects: vec!["s.>".to_owned()],
        max_msgs_per_subject: kept,
        ..StreamConfig::default()
    };
    let config = serde_json::to_vec(&config).expect("plain data");
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, 1);
    let create = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", &config);
    encoder.command(&create).expect("it fits");
    apply(&mut streams, 0, entry.into());
    let (mut took, mut lsn, mut subject) = (Duration::ZERO, 64, 0_usize);
    let mut name = Vec::new();
    for batch in 0..messages.div_ceil(BATCH) {
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, 1_700_000_000_000_000 + batch as u64);
        for _ in 0..BATCH.min(messages - batch * BATCH) {
            // The subjects jump about, so that a million subjects do not come in order.
            subject = (subject + 611_953) % subjects;
            name.clear();
            name.extend_from_slice(b"s.");
            name.extend_from_slice(subject.to_string().as_bytes());
            encoder
                .publish(StreamNumber::FIRST, &name, None, &PAYLOAD)
                .expect("it fits");
        }
        let len = entry.len() as u64;
        let entry = Bytes::from(entry);
        let at = Instant::now();
        apply(&mut streams, lsn, entry);
        took += at.elapsed();
        lsn += len.next_multiple_of(8) + 32;
    }
    (streams, took)
}

fn apply(streams: &mut Streams, lsn: u64, entry: Bytes) {
    let (mut out, mut effects) = (Vec::with_capacity(BATCH), Vec::with_capacity(2 * BATCH));
    streams
        .apply(lsn, &entry, &mut out, &mut effects)
        .expect("well-formed");
}

fn nanos(took: Duration, messages: usize) -> f64 {
    took.as_nanos() as f64 / messages as f64
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.unwrap_or(0) * rustix::param::page_size()
}
