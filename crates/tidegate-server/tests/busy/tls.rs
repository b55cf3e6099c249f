//! Provides the certificate of the simulated servers, and the TLS of their clients. The key is an Ed25519
//! key, because its signatures all have one length: so each run of a seed sends an equal number of bytes.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair, PKCS_ED25519};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tidegate_server::config::{HandshakeFirst, TlsSettings};

/// The files of the certificate and the clients' configuration, see the [module](self).
pub(crate) struct Tls {
    files: tempfile::TempDir,
    trusting: Arc<ClientConfig>,
}

impl Tls {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        // The serial number is fixed, because a drawn number could be a byte shorter.
        params.serial_number = Some(1.into());
        let cert = params.self_signed(&key).unwrap();
        let files = tempfile::tempdir().unwrap();
        std::fs::write(files.path().join("cert.pem"), cert.pem()).unwrap();
        std::fs::write(files.path().join("key.pem"), key.serialize_pem()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let trusting = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self {
            files,
            trusting: Arc::new(trusting),
        }
    }

    /// Makes the TLS settings for a simulated server.
    pub(crate) fn settings(&self) -> TlsSettings {
        TlsSettings {
            cert_file: self.files.path().join("cert.pem"),
            key_file: self.files.path().join("key.pem"),
            ca_file: None,
            verify: false,
            timeout: Duration::from_secs(10),
            handshake_first: HandshakeFirst::Never,
            connection_rate_limit: 0,
            only_tls13: false,
            maps_users: false,
            cipher_suites: Vec::new(),
            curves: Vec::new(),
        }
    }

    /// Creates the TLS session of a client that trusts the servers' certificate.
    pub(crate) fn client(&self) -> Box<ClientConnection> {
        let name = ServerName::try_from("localhost").unwrap();
        Box::new(ClientConnection::new(Arc::clone(&self.trusting), name).unwrap())
    }
}
