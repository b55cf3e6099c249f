//! The batch that an actor is gathering: the entries that it takes, and the limit at which it is cut.

use super::batch::Batch;
use super::handler::{Append, Op};
use super::keys::Keys;
use super::retry::Retried;
use super::shared::Entry;
use crate::boundary::Cut;
use crate::controller::Load;

/// The record of the batch that an actor is gathering: its limit, and the load that the actor took out of the
/// queue for it.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) limit: Load,
    pub(super) load: Load,
    /// The bytes of items that the actor took out of the queue and left out of the batch, because their
    /// callers gave up. These bytes no longer wait, so the actor returns their credit.
    pub(super) void: u64,
    pub(super) cancelled: u64,
    /// The number of calls in the batch being gathered, which the actor reports to the controller.
    pub(super) calls: u64,
    pub(super) cut: Option<Cut>,
}

impl Gathered {
    /// Puts an entry into the batch, or sets it aside if a running batch holds its key. Returns the entry
    /// if the batch can take no more.
    #[inline]
    pub(super) fn offer_by_key<T, R, M>(
        &mut self,
        entry: Entry<T, R, M>,
        keys: &mut Option<Keys<T, R, M>>,
        batch: &mut Batch<T, R, M>,
        append: &mut impl FnMut(&mut Batch<T, R, M>, Op<T, R, M>) -> Append,
    ) -> Option<Entry<T, R, M>> {
        let Some(keys) = keys else {
            return self.offer(entry, batch, append);
        };
        if self.cut.is_some() {
            return Some(entry);
        }
        let back = self.offer(keys.admit(entry)?, batch, append);
        if back.is_some() {
            keys.refuse();
        }
        back
    }

    /// Puts an entry into the batch. Returns the entry if the batch can take no more.
    #[inline]
    fn offer<T, R, M>(
        &mut self,
        entry: Entry<T, R, M>,
        batch: &mut Batch<T, R, M>,
        append: &mut impl FnMut(&mut Batch<T, R, M>, Op<T, R, M>) -> Append,
    ) -> Option<Entry<T, R, M>> {
        if self.cut.is_some() {
            return Some(entry);
        }
        // Casts within the batch's limit on bytes have a code path of their own. In one path with the other
        // operations, the compiler would build each cast elsewhere and then move it, which costs more than
        // all other steps.
        match entry {
            Entry::Cast(weight, item) if !self.is_over(weight) => {
                self.count(weight);
                let appended = append(batch, Op::Cast(item));
                self.look_at_limits(appended);
                None
            }
            entry => self.offer_other(entry, batch, append),
        }
    }

    /// Puts an entry into the batch like [`offer`](Self::offer), for every entry except a cast within the
    /// limit on bytes.
    #[inline(never)]
    fn offer_other<T, R, M>(
        &mut self,
        entry: Entry<T, R, M>,
        batch: &mut Batch<T, R, M>,
        append: &mut impl FnMut(&mut Batch<T, R, M>, Op<T, R, M>) -> Append,
    ) -> Option<Entry<T, R, M>> {
        let appended = match entry {
            Entry::Wake => return None,
            Entry::Call(weight, _, ref reply) if !reply.is_wanted() => {
                self.void += u64::from(weight);
                self.cancelled += 1;
                return None;
            }
            Entry::Cast(weight, _) | Entry::Call(weight, _, _) if self.is_over(weight) => {
                self.cut = Some(Cut::Bytes);
                return Some(entry);
            }
            Entry::Cast(weight, item) => {
                self.count(weight);
                append(batch, Op::Cast(item))
            }
            Entry::Call(weight, item, reply) => {
                self.count(weight);
                self.calls += 1;
                append(batch, Op::Call(item, reply))
            }
            Entry::Info(message) => {
                self.count(0);
                append(batch, Op::Info(message))
            }
            Entry::Retry(retried) => match self.offer_again(retried, batch, append) {
                Ok(appended) => appended,
                Err(back) => return back,
            },
        };
        self.look_at_limits(appended);
        None
    }

    /// Cuts the batch if the handler finished it, or if the batch has reached a limit.
    #[inline]
    fn look_at_limits(&mut self, appended: Append) {
        if appended == Append::Finish {
            self.cut = Some(Cut::Finished);
        } else if self.load.bytes > self.limit.bytes {
            self.cut = Some(Cut::Oversized);
        } else if self.load.items >= self.limit.items {
            self.cut = Some(Cut::Items);
        }
    }

    /// Puts an operation that the handler gave back into the batch. If the batch can take no more, the
    /// error holds the entry. If the caller of the operation gave up, the error holds nothing.
    #[cold]
    fn offer_again<T, R, M>(
        &mut self,
        retried: Box<Retried<T, R, M>>,
        batch: &mut Batch<T, R, M>,
        append: &mut impl FnMut(&mut Batch<T, R, M>, Op<T, R, M>) -> Append,
    ) -> Result<Append, Option<Entry<T, R, M>>> {
        if retried.is_void() {
            self.void += u64::from(retried.weight);
            self.cancelled += 1;
            return Err(None);
        }
        if self.is_over(retried.weight) {
            self.cut = Some(Cut::Bytes);
            return Err(Some(Entry::Retry(retried)));
        }
        let Retried {
            weight,
            attempt,
            op,
        } = *retried;
        self.count(weight);
        self.calls += u64::from(matches!(op, Op::Call(..)));
        let before = batch.ops().len();
        let appended = append(batch, op);
        batch.note_attempt(before, attempt);
        Ok(appended)
    }

    /// Counts an item in the batch. The actor counts before it runs user code: if that code panics, the
    /// item is lost with the batch.
    #[inline]
    fn count(&mut self, weight: u32) {
        self.load.items += 1;
        self.load.bytes += u64::from(weight);
    }

    /// Returns whether an item of this weight would take the batch over its limit on bytes, so that the batch
    /// ends before the item. The first item of a batch may exceed that limit.
    #[inline]
    fn is_over(&self, weight: u32) -> bool {
        self.load.items > 0 && self.load.bytes + u64::from(weight) > self.limit.bytes
    }
}
