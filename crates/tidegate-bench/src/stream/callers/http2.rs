//! A connection that calls one gRPC method, one call after the other, over HTTP/2 without TLS (RFC 9113).
//!
//! The bench has this client of its own, because its callers block, as those of every other system do, and
//! because a client with a runtime would measure that runtime, too. The client understands only the parts of
//! HTTP/2 that such calls need: it sends each header as a literal, and does not decode the headers of
//! answers. An answer with a message is a success, because a gRPC server sends no message with an error.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{bail, ensure};

/// The bytes with which a client opens a connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest time that the client waits for a frame.
const PATIENCE: Duration = Duration::from_secs(60);
/// The length of a frame's head.
const HEAD: usize = 9;
/// The most bytes of a frame's payload, which neither side changes.
const FRAME_MAX: usize = 1 << 14;
/// The bytes that each side may send before the other side grants more, at the start.
const WINDOW: i64 = 65_535;
/// The received bytes after which the client grants as many again.
const GRANT: usize = 1 << 14;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

/// The flag of DATA and HEADERS: the stream's last frame of this side.
const END_STREAM: u8 = 1;
/// The flag of SETTINGS and PING: an answer to such a frame.
const ACK: u8 = 1;
/// The flag of HEADERS: the block of headers is complete.
const END_HEADERS: u8 = 4;
/// The setting for the bytes that a side may send on a new stream.
const INITIAL_WINDOW_SIZE: u16 = 4;

/// A connection with at most one call.
pub(super) struct Http2 {
    reader: BufReader<TcpStream>,
    out: Vec<u8>,
    /// The encoded headers of every call.
    headers: Vec<u8>,
    /// The message of the call with its gRPC prefix.
    body: Vec<u8>,
    /// The stream of the last call.
    stream: u32,
    flow: Flow,
    /// The bytes that the client has received and not granted again.
    received: usize,
}

/// The bytes that the client may still send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    connection: i64,
    stream: i64,
    /// The bytes for a new stream.
    initial: i64,
}

/// The progress of a call with one frame from the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Progress {
    has_message: bool,
    is_over: bool,
}

impl Http2 {
    /// Connects to a server and prepares calls of the method `path`, such as `/package.Service/Method`.
    pub(super) fn open(addr: SocketAddr, path: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut out = PREFACE.to_vec();
        push_frame(&mut out, SETTINGS, 0, 0, &[]);
        Ok(Self {
            reader: BufReader::new(socket),
            out,
            headers: headers(path, &addr.to_string())?,
            body: Vec::new(),
            stream: 0,
            flow: Flow {
                connection: WINDOW,
                stream: WINDOW,
                initial: WINDOW,
            },
            received: 0,
        })
    }

    /// Sends a message and waits until the server has answered it.
    ///
    /// # Errors
    ///
    /// The server answers with an error, or ends the connection.
    pub(super) fn call(&mut self, message: &[u8]) -> anyhow::Result<()> {
        // The first call has the stream 1, and each later one the next odd number.
        self.stream = if self.stream == 0 { 1 } else { self.stream + 2 };
        self.flow.stream = self.flow.initial;
        self.body.clear();
        self.body.push(0);
        let bytes = u32::try_from(message.len())?;
        self.body.extend_from_slice(&bytes.to_be_bytes());
        self.body.extend_from_slice(message);
        push_frame(
            &mut self.out,
            HEADERS,
            END_HEADERS,
            self.stream,
            &self.headers,
        );
        let mut progress = self.send_body()?;
        self.flush()?;
        while !progress.is_over {
            let next = self.receive()?;
            progress.has_message |= next.has_message;
            progress.is_over = next.is_over;
        }
        ensure!(
            progress.has_message,
            "the server answers the call with an error"
        );
        Ok(())
    }

    /// Sends the body in frames, as far as the server's windows allow, and waits for more where they do not.
    fn send_body(&mut self) -> anyhow::Result<Progress> {
        let mut sent = 0;
        let mut progress = Progress::default();
        while sent < self.body.len() {
            let room = self.flow.connection.min(self.flow.stream);
            let room = usize::try_from(room).unwrap_or(0).min(FRAME_MAX);
            if room == 0 {
                self.flush()?;
                let next = self.receive()?;
                ensure!(
                    !next.is_over,
                    "the server answers before it has the request"
                );
                progress.has_message |= next.has_message;
                continue;
            }
            let end = (sent + room).min(self.body.len());
            let flags = if end == self.body.len() {
                END_STREAM
            } else {
                0
            };
            let part = &self.body[sent..end];
            push_frame(&mut self.out, DATA, flags, self.stream, part);
            let bytes = i64::try_from(part.len())?;
            self.flow.connection -= bytes;
            self.flow.stream -= bytes;
            sent = end;
        }
        Ok(progress)
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.reader.get_mut().write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// Reads a frame and answers it, if it needs an answer.
    fn receive(&mut self) -> anyhow::Result<Progress> {
        let mut head = [0; HEAD];
        self.reader.read_exact(&mut head)?;
        let head = Head::of(head);
        ensure!(
            head.bytes <= FRAME_MAX,
            "expected a frame of at most {FRAME_MAX} bytes, got {}",
            head.bytes
        );
        let mut payload = vec![0; head.bytes];
        self.reader.read_exact(&mut payload)?;
        let is_current = head.stream == self.stream;
        let ends = is_current && head.flags & END_STREAM != 0;
        let mut progress = Progress::default();
        match head.kind {
            DATA => {
                self.received += payload.len();
                progress.has_message = is_current && !payload.is_empty();
                progress.is_over = ends;
                if self.received >= GRANT {
                    let more = u32::try_from(self.received)?.to_be_bytes();
                    self.answer(WINDOW_UPDATE, 0, &more)?;
                    self.received = 0;
                }
            }
            HEADERS => progress.is_over = ends,
            RST_STREAM => ensure!(!is_current, "the server resets the call"),
            SETTINGS if head.flags & ACK == 0 => {
                self.flow.set(&payload);
                self.answer(SETTINGS, ACK, &[])?;
            }
            PING if head.flags & ACK == 0 => self.answer(PING, ACK, &payload)?,
            GOAWAY => {
                let reason = String::from_utf8_lossy(payload.get(8..).unwrap_or_default());
                bail!("the server closes the connection: {reason}");
            }
            WINDOW_UPDATE => self.flow.grant(head.stream, self.stream, &payload),
            // The client needs nothing from the other frames.
            _ => {}
        }
        Ok(progress)
    }

    /// Sends a frame about the connection at once.
    fn answer(&mut self, kind: u8, flags: u8, payload: &[u8]) -> anyhow::Result<()> {
        let mut frame = Vec::with_capacity(HEAD + payload.len());
        push_frame(&mut frame, kind, flags, 0, payload);
        Ok(self.reader.get_mut().write_all(&frame)?)
    }
}

impl Flow {
    /// Takes over the server's settings, which are pairs of a name and a value.
    fn set(&mut self, settings: &[u8]) {
        for pair in settings.as_chunks::<6>().0 {
            let [a, b, value @ ..] = *pair;
            if u16::from_be_bytes([a, b]) == INITIAL_WINDOW_SIZE {
                let initial = i64::from(u32::from_be_bytes(value));
                self.stream += initial - self.initial;
                self.initial = initial;
            }
        }
    }

    fn grant(&mut self, stream: u32, current: u32, more: &[u8]) {
        let Ok(more) = more.try_into().map(u32::from_be_bytes) else {
            return;
        };
        if stream == 0 {
            self.connection += i64::from(more);
        } else if stream == current {
            self.stream += i64::from(more);
        }
    }
}

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    bytes: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn of([a, b, c, kind, flags, stream @ ..]: [u8; HEAD]) -> Self {
        let bytes = u32::from_be_bytes([0, a, b, c]);
        Self {
            bytes: bytes as usize,
            kind,
            flags,
            // The first bit has no meaning.
            stream: u32::from_be_bytes(stream) & (u32::MAX >> 1),
        }
    }
}

/// Returns whether the bytes that a server writes to a connection carry a message: a frame DATA.
pub(super) fn carries_message(mut written: &[u8]) -> bool {
    while let Some((head, rest)) = written.split_first_chunk::<HEAD>() {
        let head = Head::of(*head);
        if head.kind == DATA && head.bytes > 0 {
            return true;
        }
        written = rest.get(head.bytes..).unwrap_or_default();
    }
    false
}

fn push_frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    // The callers keep the payload below 16 KiB, so three bytes hold its length.
    let [.., a, b, c] = (payload.len() as u64).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Encodes the headers of a call by HPACK (RFC 7541), with names from its static table and literal values.
fn headers(path: &str, authority: &str) -> anyhow::Result<Vec<u8>> {
    const METHOD_POST: u8 = 0x80 | 3;
    const SCHEME_HTTP: u8 = 0x80 | 6;
    let mut out = vec![METHOD_POST, SCHEME_HTTP];
    // The entries 4 (`:path`), 1 (`:authority`) and 31 (`content-type`, in two bytes) of the table.
    for (name, value) in [
        (&[4][..], path),
        (&[1], authority),
        (&[15, 31 - 15], "application/grpc"),
    ] {
        out.extend_from_slice(name);
        push_text(&mut out, value)?;
    }
    out.push(0);
    push_text(&mut out, "te")?;
    push_text(&mut out, "trailers")?;
    Ok(out)
}

/// Appends a text of less than 127 bytes, so that one byte holds its length.
fn push_text(out: &mut Vec<u8>, text: &str) -> anyhow::Result<()> {
    ensure!(
        text.len() < 127,
        "expected a header of less than 127 bytes, got {}",
        text.len()
    );
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Reads a frame that the client sent.
    fn frame(socket: &mut TcpStream) -> (Head, Vec<u8>) {
        let mut head = [0; HEAD];
        socket.read_exact(&mut head).unwrap();
        let head = Head::of(head);
        let mut payload = vec![0; head.bytes];
        socket.read_exact(&mut payload).unwrap();
        (head, payload)
    }

    fn send(socket: &mut TcpStream, frames: &[(u8, u8, u32, &[u8])]) {
        let mut out = Vec::new();
        for &(kind, flags, stream, payload) in frames {
            push_frame(&mut out, kind, flags, stream, payload);
        }
        socket.write_all(&out).unwrap();
    }

    #[test]
    fn a_call_ends_with_its_answer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut client = Http2::open(listener.local_addr().unwrap(), "/p.S/M").unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut preface = [0; PREFACE.len()];
            socket.read_exact(&mut preface).unwrap();
            assert_eq!(preface, *PREFACE);
            assert_eq!(frame(&mut socket).0.kind, SETTINGS);
            let (head, block) = frame(&mut socket);
            let is_call = (head.kind, head.flags, head.stream) == (HEADERS, END_HEADERS, 1);
            assert!(is_call && block.windows(6).any(|part| part == b"/p.S/M"));
            let (head, body) = frame(&mut socket);
            assert_eq!((head.kind, head.flags, head.stream), (DATA, END_STREAM, 1));
            assert_eq!(body, [0, 0, 0, 0, 2, b'h', b'i']);
            let window = [0, 4, 0, 0, 0, 10];
            send(
                &mut socket,
                &[
                    (SETTINGS, 0, 0, &window),
                    (PING, 0, 0, b"12345678"),
                    (HEADERS, END_HEADERS, 1, &[0x88]),
                    (DATA, 0, 1, &[0; 5]),
                    (HEADERS, END_HEADERS | END_STREAM, 1, &[0x88]),
                ],
            );
            assert_eq!(frame(&mut socket).0.flags, ACK);
            assert_eq!(frame(&mut socket).1, b"12345678");
            // The window of a stream is ten bytes now, so the rest of the next body waits.
            assert_eq!(frame(&mut socket).0.stream, 3);
            assert_eq!(frame(&mut socket).1, [0, 0, 0, 0, 8, 1, 2, 3, 4, 5]);
            send(&mut socket, &[(WINDOW_UPDATE, 0, 3, &[0, 0, 1, 0])]);
            let (head, rest) = frame(&mut socket);
            assert_eq!((head.flags, rest), (END_STREAM, vec![6, 7, 8]));
            send(
                &mut socket,
                &[(HEADERS, END_HEADERS | END_STREAM, 3, &[0x88])],
            );
        });
        client.call(b"hi").unwrap();
        let refused = client.call(&[1, 2, 3, 4, 5, 6, 7, 8]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the server answers the call with an error"
        );
        server.join().unwrap();
    }

    #[test]
    fn an_answer_is_told_from_other_frames() {
        let mut written = Vec::new();
        push_frame(&mut written, PING, 0, 0, b"12345678");
        push_frame(&mut written, WINDOW_UPDATE, 0, 0, &[0, 0, 4, 0]);
        assert!(!carries_message(&written) && !carries_message(&[]));
        push_frame(&mut written, HEADERS, END_HEADERS, 1, &[0x88]);
        push_frame(&mut written, DATA, 0, 1, &[0; 7]);
        assert!(carries_message(&written));
        // A trace shows only the first bytes of a write.
        assert!(carries_message(&written[..written.len() - 3]));
    }

    #[test]
    fn headers_are_literals() {
        let block = headers("/a", "h").unwrap();
        let expected = [
            &[0x83, 0x86, 4, 2][..],
            b"/a",
            &[1, 1],
            b"h",
            &[15, 16, 16],
            b"application/grpc",
            &[0, 2],
            b"te",
            &[8],
            b"trailers",
        ];
        assert_eq!(block, expected.concat());
        assert!(headers(&"a".repeat(127), "h").is_err());
    }
}
