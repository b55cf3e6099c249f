//! Formats the results of `tidegate log` for the operator, as text and as JSON.

use std::fmt;
use std::ops::Range;

use serde_json::{Value, json};
use tidegate_log::{Damage, DamageKind, Lsn, Repaired, Report, Verdict};
use tidegate_raft::store::checkpoint::CheckpointError;
use tidegate_raft::store::{CheckpointFile, Missing, MissingIn, OpenError};

/// The findings of `tidegate log inspect` and `tidegate log verify` about one data directory.
pub(super) struct Looked {
    pub(super) report: Report,
    pub(super) checkpoints: Vec<CheckpointFile>,
    /// The reasons, besides damage to the log, why a server refuses to start with the directory.
    pub(super) refusals: Vec<OpenError>,
    /// True if the command read every byte of the log, so that the report may call the log sound.
    pub(super) every_byte: bool,
}

impl Looked {
    pub(super) fn is_sound(&self) -> bool {
        self.report.damage.is_none()
            && self.refusals.is_empty()
            && self.checkpoints.iter().all(|c| c.header.is_ok())
    }

    /// Returns whether a file is damaged, and not only written by a newer program, so that a repair may help.
    fn is_damaged(&self) -> bool {
        let damaged = |c: &CheckpointFile| matches!(c.header, Err(CheckpointError::Damaged));
        self.report.damage.is_some()
            || self.refusals.iter().any(OpenError::is_damage)
            || self.checkpoints.iter().any(damaged)
    }

    pub(super) fn json(&self) -> Value {
        let segments = self.report.segments.iter().map(|s| {
            let groups = s.groups.iter().map(|(group, g)| {
                json!({
                    "group": group,
                    "records": g.records,
                    "bytes": g.bytes,
                    "first_index": g.first,
                    "last_index": g.last,
                })
            });
            json!({
                "segment": s.segment,
                "from": s.range.start.get(),
                "to": s.range.end.get(),
                "records": s.records,
                "file_bytes": s.file_bytes,
                "indexed": s.indexed,
                "epoch": s.epoch,
                "lost_bytes": s.lost_bytes,
                "shortened": s.shortened,
                "groups": groups.collect::<Vec<_>>(),
            })
        });
        let checkpoints = self.checkpoints.iter().map(|c| match &c.header {
            Ok(header) => json!({
                "name": c.name,
                "group": c.group.get(),
                "bytes": c.bytes,
                "index": header.entry.index.get(),
                "next": header.next.get(),
            }),
            Err(error) => json!({"name": c.name, "bytes": c.bytes, "error": error.to_string()}),
        });
        json!({
            "sound": self.is_sound(),
            "every_byte_read": self.every_byte,
            "end": verdict(&self.report.verdict),
            "damage": self.report.damage.as_ref().map(damage),
            "spares": self.report.spares,
            "segments": segments.collect::<Vec<_>>(),
            "checkpoints": checkpoints.collect::<Vec<_>>(),
            "refusals": texts(&self.refusals),
        })
    }
}

impl fmt::Display for Looked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let segments = &self.report.segments;
        let records: u64 = segments.iter().map(|s| s.records).sum();
        let bytes: u64 = segments
            .iter()
            .map(|s| s.range.end.since(s.range.start))
            .sum();
        writeln!(
            f,
            "{} segments and {} spare, {records} records, {bytes} bytes",
            segments.len(),
            self.report.spares
        )?;
        for s in segments {
            write!(
                f,
                "segment {}: positions {}..{}, {} records",
                s.segment, s.range.start, s.range.end, s.records
            )?;
            if s.lost_bytes > 0 {
                write!(f, ", {} bytes lost to an earlier repair", s.lost_bytes)?;
            }
            if s.shortened {
                f.write_str(", its file is shorter than it was made")?;
            }
            writeln!(f, "{}", if s.indexed { ", full" } else { "" })?;
        }
        for c in &self.checkpoints {
            match &c.header {
                Ok(header) => writeln!(
                    f,
                    "{}: {} bytes, up to entry {}, position {}",
                    c.name, c.bytes, header.entry.index, header.next
                )?,
                Err(error) => writeln!(f, "{}: {error}", c.name)?,
            }
        }
        writeln!(f, "end: {}", self.report.verdict)?;
        if let Some(damage) = &self.report.damage {
            writeln!(f, "damaged: {damage}")?;
        }
        for refusal in &self.refusals {
            writeln!(f, "a server does not start: {refusal}")?;
        }
        f.write_str(match (self.is_sound(), self.every_byte) {
            // Each refusal already names its own remedy, so the report adds no advice.
            (false, _) if !self.is_damaged() => "",
            (false, _) => "restore the files from a copy, or run `tidegate log repair`\n",
            (true, true) => "every byte was read: the log is sound\n",
            (true, false) => "no damage shows; `tidegate log verify` reads every byte\n",
        })
    }
}

fn texts(errors: &[OpenError]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

/// The changes that `tidegate log repair` made, and the faults that it cannot repair, for the operator.
pub(super) struct Mended {
    pub(super) log: Repaired,
    /// The records that the repair gave up, because they are damaged; `None` if the log needed no repair.
    pub(super) missing: Option<Result<Missing, OpenError>>,
    /// True if the repair wrote the version file again, because the file was damaged.
    pub(super) version: bool,
    /// The names of the checkpoints that the repair moved to the quarantine.
    pub(super) checkpoints: Vec<String>,
    /// The end of the log, if it was lost and the repair gave it up, so that the server can start.
    pub(super) given_up: Option<Given>,
    /// The reasons why a server still refuses to start with the directory after the repair.
    pub(super) refusals: Vec<OpenError>,
    clustered: bool,
}

/// The lost end of a log, of which a checkpoint shows that the log once reached further.
pub(super) struct Given {
    pub(super) lost: Range<Lsn>,
    /// The messages in the lost end, as far as the checkpoint knows them.
    pub(super) streams: Vec<MissingIn>,
}

impl Mended {
    /// Creates the report of a repair that has changed nothing yet. `clustered` is true if the directory
    /// belongs to a node of a cluster, which may fetch its messages from other nodes.
    pub(super) fn new(clustered: bool) -> Self {
        Self {
            log: Repaired::default(),
            missing: None,
            version: false,
            checkpoints: Vec::new(),
            given_up: None,
            refusals: Vec::new(),
            clustered,
        }
    }

    pub(super) fn gave_nothing_up(&self) -> bool {
        let nothing = |m: &Result<Missing, OpenError>| {
            m.as_ref()
                .is_ok_and(|m| m.streams.is_empty() && m.entries.is_empty())
        };
        self.log.lost.is_empty()
            && self.log.removed.is_empty()
            && self.given_up.is_none()
            && self.missing.as_ref().is_none_or(nothing)
    }

    fn changed_nothing(&self) -> bool {
        self.log.damage.is_empty() && !self.version && self.checkpoints.is_empty()
    }

    pub(super) fn json(&self) -> Value {
        let given_up = self.given_up.iter();
        let lost = self
            .log
            .lost
            .iter()
            .chain(given_up.clone().map(|g| &g.lost));
        let lost = lost.map(|l| json!({"from": l.start.get(), "to": l.end.get()}));
        let mut out = json!({
            "repaired": !self.changed_nothing(),
            "damage": self.log.damage.iter().map(damage).collect::<Vec<_>>(),
            "lost": lost.collect::<Vec<_>>(),
            "removed_segments": self.log.removed,
            "quarantined": self.log.quarantined,
            "version_written": self.version,
            "removed_checkpoints": self.checkpoints,
            "refusals": texts(&self.refusals),
        });
        match &self.missing {
            Some(Ok(missing)) => {
                let entries = missing
                    .entries
                    .iter()
                    .map(|e| json!([e.start.get(), e.end.previous().get()]));
                let streams = missing.streams.iter();
                let streams = streams.chain(given_up.flat_map(|g| &g.streams));
                out["missing"] = json!({
                    "streams": streams.map(missing_in).collect::<Vec<_>>(),
                    "entries": entries.collect::<Vec<_>>(),
                });
            }
            Some(Err(error)) => out["error"] = json!(error.to_string()),
            None => {
                if let Some(given) = &self.given_up {
                    let streams: Vec<_> = given.streams.iter().map(missing_in).collect();
                    out["missing"] = json!({"streams": streams, "entries": []});
                }
            }
        }
        out
    }
}

fn missing_in(s: &MissingIn) -> Value {
    let seqs = s.seqs.iter().map(|(first, last)| json!([first, last]));
    json!({
        "stream": s.stream,
        "messages": s.messages,
        "seqs": seqs.collect::<Vec<_>>(),
    })
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.changed_nothing() && self.refusals.is_empty() {
            return writeln!(
                f,
                "every byte was read: the log is sound, and nothing was changed"
            );
        }
        if self.version {
            writeln!(f, "written again: the file `version`")?;
        }
        for damage in &self.log.damage {
            writeln!(f, "mended: {damage}")?;
        }
        for name in &self.log.quarantined {
            writeln!(f, "copied to quarantine: {name}")?;
        }
        for lost in &self.log.lost {
            writeln!(f, "lost: positions {}..{}", lost.start, lost.end)?;
        }
        for segment in &self.log.removed {
            writeln!(f, "lost: all of segment {segment}")?;
        }
        match &self.missing {
            Some(Ok(missing)) => missing_text(f, missing, !self.log.removed.is_empty())?,
            Some(Err(error)) => writeln!(f, "the missing entries cannot be listed: {error}")?,
            None => {}
        }
        for name in &self.checkpoints {
            writeln!(f, "moved to quarantine: {name}")?;
        }
        if let Some(Given { lost, streams }) = &self.given_up {
            let (from, to) = (lost.start, lost.end);
            writeln!(
                f,
                "lost: positions {from}..{to}, the end of the log, with the messages and all changes of streams and consumers there: later messages may have other numbers than their acknowledgements said"
            )?;
            streams.iter().try_for_each(|s| stream_text(f, s))?;
        }
        for refusal in &self.refusals {
            write!(f, "not repaired: {refusal}")?;
            let rejoins = self.clustered && refusal.is_damage();
            writeln!(f, "{}", if rejoins { REJOIN } else { "" })?;
        }
        let is_open = matches!(self.missing, Some(Err(_))) || !self.refusals.is_empty();
        match (is_open, self.gave_nothing_up()) {
            (true, _) => Ok(()),
            (false, true) => writeln!(f, "no message is gone; the server can be started"),
            (false, false) => writeln!(f, "the server can be started without them"),
        }
    }
}

/// The advice for the node of a cluster, which follows the advice to restore the directory.
const REJOIN: &str = "; or empty it and start the node with --rejoin";

fn stream_text(f: &mut fmt::Formatter<'_>, s: &MissingIn) -> fmt::Result {
    write!(f, "stream {}: {} messages are gone:", s.stream, s.messages)?;
    for (first, last) in &s.seqs {
        match first == last {
            true => write!(f, " {first}")?,
            false => write!(f, " {first}-{last}")?,
        }
    }
    writeln!(f)
}

fn missing_text(f: &mut fmt::Formatter<'_>, missing: &Missing, segments_lost: bool) -> fmt::Result {
    missing.streams.iter().try_for_each(|s| stream_text(f, s))?;
    for entries in &missing.entries {
        writeln!(
            f,
            "entries {} to {} are gone, with the messages and changes in them: later messages may have other numbers than their acknowledgements said",
            entries.start,
            entries.end.previous()
        )?;
    }
    if segments_lost {
        writeln!(
            f,
            "the streams and messages of the segments that are lost cannot be listed: restore the data directory from a copy, or, in a cluster, empty it and start the node with --rejoin"
        )?;
    }
    Ok(())
}

fn verdict(verdict: &Verdict) -> Value {
    let (kind, range) = match verdict {
        Verdict::Clean => ("clean", None),
        Verdict::Torn { at, to } => ("torn", Some((at, to))),
        Verdict::MaybeAcked { from, to } => ("cut, may have been acked", Some((from, to))),
        Verdict::Damaged { from, durable } => ("damaged", Some((from, durable))),
        _ => ("unknown", None),
    };
    match range {
        Some((from, to)) => json!({"verdict": kind, "from": from.get(), "to": to.get()}),
        None => json!({"verdict": kind}),
    }
}

fn damage(damage: &Damage) -> Value {
    let segments = damage.segments.iter().map(|s| {
        let what = match s.what {
            DamageKind::Missing => "missing",
            DamageKind::Header => "unreadable header",
            DamageKind::Batches => "unreadable batches",
            _ => "unreadable",
        };
        let lost = s.lost.iter();
        let lost = lost.map(|l| json!({"from": l.start.get(), "to": l.end.get()}));
        json!({"segment": s.segment, "what": what, "lost": lost.collect::<Vec<_>>()})
    });
    json!({"catalog": damage.catalog, "segments": segments.collect::<Vec<_>>()})
}
