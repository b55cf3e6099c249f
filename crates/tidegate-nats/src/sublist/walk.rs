//! Walks over the trie of patterns to find those that match a subject.
//!
//! A walk visits each trie node on the way to a matching pattern, and those on ways that end early. Patterns
//! with many wildcards may have very many of these, so the walk counts its visits, by which the server shares
//! its time out.

use foldhash::fast::RandomState;
use std::hash::BuildHasher;

use super::groups::Groups;
use super::matches::Matches;
use super::{NONE, ROOT, TrieNode};
use crate::collections::ChunkedSlab;
use crate::subject::tokens;
use crate::system::is_inner;

/// The buffers of a walk over the trie, which the sublist keeps from one walk to the next.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// The branches still to walk, each as a trie node and the number of the subject's tokens that led to it.
    branches: Vec<(u32, u32)>,
    /// The tokens of the subject that the walk has reached so far.
    tokens: Vec<Token>,
    /// The queue groups that the walk has found so far.
    groups: Vec<u32>,
    /// The queue groups behind the numbers of their names, if they are under several patterns.
    named: Vec<(u32, u32)>,
}

/// A token of the subject.
#[derive(Clone, Copy, Debug)]
struct Token {
    start: usize,
    end: usize,
    hash: u64,
}

/// The trie, as a walk sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trie<'a> {
    pub(super) nodes: &'a ChunkedSlab<TrieNode>,
    pub(super) groups: &'a Groups,
    /// The hash function of the tokens.
    pub(super) hasher: &'a RandomState,
}

impl Walk {
    /// Walks the trie for `subject` and puts the matching subscriptions and queue groups into `out`. The walk
    /// keeps a stack of its own with the branches still to walk, so that a subject of thousands of tokens
    /// cannot overflow the thread's stack. Returns the number of trie nodes and queue groups that it has
    /// visited.
    pub(super) fn run(&mut self, trie: Trie<'_>, out: &mut Matches, subject: &[u8]) -> u64 {
        self.branches.clear();
        self.tokens.clear();
        self.groups.clear();
        self.named.clear();
        out.clear();
        if tokens(subject).any(<[u8]>::is_empty) {
            return 0;
        }
        // A wildcard must not match the first token of the system account's inner subjects, so that no
        // client of another account receives their messages.
        let apart = is_inner(subject);
        let (mut visits, mut patterns) = (0, 0);
        let mut take = |node: &TrieNode, groups: &mut Vec<u32>| {
            out.plain.extend_from_slice(&node.plain);
            groups.extend_from_slice(&node.groups);
            patterns += usize::from(!node.groups.is_empty());
        };
        let mut next = Some((ROOT, 0));
        while let Some((at, depth)) = next {
            visits += 1;
            let node = &trie.nodes[at as usize];
            let wild = at != ROOT || !apart;
            let Some(token) = self.token(trie.hasher, subject, depth) else {
                take(node, &mut self.groups);
                next = self.branches.pop();
                continue;
            };
            if wild && node.rest != NONE {
                visits += 1;
                take(&trie.nodes[node.rest as usize], &mut self.groups);
            }
            let any = (wild && node.any != NONE).then_some((node.any, depth + 1));
            // A subject may contain a token that looks like a wildcard, because the session checks subjects
            // only if the client asks for that. The lookup finds no literal child for such a token.
            let text = &subject[token.start..token.end];
            let literal = node.literal(trie.nodes, token.hash, text);
            let literal = literal.map(|n| (n, depth + 1));
            next = match (literal, any) {
                (Some(literal), Some(any)) => {
                    self.branches.push(any);
                    Some(literal)
                }
                (literal, any) => literal.or(any).or_else(|| self.branches.pop()),
            };
        }
        if patterns > 1 {
            let name = |group: &u32| (trie.groups.name_of(*group), *group);
            self.named.extend(self.groups.iter().map(name));
        }
        out.set_groups(trie.groups.made(), &self.groups, &mut self.named);
        visits + self.groups.len() as u64
    }

    /// Returns the subject's token behind the first `depth` tokens; `None` if the subject ends there. Hashes
    /// each token once, because a walk may come to it at very many trie nodes.
    #[inline]
    fn token(&mut self, hasher: &RandomState, subject: &[u8], depth: u32) -> Option<Token> {
        if let Some(token) = self.tokens.get(depth as usize) {
            return Some(*token);
        }
        let start = self.tokens.last().map_or(0, |last| last.end + 1);
        let rest = subject.get(start..)?;
        let end = start + memchr::memchr(b'.', rest).unwrap_or(rest.len());
        let hash = hasher.hash_one(&subject[start..end]);
        let token = Token { start, end, hash };
        self.tokens.push(token);
        Some(token)
    }
}
