//! Gathers the figures of a running server as plain data, for the monitor and the system account. The event
//! loop does that between two turns. Lists come in parts ([`gather`]), so that no turn takes long.

mod best;
pub(in crate::event_loop) mod boundaries;
pub(crate) mod browse;
mod connections;
pub(crate) mod details;
pub(crate) mod gather;
pub(crate) mod health;
pub(crate) mod lists;
mod ordered;
pub(crate) mod query;
pub(crate) mod series;
pub(crate) mod server;
pub(crate) mod why;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tidegate::Time;
use tidegate::controller::Snapshot;
use tidegate_cluster::Kind;
use tidegate_cluster::groups::GroupId;
use tidegate_cluster::members::Members;
use tidegate_cluster::roster::PeerSlot;
use tidegate_log::Stats as LogStats;
use tidegate_nats::connect::Info;
use tidegate_nats::sublist::SublistStats;
use tidegate_raft::store::{Scrubbed, Store};
use tidegate_stream::api::answer::ClusterInfo;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::stream::{Held, Usage};

use self::gather::Listed;
use self::health::Health;
use self::query::Query;
use self::series::Series;
use self::why::Located;
use crate::config::StreamSettings;
use crate::event_loop::peers::Peers;
use crate::event_loop::turns::TurnStats;
use crate::sessions::ack_times::AckTimes;
use crate::sessions::routes::PeerView;
use crate::sessions::{Node, NodeStats};
use crate::streams::StreamStats;

/// The figures of a running server at one moment, which the event loop gathers for the monitor.
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
    pub(crate) max_subscriptions: usize,
    pub(crate) auth_timeout_s: f64,
    pub(crate) tls_timeout_s: f64,
    pub(crate) http_host: String,
    pub(crate) http_port: u16,
    pub(crate) http_base_path: String,
    pub(crate) system_account: String,
    pub(crate) tags: Vec<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// The JetStream domain of the server, as the operator set it, for the monitor.
    pub(crate) domain: Option<String>,
    /// The time, in nanoseconds since the server's start, at which the server last read its configuration.
    pub(crate) configured_ns: u64,
    pub(crate) auth_required: bool,
    pub(crate) stats: NodeStats,
    /// The times from publishes to their acknowledgements since the server's start.
    pub(crate) ack_times: AckTimes,
    pub(crate) sublist: SublistStats,
    pub(crate) turns: TurnStats,
    pub(crate) flow: Snapshot,
    /// The lists that the reader asks for; empty until the reader has gathered them.
    pub(crate) listed: Listed,
    pub(crate) streams: Option<Streams>,
    pub(crate) cluster: Option<Cluster>,
}

/// The figures of the cluster and of the other nodes, as the monitor shows them.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    /// The number of this node, by which the other nodes know it.
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    pub(crate) routes: Vec<String>,
    /// The names of the cluster's members; empty until the node knows the members; the monitor shows them.
    pub(crate) members: Vec<String>,
    /// True until the node has fixed the cluster's members. Until then it serves no streams, and a health
    /// probe finds it not ready.
    pub(crate) forming: bool,
    /// True if this node uses TLS with the other nodes, for the monitor.
    pub(crate) tls: bool,
    pub(crate) peers: Vec<Peer>,
}

/// The figures of one connected peer, as the monitor shows them.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) slot: PeerSlot,
    pub(crate) name: String,
    pub(crate) id: u64,
    pub(crate) address: SocketAddr,
    /// True if this node has an open channel on which it sends messages to the peer, and (`heard`) true if it
    /// has one on which it receives messages from the peer.
    pub(crate) told: bool,
    pub(crate) heard: bool,
    pub(crate) view: PeerView,
}

impl Cluster {
    /// Gathers the figures of the cluster from the node and its connections with peers, for a report.
    pub(crate) fn take(node: &Node, peers: &Peers) -> Self {
        let roster = peers.roster();
        let connected = roster.peers().iter().enumerate();
        let connected = connected.filter(|(_, p)| p.is_connected());
        let members = peers.formed().into_iter().flat_map(Members::iter);
        Self {
            name: roster.me().cluster.clone(),
            id: roster.me().id,
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

/// The figures of a server's streams, as the monitor shows them.
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
    /// The state, for the monitor, of the controller that decides how many commands the node puts into one
    /// log entry, and (`fast_acks`) of the controller that decides when the node sends flow acknowledgements.
    pub(crate) proposals: Snapshot,
    pub(crate) fast_acks: Snapshot,
    /// The counts of the log since the server's start: its syncs and bytes.
    pub(crate) log: LogStats,
    /// The number of syncs of the file to which a measurement makes the store write each message a second
    /// time; 0 without such a measurement.
    #[cfg(feature = "lab")]
    pub(crate) second_syncs: u64,
    pub(crate) used_bytes: u64,
    pub(crate) checkpoint_bytes: u64,
    /// The progress of the scrub, which reads the log again to find damage.
    pub(crate) scrubbed: Scrubbed,
    /// The groups of this node with their terms, which each election raises, in the order of their slots.
    pub(crate) terms: Vec<(GroupId, u64)>,
    /// The number of groups that this node leads, and (`moving`) of streams that move to another group.
    pub(crate) leads: usize,
    pub(crate) moving: usize,
    /// The nodes that keep the streams with their leader, (`nodes`) the number of these nodes, and (`behind`)
    /// the reason why this node is behind the others; `None` if it is not behind.
    pub(crate) cluster: ClusterInfo,
    pub(crate) nodes: usize,
    pub(crate) behind: Option<String>,
    /// The number of origins from which mirrors and sources of this node take in nothing because of errors,
    /// and the first of them in words.
    pub(crate) stuck: (usize, Option<String>),
    /// The facts for the health check that the reader makes; empty if it makes none.
    pub(crate) health: Health,
    /// The figures of single streams and consumers in the slice that the reader asks for; empty if it asks
    /// for none.
    pub(crate) series: Series,
    /// The place of the message that the reader wants explained; `None` if it asks for something else.
    pub(crate) located: Option<Located>,
}

impl Streams {
    /// Gathers the figures of the node's streams, which the node keeps in `store`, for a report.
    pub(crate) fn take(node: &Node, now: Time, store: &Store, query: &Query) -> Option<Self> {
        let first = node.directory()?;
        let all = || node.all_streams();
        let held = all().map(|s| s.applied().held());
        let held = held.fold(Held::default(), Held::and);
        let usage = |storage| Usage {
            bytes: all().map(|s| s.applied().usage(storage).bytes).sum(),
            // The group that keeps the directory counts the bytes that the streams of all groups reserve, so
            // the report takes this figure from that group alone.
            reserved: first.applied().usage(storage).reserved,
        };
        let [proposals, fast_acks] = first.controllers();
        Some(Self {
            settings: first.settings().clone(),
            stats: node.stream_stats(),
            streams: all().map(|s| s.applied().kept_len()).sum(),
            consumers: all().map(|s| s.consumers_len()).sum(),
            messages: held.messages,
            bytes: held.file_bytes.saturating_add(held.memory_bytes),
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
            terms: store
                .slots()
                .map(|at| (store.group_number(at), store.term(at)))
                .collect(),
            leads: all().filter(|s| s.serves()).count(),
            moving: first.applied().moving_len(),
            cluster: first.cluster().clone(),
            nodes: first.nodes(),
            behind: all().find_map(|s| s.behind()).map(Into::into),
            stuck: all()
                .map(|s| s.stuck_origins(now))
                .fold((0, None), |a, b| (a.0 + b.0, a.1.or(b.1))),
            health: match &query.health {
                Some(of) => Health::take(node, of),
                None => Health::default(),
            },
            series: match &query.series {
                Some(slice) => series::read(node, slice),
                None => Series::default(),
            },
            located: query.message.as_ref().map(|m| why::locate(node, store, m)),
        })
    }
}

/// Lists the open connections of a node as a report does, part by part, and returns the number of listed
/// ones, so that `tidegate-bench costs` can measure it.
#[must_use]
pub fn list_connections(node: &Node) -> usize {
    let mut gather = gather::Gather::new(&Query::new(query::List::Connections));
    while let Some(ask) = gather.next_ask() {
        gather.take(gather::answer(node, Time::ZERO, &ask));
    }
    gather.finish().connections.entries.len()
}

impl Report {
    /// Gathers the general figures from the node, for the reader of the report.
    pub(crate) fn take(
        node: &Node,
        uptime_ns: u64,
        turns: TurnStats,
        flow: Snapshot,
        streams: Option<Streams>,
        cluster: Option<Cluster>,
    ) -> Self {
        let settings = node.settings();
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
            max_subscriptions: settings.sessions.max_subscriptions,
            auth_timeout_s: settings.sessions.auth_timeout.as_secs_f64(),
            tls_timeout_s: settings.tls_timeout().as_secs_f64(),
            http_host: settings.http_host.clone().unwrap_or_default(),
            http_port: settings.http_port.unwrap_or(0),
            http_base_path: settings.http_base_path.clone(),
            system_account: settings.system_account.clone(),
            tags: settings.tags.clone(),
            metadata: settings.metadata.clone(),
            domain: settings.streams.as_ref().and_then(|s| s.domain.clone()),
            configured_ns: node.configured().as_nanos(),
            auth_required: settings.sessions.needs_credentials(),
            stats: node.stats(),
            ack_times: node.ack_times().clone(),
            sublist: node.sublist_stats(),
            turns,
            flow,
            listed: Listed::default(),
            streams,
            cluster,
        }
    }
}
