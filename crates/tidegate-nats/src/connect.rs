//! The JSON documents that open a client connection: the server's INFO, and the CONNECT with which the client
//! answers.

use serde::{Deserialize, Deserializer, Serialize};

use super::outbox::Outbox;

/// The content of INFO: the facts that a server tells its clients about itself. The JSON leaves out optional
/// fields that are false or unknown, as clients expect.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Info {
    /// The server's id, by which clients tell servers apart: each server process has another id.
    pub server_id: String,
    /// The server's name, for logs and people.
    pub server_name: String,
    /// The protocol version that the server claims, as x.y.z. Clients enable features by this version.
    pub version: String,
    /// The level of the client protocol that the server speaks. At level 1 a client may turn echo off, and
    /// the server may send INFO at any time.
    pub proto: u8,
    /// Free text; nats-server names its version of Go here. Older clients refuse an INFO without this field.
    pub go: String,
    /// The host on which the server listens for clients.
    pub host: String,
    /// The port on which the server listens for clients.
    pub port: u16,
    /// True if the server accepts messages with headers, so that clients may send `HPUB`.
    pub headers: bool,
    /// The greatest number of bytes that the headers and the payload of one message may take together.
    pub max_payload: usize,
    /// True if the server serves streams, so that clients may use the JetStream API.
    #[serde(skip_serializing_if = "is_false")]
    pub jetstream: bool,
    /// The level of the JetStream API that the server offers; `None` if the server serves no streams. Clients
    /// also enable features by this level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_lvl: Option<u32>,
    /// The JetStream domain of the server, which clients put into API subjects; `None` without a domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The number of the client's connection, by which monitoring knows the client.
    pub client_id: u64,
    /// The client's IP address as the server sees it, so that the client knows how it is reached.
    pub client_ip: String,
    /// True if the client must present credentials in its CONNECT.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// True if the client must begin the TLS handshake after this INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// True if the client must present a certificate in the TLS handshake, by which the server verifies it.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
    /// True if the client may begin a TLS handshake after this INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// The name of the cluster to which the server belongs; `None` for a server without a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The client addresses of the cluster's servers, to which a client may reconnect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_urls: Vec<String>,
    /// True if the server is about to stop, so that the client should connect to another server.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// True if the server sends this INFO to complete the client's greeting, after CONNECT and the first
    /// PING; false in the INFO with which a connection starts.
    #[serde(skip_serializing_if = "is_false")]
    pub connect_info: bool,
    /// The name of the client's account; `None` unless the client belongs to the system account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_account: Option<String>,
    /// True if the client belongs to the system account, so that it may watch and control the servers.
    #[serde(skip_serializing_if = "is_false")]
    pub acc_is_sys: bool,
}

// The parameter is a reference, because serde calls this function with a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Info {
    /// Appends the INFO line to the client's outbox, for the next write to the client.
    pub fn write(&self, out: &mut Outbox) {
        // The serialisation never fails, because strings, numbers and booleans always have a JSON form. So
        // the default does not occur.
        let json = serde_json::to_vec(self).unwrap_or_default();
        out.append(&[b"INFO ", &json, b"\r\n"]);
    }
}

/// The content of CONNECT: the facts and options of a client. If the client leaves `verbose`, `pedantic` or
/// `echo` out or sends null for them, they count as true, as in nats-server.
#[derive(Clone, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// True if the server must answer `+OK` to each operation that succeeds.
    #[serde(deserialize_with = "true_if_null")]
    pub verbose: bool,
    /// True if the server must check that the subjects of the client's messages are well formed.
    #[serde(deserialize_with = "true_if_null")]
    pub pedantic: bool,
    /// True if the server delivers the client's own messages to the client's matching subscriptions.
    #[serde(deserialize_with = "true_if_null")]
    pub echo: bool,
    /// True if the client can read messages with headers. For other clients, the server removes the headers.
    #[serde(deserialize_with = "default_if_null")]
    pub headers: bool,
    /// True if the server must answer a request that reaches no subscription with a *no responders* status.
    #[serde(deserialize_with = "default_if_null")]
    pub no_responders: bool,
    /// The client's protocol level, 0 or 1. A client of level 1 accepts INFO at any time.
    #[serde(deserialize_with = "default_if_null")]
    pub protocol: i64,
    /// The client's name, for monitoring and logs.
    #[serde(deserialize_with = "default_if_null")]
    pub name: String,
    /// The programming language of the client's library, for monitoring.
    #[serde(deserialize_with = "default_if_null")]
    pub lang: String,
    /// The version of the client's library, for monitoring.
    #[serde(deserialize_with = "default_if_null")]
    pub version: String,
    /// The name of the user as which the client logs in; `None` if the client names no user.
    pub user: Option<String>,
    /// The password of the user as which the client logs in; `None` if the client sent none.
    pub pass: Option<String>,
    /// The token that the client presents in place of a user and a password; `None` if the client sent none.
    pub auth_token: Option<String>,
}

impl Connect {
    /// Reads the JSON of a CONNECT: an object, or `null` for all defaults, as nats-server reads it.
    ///
    /// # Errors
    /// The text is not JSON, or another kind of JSON, or a field has another type.
    pub fn parse(json: &[u8]) -> serde_json::Result<Self> {
        // Serde would also read an array of the fields' values, in the order of their declaration.
        if json.trim_ascii_start().first() == Some(&b'[') {
            return Err(serde::de::Error::custom(
                "expected a JSON object and got an array",
            ));
        }
        let given: Option<Self> = serde_json::from_slice(json)?;
        Ok(given.unwrap_or_default())
    }
}

fn true_if_null<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(true))
}

fn default_if_null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl std::fmt::Debug for Connect {
    /// Writes the client's facts without the password and the token, because the text may reach a log.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connect")
            .field("name", &self.name)
            .field("lang", &self.lang)
            .field("version", &self.version)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Default for Connect {
    fn default() -> Self {
        Self {
            verbose: true,
            pedantic: true,
            echo: true,
            headers: false,
            no_responders: false,
            protocol: 0,
            name: String::new(),
            lang: String::new(),
            version: String::new(),
            user: None,
            pass: None,
            auth_token: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_and_null_fields() {
        let c: Connect = serde_json::from_str(
            r#"{"user":null,"name":null,"echo":null,"unknown":[1],"lang":"go"}"#,
        )
        .unwrap();
        assert!(c.verbose && c.pedantic && c.echo && !c.headers && c.user.is_none());
        assert!(serde_json::from_str::<Connect>("{\"verbose\":3}").is_err());
        let mut secret = c;
        secret.pass = Some("hidden".into());
        assert!(!format!("{secret:?}").contains("hidden"));
    }

    #[test]
    fn other_kinds_of_json() {
        let null = Connect::parse(b" null").unwrap();
        assert!(null.verbose && null.pedantic && null.echo && null.user.is_none());
        assert!(!Connect::parse(b"{\"verbose\":false}").unwrap().verbose);
        for wrong in [
            "[]",
            " [false]",
            "5",
            "\"\"",
            "true",
            "",
            "nul",
            "null null",
            "{} {}",
        ] {
            assert!(Connect::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn false_is_left_out() {
        let mut out = Outbox::default();
        Info::default().write(&mut out);
        let line = String::from_utf8(out.to_vec()).unwrap();
        assert!(line.starts_with("INFO {") && line.ends_with("}\r\n"));
        assert!(!line.contains("jetstream") && !line.contains("tls") && !line.contains("ldm"));
    }
}
