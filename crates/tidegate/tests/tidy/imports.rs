//! The import graph of a crate: which file uses items of which other file, and which imports form a circle.
//!
//! A file may use the items of the modules it lies in: a child and its parent count as one unit in that
//! direction. Tests, and items compiled for tests only, do not count.

use std::collections::{BTreeMap, BTreeSet};

/// The files of one crate by module path (`a::b`; the root is empty), and the edges between them.
pub(crate) struct Imports {
    files: BTreeMap<String, String>,
    edges: BTreeMap<String, BTreeSet<String>>,
}

impl Imports {
    /// Reads the product lines of a crate's files and collects the imports; each name is relative to `src`.
    pub(crate) fn of(sources: &[(String, String)]) -> Self {
        let tests: Vec<String> = sources
            .iter()
            .flat_map(|(n, t)| test_modules(n, t))
            .collect();
        let is_test = |name: &str| tests.iter().any(|test| contains(test, &module(name)));
        let sources = || sources.iter().filter(|(name, _)| !is_test(name));
        let files: BTreeMap<_, _> = sources()
            .map(|(name, _)| (module(name), name.clone()))
            .collect();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, text) in sources() {
            let from = module(name);
            for path in paths(text) {
                let Some(to) = resolve(&files, &from, &path) else {
                    continue;
                };
                if to != from && !contains(&to, &from) {
                    edges.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        Self { files, edges }
    }

    /// Returns each circle of files, the largest first.
    pub(crate) fn file_circles(&self) -> Vec<Vec<&str>> {
        let named = |circle: Vec<String>| circle.iter().map(|m| &*self.files[m]).collect();
        circles(&self.edges).into_iter().map(named).collect()
    }

    /// Returns each circle of folders. A folder and the folders in it count as one unit.
    pub(crate) fn folder_circles(&self) -> Vec<Vec<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, targets) in &self.edges {
            let from = self.folder(from);
            for to in targets {
                let to = self.folder(to);
                if from != to && !contains(&from, &to) && !contains(&to, &from) {
                    edges.entry(from.clone()).or_default().insert(to);
                }
            }
        }
        circles(&edges)
    }

    /// Returns the folder of a module: the module itself if it has children, otherwise its parent.
    fn folder(&self, module: &str) -> String {
        let has_children = self
            .files
            .keys()
            .any(|m| m != module && contains(module, m));
        match has_children {
            true => module.to_owned(),
            false => module.rsplit_once("::").map_or("", |(up, _)| up).to_owned(),
        }
    }

    /// Returns the imports between the files of a circle, so that a failure shows them.
    pub(crate) fn within(&self, circle: &[&str]) -> Vec<String> {
        let inside = |m: &&String| circle.contains(&&*self.files[*m]);
        let mut found = Vec::new();
        for (from, to) in self.edges.iter().filter(|(from, _)| inside(from)) {
            for to in to.iter().filter(inside) {
                found.push(format!("{} -> {}", self.files[from], self.files[to]));
            }
        }
        found
    }

    /// Returns a line for each file that imports: the file, and the files that it imports.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.edges.iter().map(|(from, to)| {
            let to: Vec<_> = to.iter().map(|m| &*self.files[m]).collect();
            format!("{} -> {}", self.files[from], to.join(", "))
        })
    }
}

/// Returns whether `inner` is `outer` or lies in it.
fn contains(outer: &str, inner: &str) -> bool {
    outer.is_empty() || inner == outer || inner.starts_with(&format!("{outer}::"))
}

/// Returns the module path of a file.
fn module(name: &str) -> String {
    let path = name.trim_end_matches(".rs").replace('/', "::");
    match &*path {
        "lib" | "main" | "mod" => String::new(),
        path => path.trim_end_matches("::mod").to_owned(),
    }
}

/// Returns the modules of a file that are compiled for tests only, because their imports do not count.
fn test_modules(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim);
    while lines.any(|line| line == "#[cfg(test)]") {
        let item = lines.by_ref().find(|line| !line.starts_with("#["));
        let declared = item.and_then(|item| item.split_once("mod ")?.1.strip_suffix(';'));
        if let Some(child) = declared {
            let parts = [&*module(name), child];
            found.push(parts.join("::").trim_start_matches("::").to_owned());
        }
    }
    found
}

/// Returns the paths that a text names: those of its `use` items, one for each leaf, and those in its code
/// that begin at the crate, at itself or at its parent.
fn paths(text: &str) -> Vec<String> {
    let code: String = super::product_lines(text)
        .map(|(_, line)| format!("{}\n", line.split(" // ").next().unwrap_or(line)))
        .collect();
    let mut found = Vec::new();
    let mut rest = &*code;
    while let Some(at) = rest.find("use ") {
        let starts_item = rest[..at].ends_with(['\n', ' ', ')']) || at == 0;
        rest = &rest[at + 4..];
        if let (true, Some(end)) = (starts_item, rest.find(';')) {
            leaves("", &rest[..end], &mut found);
        }
    }
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            if before.is_some_and(|c| c == ':' || c == '_' || c.is_alphanumeric()) {
                continue;
            }
            let path = |c: char| c == ':' || c == '_' || c.is_alphanumeric();
            let end = code[at..].find(|c| !path(c)).unwrap_or(code.len() - at);
            found.push(code[at..at + end].trim_end_matches(':').to_owned());
        }
    }
    found
}

/// Adds to `out` the path of each leaf of a tree of `use`.
fn leaves(prefix: &str, tree: &str, out: &mut Vec<String>) {
    let tree = tree.trim();
    let Some((head, inner)) = tree.split_once('{') else {
        let leaf = tree.split(" as ").next().unwrap_or(tree).trim();
        let whole = format!("{prefix}{leaf}");
        out.push(whole.trim_end_matches("::self").to_owned());
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let inner = inner.rsplit_once('}').map_or(inner, |(inner, _)| inner);
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    for part in parts.filter(|part| !part.trim().is_empty()) {
        leaves(&prefix, part, out);
    }
}

/// Returns the module of the file that a path leads to, if it lies in this crate.
fn resolve(files: &BTreeMap<String, String>, from: &str, path: &str) -> Option<String> {
    let mut base: Vec<&str> = from.split("::").filter(|part| !part.is_empty()).collect();
    let mut parts = path.split("::").peekable();
    let first = *parts.peek()?;
    match first {
        "crate" => base.clear(),
        "self" | "super" => {}
        // A path may begin with the name of a child module.
        child => {
            let module = [&base[..], &[child]].concat().join("::");
            files.get(&module)?;
        }
    }
    for part in parts {
        match part {
            "crate" | "self" => {}
            "super" => drop(base.pop()),
            part => base.push(part),
        }
    }
    while !files.contains_key(&base.join("::")) {
        base.pop()?;
    }
    Some(base.join("::"))
}

/// Returns the strongly connected components of more than one node, the largest first (Kosaraju).
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let mut back: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (from, targets) in edges {
        for to in targets {
            back.entry(to.clone()).or_default().insert(from.clone());
        }
    }
    let nodes: BTreeSet<&String> = edges.keys().chain(back.keys()).collect();
    let (mut seen, mut order) = (BTreeSet::new(), Vec::new());
    for node in &nodes {
        visit(edges, node, &mut seen, &mut order);
    }
    let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
    for node in order.iter().rev() {
        let mut circle = Vec::new();
        visit(&back, node, &mut seen, &mut circle);
        if circle.len() > 1 {
            circle.sort();
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}

/// Adds `node` and all nodes that it reaches to `order`, each after the nodes that it imports.
fn visit(
    edges: &BTreeMap<String, BTreeSet<String>>,
    node: &String,
    seen: &mut BTreeSet<String>,
    order: &mut Vec<String>,
) {
    if !seen.insert(node.clone()) {
        return;
    }
    for to in edges.get(node).into_iter().flatten() {
        visit(edges, to, seen, order);
    }
    order.push(node.clone());
}
