//! Records the decisions of the default controller while it serves, compares them with those of another
//! controller, and replays them.
//!
//! `cargo run -p tidegate --example record_replay`

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tidegate::batcher::{Builder, each_batch};
use tidegate::controller::{Bounds, Fixed, Knee, KneeError, Objective, Recorder, Shadow};
use tidegate::controller::{read_log, replay, write_log};

/// Returns a new controller, as an actor that runs one batch at a time has it by default. For an actor that
/// runs several batches, the bounds set `in_flight_max`.
fn default_controller() -> Result<Knee, KneeError> {
    Ok(Knee::new(Objective::Lean, Bounds::default())?.anticipating())
}

fn main() -> Result<(), Box<dyn Error>> {
    // `Shadow` obeys the first controller and only asks the second one, to compare the two. `Recorder` keeps
    // events and answers.
    let compared = Shadow::new(default_controller()?, Fixed::new(16).controller());
    let recorder = Arc::new(Mutex::new(Recorder::new(compared, 100_000)));
    let rows = Builder::new()
        .controller(Arc::clone(&recorder))
        .spawn(each_batch(|rows: &mut Vec<u64>| {
            thread::sleep(Duration::from_micros(200 + rows.len() as u64));
        }))?;
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| (0..200).all(|row| rows.blocking_call(row).is_ok()));
        }
    });
    rows.blocking_drain(Duration::from_secs(5))?;

    let recorder = recorder.lock().unwrap_or_else(PoisonError::into_inner);
    println!("{:#?}", recorder.inner().comparison());
    // The log is text. A user may keep it, and read it on another machine.
    let text = write_log(recorder.log());
    println!(
        "{} entries, the second one: {:?}",
        recorder.log().len(),
        text.lines().nth(2)
    );
    // A new controller makes the same decisions, bit for bit. For another rule,
    // `replay` names the first difference.
    replay(&mut default_controller()?, &read_log(&text)?)?;
    if let Err(divergence) = replay(&mut Fixed::new(16).controller(), recorder.log()) {
        println!("{divergence}");
    }
    Ok(())
}
