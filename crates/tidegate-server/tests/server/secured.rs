//! Tests TLS: after INFO, before it, with certificates of clients, and without TLS where the server requires
//! it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::raw::{PATIENCE, Raw};
use super::{Running, start};

struct Files {
    directory: tempfile::TempDir,
}

impl Files {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

/// Creates an authority, and certificates of a server and a client that the authority signs.
fn certificates() -> Files {
    let directory = tempfile::tempdir().unwrap();
    let files = Files { directory };
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(files.path("ca.pem"), ca.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".into(), "127.0.0.1".into()]).unwrap();
        let certificate = params.signed_by(&key, &ca).unwrap();
        std::fs::write(files.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(files.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    files
}

fn config(files: &Files, more: &str) -> String {
    let path = |name: &str| files.path(name).display().to_string();
    format!(
        "tls {{ cert_file: \"{}\", key_file: \"{}\", ca_file: \"{}\", timeout: 5, {more} }}",
        path("server.pem"),
        path("server.key"),
        path("ca.pem")
    )
}

fn client(files: &Files, identity: bool) -> Arc<ClientConfig> {
    let certificates = |p: &Path| {
        CertificateDer::pem_file_iter(p)
            .unwrap()
            .map(Result::unwrap)
            .collect::<Vec<_>>()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&files.path("ca.pem")));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(if identity {
        let key = PrivateKeyDer::from_pem_file(files.path("client.key")).unwrap();
        builder
            .with_client_auth_cert(certificates(&files.path("client.pem")), key)
            .unwrap()
    } else {
        builder.with_no_client_auth()
    })
}

fn secure(
    stream: TcpStream,
    config: Arc<ClientConfig>,
) -> StreamOwned<ClientConnection, TcpStream> {
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(config, name).unwrap(), stream)
}

/// Reads from the server until the text `end`.
fn until(stream: &mut impl Read, end: &str) -> String {
    let mut seen = Vec::new();
    let mut byte = [0; 4096];
    while !seen.ends_with(end.as_bytes()) {
        let n = stream.read(&mut byte).unwrap();
        assert!(n > 0, "end after {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&byte[..n]);
    }
    String::from_utf8(seen).unwrap()
}

fn talk(stream: &mut (impl Read + Write), size: usize) {
    let body = "y".repeat(size);
    write!(
        stream,
        "CONNECT {{\"verbose\":false}}\r\nSUB a 1\r\nPUB a {size}\r\n{body}\r\nPING\r\n"
    )
    .unwrap();
    let seen = until(stream, "PONG\r\n");
    assert!(
        seen.contains(&format!("MSG a 1 {size}\r\n{body}\r\n")),
        "{} bytes",
        seen.len()
    );
}

fn tcp(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn after_info() {
    let files = certificates();
    let server = start(&config(&files, ""));
    let mut stream = tcp(&server);
    let mut info = Vec::new();
    let mut byte = [0];
    while !info.ends_with(b"\n") {
        stream.read_exact(&mut byte).unwrap();
        info.push(byte[0]);
    }
    assert!(
        String::from_utf8(info)
            .unwrap()
            .contains("\"tls_required\":true")
    );
    let mut tls = secure(stream, client(&files, false));
    talk(&mut tls, 5);
    talk(&mut tls, 900_000);
    // The client sends plain text or other bytes without TLS: the server sends the error, and closes the
    // connection.
    let mut plain = Raw::connect(&server);
    plain.send("CONNECT {}\r\n");
    assert_eq!(plain.rest(), "-ERR 'Secure Connection - TLS Required'\r\n");
    let mut broken = Raw::connect(&server);
    broken.send([0x16, 3, 1, 0, 4, 1, 2, 3, 4]);
    broken.rest();
    talk(&mut secure_after_info(&server, &files), 5);
}

fn secure_after_info(server: &Running, files: &Files) -> StreamOwned<ClientConnection, TcpStream> {
    let mut stream = tcp(server);
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).unwrap();
    }
    secure(stream, client(files, false))
}

#[test]
fn before_info() {
    let files = certificates();
    let server = start(&config(&files, "handshake_first: true"));
    let mut tls = secure(tcp(&server), client(&files, false));
    assert!(until(&mut tls, "}\r\n").starts_with("INFO "));
    talk(&mut tls, 70_000);
    let server = start(&config(&files, "handshake_first: \"100ms\""));
    let mut tls = secure(tcp(&server), client(&files, false));
    assert!(until(&mut tls, "}\r\n").starts_with("INFO "));
    // A client that waits for INFO gets it before the handshake.
    talk(&mut secure_after_info(&server, &files), 5);
}

#[test]
fn optional_tls() {
    let files = certificates();
    let server = start(&(config(&files, "") + "\nallow_non_tls: true"));
    let mut plain = Raw::connect(&server);
    assert!(
        plain
            .done("CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n")
            .contains("MSG a 1 1")
    );
    talk(&mut secure_after_info(&server, &files), 5);
}

#[test]
fn certificates_of_clients() {
    let files = certificates();
    let server = start(&config(&files, "verify: true, handshake_first: true"));
    let mut known = secure(tcp(&server), client(&files, true));
    assert!(until(&mut known, "}\r\n").contains("\"tls_verify\":true"));
    talk(&mut known, 5);
    let mut unknown = secure(tcp(&server), client(&files, false));
    let mut text = String::new();
    assert!(
        unknown.read_to_string(&mut text).is_err() || text.is_empty(),
        "{text}"
    );
    // Another authority of the same name has signed this client's certificate.
    let others = certificates();
    for name in ["client.pem", "client.key"] {
        std::fs::copy(others.path(name), files.path(name)).unwrap();
    }
    let mut foreign = secure(tcp(&server), client(&files, true));
    let error = foreign.read_to_string(&mut text).unwrap_err();
    assert!(error.to_string().contains("BadCertificate"), "{error}");
}

#[test]
fn async_nats_over_tls() {
    let files = certificates();
    for (server, first) in [
        (start(&config(&files, "")), false),
        (start(&config(&files, "handshake_first: true")), true),
    ] {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut options = async_nats::ConnectOptions::new()
                .add_root_certificates(files.path("ca.pem"))
                .require_tls(true);
            if first {
                options = options.tls_first();
            }
            let client = options
                .connect(format!("tls://localhost:{}", server.address.port()))
                .await
                .unwrap();
            client.publish("a", "x".into()).await.unwrap();
            client.flush().await.unwrap();
        });
    }
}

/// One connection a second may use TLS. The server refuses one of several connections in a row, and serves
/// later ones.
#[test]
fn more_connections_than_the_rate_allows() {
    let files = certificates();
    let server = start(&config(&files, "connection_rate_limit: 1"));
    let is_served = || {
        let mut stream = secure_after_info(&server, &files);
        let asked = write!(stream, "CONNECT {{\"verbose\":false}}\r\nPING\r\n");
        let mut answer = [0; 6];
        asked.and_then(|()| stream.read_exact(&mut answer)).is_ok() && &answer == b"PONG\r\n"
    };
    while is_served() {}
    while !is_served() {}
}
