//! The members of a cluster, and the members' file in the data directory. From this file, a restarted node
//! knows its own identity and, once the cluster has formed, the other nodes. This module owns the file's
//! text; `event_loop` reads and writes the file.
//!
//! ```text
//! tidegate members 2
//! cluster tide
//! me 9f0c...e1 n1
//! rejoined 17
//! log begun
//! member 9f0c...e1 n1
//! member ...
//! crc32c 1a2b3c4d
//! ```
//!
//! The line `rejoined` stays in the file until a node that lost its disk has fetched the state of all its
//! groups again; its number is the term from which on the node takes part again. The node writes `log begun`
//! before the first promise that the log has to keep: if the file has the line and the directory has no log,
//! the log is lost. Files of version 1 lack the line `log begun`.

use super::wire::{Cut, Fields};
use super::{NAME_BYTES_MAX, PEERS_MAX};

/// The first line of a members' file, by which a node recognizes the format.
const TITLE: &str = "tidegate members 2";
/// The first line of a members' file in the older format, which does not say whether the log has begun.
const TITLE_1: &str = "tidegate members 1";
/// The line of a members' file which records that the log has begun, so that its loss does not go unnoticed.
const LOG_BEGUN: &str = "log begun";

/// A node of the cluster, by its name and its id.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The node's name, which the operator gives; no other member has it.
    pub name: String,
    /// The node's id: a random number that the node draws when it creates its data directory. The id is never
    /// 0.
    pub id: u64,
}

/// The set of nodes of a cluster, in the order of their names. No name and no id occurs twice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members(Vec<Member>);

impl Members {
    /// Returns these nodes as members; `None` if they cannot be members of one cluster, because two of them
    /// have the same name or id, a name or an id is not allowed, or the nodes are too many.
    #[must_use]
    pub fn new(mut all: Vec<Member>) -> Option<Self> {
        all.sort();
        let names_differ = all.windows(2).all(|w| w[0].name != w[1].name);
        let mut ids: Vec<u64> = all.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        let ids_differ = ids.windows(2).all(|w| w[0] != w[1]) && ids.first() != Some(&0);
        let sound = all.len() <= PEERS_MAX + 1 && all.iter().all(|m| is_name(&m.name));
        (names_differ && ids_differ && sound).then_some(Self(all))
    }

    /// Iterates over the members in the order of their names, which is equal on all nodes.
    pub fn iter(&self) -> impl Iterator<Item = &Member> {
        self.0.iter()
    }

    /// Returns the number of members of the cluster, this node included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set has no members.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the members' ids in ascending order. Every member votes in the Raft groups that consist of all
    /// nodes.
    #[must_use]
    pub fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.0.iter().map(|m| m.id).collect();
        ids.sort_unstable();
        ids
    }

    /// Returns the id of the member with this name; `None` if no member has the name.
    #[must_use]
    pub fn id_of(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|m| m.name == name).map(|m| m.id)
    }

    /// Returns the name of the member with this id; `None` if no member has the id.
    #[must_use]
    pub fn name_of(&self, id: u64) -> Option<&str> {
        let member = self.0.iter().find(|m| m.id == id);
        member.map(|m| m.name.as_str())
    }

    /// Returns the digest of the members: a number, never 0, that is the same on all nodes with the same
    /// members of the same cluster, and differs for other members. Two nodes compare their digests in the
    /// greeting.
    #[must_use]
    pub fn digest(&self, cluster: &str) -> u64 {
        let mut text = cluster.as_bytes().to_vec();
        self.encode(&mut text);
        let digest = ring::digest::digest(&ring::digest::SHA256, &text);
        let first = digest.as_ref().first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(first).max(1)
    }

    /// Returns the members' names as one text, for the operator.
    #[must_use]
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.0.iter().map(|m| m.name.as_str()).collect();
        names.join(", ")
    }

    /// Appends the members to `to` in the form in which a node sends them to its peers.
    pub fn encode(&self, to: &mut Vec<u8>) {
        for member in &self.0 {
            to.extend_from_slice(&member.id.to_le_bytes());
            to.extend_from_slice(&(member.name.len() as u32).to_le_bytes());
            to.extend_from_slice(member.name.as_bytes());
        }
    }

    /// Decodes the members that a peer sent; `None` if the bytes are malformed.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut f = Fields(bytes);
        let mut all = Vec::new();
        while !f.0.is_empty() && all.len() <= PEERS_MAX {
            all.push(member(&mut f).ok()?);
        }
        f.0.is_empty().then(|| Self::new(all)).flatten()
    }
}

fn member(f: &mut Fields<'_>) -> Result<Member, Cut> {
    let id = f.u64()?;
    let name = std::str::from_utf8(f.text()?).map_err(|_| Cut)?.to_owned();
    Ok(Member { name, id })
}

/// Returns whether a cluster or a node can have this name, because log lines and files quote names: the name
/// is not empty, has no blanks or control characters, and at most [`NAME_BYTES_MAX`] bytes.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let odd = |c: char| c.is_whitespace() || c.is_control();
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(odd)
}

/// The content of the members' file: a node's identity and its cluster, as the node knew them last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembersFile {
    /// The name of the cluster to which the node belongs.
    pub cluster: String,
    /// This node's name and id.
    pub me: Member,
    /// The term from which on this node takes part again after it lost its disk; see
    /// [`rejoin`](super::rejoin). `None` if the node never lost its disk, or has fetched the state of all
    /// its groups since.
    pub rejoined: Option<u64>,
    /// True if the node has a log, and may have promised other nodes that records of this log are durable.
    pub log_begun: bool,
    /// All nodes of the cluster, with this node; `None` before the cluster was formed.
    pub members: Option<Members>,
}

/// The reason why a node refuses the members' file, and with it the data directory, because it may belong to
/// another node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MembersError {
    /// The members' file is damaged.
    #[error(
        "the file `members` is damaged: restore it from a copy, it says who this node is; or empty the data directory and start the node with --rejoin"
    )]
    Damaged,
    /// The members' file has a version that this program does not know.
    #[error(
        "the file `members` begins with `{0}`, expected `{TITLE}`: use the version of tidegate that wrote it, or a later one"
    )]
    Version(String),
    /// The data directory belongs to a node of another cluster, so this node must not use it.
    #[error(
        "the data directory belongs to cluster `{theirs}`, not `{ours}`: use the directory of this cluster's node"
    )]
    Cluster {
        /// The name of the cluster to which the data directory belongs.
        theirs: String,
        /// The name of the cluster in this node's configuration.
        ours: String,
    },
    /// The data directory belongs to another node of this cluster, so this node must not use it.
    #[error(
        "the data directory belongs to the node `{theirs}`, not `{ours}`: use this node's directory, or the name it had"
    )]
    Name {
        /// The name of the node to which the data directory belongs.
        theirs: String,
        /// The name of this node in its configuration.
        ours: String,
    },
}

impl MembersFile {
    /// Returns the text of the members' file with its checksum, for the caller to write.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut text = format!(
            "{TITLE}\ncluster {}\nme {:016x} {}\n",
            self.cluster, self.me.id, self.me.name
        );
        if let Some(term) = self.rejoined {
            text.push_str(&format!("rejoined {term}\n"));
        }
        if self.log_begun {
            text.push_str(&format!("{LOG_BEGUN}\n"));
        }
        for member in self.members.iter().flat_map(Members::iter) {
            text.push_str(&format!("member {:016x} {}\n", member.id, member.name));
        }
        let sum = crc32c::crc32c(text.as_bytes());
        text.push_str(&format!("crc32c {sum:08x}\n"));
        text
    }

    /// Decodes the text of the members' file.
    ///
    /// # Errors
    ///
    /// See [`MembersError`]: the members' file is damaged, or has another version.
    pub fn decode(bytes: &[u8]) -> Result<Self, MembersError> {
        let text = std::str::from_utf8(bytes).map_err(|_| MembersError::Damaged)?;
        let title = text.lines().next().unwrap_or_default();
        if title != TITLE && title != TITLE_1 {
            let title = title.chars().take(64).collect();
            return Err(MembersError::Version(title));
        }
        Self::read(text).ok_or(MembersError::Damaged)
    }

    fn read(text: &str) -> Option<Self> {
        let (covered, sum) = text.strip_suffix('\n')?.rsplit_once("\ncrc32c ")?;
        let covered = &text[..covered.len() + 1];
        if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(covered.as_bytes()) {
            return None;
        }
        let named = |rest: &str| {
            let (id, name) = rest.split_once(' ')?;
            let id = u64::from_str_radix(id, 16).ok()?;
            let name = name.to_owned();
            Some(Member { name, id })
        };
        let mut lines = covered.lines().skip(1).peekable();
        let cluster = lines.next()?.strip_prefix("cluster ")?.to_owned();
        let me = named(lines.next()?.strip_prefix("me ")?)?;
        let rejoined = lines.peek().and_then(|line| line.strip_prefix("rejoined "));
        let rejoined = rejoined.map(str::parse).transpose().ok()?;
        lines.next_if(|_| rejoined.is_some());
        let log_begun = lines.next_if(|line| *line == LOG_BEGUN).is_some();
        let all: Option<Vec<Member>> = lines
            .map(|line| named(line.strip_prefix("member ")?))
            .collect();
        let all = all?;
        let members = match all.is_empty() {
            true => None,
            false => Some(Members::new(all)?).filter(|m| m.id_of(&me.name) == Some(me.id)),
        };
        let sound = me.id != 0 && is_name(&cluster) && is_name(&me.name);
        (sound && (members.is_some() || !covered.contains("\nmember "))).then_some(Self {
            cluster,
            me,
            rejoined,
            log_begun,
            members,
        })
    }

    /// Checks that the data directory belongs to this node of this cluster, so that no node starts with the
    /// data of another.
    ///
    /// # Errors
    ///
    /// See [`MembersError`]: the data directory belongs to another cluster or another node.
    pub fn check(&self, cluster: &str, name: &str) -> Result<(), MembersError> {
        if self.cluster != cluster {
            return Err(MembersError::Cluster {
                theirs: self.cluster.clone(),
                ours: cluster.into(),
            });
        }
        if self.me.name != name {
            return Err(MembersError::Name {
                theirs: self.me.name.clone(),
                ours: name.into(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, id: u64) -> Member {
        Member {
            name: name.into(),
            id,
        }
    }

    fn three() -> Members {
        Members::new(vec![
            member("n3", 7),
            member("n1", u64::MAX),
            member("n2", 9),
        ])
        .unwrap()
    }

    #[test]
    fn no_name_and_no_id_twice() {
        assert_eq!(three().names(), "n1, n2, n3");
        assert_eq!(three().ids(), [7, 9, u64::MAX]);
        assert_eq!(three().id_of("n2"), Some(9));
        assert_eq!(three().name_of(7), Some("n3"));
        for bad in [
            vec![member("a", 1), member("a", 2)],
            vec![member("a", 1), member("b", 1)],
            vec![member("a", 0)],
            vec![member("a b", 1)],
        ] {
            assert_eq!(Members::new(bad), None);
        }
    }

    #[test]
    fn announcements_and_the_digest_agree() {
        let mut bytes = Vec::new();
        three().encode(&mut bytes);
        assert_eq!(Members::decode(&bytes), Some(three()));
        assert!((1..bytes.len()).all(|n| Members::decode(&bytes[..n]) != Some(three())));
        let other = Members::new(vec![member("n1", 8), member("n2", 9), member("n3", 7)]).unwrap();
        assert_ne!(three().digest("c"), other.digest("c"));
        assert_ne!(three().digest("c"), three().digest("d"));
    }

    #[test]
    fn the_file_comes_back_and_damage_is_seen() {
        let mut file = MembersFile {
            cluster: "tide".into(),
            me: member("n2", 9),
            rejoined: None,
            log_begun: false,
            members: None,
        };
        assert_eq!(MembersFile::decode(file.encode().as_bytes()).unwrap(), file);
        file.members = Some(three());
        assert_eq!(MembersFile::decode(file.encode().as_bytes()).unwrap(), file);
        // A file of version 1 does not say whether the log has begun.
        let older = file.encode().replace(TITLE, TITLE_1);
        let (covered, _) = older.rsplit_once("crc32c ").unwrap();
        let sum = crc32c::crc32c(covered.as_bytes());
        let older = format!("{covered}crc32c {sum:08x}\n");
        assert_eq!(MembersFile::decode(older.as_bytes()).unwrap(), file);
        file.log_begun = true;
        assert_eq!(MembersFile::decode(file.encode().as_bytes()).unwrap(), file);
        file.rejoined = Some(17);
        let text = file.encode();
        assert_eq!(MembersFile::decode(text.as_bytes()).unwrap(), file);
        for at in TITLE.len() + 1..text.len() {
            let mut damaged = text.clone().into_bytes();
            damaged[at] ^= 1;
            let read = MembersFile::decode(&damaged);
            assert_eq!(read, Err(MembersError::Damaged), "byte {at}");
        }
        for cut in 0..text.len() {
            assert!(
                MembersFile::decode(&text.as_bytes()[..cut]).is_err(),
                "{cut}"
            );
        }
        let another = MembersFile::decode(b"tidegate members 3\n").unwrap_err();
        assert!(another.to_string().contains("`tidegate members 3`"));
        file.check("tide", "n2").unwrap();
        assert!(
            file.check("ebb", "n2")
                .unwrap_err()
                .to_string()
                .contains("cluster `tide`")
        );
        assert!(
            file.check("tide", "n1")
                .unwrap_err()
                .to_string()
                .contains("node `n2`")
        );
    }
}
