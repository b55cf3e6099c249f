//! The list of syncs against a plain list, and the error of its packed numbers.

use proptest::prelude::*;

use super::*;

fn sync(end: u64, started_ns: u64) -> PastSync {
    PastSync {
        begin: Lsn::ZERO,
        end: Lsn::new(end),
        started: Time::from_nanos(started_ns),
        took_ns: 130_000,
        callers: 3,
        reason: Reason::Drained,
        fit: Some((120_000.0, 0.0007)),
    }
}

fn is_near(packed: f64, plain: f64, least: f64) -> bool {
    (packed - plain).abs() <= 0.002 * plain + least
}

/// Asserts that `kept` is `plain` within the error of the packed fields.
fn assert_same(kept: &PastSync, plain: &PastSync) {
    assert_eq!((kept.begin, kept.end), (plain.begin, plain.end));
    let late = plain.started.since(kept.started);
    assert!(
        kept.started <= plain.started && late < 2 * TIME_UNIT,
        "{late}"
    );
    assert!(is_near(kept.took_ns as f64, plain.took_ns as f64, 1.0));
    assert!(is_near(kept.callers as f64, plain.callers as f64, 0.0));
    assert_eq!(kept.reason, plain.reason);
    match (kept.fit, plain.fit) {
        (None, fit) => assert!(fit.is_none_or(|(a, b)| a < 1.0 && b < 1e-7)),
        (Some(kept), Some(fit)) => {
            assert!(is_near(kept.0, fit.0, 0.51) && is_near(kept.1, fit.1, 1e-7));
        }
        (Some(_), None) => panic!("a fit from nothing"),
    }
}

#[test]
fn a_sync_takes_sixteen_bytes_and_comes_back() {
    assert_eq!(size_of::<u128>(), 16);
    let mut syncs = Syncs::new(Lsn::new(800));
    assert_eq!(syncs.find(Lsn::new(799)), SyncOf::Earlier);
    assert_eq!(syncs.find(Lsn::new(800)), SyncOf::Later);
    syncs.append(&sync(1600, 5_000_000));
    syncs.append(&sync(2400, 7_000_000));
    let SyncOf::Sync(first, None) = syncs.find(Lsn::new(832)) else {
        panic!("the first sync covers this position");
    };
    assert_eq!((first.begin, first.end), (Lsn::new(800), Lsn::new(1600)));
    let SyncOf::Sync(second, Some(idle)) = syncs.find(Lsn::new(2399)) else {
        panic!("the second sync covers this position");
    };
    assert_eq!(second.begin, Lsn::new(1600));
    assert!(idle.as_nanos().abs_diff(5_130_000) < 2 * TIME_UNIT + 300);
    assert_eq!(syncs.find(Lsn::new(2400)), SyncOf::Later);
}

#[test]
fn the_oldest_chunk_goes_once_the_list_is_full() {
    let most = 2 * CHUNK;
    let mut syncs = Syncs::with_most(Lsn::ZERO, most);
    for n in 1..=(10 * CHUNK as u64) {
        syncs.append(&sync(n * 64, n * 1_000_000));
        assert!(syncs.len <= most);
        assert!(syncs.len >= CHUNK.min(n as usize));
    }
    let oldest = syncs.chunks.front().expect("a chunk is there").since;
    assert_eq!(syncs.find(Lsn::new(8)), SyncOf::Forgotten(oldest));
    let memory: usize = syncs.chunks.iter().map(|c| c.syncs.capacity()).sum();
    assert!(memory <= most, "{memory}");
}

#[test]
fn a_gap_of_days_or_of_many_bytes_begins_a_chunk() {
    let day = 86_400_000_000_000;
    let mut syncs = Syncs::new(Lsn::ZERO);
    for n in 1..=100 {
        syncs.append(&sync(n << 33, n * day));
    }
    assert_eq!(syncs.chunks.len(), 100);
    for n in 1..=100 {
        let SyncOf::Sync(found, _) = syncs.find(Lsn::new((n << 33) - 8)) else {
            panic!("sync {n} is kept");
        };
        assert_eq!(found.started, Time::from_nanos(n * day));
    }
}

#[test]
fn packed_numbers_keep_three_digits() {
    for n in 0..512 {
        assert_eq!(
            unpack(pack(f64::from(n), WHOLE_EXPONENT), WHOLE_EXPONENT),
            f64::from(n)
        );
    }
    let mut number = 1.0;
    while number < 1e15 {
        assert!(is_near(
            unpack(pack(number, WHOLE_EXPONENT), WHOLE_EXPONENT),
            number,
            0.0
        ));
        let small = number * 1e-7;
        assert!(is_near(
            unpack(pack(small, SMALL_EXPONENT), SMALL_EXPONENT),
            small,
            0.0
        ));
        number *= 1.0173;
    }
    for odd in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0] {
        assert_eq!(pack(odd, WHOLE_EXPONENT), 0);
    }
    assert_eq!(pack(f64::INFINITY, WHOLE_EXPONENT), (1 << NUMBER_BITS) - 1);
}

fn a_sync() -> impl Strategy<Value = (u64, u64, u64, u64, usize, Option<(f64, f64)>)> {
    let bytes = prop_oneof![8 => 1..4096_u64, 1 => 1..(1_u64 << 20), 1 => (1_u64 << 30)..(1 << 31)];
    let idle = prop_oneof![8 => 0..5_000_000_u64, 1 => 0..(20 * 3600 * 1_000_000_000_u64)];
    let fit = proptest::option::of((1.0..1e8, 1e-6..1e3));
    (
        bytes,
        idle,
        0..20_000_000_000_u64,
        1..100_000_u64,
        0..Reason::ALL.len(),
        fit,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Appends syncs to the list and to a plain list. Both then name the same sync for each position.
    #[test]
    fn positions_find_the_syncs_of_a_plain_list(
        opened in 0..1_000_000_u64,
        appended in proptest::collection::vec(a_sync(), 1..300),
        asked in proptest::collection::vec(any::<prop::sample::Index>(), 50),
    ) {
        let opened = Lsn::new(opened * POSITION_UNIT);
        let mut syncs = Syncs::with_most(opened, CHUNK);
        let mut plain: Vec<PastSync> = Vec::new();
        let (mut end, mut now) = (opened, 0);
        for (units, idle, took_ns, callers, reason, fit) in appended {
            let begin = end;
            end = begin.after(units * POSITION_UNIT);
            now += idle;
            let sync = PastSync {
                begin,
                end,
                started: Time::from_nanos(now),
                took_ns,
                callers,
                reason: Reason::ALL[reason],
                fit,
            };
            now += took_ns;
            syncs.append(&sync);
            plain.push(sync);
        }
        let kept = plain.len() - syncs.len;
        prop_assert_eq!(syncs.end(), end);
        prop_assert_eq!(syncs.find(end), SyncOf::Later);
        for (n, sync) in plain.iter().enumerate() {
            let ends = [sync.begin, Lsn::new(sync.end.get() - 1)];
            let inner = asked.iter().take(2).map(|at| {
                sync.begin.after(at.index((sync.end.get() - sync.begin.get()) as usize) as u64)
            });
            for lsn in ends.into_iter().chain(inner) {
                match syncs.find(lsn) {
                    SyncOf::Sync(found, before) => {
                        prop_assert!(n >= kept);
                        assert_same(&found, sync);
                        let known = (n > kept).then(|| plain[n - 1]);
                        prop_assert_eq!(before.is_some(), known.is_some());
                    }
                    SyncOf::Forgotten(oldest) => {
                        prop_assert!(n < kept);
                        prop_assert_eq!(oldest, plain[kept].started);
                    }
                    other => prop_assert!(false, "{:?} for {:?}", other, sync),
                }
            }
        }
    }
}
