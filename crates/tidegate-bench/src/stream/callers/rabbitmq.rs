//! Callers that publish into one quorum queue of a single RabbitMQ node and wait for each confirmation.
//! RabbitMQ syncs the queue's log before it confirms.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;

use super::amqp::Amqp;
use super::load::Caller;
use super::{Running, peer};
use crate::guard::{Guard, free_ports};

/// The folder of RabbitMQ's versions below bench/peers, as Debian's package has it.
const VERSIONS: &str = "rabbitmq/_deps/rabbitmq-server/usr/lib/rabbitmq/lib";
const QUEUE: &str = "bench";
/// The longest time that the node may take to start.
const PATIENCE: Duration = Duration::from_secs(240);
/// The shell script that starts the node beside a name server of its own, which the node's Erlang wants. The
/// guard ends both.
const START: &str = r#"epmd & until epmd -names >/dev/null 2>&1; do sleep 0.02; done; exec "$1""#;

/// A running RabbitMQ node.
pub(super) struct RabbitMq {
    guard: Guard,
    addr: SocketAddr,
    bytes: usize,
}

impl RabbitMq {
    /// Starts the node with its files in `directory`, and waits until it confirms a message.
    pub(super) fn start(directory: &Path, bytes: usize) -> anyhow::Result<Self> {
        let program = installed()?.join("sbin/rabbitmq-server");
        let [addr, distribution, names] = free_ports()?;
        let plugins = directory.join("enabled_plugins");
        std::fs::write(&plugins, "[].\n")?;
        let mut command = Command::new("sh");
        command.args(["-c", START, "sh"]).arg(program);
        for (name, value) in [
            ("RABBITMQ_NODE_PORT", addr.port().to_string()),
            ("RABBITMQ_DIST_PORT", distribution.port().to_string()),
            ("ERL_EPMD_PORT", names.port().to_string()),
        ] {
            command.env(name, value);
        }
        for (name, value) in [
            ("ERL_EPMD_ADDRESS", "127.0.0.1"),
            ("RABBITMQ_NODENAME", "tidegate@localhost"),
            ("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1"),
            (
                "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS",
                "-kernel inet_dist_use_interface {127,0,0,1}",
            ),
            // The script then becomes the node, instead of waiting for it.
            ("RUNNING_UNDER_SYSTEMD", "true"),
            ("RABBITMQ_LOGS", "-"),
        ] {
            command.env(name, value);
        }
        for (name, file) in [
            ("HOME", ""),
            ("RABBITMQ_MNESIA_BASE", "data"),
            ("RABBITMQ_LOG_BASE", "logs"),
            ("RABBITMQ_CONFIG_FILE", "rabbitmq"),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced"),
            ("RABBITMQ_CONF_ENV_FILE", "environment"),
            ("RABBITMQ_GENERATED_CONFIG_DIR", "settings"),
            ("RABBITMQ_PID_FILE", "pid"),
        ] {
            command.env(name, directory.join(file));
        }
        command.env("RABBITMQ_ENABLED_PLUGINS_FILE", plugins);
        let guard = Guard::start(&command, &directory.join("log"))?;
        guard.wait_ready(PATIENCE, || Publisher::open(addr, 1)?.call())?;
        Ok(Self { guard, addr, bytes })
    }
}

impl Running for RabbitMq {
    fn caller(&self, _: usize) -> anyhow::Result<Box<dyn Caller>> {
        Ok(Box::new(Publisher::open(self.addr, self.bytes)?))
    }

    fn processes(&self) -> anyhow::Result<Vec<u32>> {
        self.guard.processes()
    }

    fn cpu_s(&self) -> anyhow::Result<Option<f64>> {
        Ok(Some(self.guard.cpu_s()?))
    }
}

struct Publisher {
    connection: Amqp,
    message: Vec<u8>,
}

impl Publisher {
    fn open(addr: SocketAddr, bytes: usize) -> anyhow::Result<Self> {
        let connection = Amqp::open(addr, QUEUE)?;
        let message = connection.message(QUEUE, &vec![b'x'; bytes]);
        Ok(Self {
            connection,
            message,
        })
    }
}

impl Caller for Publisher {
    fn call(&mut self) -> anyhow::Result<()> {
        self.connection.call(&self.message)
    }
}

/// Returns the folder of the installed version.
fn installed() -> anyhow::Result<PathBuf> {
    let versions = std::fs::read_dir(peer(VERSIONS, "rabbitmq")?)?;
    let mut paths = versions.flatten().map(|entry| entry.path());
    let found = paths.find(|path| version_of(path).is_some());
    found.context("RabbitMQ is not installed: bench/peers/install.sh rabbitmq")
}

/// Returns the version of the installed RabbitMQ; `None` without it.
pub(super) fn version() -> Option<String> {
    version_of(&installed().ok()?).map(str::to_owned)
}

/// Returns the version in the name of a folder such as `rabbitmq_server-3.10.8`.
fn version_of(path: &Path) -> Option<&str> {
    path.file_name()?.to_str()?.strip_prefix("rabbitmq_server-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_folder() {
        let path = Path::new("/lib/rabbitmq_server-3.10.8");
        assert_eq!(version_of(path), Some("3.10.8"));
        assert_eq!(version_of(Path::new("/lib/bin")), None);
    }
}
