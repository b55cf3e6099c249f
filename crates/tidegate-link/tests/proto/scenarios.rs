//! Tests scenarios: cuts at every byte, half-open connections, two lives, restarts, acknowledgements when
//! done.

use super::pair::*;
use tidegate_link::proto::{Decide, Doubt, Event, SenderError};
use tidegate_link::{Seq, frame::Code};

fn bye(w: &World, client: usize) -> Option<Code> {
    w.clients[client].events.iter().rev().find_map(|e| match e {
        Event::Bye(code) => Some(*code),
        _ => None,
    })
}

fn finished(w: &World, client: usize, n: u64) {
    let c = &w.clients[client];
    assert!(c.sender.is_drained(), "{:?} {:?}", c.sender, c.errors);
    assert_eq!(c.sender.acked().get(), n);
    if !w.options.plain {
        assert_eq!(w.sessions[&SESSION].received, n);
    }
}

#[test]
fn a_session_delivers_and_drains() {
    for (checked, when_done) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut w = World::new(Options {
            checked,
            when_done,
            done_ns: 3 * MS,
            ..Options::default()
        });
        let c = w.client(1000);
        w.run();
        finished(&w, c, 1000);
        assert_eq!(bye(&w, c), Some(Code::Drained));
        assert_eq!(w.conns.len(), 1);
    }
}

#[test]
fn plain_delivers_and_drains() {
    for when_done in [false, true] {
        let mut w = World::new(Options {
            plain: true,
            when_done,
            done_ns: MS,
            ..Options::default()
        });
        let c = w.client(1000);
        w.run();
        finished(&w, c, 1000);
        assert!(w.clients[c].errors.is_empty());
    }
}

#[test]
fn one_byte_at_a_time() {
    for plain in [false, true] {
        let mut w = World::new(Options {
            plain,
            chunk: 1,
            checked: true,
            ..Options::default()
        });
        let c = w.client(100);
        w.run();
        finished(&w, c, 100);
    }
}

/// The first connection breaks at every possible byte, and either side may notice first: the
/// server handles every message once and in order, and acknowledges it.
#[test]
fn cut_at_every_byte() {
    for when_done in [false, true] {
        let options = Options {
            when_done,
            done_ns: MS / 2,
            checked: when_done,
            idle_ms: 100,
            ..Options::default()
        };
        let whole = |cut: (Option<u64>, Option<u64>)| {
            let mut w = World::new(options.clone());
            w.cut = cut;
            let c = w.client(12);
            w.run();
            finished(&w, c, 12);
            let first = &w.conns[0];
            (first.up.delivered, first.down.delivered, w.conns.len())
        };
        let (up, down, conns) = whole((None, None));
        assert_eq!(conns, 1);
        assert!(up > 150 && down > 90, "{up} {down}");
        for at in 0..up {
            assert_eq!(whole((Some(at), None)).2, 2, "cut upwards at {at}");
        }
        for at in 0..down {
            // If a cut inside the last reply comes after all acknowledgements, the client need not reconnect.
            assert!(whole((None, Some(at))).2 <= 2, "cut downwards at {at}");
        }
    }
}

/// The plain protocol does not send messages again: the client's error names the messages without an
/// acknowledgement.
#[test]
fn a_plain_cut_names_what_is_in_doubt() {
    let options = Options {
        plain: true,
        ..Options::default()
    };
    for at in [0, 5, 12, 30, 100, 400] {
        let mut w = World::new(options.clone());
        w.cut = (Some(at), None);
        let c = w.client(40);
        w.run();
        let acked = w.clients[c].sender.acked();
        let doubt = Doubt {
            first: acked.next(),
            last: Seq::new(40),
        };
        assert_eq!(w.clients[c].errors, [SenderError::InDoubt(doubt)]);
    }
}

/// The client has lost its connection, and the server has not noticed: the client's new connection takes the
/// session over at once.
#[test]
fn half_open_on_the_server() {
    let mut w = World::new(Options::default());
    let c = w.client(500);
    w.connect(c);
    w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received > 100));
    w.break_up(0, true, false);
    w.run();
    finished(&w, c, 500);
    assert_eq!(w.conns.len(), 2);
}

/// The server disappears without a message: the client notices by the silence.
#[test]
fn half_open_on_the_client() {
    let mut w = World::new(Options {
        idle_ms: 200,
        ..Options::default()
    });
    let c = w.client(500);
    w.connect(c);
    w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received > 100));
    w.conns[0].server = Side::Gone;
    w.sessions.get_mut(&SESSION).unwrap().conn = None;
    w.run();
    finished(&w, c, 500);
    assert_eq!(w.clients[c].errors, [SenderError::Silent]);
}

/// Neither side has data to send: pings and pongs keep the connection open.
#[test]
fn an_idle_connection_stays() {
    let mut w = World::new(Options {
        idle_ms: 100,
        ..Options::default()
    });
    let c = w.client(u64::MAX >> 1);
    w.clients[c].until = 5;
    w.clients[c].keep_open();
    w.run_until(|w| w.now.as_nanos() > 2000 * MS);
    assert_eq!(w.conns.len(), 1);
    assert!(w.clients[c].errors.is_empty() && w.server_errors.is_empty());
}

#[test]
fn a_second_life_takes_over_and_goes_on() {
    let mut w = World::new(Options::default());
    let a = w.client(300);
    w.clients[a].keep_open();
    w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received == 300));
    let b = w.client(600);
    w.run();
    finished(&w, b, 600);
    let opened = w.clients[b].events[0];
    assert!(
        matches!(opened, Event::Opened { received, .. } if received.get() == 300),
        "{opened:?}"
    );
    assert_eq!(bye(&w, a), Some(Code::Displaced));
    assert_eq!(w.conns.len(), 2, "the displaced one does not come back");
}

/// The first life lost its connection, did not learn of the second life, and has more to send:
/// the server refuses it.
#[test]
fn a_life_that_missed_its_displacement_is_refused() {
    let mut w = World::new(Options {
        chunk: 100,
        socket: 2000,
        ..Options::default()
    });
    let a = w.client(1000);
    w.connect(a);
    w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received > 50));
    w.break_up(0, true, true);
    let b = w.client(200);
    w.connect(b);
    w.clients[a].ended = true;
    w.run();
    w.clients[a].ended = false;
    w.run();
    finished(&w, b, 200);
    assert!(
        matches!(&w.clients[a].errors[..], [SenderError::Refused(r)] if r.code == Code::Displaced),
        "{:?}",
        w.clients[a].errors
    );
}

#[test]
fn a_server_that_kept_its_state_goes_on() {
    for when_done in [false, true] {
        let mut w = World::new(Options {
            when_done,
            done_ns: 5 * MS,
            ..Options::default()
        });
        let c = w.client(500);
        w.connect(c);
        w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received > 100));
        w.restart(true);
        w.run();
        finished(&w, c, 500);
        assert!(
            !w.clients[c]
                .events
                .iter()
                .any(|e| matches!(e, Event::Doubt(_)))
        );
    }
}

#[test]
fn a_server_that_lost_its_state_leaves_doubt() {
    for decide in [Decide::Resend, Decide::Drop, Decide::Fail] {
        // The client sends everything, and the handler never reports anything done, so the
        // server acknowledges nothing.
        let mut w = World::new(Options {
            decide,
            when_done: true,
            done_ns: u64::MAX >> 1,
            ..Options::default()
        });
        let c = w.client(20);
        w.clients[c].keep_open();
        w.connect(c);
        w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received == 20));
        w.restart(false);
        w.options.done_ns = 0;
        w.clients[c].until = 30;
        let done = |w: &World| {
            w.clients[0].ended || w.sessions.get(&SESSION).is_some_and(|s| s.acked == 30)
        };
        w.run_until(done);
        let doubt = Doubt {
            first: Seq::new(1),
            last: Seq::new(20),
        };
        assert!(
            w.clients[c].events.contains(&Event::Doubt(doubt)),
            "{:?}",
            w.clients[c].events
        );
        match decide {
            Decide::Resend => assert_eq!(w.sessions[&SESSION].skipped, 0),
            Decide::Drop => assert_eq!(w.sessions[&SESSION].skipped, 20),
            Decide::Fail => assert_eq!(w.clients[c].errors, [SenderError::InDoubt(doubt)]),
        }
    }
}

/// The server is alive, but makes no progress for the configured time: the client returns a
/// typed error, and does not hang.
#[test]
fn no_progress_is_told() {
    let stall = std::time::Duration::from_secs(3);
    let mut w = World::new(Options {
        when_done: true,
        done_ns: u64::MAX >> 1,
        stall,
        idle_ms: 500,
        ..Options::default()
    });
    let c = w.client(20);
    w.run();
    let stalled = SenderError::Stalled {
        acked: Seq::NONE,
        last: Seq::new(20),
    };
    assert_eq!(w.clients[c].errors, [stalled]);
    assert_eq!(w.conns.len(), 1, "the connection lived");
}

/// The server reads nothing: the client holds only as much as its limit permits.
#[test]
fn a_receiver_that_stops_reading_bounds_the_sender() {
    let mut w = World::new(Options {
        socket: 1000,
        ..Options::default()
    });
    let c = w.client(1_000_000);
    w.connect(c);
    w.run_until(|w| w.sessions.get(&SESSION).is_some_and(|s| s.received > 100));
    w.conns[0].server_reads = false;
    for _ in 0..1000 {
        w.step();
        w.now = w.now.after(MS);
    }
    assert!(!w.clients[c].sender.has_room());
    assert!(w.clients[c].sender.held_bytes() < 10_000);
}

/// The server acknowledges a lone message on receipt: no timer delays it.
#[test]
fn a_lone_message_is_acknowledged_at_once() {
    for plain in [false, true] {
        let mut w = World::new(Options {
            plain,
            ..Options::default()
        });
        let c = w.client(1);
        w.clients[c].keep_open();
        w.connect(c);
        let start = w.now;
        w.run_until(|w| w.clients[0].sender.acked().get() == 1);
        // A session takes four trips: hello, welcome, message and acknowledgement. A plain connection needs
        // no handshake.
        let trips = if plain { 2 } else { 4 };
        assert_eq!(w.now.since(start), trips * w.options.latency_ns);
    }
}
