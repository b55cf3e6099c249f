//! Tests of the decoder against another implementation, on whole and split input, and on bytes
//! that are not RESP.

use proptest::prelude::*;
use redis_protocol::resp3::decode::complete::decode_bytes;
use redis_protocol::resp3::types::{BytesFrame, Resp3Frame};

use super::*;

fn decoder() -> Decoder {
    Decoder::new(Limits {
        reply_bytes_max: 1 << 20,
    })
}

/// Decodes all replies of `wire`, which the decoder gets in pieces of these lengths.
fn decode(wire: &[u8], pieces: &[usize]) -> Result<Vec<Value>, ProtocolError> {
    let mut decoder = decoder();
    let mut values = Vec::new();
    let mut rest = wire;
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let space = decoder.space();
        let n = pieces
            .next()
            .copied()
            .unwrap_or(usize::MAX)
            .clamp(1, rest.len().min(space.len()));
        space[..n].copy_from_slice(&rest[..n]);
        decoder.filled(n);
        rest = &rest[n..];
        while let Some(value) = decoder.next()? {
            values.push(value);
        }
    }
    Ok(values)
}

/// Converts a reply of the other implementation to a [`Value`]. The generated input has no attributes.
fn theirs(frame: &BytesFrame) -> Value {
    let list = |items: &[BytesFrame]| items.iter().map(theirs).collect();
    match frame {
        BytesFrame::BlobString { data, .. } => Value::Bulk(data.clone()),
        BytesFrame::SimpleString { data, .. } => Value::Simple(data.clone()),
        BytesFrame::SimpleError { data, .. } => Value::Error(ServerError::parse(data.as_bytes())),
        BytesFrame::BlobError { data, .. } => Value::Error(ServerError::parse(data)),
        BytesFrame::Number { data, .. } => Value::Int(*data),
        BytesFrame::Double { data, .. } => Value::Double(*data),
        BytesFrame::Boolean { data, .. } => Value::Bool(*data),
        BytesFrame::Null => Value::Nil,
        BytesFrame::BigNumber { data, .. } => Value::BigNumber(data.clone()),
        BytesFrame::VerbatimString { data, .. } => Value::Bulk(data.clone()),
        BytesFrame::Array { data, .. } => Value::Array(list(data)),
        BytesFrame::Push { data, .. } => Value::Push(list(data)),
        // The other decoder's maps and sets have no order, so the wire below gives each at most one element.
        BytesFrame::Map { data, .. } => {
            Value::Map(data.iter().map(|(k, v)| (theirs(k), theirs(v))).collect())
        }
        BytesFrame::Set { data, .. } => Value::Set(data.iter().map(theirs).collect()),
        other => panic!("not generated: {other:?}"),
    }
}

fn oracle(mut wire: &[u8]) -> Vec<Value> {
    let mut values = Vec::new();
    while !wire.is_empty() {
        let (frame, used) = decode_bytes(&Bytes::copy_from_slice(wire))
            .unwrap()
            .unwrap();
        assert!(frame.encode_len(false) > 0);
        values.push(theirs(&frame));
        wire = &wire[used..];
    }
    values
}

fn bulk(kind: char, data: &[u8]) -> Vec<u8> {
    let mut wire = format!("{kind}{}\r\n", data.len()).into_bytes();
    wire.extend_from_slice(data);
    wire.extend_from_slice(b"\r\n");
    wire
}

fn flat() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        4 => prop::collection::vec(any::<u8>(), 0..50),
        1 => prop::collection::vec(any::<u8>(), 15_000..40_000),
    ];
    prop_oneof![
        any::<i64>().prop_map(|n| format!(":{n}\r\n").into_bytes()),
        "[ -~]{0,40}".prop_map(|s| format!("+{s}\r\n").into_bytes()),
        "[A-Z]{1,10} [ -~]{0,40}".prop_map(|s| format!("-{s}\r\n").into_bytes()),
        bytes.prop_map(|b| bulk('$', &b)),
        "[ -~]{0,60}".prop_map(|s| bulk('=', format!("txt:{s}").as_bytes())),
        "[A-Z]{1,9} [ -~]{0,60}".prop_map(|s| bulk('!', s.as_bytes())),
        Just(b"_\r\n".to_vec()),
        any::<bool>().prop_map(|b| format!("#{}\r\n", if b { 't' } else { 'f' }).into_bytes()),
        (-1e9..1e9f64).prop_map(|x| format!(",{x}\r\n").into_bytes()),
        Just(b",inf\r\n".to_vec()),
        "-?[1-9][0-9]{20,40}".prop_map(|n| format!("({n}\r\n").into_bytes()),
    ]
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    flat().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner, 0..6).prop_map(|items| {
                let head = format!("*{}\r\n", items.len()).into_bytes();
                [vec![head], items].concat().concat()
            }),
            ("[a-z]{1,9}", flat()).prop_map(|(k, v)| [
                b"%1\r\n".to_vec(),
                bulk('$', k.as_bytes()),
                v
            ]
            .concat()),
            "[a-z]{1,9}".prop_map(|s| [b"~1\r\n".to_vec(), bulk('$', s.as_bytes())].concat()),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn whatever_redis_sends_reads_as_the_oracle_reads_it(
        frames in prop::collection::vec(frame(), 1..6),
        pieces in prop::collection::vec(1..3_000usize, 1..8),
    ) {
        let wire = frames.concat();
        let wanted = oracle(&wire);
        prop_assert_eq!(decode(&wire, &[usize::MAX]).unwrap(), wanted.clone());
        prop_assert_eq!(decode(&wire, &pieces).unwrap(), wanted);
    }

    #[test]
    fn other_bytes_are_refused_or_awaited(
        wire in prop::collection::vec(prop_oneof![
            prop::sample::select(b"*$+-:%~>|!=(,#_\r\n0123456789?tf".to_vec()),
            any::<u8>(),
        ], 0..200),
        pieces in prop::collection::vec(1..20usize, 1..4),
    ) {
        // Whole input and split input give the same outcome: the decoder does not depend on how bytes arrive.
        let (whole, cut) = (decode(&wire, &[usize::MAX]), decode(&wire, &pieces));
        prop_assert_eq!(format!("{whole:?}"), format!("{cut:?}"));
    }
}

#[test]
fn a_double_of_nan_and_resp2_nulls() {
    let values = decode(b",nan\r\n$-1\r\n*-1\r\n*0\r\n%0\r\n,-inf\r\n", &[1]).unwrap();
    assert!(matches!(values[0], Value::Double(x) if x.is_nan()));
    assert_eq!(values[1..4], [Value::Nil, Value::Nil, Value::Array(vec![])]);
    assert_eq!(
        values[4..],
        [Value::Map(vec![]), Value::Double(f64::NEG_INFINITY)]
    );
}

#[test]
fn an_empty_line_within_a_reply_is_refused() {
    let wire = b"*1\r\n\r\n";
    assert_eq!(
        decode(wire, &[usize::MAX]),
        Err(ProtocolError::UnknownType(b'\r'))
    );
    assert_eq!(decode(wire, &[1]), Err(ProtocolError::UnknownType(b'\r')));
}

#[test]
fn the_edges_of_integers() {
    assert_eq!(
        decode(
            b":9223372036854775807\r\n:-9223372036854775808\r\n:+7\r\n",
            &[3]
        )
        .unwrap(),
        [Value::Int(i64::MAX), Value::Int(i64::MIN), Value::Int(7)]
    );
    for bad in [
        &b":9223372036854775808\r\n"[..],
        b":\r\n",
        b":-\r\n",
        b":1 \r\n",
    ] {
        assert_eq!(decode(bad, &[usize::MAX]), Err(ProtocolError::BadNumber));
    }
}

/// Checks that the decoder reads a long bulk into memory of its own and copies a shorter one,
/// and that neither enlarges the buffer for long.
#[test]
fn long_bulks_go_round_the_buffer() {
    for len in [LARGE - 1, LARGE, BUFFER - 10, BUFFER, 300_000, 1 << 20] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let wire = [bulk('$', &data), b":5\r\n".to_vec()].concat();
        for piece in [1_000, 70_000, usize::MAX] {
            assert_eq!(
                decode(&wire, &[piece]).unwrap(),
                [Value::Bulk(data.clone().into()), Value::Int(5)]
            );
        }
    }
    let mut decoder = decoder();
    let wire = bulk('$', &vec![1; (1 << 20) + 1]);
    decoder.space()[..10].copy_from_slice(&wire[..10]);
    decoder.filled(10);
    assert_eq!(decoder.next(), Err(ProtocolError::TooLarge));
}

/// Checks that the announcement of a long reply allocates little memory before the bytes of the reply arrive.
#[test]
fn announcements_allocate_little() {
    let mut decoder = decoder();
    let head = b"$1000000\r\nab";
    decoder.space()[..head.len()].copy_from_slice(head);
    decoder.filled(head.len());
    assert_eq!(decoder.next(), Ok(None));
    assert!(decoder.large.as_ref().unwrap().buf.capacity() <= LARGE_STEP);
}
