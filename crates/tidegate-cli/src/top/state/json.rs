//! Reads members of a server's answer, without trust in their presence and types: a member that is missing or
//! has another type reads as absent.

use serde_json::Value;

/// Returns the value at the members that `path` names, separated by dots; null if one of them is missing.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(value, |inner, key| {
        inner.as_object().and_then(|o| o.get(key)).unwrap_or(NULL)
    })
}

const NULL: &Value = &Value::Null;

/// Returns the finite number at `path`.
pub(crate) fn num(value: &Value, path: &str) -> Option<f64> {
    at(value, path).as_f64().filter(|n| n.is_finite())
}

/// Returns the count at `path`: a number from 0 to 2^53, within which a double has each whole number.
pub(crate) fn count(value: &Value, path: &str) -> Option<u64> {
    let n = num(value, path)?;
    (0.0..=9_007_199_254_740_992.0)
        .contains(&n)
        .then_some(n as u64)
}

/// Returns the text at `path`.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> Option<&'a str> {
    at(value, path).as_str()
}

/// Returns the truth value at `path`; an absent one counts as false.
pub(crate) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).as_bool().unwrap_or(false)
}

/// Returns the elements of the array at `path`; an absent array counts as empty.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).as_array().map_or(&[], Vec::as_slice)
}

/// Returns the finite numbers of the array at `path`; another element counts as 0, so that arrays of equal
/// length stay so. Takes the last `most` elements.
pub(crate) fn series(value: &Value, path: &str, most: usize) -> Vec<f64> {
    let all = list(value, path);
    let last = &all[all.len().saturating_sub(most)..];
    let number = |n: &Value| n.as_f64().filter(|n| n.is_finite()).unwrap_or(0.0);
    last.iter().map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_of_other_types_are_absent() {
        let value = json!({
            "log": { "syncs": 12, "name": "x", "on": true },
            "list": [1, "2", null, 4.5],
            "negative": -1,
        });
        assert_eq!(num(&value, "log.syncs"), Some(12.0));
        assert_eq!(count(&value, "log.syncs"), Some(12));
        assert_eq!(count(&value, "negative"), None);
        for absent in ["log.name", "log.syncs.more", "list", "", ".", "nothing"] {
            assert_eq!(num(&value, absent), None, "{absent}");
        }
        assert_eq!(text(&value, "log.name"), Some("x"));
        assert_eq!(text(&value, "log.syncs"), None);
        assert!(flag(&value, "log.on") && !flag(&value, "log.name"));
        assert_eq!(series(&value, "list", 3), [0.0, 0.0, 4.5]);
        assert!(list(&value, "log").is_empty() && list(&json!(1), "x").is_empty());
    }
}
