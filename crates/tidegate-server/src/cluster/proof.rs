//! That both ends of a channel know the cluster's secret, without either saying it: HMAC-SHA256 (RFC 2104) over what both said
//! of themselves, each with a nonce of its own.
//!
//! The one who was dialled proves it second, so that whoever only dials learns nothing to guess the secret by. A proof covers the
//! greeting only: what comes after it is not protected, which is why a cluster beyond one machine needs a network it may trust.

use ring::hmac;

/// The most bytes a secret may have.
pub const SECRET_BYTES_MAX: usize = 1024;

/// Whose proof it is: nobody can send back what he was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of the one who dialled.
    Dialer,
    /// Of the one who was dialled.
    Dialled,
}

impl Side {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Dialer => b"tidegate peer: dialer\n",
            Self::Dialled => b"tidegate peer: dialled\n",
        }
    }
}

/// The cluster's secret, ready for use. Without one it is that of the empty text.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// The secret with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
    }

    /// The proof of one side over what both said.
    #[must_use]
    pub fn prove(&self, side: Side, hello: &[u8], challenge: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.0, &covered(side, hello, challenge));
        let mut proof = [0; 32];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Whether it is that proof, in a time that tells nothing of where it is not.
    #[must_use]
    pub fn check(&self, side: Side, hello: &[u8], challenge: &[u8], proof: &[u8; 32]) -> bool {
        hmac::verify(&self.0, &covered(side, hello, challenge), proof).is_ok()
    }
}

/// A secret is nobody's business.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// What a proof covers; the length keeps the two apart.
fn covered(side: Side, hello: &[u8], challenge: &[u8]) -> Vec<u8> {
    let len = (hello.len() as u64).to_le_bytes();
    [side.label(), &len, hello, challenge].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_side_of_one_greeting_with_one_secret() {
        let (ours, theirs) = (Secret::new("tide"), Secret::new("gate"));
        let proof = ours.prove(Side::Dialer, b"ab", b"c");
        assert!(ours.check(Side::Dialer, b"ab", b"c", &proof));
        assert!(!theirs.check(Side::Dialer, b"ab", b"c", &proof));
        assert!(!ours.check(Side::Dialled, b"ab", b"c", &proof));
        assert!(!ours.check(Side::Dialer, b"a", b"bc", &proof));
        assert!(!ours.check(Side::Dialer, b"ab", b"d", &proof));
        assert!(!Secret::new("").check(Side::Dialer, b"ab", b"c", &proof));
        assert_eq!(format!("{ours:?}"), "(secret)");
    }

    /// RFC 4231, test case 2: it is the standard's HMAC.
    #[test]
    fn as_the_standard_has_it() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"Jefe");
        let tag = hmac::sign(&key, b"what do ya want for nothing?");
        let hex: String = tag.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex,
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }
}
