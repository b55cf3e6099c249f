//! Fixes the contents of the data directory beside the log's own format: its version, checkpoints, members,
//! and the kinds of records that a start knows. A start refuses each file of a later version by name, and
//! changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_cluster::groups::ALL;
use tidegate_cluster::members::{Member, Members, MembersError, MembersFile};
use tidegate_log::Lsn;
use tidegate_log::{Append, Disk, Log, Record};
use tidegate_raft::replica::records::{self, HardState};
use tidegate_raft::replica::{EntryId, Index, Term};
use tidegate_raft::store::checkpoint::{self, Encoder, Header};
use tidegate_raft::store::{OpenError, Opening, Options, Replaying};
use tidegate_stream::stream::{AccountLimits, Streams};

use super::hex::{self, Text};
use super::{commands, entry, fixture};

fn golden_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1")
}

fn options() -> Options {
    Options {
        segment_bytes: 16 << 10,
        seed: Some(5),
        ..Options::default()
    }
}

/// Copies the data directory of version 1 from the fixtures.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden_directory(), dir.path());
    dir
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for file in fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        let to = to.join(file.file_name());
        match file.file_type().unwrap().is_dir() {
            true => copy(&file.path(), &to),
            false => drop(fs::copy(file.path(), to).unwrap()),
        }
    }
}

/// Reads every file of a directory with its content, except the locks.
fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for file in fs::read_dir(dir).unwrap() {
        let file = file.unwrap();
        if file.file_type().unwrap().is_dir() {
            all.extend(contents(&file.path()));
        } else if file.file_name() != "lock" {
            all.insert(file.path(), fs::read(file.path()).unwrap());
        }
    }
    all
}

/// Returns the reason for which a start refuses the directory, and checks that it changed nothing.
fn refused(dir: &Path) -> String {
    let before = contents(dir);
    let refused = Opening::begin(dir, options(), Arc::new(|| ()));
    let error = refused.map(drop).unwrap_err();
    assert!(
        !error.is_damage(),
        "{error}: it is whole, and of another version"
    );
    assert!(contents(dir) == before, "the directory was changed");
    error.to_string()
}

#[test]
fn a_directory_of_a_later_version_is_refused_by_name() {
    let dir = directory();
    fs::write(dir.path().join("tidegate/version"), "2\n").unwrap();
    assert_eq!(
        refused(dir.path()),
        "the data directory has format 2, this version reads up to 1: use the version that wrote it, or a later one"
    );
}

#[test]
fn a_checkpoint_of_a_later_version_is_refused_by_name_though_there_is_another() {
    let dir = directory();
    let name = "state-00000000000000000074";
    let path = dir.path().join("tidegate").join(name);
    let mut later = fs::read(&path).unwrap();
    later[8] = 2;
    let sum = crc32c::crc32c(&later[8..64]);
    later[4..8].copy_from_slice(&sum.to_le_bytes());
    fs::write(&path, later).unwrap();
    assert_eq!(
        refused(dir.path()),
        format!(
            "the file `{name}` of the data directory has format 2, this version reads up to 1: use the version that wrote it, or a \
             later one"
        )
    );
}

#[test]
fn a_record_of_an_unknown_kind_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let vote = HardState {
        term: Term::new(1),
        vote: 1,
    };
    write_log(dir.path(), &[records::hard_state(ALL, vote), record(7)]);
    // The test starts twice, because the refused file must still be there after the first start.
    for _ in 0..2 {
        let refused = Opening::begin(dir.path(), options(), Arc::new(|| ()));
        let error = refused.map(drop).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the log has a record of kind 7 at 80, this version reads up to 6: use the version that wrote it, or a later one"
        );
    }
}

#[test]
fn an_entry_with_an_unknown_command_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut entry = commands::an_entry().to_vec();
    entry[16] = 99;
    let entry = records::entry(ALL, EntryId::new(1, 1), entry.into());
    write_log(
        dir.path(),
        &[
            records::hard_state(
                ALL,
                HardState {
                    term: Term::new(1),
                    vote: 1,
                },
            ),
            entry,
        ],
    );
    let opening = Opening::begin(dir.path(), options(), Arc::new(|| ())).unwrap();
    let (mut streams, mut replaying) = (Streams::new(AccountLimits::NONE), Replaying::default());
    opening
        .look(|_, due, live| replaying.take(&mut streams, &due, live))
        .unwrap();
    let refused = replaying.finish().unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("no command has the kind 99 (byte 16): a newer program wrote it"),
        "{refused}"
    );
}

fn record(kind: u8) -> Record {
    Record {
        group: 1,
        kind,
        index: 1,
        term: 1,
        payload: "later".into(),
    }
}

/// Writes a data directory with these records in its log, in one batch, as a node of an earlier or later
/// version would.
fn write_log(dir: &Path, records: &[Record]) {
    let disk = Disk::open(dir.join("tidegate/log")).unwrap();
    let options = tidegate_log::Options::default()
        .segment_bytes(16 << 10)
        .seed(5);
    let mut opened = Log::open(Arc::new(disk), options, |_| ()).unwrap();
    let mut append = Append::new(records.to_vec());
    let appended = loop {
        match opened.appender.append(append) {
            Ok(appended) => break appended,
            Err((back, _)) => append = back,
        }
        assert!(opened.appender.wait_for_room(&append, None), "no room");
    };
    opened.log.wait_durable(appended.end, None).unwrap();
    opened.appender.close().unwrap();
    fs::write(dir.join("tidegate/version"), "1\n").unwrap();
}

/// Makes one record of each kind: the test fails until a new kind stands here. A program that does not know a
/// kind refuses to start on it.
fn samples() -> Vec<(&'static str, Record)> {
    let payload = commands::an_entry();
    let moved = |kind| Record {
        group: 1,
        kind,
        index: 9,
        term: 3,
        payload: payload.clone(),
    };
    vec![
        (
            "KIND_ENTRY",
            records::entry(ALL, EntryId::new(7, 2), payload.clone()),
        ),
        (
            "KIND_HARD_STATE",
            records::hard_state(
                ALL,
                HardState {
                    term: Term::new(2),
                    vote: 0x1111,
                },
            ),
        ),
        ("KIND_RELOCATED", moved(records::KIND_RELOCATED)),
        ("KIND_COMMITTED", records::committed(ALL, Index::new(7))),
        (
            "KIND_INSTALLED",
            records::installed(ALL, EntryId::new(74, 2)),
        ),
        ("KIND_FETCHED", moved(records::KIND_FETCHED)),
    ]
}

#[test]
fn every_kind_of_record_is_what_it_was() {
    let source = include_str!("../../../tidegate-raft/src/replica/records.rs");
    let declared: Vec<&str> = source
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub const ")?
                .split_once(": u8 = ")
                .map(|(name, _)| name)
        })
        .filter(|name| *name != "KIND_LAST")
        .collect();
    let named: Vec<&str> = samples().iter().map(|(name, _)| *name).collect();
    assert_eq!(declared, named, "each kind of record has a sample");
    let mut text = Text::new(
        "One record of each kind, as a group hands it to the log. Written by samples() in tests/golden/disk.rs.",
    );
    for (name, record) in samples() {
        text.section(name);
        text.number(&record.group.to_le_bytes(), "group");
        text.number(&[record.kind], "kind");
        text.number(&record.index.to_le_bytes(), "index");
        text.number(&record.term.to_le_bytes(), "term");
        entry::record(record.kind, &record.payload, &mut text);
    }
    hex::check(&fixture("entries", 1, "records.hex"), &text.0);
    let last = samples().iter().map(|(_, record)| record.kind).max();
    assert_eq!(last, Some(records::KIND_LAST));
}

fn a_checkpoint() -> (Header, Vec<u8>) {
    let text = fs::read_to_string(fixture("state", 3, "1.hex")).unwrap();
    let state = hex::read(&text)[0].bytes();
    let header = Header {
        entry: EntryId::new(74, 2),
        hard_state: HardState {
            term: Term::new(3),
            vote: 0x1111,
        },
        next: Lsn::new(1 << 20),
        live: vec![(0, 4096), (12_288, 512)],
    };
    let (mut encoder, mut bytes) = Encoder::begin(&header);
    encoder.part(&state);
    bytes.extend(&state);
    bytes.extend(encoder.end());
    (header, bytes)
}

#[test]
fn a_checkpoint_is_written_as_its_version_writes_it_and_read() {
    let (header, bytes) = a_checkpoint();
    let mut text = Text::new("A checkpoint. Written by a_checkpoint() in tests/golden/disk.rs.");
    text.section("state-00000000000000000074");
    entry::checkpoint(&bytes, &mut text);
    let version = entry::number_at(&bytes, 8, 4);
    hex::check(&fixture("checkpoint", version, "checkpoint.hex"), &text.0);
    let text = fs::read_to_string(fixture("checkpoint", 1, "checkpoint.hex")).unwrap();
    let kept = hex::read(&text)[0].bytes();
    let (read, state) = checkpoint::decode(&kept).unwrap();
    assert_eq!(read, header);
    Streams::restore(state, AccountLimits::NONE)
        .unwrap()
        .check_invariants();
}

fn members() -> MembersFile {
    let member = |name: &str, id| Member {
        name: name.into(),
        id,
    };
    let all = vec![
        member("n1", 0x1111),
        member("n2", 0x2222),
        member("n3", u64::MAX),
    ];
    MembersFile {
        cluster: "tide".into(),
        me: member("n2", 0x2222),
        rejoined: Some(17),
        log_begun: true,
        members: Members::new(all),
    }
}

#[test]
fn the_members_are_written_as_their_version_writes_them_and_those_of_before_are_read() {
    let text = members().encode();
    let version = text
        .lines()
        .next()
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    hex::check(&fixture("members", version, "members"), &text);
    let kept = fs::read(fixture("members", 2, "members")).unwrap();
    assert_eq!(MembersFile::decode(&kept), Ok(members()));
    // Version 1 did not record whether the log had begun, so the decoder takes it for not begun.
    let before = MembersFile {
        log_begun: false,
        ..members()
    };
    let kept = fs::read(fixture("members", 1, "members")).unwrap();
    assert_eq!(MembersFile::decode(&kept), Ok(before));
}

#[test]
fn members_of_a_later_version_are_refused_by_name() {
    let later = members()
        .encode()
        .replace("tidegate members 2", "tidegate members 3");
    let refused = MembersFile::decode(later.as_bytes()).unwrap_err();
    assert_eq!(refused, MembersError::Version("tidegate members 3".into()));
    assert_eq!(
        refused.to_string(),
        "the file `members` begins with `tidegate members 3`, expected `tidegate members 2`: use the version of tidegate that wrote \
         it, or a later one"
    );
}

/// The server does not take a file of a newer version for damage, so it gives no reason to empty the
/// directory.
#[test]
fn a_later_version_is_no_damage() {
    for error in [
        OpenError::Newer { version: 2 },
        OpenError::NewerFile {
            file: "state-7".into(),
            version: 2,
            reads: 1,
        },
        OpenError::NewerRecord {
            kind: 7,
            at: Lsn::ZERO,
        },
    ] {
        assert!(!error.is_damage(), "{error}");
    }
}
