//! The program `tidegate`.

fn main() {}
