//! The socket of a client or a node, plain or under TLS: reads into a buffer, writes what waits in an outbox.
//! Never blocks.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;

use crate::cluster::proof::{BINDING_LABEL, Binding};
use crate::nats::outbox::Outbox;

/// Slices of one gathered write: beyond it the kernel's work is all there is.
const SLICES_MAX: usize = 64;
/// What TLS reads at a time if it reads for itself.
const TLS_READ_BYTES: usize = 4096;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: TcpStream,
    /// TLS, once it is clear that it will be spoken.
    pub(crate) tls: Option<Box<Connection>>,
    drained: bool,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes of the outbox that are gone.
    pub(crate) len: usize,
    /// Whether the socket takes no more for now.
    pub(crate) blocked: bool,
}

impl Socket {
    /// A connection, without TLS for now.
    pub(crate) const fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            tls: None,
            drained: false,
        }
    }

    /// Reads what is there, up to the length of `buf`; [`Socket::is_drained`] then says whether that was all.
    /// 0 is the end; `WouldBlock` is nothing for now.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (got, drained) = match &mut self.tls {
            Some(tls) => read_secured(tls, &mut self.stream, buf)?,
            None => {
                let got = uninterrupted(|| self.stream.read(buf))?;
                (got, got < buf.len())
            }
        };
        self.drained = drained;
        Ok(got)
    }

    /// Returns whether the last read took all there was: the next one has to wait until the socket is
    /// readable again.
    pub(crate) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Reads without taking, to see whether a client speaks TLS.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.stream.peek(buf))
    }

    /// Returns whether the TLS handshake is still going on.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|t| t.is_handshaking())
    }

    /// Returns whether TLS keeps something the socket has not taken yet: writing goes on even with nothing
    /// else to write.
    pub(crate) fn holds_back(&self) -> bool {
        self.tls.as_ref().is_some_and(|t| t.wants_write())
    }

    /// What only the two ends of this TLS session know.
    pub(crate) fn binding(&self) -> Result<Binding, rustls::Error> {
        match &self.tls {
            Some(tls) => tls.export_keying_material([0; 32], BINDING_LABEL, None),
            None => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    /// Writes once from the front of `out`.
    pub(crate) fn write(&mut self, out: &Outbox) -> io::Result<Written> {
        let Some(tls) = &mut self.tls else {
            return write_plain(&mut self.stream, out);
        };
        let mut len = 0;
        for slice in out.slices() {
            let n = tls.writer().write(slice)?;
            len += n;
            if n < slice.len() {
                break;
            }
        }
        let mut blocked = false;
        while tls.wants_write() && !blocked {
            match uninterrupted(|| tls.write_tls(&mut self.stream)) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => blocked = true,
                Err(e) => return Err(e),
            }
        }
        Ok(Written { len, blocked })
    }

    /// Says goodbye, as far as the socket takes it.
    pub(crate) fn close(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // Whether it arrives is the client's affair.
            let _ = tls.write_tls(&mut self.stream);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Reads plain text; with it comes whether there is no more for now.
fn read_secured(
    tls: &mut Connection,
    stream: &mut (impl Read + Write),
    buf: &mut [u8],
) -> io::Result<(usize, bool)> {
    let (mut filled, mut drained) = (0, false);
    let mut over = take_plain(tls, buf, &mut filled)?;
    while !over && filled == 0 {
        if buf.len() < TLS_READ_BYTES {
            // A peer that went without saying so: at this protocol a cut message is noticed anyway.
            if uninterrupted(|| tls.read_tls(stream))? == 0 {
                return Ok((0, false));
            }
            process(tls, stream)?;
            over = take_plain(tls, buf, &mut filled)?;
            continue;
        }
        // As much as fits, in one read. TLS takes it by and by, and what it makes of it follows into `buf`,
        // never further than it has taken; what is too much for `buf` is of one record at most, and is taken
        // the next time.
        let end = uninterrupted(|| stream.read(buf))?;
        if end == 0 {
            return Ok((0, false));
        }
        drained = end < buf.len();
        let mut at = 0;
        while at < end {
            at += match tls.read_tls(&mut &buf[at..end])? {
                // The other side has said that it is done, and what it says after that is nothing.
                0 => end - at,
                used => used,
            };
            process(tls, stream)?;
            over = take_plain(tls, &mut buf[..at], &mut filled)?;
        }
        over = over || take_plain(tls, buf, &mut filled)?;
    }
    // The end is for the next read to find without waiting, and so is what TLS keeps because `buf` was full.
    Ok((filled, drained && !over && filled < buf.len()))
}

/// What TLS makes of what it has read; it may have something to answer.
fn process(tls: &mut Connection, stream: &mut impl Write) -> io::Result<()> {
    let state = tls.process_new_packets();
    // Answers of the handshake, and the alert where it failed.
    if tls.wants_write() {
        match tls.write_tls(stream) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
    }
    state.map(drop).map_err(io::Error::other)
}

/// Takes plain text that is there already; whether the other side has said that nothing follows.
fn take_plain(tls: &mut Connection, buf: &mut [u8], filled: &mut usize) -> io::Result<bool> {
    while *filled < buf.len() {
        match tls.reader().read(&mut buf[*filled..]) {
            Ok(0) => return Ok(true),
            Ok(got) => *filled += got,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

fn write_plain(stream: &mut TcpStream, out: &Outbox) -> io::Result<Written> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut used = 0;
    for (to, from) in slices.iter_mut().zip(out.slices()) {
        *to = IoSlice::new(from);
        used += 1;
    }
    if used == 0 {
        return Ok(Written {
            len: 0,
            blocked: false,
        });
    }
    match uninterrupted(|| stream.write_vectored(&slices[..used])) {
        Ok(len) => Ok(Written {
            len,
            blocked: false,
        }),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(Written {
            len: 0,
            blocked: true,
        }),
        Err(e) => Err(e),
    }
}

fn uninterrupted(mut f: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match f() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Arc;

    use rcgen::{CertifiedKey, generate_simple_self_signed};
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// What one side has sent and the other has not read.
    #[derive(Default)]
    struct Wire {
        bytes: VecDeque<u8>,
        answers: Vec<u8>,
        reads: usize,
    }

    impl Read for Wire {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.reads += 1;
            match self.bytes.read(buf)? {
                0 => Err(ErrorKind::WouldBlock.into()),
                got => Ok(got),
            }
        }
    }

    impl Write for Wire {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.answers.write(buf)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Two ends of one session, and what is sent from the first to the second.
    fn session() -> (Connection, Connection, Wire) {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(vec!["localhost".into()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone()], key)
            .unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let mut from: Connection = ClientConnection::new(Arc::new(client), name)
            .unwrap()
            .into();
        let mut to: Connection = ServerConnection::new(Arc::new(server)).unwrap().into();
        let mut wire = Wire::default();
        while from.is_handshaking() || to.is_handshaking() {
            send(&mut from, &mut wire);
            let nothing = read_secured(&mut to, &mut wire, &mut [0; 9000]).unwrap_err();
            assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
            while to.wants_write() {
                to.write_tls(&mut wire).unwrap();
            }
            let answers = std::mem::take(&mut wire.answers);
            let mut rest = &answers[..];
            while !rest.is_empty() {
                from.read_tls(&mut rest).unwrap();
                from.process_new_packets().unwrap();
            }
        }
        (from, to, wire)
    }

    fn send(from: &mut Connection, wire: &mut Wire) {
        while from.wants_write() {
            let mut out = Vec::new();
            from.write_tls(&mut out).unwrap();
            wire.bytes.extend(out);
        }
    }

    /// Whoever reads until it is told that this was all has all there is, whatever fits into its buffer, and
    /// asks the socket no more often than that takes.
    #[test]
    fn what_tls_has_is_read_to_the_end() {
        for room in [1, 100, 4095, 4096, 5000, 16_384, 16_400, 20_000, 65_536] {
            let (mut from, mut to, mut wire) = session();
            let (mut sent, mut got) = (Vec::new(), Vec::new());
            wire.reads = 0;
            for round in 0..40_usize {
                for part in 0..=round % 5 {
                    let len = [7, 300, 16_384, 20_000, 3000][(round + part) % 5];
                    let bytes: Vec<u8> = (0..len).map(|i| (i * round % 251) as u8).collect();
                    from.writer().write_all(&bytes).unwrap();
                    send(&mut from, &mut wire);
                    sent.extend_from_slice(&bytes);
                }
                // A part of what is on its way arrives later.
                let late = wire.bytes.split_off(wire.bytes.len() * (round % 3 + 1) / 3);
                let mut buf = vec![0; room];
                loop {
                    match read_secured(&mut to, &mut wire, &mut buf) {
                        Ok((len, drained)) => {
                            assert!(len > 0);
                            got.extend_from_slice(&buf[..len]);
                            if drained {
                                break;
                            }
                        }
                        Err(e) => {
                            assert_eq!(e.kind(), ErrorKind::WouldBlock);
                            break;
                        }
                    }
                }
                assert!(wire.bytes.is_empty());
                // Nothing is kept that could be had without reading.
                let mut over = [0; 1];
                let kept = to.reader().read(&mut over);
                assert!(kept.is_err(), "{room} {round}: {kept:?}");
                wire.bytes = late;
            }
            let mut buf = [0; 8192];
            while let Ok((len, _)) = read_secured(&mut to, &mut wire, &mut buf) {
                assert!(len > 0);
                got.extend_from_slice(&buf[..len]);
            }
            assert!(got == sent, "{} bytes of {}", got.len(), sent.len());
            let most = sent.len() / room.clamp(TLS_READ_BYTES, 16_384) * 2 + 40 * 8;
            assert!(
                wire.reads < most,
                "{room}: {} reads, not {most}",
                wire.reads
            );
            from.send_close_notify();
            send(&mut from, &mut wire);
            let end = read_secured(&mut to, &mut wire, &mut [0; 8192]).unwrap();
            assert_eq!(end, (0, false));
        }
    }
}
