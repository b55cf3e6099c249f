//! The table of all settings of nats-server 2.15's configuration file, and of Tidegate's own: the settings
//! that the server obeys, the settings that it accepts without effect, and the settings that it refuses.
//!
//! The table is the one place that knows names and their other spellings. A setting without effect changes no
//! promise of this server. The server refuses a setting if ignoring it would break a promise, and gives the
//! reason. docs/nats-support.md shows the table; a test keeps the two equal, and another test finds each
//! setting of nats-server here.

/// The meaning of a setting for this server, which decides how the server reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// nats-server has the setting, and this server obeys it.
    CarriedOut,
    /// Only Tidegate has the setting, and this server obeys it.
    Own,
    /// The server accepts the setting although it changes nothing here, so that configurations of nats-server
    /// work.
    WithoutEffect,
    /// The server refuses the setting, for this reason, unless its value turns the feature off, because
    /// ignoring it would break a promise.
    Refused(&'static str),
}

/// A setting that the configuration file may have, and its meaning here, by which the server reads it.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The block in which the setting stands, such as `cluster.tls`; empty at the top level.
    pub block: &'static str,
    /// The names of the setting, all with the same meaning. The server's messages use the first one, so that
    /// each setting has one name there.
    pub names: &'static [&'static str],
    /// The meaning of the setting, by which the server obeys, ignores or refuses it.
    pub meaning: Meaning,
}

/// Finds the setting with this name in this block; `None` if the server does not know it. Names do not
/// distinguish upper and lower case, as in nats-server.
#[must_use]
pub fn find(block: &str, name: &str) -> Option<&'static Setting> {
    let has = |s: &&Setting| {
        s.block == block && s.names.iter().any(|known| known.eq_ignore_ascii_case(name))
    };
    SETTINGS.iter().find(has)
}

const fn done(block: &'static str, names: &'static [&'static str]) -> Setting {
    Setting {
        block,
        names,
        meaning: Meaning::CarriedOut,
    }
}

const fn own(block: &'static str, names: &'static [&'static str]) -> Setting {
    Setting {
        block,
        names,
        meaning: Meaning::Own,
    }
}

const fn idle(block: &'static str, names: &'static [&'static str]) -> Setting {
    Setting {
        block,
        names,
        meaning: Meaning::WithoutEffect,
    }
}

const fn refused(
    block: &'static str,
    names: &'static [&'static str],
    reason: &'static str,
) -> Setting {
    Setting {
        block,
        names,
        meaning: Meaning::Refused(reason),
    }
}

const JWT: &str = "this server checks no JWT, so a client would get other rights";
const CURVES: &str = "no list limits the curves between nodes here";
const OCSP: &str = "this server asks no authority if a certificate is revoked";
const STORE: &str = "this server reads certificates from files, not from the store of Windows";
const NKEY: &str = "this server knows no NKeys, so the user could not log in";
const PROXY: &str = "this server does not check if a client comes through a proxy";
const PINNED: &str = "this server accepts each certificate that an authority in ca_file signed";
const MAPPED: &str = "this server takes the user's name from CONNECT, not from the certificate";
const KNOWN_URLS: &str = "this server compares no certificate with the addresses of routes";
const KEY: &str = "this server does not encrypt the files of streams";
const ACCOUNT: &str = "the system account has only users here";

/// All settings that the server knows, block by block, in the order in which the documentation shows them.
pub static SETTINGS: &[Setting] = &[
    done("", &["host", "net"]),
    done("", &["port"]),
    done("", &["listen"]),
    done("", &["server_name"]),
    done("", &["client_advertise"]),
    done("", &["max_connections", "max_conn"]),
    done("", &["max_subscriptions", "max_subs"]),
    done("", &["max_payload"]),
    done("", &["max_control_line"]),
    done("", &["max_pending"]),
    done("", &["ping_interval"]),
    done("", &["ping_max"]),
    done("", &["write_deadline"]),
    done("", &["write_timeout"]),
    done("", &["authorization"]),
    done("", &["accounts"]),
    done("", &["system_account", "system"]),
    done("", &["no_system_account", "no_system", "no_sys_acc"]),
    done("", &["no_auth_user"]),
    done("", &["tls"]),
    done("", &["allow_non_tls"]),
    done("", &["http"]),
    done("", &["http_port", "monitor_port"]),
    done("", &["http_base_path"]),
    done("", &["jetstream"]),
    done("", &["store_dir", "storedir"]),
    done("", &["cluster"]),
    done("", &["lame_duck_duration"]),
    done("", &["lame_duck_grace_period"]),
    done("", &["pid_file", "pidfile"]),
    done("", &["log_file", "logfile"]),
    done("", &["debug"]),
    done("", &["server_tags"]),
    done("", &["server_metadata"]),
    own("", &["controller"]),
    own("", &["dashboard"]),
    own("", &["dashboard_hosts"]),
    own("", &["message_token"]),
    own("", &["insecure"]),
    own("", &["metrics_streams"]),
    own("", &["metrics_consumers"]),
    own("", &["strict"]),
    idle("", &["trace"]),
    idle("", &["trace_verbose"]),
    idle("", &["trace_headers"]),
    idle("", &["max_traced_msg_len"]),
    idle("", &["logtime"]),
    idle("", &["logtime_utc"]),
    idle("", &["logfile_size_limit", "log_size_limit"]),
    idle("", &["logfile_max_num", "log_max_num"]),
    idle("", &["syslog"]),
    idle("", &["remote_syslog"]),
    idle("", &["connect_error_reports"]),
    idle("", &["reconnect_error_reports"]),
    idle("", &["disable_sublist_cache", "no_sublist_cache"]),
    idle("", &["ports_file_dir"]),
    idle("", &["prof_port"]),
    idle("", &["prof_block_rate"]),
    done("", &["no_header_support"]),
    idle("", &["no_fast_producer_stall"]),
    idle("", &["max_closed_clients"]),
    idle("", &["feature_flags"]),
    idle("", &["ocsp_cache"]),
    refused(
        "",
        &["mappings", "maps"],
        "this server maps no subjects, so messages would reach other subscribers",
    ),
    refused(
        "",
        &["max_sub_tokens", "max_subscription_tokens"],
        "this server does not bound the tokens of a subscription",
    ),
    refused("", &["https"], "this server's monitor has no TLS"),
    refused("", &["https_port"], "this server's monitor has no TLS"),
    refused(
        "",
        &["proxy_protocol"],
        "this server does not read the PROXY protocol's first line",
    ),
    refused("", &["proxies"], PROXY),
    refused("", &["ocsp"], OCSP),
    refused(
        "",
        &["gateway"],
        "this server has no gateways, so other clusters would get no messages",
    ),
    refused(
        "",
        &["leafnodes", "leaf"],
        "this server has no leaf nodes, so messages would not reach them",
    ),
    refused(
        "",
        &["websocket", "ws"],
        "this server serves no WebSocket clients",
    ),
    refused("", &["mqtt"], "this server serves no MQTT clients"),
    refused(
        "",
        &["default_js_domain"],
        "this server has no leaf nodes and one JetStream domain",
    ),
    refused(
        "",
        &[
            "operator",
            "operators",
            "roots",
            "root",
            "root_operators",
            "root_operator",
        ],
        JWT,
    ),
    refused("", &["trusted_keys", "trusted"], JWT),
    refused(
        "",
        &["resolver", "account_resolver", "accounts_resolver"],
        JWT,
    ),
    refused("", &["resolver_tls"], JWT),
    refused("", &["resolver_preload"], JWT),
    refused("", &["resolver_pinned_accounts"], JWT),
    refused("", &["default_sentinel"], JWT),
    done("authorization", &["user", "username"]),
    done("authorization", &["password", "pass"]),
    done("authorization", &["token"]),
    done("authorization", &["timeout"]),
    done("authorization", &["users"]),
    done(
        "authorization",
        &["default_permissions", "default_permission", "permissions"],
    ),
    refused(
        "authorization",
        &["auth_callout", "auth_hook"],
        "this server asks no service for its users",
    ),
    refused("authorization", &["proxy_required"], PROXY),
    done("users", &["user", "username"]),
    done("users", &["password", "pass"]),
    done("users", &["permissions", "permission", "authorization"]),
    done(
        "users",
        &["allowed_connection_types", "connection_types", "clients"],
    ),
    refused("users", &["nkey"], NKEY),
    refused("users", &["proxy_required"], PROXY),
    done("permissions", &["publish", "pub", "import"]),
    done("permissions", &["subscribe", "sub", "export"]),
    done(
        "permissions",
        &[
            "allow_responses",
            "publish_allow_responses",
            "allow_response",
        ],
    ),
    done("permissions.publish", &["allow"]),
    done("permissions.publish", &["deny"]),
    done("permissions.subscribe", &["allow"]),
    done("permissions.subscribe", &["deny"]),
    done(
        "allow_responses",
        &["max", "max_msgs", "max_messages", "max_responses"],
    ),
    done("allow_responses", &["expires", "expiration", "ttl"]),
    done("accounts", &["users"]),
    done("accounts", &["default_permissions"]),
    refused("accounts", &["nkey"], ACCOUNT),
    refused("accounts", &["imports"], ACCOUNT),
    refused("accounts", &["exports"], ACCOUNT),
    refused("accounts", &["jetstream"], ACCOUNT),
    refused("accounts", &["mappings", "maps"], ACCOUNT),
    refused("accounts", &["limits"], ACCOUNT),
    refused("accounts", &["msg_trace", "trace_dest"], ACCOUNT),
    done("tls", &["cert_file"]),
    done("tls", &["key_file"]),
    done("tls", &["ca_file"]),
    done("tls", &["verify"]),
    done("tls", &["timeout"]),
    done("tls", &["connection_rate_limit"]),
    done("tls", &["handshake_first", "first", "immediate"]),
    done("tls", &["min_version"]),
    done("tls", &["verify_and_map"]),
    done("tls", &["cipher_suites"]),
    done("tls", &["curve_preferences"]),
    idle("tls", &["insecure"]),
    idle("tls", &["allow_insecure_cipher_suites"]),
    refused("tls", &["verify_cert_and_check_known_urls"], KNOWN_URLS),
    refused("tls", &["pinned_certs"], PINNED),
    refused(
        "tls",
        &["certs", "certificates"],
        "this server shows one certificate: cert_file",
    ),
    refused("tls", &["cert_store"], STORE),
    refused("tls", &["cert_match_by"], STORE),
    refused("tls", &["cert_match"], STORE),
    refused("tls", &["cert_match_skip_invalid"], STORE),
    refused("tls", &["ca_certs_match"], STORE),
    refused("tls", &["ocsp_peer"], OCSP),
    done("jetstream", &["enabled", "enable"]),
    done("jetstream", &["store_dir", "storedir", "store"]),
    done(
        "jetstream",
        &["max_memory_store", "max_mem_store", "max_mem"],
    ),
    done("jetstream", &["max_file_store", "max_file"]),
    done("jetstream", &["domain"]),
    done("jetstream", &["strict"]),
    done("jetstream", &["sync_interval", "sync"]),
    done("jetstream", &["limits"]),
    idle("jetstream", &["extension_hint"]),
    idle("jetstream", &["max_outstanding_catchup"]),
    idle("jetstream", &["max_buffered_size"]),
    idle("jetstream", &["max_buffered_msgs"]),
    idle("jetstream", &["request_queue_limit"]),
    idle("jetstream", &["info_queue_limit"]),
    idle("jetstream", &["meta_compact"]),
    idle("jetstream", &["meta_compact_size"]),
    idle("jetstream", &["meta_compact_sync"]),
    idle("jetstream", &["max_concurrent_io"]),
    refused("jetstream", &["key", "ek", "encryption_key"], KEY),
    refused(
        "jetstream",
        &["prev_key", "prev_ek", "prev_encryption_key"],
        KEY,
    ),
    refused("jetstream", &["cipher"], KEY),
    refused("jetstream", &["tpm"], KEY),
    done("jetstream", &["unique_tag"]),
    own("jetstream.limits", &["max_streams"]),
    own(
        "jetstream.limits",
        &["max_consumers", "default_max_consumers"],
    ),
    done("jetstream.limits", &["max_ack_pending"]),
    idle("jetstream.limits", &["max_ha_assets"]),
    done("jetstream.limits", &["max_request_batch"]),
    done("jetstream.limits", &["duplicate_window"]),
    idle("jetstream.limits", &["batch"]),
    done("cluster", &["name"]),
    done("cluster", &["host", "net"]),
    done("cluster", &["port"]),
    done("cluster", &["listen"]),
    done("cluster", &["routes"]),
    done("cluster", &["authorization"]),
    done("cluster", &["tls"]),
    done("cluster", &["no_advertise"]),
    done("cluster", &["connect_backoff"]),
    own("jetstream", &["remotes"]),
    own("jetstream.remotes", &["urls", "url"]),
    own("jetstream.remotes", &["user", "username"]),
    own("jetstream.remotes", &["password", "pass"]),
    own("jetstream.remotes", &["token"]),
    own("jetstream.remotes", &["api"]),
    own("jetstream.remotes", &["tls"]),
    own("jetstream.remotes.tls", &["ca_file"]),
    own("jetstream.remotes.tls", &["cert_file"]),
    own("jetstream.remotes.tls", &["key_file"]),
    own("cluster", &["shards"]),
    idle("cluster", &["cluster_advertise", "advertise"]),
    idle("cluster", &["connect_retries"]),
    idle("cluster", &["pool_size"]),
    idle("cluster", &["accounts"]),
    idle("cluster", &["compression"]),
    idle("cluster", &["ping_interval"]),
    idle("cluster", &["ping_max"]),
    idle("cluster", &["write_deadline"]),
    idle("cluster", &["write_timeout"]),
    refused(
        "cluster",
        &["permissions"],
        "the nodes of a cluster exchange the messages of every subject here",
    ),
    done("cluster.authorization", &["user", "username"]),
    done("cluster.authorization", &["password", "pass"]),
    done("cluster.authorization", &["token"]),
    idle("cluster.authorization", &["timeout"]),
    refused(
        "cluster.authorization",
        &["default_permissions", "default_permission", "permissions"],
        "the nodes of a cluster exchange the messages of every subject here",
    ),
    refused(
        "cluster.authorization",
        &["users"],
        "all nodes of a cluster share one secret here: give user and password, or a token",
    ),
    refused(
        "cluster.authorization",
        &["auth_callout", "auth_hook"],
        "this server asks no service for its users",
    ),
    refused("cluster.authorization", &["proxy_required"], PROXY),
    done("cluster.tls", &["cert_file"]),
    done("cluster.tls", &["key_file"]),
    done("cluster.tls", &["ca_file"]),
    done("cluster.tls", &["timeout"]),
    done("cluster.tls", &["verify"]),
    idle("cluster.tls", &["min_version"]),
    idle("cluster.tls", &["cipher_suites"]),
    idle("cluster.tls", &["allow_insecure_cipher_suites"]),
    idle("cluster.tls", &["connection_rate_limit"]),
    idle("cluster.tls", &["handshake_first", "first", "immediate"]),
    refused(
        "cluster.tls",
        &["insecure"],
        "between nodes both sides are always verified",
    ),
    refused("cluster.tls", &["verify_and_map"], MAPPED),
    refused(
        "cluster.tls",
        &["verify_cert_and_check_known_urls"],
        KNOWN_URLS,
    ),
    refused("cluster.tls", &["curve_preferences"], CURVES),
    refused("cluster.tls", &["pinned_certs"], PINNED),
    refused(
        "cluster.tls",
        &["certs", "certificates"],
        "this server shows one certificate: cert_file",
    ),
    refused("cluster.tls", &["cert_store"], STORE),
    refused("cluster.tls", &["cert_match_by"], STORE),
    refused("cluster.tls", &["cert_match"], STORE),
    refused("cluster.tls", &["cert_match_skip_invalid"], STORE),
    refused("cluster.tls", &["ca_certs_match"], STORE),
    refused("cluster.tls", &["ocsp_peer"], OCSP),
];

#[cfg(test)]
mod tests;
