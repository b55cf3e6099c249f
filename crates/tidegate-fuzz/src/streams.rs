//! A fuzz target for the streams' state machine. The target applies entries with any commands. Each command
//! must get an outcome or an error, and the streams must keep their invariants. A snapshot of the streams
//! must restore the same streams.

use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::stream::{AccountLimits, Encoder, Kind, Placement, Streams, VERSION};

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(bytes: &[u8]) {
    // The target first restores streams from the input as if it were a snapshot. If it is no snapshot, the
    // restore must return an error and not panic.
    let _ = Streams::restore(bytes, AccountLimits::NONE);
    let mut streams = Streams::new(AccountLimits::NONE);
    let (mut out, mut effects) = (Vec::new(), Vec::new());
    let mut first = Vec::new();
    let mut encoder = Encoder::begin(&mut first, 1);
    let config = br#"{"name":"S","subjects":["s.>"],"allow_atomic":true,"allow_rollup_hdrs":true,"allow_msg_ttl":true,"max_age":9000000000,"max_msgs_per_subject":3}"#;
    let create =
        tidegate_stream::stream::Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config);
    encoder.command(&create).expect("it fits");
    // The target also creates a stream that another group keeps, so that the directory only has its entry,
    // and a stream that belongs to another directory.
    for (kept, config) in [
        (
            Placement::Elsewhere {
                group: GroupId::new(7),
            },
            &br#"{"name":"E","subjects":["e"]}"#[..],
        ),
        (
            Placement::Of(DirectoryNumber::new(9)),
            br#"{"name":"O","subjects":["o"]}"#,
        ),
    ] {
        let subject = kept.encode();
        let create = tidegate_stream::stream::Command::new(
            Kind::CreateStream,
            StreamNumber::NONE,
            &subject,
            config,
        );
        encoder.command(&create).expect("it fits");
    }
    // Streams 4 and 5 keep messages only for their consumers, so that the input can test both kinds of
    // retention.
    for config in [
        br#"{"name":"Q","subjects":["q.>"],"retention":"workqueue"}"#,
        &br#"{"name":"I","subjects":["i.>"],"retention":"interest"}"#[..],
    ] {
        let none = StreamNumber::NONE;
        let create =
            tidegate_stream::stream::Command::new(Kind::CreateRetaining, none, b"", config);
        encoder.command(&create).expect("it fits");
    }
    // Stream 6 is a mirror, and stream 7 has sources, so that the input can test streams with origins.
    for config in [
        br#"{"name":"M","mirror":{"name":"ORIGIN","filter_subject":"origin.*"}}"#,
        &br#"{"name":"F","sources":[{"name":"ORIGIN"},{"name":"OTHER","opt_start_seq":5}]}"#[..],
    ] {
        let none = StreamNumber::NONE;
        let create =
            tidegate_stream::stream::Command::new(Kind::CreateWithOrigins, none, b"", config);
        encoder.command(&create).expect("it fits");
    }
    // Stream 8 takes in messages by a consumer of its origin, and stream 4 has a consumer that takes
    // acknowledgements by flow control.
    let by_consumer =
        br#"{"name":"B","sources":[{"name":"Q","consumer":{"name":"C","deliver_subject":"d"}}]}"#;
    let consumer = br#"{"config":{"name":"C","ack_policy":"flow_control","deliver_subject":"d"}}"#;
    for (kind, stream, subject, payload) in [
        (Kind::CreateByConsumers, 0, &b""[..], &by_consumer[..]),
        (Kind::CreateFlowConsumer, 4, &b"C"[..], &consumer[..]),
    ] {
        let stream = StreamNumber::new(stream);
        let command = tidegate_stream::stream::Command::new(kind, stream, subject, payload);
        encoder.command(&command).expect("it fits");
    }
    streams
        .apply(8, &first.into(), &mut out, &mut effects)
        .expect("it is well-formed");
    // The input consists of entries, each behind its length in two bytes. The target corrects the header of
    // each entry, so that the streams decode the commands in it.
    let (mut rest, mut lsn) = (bytes, 64_u64);
    while let Some((len, tail)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes(*len));
        let (entry, tail) = tail.split_at(tail.len().min(len));
        rest = tail;
        let mut whole = vec![VERSION, 0, 0, 0, 0, 0, 0, 0];
        whole.extend_from_slice(entry);
        (lsn, out) = (lsn + 256, Vec::new());
        if streams
            .apply(lsn, &whole.into(), &mut out, &mut effects)
            .is_err()
        {
            break;
        }
        streams.check_invariants();
    }
    let bytes: Vec<u8> = streams.snapshot().chunks().flatten().collect();
    if let Ok(again) = Streams::restore(&bytes, AccountLimits::NONE) {
        again.check_invariants();
        assert!(again.snapshot().chunks().flatten().eq(bytes));
    }
}
