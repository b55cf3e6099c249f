//! Tests the system account of a running server: the answers to its clients, and the events.

use serde_json::{Value, json};
use tidegate_server::serve_system;

use super::raw::Raw;
use super::{Running, settings, start};

const CONFIG: &str = "server_name: one, server_tags: [Az-1]\n\
    accounts { $SYS { users: [ { user: sys, password: p } ] } }\n\
    authorization { users: [ { user: app, password: q, permissions: { publish: { deny: secret } } } ] }";

fn server() -> Running {
    server_with(CONFIG)
}

fn server_with(config: &str) -> Running {
    let server = start(config);
    let config = config.to_owned();
    let load = move || Ok(settings(&config));
    serve_system(server.handle.clone(), Box::new(load)).unwrap();
    server
}

/// Connects a client of this user that subscribes to its inbox.
fn client(server: &Running, user: &str, pass: &str) -> Raw {
    let mut raw = Raw::connect(server);
    let options = "\"verbose\":false,\"headers\":true,\"no_responders\":true,\"name\":\"n\"";
    raw.done(&format!(
        "CONNECT {{{options},\"user\":\"{user}\",\"pass\":\"{pass}\"}}\r\nSUB r 1\r\n"
    ));
    raw
}

fn document(raw: &mut Raw) -> Value {
    let text = raw.until("}\r\n");
    serde_json::from_str(&text[text.find("\r\n").unwrap()..])
        .unwrap_or_else(|e| panic!("{e}: {text}"))
}

fn ask(raw: &mut Raw, subject: &str, body: &str) -> Value {
    raw.send(format!("PUB {subject} r {}\r\n{body}\r\n", body.len()));
    document(raw)
}

#[test]
fn questions_and_answers() {
    let server = server();
    let (mut sys, mut app) = (client(&server, "sys", "p"), client(&server, "app", "q"));
    let ping = ask(&mut sys, "$SYS.REQ.SERVER.PING", "");
    let id = ping["server"]["id"].as_str().unwrap().to_owned();
    assert_eq!(
        (&ping["server"]["name"], &ping["server"]["tags"][0]),
        (&"one".into(), &"az-1".into())
    );
    assert_eq!(ping["statsz"]["connections"], 2);
    let of = |page: &str| format!("$SYS.REQ.SERVER.{id}.{page}");
    let varz = ask(&mut sys, &of("VARZ"), r#"{"server_name":"on"}"#);
    assert_eq!(varz["data"]["server_id"], id.as_str());
    let connz = ask(
        &mut sys,
        "$SYS.REQ.SERVER.PING.CONNZ",
        r#"{"auth":true,"acc":"$SYS"}"#,
    );
    assert_eq!(connz["data"]["connections"][0]["authorized_user"], "sys");
    assert_eq!(
        (
            &connz["data"]["total"],
            &connz["data"]["connections"][0]["account"]
        ),
        (&1.into(), &"$SYS".into())
    );
    let subsz = ask(
        &mut sys,
        &of("SUBSZ"),
        r#"{"subscriptions":true,"account":"$SYS"}"#,
    );
    assert_eq!(subsz["data"]["subscriptions_list"][0]["subject"], "r");
    assert_eq!(
        ask(&mut sys, &of("HEALTHZ"), "")["data"]["status_code"],
        200
    );
    assert_eq!(ask(&mut sys, &of("IDZ"), "")["id"], id.as_str());
    let info = ask(&mut sys, "$SYS.REQ.ACCOUNT.$G.INFO", "");
    assert_eq!(info["data"]["client_connections"], 1);
    assert_eq!(ask(&mut sys, &of("CONNZ"), "bad")["error"]["code"], 400);
    let sort = ask(&mut sys, &of("CONNZ"), r#"{"sort":"name"}"#);
    let error = json!({"code": 500, "description": "invalid sorting option: name"});
    assert_eq!(sort["error"], error);
    // A state that does not exist has no connections, as in nats-server, and a text is no state.
    let none = ask(&mut sys, &of("CONNZ"), r#"{"state":7}"#);
    assert_eq!(none["data"]["num_connections"], 0, "{none}");
    let text = ask(&mut sys, &of("CONNZ"), r#"{"state":"closed"}"#);
    assert_eq!(text["error"]["code"], 400, "{text}");
    let unknown = ask(&mut sys, &of("ACCOUNTZ"), r#"{"account":"other"}"#);
    let error = json!({"code": 500, "description": "Account other does not exist"});
    assert_eq!(unknown["error"], error);
    let known = ask(&mut sys, &of("ACCOUNTZ"), r#"{"account":"$G"}"#);
    assert_eq!(known["data"]["account_detail"]["account_name"], "$G");
    let health = ask(&mut sys, &of("HEALTHZ"), r#"{"stream":"S"}"#);
    assert_eq!(health["data"]["status_code"], 400, "{health}");
    assert!(ask(&mut sys, &of("RELOAD"), "").get("error").is_none());
    assert_eq!(
        ask(&mut sys, &of("KICK"), r#"{"cid":99}"#)["error"]["description"],
        "no such client id"
    );
    // The question is for a server with another name, so this server stays silent, and its next answer is for
    // the next question.
    sys.send(format!(
        "PUB {} r 23\r\n{{\"server_name\":\"other\"}}\r\n",
        of("VARZ")
    ));
    assert_eq!(
        ask(&mut sys, "$SYS.REQ.USER.INFO", "")["data"]["account"],
        "$SYS"
    );
    let user = ask(&mut app, "$SYS.REQ.USER.INFO", "");
    assert_eq!(user["data"]["permissions"]["publish"]["deny"][0], "secret");
    let own = ask(&mut app, "$SYS.REQ.SERVER.PING.CONNZ", r#"{"acc":"$SYS"}"#);
    assert_eq!(
        (
            &own["data"]["total"],
            &own["data"]["connections"][0]["account"]
        ),
        (&1.into(), &"$G".into())
    );
    app.send("PUB $SYS.REQ.SERVER.PING.VARZ r 0\r\n\r\n");
    assert!(app.until("\r\n\r\n\r\n").contains("503"));
}

#[test]
fn connections_come_and_are_kicked() {
    let server = server();
    let mut sys = client(&server, "sys", "p");
    sys.done("SUB $SYS.ACCOUNT.> 2\r\nSUB $SYS.SERVER.*.SHUTDOWN 3\r\n");
    let mut app = client(&server, "app", "q");
    let event = document(&mut sys);
    assert_eq!(event["type"], "io.nats.server.advisory.v1.client_connect");
    assert_eq!(
        (&event["client"]["user"], &event["client"]["acc"]),
        (&"app".into(), &"$G".into())
    );
    let cid = event["client"]["id"].as_u64().unwrap();
    let id = event["server"]["id"].as_str().unwrap().to_owned();
    let body = format!("{{\"cid\":{cid}}}");
    sys.send(format!(
        "PUB $SYS.REQ.SERVER.{id}.KICK r {}\r\n{body}\r\n",
        body.len()
    ));
    app.rest();
    let mut reasons = 0;
    for _ in 0..2 {
        let next = document(&mut sys);
        reasons += usize::from(next["reason"] == "Kicked");
    }
    assert_eq!(reasons, 1);
    server.handle.drain().unwrap();
    assert_eq!(document(&mut sys)["id"], id.as_str());
}

#[test]
fn a_list_of_streams_is_complete() {
    let directory = tempfile::tempdir().unwrap();
    let streams = format!("jetstream {{ store_dir: {:?} }}", directory.path());
    let server = server_with(&format!("{CONFIG}\n{streams}"));
    let (mut sys, mut app) = (client(&server, "sys", "p"), client(&server, "app", "q"));
    // The list of streams is longer than one part of a report, so the thread asks the loop for several parts.
    let names: Vec<String> = (0..70).map(|n| format!("S{n:02}")).collect();
    for name in &names {
        let body = json!({"name": name, "subjects": [name]}).to_string();
        let made = ask(&mut app, &format!("$JS.API.STREAM.CREATE.{name}"), &body);
        assert!(made.get("error").is_none(), "{made}");
    }
    let body = r#"{"accounts":true,"streams":true}"#;
    let healthz = "$SYS.REQ.SERVER.PING.HEALTHZ";
    for (stream, code) in [("S00", 200), ("T", 404)] {
        let check = json!({"account": "$G", "stream": stream, "details": true}).to_string();
        let health = ask(&mut sys, healthz, &check);
        assert_eq!(health["data"]["status_code"], code, "{health}");
    }
    let all = ask(&mut sys, "$SYS.REQ.SERVER.PING.JSZ", body);
    let of_account = ask(&mut sys, "$SYS.REQ.ACCOUNT.$G.JSZ", "");
    let first = &all["data"]["account_details"][0];
    for account in [first, &of_account["data"]] {
        let listed = account["stream_detail"].as_array().unwrap();
        let listed: Vec<&str> = listed.iter().map(|s| s["name"].as_str().unwrap()).collect();
        assert_eq!(listed, names);
    }
}

/// A traced message shows its receivers, and reaches them only if its publisher wants that.
#[test]
fn traces_of_messages() {
    let server = server();
    let (mut one, mut two) = (client(&server, "app", "q"), client(&server, "app", "q"));
    two.done("SUB a.* 7\r\nSUB a.b pool 8\r\n");
    let mut publish = |to: &str, more: &str| {
        let block = format!("NATS/1.0\r\nNats-Trace-Dest: {to}\r\n{more}\r\n");
        let (len, all) = (block.len(), block.len() + 2);
        one.send(format!("HPUB a.b {len} {all}\r\n{block}hi\r\n"));
    };
    for only in ["Nats-Trace-Only: true\r\n", ""] {
        publish("r", only);
        // Both clients subscribe to the subject of the trace.
        let trace = loop {
            let text = two.until("}\r\n");
            if let Some(at) = text.find("{\"events\"") {
                let delivered = text[..at].contains("HMSG a.b");
                assert_eq!(delivered, only.is_empty(), "{text}");
                break serde_json::from_str::<Value>(&text[at..]).unwrap();
            }
        };
        let events = trace["events"].as_array().unwrap();
        let ends: Vec<(&Value, &Value, &Value)> = events
            .iter()
            .map(|e| (&e["type"], &e["sub"], &e["queue"]))
            .collect();
        let (null, eg) = (&Value::Null, &json!("eg"));
        assert_eq!(
            ends,
            [
                (&json!("in"), null, null),
                (eg, &json!("a.*"), null),
                (eg, &json!("a.b"), &json!("pool"))
            ],
            "{trace}"
        );
        assert_eq!(events[0]["subj"], "a.b");
        assert_eq!(events[0]["name"], "n");
        assert_eq!(trace["server"]["name"], "one");
        assert_eq!(trace["request"]["header"]["Nats-Trace-Dest"], json!(["r"]));
    }
    // A trace must not get around the client's permissions.
    publish("secret", "");
    one.until("Permissions Violation for Publish to \"secret\"");
}
