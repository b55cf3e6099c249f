//! Tests of traces, models and advice on small traces written by hand.

use std::fmt::Write as _;
use std::time::Duration;

use super::stretch::KEEP;
use super::*;
use crate::controller::{Choice, Objective};

const HEADER: &str = "tidegate-decisions 1\n";
const BEGINS: &str = "rows begins 1 64 1000000 1000000000 1\n";

fn read(text: &str) -> Result<Trace, TraceError> {
    let mut reader = TraceReader::new();
    reader.handle_bytes(text.as_bytes())?;
    reader.finish()
}

/// Appends a batch of `items` items that arrive at `at` and start at once, for `cost` nanoseconds.
fn batch(text: &mut String, at: u64, id: u64, items: u64, cost: u64) {
    let decision = "> 64 1000000 1 now drained";
    let end = at + cost;
    let _ = write!(
        text,
        "rows {at} arrived {items} 0 {decision}\n\
         rows {at} ready {items} 0 {at} {decision}\n\
         rows {at} started {id} {items} 0 0 0 drained {decision}\n\
         rows {end} done {id} {cost} 1 {decision}\n"
    );
}

/// Returns a trace of batches of 1 to 8 items that cost 1000 ns and 100 ns an item, one every 10 us.
fn trace(batches: u64) -> String {
    let mut text = format!("{HEADER}{BEGINS}");
    for id in 0..batches {
        let items = 1 + id % 8;
        batch(&mut text, id * 10_000, id, items, 1000 + 100 * items);
    }
    text
}

#[test]
fn a_text_that_is_no_trace_says_so() {
    let version = |found: &str, expected| TraceError::Version {
        found: found.into(),
        expected,
    };
    for (text, error) in [
        ("", TraceError::Empty),
        ("tidegate-dec", TraceError::Header),
        ("\n", TraceError::Header),
        ("\u{0}\u{1}ELF\n", TraceError::Header),
        (
            "tidegate-decisions 2\n",
            version("2", "tidegate-decisions 1"),
        ),
        ("tidegate-log 1\n", version("1", "tidegate-log 2")),
        ("tidegate-decisions one\n", TraceError::Header),
    ] {
        assert_eq!(read(text).err(), Some(error), "{text:?}");
    }
    for (line, says) in [
        ("rows", "line 3: expected the name of a boundary"),
        ("acks 5 blocking > 1 1 1 now drained", "a line `begins`"),
        ("rows begins 0 1 1 1 1", "sound bounds"),
        ("rows begins 1 2 3", "sound bounds"),
        ("rows lost many", "the number of lost entries"),
        ("rows 5 sleeping > 1 1 1 now drained", "found `sleeping`"),
        (&*"x".repeat(5000), "line 3 is longer than"),
    ] {
        let error = read(&format!("{HEADER}{BEGINS}{line}\n")).err().unwrap();
        assert!(error.to_string().contains(says), "{line:.40}: {error}");
    }
    let mut reader = TraceReader::new();
    reader
        .handle_bytes(format!("{HEADER}{BEGINS}").as_bytes())
        .unwrap();
    let error = reader.handle_bytes(b"rows \xff\n").unwrap_err();
    assert_eq!(error, TraceError::Binary { line: 3 });
    // A file without line feeds does not fill the memory.
    let mut reader = TraceReader::new();
    assert_eq!(
        reader.handle_bytes(&[b'x'; 100_000]),
        Err(TraceError::Header)
    );
}

#[test]
fn a_trace_may_come_in_any_pieces() {
    let text = trace(60);
    let whole = read(&text).unwrap();
    let mut reader = TraceReader::new();
    for byte in text.bytes() {
        reader.handle_bytes(&[byte]).unwrap();
    }
    let pieces = reader.finish().unwrap();
    assert_eq!(whole.lines, pieces.lines);
    let figures = |trace: &Trace| Model::fit(&trace.boundaries[0]).unwrap().recorded();
    assert_eq!(figures(&whole), figures(&pieces));
    // The last line is cut off: its batch has not ended.
    let cut = read(&text[..text.len() - 5]).unwrap();
    assert!(cut.is_cut && !whole.is_cut);
    assert_eq!(cut.lines, whole.lines - 1);
}

#[test]
fn gaps_and_clocks_that_go_back_end_a_stretch() {
    let mut text = trace(60);
    text += "rows lost 7\n";
    for id in 0..80 {
        batch(&mut text, 1_000_000 + id * 10_000, 100 + id, 2, 1200);
    }
    batch(&mut text, 500_000, 300, 2, 1200);
    let trace = read(&text).unwrap();
    let rows = &trace.boundaries[0];
    assert_eq!(
        (rows.lost, rows.gaps, rows.went_back, rows.begins),
        (7, 1, 1, 1)
    );
    // The second stretch is the longest.
    let model = Model::fit(rows).unwrap();
    assert_eq!(model.used().0, 80);
    let other = read(&format!("{text}{BEGINS}")).unwrap();
    assert_eq!(other.boundaries[0].begins, 2);
}

#[test]
fn figures_count_from_the_arrival() {
    let model = Model::fit(&read(&trace(800)).unwrap().boundaries[0]).unwrap();
    let recorded = model.recorded();
    // Batches of 1 to 8 items, of which the larger ones have more items: the mean of 100·n over all items.
    let mean = 1000.0 + 100.0 * (1..=8).map(|n| f64::from(n * n)).sum::<f64>() / 36.0;
    assert!(
        (recorded.mean_ns.unwrap() - mean).abs() < 5.0,
        "{recorded:?}"
    );
    assert_eq!(recorded.p99_ns, Some(1800.0));
    assert!((recorded.batches_per_s.unwrap() / 1e5 - 1.0).abs() < 0.01);
    let (a, b, noise) = model.cost();
    assert!((a - 1000.0).abs() < 1.0 && (b - 100.0).abs() < 1.0 && noise < 0.01);
    assert_eq!(model.sizes(), (1, 8));
    assert_eq!(model.source(), Source::Arrivals);
    let same = model.predict(Choice::GREEDY, 1, &mut |_| true).unwrap();
    let ratio = same.figures.mean_ns.unwrap() / recorded.mean_ns.unwrap();
    assert!((ratio - 1.0).abs() < 0.01, "{same:?}");
    let stopped = model.predict(Choice::GREEDY, 1, &mut |_| false);
    assert!(stopped.is_ok() || stopped == Err(PredictError::Stopped));
}

#[test]
fn unmeasured_sizes_are_not_known() {
    // 64 items arrive together and leave in batches of 2: the trace has no cost of a larger batch.
    let decision = "> 2 1000000 1 now limit";
    let mut text = format!("{HEADER}{BEGINS}");
    for round in 0..100u64 {
        let from = round * 1_000_000 + round * round % 17 * 50_000;
        let _ = writeln!(text, "rows {from} arrived 64 0 {decision}");
        for i in 0..32 {
            let (at, left) = (from + i * 1200, 62 - 2 * i);
            let id = round * 32 + i;
            let end = at + 1200;
            let _ = write!(
                text,
                "rows {at} ready {} 0 {from} {decision}\n\
                 rows {at} started {id} 2 0 {left} 0 limit {decision}\n\
                 rows {end} done {id} 1200 1 {decision}\n",
                left + 2
            );
        }
    }
    let model = Model::fit(&read(&text).unwrap().boundaries[0]).unwrap();
    let predict = |choice| model.predict(choice, 1, &mut |_| true).unwrap();
    let greedy = predict(Choice::GREEDY);
    assert_eq!(greedy.figures, Figures::default());
    assert!(greedy.outside > 0.9, "{greedy:?}");
    let fixed = predict(Choice::Fixed {
        limit: 2,
        linger: Duration::ZERO,
    });
    let ratio = fixed.figures.p99_ns.unwrap() / model.recorded().p99_ns.unwrap();
    assert!((ratio - 1.0).abs() < 0.02, "{fixed:?}");
}

#[test]
fn a_boundary_that_tells_too_little_gives_no_model() {
    let fit = |text: &str| Model::fit(&read(text).unwrap().boundaries[0]).map(|_| ());
    assert_eq!(
        fit(&trace(20)),
        Err(FitError::Few {
            batches: 20,
            needed: 50
        })
    );
    let without = |events: &[&str]| {
        let text = trace(60);
        let lines = text
            .lines()
            .filter(|l| !events.iter().any(|e| l.contains(e)));
        lines.map(|l| format!("{l}\n")).collect::<String>()
    };
    assert_eq!(
        fit(&without(&["arrived", "ready"])),
        Err(FitError::NoArrivals)
    );
    assert_eq!(fit(&without(&["ready"])), Err(FitError::Unasked));
    // The backlog tells enough of the arrivals.
    assert_eq!(fit(&without(&["arrived"])), Ok(()));
    let text = without(&["arrived"]);
    let model = Model::fit(&read(&text).unwrap().boundaries[0]).unwrap();
    assert_eq!(model.source(), Source::Estimated);
    // The controller wants to wait, and the driver starts the batch anyway.
    let held = trace(60).replace("now drained\nrows", "at 99999999 pace\nrows");
    assert_eq!(fit(&held), Err(FitError::Unasked));
}

#[test]
fn numbers_out_of_any_range_do_no_harm() {
    let most = u64::MAX;
    let d = format!("> {most} {most} 4294967295 at {most} pace");
    let mut text = format!("{HEADER}rows begins 1 {most} {most} {most} 4294967295\n");
    for id in 0..200u64 {
        let at = most - 400 + 2 * id;
        let _ = write!(
            text,
            "rows {at} arrived {most} {most} {d}\n\
             rows {at} ready {most} {most} {at} > 1 1 1 now drained\n\
             rows {at} started {id} {most} {most} {most} {most} drained {d}\n\
             rows {at} done {id} {most} 1 {d}\n"
        );
    }
    let trace = read(&text).unwrap();
    if let Ok(model) = Model::fit(&trace.boundaries[0]) {
        for choice in [Choice::GREEDY, Choice::KNEE] {
            let mut steps = 0;
            let _ = model.predict(choice, 1, &mut |_| {
                steps += 1;
                steps < 3
            });
        }
    }
}

#[test]
fn a_long_trace_is_kept_in_part() {
    let mut reader = TraceReader::new();
    reader
        .handle_bytes(format!("{HEADER}{BEGINS}").as_bytes())
        .unwrap();
    let mut text = String::new();
    let batches = KEEP as u64 / 2 + 10_000;
    for id in 0..batches {
        text.clear();
        batch(&mut text, id * 10_000, id, 1 + id % 8, 1500);
        reader.handle_bytes(text.as_bytes()).unwrap();
    }
    let trace = reader.finish().unwrap();
    let rows = &trace.boundaries[0];
    assert_eq!(rows.entries, 4 * batches);
    assert!(rows.not_kept >= 30_000, "{rows:?}");
    assert!(rows.best.kept() <= KEEP);
    assert!(Model::fit(rows).unwrap().used().0 < batches);
}

#[test]
fn a_stretch_that_is_given_up_leaves_its_room_to_others() {
    let mut reader = TraceReader::new();
    let text = trace(200);
    reader.handle_bytes(text.as_bytes()).unwrap();
    let once = reader.kept;
    let again = text.strip_prefix(HEADER).unwrap();
    for _ in 0..10 {
        reader.handle_bytes(again.as_bytes()).unwrap();
        reader.handle_bytes(b"rows lost 3\n").unwrap();
    }
    assert_eq!(reader.kept, reader.boundaries[0].kept());
    assert!(reader.kept <= 2 * once, "{} of {once}", reader.kept);
}

#[test]
fn the_log_of_one_controller_is_a_trace() {
    let lines = trace(60);
    let lines = lines
        .lines()
        .skip(2)
        .map(|l| l.strip_prefix("rows ").unwrap());
    let text: String = lines.map(|l| format!("{l}\n")).collect();
    let trace = read(&format!("tidegate-log 2\n{text}")).unwrap();
    let model = Model::fit(&trace.boundaries[0]).unwrap();
    assert_eq!(trace.boundaries[0].name, "controller");
    assert_eq!((model.bounds().0.items_max, model.bounds().1), (64, false));
}

#[test]
fn advice_names_a_gain_or_a_price() {
    let prediction = |choice, rate, mean, p99, batches| Prediction {
        choice,
        figures: Figures {
            items_per_s: Some(rate),
            mean_ns: Some(mean),
            p99_ns: Some(p99),
            batches_per_s: Some(batches),
            batch_mean: Some(rate / batches),
        },
        outside: 0.0,
        overflows: false,
    };
    let base = prediction(Choice::KNEE, 100.0, 10.0, 20.0, 10.0);
    let says = |others: &[Prediction]| {
        let all: Vec<_> = std::iter::once(&base).chain(others).cloned().collect();
        advise(&all, 0.0)
    };
    let alike = prediction(Choice::GREEDY, 101.0, 10.2, 19.8, 10.0);
    assert_eq!(
        says(std::slice::from_ref(&alike)),
        "keep the default: nothing here is better by more than 5 %"
    );
    let better = prediction(Choice::GREEDY, 100.0, 8.0, 15.0, 12.0);
    assert_eq!(
        says(&[better]),
        "try `greedy`: 20 % less mean latency, 25 % less p99 than the default, and nothing worse by more than 5 %"
    );
    // A gain must exceed the errors of both predictions.
    let better = prediction(Choice::GREEDY, 100.0, 8.0, 15.0, 12.0);
    let advice = advise(&[base.clone(), better], 0.4);
    assert_eq!(
        advice,
        "keep the default: nothing here is better by more than 96 %"
    );
    let costs = Choice::Knee(Objective::CostBudget(0.01));
    let dear = prediction(costs, 100.0, 40.0, 60.0, 2.0);
    let advice = says(&[dear, alike]);
    assert!(
        advice.contains("`knee:cost=1%` buys 80 % less batches for 4.0 times the mean latency"),
        "{advice}"
    );
    assert!(advise(&[], 0.0).contains("nothing to compare"));
    let mut unknown = base.clone();
    unknown.figures = Figures::default();
    assert!(advise(&[unknown], 0.0).starts_with("no advice"));
}
