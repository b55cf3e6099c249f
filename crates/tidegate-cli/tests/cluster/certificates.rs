//! Creates new certificates for nodes and servers in each run of the tests, because certificates expire.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use tempfile::TempDir;

/// A certificate authority, and the directory with the files of its certificates.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

impl Authority {
    /// Creates an authority with this name, which signs the certificates of a test.
    pub(crate) fn new(name: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Creates a certificate of `node` for these names and addresses. Returns the flags with which the node
    /// uses the certificate.
    pub(crate) fn certify(&self, node: &str, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.sign(node, CertificateParams::new(names).unwrap())
    }

    /// Returns the path of the authority's own certificate as text.
    #[allow(dead_code)] // Only the tests of single servers use it.
    pub(crate) fn ca(&self) -> String {
        self.path("ca.pem").to_str().unwrap().to_owned()
    }

    /// Creates a certificate for these names and addresses. Returns the paths of the certificate and of its
    /// key as text.
    #[allow(dead_code)] // Only the tests of single servers use it.
    pub(crate) fn pair(&self, owner: &str, names: &[&str]) -> (String, String) {
        self.certify(owner, names);
        let (cert_file, key_file) = self.files(owner);
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        (text(cert_file), text(key_file))
    }

    /// Creates an expired certificate of `node`, which other nodes must refuse. Returns the node's flags.
    pub(crate) fn certify_long_ago(&self, node: &str, names: &[&str]) -> Vec<String> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(node, params)
    }

    fn sign(&self, node: &str, params: CertificateParams) -> Vec<String> {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (cert_file, key_file) = self.files(node);
        std::fs::write(&cert_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let flags = [
            ("--cluster-tlscert", cert_file),
            ("--cluster-tlskey", key_file),
            ("--cluster-tlscacert", self.path("ca.pem")),
        ];
        let words = |(flag, path): (&str, PathBuf)| [flag.into(), path.to_str().unwrap().into()];
        flags.into_iter().flat_map(words).collect()
    }

    /// Returns the paths of a node's certificate and key.
    pub(crate) fn files(&self, node: &str) -> (PathBuf, PathBuf) {
        let file = |kind: &str| self.path(&format!("{node}.{kind}"));
        (file("pem"), file("key"))
    }

    /// Returns the path of the authority's own certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.path("ca.pem")
    }
}
