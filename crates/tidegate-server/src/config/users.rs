//! Reads the settings of the blocks `authorization` and `accounts`: the token or the users, and their
//! permissions.

use std::sync::Arc;
use std::time::Duration;

use tidegate_nats::permissions::{Pattern, Permissions, ResponseRule, Rules};
use tidegate_nats::settings::{Account, Secret, User};
use tidegate_nats::subject;

use super::reading::Reading;
use super::tree::{Item, Map, SyntaxError, Value};
use super::values::{
    credential, duration, entries, error, list, number, positive, text, value, wrong,
};
use super::{SYSTEM_ACCOUNT, Settings};

/// Returns the name of the system account: the value of `system_account`, or `$SYS` as in nats-server.
pub(super) fn system_account(map: &Map) -> String {
    match value(map, "system_account").map(|item| &item.value) {
        Some(Value::Text(name)) => name.clone(),
        _ => SYSTEM_ACCOUNT.into(),
    }
}

/// Reads the block `authorization`: the token or the users by which the server recognises clients outside of
/// the system account.
pub(super) fn authorization(
    reading: &mut Reading,
    key: &str,
    item: &Item,
    s: &mut Settings,
) -> Result<(), SyntaxError> {
    let (mut user, mut password, mut token) = (None, None, None);
    let mut default = None;
    let mut users = Vec::new();
    reading.block(
        "authorization",
        entries(key, item)?,
        &mut |reading, key, item| {
            match key {
                "user" => user = Some(credential("authorization", key, item)?),
                "password" => password = Some(credential("authorization", key, item)?),
                "token" => token = Some(Secret::new(&credential("authorization", key, item)?)),
                "timeout" => s.sessions.auth_timeout = positive(key, item)?,
                "default_permissions" => default = Some(permissions(reading, key, item)?),
                "users" => {
                    for item in list(key, item)? {
                        users.push(one_user(reading, key, item, Account::Global)?);
                    }
                }
                _ => unreachable!("the table names only settings with code: {key}"),
            }
            Ok(())
        },
    );
    match (user, password) {
        (Some(name), Some(password)) => users.push(User {
            name,
            secret: Secret::new(&password),
            permissions: None,
            account: Account::Global,
        }),
        (None, None) => {}
        _ => {
            return Err(error(
                item,
                "a user needs a password, and a password a user",
            ));
        }
    }
    if token.is_some() && !users.is_empty() {
        return Err(error(
            item,
            "`authorization` has a token and users: give the token, or the users",
        ));
    }
    s.sessions.token = token;
    s.sessions
        .users
        .retain(|user| user.account == Account::System);
    add(&mut s.sessions.users, users, default.as_ref());
    Ok(())
}

/// Reads the block `accounts`, in which this server accepts only the system account `system`.
pub(super) fn accounts(
    reading: &mut Reading,
    key: &str,
    item: &Item,
    system: &str,
    s: &mut Settings,
) -> Result<(), SyntaxError> {
    let other = |item: &Item, name: &str| {
        let message = format!(
            "the account `{name}` does not exist here: its clients would share all subjects with the others (this server has one account for clients, and the system account)"
        );
        error(item, message)
    };
    s.sessions
        .users
        .retain(|user| user.account == Account::Global);
    if let Value::List(names) = &item.value {
        for item in names {
            let name = text(key, item)?;
            if name != system && name != SYSTEM_ACCOUNT {
                reading.refuse(other(item, &name));
            }
        }
        return Ok(());
    }
    for (name, item) in entries(key, item)? {
        if name != system && name != SYSTEM_ACCOUNT {
            // An entry that a variable refers to is no account, so the server need not refuse it.
            if !item.referenced {
                reading.refuse(other(item, name));
            }
            continue;
        }
        let mut default = None;
        let mut users = Vec::new();
        reading.block(
            "accounts",
            entries(name, item)?,
            &mut |reading, key, item| {
                match key {
                    "users" => {
                        for item in list(key, item)? {
                            users.push(one_user(reading, key, item, Account::System)?);
                        }
                    }
                    "default_permissions" => default = Some(permissions(reading, key, item)?),
                    _ => unreachable!("the table names only settings with code: {key}"),
                }
                Ok(())
            },
        );
        add(&mut s.sessions.users, users, default.as_ref());
    }
    Ok(())
}

/// Adds users to the list, with the default permissions if they have none of their own, as nats-server does.
fn add(list: &mut Vec<Arc<User>>, users: Vec<User>, default: Option<&Permissions>) {
    for mut user in users {
        if user.permissions.is_none() {
            user.permissions = default.cloned();
        }
        list.push(Arc::new(user));
    }
}

fn one_user(
    reading: &mut Reading,
    key: &str,
    item: &Item,
    account: Account,
) -> Result<User, SyntaxError> {
    let (mut name, mut password, mut rules) = (None, None, None);
    let refused = reading.report.refused.len();
    reading.block("users", entries(key, item)?, &mut |reading, key, item| {
        match key {
            "user" => name = Some(credential("users", key, item)?),
            "password" => password = Some(credential("users", key, item)?),
            "permissions" => rules = Some(permissions(reading, key, item)?),
            "allowed_connection_types" => connection_types(key, item)?,
            _ => unreachable!("the table names only settings with code: {key}"),
        }
        Ok(())
    });
    match (name, password) {
        (Some(name), Some(password)) => Ok(User {
            name,
            secret: Secret::new(&password),
            permissions: rules,
            account,
        }),
        // The report already has the reason why the name or the password is missing, so this code returns
        // that reason in place of a further error.
        _ if reading.report.refused.len() > refused => {
            let last = reading.report.refused.pop();
            Err(last.unwrap_or_else(|| error(item, "a user needs `user` and `password`")))
        }
        _ => Err(error(item, "a user needs `user` and `password`")),
    }
}

/// Checks that the operator lets a user connect as a standard client, because this server offers no other
/// type of connection.
fn connection_types(key: &str, item: &Item) -> Result<(), SyntaxError> {
    for item in list(key, item)? {
        if text(key, item)?.eq_ignore_ascii_case("STANDARD") {
            return Ok(());
        }
    }
    let expected = "STANDARD among the types: the user could not log in otherwise";
    Err(wrong(key, item, expected))
}

fn permissions(reading: &mut Reading, key: &str, item: &Item) -> Result<Permissions, SyntaxError> {
    let mut p = Permissions::default();
    reading.block(
        "permissions",
        entries(key, item)?,
        &mut |reading, key, item| {
            match key {
                "publish" => p.publish = rules(reading, "permissions.publish", item)?,
                "subscribe" => p.subscribe = rules(reading, "permissions.subscribe", item)?,
                "allow_responses" => p.responses = responses(reading, key, item)?,
                _ => unreachable!("the table names only settings with code: {key}"),
            }
            Ok(())
        },
    );
    Ok(p)
}

fn rules(reading: &mut Reading, block: &str, item: &Item) -> Result<Rules, SyntaxError> {
    let mut rules = Rules::default();
    let queues = block == "permissions.subscribe";
    match &item.value {
        Value::Map(map) => {
            reading.block(block, map, &mut |_, key, item| {
                match key {
                    "allow" => rules.allow = Some(patterns(key, item, queues)?),
                    "deny" => rules.deny = patterns(key, item, queues)?,
                    _ => unreachable!("the table names only settings with code: {key}"),
                }
                Ok(())
            });
        }
        _ => rules.allow = Some(patterns(block, item, queues)?),
    }
    Ok(rules)
}

fn patterns(key: &str, item: &Item, queues: bool) -> Result<Vec<Pattern>, SyntaxError> {
    let one = |item: &Item| {
        let text = text(key, item)?;
        let mut words = text.split_whitespace();
        let (subject, queue) = (words.next().unwrap_or_default(), words.next());
        let good = subject::is_pattern(subject.as_bytes())
            && queue.is_none_or(|q| queues && subject::is_pattern(q.as_bytes()));
        if !good || words.next().is_some() {
            return Err(error(item, format!("`{text}` is not a subject or pattern")));
        }
        Ok(Pattern {
            subject: subject.as_bytes().into(),
            queue: queue.map(|q| q.as_bytes().into()),
        })
    };
    match &item.value {
        Value::List(items) => items.iter().map(one).collect(),
        _ => Ok(vec![one(item)?]),
    }
}

fn responses(
    reading: &mut Reading,
    key: &str,
    item: &Item,
) -> Result<Option<ResponseRule>, SyntaxError> {
    let mut rule = ResponseRule {
        max: Some(1),
        expires: Some(Duration::from_secs(120)),
    };
    match &item.value {
        Value::Bool(on) => Ok(on.then_some(rule)),
        Value::Map(map) => {
            reading.block("allow_responses", map, &mut |_, key, item| {
                match key {
                    "max" => {
                        rule.max = Some(number::<i64>(key, item, -1)?)
                            .filter(|m| *m > 0)
                            .map(i64::unsigned_abs)
                    }
                    "expires" => rule.expires = Some(duration(key, item)?).filter(|d| !d.is_zero()),
                    _ => unreachable!("the table names only settings with code: {key}"),
                }
                Ok(())
            });
            Ok(Some(rule))
        }
        _ => Err(wrong(key, item, "true, false, or { max, expires }")),
    }
}
