//! Tests passwords, users and TLS, and the client's errors when a password or a certificate is missing.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tidegate_redis::{Client, Config, ConnectError, Protocol, ServerErrorKind, Tls, cmd};

use crate::common::{Redis, soon};

#[tokio::test]
async fn passwords_are_asked_for_and_checked() {
    let redis = Redis::with(&["--requirepass", "secret"]);
    let refused = |e: ConnectError| match e {
        ConnectError::Refused(e) => e.kind().clone(),
        other => panic!("{other}"),
    };
    for protocol in [Protocol::Best, Protocol::Resp2] {
        let c = Client::open(redis.config().password("secret").protocol(protocol))
            .await
            .unwrap();
        c.ping().await.unwrap();
        let e = Client::open(redis.config().password("wrong").protocol(protocol))
            .await
            .unwrap_err();
        assert_eq!(refused(e), ServerErrorKind::WrongPass);
        let e = Client::open(redis.config().protocol(protocol))
            .await
            .unwrap_err();
        assert_eq!(refused(e), ServerErrorKind::NoAuth);
    }
    let e = Client::open(redis.config().password("secret").db(99))
        .await
        .unwrap_err();
    assert_eq!(refused(e), ServerErrorKind::Err);
    let with_user = format!("redis://default:secret@127.0.0.1:{}", redis.port);
    Client::connect(&with_user)
        .await
        .unwrap()
        .ping()
        .await
        .unwrap();
}

/// The password changes while the client has no connection: waiting commands fail instead of waiting for
/// ever.
#[tokio::test]
async fn a_password_refused_on_reconnecting_is_told() {
    let mut redis = Redis::with(&["--requirepass", "secret"]);
    let c = Client::open(redis.config().password("secret"))
        .await
        .unwrap();
    let admin = Client::open(redis.config().password("secret"))
        .await
        .unwrap();
    admin
        .send::<()>(cmd("CONFIG SET").arg(["requirepass", "other"]))
        .await
        .unwrap();
    admin
        .forget(&cmd("CLIENT KILL").arg(["TYPE", "normal", "SKIPME", "yes"]))
        .unwrap();
    soon("the refusal", async {
        loop {
            match c.ping().await {
                Err(e) if e.to_string().contains("WRONGPASS") => break,
                _ => tokio::task::yield_now().await,
            }
        }
    })
    .await;
    redis.kill();
}

struct Certificates {
    root: String,
    other_root: String,
}

fn certificates(dir: &Path) -> Certificates {
    let mut ca = CertificateParams::new(Vec::<String>::new()).unwrap();
    // If issuer and subject had the same name, the certificate would pass for self-signed.
    ca.distinguished_name.push(DnType::CommonName, "test root");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = CertifiedIssuer::self_signed(ca.clone(), KeyPair::generate().unwrap()).unwrap();
    let other = CertifiedIssuer::self_signed(ca, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let leaf = CertificateParams::new(names)
        .unwrap()
        .signed_by(&key, &root)
        .unwrap();
    std::fs::write(dir.join("ca.pem"), root.pem()).unwrap();
    std::fs::write(dir.join("cert.pem"), leaf.pem()).unwrap();
    std::fs::write(dir.join("key.pem"), key.serialize_pem()).unwrap();
    Certificates {
        root: root.pem(),
        other_root: other.pem(),
    }
}

#[tokio::test]
async fn tls() {
    let dir = tempfile::tempdir().unwrap();
    let certs = certificates(dir.path());
    let tls_port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let redis = Redis::with(&[
        "--tls-port",
        &tls_port.to_string(),
        "--tls-cert-file",
        &file("cert.pem"),
        "--tls-key-file",
        &file("key.pem"),
        "--tls-ca-cert-file",
        &file("ca.pem"),
    ]);
    let config = |host: &str| Config::from_url(&format!("rediss://{host}:{tls_port}")).unwrap();
    let trusting = Tls::system().roots_pem(certs.root.clone());

    // The server asks clients for a certificate. The test has only one certificate below its root, so the
    // server and the client both use it.
    let known = trusting
        .clone()
        .identity_files(file("cert.pem"), file("key.pem"));
    let text = |name: &str| std::fs::read(file(name)).unwrap();
    let by_other_means = Tls::system()
        .roots_file(file("ca.pem"))
        .identity_pem(text("cert.pem"), text("key.pem"));
    for (host, tls) in [("localhost", known), ("127.0.0.1", by_other_means)] {
        let c = Client::open(config(host).tls(tls)).await.unwrap();
        let value = vec![b'v'; 300_000];
        let shared = Bytes::from(value.clone());
        let set = |i: u64| match i % 2 {
            0 => c.set(format!("k{i}"), &value),
            _ => c.set(format!("k{i}"), &shared),
        };
        let sets: Vec<_> = (0..64).map(set).collect();
        for set in sets {
            soon("a write under TLS", set).await.unwrap();
        }
        let gets: Vec<_> = (0..64u64)
            .map(|i| c.get::<Bytes>(format!("k{i}")))
            .collect();
        for get in gets {
            assert_eq!(soon("a read under TLS", get).await.unwrap(), value);
        }
        let mut news = c.subscribe(["news"], 1).await.unwrap();
        c.publish("news", "under TLS").await.unwrap();
        assert_eq!(
            &soon("a message", news.next()).await.unwrap().payload[..],
            b"under TLS"
        );
    }

    let e = Client::open(config("localhost").tls(Tls::system().roots_pem(certs.other_root)))
        .await
        .unwrap_err();
    assert!(matches!(e, ConnectError::Tls(_)), "{e:?}");
    // The client connects without its certificate, with TLS to a port without TLS, and without
    // TLS to a port with it.
    soon(
        "the refusal",
        Client::open(config("localhost").tls(trusting.clone())),
    )
    .await
    .unwrap_err();
    let brief = Duration::from_millis(300);
    let plain_port = Config::from_url(&format!("rediss://localhost:{}", redis.port))
        .unwrap()
        .connect_timeout(brief)
        .tls(trusting);
    soon("the refusal", Client::open(plain_port))
        .await
        .unwrap_err();
    let tls_port_plain = Config::from_url(&format!("redis://localhost:{tls_port}")).unwrap();
    soon(
        "the refusal",
        Client::open(tls_port_plain.connect_timeout(brief)),
    )
    .await
    .unwrap_err();
    let nonsense = Tls::system().roots_pem("no certificate");
    let e = Client::open(config("localhost").tls(nonsense))
        .await
        .unwrap_err();
    assert!(matches!(e, ConnectError::Config(_)), "{e:?}");
}
