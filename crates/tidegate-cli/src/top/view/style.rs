//! The styles of text. Without colours the words alone tell alarms from figures.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

/// The part that a text plays in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Dim,
    Strong,
    Good,
    Warn,
    Bad,
    Head,
    Chosen,
}

/// Chooses styles, with colours or without.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) color: bool,
}

impl Look {
    pub(super) fn style(self, tone: Tone) -> Style {
        let style = Style::new();
        let colored = |color| match self.color {
            true => style.fg(color),
            false => style,
        };
        match tone {
            Tone::Plain => style,
            Tone::Dim => style.add_modifier(Modifier::DIM),
            Tone::Strong => style.add_modifier(Modifier::BOLD),
            Tone::Good => colored(Color::Green),
            Tone::Warn => colored(Color::Yellow),
            Tone::Bad => colored(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Head => colored(Color::Cyan).add_modifier(Modifier::BOLD),
            Tone::Chosen => style.add_modifier(Modifier::REVERSED),
        }
    }

    pub(super) fn span(self, tone: Tone, text: impl Into<String>) -> Span<'static> {
        Span::styled(text.into(), self.style(tone))
    }

    pub(super) fn line(self, tone: Tone, text: impl Into<String>) -> Line<'static> {
        Line::from(self.span(tone, text))
    }
}

/// Returns the number of columns that the text takes.
pub(super) fn width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Cuts the text to so many columns, and marks the cut.
pub(super) fn cut(text: &str, most: usize) -> String {
    if width(text) <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    let mut buffer = [0; 4];
    for c in text.chars() {
        let columns = width(c.encode_utf8(&mut buffer));
        if used + columns + 1 > most {
            break;
        }
        used += columns;
        kept.push(c);
    }
    if most > 0 {
        kept.push('\u{2026}');
    }
    kept
}

/// Breaks the text between words into lines of at most so many columns. A longer word is cut.
pub(super) fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(cut(word, most)),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_respect_wide_characters() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab\u{2026}");
        assert_eq!(cut("日本語", 4), "日\u{2026}");
        assert_eq!(
            (cut("ab", 1), cut("ab", 0)),
            ("\u{2026}".into(), String::new())
        );
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap("the disk is full", 8), ["the disk", "is full"]);
        assert_eq!(wrap("unbelievable", 4), ["unb\u{2026}"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("a b", 0), ["", ""]);
    }
}
