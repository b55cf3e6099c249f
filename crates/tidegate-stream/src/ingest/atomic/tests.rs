//! Tests of atomic batches: the server stages, commits, refuses and abandons them step by step, and random
//! batches never break an invariant.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

const S: StreamNumber = StreamNumber::new(7);

fn config() -> StreamConfig {
    StreamConfig {
        allow_atomic: true,
        ..StreamConfig::default()
    }
}

fn block(id: &str, seq: &str, commit: &str, more: &str) -> Vec<u8> {
    let mut block = format!("NATS/1.0\r\nNats-Batch-Id: {id}\r\n");
    if !seq.is_empty() {
        block += &format!("Nats-Batch-Sequence: {seq}\r\n");
    }
    if !commit.is_empty() {
        block += &format!("Nats-Batch-Commit: {commit}\r\n");
    }
    (block + more + "\r\n").into_bytes()
}

struct Client {
    atomic: Atomic,
    now: Time,
    config: StreamConfig,
}

impl Client {
    fn new() -> Self {
        Self::with(AtomicLimits::default())
    }

    fn with(limits: AtomicLimits) -> Self {
        Self {
            atomic: Atomic::new(limits),
            now: Time::from_nanos(0),
            config: config(),
        }
    }

    fn send_block(&mut self, block: &[u8]) -> Staged {
        let message = Incoming {
            subject: b"s.1",
            reply: b"inbox",
            headers: block,
            payload: b"xyz",
        };
        let id = batch_id(block).unwrap();
        let staged = self
            .atomic
            .handle_message(self.now, S, &self.config, id, &message);
        self.atomic.check_invariants();
        staged
    }

    fn send(&mut self, id: &str, seq: u64, commit: &str) -> Staged {
        self.send_block(&block(id, &seq.to_string(), commit, ""))
    }

    /// Sends a message that the server refuses. Returns the number of the error, and the reason if the server
    /// abandoned the batch.
    fn refused(&mut self, block: &[u8]) -> (u16, Option<Reason>) {
        match self.send_block(block) {
            Staged::Refused { error, abandoned } => {
                (error.err_code, abandoned.map(|batch| batch.reason))
            }
            other => panic!("{other:?}"),
        }
    }
}

fn committed(staged: Staged) -> AtomicBatch {
    match staged {
        Staged::Commit(batch) => batch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn committed_with_its_last_message() {
    let mut client = Client::new();
    assert_eq!(client.send("a", 1, ""), Staged::Waiting);
    assert_eq!(client.send("b", 1, ""), Staged::Waiting);
    assert_eq!(client.send("a", 2, ""), Staged::Waiting);
    let batch = committed(client.send("a", 3, "1"));
    assert_eq!((batch.stream, &*batch.id, batch.len()), (S, &b"a"[..], 3));
    let last = batch.messages().last().unwrap();
    assert_eq!(
        last,
        (&b"s.1"[..], Some(&*block("a", "3", "1", "")), &b"xyz"[..])
    );
    assert_eq!(client.atomic.open(), 1);
}

#[test]
fn committed_behind_its_last_message() {
    let mut client = Client::new();
    assert_eq!(client.send("a", 1, ""), Staged::Waiting);
    assert_eq!(client.send("a", 2, ""), Staged::Waiting);
    let batch = committed(client.send("a", 3, "eob"));
    let blocks: Vec<_> = batch
        .messages()
        .map(|(_, block, _)| block.unwrap().to_vec())
        .collect();
    // The batch must have the headers that nats-server stores for such a commit.
    assert_eq!(blocks, [block("a", "1", "", ""), block("a", "2", "1", "")]);
    assert_eq!(batch.messages().last().unwrap().2, b"xyz");
    assert_eq!((client.atomic.open(), client.atomic.bytes()), (0, 0));
}

#[test]
fn a_batch_of_one() {
    let mut client = Client::new();
    assert_eq!(committed(client.send("a", 1, "1")).len(), 1);
}

#[test]
fn refusals() {
    let mut client = Client::new();
    let incomplete = Some(Reason::Incomplete);
    let long = "x".repeat(65);
    for (id, seq, commit, more, expected) in [
        ("a", "2", "", "", (10176, None)),
        ("a", "1001", "", "", (10199, None)),
        ("a", "1001", "eob", "", (10176, None)),
        ("a", "", "", "", (10175, None)),
        ("a", "abc", "", "", (10175, None)),
        ("a", "0", "", "", (10176, None)),
        (&long, "1", "", "", (10179, None)),
        ("a", "1", "zz", "", (10200, None)),
        ("a", "1", "eob", "", (10176, incomplete)),
        (
            "a",
            "1",
            "1",
            "Nats-Required-Api-Level: 99\r\n",
            (10185, Some(Reason::Unsupported)),
        ),
        (
            "a",
            "1",
            "1",
            "Nats-Expected-Last-Msg-Id: x\r\n",
            (10177, None),
        ),
    ] {
        assert_eq!(
            client.refused(&block(id, seq, commit, more)),
            expected,
            "{id} {seq} {commit}"
        );
        assert_eq!(client.atomic.open(), 0);
    }
    // A gap ends an open batch, because the batch can never be whole. The server then refuses the later
    // messages, which belong to no batch.
    assert_eq!(client.send("a", 1, ""), Staged::Waiting);
    assert_eq!(
        client.refused(&block("a", "3", "", "")),
        (10176, incomplete)
    );
    assert_eq!(client.refused(&block("a", "2", "", "")), (10176, None));
    assert_eq!(client.send("a", 1, ""), Staged::Waiting);
    assert_eq!(
        client.refused(&block("a", "1", "", "")),
        (10176, incomplete)
    );
    client.config.allow_atomic = false;
    assert_eq!(client.refused(&block("a", "1", "", "")), (10174, None));
    client.config.max_msg_size = 10;
    assert_eq!(client.refused(&block("a", "1", "", "")), (10054, None));
    client.config.sealed = true;
    assert_eq!(client.refused(&block("a", "1", "", "")), (10109, None));
}

#[test]
fn the_text_of_an_unsupported_header() {
    let mut client = Client::new();
    let Staged::Refused { error, .. } =
        client.send_block(&block("a", "1", "1", "Nats-Expected-Last-Msg-Id: x\r\n"))
    else {
        panic!("accepted");
    };
    assert_eq!(
        error.description,
        "atomic publish unsupported header used: Nats-Expected-Last-Msg-Id"
    );
}

#[test]
fn requirements_are_not_stored() {
    let mut client = Client::new();
    let batch = client.send_block(&block("a", "1", "1", "Nats-Required-Api-Level: 2\r\n"));
    let batch = committed(batch);
    assert_eq!(
        batch.messages().next().unwrap().1.unwrap(),
        block("a", "1", "1", "")
    );
}

#[test]
fn a_thousand_messages_and_no_more() {
    let mut client = Client::new();
    for seq in 1..=1000 {
        assert_eq!(client.send("a", seq, ""), Staged::Waiting);
        assert_eq!(client.send("b", seq, ""), Staged::Waiting);
    }
    assert_eq!(committed(client.send("a", 1001, "eob")).len(), 1000);
    assert_eq!(
        client.refused(&block("b", "1001", "1", "")),
        (10199, Some(Reason::Large))
    );
}

#[test]
fn bytes_are_bounded() {
    let bytes = 3 + block("a", "1", "", "").len() + 3;
    let mut client = Client::with(AtomicLimits {
        batch_bytes_max: 2 * bytes,
        bytes_max: 3 * bytes,
        ..AtomicLimits::default()
    });
    assert_eq!(client.send("a", 1, ""), Staged::Waiting);
    assert_eq!(client.send("a", 2, ""), Staged::Waiting);
    assert_eq!(
        client.refused(&block("a", "3", "", "")),
        (10199, Some(Reason::Large))
    );
    assert_eq!(client.atomic.bytes(), 0);
    for id in ["a", "b", "c"] {
        assert_eq!(client.send(id, 1, ""), Staged::Waiting);
    }
    assert_eq!(
        client.refused(&block("d", "1", "", "")),
        (10210, Some(Reason::Large))
    );
}

#[test]
fn open_batches_are_bounded() {
    let mut client = Client::with(AtomicLimits {
        open_max: 60,
        ..AtomicLimits::default()
    });
    for i in 0..50 {
        assert_eq!(client.send(&i.to_string(), 1, ""), Staged::Waiting);
    }
    assert_eq!(client.refused(&block("x", "1", "", "")), (10210, None));
    // Another stream has a limit of its own for open batches, and accepts more until the server reaches its
    // own limit.
    let header = block("y", "1", "", "");
    let message = Incoming {
        subject: b"t",
        reply: b"",
        headers: &header,
        payload: b"",
    };
    for i in 0..11_u32 {
        let id = i.to_string();
        let staged =
            client
                .atomic
                .handle_message(client.now, S.next(), &config(), id.as_bytes(), &message);
        assert_eq!(staged == Staged::Waiting, i < 10, "{i}");
    }
    client.atomic.handle_stream_gone(S);
    client.atomic.check_invariants();
    assert_eq!(client.atomic.open(), 10);
}

#[test]
fn silent_batches_are_abandoned() {
    let mut client = Client::new();
    assert_eq!(client.atomic.deadline(), None);
    client.send("a", 1, "");
    client.now = client.now + Duration::from_secs(6);
    client.send("b", 1, "");
    let (mut gone, deadline) = (Vec::new(), client.atomic.deadline().unwrap());
    assert_eq!(deadline, Time::from_nanos(10_000_000_000));
    client
        .atomic
        .handle_timeouts(Time::from_nanos(9_999_999_999), &mut gone);
    assert!(gone.is_empty());
    client.atomic.handle_timeouts(deadline, &mut gone);
    let a = Abandoned {
        stream: S,
        id: b"a".to_vec(),
        reason: Reason::Timeout,
    };
    assert_eq!(gone, [a]);
    assert_eq!(
        client.atomic.deadline(),
        Some(Time::from_nanos(16_000_000_000))
    );
    client
        .atomic
        .handle_timeouts(Time::from_nanos(16_000_000_000), &mut gone);
    assert_eq!(
        (gone.len(), client.atomic.open(), client.atomic.deadline()),
        (2, 0, None)
    );
}

proptest! {
    /// Tests that each committed batch has exactly the messages that the publisher sent as one batch,
    /// complete and in order.
    #[test]
    fn batches_are_whole(sent in prop::collection::vec((0..4_u8, 0..3_u8, 0..8_u8), 1..200)) {
        let mut client = Client::with(AtomicLimits { messages_max: 6, per_stream_max: 3, ..AtomicLimits::default() });
        let mut next = [1_u64; 4];
        for (id, jump, end) in sent {
            let at = usize::from(id);
            let seq = next[at] + u64::from(jump == 0);
            let commit = match end { 0 => "1", 1 => "eob", _ => "" };
            next[at] = 1;
            match client.send(&id.to_string(), seq, commit) {
                Staged::Waiting => next[at] = seq + 1,
                Staged::Refused { .. } => {}
                Staged::Commit(batch) => {
                    let len = seq - u64::from(commit == "eob");
                    prop_assert_eq!(u64::from(batch.len()), len);
                    for (i, (_, block, _)) in batch.messages().enumerate() {
                        let number = headers::get(block.unwrap(), BATCH_SEQUENCE).unwrap();
                        prop_assert_eq!(super::super::number(number), Some(i as u64 + 1));
                    }
                }
            }
        }
    }
}
