//! Tests of TLS and of tokens, and of a receiver's protection from clients without them.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{CertifiedKey, generate_simple_self_signed};

use super::program::Program;

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Creates a certificate for `name` and its key. Returns the paths of both files.
fn certificate(directory: &Path, name: &str) -> (PathBuf, PathBuf) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).unwrap();
    let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
    fs::write(&certificate, cert.pem()).unwrap();
    fs::write(&key, signing_key.serialize_pem()).unwrap();
    (certificate, key)
}

#[test]
fn tls_and_a_token_let_in_and_keep_out() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(directory.path(), "127.0.0.1");
    let (token, wrong) = (
        directory.path().join("token"),
        directory.path().join("wrong"),
    );
    fs::write(&token, "open sesame\n").unwrap();
    fs::write(&wrong, "open barley\n").unwrap();
    let tls = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
    let (receiver, address) =
        Program::receive(&[&tls[..], &["--token-file", text(&token)]].concat());
    let send = |args: &[&str]| Program::send(address, args);
    let trust = ["--tls-ca", text(&certificate)];

    let mut sender = send(&[&trust[..], &["--token-file", text(&token)]].concat());
    sender.feed(b"secret\n");
    sender.succeed();
    receiver.output(b"secret\n");

    let line = send(&[&trust[..], &["--token-file", text(&wrong), "/dev/null"]].concat()).fail();
    let words = "the receiver refused the connection: the token is missing or wrong";
    assert!(line.ends_with(words), "{line}");
    let line = send(&[&trust[..], &["/dev/null"]].concat()).fail();
    assert!(line.contains("token"), "{line}");
    send(&["--token-file", text(&token), "/dev/null"]).fail();
    // The sender trusts only the authority that `--tls-ca` names, which did not sign the receiver's
    // certificate.
    let other = tempfile::tempdir().unwrap();
    let (other, _) = self::certificate(other.path(), "127.0.0.1");
    let line = send(&["--tls-ca", text(&other), "/dev/null"]).fail();
    assert!(line.contains("certificate"), "{line}");
}

#[test]
fn strangers_are_not_let_near_without_being_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = certificate(directory.path(), "127.0.0.1");
    let token = directory.path().join("token");
    fs::write(&token, "open sesame").unwrap();
    let tls = ["--tls-cert", text(&certificate), "--tls-key", text(&key)];
    let secret = ["--token-file", text(&token)];
    let start =
        |args: &[&str]| Program::start(&[&["receive", "--listen", "0.0.0.0:0"], args].concat());
    for args in [&[][..], &tls, &secret] {
        let (code, _, stderr) = start(args).wait();
        assert!(
            code == 2 && stderr.contains("--insecure"),
            "{args:?}: {code} {stderr}"
        );
    }
    start(&[&tls[..], &secret].concat()).line("listening on 0.0.0.0:");
    start(&["--insecure"]).line("listening on 0.0.0.0:");
}

#[test]
fn files_that_are_not_what_they_should_be() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().join("empty");
    fs::write(&empty, "\n").unwrap();
    let (certificate, _) = certificate(directory.path(), "127.0.0.1");
    let other = directory.path().join("other.pem");
    let key = rcgen::KeyPair::generate().unwrap();
    fs::write(&other, key.serialize_pem()).unwrap();
    let refused = |args: &[&str]| {
        let (code, _, stderr) = Program::start(args).wait();
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert_eq!(stderr.trim_end().lines().count(), 1, "{stderr}");
        stderr
    };
    let receive =
        |args: &[&str]| refused(&[&["receive", "--listen", "127.0.0.1:0"], args].concat());
    let line = receive(&["--token-file", text(&empty)]);
    assert!(line.contains("expected a secret"), "{line}");
    let line = receive(&["--token-file", "/no/such/file"]);
    assert!(line.contains("/no/such/file: No such file"), "{line}");
    let line = receive(&["--tls-cert", text(&empty), "--tls-key", text(&empty)]);
    assert!(line.contains("no certificate"), "{line}");
    let line = receive(&["--tls-cert", text(&certificate), "--tls-key", text(&other)]);
    let words = [text(&certificate), text(&other), "does not belong"];
    assert!(words.iter().all(|word| line.contains(word)), "{line}");
    let line = refused(&["send", "127.0.0.1:1", "--tls-ca", "/no/such/file"]);
    assert!(
        line.contains("--tls-ca /no/such/file: No such file"),
        "{line}"
    );
}
