//! The program `tidegate`; the library beside it implements its commands.

use std::process::ExitCode;

/// The program replaces the C library's allocator, which keeps most of the memory of clients that have left.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_cli::main()
}
