//! Tests that `serve -t` accepts nine of ten configurations of nats-server, as users have them.
//!
//! The files repeat the settings of public configurations of servers without operators, leaf nodes, gateways,
//! MQTT, WebSocket or accounts of tenants, with other names and hosts. The first line of a file says if the
//! server must accept the file, or names the setting for which it must refuse the file.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{CertificateParams, KeyPair};

/// The environment variables that the files name, with values for the test.
const VARIABLES: [(&str, &str); 9] = [
    ("FIRST_ROUTE", "\"nats-route://n2.bus:6222\""),
    ("CLUSTER_ADVERTISE", "n1.bus:6222"),
    ("NODE_NAME", "n1"),
    ("FILE_STORE", "10GB"),
    ("TOKEN", "secret"),
    ("STORE_KEY", "key"),
    ("APP_USER", "app"),
    ("APP_PASSWORD", "secret"),
    ("DEBUG", "false"),
];

/// Copies the configurations to `to`, with this directory in place of `@DIR@`, beside the certificates that
/// they name.
fn supply(to: &Path) -> Vec<String> {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configurations/files");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(to.join(&name), text.replace("@DIR@", to.to_str().unwrap())).unwrap();
        if name.ends_with(".conf") {
            names.push(name);
        }
    }
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".into()]).unwrap();
    let certificate = certificate.self_signed(&key).unwrap().pem();
    std::fs::write(to.join("server.pem"), &certificate).unwrap();
    std::fs::write(to.join("ca.pem"), &certificate).unwrap();
    std::fs::write(to.join("server-key.pem"), key.serialize_pem()).unwrap();
    names.sort();
    names
}

#[test]
fn nine_of_ten_configurations_of_others_start() {
    let directory = tempfile::tempdir().unwrap();
    let names = supply(directory.path());
    let mut started = 0;
    for name in &names {
        let path = directory.path().join(name);
        let first = std::fs::read_to_string(&path).unwrap();
        let expected = first
            .lines()
            .next()
            .unwrap()
            .trim_start_matches("# ")
            .to_owned();
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--insecure", "-t", "-c"])
            .arg(&path)
            .envs(VARIABLES)
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        match expected.strip_prefix("refused: ") {
            None => {
                assert_eq!(expected, "starts", "{name}");
                assert!(output.status.success(), "{name}: {text}");
                assert!(
                    text.ends_with("the configuration is good\n"),
                    "{name}: {text}"
                );
                started += 1;
            }
            Some(reason) => {
                assert_eq!(output.status.code(), Some(2), "{name}: {text}");
                assert!(text.contains(reason), "{name}: {text}");
                println!("refused: {name}: {reason}");
            }
        }
    }
    println!("{started} of {} configurations start", names.len());
    assert!(names.len() >= 30 && started * 10 >= names.len() * 9);
}
