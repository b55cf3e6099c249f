//! How much of the log a catching up may hold. Until a state is taken over no segment goes, and what was
//! fetched of it stays over ends of the process. Where nothing comes, because the node is cut off or nobody
//! leads, its other groups would fill the disk meanwhile. So there is a bound: for what others wrote since it
//! began, beside what was fetched. Beyond it the catching up is given up, a checkpoint of the state there is
//! lets segments go, and only then it begins anew.

use tidegate_log::Lsn;

use super::Store;
use super::apart::Apart;

/// Others may write so many times what a checkpoint is due after, and what was fetched. The more has come,
/// the dearer it is to begin anew; where others write faster than that for long, no state would ever be
/// whole.
const HELD_MAX: u64 = 8;

/// A catching up that was given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    /// Whoever fetches knows it.
    pub(super) heard: bool,
    /// A checkpoint was asked for since.
    pub(super) asked: bool,
}

impl Store {
    /// Gives up what a group has fetched and fetches, if others have written too much meanwhile.
    pub(super) fn bound_held(&mut self, at: usize) {
        if !self.members[at].is_between() || self.is_checkpointing(at) {
            return;
        }
        let held = self.held_bytes(at);
        let most = match self.log.disk_full() {
            // What could go is needed now.
            true => self.options.segment_bytes,
            false => {
                let fetched = self.members[at].apart.bytes();
                HELD_MAX * (self.options.checkpoint_bytes_min + fetched)
            }
        };
        if held <= most {
            return;
        }
        let member = &mut self.members[at];
        tracing::warn!(
            "a state that is taken over from another node holds {held} bytes that others wrote: it is given up, and begins anew"
        );
        let heard = member.catching_up.begun.is_none();
        member.catching_up.forget();
        member.catching_up.given_up = Some(GivenUp {
            heard,
            asked: false,
        });
        member.apart = Apart::default();
        member.group.forget_catch_up();
        self.review = true;
    }

    /// What others wrote since the catching up of a group began, in an earlier life, too.
    fn held_bytes(&self, at: usize) -> u64 {
        let member = &self.members[at];
        let from = [member.catching_up.begun, member.apart.from()];
        let from = from.into_iter().flatten().min();
        let written = |from: Lsn| self.end.since(from);
        from.map_or(0, written).saturating_sub(member.apart.bytes())
    }

    /// Returns whether a checkpoint of the group is due because it has given up a catching up.
    pub(super) fn lets_go(&self, at: usize) -> bool {
        let given_up = self.members[at].catching_up.given_up;
        given_up.is_some_and(|g| !g.asked)
    }

    /// A catching up that was given up may begin anew once segments could go: when the checkpoint was written
    /// that was due, or could not be, or there was none to write.
    pub(super) fn end_letting_go(&mut self, at: usize) {
        let Some(given_up) = self.members[at].catching_up.given_up else {
            return;
        };
        let tried = self.members[at].tried;
        let none_due = || self.covered(at) <= tried;
        if given_up.heard && !self.is_checkpointing(at) && (given_up.asked || none_due()) {
            self.members[at].catching_up.given_up = None;
        }
    }
}
