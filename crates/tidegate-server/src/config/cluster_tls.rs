//! Reads the TLS settings between nodes from a configuration file: `cluster { tls { ... } }`.
//!
//! The settings have nats-server's names. As in nats-server, both nodes of a connection show a certificate
//! and check the other node's certificate, and no setting turns that off.

use std::path::PathBuf;
use std::time::Duration;

use super::reading::Reading;
use super::tree::{Item, SyntaxError};
use super::values::{boolean, entries, error, file, positive, wrong};

/// The default of [`ClusterTls::timeout`], after which a node ends a TLS handshake with another node.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(2);

/// The settings of TLS between nodes: each node shows a certificate and checks the other node's, so that only
/// nodes of the cluster connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterTls {
    /// The PEM file of this node's certificate and its chain. With the certificate the node proves to the
    /// nodes that it dials, and to the nodes that dial it, that it is a node of the cluster.
    pub cert_file: PathBuf,
    /// The PEM file of the private key that belongs to this node's certificate, with which the node proves
    /// that the certificate is its own.
    pub key_file: PathBuf,
    /// The PEM file of the authorities that sign the nodes' certificates. A node accepts any other node with
    /// a certificate that they signed, and no node without one.
    pub ca_file: PathBuf,
    /// The longest time that a TLS handshake between nodes may take. After it the node closes the connection,
    /// so that a silent peer holds no place.
    pub timeout: Duration,
}

/// Reads the `tls` block in `cluster` of a configuration file, and checks that the block names all files.
pub(super) fn cluster_tls(reading: &mut Reading, item: &Item) -> Result<ClusterTls, SyntaxError> {
    let mut tls = ClusterTls {
        cert_file: PathBuf::new(),
        key_file: PathBuf::new(),
        ca_file: PathBuf::new(),
        timeout: HANDSHAKE_MAX,
    };
    reading.block(
        "cluster.tls",
        entries("cluster.tls", item)?,
        &mut |_, key, item| {
            match key {
                "cert_file" => tls.cert_file = file(key, item)?,
                "key_file" => tls.key_file = file(key, item)?,
                "ca_file" => tls.ca_file = file(key, item)?,
                "timeout" => tls.timeout = positive(key, item)?,
                "verify" => {
                    if !boolean(key, item)? {
                        let expected = "true: between nodes both sides are always verified";
                        return Err(wrong("cluster.tls.verify", item, expected));
                    }
                }
                _ => unreachable!("the table names only settings with code: {key}"),
            }
            Ok(())
        },
    );
    let files = [&tls.cert_file, &tls.key_file, &tls.ca_file];
    if files.iter().any(|file| file.as_os_str().is_empty()) {
        return Err(error(
            item,
            "cluster.tls needs cert_file, key_file and ca_file: a node shows its certificate and checks the others'",
        ));
    }
    Ok(tls)
}

#[cfg(test)]
mod tests {
    use super::super::apply::apply;
    use super::super::{ExposureError, Settings, tree};
    use super::*;

    fn read(cluster: &str) -> Result<Settings, SyntaxError> {
        let mut settings = Settings::default();
        let system = tree::System {
            directory: PathBuf::new(),
        };
        let map = tree::read_nats(&format!("cluster {{ {cluster} }}"), &system)?;
        apply(&map, &mut settings).map(|()| settings)
    }

    const FILES: &str = r#"cert_file: "/c/n1.pem", key_file: "/c/n1.key", ca_file: "/c/ca.pem""#;

    #[test]
    fn the_block() {
        let tls = |text: &str| {
            let all = read(&format!("tls {{ {FILES} {text} }}")).unwrap();
            all.cluster.unwrap().tls.unwrap()
        };
        let plain = tls("");
        assert_eq!(plain, tls(", verify: true"));
        assert_eq!(plain.ca_file, PathBuf::from("/c/ca.pem"));
        assert_eq!(plain.timeout, Duration::from_secs(2));
        assert_eq!(tls(", timeout: 0.5").timeout, Duration::from_millis(500));
        let mut toml = Settings::default();
        let text = "[cluster.tls]\ncert_file = \"/c/n1.pem\"\nkey_file = \"/c/n1.key\"\nca_file = \"/c/ca.pem\"";
        apply(&tree::read_toml(text).unwrap(), &mut toml).unwrap();
        assert_eq!(toml.cluster.unwrap().tls, Some(plain));
    }

    #[test]
    fn missing_and_unknown_settings_are_named() {
        for (block, expected) in [
            (r#"cert_file: "c", key_file: "k""#, "ca_file"),
            (&format!("{FILES}, verify: false"), "always verified"),
            (
                &format!("{FILES}, pinned_certs: [ab]"),
                "cluster.tls.pinned_certs",
            ),
            (&format!("{FILES}, timeout: 0"), "above 0"),
        ] {
            let e = read(&format!("tls {{ {block} }}")).unwrap_err();
            assert!(e.message.contains(expected), "{block}: {}", e.message);
        }
    }

    #[test]
    fn beyond_this_machine_only_with_tls() {
        let mut settings = read("listen: \"10.0.0.1:6222\"").unwrap();
        let refused = settings.check_exposure().unwrap_err();
        assert_eq!(refused, ExposureError::Nodes("10.0.0.1".into()));
        assert!(refused.to_string().contains("cluster.tls"), "{refused}");
        settings.insecure = true;
        settings.check_exposure().unwrap();
        let secured = read(&format!("listen: \"10.0.0.1:6222\", tls {{ {FILES} }}")).unwrap();
        secured.check_exposure().unwrap();
    }

    #[test]
    fn a_route_is_to_what_a_certificate_can_name() {
        let routes = |host: &str| {
            let text =
                format!("name: tide, routes: [\"nats-route://{host}:1\"], tls {{ {FILES} }}");
            let cluster = read(&text).unwrap().cluster.unwrap();
            cluster.check(Some("n1"))
        };
        for good in ["n2.example.com", "10.0.0.2", "[::1]", "localhost"] {
            routes(good).unwrap();
        }
        let e = routes("n2!x").unwrap_err().to_string();
        assert!(e.contains("n2!x") && e.contains("certificate"), "{e}");
    }
}
