//! A node: the real store with its group and its log on simulated disks, and the real streams, applied as the server's loop does it.
//! What sockets do in the server, the world does.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use tidegate::Time;
use tidegate_log::{Doing, SimDisk, Steps};
use tidegate_server::replica::{Message, StepError};
use tidegate_server::store::{
    Due, Fetch, OpenError, Opening, Options, Replaying, Store, WriteError, account, relocate,
};
use tidegate_server::stream::{
    AccountLimits, Command, Effect, Encoder, Kind, Outcome, Place, Streams,
};

use crate::bugs::{Bug, without_ids};
use crate::catch_up::CatchingUp;
use crate::client::{Reply, Request, Told};
use crate::consume::Proposed;
use crate::coverage::Coverage;
use crate::dice::Dice;
use crate::oracle::{Oracle, ensure};
use crate::world::{Node, Plan};

/// What a stock client would have made before.
const STREAMS: [&str; 2] = [
    r#"{"name":"S","subjects":["s.>"],"duplicate_window":86400000000000}"#,
    r#"{"name":"T","subjects":["t.>"],"max_msgs":60,"duplicate_window":86400000000000}"#,
];
/// Wall clocks begin here, in microseconds.
const EPOCH_US: u64 = 1_700_000_000_000_000;
/// The most bytes of an entry.
const ENTRY_BYTES_MAX: usize = 12 << 10;

/// Two simulated disks: for checkpoints, for the log.
#[derive(Clone, Default)]
pub(crate) struct Disks {
    pub(crate) state: SimDisk,
    pub(crate) log: SimDisk,
}

/// A node that runs.
pub(crate) struct Up {
    pub(crate) store: Store,
    steps: Steps,
    pub(crate) doing: Doing,
    pub(crate) streams: Streams,
    pending: VecDeque<Request>,
    /// Who waits for what was proposed: index and term, in order.
    waiting: VecDeque<(u64, u64, Vec<Request>)>,
    /// The last entry applied: index and term.
    pub(crate) applied: (u64, u64),
    pub(crate) led: bool,
    outcomes: Vec<Outcome>,
    effects: Vec<Effect>,
    checking: Vec<(u32, u64)>,
    pub(crate) checkpoints: u64,
    pub(crate) catching_up: CatchingUp,
    pub(crate) consuming: Proposed,
}

/// An answer, and the entry it speaks of.
pub(crate) type Answer = (Reply, Option<(u64, u64)>);

pub(crate) const fn time(now_us: u64) -> Time {
    Time::from_nanos(now_us * 1000)
}

/// What a clock shows that is off by so much.
pub(crate) const fn wall(now_us: u64, off_us: i64) -> u64 {
    (EPOCH_US + now_us).saturating_add_signed(off_us)
}

impl Up {
    pub(crate) fn open(
        of: &Node,
        ids: &[u64],
        now: u64,
        plan: Plan,
        oracle: &mut Oracle,
    ) -> Result<Result<Self, OpenError>, String> {
        let (node, ledger) = (of.id, &of.ledger);
        let (state, log) = (of.disks.state.clone(), of.disks.log.clone());
        let options = Options {
            id: node,
            voters: ids.to_vec(),
            ..of.options()
        };
        let opened = Opening::stepped(Arc::new(state), Arc::new(log), options, time(now));
        let (mut opening, steps) = match opened {
            Ok(opened) => opened,
            Err(error) => return Ok(Err(error)),
        };
        let end = opening.recovery().end;
        ensure!(
            plan.blind || end >= ledger.durable,
            "what was durable is lost: the log of node {node} ends at {end}, and was durable up to {}",
            ledger.durable
        );
        let state = opening.take_state().map(|state| match plan.bug {
            Some(Bug::DedupLost) => without_ids(&state).into(),
            _ => state,
        });
        let mut streams = match state {
            Some(state) => Streams::restore(&state, AccountLimits::NONE)
                .map_err(|e| format!("the checkpoint of node {node}: {e}"))?,
            None => Streams::new(AccountLimits::NONE),
        };
        let mut replaying = Replaying::default();
        let (mut applied, mut wrong) = ((0, 0), Ok(()));
        let store = opening.replay(|due, live| {
            replaying.take(&mut streams, &due, live);
            if let Due::Entry(entry) = &due
                && wrong.is_ok()
            {
                applied = (entry.index, entry.term);
                wrong = oracle.applied(entry, replaying.outcomes(), ledger.hard_state.term);
            }
        });
        wrong.map_err(|what| format!("node {node} replays: {what}"))?;
        let store = match store {
            Ok(store) => store,
            Err(error) => return Ok(Err(error)),
        };
        replaying
            .finish()
            .map_err(|e| format!("node {node} replays: {e}"))?;
        if applied.0 > 0 {
            oracle.state(applied.0, &streams)?;
        }
        Ok(Ok(Self {
            store,
            steps,
            doing: Doing::Waiting(None),
            streams,
            pending: VecDeque::new(),
            waiting: VecDeque::new(),
            applied,
            led: false,
            outcomes: Vec::new(),
            effects: Vec::new(),
            checking: Vec::new(),
            checkpoints: 0,
            catching_up: CatchingUp::default(),
            consuming: None,
        }))
    }

    pub(crate) fn request(&mut self, request: Request, answers: &mut Vec<Answer>) {
        if self.store.group().leads_settled() {
            self.pending.push_back(request);
        } else {
            answers.push((answer(&request, Told::Elsewhere), None));
        }
    }

    /// A message of another node arrives.
    pub(crate) fn step(&mut self, message: Message) -> Result<(), StepError> {
        self.store.step(self.store.group_number(), message)
    }

    pub(crate) fn tick(&mut self) {
        self.store.tick();
    }

    pub(crate) fn poll_message(&mut self) -> Option<Message> {
        self.store.poll_message().map(|(_, message)| message)
    }

    /// The sync that runs has ended.
    pub(crate) fn sync(&mut self, now: u64) {
        self.doing = self.steps.sync(time(now));
    }

    /// What threads beside the loop do.
    pub(crate) fn work(&mut self) {
        self.steps.keep();
        while self.store.work() {}
    }

    /// One turn of the loop; false if the node has to end.
    pub(crate) fn turn(
        &mut self,
        now: u64,
        wall_us: i64,
        oracle: &mut Oracle,
        answers: &mut Vec<Answer>,
    ) -> Result<bool, String> {
        let wall = wall(now, wall_us);
        self.doing = self.steps.step(time(now));
        self.propose(wall, answers);
        if self.store.poll().is_err() {
            return Ok(false);
        }
        if let Some((index, term)) = self.store.poll_installed() {
            let installing = std::mem::take(&mut self.catching_up).installing;
            let (of, streams) = installing.ok_or("a state is installed that nobody fetched")?;
            ensure!(
                of == index,
                "the state of entry {of} is installed as that of {index}"
            );
            (self.streams, self.applied) = (streams, (index, term));
            self.checking.clear();
            oracle.state(index, &self.streams)?;
        } else if self.catching_up.installing.is_some() && !self.store.is_installing() {
            self.catching_up = CatchingUp::default();
        }
        while let Some(due) = self.store.poll_due() {
            match due {
                Due::Entry(entry) => {
                    ensure!(
                        entry.index > self.applied.0,
                        "entry {} is due after {}",
                        entry.index,
                        self.applied.0
                    );
                    self.applied = (entry.index, entry.term);
                    self.outcomes.clear();
                    self.effects.clear();
                    self.streams
                        .apply(
                            entry.lsn.get(),
                            &entry.data,
                            &mut self.outcomes,
                            &mut self.effects,
                        )
                        .map_err(|e| format!("entry {}: {e}", entry.index))?;
                    account(&self.effects, self.store.live_mut());
                    let term = self.store.group().term();
                    oracle.applied(&entry, &self.outcomes, term)?;
                    self.answer(entry.index, entry.term, answers);
                    if entry.index % 64 == 0 {
                        oracle.state(entry.index, &self.streams)?;
                    }
                }
                Due::Relocated(moved) => {
                    relocate(&mut self.streams, &moved, self.store.live_mut());
                }
                other => return Err(format!("nobody knows what to do with {other:?}")),
            }
        }
        if self.store.wants_checkpoint() {
            self.checkpoints += 1;
            let parts = self.streams.snapshot().chunks();
            self.store.checkpoint(Box::new(parts));
        }
        if let Some(asked) = self.store.poll_lying() {
            let (lying, next) = self.streams.lying_in(&asked.lsns, asked.from);
            self.store.handle_lying(lying, next);
        }
        self.doing = self.steps.step(time(now));
        Ok(true)
    }

    /// Hands what clients want to the group, as entries.
    fn propose(&mut self, wall: u64, answers: &mut Vec<Answer>) {
        if !self.store.group().leads() {
            self.refuse(answers);
            return;
        }
        if self.streams.len() < STREAMS.len() {
            // The one message of the group's life that nobody waits for; twice is as good as once.
            if self.waiting.is_empty() && !self.pending.is_empty() {
                let mut buffer = Vec::new();
                let mut encoder = Encoder::begin(&mut buffer, wall);
                for config in STREAMS {
                    let create = Command::new(Kind::CreateStream, 0, b"", config.as_bytes());
                    let _ = encoder.command(&create);
                }
                if let Ok(proposed) = self.store.propose(Bytes::from(buffer), 1) {
                    let (index, term) = (proposed.index, proposed.term);
                    self.waiting.push_back((index, term, Vec::new()));
                }
            }
            return;
        }
        while !self.pending.is_empty() {
            let mut buffer = Vec::new();
            let mut encoder = Encoder::begin(&mut buffer, wall);
            let mut taken = Vec::new();
            while encoder.encoded_bytes() < ENTRY_BYTES_MAX
                && let Some(request) = self.pending.pop_front()
            {
                let stream = self.streams.capture(&request.subject).unwrap_or(0);
                let headers = Some(&request.headers[..]);
                let _ = encoder.publish(stream, &request.subject, headers, &request.payload);
                taken.push(request);
            }
            match self.store.propose(Bytes::from(buffer), taken.len() as u64) {
                Ok(proposed) => {
                    self.waiting
                        .push_back((proposed.index, proposed.term, taken));
                }
                Err(WriteError::NotLeader) => {
                    let told = taken.iter().map(|r| (answer(r, Told::Elsewhere), None));
                    answers.extend(told);
                }
                Err(_) => {
                    taken
                        .into_iter()
                        .rev()
                        .for_each(|r| self.pending.push_front(r));
                    return;
                }
            }
        }
    }

    /// It leads anew: of what it proposed in another term nobody hears from it.
    pub(crate) fn begin_term(&mut self) {
        self.waiting.clear();
    }

    /// Who waits at a node that does not lead asks elsewhere. What was proposed may still be committed: of that nobody hears.
    fn refuse(&mut self, answers: &mut Vec<Answer>) {
        let pending = self.pending.drain(..);
        answers.extend(pending.map(|r| (answer(&r, Told::Elsewhere), None)));
    }

    /// Answers those who wait for the entry that was applied just now.
    fn answer(&mut self, index: u64, term: u64, answers: &mut Vec<Answer>) {
        while self.waiting.front().is_some_and(|w| w.0 <= index)
            && let Some((at, of, requests)) = self.waiting.pop_front()
        {
            if (at, of) != (index, term) {
                continue;
            }
            for (request, outcome) in requests.iter().zip(&self.outcomes) {
                let told = match outcome {
                    Outcome::Stored { stream, seq } => Told::Stored {
                        stream: *stream,
                        seq: *seq,
                        again: false,
                    },
                    Outcome::Duplicate { stream, seq } => Told::Stored {
                        stream: *stream,
                        seq: *seq,
                        again: true,
                    },
                    Outcome::Refused { error, .. } => {
                        let text = error.to_string();
                        let last = text.strip_prefix("wrong last sequence: ");
                        let last = last.and_then(|t| t.split(' ').next()?.parse().ok());
                        last.map_or(Told::Refused(text), |last| Told::Wrong { last })
                    }
                    other => Told::Refused(format!("{other:?}")),
                };
                answers.push((answer(request, told), Some((index, term))));
            }
        }
    }

    /// Reads some message through the store, as a consumer would; what is handed out is what was stored.
    pub(crate) fn consume(
        &mut self,
        dice: &mut Dice,
        oracle: &Oracle,
        seen: &mut Coverage,
    ) -> Result<(), String> {
        if self.checking.len() < 4 {
            for (&stream, model) in &oracle.model.streams {
                let state = self.streams.get(stream).map(|s| s.state());
                if let Some(state) = state.filter(|s| s.messages > 0 && !model.messages.is_empty())
                {
                    let seq = dice.range(state.first_seq, state.last_seq);
                    self.checking.push((stream, seq));
                }
            }
        }
        let mut checking = std::mem::take(&mut self.checking);
        let mut wrong = Ok(());
        checking.retain(|&(stream, seq)| {
            let place = self.streams.get(stream).and_then(|s| s.place(seq));
            let Some(place) = place else {
                return false;
            };
            match self.message(place) {
                Ok(None) => return true,
                Ok(Some(crc)) => {
                    seen.hit("messages read");
                    let right = oracle.model.streams[&stream].messages.get(&seq) == Some(&crc);
                    if !right {
                        wrong = Err(format!(
                            "message {seq} of stream {stream} is read as another"
                        ));
                    }
                }
                // Started again, it may not have applied yet what let the message's segment go; a leader has.
                Err(what) if what.starts_with("Gone") && !self.store.leads_settled() => {}
                Err(what) => wrong = Err(format!("message {seq} of stream {stream}: {what}")),
            }
            false
        });
        self.checking = checking;
        wrong
    }

    /// What the payload at a place comes to, once it was read.
    pub(crate) fn message(&mut self, place: Place) -> Result<Option<u32>, String> {
        match self.store.read(place) {
            Fetch::Ready(entry) => {
                let command = Command::read(&entry, 0).map_err(|e| e.to_string())?;
                Ok(Some(crc32c::crc32c(command.payload)))
            }
            Fetch::Pending => Ok(None),
            other => Err(format!("{other:?} at {place:?}")),
        }
    }
}

fn answer(request: &Request, told: Told) -> Reply {
    Reply {
        client: request.client,
        number: request.number,
        told,
    }
}
