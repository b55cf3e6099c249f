//! The two JSON documents of a greeting: INFO, which the server sends, and CONNECT, which the client answers
//! with.

use serde::{Deserialize, Deserializer, Serialize};

use super::outbox::Outbox;

/// What a server says of itself. Fields that are false or unknown are left out, as clients expect.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Info {
    /// Unique for each process.
    pub server_id: String,
    /// For people.
    pub server_name: String,
    /// x.y.z: clients gate features by it, so it is the level of the protocol that is spoken.
    pub version: String,
    /// 1: the client may ask for no echo and gets INFO at any time.
    pub proto: u8,
    /// Free text; clients of old insist on the field.
    pub go: String,
    /// Where it listens.
    pub host: String,
    /// Where it listens.
    pub port: u16,
    /// Whether messages may have headers.
    pub headers: bool,
    /// The largest message.
    pub max_payload: usize,
    /// Whether streams are served.
    pub jetstream: bool,
    /// The level of the streams' API: clients gate features by it, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_lvl: Option<u32>,
    /// The connection's number.
    pub client_id: u64,
    /// The client's address as seen here.
    pub client_ip: String,
    /// Credentials are needed.
    #[serde(skip_serializing_if = "is_false")]
    pub auth_required: bool,
    /// TLS follows.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_required: bool,
    /// The client needs a certificate.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_verify: bool,
    /// TLS may follow.
    #[serde(skip_serializing_if = "is_false")]
    pub tls_available: bool,
    /// The cluster it is a node of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Addresses to connect to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub connect_urls: Vec<String>,
    /// It is about to go away: connect elsewhere.
    #[serde(skip_serializing_if = "is_false")]
    pub ldm: bool,
    /// This is the answer to the CONNECT.
    #[serde(skip_serializing_if = "is_false")]
    pub connect_info: bool,
}

// Serde hands over a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Info {
    /// Appends the INFO line.
    pub fn write(&self, out: &mut Outbox) {
        // Strings, numbers and truth values always serialise.
        let json = serde_json::to_vec(self).unwrap_or_default();
        out.append(&[b"INFO ", &json, b"\r\n"]);
    }
}

/// What a client says of itself. Omitted or null: verbose, pedantic and echo count as true.
#[derive(Clone, Deserialize)]
#[serde(default)]
pub struct Connect {
    /// Answer `+OK` to what succeeds.
    #[serde(deserialize_with = "true_if_null")]
    pub verbose: bool,
    /// Check subjects of messages.
    #[serde(deserialize_with = "true_if_null")]
    pub pedantic: bool,
    /// Deliver a connection's own messages to it.
    #[serde(deserialize_with = "true_if_null")]
    pub echo: bool,
    /// It can read headers.
    #[serde(deserialize_with = "default_if_null")]
    pub headers: bool,
    /// It wants to be told when nobody took a request.
    #[serde(deserialize_with = "default_if_null")]
    pub no_responders: bool,
    /// 0 or 1.
    #[serde(deserialize_with = "default_if_null")]
    pub protocol: i64,
    /// For people.
    #[serde(deserialize_with = "default_if_null")]
    pub name: String,
    /// Its library's language.
    #[serde(deserialize_with = "default_if_null")]
    pub lang: String,
    /// Its library's version.
    #[serde(deserialize_with = "default_if_null")]
    pub version: String,
    /// Credentials.
    pub user: Option<String>,
    /// Credentials.
    pub pass: Option<String>,
    /// Credentials.
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
    /// Without what it knows of secrets: this may end in a log.
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
