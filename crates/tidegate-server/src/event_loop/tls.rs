//! TLS for clients and between nodes: turns the configured certificate files into configurations of `rustls`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::config::ClusterTls;
use crate::config::TlsSettings;

/// The reason why the server cannot offer TLS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file of certificates or of a key is missing or not PEM.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// The content that the file should have, and the setting that names the file, as the error message
        /// states them.
        what: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate file has no certificate.
    #[error("{} holds no certificate: expected PEM", .0.display())]
    Empty(PathBuf),
    /// The certificates and the key do not match, or are of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// The server cannot check the other side's certificates with these authorities.
    #[error("the other side's certificates cannot be checked: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Builds the TLS configuration for clients from the configured files.
pub(super) fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(&settings.cert_file)?;
    let key = key(&settings.key_file)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &settings.ca_file {
        Some(ca) if settings.verify => {
            let roots = Arc::new(roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(builder.with_single_cert(certificates, key)?))
}

/// The TLS configurations for both ends of a connection between nodes.
#[derive(Clone, Debug)]
pub(crate) struct PeerTls {
    /// The TLS configuration of the node that accepts the connection.
    pub(super) dialled: Arc<ServerConfig>,
    /// The TLS configuration of the node that dials.
    pub(super) dialer: Arc<ClientConfig>,
    /// The longest time that a TLS handshake between nodes may take.
    pub(super) timeout: Duration,
}

/// Builds the TLS configurations between nodes from the configured files. Allows only TLS 1.3, because both
/// ends are Tidegate nodes. Resumes no session, so that each handshake checks the certificates.
pub(super) fn peer_tls(settings: &ClusterTls) -> Result<PeerTls, TlsError> {
    let certificates = certificates(&settings.cert_file)?;
    let key = key(&settings.key_file)?;
    let roots = Arc::new(roots(&settings.ca_file)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()?;
    let mut dialled = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates.clone(), key.clone_key())?;
    dialled.send_tls13_tickets = 0;
    let mut dialer = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, key)?;
    dialer.resumption = Resumption::disabled();
    Ok(PeerTls {
        dialled: Arc::new(dialled),
        dialer: Arc::new(dialer),
        timeout: settings.timeout,
    })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(path)?);
    Ok(roots)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        what: "a private key",
        path: path.into(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let error = |source| TlsError::File {
        what: "certificates",
        path: path.into(),
        source,
    };
    let all = CertificateDer::pem_file_iter(path).map_err(error)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(error)?;
    if all.is_empty() {
        return Err(TlsError::Empty(path.into()));
    }
    Ok(all)
}
