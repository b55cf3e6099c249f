//! The outputs of closures that handle batches: one trait for closures, async closures and shared closures.

use super::batch::Batch;
use super::handler::{Failure, Flow, Handled};

/// The output of a closure that handles batches: `()`, a [`Flow`], one reply an item in a `Vec`, or a
/// `Result` of any of these, so that `?` works in the closure.
///
/// ```
/// use tidegate::batcher::{Builder, each_batch};
///
/// let lengths = Builder::new().spawn(each_batch(|words: &mut Vec<String>| {
///     words.iter().map(|word| u8::try_from(word.len())).collect::<Result<Vec<_>, _>>()
/// }))?;
/// assert_eq!(lengths.blocking_call("tide".to_owned())?, 4);
/// assert!(lengths.blocking_call("~".repeat(300)).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Outcome {
    /// The answer that the caller of an item gets; `()` if callers learn only that the closure handled the
    /// batch.
    type Reply: Send + 'static;

    /// Answers the callers of the items that the closure took out of `batch`, and returns the result of the
    /// batch for the actor.
    ///
    /// # Errors
    /// The closure returned an error, so the batch failed.
    fn answer<T, M>(self, batch: &mut Batch<T, Self::Reply, M>) -> Handled;
}

impl Outcome for () {
    type Reply = ();

    fn answer<T, M>(self, batch: &mut Batch<T, (), M>) -> Handled {
        Flow::Continue.answer(batch)
    }
}

impl Outcome for Flow {
    type Reply = ();

    fn answer<T, M>(self, batch: &mut Batch<T, (), M>) -> Handled {
        batch.answer_all(());
        Ok(self)
    }
}

impl<R: Send + 'static> Outcome for Vec<R> {
    type Reply = R;

    fn answer<T, M>(self, batch: &mut Batch<T, R, M>) -> Handled {
        batch.answer(self);
        Ok(Flow::Continue)
    }
}

impl<O: Outcome, E: Into<Failure>> Outcome for Result<O, E> {
    type Reply = O::Reply;

    fn answer<T, M>(self, batch: &mut Batch<T, O::Reply, M>) -> Handled {
        self.map_err(Into::into)?.answer(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::super::handler::Op;
    use super::super::reply::{ReplyError, Request, pair};
    use super::*;

    /// Returns a batch of one call, after its item was taken out.
    fn batch<R>() -> (Batch<u32, R>, Request<R>) {
        let mut batch = Batch::new();
        let (reply, request) = pair();
        batch.push(Op::Call(1, reply));
        batch.take_items(&mut Vec::new());
        (batch, request)
    }

    #[test]
    fn each_outcome_answers_or_fails() {
        let (mut of, request) = batch();
        assert!(matches!(().answer(&mut of), Ok(Flow::Continue)));
        assert!(request.blocking_wait().is_ok());
        let (mut of, request) = batch();
        let stop = Ok::<_, std::fmt::Error>(Flow::stop("enough"));
        assert!(matches!(stop.answer(&mut of), Ok(Flow::Stop(_))));
        assert!(request.blocking_wait().is_ok());
        let (mut of, request) = batch();
        assert!(vec![7].answer(&mut of).is_ok());
        assert_eq!(request.blocking_wait().unwrap(), 7);
        let (mut of, mut request) = batch::<u32>();
        let failed = Err::<Vec<u32>, _>("disk full").answer(&mut of);
        assert_eq!(failed.unwrap_err().to_string(), "disk full");
        assert!(request.try_take().is_none(), "its driver fails the batch");
        let (mut of, request) = batch();
        assert!(vec![1, 2].answer(&mut of).is_ok());
        let answer = request.blocking_wait();
        assert!(matches!(answer, Err(ReplyError::ResultCount { .. })));
    }
}
