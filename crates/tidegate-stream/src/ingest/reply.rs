//! Parses the reply subject of a message of a fast-ingest batch, `<prefix>.<id>.<flow>.<gap>.<seq>.<op>.$FI`,
//! from its end to its beginning, because the prefix may have any number of tokens.

use thiserror::Error;

use super::number;
use crate::convert::saturating_u16;

const SUFFIX: &[u8] = b".$FI";
/// The value of `flow`, the number of messages for which a publisher wants an acknowledgement, if the reply
/// subject states none or 0, as in nats-server.
const FLOW: u16 = 10;

/// The parsed reply subject of a message: its place in a fast-ingest batch, and the batch's settings, which
/// the publisher writes into the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<'a> {
    /// The id of the batch, as the publisher chose it.
    pub id: &'a [u8],
    /// The number of messages for which the publisher wants at least one acknowledgement. The server may
    /// acknowledge more often.
    pub flow: u16,
    /// True if the batch continues after messages that did not arrive or that the stream refused. Otherwise
    /// the first such message ends it.
    pub gap_ok: bool,
    /// The number of the message in its batch, from 1. By it the server notices a gap.
    pub seq: u64,
    /// The operation of the message: it starts, continues or ends its batch, or asks for the batch's
    /// position. It determines the server's next step.
    pub op: Op,
}

/// The operation of a message on its fast-ingest batch, as a digit in the reply subject states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The message starts the batch, and the stream stores the message as the batch's first.
    Start,
    /// The message continues the batch, and the stream stores the message behind the earlier ones.
    Append,
    /// The message ends the batch, and the stream stores the message as the batch's last.
    Commit,
    /// The message ends the batch, and the stream does not store the message, because it is no part of the
    /// batch.
    CommitEob,
    /// The message asks for the position of the batch (a ping), and the stream does not store the message. A
    /// publisher sends it when it has waited too long.
    Ping,
}

/// The error for a reply subject that ends in `.$FI` but is malformed otherwise, so that the publisher learns
/// its mistake.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("expected <prefix>.<id>.<flow>.<ok|fail>.<seq>.<op>.$FI")]
pub struct PatternError;

/// Parses the reply subject of a message; `None` if the subject does not end in `.$FI`, as those of
/// fast-ingest messages do, and the message belongs to no such batch.
#[must_use]
pub fn control(reply: &[u8]) -> Option<Result<Control<'_>, PatternError>> {
    let rest = reply.strip_suffix(SUFFIX)?;
    Some(parse(rest).ok_or(PatternError))
}

fn parse(rest: &[u8]) -> Option<Control<'_>> {
    let (rest, op) = split(rest)?;
    let op = match op {
        b"0" => Op::Start,
        b"1" => Op::Append,
        b"2" => Op::Commit,
        b"3" => Op::CommitEob,
        b"4" => Op::Ping,
        _ => return None,
    };
    let (rest, seq) = split(rest)?;
    // The parser refuses the highest `u64` as the number of a message, because no number follows it.
    let seq = number(seq).filter(|seq| (1..u64::MAX).contains(seq))?;
    let fits = match op {
        Op::Start => seq == 1,
        Op::Append | Op::CommitEob => seq > 1,
        Op::Commit | Op::Ping => true,
    };
    let (rest, gap) = split(rest)?;
    let gap_ok = match gap {
        b"ok" => true,
        b"fail" => false,
        _ => return None,
    };
    let (rest, flow) = split(rest)?;
    let flow = match number(flow) {
        None | Some(0) => FLOW,
        Some(flow) => saturating_u16(flow),
    };
    let (_, id) = split(rest)?;
    fits.then_some(Control {
        id,
        flow,
        gap_ok,
        seq,
        op,
    })
}

/// Splits a part of the reply subject at its last dot, because the parser reads the tokens from the end;
/// `None` if the part has no dot.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let dot = memchr::memrchr(b'.', text)?;
    Some((&text[..dot], &text[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_from_the_right() {
        let control = control(b"_INBOX.a.b.uuid.100.fail.7.1.$FI").unwrap();
        assert_eq!(
            control,
            Ok(Control {
                id: b"uuid",
                flow: 100,
                gap_ok: false,
                seq: 7,
                op: Op::Append
            })
        );
    }

    #[test]
    fn every_part() {
        let flow = |reply: &[u8]| control(reply).unwrap().map(|c| c.flow);
        assert_eq!(flow(b"i.u.0.ok.1.0.$FI"), Ok(10));
        assert_eq!(flow(b"i.u.-5.ok.1.0.$FI"), Ok(10));
        assert_eq!(flow(b"i.u.x.ok.1.0.$FI"), Ok(10));
        assert_eq!(flow(b"i.u.65536.ok.1.0.$FI"), Ok(65535));
        for (reply, op) in [
            (&b"i.u.5.ok.1.0.$FI"[..], Op::Start),
            (b"i.u.5.ok.2.1.$FI", Op::Append),
            (b"i.u.5.ok.1.2.$FI", Op::Commit),
            (b"i.u.5.ok.2.3.$FI", Op::CommitEob),
            (b"i.u.5.ok.1.4.$FI", Op::Ping),
        ] {
            let control = control(reply).unwrap().unwrap();
            assert_eq!((control.op, control.gap_ok), (op, true));
        }
    }

    #[test]
    fn none_of_a_batch() {
        for reply in [&b""[..], b"_INBOX.x", b"$FI", b"a.$FI.b", b"a$FI"] {
            assert_eq!(control(reply), None);
        }
        for reply in [
            &b".$FI"[..],
            b"x.$FI",
            b"i.5.ok.1.0.$FI",
            b"i.u.5.ok.1.5.$FI",
            b"i.u.5.ok.1.00.$FI",
            b"i.u.5.ok.1..$FI",
            b"i.u.5.maybe.1.0.$FI",
            b"i.u.5.ok.0.0.$FI",
            b"i.u.5.ok.2.0.$FI",
            b"i.u.5.ok.1.1.$FI",
            b"i.u.5.ok.1.3.$FI",
            b"i.u.5.ok.18446744073709551615.1.$FI",
            b"i.u.5.ok.99999999999999999999.1.$FI",
            b"i.u.5.ok.+1.0.$FI",
        ] {
            assert_eq!(
                control(reply),
                Some(Err(PatternError)),
                "{}",
                reply.escape_ascii()
            );
        }
    }
}
