//! The two JSON documents of a greeting: the server's INFO, and the CONNECT with which the client answers.

use serde::{Deserialize, Deserializer, Serialize};

use super::outbox::Outbox;

/// The facts that a server states about itself. It leaves out fields that are false or unknown, as clients
/// expect.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Info {
    /// The server's id, unique for each process.
    pub server_id: String,
    /// The server's name, for people.
    pub server_name: String,
    /// The version of the protocol as x.y.z. Clients gate features by it.
    pub version: String,
    /// The protocol level. At level 1 a client may ask for no echo, and the server may send INFO at any time.
    pub proto: u8,
    /// Free text, where nats-server names its version of Go. The server sends the field because older clients
    /// insist on it.
    pub go: String,
    /// The host that the server listens on.
    pub host: String,
    /// The port that the server listens on.
    pub port: u16,
    /// True if messages may have headers.
    pub headers: bool,
    /// The most bytes of a message.
    pub max_payload: usize,
    /// True if the server serves streams.
    pub jetstream: bool,
    /// The level of the streams' API. Clients gate features by this level, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_lvl: Option<u32>,
    /// The connection's number.
    pub client_id: u64,
    /// The client's address as the server sees it.
    pub client_ip: String,
    /// True if the client must present credentials.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// True if the client must begin the TLS handshake after this INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// True if the client must present a certificate in the TLS handshake.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
    /// True if the client may begin a TLS handshake after this INFO.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// The name of the server's cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The addresses of the cluster's servers to which a client may connect.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_urls: Vec<String>,
    /// True if the server is about to stop, so that the client should connect to another server.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// True if this INFO answers the client's CONNECT.
    #[serde(skip_serializing_if = "is_false")]
    pub connect_info: bool,
}

// The parameter is a reference, because serde passes one to this function.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Info {
    /// Appends the INFO line.
    pub fn write(&self, out: &mut Outbox) {
        // The serialisation never fails: strings, numbers and truth values always have a JSON form.
        let json = serde_json::to_vec(self).unwrap_or_default();
        out.append(&[b"INFO ", &json, b"\r\n"]);
    }
}

/// The facts and options of a client. Verbose, pedantic and echo count as true if the client leaves them out
/// or sends null.
#[derive(Clone, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// The server answers `+OK` to each operation that succeeds.
    #[serde(deserialize_with = "true_if_null")]
    pub verbose: bool,
    /// The server checks the subjects of messages.
    #[serde(deserialize_with = "true_if_null")]
    pub pedantic: bool,
    /// The server delivers a connection's own messages to it.
    #[serde(deserialize_with = "true_if_null")]
    pub echo: bool,
    /// The client can read headers.
    #[serde(deserialize_with = "default_if_null")]
    pub headers: bool,
    /// The client wants a *no responders* status for a request that reaches no subscription.
    #[serde(deserialize_with = "default_if_null")]
    pub no_responders: bool,
    /// The client's protocol level, 0 or 1.
    #[serde(deserialize_with = "default_if_null")]
    pub protocol: i64,
    /// The client's name, for people.
    #[serde(deserialize_with = "default_if_null")]
    pub name: String,
    /// The language of the client's library.
    #[serde(deserialize_with = "default_if_null")]
    pub lang: String,
    /// The version of the client's library.
    #[serde(deserialize_with = "default_if_null")]
    pub version: String,
    /// The user's name.
    pub user: Option<String>,
    /// The user's password.
    pub pass: Option<String>,
    /// The token.
    pub auth_token: Option<String>,
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
    /// Leaves out the credentials, since this text may reach a log.
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
    fn false_is_left_out() {
        let mut out = Outbox::default();
        Info::default().write(&mut out);
        let line = String::from_utf8(out.to_vec()).unwrap();
        assert!(line.starts_with("INFO {") && line.ends_with("}\r\n"));
        assert!(
            line.contains("\"jetstream\":false") && !line.contains("tls") && !line.contains("ldm")
        );
    }
}
