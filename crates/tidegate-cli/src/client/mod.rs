//! The NATS client of the command line, over the crate `async-nats`.
//!
//! [`connection`] owns the connection and handles its loss; [`url`] parses addresses, [`names`] checks names,
//! and [`jetstream`] asks for streams and consumers. [`publish`], [`subscribe`], [`stream`] and [`consume`]
//! are the commands.

mod connection;
pub(crate) mod consume;
mod jetstream;
mod losses;
mod names;
pub(crate) mod publish;
pub(crate) mod stream;
pub(crate) mod subscribe;
#[cfg(test)]
mod tests;
mod url;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::values;

/// The longest time that a command waits for an answer of the server, before the command fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// The flags by which the user names the servers and gives the means to reach them.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Connect to one of these servers, the first that answers. Commas separate several servers, each in the
    /// form `[nats://|tls://][USER:PASSWORD@|TOKEN@]HOST[:PORT]`. In the credentials, write `@`, `:`, `/`,
    /// `,` and `%` as %40, %3A, %2F, %2C and %25.
    #[arg(
        short,
        long,
        value_name = "URL",
        default_value = "nats://127.0.0.1:4222",
        env = "NATS_URL",
        hide_env_values = true
    )]
    server: String,
    /// Try to reach a server for this long, such as 500ms, 30s or 5m, then fail. Default: one attempt at the
    /// start, and attempts for 60s after the loss of a connection.
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    wait: Option<Duration>,
    /// Use TLS, and trust only the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Present the certificate in this PEM file to the server, which verifies clients by their certificates.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Prove the ownership of the certificate with the private key in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
}
