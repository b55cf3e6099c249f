//! Checks that the format stays: the store opens the data directory in `tests/golden/v1`, with its
//! checkpoint, the entries after it, a message that the store copied forward, and a released segment. Its
//! checkpoints hold the state of version 1.
//!
//! `GOLDEN=write cargo test -p tidegate-server --test store golden` writes the directory of a new version,
//! named in `DIR`. It changes no existing directory. Files of single formats are in `tests/golden` (the test
//! `golden`), sessions of real programs in `crates/tidegate-cli/tests/golden`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_cluster::slots::GroupSlot;
use tidegate_raft::store::{Due, Fetch, Opening, Options, Store};
use tidegate_stream::schema::number::StreamNumber;
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{AccountLimits, Command, Effect, Encoder, Kind, Place, Streams};

const DIR: &str = "tests/golden/v1";
const MESSAGES: u64 = 60;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(DIR)
}

fn limits() -> AccountLimits {
    AccountLimits {
        streams: u64::MAX,
        file_bytes: u64::MAX,
        memory_bytes: u64::MAX,
        replicated: false,
    }
}

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        checkpoint_bytes_min: 1 << 40,
        seed: Some(5),
        ..Options::default()
    }
}

fn open(dir: &Path) -> (Store, Streams) {
    let mut opening = Opening::begin(dir, options(), Arc::new(|| ())).unwrap();
    let mut streams = match opening.take_state(GroupSlot::DIRECTORY) {
        Some(state) => Streams::restore(&state, limits()).unwrap(),
        None => Streams::new(limits()),
    };
    let store = opening.replay(|_, due, live| apply(&mut streams, &due, live));
    (store.unwrap(), streams)
}

fn apply(streams: &mut Streams, due: &Due, live: &mut tidegate_raft::store::Live) {
    let (mut outcomes, mut effects) = (Vec::new(), Vec::new());
    match due {
        Due::Entry(entry) => {
            let lsn = entry.lsn.get();
            streams
                .apply(lsn, &entry.data, &mut outcomes, &mut effects)
                .unwrap();
        }
        Due::Relocated(moved) => {
            let stream = streams.get(moved.stream).unwrap();
            if let Some(old) = stream.message(moved.seq) {
                assert!(streams.relocate(moved.stream, moved.seq, old.place, moved.place));
                live.removed(old.place, old.bytes);
                live.stored(moved.place, old.bytes);
            }
        }
    }
    for effect in effects {
        match effect {
            Effect::Stored { place, bytes, .. } => live.stored(place, bytes),
            Effect::Removed { place, bytes, .. } => live.removed(place, bytes),
            _ => {}
        }
    }
}

/// Runs turns of the loop until `done` returns true.
fn until(
    store: &mut Store,
    streams: &mut Streams,
    mut done: impl FnMut(&mut Store, &Streams) -> bool,
) {
    loop {
        store.poll().unwrap();
        while let Some((_, due)) = store.poll_due() {
            apply(streams, &due, store.live_mut(GroupSlot::DIRECTORY));
        }
        if let Some(asked) = store.poll_lying() {
            let (lying, next) = streams.residents_in(&asked.lsns, asked.from);
            store.handle_lying(lying, next);
        }
        if done(store, streams) {
            return;
        }
        std::thread::yield_now();
    }
}

fn write(store: &mut Store, streams: &mut Streams, time: u64, command: &Command<'_>) {
    let mut entry = Vec::new();
    Encoder::begin(&mut entry, time).command(command).unwrap();
    let index = store
        .propose(GroupSlot::DIRECTORY, entry.into(), 1)
        .unwrap()
        .index;
    until(store, streams, |store, _| {
        store.group(GroupSlot::DIRECTORY).uncommitted_bytes() == 0
            && store.group(GroupSlot::DIRECTORY).last_index() >= index
    });
}

fn payload(seq: u64) -> Vec<u8> {
    (0..400 + seq * 7).map(|n| (seq * 31 + n) as u8).collect()
}

fn publish(store: &mut Store, streams: &mut Streams, seqs: std::ops::RangeInclusive<u64>) {
    let stream = streams.by_name("orders").unwrap();
    for seq in seqs {
        let payload = payload(seq);
        let command = Command::new(Kind::Publish, stream, b"orders.new", &payload);
        write(store, streams, 1_000_000 + seq, &command);
    }
}

fn checkpoint(store: &mut Store, streams: &mut Streams) {
    store.begin_checkpoint(GroupSlot::DIRECTORY);
    store.checkpoint(GroupSlot::DIRECTORY, Box::new(streams.snapshot().chunks()));
    until(store, streams, |store, _| {
        !store.is_checkpointing(GroupSlot::DIRECTORY)
    });
}

fn make(dir: &Path) {
    let (mut store, mut streams) = open(dir);
    let config = br#"{"name":"orders","subjects":["orders.>"],"retention":"limits","max_consumers":-1,"max_msgs":-1,"max_bytes":-1,"max_age":0,"max_msgs_per_subject":-1,"max_msg_size":-1,"discard":"old","storage":"file","num_replicas":1,"duplicate_window":0}"#;
    let create = Command::new(Kind::CreateStream, StreamNumber::NONE, b"", config);
    write(&mut store, &mut streams, 1_000_000, &create);
    publish(&mut store, &mut streams, 1..=40);
    let stream = streams.by_name("orders").unwrap();
    for seq in (1..=30).filter(|seq| seq % 10 != 0) {
        let request = format!(r#"{{"seq":{seq},"no_erase":true}}"#);
        let delete = Command::new(Kind::DeleteMessage, stream, b"", request.as_bytes());
        write(&mut store, &mut streams, 2_000_000 + seq, &delete);
    }
    checkpoint(&mut store, &mut streams);
    publish(&mut store, &mut streams, 41..=45);
    // After the second checkpoint, the store copies the few messages left in the first segments forward, and
    // releases these segments.
    checkpoint(&mut store, &mut streams);
    until(&mut store, &mut streams, |store, _| {
        store.log().first().get() > 0
    });
    publish(&mut store, &mut streams, 46..=MESSAGES);
    store.close().unwrap();
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let to = to.join(file.file_name());
        let name = file.file_name();
        if file.file_type().unwrap().is_dir() {
            copy(&file.path(), &to);
        } else if name != "lock" && name != "reserve" {
            fs::copy(file.path(), to).unwrap();
        }
    }
}

#[test]
fn a_data_directory_of_version_1() {
    let dir = tempfile::tempdir().unwrap();
    if std::env::var_os("GOLDEN").is_some() && !golden().exists() {
        make(dir.path());
        copy(dir.path(), &golden());
        fs::remove_dir_all(dir.path().join("tidegate")).unwrap();
    }
    copy(&golden(), dir.path());
    let (mut store, mut streams) = open(dir.path());
    assert!(store.log().first().get() > 0, "a segment was let go");
    let stream = streams.get(streams.by_name("orders").unwrap()).unwrap();
    let state = stream.state();
    assert_eq!(
        (state.first_seq, state.last_seq),
        (StreamSeq::new(10), StreamSeq::new(MESSAGES))
    );
    assert_eq!(state.messages, MESSAGES - 27);
    let places: Vec<(u64, Place)> = (1..=MESSAGES)
        .filter_map(|seq| Some((seq, stream.place(StreamSeq::new(seq))?)))
        .collect();
    assert!(
        places[0].1.lsn > places[10].1.lsn,
        "message 10 was copied forward"
    );
    for (seq, place) in places {
        until(&mut store, &mut streams, |store, _| {
            match store.read(GroupSlot::DIRECTORY, place) {
                Fetch::Ready(entry) => {
                    let command = Command::read(&entry, 0).unwrap();
                    assert_eq!(command.subject, b"orders.new");
                    assert_eq!(command.payload, payload(seq));
                    true
                }
                Fetch::Pending => false,
                other => panic!("message {seq}: {other:?}"),
            }
        });
    }
}
