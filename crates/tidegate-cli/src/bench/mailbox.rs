//! `tidegate bench mailbox`.
use super::session::Session;
pub(crate) fn run(_: &mut Session) -> anyhow::Result<()> {
    Ok(())
}
