//! Makes the identities of senders and receivers: the id of a session, the secret token, and the host name
//! that the receiver's certificate must have.

use std::path::Path;

use anyhow::Context as _;
use ring::digest::{Context, SHA256};
use tidegate_link::SessionId;

use crate::{Usage, tls_files};

/// The first two bytes of the id of a session with a name, which a sender can continue. A receiver with too
/// many sessions may forget only a session with a random id.
const NAMED: [u8; 2] = *b"aN";

/// Returns the id of the session with this name. A name gives the same id on every machine, so that any
/// sender can continue the session.
pub(super) fn named(name: &str) -> SessionId {
    let mut digest = Context::new(&SHA256);
    digest.update(b"tidegate session ");
    digest.update(name.as_bytes());
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finish().as_ref()[..16]);
    id[..2].copy_from_slice(&NAMED);
    SessionId(id)
}

/// Returns a random session id that no other sender uses.
pub(super) fn random() -> anyhow::Result<SessionId> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("no random numbers for a session")?;
    // A random id must not look like the id of a named session. For one id in 65536, clearing the byte costs
    // some randomness.
    if id[..2] == NAMED {
        id[0] = 0;
    }
    Ok(SessionId(id))
}

/// Returns whether the session has a name, so that a sender can continue it and the receiver must keep it.
pub(super) fn is_named(session: SessionId) -> bool {
    session.0[..2] == NAMED
}

/// Returns the secret in the file of `--token-file`, without the line feed that an editor leaves.
pub(super) fn token(path: Option<&Path>) -> Result<Option<Vec<u8>>, Usage> {
    let Some(path) = path else { return Ok(None) };
    let text = tls_files::read("--token-file", path)?;
    let token = text.trim_ascii_end();
    if token.is_empty() {
        let path = path.display();
        let text = format_args!("--token-file {path}: expected a secret, found nothing");
        return Err(Usage::new(text));
    }
    Ok(Some(token.to_vec()))
}

/// Returns the host part of an address with a port, which the receiver's certificate must have.
pub(super) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a release does not change the id of a name, because receivers store positions under the id.
    #[test]
    fn a_name_is_the_same_session_for_ever() {
        assert_eq!(
            named("backup").to_string(),
            "614e340de2996304357591c4f209555b"
        );
        assert_ne!(named("backup"), named("backup2"));
        assert!(is_named(named("")) && !is_named(random().unwrap()));
    }

    #[test]
    fn hosts() {
        assert_eq!(host("example.org:7411"), "example.org");
        assert_eq!(host("[::1]:7411"), "::1");
    }
}
