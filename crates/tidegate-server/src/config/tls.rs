//! Reads the settings of the block `tls`: TLS between clients and the server.

use std::path::PathBuf;
use std::time::Duration;

use rustls::{CipherSuite, NamedGroup};

use super::reading::Reading;
use super::tree::{Item, SyntaxError, Value};
use super::values::{boolean, count, entries, error, file, list, positive, text, wrong};
use super::{HandshakeFirst, TlsSettings};

pub(super) fn tls(
    reading: &mut Reading,
    key: &str,
    item: &Item,
) -> Result<TlsSettings, SyntaxError> {
    let mut tls = TlsSettings {
        cert_file: PathBuf::new(),
        key_file: PathBuf::new(),
        ca_file: None,
        verify: false,
        timeout: Duration::from_secs(2),
        handshake_first: HandshakeFirst::Never,
        connection_rate_limit: 0,
        only_tls13: false,
        maps_users: false,
        cipher_suites: Vec::new(),
        curves: Vec::new(),
    };
    reading.block("tls", entries(key, item)?, &mut |_, key, item| {
        match key {
            "cert_file" => tls.cert_file = file(key, item)?,
            "key_file" => tls.key_file = file(key, item)?,
            "ca_file" => tls.ca_file = Some(file(key, item)?),
            "verify" => tls.verify = boolean(key, item)?,
            "timeout" => tls.timeout = positive(key, item)?,
            "min_version" => match text(key, item)?.as_str() {
                "1.2" => tls.only_tls13 = false,
                "1.3" => tls.only_tls13 = true,
                _ => return Err(wrong("tls.min_version", item, "\"1.2\" or \"1.3\"")),
            },
            // Without users, the server gives the name in a certificate no meaning, as nats-server does.
            "verify_and_map" => {
                tls.maps_users = boolean(key, item)?;
                tls.verify |= tls.maps_users;
            }
            "cipher_suites" => tls.cipher_suites = cipher_suites(key, item)?,
            "curve_preferences" => tls.curves = curves(key, item)?,
            "connection_rate_limit" => {
                tls.connection_rate_limit = count(key, item, 0)? as u64;
            }
            "handshake_first" => tls.handshake_first = handshake_first(key, item)?,
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    if tls.cert_file.as_os_str().is_empty() || tls.key_file.as_os_str().is_empty() {
        return Err(error(item, "tls needs cert_file and key_file"));
    }
    if tls.verify && tls.ca_file.is_none() {
        return Err(error(
            item,
            "tls.verify needs ca_file: the certificates that sign clients'",
        ));
    }
    Ok(tls)
}

fn handshake_first(key: &str, item: &Item) -> Result<HandshakeFirst, SyntaxError> {
    Ok(match &item.value {
        Value::Bool(true) => HandshakeFirst::Always,
        Value::Bool(false) => HandshakeFirst::Never,
        Value::Text(t)
            if ["auto", "auto_fallback"]
                .iter()
                .any(|w| t.eq_ignore_ascii_case(w)) =>
        {
            HandshakeFirst::After(Duration::from_millis(50))
        }
        _ => HandshakeFirst::After(positive(key, item)?),
    })
}

/// The cipher suites of TLS 1.2 that this server has, by the names that nats-server gives them, so that a
/// configuration file can choose among them.
const SUITES: &[(&str, CipherSuite)] = &[
    (
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

/// The cipher suites of TLS 1.3. The server accepts all of them: the operator's list does not limit them, as
/// in nats-server.
const SUITES_OF_TLS13: &[&str] = &[
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
];

/// Reads the operator's list of cipher suites. Leaves out the old suites without forward secrecy or with CBC,
/// because this server does not have them.
fn cipher_suites(key: &str, item: &Item) -> Result<Vec<CipherSuite>, SyntaxError> {
    let mut suites = Vec::new();
    for item in list(key, item)? {
        let name = text(key, item)?;
        let base = name.strip_suffix("_SHA256").unwrap_or(&name);
        let known = SUITES.iter().find(|(of, _)| *of == name || *of == base);
        let old = name.starts_with("TLS_RSA_WITH_") || name.contains("_CBC_");
        match known {
            Some((_, suite)) => suites.push(*suite),
            None if old || SUITES_OF_TLS13.contains(&name.as_str()) => {}
            None => {
                let message =
                    format!("`tls.cipher_suites`: there is no cipher suite `{name}` here");
                return Err(error(item, message));
            }
        }
    }
    match suites.is_empty() {
        true => Err(wrong(
            "tls.cipher_suites",
            item,
            "a suite with ECDHE and GCM or CHACHA20",
        )),
        false => Ok(suites),
    }
}

/// Reads the operator's list of curves for the exchange of keys. Leaves out CurveP521, because this server
/// does not have it.
fn curves(key: &str, item: &Item) -> Result<Vec<NamedGroup>, SyntaxError> {
    let mut curves = Vec::new();
    for item in list(key, item)? {
        match text(key, item)?.as_str() {
            "X25519" => curves.push(NamedGroup::X25519),
            "CurveP256" => curves.push(NamedGroup::secp256r1),
            "CurveP384" => curves.push(NamedGroup::secp384r1),
            "CurveP521" | "X25519MLKEM768" => {}
            _ => {
                return Err(wrong(
                    key,
                    item,
                    "X25519, CurveP256, CurveP384 or CurveP521",
                ));
            }
        }
    }
    match curves.is_empty() {
        true => Err(wrong(
            key,
            item,
            "X25519, CurveP256 or CurveP384 among the curves",
        )),
        false => Ok(curves),
    }
}
