//! The settings of client sessions: limits, times, and the credentials that admit a client. The module also
//! checks credentials.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;

use super::permissions::Permissions;

/// The settings that all client sessions of a server obey.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSettings {
    /// The greatest number of subscriptions that one connection may have; 0 allows any number.
    pub max_subscriptions: usize,
    /// The greatest number of bytes that the headers and the payload of one message may take together.
    pub max_payload: usize,
    /// True if clients may send messages with headers.
    pub headers: bool,
    /// The greatest length in bytes of a control line, without its verb; a longer line ends the connection.
    pub max_control_line: usize,
    /// The time without input from a client after which the server sends the client a PING.
    pub ping_interval: Duration,
    /// The number of unanswered PINGs after which the server closes the connection.
    pub ping_max: u32,
    /// The longest time in which a client's socket may accept none of the bytes that wait for the client,
    /// before the server closes the connection.
    pub write_deadline: Duration,
    /// The time from connecting that a client has to present its credentials, before the server closes the
    /// connection.
    pub auth_timeout: Duration,
    /// The token that admits a client; `None` if the configuration has none.
    pub token: Option<Secret>,
    /// The users as which clients may log in.
    pub users: Vec<Arc<User>>,
    /// The name of the user that a client without credentials becomes; `None` refuses such clients.
    pub no_auth_user: Option<String>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            max_subscriptions: 0,
            max_payload: 1024 * 1024,
            headers: true,
            max_control_line: 4096,
            ping_interval: Duration::from_secs(120),
            ping_max: 2,
            write_deadline: Duration::from_secs(10),
            auth_timeout: Duration::from_secs(2),
            token: None,
            users: Vec::new(),
            no_auth_user: None,
        }
    }
}

/// A password or token as the configuration gives it: as plain text or as a hash.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// A password or token in plain text.
    Plain(String),
    /// The bcrypt hash of a password or token.
    Bcrypt(Arc<str>),
}

impl Secret {
    /// Creates a secret from the configuration's text. Text with the prefix of a bcrypt hash counts as a
    /// hash, as in nats-server.
    #[must_use]
    pub fn new(text: &str) -> Self {
        if ["$2a$", "$2b$", "$2x$", "$2y$"]
            .iter()
            .any(|p| text.starts_with(p))
        {
            Self::Bcrypt(text.into())
        } else {
            Self::Plain(text.into())
        }
    }
}

impl Secret {
    /// Returns whether the secret has the prefix of a bcrypt hash, but not the form of one, so that no
    /// password can match it.
    #[must_use]
    pub fn is_malformed(&self) -> bool {
        let Self::Bcrypt(hash) = self else {
            return false;
        };
        let cost = hash.get(4..6).and_then(|cost| cost.parse::<u8>().ok());
        let digits = hash.get(7..).unwrap_or_default().bytes();
        let good = hash.len() == 60
            && cost.is_some_and(|cost| (4..=31).contains(&cost))
            && hash.as_bytes()[6] == b'$'
            && digits
                .into_iter()
                .all(|b| b.is_ascii_alphanumeric() || b"./".contains(&b));
        !good
    }

    /// Returns whether the secret is empty. An empty secret keeps no client out, so the server refuses it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(text) if text.is_empty())
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}

/// The account of a user: messages of one account never reach the clients of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Account {
    /// The account `$G` of all clients without another account. The streams belong to this account.
    #[default]
    Global,
    /// The system account, `$SYS`: its clients watch and control the servers.
    System,
}

/// A user as which clients may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name that a client gives to log in as this user; empty for the user that stands for all clients
    /// with the token.
    pub name: String,
    /// The password that a client must give to log in as this user, or the token.
    pub secret: Secret,
    /// The permissions of clients with this user; `None` allows every subject.
    pub permissions: Option<Permissions>,
    /// The account to which clients with this user belong.
    pub account: Account,
}

impl User {
    /// Creates the user as which the server treats all clients with the token.
    fn of_token(token: &Secret) -> Self {
        Self {
            name: String::new(),
            secret: token.clone(),
            permissions: None,
            account: Account::Global,
        }
    }

    /// Returns whether the user stands for all clients with the token. The configuration refuses other users
    /// with an empty name.
    const fn is_of_token(&self) -> bool {
        self.name.is_empty()
    }
}

/// The result of checking the credentials that a client sent in its CONNECT.
#[derive(Debug)]
pub enum Credentials {
    /// The configuration has neither users nor a token, so the server needs no credentials.
    NotNeeded,
    /// The credentials belong to this user, so the server admits the client as this user.
    Good(Arc<User>),
    /// The credentials match no user and no token, so the server refuses the client.
    Wrong,
    /// The name belongs to this user, and the password is right if it matches the bcrypt hash. The caller
    /// checks the hash on another thread, because bcrypt is slow on purpose.
    Hashed {
        /// The user that the client named, or the user of the token.
        user: Arc<User>,
        /// The password or token that the client sent in its CONNECT.
        password: String,
        /// The configured bcrypt hash, which the password or token must match.
        hash: Arc<str>,
    },
}

impl SessionSettings {
    /// Checks the token, the user names and the passwords. Refuses empty texts, because they would keep no
    /// client out or let no client in. Refuses malformed bcrypt hashes, because no password matches them.
    ///
    /// # Errors
    /// See [`CredentialsError`]: a text is empty, or begins like a bcrypt hash without being one.
    pub fn check_credentials(&self) -> Result<(), CredentialsError> {
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err(CredentialsError::Token);
        }
        if self.users.iter().any(|u| u.name.is_empty()) {
            return Err(CredentialsError::Name);
        }
        if let Some(user) = self.users.iter().find(|u| u.secret.is_empty()) {
            return Err(CredentialsError::Password(user.name.clone()));
        }
        if self.token.as_ref().is_some_and(Secret::is_malformed) {
            return Err(CredentialsError::TokenHash);
        }
        match self.users.iter().find(|u| u.secret.is_malformed()) {
            Some(user) => Err(CredentialsError::PasswordHash(user.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns whether a client must send CONNECT first, because the configuration has users or a token.
    #[must_use]
    pub fn needs_credentials(&self) -> bool {
        self.token.is_some() || !self.users.is_empty()
    }

    /// Returns whether the server admits a client without credentials as a client without a user, because
    /// the configuration has no token, and users only in the system account.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let system = |user: &Arc<User>| user.account == Account::System;
        self.token.is_none() && self.users.iter().all(system)
    }

    /// Checks the credentials that a client sent, a user's name and password or a token, to decide whether
    /// to admit the client.
    #[must_use]
    pub fn check(
        &self,
        name: Option<&str>,
        password: Option<String>,
        token: Option<String>,
    ) -> Credentials {
        if !self.needs_credentials() {
            return Credentials::NotNeeded;
        }
        let find = |name: &str| self.users.iter().find(|u| u.name == name);
        if let (Some(secret), Some(given)) = (&self.token, token) {
            return compare(&Arc::new(User::of_token(secret)), given);
        }
        match (name, &self.no_auth_user) {
            (Some(name), _) => match (find(name), password) {
                (Some(user), Some(given)) => compare(user, given),
                _ => Credentials::Wrong,
            },
            (None, Some(name)) => find(name)
                .cloned()
                .map_or(Credentials::Wrong, Credentials::Good),
            (None, None) if self.is_open() => Credentials::NotNeeded,
            (None, None) => Credentials::Wrong,
        }
    }

    /// Returns the user in these reloaded settings for a client that logged in as `old` under earlier
    /// settings; `None` if the new settings no longer admit the client.
    #[must_use]
    pub fn admits_still(&self, old: &User) -> Option<Arc<User>> {
        if old.is_of_token() {
            let token = self.token.as_ref().filter(|token| **token == old.secret);
            return token.map(|token| Arc::new(User::of_token(token)));
        }
        let same = |u: &&Arc<User>| {
            u.name == old.name && u.secret == old.secret && u.account == old.account
        };
        self.users.iter().find(same).cloned()
    }

    /// Returns the time at which the server sends a PING to a connection that was silent since `since`.
    /// Rounds the time up to a multiple of a 64th of the ping interval, so that the timers of many
    /// connections expire together, which saves wake-ups.
    #[must_use]
    pub fn ping_due(&self, since: Time) -> Time {
        let grid = tidegate::nanos(self.ping_interval / 64).max(1);
        let at = (since + self.ping_interval).as_nanos();
        Time::from_nanos(at.checked_next_multiple_of(grid).unwrap_or(u64::MAX))
    }
}

/// The reason why the server refuses the credentials in its configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The token is empty, so it would keep no client out.
    #[error(
        "the token is empty, so it is no credential: give one (--auth, TIDEGATE_AUTH, authorization.token), or leave it out"
    )]
    Token,
    /// The name of a configured user is empty, so no client could name the user.
    #[error(
        "the name of a user is empty, so it is no credential: give one (--user, authorization.user), or leave the user out"
    )]
    Name,
    /// The password of the user with this name is empty, so it would keep no client out.
    #[error(
        "the password of the user `{0}` is empty, so it is no credential: give one (--pass, TIDEGATE_PASS, authorization.password), or leave the user out"
    )]
    Password(String),
    /// The token begins like a bcrypt hash without being one, so no client could match it.
    #[error(
        "the token begins like a bcrypt hash, and is none: give `$2a$`, a cost from 04 to 31, `$` and 53 letters or digits, or a token with another beginning (--auth, TIDEGATE_AUTH, authorization.token)"
    )]
    TokenHash,
    /// The password of this user begins like a bcrypt hash without being one, so no client could match it.
    #[error(
        "the password of the user `{0}` begins like a bcrypt hash, and is none: give `$2a$`, a cost from 04 to 31, `$` and 53 letters or digits, or a password with another beginning (--pass, TIDEGATE_PASS, authorization.password)"
    )]
    PasswordHash(String),
}

fn compare(user: &Arc<User>, given: String) -> Credentials {
    match &user.secret {
        Secret::Plain(secret) if same(secret.as_bytes(), given.as_bytes()) => {
            Credentials::Good(Arc::clone(user))
        }
        Secret::Plain(_) => Credentials::Wrong,
        Secret::Bcrypt(hash) => Credentials::Hashed {
            user: Arc::clone(user),
            password: given,
            hash: Arc::clone(hash),
        },
    }
}

/// Returns whether two secrets are equal. Takes a time that depends only on their lengths, so that the time
/// tells an attacker nothing about their bytes.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (a, b)| d | (a ^ b)) == 0
}
