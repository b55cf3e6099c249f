//! Tests that the messages between leaders keep the bytes of their protocol version. The directory
//! `tests/golden/cluster` has a folder of samples for each version.

use tidegate_cluster::VERSION;
use tidegate_cluster::groups::GroupId;
use tidegate_stream::schema::number::{DirectoryNumber, MoveNumber};
use tidegate_stream::stream::{Cursor, Moving, Stage};

use super::{Change, LeaderMessage};

const KEPT: &str = include_str!("../../../../tests/golden/cluster/v6/told.txt");

/// Returns the name of the sample with which the test compares a kind of leader message. Without an arm for a
/// new kind this function does not compile, and without a sample the test fails. A new kind needs a new
/// version of the protocol.
const fn name_of(told: &LeaderMessage) -> &'static str {
    match told {
        LeaderMessage::Changed { change, .. } => match change {
            Change::Created => "changed: created",
            Change::Updated => "changed: updated",
            Change::Deleted => "changed: deleted",
            Change::Restoring => "changed: restoring",
        },
        LeaderMessage::Made(_) => "made",
        LeaderMessage::Abandoned(_) => "abandoned",
        LeaderMessage::Report { .. } => "report",
        LeaderMessage::Reported(_) => "reported",
        LeaderMessage::Export { from, .. } => match from.stage {
            Stage::Messages => "export: messages",
            Stage::Gone => "export: gone",
            Stage::Ids => "export: ids",
            Stage::Consumers => "export: consumers",
            Stage::Rest => "export: rest",
            Stage::Done => "export: done",
        },
        LeaderMessage::Exported { .. } => "exported",
        LeaderMessage::Stalled { .. } => "stalled",
        LeaderMessage::Moved { .. } => "moved",
        LeaderMessage::Take(_) => "take",
        LeaderMessage::Given { answer, .. } => match answer.entry.is_empty() {
            false => "given",
            true => "given: an error",
        },
    }
}

fn samples() -> Vec<LeaderMessage> {
    let (stream, moving) = (
        DirectoryNumber::new(7),
        Moving {
            to: GroupId::new(4098),
            number: MoveNumber::new(2),
        },
    );
    let mut all = Vec::new();
    for (change, index) in [Change::Created, Change::Updated, Change::Deleted]
        .into_iter()
        .zip(12..)
    {
        all.push(LeaderMessage::Changed {
            change,
            stream,
            index,
        });
    }
    all.push(LeaderMessage::Made(vec![stream, DirectoryNumber::new(9)]));
    all.push(LeaderMessage::Report {
        question: 1,
        streams: vec![stream],
    });
    // The fields of `Reported` are private to another module, so the test decodes the sample from JSON, and
    // then encodes it again.
    let reported = r#"{"question":1,"group":4097,"streams":[[7,{"config":{"name":"S"}}]],"file_bytes":100,"memory_bytes":0,"consumers":2}"#;
    all.push(LeaderMessage::Reported(
        serde_json::from_str(reported).unwrap(),
    ));
    for stage in [
        Stage::Messages,
        Stage::Gone,
        Stage::Ids,
        Stage::Consumers,
        Stage::Rest,
        Stage::Done,
    ] {
        let from = Cursor { stage, at: 512 };
        all.push(LeaderMessage::Export {
            stream,
            moving,
            from,
        });
    }
    let from = Cursor::START;
    all.push(LeaderMessage::Exported {
        stream,
        moving,
        from,
        entry: b"(an entry)".to_vec(),
    });
    all.push(LeaderMessage::Stalled { stream, moving });
    all.push(LeaderMessage::Moved { stream, moving });
    all.push(LeaderMessage::Changed {
        change: Change::Restoring,
        stream,
        index: 15,
    });
    all.push(LeaderMessage::Abandoned(vec![stream]));
    // The fields of a request and of its answer are private to another module, so the test decodes them from
    // JSON.
    let take = r#"{"target":7,"group":4097,"origin":9,"is_mirror":false,"source":{"name":"O","filter_subject":"o.>"},"logged":{"origin":{"number":9,"created_us":5},"seq":3},"from":null}"#;
    all.push(LeaderMessage::Take(serde_json::from_str(take).unwrap()));
    for (state, entry) in [
        (
            r#"{"Ok":[null,{"origin":{"number":9,"created_us":5},"seq":3},4]}"#,
            "(an entry)",
        ),
        (
            r#"{"Err":{"code":500,"err_code":10029,"description":"why"}}"#,
            "",
        ),
    ] {
        let mut answer: super::Given =
            serde_json::from_str(&format!(r#"{{"state":{state}}}"#)).unwrap();
        answer.entry.extend_from_slice(entry.as_bytes());
        all.push(LeaderMessage::Given {
            target: stream,
            key: "O o.> >".to_owned(),
            answer,
        });
    }
    all
}

#[test]
fn announcements_have_the_form_of_their_version() {
    assert_eq!(
        VERSION, 6,
        "a new version of the protocol has fixtures of its own"
    );
    let today: String = samples()
        .iter()
        .map(|told| {
            let payload = String::from_utf8(told.encode().unwrap()).unwrap();
            format!("{}\n  {payload}\n", name_of(told))
        })
        .collect();
    assert_eq!(today, KEPT, "today's is\n{today}");
}

#[test]
fn announcements_of_earlier_versions_are_read() {
    let mut lines = KEPT.lines();
    while let (Some(name), Some(payload)) = (lines.next(), lines.next()) {
        let payload = payload.trim().as_bytes();
        let told = LeaderMessage::decode(payload).unwrap_or_else(|| panic!("{name} is not read"));
        assert_eq!(name_of(&told), name);
        assert_eq!(told.encode().unwrap(), payload);
    }
}
