//! The rules by which a group accepts or refuses a stream's configuration and its changes.
//!
//! The rules are pure functions of configurations. The leader calls them before it proposes a change, and
//! each node again when it applies the change. [`super::Streams`] checks a configuration against other
//! streams; [`crate::api`] refuses features that this server lacks. The texts of errors are the same as in
//! nats-server.

mod origins;

use tidegate_nats::subject;

pub(super) use self::origins::{has_cycle, meets_again};
use super::Stream;
use super::consumers::StreamConsumer;
use super::mapping;
use crate::convert::or_zero;
use crate::overlaps::Earlier;
use crate::schema::config::{Discard, PersistMode, Retention, Storage, StreamConfig};
use crate::schema::error::ApiError;
use crate::schema::sequence::StreamSeq;

const NAME_BYTES_MAX: usize = 255;
const DESCRIPTION_BYTES_MAX: usize = 4 * 1024;
const METADATA_BYTES_MAX: usize = 128 * 1024;
const SHORTEST_NS: i64 = 100_000_000;
const SECOND_NS: i64 = 1_000_000_000;
pub(crate) const DUPLICATE_WINDOW_DEFAULT_NS: i64 = 120 * SECOND_NS;
/// The highest number that a client may set for the first message of a stream. The limit leaves room for the
/// numbers of further messages.
pub(super) const FIRST_SEQ_MAX: StreamSeq = StreamSeq::new(1 << 62);

/// Checks the configuration of a stream, and returns the configuration to store, with defaults for missing
/// fields, as nats-server fills them in.
///
/// # Errors
///
/// Returns error 10052, with a text that names the rule that the configuration breaks; errors 10155 and 10156
/// for a subject transform. The server answers the client with it.
pub fn check(config: &StreamConfig) -> Result<StreamConfig, ApiError> {
    let invalid = |why: &str| Err(ApiError::invalid_config(why));
    let mut config = config.clone();
    check_texts(&config)?;
    for limit in [
        &mut config.max_msgs,
        &mut config.max_bytes,
        &mut config.max_msgs_per_subject,
        &mut config.max_consumers,
    ] {
        if *limit <= 0 {
            *limit = -1;
        }
    }
    if config.max_msg_size <= 0 {
        config.max_msg_size = -1;
    }
    if config.num_replicas == 0 {
        config.num_replicas = 1;
    }
    if config.max_age < 0 {
        return invalid("max age can not be negative");
    }
    if config.max_age != 0 && config.max_age < SHORTEST_NS {
        return invalid("max age needs to be >= 100ms");
    }
    check_window(&mut config)?;
    if config.deny_purge && config.allow_rollup_hdrs {
        return invalid("roll-ups require the purge permission");
    }
    if config.discard_new_per_subject {
        if config.discard != Discard::New {
            return invalid("discard new per subject requires discard new policy to be set");
        }
        if config.max_msgs_per_subject <= 0 {
            return invalid("discard new per subject requires max msgs per subject > 0");
        }
    }
    match config.subject_delete_marker_ttl {
        0 => {}
        ..0 => return invalid("subject delete marker TTL must not be negative"),
        1..SECOND_NS => return invalid("subject delete marker TTL must be at least 1 second"),
        _ => {
            config.allow_msg_ttl = true;
            if !config.allow_rollup_hdrs {
                config.allow_rollup_hdrs = true;
                config.deny_purge = false;
            }
        }
    }
    if config.persist_mode == PersistMode::Async {
        if config.storage != Storage::File {
            return invalid("async persist mode is only supported on file storage");
        }
        if config.num_replicas > 1 {
            return invalid("async persist mode is not supported on replicated streams");
        }
        if config.allow_atomic {
            return invalid("async persist mode is not supported with atomic batch publish");
        }
    }
    if !config.placement.preferred.is_empty() {
        return invalid("preferred server not permitted in placement");
    }
    if config.first_seq > FIRST_SEQ_MAX {
        return invalid("first sequence is too large, maximum allowed is 4611686018427387904");
    }
    origins::check(&config)?;
    if config.subjects.is_empty() && !config.has_origins() {
        config.subjects.push(config.name.clone());
    }
    check_subjects(&config)?;
    mapping::check(&mut config)?;
    Ok(config)
}

/// Checks an update of a stream's configuration from `old` to `new`, and returns the configuration to store,
/// so that an update cannot break a promise of the stream.
///
/// # Errors
///
/// Returns error 10052, with a text that names the rule that the update breaks. The server answers the client
/// with it.
pub fn check_update(old: &StreamConfig, new: &StreamConfig) -> Result<StreamConfig, ApiError> {
    let invalid = |why: &str| Err(ApiError::invalid_config(why));
    let mut new = check(new)?;
    // As in nats-server, an update may end a mirror, but cannot make the stream a mirror of another origin.
    if new.mirror.is_some() && new.mirror != old.mirror {
        return Err(ApiError::MIRROR_NOT_UPDATABLE);
    }
    if new.name != old.name {
        return invalid("stream configuration name must match original");
    }
    if new.storage != old.storage {
        return invalid("stream configuration update can not change storage type");
    }
    let is_queue = |config: &StreamConfig| config.retention == Retention::WorkQueue;
    if new.retention != old.retention && (is_queue(old) || is_queue(&new)) {
        return invalid(
            "stream configuration update can not change retention policy to/from workqueue",
        );
    }
    if old.sealed && !new.sealed {
        return invalid("stream configuration update can not unseal a sealed stream");
    }
    if old.deny_delete && !new.deny_delete {
        return invalid("stream configuration update can not cancel deny message deletes");
    }
    if old.deny_purge && !new.deny_purge {
        return invalid("stream configuration update can not cancel deny purge");
    }
    if old.allow_msg_ttl && !new.allow_msg_ttl {
        return invalid("message TTL status can not be disabled");
    }
    if old.persist_mode != new.persist_mode {
        return invalid("stream configuration update can not change persist mode");
    }
    // A sealed stream neither stores nor removes messages, so the settings for removals and limits have fixed
    // values.
    if new.sealed {
        new.max_age = 0;
        new.discard = Discard::New;
        (new.deny_delete, new.deny_purge) = (true, true);
        new.allow_rollup_hdrs = false;
    }
    // The number of the first message never changes, because it says where the stream began.
    new.first_seq = old.first_seq;
    Ok(new)
}

/// Checks that the stream's consumers respect the limits for consumers in the new configuration. The leader
/// calls this before it proposes a change. Nodes do not call it when they apply a change, because an accepted
/// change stays accepted.
///
/// # Errors
///
/// Returns an error that names the consumers beyond the new limits, so that the client can change them first.
pub fn check_consumers(stream: &Stream, new: &StreamConfig) -> Result<(), ApiError> {
    let (old, limits) = (&stream.config().consumer_limits, &new.consumer_limits);
    let lowers = |old: i64, new: i64, has: i64| new > 0 && new != old && has > new;
    let exceeds = |c: &StreamConsumer| {
        let c = c.config().nameless();
        let (threshold, pending) = (limits.inactive_threshold, limits.max_ack_pending);
        lowers(old.inactive_threshold, threshold, c.inactive_threshold)
            || lowers(old.max_ack_pending, pending, c.max_ack_pending)
    };
    let names: Vec<&str> = stream
        .consumers()
        .filter(|(_, c)| exceeds(c))
        .map(|(name, _)| name)
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(ApiError::stream_update(format_args!(
        "change to limits violates consumers: {}",
        names.join(", ")
    )))
}

fn check_texts(config: &StreamConfig) -> Result<(), ApiError> {
    let invalid = |why: String| Err(ApiError::invalid_config(why));
    let name = &config.name;
    let bad = |c: char| matches!(c, '.' | '*' | '>' | '/' | '\\') || c.is_whitespace();
    if name.is_empty() || name.contains(bad) || name.contains(char::is_control) {
        return invalid(
            r"stream name is required and can not contain '.', '*', '>', '\', '/'".to_owned(),
        );
    }
    if name.len() > NAME_BYTES_MAX {
        return invalid(format!(
            "stream name is too long, maximum allowed is {NAME_BYTES_MAX}"
        ));
    }
    if config.description.len() > DESCRIPTION_BYTES_MAX {
        return invalid(format!(
            "stream description is too long, maximum allowed is {DESCRIPTION_BYTES_MAX}"
        ));
    }
    let metadata = config.metadata.iter();
    if metadata.map(|(k, v)| k.len() + v.len()).sum::<usize>() > METADATA_BYTES_MAX {
        return invalid(format!(
            "stream metadata exceeds maximum size of {METADATA_BYTES_MAX} bytes"
        ));
    }
    Ok(())
}

fn check_window(config: &mut StreamConfig) -> Result<(), ApiError> {
    let invalid = |why: &str| Err(ApiError::invalid_config(why));
    // As in nats-server, a stream with origins looks for duplicates only if a client sets a window, because
    // the origins already did so.
    if config.duplicate_window == 0 && config.has_origins() {
        return Ok(());
    }
    if config.duplicate_window == 0 {
        config.duplicate_window = match config.max_age {
            0 => DUPLICATE_WINDOW_DEFAULT_NS,
            age => age.min(DUPLICATE_WINDOW_DEFAULT_NS),
        };
    }
    if config.duplicate_window < 0 {
        return invalid("duplicates window can not be negative");
    }
    if config.max_age != 0 && config.duplicate_window > config.max_age {
        return invalid("duplicates window can not be larger then max age");
    }
    if config.duplicate_window < SHORTEST_NS {
        return invalid("duplicates window needs to be >= 100ms");
    }
    Ok(())
}

fn check_subjects(config: &StreamConfig) -> Result<(), ApiError> {
    let invalid = |why: &str| Err(ApiError::invalid_config(why));
    let touches =
        |pattern: &str, space: &str| subject::overlaps(pattern.as_bytes(), space.as_bytes());
    let mut earlier = Earlier::default();
    for pattern in &config.subjects {
        if !subject::is_pattern(pattern.as_bytes()) {
            return invalid("invalid subject");
        }
        let other = earlier.overlapping(pattern.as_bytes());
        let other = other.map(|place| &config.subjects[place]);
        if other == Some(pattern) {
            return invalid("duplicate subjects detected");
        }
        if !config.no_ack {
            if pattern == ">" {
                return invalid("capturing all subjects requires no-ack to be true");
            }
            let within = |space: &str| subject::contains(space.as_bytes(), pattern.as_bytes());
            if ["$JS.>", "$JSC.>", "$NRG.>"]
                .iter()
                .any(|s| touches(pattern, s))
                && !within("$JS.EVENT.>")
            {
                return invalid(
                    "subjects that overlap with jetstream api require no-ack to be true",
                );
            }
            if touches(pattern, "$SYS.>") && !within("$SYS.ACCOUNT.>") {
                return invalid("subjects that overlap with system api require no-ack to be true");
            }
        }
        if let Some(other) = other {
            return Err(ApiError::invalid_config(format_args!(
                "subject {other:?} overlaps with {pattern:?}"
            )));
        }
        earlier.push(pattern.as_bytes());
    }
    Ok(())
}

/// Returns the number of bytes that a stream of this configuration reserves in the given kind of storage, for
/// the limit of the account: the stream's byte limit, or 0 if it has none or uses the other kind.
pub(super) fn reserved(config: &StreamConfig, storage: Storage) -> u64 {
    if config.storage == storage {
        or_zero(config.max_bytes)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(name: &str) -> StreamConfig {
        StreamConfig {
            name: name.into(),
            ..StreamConfig::default()
        }
    }

    fn refusal(change: impl FnOnce(&mut StreamConfig)) -> String {
        let mut config = config("S");
        change(&mut config);
        let error = check(&config).unwrap_err();
        assert_eq!((error.code, error.err_code), (500, 10052));
        error.description.into_owned()
    }

    #[test]
    fn missing_settings_are_filled_in() {
        let kept = check(&config("S")).unwrap();
        assert_eq!(kept.subjects, ["S"]);
        assert_eq!(
            (kept.max_msgs, kept.max_msg_size, kept.num_replicas),
            (-1, -1, 1)
        );
        assert_eq!(kept.duplicate_window, DUPLICATE_WINDOW_DEFAULT_NS);
        assert_eq!(check(&kept).unwrap(), kept, "kept configurations stay");
        let mut aged = config("S");
        aged.max_age = SECOND_NS;
        assert_eq!(check(&aged).unwrap().duplicate_window, SECOND_NS);
        let mut marked = config("S");
        marked.subject_delete_marker_ttl = SECOND_NS;
        let kept = check(&marked).unwrap();
        assert!(kept.allow_msg_ttl && kept.allow_rollup_hdrs);
    }

    #[test]
    fn rules_are_named() {
        for name in ["", "a.b", "a*", "a>", "a b", "a/b", "a\\b", "a\u{1}"] {
            assert!(refusal(|c| c.name = name.into()).starts_with("stream name is required"));
        }
        assert!(refusal(|c| c.name = "x".repeat(256)).contains("too long"));
        assert!(refusal(|c| c.description = "x".repeat(4097)).contains("description"));
        assert!(refusal(|c| c.max_age = 5).contains("max age needs"));
        assert!(refusal(|c| c.max_age = -5).contains("max age can not"));
        assert!(refusal(|c| c.duplicate_window = 5).contains("100ms"));
        assert!(refusal(|c| c.duplicate_window = -5).contains("negative"));
        let wide = refusal(|c| {
            c.max_age = SECOND_NS;
            c.duplicate_window = 2 * SECOND_NS;
        });
        assert!(wide.contains("larger then max age"));
        assert!(refusal(|c| c.discard_new_per_subject = true).contains("discard new policy"));
        let per = refusal(|c| {
            c.discard_new_per_subject = true;
            c.discard = Discard::New;
        });
        assert!(per.contains("max msgs per subject > 0"));
        assert!(refusal(|c| c.subject_delete_marker_ttl = 5).contains("at least 1 second"));
        let rollup = refusal(|c| (c.deny_purge, c.allow_rollup_hdrs) = (true, true));
        assert!(rollup.contains("roll-ups require"));
        assert!(refusal(|c| c.first_seq = StreamSeq::MAX).contains("first sequence"));
    }

    #[test]
    fn subjects() {
        let said = |subjects: &[&str]| {
            refusal(|c| c.subjects = subjects.iter().map(|s| (*s).to_owned()).collect())
        };
        assert_eq!(said(&["a..b"]), "invalid subject");
        assert_eq!(said(&["a", "a"]), "duplicate subjects detected");
        assert_eq!(
            said(&["a.*", "a.b"]),
            r#"subject "a.*" overlaps with "a.b""#
        );
        assert!(said(&[">"]).contains("no-ack"));
        assert!(said(&["$JS.>"]).contains("jetstream api"));
        assert!(said(&["$SYS.REQ"]).contains("system api"));
        let mut everything = config("S");
        everything.subjects = vec![">".into()];
        everything.no_ack = true;
        assert!(check(&everything).is_ok());
        let mut events = config("S");
        events.subjects = vec!["$JS.EVENT.ADVISORY.>".into()];
        assert!(check(&events).is_ok());
    }

    #[test]
    fn an_asynchronous_stream_is_in_files_on_one_node() {
        let wanted = |change: fn(&mut StreamConfig)| {
            refusal(|c| {
                c.persist_mode = PersistMode::Async;
                change(c);
            })
        };
        assert!(wanted(|c| c.storage = Storage::Memory).contains("file storage"));
        assert!(wanted(|c| c.num_replicas = 3).contains("replicated"));
        assert!(wanted(|c| c.allow_atomic = true).contains("atomic"));
        assert!(refusal(|c| c.placement.preferred = "n1".into()).contains("preferred"));
        let mut config = config("S");
        config.persist_mode = PersistMode::Async;
        let kept = check(&config).unwrap();
        let mut update = kept.clone();
        update.persist_mode = PersistMode::Default;
        let refused = check_update(&kept, &update).unwrap_err();
        assert!(refused.description.contains("persist mode"), "{refused:?}");
    }

    #[test]
    fn unchangeable_settings() {
        let old = check(&config("S")).unwrap();
        let refusal = |old: &StreamConfig, change: &dyn Fn(&mut StreamConfig)| {
            let mut new = old.clone();
            change(&mut new);
            let error = check_update(old, &new).unwrap_err();
            assert_eq!(error.err_code, 10052);
            error.description.into_owned()
        };
        assert!(refusal(&old, &|c| c.name = "T".into()).contains("name must match"));
        assert!(refusal(&old, &|c| c.storage = Storage::Memory).contains("storage type"));
        assert!(refusal(&old, &|c| c.retention = Retention::WorkQueue).contains("workqueue"));
        let mut sealed = old.clone();
        sealed.sealed = true;
        sealed.max_age = SECOND_NS;
        sealed.duplicate_window = SECOND_NS;
        let sealed = check_update(&old, &sealed).unwrap();
        assert!(sealed.deny_delete && sealed.deny_purge && sealed.max_age == 0);
        assert!(refusal(&sealed, &|c| c.sealed = false).contains("unseal"));
        let mut denied = old.clone();
        (denied.deny_delete, denied.deny_purge, denied.allow_msg_ttl) = (true, true, true);
        assert!(refusal(&denied, &|c| c.deny_delete = false).contains("message deletes"));
        assert!(refusal(&denied, &|c| c.deny_purge = false).contains("deny purge"));
        assert!(refusal(&denied, &|c| c.allow_msg_ttl = false).contains("TTL status"));
    }
}
