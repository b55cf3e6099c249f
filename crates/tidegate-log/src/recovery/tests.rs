//! Tests the recovery on batches with valid checksums and senseless content, and on arbitrary bytes: the
//! recovery must neither panic nor loop for ever.

use proptest::prelude::*;

use super::*;
use crate::Record;

const BYTES: usize = 4096 + 2048;

fn header() -> SegmentHeader {
    SegmentHeader {
        segment: 1,
        base: Lsn::new(1 << 20),
        salt: 5,
        bytes: BYTES as u64,
    }
}

/// A batch header, a record or a byte that a test writes at an offset of the segment's bytes.
#[derive(Clone, Debug)]
enum Put {
    Batch {
        synced: u64,
        bytes: u32,
        records: u32,
        epoch: u32,
        marker: bool,
    },
    Record {
        len: u32,
    },
    Byte(u8),
}

fn put() -> impl Strategy<Value = (usize, Put)> {
    let batch = (0..4096u64, 0..3000u32, 0..9u32, 0..3u32, any::<bool>()).prop_map(
        |(synced, bytes, records, epoch, marker)| Put::Batch {
            synced,
            bytes: bytes * 8,
            records,
            epoch,
            marker,
        },
    );
    let record = (0..400u32).prop_map(|len| Put::Record { len });
    (
        0..240usize,
        prop_oneof![batch, record, any::<u8>().prop_map(Put::Byte)],
    )
}

fn apply(bytes: &mut [u8], at: usize, put: &Put) {
    let (header, from) = (header(), 4096 + 8 * at);
    let lsn = lsn_at(header.base, from as u64);
    let out = match *put {
        Put::Batch {
            synced,
            bytes,
            records,
            epoch,
            marker,
        } => BatchHeader {
            segment: 1,
            lsn,
            synced: header.base.after(synced),
            bytes,
            records,
            epoch,
            kind: if marker {
                BatchKind::Marker
            } else {
                BatchKind::Records
            },
        }
        .encode(header.seed())
        .to_vec(),
        Put::Record { len } => {
            let record = Record {
                payload: vec![1; len as usize].into(),
                ..Record::default()
            };
            let mut out = Vec::new();
            RecordHeader::of(&record, 1).append(header.seed(), lsn, &record.payload, &mut out);
            out
        }
        Put::Byte(byte) => vec![byte],
    };
    let to = bytes.len().min(from + out.len());
    bytes[from..to].copy_from_slice(&out[..to - from]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_headers_say_what_was_found_adds_up(
        puts in prop::collection::vec(put(), 0..20),
        cut in 4096..BYTES + 1,
        until in 0..4096u64,
    ) {
        let mut bytes = vec![0; BYTES];
        for (at, put) in &puts {
            apply(&mut bytes, *at, put);
        }
        bytes.truncate(cut);
        let segment = SegmentBytes::new(header(), &bytes);
        let mut entries = Vec::new();
        let scanned = segment.scan(None, |entry| entries.push(entry));
        prop_assert!(entries.windows(2).all(|w| w[0].lsn < w[1].lsn));
        prop_assert!(scanned.end >= header().base);
        if let Verdict::Damaged { from, durable } = scanned.verdict {
            prop_assert!(from == scanned.end && durable > from);
        }
        let until = header().base.after(until & !7);
        let survey = segment.survey(until);
        prop_assert!(survey.lost.iter().all(|(from, to)| from < to && *to <= until.max(*from)));
        prop_assert!(survey.regions.windows(2).all(|w| w[0].to <= w[1].from));
        // After a repair has mended each damaged region, the recovery must find the segment intact.
        let mut mended = bytes.clone();
        mended.resize(BYTES, 0);
        for region in &survey.regions {
            if let Some(out) = region.mend(&segment, Lsn::ZERO) {
                prop_assert_eq!(out.len() as u64, region.to.since(region.from));
                let from = offset(header().base, region.from) as usize;
                mended[from..from + out.len()].copy_from_slice(&out);
                let again = SegmentBytes::new(header(), &mended);
                let header = again.header_at(region.from).expect("a header");
                prop_assert!(again.records(&header, |_| ()));
            }
        }
    }
}
