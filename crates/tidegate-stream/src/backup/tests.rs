//! Tests that this program reads backups of real nats-servers and its own, and refuses damaged ones.
//!
//! Both nats-servers had an equal stream `ORDERS` when they made the backups: ten messages `orders.1` to
//! `orders.10` with headers, and thirty messages `orders.big` of 3,000 bytes. A client had deleted messages
//! 3, 7 and 40, purged the first one, and created two consumers.

use super::*;

const NEW: &[u8] = include_bytes!("tests/nats-server-2.15.s2");
const OLD: &[u8] = include_bytes!("tests/nats-server-2.12.s2");

fn read(stream: &str, bytes: &[u8], part: usize) -> Result<Vec<Item>, BackupError> {
    let mut reader = Reader::new(stream);
    let mut items = Vec::new();
    let mut parts = bytes.chunks(part.max(1));
    loop {
        match reader.step()? {
            Step::Item(item) => {
                let end = item == Item::End;
                items.push(item);
                if end {
                    return Ok(items);
                }
            }
            Step::On => {}
            Step::Hungry => match parts.next() {
                Some(part) => reader.feed(part),
                None => reader.finish(),
            },
        }
    }
}

/// Checks that the items are those of the stream `ORDERS`: its messages and its two consumers.
fn check(items: &[Item]) {
    let removed: Vec<u64> = items
        .iter()
        .filter_map(|item| match item {
            Item::Removed(seq, _) => Some(seq.get()),
            _ => None,
        })
        .collect();
    let messages = items.iter().filter_map(|item| match item {
        Item::Message(m) if m.seq.get() > 1 && !removed.contains(&m.seq.get()) => Some(m),
        _ => None,
    });
    let messages: Vec<&Message> = messages.collect();
    let seqs: Vec<u64> = messages.iter().map(|m| m.seq.get()).collect();
    let expected = (2..=39).filter(|seq| ![3, 7].contains(seq));
    assert_eq!(seqs, expected.collect::<Vec<u64>>());
    assert_eq!(messages[0].subject, b"orders.2");
    assert_eq!(messages[0].payload, b"message 2");
    assert_eq!(
        String::from_utf8_lossy(&messages[0].headers),
        "NATS/1.0\r\nX-N: 2\r\nNats-Msg-Id: id2\r\n\r\n"
    );
    assert_eq!(
        (messages[35].payload.len(), messages[35].headers.len()),
        (3000, 0)
    );
    assert!(messages.is_sorted_by_key(|m| m.time_ns));
    let consumers = items.iter().filter_map(|item| match item {
        Item::Consumer(consumer) => Some(consumer),
        _ => None,
    });
    let mut consumers: Vec<&Consumer> = consumers.map(|c| &**c).collect();
    consumers.sort_by_key(|c| &c.name);
    assert_eq!(consumers.len(), 2);
    assert_eq!((&*consumers[0].name, &*consumers[1].name), ("FILT", "PULL"));
    assert_eq!(consumers[0].config.filter_subject, "orders.big");
    assert_eq!(consumers[0].progress.delivered, (5, 15));
    assert_eq!(consumers[0].progress.ack_floor, (5, 15));
    let pull = &consumers[1].progress;
    assert_eq!((pull.delivered, pull.ack_floor), ((7, 10), (4, 6)));
    let unacked = pull.unacked.iter().map(|u| (u.seq, u.delivery, u.count));
    assert_eq!(
        unacked.collect::<Vec<_>>(),
        [(8, 5, 1), (9, 6, 1), (10, 7, 1)]
    );
}

#[test]
fn a_backup_of_nats_server_2_15() {
    for part in [1, 100, NEW.len()] {
        let items = read("ORDERS", NEW, part).unwrap();
        check(&items);
        let Item::Stream(facts) = &items[0] else {
            panic!("{:?}", items[0]);
        };
        assert_eq!(facts.first_seq, Some(StreamSeq::new(2)));
        assert_eq!(facts.last_seq, Some(StreamSeq::new(40)));
    }
}

#[test]
fn a_backup_of_an_earlier_nats_server() {
    for part in [1, 100, OLD.len()] {
        let items = read("ORDERS", OLD, part).unwrap();
        check(&items);
        let Item::Stream(facts) = &items[0] else {
            panic!("{:?}", items[0]);
        };
        assert!(facts.created_us.is_some());
    }
    let other = read("OTHER", OLD, 1000);
    assert_eq!(other, Err(BackupError::Name("ORDERS".to_owned())));
}

#[test]
fn a_cut_or_damaged_backup_is_refused() {
    for backup in [NEW, OLD] {
        let whole = read("ORDERS", backup, 10_000);
        for len in 0..backup.len() {
            // The reader ignores bytes behind the end mark, so a cut there gives the whole backup.
            let cut = read("ORDERS", &backup[..len], 10_000);
            assert!(cut.is_err() || cut == whole, "{len}");
        }
        for at in (0..backup.len()).step_by(7) {
            let mut damaged = backup.to_vec();
            damaged[at] ^= 0x20;
            let read = read("ORDERS", &damaged, 10_000);
            // A damaged offset may point to equal bytes elsewhere, and then the reader gets the right bytes.
            assert!(read.is_err() || read == whole, "{at}");
        }
    }
}

#[test]
fn a_written_backup_comes_back() {
    let mut writer = Writer::default();
    let state = crate::stream::StreamState {
        messages: 2,
        bytes: 100,
        first_seq: StreamSeq::new(5),
        last_seq: StreamSeq::new(9),
        first_time_us: 7,
        last_time_us: 1_700_000_000_000_000,
        ..Default::default()
    };
    let summary = Summary {
        state,
        created_us: 1_600_000_000_000_001,
        consumers: 1,
    };
    writer.begin(1, &summary);
    let config = crate::schema::config::ConsumerConfig {
        name: "C".into(),
        ..Default::default()
    };
    let position = crate::consumer::State::starting_at(StreamSeq::new(6));
    writer.consumer(
        1,
        &ConsumerFacts {
            name: "C",
            created_us: 3,
            config: &config,
            state: &position,
        },
    );
    let large = vec![b'x'; 200_000];
    writer.message(
        StreamSeq::new(5),
        7,
        b"a.b",
        b"NATS/1.0\r\nA: b\r\n\r\n",
        b"",
    );
    writer.message(StreamSeq::new(8), 8, b"c", b"", &large);
    writer.end();
    let mut bytes = Vec::new();
    while writer.ready_bytes() > 0 {
        bytes.extend_from_slice(&writer.take(1000));
    }
    let items = read("S", &bytes, 999).unwrap();
    assert_eq!(items.len(), 5);
    assert_eq!(
        items[0],
        Item::Stream(StreamFacts {
            created_us: Some(1_600_000_000_000_001),
            first_seq: Some(StreamSeq::new(5)),
            last_seq: Some(StreamSeq::new(9)),
            last_time_us: Some(1_700_000_000_000_000),
        })
    );
    let Item::Consumer(consumer) = &items[1] else {
        panic!("{:?}", items[1]);
    };
    assert_eq!(
        (consumer.created_us, consumer.progress.delivered),
        (Some(3), (0, 5))
    );
    let Item::Message(last) = &items[3] else {
        panic!("{:?}", items[3]);
    };
    assert_eq!(
        (last.seq.get(), last.time_ns, &last.payload),
        (8, 8000, &large)
    );
}
