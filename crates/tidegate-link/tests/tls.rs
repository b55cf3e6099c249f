//! Tests TLS on both sides, with certificates made for the test.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

mod common;

use common::remembering;
use tidegate_link::{Client, ClientTls, ConnectError, Server, ServerTls};

fn certificate() -> (ServerTls, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let certificate = made.cert.pem();
    let key = made.signing_key.serialize_pem();
    let tls = ServerTls::from_pem(certificate.as_bytes(), key.as_bytes()).unwrap();
    (tls, certificate)
}

#[tokio::test]
async fn messages_and_a_token_pass_through_tls() {
    let (tls, certificate) = certificate();
    let (server, seen) = remembering(Server::builder().tls(tls).token("secret")).await;
    let trust = ClientTls::from_pem(certificate.as_bytes(), "localhost").unwrap();
    let client = Client::builder().tls(trust).token("secret");
    let client = client
        .connect(server.local_addr().to_string())
        .await
        .unwrap();
    client.send_acked(b"hidden").await.unwrap();
    client
        .send_many((0..50_000_u32).map(u32::to_le_bytes))
        .await
        .unwrap();
    client.close().await.unwrap();
    assert_eq!(seen.numbers(), (1..=50_001).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_server_that_cannot_prove_its_name_gets_nothing() {
    let (tls, certificate) = certificate();
    let (server, seen) = remembering(Server::builder().tls(tls)).await;
    let (_, other) = self::certificate();
    let strangers = [
        ClientTls::from_pem(other.as_bytes(), "localhost").unwrap(),
        ClientTls::from_pem(certificate.as_bytes(), "example.org").unwrap(),
    ];
    for tls in strangers {
        let client = Client::builder().tls(tls).token("secret");
        let why = client
            .connect(server.local_addr().to_string())
            .await
            .unwrap_err();
        assert!(matches!(why, ConnectError::Tls { .. }), "{why}");
    }
    // A client without TLS must fail to connect to a server with TLS, too.
    let clear = Client::builder().connect(server.local_addr().to_string());
    assert!(clear.await.is_err());
    assert_eq!(seen.len(), 0);
}
