//! The pictures of the state, pure.

mod boundaries;
mod style;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::Line;

/// Writes the lines from the top of `area`, as far as they fit.
fn write(lines: &[Line<'_>], area: Rect, buf: &mut Buffer) {
    for (row, line) in area.rows().zip(lines) {
        buf.set_line(row.x, row.y, line, row.width);
    }
}
