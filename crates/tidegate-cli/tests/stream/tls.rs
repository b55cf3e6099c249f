//! Tests of the program's client commands over TLS, with right and wrong certificates.

use super::server::{Server, other};
use crate::certificates::Authority;

#[test]
fn commands_speak_tls_and_present_a_certificate() {
    if other().is_some() {
        println!("flags of our own, so not asked of nats-server");
        return;
    }
    let (ours, strangers) = (Authority::new("ours"), Authority::new("strangers"));
    let [server, client, stranger] = [
        ours.pair("server", &["127.0.0.1"]),
        ours.pair("client", &["client"]),
        strangers.pair("stranger", &["client"]),
    ];
    let directory = tempfile::tempdir().unwrap();
    let config = format!(
        "tls {{ cert_file: {:?}, key_file: {:?}, ca_file: {:?}, verify: true }}",
        server.0,
        server.1,
        ours.ca()
    );
    let server = Server::start_in(&directory.path().join("data"), &config);
    let ca = ours.ca();
    let flags = |pair: &(String, String)| {
        ["--tls-ca", &ca, "--tls-cert", &pair.0, "--tls-key", &pair.1].map(str::to_owned)
    };
    let run = |args: &[&str], flags: &[String]| {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        server.tidegate(&[args, &flags].concat())
    };
    let add = ["stream", "add", "S", "--subjects", "s"];
    let (code, _, err) = run(&add, &flags(&client));
    assert_eq!(code, Some(0), "{err}");
    let (code, _, err) = run(&["pub", "s", "one", "--stream", "S"], &flags(&client));
    assert_eq!(code, Some(0), "{err}");
    let (code, out, err) = run(&["consume", "S", "--until-end"], &flags(&client));
    assert_eq!((code, &out[..]), (Some(0), &b"one\n"[..]), "{err}");
    // The client shows no certificate, or a certificate of another authority, or does not trust the authority
    // of the server.
    let only_ca = ["--tls-ca".to_owned(), ca.clone()];
    let mut wrong_ca = flags(&client);
    wrong_ca[1] = strangers.ca();
    for flags in [&only_ca[..], &flags(&stranger), &wrong_ca] {
        let (code, _, err) = run(&["pub", "s", "two"], flags);
        assert_eq!(code, Some(1), "{flags:?}: {err}");
        assert!(
            err.starts_with("tidegate: cannot connect to 127.0.0.1:"),
            "{err}"
        );
        assert_eq!(err.lines().count(), 1, "{err}");
    }
    let (_, out, _) = run(&["consume", "S", "--until-end"], &flags(&client));
    assert_eq!(out, b"one\n");
}
