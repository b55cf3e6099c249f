//! Tests that the leader stays the leader while many clients without credentials send it a TLS hello at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::nodes::{Nodes, Place, other, until};

/// The number of hellos: their handshakes take the leader twice as long as the election timeout of its
/// followers.
const HELLOS: usize = 400;

/// Makes a certificate and an RSA key of 4096 bits, the slowest to sign with of those in use. Returns false
/// if the program `openssl` is missing.
fn certificate(directory: &Path) -> bool {
    let file = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let mut openssl = Command::new("openssl");
    openssl
        .args([
            "req", "-x509", "-newkey", "rsa:4096", "-nodes", "-days", "2",
        ])
        .args(["-subj", "/CN=localhost"])
        .args(["-keyout", &file("key.pem"), "-out", &file("cert.pem")])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    match openssl.status() {
        Ok(status) => status.success(),
        Err(e) if e.kind() == ErrorKind::NotFound => false,
        Err(e) => panic!("openssl: {e}"),
    }
}

/// Returns a ClientHello of TLS 1.2 that offers only ECDHE with an RSA signature, so that the leader must
/// sign.
fn hello() -> Vec<u8> {
    let extensions: &[&[u8]] = &[
        // supported_groups: x25519, secp256r1
        &[0, 10, 0, 6, 0, 4, 0, 29, 0, 23],
        // signature_algorithms: rsa_pss_rsae_sha256, rsa_pkcs1_sha256
        &[0, 13, 0, 6, 0, 4, 8, 4, 4, 1],
    ];
    let extensions = extensions.concat();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    // The hello names no session, only the cipher suite TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, and no
    // compression.
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0]);
    body.extend(u16::try_from(extensions.len()).unwrap().to_be_bytes());
    body.extend(extensions);
    let len = u16::try_from(body.len()).unwrap();
    let mut record = vec![0x16, 3, 1];
    record.extend((len + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend(len.to_be_bytes());
    record.extend(body);
    record
}

/// Returns the log lines in which each node names the leader and the term.
fn leads(nodes: &Nodes) -> Vec<Vec<String>> {
    let said = |node| nodes.said(node, "the streams of all nodes");
    (0..nodes.len()).map(said).collect()
}

#[test]
fn a_burst_of_hellos_does_not_depose_the_leader() {
    if other().is_some() {
        println!("flags of our own, so not asked of nats-server");
        return;
    }
    let files = tempfile::tempdir().unwrap();
    if !certificate(files.path()) {
        tidegate_testing::missing("the program openssl, for an RSA key (make deps-system)");
        return;
    }
    let config = files.path().join("tls.conf");
    let file = |name: &str| files.path().join(name).display().to_string();
    let text = format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", timeout: 120 }}\nallow_non_tls: true\n",
        file("cert.pem"),
        file("key.pem")
    );
    std::fs::write(&config, text).unwrap();
    let place = |node: usize| Place {
        flags: vec!["-c".into(), config.to_str().unwrap().into()],
        ..Place::here(node)
    };
    let nodes = Nodes::start_at((0..3).map(place).collect());
    nodes.add_stream("S", "S.>");
    nodes.wait_current("S");
    let leader = nodes.leader("S");
    let before = leads(&nodes);
    assert!(!before[leader].is_empty(), "{before:?}");
    let connect = |_| TcpStream::connect(nodes.url(leader)).unwrap();
    let mut clients: Vec<TcpStream> = (0..HELLOS).map(connect).collect();
    // All clients have got the server's greeting, so the leader now has only the handshakes to do.
    for client in &mut clients {
        let mut byte = [0];
        while byte != *b"\n" {
            client.read_exact(&mut byte).unwrap();
        }
        client.set_nonblocking(true).unwrap();
    }
    let hello = hello();
    for client in &mut clients {
        client.write_all(&hello).unwrap();
    }
    let mut answered = vec![false; HELLOS];
    // Handshakes have a lower priority than all else on the machine, so the test waits as long as some
    // advance.
    while answered.contains(&false) {
        let count = |answered: &[bool]| answered.iter().filter(|a| **a).count();
        let before = count(&answered);
        until("another hello to be answered", || {
            for (client, answered) in clients.iter_mut().zip(&mut answered) {
                let mut record = [0; 4096];
                match client.read(&mut record) {
                    // The first byte of a handshake record is 0x16, and the record is the leader's
                    // ServerHello.
                    Ok(len) if len > 0 => {
                        assert!(*answered || record[0] == 0x16, "{:?}", &record[..len]);
                        *answered = true;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                    other => panic!("{other:?}"),
                }
            }
            match count(&answered) {
                now if now > before => Ok(()),
                now => Err(format!("{now} of {HELLOS} are")),
            }
        });
    }
    assert_eq!(nodes.leader("S"), leader);
    assert_eq!(leads(&nodes), before, "an election");
    // The leader must still serve requests.
    nodes.until("the stream to be changed", || {
        let config = json!({"name": "S", "subjects": ["S.>", "T"], "num_replicas": 3});
        nodes.ask("STREAM.UPDATE.S", &config)
    });
    assert_eq!(leads(&nodes), before, "an election");
}
