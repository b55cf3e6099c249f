//! Tests the receiver's file against a model. The simulated disk crashes at each change, tears a write at
//! each byte, and keeps any part of the unsynced changes.

use std::collections::BTreeMap;
use std::ffi::OsStr;

use super::super::disk::sim::{Fate, SimFolder};
use super::super::identity;
use super::*;

const FILE: &str = "out";
const SIDECAR: &str = "out.tidegate";

/// Returns the name of the file into which the receiver moves the bytes of its file from this offset on.
fn aside(at: usize) -> String {
    format!("{FILE}.tidegate-cut-{at}")
}

fn cut(at: usize, bytes: u64, in_doubt: bool) -> Cut {
    Cut {
        bytes,
        at: at as u64,
        path: aside(at).into(),
        in_doubt,
    }
}

fn open(disk: &SimFolder) -> Result<(Append<<SimFolder as Disk>::File>, Opened), OpenError> {
    Append::open(disk, OsStr::new(FILE))
}

/// The batches that a test appends, as chunks: (session, number of the first record, number of records).
type Script = Vec<Vec<(u128, u64, u64)>>;

fn script() -> Script {
    vec![
        vec![(1, 1, 1)],
        vec![(1, 2, 2), (2, 1, 1)],
        vec![(2, 2, 1), (1, 4, 1), (2, 3, 2), (3, 1, 1)],
        vec![(3, 2, 1)],
        vec![(1, 5, 3)],
    ]
}

fn bytes(session: u128, first: u64, records: u64) -> Vec<u8> {
    let record = |at| format!("session {session} record {at}\n");
    (first..first + records)
        .flat_map(|at| record(at).into_bytes())
        .collect()
}

fn chunks(batch: &[(u128, u64, u64)]) -> Vec<(u128, u64, u64, Vec<u8>)> {
    batch
        .iter()
        .map(|&(session, first, records)| (session, first, records, bytes(session, first, records)))
        .collect()
}

/// Begins each session of the batch that the file does not have, and appends the batch's records.
fn append<F: Bytes>(file: &mut Append<F>, batch: &[(u128, u64, u64)]) -> Result<(), AppendError> {
    for (session, ..) in batch {
        match file.begin(*session, 0, 42) {
            Err(BeginError::Append(e)) => return Err(e),
            progress => drop(progress.unwrap()),
        }
        file.release(*session);
    }
    let chunks = chunks(batch);
    file.append(chunks.iter().map(|(session, first, records, bytes)| Chunk {
        session: Some(*session),
        first: *first,
        records: *records,
        bytes,
    }))
}

/// Returns the position of each session, to compare it with the model's.
fn positions<F: Bytes>(file: &Append<F>) -> BTreeMap<u128, u64> {
    let positions = file
        .sessions()
        .map(|(session, progress)| (session, progress.position));
    // The model has no session without records, so the comparison leaves out such sessions of the file.
    positions.filter(|(_, position)| *position > 0).collect()
}

/// Returns, for each prefix of the script, the contents that the file must have and each session's position.
fn models(script: &Script) -> Vec<(Vec<u8>, BTreeMap<u128, u64>)> {
    let mut models = vec![(Vec::new(), BTreeMap::new())];
    let (mut file, mut positions) = models[0].clone();
    for batch in script {
        for (session, first, records) in batch {
            file.extend(bytes(*session, *first, *records));
            positions.insert(*session, first - 1 + records);
        }
        models.push((file.clone(), positions.clone()));
    }
    models
}

/// Opens the file on the disk after a crash, and checks that the file has only whole batches, and all acked
/// batches. Returns the number of batches in the file.
fn check(disk: &SimFolder, script: &Script, acked: usize) -> usize {
    let models = models(script);
    let (mut file, _) = open(disk).unwrap();
    let content = disk.read(FILE).unwrap();
    let survived = models.iter().position(|model| model.0 == content);
    let survived = survived.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&content)));
    assert!(survived >= acked, "{survived} of {acked}");
    assert_eq!(positions(&file), models[survived].1);
    for batch in &script[survived..] {
        append(&mut file, batch).unwrap();
    }
    assert_eq!(disk.read(FILE).unwrap(), models[script.len()].0);
    survived
}

/// Appends the script's batches until the disk crashes, and returns the number of acked batches.
fn run(disk: &SimFolder, script: &Script) -> usize {
    let Ok((mut file, _)) = open(disk) else {
        return 0;
    };
    let acked = script
        .iter()
        .take_while(|batch| append(&mut file, batch).is_ok());
    acked.count()
}

#[test]
fn every_crash_leaves_whole_batches_and_every_acked_one() {
    let script = script();
    let whole = SimFolder::default();
    assert_eq!(run(&whole, &script), script.len());
    let mut images = 0;
    for change in 0..whole.disk.changes() {
        let disk = SimFolder::default();
        disk.disk.crash_at(change);
        let acked = run(&disk, &script);
        let bytes = disk.disk.crashed_write().unwrap_or(0);
        // The zeros of a new state file are one write of many pages, so the test tears this write only at
        // some bytes.
        let step = if bytes > 4096 { 1001 } else { 1 };
        for torn in (0..=bytes).step_by(step) {
            check(&disk.kill(torn), &script, acked);
            let fates = [
                Fate::Nothing,
                Fate::Everything,
                Fate::Any(torn as u64),
                Fate::Any(change * 1000 + torn as u64),
            ];
            for fate in fates {
                check(&disk.crash(torn, fate), &script, acked);
                images += 1;
            }
        }
    }
    assert!(images > 2000, "{images}");
}

/// Kills a receiver, opens its file in a second receiver, which reports the contents, and then cuts the
/// power. Tests that the reported records are still there.
#[test]
fn an_opened_file_reports_only_durable_records() {
    let script = script();
    let whole = SimFolder::default();
    run(&whole, &script);
    for change in 0..whole.disk.changes() {
        let disk = SimFolder::default();
        disk.disk.crash_at(change);
        run(&disk, &script);
        let disk = disk.kill(usize::MAX);
        let told: BTreeMap<_, _> = open(&disk).unwrap().0.sessions().collect();
        for seed in 0..20 {
            let left = disk.crash(0, Fate::Any(seed));
            let (file, _) = open(&left).unwrap();
            let found: BTreeMap<_, _> = file.sessions().collect();
            assert_eq!(found, told, "change {change} seed {seed}");
        }
    }
}

#[test]
fn a_failed_sync_ends_it_for_good() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 1)]).unwrap();
    disk.disk.fail_syncs_after(0);
    assert!(matches!(
        append(&mut file, &[(1, 2, 1)]),
        Err(AppendError::Io { .. })
    ));
    assert!(matches!(
        append(&mut file, &[(1, 3, 1)]),
        Err(AppendError::Poisoned(_))
    ));
}

#[test]
fn a_changed_file_is_not_appended_to() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 3)]).unwrap();
    let good = disk.read(FILE).unwrap();
    drop(file);
    disk.overwrite(FILE, &good[..good.len() - 1]);
    assert!(
        matches!(open(&disk), Err(OpenError::Shorter { bytes, .. }) if bytes + 1 == good.len() as u64)
    );
    let mut other = good.clone();
    other[10] ^= 1;
    disk.overwrite(FILE, &other);
    assert!(matches!(open(&disk), Err(OpenError::Changed { .. })));
    disk.disk.unlink(FILE);
    assert!(matches!(
        open(&disk),
        Err(OpenError::Shorter { bytes: 0, .. })
    ));
    // No ack covers the bytes behind the end, but another program may have written them, so the receiver
    // keeps them.
    disk.overwrite(FILE, &[&good[..], b"torn"].concat());
    let (_, opened) = open(&disk).unwrap();
    assert_eq!(
        opened,
        Opened {
            bytes: good.len() as u64,
            cut: Some(cut(good.len(), 4, false)),
            rotated: None,
        }
    );
    assert_eq!(disk.read(FILE).unwrap(), good);
    assert_eq!(disk.read(&aside(good.len())).unwrap(), b"torn");
}

#[test]
fn another_programs_write_or_removal_is_noticed() {
    for bytes in [Some(&b"longer than it was, by somebody"[..]), None] {
        let disk = SimFolder::default();
        let (mut file, _) = open(&disk).unwrap();
        append(&mut file, &[(1, 1, 1)]).unwrap();
        match bytes {
            Some(bytes) => disk.overwrite(FILE, bytes),
            None => disk.disk.unlink(FILE),
        }
        let error = append(&mut file, &[(1, 2, 1)]).unwrap_err();
        assert!(matches!(error, AppendError::Changed { .. }), "{error}");
    }
}

#[test]
fn earlier_contents_stay() {
    let disk = SimFolder::default();
    disk.overwrite(FILE, b"older\n");
    let (mut file, opened) = open(&disk).unwrap();
    assert_eq!(
        opened,
        Opened {
            bytes: 6,
            cut: None,
            rotated: None,
        }
    );
    append(&mut file, &[(1, 1, 1)]).unwrap();
    drop(file);
    open(&disk).unwrap();
    assert_eq!(
        disk.read(FILE).unwrap(),
        [&b"older\n"[..], &bytes(1, 1, 1)].concat()
    );
}

#[test]
fn one_receiver_a_file() {
    let disk = SimFolder::default();
    let (file, _) = open(&disk).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Locked(_))));
    drop(file);
    open(&disk).unwrap();
}

#[test]
fn a_damaged_state_is_told() {
    let disk = SimFolder::default();
    run(&disk, &script());
    let mut sidecar = disk.read(SIDECAR).unwrap();
    for at in [20, SLOT + 20] {
        sidecar[at] ^= 1;
    }
    disk.overwrite(SIDECAR, &sidecar);
    assert!(matches!(open(&disk), Err(OpenError::Damaged(_))));
}

#[test]
fn records_are_written_once() {
    for (session, first) in [(1, 1), (1, 2), (2, 1)] {
        let disk = SimFolder::default();
        let (mut file, _) = open(&disk).unwrap();
        append(&mut file, &[(1, 1, 2)]).unwrap();
        let chunk = Chunk {
            session: Some(session),
            first,
            records: 1,
            bytes: b"x\n",
        };
        let error = file.append([chunk]).unwrap_err();
        assert!(matches!(error, AppendError::Repeated { .. }), "{error}");
        drop(file);
        let (file, _) = open(&disk).unwrap();
        assert_eq!(disk.read(FILE).unwrap(), bytes(1, 1, 2));
        assert_eq!(positions(&file), BTreeMap::from([(1, 2)]));
    }
}

/// Tests that a sender may give up records, so that the numbers of its next records leave a gap.
#[test]
fn numbers_may_be_left_out() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 2)]).unwrap();
    append(&mut file, &[(1, 10, 2)]).unwrap();
    assert_eq!(positions(&file), BTreeMap::from([(1, 11)]));
}

/// Tests that a session's position and epoch are as durable as its records, so that a sender can continue it.
#[test]
fn a_session_that_was_begun_stays_begun() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    let begun = file.begin(1, 17, 42).unwrap();
    assert_eq!((begun.position, begun.epoch), (17, 42));
    let left = disk.crash(0, Fate::Nothing);
    let (mut file, _) = open(&left).unwrap();
    assert_eq!(file.begin(1, 3, 43).unwrap(), begun);
    append(&mut file, &[(1, 18, 1)]).unwrap();
    // Records without a session belong to no sender that could continue, so the file counts no session for
    // them.
    let chunk = Chunk {
        session: None,
        first: 1,
        records: 1,
        bytes: b"plain\n",
    };
    file.append([chunk]).unwrap();
    assert_eq!(positions(&file), BTreeMap::from([(1, 18)]));
    let expected = [bytes(1, 18, 1), b"plain\n".to_vec()].concat();
    assert_eq!(left.read(FILE).unwrap(), expected);
}

#[test]
fn only_sessions_without_name_and_use_are_forgotten() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    let named = |n: u128| u128::from_le_bytes(identity::named(&n.to_string()).0);
    let (used, nameless) = (1 << 16, 2 << 16);
    file.begin(used, 0, 1).unwrap();
    append(&mut file, &[(nameless, 1, 1)]).unwrap();
    for n in 2..SESSIONS_MAX as u128 {
        file.begin(named(n), 0, 1).unwrap();
    }
    file.begin(named(5000), 0, 1).unwrap();
    assert!(file.sessions().all(|(session, _)| session != nameless));
    assert!(matches!(
        file.begin(named(6000), 0, 1),
        Err(BeginError::Full)
    ));
    file.release(used);
    file.begin(named(6000), 0, 1).unwrap();
    drop(file);
    let sessions = open(&disk).unwrap().0.sessions().count();
    assert_eq!(sessions, SESSIONS_MAX);
}

/// Tests that the checksum covers the same bytes of the file after appends as after a start, also if a batch
/// is longer than the checksum's range.
#[test]
fn large_batches_are_checked_too() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    let mut written = Vec::new();
    for (at, bytes) in [10, TAIL_MAX - 10, 1, 3 * TAIL_MAX, 5]
        .into_iter()
        .enumerate()
    {
        let bytes = vec![at as u8; bytes];
        let chunk = Chunk {
            session: None,
            first: at as u64 + 1,
            records: 1,
            bytes: &bytes,
        };
        file.append([chunk]).unwrap();
        written.extend_from_slice(&bytes);
        drop(file);
        file = open(&disk).unwrap().0;
        assert_eq!(disk.read(FILE).unwrap(), written);
    }
}

/// Tests that a start refuses bytes of another program behind an orderly end, wherever the disk crashes
/// meanwhile.
#[test]
fn a_line_another_program_appends_after_the_end_is_refused() {
    let begun = || {
        let disk = SimFolder::default();
        let (mut file, _) = open(&disk).unwrap();
        append(&mut file, &[(1, 1, 3)]).unwrap();
        (disk, file)
    };
    let (disk, mut file) = begun();
    let before = disk.disk.changes();
    file.close().unwrap();
    let closed = disk.disk.changes();
    assert!(matches!(
        append(&mut file, &[(1, 4, 1)]),
        Err(AppendError::Closed(_))
    ));
    drop(file);
    let good = disk.read(FILE).unwrap();
    let grown = [&good[..], b"precious\n"].concat();
    disk.overwrite(FILE, &grown);
    for _ in 0..2 {
        let error = open(&disk).err().unwrap();
        assert!(matches!(error, OpenError::Grown { .. }), "{error}");
        let said = error.to_string();
        assert!(
            said.contains(&format!("truncate -s {} {FILE}", good.len())),
            "{said}"
        );
        assert_eq!(disk.read(FILE).unwrap(), grown);
    }
    disk.overwrite(FILE, &good);
    let (mut file, opened) = open(&disk).unwrap();
    assert_eq!(opened.cut, None);
    append(&mut file, &[(1, 4, 1)]).unwrap();
    // After a crash while the receiver closes the file, the next start opens the file, whether it is closed
    // or not.
    for change in before..closed {
        let (disk, mut file) = begun();
        disk.disk.crash_at(change);
        assert!(file.close().is_err());
        for torn in (0..=disk.disk.crashed_write().unwrap_or(0)).chain([usize::MAX]) {
            for seed in 0..4 {
                let left = disk.crash(torn, Fate::Any(seed));
                let (file, opened) = open(&left).unwrap();
                assert_eq!(
                    (opened.cut, positions(&file)),
                    (None, BTreeMap::from([(1, 3)]))
                );
            }
        }
    }
}

/// Tests that a receiver ends when it detects another program's bytes, and that the next start refuses the
/// file.
#[test]
fn a_line_another_program_appends_meanwhile_is_refused_at_the_next_start_too() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 1)]).unwrap();
    let grown = [&disk.read(FILE).unwrap()[..], b"precious\n"].concat();
    disk.overwrite(FILE, &grown);
    let error = append(&mut file, &[(1, 2, 1)]).unwrap_err();
    assert!(matches!(error, AppendError::Changed { .. }), "{error}");
    drop(file);
    assert!(matches!(open(&disk), Err(OpenError::Grown { .. })));
    assert_eq!(disk.read(FILE).unwrap(), grown);
}

/// Tests that a flip of any bit in either slot loses nothing, because both slots hold the newest state
/// between two appends.
#[test]
fn damage_to_one_slot_loses_no_acked_record() {
    for closed in [false, true] {
        let disk = SimFolder::default();
        let (mut file, _) = open(&disk).unwrap();
        for batch in &script() {
            append(&mut file, batch).unwrap();
        }
        if closed {
            file.close().unwrap();
        }
        drop(file);
        let (models, content) = (models(&script()), disk.read(FILE).unwrap());
        let sidecar = disk.read(SIDECAR).unwrap();
        let said = HEAD_AND_SESSIONS;
        let all = |disk: &SimFolder, what: &str| {
            let (file, opened) = open(disk).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(opened.cut, None, "{what}");
            assert_eq!(positions(&file), models.last().unwrap().1, "{what}");
            assert_eq!(disk.read(FILE).unwrap(), content, "{what}");
        };
        for slot in [0, SLOT] {
            for at in slot..slot + said {
                for bit in 0..8 {
                    let mut changed = sidecar.clone();
                    changed[at] ^= 1 << bit;
                    let copy = disk.kill(0);
                    copy.overwrite(SIDECAR, &changed);
                    all(&copy, &format!("bit {bit} of byte {at}"));
                }
            }
        }
        let copy = disk.kill(0);
        copy.overwrite(SIDECAR, &sidecar[..SLOT]);
        all(&copy, "half");
    }
}

/// A number of bytes greater than the length of a state with three sessions, so that the test flips all of
/// it.
const HEAD_AND_SESSIONS: usize = 200;

/// Tests a start without the newest state: it moves the bytes that this state covered to another file, and
/// reports that they may have been acked.
#[test]
fn output_that_may_have_been_acked_is_kept() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 3)]).unwrap();
    let older = disk.read(SIDECAR).unwrap();
    let kept = disk.read(FILE).unwrap().len();
    append(&mut file, &[(1, 4, 2)]).unwrap();
    drop(file);
    let content = disk.read(FILE).unwrap();
    // The test makes a file of version 1: one slot has the previous state, the other the damaged new state.
    let (generation, newest) = (generation_of(&older), disk.read(SIDECAR).unwrap());
    assert_eq!(generation + 1, generation_of(&newest));
    let other = (generation as usize + 1) % 2 * SLOT;
    let mut bytes = older;
    bytes[other..other + SLOT].copy_from_slice(&newest[other..other + SLOT]);
    bytes[other] ^= 1;
    disk.overwrite(SIDECAR, &bytes);
    // Another file and an unfinished copy already have the first names, so the receiver must choose another
    // one.
    disk.overwrite(&aside(kept), b"in the way");
    disk.overwrite(&format!("{}-2", aside(kept)), &content[kept..kept + 5]);
    let (_, opened) = open(&disk).unwrap();
    let cut = opened.cut.unwrap();
    assert_eq!(cut.path, PathBuf::from(format!("{}-2", aside(kept))));
    assert!(
        cut.in_doubt && cut.bytes == (content.len() - kept) as u64,
        "{cut:?}"
    );
    assert_eq!(
        disk.read(cut.path.to_str().unwrap()).unwrap(),
        content[kept..]
    );
    assert_eq!(disk.read(&aside(kept)).unwrap(), b"in the way");
    assert_eq!(disk.read(FILE).unwrap(), content[..kept]);
}

/// Returns the generation of the newest whole state in the state file.
fn generation_of(sidecar: &[u8]) -> u64 {
    match state::find(sidecar) {
        Found::State(state) => state.generation,
        _ => panic!("no state"),
    }
}

/// Tests that at every crash while the start moves bytes aside, one of the two files has the bytes.
#[test]
fn bytes_that_leave_the_file_are_durable_first() {
    let start = || {
        let disk = SimFolder::default();
        let (mut file, _) = open(&disk).unwrap();
        append(&mut file, &[(1, 1, 1)]).unwrap();
        drop(file);
        let good = disk.read(FILE).unwrap();
        disk.overwrite(FILE, &[&good[..], b"precious\n"].concat());
        (disk, good)
    };
    let (disk, good) = start();
    let before = disk.disk.changes();
    drop(open(&disk).unwrap());
    for change in before..disk.disk.changes() {
        let (disk, _) = start();
        disk.disk.crash_at(change);
        assert!(open(&disk).is_err());
        for torn in 0..=disk.disk.crashed_write().unwrap_or(0) {
            for seed in 0..8 {
                let left = disk.crash(torn, Fate::Any(seed));
                drop(open(&left).unwrap());
                assert_eq!(left.read(FILE).unwrap(), good);
                // A crash may leave the first copy with its length but without its bytes, so the next copy
                // gets another name.
                let names = [aside(good.len()), format!("{}-2", aside(good.len()))];
                let has = |name: &String| left.read(name).is_some_and(|b| b == b"precious\n");
                assert!(names.iter().any(has), "{change} {torn} {seed}");
            }
        }
    }
}

/// Appends the script's batches until the disk crashes, with a rotation after the first two. `hurried` makes
/// the rotation create the new file itself. Returns the number of acked batches.
fn run_rotated(disk: &SimFolder, script: &Script, hurried: bool) -> usize {
    let Ok((mut file, _)) = open(disk) else {
        return 0;
    };
    for (acked, batch) in script.iter().enumerate() {
        if acked == 2 {
            if disk.rename(FILE, "out.1").is_err() {
                return acked;
            }
            if hurried {
                disk.overwrite(FILE, b"");
            }
            match file.reopen(disk, OsStr::new(FILE)) {
                Ok(reopened) => assert!(reopened),
                Err(_) => return acked,
            }
        }
        if append(&mut file, batch).is_err() {
            return acked;
        }
    }
    script.len()
}

#[test]
fn every_crash_around_a_rotation_leaves_whole_batches_and_every_acked_one() {
    let script = script();
    let models = models(&script);
    let mut found_beside = 0;
    for hurried in [false, true] {
        let disk = SimFolder::default();
        assert_eq!(run_rotated(&disk, &script, hurried), script.len());
        assert_eq!(disk.read("out.1").unwrap(), models[2].0);
        for change in 0..disk.disk.changes() {
            let disk = SimFolder::default();
            disk.disk.crash_at(change);
            let acked = run_rotated(&disk, &script, hurried);
            let torn = disk.disk.crashed_write().unwrap_or_default();
            for fate in [
                Fate::Nothing,
                Fate::Everything,
                Fate::Any(change),
                Fate::Any(!change),
            ] {
                for torn in [0, torn / 2, torn] {
                    let after = disk.crash(torn, fate);
                    let (mut file, opened) = open(&after).unwrap();
                    found_beside += usize::from(opened.rotated.is_some());
                    let whole = || {
                        let mut all = after.read("out.1").unwrap_or_default();
                        all.extend(after.read(FILE).unwrap_or_default());
                        all
                    };
                    let survived = models.iter().position(|m| m.0 == whole()).unwrap();
                    assert!(survived >= acked, "change {change}: {survived} of {acked}");
                    assert_eq!(positions(&file), models[survived].1);
                    for batch in &script[survived..] {
                        append(&mut file, batch).unwrap();
                    }
                    assert_eq!(whole(), models[script.len()].0);
                }
            }
        }
    }
    assert!(found_beside > 0, "some crash comes within the rotation");
}

#[test]
fn a_rotation_without_a_receiver_is_found_by_the_bytes_beside() {
    let rotations: [fn(&SimFolder); 3] = [
        |disk| disk.rename(FILE, "out-20261127").unwrap(),
        |disk| {
            disk.rename(FILE, "out.1").unwrap();
            disk.overwrite(FILE, b"");
        },
        // A copy that is then cut.
        |disk| {
            disk.overwrite("out.1", &disk.read(FILE).unwrap());
            disk.overwrite(FILE, b"");
        },
    ];
    for closed in [false, true] {
        for rotate in rotations {
            let disk = SimFolder::default();
            let (mut file, _) = open(&disk).unwrap();
            append(&mut file, &[(1, 1, 2)]).unwrap();
            if closed {
                file.close().unwrap();
            }
            drop(file);
            let disk = disk.kill(0);
            rotate(&disk);
            let (mut file, opened) = open(&disk).unwrap();
            assert!(opened.rotated.is_some() && opened.bytes == 0);
            append(&mut file, &[(1, 3, 1)]).unwrap();
            assert_eq!(disk.read(FILE).unwrap(), bytes(1, 3, 1));
        }
    }
}

#[test]
fn records_without_an_ack_leave_a_rotated_file_because_they_come_again() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 2)]).unwrap();
    drop(file);
    let disk = disk.kill(0);
    let acked = disk.read(FILE).unwrap();
    disk.overwrite("out.1", &[&acked[..], b"not acked\n"].concat());
    disk.overwrite(FILE, b"");
    let (_, opened) = open(&disk).unwrap();
    let cut = opened.cut.unwrap();
    assert_eq!((cut.bytes, cut.at), (10, acked.len() as u64));
    assert_eq!(disk.read("out.1").unwrap(), acked);
    assert_eq!(
        disk.read(cut.path.to_str().unwrap()).unwrap(),
        b"not acked\n"
    );
}

#[test]
fn an_empty_file_without_the_acked_bytes_beside_is_refused() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 2)]).unwrap();
    drop(file);
    let disk = disk.kill(0);
    let acked = disk.read(FILE).unwrap();
    disk.overwrite(FILE, b"");
    assert!(matches!(open(&disk), Err(OpenError::Shorter { .. })));
    let mut other = acked.clone();
    *other.last_mut().unwrap() ^= 1;
    for beside in [&acked[1..], &other, b"", b"gz"] {
        disk.overwrite("out.1", beside);
        assert!(matches!(
            open(&disk.kill(0)),
            Err(OpenError::Shorter { .. })
        ));
    }
    // A file that is not empty is no file of a rotation.
    disk.overwrite("out.1", &acked);
    disk.overwrite(FILE, b"x");
    assert!(matches!(
        open(&disk.kill(0)),
        Err(OpenError::Shorter { .. })
    ));
}

#[test]
fn a_rotation_does_not_hide_another_programs_write() {
    let disk = SimFolder::default();
    let (mut file, _) = open(&disk).unwrap();
    append(&mut file, &[(1, 1, 2)]).unwrap();
    assert!(
        !file.reopen(&disk, OsStr::new(FILE)).unwrap(),
        "no rotation"
    );
    disk.rename(FILE, "out.1").unwrap();
    disk.overwrite("out.1", b"other bytes");
    let refused = file.reopen(&disk, OsStr::new(FILE));
    assert!(matches!(refused, Err(AppendError::Changed { .. })));
    assert!(append(&mut file, &[(1, 3, 1)]).is_err());
}
