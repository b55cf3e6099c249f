//! Looks at what a health check asks about: the groups of this node, one stream, or one consumer.
//!
//! A check of one stream looks at that stream alone, so that its cost does not depend on the other streams.
//! A check with details lists a bounded number of streams.

use tidegate_stream::stream::Stream;

use super::query::{ACCOUNT, HealthQuery};
use crate::sessions::Node;
use crate::streams::JetStream;
use crate::streams::views::is_kept;

/// The most streams that the answer to a check with details lists, and (`LOOKED_MAX`) the most streams at
/// which the loop looks for them, so that no turn takes long.
const LISTED_MAX: usize = 64;
const LOOKED_MAX: usize = 4096;

/// The facts on which the answer to a health check rests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// The reason why this node is behind in the group that keeps the directory of streams; `None` if it is
    /// not behind.
    pub(crate) directory: Option<String>,
    pub(crate) found: Found,
    /// The faults of other groups, and of the stream that the check asks about.
    pub(crate) faults: Vec<Fault>,
}

/// Tells if this node has what the check asks about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    #[default]
    All,
    NoAccount,
    NoStream,
    NoConsumer,
}

/// The reason why streams on this node are not up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The name of the stream; `None` if the reason holds for a group and the check does not list its
    /// streams.
    pub(crate) stream: Option<String>,
    pub(crate) why: String,
}

impl Health {
    /// Gathers the facts for a check.
    pub(super) fn take(node: &Node, query: &HealthQuery) -> Self {
        let mut health = Self::default();
        let Some(directory) = node.directory() else {
            return health;
        };
        health.directory = directory.behind().map(Into::into);
        if !query.looks_at_streams() {
            return health;
        }
        match (&query.account, &query.stream) {
            (Some(account), _) if account != ACCOUNT => health.found = Found::NoAccount,
            (_, Some(stream)) => health.look_at(node, stream, query.consumer.as_deref()),
            _ => health.look_at_all(node, query.details),
        }
        health
    }

    fn look_at(&mut self, node: &Node, name: &str, consumer: Option<&str>) {
        let here = node.all_streams().find_map(|of| {
            let stream = of.applied().get(of.applied().by_name(name)?)?;
            let is_here = is_kept(stream) || stream.is_filling() || stream.is_restoring();
            is_here.then_some((of, stream))
        });
        let Some((of, stream)) = here else {
            self.found = Found::NoStream;
            return;
        };
        if consumer.is_some_and(|name| !of.has_consumer(stream, name)) {
            self.found = Found::NoConsumer;
        }
        self.faults.extend(fault(of, stream));
    }

    fn look_at_all(&mut self, node: &Node, details: bool) {
        let others = node.all_streams().skip(1);
        let behind = others.filter_map(|of| Some((of, of.behind()?)));
        for (of, why) in behind {
            let before = self.faults.len();
            if details {
                let streams = of.known_after(None).take(LOOKED_MAX);
                let faults = streams.filter_map(|stream| fault(of, stream));
                self.faults.extend(faults.take(LISTED_MAX - before));
            }
            if self.faults.len() == before {
                self.faults.push(Fault {
                    stream: None,
                    why: why.to_owned(),
                });
            }
            if !details || self.faults.len() >= LISTED_MAX {
                return;
            }
        }
    }
}

/// Returns the fault of a stream on this node; `None` if the stream is up to date, or elsewhere.
fn fault(of: &JetStream, stream: &Stream) -> Option<Fault> {
    let why = if stream.is_filling() {
        "this node still copies it from the nodes from which it moves"
    } else if stream.is_restoring() {
        "a client still restores it from a backup"
    } else if is_kept(stream) {
        of.behind()?
    } else {
        return None;
    };
    Some(Fault {
        stream: Some(stream.name().to_owned()),
        why: why.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidegate_cluster::groups::{ALL, GroupId};
    use tidegate_stream::api::answer::ClusterInfo;

    use super::*;
    use crate::streams::directory::tests::World;

    /// Makes the node count as behind in a group, for this reason.
    fn fall_behind(w: &mut World, node: usize, group: GroupId, why: Option<&str>) {
        let at = w.slot(node, group);
        let streams = w.nodes[node].streams_mut(at).unwrap();
        streams.set_cluster(1, ClusterInfo::default(), why.map(Into::into));
    }

    fn check(w: &World, node: usize, change: impl FnOnce(&mut HealthQuery)) -> Health {
        let mut query = HealthQuery::default();
        change(&mut query);
        Health::take(&w.nodes[node], &query)
    }

    #[test]
    fn a_stream_is_as_current_as_its_group_on_this_node() {
        let mut w = World::of(3);
        w.create(0, "S", 3);
        w.create(0, "P", 1);
        let body = json!({"stream_name": "P", "config": {"durable_name": "C"}});
        w.ask(0, "CONSUMER.CREATE.P.C", &body);
        let (owner, group) = (w.owner_of("P"), w.group_of("P"));
        let stream = |name: &'static str, consumer: Option<&'static str>| {
            move |query: &mut HealthQuery| {
                query.account = Some(ACCOUNT.into());
                query.stream = Some(name.into());
                query.consumer = consumer.map(Into::into);
            }
        };
        let well = Health::default();
        for node in 0..3 {
            assert_eq!(check(&w, node, |_| {}), well);
            assert_eq!(check(&w, node, stream("S", None)), well);
            let found = check(&w, node, stream("P", None)).found;
            assert_eq!(found == Found::All, node == owner, "{found:?}");
        }
        assert_eq!(check(&w, owner, stream("P", Some("C"))), well);
        let found = check(&w, owner, stream("P", Some("D"))).found;
        assert_eq!(found, Found::NoConsumer);
        let other = check(&w, owner, |query| query.account = Some("other".into()));
        assert_eq!(other.found, Found::NoAccount);
        fall_behind(&mut w, owner, group, Some("no leader"));
        let fault = |stream: Option<&str>| Fault {
            stream: stream.map(Into::into),
            why: "no leader".into(),
        };
        let found = check(&w, owner, stream("P", None));
        assert_eq!(found.faults, [fault(Some("P"))]);
        assert_eq!(check(&w, owner, stream("S", None)), well);
        assert_eq!(check(&w, owner, |_| {}).faults, [fault(None)]);
        let listed = check(&w, owner, |query| query.details = true);
        assert_eq!(listed.faults, [fault(Some("P"))]);
        assert_eq!(check(&w, owner, |query| query.meta_only = true), well);
        fall_behind(&mut w, owner, ALL, Some("behind"));
        let directory = check(&w, owner, |query| query.meta_only = true).directory;
        assert_eq!(directory.as_deref(), Some("behind"));
    }
}
