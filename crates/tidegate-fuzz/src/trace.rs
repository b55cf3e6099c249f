//! A fuzz target for the reader of traces and the models that `tidegate tune` fits to them. The target gives
//! the reader any bytes. The reader must refuse the bytes or return a trace, the same for each way to cut the
//! bytes into pieces, and a model of the trace must predict without a panic.

use tidegate::controller::Choice;
use tidegate::sim::tune::{Model, Trace, TraceError, TraceReader, advise};

/// The most steps of a prediction, in reports of the simulator, so that an input takes little time.
const REPORTS_MAX: u32 = 2;

/// Runs the fuzz target on one input. Panics if the tested code breaks a promise.
pub fn run(data: &[u8]) {
    let whole = read(&[data]);
    let cut = data.len() / 3;
    let pieces = read(&[&data[..cut], &data[cut..]]);
    let trace = match (whole, pieces) {
        (Ok(whole), Ok(pieces)) => {
            assert_eq!((whole.lines, whole.is_cut), (pieces.lines, pieces.is_cut));
            whole
        }
        (Err(_), Err(_)) => return,
        (whole, pieces) => panic!("{whole:?} in one piece, {pieces:?} in two"),
    };
    for recorded in &trace.boundaries {
        let Ok(model) = Model::fit(recorded) else {
            continue;
        };
        let predict = |choice| {
            let mut reports = 0;
            let goes_on = &mut |_| {
                reports += 1;
                reports < REPORTS_MAX
            };
            model.predict(choice, 1, goes_on).ok()
        };
        let predictions = [Choice::KNEE, Choice::GREEDY]
            .into_iter()
            .filter_map(predict);
        assert!(!advise(&predictions.collect::<Vec<_>>(), 0.0).is_empty());
    }
}

fn read(pieces: &[&[u8]]) -> Result<Trace, TraceError> {
    let mut reader = TraceReader::new();
    for piece in pieces {
        reader.handle_bytes(piece)?;
    }
    reader.finish()
}
