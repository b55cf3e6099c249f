//! Keeps the tags of nodes, by which clients and operators restrict the nodes that keep a stream.
//!
//! Each node learns the tags of its peers when it connects to them, and keeps the tags of a peer that is
//! gone. A node with tags that the directory's leader does not know gets no stream that needs tags.

use std::collections::{BTreeMap, BTreeSet};

/// The tags of the nodes of the cluster, in lower case, by which the directory's leader chooses the nodes of
/// a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeTags {
    /// The tags of each node, by the node's id, as the node stated them. The directory's leader compares them
    /// with a stream's tags.
    nodes: BTreeMap<u64, Vec<String>>,
    /// A prefix of tags that the operator sets: the nodes of one stream must have different tags with this
    /// prefix, for example different zones. Empty if the operator sets none.
    unique: String,
}

impl NodeTags {
    pub(crate) fn new(nodes: impl IntoIterator<Item = (u64, Vec<String>)>, unique: &str) -> Self {
        Self {
            nodes: nodes.into_iter().collect(),
            unique: unique.to_lowercase(),
        }
    }

    /// Returns whether the node has all of these tags, without regard to upper and lower case, so that the
    /// client's stream may be there.
    pub(crate) fn has_all(&self, node: u64, tags: &[String]) -> bool {
        let of = self.nodes.get(&node).map_or(&[][..], |tags| tags);
        tags.iter().all(|tag| of.contains(&tag.to_lowercase()))
    }

    /// Returns whether these nodes may keep a stream together that a client restricts to these tags. If the
    /// client names tags with the operator's prefix, these override the operator's rule.
    pub(crate) fn fits(&self, members: &[u64], tags: &[String]) -> bool {
        let ruled = |tag: &String| tag.to_lowercase().starts_with(&self.unique);
        let differ = self.unique.is_empty() || tags.iter().any(ruled) || self.differ(members);
        differ && members.iter().all(|node| self.has_all(*node, tags))
    }

    /// Returns whether each of these nodes has a tag with the operator's prefix that none of the others has,
    /// as the operator's rule demands, so that the copies of a stream are apart.
    fn differ(&self, members: &[u64]) -> bool {
        let mut seen = BTreeSet::new();
        members.iter().all(|node| {
            let mut tags = self.nodes.get(node).into_iter().flatten();
            let tag = tags.find(|tag| tag.starts_with(&self.unique));
            tag.is_some_and(|tag| seen.insert(tag))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tags: &[&str]) -> Vec<String> {
        tags.iter().map(|tag| (*tag).to_owned()).collect()
    }

    #[test]
    fn nodes_fit_by_their_tags() {
        let nodes = [
            (1, texts(&["az:a", "ssd"])),
            (2, texts(&["az:b", "ssd"])),
            (3, texts(&["az:b"])),
            (4, texts(&[])),
        ];
        let tags = NodeTags::new(nodes.clone(), "");
        assert!(tags.fits(&[1, 2], &texts(&["SSD"])) && !tags.fits(&[1, 3], &texts(&["ssd"])));
        assert!(tags.fits(&[3, 4, 5], &[]) && !tags.fits(&[5], &texts(&["ssd"])));
        let tags = NodeTags::new(nodes, "AZ:");
        assert!(tags.fits(&[1, 2], &[]) && tags.fits(&[1, 2], &texts(&["ssd"])));
        assert!(!tags.fits(&[2, 3], &[]) && !tags.fits(&[1, 4], &[]));
        assert!(tags.fits(&[2, 3], &texts(&["az:b"])));
    }
}
