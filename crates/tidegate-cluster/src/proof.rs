//! Proves to both ends of a channel that the other end knows the cluster's secret, without sending the
//! secret. A proof is the HMAC-SHA256 (RFC 2104) of both introductions. Each introduction contains a nonce
//! of its sender, so that an old proof does not count again.
//!
//! The dialled node sends its proof second, so that a dialing stranger gets no proof against which it could
//! test guesses of the secret. A proof covers the greeting only. The frames after the greeting have no
//! protection without TLS. Inside TLS a proof also covers the session ([`Binding`]), so that a man in the
//! middle with a TLS session to each end cannot use the proof.

use ring::hmac;

/// The greatest length of a cluster's secret, in bytes. The configuration refuses longer ones.
pub const SECRET_BYTES_MAX: usize = 1024;

/// The side of a channel that sends a proof. A proof covers its side, so that no node can answer with a copy
/// of the peer's proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The node that dialled the channel, and sends its proof first.
    Dialer,
    /// The node that the dialer reached. It sends its proof second.
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

/// Bytes that only the two ends of one TLS session know: keying material exported from the session (RFC 8446,
/// section 7.5). A proof covers these bytes, so that it holds only in this session.
pub type Binding = [u8; 32];
/// The label under which a TLS session exports the [`Binding`], so that both ends export equal bytes.
pub const BINDING_LABEL: &[u8] = b"EXPORTER-tidegate-peer";

/// The cluster's secret, as a key of HMAC, with which nodes make and check proofs. A cluster without a
/// secret uses the empty text.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl Secret {
    /// Creates the secret from the text in the configuration, which must be equal on all nodes.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()))
    }

    /// Returns the proof that one side knows the secret. The proof covers both introductions and, inside
    /// TLS, the TLS session.
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

    /// Returns whether `proof` is the proof of this side. Compares in constant time, so that a stranger
    /// learns nothing from the duration.
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

/// Hides the secret in debug output, because the text may reach a log.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// Returns the bytes that a proof covers. The length of the dialer's introduction separates the parts. The
/// label differs by side, and between proofs inside and outside TLS, so that no proof can stand for another.
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
        // An introduction that begins with the session's bytes does not replace the session.
        let said = [&session[..], b"c"].concat();
        assert!(!secret.check(Side::Dialled, b"ab", &said, None, &proof));
    }

    /// Checks the HMAC against test case 2 of RFC 4231.
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
