//! Figures of a running server as plain data, taken by the loop between two turns.

use std::net::SocketAddr;

use serde_json::Value;
use tidegate::Time;
use tidegate::controller::Snapshot;
use tidegate_cluster::Kind;
use tidegate_cluster::members::Members;
use tidegate_cluster::roster::PeerSlot;
use tidegate_log::Stats as LogStats;
use tidegate_nats::connect::Info;
use tidegate_nats::session::Traffic;
use tidegate_nats::sublist::SublistStats;
use tidegate_raft::store::{Scrubbed, Store};
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::stream::{Stream, Usage};

use crate::config::StreamSettings;
use crate::event_loop::peers::Peers;
use crate::event_loop::turns::TurnStats;
use crate::sessions::routes::PeerView;
use crate::sessions::{Node, NodeStats};
use crate::streams::StreamStats;

/// The most connections in one report.
pub(crate) const CONNECTIONS_MAX: usize = 1024;

/// The parameters of a request for a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// The index of the first connection.
    pub(crate) offset: usize,
    /// The most connections.
    pub(crate) limit: usize,
    /// Adds the subscriptions of each connection.
    pub(crate) subscriptions: bool,
    /// Selects only this connection.
    pub(crate) cid: Option<u64>,
    /// Adds each stream, or also each stream's consumers.
    pub(crate) streams: bool,
    pub(crate) consumers: bool,
}

/// The figures of a running server.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) info: Info,
    pub(crate) uptime_ns: u64,
    pub(crate) connections: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_pending: usize,
    pub(crate) ping_interval_ns: u64,
    pub(crate) ping_max: u32,
    pub(crate) write_deadline_ns: u64,
    pub(crate) max_control_line: usize,
    pub(crate) auth_required: bool,
    pub(crate) stats: NodeStats,
    pub(crate) sublist: SublistStats,
    pub(crate) turns: TurnStats,
    pub(crate) flow: Snapshot,
    pub(crate) selected: Vec<Connection>,
    pub(crate) streams: Option<Streams>,
    pub(crate) cluster: Option<Cluster>,
}

/// The other nodes of a server's cluster.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) routes: Vec<String>,
    /// The members' names, once they are fixed.
    pub(crate) members: Vec<String>,
    /// True until the members are fixed. Until then the node serves no streams.
    pub(crate) forming: bool,
    /// True if the nodes use TLS between each other.
    pub(crate) tls: bool,
    pub(crate) peers: Vec<Peer>,
}

/// One connected peer.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) slot: PeerSlot,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    /// True if this node can send to the peer, and if it can receive from it.
    pub(crate) told: bool,
    pub(crate) heard: bool,
    pub(crate) view: PeerView,
}

impl Cluster {
    /// Takes the figures of the other nodes from `node` and its connections.
    pub(crate) fn take(node: &Node, peers: &Peers) -> Self {
        let roster = peers.roster();
        let connected = roster.peers().iter().enumerate();
        let connected = connected.filter(|(_, p)| p.is_connected());
        let members = peers.formed().into_iter().flat_map(Members::iter);
        Self {
            name: roster.me().cluster.clone(),
            address: peers.address(),
            routes: peers.routes().iter().map(ToString::to_string).collect(),
            members: members.map(|m| m.name.clone()).collect(),
            forming: roster.me().streams && peers.formed().is_none(),
            tls: peers.is_secured(),
            peers: connected
                .map(|(slot, p)| (PeerSlot::new(slot), p))
                .map(|(slot, p)| Peer {
                    slot,
                    name: p.name.clone(),
                    id: p.id,
                    address: p.address,
                    told: p.is_told(Kind::Route),
                    heard: p.is_heard(Kind::Route),
                    view: node.peer_view(slot),
                })
                .collect(),
        }
    }
}

/// The figures of a server's streams.
#[derive(Clone, Debug)]
pub(crate) struct Streams {
    pub(crate) settings: StreamSettings,
    pub(crate) stats: StreamStats,
    pub(crate) streams: usize,
    pub(crate) consumers: usize,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) file: Usage,
    pub(crate) memory: Usage,
    pub(crate) waiting_bytes: usize,
    /// The controllers of entries and of the acknowledgements of fast-ingest batches.
    pub(crate) proposals: Snapshot,
    pub(crate) fast_acks: Snapshot,
    /// The figures of the log.
    pub(crate) log: LogStats,
    /// The number of syncs of second writes.
    #[cfg(feature = "lab")]
    pub(crate) second_syncs: u64,
    pub(crate) used_bytes: u64,
    pub(crate) checkpoint_bytes: u64,
    /// The progress of reading the log again.
    pub(crate) scrubbed: Scrubbed,
    /// The nodes that keep the streams, their number, and the reason if this node is behind.
    pub(crate) cluster: ClusterInfo,
    pub(crate) nodes: usize,
    pub(crate) behind: Option<String>,
    /// Each stream as JSON, if the request asks for it, with its consumers if it asks for them.
    pub(crate) details: Vec<Value>,
}

impl Streams {
    /// Takes the figures of the streams of `node`, which keeps them in `store`.
    pub(crate) fn take(node: &Node, store: &Store, query: Query, now: Time) -> Option<Self> {
        let first = node.directory()?;
        let all = || node.all_streams();
        // The directory's knowledge of other groups' streams does not count as streams of this node.
        let of = |s: &&Stream| s.home().is_here() && !s.is_filling();
        let kept = || all().flat_map(|s| s.applied().iter().filter(of));
        let states = || kept().map(|s| s.state());
        let usage = |storage| Usage {
            bytes: all().map(|s| s.applied().usage(storage).bytes).sum(),
            // The directory knows all limits.
            reserved: first.applied().usage(storage).reserved,
        };
        let [proposals, fast_acks] = first.controllers();
        Some(Self {
            settings: first.settings().clone(),
            stats: node.stream_stats(),
            streams: kept().count(),
            consumers: all().map(|s| s.consumers_len()).sum(),
            messages: states().map(|s| s.messages).sum(),
            bytes: states().map(|s| s.bytes).sum(),
            file: usage(Storage::File),
            memory: usage(Storage::Memory),
            waiting_bytes: all().map(|s| s.waiting_bytes()).sum(),
            proposals,
            fast_acks,
            log: store.log().stats(),
            #[cfg(feature = "lab")]
            second_syncs: store.second_syncs(),
            used_bytes: store.used_bytes(),
            checkpoint_bytes: store.checkpoint_bytes(),
            scrubbed: store.scrubbed(),
            cluster: first.cluster().clone(),
            nodes: first.nodes(),
            behind: all().find_map(|s| s.behind()).map(Into::into),
            details: match query.streams || query.consumers {
                true => {
                    let up_to = query.offset.saturating_add(query.limit);
                    let of = all().flat_map(|s| s.details(now, up_to, query.consumers));
                    let mut details: Vec<(String, Value)> = of.collect();
                    details.sort_by(|a, b| a.0.cmp(&b.0));
                    let page = details.into_iter().skip(query.offset).take(query.limit);
                    page.map(|(_, value)| value).collect()
                }
                false => Vec::new(),
            },
        })
    }
}

/// The figures of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) cid: u64,
    pub(crate) address: SocketAddr,
    pub(crate) since_ns: u64,
    pub(crate) active_ns: u64,
    pub(crate) pending_bytes: usize,
    pub(crate) traffic: Traffic,
    pub(crate) subscriptions: usize,
    pub(crate) name: String,
    pub(crate) lang: String,
    pub(crate) version: String,
    pub(crate) user: Option<String>,
    pub(crate) tls: bool,
    pub(crate) subjects: Vec<String>,
}

impl Report {
    /// Takes the figures that `query` asks for from `node`.
    pub(crate) fn take(
        node: &Node,
        query: Query,
        uptime_ns: u64,
        turns: TurnStats,
        flow: Snapshot,
        streams: Option<Streams>,
        cluster: Option<Cluster>,
    ) -> Self {
        let settings = node.settings();
        let wanted = |cid| query.cid.is_none_or(|c| c == cid);
        let sessions = node.sessions().filter(|s| wanted(s.cid));
        let selected = sessions
            .skip(query.offset)
            .take(query.limit.min(CONNECTIONS_MAX))
            .map(|s| Connection {
                cid: s.cid,
                address: s.address,
                since_ns: s.since.as_nanos(),
                active_ns: s.active.as_nanos(),
                pending_bytes: s.out.len(),
                traffic: s.traffic,
                subscriptions: s.subs.len(),
                name: s.options.name.clone(),
                lang: s.options.lang.clone(),
                version: s.options.version.clone(),
                user: s.user().map(Into::into),
                tls: s.secured,
                subjects: if query.subscriptions {
                    let subjects = node.patterns(s);
                    subjects
                        .map(|s| String::from_utf8_lossy(s).into_owned())
                        .collect()
                } else {
                    Vec::new()
                },
            })
            .collect();
        Self {
            info: node.info().clone(),
            uptime_ns,
            connections: node.len(),
            max_connections: settings.max_connections,
            max_pending: settings.max_pending,
            ping_interval_ns: tidegate::nanos(settings.sessions.ping_interval),
            ping_max: settings.sessions.ping_max,
            write_deadline_ns: tidegate::nanos(settings.sessions.write_deadline),
            max_control_line: settings.sessions.max_control_line,
            auth_required: settings.sessions.needs_credentials(),
            stats: node.stats(),
            sublist: node.sublist_stats(),
            turns,
            flow,
            selected,
            streams,
            cluster,
        }
    }
}
