//! Tests that give the streams commands and snapshots that no node writes, to find a panic.

use super::*;

/// Generates payloads that are nearly as a command expects them, and some that are not, so that the test
/// reaches deep into the decoders.
fn garbage() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0..9_u64, Just(1 << 62), Just(u64::MAX - 1), Just(u64::MAX)];
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (number.clone(), number.clone())
            .prop_map(|(a, b)| { format!(r#"{{"seq":{a},"keep":{b},"filter":""}}"#).into_bytes() }),
        (number.clone(), "[STU]").prop_map(|(n, name)| {
            format!(r#"{{"name":"{name}","subjects":["{name}.>"],"first_seq":{n}}}"#).into_bytes()
        }),
        (number, "(all|new|last|by_start_sequence)").prop_map(|(n, policy)| {
            format!(r#"{{"config":{{"deliver_policy":"{policy}","opt_start_seq":{n}}}}}"#)
                .into_bytes()
        }),
        Just(br#"{"config":{"ack_policy":"flow_control","deliver_subject":"d"}}"#.to_vec()),
        Just(br#"{"name":"V","sources":[{"name":"S","consumer":{"name":"C","deliver_subject":"d"}}]}"#.to_vec()),
        (0..3_u32).prop_map(|n| n.to_le_bytes().to_vec()),
        "(Nats-TTL: [0-9]{1,20}s?|Nats-Rollup: (sub|all)|Nats-Msg-Id: [ab])"
            .prop_map(|line| { format!("NATS/1.0\r\n{line}\r\n\r\n").into_bytes() }),
    ]
}

fn subject_or_kept() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "(s\\.[ab]|C|)".prop_map(String::into_bytes),
        1 => (0..3_u32, 0..3_u32).prop_map(|(group, of)| [group.to_le_bytes(), of.to_le_bytes()].concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_command_is_survived(
        commands in prop::collection::vec(
            (prop_oneof![4 => 1..15_u8, 1 => 28..31_u8], 0..3_u32, subject_or_kept(), any::<bool>(), garbage(), any::<u64>()), 1..40),
    ) {
        let mut world = World::new(StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            allow_atomic: true,
            ..StreamConfig::default()
        });
        for (kind, stream, subject, headers, payload, time) in commands {
            let Some(kind) = Kind::from_u8(kind) else { continue };
            let mut entry = Vec::new();
            let mut encoder = Encoder::begin(&mut entry, time);
            let command = Command {
                headers: headers.then_some(&payload[..]),
                ..Command::new(kind, StreamNumber::new(stream), &subject, &payload)
            };
            encoder.command(&command).unwrap();
            encoder.publish(ONE, b"s.a", None, b"").unwrap();
            world.lsn += 1 << 33;
            let (mut out, mut effects) = (Vec::new(), Vec::new());
            world.one.apply(world.lsn, &entry.into(), &mut out, &mut effects).unwrap();
            prop_assert_eq!(out.len(), 2);
            world.one.check_invariants();
        }
        let bytes: Vec<u8> = world.one.snapshot().chunks().flatten().collect();
        let again = Streams::restore(&bytes, AccountLimits::NONE).unwrap();
        prop_assert!(again.snapshot().chunks().flatten().eq(bytes), "the restored streams differ");
    }

    #[test]
    fn no_snapshot_panics(
        acts in prop::collection::vec(act(), 1..10),
        cut in any::<prop::sample::Index>(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let mut world = World::new(StreamConfig {
            name: "S".into(),
            subjects: vec!["s.>".into()],
            allow_atomic: true,
            ..StreamConfig::default()
        });
        world.model.config.allow_rollup_hdrs = false;
        for act in &acts {
            if let Act::Flood(subject, count) = act {
                world.act(&Act::Flood(*subject, *count));
            }
        }
        let mut bytes: Vec<u8> = world.one.snapshot().chunks().flatten().collect();
        prop_assert!(Streams::restore(&bytes[..cut.index(bytes.len())], AccountLimits::NONE).is_err());
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(mut streams) = Streams::restore(&bytes, AccountLimits::NONE) {
            let mut entry = Vec::new();
            let mut encoder = Encoder::begin(&mut entry, 1);
            encoder.publish(ONE, b"s.a", None, b"").unwrap();
            encoder.command(&Command::new(Kind::Purge, ONE, b"", b"{}")).unwrap();
            let (mut out, mut effects) = (Vec::new(), Vec::new());
            streams.apply(1 << 40, &entry.into(), &mut out, &mut effects).unwrap();
        }
    }
}
