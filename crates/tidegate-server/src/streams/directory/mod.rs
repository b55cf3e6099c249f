//! Keeps the directory: the list of all streams with the groups that keep them. Also handles the requests of
//! clients that create, change or delete streams of other groups.
//!
//! The leader of the group of all nodes decides each change by an entry of that group's log. The group that
//! keeps the stream follows the directory ([`keeping`]), and answers the client once it has made the change.

pub(crate) mod gathering;
pub(crate) mod keeping;
pub(crate) mod leader_message;
pub(crate) mod leaderless;
pub(crate) mod moving;
pub(crate) mod roles;
pub(crate) mod tags;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId, GroupOf};
use tidegate_nats::parse::Publish;
use tidegate_stream::api::answer::{self, Kind as Answer};
use tidegate_stream::api::strip;
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::{
    Command, Course, Home, Kind, Moving, Outcome, Placement, Renewal, Stream,
};

use self::gathering::Gathers;
use self::leader_message::LeaderMessage;
use super::context::{Context, Way};
use super::outcome::Then;
use super::{JetStream, Taken};

use super::requests::PULLS;

/// The limit on the number of requests about streams that wait until the directory's leader knows a node that
/// serves the stream; the directory's leader refuses more, so that they take bounded memory.
const DOUBTS_MAX: usize = 4096;
/// The time for which a request waits until the directory's leader knows a node that serves the stream. Then
/// the leader refuses the request, so that its client does not wait in vain.
const DOUBT: Duration = Duration::from_millis(500);

/// The limit on the number of decided changes of streams that wait for a leader of the stream's group. If
/// more wait, the directory's leader answers the client with an error, and the group makes the change later
/// all the same.
const UNTOLD_MAX: usize = 4096;
/// The time for which a change of a stream waits for a leader of the stream's group before the client gets an
/// error. An election takes less.
const LEADERLESS: Duration = Duration::from_secs(2);
/// The interval at which the directory's leader looks for leaders of groups and for nodes that serve streams,
/// as long as changes or requests wait for them.
const LOOK: Duration = Duration::from_millis(25);

/// The state with which the directory's leader serves the streams of other groups. Only the group of all
/// nodes uses it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// All groups of the cluster with their members, among which the leader chooses a group for a new stream;
    /// empty if the node is alone.
    groups: Vec<GroupOf>,
    /// The index of the last entry of this group's log that this node has applied. With it the other groups
    /// on this node know whether it has applied a certain change.
    pub(in crate::streams) applied: u64,
    /// True once this node's copy of the directory has caught up with the state that the other nodes had when
    /// this process started. Before that no stream opens.
    current: bool,
    doubts: VecDeque<Doubt>,
    /// The time at which the leader next looks for nodes that serve the streams of the waiting requests;
    /// `None` if no request waits.
    doubts_at: Option<Time>,
    untold: VecDeque<Untold>,
    /// The time at which the leader next looks for leaders of groups for which changes of streams wait;
    /// `None` if no change waits.
    look_at: Option<Time>,
    pub(super) gathers: Gathers,
    /// The number of streams that the leader has proposed to create and that do not exist yet, and (`chosen`)
    /// a count of these streams by group, so that the leader spreads them evenly.
    making: usize,
    chosen: BTreeMap<GroupId, usize>,
}

/// A client's request about a stream, which waits until the directory's leader knows a node that serves the
/// stream.
#[derive(Debug)]
struct Doubt {
    /// The number under which the directory lists the stream that the request concerns.
    entry: DirectoryNumber,
    /// The name of the stream that the request concerns, by which the leader finds it again.
    stream: Box<str>,
    way: Way,
    subject: Box<[u8]>,
    reply: Box<[u8]>,
    headers: Option<Box<[u8]>>,
    payload: Box<[u8]>,
    until: Time,
}

/// A change of a stream that the directory has decided, which waits for a leader of the group that keeps the
/// stream.
#[derive(Debug)]
struct Untold {
    kind: Answer,
    reply: Box<[u8]>,
    /// The directory number of the changed stream, and the group that keeps the stream, to which the change
    /// goes.
    of: (DirectoryNumber, GroupId),
    index: u64,
    until: Time,
}

/// Makes the end of an error about too few nodes, which tells the client the tags that the nodes need; empty
/// without tags.
fn with_tags(tags: &[String]) -> String {
    match tags {
        [] => String::new(),
        _ => format!(", on nodes with the tags {}", tags.join(", ")),
    }
}

impl Directory {
    /// Returns the time at which the directory's leader next has to look for leaders of groups or for nodes
    /// that serve streams, or to refuse a request that has waited too long; `None` if no request and no
    /// change waits.
    pub(super) fn deadline(&self) -> Option<Time> {
        let times = [self.doubts_at, self.gathers.deadline(), self.look_at];
        times.into_iter().flatten().min()
    }

    /// Records that the creation of a stream that the leader proposed has succeeded or failed, so that the
    /// leader no longer counts it as coming.
    pub(super) fn handle_made(&mut self) {
        self.making = self.making.saturating_sub(1);
        if self.making == 0 {
            self.chosen.clear();
        }
    }
}

impl JetStream {
    /// Sets the groups of the cluster, the group of all nodes first. The directory's leader chooses the
    /// groups of new streams among them.
    pub(crate) fn set_groups(&mut self, groups: Vec<GroupOf>) {
        self.role.interest_changed = true;
        self.directory.groups = groups;
    }

    /// Records that this node's copy of the directory has caught up, so that streams may open: it has every
    /// change that the other nodes made before this process started.
    pub(crate) const fn set_current(&mut self) {
        self.directory.current = true;
    }

    /// Returns whether this node's copy of the directory has caught up, so that the node may act by it, see
    /// [`JetStream::set_current`].
    #[must_use]
    pub(crate) const fn is_current(&self) -> bool {
        self.directory.current
    }

    /// Returns whether the cluster has other groups beside the group of all nodes, so that some streams are
    /// in these groups.
    pub(super) const fn is_split(&self) -> bool {
        self.directory.groups.len() > 1
    }

    /// Returns the group that keeps the stream which takes messages of this subject; `None` if this group
    /// keeps the stream, or no stream takes such messages. The node sends such messages to that group.
    pub(crate) fn home_of(&mut self, subject: &[u8]) -> Option<GroupId> {
        let id = self.streams.capture(subject)?;
        match self.streams.get(id)?.home() {
            Home::Elsewhere { group, .. } => Some(group),
            _ => None,
        }
    }

    /// Chooses the group that is to keep a new stream: the smallest group with enough members, and among
    /// groups of this size the group with the fewest streams. The group must have a leader. The group of all
    /// nodes always has a leader here, because only its leader calls this function.
    pub(super) fn place(
        &mut self,
        cx: &mut Context<'_>,
        config: &StreamConfig,
    ) -> Result<Placement, ApiError> {
        if !self.is_split() {
            return Ok(Placement::Here);
        }
        let chosen = self.choose(cx, config)?;
        self.directory.making += 1;
        *self.directory.chosen.entry(chosen).or_default() += 1;
        Ok(match chosen {
            ALL => Placement::Here,
            group => Placement::Elsewhere { group },
        })
    }

    /// Returns the size of the group to choose for this configuration: the fewest members of a group that has
    /// a member for each copy of the stream, and fits the configuration's tags; `None` if no group does.
    fn size_for(&self, config: &StreamConfig) -> Option<usize> {
        let wanted = usize::try_from(config.num_replicas).unwrap_or(0).max(1);
        let tags = &config.placement.tags;
        let groups = self.directory.groups.iter();
        let fitting = groups.filter(|g| self.role.tags.fits(&g.members, tags));
        let sizes = fitting.map(|g| g.members.len());
        sizes.filter(|len| *len >= wanted).min()
    }

    /// Returns whether the group has the size for this configuration and fits the configuration's tags, so
    /// that the stream may stay there.
    fn suits(&self, group: GroupId, config: &StreamConfig) -> bool {
        let groups = &mut self.directory.groups.iter();
        let of = groups.find(|g| g.number == group);
        of.is_some_and(|of| {
            let fits = self.role.tags.fits(&of.members, &config.placement.tags);
            fits && self.size_for(config) == Some(of.members.len())
        })
    }

    /// Chooses a group for a stream: the group with the fewest streams among the groups of the right size
    /// that have a leader, and nodes with the tags that the configuration asks for. Chooses a group without
    /// room only if every such group lacks room.
    fn choose(&self, cx: &mut Context<'_>, config: &StreamConfig) -> Result<GroupId, ApiError> {
        let size = self.size_for(config);
        let all = self.directory.groups.first().map(|g| g.members.len());
        let kept = |group: GroupId| {
            let making = self.directory.chosen.get(&group).copied();
            self.streams.placed_in(group) + making.unwrap_or(0)
        };
        let groups = self.directory.groups.iter();
        let fits = |g: &&GroupOf| self.role.tags.fits(&g.members, &config.placement.tags);
        let fitting = groups
            .filter(|g| Some(g.members.len()) == size)
            .filter(fits);
        let there: Vec<&GroupOf> = fitting
            .filter(|g| size == all || cx.around.leader_of(g.number).is_some())
            .collect();
        let chosen = there
            .into_iter()
            .min_by_key(|g| {
                let full = g.members.iter().any(|id| cx.around.is_full(*id));
                (full, kept(g.number), g.number)
            })
            .map(|g| g.number);
        chosen.ok_or_else(|| {
            ApiError::no_peers(format_args!(
                "no suitable peers for placement: too few nodes are connected to keep {} copies{}",
                config.num_replicas,
                with_tags(&config.placement.tags)
            ))
        })
    }

    /// Decides the effect of a client's update on the stream's home group: a new number of replicas may move
    /// the stream to another group, or call the stream's move off.
    pub(super) fn course(
        &mut self,
        cx: &mut Context<'_>,
        config: &StreamConfig,
    ) -> Result<Course, ApiError> {
        let there = self.streams.by_name(&config.name);
        let there = there.and_then(|id| self.streams.get(id));
        let differs = |s: &&Stream| {
            let (copies, tags) = (s.config().num_replicas, &s.config().placement.tags);
            copies != config.num_replicas || *tags != config.placement.tags
        };
        let Some(there) = there.filter(differs) else {
            return Ok(Course::Same);
        };
        let moving = there.moving();
        let at = match there.home() {
            Home::Elsewhere { group, .. } => group,
            _ => ALL,
        };
        let stays = !self.is_split() || self.suits(at, config);
        let to = match stays {
            true => None,
            false => Some(self.choose(cx, config)?),
        };
        Ok(match (moving, to) {
            (Some(moving), group) => Course::Instead {
                group,
                r#move: moving.number,
            },
            (None, Some(group)) => Course::To { group },
            (None, None) => Course::Same,
        })
    }

    /// Calls off a move that made no progress, so that the stream thaws, and begins a new move to a group
    /// with a leader, if one exists.
    pub(super) fn renew_move(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        stream: DirectoryNumber,
        moving: Moving,
    ) {
        let entry = self.streams.entry(stream);
        let Some(entry) = entry.filter(|e| e.moving() == Some(moving)) else {
            return;
        };
        if self.is_full() {
            // The entries that wait for the log leave no room for a proposal. The leader of the home group
            // reports the stalled move again later.
            return;
        }
        let (config, name) = (entry.config().clone(), entry.name().to_owned());
        let to = self.choose(cx, &config).unwrap_or(moving.to);
        tracing::warn!(
            "stream {name} stays on its nodes for now, because the move to other nodes made no progress: the server tries the move again"
        );
        self.propose_renew(now, stream, moving, to);
    }

    /// Gives a stream's move another target group, because the present target has had no leader for long.
    /// Does nothing if no other group with a leader fits.
    pub(super) fn redirect(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        stream: DirectoryNumber,
        moving: Moving,
    ) {
        let Some(entry) = self.streams.entry(stream).filter(|_| !self.is_full()) else {
            return;
        };
        let home = match entry.home() {
            Home::Elsewhere { group, .. } => group,
            _ => ALL,
        };
        let Ok(to) = self.choose(cx, entry.config()) else {
            return;
        };
        if to == moving.to || to == home || cx.around.leader_of(to).is_none() {
            return;
        }
        tracing::warn!(
            "the server moves stream {} to other nodes than planned, because the planned nodes have had no leader for long",
            entry.name()
        );
        self.propose_renew(now, stream, moving, to);
    }

    fn propose_renew(&mut self, now: Time, stream: DirectoryNumber, moving: Moving, to: GroupId) {
        let payload = Renewal { of: moving, to }.encode();
        let renew = Command::new(Kind::Renew, stream.entry(), b"", &payload);
        self.command(now, false, &renew, Some((b"", Then::Noted)));
    }

    /// Forwards a change of a stream that the directory has decided to the leader of the group that keeps the
    /// stream. That leader makes the change and answers the client.
    pub(super) fn forward(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        kind: Answer,
        (stream, group): (DirectoryNumber, GroupId),
    ) {
        let untold = Untold {
            kind,
            reply: reply.into(),
            of: (stream, group),
            index: self.directory.applied,
            until: now + LEADERLESS,
        };
        if tell(cx, &untold) {
            return;
        }
        if kind == Answer::StreamDelete {
            // The directory's leader answers the client at once, because the group that keeps the stream
            // deletes it as soon as the group has a leader.
            let body = answer::success(kind);
            self.voice(cx, now).answer_with(reply, &body);
        } else if self.directory.untold.len() < UNTOLD_MAX {
            self.directory.untold.push_back(untold);
            self.directory.look_at.get_or_insert(now + LOOK);
        } else {
            self.refuse_untold(cx, now, &untold);
        }
    }

    /// Forwards the waiting changes of streams to the groups that have a leader now, and refuses changes that
    /// have waited too long, so that no client waits in vain.
    pub(super) fn serve_untold(&mut self, cx: &mut Context<'_>, now: Time) {
        if self.directory.look_at.is_none_or(|at| at > now) {
            return;
        }
        for untold in std::mem::take(&mut self.directory.untold) {
            if tell(cx, &untold) {
                continue;
            }
            match untold.until <= now {
                true => self.refuse_untold(cx, now, &untold),
                false => self.directory.untold.push_back(untold),
            }
        }
        let none = self.directory.untold.is_empty();
        self.directory.look_at = (!none).then(|| now + LOOK);
    }

    fn refuse_untold(&mut self, cx: &mut Context<'_>, now: Time, untold: &Untold) {
        self.stats.api_errors += 1;
        let body = answer::refused(untold.kind.as_str(), &ApiError::SYSTEM_UNAVAILABLE);
        self.voice(cx, now).answer_with(&untold.reply, &body);
    }

    /// Returns the stream that a change concerns and the group that keeps the stream, so that the directory's
    /// leader forwards the change; `None` if this group keeps the stream.
    pub(super) fn changed_elsewhere(
        &self,
        outcome: &Outcome,
    ) -> Option<(DirectoryNumber, GroupId)> {
        let (Outcome::Created { stream }
        | Outcome::Exists { stream }
        | Outcome::Updated { stream }) = *outcome
        else {
            return None;
        };
        let entry = self.streams.get(stream)?;
        match entry.home() {
            Home::Elsewhere { group, .. } => Some((entry.entry_number(), group)),
            _ => None,
        }
    }

    /// Proposes entries that record in the directory that a group has created the streams with these
    /// directory numbers, so that clients may use them.
    pub(super) fn propose_made(&mut self, now: Time, streams: &[DirectoryNumber]) {
        for stream in streams {
            let kept = self.streams.entry(*stream).map(|s| s.home());
            if !matches!(kept, Some(Home::Elsewhere { made: false, .. })) {
                continue;
            }
            let waiter = (&b""[..], Then::Noted);
            // If the log has no room, the proposal fails, and the leader of the stream's group reports the
            // stream again later.
            let _ = self.propose(now, Kind::Made, stream.entry(), b"", &(), waiter);
        }
    }

    /// Keeps a request at `$JS.>` about a stream of another group until this node knows a node that serves
    /// the stream. The other nodes send such requests here, because this node leads the directory.
    pub(crate) fn handle_request_away(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        stream: &str,
        message: &Publish<'_>,
        way: Way,
    ) -> Taken {
        let Some(reply) = message.reply else {
            return Taken::Yes;
        };
        let entry = self.streams.entry_by_name(stream);
        if entry.is_some_and(|of| self.streams.entry(of).is_some_and(|s| s.is_restoring())) {
            // The stream does not exist for clients while a backup fills it, so this node answers the request
            // itself.
            return self.handle_request(cx, now, message);
        }
        let Some(entry) = entry.filter(|_| self.directory.doubts.len() < DOUBTS_MAX) else {
            self.refuse_unserved(cx, now, reply);
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

    /// Keeps a pull from a moving stream of another group until this node knows a node that serves the
    /// stream, because other nodes may still send pulls to the node that served the stream before the move.
    /// Takes no other frequent messages, such as acknowledgements and reads.
    pub(crate) fn handle_pull_away(&mut self, stream: &str, message: &Publish<'_>) -> Taken {
        let asked = strip(message.subject, self.settings.domain.as_deref());
        let (Some(asked), Some(reply)) = (asked, message.reply) else {
            return Taken::No;
        };
        let entry = self.streams.entry_by_name(stream);
        let moves = asked.starts_with(PULLS) && entry.is_some_and(|e| self.is_unsettled(e));
        match entry.is_some_and(|e| moves && self.park_moving(e, reply)) {
            true => Taken::Yes,
            false => Taken::No,
        }
    }

    /// Hands the clients' waiting requests on to the nodes that serve their streams now, and refuses requests
    /// that have waited too long, so that no client waits in vain.
    pub(super) fn serve_doubts(&mut self, cx: &mut Context<'_>, now: Time) {
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
            let Some(entry) = self.streams.entry_by_name(&doubt.stream) else {
                // A client has deleted the stream since the request came, so this node answers the request
                // itself.
                self.handle_request(cx, now, &message);
                continue;
            };
            doubt.entry = entry;
            if let Some(group) = self.opened_by(cx, entry) {
                cx.outputs.ask(group, &message);
                continue;
            }
            let served = cx.around.server_of(&doubt.stream);
            if let Some(peer) = served.filter(|_| doubt.way.goes_on()) {
                cx.outputs.hand(peer, doubt.way, &message);
                continue;
            }
            match doubt.until > now {
                true => self.directory.doubts.push_back(doubt),
                false => self.refuse_unserved(cx, now, &doubt.reply),
            }
        }
        let none = self.directory.doubts.is_empty();
        self.directory.doubts_at = (!none).then(|| now + LOOK);
    }

    /// Returns the group that keeps the stream with this directory number, if that group is on this node and
    /// serves the stream. The node then hands the request to that group itself.
    fn opened_by(&self, cx: &Context<'_>, stream: DirectoryNumber) -> Option<GroupId> {
        let Home::Elsewhere { group, .. } = self.streams.entry(stream)?.home() else {
            return None;
        };
        let of = cx.around.streams_of(group);
        of.is_some_and(|s| s.is_open(stream)).then_some(group)
    }

    fn refuse_unserved(&mut self, cx: &mut Context<'_>, now: Time, reply: &[u8]) {
        self.stats.api_errors += 1;
        let body = answer::refused(answer::SYSTEM, &ApiError::SYSTEM_UNAVAILABLE);
        self.voice(cx, now).answer_with(reply, &body);
    }

    /// Refuses the clients' requests and changes that wait, because this node does not lead the directory any
    /// more.
    pub(super) fn close_directory(&mut self, cx: &mut Context<'_>, now: Time) {
        for doubt in std::mem::take(&mut self.directory.doubts) {
            self.refuse_unserved(cx, now, &doubt.reply);
        }
        self.directory.doubts_at = None;
        self.directory.look_at = None;
        for untold in std::mem::take(&mut self.directory.untold) {
            self.refuse_untold(cx, now, &untold);
        }
        self.directory.making = 0;
        self.directory.chosen.clear();
        self.end_gathers(cx, now);
    }
}

/// Sends a decided change to the leader of the stream's group. Returns whether the node can reach that
/// leader, so that the caller can keep the change otherwise.
fn tell(cx: &mut Context<'_>, untold: &Untold) -> bool {
    let (stream, group) = untold.of;
    leader_message::changed(untold.kind).is_some_and(|change| {
        let ask = LeaderMessage::Changed {
            change,
            stream,
            index: untold.index,
        };
        cx.tell_group(group, Some(&untold.reply), ask)
    })
}

#[cfg(test)]
pub(crate) mod tests;
