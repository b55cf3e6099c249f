//! The shells' completions and the manual pages of `tidegate`, made from its own flags.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Cli;

/// Prints the script with the completions for `shell`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "tidegate", &mut script);
    let mut out = std::io::stdout();
    out.write_all(&script)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a manual page of each command into the directory.
pub(crate) fn pages(directory: &Path) -> anyhow::Result<ExitCode> {
    let written = clap_mangen::generate_to(Cli::command(), directory);
    written.with_context(|| format!("cannot write manual pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
