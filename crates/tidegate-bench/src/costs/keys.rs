//! Measures the works of the pool's threads for the simulation: the steps of a TLS handshake with an RSA-4096
//! key, the costliest key that servers commonly have, and the check of a password against a bcrypt hash.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::{Table, median, timed};
use crate::stream::Directory;

/// The cost of a bcrypt hash, as nats-server's tool makes the hashes of passwords.
const HASH_COST: u32 = 11;
/// The greatest number of rounds in which the bench checks a password, because a check takes a fraction of a
/// second.
const CHECKS_MAX: usize = 5;

pub(super) fn measure(rounds: usize) -> anyhow::Result<Table> {
    let (hello, finish) = handshakes(rounds)?;
    let hash = bcrypt::hash("right", HASH_COST)?;
    let password = median(rounds.min(CHECKS_MAX), 1, || {
        timed(|| {
            std::hint::black_box(bcrypt::verify("wrong", &hash).is_ok());
        })
    });
    Ok(vec![
        ("TlsHello", hello),
        ("TlsFinish", finish),
        ("Password", password),
    ])
}

/// Measures how long the server takes for the two steps of a TLS handshake.
fn handshakes(rounds: usize) -> anyhow::Result<(u64, u64)> {
    let directory = Directory::make()?;
    let (cert, key) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    let status = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
        ])
        .args([
            "-addext",
            "subjectAltName=DNS:localhost",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
            "-newkey",
            "rsa:4096",
            "-keyout",
        ])
        .arg(&key)
        .arg("-out")
        .arg(&cert)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let status = status.context("the program openssl, for an RSA key")?;
    ensure!(status.success(), "openssl makes no certificate: {status}");
    let cert = CertificateDer::from_pem_file(&cert).map_err(|e| anyhow!("{e}"))?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|e| anyhow!("{e}"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(cert.clone())?;
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![cert], key)?;
    let (client, server) = (Arc::new(client), Arc::new(server));
    let (mut hellos, mut finishes) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let name = ServerName::try_from("localhost")?;
        let mut client = ClientConnection::new(Arc::clone(&client), name)?;
        let mut server = ServerConnection::new(Arc::clone(&server))?;
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire)?;
        }
        hellos.push(step(&mut server, &wire)?);
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire)?;
        }
        let mut rest = &wire[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest)?;
            client.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire)?;
        }
        finishes.push(step(&mut server, &wire)?);
        ensure!(
            !server.is_handshaking(),
            "the handshake has more steps than two"
        );
    }
    let of = |mut times: Vec<Duration>| median(rounds, 1, || times.pop().unwrap_or_default());
    Ok((of(hellos), of(finishes)))
}

/// Lets the server process these bytes of the handshake. Returns the time that the server takes.
fn step(server: &mut ServerConnection, bytes: &[u8]) -> anyhow::Result<Duration> {
    let mut rest = bytes;
    let mut took = Duration::ZERO;
    while !rest.is_empty() {
        server.read_tls(&mut rest)?;
        let mut done = Ok(());
        took += timed(|| done = server.process_new_packets().map(drop));
        done?;
    }
    Ok(took)
}
