//! Reads the bodies of requests as JSON, as nats-server does in its strict mode: an unknown field is an
//! error, `null` counts as an absent field, and text after the document is an error, too. So clients learn of
//! misspelt fields.
//!
//! This module owns the reading, and the error texts by which a client finds its mistake; the types of bodies
//! own their fields.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::schema::error::ApiError;

/// Reads the body of a request into a JSON object; an empty body becomes an empty object, because many
/// requests need no body.
///
/// # Errors
///
/// Returns [`ApiError::invalid_json`] if the body is not a JSON object, as the answer to the client.
pub(super) fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(mut fields)) => {
            forget_nulls(&mut fields);
            Ok(fields)
        }
        Ok(_) => Err(ApiError::invalid_json("expected an object")),
        Err(e) => Err(ApiError::invalid_json(e)),
    }
}

/// Reads the fields of a JSON object into the type of a request's body, which knows the fields that a client
/// may send.
///
/// # Errors
///
/// Returns [`ApiError::invalid_json`] for an unknown field or a value of the wrong type. The text names the
/// field if serde names it, so that the client finds its mistake.
pub(super) fn fields<T: DeserializeOwned>(fields: Map<String, Value>) -> Result<T, ApiError> {
    serde_json::from_value(Value::Object(fields)).map_err(|e| invalid(&e))
}

/// Reads the body of a request into a type in which all fields are optional, because a client may leave any
/// out.
///
/// # Errors
///
/// Returns the errors of [`object`] and [`fields`], with which the server answers the client.
pub(super) fn body<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    fields(object(body)?)
}

/// Reads the body of a request that needs none: a body that is not JSON counts as absent, as in nats-server.
///
/// # Errors
///
/// Returns the errors of [`body`], if the body begins like an object or an array, because then the client
/// meant JSON.
pub(super) fn optional<T: DeserializeOwned>(text: &[u8]) -> Result<T, ApiError> {
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => body(text),
        _ => fields(Map::new()),
    }
}

/// Reads the fields of a JSON object, as [`fields`] does, into a type that has more fields than this kind of
/// request may have. Accepts only the `known` fields, as nats-server does.
///
/// # Errors
///
/// Returns the errors of [`fields`], and the one for an unknown field.
pub(super) fn fields_of<T: DeserializeOwned>(
    asked: Map<String, Value>,
    known: &[&str],
) -> Result<T, ApiError> {
    match asked.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unknown(name)),
        None => fields(asked),
    }
}

/// Reads the body of a request that needs none, as [`optional`] does, into a type that has more fields than
/// this kind of request may have. Accepts only the `known` fields, as nats-server does.
///
/// # Errors
///
/// Returns the errors of [`optional`], and the one for an unknown field.
pub(super) fn optional_of<T: DeserializeOwned>(text: &[u8], known: &[&str]) -> Result<T, ApiError> {
    match text.trim_ascii_start().first() {
        Some(b'{' | b'[') => fields_of(object(text)?, known),
        _ => fields(Map::new()),
    }
}

/// Returns whether the body of a request asks for nothing: whether it is absent or an empty object. Some
/// requests must have a body, and others must not.
#[must_use]
pub(super) fn is_empty(body: &[u8]) -> bool {
    body.is_empty()
        || object(body).is_ok_and(|fields| fields.is_empty() && !body.trim_ascii().is_empty())
}

/// Appends `text` to `out` as a JSON string. Bytes that are not UTF-8 become replacement characters, because
/// JSON must be UTF-8.
pub(crate) fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' => out.extend_from_slice(b"\\\""),
            '\\' => out.extend_from_slice(b"\\\\"),
            c if u32::from(c) < 0x20 => {
                out.extend_from_slice(format!("\\u{:04x}", u32::from(c)).as_bytes());
            }
            c => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out.push(b'"');
}

fn forget_nulls(fields: &mut Map<String, Value>) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        if let Value::Object(inner) = value {
            forget_nulls(inner);
        }
    }
}

/// Converts an error of serde into an error of the API. The error for an unknown field gets nats-server's
/// text, because people search for that text; other errors keep serde's text.
fn invalid(error: &serde_json::Error) -> ApiError {
    let text = error.to_string();
    let field = text
        .strip_prefix("unknown field `")
        .and_then(|rest| rest.split_once('`'));
    match field {
        Some((name, _)) => unknown(name),
        None => ApiError::invalid_json(text),
    }
}

fn unknown(field: &str) -> ApiError {
    ApiError::invalid_json(format_args!("json: unknown field \"{field}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::config::StreamConfig;

    fn config(text: &str) -> Result<StreamConfig, String> {
        body(text.as_bytes()).map_err(|e| e.description.into_owned())
    }

    #[test]
    fn strict() {
        assert_eq!(config("").unwrap(), StreamConfig::default());
        assert_eq!(
            config(r#"{"metadata":null,"consumer_limits":{"max_ack_pending":null}}"#).unwrap(),
            StreamConfig::default()
        );
        let unknown = r#"invalid JSON: json: unknown field "x""#;
        assert_eq!(config(r#"{"x":1}"#).unwrap_err(), unknown);
        assert_eq!(
            config(r#"{"consumer_limits":{"x":1}}"#).unwrap_err(),
            unknown
        );
        for bad in [
            "[]",
            "1",
            "{",
            "{\"name\":",
            r#"{"name":1}"#,
            r#"{"name":"a"} x"#,
            r#"{"max_msgs":1.5}"#,
            r#"{"max_msgs":99999999999999999999}"#,
            r#"{"retention":"zzz"}"#,
            "\u{1}",
        ] {
            let error = config(bad).unwrap_err();
            assert!(error.starts_with("invalid JSON: "), "{bad}: {error}");
        }
    }

    #[test]
    fn deep_documents_are_refused() {
        let deep = format!(
            "{{\"name\":{}{}}}",
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(config(&deep).is_err());
    }

    #[test]
    fn nothing() {
        assert!(is_empty(b"") && is_empty(b"{}") && is_empty(b" { } "));
        assert!(!is_empty(b" ") && !is_empty(b"[]") && !is_empty(b"x") && !is_empty(b"{\"a\":1}"));
    }

    #[test]
    fn strings() {
        let mut out = Vec::new();
        write_string(&mut out, "a\"\\\n\u{1}é".as_bytes());
        assert_eq!(
            serde_json::from_slice::<String>(&out).unwrap(),
            "a\"\\\n\u{1}é"
        );
        out.clear();
        write_string(&mut out, b"a\xffb");
        assert_eq!(
            serde_json::from_slice::<String>(&out).unwrap(),
            "a\u{fffd}b"
        );
    }
}
