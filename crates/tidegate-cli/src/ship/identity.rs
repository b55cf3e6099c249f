//! Who somebody is: a session by its name or by chance, a token, the name a certificate must prove.

use std::path::Path;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use tidegate_link::SessionId;

/// The first two bytes of a session somebody may come back to by its name. One by chance may be forgotten by
/// a receiver that knows too many.
const NAMED: [u8; 2] = *b"aN";

/// The session of this name, everywhere and always.
pub(super) fn named(name: &str) -> SessionId {
    let digest = Sha256::new()
        .chain_update(b"tidegate session ")
        .chain_update(name);
    let mut id = [0; 16];
    id.copy_from_slice(&digest.finalize()[..16]);
    id[..2].copy_from_slice(&NAMED);
    SessionId(id)
}

/// A session nobody has.
pub(super) fn random() -> anyhow::Result<SessionId> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).context("no random numbers for a session")?;
    // What one session in 65536 loses in randomness, it keeps from being taken for a named one.
    if id[..2] == NAMED {
        id[0] = 0;
    }
    Ok(SessionId(id))
}

/// Returns whether somebody may come back to it by its name.
pub(super) fn is_named(session: SessionId) -> bool {
    session.0[..2] == NAMED
}

/// The secret in a file, without the line feed an editor leaves.
pub(super) fn token(path: Option<&Path>) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(path) = path else { return Ok(None) };
    let text = read(path)?;
    let token = text.trim_ascii_end();
    anyhow::ensure!(
        !token.is_empty(),
        "{}: expected a secret, found nothing",
        path.display()
    );
    Ok(Some(token.to_vec()))
}

/// A small file, and its name if it cannot be read.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).with_context(|| path.display().to_string())
}

/// The host of an address with a port.
pub(super) fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions are stored under it: it must not change with a release.
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
