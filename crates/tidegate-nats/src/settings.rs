//! The settings of a session: its limits, its times, and the credentials that admit a client.

use std::sync::Arc;
use std::time::Duration;

use tidegate::Time;

use super::permissions::Permissions;

/// The settings that each session obeys.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionSettings {
    /// The most subscriptions of a connection; 0 is any number.
    pub max_subscriptions: usize,
    /// The most bytes of headers and payload of one message.
    pub max_payload: usize,
    /// The most bytes of a control line.
    pub max_control_line: usize,
    /// The silence after which the server sends a client a PING.
    pub ping_interval: Duration,
    /// The number of unanswered PINGs after which the server closes the connection.
    pub ping_max: u32,
    /// The longest time in which a connection may accept none of the bytes that wait for it.
    pub write_deadline: Duration,
    /// The time that a client may take to present its credentials.
    pub auth_timeout: Duration,
    /// The token that admits a client.
    pub token: Option<Secret>,
    /// The users that the server admits.
    pub users: Vec<Arc<User>>,
    /// The user of a client without credentials.
    pub no_auth_user: Option<String>,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            max_subscriptions: 0,
            max_payload: 1024 * 1024,
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

/// A password or token as the configuration gives it.
#[derive(Clone, PartialEq, Eq)]
pub enum Secret {
    /// The plain text.
    Plain(String),
    /// A bcrypt hash.
    Bcrypt(Arc<str>),
}

impl Secret {
    /// Creates a secret from the configuration's text. As in nats-server, text with the prefix of a bcrypt
    /// hash counts as a hash.
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
    /// Returns whether the secret is empty, so that it keeps no client out.
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

/// A user who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name; empty for a client that presents the token.
    pub name: String,
    /// The password.
    pub secret: Secret,
    /// The permissions of the user; `None` allows everything.
    pub permissions: Option<Permissions>,
}

/// The result of checking the credentials of a CONNECT.
#[derive(Debug)]
pub enum Credentials {
    /// The server needs no credentials.
    NotNeeded,
    /// The credentials belong to this user.
    Good(Arc<User>),
    /// The credentials belong to no user.
    Wrong,
    /// The credentials belong to this user if the password matches the hash, which takes long to check.
    Hashed {
        /// The user.
        user: Arc<User>,
        /// The password that the client gave.
        password: String,
        /// The configured hash.
        hash: Arc<str>,
    },
}

impl SessionSettings {
    /// Checks that each configured credential can keep a client out.
    ///
    /// # Errors
    /// A name, a password or a token is empty.
    pub fn check_credentials(&self) -> Result<(), CredentialsError> {
        if self.token.as_ref().is_some_and(Secret::is_empty) {
            return Err(CredentialsError::Token);
        }
        if self.users.iter().any(|u| u.name.is_empty()) {
            return Err(CredentialsError::Name);
        }
        match self.users.iter().find(|u| u.secret.is_empty()) {
            Some(user) => Err(CredentialsError::Password(user.name.clone())),
            None => Ok(()),
        }
    }

    /// Returns whether a client must present credentials.
    #[must_use]
    pub fn needs_credentials(&self) -> bool {
        self.token.is_some() || !self.users.is_empty()
    }

    /// Checks the credentials that a client gave.
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
            let user = User {
                name: String::new(),
                secret: secret.clone(),
                permissions: None,
            };
            return compare(&Arc::new(user), given);
        }
        match (name, &self.no_auth_user) {
            (Some(name), _) => match (find(name), password) {
                (Some(user), Some(given)) => compare(user, given),
                _ => Credentials::Wrong,
            },
            (None, Some(name)) => find(name)
                .cloned()
                .map_or(Credentials::Wrong, Credentials::Good),
            (None, None) => Credentials::Wrong,
        }
    }

    /// Returns the time at which the server sends a PING to a connection that was silent since `since`. This
    /// time is a little late, so that the timers of many connections expire together.
    #[must_use]
    pub fn ping_due(&self, since: Time) -> Time {
        let grid = tidegate::nanos(self.ping_interval / 64).max(1);
        let at = (since + self.ping_interval).as_nanos();
        Time::from_nanos(at.checked_next_multiple_of(grid).unwrap_or(u64::MAX))
    }
}

/// The reason why the server refuses a configured credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialsError {
    /// The token is empty.
    #[error(
        "the token is empty, so it is no credential: give one (--auth, TIDEGATE_AUTH, authorization.token), or leave it out"
    )]
    Token,
    /// The name of a user is empty.
    #[error(
        "the name of a user is empty, so it is no credential: give one (--user, authorization.user), or leave the user out"
    )]
    Name,
    /// The password of this user is empty.
    #[error(
        "the password of the user `{0}` is empty, so it is no credential: give one (--pass, TIDEGATE_PASS, authorization.password), or leave the user out"
    )]
    Password(String),
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

/// Returns whether two secrets are equal. Compares in a time that depends only on the lengths of the secrets.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |d, (a, b)| d | (a ^ b)) == 0
}
