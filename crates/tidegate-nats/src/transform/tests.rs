//! Tests subject transforms: the examples that NATS documents, and properties of any transform.

use super::*;

fn apply(source: &str, destination: &str, subject: &str) -> Option<String> {
    let transform = Transform::compile(source, destination);
    let transform = transform.unwrap_or_else(|e| panic!("{source} -> {destination}: {e}"));
    let mapped = transform.apply(subject.as_bytes(), 7)?;
    Some(String::from_utf8(mapped).unwrap())
}

fn refusal(source: &str, destination: &str) -> String {
    let refused = Transform::compile(source, destination);
    refused.expect_err(destination).to_string()
}

#[test]
fn the_functions_map_as_documented() {
    let table = [
        ("", "prefix.>", "foo", "prefix.foo"),
        ("foo", "", "foo", "foo"),
        (">", ">", "a.b", "a.b"),
        ("foo", "bar", "foo", "bar"),
        ("foo.*.bar.*.baz", "req.$2.$1", "foo.A.bar.B.baz", "req.B.A"),
        (
            "foo.*.*",
            "foo.{{wildcard(2)}}.{{wildcard(1)}}",
            "foo.a.b",
            "foo.b.a",
        ),
        ("foo.*", "bar.$x.$1", "foo.a", "bar.$x.a"),
        ("baz.>", "my.pre.>", "baz.1.2.3", "my.pre.1.2.3"),
        ("baz.>", ">", "baz.1.2.3", "1.2.3"),
        ("*.a.>", "$1.>", "x.a.b.c", "x.b.c"),
        ("*", "foo.bar.$1", "foo", "foo.bar.foo"),
        ("*", "{{splitfromleft(1,3)}}", "12345", "123.45"),
        ("*", "{{SplitFromRight(1,3)}}", "12345", "12.345"),
        ("*", "{{splitFromLeft(1,5)}}", "12345", "12345"),
        ("*", "{{splitFromLeft(1,-1)}}", "12345", "12345"),
        ("*", "{{SliceFromLeft(1,3)}}", "1234567890", "123.456.789.0"),
        ("*", "{{SliceFromLeft(1,5)}}", "1234567890", "12345.67890"),
        (
            "*",
            "{{SliceFromRight(1,3)}}",
            "1234567890",
            "1.234.567.890",
        ),
        ("*", "{{SliceFromRight(1,5)}}", "1234567890", "12345.67890"),
        ("*", "{{sliceFromRight(1,0)}}", "123", "123"),
        ("*", "{{split(1,-)}}", "-abc-def--ghi-", "abc.def.ghi"),
        ("*", "{{split(1,--)}}", "abc--def-ghi", "abc.def-ghi"),
        ("*", "{{split(1,)}}", "aé", "a.é"),
        (
            "*.*",
            "{{split(2,-)}}.{{splitfromleft(1,2)}}",
            "foo.-abc-def--ghij-",
            "abc.def.ghij.fo.o",
        ),
        ("*", "{{right(1,1)}}", "1234", "4"),
        ("*", "{{Right(1,3)}}", "1234", "234"),
        ("*", "{{right(1,6)}}", "1234", "1234"),
        ("*", "{{left(1,1)}}", "1234", "1"),
        ("*", "{{Left(1,3)}}", "1234", "123"),
        ("*", "{{left(1,6)}}", "1234", "1234"),
        ("*", "bar.{{partition(0)}}", "baz", "bar.0"),
        ("*", "bar.{{partition(10, 0)}}", "foo", "bar.3"),
        ("*.*", "bar.{{partition(10)}}", "foo.bar", "bar.6"),
        ("*", "bar.{{partition(10)}}", "qux", "bar.9"),
        ("*", "bar.{{ Partition ( 10, 1 ) }}", "baz", "bar.0"),
        ("foo.bar", "baz.{{partition(10)}}", "foo.bar", "baz.6"),
        ("foo.bar", "baz.{{partition(10,3)}}", "foo.bar", "baz.6"),
        ("foo.baz", "qux.{{partition(10)}}", "foo.baz", "qux.4"),
        (
            ">",
            "all.{{partition(5)}}.>",
            "test.subject",
            "all.0.test.subject",
        ),
        ("*", "bar.{{random(0)}}", "qux", "bar.0"),
    ];
    for (source, destination, subject, expected) in table {
        let mapped = apply(source, destination, subject);
        assert_eq!(
            mapped.as_deref(),
            Some(expected),
            "{source} -> {destination}"
        );
    }
}

/// Checks that a partition hashes its tokens in a row, without dots between them, as nats-server does.
#[test]
fn partitions_hash_their_tokens_in_a_row() {
    let both = apply("*.*", "{{partition(1000000,1,2)}}", "foo.bar");
    assert_eq!(both, apply("*", "{{partition(1000000)}}", "foobar"));
    let turned = apply("*.*", "{{partition(1000000,2,1)}}", "bar.foo");
    assert_eq!(both, turned);
}

#[test]
fn subjects_that_the_source_does_not_match_stay() {
    for (source, subject) in [("a.*", "b.c"), ("a.>", "a"), ("a", "a.b"), (">", "a..b")] {
        let destination = if source.ends_with('>') { "x.>" } else { "x" };
        assert_eq!(
            apply(source, destination, subject),
            None,
            "{source} {subject}"
        );
    }
}

/// Checks that a transform refuses a result that is no subject: a token of delimiters gives an empty token,
/// and a cut may leave a wildcard.
#[test]
fn results_that_are_no_subjects_are_refused() {
    assert_eq!(apply("*", "a.{{split(1,-)}}", "--"), None);
    assert_eq!(apply("*.>", "{{split(1,-)}}.>", "--.b"), None);
    assert_eq!(apply("*", "{{slicefromleft(1,3)}}", "foo*"), None);
    assert_eq!(apply("*", "{{right(1,1)}}", "foo>"), None);
    let long = "$1.".repeat(5000) + "$1";
    assert_eq!(apply("*", &long, "abcdefgh"), None);
    assert!(apply("*", &long, "a").is_some());
}

#[test]
fn random_tokens_follow_the_callers_number() {
    let transform = Transform::compile("*", "{{random(6)}}.{{random(6)}}").unwrap();
    assert!(transform.is_random());
    let mut seen = std::collections::BTreeSet::new();
    for random in 0..1000 {
        let mapped = transform.apply(b"a", random).unwrap();
        assert_eq!(Some(&mapped), transform.apply(b"a", random).as_ref());
        seen.insert(mapped);
    }
    assert_eq!(seen.len(), 36, "two draws of six");
    assert!(
        !Transform::compile("*", "{{partition(6)}}")
            .unwrap()
            .is_random()
    );
}

#[test]
fn malformed_transforms_are_refused() {
    let malformed = "invalid subject";
    for (source, destination) in [
        ("foo..", "bar"),
        ("foo bar", "bar"),
        ("foo.*", "bar.*"),
        ("foo.*", "bar.$1.>"),
        ("foo.>", "bar.baz"),
    ] {
        assert_eq!(refusal(source, destination), malformed, "{destination}");
    }
    let table = [
        ("bar..$1", "invalid transform"),
        ("bar.>.$1", "invalid transform in $1"),
        ("b r.$1", "invalid transform in b r"),
        ("bar.$2", "wildcard index out of range in $2: [2]"),
        ("bar.$-1", "wildcard index out of range in $-1: [-1]"),
        (
            "{{wildcard(2)}}",
            "wildcard index out of range in {{wildcard(2)}}: [2]",
        ),
        (
            "{{unimplemented(1)}}",
            "unknown function in {{unimplemented(1)}}",
        ),
        ("{{WILDCARD(1)}}", "unknown function in {{WILDCARD(1)}}"),
        ("{{ wildcard5) }}", "unknown function in {{ wildcard5) }}"),
        ("{{splitLeft(2,2}}", "unknown function in {{splitLeft(2,2}}"),
        (
            "{{wildcard()}}",
            "not enough arguments passed to the function in {{wildcard()}}",
        ),
        (
            "{{split(1)}}",
            "not enough arguments passed to the function in {{split(1)}}",
        ),
        (
            "{{left(1)}}",
            "not enough arguments passed to the function in {{left(1)}}",
        ),
        (
            "{{wildcard(1,2)}}",
            "too many arguments passed to the function in {{wildcard(1,2)}}",
        ),
        (
            "{{left(1,2,3)}}",
            "too many arguments passed to the function in {{left(1,2,3)}}",
        ),
    ];
    for (destination, expected) in table {
        let expected = format!("invalid mapping destination: {expected}");
        assert_eq!(refusal("foo.*", destination), expected);
    }
    for call in [
        "partition()",
        "random()",
        "wildcard(foo)",
        "partition(2147483648)",
        "random(2147483648)",
        "partition(-1)",
        "split(1,- )",
        "left(1,x)",
        "left(1,2147483648)",
    ] {
        let destination = format!("{{{{{call}}}}}");
        let expected = format!(
            "invalid mapping destination: function argument is invalid or in the wrong format in \
             {destination}"
        );
        assert_eq!(refusal("foo.*", &destination), expected);
    }
    // A function of a token needs a source with wildcards.
    assert!(refusal("foo", "bar.{{wildcard(1)}}").contains("out of range"));
    assert!(refusal("foo.>", "bar.$1.>").contains("out of range"));
    assert!(refusal("foo", &"a".repeat(TRANSFORMED_BYTES_MAX + 1)).contains("expected at most"));
}

proptest::proptest! {
    /// Checks that no text makes the code panic, and that each result is a literal subject of bounded
    /// length.
    #[test]
    fn results_are_literal_subjects(
        source in "([ab*]\\.){0,3}[ab*>]",
        destination in "((a|b|>|\\$[0-3]|\\{\\{ ?(wildcard|Partition|random|split|SplitFromLeft|splitFromRight|sliceFromLeft|SliceFromRight|left|right) ?\\([0-3]?(, ?([0-3]|-|a))?\\) ?\\}\\})\\.){0,3}(a|\\$1|>)",
        subject in "([ab*>é-]{0,5}\\.){0,3}[ab*>é-]{1,5}",
        random in proptest::num::u64::ANY,
    ) {
        if let Ok(transform) = Transform::compile(&source, &destination)
            && let Some(mapped) = transform.apply(subject.as_bytes(), random)
        {
            proptest::prop_assert!(transform.matches(subject.as_bytes()));
            proptest::prop_assert!(subject::is_literal(&mapped));
            proptest::prop_assert!(mapped.len() <= TRANSFORMED_BYTES_MAX);
        }
    }

    /// Checks that no text makes the compiler or a compiled transform panic.
    #[test]
    fn any_text_is_safe(source in ".{0,20}", destination in ".{0,40}", subject in ".{0,20}") {
        if let Ok(transform) = Transform::compile(&source, &destination) {
            drop(transform.apply(subject.as_bytes(), 0));
        }
    }
}
