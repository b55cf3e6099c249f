//! The directory: which group keeps a stream, and how whoever makes, changes or deletes one there is
//! answered.
//!
//! The leader of the group of all nodes decides, by an entry of that group's log. The group that is to keep
//! the stream follows the directory ([`super::keeping`]) and answers whoever asked, once it has done so.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate::Time;

use super::gathering::Gathers;
use super::outcome::Then;
use super::told::{self, Told};
use super::{JetStream, Taken};
use crate::api::answer::{self, Kind as Answer};
use crate::api::config::StreamConfig;
use crate::api::error::ApiError;
use crate::api::strip;
use crate::cluster::groups::{ALL, GroupOf};
use crate::nats::parse::Publish;
use crate::node::core::{NOBODY, Node, Way};
use crate::stream::{Command, Kept, Kind, Moving, Outcome};

use super::requests::PULLS;

/// Questions about streams of which it is not known whether anybody serves them, at most.
const DOUBTS_MAX: usize = 4096;
/// How long whoever serves a stream may take to be known for it.
const DOUBT: Duration = Duration::from_millis(500);

/// What other groups' leaders are still to be told, at most.
const UNTOLD_MAX: usize = 4096;
/// How long a group may be without a leader before whoever asked for a change is told so: an election, and a
/// little.
const LEADERLESS: Duration = Duration::from_secs(2);
/// How often it is looked for one, or for who serves a stream.
const LOOK: Duration = Duration::from_millis(25);

/// What concerns the groups there are; of use to the group of all nodes.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// All there are; none where the node is alone.
    groups: Vec<GroupOf>,
    /// The last entry that was applied.
    pub(super) applied: u64,
    /// Since this process began it has been as far as the directory of all nodes was.
    current: bool,
    doubts: VecDeque<Doubt>,
    /// When it is looked again whether somebody serves those.
    doubts_at: Option<Time>,
    untold: VecDeque<Untold>,
    /// When they are tried again.
    look_at: Option<Time>,
    pub(super) gathers: Gathers,
    /// Streams that are being made, and how many of them each group was chosen for.
    making: usize,
    chosen: BTreeMap<u32, usize>,
}

/// A question about a stream that nobody is known to serve.
#[derive(Debug)]
struct Doubt {
    /// The stream's number and name.
    entry: u32,
    stream: Box<str>,
    way: Way,
    subject: Box<[u8]>,
    reply: Box<[u8]>,
    headers: Option<Box<[u8]>>,
    payload: Box<[u8]>,
    until: Time,
}

/// Somebody asked for a change that the leader of another group is to hear of, and there is none.
#[derive(Debug)]
struct Untold {
    kind: Answer,
    reply: Box<[u8]>,
    /// Which stream, and which group.
    of: (u32, u32),
    index: u64,
    until: Time,
}

impl Directory {
    /// When there is something to do.
    pub(super) fn deadline(&self) -> Option<Time> {
        let times = [self.doubts_at, self.gathers.deadline(), self.look_at];
        times.into_iter().flatten().min()
    }

    /// A stream is made, or is not going to be.
    pub(super) fn handle_made(&mut self) {
        self.making = self.making.saturating_sub(1);
        if self.making == 0 {
            self.chosen.clear();
        }
    }

    fn members_len(&self, group: u32) -> usize {
        let of = self.groups.iter().find(|g| g.number == group);
        of.map_or(0, |g| g.members.len())
    }
}

impl JetStream {
    /// These are the groups of the cluster, this one first.
    pub fn set_groups(&mut self, groups: Vec<GroupOf>) {
        self.interest_changed = true;
        self.directory.groups = groups;
    }

    /// What is applied is as new as the directory of all nodes was when this process had begun: what was
    /// changed while it was away is known.
    pub const fn set_current(&mut self) {
        self.directory.current = true;
    }

    /// Returns whether it is.
    #[must_use]
    pub const fn is_current(&self) -> bool {
        self.directory.current
    }

    /// Returns whether there are other groups, which keep some of the streams.
    pub(super) const fn is_split(&self) -> bool {
        self.directory.groups.len() > 1
    }

    /// The group that keeps the stream which takes messages of this subject, if it is another one.
    pub(in crate::node) fn keeper_of(&mut self, subject: &[u8]) -> Option<u32> {
        let id = self.streams.capture(subject)?;
        match self.streams.get(id)?.kept() {
            Kept::Elsewhere { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Which group is to keep a new stream: the smallest that has enough members, and of several of that size
    /// the one with the fewest streams. Somebody has to be there; of all nodes enough are, or there would be
    /// no directory.
    pub(super) fn place(
        &mut self,
        node: &mut Node,
        config: &StreamConfig,
    ) -> Result<Kept, ApiError> {
        if !self.is_split() {
            return Ok(Kept::Here);
        }
        let chosen = self.choose(node, config)?;
        self.directory.making += 1;
        *self.directory.chosen.entry(chosen).or_default() += 1;
        Ok(match chosen {
            ALL => Kept::Here,
            group => Kept::Elsewhere { group, made: false },
        })
    }

    /// How many members a group has that is to keep so many copies.
    fn size_for(&self, config: &StreamConfig) -> Option<usize> {
        let wanted = usize::try_from(config.num_replicas).unwrap_or(0).max(1);
        let sizes = self.directory.groups.iter().map(|g| g.members.len());
        sizes.filter(|len| *len >= wanted).min()
    }

    /// Of the groups of the right size that are there the one with the fewest streams; one without room only
    /// where there is no other.
    fn choose(&self, node: &mut Node, config: &StreamConfig) -> Result<u32, ApiError> {
        let size = self.size_for(config);
        let all = self.directory.groups.first().map(|g| g.members.len());
        let kept = |group: u32| {
            let making = self.directory.chosen.get(&group).copied();
            self.streams.placed_in(group) + making.unwrap_or(0)
        };
        let groups = self.directory.groups.iter();
        let fitting = groups.filter(|g| Some(g.members.len()) == size);
        let there: Vec<&GroupOf> = fitting
            .filter(|g| size == all || node.is_led(g.number))
            .collect();
        let chosen = there
            .into_iter()
            .min_by_key(|g| {
                let full = g.members.iter().any(|id| node.is_full(*id));
                (full, kept(g.number), g.number)
            })
            .map(|g| g.number);
        chosen.ok_or_else(|| {
            ApiError::no_peers(format_args!(
                "no suitable peers for placement: of the nodes none that could keep {} copies is there",
                config.num_replicas
            ))
        })
    }

    /// What the command that gives a stream its new configuration says of where it is to move, or that it is
    /// not to move any more.
    pub(super) fn course(
        &mut self,
        node: &mut Node,
        config: &StreamConfig,
    ) -> Result<Vec<u8>, ApiError> {
        let there = self.streams.by_name(&config.name);
        let there = there.and_then(|id| self.streams.get(id));
        let Some(there) = there.filter(|s| s.config().num_replicas != config.num_replicas) else {
            return Ok(Vec::new());
        };
        let moving = there.moving();
        let at = match there.kept() {
            Kept::Elsewhere { group, .. } => group,
            _ => ALL,
        };
        let stays =
            !self.is_split() || self.size_for(config) == Some(self.directory.members_len(at));
        let to = match stays {
            true => None,
            false => Some(self.choose(node, config)?),
        };
        Ok(match (moving, to) {
            (Some(moving), to) => Moving::encode_instead(to, moving.number),
            (None, Some(to)) => to.to_le_bytes().to_vec(),
            (None, None) => Vec::new(),
        })
    }

    /// A move of a stream has come to nothing: it begins anew, to where somebody is if there is such a group.
    pub(super) fn renew_move(&mut self, node: &mut Node, now: Time, stream: u32, moving: Moving) {
        let entry = self.streams.get(stream);
        let Some(entry) = entry.filter(|e| e.moving() == Some(moving)) else {
            return;
        };
        if self.is_full() {
            // It is said again.
            return;
        }
        let (config, name) = (entry.config().clone(), entry.name().to_owned());
        let to = self.choose(node, &config).unwrap_or(moving.to);
        tracing::warn!(
            "stream {name} is served where it was: the nodes it was to move to did not go on; it is tried again"
        );
        self.propose_renew(now, stream, moving, to);
    }

    /// Nobody has been there for long where a stream is to move: it moves elsewhere, if there is somebody.
    pub(super) fn redirect(&mut self, node: &mut Node, now: Time, stream: u32, moving: Moving) {
        let Some(entry) = self.streams.get(stream).filter(|_| !self.is_full()) else {
            return;
        };
        let keeper = match entry.kept() {
            Kept::Elsewhere { group, .. } => group,
            _ => ALL,
        };
        let Ok(to) = self.choose(node, entry.config()) else {
            return;
        };
        if to == moving.to || to == keeper || !node.is_led(to) {
            return;
        }
        tracing::warn!(
            "stream {} moves to other nodes than it was to: nobody is there",
            entry.name()
        );
        self.propose_renew(now, stream, moving, to);
    }

    fn propose_renew(&mut self, now: Time, stream: u32, moving: Moving, to: u32) {
        let payload = moving.encode_renewed(to);
        let renew = Command::new(Kind::Renew, stream, b"", &payload);
        self.command(now, false, &renew, Some((b"", Then::Noted)));
    }

    /// Whoever asked for something that another group is to do now is answered there.
    pub(super) fn forward(
        &mut self,
        node: &mut Node,
        now: Time,
        reply: &[u8],
        kind: Answer,
        (stream, group): (u32, u32),
    ) {
        let untold = Untold {
            kind,
            reply: reply.into(),
            of: (stream, group),
            index: self.directory.applied,
            until: now + LEADERLESS,
        };
        if tell(node, now, &untold) {
            return;
        }
        if kind == Answer::StreamDelete {
            // What is left of it there goes as soon as somebody leads that group.
            let body = answer::success(kind);
            self.voice(node, now).answer_with(reply, &body);
        } else if self.directory.untold.len() < UNTOLD_MAX {
            self.directory.untold.push_back(untold);
            self.directory.look_at.get_or_insert(now + LOOK);
        } else {
            self.refuse_untold(node, now, &untold);
        }
    }

    /// Tells the leaders there are by now, and those who wait for one that there is none.
    pub(super) fn serve_untold(&mut self, node: &mut Node, now: Time) {
        if self.directory.look_at.is_none_or(|at| at > now) {
            return;
        }
        for untold in std::mem::take(&mut self.directory.untold) {
            if tell(node, now, &untold) {
                continue;
            }
            match untold.until <= now {
                true => self.refuse_untold(node, now, &untold),
                false => self.directory.untold.push_back(untold),
            }
        }
        let none = self.directory.untold.is_empty();
        self.directory.look_at = (!none).then(|| now + LOOK);
    }

    fn refuse_untold(&mut self, node: &mut Node, now: Time, untold: &Untold) {
        self.stats.api_errors += 1;
        let body = answer::refused(untold.kind.as_str(), &ApiError::SYSTEM_UNAVAILABLE);
        self.voice(node, now).answer_with(&untold.reply, &body);
    }

    /// The other group's stream that a change is about, and the group.
    pub(super) fn changed_elsewhere(&self, outcome: &Outcome) -> Option<(u32, u32)> {
        let (Outcome::Created { stream }
        | Outcome::Exists { stream }
        | Outcome::Updated { stream }) = *outcome
        else {
            return None;
        };
        match self.streams.get(stream)?.kept() {
            Kept::Elsewhere { group, .. } => Some((stream, group)),
            _ => None,
        }
    }

    /// A group has made these streams.
    pub(super) fn propose_made(&mut self, now: Time, streams: &[u32]) {
        for stream in streams {
            let kept = self.streams.get(*stream).map(|s| s.kept());
            if !matches!(kept, Some(Kept::Elsewhere { made: false, .. })) {
                continue;
            }
            let waiter = (&b""[..], Then::Noted);
            // Without room for it it is said again.
            let _ = self.propose(now, Kind::Made, *stream, b"", &(), waiter);
        }
    }

    /// A question at `$JS.>` about a stream that another group keeps, and that nobody is known to serve, put
    /// to the leader of the directory: it waits until somebody is.
    pub(in crate::node) fn handle_request_away(
        &mut self,
        node: &mut Node,
        now: Time,
        stream: &str,
        message: &Publish<'_>,
        way: Way,
    ) -> Taken {
        let Some(reply) = message.reply else {
            return Taken::Yes;
        };
        let entry = self.streams.by_name(stream);
        let Some(entry) = entry.filter(|_| self.directory.doubts.len() < DOUBTS_MAX) else {
            self.refuse_unserved(node, now, reply);
            return Taken::Yes;
        };
        self.directory.doubts.push_back(Doubt {
            entry,
            stream: stream.into(),
            way,
            subject: message.subject.into(),
            reply: reply.into(),
            headers: message.headers.map(Into::into),
            payload: message.payload.into(),
            until: now + DOUBT,
        });
        self.directory.doubts_at.get_or_insert(now + LOOK);
        Taken::Yes
    }

    /// Somebody pulls from a stream that another group keeps, and that nobody is known to serve: whoever kept
    /// it until now may still be asked by others. What else there is much of finds nobody.
    pub(in crate::node) fn handle_pull_away(
        &mut self,
        stream: &str,
        message: &Publish<'_>,
    ) -> Taken {
        let asked = strip(message.subject, self.settings.domain.as_deref());
        let (Some(asked), Some(reply)) = (asked, message.reply) else {
            return Taken::No;
        };
        let entry = self.streams.by_name(stream);
        let moves = asked.starts_with(PULLS) && entry.is_some_and(|e| self.is_unsettled(e));
        match entry.is_some_and(|e| moves && self.park_moving(e, reply)) {
            true => Taken::Yes,
            false => Taken::No,
        }
    }

    /// Hands on what somebody is known for by now, and answers what nobody is going to be.
    pub(super) fn serve_doubts(&mut self, node: &mut Node, now: Time) {
        if self.directory.doubts_at.is_none_or(|at| at > now) {
            return;
        }
        for mut doubt in std::mem::take(&mut self.directory.doubts) {
            let message = Publish {
                subject: &doubt.subject,
                reply: Some(&doubt.reply),
                headers: doubt.headers.as_deref(),
                payload: &doubt.payload,
            };
            let Some(entry) = self.streams.by_name(&doubt.stream) else {
                // It is deleted.
                self.handle_request(node, now, &message);
                continue;
            };
            doubt.entry = entry;
            if let Some(at) = node.slot_open(entry) {
                node.with_streams(at, |streams, node| {
                    streams.handle_request(node, now, &message)
                });
                continue;
            }
            let served = node.server_of(&doubt.stream);
            if served.is_some_and(|to| node.hand(now, NOBODY, to, &message, doubt.way)) {
                continue;
            }
            match doubt.until > now {
                true => self.directory.doubts.push_back(doubt),
                false => self.refuse_unserved(node, now, &doubt.reply),
            }
        }
        let none = self.directory.doubts.is_empty();
        self.directory.doubts_at = (!none).then(|| now + LOOK);
    }

    fn refuse_unserved(&mut self, node: &mut Node, now: Time, reply: &[u8]) {
        self.stats.api_errors += 1;
        let body = answer::refused(answer::SYSTEM, &ApiError::SYSTEM_UNAVAILABLE);
        self.voice(node, now).answer_with(reply, &body);
    }

    /// This node does not lead the directory any more.
    pub(super) fn close_directory(&mut self, node: &mut Node, now: Time) {
        for doubt in std::mem::take(&mut self.directory.doubts) {
            self.refuse_unserved(node, now, &doubt.reply);
        }
        self.directory.doubts_at = None;
        self.directory.look_at = None;
        for untold in std::mem::take(&mut self.directory.untold) {
            self.refuse_untold(node, now, &untold);
        }
        self.directory.making = 0;
        self.directory.chosen.clear();
        self.end_gathers(node, now);
    }
}

/// Tells the leader of a group of a change; whether there is one.
fn tell(node: &mut Node, now: Time, untold: &Untold) -> bool {
    let (stream, group) = untold.of;
    told::changed(untold.kind).is_some_and(|change| {
        let ask = Told::Changed {
            change,
            stream,
            index: untold.index,
        };
        node.tell_group(now, group, Some(&untold.reply), ask)
    })
}

#[cfg(test)]
pub(super) mod tests;
