//! Carries out the steps of `tidegate log repair`: it repairs the version file, then the log, then the
//! checkpoints.
//!
//! Until the first change, Ctrl-C ends the repair. From then on the repair runs to its end, because only this
//! run can list the losses. The repair copies each file to the quarantine before it changes or removes the
//! file.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::Context as _;
use tidegate_log::{Disk, Lsn, Repaired, Report, Storage as _};
use tidegate_raft::store::checkpoint::CheckpointError;
use tidegate_raft::store::{
    Check, CheckpointFile, OpenError, VERSION_FILE, end_repair, missing, missing_from,
    write_version,
};

use super::report::{Given, Mended};
use super::watched::{Changes, Watched};
use super::{examined, note};

/// The repair of one data directory, so that a server can start with it again.
pub(super) struct Repair<'a> {
    /// The data directory, the server's directory inside it, and the log's directory inside the server's.
    pub(super) data: &'a Path,
    pub(super) state: &'a Path,
    pub(super) log: &'a Path,
    pub(super) quarantine: &'a Path,
    pub(super) changes: Changes,
}

impl Repair<'_> {
    /// Repairs the directory as far as possible. The result lists the changes, the losses and the remaining
    /// faults.
    pub(super) fn run(&self) -> anyhow::Result<Mended> {
        let (report, check) = self.examined(false, &[])?;
        let mut mended = Mended::new(check.is_clustered());
        let names = check.checkpoints().iter().map(|c| c.name.clone());
        let names: Vec<String> = names.collect();
        let refusals = check.finish(&report);
        // A repair does not help here: the files need a newer program, or only a copy has the identity of the
        // node.
        let is_beyond_repair = |error: &OpenError| !error.is_damage() || is_of_members(error);
        if refusals.iter().any(is_beyond_repair) {
            mended.refusals = refusals;
            return Ok(mended);
        }
        if refusals.iter().any(|e| matches!(e, OpenError::Version)) {
            self.rewrite_version()?;
            mended.version = true;
        }
        if report.damage.is_some() {
            mended.log = self.repair_log(&names)?;
            self.changes.tell();
            mended.missing = Some(missing(self.data, &mended.log.lost));
        }
        self.repair_checkpoints(&mut mended)?;
        if self.changes.have_begun() && mended.refusals.is_empty() {
            // If the repair has cut the log, the next start removes the checkpoints behind the log's end.
            // This call ends that permission: from then on a start refuses a log that ends before a
            // checkpoint.
            end_repair(&Disk::existing(self.state)?)?;
        }
        Ok(mended)
    }

    fn examined(&self, by_index: bool, without: &[String]) -> anyhow::Result<(Report, Check)> {
        let disk = self.watched()?;
        examined(&disk, self.state, self.log, by_index, without)
    }

    fn watched(&self) -> anyhow::Result<Watched> {
        let disk = Disk::existing(self.log).with_context(|| self.log.display().to_string())?;
        Ok(Watched::new(disk, self.changes.clone()))
    }

    fn rewrite_version(&self) -> anyhow::Result<()> {
        self.keep(VERSION_FILE)?;
        self.changes.begin();
        Ok(write_version(&Disk::existing(self.state)?)?)
    }

    /// Repairs the log. First copies the checkpoints of these names to the quarantine, because the repair may
    /// make them useless.
    fn repair_log(&self, checkpoints: &[String]) -> anyhow::Result<Repaired> {
        // The command writes the note before the repair, so that a server that later misses records at its
        // start finds the reason.
        self.changes.begin();
        note(self.state, "a repair was begun\n")?;
        for name in checkpoints {
            self.keep(name)?;
        }
        let (disk, quarantine) = (self.watched()?, Disk::open(self.quarantine)?);
        let repaired = tidegate_log::repair(&disk, &quarantine);
        let repaired = repaired.with_context(|| self.log.display().to_string())?;
        for lost in &repaired.lost {
            note(self.state, &format!("lost: {}..{}\n", lost.start, lost.end))?;
        }
        Ok(repaired)
    }

    /// Moves checkpoints to the quarantine that are damaged, or that lie behind the end of the log, if the
    /// server can start without them.
    fn repair_checkpoints(&self, mended: &mut Mended) -> anyhow::Result<()> {
        let (report, check) = self.examined(true, &[])?;
        let end = report.segments.last().map_or(Lsn::ZERO, |s| s.range.end);
        let (mut useless, mut behind) = (Vec::new(), Vec::new());
        for file in check.checkpoints() {
            match &file.header {
                Err(CheckpointError::Damaged) => useless.push(file.name.clone()),
                Ok(header) if header.next > end => {
                    useless.push(file.name.clone());
                    behind.push((file.clone(), header.next));
                }
                _ => {}
            }
        }
        let clustered = check.is_clustered();
        let refusals = check.finish(&report);
        // After an earlier repair, a start of the server itself removes the checkpoints behind the end of the
        // log.
        if useless.is_empty() || clustered && !refusals.is_empty() {
            mended.refusals = refusals;
            return Ok(());
        }
        let (report, check) = self.examined(true, &useless)?;
        let refusals = check.finish(&report);
        if !refusals.is_empty() {
            mended.refusals = refusals;
            return Ok(());
        }
        for name in &useless {
            self.keep(name)?;
        }
        self.changes.begin();
        mended.given_up = self.give_up(behind, end)?;
        for name in &useless {
            fs::remove_file(self.state.join(name)).with_context(|| name.clone())?;
        }
        Disk::existing(self.state)?.sync_names()?;
        mended.checkpoints = useless;
        Ok(())
    }

    /// Records the end of the log as lost, and lists the messages there for the report, as far as the
    /// checkpoints behind the end know them.
    fn give_up(
        &self,
        behind: Vec<(CheckpointFile, Lsn)>,
        end: Lsn,
    ) -> anyhow::Result<Option<Given>> {
        let Some(to) = behind.iter().map(|(_, next)| *next).max() else {
            return Ok(None);
        };
        let lost: Range<Lsn> = end..to;
        note(self.state, &format!("lost: {}..{}\n", lost.start, lost.end))?;
        let mut streams = Vec::new();
        let newest_first = behind.iter().rev();
        let mut groups = Vec::new();
        for (file, _) in newest_first {
            if groups.contains(&file.group) {
                continue;
            }
            groups.push(file.group);
            let bytes = fs::read(self.state.join(&file.name)).with_context(|| file.name.clone())?;
            streams.extend(missing_from(&bytes, &lost)?);
        }
        Ok(Some(Given { lost, streams }))
    }

    /// Copies a file of the server's directory to the quarantine, durably. Leaves a copy of an earlier repair
    /// unchanged, because it shows the file before all repairs.
    fn keep(&self, name: &str) -> anyhow::Result<()> {
        let (from, to) = (self.state.join(name), self.quarantine.join(name));
        if to.exists() {
            return Ok(());
        }
        let copy = || {
            fs::copy(&from, &to)?;
            fs::File::open(&to)?.sync_all()?;
            fs::File::open(self.quarantine)?.sync_all()
        };
        copy().with_context(|| to.display().to_string())
    }
}

fn is_of_members(error: &OpenError) -> bool {
    matches!(error, OpenError::Members(_))
}
