//! Tests of the whole topology: its counts must equal the counts of a plain loop over the words.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tidegate::controller::Choice;

use super::words::words;
use super::{Blocks, Feed, Live, Plan, run, top};

struct Reads<'a>(Blocks<&'a [u8]>);

impl Feed for Reads<'_> {
    fn next(&mut self) -> Option<Arc<[u8]>> {
        while !self.0.ended() {
            if let Ok(Some(block)) = self.0.read() {
                return Some(block);
            }
        }
        None
    }
}

fn counted(text: &[u8], plan: &Plan, block: usize) -> Vec<(Vec<u8>, u64)> {
    let mut feed = Reads(Blocks::new(text, block));
    let outcome = run(plan, &mut feed, &Live::new(plan.split)).unwrap();
    let plain = words(text).count() as u64;
    assert_eq!(outcome.edges[1].items, plain);
    assert_eq!(
        outcome.latency.is_empty(),
        text.is_empty(),
        "every line is sampled"
    );
    top(&outcome.tallies, usize::MAX)
        .into_iter()
        .map(|(word, count)| (word.to_vec(), count))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn as_a_plain_count(
        text in proptest::collection::vec(prop_oneof![3 => Just(b' '), 1 => Just(b'\n'), 6 => 97u8..101, 1 => any::<u8>()], 0..3000),
        split in 1usize..5,
        block in 1usize..200,
        controller in prop_oneof![
            Just(Choice::KNEE), Just(Choice::StormAimd { ceiling: 10 }), Just(Choice::GREEDY),
            (1u64..100).prop_map(|limit| Choice::Fixed { limit, linger: std::time::Duration::ZERO }),
        ],
        capacity in 1usize..40,
    ) {
        let plan = Plan { split, controller, lines: capacity, words: capacity, sample_every: 1, pace: None };
        let mut plain: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for word in words(&text) {
            *plain.entry(text[word].to_vec()).or_default() += 1;
        }
        let mut plain: Vec<_> = plain.into_iter().collect();
        plain.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        prop_assert_eq!(counted(&text, &plan, block), plain);
    }
}
