//! Tests of TLS between nodes: the connections that a node refuses, and the log lines of both nodes about
//! them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::certificates::Authority;
use super::{Client, Node, PATIENCE, ports};

const HERE: &[&str] = &["127.0.0.1"];

fn start(name: &str, ports: &[u16], flags: &[String]) -> Node {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Node::start(name, ports, &flags)
}

fn hang_up(node: &Node) {
    let pid = Pid::from_raw(i32::try_from(node.child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

/// Checks that messages of a client at one node reach a client at the other node.
fn talk(from: &Node, to: &Node) {
    let (mut a, mut b) = (Client::connect(from), Client::connect(to));
    b.subscribe("x 1");
    a.reach("x");
    assert_eq!(b.message().payload, "ready");
    // The message is larger than a TLS record.
    let text = "x".repeat(900_000);
    for _ in 0..3 {
        a.publish("x", &text);
    }
    for _ in 0..3 {
        assert_eq!(b.message().payload, text);
    }
}

#[test]
fn certificates_of_another_authority_are_refused_until_they_are_replaced() {
    let [ours, theirs] = ["ours", "theirs"].map(Authority::new);
    let ports: [u16; 2] = ports();
    let turned = [ports[1], ports[0]];
    let mut n1 = start("n1", &ports, &ours.certify("n1", HERE));
    let mut n2 = start("n2", &turned, &theirs.certify("n2", HERE));
    // The log of each node must name both errors: as the node that checks a certificate, and as the node that
    // shows one.
    for node in [&mut n1, &mut n2] {
        node.wait_for("its certificate is not signed by an authority in cluster.tls.ca_file");
        node.wait_for("it does not know who signed this node's certificate");
    }
    // A reload with files that the node cannot use must change nothing.
    let (cert_file, key_file) = theirs.files("n2");
    std::fs::write(&cert_file, "no certificate").unwrap();
    hang_up(&n2);
    n2.wait_for("the reload failed: cluster.tls: ");
    n2.wait_for("the server keeps its old configuration");
    ours.certify("n2", HERE);
    let (good_cert, good_key) = ours.files("n2");
    std::fs::copy(good_cert, cert_file).unwrap();
    std::fs::copy(good_key, key_file).unwrap();
    std::fs::copy(ours.file(), theirs.file()).unwrap();
    hang_up(&n2);
    n1.wait_for("the route connection to `n2` at");
    n2.wait_for("the route connection to `n1` at");
    talk(&n1, &n2);
    talk(&n2, &n1);
    let varz = n1.get_json("/varz");
    assert_eq!(varz["cluster"]["tls_verify"], true, "{varz}");
}

#[test]
fn nodes_with_and_without_tls_say_so_to_each_other() {
    let authority = Authority::new("ours");
    let ports: [u16; 2] = ports();
    let mut n1 = start("n1", &ports, &authority.certify("n1", HERE));
    let mut n2 = Node::start("n2", &[ports[1], ports[0]], &[]);
    for node in [&mut n1, &mut n2] {
        node.wait_for("the node that dials speaks no TLS and the one it dials does");
        node.wait_for("the node that dials speaks TLS and the one it dials does not");
    }
    // The node must close the connection of a client that speaks no TLS or sends nothing, and must keep its
    // other connections.
    let all: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0x16, 3, 1, 0, 4, 1, 2, 3, 4],
        &[0x16, 3],
        &[],
    ];
    let strangers = all.map(|words| {
        let mut stranger = TcpStream::connect(("127.0.0.1", ports[0])).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        stranger.write_all(words).unwrap();
        stranger
    });
    for mut stranger in strangers {
        let mut answer = Vec::new();
        // The refused client gets at most a TLS alert, or a reset, before the end of its connection.
        if let Err(e) = stranger.read_to_end(&mut answer) {
            assert_eq!(e.kind(), ErrorKind::ConnectionReset);
        }
        assert!(answer.len() < 16, "{answer:?}");
    }
    n1.wait_for("no TLS handshake within 2s");
    drop(n2);
    let n2 = start("n2", &[ports[1], ports[0]], &authority.certify("n2", HERE));
    n1.wait_for("the route connection to `n2` at");
    talk(&n1, &n2);
}

#[test]
fn a_certificate_has_to_be_for_the_name_that_was_dialled_and_of_today() {
    let authority = Authority::new("ours");
    let ports: [u16; 3] = ports();
    let mut n1 = start("n1", &ports, &authority.certify("n1", HERE));
    let other = authority.certify("n2", &["n2.example"]);
    let mut n2 = start("n2", &[ports[1], ports[0]], &other);
    n1.wait_for("certificate not valid for name \"127.0.0.1\"");
    n1.wait_for("n2.example");
    n1.wait_for("routes must name a node as its certificate does");
    n2.wait_for("it does not take this node's certificate, and its log says why: BadCertificate");
    let old = authority.certify_long_ago("n3", HERE);
    let mut n3 = start("n3", &[ports[2], ports[0]], &old);
    n1.wait_for("its certificate cannot be used: certificate expired");
    n3.wait_for(
        "it does not take this node's certificate, and its log says why: CertificateExpired",
    );
}

#[test]
fn a_cluster_secret_is_proved_inside_tls() {
    let authority = Authority::new("ours");
    let ports: [u16; 2] = ports();
    let flags = |node: &str, secret: &str| {
        let secret = ["--cluster-secret", secret].map(String::from);
        [authority.certify(node, HERE), secret.into()].concat()
    };
    let turned = [ports[1], ports[0]];
    let mut n1 = start("n1", &ports, &flags("n1", "tide-and-time"));
    let mut n2 = start("n2", &turned, &flags("n2", "guess"));
    n1.wait_for("the secrets differ");
    n2.wait_for("the secrets differ");
    drop(n2);
    let mut n2 = start("n2", &turned, &flags("n2", "tide-and-time"));
    n1.wait_for("the route connection to `n2` at");
    n2.wait_for("the route connection to `n1` at");
    talk(&n2, &n1);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let authority = Authority::new("ours");
    let flags = authority.certify("n1", HERE);
    let (cert_file, key_file) = authority.files("n1");
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--no-streams", "-p", "-1", "-n", "n1"]);
        command.args(["--cluster-name", "tide", "--cluster", "nats://127.0.0.1:-1"]);
        command.args(["--routes", "nats-route://127.0.0.1:1"]);
        let output = command.args(&flags).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    // The test gives the node the key of another certificate.
    authority.certify("n2", HERE);
    std::fs::copy(authority.files("n2").1, &key_file).unwrap();
    let said = run();
    assert!(said.contains("cluster.tls: the private key in"), "{said}");
    assert!(said.contains("does not belong"), "{said}");
    // The loop removes the files in the reverse of the order in which the program reads them, so that each
    // error names the removed file.
    for path in [authority.file(), key_file, cert_file] {
        std::fs::remove_file(&path).unwrap();
        let said = run();
        let expected = format!("from {}", path.display());
        assert!(said.contains("cluster.tls: cannot read"), "{said}");
        assert!(said.contains(&expected), "{said}");
    }
}
