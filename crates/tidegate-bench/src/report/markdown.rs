//! Shows the blocks of a report as Markdown. A plot becomes the table of its points. Pure.

use std::fmt::Write as _;

use super::grid::{Grid, points};
use super::page::Block;

/// Formats the report as Markdown.
pub(super) fn markdown(page: &[Block]) -> String {
    let mut text = String::new();
    add(&mut text, page);
    text
}

fn add(text: &mut String, blocks: &[Block]) {
    for block in blocks {
        match block {
            Block::Heading(level, words) => {
                let _ = writeln!(
                    text,
                    "{} {}\n",
                    "#".repeat(usize::from(*level)),
                    escaped(words)
                );
            }
            Block::Text(words) => {
                let _ = writeln!(text, "{words}\n");
            }
            Block::Table(grid) => add_table(text, grid),
            Block::Plots(plots) => {
                for plot in plots {
                    let _ = writeln!(text, "**{}**\n", escaped(&plot.title));
                    add_table(text, &points(plot));
                }
            }
            Block::Folded(_, inner) => add(text, inner),
        }
    }
}

fn add_table(text: &mut String, grid: &Grid) {
    let line = |cells: &[String]| {
        let cells: Vec<_> = cells.iter().map(|cell| escaped(cell)).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    text.push_str(&line(&grid.heads));
    text.push_str(&line(&vec!["---".to_owned(); grid.heads.len()]));
    for row in &grid.rows {
        text.push_str(&line(row));
    }
    text.push('\n');
}

/// Escapes the characters that Markdown would read as its own, in a name or a cell of a table.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '_' | '`' | '[' | ']' | '\\' | '#' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_a_table_or_become_markup() {
        let grid = Grid {
            heads: vec!["a|b".into()],
            rows: vec![vec!["<script>\n*x* [y](z) `c`".into()]],
        };
        let text = markdown(&[Block::Heading(2, "h_h".into()), Block::Table(grid)]);
        assert_eq!(
            text,
            "## h\\_h\n\n| a\\|b |\n| --- |\n| &lt;script> \\*x\\* \\[y\\](z) \\`c\\` |\n\n"
        );
    }
}
