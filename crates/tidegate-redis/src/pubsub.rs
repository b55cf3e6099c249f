//! Pub/sub over the shared connection.

use std::sync::Arc;

use crate::conn::Conn;
use crate::reply::Value;

/// Who is subscribed to what.
#[derive(Debug, Default)]
pub(crate) struct Registry {}

impl Registry {
    pub(crate) fn resubscribe(&self, _conn: &Arc<Conn>, _protocol: u8) {}

    pub(crate) fn publish(&self, _pushes: &mut Vec<Value>) {}
}
