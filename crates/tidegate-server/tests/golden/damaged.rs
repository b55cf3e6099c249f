//! Reads every fixture in damaged forms: cut, and with bytes changed and its checksum corrected. No reader
//! may panic, and each refusal must have a text.
//!
//! The same bytes are seeds for fuzzing: `GOLDEN_SEEDS=fuzz/target/corpus cargo test -p tidegate-server
//! --test golden seeds` writes each fixture, whole and damaged, into the folder of the target that reads it.

use std::fs;
use std::path::PathBuf;

use bytes::Bytes;
use tidegate_cluster::members::MembersFile;
use tidegate_cluster::wire::{FRAME_BYTES_MAX, read};
use tidegate_raft::store::checkpoint;
use tidegate_raft::{catchup, replica};
use tidegate_stream::stream::{AccountLimits, Streams};

use super::{fixture, hex};

/// The place of a format's checksum, and the bytes that it covers.
#[derive(Clone, Copy)]
enum Sum {
    None,
    /// The checksum stands at the end and covers everything before it.
    Last,
    /// The checksum stands at the front and covers everything behind it.
    First,
}

impl Sum {
    fn fit(self, bytes: &mut [u8]) {
        match self {
            Self::None => {}
            Self::Last => {
                if let Some((body, sum)) = bytes.split_last_chunk_mut() {
                    *sum = crc32c::crc32c(body).to_le_bytes();
                }
            }
            Self::First => {
                if let Some((sum, body)) = bytes.split_first_chunk_mut() {
                    *sum = crc32c::crc32c(body).to_le_bytes();
                }
            }
        }
    }
}

/// Reads the bytes of a format, and returns the reason if it refuses them.
type Reader = Box<dyn FnMut(&[u8]) -> Option<String>>;

/// A format: its fixtures, and the reader that must not panic.
struct Format {
    /// The name of the fuzz target that reads the format.
    target: &'static str,
    fixture: PathBuf,
    sum: Sum,
    read: Reader,
}

fn formats() -> Vec<Format> {
    let format = |target, fixture, sum, read| Format {
        target,
        fixture,
        sum,
        read,
    };
    // The reader applies damaged entries to existing streams, so that they meet a state.
    let (mut streams, mut applied) = (Streams::new(AccountLimits::NONE), 0_u64);
    let entries = move |bytes: &[u8]| {
        let bytes = Bytes::copy_from_slice(bytes);
        applied += 1;
        let done = streams.apply(64 * applied, &bytes, &mut Vec::new(), &mut Vec::new());
        if applied % 256 == 0 {
            streams.check_invariants();
        }
        Some(done.err()?.to_string())
    };
    let messages = |bytes: &[u8]| {
        let read = replica::wire::decode(&Bytes::copy_from_slice(bytes));
        Some(read.err()?.to_string())
    };
    let questions = |bytes: &[u8]| {
        let read = catchup::wire::decode(&Bytes::copy_from_slice(bytes));
        Some(read.err()?.to_string())
    };
    let checkpoints = |bytes: &[u8]| Some(checkpoint::decode(bytes).err()?.to_string());
    let path = fixture("entries", 1, "entries.hex");
    let mut all = vec![format(
        "entry",
        path,
        Sum::None,
        Box::new(entries) as Box<_>,
    )];
    let path = fixture("entries", 1, "retaining.hex");
    let mut retaining = Streams::new(AccountLimits::NONE);
    let mut lsn = 0;
    let entries = move |bytes: &[u8]| {
        let bytes = Bytes::copy_from_slice(bytes);
        lsn += 64;
        let done = retaining.apply(lsn, &bytes, &mut Vec::new(), &mut Vec::new());
        Some(done.err()?.to_string())
    };
    all.push(format("entry", path, Sum::None, Box::new(entries)));
    let path = fixture("raft", 1, "messages.hex");
    all.push(format("raft_message", path, Sum::First, Box::new(messages)));
    let path = fixture("cluster", 3, "catch_up.hex");
    all.push(format("catch_up", path, Sum::Last, Box::new(questions)));
    let path = fixture("checkpoint", 1, "checkpoint.hex");
    all.push(format("checkpoint", path, Sum::Last, Box::new(checkpoints)));
    for name in ["frames.hex", "greeting.hex"] {
        let path = fixture("cluster", 3, name);
        let frames = |bytes: &[u8]| Some(read(bytes, FRAME_BYTES_MAX).err()?.to_string());
        all.push(format("cluster_wire", path, Sum::Last, Box::new(frames)));
    }
    for (version, number) in [(3, "1.hex"), (3, "4097.hex"), (3, "4098.hex"), (4, "1.hex")] {
        let path = fixture("state", version, number);
        let states = |bytes: &[u8]| {
            let restored = Streams::restore(bytes, AccountLimits::NONE);
            Some(restored.err()?.to_string())
        };
        all.push(format("streams", path, Sum::None, Box::new(states)));
    }
    all
}

/// Reads the sections of a fixture as bytes.
fn sections(format: &Format) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(&format.fixture).unwrap();
    hex::read(&text).iter().map(hex::Section::bytes).collect()
}

/// Cuts the bytes at each place, then changes each byte in three ways, and passes each result to `each`; of
/// long input, only at some places.
fn damaged(whole: &[u8], sum: Sum, each: &mut dyn FnMut(&[u8])) {
    let step = 1 + whole.len() / 256;
    for cut in (0..whole.len()).step_by(step) {
        let mut bytes = whole[..cut].to_vec();
        each(&bytes);
        sum.fit(&mut bytes);
        each(&bytes);
    }
    for at in (0..whole.len()).step_by(step) {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = whole.to_vec();
            bytes[at] ^= flip;
            each(&bytes);
            sum.fit(&mut bytes);
            each(&bytes);
        }
    }
}

#[test]
fn damaged_fixtures_are_refused_with_words_or_taken_and_nothing_panics() {
    for mut format in formats() {
        let (mut refused, mut all) = (0, 0);
        for whole in sections(&format) {
            damaged(&whole, format.sum, &mut |bytes| {
                all += 1;
                if let Some(words) = (format.read)(bytes) {
                    assert!(!words.is_empty());
                    refused += 1;
                }
            });
        }
        assert!(
            refused > all / 10,
            "{}: {refused} of {all} refused",
            format.fixture.display()
        );
    }
}

#[test]
fn damaged_members_are_refused() {
    let whole = fs::read(fixture("members", 2, "members")).unwrap();
    damaged(&whole, Sum::None, &mut |bytes| {
        assert!(MembersFile::decode(bytes).is_err());
    });
}

#[test]
fn seeds_are_written_where_they_are_asked_for() {
    let Some(corpus) = std::env::var_os("GOLDEN_SEEDS") else {
        // The test checks that every format with seeds has a fuzz target.
        let targets = include_str!("../../../../fuzz/Cargo.toml");
        for format in formats() {
            assert!(
                targets.contains(&format!("name = \"{}\"", format.target)),
                "{}",
                format.target
            );
        }
        return;
    };
    for format in formats() {
        let folder = PathBuf::from(&corpus).join(format.target);
        fs::create_dir_all(&folder).unwrap();
        let name = format
            .fixture
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        for (n, whole) in sections(&format).iter().enumerate() {
            fs::write(folder.join(format!("{name}-{n}")), whole).unwrap();
            // The test writes only a few damaged seeds, because the fuzzer finds the others from there.
            let mut at = 0;
            damaged(whole, format.sum, &mut |bytes| {
                at += 1;
                if at % 97 == 0 {
                    fs::write(folder.join(format!("{name}-{n}-damaged-{at}")), bytes).unwrap();
                }
            });
        }
    }
}
