//! Our own client in this bench.

use std::io;

use tidegate_load::serve;

use super::{Cell, Who};
use crate::ALLOCATOR;

/// The settings of ours that take part.
pub(super) fn settings(_cell: &Cell, _full: bool) -> Vec<Who> {
    Vec::new()
}

/// What the process of our own callers does.
pub(crate) fn serve_callers() -> anyhow::Result<()> {
    let allocated = || {
        let stats = ALLOCATOR.stats();
        let count = stats.allocations + stats.reallocations;
        (count as u64, stats.bytes_allocated as u64)
    };
    serve(io::stdin().lock(), io::stdout().lock(), &[], allocated)?;
    Ok(())
}
