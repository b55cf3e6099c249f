//! `tidegate sim`: the simulator's tables.

use clap::Args;

/// What `tidegate sim` takes.
#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// Which scenario.
    pub(crate) scenario: String,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Runs one scenario.
pub(crate) fn run(args: &SimArgs) -> anyhow::Result<()> {
    anyhow::bail!(
        "scenario `{}`: the simulator is not here yet",
        args.scenario
    )
}
