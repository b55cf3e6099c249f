//! Lists the servers of streams that the benches `neighbours` and `many` compare, and finds the rival's
//! program.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine;

/// A server of streams that a bench measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    Ours,
    /// nats-server that acknowledges a message before it syncs, which it does every two minutes.
    Nats,
    /// nats-server that syncs each message before it acknowledges the message.
    NatsAlways,
}

impl System {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => crate::OURS,
            Self::Nats => "nats-server default",
            Self::NatsAlways => "nats-server always",
        }
    }

    /// Returns the version of our server, or the version that the rival's program reports, for the table.
    pub(crate) fn version(self, nats_server: Option<&Path>) -> Option<String> {
        match self {
            Self::Ours => Some(env!("CARGO_PKG_VERSION").into()),
            Self::Nats | Self::NatsAlways => version_of(nats_server?),
        }
    }
}

/// Returns the path of nats-server in bench/peers/go-nats. If the program is not built, tells the user so and
/// returns `None`.
pub(crate) fn nats_server() -> Option<PathBuf> {
    let root = machine::upwards("bench/peers/go-nats")?;
    let path = root.join("bench/peers/go-nats/bin/nats-server");
    if !path.exists() {
        eprintln!("tidegate-bench: nats-server is not built: bench/peers/install.sh go-nats");
    }
    path.exists().then_some(path)
}

fn version_of(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().rsplit_once('v')?.1.to_owned())
}
