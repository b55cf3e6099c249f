//! The results of `tidegate log`, as text and as JSON.

use std::fmt;

use serde_json::{Value, json};
use tidegate_log::{Damage, DamageKind, Lsn, Repaired, Report, Verdict};
use tidegate_raft::replica::Index;
use tidegate_raft::store::checkpoint::CheckpointError;
use tidegate_raft::store::{Missing, OpenError};

/// A checkpoint and the entries that it covers.
pub(super) struct Checkpoint {
    pub(super) name: String,
    pub(super) bytes: u64,
    /// The index of the last entry that the checkpoint covers, and the position after that entry.
    pub(super) covers: Result<(Index, Lsn), CheckpointError>,
}

/// The findings of `tidegate log inspect` and `verify`.
pub(super) struct Looked {
    pub(super) report: Report,
    pub(super) checkpoints: Vec<Checkpoint>,
    /// True if the command read every byte of the log.
    pub(super) every_byte: bool,
}

impl Looked {
    pub(super) fn is_sound(&self) -> bool {
        self.report.damage.is_none() && self.checkpoints.iter().all(|c| c.covers.is_ok())
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
                "groups": groups.collect::<Vec<_>>(),
            })
        });
        let checkpoints = self.checkpoints.iter().map(|c| match &c.covers {
            Ok((index, next)) => json!({
                "name": c.name,
                "bytes": c.bytes,
                "index": index.get(),
                "next": next.get(),
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
            writeln!(f, "{}", if s.indexed { ", full" } else { "" })?;
        }
        for c in &self.checkpoints {
            match &c.covers {
                Ok((index, next)) => writeln!(
                    f,
                    "{}: {} bytes, up to entry {index}, position {next}",
                    c.name, c.bytes
                )?,
                Err(error) => writeln!(f, "{}: {error}", c.name)?,
            }
        }
        writeln!(f, "end: {}", self.report.verdict)?;
        match (&self.report.damage, self.every_byte) {
            (Some(damage), _) => writeln!(
                f,
                "damaged: {damage}\nrestore the files from a copy, or run `tidegate log repair`"
            ),
            (None, true) => writeln!(f, "every byte was read: the log is sound"),
            (None, false) => writeln!(f, "no damage shows; `tidegate log verify` reads every byte"),
        }
    }
}

/// The changes that `repair` made.
pub(super) struct Mended {
    pub(super) mended: Repaired,
    /// The records that the repair gave up; `None` if the log needed no repair.
    pub(super) missing: Option<Result<Missing, OpenError>>,
}

impl Mended {
    pub(super) fn gave_nothing_up(&self) -> bool {
        let nothing = |m: &Result<Missing, OpenError>| {
            m.as_ref()
                .is_ok_and(|m| m.streams.is_empty() && m.entries.is_empty())
        };
        self.mended.lost.is_empty()
            && self.mended.removed.is_empty()
            && self.missing.as_ref().is_none_or(nothing)
    }

    pub(super) fn json(&self) -> Value {
        let lost = self.mended.lost.iter();
        let lost = lost.map(|l| json!({"from": l.start.get(), "to": l.end.get()}));
        let mut out = json!({
            "repaired": !self.mended.damage.is_empty(),
            "damage": self.mended.damage.iter().map(damage).collect::<Vec<_>>(),
            "lost": lost.collect::<Vec<_>>(),
            "removed_segments": self.mended.removed,
            "quarantined": self.mended.quarantined,
        });
        match &self.missing {
            Some(Ok(missing)) => {
                let streams = missing.streams.iter().map(|s| {
                    let seqs = s.seqs.iter().map(|(first, last)| json!([first, last]));
                    json!({
                        "stream": s.stream,
                        "messages": s.messages,
                        "seqs": seqs.collect::<Vec<_>>(),
                    })
                });
                let entries = missing
                    .entries
                    .iter()
                    .map(|e| json!([e.start.get(), e.end.previous().get()]));
                out["missing"] = json!({
                    "streams": streams.collect::<Vec<_>>(),
                    "entries": entries.collect::<Vec<_>>(),
                });
            }
            Some(Err(error)) => out["error"] = json!(error.to_string()),
            None => {}
        }
        out
    }
}

impl fmt::Display for Mended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mended.damage.is_empty() {
            return writeln!(
                f,
                "every byte was read: the log is sound, and nothing was changed"
            );
        }
        for damage in &self.mended.damage {
            writeln!(f, "mended: {damage}")?;
        }
        for name in &self.mended.quarantined {
            writeln!(f, "copied to quarantine: {name}")?;
        }
        for lost in &self.mended.lost {
            writeln!(f, "lost: positions {}..{}", lost.start, lost.end)?;
        }
        for segment in &self.mended.removed {
            writeln!(f, "lost: all of segment {segment}")?;
        }
        match &self.missing {
            Some(Ok(missing)) => missing_text(f, missing),
            Some(Err(error)) => writeln!(f, "the missing entries cannot be listed: {error}"),
            None => Ok(()),
        }
    }
}

fn missing_text(f: &mut fmt::Formatter<'_>, missing: &Missing) -> fmt::Result {
    for s in &missing.streams {
        write!(f, "stream {}: {} messages are gone:", s.stream, s.messages)?;
        for (first, last) in &s.seqs {
            match first == last {
                true => write!(f, " {first}")?,
                false => write!(f, " {first}-{last}")?,
            }
        }
        writeln!(f)?;
    }
    for entries in &missing.entries {
        writeln!(
            f,
            "entries {} to {} are gone, with the messages and changes in them: later messages may have other numbers than their acknowledgements said",
            entries.start,
            entries.end.previous()
        )?;
    }
    match missing.streams.is_empty() && missing.entries.is_empty() {
        true => writeln!(f, "no message is gone; the server can be started"),
        false => writeln!(f, "the server can be started without them"),
    }
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
