//! The connections to other clusters, one for each remote of the settings.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_nats::{Client, ConnectOptions, ServerAddr};
use serde_json::Value;
use tidegate_nats::url::unescape;
use tidegate_stream::schema::error::ApiError;
use tokio::sync::Mutex;

use crate::config::Remote;

/// The longest time for a connection, and for an answer of the other cluster's API.
const PATIENCE: Duration = Duration::from_secs(2);

/// The connections to the remotes of the settings.
pub(super) struct Connections {
    settings: Arc<BTreeMap<String, Remote>>,
    clients: RefCell<BTreeMap<String, Rc<Mutex<Option<Client>>>>>,
}

/// An open connection to a cluster.
pub(super) struct Open {
    pub(super) name: String,
    pub(super) client: Client,
    /// The prefix of the cluster's API.
    pub(super) api: String,
}

impl Connections {
    pub(super) fn new(settings: Arc<BTreeMap<String, Remote>>) -> Self {
        Self {
            settings,
            clients: RefCell::default(),
        }
    }

    /// Returns the connection to the remote of this name, which the first call opens. The client library
    /// opens a lost connection again.
    pub(super) async fn open(&self, name: &str) -> Result<Open, ApiError> {
        let Some(settings) = self.settings.get(name) else {
            return Err(ApiError::stream_general(format_args!(
                "the settings of this server have no remote `{name}`: add it to jetstream.remotes on each node"
            )));
        };
        let place = Rc::clone(self.clients.borrow_mut().entry(name.into()).or_default());
        let mut place = place.lock().await;
        let client = match &*place {
            Some(client) => client.clone(),
            None => {
                let connected = connect(settings).await;
                let client = connected.map_err(|error| trouble(name, &error))?;
                place.insert(client).clone()
            }
        };
        Ok(Open {
            name: name.into(),
            client,
            api: settings.api.clone(),
        })
    }
}

impl Open {
    /// Asks the cluster's API, and returns its answer.
    pub(super) async fn ask(&self, request: &str, body: String) -> Result<Value, ApiError> {
        let subject = format!("{}.{request}", self.api);
        let answer = self.client.request(subject, body.into()).await;
        let answer = answer.map_err(|error| self.trouble(&error))?;
        let answer: Value = serde_json::from_slice(&answer.payload)
            .map_err(|_| self.trouble(&"its answer is no JSON"))?;
        match answer["error"]["description"].as_str() {
            Some(error) => Err(self.trouble(&error)),
            None => Ok(answer),
        }
    }

    /// Returns how often the client library has connected to the cluster so far, by which a caller notices
    /// that the connection was cut.
    pub(super) fn connects(&self) -> u64 {
        self.client.statistics().connects.load(Ordering::Relaxed)
    }

    pub(super) fn trouble(&self, why: &dyn std::fmt::Display) -> ApiError {
        trouble(&self.name, why)
    }
}

fn trouble(remote: &str, why: &dyn std::fmt::Display) -> ApiError {
    ApiError::stream_general(format_args!("remote {remote}: {why}"))
}

async fn connect(settings: &Remote) -> Result<Client, async_nats::ConnectError> {
    let urls = settings.urls.iter().filter_map(|url| url.parse().ok());
    let urls: Vec<ServerAddr> = urls.collect();
    // The client library does not take the credentials of URLs itself.
    let in_url = urls.iter().find(|url| url.username().is_some());
    let part = |text: Option<&str>| text.and_then(|text| unescape(text).ok());
    let user = settings.user.clone();
    let user = user.or_else(|| part(in_url.and_then(ServerAddr::username)));
    let password = settings.password.clone();
    let password = password.or_else(|| part(in_url.and_then(ServerAddr::password)));
    let mut options = match (user, password, &settings.token) {
        (_, _, Some(token)) => ConnectOptions::with_token(token.clone()),
        (Some(user), Some(password), _) => ConnectOptions::with_user_and_password(user, password),
        (Some(token), None, _) => ConnectOptions::with_token(token),
        _ => ConnectOptions::new(),
    };
    options = options
        .name("tidegate")
        .connection_timeout(PATIENCE)
        .request_timeout(Some(PATIENCE));
    if let Some(tls) = &settings.tls {
        options = options.require_tls(true);
        if let Some(file) = &tls.ca_file {
            options = options.add_root_certificates(file.clone());
        }
        if let Some((cert, key)) = &tls.identity {
            options = options.add_client_certificate(cert.clone(), key.clone());
        }
    }
    options.connect(urls).await
}
