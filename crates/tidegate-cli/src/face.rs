//! The flags that every command has: they choose colours, and how much the program writes to standard error.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use clap::{Args, ColorChoice, ValueEnum};
use indicatif::ProgressBar;
use tracing::level_filters::LevelFilter;

/// The flags that every command has, once `main` has parsed them. If a bench calls a command without `main`,
/// the command uses the defaults.
static FACE: OnceLock<Face> = OnceLock::new();

// Each help text lists these flags behind the command's own, which a reader looks for, and before `--help`,
// to which clap gives the order 999. A documentation comment here would become the program's description.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Face {
    /// Write more to standard error, to find faults: servers also log each connection of clients and other
    /// nodes.
    #[arg(
        short,
        long,
        global = true,
        display_order = 900,
        conflicts_with = "quiet"
    )]
    verbose: bool,
    /// Write only warnings and errors to standard error, without notes and progress, for scripts.
    #[arg(short, long, global = true, display_order = 901)]
    quiet: bool,
    /// Choose whether the program colors help texts and log lines, for easier reading. `auto` colors them on
    /// a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        display_order = 902,
        value_enum,
        value_name = "WHEN",
        default_value_t
    )]
    color: Color,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Color> for ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Makes all later output of the process follow the flags in `face`.
pub(crate) fn set(face: Face) {
    // `main` parses the flags only once, so they are not set yet and this call does not fail.
    let _ = FACE.set(face);
}

fn face() -> Face {
    FACE.get().copied().unwrap_or_default()
}

/// Returns the colours of help texts and of mistakes in the arguments. This function searches the arguments
/// itself, because clap prints such texts before it has parsed all of them.
pub(crate) fn of_help(args: &[std::ffi::OsString]) -> ColorChoice {
    let given = args.iter().enumerate().rev().filter_map(|(at, arg)| {
        let arg = arg.to_str()?;
        match arg.strip_prefix("--color") {
            Some("") => args.get(at + 1)?.to_str(),
            Some(value) => value.strip_prefix('='),
            None => None,
        }
    });
    let mut parsed = given.filter_map(|value| Color::from_str(value, true).ok());
    parsed.next().unwrap_or_default().into()
}

/// Returns whether log lines on standard error have colours, by `--color` and the terminal.
pub(crate) fn colors() -> bool {
    match face().color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            wanted && std::io::stderr().is_terminal()
        }
    }
}

/// Returns whether a picture on the terminal has colours, by `--color`; the caller knows that there is a
/// terminal.
pub(crate) fn screen_colors() -> bool {
    match face().color {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// Returns the level of the log lines to write. `debug` is the server's own setting that asks for more lines.
pub(crate) fn level(debug: bool) -> LevelFilter {
    match face() {
        Face { quiet: true, .. } => LevelFilter::WARN,
        Face { verbose: true, .. } => LevelFilter::DEBUG,
        _ if debug => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    }
}

/// Returns whether the command may print notes and progress, because the user did not give --quiet.
pub(crate) fn chats() -> bool {
    !face().quiet
}

/// Returns whether the user wants more output and gave --verbose.
pub(crate) fn is_verbose() -> bool {
    face().verbose
}

/// Prints a line on standard error. A line that standard error does not take is lost, because a full disk or
/// a closed pipe must not end the command.
pub(crate) fn complain(line: impl Display) {
    // The program has no other place for the error, so this function drops it.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Prints a note for the user on standard error, unless the user gave --quiet.
pub(crate) fn note(text: impl Display) {
    if chats() {
        complain(format_args!("tidegate: {text}"));
    }
}

/// Returns `bar`, hidden if the user gave --quiet.
pub(crate) fn bar(bar: ProgressBar) -> ProgressBar {
    match chats() {
        true => bar,
        false => ProgressBar::hidden(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_color_flag_counts() {
        let of = |args: &[&str]| of_help(&args.iter().map(Into::into).collect::<Vec<_>>());
        assert_eq!(of(&["tidegate", "--help"]), ColorChoice::Auto);
        assert_eq!(of(&["tidegate", "--color", "never"]), ColorChoice::Never);
        assert_eq!(
            of(&["tidegate", "--color=NEVER", "--color=always"]),
            ColorChoice::Always
        );
        assert_eq!(
            of(&["tidegate", "--color", "green", "--colors"]),
            ColorChoice::Auto
        );
    }
}
