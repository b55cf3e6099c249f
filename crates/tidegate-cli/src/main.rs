//! The program `tidegate`; the library beside it implements its commands.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_cli::main()
}
