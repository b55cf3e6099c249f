//! `tidegate serve`: a server from flags and a configuration file, until a signal ends it.

use std::process::ExitCode;

use clap::Args;
use tidegate_server::Server;
use tidegate_server::config::Settings;

/// What `tidegate serve` takes: nats-server's common flags, with their meaning.
#[derive(Args, Debug)]
pub(crate) struct ServeArgs {
    /// Listen on this address.
    #[arg(short, long, value_name = "HOST")]
    addr: Option<String>,
    /// Listen on this port; -1 takes a free one.
    #[arg(short, long, value_name = "PORT", allow_negative_numbers = true)]
    port: Option<i32>,
}

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let mut settings = Settings::default();
    if let Some(port) = args.port {
        settings.port = u16::try_from(port).unwrap_or(0);
    }
    let server = Server::bind(settings)?;
    eprintln!("Listening for client connections on {}", server.address());
    eprintln!("Server is ready");
    server.run()?;
    Ok(ExitCode::SUCCESS)
}
