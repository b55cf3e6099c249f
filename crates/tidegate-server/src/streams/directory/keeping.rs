//! Brings the streams of a group in line with the directory: the group creates, changes and deletes its
//! streams so that they match the list in the directory.
//!
//! The leader of the group compares its streams with the directory whenever its streams or the directory have
//! changed, and proposes the changes that are missing. A stream is *open* once the directory knows that the
//! group has created it: from then on clients publish into it and the group serves it. If the directory lists
//! a stream as created and the group does not have it, the stream was lost with its disks. The leader never
//! creates such a stream again without notice. After its start a process opens no stream before its copy of
//! the directory has caught up with the other nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_stream::api::answer;
use tidegate_stream::api::view;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, MoveNumber, StreamNumber};
use tidegate_stream::stream::{Command, Home, Kind, Placement, Stream, Streams, Thaw, Transit};

use super::leader_message::{Change, LeaderMessage};
use crate::streams::JetStream;
use crate::streams::context::Context;
use crate::streams::outcome::Then;

/// The time after which the leader of a group proposes a change again, or reports a stream again, if the
/// group still differs from the directory.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest time for which a client waits until the group has made the client's change; then the leader
/// answers with an error, so that no client waits in vain.
const PATIENCE: Duration = Duration::from_secs(5);
/// The limit on the number of clients that wait for changes of the group's streams; the leader refuses more,
/// so that they take bounded memory.
const ASKERS_MAX: usize = 16 * 1024;
/// The limit on the number of streams that one `Made` message reports as created to the directory's leader,
/// so that the message stays small.
const MADE_MAX: usize = 1024;

/// The state with which the leader of a group brings the group's streams in line with the directory.
#[derive(Debug, Default)]
pub(crate) struct Keeping {
    /// The number that each stream has in this group, by the stream's directory number. With it the leader
    /// finds the stream that a message names.
    own: BTreeMap<DirectoryNumber, StreamNumber>,
    /// The directory numbers of the open streams, into which clients may publish and which the leader serves.
    open: BTreeSet<DirectoryNumber>,
    /// The directory numbers of the streams that the group once created and that its members have lost. The
    /// leader logs each of them and creates none again.
    lost: BTreeSet<DirectoryNumber>,
    /// The change counters of the directory and of the group's streams when the leader last compared the two;
    /// `None` before the first. While both stay the same, the leader need not compare again.
    compared: Option<(u64, u64)>,
    /// The time at which the leader compares again, even if neither the directory nor the group's streams
    /// have changed, because steps of the last comparison are not done yet; `None` if no step was due then.
    again: Option<Time>,
    /// The directory numbers of the streams for which the leader has proposed a change that the group has not
    /// applied yet, so that the leader proposes no change twice.
    proposed: BTreeSet<DirectoryNumber>,
    /// The time at which the leader last reported each stream to the directory's leader as created. The
    /// leader repeats a report after [`AGAIN`] if the directory does not show the stream as created by then.
    told: BTreeMap<DirectoryNumber, Time>,
    askers: VecDeque<Asker>,
}

#[cfg(feature = "sim")]
impl Keeping {
    /// Returns the number of entries about single streams, for a simulation that looks for entries which
    /// deletions leave.
    pub(crate) fn items(&self) -> usize {
        let made = self.own.len() + self.open.len() + self.told.len();
        made + self.lost.len() + self.proposed.len() + self.askers.len()
    }
}

/// A client that waits until this group has made a change that the directory decided.
#[derive(Debug)]
struct Asker {
    change: Change,
    stream: DirectoryNumber,
    /// The index of the entry, in the log of the group of all nodes, by which the directory decided the
    /// change. The leader answers only once this node has applied that entry.
    index: u64,
    reply: Box<[u8]>,
    until: Time,
}

/// A step by which the group's leader brings the group's streams closer to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repair {
    /// The group creates a stream, because the directory lists the stream for this group.
    Create(DirectoryNumber),
    /// The group creates an empty copy of a stream that moves to the group, into which it imports the parts.
    /// The fields are the stream's directory number and the number of the move.
    Copy(DirectoryNumber, MoveNumber),
    /// The group gives its stream the directory's configuration, because a client has updated the stream. The
    /// fields are the directory number and the group's number of the stream.
    Update(DirectoryNumber, StreamNumber),
    /// The group deletes its stream, because the directory does not list it for this group any more. The
    /// fields are the directory number and the group's number of the stream.
    Delete(DirectoryNumber, StreamNumber),
    /// The group thaws a stream that stays, because the directory has called its move off. The fields are the
    /// directory number, the group's number of the stream, and the number of the move.
    Thaw(DirectoryNumber, StreamNumber, MoveNumber),
    /// The leader reports to the directory that the group has created the stream, so that the stream opens.
    TellMade(DirectoryNumber),
    /// The leader waits, because this node's copy of the directory does not yet show which step is due.
    Wait,
    /// The leader logs that the stream is lost, because the group created the stream once and no longer has
    /// it.
    Lost(DirectoryNumber),
}

/// Compares the streams of `group` with the directory. Returns the steps that are due, and the streams that
/// may be open for clients.
fn compare(group: GroupId, directory: &Streams, own: &Streams) -> Compared {
    let mut compared = Compared::default();
    for stream in own.iter() {
        let Home::Of(of) = stream.home() else {
            continue;
        };
        compared.own.insert(of, stream.id());
        let entry = directory.entry(of);
        match entry.map(|e| (e, e.home())) {
            None if directory.last_id() >= of.entry() => {
                compared.steps.push(Repair::Delete(of, stream.id()));
            }
            // The stream's move away is over, so the other group has the stream; or this stream is a copy for
            // a move that the directory has called off. The group deletes its stream in both cases.
            Some((entry, kept)) if is_over(entry, stream) && !kept.is_by(group) => {
                compared.steps.push(Repair::Delete(of, stream.id()));
            }
            // The directory has called the move away off, so the stream stays in this group, which thaws it.
            Some((entry, _)) if is_over(entry, stream) && stream.is_frozen() => {
                let number = stream.moves();
                compared.steps.push(Repair::Thaw(of, stream.id(), number));
            }
            // The stream is moving to this group: `directory/moving` imports it, so no step is due.
            Some((entry, _)) if entry.moving().is_some_and(|m| m.to == group) => {}
            // The stream is moving away, or this node's copy of the directory is behind. The leader waits in
            // both cases, because it does not know the outcome.
            Some(_) if stream.transit() != Transit::None => compared.steps.push(Repair::Wait),
            // This node's copy of the directory lacks the move that brought the stream to this group or was
            // to take it away, and perhaps earlier moves. The stream stays closed until the copy has caught
            // up, because the directory may have called the move off.
            Some((entry, _)) if entry.moves() < stream.moves() => compared.steps.push(Repair::Wait),
            Some((entry, Home::Elsewhere { group: at, made })) if at == group => {
                let same = entry.config() == stream.config();
                if !same {
                    compared.steps.push(Repair::Update(of, stream.id()));
                }
                if !made {
                    compared.steps.push(Repair::TellMade(of));
                } else if same {
                    compared.same.insert(of);
                } else {
                    compared.changing.insert(of);
                }
            }
            // This node's copy of the directory is behind the group's streams, so the leader waits until the
            // copy has caught up.
            _ => compared.steps.push(Repair::Wait),
        }
    }
    for entry in directory.iter() {
        let comes = entry.moving().filter(|m| m.to == group);
        if let Some(moving) = comes.filter(|_| !compared.own.contains_key(&entry.entry_number())) {
            compared
                .steps
                .push(Repair::Copy(entry.entry_number(), moving.number));
        }
        match entry.home() {
            Home::Elsewhere { group: at, made }
                if at == group && !compared.own.contains_key(&entry.entry_number()) =>
            {
                let of = entry.entry_number();
                compared.steps.push(match made {
                    true => Repair::Lost(of),
                    false => Repair::Create(of),
                });
            }
            _ => {}
        }
    }
    compared
}

/// Returns whether the last move of this group's stream, away from or to this group, is over: done or called
/// off. A copy of the directory that is behind does not show the end of the move, so the leader then waits.
fn is_over(entry: &Stream, stream: &Stream) -> bool {
    let (last, number) = (entry.moves(), stream.moves());
    number > MoveNumber::ZERO && (last > number || (last == number && entry.moving().is_none()))
}

#[derive(Debug, Default)]
struct Compared {
    own: BTreeMap<DirectoryNumber, StreamNumber>,
    steps: Vec<Repair>,
    /// The directory numbers of the group's streams that have the directory's present configuration, so that
    /// the leader may report them as created.
    same: BTreeSet<DirectoryNumber>,
    /// The directory numbers of the group's streams that still have an earlier configuration, so that the
    /// leader must change them.
    changing: BTreeSet<DirectoryNumber>,
}

impl Keeping {
    /// Returns the time at which the group's leader has to act next: to answer a client or, if the node's
    /// copy of the directory is `current`, to compare again.
    pub(crate) fn deadline(&self, current: bool) -> Option<Time> {
        let asker = self.askers.front().map(|a| a.until);
        let again = self.again.filter(|_| current);
        asker.into_iter().chain(again).min()
    }

    pub(crate) const fn is_to_compare(&self) -> bool {
        self.compared.is_none()
    }

    /// Returns the number by which the group knows the stream with this directory number; `None` if the group
    /// has no such stream.
    pub(crate) fn own_of(&self, of: DirectoryNumber) -> Option<StreamNumber> {
        self.own.get(&of).copied()
    }

    /// Records that the group has applied or refused the change of a stream that the leader proposed, so that
    /// the leader may propose the next change of this stream.
    pub(crate) fn handle_done(&mut self, of: DirectoryNumber) {
        self.proposed.remove(&of);
    }
}

impl JetStream {
    /// Returns whether the stream with this directory number is open in this group, so that clients may
    /// publish into it.
    #[must_use]
    pub(crate) fn is_open(&self, stream: DirectoryNumber) -> bool {
        self.keeping.open.contains(&stream)
    }

    /// Returns whether clients may publish into this stream: the group keeps it, and it is open and not
    /// moving, so that the leader serves it.
    pub(crate) fn is_open_here(&self, stream: &Stream) -> bool {
        match stream.home() {
            Home::Here => stream.transit() == Transit::None,
            Home::Of(of) => self.is_open(of),
            Home::Elsewhere { .. } => false,
        }
    }

    /// Does the leader's comparison: proposes the changes that the group needs to match the directory,
    /// whenever the directory or the group's streams have changed, or a retry is due.
    pub(crate) fn reconcile(&mut self, cx: &mut Context<'_>, now: Time) {
        if !self.role.serves || self.group == ALL {
            return;
        }
        // While the copy of the directory is old, the leader does nothing: by an old copy it might open
        // streams that are deleted or that another group keeps by now.
        let current = cx.around.streams_of(ALL).filter(|s| s.is_current());
        let Some(directory) = current.map(Self::applied) else {
            return;
        };
        let changes = Some((directory.changes(), self.streams.changes()));
        let due = self.keeping.again.is_some_and(|at| at <= now);
        if self.keeping.compared == changes && !due {
            return;
        }
        let mut compared = compare(self.group, directory, &self.streams);
        let mut made = Vec::new();
        let mut pending = false;
        let mut lost = BTreeSet::new();
        for step in std::mem::take(&mut compared.steps) {
            match step {
                Repair::Lost(of) => {
                    if !self.keeping.lost.contains(&of) {
                        let name = directory.entry(of).map_or("", Stream::name);
                        tracing::error!(
                            "stream {name} is lost, because its only node has lost its disk: delete the stream and create it again"
                        );
                    }
                    lost.insert(of);
                    continue;
                }
                Repair::TellMade(of) => {
                    let told = self.keeping.told.get(&of);
                    if told.is_none_or(|at| *at + AGAIN <= now) && made.len() < MADE_MAX {
                        self.keeping.told.insert(of, now);
                        made.push(of);
                    }
                }
                step => self.propose_step(now, directory, step),
            }
            pending = true;
        }
        let before = std::mem::take(&mut self.keeping.open);
        let changing = compared.changing.intersection(&before).copied();
        let open: BTreeSet<DirectoryNumber> =
            compared.same.iter().copied().chain(changing).collect();
        self.role.interest_changed |= open != before;
        if open != before {
            self.takers.look_again();
        }
        self.keeping
            .told
            .retain(|of, _| !open.contains(of) && compared.own.contains_key(of));
        self.keeping.open = open;
        self.keeping.own = compared.own;
        self.keeping.lost = lost;
        self.keeping.compared = changes;
        self.keeping.again = pending.then(|| now + AGAIN);
        if !made.is_empty() {
            cx.tell_group(ALL, None, LeaderMessage::Made(made));
        }
    }

    fn propose_step(&mut self, now: Time, directory: &Streams, step: Repair) {
        let config = |of| directory.entry(of).map(Stream::config);
        let creating = |of| config(of).map_or(Kind::CreateStream, Kind::creating);
        let (kind, of, own, subject) = match step {
            Repair::Create(of) => (
                match directory.entry(of).is_some_and(Stream::is_restoring) {
                    true => Kind::CreateRestoring,
                    false => creating(of),
                },
                of,
                StreamNumber::NONE,
                Placement::Of(of).encode(),
            ),
            Repair::Copy(of, r#move) => {
                let copy = Placement::Copy { of, r#move };
                (creating(of), of, StreamNumber::NONE, copy.encode())
            }
            Repair::Update(of, own) => {
                let before = self.streams.get(own).map(Stream::config);
                let both = before.zip(config(of));
                let kind = both.map_or(Kind::UpdateStream, |(from, to)| Kind::updating(from, to));
                (kind, of, own, Vec::new())
            }
            Repair::Delete(of, own) => (Kind::DeleteStream, of, own, Vec::new()),
            Repair::Thaw(of, own, r#move) => return self.propose_thaw(now, of, own, r#move),
            _ => return,
        };
        // If the log has no room for a proposal, the leader proposes the change after the next comparison.
        if self.is_full() || self.keeping.proposed.contains(&of) {
            return;
        }
        let config = config(of);
        let waiter = (&b""[..], Then::Listed(of));
        let proposed = match config.filter(|_| kind != Kind::DeleteStream) {
            Some(config) => self.propose(now, kind, own, &subject, config, waiter),
            None => self.propose(now, kind, own, b"", &(), waiter),
        };
        if proposed.is_ok() {
            self.keeping.proposed.insert(of);
        }
    }

    fn propose_thaw(
        &mut self,
        now: Time,
        of: DirectoryNumber,
        own: StreamNumber,
        r#move: MoveNumber,
    ) {
        if self.is_full() || self.keeping.proposed.contains(&of) {
            return;
        }
        let payload = Thaw { r#move }.encode();
        let thaw = Command::new(Kind::Thaw, own, b"", &payload);
        self.command(now, false, &thaw, Some((b"", Then::Listed(of))));
        self.keeping.proposed.insert(of);
    }

    /// Keeps the client at `reply` waiting until this group has made the change that the directory decided
    /// with the entry `index`; then the leader answers the client. Refuses the client if this node does not
    /// lead or too many clients wait.
    pub(crate) fn await_change(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        change: Change,
        (stream, index): (DirectoryNumber, u64),
    ) {
        let asker = Asker {
            change,
            stream,
            index,
            reply: reply.into(),
            until: now + PATIENCE,
        };
        if self.role.serves && self.keeping.askers.len() < ASKERS_MAX {
            self.keeping.askers.push_back(asker);
        } else {
            self.answer_asker(cx, now, &asker, &Err(ApiError::SYSTEM_UNAVAILABLE));
        }
    }

    /// Answers the clients that wait for a change once the group has made it, and refuses the clients that
    /// have waited too long.
    pub(crate) fn serve_askers(&mut self, cx: &mut Context<'_>, now: Time) {
        for _ in 0..self.keeping.askers.len() {
            let Some(asker) = self.keeping.askers.pop_front() else {
                return;
            };
            let came = cx
                .around
                .streams_of(ALL)
                .and_then(|d| self.came_of(d, &asker));
            match came {
                Some(came) => self.answer_asker(cx, now, &asker, &came),
                None if asker.until <= now => {
                    let late = Err(ApiError::SYSTEM_UNAVAILABLE);
                    self.answer_asker(cx, now, &asker, &late);
                }
                None => self.keeping.askers.push_back(asker),
            }
        }
    }

    /// Returns the result with which the leader answers a client that waits for a change: the group's number
    /// of the stream, or 0 if the stream is deleted. Returns `None` if the group has not made the change yet.
    fn came_of(&self, directory: &Self, asker: &Asker) -> Option<Result<StreamNumber, ApiError>> {
        if directory.directory.applied < asker.index {
            return None;
        }
        let own = self.keeping.own.get(&asker.stream).copied();
        if asker.change == Change::Deleted {
            return own.is_none().then_some(Ok(StreamNumber::NONE));
        }
        let Some(entry) = directory.applied().entry(asker.stream) else {
            return Some(Err(ApiError::STREAM_NOT_FOUND));
        };
        if self.keeping.lost.contains(&asker.stream) {
            return Some(Err(ApiError::STREAM_OFFLINE));
        }
        let own = own?;
        let stream = self.streams.get(own)?;
        if asker.change == Change::Restoring {
            return Some(Ok(own));
        }
        // The leader also answers for a stream that is frozen because it moves away: the stream keeps the
        // configuration for which the client asked, and only its number of replicas may still differ from the
        // directory's.
        let there = self.is_open(asker.stream) || stream.is_frozen();
        let same = self.is_as_in(entry, stream);
        (there && same).then_some(Ok(own))
    }

    fn answer_asker(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        asker: &Asker,
        came: &Result<StreamNumber, ApiError>,
    ) {
        let kind = asker.change.answered_by();
        if let (Ok(own), Change::Restoring) = (came, asker.change) {
            return self.begin_restore(cx, now, &asker.reply, *own);
        }
        let body = match (came, asker.change) {
            (Err(error), _) => {
                self.stats.api_errors += 1;
                answer::refused(kind.as_str(), error)
            }
            (Ok(_), Change::Deleted) => answer::success(kind),
            (Ok(own), _) => match self.streams.get(*own) {
                Some(stream) => {
                    view::stream_changed(kind, &self.server(now), &self.shown(now, stream))
                }
                None => answer::refused(kind.as_str(), &ApiError::STREAM_NOT_FOUND),
            },
        };
        self.voice(cx, now).answer_with(&asker.reply, &body);
    }

    /// Refuses all clients that wait for changes, because this node no longer leads the group.
    pub(crate) fn close_keeping(&mut self, cx: &mut Context<'_>, now: Time) {
        let keeping = std::mem::take(&mut self.keeping);
        for asker in &keeping.askers {
            self.answer_asker(cx, now, asker, &Err(ApiError::SYSTEM_UNAVAILABLE));
        }
    }
}
