//! Checks names before the client puts them into a subject or a protocol line, because a blank or a line feed
//! in a name would turn the line into another operation.
//!
//! Each check takes the user's term for the name, a flag or an argument, so that the error names the argument
//! that is wrong.

use tidegate_nats::subject;

use crate::Usage;

/// The greatest length of the name of a stream or a consumer, in bytes, which servers accept.
const NAME_BYTES_MAX: usize = 255;

/// Checks that `name` is a subject without wildcards, to which a client may publish.
pub(super) fn literal(what: &str, name: &str) -> Result<(), Usage> {
    let good = subject::is_literal(name.as_bytes()) && is_visible(name);
    check(good, what, name, "a subject one can publish to")
}

/// Checks that `name` is a subject, which may have wildcards, for a subscription or a filter.
pub(super) fn pattern(what: &str, name: &str) -> Result<(), Usage> {
    let good = subject::is_pattern(name.as_bytes()) && is_visible(name);
    check(good, what, name, "a subject or pattern")
}

/// Checks that `name` is valid as the name of a queue group, before the client sends it.
pub(super) fn queue_group(what: &str, name: &str) -> Result<(), Usage> {
    let good = subject::is_pattern(name.as_bytes()) && is_visible(name);
    check(good, what, name, "the name of a queue group")
}

/// Checks a subject that a new stream should store. This check only requires one word without blanks, because
/// only the server knows which patterns it allows.
pub(super) fn word(what: &str, name: &str) -> Result<(), Usage> {
    let good = !name.is_empty() && !name.contains(is_blank);
    check(good, what, name, "a subject or pattern")
}

/// Checks that `name` is valid as the name of a stream, before the client puts it into a request's subject.
pub(super) fn stream(what: &str, name: &str) -> Result<(), Usage> {
    check(
        is_token(name),
        what,
        name,
        &format!("a stream's name: {TOKEN}"),
    )
}

/// Checks that `name` is valid as the name of a consumer, before the client puts it into a request's subject.
pub(super) fn consumer(what: &str, name: &str) -> Result<(), Usage> {
    check(
        is_token(name),
        what,
        name,
        &format!("a consumer's name: {TOKEN}"),
    )
}

/// The rule for a name of one token, which errors print so that the user can correct the name.
const TOKEN: &str = "1 to 255 bytes, none of them . * > / \\ or blank";

fn is_token(name: &str) -> bool {
    let bad = |c: char| is_blank(c) || ".*>/\\".contains(c);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(bad)
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control()
}

fn is_visible(name: &str) -> bool {
    !name.contains(is_blank)
}

fn check(good: bool, what: &str, name: &str, wanted: &str) -> Result<(), Usage> {
    if good {
        return Ok(());
    }
    // The name may contain any bytes, so the error escapes the name and cuts it to a line.
    let mut shown: String = name.escape_debug().take(60).collect();
    if name.chars().count() > 60 {
        shown.push_str("...");
    }
    Err(Usage::new(format!("{what}: `{shown}` is not {wanted}")))
}
