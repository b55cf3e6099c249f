//! The first lines of `tidegate serve` on a terminal, for a person who has just started it: the address to
//! copy, the data directory, the monitor, and a next step. A log that goes to a file, a pipe or a service
//! manager has no such lines.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use tidegate_server::config::Settings;

/// Returns the lines for the terminal. `working` is the directory in which the process runs.
pub(super) fn text(settings: &Settings, working: &Path) -> String {
    let mut out = format!("tidegate {}\n", env!("CARGO_PKG_VERSION"));
    let mut line = |name: &str, value: &str| {
        // A write to a string never fails.
        let _ = writeln!(out, "  {name:<9} {value}");
    };
    let url = url(settings);
    match settings.port {
        0 => line("address", "a free port, which a line below names"),
        _ if is_any(&settings.host) => {
            line(
                "address",
                &format!("{url}, and each address of this machine"),
            );
        }
        _ => line("address", &url),
    }
    match &settings.streams {
        Some(streams) => line(
            "data",
            &working.join(&streams.directory).display().to_string(),
        ),
        None => line(
            "data",
            "none: --no-streams, or a configuration without `jetstream`",
        ),
    }
    match settings.http_port {
        Some(0) => line("monitor", "a free port, which a line below names"),
        Some(port) => {
            let shared = Some(&settings.host).filter(|_| settings.insecure);
            let host = settings.http_host.as_ref().or(shared);
            let host = host.map_or("127.0.0.1", |h| h);
            let base = settings.http_base_path.trim_end_matches('/');
            let url = format!("http://{}:{port}{base}/", within(host));
            match settings.dashboard.unwrap_or_else(|| is_local(host)) {
                true => line("dashboard", &format!("{url}dashboard")),
                false => line("monitor", &url),
            }
        }
        None => line("monitor", "off: --http-port 8222 turns it on"),
    }
    // A client needs credentials or certificates where the server asks for them, and only the user has those.
    let is_open = settings.sessions.users.is_empty()
        && settings.sessions.token.is_none()
        && settings.tls.is_none();
    if is_open && settings.port != 0 {
        let server = match url == "nats://127.0.0.1:4222" {
            true => String::new(),
            false => format!(" -s {url}"),
        };
        line(
            "next",
            &format!(
                "in other terminals: `tidegate sub greetings{server}`, then `tidegate pub greetings hello{server}`"
            ),
        );
    }
    out
}

/// Returns the URL by which a client on this machine reaches the server.
fn url(settings: &Settings) -> String {
    let scheme = match settings.tls.is_some() {
        true => "tls",
        false => "nats",
    };
    format!("{scheme}://{}:{}", within(&settings.host), settings.port)
}

/// Returns whether only this machine reaches the host, where the dashboard is on by default.
fn is_local(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

fn is_any(host: &str) -> bool {
    ["0.0.0.0", "::", "[::]"].contains(&host)
}

/// Returns the host in the form of a URL, and loopback in place of the address that stands for all.
fn within(host: &str) -> String {
    match host {
        "0.0.0.0" | "::" | "[::]" => "127.0.0.1".to_owned(),
        host if host.contains(':') && !host.starts_with('[') => format!("[{host}]"),
        host => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_nats::settings::Secret;
    use tidegate_server::config::StreamSettings;

    use super::*;

    fn of(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings {
            streams: Some(StreamSettings::new("tidegate-data".into())),
            ..Settings::default()
        };
        change(&mut settings);
        text(&settings, Path::new("/home/me"))
    }

    #[test]
    fn a_newcomer_reads_the_address_the_directory_and_a_next_step() {
        let text = of(|_| {});
        let lines: Vec<&str> = text.lines().skip(1).map(str::trim).collect();
        assert_eq!(lines[0], "address   nats://127.0.0.1:4222");
        assert_eq!(lines[1], "data      /home/me/tidegate-data");
        assert_eq!(lines[2], "monitor   off: --http-port 8222 turns it on");
        assert!(lines[3].ends_with("then `tidegate pub greetings hello`"));
    }

    #[test]
    fn addresses_have_the_form_of_urls() {
        let text = of(|s| {
            (s.host, s.port) = ("::1".into(), 5222);
            (s.http_port, s.http_base_path) = (Some(8222), "/nats".into());
        });
        assert!(text.contains("nats://[::1]:5222\n"), "{text}");
        assert!(
            text.contains("dashboard http://127.0.0.1:8222/nats/dashboard\n"),
            "{text}"
        );
        assert!(text.contains("hello -s nats://[::1]:5222`"), "{text}");
        let text = of(|s| (s.host, s.insecure, s.http_port) = ("0.0.0.0".into(), true, Some(0)));
        assert!(text.contains("nats://127.0.0.1:4222, and each"), "{text}");
        assert!(text.contains("monitor   a free port"), "{text}");
        let text = of(|s| (s.http_port, s.dashboard) = (Some(8222), Some(false)));
        assert!(
            text.contains("monitor   http://127.0.0.1:8222/\n"),
            "{text}"
        );
        let text = of(|s| (s.http_port, s.http_host) = (Some(8222), Some("0.0.0.0".into())));
        assert!(
            text.contains("monitor   http://127.0.0.1:8222/\n"),
            "{text}"
        );
    }

    #[test]
    fn a_server_with_credentials_or_a_free_port_suggests_no_command() {
        let text = of(|s| s.sessions.token = Some(Secret::new("t")));
        assert!(!text.contains("next"), "{text}");
        let text = of(|s| s.port = 0);
        assert!(
            text.contains("address   a free port") && !text.contains("next"),
            "{text}"
        );
        let text = of(|s| s.streams = None);
        assert!(text.contains("data      none"), "{text}");
    }
}
