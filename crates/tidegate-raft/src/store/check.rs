//! Checks a closed data directory for everything that a start would refuse: the version file, the members'
//! file, the checkpoints, and the records of the log behind them. Changes nothing.
//!
//! A tool uses the check on a stopped node. The check does not know the configuration, so it takes the
//! members of the groups from the members' file.

use std::collections::BTreeMap;

use tidegate_cluster::groups::{GroupId, SHARDS_MAX, groups};
use tidegate_cluster::members::{Members, MembersFile};
use tidegate_log::{KIND_LOST, Lsn, RecordInfo, Report, Storage};
use tidegate_stream::stream::{AccountLimits, Streams};

use super::checkpoint::{self, CheckpointError, Header};
use super::checkpoints::{group_of, read};
use super::error::OpenError;
use super::open::{REPAIRED_FILE, has_unfinished_repair, has_version, read_file};
use super::seen::Seen;
use crate::replica::records::KIND_LAST;

/// The name of the file that holds a node's identity in its cluster, which the check reads.
pub const MEMBERS_FILE: &str = "members";

/// A finished checkpoint file in a data directory, for the report of a check.
#[derive(Clone, Debug)]
pub struct CheckpointFile {
    /// The name of the checkpoint's file in the data directory.
    pub name: String,
    /// The number of the group to which the state in the checkpoint belongs.
    pub group: GroupId,
    /// The length of the checkpoint's file in bytes.
    pub bytes: u64,
    /// The header of the checkpoint, or the reason why the store cannot use the file.
    pub header: Result<Header, CheckpointError>,
}

/// Checks a data directory for everything that a start would refuse. The caller passes the records of the
/// log to [`note`](Self::note), in order, and then calls [`finish`](Self::finish).
#[derive(Debug)]
pub struct Check {
    checkpoints: Vec<CheckpointFile>,
    /// The reasons to refuse the directory that the check has found without reading the log.
    faults: Vec<OpenError>,
    /// The nodes of the cluster, from which the check knows the members of each group; `None` for a node
    /// without a cluster.
    members: Option<Members>,
    was_opened: bool,
    repaired: bool,
    /// True if the newest repair of the log did not run to its end.
    unfinished: bool,
    seen: BTreeMap<GroupId, Seen>,
    /// The log position behind the last record that a repair gave up, or an earlier position inside the
    /// record. A checkpoint that ends before it lacks the record.
    lost_to: Lsn,
    newer: Option<(u8, Lsn)>,
}

impl Check {
    /// Reads the files in `storage`, the directory beside the log. Leaves out the checkpoints named in
    /// `without`, to check the directory as if their files did not exist.
    ///
    /// # Errors
    /// Fails only if the operating system refuses to read the directory. All other reasons to refuse the
    /// directory are results of the check.
    pub fn begin(storage: &dyn Storage, without: &[String]) -> Result<Self, OpenError> {
        let io = OpenError::io;
        let names = storage.list().map_err(io("listing the data directory"))?;
        let mut check = Self {
            checkpoints: Vec::new(),
            faults: Vec::new(),
            members: None,
            was_opened: false,
            repaired: names.iter().any(|name| name == REPAIRED_FILE),
            unfinished: has_unfinished_repair(storage)?,
            seen: BTreeMap::new(),
            lost_to: Lsn::ZERO,
            newer: None,
        };
        match has_version(storage) {
            Err(error @ OpenError::Io { .. }) => return Err(error),
            Ok(was_opened) => check.was_opened = was_opened,
            Err(error) => {
                check.was_opened = true;
                check.faults.push(error);
            }
        }
        check.read_members(storage)?;
        for name in names.into_iter().filter(|name| !without.contains(name)) {
            if let Some((group, true)) = group_of(&name) {
                check.read_checkpoint(storage, group, name)?;
            }
        }
        check.checkpoints.sort_by(|a, b| a.name.cmp(&b.name));
        for (group, kept) in check.newest() {
            let bytes = read(storage, &kept.name)?;
            let state = checkpoint::decode(&bytes).map(|(_, state)| state);
            let state = state.unwrap_or_default();
            if let Err(error) = Streams::restore(state, AccountLimits::NONE) {
                let text = format!("{}: the state cannot be read: {error}", kept.name);
                check.faults.push(OpenError::Damaged(text));
            }
            let of = check.checkpoints.iter().filter(|c| c.group == group);
            let ends = of.filter_map(|c| Some(c.header.as_ref().ok()?.next));
            check.seen.insert(group, Seen::new(group, ends));
        }
        Ok(check)
    }

    fn read_members(&mut self, storage: &dyn Storage) -> Result<(), OpenError> {
        let text = read_file(storage, MEMBERS_FILE);
        match text.map_err(OpenError::io("reading the members' file"))? {
            None => {}
            Some(text) => match MembersFile::decode(&text) {
                Ok(file) => self.members = file.members,
                Err(error) => self.faults.push(OpenError::Members(error)),
            },
        }
        Ok(())
    }

    fn read_checkpoint(
        &mut self,
        storage: &dyn Storage,
        group: GroupId,
        name: String,
    ) -> Result<(), OpenError> {
        let bytes = read(storage, &name)?;
        let header = checkpoint::decode(&bytes).map(|(header, _)| header);
        if let Err(CheckpointError::Newer { version }) = header {
            self.faults.push(OpenError::NewerFile {
                file: name.clone(),
                version,
                reads: checkpoint::VERSION,
            });
        }
        self.checkpoints.push(CheckpointFile {
            name,
            group,
            bytes: bytes.len() as u64,
            header,
        });
        Ok(())
    }

    /// Returns the newest usable checkpoint of each group, from which a start would continue.
    fn newest(&self) -> Vec<(GroupId, CheckpointFile)> {
        let mut newest: BTreeMap<GroupId, &CheckpointFile> = BTreeMap::new();
        for file in &self.checkpoints {
            let Ok(header) = &file.header else {
                continue;
            };
            let order = |h: &Header| (h.next, h.entry.index);
            let best = newest.entry(file.group).or_insert(file);
            if best.header.as_ref().is_ok_and(|b| order(b) < order(header)) {
                *best = file;
            }
        }
        let owned = newest
            .into_iter()
            .map(|(group, file)| (group, file.clone()));
        owned.collect()
    }

    /// Returns the finished checkpoints of all groups, in the order of their names, for the report.
    #[must_use]
    pub fn checkpoints(&self) -> &[CheckpointFile] {
        &self.checkpoints
    }

    /// Returns whether the directory belongs to a node of a formed cluster, so that other members may have
    /// lost data.
    #[must_use]
    pub const fn is_clustered(&self) -> bool {
        self.members.is_some()
    }

    /// Takes the next record of the log into account. The caller calls this for all records, in order.
    pub fn note(&mut self, record: &RecordInfo) {
        if record.kind == KIND_LOST {
            self.lost_to = self.lost_to.max(record.lsn.after(1));
            return;
        }
        if record.kind > KIND_LAST {
            self.newer.get_or_insert((record.kind, record.lsn));
        }
        let group = GroupId::new(record.group);
        let seen = self.seen.entry(group);
        let seen = seen.or_insert_with(|| Seen::new(group, std::iter::empty()));
        seen.note(record);
    }

    /// Returns all reasons that show why a start refuses the directory. `log` is the report about the log;
    /// the check must have noted the records of this log. The result does not repeat the damage that the
    /// report lists.
    #[must_use]
    pub fn finish(mut self, log: &Report) -> Vec<OpenError> {
        let mut faults = std::mem::take(&mut self.faults);
        if log.damage.is_some() {
            // The records behind the damage are unknown, so the check cannot compare the log with the
            // checkpoints.
            return faults;
        }
        let is_gone = log.segments.is_empty() && log.spares == 0;
        if is_gone && self.was_opened {
            faults.push(OpenError::Log(tidegate_log::OpenError::Gone));
            return faults;
        }
        let newer = self.newer.take();
        faults.extend(newer.map(|(kind, at)| OpenError::NewerRecord { kind, at }));
        let last = log.segments.last();
        let end = last.map_or(Lsn::ZERO, |last| last.range.end);
        if self.is_clustered() && last.is_some_and(|last| last.shortened) {
            faults.push(OpenError::shortened());
        }
        if self.repaired {
            for pair in log.segments.windows(2) {
                if pair[0].segment + 1 < pair[1].segment {
                    self.lost_to = self.lost_to.max(pair[1].range.start);
                }
            }
        }
        if self.unfinished {
            // A start removes checkpoints behind the end of the log that an interrupted repair has left, so
            // they do not count.
            self.checkpoints
                .retain(|c| c.header.as_ref().is_ok_and(|header| header.next <= end));
        }
        let newest: BTreeMap<GroupId, CheckpointFile> = self.newest().into_iter().collect();
        for (group, mut seen) in std::mem::take(&mut self.seen) {
            let header = newest.get(&group).and_then(|file| file.header.clone().ok());
            let header = header.unwrap_or_default();
            seen.note_lost(self.lost_to);
            let fault = match header.next > end {
                true => Some(OpenError::ends_early(end, header.next)),
                false => seen.follow(&header, self.repaired).err(),
            };
            let lacks = || !self.is_alone(group) && (!seen.missing().is_empty() || seen.lost());
            let fault = fault.or_else(|| lacks().then(OpenError::lacks_entries));
            // All groups share the log, so a fault often shows in several of them. The check lists each text
            // once.
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            faults.extend(fault.filter(|fault| !texts.contains(&fault.to_string())));
        }
        faults
    }

    /// Returns whether this node is the only member of the group, so that no other member can count on lost
    /// entries.
    fn is_alone(&self, group: GroupId) -> bool {
        self.members.as_ref().is_none_or(|members| {
            let all = groups(members.ids(), SHARDS_MAX);
            let of = all.iter().find(|of| of.number == group);
            of.is_some_and(|of| of.members.len() == 1)
        })
    }
}
