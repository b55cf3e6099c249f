//! Computes the cost of other limits at a boundary from its fitted model: the counterfactual. Pure.
//!
//! A batch of n costs a + b·n. The boundary starts a batch as soon as the batch before it has ended, and a
//! batch takes the items that arrived meanwhile, up to the limit. At the rate r the batches therefore settle
//! at n = r·(a + b·n), which is n = r·a / (1 - r·b), unless the limit is lower. Several batches that run at
//! once share the arrivals, and the model assumes that they do not slow each other down.

use serde::Serialize;
use tidegate::controller::Model;

/// The batches that one limit gives at the present rate, by the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// The most items a second that the boundary can handle with this limit; `None` without a bound.
    pub items_per_s_max: Option<f64>,
    /// The number of items of a batch; `None` if batches grow without end, because more items arrive than the
    /// boundary can handle.
    pub batch_items: Option<f64>,
    /// The time that a batch takes, in nanoseconds; `None` if batches grow without end.
    pub batch_ns: Option<f64>,
    /// The number of batches a second; `None` if batches grow without end.
    pub batches_per_s: Option<f64>,
}

/// The outcomes of the limit in force and of three other limits, for a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Outcomes {
    /// The outcome of the limit in force.
    pub now: Outcome,
    /// The outcome without a limit: each batch takes all items that wait.
    pub greedy: Outcome,
    /// The outcome of half the limit.
    pub half: Outcome,
    /// The outcome of twice the limit.
    pub twice: Outcome,
}

/// The facts about a boundary, besides its limit, from which the outcome of a limit follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    pub(crate) model: Model,
    /// The size of one item in the unit of the model: 1, or its bytes.
    pub(crate) item: f64,
    pub(crate) items_per_s: f64,
    pub(crate) in_flight: u32,
}

impl Demand {
    /// Computes the outcomes of `limit`, in the unit of the model, and of three other limits.
    pub(crate) fn outcomes(&self, limit: f64) -> Outcomes {
        Outcomes {
            now: self.outcome(limit),
            greedy: self.outcome(f64::INFINITY),
            half: self.outcome(limit / 2.0),
            twice: self.outcome(limit * 2.0),
        }
    }

    fn outcome(&self, limit: f64) -> Outcome {
        let (a, b) = (self.model.a_ns, self.model.b_ns);
        let item = self.item.max(1e-9);
        let limit = limit.max(item);
        let many = f64::from(self.in_flight.max(1));
        let per_ns = self.items_per_s.max(0.0) * item / 1e9;
        // The most that one batch after the other handles, in units a nanosecond.
        let most = match limit.is_finite() {
            true => many * limit / (a + b * limit),
            false => many / b,
        };
        let spare = many - per_ns * b;
        let size = match spare > 0.0 {
            true => (per_ns * a / spare).clamp(item, limit),
            false => limit,
        };
        let cost = a + b * size;
        let batches = match per_ns < most {
            true => per_ns / size,
            false => many / cost,
        };
        Outcome {
            items_per_s_max: finite(most / item * 1e9),
            batch_items: finite(size / item),
            batch_ns: finite(cost),
            batches_per_s: finite(batches * 1e9).filter(|_| size.is_finite()),
        }
    }
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn demand(a_ns: f64, b_ns: f64, items_per_s: f64) -> Demand {
        let model = Model {
            a_ns,
            b_ns,
            ..Model::default()
        };
        Demand {
            model,
            item: 1.0,
            items_per_s,
            in_flight: 1,
        }
    }

    #[test]
    fn greedy_batches_settle_where_arrivals_equal_the_batch() {
        // 1 ms and 1 us an item at 500,000 items a second: n = 0.0005 * 1e6 / (1 - 0.5) = 1000.
        let out = demand(1e6, 1e3, 500_000.0).outcomes(4000.0);
        assert_eq!(out.greedy.batch_items, Some(1000.0));
        assert_eq!(out.greedy.batch_ns, Some(2e6));
        assert_eq!(out.greedy.batches_per_s, Some(500.0));
        assert_eq!(out.greedy.items_per_s_max, Some(1e6));
        assert_eq!(out.now.batch_items, Some(1000.0));
        assert_eq!(out.now.items_per_s_max, Some(800_000.0));
    }

    #[test]
    fn a_limit_below_the_natural_batch_caps_the_rate() {
        let out = demand(1e6, 1e3, 500_000.0).outcomes(500.0);
        assert_eq!(out.now.batch_items, Some(500.0));
        let most = out.now.items_per_s_max.unwrap();
        assert!((most - 333_333.3).abs() < 1.0, "{most}");
        assert!(out.half.items_per_s_max.unwrap() < most);
        assert!(out.twice.items_per_s_max.unwrap() > most);
    }

    #[test]
    fn batches_grow_without_end_where_each_item_costs_more_than_its_share_of_time() {
        let out = demand(1e6, 1e3, 2e6).outcomes(500.0);
        assert_eq!(out.greedy.batch_items, None);
        assert_eq!(out.greedy.batches_per_s, None);
        assert_eq!(out.now.batch_items, Some(500.0));
    }

    #[test]
    fn bytes_count_as_items_of_their_mean_size() {
        let mut demand = demand(1e6, 1.0, 500_000.0);
        demand.item = 1000.0;
        let out = demand.outcomes(4e6);
        assert_eq!(out.greedy.batch_items, Some(1000.0));
        assert_eq!(out.now.items_per_s_max, Some(800_000.0));
    }

    proptest! {
        /// A higher limit never lowers the most that a boundary handles, and no outcome is below one item.
        #[test]
        fn outcomes_are_ordered(
            a in 0.0..1e9f64, b in 1e-6..1e6f64, rate in 0.0..1e8f64, limit in 0.0..1e9f64,
            item in 1.0..1e6f64, in_flight in 0u32..100,
        ) {
            let demand = Demand { item, in_flight, ..demand(a, b, rate) };
            let out = demand.outcomes(limit);
            let most = |o: Outcome| o.items_per_s_max.unwrap_or(f64::INFINITY);
            prop_assert!(most(out.half) <= most(out.now) * (1.0 + 1e-9));
            prop_assert!(most(out.now) <= most(out.twice) * (1.0 + 1e-9));
            prop_assert!(most(out.twice) <= most(out.greedy) * (1.0 + 1e-9));
            for o in [out.now, out.greedy, out.half, out.twice] {
                prop_assert!(o.batch_items.is_none_or(|n| n >= 1.0 - 1e-9));
                prop_assert!(o.batches_per_s.is_none_or(|n| n >= 0.0));
                let handled = o.batches_per_s.unwrap_or(0.0) * o.batch_items.unwrap_or(0.0);
                prop_assert!(handled <= rate.max(1e-9) * (1.0 + 1e-6), "{o:?}");
            }
        }
    }
}
