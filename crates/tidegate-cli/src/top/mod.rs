//! `tidegate top`: watches a running server in a terminal, or prints one picture of it.

mod alarms;
#[cfg(test)]
mod recorded;
mod state;
mod view;
mod words;
