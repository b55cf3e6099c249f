//! Collections that grow and shrink a part at a time, so that no single addition takes long and that few
//! items take little memory after many.

mod byte_map;
mod chunked_slab;
mod table;

pub use byte_map::{ByteMap, IntoValues};
pub use chunked_slab::ChunkedSlab;
pub use table::{IntoIter, Table};
