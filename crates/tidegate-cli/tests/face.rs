//! Tests of the flags that every command has, and of the completions and manual pages that the program
//! writes.

#![allow(clippy::unwrap_used)] // Tests throughout, helpers included.

use std::process::{Command, Output};

fn tidegate(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env_remove("NO_COLOR");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn the_version_names_the_commit() {
    for (words, name) in [
        (&["-V"][..], "tidegate "),
        (&["--version"], "tidegate "),
        (&["serve", "-V"], "tidegate-serve "),
        (&["serve", "--version"], "tidegate-serve "),
        (
            &["serve", "-DV", "-p", "-1", "--version"],
            "tidegate-serve ",
        ),
        (&["pub", "-V"], "tidegate-pub "),
        (&["stream", "add", "--version"], "tidegate-stream-add "),
    ] {
        let version = text(&tidegate(words).stdout);
        let rest = version.strip_prefix(name);
        let rest = rest.and_then(|rest| rest.strip_prefix(env!("CARGO_PKG_VERSION")));
        let rest = rest.unwrap_or_else(|| panic!("{version}")).trim();
        // The version names no commit if the program was built outside of a repository.
        let commit = rest
            .strip_prefix('(')
            .and_then(|rest| rest.strip_suffix(')'));
        let is_commit = |c: &str| c.len() == 10 && c.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(
            rest.is_empty() || commit.is_some_and(is_commit),
            "{version}"
        );
    }
}

#[test]
fn help_lists_the_exit_codes_and_has_colors_on_request() {
    let help = tidegate(&["--help"]);
    assert!(text(&help.stdout).contains("Exit codes: 0 done, 1 failed, 2 wrong"));
    assert!(
        !text(&help.stdout).contains('\x1b'),
        "no terminal, no colors"
    );
    assert!(text(&tidegate(&["--color", "always", "--help"]).stdout).contains('\x1b'));
    let never = tidegate(&["--color=never", "serve", "--help"]);
    assert!(!text(&never.stdout).contains('\x1b'));
    let green = tidegate(&["--color", "green", "completions", "bash"]);
    assert_eq!(green.status.code(), Some(2));
    assert!(text(&green.stderr).contains("auto, always, never"));
}

#[test]
fn a_quiet_receiver_prints_no_notes() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    // The program prints errors even with `--quiet`.
    let output = tidegate(&["-q", "receive", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains(&address));
    let both = tidegate(&["-q", "-v", "receive", "--listen", &address]);
    assert_eq!(both.status.code(), Some(2));
}

#[test]
fn each_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = tidegate(&["completions", shell]);
        assert!(output.status.success());
        let script = text(&output.stdout);
        assert!(script.contains("cluster-port"), "{shell}");
        for hidden in ["segment-bytes", "with-parent", "jetstream"] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
    }
    assert_eq!(tidegate(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn each_command_has_a_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    let output = tidegate(&["man", directory.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for name in ["tidegate.1", "tidegate-serve.1", "tidegate-stream-add.1"] {
        let page = std::fs::read_to_string(directory.path().join(name));
        assert!(page.unwrap().starts_with(".ie"), "{name}");
    }
    let missing = directory.path().join("missing");
    let output = tidegate(&["man", missing.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot write manual pages into"));
}
