//! Finds the growing numbers in the names of the benches' cells, such as callers, clients or load. Pure.

/// Finds the number before `word`, such as `16 callers`, in a part of a case's name. Returns the name without
/// this part, and the number.
pub(super) fn numbered(case: &str, word: &str) -> Option<(String, f64)> {
    if let Some((kind, callers)) = case.split_once("/callers-") {
        return (word == "caller").then(|| Some((kind.into(), callers.parse().ok()?)))?;
    }
    if let Some((kind, count)) = case.split_once('-')
        && ["streams", "consumers", "subjects"].contains(&kind)
    {
        let (digits, unit) = count.split_at(
            count
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(count.len()),
        );
        let unit = match unit {
            "k" => 1e3,
            "m" => 1e6,
            _ => 1.0,
        };
        return (word == "made")
            .then(|| Some((kind.into(), digits.parse::<f64>().ok()? * unit)))?;
    }
    // The benches of streams leave the usual 10 clients and 1 KiB out of the names.
    let short = matches!(case, "R1 async" | "R1 sync" | "R3 async" | "R3 sync");
    if short && word == "client" {
        return Some((format!("{case}, 1 KiB"), 10.0));
    }
    let parts: Vec<&str> = case.split(", ").collect();
    let number = |part: &&str| {
        let (number, rest) = part.split_once(' ')?;
        (rest.strip_suffix('s').unwrap_or(rest) == word).then(|| number.parse::<f64>().ok())?
    };
    let at = parts.iter().position(|part| number(part).is_some())?;
    let x = number(&parts[at])?;
    let others = parts
        .iter()
        .enumerate()
        .filter(|(n, _)| *n != at)
        .map(|(_, part)| *part);
    Some((others.collect::<Vec<_>>().join(", "), x))
}

/// Finds the load in per cent in the name of a cell of the bench `handlers`, such as `http/poisson-60`.
pub(super) fn loaded(case: &str) -> Option<(String, f64)> {
    let (kind, percent) = case.split_once("/poisson-")?;
    Some((kind.into(), percent.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_the_names_of_cases() {
        let found = |case: &str, word: &str| numbered(case, word);
        let is = |group: &str, x: f64| Some((group.to_owned(), x));
        assert_eq!(
            found("GET 64 B, RTT 0, 16 callers", "caller"),
            is("GET 64 B, RTT 0", 16.0)
        );
        assert_eq!(
            found("GET 64 B, RTT 0, 1 caller", "caller"),
            is("GET 64 B, RTT 0", 1.0)
        );
        assert_eq!(
            found("R1 sync, 100 clients, 1 KiB", "client"),
            is("R1 sync, 1 KiB", 100.0)
        );
        assert_eq!(found("R1 sync", "client"), is("R1 sync, 1 KiB", 10.0));
        assert_eq!(found("http/callers-256", "caller"), is("http", 256.0));
        assert_eq!(found("streams-100k", "made"), is("streams", 100_000.0));
        assert_eq!(found("subjects-1m", "made"), is("subjects", 1_000_000.0));
        assert_eq!(found("work-queue-16", "made"), None);
        assert_eq!(found("http/callers-256", "client"), None);
        assert_eq!(loaded("http/poisson-60"), is("http", 60.0));
    }
}
