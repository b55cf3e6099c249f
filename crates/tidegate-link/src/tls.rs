//! The TLS settings of both sides, from PEM text or from rustls' own types. rustls does everything else.

use std::fmt;
use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, Error, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The TLS settings of a client: the certificates that the client trusts, and the name that the server must
/// prove.
#[derive(Clone)]
pub struct ClientTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ClientTls {
    /// Trusts only the certificates of `ca_pem`. The server must prove to be `name`, a DNS name or an IP
    /// address.
    ///
    /// # Errors
    /// Text without a certificate, or an invalid name.
    pub fn from_pem(ca_pem: &[u8], name: &str) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_pem)? {
            roots
                .add(certificate)
                .map_err(|e| TlsError::Rejected(e.to_string()))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Rejected(e.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Self::from_config(Arc::new(config), name)
    }

    /// Uses a rustls configuration that the caller made, for example with a client certificate or the
    /// system's roots.
    ///
    /// # Errors
    /// The name is neither a DNS name nor an IP address.
    pub fn from_config(config: Arc<ClientConfig>, name: &str) -> Result<Self, TlsError> {
        let name =
            ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        Ok(Self { config, name })
    }

    pub(crate) fn connector(&self) -> (TlsConnector, ServerName<'static>) {
        (TlsConnector::from(self.config.clone()), self.name.clone())
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The TLS settings of a server: the certificate chain and the key with which it proves its name.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// Uses a certificate chain, the server's own first, and its private key.
    ///
    /// # Errors
    /// The text has no certificate or no key, or the key does not belong to the certificate.
    pub fn from_pem(certificate_pem: &[u8], key_pem: &[u8]) -> Result<Self, TlsError> {
        let chain = certificates(certificate_pem)?;
        let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsError::NoKey)?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| TlsError::Rejected(e.to_string()))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| match e {
                Error::InconsistentKeys(_) => TlsError::KeyMismatch,
                e => TlsError::Rejected(e.to_string()),
            })?;
        Ok(Self(Arc::new(config)))
    }

    /// Uses a rustls configuration that the caller made, for example with client authentication or several
    /// certificates.
    #[must_use]
    pub fn from_config(config: Arc<ServerConfig>) -> Self {
        Self(config)
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.clone())
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").finish_non_exhaustive()
    }
}

/// The reasons why the TLS settings of a client or server are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The PEM text that the program gave has no certificate.
    #[error("no certificate found: expected PEM text with a CERTIFICATE section")]
    NoCertificate,
    /// The PEM text that the program gave has no private key.
    #[error("no private key found: expected PEM text with a PRIVATE KEY section")]
    NoKey,
    /// The server name that the program gave is neither a DNS name nor an IP address; holds the name.
    #[error("`{0}` is no server name: give a DNS name or an IP address")]
    Name(String),
    /// The private key belongs to another certificate.
    #[error("the private key does not belong to the certificate: give the key of this certificate")]
    KeyMismatch,
    /// rustls does not accept the certificate or key that the program gave; holds rustls' reason.
    #[error("the certificate or key was not accepted: {0}")]
    Rejected(String),
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(TlsError::NoCertificate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_no_pem_is_refused() {
        assert_eq!(
            ServerTls::from_pem(b"hello", b"world").unwrap_err(),
            TlsError::NoCertificate
        );
        assert_eq!(
            ClientTls::from_pem(b"", "localhost").unwrap_err(),
            TlsError::NoCertificate
        );
        let name = TlsError::Name("not a name".into());
        assert!(name.to_string().contains("DNS name"));
    }
}
