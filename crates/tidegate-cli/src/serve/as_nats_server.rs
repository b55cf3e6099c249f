//! Translates the command line of nats-server. A link with the name `nats-server` to this program serves with
//! nats-server's flags and defaults, for charts, units and scripts that call nats-server.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Returns whether the program was called under the name `nats-server`, so that its flags have other
/// meanings.
pub(crate) fn is_called(args: &[OsString]) -> bool {
    let program = args.first().and_then(|arg| Path::new(arg).file_name());
    program == Some(OsStr::new("nats-server"))
}

/// Rewrites nats-server's command line into the command line of `tidegate serve`.
///
/// The rewritten line has `--as-nats-server`, because nats-server listens on every address and serves streams
/// only if its settings ask for them. Its `-v` prints the version.
pub(crate) fn as_serve(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given: Vec<OsString> = args.into_iter().skip(1).collect();
    let prints_version = |arg: &OsString| ["-v", "--version", "-version"].iter().any(|v| arg == v);
    if given.iter().any(prints_version) {
        return ["tidegate", "--version"].map(OsString::from).into();
    }
    // nats-server also accepts the word `help`, so this function does, too.
    if given.first().is_some_and(|arg| arg == "help") {
        given = vec!["--help".into()];
    }
    let first = ["tidegate", "serve", "--as-nats-server"];
    first.into_iter().map(OsString::from).chain(given).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str) -> String {
        let args = line.split(' ').map(OsString::from);
        as_serve(args).join(OsStr::new(" ")).into_string().unwrap()
    }

    #[test]
    fn a_command_line_of_nats_server_becomes_one_of_serve() {
        let called = |name: &str| is_called(&[OsString::from(name)]);
        assert!(called("/usr/local/bin/nats-server") && called("nats-server"));
        assert!(!called("tidegate") && !called("nats-server/tidegate") && !is_called(&[]));
        assert_eq!(
            rewritten("nats-server -c a.conf -js"),
            "tidegate serve --as-nats-server -c a.conf -js"
        );
        assert_eq!(rewritten("nats-server -v"), "tidegate --version");
        assert_eq!(
            rewritten("nats-server help"),
            "tidegate serve --as-nats-server --help"
        );
    }
}
