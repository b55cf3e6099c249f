//! The seeds of the link's fuzz targets: frames, replies and handshakes, and conversations of a client and a
//! server.

use tidegate_link::Seq;
use tidegate_link::frame::{Code, Layout, Reply};
use tidegate_link::hello::{Answer, Hello, Refused, SessionId, VERSION, Welcome};

use super::seeds::Seed;

const LAYOUTS: [(&str, Layout); 3] = [
    ("plain", Layout::Plain),
    ("session", Layout::Session),
    ("checked", Layout::Checked),
];

/// Returns three messages as frames, with numbers from `first` on.
fn frames(layout: Layout, first: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (seq, payload) in (first..).zip([&b"hello"[..], b"", &[7; 60]]) {
        layout.encode(Seq::new(seq), payload, &mut bytes);
    }
    bytes
}

/// Returns the seeds of `link_codec`: frames of each layout, each kind of reply, and each kind of handshake.
pub(crate) fn codec() -> Vec<Seed> {
    let mut all: Vec<Seed> = LAYOUTS
        .map(|(name, layout)| (format!("frames-{name}"), frames(layout, 1)))
        .into();
    let replies = [
        ("ack", ack(7, 3)),
        ("bye", Reply::Bye(Code::Idle)),
        ("pong", Reply::Pong { received: 9 }),
    ];
    all.extend(replies.map(|(name, reply)| (format!("reply-{name}"), reply.encode().to_vec())));
    let hello = Hello {
        version: VERSION,
        checked: true,
        session: SessionId([3; 16]),
        life: 4,
        epoch: 5,
        acked: Seq::new(6),
        sent: Seq::new(8),
        frame_max: 1000,
        token: b"secret".to_vec(),
    };
    all.push(("hello".to_owned(), hello.encode()));
    let welcome = Answer::Welcome(Welcome {
        version: VERSION,
        checked: true,
        when_done: true,
        session: SessionId([3; 16]),
        epoch: 5,
        received: Seq::new(7),
        acked: Seq::new(6),
        window: 1 << 20,
        frame_max: 1000,
        idle_ms: 30_000,
    });
    all.push(("welcome".to_owned(), welcome.encode()));
    let refused = Answer::Refused(Refused {
        code: Code::Token,
        text: "the token is wrong".to_owned(),
    });
    all.push(("refused".to_owned(), refused.encode()));
    all
}

/// Returns the seeds of `link_receiver`: the frames of a client in pieces, with acknowledgements and passing
/// time in between.
pub(crate) fn receiver() -> Vec<Seed> {
    let mut all = Vec::new();
    // The target knows these kinds of receivers, without their lowest bit: plain, with a session, with
    // checksums.
    for (kind, (name, layout)) in [0, 2, 4].into_iter().zip(LAYOUTS) {
        for when_done in [0, 1] {
            let (done_every, idle) = (2, 200);
            let mut input = vec![kind | when_done, done_every, idle];
            // A session continues behind the message that the welcome names as received.
            let first = if kind == 0 {
                1
            } else {
                u64::from(done_every) + 1
            };
            for (part, what) in frames(layout, first)
                .chunks(11)
                .zip([1, 5, 0, 4, 2].into_iter().cycle())
            {
                input.extend_from_slice(&[u8::try_from(part.len()).unwrap(), what]);
                input.extend_from_slice(part);
            }
            input.extend_from_slice(&[0, 5, 0, 2, 0, 255]);
            let done = if when_done == 1 { "-when-done" } else { "" };
            all.push((format!("{name}{done}"), input));
        }
    }
    all
}

/// Returns the seeds of `link_sender`: conversations in which the server welcomes the client and acknowledges
/// messages, or breaks the connection and welcomes the client again.
pub(crate) fn sender() -> Vec<Seed> {
    // Each step of a conversation has a kind and two numbers.
    let conversations: [(&str, u8, &[[u8; 3]]); 3] = [
        (
            "session",
            0,
            &[
                [0, 0, 0],
                [2, 0, 0],
                [4, 3, 9],
                [5, 255, 0],
                [3, 2, 1],
                [6, 5, 10],
                [5, 255, 0],
            ],
        ),
        (
            "checked-cut",
            2,
            &[
                [0, 0, 0],
                [2, 0, 0],
                [4, 5, 9],
                [5, 255, 0],
                [7, 0, 0],
                [0, 0, 0],
                [2, 1, 0],
                [5, 255, 0],
            ],
        ),
        (
            "plain",
            1,
            &[[0, 0, 0], [4, 2, 5], [5, 255, 0], [3, 1, 0], [6, 1, 1]],
        ),
    ];
    let mut all: Vec<Seed> = Vec::new();
    for (name, kind, steps) in conversations {
        all.push((
            name.to_owned(),
            [&[kind, 20], steps.concat().as_slice()].concat(),
        ));
    }
    // In this conversation the server sends the bytes of encoded replies.
    let mut raw = vec![0, 20, 0, 0, 0, 2, 0, 0, 4, 3, 9, 5, 255, 0, 1, 12, 0];
    raw.extend_from_slice(&ack(2, 1).encode());
    raw.extend_from_slice(&[1, 12, 0]);
    raw.extend_from_slice(&Reply::Bye(Code::Closing).encode());
    all.push(("raw".to_owned(), raw));
    all
}

const fn ack(latest: u64, omitted: u32) -> Reply {
    Reply::Ack { latest, omitted }
}
