//! Reads the files of certificates, keys and tokens that flags name. If a command cannot use a file, it
//! reports a wrong argument, and the error names the flag and the file.

use std::path::Path;

use tidegate_link::{ClientTls, ServerTls, TlsError};

use crate::Usage;

/// Reads the whole file that the flag names, and reports an error as a wrong argument.
pub(crate) fn read(flag: &str, path: &Path) -> Result<Vec<u8>, Usage> {
    std::fs::read(path).map_err(|e| Usage::new(format_args!("{}: {e}", named(flag, path))))
}

/// Reads the certificates of the authorities that the client trusts. The server's certificate must be for
/// `host`.
pub(crate) fn authorities(flag: &str, path: &Path, host: &str) -> Result<ClientTls, Usage> {
    ClientTls::from_pem(&read(flag, path)?, host)
        .map_err(|e| Usage::new(format_args!("{}: {e}", named(flag, path))))
}

/// Reads a certificate and its private key, for TLS, from the files of `--tls-cert` and `--tls-key`.
pub(crate) fn certificate(certificate: &Path, key: &Path) -> Result<ServerTls, Usage> {
    let (in_cert, in_key) = (named("--tls-cert", certificate), named("--tls-key", key));
    let pem = read("--tls-cert", certificate)?;
    let pair = ServerTls::from_pem(&pem, &read("--tls-key", key)?);
    pair.map_err(|e| match e {
        TlsError::NoCertificate => Usage::new(format_args!("{in_cert}: {e}")),
        TlsError::NoKey => Usage::new(format_args!("{in_key}: {e}")),
        e => Usage::new(format_args!("{in_cert}, {in_key}: {e}")),
    })
}

/// Returns a file's name for an error message, with the flag by which the user gave it.
fn named(flag: &str, path: &Path) -> String {
    format!("{flag} {}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_flag_and_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        let (cert, empty) = (file("cert.pem", &made.cert.pem()), file("empty.pem", "\n"));
        let key = file("key.pem", &made.signing_key.serialize_pem());
        let other = file("other.pem", &other.serialize_pem());
        certificate(&cert, &key).unwrap();
        authorities("--tls-ca", &cert, "localhost").unwrap();
        for (cert, key, words) in [
            (&cert, &other, ["cert.pem, --tls-key ", "does not belong"]),
            (&empty, &key, ["--tls-cert ", "empty.pem: no certificate"]),
            (&cert, &empty, ["--tls-key ", "empty.pem: no private key"]),
        ] {
            let said = certificate(cert, key).unwrap_err().to_string();
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
        }
        let said = authorities("--tls-ca", Path::new("/nope"), "h").unwrap_err();
        assert!(said.to_string().starts_with("--tls-ca /nope: No such file"));
    }
}
