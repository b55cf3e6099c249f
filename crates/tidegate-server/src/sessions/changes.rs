//! Carries out changes that an operator makes while the node runs: lame duck mode, closing all connections,
//! and new settings.

use tidegate::Time;
use tidegate_nats::connect::Info;
use tidegate_nats::op;
use tidegate_nats::session::CloseReason;
use tidegate_nats::settings::Account;
use tidegate_nats::system::outer;

use super::system::Happened;
use super::{Lame, Node};
use crate::config::Settings;
use crate::party::ClientKey;

impl Node {
    /// Enters lame duck mode: tells clients to connect to other nodes, and after a grace period closes their
    /// connections one after the other, so that the clients do not all reconnect at once.
    pub fn lame_duck(&mut self, now: Time) {
        if self.lame.is_some() {
            return;
        }
        self.info.ldm = true;
        self.tell_urls();
        self.inform_all();
        self.tell_of_server(Happened::LameDuck);
        let (grace, over) = (
            self.settings.lame_duck_grace_period,
            self.settings.lame_duck_duration,
        );
        let left = over.saturating_sub(grace);
        self.lame = Some(Lame {
            next: now + grace,
            every: left
                / u32::try_from(self.entries.len().max(1))
                    .expect("connections take more than a byte each"),
        });
    }

    /// Begins to close all connections, because the server stops. Each connection ends once the driver has
    /// written its outbox.
    pub fn close_all(&mut self, now: Time) {
        let keys: Vec<ClientKey> = self.entries.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(now, key, CloseReason::Shutdown);
        }
    }

    /// Adopts settings that the operator has reloaded, so that they hold at once: closes connections that the
    /// settings no longer admit or that exceed the new maximum, and ends subscriptions that the settings no
    /// longer permit.
    pub fn reload(&mut self, now: Time, settings: Settings, info: Info) {
        self.settings = settings;
        self.configured = now;
        self.info = Info {
            ldm: self.info.ldm,
            ..info
        };
        if let Some(peers) = &mut self.peers {
            peers.own_urls.clone_from(&self.info.connect_urls);
        }
        if let Some(kept) = self.settings.streams.clone() {
            self.all_streams_mut()
                .for_each(|streams| streams.handle_reload(&kept));
        }
        self.tell_urls();
        let keys: Vec<ClientKey> = self.entries.iter().map(|(key, _)| key).collect();
        for key in keys {
            let session = &mut self.entries[key].session;
            if session.is_open() && !session.readmit(&self.settings.sessions) {
                self.close(now, key, CloseReason::AuthenticationExpired);
            } else {
                self.review_subscriptions(key);
            }
        }
        self.close_surplus(now);
        self.announce_system();
        self.inform_all();
    }

    /// Closes the newest client connections beyond the maximum of connections, because a reload may have
    /// lowered it.
    fn close_surplus(&mut self, now: Time) {
        let open = self.entries.iter().filter(|(_, e)| !e.session.is_closing());
        let mut open: Vec<(u64, ClientKey)> = open.map(|(key, e)| (e.session.cid, key)).collect();
        open.sort_unstable();
        for (_, key) in open.into_iter().skip(self.settings.max_connections) {
            self.close(now, key, CloseReason::MaxConnections);
        }
    }

    /// Applies changed permissions to the subscriptions of a connection, and ends the subscriptions that they
    /// no longer permit, because the client may read nothing more there.
    fn review_subscriptions(&mut self, key: ClientKey) {
        let session = &mut self.entries[key].session;
        let Some(permissions) = session.permissions().cloned() else {
            return;
        };
        let mut ended = Vec::new();
        for sub in session.subs.values() {
            let state = &mut self.subs[*sub as usize];
            let pattern = outer(&state.pattern);
            state.filtered = permissions.filters(pattern);
            if !permissions.may_subscribe(pattern, state.queue.as_deref()) {
                op::subscription_violation(&mut session.out, pattern, state.queue.as_deref());
                ended.push(*sub);
            }
        }
        for sub in ended {
            self.remove_subscription(sub);
        }
        self.touch(key);
    }

    /// Sends the client the INFO that confirms its CONNECT and names its account, so that the client knows
    /// its rights.
    pub(super) fn confirm(&mut self, key: ClientKey) {
        let session = &mut self.entries[key].session;
        let is_system = session.account() == Account::System;
        let name = is_system.then(|| self.settings.system_account.clone());
        let info = Info {
            client_id: session.cid,
            client_ip: session.address.ip().to_string(),
            connect_info: true,
            remote_account: name,
            acc_is_sys: is_system,
            ..self.info.clone()
        };
        session.inform(&info);
    }

    pub(super) fn inform_all(&mut self) {
        let keys: Vec<ClientKey> = self.entries.iter().map(|(key, _)| key).collect();
        for key in keys {
            let session = &mut self.entries[key].session;
            let info = Info {
                client_id: session.cid,
                client_ip: session.address.ip().to_string(),
                ..self.info.clone()
            };
            session.inform(&info);
            self.touch(key);
        }
    }

    /// Closes the next connections in lame duck mode, once their time has come, one after the other.
    pub(super) fn limp(&mut self, now: Time) {
        while let Some(lame) = self.lame.filter(|l| l.next <= now) {
            let Some((key, _)) = self.entries.iter().find(|(_, e)| !e.session.is_closing()) else {
                // The node has no open connection left to close, and the closing connections end by
                // themselves, so lame duck mode has no further deadline.
                self.lame = Some(Lame {
                    next: Time::NEVER,
                    ..lame
                });
                return;
            };
            self.close(now, key, CloseReason::Shutdown);
            self.lame = Some(Lame {
                next: lame.next + lame.every,
                ..lame
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate::Time;

    use super::*;
    use crate::sessions::joined;

    #[test]
    fn a_lower_limit_closes_the_newest_connections() {
        let now = Time::from_nanos(1);
        let settings = |max_connections| Settings {
            max_connections,
            ..Settings::default()
        };
        let mut node = Node::new(settings(5), Info::default(), 1);
        let keys: Vec<ClientKey> = (0..4).map(|_| joined::client(&mut node, now)).collect();
        // The node reuses the key of a closed connection, so the newest connection does not have the highest
        // key.
        node.handle_closed(now, keys[0], CloseReason::ClientClosed);
        while node.poll_closed().is_some() {}
        let newest = joined::client(&mut node, now);
        assert_eq!(newest, keys[0]);
        node.reload(now, settings(3), Info::default());
        let said = joined::heard(&mut node, now, newest);
        assert!(
            said.contains("-ERR 'maximum connections exceeded'"),
            "{said}"
        );
        assert!(!node.contains(newest));
        node.reload(now, settings(2), Info::default());
        assert!(joined::heard(&mut node, now, keys[3]).contains("-ERR"));
        for key in &keys[1..3] {
            assert!(!joined::heard(&mut node, now, *key).contains("-ERR"));
        }
        node.check_invariants();
    }
}
