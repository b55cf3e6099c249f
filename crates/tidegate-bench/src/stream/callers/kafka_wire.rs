//! Encodes the two requests of Kafka's protocol that the bench needs, and decodes their answers. Pure.
//!
//! Both requests have versions that Kafka 2 to 4 serve. A batch of records has the format 2: its checksum is
//! CRC-32C over everything behind it.

use anyhow::{Context as _, ensure};

/// The number of the request that appends records, and its version.
const PRODUCE: (i16, i16) = (0, 7);
/// The number of the request that creates topics, and its version.
const CREATE_TOPICS: (i16, i16) = (19, 4);
/// The format of a batch of records.
const MAGIC: u8 = 2;
/// The setting with which the leader answers when all replicas in sync have the records.
const ALL: i16 = -1;
/// The longest time that the server may take for a request, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;
/// The error of a topic that exists already.
const EXISTS: i16 = 36;

/// Encodes a request that appends `records` records, each with this payload, to partition 0 of a topic.
pub(super) fn produce(
    topic: &str,
    payload: &[u8],
    records: usize,
    now_ms: i64,
) -> anyhow::Result<Vec<u8>> {
    let batch = batch(payload, records, now_ms)?;
    let mut out = request(PRODUCE);
    // No transaction has a name here.
    put(&mut out, &(-1_i16).to_be_bytes());
    put(&mut out, &ALL.to_be_bytes());
    put(&mut out, &TIMEOUT_MS.to_be_bytes());
    put(&mut out, &1_i32.to_be_bytes());
    put_text(&mut out, topic)?;
    put(&mut out, &1_i32.to_be_bytes());
    put(&mut out, &0_i32.to_be_bytes());
    put(&mut out, &i32::try_from(batch.len())?.to_be_bytes());
    put(&mut out, &batch);
    finish(out)
}

/// Encodes a request that creates a topic with one partition and one replica.
pub(super) fn create_topic(topic: &str) -> anyhow::Result<Vec<u8>> {
    let mut out = request(CREATE_TOPICS);
    put(&mut out, &1_i32.to_be_bytes());
    put_text(&mut out, topic)?;
    put(&mut out, &1_i32.to_be_bytes());
    put(&mut out, &1_i16.to_be_bytes());
    // The topic has no replicas of choice and no settings of its own.
    put(&mut out, &0_i32.to_be_bytes());
    put(&mut out, &0_i32.to_be_bytes());
    put(&mut out, &TIMEOUT_MS.to_be_bytes());
    // The server does not only check the request, but carries it out.
    out.push(0);
    finish(out)
}

/// Checks the answer to a request of [`produce`], without its length.
///
/// # Errors
///
/// The server refuses the records, with a number that Kafka's documentation of errors lists.
pub(super) fn produced(answer: &[u8]) -> anyhow::Result<()> {
    let mut rest = Reader(answer);
    rest.take::<4>()?;
    let topics = i32::from_be_bytes(rest.take()?);
    let name = i16::from_be_bytes(rest.take()?);
    rest.skip(usize::try_from(name)?)?;
    let partitions = i32::from_be_bytes(rest.take()?);
    ensure!(
        (topics, partitions) == (1, 1),
        "expected an answer about one partition, got {partitions} of {topics} topics"
    );
    rest.take::<4>()?;
    let error = i16::from_be_bytes(rest.take()?);
    ensure!(error == 0, "Kafka refuses the records with error {error}");
    Ok(())
}

/// Checks the answer to a request of [`create_topic`], without its length.
///
/// # Errors
///
/// The server refuses the topic, with a number that Kafka's documentation of errors lists.
pub(super) fn created(answer: &[u8]) -> anyhow::Result<()> {
    let mut rest = Reader(answer);
    // The number of the request and the time for which the client should wait.
    rest.skip(8)?;
    let topics = i32::from_be_bytes(rest.take()?);
    ensure!(
        topics == 1,
        "expected an answer about one topic, got {topics}"
    );
    let name = i16::from_be_bytes(rest.take()?);
    rest.skip(usize::try_from(name)?)?;
    let error = i16::from_be_bytes(rest.take()?);
    ensure!(
        error == 0 || error == EXISTS,
        "Kafka refuses the topic with error {error}"
    );
    Ok(())
}

/// Begins a request with room for its length, and its head: number, version, a number for the answer, and no
/// name of the client.
fn request((number, version): (i16, i16)) -> Vec<u8> {
    let mut out = vec![0; 4];
    put(&mut out, &number.to_be_bytes());
    put(&mut out, &version.to_be_bytes());
    put(&mut out, &1_i32.to_be_bytes());
    put(&mut out, &(-1_i16).to_be_bytes());
    out
}

fn finish(mut out: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let bytes = i32::try_from(out.len() - 4)?;
    if let Some(length) = out.first_chunk_mut() {
        *length = bytes.to_be_bytes();
    }
    Ok(out)
}

fn batch(payload: &[u8], records: usize, now_ms: i64) -> anyhow::Result<Vec<u8>> {
    let count = i32::try_from(records)?;
    // The part that the checksum covers.
    let mut body = Vec::with_capacity(records * (payload.len() + 16) + 64);
    put(&mut body, &0_i16.to_be_bytes());
    put(&mut body, &(count - 1).to_be_bytes());
    put(&mut body, &now_ms.to_be_bytes());
    put(&mut body, &now_ms.to_be_bytes());
    // The producer has no id, no epoch and no sequence, so it is not idempotent.
    put(&mut body, &(-1_i64).to_be_bytes());
    put(&mut body, &(-1_i16).to_be_bytes());
    put(&mut body, &(-1_i32).to_be_bytes());
    put(&mut body, &count.to_be_bytes());
    for offset in 0..i64::from(count) {
        // Attributes, the difference of the time, that of the offset, no key, the value, no headers.
        let mut record = vec![0, 0];
        put_varint(&mut record, offset);
        put_varint(&mut record, -1);
        put_varint(&mut record, i64::try_from(payload.len())?);
        put(&mut record, payload);
        put_varint(&mut record, 0);
        put_varint(&mut body, i64::try_from(record.len())?);
        put(&mut body, &record);
    }
    let mut out = Vec::with_capacity(body.len() + 32);
    put(&mut out, &0_i64.to_be_bytes());
    // The length counts the epoch of the leader, the format, the checksum and the body.
    let bytes = i32::try_from(body.len() + 9)?;
    put(&mut out, &bytes.to_be_bytes());
    put(&mut out, &(-1_i32).to_be_bytes());
    out.push(MAGIC);
    put(&mut out, &crc32c::crc32c(&body).to_be_bytes());
    put(&mut out, &body);
    Ok(out)
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

fn put_text(out: &mut Vec<u8>, text: &str) -> anyhow::Result<()> {
    put(out, &i16::try_from(text.len())?.to_be_bytes());
    put(out, text.as_bytes());
    Ok(())
}

/// Appends a number in zigzag coding, seven bits a byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut left = ((value << 1) ^ (value >> 63)).cast_unsigned();
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// The part of an answer that is not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> anyhow::Result<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk().context("the answer is short")?;
        self.0 = rest;
        Ok(*first)
    }

    fn skip(&mut self, bytes: usize) -> anyhow::Result<()> {
        self.0 = self.0.get(bytes..).context("the answer is short")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_zigzag() {
        for (value, expected) in [
            (0, &[0][..]),
            (-1, &[1]),
            (1, &[2]),
            (64, &[0x80, 1]),
            (1024, &[0x80, 16]),
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, expected, "{value}");
        }
    }

    #[test]
    fn a_batch_has_its_lengths_and_its_checksum() {
        let batch = batch(b"ab", 2, 7).unwrap();
        let number = |at: usize| i32::from_be_bytes(batch[at..at + 4].try_into().unwrap());
        assert_eq!(usize::try_from(number(8)).unwrap() + 12, batch.len());
        assert_eq!(batch[16], MAGIC);
        let checksum = u32::from_be_bytes(batch[17..21].try_into().unwrap());
        assert_eq!(checksum, crc32c::crc32c(&batch[21..]));
        // The last offset, and the number of records.
        assert_eq!((number(23), number(57)), (1, 2));
        let records = [16, 0, 0, 0, 1, 4, b'a', b'b', 0];
        let second = [16, 0, 0, 2, 1, 4, b'a', b'b', 0];
        assert_eq!(batch[61..], [records, second].concat());
    }

    #[test]
    fn requests_begin_with_their_length() {
        for request in [
            produce("t", b"x", 1, 0).unwrap(),
            create_topic("t").unwrap(),
        ] {
            let bytes = i32::from_be_bytes(request[..4].try_into().unwrap());
            assert_eq!(usize::try_from(bytes).unwrap(), request.len() - 4);
        }
        let topic = create_topic("t").unwrap();
        let head = [0, 19, 0, 4, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1, 0, 1, b't'];
        assert_eq!(topic[4..21], head);
    }

    #[test]
    fn errors_are_found_in_answers() {
        let answer = |error: u8| {
            let head = [0, 0, 0, 1, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 0];
            [&head[..], &[0, error], &[0; 28]].concat()
        };
        produced(&answer(0)).unwrap();
        let refused = produced(&answer(6)).unwrap_err().to_string();
        assert_eq!(refused, "Kafka refuses the records with error 6");
        assert!(produced(&answer(0)[..12]).is_err());
        let answer = |error: u8| {
            let head = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, b't'];
            [&head[..], &[0, error, 0xff, 0xff]].concat()
        };
        created(&answer(0)).unwrap();
        created(&answer(36)).unwrap();
        assert!(created(&answer(41)).is_err());
    }
}
