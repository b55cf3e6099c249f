//! The program `tidegate`, which calls the library beside it; the library implements the commands.

use std::process::ExitCode;

/// The program replaces the C library's allocator, which would keep most of the memory of closed connections.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_cli::main()
}
