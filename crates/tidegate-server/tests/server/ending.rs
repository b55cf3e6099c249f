//! Tests the start and the end of a server, and changes to it: drain, lame duck mode, reload.

use tidegate_server::Server;

use super::raw::Raw;
use super::{serve, settings, start};

/// A server that listens can only serve once it has opened its data.
#[test]
fn a_server_opens_its_data_before_it_serves() {
    let directory = tempfile::tempdir().unwrap();
    let text = format!(
        "jetstream {{ store_dir: \"{}\" }}",
        directory.path().display()
    );
    let listening = Server::listen(settings(&text)).unwrap();
    let address = listening.address();
    let server = serve(listening.open_data().unwrap());
    assert_eq!(server.address, address);
    let mut client = Raw::silent(&server);
    let info = client.until("\r\n");
    assert!(info.contains("\"jetstream\":true"), "{info}");
    let create = "{\"name\":\"S\",\"subjects\":[\"s\"]}";
    let len = create.len();
    client.send(format!(
        "SUB r 1\r\nPUB $JS.API.STREAM.CREATE.S r {len}\r\n{create}\r\n"
    ));
    client.until("\"did_create\":true");
}

#[test]
fn a_drain_finishes_what_was_sent() {
    let server = start("");
    let mut reader = Raw::connect(&server);
    reader.done("CONNECT {\"verbose\":false}\r\nSUB a 1\r\n");
    let mut writer = Raw::connect(&server);
    writer.done("CONNECT {\"verbose\":false}\r\n");
    let text = "PUB a 1\r\nx\r\n".repeat(10_000);
    writer.send(&text);
    server.handle.drain().unwrap();
    let got = reader.rest();
    assert_eq!(got.matches("MSG a 1 1\r\nx\r\n").count(), 10_000);
    writer.rest();
    server.join();
}

#[test]
fn lame_duck_mode_says_goodbye_and_ends() {
    let server = start("lame_duck_grace_period: 0.1, lame_duck_duration: 0.3");
    let mut a = Raw::connect(&server);
    a.done("CONNECT {\"verbose\":false,\"protocol\":1}\r\n");
    a.until("\r\n");
    server.handle.lame_duck().unwrap();
    let info = a.until("\r\n");
    assert!(
        info.starts_with("INFO ") && info.contains("\"ldm\":true"),
        "{info}"
    );
    // The server still serves the client in lame duck mode.
    assert!(a.done("SUB x 1\r\nPUB x 1\r\nx\r\n").contains("MSG x 1 1"));
    a.rest();
    server.join();
}

#[test]
fn a_reload_changes_users_and_limits_for_those_connected() {
    let users = |ann: &str| {
        format!(
            "authorization {{ users = [ {{user: ann, password: {ann}, permissions: {{publish: \"a\"}}}}, {{user: bob, password: b}} ] }}"
        )
    };
    let server = start(&users("one"));
    let mut ann = Raw::connect(&server);
    ann.done("CONNECT {\"verbose\":false,\"user\":\"ann\",\"pass\":\"one\"}\r\n");
    let mut bob = Raw::connect(&server);
    bob.done(
        "CONNECT {\"verbose\":false,\"protocol\":1,\"user\":\"bob\",\"pass\":\"b\"}\r\nSUB > 1\r\n",
    );
    bob.until("\r\n");
    let changed = users("two").replace(
        "password: b}",
        "password: b, permissions: {subscribe: \"a\"}}",
    ) + "\nmax_payload: 10";
    server.handle.reload(settings(&changed)).unwrap();
    assert_eq!(ann.rest(), "-ERR 'Authorization Violation'\r\n");
    let told = bob.until("\"max_payload\":10,");
    assert!(
        told.contains("-ERR 'Permissions Violation for Subscription to \">\"'"),
        "{told}"
    );
    bob.until("\r\n");
    bob.send("PUB b 11\r\n");
    assert_eq!(bob.rest(), "-ERR 'Maximum Payload Violation'\r\n");
}

#[test]
fn a_reload_keeps_clients_with_a_token_until_the_token_changes() {
    let server = start("authorization { token: one }");
    let mut client = Raw::connect(&server);
    client.done("CONNECT {\"verbose\":false,\"protocol\":1,\"auth_token\":\"one\"}\r\n");
    let same = "authorization { token: one }\nmax_payload: 10";
    server.handle.reload(settings(same)).unwrap();
    client.until("\"max_payload\":10,");
    client.until("\r\n");
    let echo = client.done("SUB x 1\r\nPUB x 1\r\nx\r\n");
    assert!(echo.contains("MSG x 1 1"), "{echo}");
    let other = "authorization { token: two }";
    server.handle.reload(settings(other)).unwrap();
    assert_eq!(client.rest(), "-ERR 'Authorization Violation'\r\n");
}
