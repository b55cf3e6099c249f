//! Reads the settings of the block `jetstream`: the directory of the streams and their limits.

use super::reading::Reading;
use super::remotes::remotes;
use super::tree::{Item, SyntaxError, Value};
use super::values::{boolean, duration, entries, file, name, number, text, wrong};
use super::{DATA_DIRECTORY, Settings, StreamSettings};

/// Reads `jetstream: enabled`, or a map of settings with nats-server's names, and turns streams on or off as
/// the operator asks.
pub(super) fn jetstream(
    reading: &mut Reading,
    key: &str,
    item: &Item,
    s: &mut Settings,
) -> Result<(), SyntaxError> {
    let default = || StreamSettings::new(DATA_DIRECTORY.into());
    let map = match &item.value {
        Value::Map(map) => map,
        Value::Bool(on) => {
            s.streams = on.then(|| s.streams.take().unwrap_or_else(default));
            return Ok(());
        }
        Value::Text(word) if matches!(word.as_str(), "enabled" | "enable") => {
            s.streams.get_or_insert_with(default);
            return Ok(());
        }
        Value::Text(word) if matches!(word.as_str(), "disabled" | "disable") => {
            s.streams = None;
            return Ok(());
        }
        _ => {
            return Err(wrong(
                key,
                item,
                "enabled, disabled, or a map such as { store_dir: DIR }",
            ));
        }
    };
    let mut streams = s.streams.take().unwrap_or_else(default);
    let mut on = true;
    reading.block("jetstream", map, &mut |reading, key, item| {
        match key {
            "enabled" => on = boolean(key, item)?,
            "store_dir" => streams.directory = file(key, item)?,
            "max_memory_store" => streams.max_memory_bytes = bytes(key, item)?,
            "max_file_store" => streams.max_file_bytes = bytes(key, item)?,
            "domain" => streams.domain = Some(name(key, item)?),
            "unique_tag" => {
                let prefix = text(key, item)?.trim().to_lowercase();
                streams.unique_tag = Some(prefix).filter(|prefix| !prefix.is_empty());
            }
            // The server syncs the log before each acknowledgement, as `always` asks, so every interval
            // between syncs is kept and the setting has no effect.
            "sync_interval" if matches!(&item.value, Value::Text(t) if t == "always") => {}
            "sync_interval" => {
                duration(key, item)?;
                reading.without_effect("jetstream.sync_interval".into(), item);
            }
            // With `strict`, an operator asks the server to refuse requests with unknown fields. The server
            // always refuses them, so it accepts only `true`.
            "strict" if boolean(key, item)? => {}
            "strict" => return Err(wrong(key, item, "true: requests are always read strictly")),
            "remotes" => {
                streams.remotes = remotes(reading, key, item)?.into_iter().collect();
            }
            "limits" => {
                let map = entries(key, item)?;
                reading.block("jetstream.limits", map, &mut |_, key, item| {
                    match key {
                        "max_streams" => streams.max_streams = limit(key, item)?,
                        "max_consumers" => streams.max_consumers = limit(key, item)?,
                        "max_ack_pending" => streams.limits.max_ack_pending = positive(key, item)?,
                        "max_request_batch" => streams.limits.max_batch = positive(key, item)?,
                        "duplicate_window" => {
                            let window = i64::try_from(duration(key, item)?.as_nanos());
                            streams.limits.duplicate_window =
                                window.map_err(|_| wrong(key, item, "a shorter time"))?;
                        }
                        _ => unreachable!("the table names only settings with code: {key}"),
                    }
                    Ok(())
                });
            }
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    s.streams = on.then_some(streams);
    Ok(())
}

/// Reads a limit on a number; 0 and -1 mean no limit.
fn limit(key: &str, item: &Item) -> Result<Option<usize>, SyntaxError> {
    Ok(usize::try_from(positive(key, item)?)
        .ok()
        .filter(|n| *n > 0))
}

/// Reads a limit on a number. Returns 0 for 0 and -1, which mean no limit.
fn positive(key: &str, item: &Item) -> Result<i64, SyntaxError> {
    Ok(number::<i64>(key, item, -1)?.max(0))
}

/// Reads a setting that is a number of bytes; as in nats-server, 0 and -1 mean that the operator sets no
/// bound.
fn bytes(key: &str, item: &Item) -> Result<Option<u64>, SyntaxError> {
    let n: i64 = match &item.value {
        Value::Text(text) => {
            let expected = "a number of bytes, such as 1GB or \"1G\"";
            quoted_bytes(text).ok_or_else(|| wrong(key, item, expected))?
        }
        _ => number(key, item, -1)?,
    };
    Ok(u64::try_from(n).ok().filter(|n| *n > 0))
}

/// Converts a number of bytes in quotes. In quotes, nats-server takes a suffix for a power of 1024, so
/// `"1G"` is more than `1G`. `None` if the text is no such number.
fn quoted_bytes(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let (at, _) = text.char_indices().next_back()?;
    let power = 1 + "KMGT".find(&text[at..])?;
    let factor = 1_i64.checked_shl(u32::try_from(10 * power).ok()?)?;
    let number = text[..at].parse::<i64>().ok().filter(|n| *n >= 0)?;
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::quoted_bytes;

    #[test]
    fn sizes_in_quotes_are_powers_of_1024() {
        let of = [("", Some(0)), ("2K", Some(2048)), ("1G", Some(1 << 30))];
        for (text, bytes) in of {
            assert_eq!(quoted_bytes(text), bytes, "{text}");
        }
        for text in ["1", "1GB", "G", "-1G", "1.5G", "9223372036854775807T", "1é"] {
            assert_eq!(quoted_bytes(text), None, "{text}");
        }
    }
}
