//! Fixes the bytes of one of each kind of command, in entries of three groups: the directory of all nodes, a
//! group that keeps a stream, and the group to which the stream moves. The fixtures keep the bytes of the
//! entries, the state that they lead to, and its contents.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use bytes::Bytes;
use serde_json::{Value, json};
use tidegate_cluster::groups::{self, GroupId};
use tidegate_stream::schema::config::{Storage, StreamConfig};
use tidegate_stream::schema::number::{DirectoryNumber, MoveNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    AccountLimits, Command, ConsumerRequest, Course, Cursor, DeleteRequest, Encoder, Entry,
    EntryError, Export, Filling, Kind, Moving, Need, Outcome, Placement, PurgeRequest, Renewal,
    Streams, Thaw, Transit, VERSION,
};

use super::hex::{self, Text};
use super::{entry, fixture, flow, listing, origins, restoring, retaining};

const SECOND: u64 = 1_000_000;
/// The time of the first entry: 2026-01-01, in microseconds.
const START: u64 = 1_767_225_600 * SECOND;

/// The groups by their places in the test's list: all nodes, one node, and another node.
pub(super) const ALL: usize = 0;
const FROM: usize = 1;
const TO: usize = 2;
const NUMBERS: [GroupId; 3] = [groups::ALL, GroupId::new(0x1001), GroupId::new(0x1002)];

/// A sample: an entry that the test applies to one of the groups.
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) group: usize,
    pub(crate) entry: Bytes,
}

/// Returns the name of the sample of a kind. The test does not compile until this function names a new kind,
/// and fails until the kind has a sample; both belong to a new version of the protocol between nodes
/// (`agreed`).
pub(crate) const fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Publish => "publish",
        Kind::CreateStream => "create stream",
        Kind::UpdateStream => "update stream",
        Kind::DeleteStream => "delete stream",
        Kind::Purge => "purge",
        Kind::DeleteMessage => "delete message",
        Kind::Expire => "expire",
        Kind::Atomic => "atomic batch",
        Kind::CreateConsumer => "create consumer",
        Kind::DeleteConsumer => "delete consumer",
        Kind::ConsumerDelta => "consumer delta",
        Kind::Marker => "marker",
        Kind::Made => "made",
        Kind::Import => "import",
        Kind::Freeze => "freeze",
        Kind::Moved => "moved",
        Kind::Renew => "renew",
        Kind::Thaw => "thaw",
        Kind::ResetConsumer => "reset consumer",
        Kind::CreateRetaining => "create stream that keeps messages for its consumers",
        Kind::UpdateRetaining => "update stream that keeps messages for its consumers",
        Kind::SettlingDelta => "consumer delta that lists settled messages",
        Kind::CreateRestoring => "create stream that a backup fills",
        Kind::Restore => "part of a backup",
        Kind::CreateWithOrigins => "create stream with origins",
        Kind::UpdateWithOrigins => "update stream with origins",
        Kind::TakeIn => "take in",
        Kind::CreateFlowConsumer => "create consumer that takes acknowledgements by flow control",
        Kind::CreateByConsumers => "create stream with origins by consumers",
        Kind::UpdateByConsumers => "update stream with origins by consumers",
    }
}

/// Returns all kinds of commands that the decoder knows.
pub(crate) fn kinds() -> Vec<Kind> {
    (0..=u8::MAX).filter_map(Kind::from_u8).collect()
}

/// Three groups, and the entries that the test has applied to them.
pub(super) struct World {
    pub(super) groups: [Streams; 3],
    log: BTreeMap<(usize, u64), Bytes>,
    now_us: u64,
    pub(super) samples: Vec<Sample>,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            groups: [(); 3].map(|()| Streams::new(AccountLimits::NONE)),
            log: BTreeMap::new(),
            now_us: START,
            samples: Vec::new(),
        }
    }

    /// Applies an entry of these commands to a group, with a time one second after the entry before.
    pub(super) fn apply(
        &mut self,
        group: usize,
        name: &str,
        commands: &[Command<'_>],
    ) -> Vec<Outcome> {
        self.now_us += SECOND;
        let mut entry = Vec::new();
        let mut encoder = Encoder::begin(&mut entry, self.now_us);
        for command in commands {
            encoder.command(command).unwrap();
        }
        let outcomes = self.apply_entry(group, name, entry.into());
        assert_eq!(outcomes.len(), commands.len(), "{name}");
        outcomes
    }

    fn apply_entry(&mut self, group: usize, name: &str, entry: Bytes) -> Vec<Outcome> {
        let lsn = 4096 * (self.samples.len() as u64 + 1);
        let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
        let streams = &mut self.groups[group];
        streams
            .apply(lsn, &entry, &mut outcomes, &mut effects)
            .unwrap();
        streams.check_invariants();
        self.log.insert((group, lsn), entry.clone());
        let name = format!("{}: {name}", NUMBERS[group]);
        self.samples.push(Sample { name, group, entry });
        outcomes
    }

    /// Applies one command to a group, which must not refuse the command.
    pub(super) fn good(&mut self, group: usize, name: &str, command: &Command<'_>) {
        let outcome = self.apply(group, name, &[*command]).remove(0);
        assert!(
            !matches!(outcome, Outcome::Refused { .. }),
            "{name}: {outcome:?}"
        );
    }

    fn refused(&mut self, group: usize, name: &str, command: &Command<'_>) {
        let outcome = self.apply(group, name, &[*command]).remove(0);
        assert!(
            matches!(outcome, Outcome::Refused { .. }),
            "{name}: {outcome:?}"
        );
    }

    /// Creates a stream with this configuration in a group and returns its number. `kept` names the stream's
    /// home group.
    pub(super) fn create(&mut self, group: usize, config: &Value, kept: &[u8]) -> StreamNumber {
        let config: StreamConfig = serde_json::from_value(config.clone()).unwrap();
        let config = self.groups[group].check_create(&config).unwrap();
        let payload = serde_json::to_vec(&config).unwrap();
        let name = format!("create stream {}", config.name);
        self.good(
            group,
            &name,
            &Command::new(Kind::creating(&config), StreamNumber::NONE, kept, &payload),
        );
        self.groups[group].by_name(&config.name).unwrap()
    }

    pub(super) fn update(
        &mut self,
        group: usize,
        name: &str,
        stream: StreamNumber,
        change: &Value,
        subject: &[u8],
    ) {
        let old = self.groups[group].get(stream).unwrap().config();
        let (before, mut config) = (old.clone(), serde_json::to_value(old).unwrap());
        let fields = config.as_object_mut().unwrap();
        fields.extend(change.as_object().unwrap().clone());
        // The command has the configuration as the state keeps it, with every field in the type's own order.
        let config: StreamConfig = serde_json::from_value(config).unwrap();
        let payload = serde_json::to_vec(&config).unwrap();
        let kind = Kind::updating(&before, &config);
        let command = Command::new(kind, stream, subject, &payload);
        self.good(group, name, &command);
    }

    pub(super) fn consumer(
        &mut self,
        stream: StreamNumber,
        consumer: &str,
        config: &Value,
        action: &str,
        start: &Value,
    ) {
        let request = json!({"config": config, "action": action, "start": start});
        let request: ConsumerRequest = serde_json::from_value(request).unwrap();
        let payload = serde_json::to_vec(&request).unwrap();
        let name = format!(
            "{} consumer {consumer}",
            if action == "update" {
                "update"
            } else {
                "create"
            }
        );
        let kind = Kind::of_consumer(&request.config);
        let command = Command::new(kind, stream, consumer.as_bytes(), &payload);
        self.good(ALL, &name, &command);
    }

    /// Imports the next part of a moving stream from its home group, at the copy's position, as an entry of
    /// the copy's group. Returns true once the copy is whole, or needs the home group to freeze the stream.
    fn import(&mut self, from: StreamNumber, to: StreamNumber) -> bool {
        let copy = self.groups[TO].get(to).unwrap();
        let filling = Filling::By(copy.moves()).encode();
        let Transit::Filling(cursor) = copy.transit() else {
            return true;
        };
        let home = self.groups[FROM].get(from).unwrap();
        let mut export = Export::new(cursor, 150);
        let exported = loop {
            match export.poll(home) {
                Need::Message(seq) => {
                    let place = home.place(seq).unwrap();
                    let entry = &self.log[&(FROM, place.lsn)];
                    export.add(home, seq, &Command::read(entry, place.offset).unwrap());
                }
                Need::Freeze => return true,
                Need::Nothing(entry) => break entry,
            }
        };
        let commands = Entry::decode(&exported).unwrap().commands();
        let commands: Vec<_> = commands
            .map(|command| {
                let command = command.unwrap();
                let subject = match command.kind {
                    Kind::Import => &filling,
                    _ => command.subject,
                };
                Command {
                    stream: to,
                    subject,
                    ..command
                }
            })
            .collect();
        let name = format!("import {}", stage(cursor));
        let outcomes = self.apply(TO, &name, &commands);
        assert_eq!(outcomes[0], Outcome::Done);
        false
    }
}

fn stage(cursor: Cursor) -> String {
    let json = serde_json::to_value(cursor).unwrap();
    format!("{} from {}", json["stage"].as_str().unwrap(), json["at"])
}

/// Applies one command of each kind, in an order in which the groups accept all of them but those that they
/// must refuse.
fn world() -> World {
    let mut world = World::new();
    publishes(&mut world);
    removals(&mut world);
    consumers(&mut world);
    others(&mut world);
    moves(&mut world);
    world
}

fn block(headers: &[&str]) -> String {
    let lines: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
    format!("NATS/1.0\r\n{lines}\r\n")
}

fn publishes(world: &mut World) {
    let orders = json!({
        "name": "ORDERS", "subjects": ["orders.>"], "allow_msg_ttl": true, "allow_rollup_hdrs": true, "allow_atomic": true,
        "allow_batched": true, "allow_direct": true, "duplicate_window": 120_000_000_000_u64,
        "subject_delete_marker_ttl": 60_000_000_000_u64, "max_msgs_per_subject": 100, "metadata": {"team": "tide"},
    });
    let stream = world.create(ALL, &orders, &Placement::Here.encode());
    let plain = Command::new(Kind::Publish, stream, b"orders.new", b"plain");
    world.good(ALL, "publish plain", &plain);
    let empty = Command {
        payload: b"",
        ..plain
    };
    world.good(ALL, "publish without a payload", &empty);
    let taken: [&[&str]; 15] = [
        &["Free: text", "Another: with: colons"],
        &["Nats-Msg-Id: id-1"],
        &["Nats-Msg-Id: id-1"],
        &["Nats-Msg-Id: id-2", "Nats-Expected-Last-Msg-Id: id-1"],
        &["Nats-Expected-Stream: ORDERS"],
        &["Nats-Expected-Last-Sequence: 6"],
        &["Nats-Expected-Last-Subject-Sequence: 7"],
        &[
            "Nats-Expected-Last-Subject-Sequence: 0",
            "Nats-Expected-Last-Subject-Sequence-Subject: orders.none",
        ],
        &["Nats-TTL: 5"],
        &["Nats-TTL: 1h30m"],
        &["Nats-TTL: never"],
        &["KV-Operation: DEL"],
        &["KV-Operation: PURGE", "Nats-Rollup: sub"],
        &["Nats-Marker-Reason: Remove"],
        &["Nats-Rollup: sub"],
    ];
    for (n, headers) in taken.into_iter().enumerate() {
        let headers = block(headers);
        // Messages with a lifetime of their own have a subject of their own, so that the stream keeps them.
        let other = format!("orders.other.{n}");
        let subject = match (8..14).contains(&n) {
            true => other.as_bytes(),
            false => plain.subject,
        };
        let command = Command {
            headers: Some(headers.as_bytes()),
            subject,
            ..plain
        };
        let name = headers["NATS/1.0\r\n".len()..].trim().replace("\r\n", ", ");
        world.good(ALL, &format!("publish {name}"), &command);
    }
    let refused: [&[&str]; 4] = [
        &["Nats-Expected-Last-Sequence: 1"],
        &["Nats-Expected-Stream: OTHER"],
        &["Nats-Expected-Last-Msg-Id: none"],
        &["Nats-Rollup: nothing"],
    ];
    for headers in refused {
        let headers = block(headers);
        let command = Command {
            headers: Some(headers.as_bytes()),
            ..plain
        };
        let name = headers["NATS/1.0\r\n".len()..].trim().replace("\r\n", ", ");
        world.refused(ALL, &format!("publish, refused, {name}"), &command);
    }
    // The log holds a message of a fast-ingest batch as a plain publish: its reply subject names the batch,
    // and the state does not keep that subject.
    let fast = [1, 2, 3].map(|n| (format!("orders.fast.{n}"), format!("fast {n}")));
    let fast = fast.iter().map(|(subject, payload)| {
        Command::new(
            Kind::Publish,
            stream,
            subject.as_bytes(),
            payload.as_bytes(),
        )
    });
    world.apply(
        ALL,
        "publish several in one entry",
        &fast.collect::<Vec<_>>(),
    );
    let count = 3_u32.to_le_bytes();
    let atomic = Command::new(Kind::Atomic, stream, b"", &count);
    let headers =
        [1, 2, 3].map(|n| block(&["Nats-Batch-Id: b", &format!("Nats-Batch-Sequence: {n}")]));
    let one = |n: usize| Command {
        headers: Some(headers[n].as_bytes()),
        ..Command::new(Kind::Publish, stream, b"orders.batch", b"together")
    };
    let outcomes = world.apply(ALL, "atomic batch", &[atomic, one(0), one(1), one(2)]);
    assert!(
        matches!(outcomes[0], Outcome::Batch { count: 3, .. }),
        "{outcomes:?}"
    );
    let expects = block(&["Nats-Expected-Last-Sequence: 1"]);
    let bad = Command {
        headers: Some(expects.as_bytes()),
        ..one(1)
    };
    let outcomes = world.apply(ALL, "atomic batch, refused", &[atomic, bad, one(1), one(2)]);
    assert!(
        matches!(outcomes[0], Outcome::Refused { .. }),
        "{outcomes:?}"
    );
}

fn removals(world: &mut World) {
    let stream = world.groups[ALL].by_name("ORDERS").unwrap();
    for (name, no_erase) in [
        ("delete message", true),
        ("delete message and erase it", false),
    ] {
        let last = world.groups[ALL].get(stream).unwrap().state().last_seq;
        let seq = if no_erase { last.prev() } else { last };
        let payload = serde_json::to_vec(&DeleteRequest { seq, no_erase }).unwrap();
        world.good(
            ALL,
            name,
            &Command::new(Kind::DeleteMessage, stream, b"", &payload),
        );
    }
    let purges = json!({
        "name": "PURGES", "subjects": ["purges.*"], "max_age": 3_600_000_000_000_u64, "max_bytes": 1_000_000, "discard": "new",
        "first_seq": 100, "max_msg_size": 1000, "description": "emptied",
    });
    let stream = world.create(ALL, &purges, &Placement::Here.encode());
    let consumer = json!({"durable_name": "keeps", "name": "keeps", "ack_policy": "explicit"});
    world.consumer(stream, "keeps", &consumer, "create", &Value::Null);
    for n in 1..=12 {
        let subject = format!("purges.{}", n % 3);
        let publish = Command::new(Kind::Publish, stream, subject.as_bytes(), b"to purge");
        world.good(ALL, "publish", &publish);
    }
    for (name, filter, seq, keep) in [
        ("purge a subject", "purges.1", 0, 0),
        ("purge below a number", "", 104, 0),
        ("purge a subject below a number", "purges.2", 106, 0),
        ("purge and keep some", "", 0, 3),
        ("purge a subject and keep some", "purges.0", 0, 1),
    ] {
        let request = PurgeRequest {
            filter: filter.into(),
            seq: StreamSeq::new(seq),
            keep,
        };
        let payload = serde_json::to_vec(&request).unwrap();
        world.good(ALL, name, &Command::new(Kind::Purge, stream, b"", &payload));
    }
    let payload = serde_json::to_vec(&PurgeRequest::default()).unwrap();
    world.good(
        ALL,
        "purge",
        &Command::new(Kind::Purge, stream, b"", &payload),
    );
    world.update(
        ALL,
        "update stream",
        stream,
        &json!({"max_msgs": 50, "description": ""}),
        b"",
    );
    world.update(
        ALL,
        "update stream, seal it",
        stream,
        &json!({"sealed": true}),
        b"",
    );
    let doomed = json!({"name": "DOOMED", "subjects": ["doomed"], "storage": "memory"});
    let doomed = world.create(ALL, &doomed, b"");
    world.good(
        ALL,
        "delete stream",
        &Command::new(Kind::DeleteStream, doomed, b"", b""),
    );
}

/// Encodes a consumer's delta as consumer/delta.rs describes it. All numbers but times are below 128, so that
/// each takes one byte.
fn delta(
    delivered: (u8, u8),
    floor: (u8, u8),
    runs: &[(u8, u8, u8, u64, u8)],
    removed: &[u8],
) -> Vec<u8> {
    let mut bytes = vec![
        1,
        delivered.0,
        delivered.1,
        floor.0,
        floor.1,
        runs.len() as u8,
    ];
    for (gap, len, consumer_seq, due_us, deliveries) in runs {
        bytes.extend([*gap, *len, *consumer_seq]);
        // The delta holds the time in zigzag form, with seven bits in a byte.
        let mut due = due_us << 1;
        while due >= 0x80 {
            bytes.push(due as u8 | 0x80);
            due >>= 7;
        }
        bytes.extend([due as u8, *deliveries]);
    }
    bytes.push(removed.len() as u8);
    bytes.extend(removed);
    bytes
}

fn consumers(world: &mut World) {
    let stream = world.groups[ALL].by_name("ORDERS").unwrap();
    let puller = json!({
        "durable_name": "puller", "name": "puller", "ack_policy": "explicit", "ack_wait": 30_000_000_000_u64, "max_deliver": 5,
        "backoff": [1_000_000_000, 5_000_000_000_u64], "filter_subjects": ["orders.new", "orders.fast.*"], "max_ack_pending": 1000,
        "max_waiting": 512, "max_batch": 100, "max_expires": 60_000_000_000_u64, "max_bytes": 100_000, "sample_freq": "50",
        "headers_only": true, "metadata": {"a": "b"}, "description": "pulls",
    });
    world.consumer(stream, "puller", &puller, "create", &Value::Null);
    let pusher = json!({
        "durable_name": "pusher", "name": "pusher", "ack_policy": "all", "deliver_subject": "to.here", "deliver_group": "group",
        "filter_subject": "orders.>", "deliver_policy": "by_start_sequence", "opt_start_seq": 3, "rate_limit_bps": 1_000_000,
        "idle_heartbeat": 5_000_000_000_u64, "flow_control": true, "replay_policy": "original",
    });
    world.consumer(stream, "pusher", &pusher, "", &Value::Null);
    let passing = json!({
        "name": "passing", "ack_policy": "none", "mem_storage": true, "inactive_threshold": 5_000_000_000_u64, "num_replicas": 1,
        "deliver_policy": "last_per_subject", "deliver_subject": "to.there",
    });
    world.consumer(
        stream,
        "passing",
        &passing,
        "create",
        &json!({"last_per_subject": 9}),
    );
    let begun = json!({"name": "begun", "ack_policy": "none", "deliver_policy": "by_start_time",
        "opt_start_time": "2026-01-01T00:00:10Z", "deliver_subject": "to.them"});
    world.consumer(stream, "begun", &begun, "create", &json!({"at": 4}));
    let new = json!({"durable_name": "new", "name": "new", "deliver_policy": "new", "ack_policy": "explicit"});
    world.consumer(stream, "new", &new, "create", &Value::Null);
    let mut paused = puller;
    paused["pause_until"] = json!("2100-01-01T00:00:00Z");
    paused["description"] = json!("paused");
    world.consumer(stream, "puller", &paused, "update", &Value::Null);
    let due = START + 100 * SECOND;
    for (name, bytes) in [
        (
            "two runs delivered",
            delta(
                (6, 16),
                (0, 0),
                &[(10, 4, 1, due, 1), (1, 2, 5, SECOND, 1)],
                &[],
            ),
        ),
        ("acknowledged", delta((6, 16), (1, 10), &[], &[12])),
        (
            "delivered again",
            delta((7, 16), (1, 10), &[(13, 1, 7, due + SECOND, 2)], &[]),
        ),
    ] {
        let command = Command::new(Kind::ConsumerDelta, stream, b"puller", &bytes);
        world.good(ALL, &format!("consumer delta, {name}"), &command);
    }
    let delta = delta((3, 3), (0, 0), &[(1, 3, 1, due, 1)], &[]);
    world.good(
        ALL,
        "consumer delta",
        &Command::new(Kind::ConsumerDelta, stream, b"new", &delta),
    );
    let reset = Command::new(
        Kind::ResetConsumer,
        stream,
        b"new",
        &[2, 0, 0, 0, 0, 0, 0, 0],
    );
    world.good(ALL, "reset consumer", &reset);
    let delete = Command::new(Kind::DeleteConsumer, stream, b"begun", b"");
    world.good(ALL, "delete consumer", &delete);
}

/// Applies commands that depend on time, such as expiries.
fn others(world: &mut World) {
    let aged = json!({
        "name": "AGED", "subjects": ["aged.*"], "max_age": 10_000_000_000_u64, "subject_delete_marker_ttl": 3_600_000_000_000_u64,
        "allow_msg_ttl": true, "allow_rollup_hdrs": true,
    });
    let stream = world.create(ALL, &aged, b"");
    for subject in ["aged.a", "aged.a", "aged.b"] {
        let publish = Command::new(Kind::Publish, stream, subject.as_bytes(), b"ages");
        world.good(ALL, "publish", &publish);
    }
    world.now_us += 20 * SECOND;
    let now = world.now_us + SECOND;
    let mut entry = Vec::new();
    let mut encoder = Encoder::begin(&mut entry, now);
    let streams = &mut world.groups[ALL];
    let written = streams
        .propose_expiry(now, Storage::File, &mut encoder)
        .unwrap();
    assert!(
        written == 4,
        "an expiry and a marker in each of two streams: {written}"
    );
    world.now_us = now;
    let outcomes = world.apply_entry(ALL, "expire, and markers", entry.into());
    assert!(outcomes.iter().all(|o| *o == Outcome::Done), "{outcomes:?}");
}

fn moves(world: &mut World) {
    let config =
        json!({"name": "MOVES", "subjects": ["moves.*"], "duplicate_window": 120_000_000_000_u64});
    let elsewhere = Placement::Elsewhere {
        group: NUMBERS[FROM],
    };
    let entry = world.create(ALL, &config, &elsewhere.encode());
    let own = world.create(
        FROM,
        &config,
        &Placement::Of(DirectoryNumber::of_entry(entry)).encode(),
    );
    world.good(ALL, "made", &Command::new(Kind::Made, entry, b"", b""));
    for n in 1..=5 {
        let headers = block(&[&format!("Nats-Msg-Id: m{n}")]);
        let subject = format!("moves.{n}");
        let publish = Command {
            headers: Some(headers.as_bytes()),
            ..Command::new(Kind::Publish, own, subject.as_bytes(), b"on its way")
        };
        world.good(FROM, "publish", &publish);
    }
    let delete = serde_json::to_vec(&DeleteRequest {
        seq: StreamSeq::new(3),
        no_erase: true,
    })
    .unwrap();
    let request = json!({"config": {"durable_name": "c", "name": "c", "ack_policy": "explicit"}, "action": "create"});
    let request: ConsumerRequest = serde_json::from_value(request).unwrap();
    let request = serde_json::to_vec(&request).unwrap();
    world.good(
        FROM,
        "create consumer c",
        &Command::new(Kind::CreateConsumer, own, b"c", &request),
    );
    let delivered = delta((2, 2), (1, 1), &[(2, 1, 2, START + 100 * SECOND, 1)], &[]);
    world.good(
        FROM,
        "consumer delta",
        &Command::new(Kind::ConsumerDelta, own, b"c", &delivered),
    );
    // The directory calls the first move off although the stream is frozen already, begins the second move
    // again, and calls the third one off.
    let to = Course::To { group: NUMBERS[TO] }.encode();
    let moving = |number| Moving {
        to: NUMBERS[TO],
        number: MoveNumber::new(number),
    };
    let copy_of = |of, number| {
        let r#move = MoveNumber::new(number);
        Placement::Copy { of, r#move }.encode()
    };
    world.update(ALL, "update stream, it moves", entry, &json!({}), &to);
    world.good(
        FROM,
        "freeze",
        &Command::new(Kind::Freeze, own, b"", &moving(1).encode()),
    );
    let renewed = Renewal {
        of: moving(1),
        to: GroupId::new(0x1003),
    };
    world.good(
        ALL,
        "renew",
        &Command::new(Kind::Renew, entry, b"", &renewed.encode()),
    );
    let r#move = MoveNumber::new(1);
    let thaw = Thaw { r#move }.encode();
    world.good(FROM, "thaw", &Command::new(Kind::Thaw, own, b"", &thaw));
    let instead = Course::Instead {
        group: None,
        r#move: MoveNumber::new(2),
    };
    world.update(
        ALL,
        "update stream, its move is called off",
        entry,
        &json!({"num_replicas": 3}),
        &instead.encode(),
    );
    world.update(
        ALL,
        "update stream, it moves again",
        entry,
        &json!({"num_replicas": 1}),
        &to,
    );
    let copy = world.create(TO, &config, &copy_of(DirectoryNumber::of_entry(entry), 3));
    // The test imports all parts but those for which the home group would have to freeze the stream.
    while !world.import(own, copy) {}
    world.good(
        FROM,
        "delete message",
        &Command::new(Kind::DeleteMessage, own, b"", &delete),
    );
    world.good(
        FROM,
        "freeze",
        &Command::new(Kind::Freeze, own, b"", &moving(3).encode()),
    );
    while !world.import(own, copy) {}
    assert_eq!(world.groups[TO].get(copy).unwrap().transit(), Transit::None);
    world.good(
        ALL,
        "moved",
        &Command::new(Kind::Moved, entry, b"", &moving(3).encode()),
    );
    world.good(
        FROM,
        "delete stream",
        &Command::new(Kind::DeleteStream, own, b"", b""),
    );
    // The state also holds a stream that has moved by half, and a stream that leaves.
    let config = json!({"name": "HALFWAY", "subjects": ["halfway"]});
    world.create(TO, &config, &copy_of(DirectoryNumber::new(99), 1));
    let config = json!({"name": "LEAVES", "subjects": ["leaves"]});
    let leaves = world.create(
        FROM,
        &config,
        &Placement::Of(DirectoryNumber::new(98)).encode(),
    );
    world.good(
        FROM,
        "freeze",
        &Command::new(Kind::Freeze, leaves, b"", &moving(1).encode()),
    );
    let config = json!({"name": "PLANNED", "subjects": ["planned"]});
    let planned = world.create(ALL, &config, &elsewhere.encode());
    world.update(ALL, "update stream, it moves", planned, &json!({}), &to);
}

pub(super) fn entries_text(samples: &[Sample]) -> String {
    let mut text = Text::new(
        "Entries of the replicated log, with one of each kind of command. Before each name stands the group's number.\n\
         Written by world() in tests/golden/commands.rs.",
    );
    for (n, sample) in samples.iter().enumerate() {
        text.section(&format!("{n} in {}", sample.name));
        entry::entry(&sample.entry, &mut text);
    }
    text.0
}

/// Reads the entries of a fixture, with the group of each entry.
fn kept_in(name: &str) -> Vec<Sample> {
    let text = fs::read_to_string(fixture("entries", 1, name)).unwrap();
    let samples = hex::read(&text).into_iter().map(|section| {
        let (_, name) = section.name.split_once(" in ").unwrap();
        let number = name.split(':').next().unwrap();
        Sample {
            name: name.to_owned(),
            group: NUMBERS
                .iter()
                .position(|n| n.to_string() == number)
                .unwrap(),
            entry: section.bytes().into(),
        }
    });
    samples.collect()
}

fn kept_entries() -> Vec<Sample> {
    kept_in("entries.hex")
}

/// Applies the entries of a fixture, and returns the groups' streams.
pub(super) fn applied(name: &str) -> [Streams; 3] {
    let mut groups = [(); 3].map(|()| Streams::new(AccountLimits::NONE));
    for (n, sample) in kept_in(name).iter().enumerate() {
        let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
        let lsn = 4096 * (n as u64 + 1);
        let streams = &mut groups[sample.group];
        let done = streams.apply(lsn, &sample.entry, &mut outcomes, &mut effects);
        done.unwrap_or_else(|e| panic!("{}: {e}", sample.name));
        streams.check_invariants();
    }
    groups
}

pub(super) fn state(streams: &Streams) -> Vec<u8> {
    streams.snapshot().chunks().flatten().collect()
}

/// Returns an entry with a message, as a sample for other formats.
pub(crate) fn an_entry() -> Bytes {
    world().samples.swap_remove(1).entry
}

/// Describes the outcome of each command in a fixture's entries, and the checksums of the resulting states.
pub(crate) fn outcomes(name: &str) -> String {
    let mut groups = [(); 3].map(|()| Streams::new(AccountLimits::NONE));
    let mut text = String::new();
    for (n, sample) in kept_in(name).iter().enumerate() {
        let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
        let streams = &mut groups[sample.group];
        let lsn = 4096 * (n as u64 + 1);
        streams
            .apply(lsn, &sample.entry, &mut outcomes, &mut effects)
            .unwrap();
        let _ = writeln!(text, "{n} in {}", sample.name);
        for outcome in outcomes {
            // The fixture has the reason by its number, because the words of an error may change.
            let _ = match outcome {
                Outcome::Refused { error, .. } => writeln!(text, "  refused {}", error.err_code),
                outcome => writeln!(text, "  {outcome:?}"),
            };
        }
    }
    for (streams, number) in groups.iter().zip(NUMBERS) {
        let sum = crc32c::crc32c(listing::listing(streams).as_bytes());
        let _ = writeln!(text, "streams of group {number}: {sum:08x}");
    }
    text
}

#[test]
fn entries_are_written_as_their_version_writes_them() {
    let path = fixture("entries", VERSION, "entries.hex");
    hex::check(&path, &entries_text(&world().samples));
}

#[test]
fn every_kind_of_command_has_a_sample() {
    let mut seen = BTreeMap::new();
    let worlds = [
        retaining::world(),
        restoring::world(),
        origins::world(),
        flow::world(),
    ];
    let more = worlds.iter().flat_map(|world| &world.samples);
    for sample in world().samples.iter().chain(more) {
        for command in Entry::decode(&sample.entry).unwrap().commands() {
            *seen.entry(command.unwrap().kind as u8).or_insert(0) += 1;
        }
    }
    for kind in kinds() {
        assert!(
            seen.contains_key(&(kind as u8)),
            "{} has no sample",
            name_of(kind)
        );
    }
}

#[test]
fn the_entries_of_each_version_lead_to_the_same_streams() {
    let groups = applied("entries.hex");
    for (streams, number) in groups.iter().zip(NUMBERS) {
        let bytes = state(streams);
        let version = bytes[0];
        let mut text = Text::new("The state that the entries of version 1 lead to.");
        text.section(&format!("group {number}"));
        entry::state(&bytes, &mut text);
        let path = fixture("state", version, &format!("{number}.hex"));
        hex::check(&path, &text.0);
        let path = fixture("state", version, &format!("{number}.txt"));
        hex::check(&path, &listing::listing(streams));
    }
}

#[test]
fn a_state_of_version_3_is_read() {
    for number in NUMBERS {
        let text = fs::read_to_string(fixture("state", 3, &format!("{number}.hex"))).unwrap();
        let kept = hex::read(&text)[0].bytes();
        let streams = Streams::restore(&kept, AccountLimits::NONE).unwrap();
        streams.check_invariants();
        let path = fixture("state", 3, &format!("{number}.txt"));
        hex::check(&path, &listing::listing(&streams));
    }
}

#[test]
fn a_state_of_a_later_version_is_refused_by_name() {
    let text = fs::read_to_string(fixture("state", 3, "1.hex")).unwrap();
    let mut later = hex::read(&text)[0].bytes();
    later[0] = 7;
    let refused = Streams::restore(&later, AccountLimits::NONE).unwrap_err();
    let says = refused.to_string();
    assert!(
        says.contains("version 7, expected 1 to 6")
            && says.contains("use the program that wrote it"),
        "{says}"
    );
}

#[test]
fn an_entry_of_a_later_version_is_refused_by_name() {
    let sample = &kept_entries()[1];
    let mut streams = Streams::new(AccountLimits::NONE);
    let mut apply = |at: usize, to: u8| {
        let mut later = sample.entry.to_vec();
        later[at] = to;
        let done = streams.apply(64, &later.into(), &mut Vec::new(), &mut Vec::new());
        done.unwrap_err()
    };
    let version = apply(0, 2);
    assert_eq!(version, EntryError::Version { version: 2 });
    assert!(
        version
            .to_string()
            .contains("expected an entry of version 1, not 2: a newer program wrote it")
    );
    for unknown in 31..=u8::MAX {
        let kind = apply(16, unknown);
        assert_eq!(
            kind,
            EntryError::Kind {
                kind: unknown,
                offset: 16
            }
        );
        let says = format!("no command has the kind {unknown} (byte 16): a newer program wrote it");
        assert!(kind.to_string().contains(&says), "{kind}");
    }
}
