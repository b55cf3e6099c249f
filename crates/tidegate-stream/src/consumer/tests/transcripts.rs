//! Each policy, verb and status, as transcripts.

use super::script::run;

macro_rules! transcripts {
    ($($name:ident)*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

transcripts! { pulls statuses acks redelivery starts push restart removal pause }
