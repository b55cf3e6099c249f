//! Moves streams from one group to another.
//!
//! The group that keeps the stream is its home group; the group to which it moves is the target. The target's
//! leader asks the home group again and again for the next part that the target's copy lacks, and imports
//! each part by entries of the target's log. So the target's log shows how much of the stream the copy has.
//! The home group's leader answers with exports, and freezes the stream when little is left. Once the copy is
//! whole, the target's leader reports it to the directory, which from then on lists the stream at the target.
//!
//! If a message is lost on the way, or with a leader, the target's leader asks again. If a part arrives twice
//! or late, the target refuses it, because each part names the cursor from which it starts. No group ever
//! serves a frozen stream or an incomplete copy, so no two groups serve the same stream.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_raft::store::Space;
use tidegate_stream::schema::config::StreamConfig;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::{DirectoryNumber, StreamNumber};
use tidegate_stream::schema::sequence::StreamSeq;
use tidegate_stream::stream::{
    Command, Cursor, Entry, Export, Filling, Home, Kind, Moving, Need, Outcome, Place, Stream,
    Streams, Transit,
};

use super::leader_message::LeaderMessage;
use crate::streams::context::Context;
use crate::streams::outcome::Then;
use crate::streams::reads::{Fetched, Held, fetch};
use crate::streams::serving::live::Live;
use crate::streams::{Ending, JetStream, Messages};

/// The size of an export, in bytes of messages, above which the home group's leader adds no further message,
/// so that an import stays small.
const EXPORT_BYTES: usize = 512 * 1024;
/// The home group freezes the stream once the target's copy lacks at most this number of bytes, so that the
/// stream stays frozen only briefly. As long as the copy does not come closer, this limit doubles each
/// [`DOUBLING`].
const FREEZE_BYTES: u64 = 1024 * 1024;
/// The time after which the limit [`FREEZE_BYTES`] doubles if the copy has not come closer by `FREEZE_BYTES`
/// in this time.
const DOUBLING: Duration = Duration::from_secs(2);
/// The time after which the target's leader repeats its request for the next part if the home group has not
/// answered.
const PATIENCE: Duration = Duration::from_secs(1);
/// The time after which a leader repeats a message that another leader may not have received, or proposes an
/// import again that the group refused.
const AGAIN: Duration = Duration::from_millis(250);
/// The longest time for which a frozen stream waits for the target's next request for a part. After it, the
/// home group asks the directory to call the move off, so that the stream thaws.
const STALLED: Duration = Duration::from_secs(3);
/// After the home group has given a move up, it does not freeze the stream for that target again during this
/// time, so that clients can publish.
const CALM: Duration = Duration::from_secs(20);
/// The limit on the number of streams that leave a group at the same moment, so that their exports take
/// bounded memory. The group does not answer the targets of other streams, and these targets ask again.
const LEAVING_MAX: usize = 64;
/// The limit on the number of pulls that a node keeps until the pulled streams have moved, so that they take
/// bounded memory.
const PARKED_MAX: usize = 4096;
/// The time that other nodes may take to learn which node serves a stream after its move. The node answers
/// waiting clients only after it, so that their next requests find the new server.
const SETTLING: Duration = Duration::from_millis(50);
/// The status that ends a pull from a stream that has moved. The client then sends the pull again, and the
/// new pull reaches the stream's new group.
const MOVED: &[u8] = b"NATS/1.0 409 Leadership Change\r\n\r\n";

/// The state with which a group's leader moves streams, by the streams' directory numbers.
#[derive(Default)]
pub(crate) struct Moves {
    /// The change counters of the directory and of the group's streams when the leader last looked for moving
    /// streams; `None` before the first look. While both stay the same, the leader need not look again.
    looked: Option<(u64, u64)>,
    arriving: BTreeMap<DirectoryNumber, Arriving>,
    /// The targets' requests for parts that this group's leader has not handled yet. The leader answers them
    /// in the group's turn, because only then it can read the directory.
    asked: BTreeMap<DirectoryNumber, (Moving, Cursor)>,
    leaving: BTreeMap<DirectoryNumber, Leaving>,
    /// For each stream that leaves, the number of bytes that the target's copy still lacks, and the time at
    /// which that number last fell. By them the leader decides when to freeze the stream.
    nearing: BTreeMap<DirectoryNumber, Nearing>,
    /// The streams for which the leader has proposed a freeze, by the group's numbers. Each has the time
    /// after which the leader may propose the freeze again.
    freezing: BTreeMap<StreamNumber, Time>,
    /// The frozen streams that leave this group, by the stream's number in the group, until the directory
    /// ends their moves. The leader gives a move up if its target asks no more.
    frozen: BTreeMap<StreamNumber, Frozen>,
    /// The streams for which the group has given a move up: the target, and the time until which the group
    /// does not freeze the stream again for this target. Meanwhile clients can publish.
    calm: BTreeMap<DirectoryNumber, (GroupId, Time)>,
    /// The consumers of moved streams that this node served. The node keeps them until it can send their
    /// clients to the target's server.
    ended: Vec<(DirectoryNumber, Live)>,
    parked: Vec<(DirectoryNumber, Box<[u8]>)>,
    /// The streams that some node serves after their move, each with the time at which this node learned
    /// that. Clients in `ended` and `parked` wait until [`SETTLING`] has passed.
    served: BTreeMap<DirectoryNumber, Time>,
    /// The streams that have moved and that, as far as this node knows, no node serves yet. This node looks
    /// for their servers.
    unsettled: BTreeSet<DirectoryNumber>,
    /// The time at which this node next looks for nodes that serve the moved streams; `None` if it waits for
    /// no moved stream.
    look_at: Option<Time>,
}

/// A stream that moves to this group, and the progress of the target's leader with the stream's parts, by
/// which it asks for the next part.
#[derive(Debug)]
struct Arriving {
    /// The number that the target group has given to its copy of the stream, by which the leader imports the
    /// parts.
    own: StreamNumber,
    home: GroupId,
    moving: Moving,
    /// True while the group has not yet applied or refused the import of a part that the leader proposed. The
    /// leader asks for no other part meanwhile, so that parts arrive in order.
    proposed: bool,
    /// The time at which the target's leader asks for the next part again or, if the copy is complete,
    /// reports it to the directory again; `None` if the leader may act at once.
    again: Option<Time>,
}

/// A stream that leaves this group, with the export, not yet sent, of the part that the target's leader has
/// asked for. The leader sends it once the messages are in memory.
#[derive(Debug)]
struct Leaving {
    own: StreamNumber,
    moving: Moving,
    from: Cursor,
    export: Export,
    until: Time,
}

/// The progress of a move: the number of bytes that the stream's copy in the target group lacks, and the time
/// at which that number last fell by [`FREEZE_BYTES`]. By it the leader decides when to freeze the stream.
#[derive(Clone, Copy, Debug)]
struct Nearing {
    moving: Moving,
    /// The number of bytes that the target's copy lacked at the time `at`, from which the leader sees
    /// progress.
    left: u64,
    /// The time at which the copy lacked `left` bytes. The longer the number has not fallen by
    /// [`FREEZE_BYTES`] since, the earlier the leader freezes the stream.
    at: Time,
}

/// A frozen stream that moves away from this group. The leader keeps this state until the directory ends the
/// move, so that it can give the move up.
#[derive(Debug)]
struct Frozen {
    stream: DirectoryNumber,
    moving: Moving,
    /// The cursor in the last request of the target's leader, which shows if the target makes progress;
    /// `None` before the first request.
    from: Option<Cursor>,
    /// The time at which the group gives the move up, unless the target asks for another part by then.
    until: Time,
}

impl Moves {
    /// Returns the time at which the leader next has to repeat a request, give a move up, or look for moved
    /// streams; `None` if no move needs the leader.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if !self.asked.is_empty() {
            return Some(Time::ZERO);
        }
        let asks = self.arriving.values().filter(|a| !a.proposed);
        let asks = asks.filter_map(|a| a.again);
        let leaves = self.leaving.values().map(|l| l.until);
        let stalls = self.frozen.values().map(|f| f.until);
        asks.chain(leaves).chain(stalls).chain(self.look_at).min()
    }

    /// Forgets the state that only a leader has of moves, because this node does not lead the group any more.
    pub(crate) fn close(&mut self) {
        self.looked = None;
        self.arriving.clear();
        self.asked.clear();
        self.leaving.clear();
        self.nearing.clear();
        self.freezing.clear();
        self.frozen.clear();
        self.calm.clear();
    }

    /// Returns the number of bytes that a stream's copy may lack when the leader freezes the stream. The
    /// number grows as long as the copy does not catch up, because clients may publish into a stream faster
    /// than it moves, and the group would then never freeze it.
    fn left_max(&self, stream: DirectoryNumber, now: Time) -> u64 {
        let nearing = self.nearing.get(&stream);
        let since = nearing.map_or(0, |nearing| now.since(nearing.at));
        let doubled = since / DOUBLING.as_nanos() as u64;
        FREEZE_BYTES << doubled.min(20)
    }

    /// Records that the target's copy of a stream still lacks `left` bytes, from which the leader sees if the
    /// copy catches up.
    fn handle_left(&mut self, now: Time, stream: DirectoryNumber, moving: Moving, left: u64) {
        let nearing = Nearing {
            moving,
            left,
            at: now,
        };
        let known = self.nearing.entry(stream).or_insert(nearing);
        // `known.left` is the least number of bytes that the copy has lacked so far. The number stays equal
        // while clients publish as many bytes as the move copies, and then the home group must freeze the
        // stream earlier.
        if known.moving != moving || left + FREEZE_BYTES <= known.left {
            *known = nearing;
        }
    }

    /// Records that a move of the stream has ended, because it is done or called off, so that the node looks
    /// for the node that serves the stream now.
    pub(crate) fn handle_moved(&mut self, stream: DirectoryNumber) {
        self.unsettled.insert(stream);
    }
}

/// Returns the home group, the group that keeps the stream, according to the stream's directory entry, from
/// which the target asks for parts.
const fn home(entry: &Stream) -> GroupId {
    match entry.home() {
        Home::Elsewhere { group, .. } => group,
        _ => ALL,
    }
}

/// Finds the streams that move to `group`, for which its leader must ask: incomplete copies, and complete
/// streams that the directory does not list for this group yet.
fn arriving(
    group: GroupId,
    directory: &Streams,
    own: &Streams,
) -> BTreeMap<DirectoryNumber, Arriving> {
    let of = |stream: &Stream| {
        let number = match stream.home() {
            Home::Of(of) => of,
            _ if group == ALL => stream.entry_number(),
            _ => return None,
        };
        let entry = directory.entry(number)?;
        let moving = entry.moving().filter(|m| m.to == group)?;
        let arriving = Arriving {
            own: stream.id(),
            home: home(entry),
            moving,
            proposed: false,
            again: None,
        };
        // A copy that an earlier move began is of no use for this move, so the group does not continue it.
        let comes = !stream.is_frozen() && stream.moves() == moving.number;
        comes.then_some((number, arriving))
    };
    movable(directory, own).filter_map(of).collect()
}

/// Returns the streams of a group that may be moving: all streams, or none if the directory lists no move, so
/// that the leader saves the search.
fn movable<'a>(directory: &Streams, own: &'a Streams) -> impl Iterator<Item = &'a Stream> {
    let most = if directory.has_moving() { own.len() } else { 0 };
    own.iter().take(most)
}

/// Finds the frozen streams of `group` that wait for the directory to end their moves. The group gives each
/// move up at `until`.
fn frozen(
    group: GroupId,
    directory: &Streams,
    own: &Streams,
    until: Time,
) -> BTreeMap<StreamNumber, Frozen> {
    let of = |stream: &Stream| {
        let number = match stream.home() {
            Home::Of(of) => of,
            _ if group == ALL => stream.entry_number(),
            _ => return None,
        };
        let moving = directory.entry(number)?.moving()?;
        let leaves = stream.is_frozen() && stream.moves() == moving.number;
        let frozen = Frozen {
            stream: number,
            moving,
            from: None,
            until,
        };
        leaves.then_some((stream.id(), frozen))
    };
    movable(directory, own).filter_map(of).collect()
}

impl JetStream {
    /// Does the leader's work for moves: asks the home groups for the parts that this group's copies lack,
    /// and reports to the directory the copies that are complete, and the frozen streams for which no target
    /// asks.
    pub(crate) fn pull_moves(&mut self, cx: &mut Context<'_>, now: Time) {
        if !self.role.serves {
            return;
        }
        let directory = match self.group {
            ALL => &self.streams,
            _ => match cx.around.streams_of(ALL) {
                Some(directory) => directory.applied(),
                None => return,
            },
        };
        let changes = Some((directory.changes(), self.streams.changes()));
        if self.moves.looked != changes {
            self.moves.looked = changes;
            let mut all = arriving(self.group, directory, &self.streams);
            for (of, new) in &mut all {
                let old = self.moves.arriving.get(of);
                if let Some(old) = old.filter(|o| o.own == new.own && o.moving == new.moving) {
                    (new.proposed, new.again) = (old.proposed, old.again);
                }
            }
            self.moves.arriving = all;
            let mut all = frozen(self.group, directory, &self.streams, now + STALLED);
            for (own, new) in &mut all {
                let old = self.moves.frozen.get(own);
                if let Some(old) = old.filter(|o| o.moving == new.moving) {
                    (new.from, new.until) = (old.from, old.until);
                }
            }
            self.moves.frozen = all;
        }
        self.give_up_stalled(cx, now);
        self.redirect_leaderless(cx, now);
        let waits = self.is_full() || self.room.space != Space::Free;
        let mut tell = Vec::new();
        for (of, arriving) in &mut self.moves.arriving {
            if arriving.proposed || arriving.again.is_some_and(|at| at > now) {
                continue;
            }
            let (stream, moving) = (*of, arriving.moving);
            match self.streams.get(arriving.own).map(Stream::transit) {
                Some(Transit::Filling(_)) if waits => arriving.again = Some(now + AGAIN),
                Some(Transit::Filling(from)) => {
                    // At the start of a move the home group's leader may not know yet that the stream moves,
                    // and then does not answer. So the target asks again sooner.
                    let patience = match from == Cursor::START {
                        true => AGAIN,
                        false => PATIENCE,
                    };
                    arriving.again = Some(now + patience);
                    let ask = LeaderMessage::Export {
                        stream,
                        moving,
                        from,
                    };
                    tell.push((arriving.home, ask));
                }
                Some(Transit::None) => {
                    arriving.again = Some(now + AGAIN);
                    tell.push((ALL, LeaderMessage::Moved { stream, moving }));
                }
                _ => {}
            }
        }
        for (group, told) in tell {
            // If the message reaches no leader, this node sends the message again at the time `again`, so the
            // failure does no harm.
            cx.tell_group(group, None, told);
        }
    }

    /// Asks the directory to end the moves of frozen streams for which the target has asked for no further
    /// part in time, so that these streams thaw.
    fn give_up_stalled(&mut self, cx: &mut Context<'_>, now: Time) {
        let mut stalled = Vec::new();
        for frozen in self.moves.frozen.values_mut() {
            if frozen.until <= now {
                // The leader reports the stalled move again after this time, because the directory's leader
                // may not get the message.
                frozen.until = now + PATIENCE;
                stalled.push((frozen.stream, frozen.moving));
            }
        }
        for (stream, moving) in stalled {
            self.moves.calm.retain(|_, (_, until)| *until > now);
            self.moves.calm.insert(stream, (moving.to, now + CALM));
            match self.group {
                ALL => self.renew_move(cx, now, stream, moving),
                _ => drop(cx.tell_group(ALL, None, LeaderMessage::Stalled { stream, moving })),
            }
        }
    }

    /// Keeps the request of a move's target for the part behind `from`. The leader handles the request in
    /// this group's turn, because only then it can also read the directory.
    pub(crate) fn handle_export(&mut self, stream: DirectoryNumber, moving: Moving, from: Cursor) {
        if self.moves.asked.len() < LEAVING_MAX || self.moves.asked.contains_key(&stream) {
            self.moves.asked.insert(stream, (moving, from));
        }
    }

    fn begin_export(
        &mut self,
        cx: &Context<'_>,
        now: Time,
        stream: DirectoryNumber,
        moving: Moving,
        from: Cursor,
    ) {
        let of_entry = |entry: &Stream, own: &Stream| {
            let whole = match own.transit() {
                Transit::None => true,
                Transit::Frozen => own.moves() == moving.number,
                Transit::Filling(_) | Transit::Restoring(_) => false,
            };
            let same = entry.moving() == Some(moving) && self.is_as_in(entry, own);
            whole && same && home(entry) == self.group
        };
        let own = match self.group {
            ALL => Some(stream.entry()),
            _ => self.keeping.own_of(stream),
        };
        let Some(own) = own.and_then(|own| self.streams.get(own)) else {
            return;
        };
        let entry = match self.group {
            ALL => Some(own),
            _ => cx
                .around
                .streams_of(ALL)
                .and_then(|d| d.applied().entry(stream)),
        };
        // If this node's copy of the directory is behind, it does not show where the stream moves. The leader
        // then does not answer, and the target asks again.
        if !entry.is_some_and(|entry| of_entry(entry, own)) {
            return;
        }
        let (own, left) = (own.id(), own.bytes_behind(from));
        if let Some(frozen) = self.moves.frozen.get_mut(&own)
            && frozen.moving == moving
            && frozen.from.replace(from) != Some(from)
        {
            frozen.until = now + STALLED;
        }
        let until = now + PATIENCE * 4;
        if let Some(leaving) = self.moves.leaving.get_mut(&stream)
            && (leaving.own, leaving.moving, leaving.from) == (own, moving, from)
        {
            leaving.until = until;
            return;
        }
        self.moves.leaving.remove(&stream);
        if self.moves.leaving.len() < LEAVING_MAX {
            let leaving = Leaving {
                own,
                moving,
                from,
                export: Export::new(from, EXPORT_BYTES),
                until,
            };
            self.moves.leaving.insert(stream, leaving);
            self.moves.handle_left(now, stream, moving, left);
        }
    }

    /// Returns whether a stream of this group has the configuration of its entry in the directory, so that
    /// the group may export it or answer its client. A stream that leaves because space is scarce may have
    /// the earlier number of replicas, since the log has no space for an entry with the new number.
    pub(crate) fn is_as_in(&self, entry: &Stream, own: &Stream) -> bool {
        let leaves = self.room.space == Space::Scarce && entry.moving().is_some();
        let (wanted, has) = (entry.config(), own.config());
        wanted == has
            || leaves
                && *wanted
                    == StreamConfig {
                        num_replicas: wanted.num_replicas,
                        ..has.clone()
                    }
    }

    /// Sends the exports for which target groups asked, as far as the exports' messages are in memory. Makes
    /// the store read the missing messages, so that a later turn can send the rest.
    pub(crate) fn serve_exports(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        messages: &dyn Messages,
    ) {
        for (stream, (moving, from)) in std::mem::take(&mut self.moves.asked) {
            self.begin_export(cx, now, stream, moving, from);
        }
        let mut freeze = Vec::new();
        let mut wanted = Vec::new();
        for (stream, mut leaving) in std::mem::take(&mut self.moves.leaving) {
            let Some(own) = self.streams.get(leaving.own) else {
                continue;
            };
            let calm = self.moves.calm.get(&stream);
            if own.transit() == Transit::None
                && is_near(own, leaving.from, self.moves.left_max(stream, now))
                && calm.is_none_or(|(to, until)| *to != leaving.moving.to || *until <= now)
            {
                freeze.push((leaving.own, leaving.moving));
            }
            match gather(own, &mut leaving.export, messages, &mut wanted) {
                Gathered::Ready(entry) => {
                    let told = LeaderMessage::Exported {
                        stream,
                        moving: leaving.moving,
                        from: leaving.from,
                        entry,
                    };
                    cx.tell_group(leaving.moving.to, None, told);
                }
                Gathered::NotYet if leaving.until > now => {
                    self.moves.leaving.insert(stream, leaving);
                }
                Gathered::NotYet => {}
                Gathered::Damaged(seq) => tracing::error!(
                    "this node has stopped the move of stream {} to other nodes, because message {seq} is damaged on this node: if no other node has the message, delete the message",
                    own.name()
                ),
            }
        }
        cx.outputs.read(wanted);
        for (own, moving) in freeze {
            self.propose_freeze(now, own, moving);
        }
    }

    /// Proposes to freeze a stream that leaves, so that the stream does not change any more while its last
    /// part moves.
    fn propose_freeze(&mut self, now: Time, own: StreamNumber, moving: Moving) {
        let proposed = self.moves.freezing.get(&own).is_some_and(|at| *at > now);
        // If space is scarce, the log takes no last deltas of the stream's consumers, so the consumers
        // deliver some messages again after the move. The move is worth that, because it frees space.
        let scarce = self.room.space == Space::Scarce;
        if proposed || self.is_full() || (!scarce && self.entries.has_postponed()) {
            return;
        }
        self.moves.freezing.retain(|_, at| *at > now);
        self.moves.freezing.insert(own, now + PATIENCE);
        // The leader proposes the last deltas of the consumers before the freeze, so that the consumers'
        // progress moves with the stream.
        for key in self.consumers.keys_of(own).into_iter().filter(|_| !scarce) {
            self.propose_delta(now, key);
        }
        let payload = moving.encode();
        let freeze = Command::new(Kind::Freeze, own, b"", &payload);
        self.command(now, false, &freeze, Some((b"", Then::Noted)));
    }

    /// Proposes to import a part of a moving stream into this group's copy, as the home group has exported
    /// the part, so that the copy has it on every node.
    pub(crate) fn handle_exported(
        &mut self,
        now: Time,
        stream: DirectoryNumber,
        moving: Moving,
        from: Cursor,
        entry: &[u8],
    ) {
        let Some(arriving) = self.moves.arriving.get_mut(&stream) else {
            return;
        };
        let own = arriving.own;
        let transit = self.streams.get(own).map(Stream::transit);
        let wanted = arriving.moving == moving && transit == Some(Transit::Filling(from));
        if arriving.proposed || !wanted {
            return;
        }
        let commands = Entry::decode(entry).map(|e| e.commands().collect::<Result<Vec<_>, _>>());
        let Ok(Ok(commands)) = commands else {
            return;
        };
        let sound = |(at, command): (usize, &Command<'_>)| {
            command.kind == if at == 0 { Kind::Import } else { Kind::Publish }
        };
        if commands.is_empty() || !commands.iter().enumerate().all(sound) {
            return;
        }
        arriving.proposed = true;
        let filling = Filling::By(moving.number).encode();
        if self.has_no_room_for(entry.len()) {
            self.seal(now);
        }
        for (at, command) in commands.into_iter().enumerate() {
            let command = Command {
                stream: own,
                subject: match command.kind {
                    Kind::Import => &filling,
                    _ => command.subject,
                },
                ..command
            };
            let waiter = (at == 0).then_some((&b""[..], Then::Filled(stream)));
            self.add(false, &command, waiter);
        }
    }

    /// Records the outcome of an import. After a refusal, the leader asks for the part again later.
    pub(crate) fn handle_import(&mut self, now: Time, stream: DirectoryNumber, outcome: &Outcome) {
        if let Some(arriving) = self.moves.arriving.get_mut(&stream) {
            arriving.proposed = false;
            arriving.again = match outcome {
                Outcome::Done => None,
                _ => Some(now + AGAIN),
            };
        }
    }

    /// Proposes an entry that records in the directory that the target group has the whole stream, so that
    /// the target serves it.
    pub(crate) fn propose_moved(&mut self, now: Time, stream: DirectoryNumber, moving: Moving) {
        let due = self.streams.entry(stream).and_then(Stream::moving) == Some(moving);
        if due {
            let payload = moving.encode();
            let command = Command::new(Kind::Moved, stream.entry(), b"", &payload);
            self.command(now, false, &command, Some((b"", Then::Noted)));
        }
    }

    /// Stops serving the consumers of a frozen stream, because the target serves them next. The node answers
    /// the consumers' clients once the target serves the stream.
    pub(crate) fn end_frozen(&mut self, stream: StreamNumber) {
        self.publishing.end_batches(stream);
        self.moves.freezing.remove(&stream);
        let number = self.number_of(stream);
        self.moves.nearing.remove(&number);
        for key in self.consumers.keys_of(stream) {
            let live = self.consumers.remove(key);
            self.moves.ended.extend(live.map(|live| (number, *live)));
        }
    }

    /// Returns the directory number of a stream, by which other groups know it, given the number that the
    /// stream has in this group.
    fn number_of(&self, own: StreamNumber) -> DirectoryNumber {
        match self.streams.get(own).map(Stream::home) {
            Some(Home::Of(of)) => of,
            _ => DirectoryNumber::of_entry(own),
        }
    }

    /// Keeps a pull from a moving stream. The node ends the pull once some node serves the stream again.
    /// Returns whether the node had room for the pull.
    pub(crate) fn park_moving(&mut self, stream: DirectoryNumber, reply: &[u8]) -> bool {
        let room = self.moves.parked.len() < PARKED_MAX;
        if room {
            self.moves.parked.push((stream, reply.into()));
        }
        room
    }

    /// Returns whether a stream of the directory moves, or has moved without a new server that this node
    /// knows, so that pulls from the stream wait.
    pub(crate) fn is_unsettled(&self, stream: DirectoryNumber) -> bool {
        let entry = self.streams.entry(stream);
        self.moves.unsettled.contains(&stream) || entry.is_some_and(|e| e.moving().is_some())
    }

    /// Ends the waiting pulls and the kept consumers of streams once the new group serves them, or a client
    /// has deleted them, so that the clients turn to the new server.
    pub(crate) fn tell_moved(&mut self, cx: &mut Context<'_>, now: Time) {
        let moves = &self.moves;
        if moves.ended.is_empty() && moves.parked.is_empty() && moves.unsettled.is_empty() {
            self.moves.look_at = None;
            return;
        }
        let ended = moves.ended.iter().map(|(of, _)| *of);
        let parked = moves.parked.iter().map(|(of, _)| *of);
        let all: BTreeSet<DirectoryNumber> = ended
            .chain(parked)
            .chain(moves.unsettled.iter().copied())
            .collect();
        self.moves.served.retain(|of, _| all.contains(of));
        let mut ready = BTreeSet::new();
        for of in all {
            if !self.is_found(cx, of) {
                self.moves.served.remove(&of);
            } else if *self.moves.served.entry(of).or_insert(now) + SETTLING <= now {
                ready.insert(of);
            }
        }
        self.moves.unsettled.retain(|of| !ready.contains(of));
        let ended = std::mem::take(&mut self.moves.ended);
        let (told, ended) = ended.into_iter().partition(|(of, _)| ready.contains(of));
        self.moves.ended = ended;
        let told: Vec<(DirectoryNumber, Live)> = told;
        for (_, mut live) in told {
            let ending = match live.logged {
                true => Ending::LeadershipChange,
                false => Ending::Lost,
            };
            let mut voice = self.voice(cx, now);
            live.consumer.handle_end(ending, &mut voice);
            self.refuse_questions(cx, now, live.questions, &ApiError::SYSTEM_UNAVAILABLE);
        }
        for (of, reply) in std::mem::take(&mut self.moves.parked) {
            match ready.contains(&of) {
                true => self.voice(cx, now).status_to(&reply, MOVED),
                false => self.moves.parked.push((of, reply)),
            }
        }
        self.moves.look_at = Some(now + SETTLING);
    }

    /// Returns whether some node serves a stream of the directory, or a client has deleted it, so that
    /// waiting clients may get their answers.
    fn is_found(&self, cx: &mut Context<'_>, stream: DirectoryNumber) -> bool {
        let entry = |directory: &Self| {
            let entry = directory.streams.entry(stream);
            entry.map(|e| (e.home(), e.is_frozen(), e.name().to_owned()))
        };
        let entry = match self.group {
            ALL => entry(self),
            _ => cx.around.streams_of(ALL).and_then(entry),
        };
        match entry {
            None => true,
            Some((Home::Elsewhere { group, .. }, _, name)) => {
                let here = cx.around.streams_of(group);
                let here = match self.group == group {
                    true => self.is_open(stream),
                    false => here.is_some_and(|s| s.serves() && s.is_open(stream)),
                };
                here || cx.around.server_of(&name).is_some()
            }
            Some((_, frozen, _)) => {
                !frozen
                    && (self.group == ALL && self.role.serves || cx.around.leader_of(ALL).is_some())
            }
        }
    }
}

/// Returns whether the leader may freeze a stream: the copy that asks for the part behind `from` lacks at
/// most `left_max` bytes, and has shown that it imports the parts that it gets. A request from the start of a
/// stream with messages shows no import yet.
fn is_near(own: &Stream, from: Cursor, left_max: u64) -> bool {
    let takes = from != Cursor::START || own.state().messages == 0;
    takes && own.bytes_behind(from) <= left_max
}

/// The result of the leader's attempt to collect the messages of an export: the encoded entry; a wait,
/// because the store still has to read a message; or the sequence of a damaged message.
enum Gathered {
    Ready(Vec<u8>),
    NotYet,
    Damaged(StreamSeq),
}

/// Collects the messages of an export for the target, as far as they are in memory. Adds the places of the
/// other messages to `wanted`, so that the store reads them.
fn gather(
    own: &Stream,
    export: &mut Export,
    messages: &dyn Messages,
    wanted: &mut Vec<Place>,
) -> Gathered {
    loop {
        let seq = match export.poll(own) {
            Need::Nothing(entry) => return Gathered::Ready(entry),
            Need::Freeze => return Gathered::NotYet,
            Need::Message(seq) => seq,
        };
        let mut held = Held::default();
        match fetch(own, seq, messages, wanted, &mut held) {
            Fetched::Pending => return Gathered::NotYet,
            Fetched::Gone => return Gathered::Damaged(seq),
            Fetched::Ready(message) => {
                let command = Command {
                    headers: Some(message.headers),
                    ..Command::new(
                        Kind::Publish,
                        StreamNumber::NONE,
                        message.subject,
                        message.payload,
                    )
                };
                export.add(own, seq, &command);
            }
        }
    }
}

#[cfg(test)]
mod tests;
