//! Tests both protocols byte by byte: the bytes of the core must match the transcripts. `>` marks the
//! client's bytes, `<` the server's.

use std::fmt::Write as _;
use std::time::Duration;

use super::pair::MS;
use tidegate::Time;
use tidegate_link::Seq;
use tidegate_link::frame::{Code, Layout};
use tidegate_link::hello::{Answer, Hello, SessionId};
use tidegate_link::proto::opening::{Kept, Opening, Terms, admit, detect, refused};
use tidegate_link::proto::{
    Block, Decide, Receiver, ReceiverConfig, Sender, SenderConfig, SessionConfig, cadence, writes,
};

const TERMS: Terms = Terms {
    window: 1 << 20,
    frame_max: 65_536,
    when_done: false,
    idle_ms: 30_000,
};

/// A client's sender and a server's receiver side by side, with a transcript of their bytes.
struct Talk {
    now: Time,
    sender: Sender,
    receiver: Option<Receiver>,
    text: String,
}

impl Talk {
    fn new(session: Option<bool>) -> Self {
        let session = session.map(|checked| SessionConfig {
            id: SessionId(*b"0123456789abcdef"),
            life: 0x1122_3344_5566_7788,
            checked,
            frame_max: 1000,
            token: b"secret".to_vec(),
        });
        let config = SenderConfig {
            session,
            held_max: 1 << 20,
            plain_window: 1 << 20,
            write_max: 1 << 16,
            opening: Duration::from_secs(5),
            stall: Duration::ZERO,
        };
        let now = Time::from_nanos(1);
        Self {
            now,
            sender: Sender::new(now, config, writes(1 << 16)),
            receiver: None,
            text: String::new(),
        }
    }

    fn note(&mut self, text: &str) {
        let _ = writeln!(self.text, "# {text}");
    }

    fn line(&mut self, way: char, bytes: &[u8]) {
        self.text.push(way);
        for b in bytes {
            let _ = write!(self.text, " {b:02x}");
        }
        self.text.push('\n');
    }

    /// Returns the bytes that the client sends now.
    fn up(&mut self) -> Vec<u8> {
        let mut slices = [&[][..]; 4];
        let n = self.sender.poll_transmit(self.now, &mut slices);
        let bytes = slices[..n].concat();
        self.sender.wrote(self.now, bytes.len(), 10_000);
        self.line('>', &bytes);
        bytes
    }

    fn answer(&mut self, kept: Option<Kept>, fresh: u64) {
        let bytes = self.up();
        let Ok(Opening::Session { hello, .. }) = detect(&bytes) else {
            panic!("no hello: {bytes:?}")
        };
        let welcome = admit(&hello, kept, &TERMS, fresh).expect("let in");
        self.receiver = Some(Receiver::session(self.now, &welcome, cadence()));
        let bytes = Answer::Welcome(welcome).encode();
        self.line('<', &bytes);
        self.sender
            .handle_read(self.now, &bytes)
            .expect("a welcome");
    }

    fn push(&mut self, first: u64, payloads: &[&[u8]]) {
        let mut bytes = Vec::new();
        let layout = self.sender.layout();
        for (n, p) in (first..).zip(payloads) {
            layout.encode(Seq::new(n), p, &mut bytes);
        }
        let (first, count) = (Seq::new(first), payloads.len() as u64);
        self.sender
            .push(
                self.now,
                Block {
                    bytes,
                    first,
                    count,
                },
            )
            .expect("room");
    }

    /// Passes the client's bytes to the server and the replies back, and notes both in the transcript.
    fn exchange(&mut self) {
        let bytes = self.up();
        let r = self.receiver.as_mut().expect("connected");
        let mut at = 0;
        loop {
            let batch = r.handle_read(self.now, &bytes[at..]).expect("good frames");
            at += batch.taken;
            if batch.taken == 0 || r.is_closing() {
                break;
            }
        }
        assert_eq!(at, bytes.len());
        self.down();
    }

    fn down(&mut self) {
        while let Some(unit) = self
            .receiver
            .as_mut()
            .and_then(|r| r.poll_transmit(self.now))
        {
            let unit = unit.to_vec();
            self.line('<', &unit);
            self.sender.handle_read(self.now, &unit).expect("a reply");
            if let Some(r) = &mut self.receiver {
                r.wrote(self.now, unit.len(), 10_000);
            }
        }
        self.now = self.now.after(10 * MS);
    }

    fn matches(self, name: &str) {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/proto/golden")
            .join(name);
        if std::env::var_os("TRANSCRIPTS").is_some_and(|v| v == "write") {
            std::fs::write(&path, &self.text).expect("write the transcript");
        }
        let golden = std::fs::read_to_string(&path).expect("the transcript");
        assert_eq!(
            self.text, golden,
            "{name}; if it is meant: TRANSCRIPTS=write, and read the diff"
        );
    }
}

#[test]
fn plain() {
    let mut t = Talk::new(None);
    t.sender.handle_connected(t.now);
    let config = ReceiverConfig {
        frame_max: 65_536,
        window: 1 << 20,
        when_done: false,
        idle: Duration::ZERO,
    };
    t.receiver = Some(Receiver::plain(t.now, config, cadence()));
    t.note("message 0, \"hello\"; acknowledged: id 0, none omitted, -1 + 0 + 1 = 0");
    t.push(1, &[b"hello"]);
    t.exchange();
    t.note("messages 1 and 2 (empty); acknowledged: id 2, one omitted");
    t.push(2, &[b"a", b""]);
    t.exchange();
    t.note("message 3; the client closes its direction, the server acknowledges and closes");
    t.push(4, &[b"bye"]);
    t.sender.close();
    t.exchange();
    let r = t.receiver.as_mut().expect("connected");
    r.handle_eof(t.now, 0).expect("nothing is left");
    t.down();
    assert!(t.receiver.as_ref().is_some_and(Receiver::is_finished));
    assert!(t.sender.is_drained());
    t.matches("plain.txt");
}

#[test]
fn session() {
    let mut t = Talk::new(Some(false));
    t.note("hello: version 1, no checksums, life, epoch 0, acked 0, sent 0, messages of up to 1000 bytes, token \"secret\"");
    t.note("welcome: kind 1, version 1, acknowledged on receipt, epoch 0xe0, received 0, acked 0, window 1 MiB, 64 KiB, 30 s");
    t.sender.handle_connected(t.now);
    t.answer(None, 0xE0);
    t.note("messages 1 to 3; acknowledged: 3, two omitted");
    t.push(1, &[b"one", b"two", b""]);
    t.exchange();
    t.note("nothing for ten seconds: a ping; the pong says that 3 are received");
    t.now = t.now.after(10_000 * MS);
    t.sender.handle_timeout(t.now).expect("all is well");
    t.exchange();
    t.note("message 4; then close; acknowledged, then bye: drained (0)");
    t.push(4, &[b"four"]);
    t.exchange();
    t.sender.close();
    t.exchange();
    assert!(t.receiver.as_ref().is_some_and(Receiver::is_finished));
    t.matches("session.txt");
}

#[test]
fn resume() {
    let mut t = Talk::new(Some(true));
    t.note("a session with checksums; two messages are sent, the connection breaks before any acknowledgement");
    t.sender.handle_connected(t.now);
    t.answer(None, 0xE0);
    t.push(1, &[b"one", b"two"]);
    t.up();
    t.sender.handle_cut().expect("a session outlives a cut");
    t.note("the server has the first: the second is sent again");
    t.sender.handle_connected(t.now);
    let kept = Kept {
        epoch: 0xE0,
        received: Seq::new(1),
        acked: Seq::new(1),
        life: Some(0x1122_3344_5566_7788),
    };
    t.answer(Some(kept), 0xE0);
    t.exchange();
    t.note("message 3 is sent, the connection breaks, the server forgets: a new epoch; the client drops message 3");
    t.push(3, &[b"three"]);
    t.up();
    t.sender.handle_cut().expect("a session outlives a cut");
    t.sender.handle_connected(t.now);
    t.answer(None, 0xE1);
    t.sender.decide(t.now, Decide::Drop).expect("dropped");
    t.exchange();
    t.push(4, &[b"four"]);
    t.exchange();
    t.matches("resume.txt");
}

#[test]
fn refusal() {
    let mut t = Talk::new(Some(false));
    t.note("refused: kind 2, code 6 (token), and a text");
    t.sender.handle_connected(t.now);
    t.up();
    let bytes = Answer::Refused(refused(Code::Token, "the token is wrong")).encode();
    t.line('<', &bytes);
    t.sender.handle_read(t.now, &bytes).expect_err("refused");
    t.matches("refusal.txt");
}

/// Tests that the checksums in the transcripts match a computation that follows the document and does not use
/// the library.
#[test]
fn checksums_are_crc32c() {
    fn crc(bytes: &[u8]) -> u32 {
        !bytes.iter().fold(!0u32, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |c, _| {
                if c & 1 == 1 {
                    c >> 1 ^ 0x82F6_3B78
                } else {
                    c >> 1
                }
            })
        })
    }
    assert_eq!(crc(b"123456789"), 0xE306_9283, "the check value of CRC-32C");
    let hello = Hello {
        version: 1,
        checked: true,
        session: SessionId([3; 16]),
        life: 1,
        epoch: 0,
        acked: Seq::NONE,
        sent: Seq::NONE,
        frame_max: 0,
        token: b"t".to_vec(),
    };
    let bytes = hello.encode();
    let (body, sum) = bytes.split_at(bytes.len() - 4);
    assert_eq!(crc(body).to_le_bytes(), sum);
    let mut frame = Vec::new();
    Layout::Checked.encode(Seq::new(258), b"payload", &mut frame);
    let covered = [&258u64.to_le_bytes()[..], &frame[..11]].concat();
    assert_eq!(crc(&covered).to_le_bytes(), frame[11..]);
}
