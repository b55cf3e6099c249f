//! Tests of streams that only some nodes of the cluster keep: on which nodes the cluster places them, which
//! nodes serve them, and how a loss of those nodes affects them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::load::{Acked, Content, Load, check, read, same_everywhere};
use super::nodes::{Nodes, Place, ask, other, until};
use super::raw::Raw;

/// Returns the configuration of a stream with the subjects `<name>.>` and this many replicas.
fn config(name: &str, replicas: usize) -> Value {
    json!({"name": name, "subjects": [format!("{name}.>")], "num_replicas": replicas})
}

pub(crate) fn create(nodes: &Nodes, through: usize, name: &str, replicas: usize) -> Value {
    let config = config(name, replicas);
    nodes.until("a stream to be made", || {
        ask(
            &nodes.url(through),
            &format!("STREAM.CREATE.{name}"),
            &config,
        )
    })
}

fn info(nodes: &Nodes, through: usize, name: &str) -> Result<Value, String> {
    ask(
        &nodes.url(through),
        &format!("STREAM.INFO.{name}"),
        &json!({}),
    )
}

fn node_named(nodes: &Nodes, name: &str) -> usize {
    let found = (0..nodes.len()).find(|node| nodes.name(*node) == name);
    found.unwrap_or_else(|| panic!("no node is called `{name}`"))
}

/// Returns the nodes that keep a stream, its leader first.
pub(crate) fn keepers(nodes: &Nodes, info: &Value) -> Vec<usize> {
    let cluster = &info["cluster"];
    let leader = cluster["leader"].as_str().unwrap();
    let replicas = cluster["replicas"].as_array();
    let replicas = replicas.into_iter().flatten();
    let names = replicas.map(|r| r["name"].as_str().unwrap());
    let names = std::iter::once(leader).chain(names);
    names.map(|name| node_named(nodes, name)).collect()
}

/// Publishes a message and waits for its acknowledgement. Returns the message's sequence.
pub(crate) fn publish(raw: &mut Raw, subject: &str, payload: &str) -> Result<u64, String> {
    raw.publish(subject, "ack", payload.as_bytes())
        .map_err(|e| e.to_string())?;
    let ack = raw.message().map_err(|e| e.to_string())?;
    let value: Value = serde_json::from_slice(&ack.payload)
        .map_err(|_| String::from_utf8_lossy(&ack.payload).into_owned())?;
    let refused = value.get("error").is_some();
    let seq = value["seq"].as_u64().filter(|_| !refused);
    seq.ok_or_else(|| value.to_string())
}

/// Returns the contents of a stream, and checks that they are the same on each node that keeps it.
fn content(nodes: &Nodes, stream: &str) -> Content {
    let of = keepers(nodes, &nodes.info(stream));
    let each = of.iter().map(|node| {
        nodes.lead(stream, *node);
        read(nodes, *node, stream)
    });
    let mut all: Vec<Content> = each.collect();
    let last = all.pop().unwrap();
    assert!(all.iter().all(|one| *one == last), "{stream} differs");
    last
}

/// Publishes the message, and repeats it until the node knows the stream of the subject. Until then no stream
/// answers.
pub(crate) fn publish_soon(raw: &mut Raw, subject: &str, payload: &str) -> u64 {
    until("somebody to take it", || publish(raw, subject, payload))
}

/// Checks that the client gets no further message.
fn assert_quiet(raw: &mut Raw) {
    raw.publish(&format!("{}mark", raw.inbox.clone()), "none", b"")
        .unwrap();
    let next = raw.message().unwrap();
    assert!(next.subject.ends_with("mark"), "{next:?}");
}

#[test]
fn streams_of_one_replica_are_spread_and_served_through_any_node() {
    let nodes = Nodes::start(3);
    let mut kept = BTreeMap::<usize, usize>::new();
    for n in 0..6 {
        let made = create(&nodes, n % 3, &format!("P{n}"), 1);
        let of = keepers(&nodes, &made);
        assert_eq!(of.len(), 1, "{made}");
        *kept.entry(of[0]).or_default() += 1;
    }
    if other().is_none() {
        assert!(kept.values().eq([2, 2, 2].iter()), "{kept:?}");
    }
    nodes.add_stream("ALL", "ALL.>");
    let mut clients: Vec<Raw> = (0..3)
        .map(|node| Raw::connect(&nodes.url(node)).unwrap())
        .collect();
    for round in 1..=4u64 {
        for n in 0..6 {
            for (at, raw) in clients.iter_mut().enumerate() {
                let seq = publish_soon(raw, &format!("P{n}.x"), &format!("{n}-{round}-{at}"));
                assert_eq!(seq, (round - 1) * 3 + at as u64 + 1, "P{n}");
            }
        }
    }
    for (at, raw) in clients.iter_mut().enumerate() {
        for n in 0..6 {
            let info = raw.api(&format!("STREAM.INFO.P{n}"), &json!({}));
            assert_eq!(info["state"]["messages"], 12, "{info}");
            let got = raw.api(&format!("STREAM.MSG.GET.P{n}"), &json!({"seq": 12}));
            assert_eq!(got["message"]["subject"], format!("P{n}.x"), "{got}");
        }
        let names = raw.api("STREAM.NAMES", &json!({}));
        let wanted = json!(["ALL", "P0", "P1", "P2", "P3", "P4", "P5"]);
        assert_eq!(names["streams"], wanted, "through {at}");
        let by_subject = raw.api("STREAM.NAMES", &json!({"subject": "P3.x"}));
        assert_eq!(by_subject["streams"], json!(["P3"]));
        let list = raw.api("STREAM.LIST", &json!({}));
        let all = list["streams"].as_array().unwrap();
        let messages: u64 = all
            .iter()
            .map(|s| s["state"]["messages"].as_u64().unwrap())
            .sum();
        assert_eq!((all.len(), messages), (7, 72), "{list}");
        let account = raw.api("INFO", &json!({}));
        assert_eq!(account["streams"], 7, "{account}");
        assert_quiet(raw);
    }
}

#[test]
fn consumers_of_a_stream_kept_elsewhere_work_through_any_node() {
    let nodes = Nodes::start(3);
    create(&nodes, 0, "C", 1);
    let mut clients: Vec<Raw> = (0..3)
        .map(|node| Raw::connect(&nodes.url(node)).unwrap())
        .collect();
    for n in 1..=30 {
        assert_eq!(
            publish_soon(&mut clients[n % 3], "C.x", &n.to_string()),
            n as u64
        );
    }
    for (at, raw) in clients.iter_mut().enumerate() {
        let durable = json!({"stream_name": "C", "config": {"durable_name": format!("D{at}"), "ack_policy": "explicit"}});
        let made = raw.api(&format!("CONSUMER.CREATE.C.D{at}"), &durable);
        assert_eq!(made["num_pending"], 30, "{made}");
    }
    // Each client uses a stream that another node keeps.
    for (at, raw) in clients.iter_mut().enumerate() {
        let name = format!("D{}", (at + 1) % 3);
        raw.publish(
            &format!("$JS.API.CONSUMER.MSG.NEXT.C.{name}"),
            "next",
            br#"{"batch":30}"#,
        )
        .unwrap();
        let delivered: Vec<_> = (0..30).map(|_| raw.delivered().unwrap()).collect();
        for (n, (seq, message)) in (1..).zip(delivered) {
            assert_eq!(seq, n);
            raw.publish(&message.reply.unwrap(), "double", b"+ACK")
                .unwrap();
            let double = raw.message().unwrap();
            assert!(double.subject.ends_with("double"), "{double:?}");
        }
        let info = raw.api(&format!("CONSUMER.INFO.C.{name}"), &json!({}));
        assert_eq!(
            (&info["num_ack_pending"], &info["num_pending"]),
            (&json!(0), &json!(0))
        );
        assert_eq!(info["ack_floor"]["stream_seq"], 30, "{info}");
        let list = raw.api("CONSUMER.NAMES.C", &json!({}));
        assert_eq!(
            list["consumers"].as_array().map(Vec::len),
            Some(3),
            "{list}"
        );
        assert_quiet(raw);
    }
    let gone = clients[0].api("CONSUMER.DELETE.C.D1", &json!({}));
    assert_eq!(gone["success"], true, "{gone}");
    // A pull from a deleted consumer must get an answer at once, through any node.
    for raw in &mut clients {
        raw.publish("$JS.API.CONSUMER.MSG.NEXT.C.D1", "gone", b"1")
            .unwrap();
        let nobody = raw.message().unwrap();
        assert!(nobody.headers().starts_with("NATS/1.0 503"), "{nobody:?}");
        let down = raw.api("STREAM.LEADER.STEPDOWN.C", &json!({}));
        assert_eq!(down["success"], true, "{down}");
        let down = raw.api("CONSUMER.LEADER.STEPDOWN.C.D1", &json!({}));
        assert_eq!(down["error"]["err_code"], 10014, "{down}");
        if other().is_some() {
            until("it to be led again", || info(&nodes, 0, "C"));
        }
    }
    let purged = clients[1].api("STREAM.PURGE.C", &json!({}));
    assert_eq!(purged["purged"], 30, "{purged}");
    if other().is_some() {
        return println!("of consumers that push nats-server was not asked: it stays silent here");
    }
    // Each push consumer delivers to a listener that is connected to another node.
    for (at, raw) in clients.iter_mut().enumerate() {
        let to = format!("{}push", raw.inbox);
        let push = json!({"stream_name": "C", "config": {"name": format!("E{at}"), "deliver_subject": to, "ack_policy": "none"}});
        let made = raw.api(&format!("CONSUMER.CREATE.C.E{at}"), &push);
        assert!(made["error"].is_null(), "{made}");
    }
    let mut publisher = Raw::connect(&nodes.url(1)).unwrap();
    assert_eq!(publish(&mut publisher, "C.y", "pushed"), Ok(31));
    for raw in &mut clients {
        assert_eq!(raw.delivered().unwrap().0, 31);
    }
}

#[test]
fn made_changed_removed_and_made_again() {
    let nodes = Nodes::start(3);
    let mut clients: Vec<Raw> = (0..3)
        .map(|node| Raw::connect(&nodes.url(node)).unwrap())
        .collect();
    for round in 0..8 {
        let [a, b, c] = [0, 1, 2].map(|n| (round + n) % 3);
        let made = clients[a].api("STREAM.CREATE.M", &config("M", 1));
        assert_eq!(
            (&made["did_create"], &made["error"]),
            (&json!(true), &Value::Null),
            "{made}"
        );
        let again = clients[b].api("STREAM.CREATE.M", &config("M", 1));
        assert!(again["error"].is_null(), "{again}");
        // A client that got the answer to the creation can use the stream at once, at any node.
        assert_eq!(publish(&mut clients[a], "M.x", "1"), Ok(1));
        assert_eq!(publish_soon(&mut clients[b], "M.x", "2"), 2);
        let other = json!({"name": "N", "subjects": ["M.*"], "num_replicas": 1});
        let overlaps = clients[c].api("STREAM.CREATE.N", &other);
        assert_eq!(overlaps["error"]["err_code"], 10065, "{overlaps}");
        let wider =
            json!({"name": "M", "subjects": ["M.>", "more"], "num_replicas": 1, "max_msgs": 2});
        let updated = clients[b].api("STREAM.UPDATE.M", &wider);
        assert_eq!(updated["config"]["max_msgs"], 2, "{updated}");
        assert_eq!(publish(&mut clients[b], "more", "3"), Ok(3));
        // The client that got the answer to the update can use the new subject at once; other nodes learn of
        // it a moment later.
        assert_eq!(publish_soon(&mut clients[c], "more", "4"), 4);
        let info = clients[c].api("STREAM.INFO.M", &json!({}));
        assert_eq!(
            (&info["state"]["messages"], &info["state"]["first_seq"]),
            (&json!(2), &json!(3))
        );
        if other_is_ours() {
            let more =
                json!({"name": "M", "subjects": ["M.>", "more"], "num_replicas": 3, "max_msgs": 2});
            // A stream that a client removes while it moves must be gone from every node.
            let moved = clients[a].api("STREAM.UPDATE.M", &more);
            assert!(moved["error"].is_null(), "{moved}");
        }
        let removed = clients[c].api("STREAM.DELETE.M", &json!({}));
        assert_eq!(removed["success"], true, "{removed}");
        let gone = clients[a].api("STREAM.INFO.M", &json!({}));
        assert_eq!(gone["error"]["err_code"], 10059, "{gone}");
        let names = clients[b].api("STREAM.NAMES", &json!({}));
        assert_eq!(names["total"], 0, "{names}");
        clients.iter_mut().for_each(assert_quiet);
    }
}

fn other_is_ours() -> bool {
    other().is_none()
}

#[test]
fn its_node_dies_and_comes_back_with_all_that_was_acknowledged() {
    let mut nodes = Nodes::start(3);
    let made = create(&nodes, 0, "D", 1);
    nodes.add_stream("ALL", "ALL.>");
    let keeper = keepers(&nodes, &made)[0];
    let (mut acked, mut next) = (Acked::new(), vec![0; 2]);
    for _ in 0..3 {
        let load = Load::new("D", 2, 16);
        let told = load.run(&nodes.urls(), &mut next, || {
            load.wait_acked(&nodes, 400);
            nodes.kill(keeper);
            // No other node has the stream, and all other streams must continue.
            let any = (keeper + 1) % 3;
            nodes.until("its loss to be noticed", || match info(&nodes, any, "D") {
                Err(error) if error.contains("10008") || !other_is_ours() => Ok(()),
                answer => Err(format!("{answer:?}")),
            });
            let mut raw = Raw::connect(&nodes.url(any)).unwrap();
            until("others to be served", || publish(&mut raw, "ALL.x", "on"));
            let name = "SOON";
            let made = create(&nodes, any, name, 1);
            assert_ne!(keepers(&nodes, &made)[0], keeper);
            nodes.remove_stream(name);
            nodes.spawn(keeper);
            load.wait_acked(&nodes, 400);
        });
        acked.extend(told);
    }
    check(&content(&nodes, "D"), &acked, &next);
}

#[test]
fn streams_deleted_while_their_node_was_away_do_not_come_back_with_it() {
    let mut nodes = Nodes::start(3);
    nodes.add_stream("ALL", "ALL.>");
    for round in 0..3 {
        let made = create(&nodes, round, "G", 1);
        let keeper = keepers(&nodes, &made)[0];
        nodes.kill(keeper);
        nodes.remove_stream("G");
        // Another stream has the name and the subjects of the lost one now.
        let others = [1, 2].map(|n| (keeper + n) % 3);
        let again = create(&nodes, others[0], "G", 1);
        assert_ne!(keepers(&nodes, &again)[0], keeper);
        nodes.spawn(keeper);
        let mut raw = Raw::connect(&nodes.url(others[0])).unwrap();
        let mut stored = 0;
        nodes.until("the node to be back", || {
            for _ in 0..20 {
                stored += 1;
                assert_eq!(publish_soon(&mut raw, "G.x", "1"), stored);
                assert_quiet(&mut raw);
            }
            nodes.health(keeper)
        });
        let info = until("its stream to be seen", || info(&nodes, keeper, "G"));
        assert_eq!(keepers(&nodes, &info), keepers(&nodes, &again));
        assert_eq!(info["state"]["messages"], stored);
        nodes.remove_stream("G");
    }
}

#[test]
fn a_lost_disk_does_not_leave_an_empty_stream() {
    if other().is_some() {
        return println!("--rejoin is ours: not asked of another server");
    }
    let mut nodes = Nodes::start(3);
    let made = create(&nodes, 0, "L", 1);
    let keeper = keepers(&nodes, &made)[0];
    nodes.add_stream("ALL", "ALL.>");
    let mut raw = Raw::connect(&nodes.url((keeper + 1) % 3)).unwrap();
    assert_eq!(publish_soon(&mut raw, "L.x", "1"), 1);
    assert_eq!(publish_soon(&mut raw, "ALL.x", "1"), 1);
    nodes.kill(keeper);
    nodes.lose_disk(keeper);
    nodes.spawn_with(keeper, &["--rejoin"]);
    nodes.wait_healthy(keeper);
    for node in 0..3 {
        let error = nodes.until("it to be known lost", || match info(&nodes, node, "L") {
            Err(error) if error.contains("err_code") => Ok(error),
            answer => Err(format!("{answer:?}")),
        });
        assert!(error.contains("10008"), "{error}");
    }
    assert_eq!(until("the others", || publish(&mut raw, "ALL.x", "2")), 2);
    assert!(publish(&mut raw, "L.x", "2").is_err());
    nodes.remove_stream("L");
    create(&nodes, keeper, "L", 1);
    assert_eq!(until("a new one", || publish(&mut raw, "L.x", "1")), 1);
}

#[test]
fn three_replicas_of_five_nodes_are_on_three_and_live_through_one() {
    let mut nodes = Nodes::start(5);
    nodes.until("all groups to be led", || {
        let mut kept = BTreeMap::<usize, usize>::new();
        for n in 0..5 {
            let name = format!("T{n}");
            create(&nodes, n, &name, 3);
            let info = nodes.info(&name);
            let of = keepers(&nodes, &info);
            assert_eq!(of.len(), 3, "{info}");
            of.into_iter()
                .for_each(|node| *kept.entry(node).or_default() += 1);
        }
        if other().is_some() || kept.values().eq([3; 5].iter()) {
            return Ok(());
        }
        (0..5).for_each(|n| nodes.remove_stream(&format!("T{n}")));
        Err(format!("{kept:?}"))
    });
    let (mut acked, mut next) = (Acked::new(), vec![0; 2]);
    for _ in 0..2 {
        let load = Load::new("T0", 2, 16);
        let told = load.run(&nodes.urls(), &mut next, || {
            load.wait_acked(&nodes, 300);
            let leader = nodes.leader("T0");
            nodes.kill(leader);
            load.wait_acked(&nodes, 300);
            nodes.spawn(leader);
            nodes.wait_healthy(leader);
            // The stream must not need the nodes that do not keep it.
            let of = keepers(&nodes, &nodes.info("T0"));
            let others: Vec<usize> = (0..5).filter(|node| !of.contains(node)).collect();
            for node in &others {
                nodes.kill(*node);
            }
            load.wait_acked(&nodes, 300);
            for node in others {
                nodes.spawn(node);
            }
            load.wait_acked(&nodes, 100);
        });
        acked.extend(told);
    }
    check(&content(&nodes, "T0"), &acked, &next);
}

#[test]
fn several_groups_of_all_nodes_are_led_by_several_nodes() {
    if other().is_some() {
        return println!("`shards` is ours: not asked of another server");
    }
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("shards.conf");
    std::fs::write(&config, "cluster { shards: 3 }\n").unwrap();
    let place = |node| Place {
        flags: vec!["--config".into(), config.to_str().unwrap().into()],
        ..Place::here(node)
    };
    let mut nodes = Nodes::start_at((0..3).map(place).collect());
    // A new group may have no leader yet; the cluster then places no stream in it.
    let mut groups = BTreeMap::new();
    for n in 0.. {
        let name = format!("S{n}");
        nodes.add_stream(&name, &format!("{name}.>"));
        let info = nodes.info(&name);
        let of = info["cluster"]["raft_group"].to_string();
        groups.entry(of).or_insert(name);
        if groups.len() == 3 {
            break;
        }
        assert!(n < 100, "{groups:?}");
    }
    let leaders: BTreeSet<usize> = groups.values().map(|name| nodes.leader(name)).collect();
    assert!(leaders.len() > 1, "{leaders:?} lead all of {groups:?}");
    let name = groups.values().next_back().unwrap();
    let (mut acked, mut next) = (Acked::new(), vec![0; 2]);
    let load = Load::new(name, 2, 16);
    let told = load.run(&nodes.urls(), &mut next, || {
        load.wait_acked(&nodes, 300);
        let leader = nodes.leader(name);
        nodes.kill(leader);
        load.wait_acked(&nodes, 300);
        nodes.spawn(leader);
        load.wait_acked(&nodes, 100);
    });
    acked.extend(told);
    check(&same_everywhere(&nodes, name), &acked, &next);
}

/// Changes the number of a stream's replicas.
fn edit(nodes: &Nodes, stream: &str, replicas: usize) {
    nodes.until("another number of replicas to be taken", || {
        nodes.ask(
            &format!("STREAM.UPDATE.{stream}"),
            &config(stream, replicas),
        )
    });
}

/// Changes the number of a stream's replicas, and waits until the stream has moved.
fn replicate(nodes: &Nodes, stream: &str, replicas: usize) {
    edit(nodes, stream, replicas);
    wait_kept(nodes, stream, replicas);
}

/// Waits until the stream has moved: one node keeps it, or all nodes.
fn wait_kept(nodes: &Nodes, stream: &str, replicas: usize) {
    nodes.until("a stream to move", || {
        let info = nodes.ask(&format!("STREAM.INFO.{stream}"), &json!({}))?;
        let by_all = info["cluster"]["raft_group"] == "S-all";
        match info["cluster"]["leader"].as_str() {
            Some(leader) if !leader.is_empty() && by_all == (replicas == nodes.len()) => Ok(()),
            _ => Err(info.to_string()),
        }
    });
}

/// The number of the last message that a reader expects, and the deadline for it.
struct Until {
    last: AtomicU64,
    deadline: Instant,
}

impl Until {
    fn new() -> Self {
        Self {
            last: AtomicU64::new(u64::MAX),
            deadline: Instant::now() + Duration::from_secs(100),
        }
    }

    fn is_past(&self, next: u64) -> bool {
        assert!(Instant::now() < self.deadline, "{next} does not come");
        next > self.last.load(Ordering::Acquire)
    }
}

/// Pulls and acknowledges all messages through one node, also while other nodes lead. Returns the number of
/// messages that came more than once.
fn pull_all(url: &str, subject: &str, until: &Until) -> u64 {
    let (mut next, mut again) = (1, 0);
    while !until.is_past(next) {
        let mut raw = Raw::connect_within(url, Duration::from_secs(5)).unwrap();
        // After some silence the loop connects again.
        while !until.is_past(next) {
            let pull = br#"{"batch":200,"expires":1000000000}"#;
            raw.publish(subject, "next", pull).unwrap();
            let mut ack = None;
            let good = loop {
                let Ok(message) = raw.message() else {
                    break false;
                };
                let reply = message.reply.filter(|r| r.starts_with("$JS.ACK."));
                let Some(reply) = reply else { break true };
                let seq: u64 = reply.split('.').nth(5).unwrap().parse().unwrap();
                assert!(seq <= next, "{next} was left out for {seq}");
                again += u64::from(seq < next);
                next = next.max(seq + 1);
                let whole = reply.split('.').next_back() == Some("0") || seq.is_multiple_of(200);
                ack = Some(reply);
                if whole {
                    break true;
                }
            };
            if let Some(ack) = ack {
                raw.send(format!("PUB {ack} 0\r\n\r\n").as_bytes()).unwrap();
            }
            if !good {
                break;
            }
        }
    }
    again
}

#[test]
fn a_stream_moves_under_load_and_back_with_its_consumers() {
    if other().is_some() {
        return println!("how soon it moves is ours: not asked of another server");
    }
    let nodes = Nodes::start(3);
    create(&nodes, 0, "M", 1);
    let mut raw = Raw::connect(&nodes.url(1)).unwrap();
    let durable = json!({"stream_name": "M", "config": {"durable_name": "D", "ack_policy": "all", "ack_wait": 2_000_000_000_u64}});
    let made = raw.api("CONSUMER.CREATE.M.D", &durable);
    assert!(made["error"].is_null(), "{made}");
    let mut pushed = Raw::connect(&nodes.url(2)).unwrap();
    let to = format!("{}push", pushed.inbox);
    let push = json!({"stream_name": "M", "config": {"durable_name": "P", "deliver_subject": to, "ack_policy": "none"}});
    let made = raw.api("CONSUMER.CREATE.M.P", &push);
    assert!(made["error"].is_null(), "{made}");
    let (mut acked, mut next, until) = (Acked::new(), vec![0; 2], Until::new());
    let last = std::thread::scope(|scope| {
        let url = nodes.url(0);
        let until = &until;
        let pulls = scope.spawn(move || pull_all(&url, "$JS.API.CONSUMER.MSG.NEXT.M.D", until));
        let pushes = scope.spawn(move || {
            let mut next = 1;
            while !until.is_past(next) {
                let (seq, _) = pushed.delivered().unwrap();
                assert!(seq <= next, "{next} was not pushed, but {seq}");
                next = next.max(seq + 1);
            }
        });
        let load = Load::new("M", 2, 2);
        let told = load.run(&nodes.urls(), &mut next, || {
            for _ in 0..3 {
                for replicas in [3, 1] {
                    load.wait_acked(&nodes, 200);
                    replicate(&nodes, "M", replicas);
                }
            }
            load.wait_acked(&nodes, 100);
        });
        acked.extend(told);
        let last = nodes.info("M")["state"]["last_seq"].as_u64().unwrap();
        until.last.store(last, Ordering::Release);
        // The test publishes one more message, so that a consumer that still waits for the last one gets it.
        assert_eq!(
            publish(&mut raw, "M.0", &format!("0-{}", next[0])),
            Ok(last + 1)
        );
        pulls.join().unwrap();
        pushes.join().unwrap();
        last
    });
    let mut content = content(&nodes, "M");
    assert_eq!(content.pop().map(|(seq, ..)| seq), Some(last + 1));
    check(&content, &acked, &next);
    let info = nodes.ask("CONSUMER.INFO.M.D", &json!({})).unwrap();
    assert!(
        info["delivered"]["stream_seq"].as_u64() >= Some(last),
        "{info}"
    );
}

#[test]
fn a_stream_moves_while_nodes_die() {
    if other().is_some() {
        return println!("how soon it moves is ours: not asked of another server");
    }
    let mut nodes = Nodes::start(3);
    create(&nodes, 0, "K", 1);
    let (mut acked, mut next) = (Acked::new(), vec![0; 2]);
    // The stream gets so many messages that its move takes a while.
    let mut raw = Raw::connect(&nodes.url(0)).unwrap();
    nodes.until("a filler", || nodes.ask("STREAM.CREATE.F", &config("F", 1)));
    let fill = "x".repeat(64 * 1024);
    for _ in 0..400 {
        publish(&mut raw, "F.x", &fill).unwrap();
    }
    let stream_of = |nodes: &Nodes, name: &str| keepers(nodes, &nodes.info(name))[0];
    for round in 0..4 {
        let load = Load::new("K", 2, 4);
        let told = load.run(&nodes.urls(), &mut next, || {
            for replicas in [3, 1] {
                load.wait_acked(&nodes, 100);
                let source = stream_of(&nodes, if round % 2 == 0 { "K" } else { "F" });
                for name in ["K", "F"] {
                    nodes.until("another number of replicas to be taken", || {
                        nodes.ask(&format!("STREAM.UPDATE.{name}"), &config(name, replicas))
                    });
                }
                nodes.kill(source);
                nodes.spawn(source);
                wait_kept(&nodes, "K", replicas);
                wait_kept(&nodes, "F", replicas);
                nodes.wait_healthy(source);
            }
            load.wait_acked(&nodes, 100);
        });
        acked.extend(told);
        let info = nodes.info("F");
        assert_eq!(
            (&info["state"]["messages"], &info["state"]["last_seq"]),
            (&json!(400), &json!(400)),
            "{info}"
        );
    }
    check(&content(&nodes, "K"), &acked, &next);
    let filled = content(&nodes, "F");
    assert!(filled.iter().all(|(_, _, bytes)| *bytes == fill.as_bytes()));
}

#[test]
fn a_move_is_called_off_under_load() {
    if other().is_some() {
        return println!("how soon it moves is ours: not asked of another server");
    }
    let nodes = Nodes::start(3);
    create(&nodes, 0, "O", 1);
    let durable = json!({"stream_name": "O", "config": {"durable_name": "D", "ack_policy": "all", "ack_wait": 2_000_000_000_u64}});
    nodes.until("a consumer to be made", || {
        nodes.ask("CONSUMER.CREATE.O.D", &durable)
    });
    let (mut acked, mut next, until) = (Acked::new(), vec![0; 2], Until::new());
    std::thread::scope(|scope| {
        let (url, until) = (nodes.url(0), &until);
        let pulls = scope.spawn(move || pull_all(&url, "$JS.API.CONSUMER.MSG.NEXT.O.D", until));
        let load = Load::new("O", 2, 4);
        let told = load.run(&nodes.urls(), &mut next, || {
            for round in 0..12 {
                let (there, back) = if round % 4 < 2 { (3, 1) } else { (1, 3) };
                load.wait_acked(&nodes, 50);
                edit(&nodes, "O", there);
                // In each round the change comes at another step of the move: at once in the first round, and
                // after more messages in later rounds.
                load.wait_acked(&nodes, round);
                edit(&nodes, "O", back);
                if round % 2 == 1 {
                    wait_kept(&nodes, "O", back);
                    load.wait_acked(&nodes, 50);
                    replicate(&nodes, "O", there);
                }
            }
            replicate(&nodes, "O", 1);
            load.wait_acked(&nodes, 100);
        });
        acked.extend(told);
        let last = nodes.info("O")["state"]["last_seq"].as_u64().unwrap();
        until.last.store(last, Ordering::Release);
        pulls.join().unwrap();
    });
    check(&content(&nodes, "O"), &acked, &next);
}

#[test]
fn a_stream_with_a_lost_target_is_served_again_and_goes_elsewhere() {
    if other().is_some() {
        return println!("how soon it moves is ours: not asked of another server");
    }
    let mut nodes = Nodes::start(3);
    nodes.add_stream("G", "G.>");
    nodes.add_stream("ALL", "ALL.>");
    let (mut acked, mut next) = (Acked::new(), vec![0; 2]);
    for round in 0..4 {
        // The third node keeps the fewest streams, so the next stream goes there.
        let busy = nodes.until("two nodes to keep a stream each", || {
            let of = |name| keepers(&nodes, &create(&nodes, 0, name, 1))[0];
            let busy = [of("P0"), of("P1")];
            match busy[0] == busy[1] {
                true => {
                    ["P0", "P1"].iter().for_each(|n| nodes.remove_stream(n));
                    Err("one keeps both".into())
                }
                false => Ok(busy),
            }
        });
        let target = 3 - busy[0] - busy[1];
        let load = Load::new("G", 2, 8);
        let told = load.run(&nodes.urls(), &mut next, || {
            load.wait_acked(&nodes, 100);
            edit(&nodes, "G", 1);
            load.wait_acked(&nodes, round * 3);
            nodes.kill(target);
            // Either the stream has just moved to the killed node, so that no node serves it, or the old node
            // still serves it and moves it to a live node.
            let (wanted, alive) = (load.acked() + 200, busy[0]);
            let came = nodes.until("it to be served, or to have come there", || {
                if load.acked() >= wanted {
                    return Ok(false);
                }
                match info(&nodes, alive, "G") {
                    Err(error) if error.contains("10008") => {
                        info(&nodes, alive, "ALL").map(|_| true)
                    }
                    answer => Err(format!("{answer:?}")),
                }
            });
            if came {
                nodes.spawn(target);
                load.wait_acked(&nodes, 100);
                return replicate(&nodes, "G", 3);
            }
            edit(&nodes, "G", 3);
            wait_kept(&nodes, "G", 3);
            load.wait_acked(&nodes, 100);
            edit(&nodes, "G", 1);
            wait_kept(&nodes, "G", 1);
            assert_ne!(keepers(&nodes, &nodes.info("G"))[0], target);
            load.wait_acked(&nodes, 100);
            nodes.spawn(target);
            replicate(&nodes, "G", 3);
            nodes.wait_healthy(target);
        });
        acked.extend(told);
        ["P0", "P1"].iter().for_each(|n| nodes.remove_stream(n));
    }
    check(&content(&nodes, "G"), &acked, &next);
}
