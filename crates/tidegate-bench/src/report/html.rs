//! Shows the blocks of a report as one HTML page. Pure.
//!
//! The page needs no other file and no script. It follows the reader's light or dark scheme, and fits a
//! screen of 360 px: only wide tables scroll sideways.

use std::fmt::Write as _;

use super::curves::Plot;
use super::grid::{Grid, points};
use super::page::Block;
use super::plot;

/// The style of the page. The drawing library writes black for text and lines; here they take the colour of
/// the text around them.
const STYLE: &str = "\
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:0 auto;padding:0 .75rem 3rem;
background:Canvas;color:CanvasText;overflow-wrap:anywhere}
h1{line-height:1.2}h2{margin-top:2.5rem}h4{margin:1.25rem 0 .25rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid color-mix(in srgb,currentColor 20%,transparent)}
th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,19rem),1fr));gap:1.5rem}
figure{margin:0;min-width:0}figcaption{font-weight:600}
svg{width:100%;height:auto}
svg [fill=\"#000000\"]{fill:currentColor}svg [stroke=\"#000000\"]{stroke:currentColor}
.legend{list-style:none;margin:0;padding:0;font-size:.85rem;display:flex;flex-wrap:wrap;gap:0 1rem}
.legend i{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin-right:.35em}
ol.names{font-size:.85rem;margin:.25rem 0}
summary{cursor:pointer}
";

/// Formats the report as an HTML page.
///
/// # Errors
///
/// A plot cannot be drawn.
pub(super) fn html(page: &[Block]) -> anyhow::Result<String> {
    let title = page.iter().find_map(|block| match block {
        Block::Heading(1, words) => Some(words.as_str()),
        _ => None,
    });
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n",
        escaped(title.unwrap_or_default())
    );
    add(&mut text, page)?;
    text.push_str("</body>\n</html>\n");
    Ok(text)
}

fn add(text: &mut String, blocks: &[Block]) -> anyhow::Result<()> {
    for block in blocks {
        match block {
            Block::Heading(level, words) => {
                let _ = writeln!(text, "<h{level}>{}</h{level}>", escaped(words));
            }
            Block::Text(words) => {
                let _ = writeln!(text, "<p>{}</p>", inline(words));
            }
            Block::Table(grid) => add_table(text, grid),
            Block::Plots(plots) => {
                text.push_str("<div class=\"plots\">\n");
                for plot in plots {
                    add_plot(text, plot)?;
                }
                text.push_str("</div>\n");
            }
            Block::Folded(summary, inner) => {
                let _ = writeln!(text, "<details><summary>{}</summary>", escaped(summary));
                add(text, inner)?;
                text.push_str("</details>\n");
            }
        }
    }
    Ok(())
}

fn add_table(text: &mut String, grid: &Grid) {
    text.push_str("<div class=\"wide\"><table>\n");
    let heads = [(&grid.heads, "th")].into_iter();
    for (cells, tag) in heads.chain(grid.rows.iter().map(|row| (row, "td"))) {
        text.push_str("<tr>");
        for cell in cells {
            let _ = write!(text, "<{tag}>{}</{tag}>", escaped(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n");
}

fn add_plot(text: &mut String, plot: &Plot) -> anyhow::Result<()> {
    let title = escaped(&plot.title);
    let drawn = plot::svg(plot)?;
    let labelled = drawn.replacen(
        "<svg ",
        &format!("<svg role=\"img\" aria-label=\"{title}\" "),
        1,
    );
    let _ = writeln!(text, "<figure><figcaption>{title}</figcaption>\n{labelled}");
    if !plot.names.is_empty() {
        text.push_str("<ol class=\"names\">");
        for name in &plot.names {
            let _ = write!(text, "<li>{}</li>", escaped(name));
        }
        text.push_str("</ol>\n");
    }
    text.push_str("<ul class=\"legend\">");
    for (at, series) in plot.series.iter().enumerate() {
        let (colour, name) = (plot::colour(at), escaped(&series.name));
        let _ = write!(text, "<li><i style=\"background:{colour}\"></i>{name}</li>");
    }
    text.push_str("</ul>\n<details><summary>Points</summary>\n");
    add_table(text, &points(plot));
    text.push_str("</details></figure>\n");
    Ok(())
}

/// Escapes a text, and shows the few marks of the report's own texts.
fn inline(text: &str) -> String {
    let mut shown = escaped(text);
    for (mark, tag) in [("**", "strong"), ("`", "code")] {
        while let Some((before, rest)) = shown.split_once(mark) {
            let Some((inside, after)) = rest.split_once(mark) else {
                break;
            };
            shown = format!("{before}<{tag}>{inside}</{tag}>{after}");
        }
    }
    shown
}

/// Escapes the characters that HTML would read as markup, in text and in attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
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
    fn names_cannot_become_markup_and_nothing_is_fetched() {
        let grid = Grid {
            heads: vec!["<b>".into()],
            rows: vec![vec!["\"><script>alert('x')</script>".into()]],
        };
        let page = [
            Block::Heading(1, "a & b".into()),
            Block::Text("`x` is **y**".into()),
            Block::Table(grid),
        ];
        let text = html(&page).unwrap();
        assert!(text.contains("<title>a &amp; b</title>"), "{text}");
        assert!(
            text.contains("<p><code>x</code> is <strong>y</strong></p>"),
            "{text}"
        );
        assert!(
            text.contains("&quot;&gt;&lt;script&gt;alert(&#39;x&#39;)"),
            "{text}"
        );
        for foreign in ["<script", "<link", "<img", "url(", "@import", "src="] {
            assert!(!text.contains(foreign), "{foreign}");
        }
        assert!(text.contains("width=device-width"));
    }
}
