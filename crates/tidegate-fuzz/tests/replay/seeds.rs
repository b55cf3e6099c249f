//! The seeds of each fuzz target: valid inputs, with their names, from which the fuzzer starts.

use std::fs;

use tidegate_stream::consumer::State;
use tidegate_stream::schema::sequence::StreamSeq;

use super::{hex, root, wire};

/// A seed: the name of its file in the corpus, and its bytes.
pub(crate) type Seed = (String, Vec<u8>);

/// Returns the seeds of the fuzz target with this name; none if there is no such target.
pub(crate) fn of(target: &str) -> Vec<Seed> {
    match target {
        "api" => numbered("request", API.iter().map(|text| nul(text))),
        "backup" => backup(),
        "catch_up" => golden("cluster/v3/catch_up.hex"),
        "checkpoint" => golden("checkpoint/v1/checkpoint.hex"),
        "choice" => numbered("name", CHOICES.iter().map(|text| text.as_bytes().to_vec())),
        "cluster_wire" => cluster_wire(),
        "command" => command(),
        "consumer" => consumer(),
        "controller" => controller(),
        "entry" => [
            golden("entries/v1/entries.hex"),
            numbered(
                "retaining",
                sections("entries/v1/retaining.hex")
                    .into_iter()
                    .map(|(_, bytes)| bytes),
            ),
            numbered(
                "restoring",
                sections("entries/v1/restoring.hex")
                    .into_iter()
                    .map(|(_, bytes)| bytes),
            ),
        ]
        .concat(),
        "event_log" => event_log(),
        "ingest" => numbered("batch", INGEST.iter().map(|text| nul(text))),
        "link_codec" => wire::codec(),
        "link_receiver" => wire::receiver(),
        "link_sender" => wire::sender(),
        "log" => log(),
        "nats" => nats(),
        "nats_config" => numbered("file", CONFIGS.iter().map(|text| text.as_bytes().to_vec())),
        "raft_message" => raft_message(),
        "resp" => numbered("reply", RESP.iter().map(|text| text.as_bytes().to_vec())),
        "streams" => streams(),
        "trace" => trace(),
        "transform" => numbered("mapping", TRANSFORMS.iter().map(|text| nul(text))),
        _ => Vec::new(),
    }
}

/// Makes seeds from these inputs: names each input by this word and its number in the list.
fn numbered(word: &str, inputs: impl Iterator<Item = Vec<u8>>) -> Vec<Seed> {
    let name = |(n, bytes)| (format!("{word}-{n:02}"), bytes);
    inputs.enumerate().map(name).collect()
}

/// Replaces each `|` with a zero byte, because zero bytes divide the parts of an input.
fn nul(text: &str) -> Vec<u8> {
    text.replace('|', "\0").into_bytes()
}

/// Returns the sections of a golden fixture of the server, each with its name.
fn sections(fixture: &str) -> Vec<(String, Vec<u8>)> {
    let path = root()
        .join("crates/tidegate-server/tests/golden")
        .join(fixture);
    let text = fs::read_to_string(path).unwrap();
    let names = text.lines().filter_map(|line| line.strip_prefix('['));
    let bytes: Vec<_> = hex::read(&text).iter().map(hex::Section::bytes).collect();
    // Lines before the first section header form a section without a name, and the function skips that
    // section.
    let skipped = bytes.len() - names.clone().count();
    names
        .map(str::to_owned)
        .zip(bytes.into_iter().skip(skipped))
        .collect()
}

fn golden(fixture: &str) -> Vec<Seed> {
    let bytes = sections(fixture).into_iter().map(|(_, bytes)| bytes);
    numbered("golden", bytes)
}

/// Returns the seeds of `cluster_wire`: golden frames and greetings, with a first byte that makes the target
/// cut them into pieces of 7 bytes, and a list of the members.
fn cluster_wire() -> Vec<Seed> {
    let mut all = Vec::new();
    for name in ["frames", "greeting"] {
        let inputs = sections(&format!("cluster/v3/{name}.hex"));
        let inputs = inputs.iter().map(|(_, bytes)| [&[7], &bytes[..]].concat());
        all.extend(numbered(name, inputs));
    }
    let members = root().join("crates/tidegate-server/tests/golden/members/v2/members");
    let members = fs::read(members).unwrap();
    all.push(("members".to_owned(), [&[7], &members[..]].concat()));
    all
}

/// Returns the seeds of `command`: commands with arguments of several lengths, each argument behind its
/// length.
fn command() -> Vec<Seed> {
    let commands: [&[&[u8]]; 4] = [
        &[],
        &[b""],
        &[b"key", b"value", b"EX", b"10"],
        &[b"$5\r\nhello\r\n", &[0; 200], b"\xff\xfe"],
    ];
    let input = |args: &&[&[u8]]| {
        let arg = |arg: &&[u8]| [&[u8::try_from(arg.len()).unwrap()], *arg].concat();
        args.iter().flat_map(arg).collect()
    };
    numbered("arguments", commands.iter().map(input))
}

/// Returns the seeds of `consumer`: requests of receivers, one a line, and encoded states.
fn consumer() -> Vec<Seed> {
    let mut all = numbered("lines", CONSUMER.iter().map(|s| s.as_bytes().to_vec()));
    for start in [1, 5] {
        let state = State::starting_at(StreamSeq::new(start));
        all.push((format!("state-{start}"), state.encode()));
    }
    // In this state, one of six delivered messages is pending and the consumer has given up another one. The
    // last eight bytes end the range of messages at which the stream must look again.
    let mut retaining = vec![0; 8];
    retaining.extend([2, 6, 6, 2, 2, 1, 4, 1, 4, 0, 1, 0, 0, 1, 3, 1]);
    retaining.extend(9_u64.to_le_bytes());
    assert!(State::decode(&retaining).is_ok());
    all.push(("state-retaining".to_owned(), retaining));
    all
}

/// Returns the seeds of `controller`: for each controller 60 events, a millisecond apart: arrivals, batches
/// that start and end, and replies.
fn controller() -> Vec<Seed> {
    let events = |choice: u8| {
        let mut input = vec![choice];
        for step in 0..60_u64 {
            // The target rotates this number by 32 bits to get the time in nanoseconds, so the seed rotates
            // the time back.
            let n = (step * 1_000_000).rotate_right(32) | (step % 13) << 3 | 1;
            input.push([0, 1, 2, 3, 5, 6, 4][step as usize % 7]);
            input.extend_from_slice(&n.to_le_bytes());
        }
        input
    };
    numbered("events", (0..8).map(events))
}

/// Returns the seeds of `event_log`: the first lines of each event log among the engine's transcripts.
fn event_log() -> Vec<Seed> {
    let folder = root().join("crates/tidegate/tests/transcripts");
    let mut paths: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let start = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let lines: Vec<_> = text.split_inclusive('\n').take(12).collect();
        lines.concat().into_bytes()
    };
    numbered("log", paths.iter().map(start))
}

/// Returns the seeds of `trace`: a trace that a model fits, the same with a gap, with a last line that is cut
/// off, and as the log of one controller.
fn trace() -> Vec<Seed> {
    let decision = "> 64 1000000 1 now drained";
    let lines = (0..55).flat_map(|id| {
        let (at, items) = (10_000 * id, 1 + id % 8);
        let (end, cost) = (at + 1000 + 100 * items, 1000 + 100 * items);
        [
            format!("{at} arrived {items} 0 {decision}"),
            format!("{at} ready {items} 0 {at} {decision}"),
            format!("{at} started {id} {items} 0 0 0 drained {decision}"),
            format!("{end} done {id} {cost} 1 {decision}"),
        ]
    });
    let lines: Vec<String> = lines.collect();
    let begins = "tidegate-decisions 1\nrows begins 1 64 1000000 1000000000 1\n";
    let of_rows = |lines: &[String]| {
        let lines = lines.iter().map(|line| format!("rows {line}\n"));
        lines.collect::<String>()
    };
    let whole = format!("{begins}{}", of_rows(&lines));
    let gap = format!(
        "{begins}{}rows lost 4\n{}",
        of_rows(&lines[..8]),
        of_rows(&lines[12..])
    );
    let cut = whole[..whole.len() - 9].to_owned();
    let log = format!("tidegate-log 2\n{}\n", lines.join("\n"));
    let texts = [whole, gap, cut, log];
    numbered("trace", texts.into_iter().map(String::into_bytes))
}

/// Returns the seeds of `log`: lists of changes to the log's files. A change names the file, the offset, the
/// new byte and the kind of the change.
fn log() -> Vec<Seed> {
    let change = |file: u8, at: u16, byte: u8, kind: u8| {
        let [low, high] = at.to_le_bytes();
        [file, low, high, byte, kind]
    };
    let changes = [
        ("none", vec![]),
        ("cut", vec![change(0, 5000, 0, 0)]),
        ("removed", vec![change(1, 0, 0, 1)]),
        ("copied", vec![change(0, 4096, 200, 2)]),
        ("byte", vec![change(0, 4500, 0xff, 3)]),
        ("first-bytes", vec![change(0, 0, 0, 3), change(1, 0, 0, 3)]),
        ("both", vec![change(1, 4700, 1, 3), change(1, 9000, 0, 0)]),
    ];
    let seed = |(name, changes): (&str, Vec<[u8; 5]>)| (name.to_owned(), changes.concat());
    changes.into_iter().map(seed).collect()
}

/// Returns the seeds of `nats`: the bytes that the clients in the server's transcripts send. The target cuts
/// them into pieces of 7 bytes.
fn nats() -> Vec<Seed> {
    let folder = root().join("crates/tidegate-server/tests/transcripts");
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let mut input = vec![7];
        for line in fs::read_to_string(&path).unwrap().lines() {
            // A transcript marks a line of client A with `A> `, and a text of client A with escapes for line
            // ends with `A>> `.
            if let Some((_, text)) = line.split_once(">> ") {
                let text = text.replace("\\r", "\r").replace("\\n", "\n");
                input.extend_from_slice(text.as_bytes());
            } else if let Some((_, text)) = line.split_once("> ") {
                input.extend_from_slice(text.as_bytes());
                input.extend_from_slice(b"\r\n");
            }
        }
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        all.push((name, input));
    }
    all
}

/// Returns the seeds of `raft_message`: each golden message by itself, and a sequence of the short ones, each
/// behind its length and a byte that makes the member do all its other work in between.
fn raft_message() -> Vec<Seed> {
    let messages = sections("raft/v1/messages.hex");
    let mut all = numbered("golden", messages.iter().map(|(_, bytes)| bytes.clone()));
    let mut run = Vec::new();
    for (_, bytes) in &messages {
        if let Ok(len) = u8::try_from(bytes.len()) {
            run.extend_from_slice(&[len, 0xe1]);
            run.extend_from_slice(bytes);
        }
    }
    all.push(("run".to_owned(), run));
    all
}

/// Returns the seeds of `streams`: the golden entries of each group, each behind its length and without its
/// header, and a golden snapshot of each group.
fn streams() -> Vec<Seed> {
    let mut all = Vec::new();
    let entries = sections("entries/v1/entries.hex");
    for group in ["1", "4097", "4098"] {
        let mut input = Vec::new();
        for (name, entry) in &entries {
            let (place, _) = name.split_once(':').unwrap_or((name, ""));
            if place.split_once(" in ").is_some_and(|(_, g)| g == group) {
                let entry = &entry[8..];
                input.extend_from_slice(&u16::try_from(entry.len()).unwrap().to_le_bytes());
                input.extend_from_slice(entry);
            }
        }
        all.push((format!("entries-{group}"), input));
        let state = sections(&format!("state/v3/{group}.hex"));
        all.push((format!("snapshot-{group}"), state[0].1.clone()));
    }
    // The target has the two streams of these entries under other numbers, so the seeds use those.
    for (name, version, ahead) in [("retaining", 4, 3), ("origins", 5, 5)] {
        let state = sections(&format!("state/v{version}/1.hex"));
        all.push((format!("snapshot-{name}"), state[0].1.clone()));
        all.push((format!("entries-{name}"), renumbered(name, ahead)));
    }
    all
}

/// Returns the golden entries of this name with the numbers of their streams raised by `ahead`.
fn renumbered(name: &str, ahead: u8) -> Vec<u8> {
    let mut input = Vec::new();
    for (_, mut entry) in sections(&format!("entries/v1/{name}.hex")) {
        let mut at = 16;
        while let Some(header) = entry.get(at..at + 16).map(<[u8]>::to_vec) {
            if header[4] > 0 {
                entry[at + 4] += ahead;
            }
            let number = |i: usize| u32::from_le_bytes(*header[i..].first_chunk().unwrap());
            let subject = u32::from(u16::from_le_bytes([header[2], header[3]]));
            at += 16 + (subject + number(8) + number(12)) as usize;
        }
        let entry = &entry[8..];
        input.extend_from_slice(&u16::try_from(entry.len()).unwrap().to_le_bytes());
        input.extend_from_slice(entry);
    }
    input
}

const API: &[&str] = &[
    "$JS.API.INFO||",
    "$JS.hub.API.INFO||",
    r#"$JS.API.STREAM.CREATE.S||{"name":"S","subjects":["s.>"],"retention":"workqueue","max_age":1000000000,"storage":"memory","num_replicas":3}"#,
    r#"$JS.API.STREAM.CREATE.S||{"name":"S","subjects":["s.*"],"allow_direct":true,"allow_rollup_hdrs":true,"allow_msg_ttl":true,"allow_atomic":true,"metadata":{"a":"b"},"pedantic":true}"#,
    r#"$JS.API.STREAM.UPDATE.S||{"name":"S","subjects":["s.>","t"],"discard":"new","max_msgs_per_subject":5}"#,
    "$JS.API.STREAM.INFO.S||{\"subjects_filter\":\">\",\"deleted_details\":true}",
    "$JS.API.STREAM.LIST||{\"offset\":1}",
    "$JS.API.STREAM.NAMES||{\"subject\":\"s.a\"}",
    "$JS.API.STREAM.DELETE.S||",
    "$JS.API.STREAM.PURGE.S||{\"filter\":\"s.a\",\"keep\":2}",
    "$JS.API.STREAM.MSG.GET.S||{\"last_by_subj\":\"s.a\"}",
    "$JS.API.STREAM.MSG.DELETE.S||{\"seq\":7,\"no_erase\":true}",
    "$JS.API.STREAM.LEADER.STEPDOWN.S||",
    "$JS.API.STREAM.SNAPSHOT.S||{}",
    r#"$JS.API.CONSUMER.CREATE.S.C.s.a||{"stream_name":"S","config":{"name":"C","filter_subject":"s.a","ack_policy":"explicit","ack_wait":30000000000,"backoff":[1000000000,2000000000]},"action":"create"}"#,
    r#"$JS.API.CONSUMER.DURABLE.CREATE.S.D||{"stream_name":"S","config":{"durable_name":"D","deliver_subject":"d","deliver_policy":"by_start_time","opt_start_time":"2026-01-01T00:00:00.5+02:00"}}"#,
    "$JS.API.CONSUMER.MSG.NEXT.S.C||{\"batch\":10,\"expires\":1000000000}",
    "$JS.API.CONSUMER.INFO.S.C||",
    "$JS.API.CONSUMER.LIST.S||{}",
    "$JS.API.CONSUMER.PAUSE.S.C||{\"pause_until\":\"2026-01-01T00:00:00Z\"}",
    "$JS.API.DIRECT.GET.S.s.a||",
    r#"$JS.API.DIRECT.GET.S||{"multi_last":["s.>"],"batch":5,"up_to_seq":9}"#,
    "$JS.API.STREAM.INFO.S|NATS/1.0\r\nNats-Required-Api-Level: 2\r\n\r\n|",
];

const CHOICES: &[&str] = &[
    "knee",
    "knee:throughput",
    "knee:within=5%",
    "knee:p99=20ms",
    "knee:cost=1%",
    "knee:inflation=3%",
    "greedy:64",
    "fixed:1000",
    "fixed:1000,5ms",
    "exponential",
    "aimd:64",
    "storm-aimd:1000",
    "rueidis-stats:100us",
];

const CONSUMER: &[&str] = &[
    "3\n+ACK\n5\n-NAK\n1",
    "{\"batch\":5,\"no_wait\":true}\n-NAK {\"delay\":1000}\n+WPI\n+TERM too old\n",
    "{\"batch\":2,\"expires\":1000000000,\"idle_heartbeat\":100000000,\"max_bytes\":1000}\n+NXT 5\n+NXT {\"batch\":2}\n",
    "$JS.ACK.S.C.1.2.3.1767225601000000000.5",
    "$JS.ACK.hub.hash.S.C.1.2.3.1767225601000000000.5.random",
];

/// The seeds of `ingest`. In each part, the first byte sets the time and the number of decided messages. A
/// first byte that 3 divides (`0`, `3`) says that the rest of the part is a header block; otherwise the rest
/// is a reply subject.
const INGEST: &[&str] = &[
    "0NATS/1.0\r\nNats-Batch-Id: a\r\nNats-Batch-Sequence: 1\r\n\r\n|3NATS/1.0\r\nNats-Batch-Id: a\r\nNats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n\r\n",
    "0NATS/1.0\r\nNats-Batch-Id: a\r\nNats-Batch-Sequence: 1\r\n\r\n|0NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\n\r\n|0NATS/1.0\r\nNats-Batch-Id: a\r\nNats-Batch-Sequence: 3\r\n\r\n",
    "1_INBOX.x.f.10.ok.1.0.$FI|2_INBOX.x.f.10.ok.2.1.$FI|1_INBOX.x.f.10.ok.3.1.$FI|2_INBOX.x.f.10.ok.3.4.$FI|1_INBOX.x.f.10.ok.4.2.$FI",
    "1_INBOX.x.f.1.fail.1.0.$FI|2_INBOX.x.f.1.fail.3.1.$FI|5_INBOX.x.f.1.fail.4.3.$FI|",
    "1_INBOX.x.f.4.fail.1.0.$FI|1_INBOX.x.g.4.ok.1.0.$FI|1_INBOX.x.g.4.ok.3.1.$FI|2_INBOX.x.f.4.fail.2.2.$FI",
];

const CONFIGS: &[&str] = &[
    "listen: 10.0.0.5:4222\nhttp: 127.0.0.1:8222\nmax_payload: 1MB\nmax_connections: 10000\n",
    "jetstream {\n    store_dir: /var/lib/tidegate # the data\n    max_file_store: 100GB\n}\n",
    "authorization {\n  default_permissions { publish: { deny: \"$JS.>\" } }\n  users: [\n    { user: ops, password: secret }\n    { user: shop, password: other, permissions { publish: [\"orders.>\", \"$JS.ACK.>\"]\n      subscribe: [\"_INBOX.>\"] } }\n  ]\n}\n",
    "tls { cert_file: /etc/tidegate/cert.pem, key_file: /etc/tidegate/key.pem }\n",
    "server_name: n1\ncluster {\n  name: tide\n  listen: \"10.0.0.1:6222\"\n  routes: [\"nats-route://10.0.0.1:6222\", \"nats-route://10.0.0.2:6222\"]\n  tls { cert_file: a.pem, key_file: a.key, ca_file: ca.pem, timeout: 2s }\n}\n",
    "PORT = 4222\nTOKEN = (\n a text of\n two lines\n)\nport: $PORT\nauthorization { token: $TOKEN }\n",
    "listen = \"10.0.0.5:4222\"\nhttp = \"127.0.0.1:8222\"\n\n[authorization]\ntoken = \"change me\"\n\n[cluster]\nname = \"tide\"\nroutes = [\"nats-route://10.0.0.1:6222\"]\n",
];

const RESP: &[&str] = &[
    "+OK\r\n",
    "-ERR unknown command\r\n",
    ":1000\r\n",
    "$5\r\nhello\r\n$-1\r\n*-1\r\n",
    "*2\r\n$1\r\na\r\n:-7\r\n",
    "%2\r\n+a\r\n:1\r\n+b\r\n#t\r\n",
    "~2\r\n,1.5\r\n,inf\r\n",
    ">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n",
    "_\r\n(3492890328409238509324850943850943825024385\r\n=7\r\ntxt:abc\r\n",
    "!9\r\nERR wrong\r\n|1\r\n+ttl\r\n:3\r\n+value\r\n",
];

/// The seeds of `transform`: a source, a destination and a subject each.
const TRANSFORMS: &[&str] = &[
    "|prefix.>|foo.bar",
    "foo.*.bar.*.baz|req.$2.{{wildcard(1)}}|foo.A.bar.B.baz",
    "baz.>|my.pre.>|baz.1.2.3",
    "*.*|{{partition(10,1,2)}}.{{ Partition ( 5 ) }}|foo.bar",
    "*|{{splitfromleft(1,3)}}.{{SplitFromRight(1,3)}}|12345",
    "*|{{SliceFromLeft(1,3)}}.{{slicefromright(1,3)}}|1234567890",
    "*|{{split(1,-)}}.{{split(1,)}}|-abc-def--ghi-",
    "*|{{left(1,2)}}.{{Right(1,3)}}.{{random(6)}}|abc*",
];
/// Returns the seeds of `backup`: compressed backups of real nats-servers, and a short backup in plain
/// bytes.
fn backup() -> Vec<Seed> {
    let folder = root().join("crates/tidegate-stream/src/backup/tests");
    let real = ["nats-server-2.12.s2", "nats-server-2.15.s2"].map(|name| {
        let bytes = fs::read(folder.join(name)).unwrap();
        (name.to_owned(), [&[0xfe][..], &bytes].concat())
    });
    let state = br#"{"messages":1,"first_seq":3,"last_seq":4,"consumer_count":0}"#;
    let mut plain = [&b"\x05NATSARC1\x0a\x00\x00\x00"[..], &[state.len() as u8]].concat();
    plain.extend_from_slice(b"state.json");
    plain.extend_from_slice(state);
    plain.extend_from_slice(b"\x03\x04\x03\x00\x02a.bhi\x00\x00\x00\x00\x00");
    let plain = ("plain".to_owned(), plain);
    real.into_iter().chain([plain]).collect()
}
