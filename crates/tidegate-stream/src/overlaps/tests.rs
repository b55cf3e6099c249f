//! Compares the index of patterns with a comparison of all pairs of patterns, and counts the cost of a
//! search.

use proptest::prelude::*;
use tidegate_nats::subject::{is_pattern, overlaps};

use super::*;

fn pattern() -> impl Strategy<Value = String> {
    let token = prop::sample::select(vec!["a", "b", "ab", "*", "*", ">"]);
    prop::collection::vec(token, 1..6)
        .prop_map(|tokens| tokens.join("."))
        .prop_filter("a pattern", |p| is_pattern(p.as_bytes()))
}

#[derive(Clone, Debug)]
enum Act {
    Insert(String, u32),
    Remove(prop::sample::Index),
    Find(String, Option<u32>),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (pattern(), 0..6_u32).prop_map(|(p, owner)| Act::Insert(p, owner)),
        1 => any::<prop::sample::Index>().prop_map(Act::Remove),
        4 => (pattern(), prop::option::of(0..6_u32)).prop_map(|(p, except)| Act::Find(p, except)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Tests that the index finds the stream that a comparison with all patterns finds. The patterns have few
    /// different tokens, so that they share many, with wildcards on both sides.
    #[test]
    fn as_comparing_with_all(acts in prop::collection::vec(act(), 1..80)) {
        let mut index = Overlaps::default();
        let mut model: Vec<(String, u32)> = Vec::new();
        for act in acts {
            match act {
                Act::Insert(pattern, owner) => {
                    index.insert(pattern.as_bytes(), StreamNumber::new(owner));
                    model.push((pattern, owner));
                }
                Act::Remove(_) if model.is_empty() => {}
                Act::Remove(at) => {
                    let (pattern, owner) = model.swap_remove(at.index(model.len()));
                    index.remove(pattern.as_bytes(), StreamNumber::new(owner));
                }
                Act::Find(pattern, except) => {
                    let others = model.iter().filter(|(_, owner)| Some(*owner) != except);
                    let hits = others.filter(|(p, _)| overlaps(p.as_bytes(), pattern.as_bytes()));
                    let lowest = hits.map(|(_, owner)| *owner).min();
                    let found = index.find(pattern.as_bytes(), except.map(StreamNumber::new));
                    prop_assert_eq!(found, lowest.map(StreamNumber::new), "{}", pattern);
                }
            }
            index.check_invariants();
            prop_assert_eq!(index.len(), model.len());
        }
        for (pattern, owner) in model {
            index.remove(pattern.as_bytes(), StreamNumber::new(owner));
        }
        prop_assert!(index.shapes.is_empty(), "the index keeps shapes without patterns");
    }
}

/// Tests that searches by more sets of positions than the index keeps tables give right answers, and that the
/// index drops unused tables.
#[test]
fn more_tables_than_are_kept() {
    let mut index = Overlaps::default();
    for n in 0..50_u32 {
        index.insert(
            format!("a{n}.b{n}.c{n}.d{n}.e{n}.f{n}").as_bytes(),
            StreamNumber::new(n),
        );
    }
    for round in 0..40_u32 {
        for stars in 0..64_u32 {
            let n = round % 50;
            let token = |(at, letter): (u32, char)| match stars >> at & 1 {
                0 => format!("{letter}{n}"),
                _ => "*".to_owned(),
            };
            let tokens: Vec<_> = (0..).zip("abcdef".chars()).map(token).collect();
            let lowest = if stars == 63 { 0 } else { n };
            let pattern = tokens.join(".");
            assert_eq!(
                index.find(pattern.as_bytes(), None),
                Some(StreamNumber::new(lowest)),
                "{pattern}"
            );
        }
        index.check_invariants();
    }
    let of_shape = index.shapes.values().next().unwrap();
    assert_eq!(of_shape.tables.len(), TABLES_MAX);
    for _ in 0..2 * UNUSED_MAX {
        index.find(b"a7.*.*.*.*.>", None);
    }
    // The index now has room for a table that it refused before, so these searches must be cheap.
    let before = index.cost();
    for _ in 0..100 {
        index.find(b"*.*.*.d7.e7.f7", None);
    }
    assert!(
        index.cost() - before <= 50 + 100,
        "{}",
        index.cost() - before
    );
}

/// Returns the cost of the searches for the first half of `count` patterns and for the second half, so that
/// the caller can check that the cost does not grow with the index.
fn halves(count: u32, pattern: impl Fn(u32) -> String) -> (u64, u64) {
    let mut index = Overlaps::default();
    let mut costs = Vec::new();
    for half in 0..2 {
        let before = index.cost();
        for n in half * count / 2..(half + 1) * count / 2 {
            let pattern = pattern(n);
            assert_eq!(index.find(pattern.as_bytes(), None), None, "{pattern}");
            index.insert(pattern.as_bytes(), StreamNumber::new(n));
        }
        costs.push(index.cost() - before);
    }
    (costs[0], costs[1])
}

#[test]
fn the_second_ten_thousand_cost_as_much_as_the_first() {
    // The spaces of patterns: single tokens, one literal token with wildcards after it, before it and around
    // it, and patterns of two or three shapes with tokens that the tables cannot narrow down.
    let spaces: [&dyn Fn(u32) -> String; 6] = [
        &|n| format!("S{n}"),
        &|n| format!("orders.{n}.>"),
        &|n| format!("*.tenant{n}.>"),
        &|n| format!("a.*.{n}.*.z"),
        &|n| match n % 2 {
            0 => format!("{n}.y"),
            _ => format!("*.{n}"),
        },
        &|n| match n % 3 {
            0 => format!("a{n}.y.*.*"),
            1 => format!("b{n}.*.z.*"),
            _ => format!("*.x.w.{n}"),
        },
    ];
    for (i, space) in spaces.iter().enumerate() {
        let (first, second) = halves(20_000, space);
        assert!(second <= first + 10, "space {i}: {first}, then {second}");
        // A search needs one lookup in one table of each shape, and no space here has more than three shapes.
        assert!(second <= 3 * 10_000, "space {i}: {second}");
    }
}

proptest! {
    #[test]
    fn a_list_names_the_first_earlier_pattern_that_overlaps(all in prop::collection::vec(pattern(), 1..60)) {
        let (mut earlier, mut kept): (_, Vec<&String>) = (Earlier::default(), Vec::new());
        for one in &all {
            let expected = kept.iter().position(|o| overlaps(o.as_bytes(), one.as_bytes()));
            prop_assert_eq!(earlier.overlapping(one.as_bytes()), expected);
            if expected.is_none() {
                earlier.push(one.as_bytes());
                kept.push(one);
            }
        }
    }
}

#[test]
fn a_long_list_of_subjects_costs_no_comparison_of_all_pairs() {
    let all: Vec<String> = (0..20_000).map(|n| format!("x.*.{n}.>")).collect();
    let mut earlier = Earlier::default();
    for one in &all {
        assert_eq!(earlier.overlapping(one.as_bytes()), None);
        earlier.push(one.as_bytes());
    }
    assert_eq!(earlier.overlapping(b"x.y.*.a"), Some(0));
    assert!(earlier.cost() < 3 * all.len() as u64, "{}", earlier.cost());
}
