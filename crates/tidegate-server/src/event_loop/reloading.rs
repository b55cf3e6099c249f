//! Does the loop's part in a reload: decides which settings a running server changes, and which it keeps
//! until its next start, because they cannot change while it runs.

use tidegate::Time;

use super::descriptors::bound_clients;
use super::errors::StartError;
use super::identity::server_info;
use super::{Server, certificates, warn_of_shown_credentials};
use crate::config::Settings;

impl Server {
    pub(super) fn reload(&mut self, now: Time, mut settings: Settings) {
        let old = self.node.settings();
        if (&settings.host, settings.port) != (&old.host, old.port) {
            tracing::error!(
                "the reload of the configuration keeps the old host and port, because the server changes them only at a start: restart the server"
            );
            settings.host.clone_from(&old.host);
            settings.port = old.port;
        }
        if !keep_cluster(&mut settings, old) {
            tracing::error!(
                "the reload of the configuration keeps the old settings of the cluster, except for its certificates, because the server changes the others only at a start: restart the server"
            );
        }
        if self.peers.is_some() && settings.streams.is_none() && settings.server_name.is_none() {
            // A node without a configured name and without streams has taken its id for a name, so the loop
            // keeps that name.
            settings.server_name.clone_from(&old.server_name);
        }
        if self.peers.is_some() && settings.server_name != old.server_name {
            tracing::error!(
                "the reload of the configuration keeps the old name of this server, because a node of a cluster cannot change its name"
            );
            settings.server_name.clone_from(&old.server_name);
        }
        if settings.controller != old.controller {
            tracing::error!(
                "the reload of the configuration keeps the old controller, because the server changes it only at a start: restart the server"
            );
            settings.controller = old.controller;
        }
        bound_clients(&mut settings);
        let nothing = |e: StartError| {
            tracing::error!("the reload failed: {e}: the server keeps its old configuration");
        };
        let (of_clients, of_nodes) = match certificates(&settings) {
            Ok(both) => both,
            Err(e) => return nothing(e),
        };
        if settings.shows_credentials() && !self.node.settings().shows_credentials() {
            warn_of_shown_credentials();
        }
        self.tls = of_clients;
        if let Some(peers) = &mut self.peers {
            peers.set_tls(of_nodes);
        }
        let remotes = settings.streams.as_ref().map(|s| s.remotes.clone());
        self.remote_origins.reload(&remotes.unwrap_or_default());
        let id = self.node.info().server_id.clone();
        let info = server_info(&settings, self.address, &id);
        self.node.reload(now, settings, info);
        tracing::info!(
            "Reloaded server configuration: the server has read its configuration again, and the new settings apply from now on"
        );
    }
}

/// Restores the cluster settings that a running server cannot change. Returns whether the reload changed none
/// of them, so that the loop can warn the operator otherwise.
fn keep_cluster(settings: &mut Settings, old: &Settings) -> bool {
    let tls = settings.cluster.as_mut().and_then(|c| c.tls.take());
    let mut kept = old.cluster.clone();
    let had = kept.as_mut().and_then(|c| c.tls.take());
    let same = settings.cluster == kept && tls.is_some() == had.is_some();
    settings.cluster = kept;
    if let Some(cluster) = &mut settings.cluster {
        cluster.tls = if same { tls } else { had };
    }
    same
}
