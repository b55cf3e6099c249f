//! Tests clients that misbehave: the server handles each of them, and other clients notice nothing.

use std::io::Write;
use std::net::Shutdown;

use super::raw::Raw;
use super::{Running, start};

/// Checks that the server still serves another client well.
fn all_is_well(server: &Running) {
    let mut raw = Raw::connect(server);
    raw.done("CONNECT {\"verbose\":false}\r\nSUB well 1\r\n");
    let seen = raw.done("PUB well 2\r\nhi\r\n");
    assert!(seen.starts_with("MSG well 1 2\r\nhi\r\n"), "{seen}");
}

#[test]
fn nonsense_is_answered_and_closed() {
    let server = start("max_payload: 100\nmax_control_line: 128");
    for (text, answer) in [
        (
            "GET / HTTP/1.1\r\n\r\n".to_owned(),
            "Unknown Protocol Operation",
        ),
        ("\0\0\0\0".into(), "Unknown Protocol Operation"),
        ("\x16\x03\x01".into(), "Unknown Protocol Operation"),
        ("PUB a 5\r\nhello!!".into(), "Unknown Protocol Operation"),
        (
            "CONNECT {".to_owned() + "\r\n",
            "Unknown Protocol Operation",
        ),
        ("CONNECT [1]\r\n".into(), "Unknown Protocol Operation"),
        ("PUB a 101\r\n".into(), "Maximum Payload Violation"),
        (
            "SUB ".to_owned() + &"x".repeat(200),
            "maximum control line exceeded",
        ),
        (
            "PUB ".to_owned() + &"x".repeat(200) + " 1\r\n",
            "maximum control line exceeded",
        ),
        (
            "PUB a 99999999999999999999999999\r\n".into(),
            "Unknown Protocol Operation",
        ),
        ("HPUB a 5 3\r\nabc\r\n".into(), "Unknown Protocol Operation"),
    ] {
        let mut raw = Raw::connect(&server);
        raw.send(&text);
        let rest = raw.rest();
        assert!(
            rest.ends_with(&format!("-ERR '{answer}'\r\n")),
            "{text:?}: {rest:?}"
        );
    }
    all_is_well(&server);
}

/// Writes subscriptions to all patterns of a subject of `tokens` times `a`, with each token as it is or as a
/// wildcard.
fn overlapping(tokens: u32) -> String {
    let pattern = |n: u32| {
        let token = |bit: u32| if n >> bit & 1 == 1 { "*" } else { "a" };
        let tokens: Vec<_> = (0..tokens).map(token).collect();
        format!("SUB {} {n}\r\n", tokens.join("."))
    };
    (0..1 << tokens).map(pattern).collect()
}

/// One connection publishes messages that a second one receives a thousand times each, and reads as fast as
/// it can. The server answers a third client's pings meanwhile, and delivers each copy, although the
/// publisher has closed its socket at once.
#[test]
fn a_publisher_with_many_receivers_does_not_hold_up_others() {
    const TOKENS: u32 = 10;
    const PUBLISHED: usize = 1000;
    let server = start("ping_interval: \"60s\"");
    let mut receiver = Raw::connect(&server);
    receiver.done(&format!(
        "CONNECT {{\"verbose\":false}}\r\n{}",
        overlapping(TOKENS)
    ));
    let subject = vec!["a"; TOKENS as usize].join(".");
    let (bomb, copies) = (
        format!("PUB {subject} 2\r\nhi\r\n").repeat(PUBLISHED),
        PUBLISHED << TOKENS,
    );
    let reading = std::thread::spawn(move || receiver.count(b'h', copies));
    let mut neighbour = Raw::connect(&server);
    neighbour.done("CONNECT {\"verbose\":false}\r\n");
    let mut publisher = Raw::connect(&server);
    publisher.send("CONNECT {\"verbose\":false}\r\n");
    publisher.send(bomb);
    publisher.stream.shutdown(Shutdown::Write).unwrap();
    let mut answered = 0;
    while !reading.is_finished() {
        neighbour.done("");
        answered += 1;
    }
    assert_eq!(reading.join().unwrap(), copies);
    // Each turn of the loop does a slice of the work, and answers the ping that has come meanwhile.
    assert!(answered > 20, "{answered}");
}

/// Checks that under any controller the server delivers everything, and lets no lone message wait for ever.
#[test]
fn any_controller_will_do() {
    for controller in [
        "greedy",
        "fixed:1000,5ms",
        "knee:cost=1%",
        "knee:throughput",
        "knee:p99=1ms",
        "aimd:64",
        "rueidis-stats:100us",
    ] {
        let server = start(&format!("controller: \"{controller}\""));
        let mut reader = Raw::connect(&server);
        reader.done("CONNECT {\"verbose\":false}\r\nSUB a 1\r\n");
        let mut writer = Raw::connect(&server);
        writer.done("CONNECT {\"verbose\":false}\r\n");
        for n in [1, 2000, 1] {
            writer.send("PUB a 1\r\nx\r\n".repeat(n));
            for _ in 0..n {
                assert_eq!(reader.until("x\r\n"), "MSG a 1 1\r\nx\r\n", "{controller}");
            }
        }
    }
}

#[test]
fn one_byte_at_a_time() {
    let server = start("");
    let mut raw = Raw::connect(&server);
    for byte in b"CONNECT {\"verbose\":false}\r\nSUB a.b 1\r\nPUB a.b 5\r\nhello\r\nPING\r\n" {
        raw.send([*byte]);
    }
    assert!(raw.until("PONG\r\n").contains("MSG a.b 1 5\r\nhello\r\n"));
}

/// The server closes the connection of a client that never reads at a backlog of `max_pending`; the publisher
/// and other clients go on.
#[test]
fn a_reader_that_never_reads_is_cut_off() {
    let server = start("max_pending: 1MB");
    let mut deaf = Raw::connect(&server);
    deaf.send("CONNECT {\"verbose\":false}\r\nSUB flood 1\r\n");
    deaf.done("");
    let mut good = Raw::connect(&server);
    good.done("CONNECT {\"verbose\":false}\r\nSUB other 1\r\n");
    let mut publisher = Raw::connect(&server);
    publisher.done("CONNECT {\"verbose\":false}\r\n");
    let message = format!("PUB flood 65536\r\n{}\r\n", "x".repeat(65536));
    // The publisher sends more than the socket buffers and `max_pending` hold.
    for _ in 0..512 {
        publisher.send(&message);
    }
    publisher.done("PUB other 1\r\nx\r\n");
    good.until("MSG other 1 1\r\nx\r\n");
    // The bytes that the client did get end in the middle of a message.
    let rest = deaf.rest();
    assert!(rest.len() < 512 * 65536, "{} bytes", rest.len());
    all_is_well(&server);
}

/// Checks that a late reader gets everything, in order, however often its socket was full.
#[test]
fn a_slow_reader_within_bounds_loses_nothing() {
    let server = start("");
    let mut slow = Raw::connect(&server);
    slow.done("CONNECT {\"verbose\":false}\r\nSUB flood 1\r\n");
    let mut publisher = Raw::connect(&server);
    publisher.done("CONNECT {\"verbose\":false}\r\n");
    let mut expected = String::new();
    for i in 0..200_000 {
        expected += &format!("MSG flood 1 12\r\n{i:012}\r\n");
    }
    let text: String = (0..200_000)
        .map(|i| format!("PUB flood 12\r\n{i:012}\r\n"))
        .collect();
    publisher.done(&text);
    slow.send("PING\r\n");
    let got = slow.until("PONG\r\n");
    assert!(
        got == expected + "PONG\r\n",
        "{} bytes, {} expected",
        got.len(),
        text.len()
    );
}

#[test]
fn half_open_and_vanishing_clients() {
    let server = start("");
    // The client writes, closes its writing half, and reads on. The server handles the client's requests, and
    // then closes the connection.
    let mut half = Raw::connect(&server);
    half.send("CONNECT {\"verbose\":false}\r\nSUB a 1\r\nPUB a 1\r\nx\r\n");
    half.stream.shutdown(Shutdown::Write).unwrap();
    half.rest();
    // The test's clients disconnect in the middle of an operation.
    for text in ["", "CONN", "PUB a 100\r\nxxx", "SUB a 1\r\nPUB a 1\r\n"] {
        let mut raw = Raw::silent(&server);
        raw.stream.write_all(text.as_bytes()).unwrap();
        drop(raw);
    }
    all_is_well(&server);
}

#[test]
fn too_many_connections() {
    let server = start("max_connections: 2");
    let (mut a, _b) = (Raw::connect(&server), Raw::connect(&server));
    let mut c = Raw::silent(&server);
    assert_eq!(c.rest(), "-ERR 'maximum connections exceeded'\r\n");
    // The server frees the place of a closed connection once it learns of the end, so the test tries again
    // until then.
    a.done("");
    drop(a);
    loop {
        let mut d = Raw::silent(&server);
        if d.until("\r\n").starts_with("INFO ") {
            break;
        }
    }
}

#[test]
fn no_credentials_in_time() {
    let server = start("authorization { token: t, timeout: 0.2 }");
    let mut silent = Raw::connect(&server);
    assert_eq!(silent.rest(), "-ERR 'Authentication Timeout'\r\n");
    let mut early = Raw::connect(&server);
    early.send("PUB a 1000000\r\n");
    assert_eq!(early.rest(), "-ERR 'Authorization Violation'\r\n");
}

#[test]
fn a_silent_client_is_asked_and_then_closed() {
    let server = start("ping_interval: 0.1, ping_max: 2");
    let mut silent = Raw::connect(&server);
    assert_eq!(silent.rest(), "PING\r\nPING\r\n-ERR 'Stale Connection'\r\n");
}

/// A client makes requests of the old kind, with a subscription each: the server must keep none of these
/// subscriptions.
#[test]
fn subscriptions_come_and_go() {
    let server = start("");
    let mut raw = Raw::connect(&server);
    raw.done("CONNECT {\"verbose\":false}\r\n");
    for i in 0..5_000 {
        let text = format!("SUB inbox.{i} {i}\r\nUNSUB {i} 1\r\nPUB inbox.{i} 1\r\nx\r\n");
        if i % 100 == 0 {
            assert!(
                raw.done(&text)
                    .contains(&format!("MSG inbox.{i} {i} 1\r\n"))
            );
        } else {
            raw.send(text);
        }
    }
    raw.done("");
    all_is_well(&server);
}
