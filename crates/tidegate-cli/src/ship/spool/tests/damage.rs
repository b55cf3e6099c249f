//! Damage of every kind to every file of a spool, against an oracle: the spool opens with every durable
//! record, or the error names the damaged file. The spool never loses a record silently, and never gives a
//! number twice.

use std::collections::BTreeMap;

use super::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }
}

/// The progress of a history before it stopped.
#[derive(Clone, Debug)]
struct Done {
    /// The number of records appended; each append returned.
    durable: u64,
    /// The number of records acked to the writer.
    acked: u64,
    /// The session and base that the records may travel under: two if a crash hit the change from one to the
    /// other.
    owners: Vec<(u128, u64)>,
}

/// Appends, acks, restarts and ends at random, until the history ends or the disk crashes.
fn history(disk: &Image, seed: u64) -> Done {
    let mut random = Random(seed);
    let mut done = Done {
        durable: 0,
        acked: 0,
        owners: vec![(7, 0)],
    };
    for _ in 0..2 {
        let Ok((mut writer, _reader, acks, opened)) = open(disk) else {
            return done;
        };
        assert_eq!(opened.next, done.durable + 1);
        for _ in 0..1 + random.below(6) {
            let count = 1 + random.below(4);
            if append(&mut writer, done.durable + 1..=done.durable + count).is_err() {
                return done;
            }
            done.durable += count;
            if random.below(2) == 0 {
                done.acked += random.below(done.durable - done.acked + 1);
                acks.acked(done.acked);
                if writer.release().is_err() {
                    return done;
                }
            }
            if random.below(8) == 0 {
                let owner = (u128::from(100 + done.durable), done.acked);
                done.owners.push(owner);
                if writer.restart(owner.0, owner.1).is_err() {
                    return done;
                }
                done.owners = vec![owner];
            }
        }
        if random.below(3) == 0 {
            if random.below(2) == 0 {
                done.acked = done.durable;
                acks.acked(done.acked);
            }
            if writer.end().is_err() {
                return done;
            }
        }
    }
    done
}

fn files(disk: &Image) -> BTreeMap<String, Vec<u8>> {
    let names = disk.names().unwrap().into_iter();
    let names = names.map(|name| name.into_string().unwrap());
    names
        .map(|name| (name.clone(), disk.read(&name).unwrap()))
        .collect()
}

/// Opens the spool, and checks that it has every durable record, or that the error names `damaged`. Returns
/// whether it opened.
fn check(disk: &Image, done: &Done, damaged: Option<&str>, what: &str) -> bool {
    let before = files(disk);
    let (writer, mut reader, _, opened) = match open(disk) {
        Ok(ends) => ends,
        Err(error) => {
            let damaged = damaged.unwrap_or_else(|| panic!("{what}: {error}"));
            let said = error.to_string();
            assert!(said.contains(damaged), "{what} of {damaged}: {said}");
            assert!(said.contains("bring the file back"), "{what}: {said}");
            let mut after = files(disk);
            // The file `session` carries the lock, so the start creates it if it is missing.
            after.retain(|name, bytes| {
                before.contains_key(name) || name != SESSION || !bytes.is_empty()
            });
            assert_eq!(after, before, "{what}: a refusal changes nothing");
            return false;
        }
    };
    assert!(
        opened.next > done.durable,
        "{what} of {damaged:?}: {opened:?} {done:?}"
    );
    assert!(
        opened.first <= done.acked + 1,
        "{what} of {damaged:?}: {opened:?} {done:?}"
    );
    let owner = (opened.session, opened.base);
    assert!(
        done.owners.contains(&owner),
        "{what} of {damaged:?}: {owner:?} {done:?}"
    );
    let after = done.acked.max(opened.first - 1);
    reader.start_after(after).unwrap();
    drop(writer);
    let expected: Vec<_> = (after + 1..opened.next)
        .map(|number| (number, record(number)))
        .collect();
    assert_eq!(rest(&mut reader), expected, "{what} of {damaged:?}");
    true
}

/// Every single-bit flip, cut, emptying and removal of every file left on `disk`.
fn damage(disk: &Image, done: &Done) -> (u64, u64) {
    let (mut opened, mut refused) = (0, 0);
    for (name, bytes) in files(disk) {
        let mut try_with = |changed: Option<&[u8]>, what: String| {
            let copy = disk.kill(0);
            match changed {
                Some(changed) => copy.overwrite(&name, changed),
                None => copy.unlink(&name),
            }
            match check(&copy, done, Some(&name), &what) {
                true => opened += 1,
                false => refused += 1,
            }
        };
        try_with(None, "removal".into());
        // The writer writes nothing between the two slots of the manifest: a sample of these bytes stands for
        // them.
        let said = |at: usize| name != SESSION || at % 4096 < 128 || at.is_multiple_of(509);
        for end in (0..bytes.len()).filter(|end| said(*end)) {
            try_with(Some(&bytes[..end]), format!("cut at {end}"));
        }
        let mut changed = bytes.clone();
        for at in (0..bytes.len()).filter(|at| said(*at)) {
            for bit in 0..8 {
                changed[at] ^= 1 << bit;
                try_with(Some(&changed), format!("flip of bit {bit} of byte {at}"));
                changed[at] ^= 1 << bit;
            }
        }
    }
    (opened, refused)
}

#[test]
fn damage_to_a_durable_record_is_refused_and_named() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..12 {
        let disk = Image::default();
        let done = history(&disk, seed);
        let left = disk.kill(0);
        assert!(check(&left.kill(0), &done, None, "nothing"));
        let counts = damage(&left, &done);
        opened += counts.0;
        refused += counts.1;
    }
    assert!(opened > 5000 && refused > 5000, "{opened} {refused}");
}

/// A crash may precede the damage: the start cuts off an unfinished tail, and a lost durable record is an
/// error that names it.
#[test]
fn damage_after_a_crash_is_refused_and_named() {
    let (mut opened, mut refused) = (0, 0);
    for seed in 0..24 {
        let whole = Image::default();
        history(&whole, seed);
        let mut random = Random(1000 + seed);
        let disk = Image::default();
        disk.crash_at(random.below(whole.changes() as u64) as usize);
        let done = history(&disk, seed);
        let torn = random.below(disk.crashed_write().unwrap_or(0) as u64 + 1) as usize;
        let left = match seed % 2 {
            0 => disk.kill(torn),
            _ => disk.crash(torn, &mut Any(seed)),
        };
        assert!(check(&left.kill(0), &done, None, "nothing"), "{seed}");
        // The slot torn by the crash is one fault already; damage to the other slot would be a second.
        let settled = left.kill(0);
        drop(open(&settled).unwrap());
        let counts = damage(&settled.kill(0), &done);
        opened += counts.0;
        refused += counts.1;
    }
    assert!(opened > 5000 && refused > 5000, "{opened} {refused}");
}

/// The whole spool is one file, which is also the newest one.
#[test]
fn an_emptied_or_removed_spool_is_noticed() {
    let disk = Image::default();
    let (mut writer, ..) = open(&disk).unwrap();
    append(&mut writer, 1..=3).unwrap();
    drop(writer);
    for change in [Some(&b""[..]), None] {
        let copy = disk.kill(0);
        match change {
            Some(bytes) => copy.overwrite(&name(1), bytes),
            None => copy.unlink(&name(1)),
        }
        let said = open(&copy).err().unwrap().to_string();
        assert!(
            said.contains(&name(1)) && said.contains("records 1 to 3"),
            "{said}"
        );
    }
}

#[test]
fn a_spool_that_is_changed_under_the_writer_takes_no_more() {
    for change in [
        Some(&b""[..]),
        Some(b"longer than it was before, by far"),
        None,
    ] {
        let disk = Image::default();
        let (mut writer, ..) = open(&disk).unwrap();
        append(&mut writer, 1..=1).unwrap();
        match change {
            Some(bytes) => disk.overwrite(&name(1), bytes),
            None => disk.unlink(&name(1)),
        }
        let error = append(&mut writer, 2..=2).unwrap_err();
        assert!(matches!(error, SpoolError::Changed { .. }), "{error}");
    }
}
