//! Prepares TLS for clients and between nodes: turns the configured certificate files into configurations of
//! `rustls`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use super::client_certificates::Verifier;
use crate::config::ClusterTls;
use crate::config::TlsSettings;

/// The contents of the configured files as error messages describe them, each with the setting that names the
/// file, so that the operator finds it.
const CERTIFICATES: &str = "certificates (cert_file)";
const AUTHORITIES: &str = "authorities (ca_file)";

/// The reason why the server cannot offer TLS, as the operator reads it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file of certificates or of a key is missing or not PEM, so the server cannot read it.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// The content that the file should have, and the setting that names the file, as the error message
        /// states them for the operator.
        what: &'static str,
        /// The path of the file, for the operator.
        path: PathBuf,
        /// The error of the parser or of the operating system, which names the cause.
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate file of the operator has no certificate, so the server has none to show or to check by.
    #[error("cannot read {what} from {}: the file holds no certificate: expected PEM", path.display())]
    Empty {
        /// The content that the file should have, and the setting that names the file, as the error message
        /// states them for the operator.
        what: &'static str,
        /// The path of the file, for the operator.
        path: PathBuf,
    },
    /// The private key in one file does not belong to the certificate in the other file, so clients could not
    /// trust the server.
    #[error(
        "the private key in {} (key_file) does not belong to the certificate in {} (cert_file): give the key of this certificate",
        key.display(),
        certificate.display()
    )]
    KeyMismatch {
        /// The path of the certificate's file, for the operator.
        certificate: PathBuf,
        /// The path of the private key's file, for the operator.
        key: PathBuf,
    },
    /// `rustls` does not support the kind of the certificate or of the key, so the operator must give others.
    #[error(
        "the certificate in {} (cert_file) and the private key in {} (key_file) cannot be used: {source}",
        certificate.display(),
        key.display()
    )]
    Unusable {
        /// The path of the certificate's file, for the operator.
        certificate: PathBuf,
        /// The path of the private key's file, for the operator.
        key: PathBuf,
        /// The error of `rustls`, which names the cause.
        source: rustls::Error,
    },
    /// `rustls` offers none of the versions of TLS that the server needs, so it cannot offer TLS.
    #[error("the server can use no version of TLS: {0}")]
    Version(#[from] rustls::Error),
    /// The file of authorities does not let the server check the other side's certificates, for example
    /// because it has no usable certificate.
    #[error("the server cannot check the certificates of the other side: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Builds the TLS configuration with which the server accepts clients, from the configured files.
pub(super) fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(CERTIFICATES, &settings.cert_file)?;
    let key = key(&settings.key_file)?;
    let mut provider = rustls::crypto::ring::default_provider();
    if !settings.cipher_suites.is_empty() {
        let listed = |suite| settings.cipher_suites.contains(&suite);
        let suites = &mut provider.cipher_suites;
        suites.retain(|suite| suite.tls13().is_some() || listed(suite.suite()));
    }
    if !settings.curves.is_empty() {
        let groups = &mut provider.kx_groups;
        groups.retain(|group| settings.curves.contains(&group.name()));
    }
    let provider = Arc::new(provider);
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let builder = match settings.only_tls13 {
        true => builder.with_protocol_versions(&[&TLS13])?,
        false => builder.with_safe_default_protocol_versions()?,
    };
    let builder = match &settings.ca_file {
        Some(ca) if settings.verify => {
            let roots = Arc::new(roots(ca)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build()?;
            builder.with_client_cert_verifier(Arc::new(Verifier(verifier)))
        }
        _ => builder.with_no_client_auth(),
    };
    let config = builder.with_single_cert(certificates, key);
    let config = config.map_err(unusable(&settings.cert_file, &settings.key_file))?;
    Ok(Arc::new(config))
}

/// The TLS configurations for both ends of a connection between nodes, because each node dials and accepts.
#[derive(Clone, Debug)]
pub(crate) struct PeerTls {
    /// The TLS configuration with which this node accepts connections.
    pub(super) dialled: Arc<ServerConfig>,
    /// The TLS configuration with which this node dials other nodes.
    pub(super) dialer: Arc<ClientConfig>,
    /// The longest time that a TLS handshake between nodes may take. After it the node closes the connection,
    /// so that a silent peer holds no place.
    pub(super) timeout: Duration,
}

/// Builds the TLS configurations between nodes from the configured files. Allows only TLS 1.3, because both
/// ends are Tidegate nodes. Resumes no session, so that each handshake checks the certificates.
pub(super) fn peer_tls(settings: &ClusterTls) -> Result<PeerTls, TlsError> {
    let certificates = certificates(CERTIFICATES, &settings.cert_file)?;
    let key = key(&settings.key_file)?;
    let unusable = || unusable(&settings.cert_file, &settings.key_file);
    let roots = Arc::new(roots(&settings.ca_file)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()?;
    let mut dialled = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates.clone(), key.clone_key())
        .map_err(unusable())?;
    dialled.send_tls13_tickets = 0;
    let mut dialer = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, key)
        .map_err(unusable())?;
    dialer.resumption = Resumption::disabled();
    Ok(PeerTls {
        dialled: Arc::new(dialled),
        dialer: Arc::new(dialer),
        timeout: settings.timeout,
    })
}

/// Returns a function that turns an error of `rustls` about a certificate and a key into an error that names
/// their files, for the operator.
fn unusable(certificate: &Path, key: &Path) -> impl FnOnce(rustls::Error) -> TlsError {
    let (certificate, key) = (certificate.to_owned(), key.to_owned());
    |error| match error {
        rustls::Error::InconsistentKeys(_) => TlsError::KeyMismatch { certificate, key },
        source => TlsError::Unusable {
            certificate,
            key,
            source,
        },
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(AUTHORITIES, path)?);
    Ok(roots)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|source| TlsError::File {
        what: "a private key (key_file)",
        path: path.into(),
        source,
    })
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let error = |source| TlsError::File {
        what,
        path: path.into(),
        source,
    };
    let all = CertificateDer::pem_file_iter(path).map_err(error)?;
    let all = all.collect::<Result<Vec<_>, _>>().map_err(error)?;
    if all.is_empty() {
        let path = path.into();
        return Err(TlsError::Empty { what, path });
    }
    Ok(all)
}
