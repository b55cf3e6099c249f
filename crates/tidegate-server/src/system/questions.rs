//! Reads the bodies of questions that clients of the system account send: the servers that shall answer, and
//! the parameters of the answer, with nats-server's names.

use serde::Deserialize;
use tidegate_nats::subject;

use super::list_of;
use crate::event_loop::report::Report;
use crate::event_loop::report::query::{HealthQuery, List, PAGE_MAX, Query, Sort, State};
use crate::monitor::query::{check_sort, sort_of};
use crate::sessions::system::{About, Page, Question};

/// The parameters of a client's question, by which the thread makes the answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) query: Query,
    pub(super) cid: u64,
    /// The error about a value that the page refuses; `None` if it takes all values.
    pub(super) wrong: Option<String>,
    /// True if the client wants an answer only of the leader of the directory of streams.
    leader_only: bool,
    filter: Filter,
}

/// The conditions by which a client chooses the servers that shall answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Filter {
    server_name: String,
    cluster: String,
    host: String,
    exact_match: bool,
    tags: Vec<String>,
    domain: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Body {
    #[serde(flatten)]
    filter: Filter,
    offset: i64,
    limit: i64,
    subscriptions: bool,
    subscriptions_detail: bool,
    cid: u64,
    sort: String,
    state: i64,
    user: String,
    acc: String,
    account: String,
    accounts: serde_json::Value,
    test: String,
    streams: bool,
    /// True if the client wants the consumers of streams; a check of health names a consumer here.
    consumer: serde_json::Value,
    leader_only: bool,
    include_unused: bool,
}

/// The parameters of a health check.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Check {
    #[serde(rename = "js-enabled")]
    enabled: bool,
    #[serde(rename = "js-enabled-only")]
    enabled_only: bool,
    #[serde(rename = "js-server-only")]
    server_only: bool,
    #[serde(rename = "js-meta-only")]
    meta_only: bool,
    account: String,
    stream: String,
    consumer: String,
    details: bool,
}

impl Check {
    fn into_query(self) -> HealthQuery {
        let named = |name: String| Some(name).filter(|name| !name.is_empty());
        HealthQuery {
            enabled_only: self.enabled || self.enabled_only,
            server_only: self.server_only,
            meta_only: self.meta_only,
            account: named(self.account),
            stream: named(self.stream),
            consumer: named(self.consumer),
            details: self.details,
        }
    }
}

impl Asked {
    /// Returns whether the client wants an answer of this server, by the question's conditions; a server that
    /// is not meant stays silent.
    pub(super) fn is_for(&self, report: &Report) -> bool {
        let (f, info) = (&self.filter, &report.info);
        let follows = report
            .streams
            .as_ref()
            .is_some_and(|s| s.nodes > 1 && s.cluster.leader != info.server_name);
        if self.leader_only && follows {
            return false;
        }
        let cluster = info.cluster.as_deref().unwrap_or_default();
        let pairs = [
            (&f.server_name, info.server_name.as_str()),
            (&f.host, info.host.as_str()),
            (&f.cluster, cluster),
        ];
        let fits = |(wanted, own): (&String, &str)| match f.exact_match {
            true => wanted.is_empty() || wanted == own,
            false => own.contains(wanted.as_str()),
        };
        pairs.into_iter().all(fits)
            && f.tags
                .iter()
                .all(|tag| report.tags.contains(&tag.to_lowercase()))
            && (f.domain.is_empty() || report.domain.as_deref() == Some(&f.domain))
    }
}

/// Reads the parameters from the body of a client's question.
///
/// # Errors
/// The body is not JSON with the expected fields.
pub(super) fn read(question: &Question) -> Result<Asked, String> {
    let text = match question.payload.trim_ascii() {
        b"" => &b"{}"[..],
        text => text,
    };
    let body: Body = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let health = match question.about {
        About::Page(Page::Health) => {
            let check: Check = serde_json::from_slice(text).map_err(|e| e.to_string())?;
            Some(Box::new(check.into_query()))
        }
        _ if !body.consumer.is_null() && !body.consumer.is_boolean() => {
            return Err("consumer: expected true or false".into());
        }
        _ => None,
    };
    let list = match &question.about {
        About::Page(page) | About::PageOf(page, _) => list_of(*page),
        About::Account(_) => List::Accounts,
        _ => List::Nothing,
    };
    let account = match &question.about {
        About::PageOf(_, name) | About::Account(name) => Some(name.clone()),
        _ => [body.acc, body.account]
            .into_iter()
            .find(|name| !name.is_empty()),
    };
    let mut wrong = None;
    if !body.test.is_empty() && !subject::is_literal(body.test.as_bytes()) {
        wrong = Some(format!(
            "invalid test subject, must be valid publish subject: {}",
            body.test
        ));
    }
    let sort = match list {
        List::Connections if !body.sort.is_empty() => sort_of(&body.sort),
        _ => Ok(Sort::Cid),
    };
    let of_account = matches!(question.about, About::PageOf(..));
    let cid = (body.cid > 0).then_some(body.cid);
    let query = Query {
        offset: usize::try_from(body.offset).unwrap_or(0),
        limit: match usize::try_from(body.limit) {
            Ok(limit @ 1..=PAGE_MAX) => limit,
            _ => PAGE_MAX,
        },
        subscriptions: body.subscriptions
            || body.subscriptions_detail
            || list == List::Subscriptions && of_account,
        state: match body.state {
            0 => State::Open,
            1 => State::Closed,
            2 => State::All,
            _ => State::Unknown,
        },
        sort: sort.as_ref().copied().unwrap_or_default(),
        cid,
        user: Some(body.user).filter(|user| !user.is_empty()),
        account,
        test: Some(body.test).filter(|test| !test.is_empty()),
        accounts: body.accounts == true || body.include_unused,
        streams: body.streams || list == List::Streams && of_account,
        consumers: body.consumer == true,
        health,
        ..Query::new(list)
    };
    let wrong = wrong.or_else(|| sort.err());
    Ok(Asked {
        wrong: wrong.or_else(|| check_sort(&query).err()),
        query,
        cid: body.cid,
        leader_only: body.leader_only,
        filter: body.filter,
    })
}

#[cfg(test)]
mod tests {
    use tidegate_nats::settings::Account;

    use super::*;
    use crate::sessions::system::Page;

    fn asked(about: About, body: &str) -> Result<Asked, String> {
        read(&Question {
            about,
            account: Account::System,
            reply: b"r".as_slice().into(),
            payload: body.as_bytes().into(),
            asker: None,
        })
    }

    #[test]
    fn parameters() {
        let asked = |about, body| asked(about, body).unwrap();
        let page = About::Page(Page::Connections);
        let query = asked(
            page,
            r#"{"cid":7,"state":2,"user":"u","acc":"$G","limit":9999}"#,
        )
        .query;
        assert_eq!(
            (query.cid, query.state, query.limit),
            (Some(7), State::All, PAGE_MAX)
        );
        assert_eq!(
            (query.list, query.account),
            (List::Connections, Some("$G".into()))
        );
        let of = asked(About::PageOf(Page::Subscriptions, "$SYS".into()), "").query;
        assert!(of.subscriptions && of.account == Some("$SYS".into()));
        let streams = asked(
            About::Page(Page::Streams),
            r#"{"accounts":true,"streams":true}"#,
        );
        assert!(streams.query.accounts && streams.query.streams && !streams.query.consumers);
        assert_eq!(asked(About::Kick, r#"{"cid":12}"#).cid, 12);
    }

    #[test]
    fn wrong_bodies_are_refused() {
        for body in ["x", r#"{"cid":"a"}"#, r#"{"consumer":"a"}"#] {
            assert!(
                asked(About::Page(Page::Subscriptions), body).is_err(),
                "{body}"
            );
        }
        for (page, body, error) in [
            (
                Page::Subscriptions,
                r#"{"test":"a.*"}"#,
                "invalid test subject",
            ),
            (
                Page::Connections,
                r#"{"sort":"name"}"#,
                "invalid sorting option: name",
            ),
            (
                Page::Connections,
                r#"{"sort":"stop","state":2}"#,
                "sort by stop only valid",
            ),
        ] {
            let wrong = asked(About::Page(page), body).unwrap().wrong.unwrap();
            assert!(wrong.starts_with(error), "{wrong}");
        }
        let closed = r#"{"sort":"reason","state":1}"#;
        let asked = asked(About::Page(Page::Connections), closed).unwrap();
        assert_eq!((asked.wrong, asked.query.sort), (None, Sort::Reason));
    }

    #[test]
    fn health_checks() {
        let body =
            r#"{"js-server-only":true,"account":"$G","stream":"S","consumer":"C","details":true}"#;
        let wanted = HealthQuery {
            server_only: true,
            account: Some("$G".into()),
            stream: Some("S".into()),
            consumer: Some("C".into()),
            details: true,
            ..HealthQuery::default()
        };
        let query = asked(About::Page(Page::Health), body).unwrap().query;
        assert_eq!(query.health.as_deref(), Some(&wanted));
        assert!(asked(About::Page(Page::Health), r#"{"consumer":true}"#).is_err());
        let query = asked(About::Page(Page::Health), "").unwrap().query;
        assert_eq!(query.health.as_deref(), Some(&HealthQuery::default()));
    }
}
