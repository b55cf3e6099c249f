//! Tests how the server reads whole configuration files.

use std::time::Duration;

use tidegate_nats::permissions::ResponseRule;
use tidegate_nats::settings::Account;

use super::super::{DATA_DIRECTORY, Named};
use super::*;

fn read_text(text: &str) -> Result<Settings, String> {
    let mut s = Settings::default();
    let directory = PathBuf::new();
    let map = tree::read_nats(text, &System { directory }).map_err(|e| e.to_string())?;
    apply(&map, &mut s).map_err(|e| e.to_string())?;
    Ok(s)
}

#[test]
fn a_configuration_as_people_write_them() {
    let s = read_text(
        "listen: 0.0.0.0:4333\nhttp: localhost:8222\nmax_payload: 8MB\nping_interval: \"1m30s\"\nwrite_deadline: 2\n\
         authorization {\n  default_permissions = { publish = \"a.>\" }\n  ADMIN = 1\n}\n",
    );
    assert_eq!(
        s.unwrap_err(),
        "line 8: the setting `authorization.ADMIN` does not exist here: remove it (docs/nats-support.md lists what does)"
    );
    let s = read_text("PASS: s3\nlisten: 0.0.0.0:4333\nhttp: localhost:8222\nmax_payload: 8MB\nping_interval: \"1m30s\"\n\
         authorization {\n  default_permissions = { publish = \"a.>\", subscribe = {allow: [\"b q\"], deny: c} }\n\
         users = [ {user: x, password: $PASS}, {user: y, password: 12,\n permissions: {allow_responses: true}} ]\n}\n\
         no_auth_user: x",
    )
    .unwrap();
    assert_eq!(
        (s.host.as_str(), s.port, s.http_port, s.sessions.max_payload),
        ("0.0.0.0", 4333, Some(8222), 8 << 20)
    );
    assert_eq!(s.sessions.ping_interval, Duration::from_secs(90));
    let x = s.sessions.users[0].permissions.as_ref().unwrap();
    assert!(x.may_publish(b"a.b") && !x.may_publish(b"b") && x.may_subscribe(b"b", Some(b"q")));
    assert!(!x.may_subscribe(b"b", None) && !x.may_subscribe(b"c", None));
    let y = s.sessions.users[1].permissions.as_ref().unwrap();
    assert!(
        !y.may_publish(b"a.b")
            && y.responses
                == Some(ResponseRule {
                    max: Some(1),
                    expires: Some(Duration::from_secs(120))
                })
    );
}

#[test]
fn unknown_settings_are_refused_by_name_and_line() {
    for (text, part) in [
        (
            "port: 1\nleafnodes: { port: 7422 }",
            "line 2: the setting `leafnodes` does not exist here",
        ),
        (
            "cluster { poolsize: 3 }",
            "`cluster.poolsize` does not exist here: remove",
        ),
        (
            "cluster { permissions: { import: a } }",
            "`cluster.permissions` does not exist here: the nodes",
        ),
        ("cluster { authorization { user: a } }", "`password`"),
        ("cluster { routes: [\"http://h:1\"] }", "nats-route://"),
        (
            "cluster { tls { cert_file: a } }",
            "needs cert_file, key_file and ca_file",
        ),
        ("jetstream { cipher: aes }", "`jetstream.cipher`"),
        ("jetstream: maybe", "enabled, disabled"),
        ("jetstream { max_file: -2 }", "not below -1"),
        (
            "tls { cert_file: a, key_file: b, pinned_certs: [ab] }",
            "`tls.pinned_certs`",
        ),
        ("tls { cert_file: a }", "needs cert_file and key_file"),
        ("port: 70000", "a port from 0 to 65535"),
        ("debug: 3", "true or false"),
        ("ping_interval: soon", "a duration"),
        ("ping_interval: -3s", "a duration"),
        (
            "max_payload: 65MB",
            "`max_payload`: expected a number of bytes from 1 to 67108864, such as 8MB",
        ),
        ("max_payload: 1e18", "from 1 to 67108864"),
        ("max_payload: 99999999999999999999", "from 1 to 67108864"),
        ("max_payload: -1", "from 1 to 67108864"),
        ("max_payload: 0", "from 1 to 67108864"),
        ("max_pending: -1", "a whole number not below 1"),
        (
            "ping_max: 4294967296",
            "`ping_max`: 4294967296 is too large",
        ),
        (
            "port: 1\njetstream { store_dir: \"\" }",
            "line 2: `store_dir` is empty: give a path",
        ),
        ("store_dir: ''", "line 1: `store_dir` is empty"),
        ("pid_file: ''", "`pid_file` is empty"),
        ("log_file: ''", "`log_file` is empty"),
        ("tls { cert_file: '' }", "`cert_file` is empty"),
        ("cluster { tls { ca_file: '' } }", "`ca_file` is empty"),
        ("authorization { user: a }", "needs a password"),
        (
            "port: 1\nauthorization { user: a, password: \"\" }",
            "line 2: `authorization.password` is empty",
        ),
        (
            "authorization { user: '', password: b }",
            "`authorization.user` is empty",
        ),
        (
            "authorization { token: \"\" }",
            "`authorization.token` is empty",
        ),
        (
            "authorization { users: [{user: a, password: b}, {user: c, password: \"\"}] }",
            "`users.password` is empty",
        ),
        (
            "authorization { users: [{user: \"\", password: b}] }",
            "`users.user` is empty",
        ),
        (
            "EMPTY: ''\nauthorization { token: $EMPTY }",
            "line 2: `authorization.token` is empty",
        ),
        (
            "cluster { authorization { user: a, password: \"\" } }",
            "`cluster.authorization.password` is empty",
        ),
        (
            "cluster { authorization { token: \"\" } }",
            "`cluster.authorization.token` is empty",
        ),
        (
            "authorization { users: [{user: a, password: b}, {user: a, password: c}] }",
            "named twice",
        ),
        (
            "authorization { users: [{user: a, password: b, permissions: {publish: \"a..b\"}}] }",
            "not a subject",
        ),
        (
            "port: 1\nauthorization { user: a, password: b, token: c }",
            "line 2: `authorization` has a token and users",
        ),
        ("no_auth_user: carol", "is not among the users"),
        ("controller: clever", "storm-aimd"),
        ("server_name: \"a b\"", "without blanks"),
        ("server_name: \"a\u{1b}b\"", "and control characters"),
        ("jetstream { strict: false }", "always read strictly"),
    ] {
        let e = read_text(text).unwrap_err();
        assert!(e.contains(part), "{text:?}: {e}");
    }
}

#[test]
fn empty_credentials_are_refused_in_toml_too() {
    for text in [
        "[authorization]\nuser = \"a\"\npassword = \"\"",
        "[authorization]\ntoken = \"\"",
        "[authorization]\nusers = [{ user = \"a\", password = \"\" }]",
        "[[authorization.users]]\nuser = \"\"\npassword = \"b\"",
    ] {
        let map = tree::read_toml(text).unwrap();
        let e = apply(&map, &mut Settings::default()).unwrap_err();
        assert!(e.message.contains("is empty"), "{text}: {e}");
    }
}

#[test]
fn the_value_of_a_variable_may_stand_anywhere() {
    let s = read_text(
        "listen: \"127.0.0.1:-1\"\nauthorization { mine = { publish: { deny: a } }\n \
         users: [ { user: u, password: p, permissions: $mine } ] }",
    );
    let s = s.unwrap();
    assert!(s.port == 0 && s.sessions.users[0].permissions.is_some());
    let e = read_text("authorization { mine = { publish: { deny: a } } }").unwrap_err();
    assert!(e.contains("authorization.mine"), "{e}");
}

#[test]
fn streams_as_nats_server_names_them() {
    let streams = |text| read_text(text).unwrap().streams;
    assert_eq!(streams("port: 1"), None);
    assert_eq!(
        streams("jetstream: enabled"),
        Some(StreamSettings::new(DATA_DIRECTORY.into()))
    );
    assert_eq!(streams("store_dir: /d\njetstream: disabled"), None);
    let s = streams(
        "jetstream { store_dir: /d, max_mem: 1MB, max_file: 1GB, domain: hub, sync_interval: always, strict: true, limits { max_streams: 3 } }",
    );
    let s = s.unwrap();
    assert_eq!((s.directory, s.domain), ("/d".into(), Some("hub".into())));
    assert_eq!(
        (s.max_memory_bytes, s.max_file_bytes, s.max_streams),
        (Some(1 << 20), Some(1 << 30), Some(3))
    );
    let s = streams(
        "jetstream { limits { max_ack_pending: 9, max_request_batch: -1, duplicate_window: \"1m\", max_consumers: -1 } }",
    );
    let s = s.unwrap();
    assert_eq!((s.limits.max_ack_pending, s.limits.max_batch), (9, 0));
    assert_eq!(
        (s.limits.duplicate_window, s.max_consumers),
        (60_000_000_000, None)
    );
    let text = "jetstream { limits { duplicate_window: soon } }";
    assert!(read_text(text).unwrap_err().contains("a duration such as"));
}

#[test]
fn a_cluster_as_nats_server_has_it() {
    let s = read_text(
        "server_name: n1\ncluster { name: tide, listen: \"127.0.0.1:6333\", no_advertise: true, connect_backoff: true\n\
         authorization { user: u, password: p }\n routes: [ \"nats-route://u:p@h:1\", \"nats://h:2\" ] }",
    );
    let c = s.unwrap().cluster.unwrap();
    assert_eq!((c.name.as_str(), c.port, c.routes.len()), ("tide", 6333, 2));
    assert_eq!(c.secret.as_ref().unwrap().reveal(), "u:p");
    assert!(c.no_advertise && c.longest_pause == Duration::from_secs(30));
    c.check(Some("n1")).unwrap();
}

#[test]
fn a_report_names_all_settings() {
    let text = "port: 1\nLogTime: yes\nmqtt {}\nwebsocket { port: 2 }\ncluster {\n pool_size: 3\n nmae: x\n}\nmax_conn: 0\nV: 9";
    let system = System {
        directory: PathBuf::new(),
    };
    let map = tree::read_nats(text, &system).unwrap();
    let mut settings = Settings::default();
    let report = read(&map, &mut settings);
    let named = |list: &[Named]| -> Vec<String> {
        list.iter()
            .map(|s| format!("{}@{}", s.name, s.line))
            .collect()
    };
    assert_eq!(named(&report.taken), ["port@1", "mqtt@3"]);
    assert_eq!(
        named(&report.without_effect),
        ["LogTime@2", "cluster.pool_size@6"]
    );
    let lines: Vec<usize> = report.refused.iter().map(|e| e.line).collect();
    assert_eq!(lines, [4, 7, 9]);
    assert_eq!(settings.port, 1);
    let strict = format!("strict: true\n{text}");
    let map = tree::read_nats(&strict, &system).unwrap();
    let report = read(&map, &mut Settings::default());
    assert!(report.without_effect.is_empty());
    let idle = report
        .refused
        .iter()
        .filter(|e| e.message.contains("no effect here"));
    assert_eq!(idle.count(), 2);
}

#[test]
fn users_of_the_system_account() {
    let s = read_text(
        "accounts { SYS { users: [ { user: s, password: p } ] } }\nauthorization { user: u, password: q }\nsystem_account: SYS",
    )
    .unwrap();
    let users: Vec<_> = s
        .sessions
        .users
        .iter()
        .map(|u| (u.name.as_str(), u.account))
        .collect();
    assert_eq!(users, [("s", Account::System), ("u", Account::Global)]);
    assert_eq!(s.system_account, "SYS");
    assert!(!s.sessions.is_open());
    let s = read_text("accounts { $SYS { users: [ { user: s, password: p } ] } }").unwrap();
    assert!(s.sessions.is_open() && s.sessions.needs_credentials());
    let mut open = s;
    open.host = "0.0.0.0".into();
    assert!(open.check_exposure().is_err());
    for (text, part) in [
        (
            "accounts { $SYS {}, APP {} }",
            "the account `APP` does not exist here",
        ),
        ("accounts { $SYS { exports: [a] } }", "only users"),
        ("accounts: [A]", "the account `A`"),
        (
            "no_system_account: true, accounts { $SYS { users: [ { user: s, password: p } ] } }",
            "`no_system_account` is true",
        ),
        (
            "authorization { user: s, password: q }\naccounts { $SYS { users: [ { user: s, password: p } ] } }",
            "named twice",
        ),
    ] {
        let e = read_text(text).unwrap_err();
        assert!(e.contains(part), "{text:?}: {e}");
    }
}

#[test]
fn a_cluster_that_asks_for_no_streams() {
    let with = |text: &str, asks: bool| {
        let mut s = read_text(text).unwrap();
        s.streams = Some(StreamSettings::new("d".into()));
        let remark = s.complete_cluster(asks);
        let checked = s.check_cluster().is_ok();
        (
            s.cluster.is_some(),
            s.streams.is_some(),
            remark.is_some(),
            checked,
        )
    };
    let routes = "cluster { routes: [ nats://h:1 ] }";
    assert_eq!(with(routes, false), (true, false, true, true));
    assert_eq!(with(routes, true), (true, true, false, false));
    assert_eq!(
        with("cluster { port: 1, routes: [] }", false),
        (false, true, true, true)
    );
    let named = "server_name: n, cluster { name: c, routes: [ nats://h:1 ] }";
    assert_eq!(with(named, false), (true, true, false, true));
}
