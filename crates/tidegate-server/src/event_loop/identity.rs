//! Makes the identity of a starting server: its id, its random seed, and the INFO for its clients.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use tidegate_nats::connect::Info;
use tidegate_stream::schema::level::API_LEVEL;

use super::peers::client_url;
use crate::PROTOCOL_VERSION;
use crate::config::Settings;

/// Makes the INFO that the server sends to each client first, from which the client learns the server's name,
/// limits and URLs.
pub(super) fn server_info(settings: &Settings, address: SocketAddr, id: &str) -> Info {
    // INFO names the host as the settings name it, not the address behind the name, because clients check the
    // certificate against the name.
    let (host, port) = match &settings.client_advertise {
        Some(advertised) => (advertised.host(), advertised.port_or(address.port())),
        None => (settings.host.as_str(), address.port()),
    };
    Info {
        server_id: id.into(),
        server_name: settings.server_name.clone().unwrap_or_else(|| id.into()),
        version: PROTOCOL_VERSION.into(),
        proto: 1,
        go: "none (tidegate)".into(),
        host: host.into(),
        port,
        headers: settings.sessions.headers,
        max_payload: settings.sessions.max_payload,
        jetstream: settings.streams.is_some(),
        api_lvl: settings.streams.as_ref().map(|_| API_LEVEL),
        domain: settings.streams.as_ref().and_then(|s| s.domain.clone()),
        auth_required: settings.sessions.needs_credentials()
            && settings.sessions.no_auth_user.is_none(),
        tls_required: settings.tls.is_some() && !settings.allow_non_tls,
        tls_verify: settings.tls.as_ref().is_some_and(|t| t.verify),
        tls_available: settings.tls.is_some() && settings.allow_non_tls,
        cluster: settings.cluster.as_ref().map(|c| c.name.clone()),
        connect_urls: match &settings.cluster {
            Some(cluster) if cluster.no_advertise => Vec::new(),
            Some(_) => client_url(settings, address).into_iter().collect(),
            // A server alone names no address beside the host, because clients would take it for another
            // server.
            None => Vec::new(),
        },
        ..Info::default()
    }
}

/// Returns a seed for the node's random numbers that an attacker cannot cheaply foresee. The seed comes from
/// the random keys of the standard library's hash function.
pub(super) fn seed() -> u64 {
    #[cfg(feature = "sim")]
    if let Some(drawn) = crate::simulated::random() {
        return drawn;
    }
    RandomState::new().hash_one(std::process::id())
}

/// Draws the random id of a server in nats-server's form: 56 characters of base 32, the first of which is an
/// N. Clients and nodes tell servers apart by it.
pub(super) fn server_id() -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let words: Vec<u64> = (0..5).map(|_| seed()).collect();
    let letter = |i: usize| {
        let word = words[i / 12 % 5] >> (5 * (i % 12));
        LETTERS[(word % 32) as usize] as char
    };
    std::iter::once('N').chain((0..55).map(letter)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClusterSettings;

    #[test]
    fn names_of_hosts_stay_names() {
        let address = SocketAddr::from(([127, 0, 0, 1], 4333));
        let mut settings = Settings {
            host: "localhost".into(),
            port: 0,
            ..Settings::default()
        };
        let shown = |settings: &Settings| {
            let info = server_info(settings, address, "N");
            (info.host, info.port, info.connect_urls)
        };
        let urls = |urls: &[&str]| -> Vec<String> { urls.iter().map(|u| (*u).into()).collect() };
        assert_eq!(shown(&settings), ("localhost".into(), 4333, urls(&[])));
        settings.cluster = Some(ClusterSettings::default());
        let here = ("localhost".into(), 4333, urls(&["localhost:4333"]));
        assert_eq!(shown(&settings), here);
        settings.client_advertise = Some("n1.example".parse().unwrap());
        let there = ("n1.example".into(), 4333, urls(&["n1.example:4333"]));
        assert_eq!(shown(&settings), there);
        settings.client_advertise = Some("[::1]:7".parse().unwrap());
        assert_eq!(shown(&settings), ("::1".into(), 7, urls(&["[::1]:7"])));
        settings.cluster = None;
        assert_eq!(shown(&settings), ("::1".into(), 7, urls(&[])));
    }
}
