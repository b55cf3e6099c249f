//! Secures connections between nodes with TLS: the node that dials begins TLS, and both nodes show a
//! certificate. The texts about failures name the remedy.
//!
//! The listening node looks at the first bytes of a connection, so that it can send a dialer without TLS a
//! refusal in plain text.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConnection, Connection, Error};
use tidegate::Time;
use tidegate_cluster::channel::{ChannelError, begins_tls};
use tidegate_cluster::greeting::GreetingError;
use tidegate_cluster::proof::Side;
use tidegate_cluster::refusal::Refusal;

use super::ending::Why;
use super::{Conn, Peers};
use crate::event_loop::handshakes::Place;
use crate::event_loop::tls::PeerTls;
use crate::event_loop::tokens::ChannelKey;
use crate::sessions::Node;

/// The stage of TLS on a connection between nodes, which tells the loop how to treat the connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Securing {
    /// The TLS handshake is over, or the connection uses no TLS, so the channel may read.
    Done,
    /// The listening node waits for the first bytes, which show whether the dialer begins with TLS.
    FirstBytes,
    /// The dialer has begun with TLS, and this node has not begun the handshake, which waits for a free
    /// thread.
    Hello,
    /// The two nodes are in the TLS handshake, so the channel does not read yet.
    Handshake,
}

/// Begins TLS with the node that this node dials as `host`. This node accepts only a certificate for that
/// host, so that no other machine can take its place.
pub(super) fn dial(tls: &PeerTls, host: &str) -> io::Result<Box<Connection>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(tls.dialer.clone(), name);
    let connection = connection.map_err(io::Error::other)?;
    Ok(Box::new(connection.into()))
}

impl Peers {
    /// Makes the node use this TLS configuration for new connections from now on, after a reload. Open
    /// connections stay as they are, so that a reload interrupts nothing.
    pub(crate) fn set_tls(&mut self, tls: Option<PeerTls>) {
        self.tls = tls;
    }

    /// Returns whether this node uses TLS with the other nodes, for the monitor and for reloads.
    #[must_use]
    pub(crate) const fn is_secured(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns whether the loop must not read the connection now: its first bytes are missing, it has ended,
    /// or its TLS handshake is not over and goes on in the queue of handshakes. Calls `wait` to put the
    /// handshake into the queue if it is neither there nor with a thread.
    pub(crate) fn postpone(
        &mut self,
        now: Time,
        key: ChannelKey,
        node: &mut Node,
        wait: impl FnOnce(SocketAddr) -> Place,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(key.index()) else {
            return true;
        };
        if conn.connecting || !self.look_at_first_bytes(key) {
            return true;
        }
        let conn = &mut self.conns[key.index()];
        // A dialer that has closed its end cannot complete its TLS handshake, so this node ends the
        // connection.
        if conn.securing == Securing::Hello && conn.ended {
            self.end(now, key, node, &Why::Closed);
            return true;
        }
        let waits = matches!(conn.securing, Securing::Hello | Securing::Handshake);
        if waits && conn.place.is_none() && !conn.socket.is_away() {
            conn.place = Some(wait(conn.address));
        }
        waits
    }

    /// Takes the places in the queue of handshakes that connections had when they ended, so that the loop
    /// removes these handshakes from the queue.
    pub(crate) fn take_withdrawn(&mut self) -> Vec<Place> {
        std::mem::take(&mut self.withdrawn)
    }

    /// Looks at the first bytes of a connection to see whether the dialer begins with TLS. Returns whether
    /// enough bytes have arrived to see that.
    fn look_at_first_bytes(&mut self, key: ChannelKey) -> bool {
        let conn = &mut self.conns[key.index()];
        if conn.securing != Securing::FirstBytes {
            return true;
        }
        let mut first = [0; 3];
        let spoken = match conn.socket.peek(&mut first) {
            Ok(3) => begins_tls(first),
            Ok(1 | 2) if !conn.ended => {
                conn.readable = false;
                return false;
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                conn.readable = false;
                return false;
            }
            _ => false,
        };
        // If only one of the nodes uses TLS, this node continues the connection without TLS, so that the
        // channel can refuse the greeting.
        conn.securing = match spoken && self.tls.is_some() {
            true => Securing::Hello,
            false => Securing::Done,
        };
        true
    }

    /// Prepares a TLS handshake that the queue has chosen for a free thread, and begins TLS if the handshake
    /// is new. Returns whether the loop can read the connection.
    pub(crate) fn begin_tls(&mut self, now: Time, key: ChannelKey, node: &mut Node) -> bool {
        let Some(conn) = self.conns.get_mut(key.index()) else {
            return false;
        };
        conn.place = None;
        if conn.securing != Securing::Hello {
            return true;
        }
        let why = match &self.tls {
            _ if conn.ended => Why::Closed,
            None => Why::Tls("this node has no certificate any more".into()),
            Some(tls) => match rustls::ServerConnection::new(tls.dialled.clone()) {
                Ok(connection) => {
                    conn.socket.begin_tls(Box::new(connection.into()));
                    conn.securing = Securing::Handshake;
                    return true;
                }
                Err(e) => Why::Tls(e.to_string()),
            },
        };
        self.end(now, key, node, &why);
        false
    }

    /// Takes the TLS session of a connection, so that a thread does a step of its handshake, if the session
    /// has bytes to process.
    pub(crate) fn take_step(&mut self, key: ChannelKey, number: u64) -> Option<Box<Connection>> {
        let conn = self.conns.get_mut(key.index())?;
        conn.socket.take_step(number)
    }

    /// Puts a TLS session back into its connection after a step of a thread, so that the loop reads it again,
    /// unless the connection has ended in the meantime.
    pub(crate) fn end_step(
        &mut self,
        now: Time,
        key: ChannelKey,
        number: u64,
        tls: Box<Connection>,
        failed: Option<Error>,
        node: &mut Node,
    ) {
        let conn = self.conns.get_mut(key.index());
        let Some(conn) = conn.filter(|conn| conn.socket.is_at_step(number)) else {
            return;
        };
        (conn.readable, conn.writable) = (true, true);
        match conn.socket.end_step(tls, failed) {
            Ok(()) => {
                if self.go_on_with_tls(now, key, node) {
                    self.list(key);
                }
            }
            Err(e) => {
                let why = conn.failure(e);
                self.end(now, key, node, &why);
            }
        }
    }

    /// Continues a connection after its socket has processed bytes of TLS. If the handshake is now over,
    /// hands the connection to the channel. Lists the connection, so that the loop writes TLS's own bytes.
    /// Returns whether the connection continues.
    pub(super) fn go_on_with_tls(&mut self, now: Time, key: ChannelKey, node: &mut Node) -> bool {
        let conn = &mut self.conns[key.index()];
        if conn.securing == Securing::Handshake && !conn.socket.is_handshaking() {
            conn.securing = Securing::Done;
            match conn.socket.binding() {
                Ok(binding) => conn.channel.handle_secured(now, binding),
                Err(e) => {
                    self.end(now, key, node, &Why::Tls(e.to_string()));
                    return false;
                }
            }
        }
        self.touch(key);
        true
    }
}

impl Conn {
    /// Turns an error of reading or writing into the reason why the connection ends, which the log names to
    /// the operator.
    pub(super) fn failure(&self, e: io::Error) -> Why {
        let inner = e.get_ref().and_then(|e| e.downcast_ref::<Error>());
        match inner {
            // The dialled node answered with bytes that cannot begin TLS, so that node has no TLS or refuses
            // the connection in plain text.
            Some(Error::InvalidMessage(_))
                if self.side == Side::Dialer && self.securing == Securing::Handshake =>
            {
                let refused = GreetingError::from(Refusal::OnlyTls);
                Why::Channel(ChannelError::from(refused))
            }
            Some(e) => Why::Tls(reason(e)),
            None => Why::Io(e),
        }
    }
}

/// Returns the text of a TLS error for log lines, with the remedy for the operator.
fn reason(e: &Error) -> String {
    use AlertDescription as Alert;
    match e {
        // A wrong signature also means an unknown authority: a new authority with the name of an old one has
        // another key, so the signatures of the two do not match.
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is not signed by an authority in cluster.tls.ca_file: give all nodes certificates of one authority, and that".into()
        }
        Error::InvalidCertificate(
            e @ (CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }),
        ) => format!(
            "{e}: routes must name a node as its certificate does (subjectAltName)"
        ),
        Error::InvalidCertificate(
            e @ (CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }),
        ) => format!(
            "{e}: a node dials and is dialled, so its certificate needs both serverAuth and clientAuth (extendedKeyUsage), or none"
        ),
        Error::InvalidCertificate(e) => format!("its certificate cannot be used: {e}"),
        Error::NoCertificatesPresented => "it shows no certificate".into(),
        Error::AlertReceived(Alert::UnknownCA) => {
            "it does not know who signed this node's certificate: give all nodes certificates of one authority, and that as cluster.tls.ca_file".into()
        }
        Error::AlertReceived(
            alert @ (Alert::BadCertificate
            | Alert::UnsupportedCertificate
            | Alert::CertificateRevoked
            | Alert::CertificateExpired
            | Alert::CertificateUnknown
            | Alert::CertificateRequired
            | Alert::DecryptError
            | Alert::AccessDenied),
        ) => format!("it does not take this node's certificate, and its log says why: {alert:?}"),
        e => e.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_faulty_certificate_is_reported_with_a_remedy() {
        for error in [
            CertificateError::UnknownIssuer,
            CertificateError::BadSignature,
        ] {
            let said = reason(&Error::InvalidCertificate(error));
            assert!(said.contains("cluster.tls.ca_file"), "{said}");
        }
        let name = CertificateError::NotValidForNameContext {
            expected: ServerName::try_from("n2").unwrap(),
            presented: vec!["DnsName(\"n1\")".into()],
        };
        let said = reason(&Error::InvalidCertificate(name));
        assert!(
            said.contains("\"n2\"") && said.contains("n1") && said.contains("routes"),
            "{said}"
        );
        let alert = reason(&Error::AlertReceived(AlertDescription::CertificateExpired));
        assert!(alert.contains("CertificateExpired"), "{alert}");
    }
}
