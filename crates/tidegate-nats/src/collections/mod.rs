//! Collections that grow and shrink a part at a time, so that no single addition takes long and that few
//! items take little memory after many.

mod names;
mod slots;
mod table;

pub use names::{IntoValues, Names};
pub use slots::Slots;
pub use table::{IntoIter, Table};
