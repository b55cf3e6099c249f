//! Tests the two accounts, on one node and between nodes.

use std::sync::Arc;

use tidegate_nats::settings::{Secret, SessionSettings, User};
use tidegate_nats::system::is_inner;

use super::super::joined::{ANY, client, heard, join, pump, say};
use super::*;
use crate::config::Settings;

const NOW: Time = Time::from_nanos(1);

fn settings() -> Settings {
    let user = User {
        name: "s".into(),
        secret: Secret::new("p"),
        permissions: None,
        account: Account::System,
    };
    Settings {
        sessions: SessionSettings {
            users: vec![Arc::new(user)],
            ..SessionSettings::default()
        },
        ..Settings::default()
    }
}

fn node(id: &str) -> Node {
    let info = Info {
        server_id: id.into(),
        ..Info::default()
    };
    Node::new(settings(), info, 1)
}

/// Connects a client of the system account to the node, and returns the client's key.
fn system(node: &mut Node) -> ClientKey {
    let key = node.handle_accepted(NOW, ([127, 0, 0, 1], 2).into(), false, false);
    let connect = "CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true,\"user\":\"s\",\"pass\":\"p\"}\r\n";
    say(node, NOW, key, connect);
    key
}

fn questions(node: &mut Node) -> Vec<About> {
    let jobs = std::iter::from_fn(|| node.poll_job());
    let about = |job| match job {
        Job::Answer(question) => Some(question.about),
        Job::Tell(_) | Job::Trace(_) | Job::Audit(_) => None,
    };
    jobs.filter_map(about).collect()
}

#[test]
fn messages_stay_in_their_account() {
    let mut node = node("N");
    let (a, s, t) = (client(&mut node, NOW), system(&mut node), system(&mut node));
    say(&mut node, NOW, a, "SUB > 1\r\nSUB *.x 2\r\n");
    say(&mut node, NOW, s, "SUB > 3\r\nSUB $SYS.> q 4\r\n");
    let _ = (heard(&mut node, NOW, a), heard(&mut node, NOW, s));
    say(&mut node, NOW, t, "PUB b.x r 2\r\nhi\r\n");
    assert_eq!(heard(&mut node, NOW, a), "");
    assert_eq!(heard(&mut node, NOW, s), "MSG b.x 3 r 2\r\nhi\r\n");
    let b = client(&mut node, NOW);
    say(&mut node, NOW, b, "PUB $SYS.x 2\r\nyo\r\n");
    assert_eq!(heard(&mut node, NOW, s), "");
    assert_eq!(
        heard(&mut node, NOW, a),
        "MSG $SYS.x 1 2\r\nyo\r\nMSG $SYS.x 2 2\r\nyo\r\n"
    );
    say(&mut node, NOW, s, "UNSUB 3\r\nUNSUB 4\r\n");
    assert!(!node.listens_to_system());
}

#[test]
fn no_client_names_a_subject_of_the_other_account() {
    let mut node = node("N");
    let (a, s) = (client(&mut node, NOW), system(&mut node));
    say(&mut node, NOW, s, "SUB > 1\r\n");
    say(
        &mut node,
        NOW,
        a,
        "SUB \x01.> 1\r\nPUB \x01.x 1\r\nx\r\nPUB y \x01.x 1\r\nx\r\n",
    );
    let said = heard(&mut node, NOW, a);
    assert_eq!(said.matches("-ERR").count(), 3, "{said}");
    assert_eq!(heard(&mut node, NOW, s), "");
}

#[test]
fn only_the_system_account_asks_about_servers() {
    let mut node = node("NID");
    let (a, s) = (client(&mut node, NOW), system(&mut node));
    for key in [a, s] {
        say(&mut node, NOW, key, "SUB r 1\r\n");
    }
    let ask = |node: &mut Node, key, subject: &str| {
        say(node, NOW, key, format!("PUB {subject} r 0\r\n\r\n"));
        (questions(node), heard(node, NOW, key).contains("503"))
    };
    let var = vec![About::Page(Page::Var)];
    assert_eq!(
        ask(&mut node, s, "$SYS.REQ.SERVER.PING.VARZ"),
        (var.clone(), false)
    );
    assert_eq!(ask(&mut node, s, "$SYS.REQ.SERVER.NID.VARZ"), (var, false));
    assert_eq!(
        ask(&mut node, s, "$SYS.REQ.SERVER.OTHER.VARZ"),
        (vec![], true)
    );
    assert_eq!(
        ask(&mut node, a, "$SYS.REQ.SERVER.PING.VARZ"),
        (vec![], true)
    );
    assert_eq!(
        ask(&mut node, a, "$SYS.REQ.USER.INFO"),
        (vec![About::User], false)
    );
    let own = About::PageOf(Page::Connections, "$G".into());
    assert_eq!(
        ask(&mut node, a, "$SYS.REQ.SERVER.PING.CONNZ"),
        (vec![own], false)
    );
    assert_eq!(
        ask(&mut node, a, "$SYS.REQ.SERVER.NID.KICK"),
        (vec![], true)
    );
    assert_eq!(
        ask(&mut node, s, "$SYS.REQ.SERVER.NID.KICK"),
        (vec![About::Kick], false)
    );
    node.say_system(NOW, Account::System, b"r", b"answer");
    assert_eq!(heard(&mut node, NOW, s), "MSG r 1 6\r\nanswer\r\n");
    assert_eq!(heard(&mut node, NOW, a), "");
}

#[test]
fn all_nodes_hear_a_ping_and_answer_across_nodes() {
    let mut nodes = [node("N1"), node("N2")];
    for node in &mut nodes {
        node.join_cluster(Vec::new());
    }
    join(&mut nodes);
    let pump = |nodes: &mut [Node]| pump(nodes, NOW, |_, _| false, |_| true);
    pump(&mut nodes);
    let (s, a) = (system(&mut nodes[0]), client(&mut nodes[1], NOW));
    say(&mut nodes[0], NOW, s, "SUB r 1\r\n");
    say(&mut nodes[1], NOW, a, "SUB > 1\r\n");
    pump(&mut nodes);
    let ask = |nodes: &mut [Node], subject: &str| {
        say(&mut nodes[0], NOW, s, format!("PUB {subject} r 0\r\n\r\n"));
        pump(nodes);
        (
            questions(&mut nodes[0]).len(),
            questions(&mut nodes[1]).len(),
        )
    };
    assert_eq!(ask(&mut nodes, "$SYS.REQ.SERVER.PING"), (1, 1));
    assert_eq!(ask(&mut nodes, "$SYS.REQ.SERVER.N2.CONNZ"), (0, 1));
    assert_eq!(ask(&mut nodes, "$SYS.REQ.USER.INFO"), (1, 0));
    assert_eq!(ask(&mut nodes, "$SYS.REQ.ACCOUNT.$G.INFO"), (1, 1));
    assert_eq!(heard(&mut nodes[0], NOW, s), "");
    assert_eq!(ask(&mut nodes, "$SYS.REQ.SERVER.N3.CONNZ"), (0, 0));
    assert!(heard(&mut nodes[0], NOW, s).contains("503"));
    nodes[1].say_system(NOW, Account::System, b"r", b"pong");
    pump(&mut nodes);
    assert_eq!(heard(&mut nodes[0], NOW, s), "MSG r 1 4\r\npong\r\n");
    assert_eq!(heard(&mut nodes[1], NOW, a), "");
    // A peer sends a message with a subject of the other account, as no client of this version can cause it.
    let message = Publish {
        subject: &inner(b"r"),
        reply: None,
        headers: None,
        payload: b"x",
    };
    assert!(is_inner(message.subject));
    let routed = tidegate_cluster::wire::Routed {
        plain: true,
        groups: &[],
        asks: false,
        handed: false,
        passed: 0,
        to: None,
        message,
    };
    let slot = tidegate_cluster::roster::PeerSlot::new(1);
    nodes[0].handle_routed(NOW, slot, &routed, ANY);
    assert_eq!(heard(&mut nodes[0], NOW, s), "");
}

#[test]
fn connections_are_told_to_who_asks() {
    let mut node = node("N");
    let before = client(&mut node, NOW);
    assert!(node.poll_job().is_none());
    let s = system(&mut node);
    say(
        &mut node,
        NOW,
        s,
        "SUB $SYS.ACCOUNT.*.CONNECT 1\r\nSUB $SYS.ACCOUNT.$G.DISCONNECT 2\r\n",
    );
    let a = client(&mut node, NOW);
    let cid = node.sessions().map(|s| s.cid).max().unwrap();
    let Some(Job::Tell(Happened::Connected(of))) = node.poll_job() else {
        panic!("a connection without an event");
    };
    assert_eq!((of.cid, of.account, of.user), (cid, Account::Global, None));
    say(&mut node, NOW, a, "PUB x 1\r\nx\r\n");
    node.handle_closed(NOW, a, CloseReason::ClientClosed);
    let Some(Job::Tell(Happened::Disconnected(of, CloseReason::ClientClosed))) = node.poll_job()
    else {
        panic!("an end without an event");
    };
    assert_eq!((of.cid, of.traffic.in_msgs), (cid, 1));
    assert!(node.kick(NOW, 1) && !node.kick(NOW, 99));
    let _ = heard(&mut node, NOW, before);
    let job = node.poll_job();
    assert!(
        matches!(
            job,
            Some(Job::Tell(Happened::Disconnected(_, CloseReason::Kicked)))
        ),
        "{job:?}"
    );
    node.tell_of_server(Happened::Stats);
    assert!(node.poll_job().is_some() && !node.wants_stats());
    say(&mut node, NOW, s, "SUB $SYS.SERVER.*.STATSZ 3\r\n");
    assert!(node.wants_stats());
    node.check_invariants();
}
