//! Tables: a head, and the rows around the selected one. Columns that matter less vanish first where the
//! screen is too narrow.

use ratatui::text::Line;

use super::style::{Look, Tone, cut, width};

/// A column of a table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub(super) head: &'static str,
    /// True for numbers.
    pub(super) right: bool,
    /// The columns with the greatest number here vanish first; 0 stays.
    pub(super) rank: u8,
}

/// Creates a column of text.
pub(super) const fn left(head: &'static str, rank: u8) -> Column {
    Column {
        head,
        right: false,
        rank,
    }
}

/// Creates a column of numbers.
pub(super) const fn right(head: &'static str, rank: u8) -> Column {
    Column {
        head,
        right: true,
        rank,
    }
}

/// The least width to which the first column is cut before other columns vanish.
const FIRST_MIN: usize = 12;
const GAP: usize = 2;

/// A table with rows that are made only where they are seen.
pub(super) struct Table<'a, F> {
    pub(super) columns: &'a [Column],
    pub(super) rows: usize,
    pub(super) selected: Option<usize>,
    pub(super) row: F,
}

impl<F: Fn(usize) -> Vec<String>> Table<'_, F> {
    /// Returns at most `height` lines of at most `columns` columns: the head and the rows around the selected
    /// one.
    pub(super) fn lines(&self, look: Look, columns: usize, height: usize) -> Vec<Line<'static>> {
        let seen = height.saturating_sub(1).min(self.rows);
        let selected = self.selected.unwrap_or(0);
        let first = selected.saturating_sub(seen / 2).min(self.rows - seen);
        let cells: Vec<Vec<String>> = (first..first + seen).map(&self.row).collect();
        let widths = self.widths(&cells, columns);
        let mut lines = Vec::with_capacity(seen + 1);
        let heads: Vec<String> = self.columns.iter().map(|c| c.head.to_owned()).collect();
        if height > 0 {
            lines.push(look.line(Tone::Dim, self.line(&widths, &heads)));
        }
        for (at, row) in (first..).zip(&cells) {
            let text = self.line(&widths, row);
            lines.push(match self.selected == Some(at) {
                true => look.line(Tone::Chosen, format!("{text:<columns$}")),
                false => look.line(Tone::Plain, text),
            });
        }
        lines
    }

    /// Returns the width of each column; `None` for a column without room.
    fn widths(&self, cells: &[Vec<String>], columns: usize) -> Vec<Option<usize>> {
        let natural = |at: usize| {
            let all = cells.iter().filter_map(|row| row.get(at));
            let widest = all.map(|cell| width(cell)).max().unwrap_or(0);
            widest.max(width(self.columns[at].head))
        };
        let mut widths: Vec<_> = (0..self.columns.len())
            .map(|at| Some(natural(at)))
            .collect();
        loop {
            let shown = widths.iter().flatten().count();
            let used: usize = widths.iter().flatten().sum::<usize>() + GAP * shown;
            let Some(over) = used.checked_sub(columns).filter(|over| *over > 0) else {
                return widths;
            };
            let first = widths[0].unwrap_or(0);
            let can_give = first.saturating_sub(FIRST_MIN);
            let droppable = (0..widths.len())
                .filter(|at| widths[*at].is_some() && self.columns[*at].rank > 0)
                .max_by_key(|at| self.columns[*at].rank);
            match droppable {
                Some(at) if over > can_give => widths[at] = None,
                _ => {
                    widths[0] = Some(first.saturating_sub(over));
                    return widths;
                }
            }
        }
    }

    fn line(&self, widths: &[Option<usize>], cells: &[String]) -> String {
        let mut text = String::new();
        for ((cell, column), width_of) in cells.iter().zip(self.columns).zip(widths) {
            let Some(most) = *width_of else { continue };
            let cell = cut(cell, most);
            let pad = " ".repeat(most - width(&cell));
            text.push(' ');
            match column.right {
                true => text.extend([pad.as_str(), &cell]),
                false => text.extend([cell.as_str(), &pad]),
            }
            text.push(' ');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(
        table: &Table<'_, impl Fn(usize) -> Vec<String>>,
        columns: usize,
        height: usize,
    ) -> Vec<String> {
        let lines = table.lines(Look { color: false }, columns, height);
        lines
            .iter()
            .map(|line| line.to_string().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn columns_vanish_by_rank() {
        let table = Table {
            columns: &[
                left("name", 0),
                right("messages", 0),
                right("bytes", 1),
                right("leader", 2),
            ],
            rows: 2,
            selected: None,
            row: |at: usize| {
                vec![
                    format!("stream-number-{at}"),
                    "12".into(),
                    "34 KiB".into(),
                    "n1".into(),
                ]
            },
        };
        assert_eq!(
            text(&table, 60, 9),
            [
                " name             messages   bytes  leader",
                " stream-number-0        12  34 KiB      n1",
                " stream-number-1        12  34 KiB      n1",
            ]
        );
        assert_eq!(
            text(&table, 37, 2),
            [
                " name             messages   bytes",
                " stream-number-0        12  34 KiB",
            ]
        );
        assert_eq!(text(&table, 24, 2)[1], " stream-numb\u{2026}        12");
        for columns in 0..40 {
            let lines = table.lines(Look { color: false }, columns, 3);
            assert!(lines.len() <= 3, "{columns}");
        }
    }

    #[test]
    fn the_selected_row_is_seen() {
        const COLUMNS: [Column; 1] = [left("n", 0)];
        let table = |selected| Table {
            columns: &COLUMNS,
            rows: 100,
            selected: Some(selected),
            row: |at: usize| vec![at.to_string()],
        };
        assert_eq!(text(&table(0), 9, 4), [" n", " 0", " 1", " 2"]);
        assert_eq!(text(&table(50), 9, 4), [" n", " 49", " 50", " 51"]);
        assert_eq!(text(&table(99), 9, 4), [" n", " 97", " 98", " 99"]);
        assert!(text(&table(99), 9, 0).is_empty());
        assert_eq!(text(&table(500), 9, 2), [" n", " 99"]);
    }
}
