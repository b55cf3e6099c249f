//! The TLS of the client port: certificates from files into what `rustls` wants.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::config::TlsSettings;

/// Why TLS cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file that is missing or not PEM.
    #[error("cannot read {what} from {}: {source}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// A certificate file without a certificate.
    #[error("{} holds no certificate: expected PEM", .0.display())]
    Empty(PathBuf),
    /// Certificates and key that do not fit, or are of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
    /// Clients' certificates cannot be checked.
    #[error("clients' certificates cannot be checked: {0}")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// Reads the files and puts them together.
pub(super) fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let certificates = certificates(&settings.cert_file)?;
    let key =
        PrivateKeyDer::from_pem_file(&settings.key_file).map_err(|source| TlsError::File {
            what: "a private key",
            path: settings.key_file.clone(),
            source,
        })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let builder = match &settings.ca_file {
        Some(ca) if settings.verify => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(self::certificates(ca)?);
            let verifier =
                WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
            builder.with_client_cert_verifier(verifier)
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(Arc::new(builder.with_single_cert(certificates, key)?))
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
