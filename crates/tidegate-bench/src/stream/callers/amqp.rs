//! A connection of AMQP 0-9-1 that publishes one message at a time into a quorum queue and waits for the
//! server's confirmation.
//!
//! The bench has this client of its own, because its callers block, as those of every other system do. The
//! client understands only the methods that such publishing needs.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{bail, ensure};

/// The bytes with which a client opens a connection.
const PREFACE: &[u8] = b"AMQP\0\0\x09\x01";
/// The longest time that the client waits for a frame.
const PATIENCE: Duration = Duration::from_secs(60);
/// The byte behind each frame's payload.
const END: u8 = 0xce;
/// The bytes of a frame around its payload.
const AROUND: usize = 8;
/// The most bytes of a frame that the client accepts until both sides have agreed on a limit.
const FRAME_MAX: usize = 1 << 20;

/// The types of frames.
const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;

/// The only channel of the connection, besides the channel 0 for the connection itself.
const CHANNEL: u16 = 1;
/// The class of messages, and the property of a message that it survives a restart.
const BASIC: u16 = 60;
const DELIVERY_MODE: u16 = 1 << 12;
const PERSISTENT: u8 = 2;
/// The flag of PUBLISH: the server returns a message without a queue. Without the flag it would confirm the
/// message and drop it.
const MANDATORY: u8 = 1;
/// The flag of DECLARE: the queue survives a restart.
const DURABLE: u8 = 2;

/// The methods, each with the number of its class.
const START: Method = Method(10, 10);
const START_OK: Method = Method(10, 11);
const TUNE: Method = Method(10, 30);
const TUNE_OK: Method = Method(10, 31);
const OPEN: Method = Method(10, 40);
const OPEN_OK: Method = Method(10, 41);
const CLOSE: Method = Method(10, 50);
const CHANNEL_OPEN: Method = Method(20, 10);
const CHANNEL_OPEN_OK: Method = Method(20, 11);
const CHANNEL_CLOSE: Method = Method(20, 40);
const DECLARE: Method = Method(50, 10);
const DECLARE_OK: Method = Method(50, 11);
const SELECT: Method = Method(85, 10);
const SELECT_OK: Method = Method(85, 11);
const PUBLISH: Method = Method(BASIC, 40);
const RETURN: Method = Method(BASIC, 50);
const ACK: Method = Method(BASIC, 80);
const NACK: Method = Method(BASIC, 120);

/// The class and the number of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Method(u16, u16);

impl Method {
    fn bytes(self) -> [u8; 4] {
        let ([a, b], [c, d]) = (self.0.to_be_bytes(), self.1.to_be_bytes());
        [a, b, c, d]
    }
}

/// A connection with a channel on which the server confirms each message.
pub(super) struct Amqp {
    reader: BufReader<TcpStream>,
    payload: Vec<u8>,
    /// The most bytes of a frame.
    frame_max: usize,
}

impl Amqp {
    /// Logs in as the user `guest`, opens a channel with confirmations, and declares the quorum queue.
    ///
    /// # Errors
    ///
    /// The server refuses a step, or ends the connection.
    pub(super) fn open(addr: SocketAddr, queue: &str) -> anyhow::Result<Self> {
        let socket = TcpStream::connect(addr)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut amqp = Self {
            reader: BufReader::new(socket),
            payload: Vec::new(),
            frame_max: FRAME_MAX,
        };
        amqp.write(PREFACE)?;
        amqp.wait_for(START)?;
        let mut login = Vec::new();
        // The client has no properties.
        login.extend_from_slice(&0_u32.to_be_bytes());
        push_short(&mut login, "PLAIN");
        push_long(&mut login, b"\0guest\0guest");
        push_short(&mut login, "en_US");
        amqp.send(0, START_OK, &login)?;
        amqp.wait_for(TUNE)?;
        // The client takes the server's limits, and wants no heartbeats.
        let limits = tuned(&amqp.payload)?;
        amqp.frame_max = limits.frame_max;
        amqp.send(0, TUNE_OK, &limits.bytes())?;
        // The virtual host `/`, and two fields without a meaning.
        amqp.send(0, OPEN, &[1, b'/', 0, 0])?;
        amqp.wait_for(OPEN_OK)?;
        amqp.send(CHANNEL, CHANNEL_OPEN, &[0])?;
        amqp.wait_for(CHANNEL_OPEN_OK)?;
        amqp.send(CHANNEL, DECLARE, &declared(queue))?;
        amqp.wait_for(DECLARE_OK)?;
        amqp.send(CHANNEL, SELECT, &[0])?;
        amqp.wait_for(SELECT_OK)?;
        Ok(amqp)
    }

    /// Encodes a message for [`Amqp::call`].
    pub(super) fn message(&self, queue: &str, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(payload.len() + 128);
        // A field without a meaning, and the default exchange.
        let mut arguments = vec![0, 0, 0];
        push_short(&mut arguments, queue);
        arguments.push(MANDATORY);
        push_method(&mut out, CHANNEL, PUBLISH, &arguments);
        let mut header = BASIC.to_be_bytes().to_vec();
        header.extend_from_slice(&[0, 0]);
        header.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        header.extend_from_slice(&DELIVERY_MODE.to_be_bytes());
        header.push(PERSISTENT);
        push_frame(&mut out, HEADER, CHANNEL, &header);
        for part in payload.chunks(self.frame_max - AROUND) {
            push_frame(&mut out, BODY, CHANNEL, part);
        }
        out
    }

    /// Publishes a message and waits until the server has confirmed it.
    ///
    /// # Errors
    ///
    /// The server does not take the message, or ends the connection.
    pub(super) fn call(&mut self, message: &[u8]) -> anyhow::Result<()> {
        self.write(message)?;
        self.wait_for(ACK)
    }

    /// Reads frames until the method `wanted` comes. Its arguments are then in `payload`, behind its number.
    fn wait_for(&mut self, wanted: Method) -> anyhow::Result<()> {
        loop {
            let kind = self.read()?;
            let Some(head) = self.payload.first_chunk::<4>().filter(|_| kind == METHOD) else {
                continue;
            };
            let is = |method: Method| *head == method.bytes();
            if is(wanted) {
                return Ok(());
            }
            ensure!(!is(NACK), "the server does not take the message");
            ensure!(!is(RETURN), "the server has no queue for the message");
            if is(CLOSE) || is(CHANNEL_CLOSE) {
                bail!("the server closes: {}", reason(&self.payload));
            }
        }
    }

    /// Reads a frame into `payload`, and returns its type.
    fn read(&mut self) -> anyhow::Result<u8> {
        let mut head = [0; AROUND - 1];
        self.reader.read_exact(&mut head)?;
        let [kind, _, _, bytes @ ..] = head;
        let bytes = u32::from_be_bytes(bytes) as usize;
        ensure!(
            bytes <= FRAME_MAX,
            "expected a frame of at most {FRAME_MAX} bytes, got {bytes}"
        );
        self.payload.resize(bytes, 0);
        self.reader.read_exact(&mut self.payload)?;
        let mut end = [0];
        self.reader.read_exact(&mut end)?;
        ensure!(end == [END], "expected the end of a frame, got {end:?}");
        Ok(kind)
    }

    fn send(&mut self, channel: u16, method: Method, arguments: &[u8]) -> anyhow::Result<()> {
        let mut out = Vec::new();
        push_method(&mut out, channel, method, arguments);
        self.write(&out)
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        Ok(self.reader.get_mut().write_all(bytes)?)
    }
}

/// The limits that the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limits {
    channels: u16,
    frame_max: usize,
}

impl Limits {
    /// Encodes the limits as the client's answer, without heartbeats.
    fn bytes(self) -> [u8; 8] {
        let [a, b] = self.channels.to_be_bytes();
        let [c, d, e, f] = (self.frame_max as u32).to_be_bytes();
        [a, b, c, d, e, f, 0, 0]
    }
}

/// Reads the limits in the method TUNE. A server without a limit of frames gets the client's.
fn tuned(payload: &[u8]) -> anyhow::Result<Limits> {
    let &[_, _, _, _, a, b, c, d, e, f, ..] = payload else {
        bail!("expected the limits of the server, got {payload:?}");
    };
    let frame_max = match u32::from_be_bytes([c, d, e, f]) as usize {
        0 => FRAME_MAX,
        bytes => bytes.min(FRAME_MAX),
    };
    ensure!(frame_max > AROUND, "a limit of {frame_max} bytes a frame");
    Ok(Limits {
        channels: u16::from_be_bytes([a, b]),
        frame_max,
    })
}

/// Returns the text in a method CLOSE, behind a number of two bytes and the text's length.
fn reason(payload: &[u8]) -> String {
    let text = payload.get(6..).and_then(|rest| {
        let (&bytes, rest) = rest.split_first()?;
        rest.get(..bytes.into())
    });
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

/// Encodes the declaration of a durable quorum queue.
fn declared(queue: &str) -> Vec<u8> {
    let mut table = Vec::new();
    push_short(&mut table, "x-queue-type");
    table.push(b'S');
    push_long(&mut table, b"quorum");
    let mut out = vec![0, 0];
    push_short(&mut out, queue);
    out.push(DURABLE);
    push_long(&mut out, &table);
    out
}

/// Returns whether the bytes that a server writes to a connection carry a confirmation.
pub(super) fn carries_ack(mut written: &[u8]) -> bool {
    while let Some(([kind, _, _, bytes @ ..], rest)) = written.split_first_chunk::<7>() {
        if *kind == METHOD && rest.starts_with(&ACK.bytes()) {
            return true;
        }
        let bytes = u32::from_be_bytes(*bytes) as usize;
        written = rest.get(bytes + 1..).unwrap_or_default();
    }
    false
}

fn push_method(out: &mut Vec<u8>, channel: u16, method: Method, arguments: &[u8]) {
    let payload = [&method.bytes()[..], arguments].concat();
    push_frame(out, METHOD, channel, &payload);
}

fn push_frame(out: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&channel.to_be_bytes());
    push_long(out, payload);
    out.push(END);
}

/// Appends a text of at most 255 bytes.
fn push_short(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

/// Appends bytes behind their number.
fn push_long(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connected() -> (Amqp, TcpStream) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let amqp = Amqp {
            reader: BufReader::new(socket),
            payload: Vec::new(),
            frame_max: 16,
        };
        (amqp, listener.accept().unwrap().0)
    }

    #[test]
    fn a_connection_opens_step_by_step() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut socket, _) = listener.accept().unwrap();
            let mut preface = [0; PREFACE.len()];
            socket.read_exact(&mut preface).unwrap();
            assert_eq!(preface, *PREFACE);
            let limits: [u8; 8] = [0, 5, 0, 2, 0, 0, 0, 60];
            let mut peer = Amqp {
                reader: BufReader::new(socket),
                payload: Vec::new(),
                frame_max: FRAME_MAX,
            };
            for (said, arguments, answered) in [
                (START, &[][..], START_OK),
                (TUNE, &limits, TUNE_OK),
                (OPEN_OK, &[0], CHANNEL_OPEN),
                (CHANNEL_OPEN_OK, &[], DECLARE),
                (DECLARE_OK, &[], SELECT),
            ] {
                peer.send(0, said, arguments).unwrap();
                peer.wait_for(answered).unwrap();
                if answered == TUNE_OK {
                    assert_eq!(peer.payload[4..], [0, 5, 0, 2, 0, 0, 0, 0]);
                    peer.wait_for(OPEN).unwrap();
                }
            }
            peer.send(0, SELECT_OK, &[]).unwrap();
        });
        let amqp = Amqp::open(addr, "q").unwrap();
        assert_eq!(amqp.frame_max, 0x20000);
        server.join().unwrap();
    }

    #[test]
    fn a_message_is_cut_into_frames() {
        let (amqp, _server) = connected();
        let message = amqp.message("q", b"0123456789");
        let publish = [1, 0, 1, 0, 0, 0, 10, 0, 60, 0, 40, 0, 0, 0, 1, b'q', 1, END];
        let header = [
            2, 0, 1, 0, 0, 0, 15, 0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0x10, 0, 2, END,
        ];
        let bodies = b"\x03\0\x01\0\0\0\x0801234567\xce\x03\0\x01\0\0\0\x0289\xce";
        assert_eq!(message, [&publish[..], &header, bodies].concat());
    }

    #[test]
    fn only_an_ack_is_a_success() {
        for (method, expected) in [
            (ACK, None),
            (NACK, Some("the server does not take the message")),
            (RETURN, Some("the server has no queue for the message")),
            (CHANNEL_CLOSE, Some("the server closes: no")),
        ] {
            let (mut amqp, mut server) = connected();
            let mut out = Vec::new();
            // A heartbeat comes first.
            push_frame(&mut out, 8, 0, &[]);
            assert!(!carries_ack(&out));
            push_method(
                &mut out,
                CHANNEL,
                method,
                &[1, 2, 2, b'n', b'o', 0, 0, 0, 0],
            );
            server.write_all(&out).unwrap();
            let found = amqp.call(b"").err().map(|e| e.to_string());
            assert_eq!(found.as_deref(), expected);
            assert_eq!(carries_ack(&out), method == ACK);
        }
    }

    #[test]
    fn a_quorum_queue_is_declared() {
        let expected = b"\0\0\x01q\x02\0\0\0\x18\x0cx-queue-typeS\0\0\0\x06quorum";
        assert_eq!(declared("q"), expected);
    }
}
