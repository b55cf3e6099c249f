//! That both ends of a channel know the cluster's secret, without either saying it: HMAC-SHA256 (RFC 2104)
//! over what both said of themselves, each with a nonce of its own.
//!
//! The one who was dialled proves it second, so that whoever only dials learns nothing to guess the secret
//! by. A proof covers the greeting only: what comes after it is protected by TLS, or not at all. Inside TLS a
//! proof also covers the session ([`Binding`]), so that it is of no use to somebody in between who speaks TLS
//! with both.

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
    const fn label(self, in_tls: bool) -> &'static [u8] {
        match (self, in_tls) {
            (Self::Dialer, false) => b"tidegate peer: dialer\n",
            (Self::Dialled, false) => b"tidegate peer: dialled\n",
            (Self::Dialer, true) => b"tidegate peer in tls: dialer\n",
            (Self::Dialled, true) => b"tidegate peer in tls: dialled\n",
        }
    }
}

/// What only the two ends of one TLS session know: keying material exported from it (RFC 8446, 7.5).
pub type Binding = [u8; 32];
/// What it is exported for.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-tidegate-peer";

/// The cluster's secret, ready for use. Without one it is that of the empty text.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// The secret with this text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
    }

    /// The proof of one side over what both said, and over the TLS session they said it in.
    #[must_use]
    pub fn prove(
        &self,
        side: Side,
        hello: &[u8],
        challenge: &[u8],
        binding: Option<&Binding>,
    ) -> [u8; 32] {
        let tag = hmac::sign(&self.0, &covered(side, hello, challenge, binding));
        let mut proof = [0; 32];
        proof.copy_from_slice(tag.as_ref());
        proof
    }

    /// Returns whether it is that proof, in a time that tells nothing of where it is not.
    #[must_use]
    pub fn check(
        &self,
        side: Side,
        hello: &[u8],
        challenge: &[u8],
        binding: Option<&Binding>,
        proof: &[u8; 32],
    ) -> bool {
        hmac::verify(&self.0, &covered(side, hello, challenge, binding), proof).is_ok()
    }
}

/// A secret is nobody's business.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// What a proof covers; the length keeps the parts apart, the label what is said in TLS from what is not.
fn covered(side: Side, hello: &[u8], challenge: &[u8], binding: Option<&Binding>) -> Vec<u8> {
    let len = (hello.len() as u64).to_le_bytes();
    let bound = binding.map_or(&[][..], |b| b);
    [side.label(binding.is_some()), &len, hello, bound, challenge].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_good_for_one_side_of_one_greeting_with_one_secret() {
        let (ours, theirs) = (Secret::new("tide"), Secret::new("gate"));
        let proof = ours.prove(Side::Dialer, b"ab", b"c", None);
        assert!(ours.check(Side::Dialer, b"ab", b"c", None, &proof));
        assert!(!theirs.check(Side::Dialer, b"ab", b"c", None, &proof));
        assert!(!ours.check(Side::Dialled, b"ab", b"c", None, &proof));
        assert!(!ours.check(Side::Dialer, b"a", b"bc", None, &proof));
        assert!(!ours.check(Side::Dialer, b"ab", b"d", None, &proof));
        assert!(!Secret::new("").check(Side::Dialer, b"ab", b"c", None, &proof));
        assert_eq!(format!("{ours:?}"), "(secret)");
    }

    #[test]
    fn a_proof_is_good_for_one_tls_session() {
        let (secret, session, other) = (Secret::new("tide"), [1; 32], [2; 32]);
        let check = |binding, proof| secret.check(Side::Dialled, b"ab", b"c", binding, proof);
        let proof = secret.prove(Side::Dialled, b"ab", b"c", Some(&session));
        assert!(check(Some(&session), &proof));
        assert!(!check(Some(&other), &proof) && !check(None, &proof));
        let plain = secret.prove(Side::Dialled, b"ab", b"c", None);
        assert!(!check(Some(&session), &plain));
        // What is said in the session's place is not it.
        let said = [&session[..], b"c"].concat();
        assert!(!secret.check(Side::Dialled, b"ab", &said, None, &proof));
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
