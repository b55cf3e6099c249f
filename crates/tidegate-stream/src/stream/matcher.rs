//! Finds the patterns of a set that match a subject. One walk over the subject's tokens finds all of them, so
//! that a look-up with a thousand patterns looks at each subject of a stream once.
//!
//! The set is a tree of tokens. A pattern with very many tokens stays outside of the tree, so that the tree
//! takes memory in proportion to the number of patterns.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate_nats::subject;

/// The limit on the tokens of a pattern in the tree. The set compares a longer pattern with each subject.
const TOKENS_MAX: usize = 32;

/// A set of patterns, each with a number that the caller has chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Matcher {
    /// The nodes of the tree. The first one is the root, once the set has a pattern.
    nodes: Vec<Node>,
    /// The first pattern of the set. While it is the only one, a plain comparison is faster than the tree.
    first: Option<(Box<[u8]>, u32)>,
    /// The patterns with more than [`TOKENS_MAX`] tokens.
    long: Vec<(Box<[u8]>, u32)>,
    len: usize,
    /// The nodes that the present walk has still to visit, each with the place of the subject's next token.
    /// The next walk reuses the memory.
    stack: Vec<(u32, usize)>,
}

/// The patterns of the set that begin with the same tokens.
#[derive(Clone, Debug, Default)]
struct Node {
    next: HashMap<Box<[u8]>, u32, RandomState>,
    /// The node of the patterns that go on with the token `*`.
    any: Option<u32>,
    /// The pattern that ends here.
    end: Option<u32>,
    /// The pattern that ends here with the token `>`.
    rest: Option<u32>,
}

impl Matcher {
    /// Returns the number of patterns in the set.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Adds a pattern with its number. If the set has the pattern already, it keeps the earlier number.
    pub(super) fn add(&mut self, pattern: &[u8], number: u32) {
        self.len += 1;
        if self.first.is_none() {
            self.first = Some((pattern.into(), number));
            self.nodes.push(Node::default());
        }
        if subject::tokens(pattern).nth(TOKENS_MAX).is_some() {
            self.long.push((pattern.into(), number));
            return;
        }
        let mut at = 0;
        for token in subject::tokens(pattern) {
            at = match token {
                b">" => {
                    self.nodes[at].rest.get_or_insert(number);
                    return;
                }
                b"*" => match self.nodes[at].any {
                    Some(next) => next as usize,
                    None => {
                        let next = self.grow();
                        self.nodes[at].any = Some(next);
                        next as usize
                    }
                },
                _ => match self.nodes[at].next.get(token) {
                    Some(next) => *next as usize,
                    None => {
                        let next = self.grow();
                        self.nodes[at].next.insert(token.into(), next);
                        next as usize
                    }
                },
            };
        }
        self.nodes[at].end.get_or_insert(number);
    }

    fn grow(&mut self) -> u32 {
        self.nodes.push(Node::default());
        (self.nodes.len() - 1) as u32
    }

    /// Calls `each` with the number of each pattern that matches the subject `name`, until `each` returns
    /// false. Returns the number of steps that this took, by which the caller bounds its work.
    pub(super) fn each(&mut self, name: &[u8], mut each: impl FnMut(u32) -> bool) -> usize {
        if let (Some((pattern, number)), 1) = (&self.first, self.len) {
            if subject::contains(pattern, name) {
                each(*number);
            }
            return 1;
        }
        let mut steps = self.long.len();
        for (pattern, number) in &self.long {
            if subject::contains(pattern, name) && !each(*number) {
                return steps;
            }
        }
        self.stack.clear();
        if !self.nodes.is_empty() {
            self.stack.push((0, 0));
        }
        while let Some((node, at)) = self.stack.pop() {
            steps += 1;
            let node = &self.nodes[node as usize];
            // The place behind the last token is one behind the end, because no dot ends that token.
            let Some(left) = name.get(at..) else {
                if node.end.is_some_and(|number| !each(number)) {
                    return steps;
                }
                continue;
            };
            if node.rest.is_some_and(|number| !each(number)) {
                return steps;
            }
            let len = memchr::memchr(b'.', left).unwrap_or(left.len());
            let (token, behind) = (&left[..len], at + len + 1);
            if let Some(next) = node.any.filter(|_| token != b">") {
                self.stack.push((next, behind));
            }
            if let Some(next) = node.next.get(token) {
                self.stack.push((*next, behind));
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matching(matcher: &mut Matcher, name: &str) -> Vec<u32> {
        let mut found = Vec::new();
        matcher.each(name.as_bytes(), |number| {
            found.push(number);
            true
        });
        found.sort_unstable();
        found
    }

    proptest! {
        /// Compares the set with single comparisons of all patterns.
        #[test]
        fn the_set_finds_the_patterns_that_match(
            patterns in prop::collection::btree_set("[ab*](\\.[ab*]){0,3}(\\.>)?|>", 0..12),
            name in "[abc*>](\\.[abc*>]){0,3}",
        ) {
            let mut matcher = Matcher::default();
            let mut expected = Vec::new();
            for (pattern, number) in patterns.iter().zip(0..) {
                matcher.add(pattern.as_bytes(), number);
                if subject::contains(pattern.as_bytes(), name.as_bytes()) {
                    expected.push(number);
                }
            }
            prop_assert_eq!(matcher.len(), patterns.len());
            prop_assert_eq!(matching(&mut matcher, &name), expected);
        }
    }

    #[test]
    fn a_pattern_with_very_many_tokens_matches_too() {
        let long = vec!["a"; TOKENS_MAX + 8].join(".");
        let mut matcher = Matcher::default();
        matcher.add(format!("*.{}", &long[2..]).as_bytes(), 1);
        matcher.add(b"a.>", 2);
        assert_eq!(matching(&mut matcher, &long), [1, 2]);
        assert_eq!(matching(&mut matcher, "a.b"), [2]);
        assert!(matcher.nodes.len() < 8);
    }

    /// Counts the steps of a walk: patterns that begin with other tokens cost nothing.
    #[test]
    fn a_walk_visits_only_the_patterns_that_may_match() {
        let mut matcher = Matcher::default();
        for n in 0..1000 {
            matcher.add(format!("a.{n}.*").as_bytes(), n);
        }
        let steps = matcher.each(b"a.7.x", |number| {
            assert_eq!(number, 7);
            true
        });
        assert_eq!(steps, 4);
        assert_eq!(matcher.each(b"b.7.x", |_| unreachable!()), 1);
    }
}
