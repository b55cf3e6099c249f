//! The program `tidegate`: its commands are the library beside it.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidegate_cli::main()
}
