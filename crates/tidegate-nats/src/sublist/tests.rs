//! Tests of the sublist, with a naive model and with counts of its work.

use super::*;
use crate::subject::{contains, is_pattern};
use proptest::prelude::*;

fn found(list: &mut Sublist, subject: &str) -> (Vec<SubKey>, Vec<Vec<SubKey>>) {
    let m = list.matches(subject.as_bytes());
    let sorted = |keys: &[SubKey]| {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        keys
    };
    let all = |group: Members<'_>| sorted(&[group.many, group.single].concat());
    let mut groups: Vec<_> = m.groups().map(all).collect();
    groups.sort();
    (sorted(&m.plain), groups)
}

#[test]
fn wildcards_and_groups() {
    let mut list = Sublist::new();
    for (key, pattern) in [">", "a.*", "a.b", "*.b", "a.>", "*.*", "b.b"]
        .iter()
        .enumerate()
    {
        list.insert(pattern.as_bytes(), None, key as SubKey);
    }
    list.insert(b"a.b", Some(b"q"), 10);
    list.insert(b"a.b", Some(b"q"), 11);
    list.insert(b"a.*", Some(b"q"), 12);
    list.insert(b"a.*", Some(b"r"), 13);
    let all = (vec![0, 1, 2, 3, 4, 5], vec![vec![10, 11, 12], vec![13]]);
    assert_eq!(found(&mut list, "a.b"), all);
    assert_eq!(found(&mut list, "a.b"), all);
    assert_eq!(list.stats().hits, 1);
    assert_eq!(found(&mut list, "a"), (vec![0], vec![]));
    assert!(found(&mut list, "a..b").0.is_empty());
    list.remove(b"a.b", 10);
    list.remove(b"a.b", 11);
    assert_eq!(found(&mut list, "a.b").1, vec![vec![12], vec![13]]);
}

/// Checks that a caller gathers the members of very many queue groups in parts: without the groups that have
/// ended since the look-up, and without those that began later under the number of an ended one.
#[test]
fn very_many_groups_come_in_parts() {
    let mut list = Sublist::new();
    let all = 3 * GATHERED_AT_ONCE as SubKey;
    for key in 0..all {
        list.insert(b"a", Some(format!("g{key}").as_bytes()), key);
    }
    let mut lent = list.lend(b"a");
    assert_eq!(
        (lent.matches.len(), lent.matches.groups_len()),
        (all as usize, 0)
    );
    list.gather(&mut lent.matches, 10);
    assert_eq!(lent.matches.groups_len(), 10);
    let mut matches = list.keep(lent);
    for key in 20..30 {
        list.remove(b"a", key);
        list.insert(b"b", Some(b"other"), key);
    }
    while !matches.is_gathered() {
        let before = matches.groups_len();
        list.gather(&mut matches, 10);
        assert!(matches.groups_len() - before <= 10);
    }
    let mut members: Vec<SubKey> = matches.groups().flat_map(|g| g.single.to_vec()).collect();
    members.sort_unstable();
    let expected: Vec<SubKey> = (0..20).chain(30..all).collect();
    assert_eq!(members, expected);
    assert_eq!(found(&mut list, "a").1.len(), expected.len());
    for key in (0..20).chain(30..all) {
        list.remove(b"a", key);
    }
    assert_eq!(found(&mut list, "b").1, [(20..30).collect::<Vec<_>>()]);
    for key in 20..30 {
        list.remove(b"b", key);
    }
    assert_eq!((list.groups.lens(), list.nodes.len()), ([0; 4], 1));
}

/// Checks that a queue group under many patterns comes as one group, also among very many groups.
#[test]
fn a_group_under_many_patterns_comes_whole() {
    let mut list = Sublist::new();
    let groups = 2 * GATHERED_AT_ONCE as SubKey;
    for key in 0..groups {
        let name = format!("g{key}");
        list.insert(b"a.b", Some(name.as_bytes()), key);
        list.insert_many(b"a.*", Some(name.as_bytes()), groups + key);
    }
    assert!(list.matches_many(b"a.b") && !list.matches_many(b"a"));
    let mut lent = list.lend(b"a.b");
    while !lent.matches.is_gathered() {
        list.gather(&mut lent.matches, 1);
    }
    let whole =
        |group: Members<'_>| group.single.len() == 1 && group.many == [group.single[0] + groups];
    assert_eq!(lent.matches.groups_len(), groups as usize);
    assert!(lent.matches.groups().all(whole));
    list.put_back(lent);
}

/// Checks that the sublist counts the work of a look-up, also of a look-up in vain, and that the cache saves
/// it.
#[test]
fn visits_are_counted() {
    let mut list = Sublist::new();
    let tokens = 8;
    for bits in 0..1_u32 << tokens {
        let token = |at: u32| if bits >> at & 1 == 1 { "*" } else { "a" };
        let pattern: Vec<&str> = (0..tokens).map(token).chain(["x"]).collect();
        list.insert(pattern.join(".").as_bytes(), None, bits);
    }
    let subject = format!("{}y", "a.".repeat(tokens as usize));
    // The look-up visits each node above the last token, and the cache answers the second one.
    for _ in 0..2 {
        assert!(found(&mut list, &subject).0.is_empty());
        assert_eq!(list.stats().visits, 511);
    }
    // This look-up visits the nodes of the matching patterns, too.
    assert_eq!(found(&mut list, &subject.replace('y', "x")).0.len(), 256);
    assert_eq!(list.stats().visits, 511 + 511 + 256);
}

#[derive(Clone, Debug)]
enum Act {
    Insert(String, Option<u8>, bool),
    Remove(usize),
    Find(String),
}

fn act() -> impl Strategy<Value = Act> {
    let word = |choices: &'static [&'static str]| {
        prop::collection::vec(prop::sample::select(choices), 1..4).prop_map(|v| v.join("."))
    };
    prop_oneof![
        3 => (word(&["a", "b", "*", ">"]), prop::option::of(0..2_u8), any::<bool>())
            .prop_map(|(p, q, many)| Act::Insert(p, q, many)),
        2 => any::<prop::sample::Index>().prop_map(|i| Act::Remove(i.index(1000))),
        4 => word(&["a", "b", "c", "*"]).prop_map(Act::Find),
    ]
}

proptest! {
    /// Compares a sublist with a naive model that tests every subscription against each subject.
    #[test]
    fn as_the_naive_model(acts in prop::collection::vec(act(), 1..200)) {
        let mut list = Sublist::new();
        let mut model: Vec<Option<(String, Option<u8>, bool)>> = Vec::new();
        for act in acts {
            match act {
                Act::Insert(p, q, many) if is_pattern(p.as_bytes()) => {
                    let name = q.map(|q| [q]);
                    let (queue, key) = (name.as_ref().map(|n| &n[..]), model.len() as SubKey);
                    match many {
                        true => list.insert_many(p.as_bytes(), queue, key),
                        false => list.insert(p.as_bytes(), queue, key),
                    }
                    model.push(Some((p, q, many)));
                }
                Act::Insert(..) => {}
                Act::Remove(i) => {
                    let live: Vec<_> = (0..model.len()).filter(|k| model[*k].is_some()).collect();
                    if let Some(key) = live.get(i % live.len().max(1)) {
                        let (p, ..) = model[*key].take().unwrap();
                        list.remove(p.as_bytes(), *key as SubKey);
                    }
                }
                Act::Find(subject) => {
                    // The model replaces a wildcard in the subject by a plain token, because only a
                    // pattern with a wildcard at that place matches it.
                    let literal = subject.replace('*', "\u{1}");
                    let mut plain = Vec::new();
                    let mut groups = std::collections::BTreeMap::<_, Vec<SubKey>>::new();
                    for (key, sub) in model.iter().enumerate() {
                        let Some((p, q, _)) = sub else { continue };
                        if contains(p.as_bytes(), literal.as_bytes()) {
                            match q {
                                None => plain.push(key as SubKey),
                                Some(q) => groups.entry(*q).or_default().push(key as SubKey),
                            }
                        }
                    }
                    let mut groups: Vec<_> = groups.into_values().collect();
                    groups.sort();
                    let wanted = !plain.is_empty();
                    prop_assert_eq!(list.first_wanting(subject.as_bytes()).is_some(), wanted);
                    prop_assert_eq!(found(&mut list, &subject), (plain, groups));
                    for group in list.matches(subject.as_bytes()).groups() {
                        let many = |key: &SubKey| model[*key as usize].as_ref().is_some_and(|m| m.2);
                        prop_assert!(group.many.iter().all(many));
                        prop_assert!(!group.single.iter().any(many));
                        let pattern = |key: &SubKey| &model[*key as usize].as_ref().unwrap().0;
                        let mut firsts: Vec<_> = group.firsts.iter().map(pattern).collect();
                        firsts.sort();
                        let mut patterns: Vec<_> = group.single.iter().map(pattern).collect();
                        patterns.sort();
                        patterns.dedup();
                        prop_assert_eq!(firsts, patterns);
                    }
                }
            }
            prop_assert_eq!(list.stats().len, model.iter().flatten().count());
        }
        for (key, sub) in model.iter().enumerate() {
            if let Some((p, ..)) = sub {
                list.remove(p.as_bytes(), key as SubKey);
            }
        }
        prop_assert_eq!(list.nodes.len(), 1, "nothing is left behind");
            prop_assert_eq!(list.groups.lens(), [0; 4]);
    }
}
