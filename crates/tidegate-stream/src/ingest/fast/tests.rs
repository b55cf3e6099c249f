//! Tests of fast-ingest batches: the server follows and acknowledges them step by step, and random publishers
//! never break an invariant.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::super::reply::control;
use super::*;
use crate::api::puback::PubAck;
use crate::schema::sequence::nth;

const S: StreamNumber = StreamNumber::new(7);

fn config() -> StreamConfig {
    StreamConfig {
        allow_batched: true,
        ..StreamConfig::default()
    }
}

struct Server {
    fast: Fast,
    config: StreamConfig,
    now: Time,
    answers: Vec<Answer>,
    seq: u64,
}

impl Server {
    fn new() -> Self {
        Self {
            fast: Fast::new(FastLimits::default()),
            config: config(),
            now: Time::from_nanos(1_000_000_000),
            answers: Vec::new(),
            seq: 0,
        }
    }

    fn send_with(&mut self, reply: &str, headers: &[u8]) -> Verdict {
        let message = Incoming {
            subject: b"s",
            reply: reply.as_bytes(),
            headers,
            payload: b"x",
        };
        let control = control(reply.as_bytes()).unwrap();
        let answers = &mut self.answers;
        let verdict =
            self.fast
                .handle_message(self.now, S, &self.config, control, &message, answers);
        self.fast.check_invariants();
        verdict
    }

    fn send(&mut self, id: &str, gap: &str, seq: u64, op: u8) -> Option<Ticket> {
        self.send_as(id, gap, seq, op, b"")
    }

    fn send_as(&mut self, id: &str, gap: &str, seq: u64, op: u8, headers: &[u8]) -> Option<Ticket> {
        match self.send_with(&format!("inbox.{id}.50.{gap}.{seq}.{op}.$FI"), headers) {
            Verdict::Store(ticket) => Some(ticket),
            Verdict::Done => None,
        }
    }

    fn outcome(&mut self, ticket: Ticket, outcome: Persisted<'_>) {
        self.fast
            .handle_outcome(self.now, ticket, outcome, &mut self.answers);
        self.fast.check_invariants();
    }

    fn stored(&mut self, ticket: Option<Ticket>) {
        self.seq += 1;
        self.outcome(ticket.unwrap(), Persisted::Stored(nth(self.seq)));
    }

    fn refused(&mut self, ticket: Option<Ticket>) {
        let error = ApiError::wrong_last_sequence(3);
        self.outcome(ticket.unwrap(), Persisted::Refused(&error));
    }

    fn acks(&mut self) {
        if self.fast.poll_acks(self.now, &mut self.answers) {
            self.fast.handle_acks_sent(self.now, 1000);
        }
        self.fast.check_invariants();
    }

    /// Returns the answers since the last call, as JSON, for comparison with those that publishers must get.
    fn answered(&mut self) -> Vec<String> {
        let ack = PubAck::new("S", None);
        let json = |answer: Answer| {
            let mut out = Vec::new();
            answer.write(&ack, &mut out);
            String::from_utf8(out).unwrap()
        };
        self.answers.drain(..).map(json).collect()
    }
}

const FAILED: &str = r#"{"code":400,"err_code":10071,"description":"wrong last sequence: 3"}"#;

#[test]
fn from_start_to_commit() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    assert_eq!(server.answered(), [r#"{"type":"ack","seq":0,"msgs":50}"#]);
    let second = server.send("a", "fail", 2, 1);
    server.acks();
    assert!(server.answered().is_empty());
    server.stored(first);
    server.acks();
    assert_eq!(server.answered(), [r#"{"type":"ack","seq":1,"msgs":25}"#]);
    let third = server.send("a", "fail", 3, 2);
    server.stored(second);
    server.stored(third);
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":3,"batch":"a","count":3}"#]
    );
    server.acks();
    assert!(server.answered().is_empty());
    assert_eq!(server.fast.open_count(), 0);
}

#[test]
fn committed_behind_the_last_message() {
    for late in [false, true] {
        let mut server = Server::new();
        let first = server.send("a", "fail", 1, 0);
        if !late {
            server.stored(first);
        }
        server.answered();
        assert_eq!(server.send("a", "fail", 2, 3), None);
        if late {
            assert!(server.answered().is_empty());
            server.stored(first);
        }
        assert_eq!(
            server.answered(),
            [r#"{"stream":"S","seq":1,"batch":"a","count":1}"#]
        );
    }
}

#[test]
fn a_batch_of_one_gets_one_answer() {
    let mut server = Server::new();
    let only = server.send("a", "fail", 1, 2);
    assert!(server.answered().is_empty());
    server.stored(only);
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":1,"batch":"a","count":1}"#]
    );
}

#[test]
fn refusals() {
    let mut server = Server::new();
    let code = |server: &mut Server, reply: &str, headers: &[u8]| {
        assert_eq!(server.send_with(reply, headers), Verdict::Done);
        match server.answers.pop() {
            Some(Answer {
                what: What::Refused(error),
                ..
            }) => error.err_code,
            other => panic!("{other:?}"),
        }
    };
    let start = "i.a.5.ok.1.0.$FI";
    let level = b"NATS/1.0\r\nNats-Required-Api-Level: 9\r\n\r\n";
    assert_eq!(code(&mut server, "i.a.5.ok.2.0.$FI", b""), 10206);
    assert_eq!(
        code(
            &mut server,
            &format!("i.{}.5.ok.1.0.$FI", "x".repeat(65)),
            b""
        ),
        10207
    );
    assert_eq!(code(&mut server, "i.a.5.ok.2.1.$FI", b""), 10208);
    assert_eq!(code(&mut server, "i.a.5.ok.1.4.$FI", b""), 10208);
    assert_eq!(code(&mut server, start, level), 10185);
    server.fast.limits.open_max = 0;
    assert_eq!(code(&mut server, start, b""), 10211);
    server.config.allow_batched = false;
    assert_eq!(code(&mut server, start, b""), 10205);
    server.config.max_msg_size = 10;
    assert_eq!(code(&mut server, start, level), 10054);
    server.config.sealed = true;
    assert_eq!(code(&mut server, start, b""), 10109);
    assert_eq!(server.fast.open_count(), 0);
}

#[test]
fn a_gap_ends_a_batch_without_gaps() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    server.answered();
    assert_eq!(server.send("a", "fail", 4, 1), None);
    assert_eq!(
        server.answered(),
        [r#"{"type":"gap","last_seq":2,"seq":4}"#]
    );
    assert_eq!(server.send("a", "fail", 5, 1), None);
    server.stored(first);
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":1,"batch":"a","count":1}"#]
    );
}

#[test]
fn a_gap_is_told_and_passed_over() {
    let mut server = Server::new();
    let first = server.send("a", "ok", 1, 0);
    server.stored(first);
    server.acks();
    server.answered();
    let fifth = server.send("a", "ok", 5, 1);
    assert_eq!(
        server.answered(),
        [r#"{"type":"gap","last_seq":2,"seq":5}"#]
    );
    server.stored(fifth);
    server.now = server.now + Duration::from_secs(1);
    server.acks();
    assert_eq!(server.answered(), [r#"{"type":"ack","seq":5,"msgs":12}"#]);
    // A number that goes back ends the batch even with `gap_ok`, because the publisher has lost count.
    assert_eq!(server.send("a", "ok", 5, 1), None);
    assert_eq!(
        server.answered(),
        [
            r#"{"type":"gap","last_seq":6,"seq":5}"#,
            r#"{"stream":"S","seq":2,"batch":"a","count":5}"#
        ]
    );
}

#[test]
fn pings() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    server.stored(first);
    server.acks();
    server.answered();
    assert_eq!(server.send("a", "fail", 1, 4), None);
    assert_eq!(server.answered(), [r#"{"type":"ack","seq":1,"msgs":25}"#]);
    assert_eq!(server.send("a", "fail", 3, 4), None);
    assert_eq!(
        server.answered(),
        [
            r#"{"type":"gap","last_seq":2,"seq":4}"#,
            r#"{"stream":"S","seq":1,"batch":"a","count":1}"#
        ]
    );
    let first = server.send("b", "ok", 1, 0);
    server.stored(first);
    server.answered();
    assert_eq!(server.send("b", "ok", 3, 4), None);
    assert_eq!(
        server.answered(),
        [
            r#"{"type":"gap","last_seq":2,"seq":4}"#,
            r#"{"type":"ack","seq":0,"msgs":50}"#
        ]
    );
    server.now = server.now + Duration::from_secs(1);
    server.acks();
    assert_eq!(server.answered().len(), 1);
}

#[test]
fn a_refused_first_message_is_answered_like_a_publish() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    server.answered();
    server.refused(first);
    assert_eq!(
        server.answered(),
        [format!(r#"{{"error":{FAILED},"stream":"S","seq":0}}"#)]
    );
    assert_eq!(server.fast.open_count(), 0);
}

#[test]
fn a_message_that_may_be_refused_holds_up_those_behind_it() {
    let checked = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n";
    for fails in [false, true] {
        let mut server = Server::new();
        let first = server.send("a", "fail", 1, 0);
        let second = server.send_as("a", "fail", 2, 1, checked);
        assert!(second.is_some());
        assert_eq!(server.send("a", "fail", 3, 1), None);
        assert_eq!(server.send("a", "fail", 4, 2), None);
        server.stored(first);
        server.answered();
        if fails {
            server.refused(second);
            assert_eq!(server.fast.poll_released(), None);
            let error = format!(r#"{{"type":"err","seq":2,"error":{FAILED}}}"#);
            let end = r#"{"stream":"S","seq":1,"batch":"a","count":1}"#;
            assert_eq!(server.answered(), [&*error, end]);
        } else {
            server.stored(second);
            let third = server.fast.poll_released().unwrap();
            let fourth = server.fast.poll_released().unwrap();
            assert_eq!(server.fast.poll_released(), None);
            assert_eq!((third.ticket.seq, fourth.ticket.seq), (3, 4));
            server.stored(Some(third.ticket));
            server.stored(Some(fourth.ticket));
            assert_eq!(
                server.answered(),
                [r#"{"stream":"S","seq":4,"batch":"a","count":4}"#]
            );
        }
        assert_eq!(server.fast.open_count(), 0);
    }
}

#[test]
fn held_messages_are_bounded() {
    let checked = b"NATS/1.0\r\nNats-Rollup: sub\r\n\r\n";
    let mut server = Server::new();
    server.fast.limits.held_bytes_max = 4;
    let first = server.send_as("a", "fail", 1, 0, checked);
    assert_eq!(server.send("a", "fail", 2, 1), None);
    assert_eq!(server.send("a", "fail", 3, 1), None);
    server.answered();
    assert_eq!(server.send("a", "fail", 4, 1), None);
    assert_eq!(server.answered().len(), 1);
    server.stored(first);
    while let Some(held) = server.fast.poll_released() {
        server.stored(Some(held.ticket));
    }
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":3,"batch":"a","count":3}"#]
    );
}

#[test]
fn with_gaps_refused_messages_are_told_and_passed_over() {
    let mut server = Server::new();
    let first = server.send("a", "ok", 1, 0);
    let second = server.send("a", "ok", 2, 1);
    server.answered();
    server.refused(first);
    assert_eq!(
        server.answered(),
        [format!(r#"{{"type":"err","seq":1,"error":{FAILED}}}"#)]
    );
    server.stored(second);
    let third = server.send("a", "ok", 3, 2);
    server.refused(third);
    let error = format!(r#"{{"type":"err","seq":3,"error":{FAILED}}}"#);
    assert_eq!(
        server.answered(),
        [&*error, r#"{"stream":"S","seq":1,"batch":"a","count":2}"#]
    );
}

#[test]
fn duplicates_count() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    server.outcome(first.unwrap(), Persisted::Duplicate(nth(9)));
    server.acks();
    let second = server.send("a", "fail", 2, 2);
    server.answered();
    server.outcome(second.unwrap(), Persisted::Duplicate(nth(10)));
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":9,"batch":"a","count":2}"#]
    );
}

#[test]
fn an_unforeseen_refusal_ends_the_batch_before_it() {
    let mut server = Server::new();
    let tickets: Vec<_> = (1..=3)
        .map(|seq| server.send("a", "fail", seq, u8::from(seq > 1)))
        .collect();
    server.answered();
    server.stored(tickets[0]);
    server.refused(tickets[1]);
    assert_eq!(server.answered().len(), 1);
    server.stored(tickets[2]);
    assert_eq!(
        server.answered(),
        [r#"{"stream":"S","seq":1,"batch":"a","count":1}"#]
    );
}

#[test]
fn silent_batches_are_forgotten() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    let deadline = server.fast.deadline().unwrap();
    assert_eq!(deadline, server.now + Duration::from_secs(10));
    // The server does not forget a batch while a message of it is in flight, because the outcome still
    // counts.
    server.fast.handle_timeouts(deadline);
    assert_eq!(server.fast.open_count(), 1);
    server.stored(first);
    server
        .fast
        .handle_timeouts(deadline + Duration::from_secs(1));
    server.fast.check_invariants();
    assert_eq!(
        (server.fast.open_count(), server.fast.deadline()),
        (0, None)
    );
    server.answered();
    assert_eq!(server.send("a", "fail", 2, 1), None);
    assert!(server.answered()[0].contains("10208"));
}

#[test]
fn a_stream_that_is_gone() {
    let mut server = Server::new();
    let first = server.send("a", "fail", 1, 0);
    server.stored(first);
    let second = server.send("b", "fail", 1, 0);
    server.fast.handle_stream_gone(S);
    server.fast.check_invariants();
    server.answered();
    server.outcome(second.unwrap(), Persisted::Stored(nth(9)));
    server.acks();
    assert!(server.answered().is_empty() && server.fast.open_count() == 0);
}

/// A publisher that follows the protocol, over a link that loses messages. It counts its messages and
/// acknowledgements for the test.
struct Publisher {
    flow: u64,
    outstanding: u64,
    sent: u64,
    acked: u64,
    ended: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Tests that acknowledgements cover only stored messages and never go back, that a batch without gaps
    /// counts exactly its stored messages, and that no publisher waits for ever.
    #[test]
    fn a_publisher_and_a_log(
        gap_ok in any::<bool>(),
        flow in 1..60_u16,
        outstanding in 1..4_u64,
        len in 1..300_u64,
        lost in prop::collection::btree_set(2..300_u64, 0..2),
        refused in prop::collection::btree_set(1..300_u64, 0..3),
        turns in prop::collection::vec((0..20_u64, 0..20_usize, 0..2_000_u64), 1..50),
        costly in any::<bool>(),
    ) {
        let checked = b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n";
        let gap = if gap_ok { "ok" } else { "fail" };
        let mut server = Server::new();
        let mut client = Publisher { flow: u64::from(flow), outstanding, sent: 0, acked: 0, ended: None };
        // The test keeps the tickets of the proposed messages without an outcome in `log`, and the numbers of
        // the stored messages in `stored`.
        let mut log: VecDeque<Ticket> = VecDeque::new();
        let mut stored = BTreeSet::new();
        // One busy turn in each round sends and decides, so that the batch makes progress however idle the
        // other turns are.
        let busy = [(20, 20, 2000)];
        let (mut turn, mut still) = (turns.iter().chain(&busy).cycle(), 0);
        while client.ended.is_none() {
            let &(sends, decides, micros) = turn.next().unwrap();
            let before = (client.sent, client.acked, stored.len());
            server.now = server.now + Duration::from_micros(micros + 1);
            for _ in 0..sends {
                let stalled = client.sent > client.acked + client.flow * client.outstanding;
                if stalled || client.sent == len {
                    break;
                }
                client.sent += 1;
                let seq = client.sent;
                let op = match seq {
                    1 if len == 1 => 2,
                    1 => 0,
                    _ if seq == len => 2,
                    _ => 1,
                };
                if lost.contains(&seq) && seq < len {
                    continue;
                }
                let headers: &[u8] = if refused.contains(&seq) { checked } else { b"" };
                let reply = format!("inbox.a.{flow}.{gap}.{seq}.{op}.$FI");
                if let Verdict::Store(ticket) = server.send_with(&reply, headers) {
                    log.push_back(ticket);
                }
            }
            for _ in 0..decides {
                let Some(ticket) = log.pop_front() else { break };
                if refused.contains(&ticket.seq) {
                    server.refused(Some(ticket));
                } else {
                    stored.insert(ticket.seq);
                    server.stored(Some(ticket));
                }
                while let Some(held) = server.fast.poll_released() {
                    log.push_back(held.ticket);
                }
            }
            if server.fast.poll_acks(server.now, &mut server.answers) {
                server.fast.handle_acks_sent(server.now, if costly { 3_000_000 } else { 300 });
            }
            server.fast.check_invariants();
            if before == (client.sent, client.acked, stored.len()) {
                still += 1;
                // The publisher pings after 20 turns without progress, as real publishers ping when they have
                // waited too long.
                if still % 20 == 0 {
                    let seq = client.sent;
                    let ping = format!("inbox.a.{flow}.{gap}.{seq}.4.$FI");
                    prop_assert_eq!(server.send_with(&ping, b""), Verdict::Done);
                }
                prop_assert!(still < 200, "stands still at {} acked {}", client.sent, client.acked);
            } else {
                still = 0;
            }
            for answer in server.answers.drain(..) {
                match answer.what {
                    What::Flow { seq, msgs } => {
                        prop_assert!(seq >= client.acked && msgs >= 1 && msgs <= flow);
                        if !gap_ok {
                            prop_assert!((1..=seq).all(|seq| stored.contains(&seq)));
                        }
                        client.acked = seq;
                        client.flow = u64::from(msgs);
                    }
                    What::End { count, .. } => client.ended = client.ended.or(Some(count)),
                    // The server refuses a message behind the end of the batch, because the message belongs
                    // to no batch.
                    What::Refused(_) => client.ended = client.ended.or(Some(0)),
                    What::Gap { .. } | What::Error { .. } => {}
                }
            }
        }
        let count = client.ended.unwrap_or(0);
        if gap_ok {
            prop_assert!(stored.iter().all(|seq| *seq <= count));
        } else {
            prop_assert_eq!(stored.len() as u64, count);
            prop_assert!((1..=count).all(|seq| stored.contains(&seq)));
        }
        prop_assert_eq!(server.fast.open_count(), 0);
    }
}
