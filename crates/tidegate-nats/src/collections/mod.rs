//! Collections that grow and shrink a part at a time, so that no single addition takes long, and so that a
//! collection that was large gives its memory back.

mod byte_map;
mod chunked_slab;
mod table;

pub use byte_map::{ByteMap, IntoValues};
pub use chunked_slab::ChunkedSlab;
pub use table::{IntoIter, Table};
