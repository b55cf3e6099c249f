//! The rows of the lists: streams, consumers, connections and routes, read from a server's answers.

use std::cmp::Ordering;

use serde_json::Value;

use super::json::{at, count, flag, list, num, text};

/// The most rows that are read from one answer.
const ROWS_MAX: usize = 10_000;

/// A row of a list that the user can sort and search.
pub(crate) trait Row: Clone {
    /// The names of the orders; the first one is the server's own.
    const ORDERS: &'static [&'static str];

    /// Returns the text that names the row in its list.
    fn key(&self) -> &str;

    /// Returns whether one of the row's texts contains `wanted`, which is in lower case.
    fn contains(&self, wanted: &str) -> bool;

    /// Compares two rows by the order with this index; an unknown index compares as the first.
    fn compare(&self, other: &Self, order: usize) -> Ordering;

    /// Returns the count of which the list shows the rate.
    fn counted(&self) -> f64;
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    pub(crate) name: String,
    pub(crate) messages: f64,
    pub(crate) bytes: f64,
    pub(crate) consumers: f64,
    pub(crate) subjects: Option<f64>,
    pub(crate) last_seq: f64,
    pub(crate) leader: Option<String>,
    /// The copies on other nodes, and the copies that lag or cannot be reached.
    pub(crate) copies: usize,
    pub(crate) behind: usize,
}

/// A consumer of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    pub(crate) pending: f64,
    pub(crate) unacknowledged: f64,
    pub(crate) redelivered: f64,
    pub(crate) waiting: f64,
    pub(crate) delivered: f64,
    pub(crate) filter: Option<String>,
}

/// A client's connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Connection {
    /// The number of the connection, as text.
    pub(crate) cid: String,
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) user: Option<String>,
    /// The client's library and its version.
    pub(crate) library: String,
    pub(crate) in_msgs: f64,
    pub(crate) out_msgs: f64,
    pub(crate) pending_bytes: f64,
    pub(crate) subscriptions: f64,
    pub(crate) idle: String,
    pub(crate) uptime: String,
}

/// The connection to another node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) in_msgs: f64,
    pub(crate) out_msgs: f64,
    pub(crate) in_bytes: f64,
    pub(crate) out_bytes: f64,
    pub(crate) pending_bytes: f64,
    pub(crate) subscriptions: f64,
    /// False if the node has not been heard of; absent in the answers of other servers.
    pub(crate) heard: Option<bool>,
}

/// The nodes that keep the directory of streams.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Directory {
    pub(crate) name: Option<String>,
    pub(crate) leader: Option<String>,
    pub(crate) size: Option<f64>,
    pub(crate) replicas: Vec<Replica>,
}

/// Another node, as the leader of the directory sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Replica {
    pub(crate) name: String,
    pub(crate) current: bool,
    pub(crate) offline: bool,
    /// The entries that the node lacks.
    pub(crate) lag: f64,
    /// The time since the leader heard of the node, in nanoseconds.
    pub(crate) active_ns: f64,
}

/// Reads the streams of an answer to `/jsz`, of all accounts.
pub(crate) fn streams(body: &Value) -> Vec<Stream> {
    details(body).take(ROWS_MAX).map(stream).collect()
}

/// Reads the consumers of the stream with this name from an answer to `/jsz`. If the answer has no such
/// stream, returns the name of the first stream that it has.
pub(crate) fn consumers(body: &Value, of: &str) -> Result<Vec<Consumer>, Option<String>> {
    let name = |value: &Value| text(value, "name").unwrap_or_default().to_owned();
    match details(body).find(|value| name(value) == of) {
        Some(stream) => {
            let all = list(stream, "consumer_detail").iter();
            Ok(all.take(ROWS_MAX).map(consumer).collect())
        }
        None => Err(details(body).next().map(name)),
    }
}

/// Reads the connections of an answer to `/connz`.
pub(crate) fn connections(body: &Value) -> Vec<Connection> {
    let all = list(body, "connections").iter();
    all.take(ROWS_MAX).map(connection).collect()
}

/// Reads the routes of an answer to `/routez`.
pub(crate) fn routes(body: &Value) -> Vec<Route> {
    let all = list(body, "routes").iter();
    all.take(ROWS_MAX).map(route).collect()
}

/// Reads the nodes that keep the directory of streams from an answer to `/jsz`; `None` for a single server.
pub(crate) fn directory(body: &Value) -> Option<Directory> {
    let meta = at(body, "meta_cluster");
    meta.as_object()?;
    let own = |path: &str| {
        text(meta, path)
            .filter(|t| !t.is_empty())
            .map(str::to_owned)
    };
    let replica = |value: &Value| Replica {
        name: text(value, "name").unwrap_or_default().to_owned(),
        current: flag(value, "current"),
        offline: flag(value, "offline"),
        lag: num(value, "lag").unwrap_or(0.0),
        active_ns: num(value, "active").unwrap_or(0.0),
    };
    let replicas = list(meta, "replicas").iter();
    Some(Directory {
        name: own("name"),
        leader: own("leader"),
        size: num(meta, "cluster_size"),
        replicas: replicas.take(ROWS_MAX).map(replica).collect(),
    })
}

fn details(body: &Value) -> impl Iterator<Item = &Value> {
    let accounts = list(body, "account_details").iter();
    accounts.flat_map(|account| list(account, "stream_detail"))
}

fn stream(value: &Value) -> Stream {
    let number = |path: &str| num(value, path).unwrap_or(0.0);
    let replicas = list(value, "cluster.replicas");
    let is_behind = |r: &&Value| !flag(r, "current") || flag(r, "offline");
    Stream {
        name: text(value, "name").unwrap_or_default().to_owned(),
        messages: number("state.messages"),
        bytes: number("state.bytes"),
        consumers: number("state.consumer_count"),
        subjects: num(value, "state.num_subjects"),
        last_seq: number("state.last_seq"),
        leader: text(value, "cluster.leader").map(str::to_owned),
        copies: replicas.len(),
        behind: replicas.iter().filter(is_behind).count(),
    }
}

fn consumer(value: &Value) -> Consumer {
    let number = |path: &str| num(value, path).unwrap_or(0.0);
    let filter = text(value, "config.filter_subject").filter(|filter| !filter.is_empty());
    Consumer {
        name: text(value, "name").unwrap_or_default().to_owned(),
        pending: number("num_pending"),
        unacknowledged: number("num_ack_pending"),
        redelivered: number("num_redelivered"),
        waiting: number("num_waiting"),
        delivered: number("delivered.consumer_seq"),
        filter: filter.map(str::to_owned),
    }
}

fn connection(value: &Value) -> Connection {
    let number = |path: &str| num(value, path).unwrap_or(0.0);
    let own = |path: &str| text(value, path).unwrap_or_default().to_owned();
    let library = format!("{} {}", own("lang"), own("version"));
    Connection {
        cid: count(value, "cid").map_or_else(String::new, |cid| cid.to_string()),
        name: own("name"),
        address: address(value),
        user: text(value, "authorized_user").map(str::to_owned),
        library: library.trim().to_owned(),
        in_msgs: number("in_msgs"),
        out_msgs: number("out_msgs"),
        pending_bytes: number("pending_bytes"),
        subscriptions: number("subscriptions"),
        idle: own("idle"),
        uptime: own("uptime"),
    }
}

fn route(value: &Value) -> Route {
    let number = |path: &str| num(value, path).unwrap_or(0.0);
    Route {
        name: text(value, "remote_name").unwrap_or_default().to_owned(),
        address: address(value),
        in_msgs: number("in_msgs"),
        out_msgs: number("out_msgs"),
        in_bytes: number("in_bytes"),
        out_bytes: number("out_bytes"),
        pending_bytes: number("pending_size"),
        subscriptions: number("subscriptions"),
        heard: at(value, "heard").as_bool(),
    }
}

fn address(value: &Value) -> String {
    let ip = text(value, "ip").unwrap_or_default();
    match count(value, "port") {
        Some(port) if ip.contains(':') => format!("[{ip}]:{port}"),
        Some(port) => format!("{ip}:{port}"),
        None => ip.to_owned(),
    }
}

impl Row for Stream {
    const ORDERS: &'static [&'static str] = &["name", "messages", "bytes", "consumers"];

    fn key(&self) -> &str {
        &self.name
    }

    fn contains(&self, wanted: &str) -> bool {
        self.name.to_lowercase().contains(wanted)
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        match order {
            1 => self.messages.total_cmp(&other.messages),
            2 => self.bytes.total_cmp(&other.bytes),
            3 => self.consumers.total_cmp(&other.consumers),
            _ => self.name.cmp(&other.name),
        }
    }

    fn counted(&self) -> f64 {
        self.last_seq
    }
}

impl Row for Consumer {
    const ORDERS: &'static [&'static str] = &["name", "pending", "unacknowledged", "redelivered"];

    fn key(&self) -> &str {
        &self.name
    }

    fn contains(&self, wanted: &str) -> bool {
        let filter = self.filter.as_deref().unwrap_or_default();
        self.name.to_lowercase().contains(wanted) || filter.to_lowercase().contains(wanted)
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        match order {
            1 => self.pending.total_cmp(&other.pending),
            2 => self.unacknowledged.total_cmp(&other.unacknowledged),
            3 => self.redelivered.total_cmp(&other.redelivered),
            _ => self.name.cmp(&other.name),
        }
    }

    fn counted(&self) -> f64 {
        self.delivered
    }
}

impl Row for Connection {
    const ORDERS: &'static [&'static str] =
        &["number", "name", "messages in", "messages out", "pending"];

    fn key(&self) -> &str {
        &self.cid
    }

    fn contains(&self, wanted: &str) -> bool {
        let user = self.user.as_deref().unwrap_or_default();
        let texts = [&self.cid, &self.name, &self.address, &self.library];
        let mut texts = texts.into_iter().map(String::as_str).chain([user]);
        texts.any(|text| text.to_lowercase().contains(wanted))
    }

    fn compare(&self, other: &Self, order: usize) -> Ordering {
        match order {
            1 => self.name.cmp(&other.name),
            2 => self.in_msgs.total_cmp(&other.in_msgs),
            3 => self.out_msgs.total_cmp(&other.out_msgs),
            4 => self.pending_bytes.total_cmp(&other.pending_bytes),
            // Numbers as text: the shorter is the smaller.
            _ => (self.cid.len(), &self.cid).cmp(&(other.cid.len(), &other.cid)),
        }
    }

    fn counted(&self) -> f64 {
        self.in_msgs + self.out_msgs
    }
}
