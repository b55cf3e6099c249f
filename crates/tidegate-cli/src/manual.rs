//! Makes the shells' completions and the manual pages of `tidegate` from the program's own flags.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;
use crate::output::Output;

/// Prints the script that completes commands and flags in `shell`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    let mut out = Output::open()?;
    let mut script = Vec::new();
    clap_complete::generate(
        shell,
        &mut visible(&Cli::command()),
        "tidegate",
        &mut script,
    );
    out.write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the command without its hidden flags, because the generator would complete them. The copy has only
/// the parts that the generator reads. Its names stay in memory until the program ends, soon after one
/// script.
fn visible(command: &Command) -> Command {
    let leaked = |text: &str| -> &'static str { text.to_owned().leak() };
    let shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut copy = Command::new(leaked(command.get_name()))
        .propagate_version(true)
        .disable_version_flag(command.is_disable_version_flag_set())
        .args(shown)
        .subcommands(command.get_subcommands().map(visible))
        .visible_aliases(command.get_visible_aliases().map(leaked));
    if let Some(about) = command.get_about() {
        copy = copy.about(about.clone());
    }
    match command.get_version() {
        Some(version) => copy.version(leaked(version)),
        None => copy,
    }
}

/// Writes a manual page of each command into the directory, for packages.
pub(crate) fn pages(directory: &Path) -> anyhow::Result<ExitCode> {
    let written = clap_mangen::generate_to(Cli::command(), directory);
    written.with_context(|| format!("cannot write manual pages into {}", directory.display()))?;
    Ok(ExitCode::SUCCESS)
}
