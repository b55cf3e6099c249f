//! Tests the table of settings: the table has every setting of nats-server, the server has code for each
//! setting that it calls carried out, and the documentation shows it.

use std::fmt::Write as _;
use std::panic::catch_unwind;
use std::path::Path;

use super::*;
use crate::config::{Settings, System, read, read_nats};

/// Returns whether the table has this setting, or refuses or ignores a block around it as a whole.
fn is_covered(block: &str, name: &str) -> bool {
    if find(block, name).is_some() {
        return true;
    }
    let mut block = block;
    while !block.is_empty() {
        let (around, of) = block.rsplit_once('.').unwrap_or(("", block));
        let whole = |s: &Setting| matches!(s.meaning, Meaning::Refused(_) | Meaning::WithoutEffect);
        if find(around, of).is_some_and(whole) {
            return true;
        }
        block = around;
    }
    false
}

#[test]
fn every_setting_of_nats_server_is_in_the_table() {
    let mut count = 0;
    for line in include_str!("nats-server.txt").lines() {
        let mut words = line.split_whitespace();
        let block = words.next().map(|b| b.trim_matches('-')).unwrap();
        for name in words {
            assert!(is_covered(block, name), "{block}.{name}");
            count += 1;
        }
    }
    assert!(count > 400, "{count}");
    assert!(!is_covered("", "kv") && !is_covered("cluster", "compression_level"));
}

#[test]
fn no_setting_stands_twice_in_the_table() {
    for (i, setting) in SETTINGS.iter().enumerate() {
        for name in setting.names {
            let of = |s: &&Setting| s.block == setting.block && s.names.contains(name);
            assert_eq!(SETTINGS.iter().position(|s| of(&s)), Some(i), "{name}");
        }
    }
}

/// Makes a configuration with one setting in its block, which the test lets the server read.
fn configuration(block: &str, setting: &str) -> String {
    let user =
        |inner: &str| format!("authorization {{ users: [ {{ user: u, password: p, {inner} }} ] }}");
    match block {
        "" => setting.into(),
        "authorization" | "tls" | "jetstream" | "cluster" => format!("{block} {{ {setting} }}"),
        "cluster.tls" => format!("cluster {{ tls {{ {setting} }} }}"),
        "cluster.authorization" => format!("cluster {{ authorization {{ {setting} }} }}"),
        "jetstream.limits" => format!("jetstream {{ limits {{ {setting} }} }}"),
        "jetstream.remotes" => format!("jetstream {{ remotes {{ hub {{ {setting} }} }} }}"),
        "jetstream.remotes.tls" => {
            format!("jetstream {{ remotes {{ hub {{ tls {{ {setting} }} }} }} }}")
        }
        "accounts" => format!("accounts {{ $SYS {{ {setting} }} }}"),
        "users" => user(setting),
        "permissions" => user(&format!("permissions {{ {setting} }}")),
        "permissions.publish" => user(&format!("permissions {{ publish {{ {setting} }} }}")),
        "permissions.subscribe" => user(&format!("permissions {{ subscribe {{ {setting} }} }}")),
        "allow_responses" => user(&format!(
            "permissions {{ allow_responses {{ {setting} }} }}"
        )),
        _ => panic!("a block without a place: {block}"),
    }
}

#[test]
fn each_setting_that_is_carried_out_has_code() {
    for setting in SETTINGS {
        let name = setting.names[setting.names.len() - 1];
        for value in ["7", "x", "{}", "true"] {
            let text = configuration(setting.block, &format!("{name}: {value}"));
            let map = read_nats(
                &text,
                &System {
                    directory: Path::new("").into(),
                },
            )
            .unwrap();
            let report = catch_unwind(|| read(&map, &mut Settings::default()));
            let report = report.unwrap_or_else(|_| panic!("{text}"));
            let unknown = |e: &crate::config::SyntaxError| {
                e.message.contains("does not exist here: remove it")
            };
            assert!(!report.refused.iter().any(unknown), "{text}: {report:?}");
        }
    }
}

/// Writes the names of settings as rows of a Markdown table, at most 90 characters wide.
fn rows(out: &mut String, first: &str, names: &[String]) {
    let (mut head, mut row) = (first, String::new());
    for name in names {
        if !row.is_empty() && row.len() + name.len() > 88 {
            let _ = writeln!(out, "| {head} | {row} |");
            (head, row) = ("", String::new());
        }
        let comma = if row.is_empty() { "" } else { ", " };
        row = format!("{row}{comma}{name}");
    }
    let _ = writeln!(out, "| {head} | {row} |");
}

/// A condition by which the test chooses settings for a table.
type Wanted = fn(Meaning) -> bool;

/// Makes the tables of settings that the documentation must show.
fn markdown() -> String {
    let mut out = String::new();
    let blocks = || {
        let mut blocks: Vec<&str> = Vec::new();
        for s in SETTINGS {
            if !blocks.contains(&s.block) {
                blocks.push(s.block);
            }
        }
        blocks
    };
    let of = |block: &str, meaning: Wanted| -> Vec<String> {
        let all = SETTINGS
            .iter()
            .filter(|s| s.block == block && meaning(s.meaning));
        all.map(|s| s.names[0].into()).collect()
    };
    let shown = |block: &'static str| if block.is_empty() { "top level" } else { block };
    let tables: [(&str, Wanted); 3] = [
        ("Carried out:", |m| m == Meaning::CarriedOut),
        ("Tidegate's own:", |m| m == Meaning::Own),
        ("Taken without effect, with one warning:", |m| {
            m == Meaning::WithoutEffect
        }),
    ];
    for (title, meaning) in tables {
        let _ = write!(out, "{title}\n\n| block | settings |\n| --- | --- |\n");
        for block in blocks() {
            let names = of(block, meaning);
            if !names.is_empty() {
                rows(&mut out, shown(block), &names);
            }
        }
        out.push('\n');
    }
    out.push_str(
        "Refused, unless the value turns them off:\n\n| settings | because |\n| --- | --- |\n",
    );
    let mut reasons: Vec<&str> = Vec::new();
    for s in SETTINGS {
        if let Meaning::Refused(reason) = s.meaning
            && !reasons.contains(&reason)
        {
            reasons.push(reason);
        }
    }
    for reason in reasons {
        let names = SETTINGS
            .iter()
            .filter(|s| s.meaning == Meaning::Refused(reason));
        let full = |s: &Setting| match s.block {
            "" => s.names[0].to_owned(),
            block => format!("{block}.{}", s.names[0]),
        };
        let names: Vec<String> = names.map(full).collect();
        let _ = writeln!(out, "| {} | {reason} |", names.join(", "));
    }
    out
}

/// Compares the documentation with the table. `SETTINGS=write` writes the table into the documentation.
#[test]
fn the_documentation_shows_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/nats-support.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- settings -->\n\n", "\n<!-- end of settings -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (shown, after) = rest.split_once(end).unwrap();
    let wanted = markdown();
    if std::env::var("SETTINGS").is_ok_and(|s| s == "write") {
        std::fs::write(&path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
        return;
    }
    assert_eq!(
        shown,
        wanted,
        "SETTINGS=write writes the table into {}",
        path.display()
    );
}
