//! The boundaries of a server: the places where it cuts batches, as `/boundaries` shows them. A server
//! without that path shows fewer members of them in `/varz`.

use serde_json::Value;

use super::json::{at, flag, list, num, series, text};

/// The most boundaries, reasons and sizes that are read from an answer, and the most samples of a history.
const BOUNDARIES_MAX: usize = 64;
const REASONS_MAX: usize = 64;
const SIZES_MAX: usize = 64;
pub(crate) const HISTORY_MAX: u16 = 600;

/// A boundary. A member that the server does not know is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Boundary {
    pub(crate) name: String,
    /// The name of one item, in the plural.
    pub(crate) unit: String,
    /// True if the limit, the model and the sizes count bytes in place of items.
    pub(crate) in_bytes: bool,
    pub(crate) limit: Option<f64>,
    pub(crate) in_flight: Option<f64>,
    pub(crate) running: Option<f64>,
    pub(crate) reason: Option<String>,
    pub(crate) rate_per_s: Option<f64>,
    pub(crate) model: Option<Model>,
    pub(crate) batches: Option<f64>,
    pub(crate) items: Option<f64>,
    pub(crate) items_max: Option<f64>,
    pub(crate) waits: Option<f64>,
    pub(crate) waits_vain: Option<f64>,
    pub(crate) regret_ns: Option<f64>,
    pub(crate) resets: Option<f64>,
    pub(crate) clipped: Option<f64>,
    pub(crate) infeasible_ns: Option<f64>,
    pub(crate) infeasible: bool,
    pub(crate) frozen: bool,
    /// The batches by the reason of their cut, the most frequent reason first.
    pub(crate) by_reason: Vec<(String, f64)>,
    /// The measured costs of batches by their size, the smallest size first.
    pub(crate) sizes: Vec<Size>,
    /// The forecasts of the fitted model, by the rule: `now`, `greedy`, `half`, `twice`.
    pub(crate) forecasts: Vec<(&'static str, Forecast)>,
    pub(crate) history: Option<History>,
}

/// The fitted cost of a batch: a fixed part, and a part for each item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Model {
    pub(crate) a_ns: f64,
    pub(crate) b_ns: f64,
    pub(crate) a_err_ns: Option<f64>,
    pub(crate) b_err_ns: Option<f64>,
    pub(crate) noise: Option<f64>,
}

/// The measured cost of batches of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Size {
    pub(crate) items: f64,
    pub(crate) cost_ns: f64,
    pub(crate) batches: Option<f64>,
}

/// The batches that a rule would make at the present rate.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Forecast {
    pub(crate) items_per_s_max: Option<f64>,
    pub(crate) batch_items: Option<f64>,
    pub(crate) batch_ns: Option<f64>,
    pub(crate) batches_per_s: Option<f64>,
}

/// Samples of a boundary, about one a second, oldest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct History {
    /// The age of each sample, in seconds before the newest one.
    pub(crate) age_s: Vec<f64>,
    /// The limit at each sample.
    pub(crate) limit: Vec<f64>,
    /// The mean size of the batches before each sample, in the unit of the limit; 0 without batches.
    pub(crate) batch: Vec<f64>,
    /// The mean number of items in the batches of the last samples.
    pub(crate) recent_items: Option<f64>,
    /// The batches of the whole history by reason, the most frequent reason first.
    pub(crate) by_reason: Vec<(String, f64)>,
}

/// The number of samples of which the recent mean goes.
const RECENT: usize = 10;

/// The rules that the server compares, in the order of the picture.
const RULES: [&str; 4] = ["now", "greedy", "half", "twice"];

/// Reads the answer to `/boundaries`; `None` if it has another form.
pub(crate) fn read(body: &Value) -> Option<Vec<Boundary>> {
    let all = at(body, "boundaries").as_array()?;
    Some(all.iter().take(BOUNDARIES_MAX).map(boundary).collect())
}

/// Reads the boundaries that `/varz` shows, for a server without `/boundaries`; `None` if there are none.
pub(crate) fn from_server(body: &Value) -> Option<Vec<Boundary>> {
    let all = at(body, "batching").as_object()?;
    let one = |(name, value): (&String, &Value)| Boundary {
        name: name.clone(),
        unit: "items".into(),
        limit: num(value, "limit"),
        reason: text(value, "binding").map(str::to_owned),
        model: num(value, "cost_fixed_ns")
            .zip(num(value, "cost_item_ns"))
            .map(|(a_ns, b_ns)| Model {
                a_ns,
                b_ns,
                a_err_ns: None,
                b_err_ns: None,
                noise: None,
            }),
        batches: num(value, "batches"),
        items: num(value, "items"),
        items_max: num(value, "batch_max"),
        waits: num(value, "waits"),
        by_reason: reasons(at(value, "by_reason"), Value::as_f64),
        ..Boundary::default()
    };
    Some(all.iter().take(BOUNDARIES_MAX).map(one).collect())
}

fn boundary(value: &Value) -> Boundary {
    let in_bytes = text(value, "size_unit") == Some("bytes");
    let own = |path: &str| text(value, path).map(str::to_owned);
    Boundary {
        name: own("name").unwrap_or_default(),
        unit: own("unit").unwrap_or_else(|| "items".into()),
        in_bytes,
        limit: num(value, "limit"),
        in_flight: num(value, "in_flight"),
        running: num(value, "running"),
        reason: own("reason"),
        rate_per_s: num(value, "rate_per_s"),
        model: model(at(value, "model")),
        batches: num(value, "batches"),
        items: num(value, "items"),
        items_max: num(value, "items_max"),
        waits: num(value, "waits"),
        waits_vain: num(value, "waits_vain"),
        regret_ns: num(value, "regret_ns"),
        resets: num(value, "resets"),
        clipped: num(value, "clipped"),
        infeasible_ns: num(value, "infeasible_ns"),
        infeasible: flag(value, "infeasible"),
        frozen: flag(value, "frozen"),
        by_reason: reasons(at(value, "by_reason"), Value::as_f64),
        sizes: sizes(list(value, "sizes")),
        forecasts: forecasts(at(value, "counterfactual")),
        history: history(at(value, "history"), in_bytes),
    }
}

fn model(value: &Value) -> Option<Model> {
    Some(Model {
        a_ns: num(value, "a_ns")?,
        b_ns: num(value, "b_ns")?,
        a_err_ns: num(value, "a_err_ns"),
        b_err_ns: num(value, "b_err_ns"),
        noise: num(value, "noise"),
    })
}

/// Reads counts by reason, leaves out zeros, and puts the most frequent reason first.
fn reasons(value: &Value, count: impl Fn(&Value) -> Option<f64>) -> Vec<(String, f64)> {
    let all = value.as_object().into_iter().flatten().take(REASONS_MAX);
    let mut read: Vec<_> = all
        .filter_map(|(reason, n)| Some((reason.clone(), count(n).filter(|n| *n > 0.0)?)))
        .collect();
    read.sort_by(|a, b| b.1.total_cmp(&a.1));
    read
}

fn sizes(all: &[Value]) -> Vec<Size> {
    let one = |value: &Value| {
        Some(Size {
            items: num(value, "items")?,
            cost_ns: num(value, "cost_ns")?,
            batches: num(value, "batches"),
        })
    };
    let mut read: Vec<Size> = all.iter().take(SIZES_MAX).filter_map(one).collect();
    read.sort_by(|a, b| a.items.total_cmp(&b.items));
    read
}

fn forecasts(value: &Value) -> Vec<(&'static str, Forecast)> {
    let one = |rule: &'static str| {
        let of = at(value, rule);
        let forecast = Forecast {
            items_per_s_max: num(of, "items_per_s_max"),
            batch_items: num(of, "batch_items"),
            batch_ns: num(of, "batch_ns"),
            batches_per_s: num(of, "batches_per_s"),
        };
        (forecast != Forecast::default()).then_some((rule, forecast))
    };
    RULES.into_iter().filter_map(one).collect()
}

fn history(value: &Value, in_bytes: bool) -> Option<History> {
    let most = usize::from(HISTORY_MAX);
    let limit = series(value, "limit", most);
    if limit.is_empty() {
        return None;
    }
    let items = series(value, "items", most);
    let batches = series(value, "batches", most);
    let sizes = match in_bytes {
        true => series(value, "bytes", most),
        false => items.clone(),
    };
    let mean = |(size, batches): (&f64, &f64)| match *batches > 0.0 {
        true => size / batches,
        false => 0.0,
    };
    let times = series(value, "uptime_ms", most);
    let age_s = match times.last().filter(|_| times.len() == limit.len()) {
        Some(last) => times.iter().map(|t| ((last - t) / 1e3).max(0.0)).collect(),
        None => (0..limit.len()).rev().map(|n| n as f64).collect(),
    };
    let last = |all: &[f64]| all.iter().rev().take(RECENT).sum::<f64>();
    let recent = (last(&items), last(&batches));
    let sum = |all: &Value| {
        let all = all.as_array()?.iter().filter_map(Value::as_f64);
        Some(all.filter(|n| n.is_finite()).sum())
    };
    Some(History {
        age_s,
        limit,
        batch: sizes.iter().zip(&batches).map(mean).collect(),
        recent_items: (recent.1 > 0.0).then(|| recent.0 / recent.1),
        by_reason: reasons(at(value, "by_reason"), sum),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_members_are_read() {
        let body: Value = serde_json::from_str(crate::top::recorded::BOUNDARIES).unwrap();
        let all = read(&body).unwrap();
        let syncs = all.iter().find(|b| b.name == "log_syncs").unwrap();
        assert!(syncs.limit.is_some() && syncs.model.is_some());
        assert!(!syncs.by_reason.is_empty());
        assert!(
            syncs
                .by_reason
                .windows(2)
                .all(|pair| pair[0].1 >= pair[1].1)
        );
        let rules: Vec<_> = syncs.forecasts.iter().map(|(rule, _)| *rule).collect();
        assert_eq!(rules, RULES);
        let history = syncs.history.as_ref().unwrap();
        assert_eq!(history.limit.len(), history.batch.len());
    }

    #[test]
    fn absent_members_stay_absent() {
        let body = json!({ "boundaries": [
            { "name": "a", "reason": null, "model": null, "counterfactual": null, "limit": "7",
              "sizes": [{ "items": 1 }, 7], "history": { "limit": [] } },
            7,
        ] });
        let all = read(&body).unwrap();
        let nameless = Boundary {
            unit: "items".into(),
            ..Boundary::default()
        };
        assert_eq!(
            all,
            [
                Boundary {
                    name: "a".into(),
                    ..nameless.clone()
                },
                nameless
            ]
        );
        assert_eq!(read(&json!({ "boundaries": {} })), None);
        assert_eq!(from_server(&json!({ "batching": [] })), None);
    }

    #[test]
    fn a_history_has_the_mean_batch_of_each_second() {
        let body = json!({ "boundaries": [{ "history": {
            "limit": [8, 8, 8], "items": [10, 0, 6], "batches": [5, 0, 1],
            "by_reason": { "limit": [1, 0, 0], "drained": [4, 0, 1], "age": [0, 0, 0] },
        } }] });
        let all = read(&body).unwrap();
        let history = all[0].history.as_ref().unwrap();
        assert_eq!(history.batch, [2.0, 0.0, 6.0]);
        assert_eq!(history.age_s, [2.0, 1.0, 0.0]);
        assert_eq!(history.recent_items, Some(16.0 / 6.0));
        assert_eq!(
            history.by_reason,
            [("drained".into(), 5.0), ("limit".into(), 1.0)]
        );
    }

    #[test]
    fn a_limit_in_bytes_is_compared_with_bytes() {
        let body = json!({ "boundaries": [{ "size_unit": "bytes", "history": {
            "uptime_ms": [1000, 9000], "limit": [4096, 4096], "items": [10, 6], "bytes": [1000, 600],
            "batches": [5, 1],
        } }] });
        let all = read(&body).unwrap();
        assert!(all[0].in_bytes);
        let history = all[0].history.as_ref().unwrap();
        assert_eq!(history.batch, [200.0, 600.0]);
        assert_eq!(history.age_s, [8.0, 0.0]);
    }

    #[test]
    fn an_older_server_shows_some_members() {
        let body = json!({ "batching": { "log_syncs": {
            "limit": 512, "binding": "drained", "batches": 4, "items": 8, "batch_max": 3,
            "cost_fixed_ns": 1000.5, "cost_item_ns": 2.0, "by_reason": { "drained": 4 },
        } } });
        let all = from_server(&body).unwrap();
        assert_eq!(all[0].name, "log_syncs");
        assert_eq!(all[0].model.map(|m| (m.a_ns, m.b_ns)), Some((1000.5, 2.0)));
        assert_eq!(all[0].reason.as_deref(), Some("drained"));
    }
}
