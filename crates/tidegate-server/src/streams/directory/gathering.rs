//! Makes the answers that need reports of several groups: lists of streams with their state, and the usage of
//! an account.
//!
//! The leader of the directory asks the leaders of the groups that keep some of the streams. That leader
//! answers the client once all groups have reported. After [`PATIENCE`] that leader answers with the reports
//! that have arrived, and lists the streams of the other groups as missing.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate::Time;
use tidegate_cluster::groups::{ALL, GroupId};
use tidegate_stream::api::Listing;
use tidegate_stream::api::answer::{self, AccountInfo, Kind as Answer, Page};
use tidegate_stream::api::view;
use tidegate_stream::schema::config::Storage;
use tidegate_stream::schema::error::ApiError;
use tidegate_stream::schema::number::DirectoryNumber;
use tidegate_stream::stream::{Home, Stream};

use super::leader_message::LeaderMessage;
use crate::streams::JetStream;
use crate::streams::context::Context;

/// The longest time for which the leader of the directory waits for the groups' reports before it answers a
/// client.
const PATIENCE: Duration = Duration::from_secs(2);
/// The limit on the number of client requests that wait for groups' reports; the leader refuses more, so that
/// they take bounded memory.
const GATHERS_MAX: usize = 256;

/// The report that the leader of a group makes about its streams when the leader of the directory asks for a
/// client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reported {
    question: u64,
    group: GroupId,
    /// The streams about which the leader of the directory asked, by directory number. Each stream is JSON,
    /// in the form in which the API answer lists it.
    streams: Vec<(DirectoryNumber, Value)>,
    /// The sums over all streams of the group, for the usage of the account: bytes in the log, bytes in
    /// memory, number of consumers.
    file_bytes: u64,
    memory_bytes: u64,
    consumers: usize,
}

/// The client requests that wait for groups' reports, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Gathers {
    open: VecDeque<Gather>,
    asked: u64,
}

/// A client's request that the leader of the directory answers once all groups have reported for it.
#[derive(Debug)]
struct Gather {
    question: u64,
    reply: Box<[u8]>,
    what: What,
    until: Time,
    /// The groups that have still to report before the leader can answer the client's request.
    awaited: BTreeSet<GroupId>,
    told: BTreeMap<DirectoryNumber, Value>,
    file_bytes: u64,
    memory_bytes: u64,
    consumers: usize,
}

#[derive(Debug)]
enum What {
    Account,
    /// The client asked for a list of streams. The fields are the page of the answer, and the directory
    /// numbers and names of the streams on it.
    List(Page, Vec<(DirectoryNumber, String)>),
}

impl Gathers {
    /// Returns the time at which the leader answers the oldest request even if reports are missing; `None` if
    /// no request waits.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.open.front().map(|g| g.until)
    }
}

impl Gather {
    fn take(&mut self, reported: Reported) {
        if !self.awaited.remove(&reported.group) {
            return;
        }
        self.told.extend(reported.streams);
        self.file_bytes = self.file_bytes.saturating_add(reported.file_bytes);
        self.memory_bytes = self.memory_bytes.saturating_add(reported.memory_bytes);
        self.consumers = self.consumers.saturating_add(reported.consumers);
    }
}

impl JetStream {
    /// Begins to answer a request for the usage of the account: asks all groups for their sums.
    pub(crate) fn gather_account(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
    ) -> Result<(), ApiError> {
        let mut groups: BTreeMap<GroupId, Vec<DirectoryNumber>> = BTreeMap::new();
        if self.streams.has_moving() {
            for stream in self.streams.iter() {
                if let Home::Elsewhere { group, .. } = stream.home() {
                    groups.entry(group).or_default();
                }
            }
        } else {
            let others = self.streams.placed().filter(|group| *group != ALL);
            groups.extend(others.map(|group| (group, Vec::new())));
        }
        self.gather(cx, now, reply, What::Account, groups)
    }

    /// Begins to answer a request for a page of the list of streams: asks the groups that keep these streams.
    pub(crate) fn gather_list(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        listing: &Listing,
    ) -> Result<(), ApiError> {
        let page = listing.page();
        let mut groups: BTreeMap<GroupId, Vec<DirectoryNumber>> = BTreeMap::new();
        let mut names = Vec::new();
        for stream in listing.streams(&self.streams) {
            names.push((stream.entry_number(), stream.name().to_owned()));
            if let Home::Elsewhere { group, .. } = stream.home() {
                groups.entry(group).or_default().push(stream.entry_number());
            }
        }
        self.gather(cx, now, reply, What::List(page, names), groups)
    }

    fn gather(
        &mut self,
        cx: &mut Context<'_>,
        now: Time,
        reply: &[u8],
        what: What,
        groups: BTreeMap<GroupId, Vec<DirectoryNumber>>,
    ) -> Result<(), ApiError> {
        let gathers = &mut self.directory.gathers;
        if gathers.open.len() >= GATHERS_MAX {
            return Err(ApiError::TOO_MANY_REQUESTS);
        }
        gathers.asked += 1;
        // Each leader of the directory starts to number its questions at another seed, so a late report to a
        // question of an earlier leader never matches a question of this leader.
        let question = self.speech.seed.wrapping_add(gathers.asked);
        let mut gather = Gather {
            question,
            reply: reply.into(),
            what,
            until: now + PATIENCE,
            awaited: groups.keys().copied().collect(),
            told: BTreeMap::new(),
            file_bytes: 0,
            memory_bytes: 0,
            consumers: 0,
        };
        for (group, streams) in groups {
            let here = cx.around.streams_of(group).filter(|s| s.serves());
            if let Some(here) = here {
                gather.take(here.report(now, question, &streams));
            } else {
                let report = LeaderMessage::Report { question, streams };
                if !cx.tell_group(group, None, report) {
                    // The group has no leader that this node can reach, so the directory's leader does not
                    // wait for it, and lists the group's streams as missing.
                    gather.awaited.remove(&group);
                }
            }
        }
        self.directory.gathers.open.push_back(gather);
        self.serve_gathers(cx, now);
        Ok(())
    }

    /// Makes the report of this group about the streams with these directory numbers, with the sums over all
    /// streams of the group, for the leader of the directory.
    pub(crate) fn report(&self, now: Time, question: u64, streams: &[DirectoryNumber]) -> Reported {
        let asked: BTreeSet<DirectoryNumber> = streams.iter().copied().collect();
        let of = |stream: &Stream| match stream.home() {
            Home::Of(of) if asked.contains(&of) && self.is_open(of) => Some(of),
            _ => None,
        };
        let server = self.server(now);
        let told = self.streams.iter().filter_map(|stream| {
            let of = of(stream)?;
            Some((of, view::stream_listed(&server, &self.shown(now, stream))))
        });
        Reported {
            question,
            group: self.group,
            streams: told.collect(),
            file_bytes: self.streams.usage(Storage::File).bytes,
            memory_bytes: self.streams.usage(Storage::Memory).bytes,
            consumers: self.consumers_len(),
        }
    }

    /// Adds the report of a group to the client's request for which the group reports, and answers the client
    /// if the report is the last one.
    pub(crate) fn reported(&mut self, cx: &mut Context<'_>, now: Time, reported: Reported) {
        let mut open = self.directory.gathers.open.iter_mut();
        if let Some(gather) = open.find(|g| g.question == reported.question) {
            gather.take(reported);
            self.serve_gathers(cx, now);
        }
    }

    /// Answers the clients' requests for which all groups have reported, and the requests that have waited
    /// for [`PATIENCE`], so that no client waits for a lost group.
    pub(crate) fn serve_gathers(&mut self, cx: &mut Context<'_>, now: Time) {
        let open = std::mem::take(&mut self.directory.gathers.open);
        let (done, open) = open
            .into_iter()
            .partition(|g: &Gather| g.awaited.is_empty() || g.until <= now);
        self.directory.gathers.open = open;
        for gather in done {
            let body = self.gathered(now, &gather);
            self.voice(cx, now).answer_with(&gather.reply, &body);
        }
    }

    fn gathered(&self, now: Time, gather: &Gather) -> Vec<u8> {
        let (page, names) = match &gather.what {
            What::Account => {
                let here = self.account();
                return view::account_info(&AccountInfo {
                    memory: here.memory + gather.memory_bytes,
                    storage: here.storage + gather.file_bytes,
                    consumers: here.consumers + gather.consumers,
                    ..here
                });
            }
            What::List(page, names) => (*page, names),
        };
        let server = self.server(now);
        let (mut infos, mut missing) = (Vec::new(), Vec::new());
        for (id, name) in names {
            let kept = self.streams.entry(*id).filter(|s| s.home().is_here());
            let here = kept.map(|s| view::stream_listed(&server, &self.shown(now, s)));
            match here.or_else(|| gather.told.get(id).cloned()) {
                Some(info) => infos.push(info),
                None => missing.push(name.as_str()),
            }
        }
        view::stream_list_of(page, &infos, &missing)
    }

    /// Refuses the client requests that wait for reports, because this node does not lead the directory any
    /// more.
    pub(crate) fn end_gathers(&mut self, cx: &mut Context<'_>, now: Time) {
        for gather in std::mem::take(&mut self.directory.gathers.open) {
            let kind = match gather.what {
                What::Account => Answer::AccountInfo,
                What::List(..) => Answer::StreamList,
            };
            let body = answer::refused(kind.as_str(), &ApiError::SYSTEM_UNAVAILABLE);
            self.voice(cx, now).answer_with(&gather.reply, &body);
        }
    }
}
