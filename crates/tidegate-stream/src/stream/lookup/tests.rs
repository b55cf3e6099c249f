//! Tests that look-ups in parts find the same as a look at all messages, while the stream changes.

use proptest::prelude::*;

use super::super::block::{Flags, Slot};
use super::super::command::Place;
use super::*;
use crate::schema::config::StreamConfig;
use crate::schema::number::StreamNumber;
use crate::schema::sequence::nth;

fn stream() -> Stream {
    Stream::new(StreamNumber::FIRST, StreamConfig::default(), 0, false)
}

fn push(stream: &mut Stream, subject: &str) {
    let lsn = stream.content.last_seq.get() * 8;
    let slot = Slot {
        place: Place { lsn, offset: 0 },
        time_us: lsn,
        bytes: 1,
        subject: 0,
        flags: Flags::default(),
        due_us: 0,
    };
    stream.content.push(subject.as_bytes(), slot, None);
}

/// Returns the messages of the stream with subjects that one of the patterns matches, by a look at all.
fn matching(stream: &Stream, patterns: &[&str]) -> Vec<(StreamSeq, Vec<u8>)> {
    let content = &stream.content;
    let (mut all, mut at) = (Vec::new(), StreamSeq::ZERO);
    while let Some(seq) = content.index.next(at) {
        let id = content.index.get(seq).unwrap().subject;
        let name = content.subjects.name(id).unwrap();
        if patterns
            .iter()
            .any(|p| subject::contains(p.as_bytes(), name))
        {
            all.push((seq, name.to_vec()));
        }
        at = seq.next();
    }
    all
}

fn lasts(stream: &Stream, patterns: &[&str], up_to: StreamSeq) -> Vec<StreamSeq> {
    let mut lasts = BTreeMap::new();
    for (seq, name) in matching(stream, patterns) {
        if seq <= up_to {
            lasts.insert(name, seq);
        }
    }
    let mut lasts: Vec<StreamSeq> = lasts.into_values().collect();
    lasts.sort_unstable();
    lasts
}

#[derive(Clone, Debug)]
enum Act {
    Push(u8),
    Remove(prop::sample::Index),
    /// The stream removes the last message under a pattern of the look-ups.
    RemoveLast,
    Purge,
    /// The look-ups go on with this many steps.
    GoOn(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        40 => (0..12_u8).prop_map(Act::Push),
        10 => any::<prop::sample::Index>().prop_map(Act::Remove),
        5 => Just(Act::RemoveLast),
        1 => Just(Act::Purge),
        20 => (1..8_usize).prop_map(Act::GoOn),
    ]
}

/// Subject `n` of the twelve subjects of the test.
fn name(n: u8) -> String {
    format!("{}.{}", ["a", "b", "c"][usize::from(n % 3)], n / 3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Each result is exact for the state of the stream at the end of its look-up.
    #[test]
    fn results_are_exact_at_the_end(
        acts in prop::collection::vec(act(), 1..400),
        up_to in prop::option::of(0..200_u64),
        max in 1..8_usize,
    ) {
        let mut stream = stream();
        let up_to = up_to.map(nth);
        let (several, literal) = (["a.*", "*.2", "b.1"], ["a.1", "c.3", "none"]);
        let new_last = || LastOf::new(b"a.*");
        let new_several = || LastPerSubject::new(several, up_to, max);
        let new_literal = || LastPerSubject::new(literal, up_to, 3);
        let (mut last, mut many, mut named) = (new_last(), new_several(), new_literal());
        for act in acts {
            match act {
                Act::Push(n) => push(&mut stream, &name(n)),
                Act::Remove(at) => {
                    let all = matching(&stream, &[">"]);
                    if !all.is_empty() {
                        stream.content.remove(at.get(&all).0);
                    }
                }
                Act::RemoveLast => {
                    if let Some((seq, _)) = matching(&stream, &["a.*"]).last() {
                        stream.content.remove(*seq);
                    }
                }
                Act::Purge => {
                    stream.content.remove_all();
                }
                Act::GoOn(steps) => {
                    let limit = up_to.unwrap_or(stream.content.last_seq);
                    if let Some(found) = last.go_on(&stream, &mut steps.clone()) {
                        let expected = matching(&stream, &["a.*"]).last().map(|(seq, _)| *seq);
                        let is_gone = found.is_some_and(|seq| !stream.contains(seq));
                        prop_assert!(found == expected || (is_gone && last.again == AGAIN_MAX));
                        last = new_last();
                    }
                    if let Some(found) = many.go_on(&stream, &mut steps.clone()) {
                        let expected = lasts(&stream, &several, limit);
                        let expected = match expected.len() > max {
                            true => Lasts::TooMany,
                            false => Lasts::Found { seqs: expected, up_to: limit },
                        };
                        prop_assert_eq!(found, expected);
                        many = new_several();
                    }
                    if let Some(found) = named.go_on(&stream, &mut steps.clone()) {
                        let seqs = lasts(&stream, &literal, limit);
                        prop_assert_eq!(found, Lasts::Found { seqs, up_to: limit });
                        named = new_literal();
                    }
                }
            }
        }
    }

    /// A search and a count in parts give the same as a look at all messages.
    #[test]
    fn searches_and_counts_in_parts_are_exact(
        subjects in prop::collection::vec(0..12_u8, 0..600),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        from in 0..600_u64,
        steps in 1..300_usize,
    ) {
        let mut stream = stream();
        subjects.iter().for_each(|n| push(&mut stream, &name(*n)));
        for at in removed.iter().filter(|_| !subjects.is_empty()) {
            stream.content.remove(nth(1 + at.index(subjects.len()) as u64));
        }
        for pattern in [">", "a.*", "b.2", "*.3", "none", "none.*"] {
            let filter = Filter::new([pattern]);
            let wanted: Vec<StreamSeq> = matching(&stream, &[pattern])
                .into_iter()
                .map(|(seq, _)| seq)
                .filter(|seq| *seq >= nth(from))
                .collect();
            let mut at = nth(from);
            let found = loop {
                match stream.next_part(at, &filter, &mut steps.clone()) {
                    Ok(found) => break found,
                    Err(next) => at = next,
                }
            };
            prop_assert_eq!(found, wanted.first().copied());
            let (mut count, mut next) = (0, Some(nth(from)));
            while let Some(from) = next {
                let (part, after) = stream.count_within(from, &filter, &mut steps.clone());
                (count, next) = (count + part, after);
            }
            prop_assert_eq!(count, wanted.len() as u64, "{}", pattern);
        }
    }
}

/// Counts the subjects at which each part looks: no part looks at more than its share.
#[test]
fn no_part_does_more_than_its_share() {
    let mut stream = stream();
    for n in 0..2000 {
        push(&mut stream, &format!("s.{n}"));
    }
    let mut last = LastOf::new(b"*.none");
    let mut parts = 0;
    while last.go_on(&stream, &mut 100).is_none() {
        parts += 1;
        assert_eq!(last.below, Some(2000 - parts * 100));
    }
    assert_eq!(parts, 19);
    let patterns: Vec<String> = (0..1000).map(|n| format!("*.none{n}")).collect();
    let mut many = LastPerSubject::new(&patterns, None, 1024);
    let (mut parts, mut before) = (0, 0);
    while many.go_on(&stream, &mut 100).is_none() {
        parts += 1;
        assert!(many.added <= parts * 100 && many.from - before <= 100);
        before = many.from;
    }
    // A subject takes two steps here for any number of patterns, and each pattern takes one.
    assert!((45..=60).contains(&parts), "{parts}");
    let filter = Filter::new(["*.none"]);
    let (mut parts, mut at) = (0, StreamSeq::ZERO);
    while let Err(next) = stream.next_part(at, &filter, &mut 100) {
        // A part ends behind the block in which its share ends.
        assert!(next.saturating_distance(at) <= LEN as u64 + 1);
        at = next;
        parts += 1;
    }
    assert_eq!(parts, 7);
}

/// A look-up for a thousand subjects by name looks at no other subject.
#[test]
fn literal_patterns_look_at_no_other_subject() {
    let mut stream = stream();
    for n in 0..2000 {
        push(&mut stream, &format!("s.{n}"));
    }
    let mut left = 100;
    let mut named = LastPerSubject::new(["s.1", "s.1999", "none"], None, 1024);
    let seqs = vec![nth(2), nth(2000)];
    let found = Lasts::Found {
        seqs,
        up_to: nth(2000),
    };
    assert_eq!(named.go_on(&stream, &mut left), Some(found));
    assert!(left >= 90, "{left}");
}
