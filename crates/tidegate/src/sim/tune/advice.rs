//! Says in one sentence which controller to take, from the predicted figures.

use super::ALIKE;
use super::model::{Figures, Prediction};
use crate::controller::Choice;

/// The share of a figure of the default that a controller must keep, so that the advice names it with its
/// price.
const FAIR: f64 = 0.2;

/// A figure that can be better or worse.
struct Kind {
    name: &'static str,
    of: fn(&Figures) -> Option<f64>,
    /// True if a larger value is better.
    more: bool,
}

const THROUGHPUT: Kind = Kind {
    name: "throughput",
    of: |f| f.items_per_s,
    more: true,
};
const MEAN: Kind = Kind {
    name: "mean latency",
    of: |f| f.mean_ns,
    more: false,
};
const P99: Kind = Kind {
    name: "p99",
    of: |f| f.p99_ns,
    more: false,
};
const BATCHES: Kind = Kind {
    name: "batches",
    of: |f| f.batches_per_s,
    more: false,
};

impl Kind {
    /// Returns the figure of `other` over that of `base`: above 1 is better. `None` if one of them is not
    /// known.
    fn gain(&self, base: &Figures, other: &Figures) -> Option<f64> {
        let (base, other) = ((self.of)(base)?, (self.of)(other)?);
        let ratio = if self.more {
            other / base
        } else {
            base / other
        };
        ratio.is_finite().then_some(ratio)
    }

    /// Says how much higher or lower the figure of `other` is.
    fn change(&self, base: &Figures, other: &Figures) -> String {
        let ratio = match ((self.of)(base), (self.of)(other)) {
            (Some(base), Some(other)) if base > 0.0 => other / base,
            _ => return format!("unknown {}", self.name),
        };
        match ratio {
            r if r >= 2.0 => format!("{r:.1} times the {}", self.name),
            r if r >= 1.0 => format!("{:.0} % more {}", (r - 1.0) * 100.0, self.name),
            r => format!("{:.0} % less {}", (1.0 - r) * 100.0, self.name),
        }
    }
}

/// Says in one sentence which controller to take: another one only if it is better than the default in
/// throughput or latency by more than [`ALIKE`](super::ALIKE) and by more than twice `error`, the error of
/// the model ([`Model::error`](super::Model::error)), and worse in neither. If none is, the sentence names
/// the controller that buys most, and its price.
#[must_use]
pub fn advise(predictions: &[Prediction], error: f64) -> String {
    // Both predictions may be off by the error, in opposite directions.
    let margin = ALIKE.max((1.0 + error).powi(2) - 1.0);
    let percent = (margin * 100.0).round();
    let Some(base) = predictions.iter().find(|p| p.choice == Choice::KNEE) else {
        return "the default was not among the controllers, so there is nothing to compare with"
            .into();
    };
    let base = &base.figures;
    if base.items_per_s.is_none() || base.p99_ns.is_none() {
        return "no advice: the trace does not tell the figures of the default".into();
    }
    let others = || {
        let others = predictions.iter().filter(|p| p.choice != Choice::KNEE);
        others.filter(|p| p.figures.p99_ns.is_some())
    };
    let counts = [THROUGHPUT, MEAN, P99];
    let worst = |p: &Prediction| {
        let gains = counts.iter().filter_map(|kind| kind.gain(base, &p.figures));
        gains.fold(f64::INFINITY, f64::min)
    };
    let most = |p: &Prediction| {
        let gains = counts.iter().filter_map(|kind| kind.gain(base, &p.figures));
        gains.fold(0.0, f64::max)
    };
    let better = others().filter(|p| worst(p) > 1.0 / (1.0 + ALIKE) && most(p) > 1.0 + margin);
    if let Some(best) = better.max_by(|a, b| most(a).total_cmp(&most(b))) {
        let changes: Vec<_> = counts
            .iter()
            .filter(|kind| {
                kind.gain(base, &best.figures)
                    .is_some_and(|g| g > 1.0 + ALIKE)
            })
            .map(|kind| kind.change(base, &best.figures))
            .collect();
        return format!(
            "try `{}`: {} than the default, and nothing worse by more than 5 %",
            best.choice,
            changes.join(", ")
        );
    }
    let keep = format!("keep the default: nothing here is better by more than {percent} %");
    let kinds = [&THROUGHPUT, &P99, &BATCHES];
    let buys = kinds.iter().filter_map(|kind| {
        let gain = |p: &Prediction| kind.gain(base, &p.figures).unwrap_or(0.0);
        let is_fair = |p: &&Prediction| {
            let rate = THROUGHPUT.gain(base, &p.figures);
            worst(p) >= FAIR && rate.is_none_or(|rate| rate >= 1.0 - 4.0 * ALIKE)
        };
        let fair = others().filter(is_fair);
        let best = fair.max_by(|a, b| gain(a).total_cmp(&gain(b)))?;
        (gain(best) > 1.0 + margin + 3.0 * ALIKE).then(|| (gain(best), kind, best))
    });
    let Some((_, kind, buy)) = buys.max_by(|a, b| a.0.total_cmp(&b.0)) else {
        return keep;
    };
    let prices = [&THROUGHPUT, &MEAN, &P99, &BATCHES].into_iter();
    let price = prices
        .filter(|price| price.name != kind.name)
        .filter_map(|price| Some((price.gain(base, &buy.figures)?, price)))
        .min_by(|a, b| a.0.total_cmp(&b.0));
    let price = price.map_or_else(String::new, |(_, price)| price.change(base, &buy.figures));
    format!(
        "{keep} without a price; `{}` buys {} for {price}",
        buy.choice,
        kind.change(base, &buy.figures)
    )
}
