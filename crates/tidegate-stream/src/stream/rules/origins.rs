//! The rules by which a group accepts or refuses a stream's origins: the streams from which it takes in
//! messages, as a mirror or by sources.
//!
//! As in nats-server, an origin need not exist yet, so these rules look only at the configurations.

use std::collections::{BTreeSet, VecDeque};

use tidegate_nats::subject;
use tidegate_nats::transform::Transform;

use crate::overlaps::Earlier;
use crate::schema::config::{StreamConfig, StreamSource};
use crate::schema::error::ApiError;

/// The limit on the sources of one stream, so that one stream does not take too much of its leader's time.
const SOURCES_MAX: usize = 1024;

/// Checks the origins in the configuration of a stream that a client wants to create or change.
///
/// # Errors
///
/// Returns the error of nats-server for the first rule that the configuration breaks, with which the server
/// answers the client.
pub(super) fn check(config: &StreamConfig) -> Result<(), ApiError> {
    if let Some(mirror) = &config.mirror {
        check_mirror(config, mirror)?;
    }
    if config.sources.len() > SOURCES_MAX {
        return Err(ApiError::invalid_config(format_args!(
            "a stream has at most {SOURCES_MAX} sources"
        )));
    }
    let (mut keys, mut consumers) = (BTreeSet::new(), BTreeSet::new());
    for source in &config.sources {
        if !is_name(&source.name) {
            return Err(ApiError::SOURCE_NAME_INVALID);
        }
        if !keys.insert(source.key()) {
            return Err(ApiError::SOURCE_DUPLICATE);
        }
        check_external(source, "source")?;
        check_filter(source, "source")?;
        check_transforms(source, false)?;
        check_consumer(source, false)?;
        let consumer = source.consumer.as_ref();
        let consumer = consumer.map(|consumer| (source.cluster_name(), &consumer.name));
        if consumer.is_some_and(|consumer| !consumers.insert(consumer)) {
            return Err(ApiError::SOURCE_CONSUMER_DUPLICATE);
        }
    }
    Ok(())
}

fn check_mirror(config: &StreamConfig, mirror: &StreamSource) -> Result<(), ApiError> {
    let refused = [
        (config.first_seq.get() > 0, ApiError::MIRROR_WITH_FIRST_SEQ),
        (!config.subjects.is_empty(), ApiError::MIRROR_WITH_SUBJECTS),
        (!config.sources.is_empty(), ApiError::MIRROR_WITH_SOURCES),
        (config.allow_atomic, ApiError::MIRROR_WITH_ATOMIC),
        (config.allow_batched, ApiError::MIRROR_WITH_BATCHES),
    ];
    if let Some((_, error)) = refused.into_iter().find(|(broken, _)| *broken) {
        return Err(error);
    }
    check_consumer(mirror, true)?;
    if config.subject_delete_marker_ttl > 0 {
        // A marker takes a number, and the numbers of a mirror must be those of its origin, so a mirror can
        // have no markers.
        return Err(ApiError::invalid_config(
            "subject delete markers forbidden on mirrors",
        ));
    }
    if !is_name(&mirror.name) {
        return Err(ApiError::MIRROR_NAME_INVALID);
    }
    check_external(mirror, "mirror")?;
    check_filter(mirror, "mirror")?;
    check_transforms(mirror, true)?;
    match mirror.external.is_none() && mirror.name == config.name {
        true => Err(ApiError::invalid_config("detected cycle")),
        false => Ok(()),
    }
}

fn check_external(source: &StreamSource, what: &str) -> Result<(), ApiError> {
    match &source.external {
        Some(external) if external.remote().is_none() => {
            Err(ApiError::invalid_config(format_args!(
                "the external api '{}' of the {what} names no remote: expected $JS.NAME.API",
                external.api
            )))
        }
        _ => Ok(()),
    }
}

/// Checks the consumer by which a stream takes in messages. The consumer's own configuration says where it
/// begins and which subjects it delivers, so the source cannot say it too.
fn check_consumer(source: &StreamSource, mirror: bool) -> Result<(), ApiError> {
    let Some(consumer) = &source.consumer else {
        return Ok(());
    };
    let sound = is_name(&consumer.name)
        && subject::is_literal(consumer.deliver_subject.as_bytes())
        && source.opt_start_seq.get() == 0
        && source.opt_start_time.is_none()
        && source.filter_subject.is_empty();
    match (sound, mirror) {
        (true, _) => Ok(()),
        (false, true) => Err(ApiError::MIRROR_CONSUMER_INVALID),
        (false, false) => Err(ApiError::SOURCE_CONSUMER_INVALID),
    }
}

fn check_filter(source: &StreamSource, what: &str) -> Result<(), ApiError> {
    let filter = source.filter_subject.as_str();
    let bad = !filter.is_empty() && !subject::is_pattern(filter.as_bytes());
    match Some(filter).filter(|_| bad) {
        Some(filter) => Err(ApiError::invalid_config(format_args!(
            "subject filter '{filter}' for the {what} invalid subject"
        ))),
        None => Ok(()),
    }
}

fn check_transforms(source: &StreamSource, mirror: bool) -> Result<(), ApiError> {
    let transforms = &source.subject_transforms;
    if !source.filter_subject.is_empty() && !transforms.is_empty() {
        return Err(match mirror {
            true => ApiError::MIRROR_FILTERS,
            false => ApiError::SOURCE_FILTERS,
        });
    }
    for transform in transforms {
        let src = &transform.src;
        if !src.is_empty() && !subject::is_pattern(src.as_bytes()) {
            let why = format_args!("malformed subject {src}");
            return Err(match mirror {
                true => ApiError::mirror_filter(why),
                false => ApiError::source_filter(why),
            });
        }
        Transform::compile(src, &transform.dest).map_err(|why| match mirror {
            true => ApiError::mirror_transform(why),
            false => ApiError::source_transform(why),
        })?;
    }
    // The origin's leader looks for messages by these patterns, and each message must match at most one of
    // them, so that its transform is certain.
    let mut earlier = Earlier::default();
    for pattern in source.filters() {
        if earlier.overlapping(pattern.as_bytes()).is_some() {
            return Err(match mirror {
                true => ApiError::MIRROR_OVERLAPS,
                false => ApiError::SOURCE_OVERLAPS,
            });
        }
        earlier.push(pattern.as_bytes());
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let bad = |c: char| matches!(c, '.' | '*' | '>' | '/' | '\\') || c.is_whitespace();
    !name.is_empty() && name.len() <= super::NAME_BYTES_MAX && !name.contains(bad)
}

/// Returns whether messages could go in a circle through a stream of this configuration: whether the stream
/// takes in its own messages, directly or by way of other streams. The group refuses such a stream, because
/// it would grow without end. `find` returns the configuration of another stream. As in nats-server, a source
/// closes the circle only if its filter passes a subject of the stream.
pub(in crate::stream) fn has_cycle<'a>(
    config: &'a StreamConfig,
    find: impl Fn(&str) -> Option<&'a StreamConfig>,
) -> bool {
    let mut visited = BTreeSet::new();
    let mut waiting = VecDeque::from([config]);
    while let Some(at) = waiting.pop_front() {
        for origin in at.local_origins() {
            if origin.name != config.name {
                if visited.insert(origin.name.as_str()) {
                    waiting.extend(find(&origin.name));
                }
                continue;
            }
            let filter = origin.filter_subject.as_bytes();
            let overlaps = |pattern: &String| subject::overlaps(pattern.as_bytes(), filter);
            let is_mirror = at.mirror.is_some();
            if is_mirror || filter.is_empty() || at.subjects.iter().any(overlaps) {
                return true;
            }
        }
    }
    false
}

/// Returns whether the stream of this configuration would reach one stream by two ways of origins, one of
/// them through a mirror or a longer way, so that it would store messages twice. nats-server refuses such a
/// stream as a cycle, and looks at the origins in this order. `find` returns the configuration of another
/// stream.
pub(in crate::stream) fn meets_again<'a>(
    config: &'a StreamConfig,
    find: impl Fn(&str) -> Option<&'a StreamConfig>,
) -> bool {
    let (mut visited, mut noted) = (BTreeSet::new(), BTreeSet::new());
    let mut waiting = VecDeque::from([config]);
    while let Some(at) = waiting.pop_front() {
        visited.insert(at.name.as_str());
        for origin in at.local_origins() {
            if !visited.contains(origin.name.as_str()) {
                if noted.insert(origin.name.as_str()) {
                    waiting.extend(find(&origin.name));
                }
                continue;
            }
            let filter = origin.filter_subject.as_bytes();
            let overlaps = |pattern: &String| subject::overlaps(pattern.as_bytes(), filter);
            if at.mirror.is_some() || filter.is_empty() || at.subjects.iter().any(overlaps) {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::config::{External, OriginConsumer};
    use crate::schema::mapping::SubjectTransform;
    use crate::schema::sequence::StreamSeq;
    use crate::schema::timestamp::Timestamp;

    fn source(name: &str) -> StreamSource {
        StreamSource {
            name: name.into(),
            ..StreamSource::default()
        }
    }

    fn mirror(change: impl FnOnce(&mut StreamConfig)) -> StreamConfig {
        let mut config = StreamConfig {
            name: "M".into(),
            mirror: Some(source("O")),
            ..StreamConfig::default()
        };
        change(&mut config);
        config
    }

    #[test]
    fn a_mirror_has_only_its_origin() {
        let refused = |change: fn(&mut StreamConfig)| check(&mirror(change)).unwrap_err().err_code;
        assert_eq!(check(&mirror(|_| {})), Ok(()));
        assert_eq!(refused(|c| c.subjects.push("a".into())), 10034);
        assert_eq!(refused(|c| c.sources.push(StreamSource::default())), 10031);
        assert_eq!(refused(|c| c.first_seq = StreamSeq::new(5)), 10143);
        assert_eq!(refused(|c| c.allow_atomic = true), 10198);
        assert_eq!(refused(|c| c.allow_batched = true), 10209);
        assert_eq!(refused(|c| c.subject_delete_marker_ttl = 1), 10052);
        assert_eq!(refused(|c| c.mirror = Some(StreamSource::default())), 10142);
        let bad = |c: &mut StreamConfig| {
            c.mirror.as_mut().unwrap().filter_subject = "a..b".into();
        };
        assert_eq!(refused(bad), 10052);
        assert_eq!(refused(|c| c.name = "O".into()), 10052);
        let elsewhere = |api: &str| {
            let api = api.to_owned();
            check(&mirror(|c| {
                c.name = "O".into();
                c.mirror.as_mut().unwrap().external = Some(External {
                    api,
                    ..External::default()
                });
            }))
        };
        assert_eq!(elsewhere("$JS.hub.API"), Ok(()));
        for api in ["$JS.API", "hub", "$JS.a.b.API", "$JS.*.API", ""] {
            assert_eq!(elsewhere(api).unwrap_err().err_code, 10052, "{api}");
        }
    }

    #[test]
    fn sources_differ() {
        let of = |sources: Vec<StreamSource>| StreamConfig {
            name: "S".into(),
            sources,
            ..StreamConfig::default()
        };
        let other = StreamSource {
            filter_subject: "a".into(),
            ..source("A")
        };
        assert_eq!(check(&of(vec![source("A"), source("B"), other])), Ok(()));
        let twice = check(&of(vec![source("A"), source("A")]));
        assert_eq!(twice.unwrap_err(), ApiError::SOURCE_DUPLICATE);
        let unnamed = check(&of(vec![source("a.b")]));
        assert_eq!(unnamed.unwrap_err(), ApiError::SOURCE_NAME_INVALID);
    }

    #[test]
    fn a_consumer_says_where_a_source_begins() {
        let by = |change: fn(&mut StreamSource)| {
            let mut source = StreamSource {
                consumer: Some(OriginConsumer {
                    name: "C".into(),
                    deliver_subject: "d.1".into(),
                }),
                ..source("A")
            };
            change(&mut source);
            source
        };
        let sourced = |sources: Vec<StreamSource>| {
            let config = StreamConfig {
                name: "S".into(),
                sources,
                ..StreamConfig::default()
            };
            check(&config).map_err(|error| error.err_code)
        };
        let mirrored =
            |source| check(&mirror(|c| c.mirror = Some(source))).map_err(|error| error.err_code);
        let transformed = |c: &mut StreamSource| {
            c.subject_transforms.push(SubjectTransform {
                src: "a".into(),
                dest: "b".into(),
            });
        };
        for good in [|_: &mut StreamSource| {}, transformed] {
            assert_eq!(
                (sourced(vec![by(good)]), mirrored(by(good))),
                (Ok(()), Ok(()))
            );
        }
        let refused: [fn(&mut StreamSource); 6] = [
            |c| c.consumer = Some(OriginConsumer::default()),
            |c| c.consumer.as_mut().unwrap().name = "a.b".into(),
            |c| c.consumer.as_mut().unwrap().deliver_subject = "d.*".into(),
            |c| c.opt_start_seq = StreamSeq::new(2),
            |c| c.opt_start_time = Some(Timestamp::ZERO),
            |c| c.filter_subject = "a".into(),
        ];
        for change in refused {
            let codes = (sourced(vec![by(change)]), mirrored(by(change)));
            assert_eq!(codes, (Err(10215), Err(10213)));
        }
        let other = by(|c| c.consumer.as_mut().unwrap().name = "D".into());
        assert_eq!(sourced(vec![by(|_| {}), other, source("A")]), Ok(()));
        assert_eq!(sourced(vec![by(|_| {}), by(|_| {})]), Err(10140));
        assert_eq!(sourced(vec![by(|_| {}), by(transformed)]), Err(10216));
    }

    #[test]
    fn transforms() {
        let of = |transforms: &[(&str, &str)]| StreamSource {
            subject_transforms: transforms
                .iter()
                .map(|(src, dest)| SubjectTransform {
                    src: (*src).to_owned(),
                    dest: (*dest).to_owned(),
                })
                .collect(),
            ..source("A")
        };
        let code = |source: &StreamSource, mirror| {
            check_transforms(source, mirror).map_err(|error| error.err_code)
        };
        let both = of(&[("a.*", "x.{{wildcard(1)}}"), ("b", "")]);
        assert_eq!((code(&both, true), code(&both, false)), (Ok(()), Ok(())));
        assert_eq!(both.key(), "A a.*\u{c}b x.{{wildcard(1)}}\u{c}>");
        let external = Some(External {
            api: "$JS.hub.API".into(),
            ..External::default()
        });
        let elsewhere = StreamSource {
            external,
            ..source("A")
        };
        assert_eq!(elsewhere.key(), "A:$JS.hub.API > >");
        let filtered = StreamSource {
            filter_subject: "c".into(),
            ..both
        };
        assert_eq!(
            (code(&filtered, true), code(&filtered, false)),
            (Err(10150), Err(10144))
        );
        for (transforms, mirror, source) in [
            (&[("a..b", "x")][..], 10151, 10145),
            (&[("a", "x..y")], 10154, 10146),
            (&[("a.*", "x"), ("a.b", "y")], 10152, 10147),
        ] {
            let of = of(transforms);
            assert_eq!(
                (code(&of, true), code(&of, false)),
                (Err(mirror), Err(source))
            );
        }
    }

    #[test]
    fn circles() {
        let stream = |name: &str, subjects: &[&str], sources: &[&StreamSource]| StreamConfig {
            name: name.into(),
            subjects: subjects.iter().map(|s| (*s).to_owned()).collect(),
            sources: sources.iter().map(|s| (*s).clone()).collect(),
            ..StreamConfig::default()
        };
        let all = [
            stream("A", &["a.>"], &[&source("B")]),
            stream("B", &["b.>"], &[]),
            mirror(|c| c.mirror = Some(source("A"))),
        ];
        fn cycle(all: &[StreamConfig], config: &StreamConfig) -> bool {
            let all: Vec<StreamConfig> = all.to_vec();
            has_cycle(&config.clone(), |name| all.iter().find(|c| c.name == name))
        }
        let cycle = |config: &StreamConfig| cycle(&all, config);
        assert!(all.iter().all(|config| !cycle(config)));
        assert!(cycle(&stream("B", &["b.>"], &[&source("A")])));
        assert!(cycle(&stream("B", &["b.>"], &[&source("M")])));
        assert!(cycle(&stream("C", &["c.>"], &[&source("C")])));
        let filtered = StreamSource {
            filter_subject: "x.>".into(),
            ..source("C")
        };
        assert!(!cycle(&stream("C", &["c.>"], &[&filtered])));
        // These origins meet in one stream, without a circle.
        let meets = |config: &StreamConfig| {
            meets_again(&config.clone(), |name| all.iter().find(|c| c.name == name))
        };
        assert!(all.iter().all(|config| !meets(config)));
        let by_the_mirror = stream("S", &[], &[&source("A"), &source("M")]);
        assert!(meets(&by_the_mirror) && !cycle(&by_the_mirror));
        assert!(meets(&stream("B", &["b.>"], &[&source("A")])));
        assert!(!meets(&stream("S", &[], &[&source("A"), &source("C")])));
    }
}
