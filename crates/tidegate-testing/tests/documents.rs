//! Checks the documents and the book: each link leads to a file and a heading, each page of the book exists
//! and is listed, each compilable example is compiled, and no lock file of the examples names another
//! registry than the public ones.

// Clippy recognizes tests by their attribute only; these functions belong to tests, too.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use tidegate_testing::root;

/// The directory of the book's pages.
const PAGES: &str = "book/src";

/// Returns the paths of the files of the repository, from its root: those that Git knows or could add.
fn files(pattern: &str) -> Vec<String> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            pattern,
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files {pattern}");
    let names = String::from_utf8(output.stdout).unwrap();
    names
        .lines()
        .filter(|name| root().join(name).is_file())
        .map(str::to_owned)
        .collect()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the text of a page of the book as mdBook sees it: with the included files, or their parts between
/// anchors, in place of the includes.
fn page(path: &str, text: &str) -> Result<String, String> {
    let mut whole = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{#include ") {
        let (included, after) = after.split_once("}}").ok_or("an include has no end")?;
        let (file, anchor) = included.split_once(':').unwrap_or((included, ""));
        let file = beside(path, file);
        if !root().join(&file).is_file() {
            return Err(format!("{path} includes {file}, which does not exist"));
        }
        let part = read(&file);
        whole += before;
        whole += match anchor {
            "" => &part,
            anchor => {
                let parts = part.split_once(&format!("ANCHOR: {anchor} "));
                let parts =
                    parts.and_then(|(_, part)| part.split_once(&format!("ANCHOR_END: {anchor} ")));
                parts
                    .ok_or_else(|| format!("{path} includes {anchor}, which {file} does not have"))?
                    .0
            }
        };
        rest = after;
    }
    Ok(whole + rest)
}

/// Returns the path of `link`, relative to the file `from`, as a path from the root.
fn beside(from: &str, link: &str) -> String {
    let mut path = PathBuf::new();
    for part in Path::new(from).parent().unwrap().join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            part => path.push(part),
        }
    }
    path.to_str().unwrap().to_owned()
}

/// Returns the text without its code, in which brackets are no links.
fn prose(text: &str) -> String {
    let mut fenced = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced && !line.starts_with("    ") {
            let spans = line.split('`').enumerate();
            prose.extend(
                spans
                    .filter(|(place, _)| place % 2 == 0)
                    .map(|(_, span)| span),
            );
            prose.push(' ');
        }
    }
    prose
}

/// Returns the targets of the links in a text that lead to files or headings, not to other hosts.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let targets = prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let local = targets
        .map(|(target, _)| target.to_owned())
        .filter(|target| !target.contains(':'));
    local.collect()
}

/// Returns the fragments by which links name the headings of a text.
fn headings(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut all = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if !fenced && line.starts_with('#') {
            let kept = |c: char| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                _ => None,
            };
            all.insert(
                line.trim_start_matches('#')
                    .trim()
                    .chars()
                    .filter_map(kept)
                    .collect(),
            );
        }
    }
    all
}

/// Returns the error of one link in a file, if it leads nowhere.
fn broken(from: &str, link: &str, text: &str) -> Option<String> {
    let (file, fragment) = link.split_once('#').unwrap_or((link, ""));
    let target = if file.is_empty() {
        from.to_owned()
    } else {
        beside(from, file)
    };
    if !root().join(&target).exists() {
        return Some(format!("{from} links to {target}, which does not exist"));
    }
    if fragment.is_empty() || !target.ends_with(".md") {
        return None;
    }
    let aimed = if file.is_empty() {
        text.to_owned()
    } else {
        read(&target)
    };
    let aimed = if target.starts_with(PAGES) {
        page(&target, &aimed).unwrap()
    } else {
        aimed
    };
    let there = headings(&aimed).contains(fragment);
    (!there).then(|| format!("{from} links to {link}, a heading that does not exist"))
}

#[test]
fn every_link_of_a_document_leads_somewhere() {
    let mut mistakes = Vec::new();
    for name in files("*.md") {
        let text = read(&name);
        mistakes.extend(
            links(&text)
                .iter()
                .filter_map(|link| broken(&name, link, &text)),
        );
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

/// A document that the book includes lies in another directory there. Its links to other documents must lead
/// to pages, and only links with steps upwards lead to the repository (`book/repository.py`).
#[test]
fn every_link_of_the_book_leads_somewhere() {
    let mut mistakes = Vec::new();
    for name in files(&format!("{PAGES}/*.md")) {
        let whole = match page(&name, &read(&name)) {
            Ok(whole) => whole,
            Err(mistake) => {
                mistakes.push(mistake);
                continue;
            }
        };
        for link in links(&whole) {
            let from_root = link.trim_start_matches("../");
            if from_root == link {
                mistakes.extend(broken(&name, &link, &whole));
            } else if !root().join(from_root.split('#').next().unwrap()).exists() {
                mistakes.push(format!("{name} links to {from_root}, which does not exist"));
            }
        }
    }
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

#[test]
fn the_summary_lists_every_page() {
    let summary = format!("{PAGES}/SUMMARY.md");
    let listed: Vec<_> = links(&read(&summary))
        .iter()
        .map(|link| beside(&summary, link))
        .collect();
    let once: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "a page stands twice in {summary}");
    let pages = files(&format!("{PAGES}/*.md"))
        .into_iter()
        .filter(|name| *name != summary)
        .collect();
    assert_eq!(once, pages);
}

/// The doc tests of this crate compile the examples of a document only if the crate includes the document.
/// The engine's own documentation includes docs/controllers.md.
#[test]
fn every_example_of_a_document_is_compiled() {
    let compiled = read("crates/tidegate-testing/src/lib.rs");
    for name in files("docs/*.md")
        .into_iter()
        .chain(files(&format!("{PAGES}/*.md")))
    {
        let compilable = |line: &str| line.starts_with("```rust") && !line.contains("ignore");
        if name != "docs/controllers.md" && read(&name).lines().any(compilable) {
            assert!(
                compiled.contains(&format!("/{name}\")")),
                "{name} is not among the doc tests"
            );
        }
    }
}

/// Lock files made behind a mirror of a registry may name the mirror, which no other machine can reach.
#[test]
fn lock_files_of_the_examples_name_public_registries() {
    let public = [
        "https://github.com/rust-lang/crates.io-index",
        "https://registry.npmjs.org/",
    ];
    let locks = [
        "examples/*.lock",
        "examples/*lock.json",
        "examples/*go.sum",
        "examples/*requirements.txt",
    ];
    let locks: Vec<String> = locks.iter().flat_map(|pattern| files(pattern)).collect();
    assert_eq!(locks.len(), 4, "{locks:?}");
    for name in locks {
        let text = read(&name);
        for (at, _) in text.match_indices("://") {
            let start = text[..at]
                .rfind(|c: char| !c.is_ascii_lowercase())
                .map_or(0, |i| i + 1);
            let url = &text[start..];
            assert!(
                public.iter().any(|host| url.starts_with(host)),
                "{name}: {}",
                &url[..60.min(url.len())]
            );
        }
        assert!(!text.contains("index-url"), "{name} names an index");
    }
}

#[test]
fn broken_links_are_found() {
    let text = "# A `b`, c\n[x](#a-b-c) [y](#gone) `[z](no)` [w](https://example.org)\n```\n[v](no.md)\n```\n";
    assert_eq!(links(text), ["#a-b-c", "#gone"]);
    assert_eq!(broken("README.md", "#a-b-c", text), None);
    assert!(broken("README.md", "#gone", text).is_some());
    assert!(broken("docs/README.md", "../gone.md", text).is_some());
    assert_eq!(
        broken("docs/README.md", "../ARCHITECTURE.md#modules", text),
        None
    );
    assert_eq!(beside("book/src/a.md", "../../docs/b.md"), "docs/b.md");
    assert!(page("book/src/a.md", "{{#include ../../docs/gone.md}}").is_err());
    assert!(
        page(
            "book/src/a.md",
            "{{#include ../../docs/benchmarks.md:gone}}"
        )
        .is_err()
    );
    assert!(
        page(
            "book/src/a.md",
            "x {{#include ../../docs/benchmarks.md:losses}}"
        )
        .unwrap()
        .contains("purge")
    );
}
