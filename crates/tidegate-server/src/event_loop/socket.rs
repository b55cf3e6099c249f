//! Reads and writes the socket of a client or of another node, plain or under TLS, for the event loop: reads
//! into a buffer, and writes from an outbox. No call blocks.

use std::io::{self, ErrorKind, IoSlice, Read, Write};

use rustls::Connection;
use tidegate_nats::outbox::Outbox;

use tidegate_cluster::proof::{BINDING_LABEL, Binding};

use super::net::Stream;

/// The greatest number of slices of one vectored write: with more slices, the kernel's work on them would
/// dominate.
const SLICES_MAX: usize = 64;
/// The number of bytes after which the loop adds no further slice to a vectored write, so that no write takes
/// long: the kernel copies this many bytes in 0.1 ms.
const WRITE_BYTES_MAX: usize = 256 * 1024;
/// The greatest number of bytes that a client's socket keeps unsent in the kernel: as many as the loop writes
/// in one turn to a reader that keeps up. Without this bound the kernel takes up to 4 MiB for each client
/// that does not read. A thousand such clients use up the kernel's memory for all TCP sockets, and it then
/// drops the packets of other clients.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 256 * 1024;
/// The number of bytes that TLS reads at once into its own buffer. A caller with a smaller buffer reads
/// through it.
const TLS_READ_BYTES: usize = 4096;

/// The socket of a client or of another node, with the TLS session on it, if there is one; see the
/// [module](self).
#[derive(Debug)]
pub(crate) struct Socket {
    pub(crate) stream: Stream,
    /// The state of TLS on the socket, which decides how the loop reads and writes.
    tls: Tls,
    drained: bool,
}

/// The state of TLS on a socket: none, a session, or a session that a thread of the pool works on during the
/// handshake. Until the thread returns the session, the loop does not use the socket.
#[derive(Debug)]
enum Tls {
    /// The socket carries plain text, at least until a client or node begins TLS.
    None,
    /// The socket has this TLS session, through which all bytes pass. `read` is true if the session has read
    /// bytes of the handshake that it has not processed yet.
    Session { tls: Box<Connection>, read: bool },
    /// A thread of the pool has the TLS session and does a step of the handshake; so the loop leaves the
    /// socket alone. The field is the number of that step.
    Away(u64),
}

/// The result of a write to a socket, by which the loop knows if it may write again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// The number of bytes that the write took from the outbox, and that the caller removes.
    pub(crate) len: usize,
    /// True if the socket takes no more bytes for now, so that the loop waits until it is writable.
    pub(crate) blocked: bool,
}

impl Socket {
    /// Creates a socket for the loop, without TLS for now.
    pub(crate) const fn new(stream: Stream) -> Self {
        Self {
            stream,
            tls: Tls::None,
            drained: false,
        }
    }

    /// Reads plain text into `buf`, at most its length, and returns the number of bytes. Returns 0 if the
    /// other side has closed, and the error `WouldBlock` if no plain text has arrived. [`Socket::is_drained`]
    /// then says whether the socket is empty. The call gives bytes of a TLS handshake to the TLS session,
    /// where they wait for [`Socket::take_step`].
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let (got, drained) = match &mut self.tls {
            Tls::Session { tls, read } if tls.is_handshaking() => {
                if uninterrupted(|| tls.read_tls(&mut self.stream))? == 0 {
                    return Ok(0);
                }
                *read = true;
                return Err(ErrorKind::WouldBlock.into());
            }
            Tls::Session { tls, .. } => read_secured(tls, &mut self.stream, buf)?,
            Tls::Away(_) => return Err(ErrorKind::WouldBlock.into()),
            Tls::None => {
                let got = uninterrupted(|| self.stream.read(buf))?;
                (got, got < buf.len())
            }
        };
        self.drained = drained;
        Ok(got)
    }

    /// Returns whether the last read emptied the socket, so that the next read must wait until the socket is
    /// readable again.
    pub(crate) const fn is_drained(&self) -> bool {
        self.drained
    }

    /// Copies the first bytes of the socket without taking them, so that the loop sees whether a client
    /// begins with TLS.
    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        uninterrupted(|| self.stream.peek(buf))
    }

    /// Returns whether the TLS handshake of the socket has begun and not ended, also while a thread works on
    /// it, so that the loop reads no plain text yet.
    pub(crate) fn is_handshaking(&self) -> bool {
        match &self.tls {
            Tls::Session { tls, .. } => tls.is_handshaking(),
            Tls::Away(_) => true,
            Tls::None => false,
        }
    }

    /// Returns whether TLS holds encrypted bytes that the socket has not taken yet. The caller must then
    /// write even if the outbox is empty.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(&self.tls, Tls::Session { tls, .. } if tls.wants_write())
    }

    /// Returns keying material that only the two ends of this TLS session know, by which nodes bind their
    /// greeting to the session.
    pub(crate) fn binding(&self) -> Result<Binding, rustls::Error> {
        match &self.tls {
            Tls::Session { tls, .. } => tls.export_keying_material([0; 32], BINDING_LABEL, None),
            Tls::None | Tls::Away(_) => Err(rustls::Error::HandshakeNotComplete),
        }
    }

    /// Begins TLS on the socket with this session, so that all further bytes pass through it.
    pub(crate) fn begin_tls(&mut self, tls: Box<Connection>) {
        self.tls = Tls::Session { tls, read: false };
    }

    /// Takes the TLS session out, so that a thread does a step of its handshake, if the session has bytes to
    /// process.
    pub(crate) fn take_step(&mut self, number: u64) -> Option<Box<Connection>> {
        match std::mem::replace(&mut self.tls, Tls::Away(number)) {
            Tls::Session { tls, read: true } => Some(tls),
            other => {
                self.tls = other;
                None
            }
        }
    }

    /// Returns whether a thread of the pool has the TLS session, so that the loop must not use the socket.
    pub(crate) const fn is_away(&self) -> bool {
        matches!(self.tls, Tls::Away(_))
    }

    /// Returns whether a thread of the pool has the TLS session for the step with this number, and not for a
    /// step of an earlier connection.
    pub(crate) fn is_at_step(&self, number: u64) -> bool {
        matches!(self.tls, Tls::Away(at) if at == number)
    }

    /// Puts the TLS session back after a thread's step, and writes its answers, so that the handshake goes
    /// on. Returns the error if the handshake failed.
    pub(crate) fn end_step(
        &mut self,
        mut tls: Box<Connection>,
        failed: Option<rustls::Error>,
    ) -> io::Result<()> {
        let written = write_answers(&mut tls, &mut self.stream);
        self.tls = Tls::Session { tls, read: false };
        match failed {
            Some(e) => Err(io::Error::other(e)),
            None => written,
        }
    }

    /// Writes bytes from the front of `out` to the socket, in one write, so that many messages cost one call.
    pub(crate) fn write(&mut self, out: &Outbox) -> io::Result<Written> {
        let tls = match &mut self.tls {
            Tls::Session { tls, .. } => tls,
            Tls::None => return write_plain(&mut self.stream, out),
            Tls::Away(_) => {
                return Ok(Written {
                    len: 0,
                    blocked: true,
                });
            }
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

    /// Sends TLS's close notification, as far as the socket takes it, so that the other side knows that
    /// nothing is missing, and shuts the socket down.
    pub(crate) fn close(&mut self) {
        if let Tls::Session { tls, .. } = &mut self.tls {
            tls.send_close_notify();
            // A failed write does no harm, because the server closes the socket even if the close
            // notification does not arrive.
            let _ = tls.write_tls(&mut self.stream);
        }
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Reads bytes of TLS and decrypts them into `buf`. Returns the length of the plain text, and whether the
/// socket is empty for now, so that the loop knows whether to read again.
fn read_secured(
    tls: &mut Connection,
    stream: &mut (impl Read + Write),
    buf: &mut [u8],
) -> io::Result<(usize, bool)> {
    let (mut filled, mut drained) = (0, false);
    let mut over = take_plain(tls, buf, &mut filled)?;
    while !over && filled == 0 {
        if buf.len() < TLS_READ_BYTES {
            // The other side closed the connection without TLS's notification. The server accepts that, since
            // the NATS protocol itself reveals a truncated message.
            if uninterrupted(|| tls.read_tls(stream))? == 0 {
                return Ok((0, false));
            }
            process(tls, stream)?;
            over = take_plain(tls, buf, &mut filled)?;
            continue;
        }
        // One read takes as much as fits into `buf`. TLS consumes these bytes step by step, and its plain
        // text goes to the front of `buf`, never beyond the bytes that TLS has consumed. Plain text that does
        // not fit into `buf` is at most one TLS record, and the next read takes it.
        let end = uninterrupted(|| stream.read(buf))?;
        if end == 0 {
            return Ok((0, false));
        }
        drained = end < buf.len();
        let mut at = 0;
        while at < end {
            at += match tls.read_tls(&mut &buf[at..end])? {
                // The other side has ended the TLS session, so the loop ignores all later bytes.
                0 => end - at,
                used => used,
            };
            process(tls, stream)?;
            over = take_plain(tls, &mut buf[..at], &mut filled)?;
        }
        over = over || take_plain(tls, buf, &mut filled)?;
    }
    // If the session has ended or plain text fills `buf`, the call does not report the socket as drained, so
    // that the loop reads the rest at once.
    Ok((filled, drained && !over && filled < buf.len()))
}

/// Lets TLS process the bytes that it has read, and writes its answers, such as alerts, to the socket.
fn process(tls: &mut Connection, stream: &mut impl Write) -> io::Result<()> {
    let state = tls.process_new_packets();
    write_answers(tls, stream)?;
    state.map(drop).map_err(io::Error::other)
}

/// Writes TLS's answers in a handshake to the socket, such as the alert if the handshake failed, so that the
/// other side learns the reason.
fn write_answers(tls: &mut Connection, stream: &mut impl Write) -> io::Result<()> {
    if tls.wants_write() {
        match tls.write_tls(stream) {
            Err(e) if e.kind() != ErrorKind::WouldBlock => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Moves plain text that TLS has decrypted to `buf`, for the caller. Returns whether the other side has ended
/// the TLS session.
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

fn write_plain(stream: &mut Stream, out: &Outbox) -> io::Result<Written> {
    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
    let mut used = 0;
    let mut bytes = 0;
    for (to, from) in slices.iter_mut().zip(out.slices()) {
        *to = IoSlice::new(from);
        used += 1;
        bytes += from.len();
        if bytes >= WRITE_BYTES_MAX {
            break;
        }
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

/// Bounds the bytes that a client's socket keeps unsent in the kernel, see [`UNSENT_BYTES_MAX`].
pub(crate) fn bound_unsent(stream: &Stream) {
    // A kernel without this option keeps its own bound, so the server ignores the error.
    #[cfg(target_os = "linux")]
    if let Some(stream) = super::net::tcp(stream) {
        let _ = socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
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

    /// The bytes that one side has sent and the other side has not read, and (`answers`) the bytes in the
    /// other direction.
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

    /// Creates the two ends of one TLS session, and the wire from the first end to the second.
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

    /// Checks that a reader that reads until the socket is drained gets all plain text, with any size of
    /// buffer, and reads from the socket no more often than necessary.
    #[test]
    fn buffered_tls_data_is_read_to_the_end() {
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
                // The test delivers a part of the bytes on the wire later.
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
                // TLS must keep no plain text that it would return without a read of the socket.
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
