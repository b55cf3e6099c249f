//! The trait of the values that the builder of an actor and
//! [`Queue::controlled`](crate::queue::Queue::controlled) accept: a controller, or a rule that becomes one.

use super::{Aimd, Controller, Exponential, Fixed, Greedy, Ruled, StormAimd};

/// A [`Controller`], or a rule of this crate, which becomes a controller. [`Ruled::new`] turns a
/// [`Rule`](super::Rule) of your own into a controller.
///
/// [`Builder::controller`](crate::batcher::Builder::controller) and
/// [`Queue::controlled`](crate::queue::Queue::controlled) accept either. All other functions take a
/// [`Controller`], so a rule needs its method `controller()` there:
/// [`Shadow::new`](super::Shadow::new), [`Recorder::new`](super::Recorder::new),
/// [`Freeze::new`](super::Freeze::new), [`Bounded::new`](super::Bounded::new),
/// [`Boundary::new`](crate::boundary::Boundary::new), and `batched` of a stream.
///
/// ```
/// use tidegate::batcher::{Builder, each_batch};
/// use tidegate::controller::{Fixed, Greedy};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rows = |rows: &mut Vec<u32>| println!("INSERT of {} rows", rows.len());
/// Builder::new().controller(Greedy).spawn(each_batch(rows))?;
/// Builder::new().controller(Fixed::new(8)).spawn(each_batch(rows))?;
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a controller nor a rule of this crate",
    note = "a rule of your own becomes a controller by `Ruled::new`"
)]
pub trait IntoController {
    /// The type of the controller that the value becomes.
    type Controller: Controller;

    /// Turns the value into a controller, for the builder that accepts either.
    fn into_controller(self) -> Self::Controller;
}

impl<C: Controller> IntoController for C {
    type Controller = C;

    fn into_controller(self) -> C {
        self
    }
}

macro_rules! rules {
    ($($rule:ty),*) => {$(
        impl IntoController for $rule {
            type Controller = Ruled<Self>;

            fn into_controller(self) -> Ruled<Self> {
                self.controller()
            }
        }
    )*};
}

rules!(Aimd, Exponential, Fixed, Greedy, StormAimd);
