//! Tests each policy, verb and status of a consumer by the transcript of that name.

use super::script::run;

macro_rules! transcripts {
    ($($name:ident)*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

transcripts! { pulls statuses acks redelivery starts push restart removal pause flow }
