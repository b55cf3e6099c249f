//! The program `tidegate`; the library beside it implements its commands.

use std::process::ExitCode;

/// The C library's allocator keeps most of the memory of clients that have left.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tidegate_cli::main()
}
