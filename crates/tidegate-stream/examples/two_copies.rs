//! Shows replication: two nodes apply the same entries and have the same streams, and a third node starts
//! from a snapshot of one of them.
//!
//! Run the program by `cargo run -p tidegate-stream --example two_copies`.

use std::error::Error;

use bytes::Bytes;
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Command, Encoder, Kind, Streams};

/// Encodes two entries of a log: the first creates a stream, and the second stores three messages in it.
fn entries() -> Result<[Bytes; 2], Box<dyn Error>> {
    let config = StreamConfig {
        name: "ORDERS".into(),
        subjects: vec!["orders.>".into()],
        max_msgs: 2,
        ..StreamConfig::default()
    };
    let config = serde_json::to_vec(&config)?;
    let (mut create, mut messages) = (Vec::new(), Vec::new());
    let mut encoder = Encoder::begin(&mut create, 1_700_000_000_000_000);
    encoder.command(&Command::new(
        Kind::CreateStream,
        StreamNumber::NONE,
        b"",
        &config,
    ))?;
    let mut encoder = Encoder::begin(&mut messages, 1_700_000_000_500_000);
    for payload in ["tea", "salt", "rope"] {
        encoder.publish(StreamNumber::FIRST, b"orders.new", None, payload.as_bytes())?;
    }
    Ok([create.into(), messages.into()])
}

fn snapshot(streams: &Streams) -> Vec<u8> {
    streams.snapshot().chunks().flatten().collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut nodes = [(); 2].map(|()| Streams::new(AccountLimits::NONE));
    for streams in &mut nodes {
        let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
        // The position of an entry in the log, where the node would read the payloads later.
        let mut lsn = 0;
        for entry in &entries()? {
            streams.apply(lsn, entry, &mut outcomes, &mut effects)?;
            lsn += 4096;
        }
        println!("outcomes: {outcomes:?}");
    }
    let [first, second] = &nodes;
    assert_eq!(snapshot(first), snapshot(second));

    let third = Streams::restore(&snapshot(first), AccountLimits::NONE)?;
    let stream = third.taker(b"orders.new").ok_or("no stream")?;
    // The stream keeps two messages, so it has removed the oldest one.
    println!("{}: {:?}", stream.name(), stream.state());
    let state = stream.state();
    assert_eq!((state.messages, state.first_seq), (2, StreamSeq::new(2)));
    Ok(())
}
