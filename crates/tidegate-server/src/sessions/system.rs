//! Serves the system account: the messages of its clients, the questions that its clients ask servers, and
//! the events about which servers tell its clients.
//!
//! Subjects of the system account carry a token of their own inside the server ([`tidegate_nats::system`]),
//! so the account's messages take the ways of all other messages, between nodes too. A node that has users of
//! the system account announces the subjects of its questions to its peers. The node only recognises
//! questions and events ([`Job`]); the driver hands them to a thread that writes the answers as JSON, and
//! brings the answers back ([`Node::say_system`]).

// The import is from `core::net` and not `std::net`, because an address is plain data and this module uses no
// sockets.
use core::net::SocketAddr;
use std::borrow::Cow;
use std::collections::VecDeque;

use tidegate::Time;
use tidegate_nats::connect::Info;
use tidegate_nats::parse::Publish;
use tidegate_nats::permissions::Permissions;
use tidegate_nats::session::{CloseReason, Session, Traffic};
use tidegate_nats::settings::Account;
use tidegate_nats::sublist::Matches;
use tidegate_nats::system::inner;

use super::Node;
use super::audits::Audit;
use super::traces::Trace;
use crate::party::{ClientKey, Party};

/// The most questions and events that wait until the driver takes them, so that they take bounded memory. A
/// client gets no answer to a question beyond them.
const JOBS_MAX: usize = 1024;
/// The beginning of the subjects of questions at which clients of the system account ask servers.
const QUESTIONS: &[u8] = b"$SYS.REQ.";
/// The beginning of the requests at the streams' API that only the system account may send: requests about
/// the leaders of all streams, which are an operator's.
const META: &[u8] = b"$JS.API.META.";
/// The beginning of the subjects of advisories, which streams may store.
const ADVISORIES: &[u8] = b"$JS.EVENT.";

/// The state of the system account on this node, by which the node knows if its events have listeners.
#[derive(Debug, Default)]
pub(super) struct System {
    /// The number of subscriptions of the account's clients, here and at peers. Without any, the node makes
    /// no events, because nothing listens.
    pub(super) subscriptions: usize,
    jobs: VecDeque<Job>,
    /// The subjects of questions that the node has announced to its peers; empty before that. The node
    /// withdraws them if the account's users go.
    announced: Vec<Vec<u8>>,
}

/// Work that the node gives to the thread that answers the clients of the system account, so that the event
/// loop writes no JSON.
#[derive(Debug)]
pub(crate) enum Job {
    /// A client asks this server a question, which the thread answers.
    Answer(Box<Question>),
    /// Something has happened on this server about which the thread tells the clients of the system account,
    /// because they watch the server.
    Tell(Happened),
    /// A client asked for a trace of a message, and this server reports the message's path here.
    Trace(Box<Trace>),
    /// A client listens to reports on requests to the streams' API, and another client gets the answer to its
    /// request.
    Audit(Box<Audit>),
}

/// A question of a client to this server, which the thread answers.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) about: About,
    /// The account in which the client hears the answer, and (`reply`) the subject of the answer.
    pub(crate) account: Account,
    pub(crate) reply: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
    /// The client that asks, for an answer about its user; `None` for a client of another node.
    pub(crate) asker: Option<Asker>,
}

/// The client that asks a question, as the answer shows it.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) user: Option<String>,
    pub(crate) permissions: Option<Permissions>,
}

/// The subject of a client's question to a server, as the server understands it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// The client asks for the page of the monitor with this name, such as `VARZ`.
    Page(Page),
    /// The client asks for the page of the monitor about one account.
    PageOf(Page, String),
    /// The client asks about the account with this name, for example about its connections.
    Account(String),
    /// The client asks about its own user, its account and permissions.
    User,
    /// The client asks the server to read its configuration again, as a signal would.
    Reload,
    /// The client asks the server to close a connection, or (`LameDuck`) to tell its client to connect
    /// elsewhere.
    Kick,
    LameDuck,
}

/// A page of the monitor, which clients of the system account may ask for, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Id,
    Stats,
    Var,
    Connections,
    Subscriptions,
    Routes,
    Gateways,
    LeafNodes,
    Accounts,
    AccountStats,
    Streams,
    Health,
    Raft,
    /// The client asks for figures that only a server written in Go has: queues inside of the server, a
    /// profile, exported variables.
    Queues,
    Profile,
    Variables,
}

/// An event about which a server tells the clients of the system account, because they watch it.
#[derive(Clone, Debug)]
pub(crate) enum Happened {
    Connected(Box<Connection>),
    Disconnected(Box<Connection>, CloseReason),
    LameDuck,
    /// The interval is over after which a server sends its figures.
    Stats,
}

/// The facts about a client's connection that the message about an event shows.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) cid: u64,
    pub(crate) account: Account,
    pub(crate) user: Option<String>,
    pub(crate) address: SocketAddr,
    pub(crate) name: String,
    pub(crate) lang: String,
    pub(crate) version: String,
    pub(crate) since: Time,
    pub(crate) until: Time,
    pub(crate) traffic: Traffic,
}

impl Page {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "IDZ" => Self::Id,
            "STATSZ" => Self::Stats,
            "VARZ" => Self::Var,
            "CONNZ" => Self::Connections,
            "SUBSZ" => Self::Subscriptions,
            "ROUTEZ" => Self::Routes,
            "GATEWAYZ" => Self::Gateways,
            "LEAFZ" => Self::LeafNodes,
            "ACCOUNTZ" => Self::Accounts,
            "JSZ" => Self::Streams,
            "HEALTHZ" => Self::Health,
            "RAFTZ" => Self::Raft,
            "IPQUEUESZ" => Self::Queues,
            "PROFILEZ" => Self::Profile,
            "EXPVARZ" => Self::Variables,
            _ => return None,
        })
    }
}

impl About {
    /// Reads the subject of a question from a client of `account` to the server with the id `id`. A client
    /// outside of the system account may only ask about itself and its account, because the rest is for
    /// operators.
    pub(crate) fn read(subject: &[u8], account: Account, id: &str) -> Option<Self> {
        let rest = std::str::from_utf8(subject.strip_prefix(QUESTIONS)?).ok()?;
        let tokens: Vec<&str> = rest.split('.').collect();
        if account == Account::Global {
            let own = "$G".to_owned();
            return match tokens[..] {
                ["USER", "INFO"] => Some(Self::User),
                ["ACCOUNT" | "SERVER", "PING", "CONNZ"] => {
                    Some(Self::PageOf(Page::Connections, own))
                }
                ["ACCOUNT", "PING", "STATZ"] => Some(Self::PageOf(Page::AccountStats, own)),
                _ => None,
            };
        }
        match tokens[..] {
            ["USER", "INFO"] => Some(Self::User),
            ["SERVER", "PING"] => Some(Self::Page(Page::Stats)),
            ["SERVER", to, "RELOAD"] if to == id => Some(Self::Reload),
            ["SERVER", to, "KICK"] if to == id => Some(Self::Kick),
            ["SERVER", to, "LDM"] if to == id => Some(Self::LameDuck),
            ["SERVER", to, page] if to == id || to == "PING" => Page::named(page).map(Self::Page),
            ["ACCOUNT", "PING", "STATZ"] => Some(Self::Page(Page::AccountStats)),
            ["ACCOUNT", of, "STATZ"] => Some(Self::PageOf(Page::AccountStats, of.into())),
            ["ACCOUNT", of, "INFO"] => Some(Self::Account(of.into())),
            ["ACCOUNT", of, page @ ("CONNZ" | "SUBSZ" | "JSZ" | "LEAFZ")] => {
                Page::named(page).map(|page| Self::PageOf(page, of.into()))
            }
            _ => None,
        }
    }
}

/// Returns the form in which the server keeps a subject or pattern of a client in this account, so that the
/// subjects of the two accounts never match.
pub(super) fn kept(account: Account, subject: &[u8]) -> Cow<'_, [u8]> {
    match account {
        Account::Global => subject.into(),
        Account::System => inner(subject).into(),
    }
}

/// Returns the subject at which the server publishes that a client of the account with this name has
/// connected, or (`verb` is `DISCONNECT`) disconnected.
pub(crate) fn subject_of_connection(account: &str, verb: &str) -> String {
    format!("$SYS.ACCOUNT.{account}.{verb}")
}

/// Returns the subject at which the server with this id publishes an event, such as `STATSZ`.
pub(crate) fn subject_of_server(id: &str, verb: &str) -> String {
    format!("$SYS.SERVER.{id}.{verb}")
}

impl Node {
    /// Delivers a message of a client of the system account, and, if it is a question to this server, has the
    /// thread answer it.
    pub(super) fn publish_system(&mut self, now: Time, key: ClientKey, message: &Publish<'_>) {
        let (from, to) = (Party::Client(key), inner(message.subject));
        let delivered = self.route(now, Some(from), &to, message, None).is_some();
        let asked = self.ask_system(Some(key), message) || self.ask_streams(now, from, message);
        if !delivered && !asked && message.reply.is_some() {
            self.no_responders(key, message);
        }
    }

    /// Hands a request about the leaders of all streams to the streams, which answer in the system account.
    fn ask_streams(&mut self, now: Time, from: Party, message: &Publish<'_>) -> bool {
        if !message.subject.starts_with(META) {
            return false;
        }
        let reply = message.reply.map(inner);
        let message = Publish {
            reply: reply.as_deref(),
            ..*message
        };
        self.capture(now, from, &message)
    }

    /// Recognises a question to this server in a message, and queues the question for the thread that
    /// answers. `key` is the client that asks; `None` for a client of the system account at another node.
    pub(super) fn ask_system(&mut self, key: Option<ClientKey>, message: &Publish<'_>) -> bool {
        if !message.subject.starts_with(QUESTIONS) {
            return false;
        }
        let session = key.map(|key| &self.entries[key].session);
        let account = session.map_or(Account::System, Session::account);
        let id = &self.info.server_id;
        let Some(about) = About::read(message.subject, account, id) else {
            return false;
        };
        if session.is_none() && about == About::User {
            // The client's own node answers a question about the client's user, because it knows the client.
            return false;
        }
        let stats = about == About::Page(Page::Stats);
        let job = match message.reply {
            Some(reply) => Job::Answer(Box::new(Question {
                about,
                account,
                reply: reply.into(),
                payload: message.payload.into(),
                asker: session.map(|session| Asker {
                    user: session.user().map(Into::into),
                    permissions: session.permissions().cloned(),
                }),
            })),
            // The client gave no reply subject, so the server sends its figures to all clients of the system
            // account.
            None if stats => Job::Tell(Happened::Stats),
            None => return true,
        };
        self.push_job(job);
        true
    }

    /// Announces to the peers the subjects of questions that this node answers, so that peers send the
    /// questions here. Withdraws the subjects if the settings have no users of the system account.
    pub(super) fn announce_system(&mut self) {
        let users = &self.settings.sessions.users;
        let wanted = users.iter().any(|u| u.account == Account::System);
        if self.peers.is_none() || wanted != self.system.announced.is_empty() {
            return;
        }
        let id = &self.info.server_id;
        let subjects = [
            "$SYS.REQ.SERVER.PING".to_owned(),
            "$SYS.REQ.SERVER.PING.*".to_owned(),
            format!("$SYS.REQ.SERVER.{id}.*"),
            "$SYS.REQ.ACCOUNT.*.*".to_owned(),
        ];
        let subjects: Vec<Vec<u8>> = subjects.iter().map(|s| inner(s.as_bytes())).collect();
        let patterns = subjects.iter().map(|s| &**s);
        match wanted {
            true => {
                self.announce(patterns);
                self.system.announced = subjects;
            }
            false => {
                self.withdraw(patterns);
                self.system.announced.clear();
            }
        }
    }

    /// Tells the clients of the system account that the server has admitted this client, if the server has
    /// just admitted it and a client listens to these events. Without a listener the node makes no event.
    pub(super) fn tell_connected(&mut self, key: ClientKey) {
        let Some(entry) = self.entries.get_mut(key) else {
            return;
        };
        if !entry.session.take_newly_admitted() {
            return;
        }
        if self.wants_connection(key, "CONNECT") {
            let connection = connection(&self.entries[key].session, Time::ZERO);
            self.push_job(Job::Tell(Happened::Connected(connection.into())));
        }
    }

    /// Tells the clients of the system account that a connection has ended, if a client listens to these
    /// events. Without a listener the node makes no event.
    pub(super) fn tell_disconnected(&mut self, now: Time, key: ClientKey) {
        if self.entries[key].session.admitted && self.wants_connection(key, "DISCONNECT") {
            let entry = &self.entries[key];
            let connection = connection(&entry.session, now);
            let happened = Happened::Disconnected(connection.into(), entry.reason);
            self.push_job(Job::Tell(happened));
        }
    }

    fn wants_connection(&self, key: ClientKey, verb: &str) -> bool {
        if self.system.subscriptions == 0 {
            return false;
        }
        let account = self.entries[key].session.account();
        let subject = subject_of_connection(self.settings.account_name(account), verb);
        self.is_wanted(subject.as_bytes())
    }

    /// Returns whether a client of the system account, here or at a peer, subscribes to this subject, so that
    /// the server need not make an event for no listener.
    fn is_wanted(&self, subject: &[u8]) -> bool {
        let mut scratch = Matches::default();
        let found = self.sublist.find(&inner(subject), &mut scratch);
        !found.is_empty()
    }

    /// Returns whether a client of the system account, here or at a peer, has any subscription, so that
    /// events may have a listener.
    #[must_use]
    pub(crate) const fn listens_to_system(&self) -> bool {
        self.system.subscriptions > 0
    }

    /// Returns whether a client of the system account listens for the figures that a server sends at
    /// intervals.
    #[must_use]
    pub(crate) fn wants_stats(&self) -> bool {
        let subject = subject_of_server(&self.info.server_id, "STATSZ");
        self.system.subscriptions > 0 && self.is_wanted(subject.as_bytes())
    }

    /// Queues an event of this server for the thread that tells the clients of the system account, if they
    /// have subscriptions.
    pub(crate) fn tell_of_server(&mut self, happened: Happened) {
        if self.system.subscriptions > 0 {
            self.push_job(Job::Tell(happened));
        }
    }

    pub(super) fn push_job(&mut self, job: Job) {
        if self.system.jobs.len() < JOBS_MAX {
            self.system.jobs.push_back(job);
        }
    }

    /// Takes the next question or event, which the driver gives to the thread that writes answers.
    pub(crate) fn poll_job(&mut self) -> Option<Job> {
        self.system.jobs.pop_front()
    }

    /// Delivers the answer to a question, or the message about an event, as the thread wrote it, to the
    /// clients of `account`.
    pub(crate) fn say_system(&mut self, now: Time, account: Account, subject: &[u8], body: &[u8]) {
        let message = Publish {
            subject,
            reply: None,
            headers: None,
            payload: body,
        };
        match account {
            Account::Global => {
                self.say(now, subject, &message);
                if subject.starts_with(ADVISORIES) {
                    // A stream may store advisories, so that operators can read them later.
                    self.publish_into(now, None, &message);
                }
            }
            Account::System => {
                self.say(now, &inner(subject), &message);
            }
        };
    }

    /// Closes the connection with this number on behalf of an operator, for example because the client
    /// misbehaves. Returns whether the connection exists.
    pub(crate) fn kick(&mut self, now: Time, cid: u64) -> bool {
        let Some(key) = self.client_with(cid) else {
            return false;
        };
        self.close(now, key, CloseReason::Kicked);
        true
    }

    /// Tells one client to connect to another server, on behalf of an operator, for example to spread
    /// clients. Returns whether the connection exists.
    pub(crate) fn send_away(&mut self, cid: u64) -> bool {
        let Some(key) = self.client_with(cid) else {
            return false;
        };
        let session = &mut self.entries[key].session;
        let info = Info {
            client_id: session.cid,
            client_ip: session.address.ip().to_string(),
            ldm: true,
            ..self.info.clone()
        };
        session.inform(&info);
        self.touch(key);
        true
    }

    fn client_with(&self, cid: u64) -> Option<ClientKey> {
        let mut open = self.entries.iter().filter(|(_, e)| !e.session.is_closing());
        open.find(|(_, e)| e.session.cid == cid).map(|(key, _)| key)
    }
}

pub(super) fn connection(session: &Session, until: Time) -> Connection {
    Connection {
        cid: session.cid,
        account: session.account(),
        user: session.user().map(Into::into),
        address: session.address,
        name: session.options.name.clone(),
        lang: session.options.lang.clone(),
        version: session.options.version.clone(),
        since: session.since,
        until,
        traffic: session.traffic,
    }
}

#[cfg(test)]
mod tests;
