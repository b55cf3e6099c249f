//! The TLS settings of a client, which rustls carries out with ring's cryptography.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::ConfigError;

/// The TLS settings of a client: the certificates that it trusts, and its own certificate.
#[derive(Clone, Default)]
pub struct Tls {
    roots: Option<Pem>,
    identity: Option<(Pem, Pem)>,
}

#[derive(Clone)]
enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field(
                "roots",
                &if self.roots.is_some() {
                    "given"
                } else {
                    "system"
                },
            )
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl Tls {
    /// Returns settings with which a client trusts the certificate authorities of the system.
    #[must_use]
    pub fn system() -> Self {
        Self::default()
    }

    /// Trusts only the certificates in the PEM file at `path`.
    #[must_use]
    pub fn roots_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.roots = Some(Pem::File(path.into()));
        self
    }

    /// Trusts only the certificates in the text `pem`.
    #[must_use]
    pub fn roots_pem(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots = Some(Pem::Text(pem.into()));
        self
    }

    /// Presents the certificate in the PEM file `certificate`, which belongs to the key in the PEM file
    /// `key`, to servers that ask clients for a certificate.
    #[must_use]
    pub fn identity_files(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.identity = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// Presents the certificate in the PEM text `certificate`, which belongs to the key in the PEM text
    /// `key`, to servers that ask clients for a certificate.
    #[must_use]
    pub fn identity_pem(
        mut self,
        certificate: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.identity = Some((Pem::Text(certificate.into()), Pem::Text(key.into())));
        self
    }

    pub(crate) fn client_config(&self) -> Result<Arc<ClientConfig>, ConfigError> {
        let bad = |e: &dyn fmt::Display| ConfigError::Certificate(e.to_string());
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(pem) => {
                for certificate in pem.certificates()? {
                    roots.add(certificate).map_err(|e| bad(&e))?;
                }
            }
            None => {
                // Some of the system's certificates may be unreadable: the client ignores them and needs a
                // single readable certificate.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(bad(&"the client found no certificate to trust"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_root_certificates(roots);
        let config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => builder
                .with_client_auth_cert(certificate.certificates()?, key.key()?)
                .map_err(|e| bad(&e))?,
        };
        Ok(Arc::new(config))
    }
}

impl Pem {
    fn text(&self) -> Result<Vec<u8>, ConfigError> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => std::fs::read(path)
                .map_err(|e| ConfigError::Certificate(format!("{}: {e}", path.display()))),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
        CertificateDer::pem_slice_iter(&self.text()?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| ConfigError::Certificate(e.to_string()))
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, ConfigError> {
        PrivateKeyDer::from_pem_slice(&self.text()?)
            .map_err(|e| ConfigError::Certificate(e.to_string()))
    }
}
