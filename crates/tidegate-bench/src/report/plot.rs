//! Draws a plot as SVG. Pure.
//!
//! The page sets the colours of text and lines, for a light and a dark scheme. The legend stands beside the
//! SVG, so that it stays readable on a narrow screen.

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use tidegate_cli::report::count;

use super::curves::{Axis, Mark, Plot, Series};

/// The width and the height of a plot in its own units. A phone shows it in about this width.
const SIZE: (u32, u32) = (340, 260);
/// The size of text for the drawing library, which writes about four fifths of it into the SVG.
const TEXT: i32 = 15;
/// The colours of the series, in their order. All have contrast on white and on black.
const COLOURS: [(u8, u8, u8); 8] = [
    (31, 119, 180),
    (230, 110, 10),
    (40, 150, 40),
    (214, 60, 60),
    (148, 103, 189),
    (160, 100, 80),
    (215, 95, 175),
    (20, 160, 180),
];

/// The least factor between the ends of a logarithmic scale, so that it has several ticks.
const DECADES: f64 = 30.0;
/// The number of points of a series from which on they are drawn smaller.
const MANY: usize = 30;

/// Returns the colour of the series at this place, as CSS.
pub(super) fn colour(at: usize) -> String {
    let (r, g, b) = COLOURS[at % COLOURS.len()];
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Draws a plot as an SVG element.
///
/// # Errors
///
/// The plot has no points that its axes can show.
pub(super) fn svg(plot: &Plot) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let (x, y) = (range(plot, 0)?, range(plot, 1)?);
        match (spans_decades(&plot.x, &x), spans_decades(&plot.y, &y)) {
            (false, false) => draw(&area, x, y.clone(), plot, y.start)?,
            (false, true) => draw(&area, x, y.clone().log_scale(), plot, y.start)?,
            (true, false) => draw(&area, x.log_scale(), y.clone(), plot, y.start)?,
            (true, true) => draw(&area, x.log_scale(), y.clone().log_scale(), plot, y.start)?,
        }
        area.present()?;
    }
    Ok(text)
}

/// Returns whether an axis is drawn with a logarithmic scale. Within a decade such a scale has one tick, so a
/// narrow range is drawn with a linear one.
fn spans_decades(axis: &Axis, range: &std::ops::Range<f64>) -> bool {
    axis.is_log && range.start > 0.0 && range.end / range.start >= DECADES
}

/// Returns the range of the plot's axis, x for 0 and y for 1, a little wider than its points.
fn range(plot: &Plot, which: usize) -> anyhow::Result<std::ops::Range<f64>> {
    let axis: &Axis = if which == 0 { &plot.x } else { &plot.y };
    let points = plot.series.iter().flat_map(|series| &series.points);
    let values = points.map(|point| if which == 0 { point.0 } else { point.1 });
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| match ends {
        None => Some((value, value)),
        Some((low, high)) => Some((low.min(value), high.max(value))),
    });
    let (low, high) = ends.ok_or_else(|| anyhow!("{}: no points", plot.title))?;
    if which == 0 && (plot.mark == Mark::Bars || !plot.names.is_empty()) {
        return Ok(low - 0.5..high + 0.5);
    }
    if plot.mark == Mark::Bars && low > 0.0 && high / low < DECADES {
        // Bars on a linear scale begin at zero, so that their lengths compare.
        return Ok(0.0..high * 1.1);
    }
    Ok(match axis.is_log {
        true if low > 0.0 => low / 1.25..high * 1.25,
        true => return Err(anyhow!("{}: {low} on a logarithmic axis", plot.title)),
        false => {
            let gap = ((high - low) * 0.05).max(high.abs().max(1.0) * 0.01);
            low - gap..high + gap
        }
    })
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn draw<X, Y>(area: &Area<'_>, x: X, y: Y, plot: &Plot, floor: f64) -> anyhow::Result<()>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .margin(6)
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d(x, y)?;
    let tick = |value: &f64| count(*value);
    // The names of a plot's places stand below it, by their numbers.
    let place = |value: &f64| match value.fract().abs() < 0.01 {
        true => format!("{value:.0}"),
        false => String::new(),
    };
    let mut mesh = chart.configure_mesh();
    mesh.x_labels(6)
        .y_labels(6)
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.15))
        .axis_style(BLACK.mix(0.6))
        .label_style(("sans-serif", TEXT))
        .x_desc(plot.x.label.as_str())
        .y_desc(plot.y.label.as_str())
        .y_label_formatter(&tick);
    if plot.names.is_empty() {
        mesh.x_label_formatter(&tick);
    } else {
        mesh.x_label_formatter(&place);
    }
    mesh.draw()?;
    // The first series is drawn last, above the others, because it is usually ours.
    for (at, series) in plot.series.iter().enumerate().rev() {
        let (r, g, b) = COLOURS[at % COLOURS.len()];
        let (colour, Series { points, .. }) = (RGBColor(r, g, b), series);
        if plot.mark == Mark::Line {
            let width = if at == 0 { 3 } else { 2 };
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(width)))?;
        }
        if plot.mark == Mark::Bars {
            let bar = |&(x, y): &(f64, f64)| {
                Rectangle::new([(x - 0.35, floor), (x + 0.35, y)], colour.filled())
            };
            chart.draw_series(points.iter().map(bar))?;
        } else {
            let dot = |&point: &(f64, f64)| {
                Circle::new(
                    point,
                    if points.len() < MANY { 3 } else { 2 },
                    colour.filled(),
                )
            };
            chart.draw_series(points.iter().map(dot))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(mark: Mark, is_log: bool, points: &[(f64, f64)]) -> Plot {
        let axis = |label: &str| Axis {
            label: label.into(),
            is_log,
        };
        Plot {
            title: "t".into(),
            x: axis("load <x>"),
            y: axis("y"),
            mark,
            series: vec![Series {
                name: "a".into(),
                points: points.into(),
            }],
            names: Vec::new(),
        }
    }

    /// Returns the centres of all circles in an SVG element.
    fn circles(svg: &str) -> Vec<(f64, f64)> {
        let number = |part: &str, key: &str| -> f64 {
            let (_, rest) = part.split_once(&format!("{key}=\"")).unwrap();
            rest.split_once('"').unwrap().0.parse().unwrap()
        };
        let parts = svg.split("<circle").skip(1);
        parts
            .map(|part| (number(part, "cx"), number(part, "cy")))
            .collect()
    }

    #[test]
    fn a_point_lies_where_its_figures_say() {
        let points = [(1.0, 10.0), (10.0, 100.0), (100.0, 1000.0), (100.0, 10.0)];
        let svg = svg(&plot(Mark::Line, true, &points)).unwrap();
        let at = circles(&svg);
        assert_eq!(at.len(), 4);
        // On logarithmic axes equal factors are equal distances; y grows downwards.
        assert!(
            ((at[1].0 - at[0].0) - (at[2].0 - at[1].0)).abs() <= 1.0,
            "{at:?}"
        );
        assert!(
            ((at[0].1 - at[1].1) - (at[1].1 - at[2].1)).abs() <= 1.0,
            "{at:?}"
        );
        assert_eq!((at[3].0, at[3].1), (at[2].0, at[0].1));
        let points = [(0.0, 0.0), (50.0, 1.0), (100.0, 4.0)];
        let svg = super::svg(&plot(Mark::Dots, false, &points)).unwrap();
        let at = circles(&svg);
        assert!(
            ((at[1].0 - at[0].0) - (at[2].0 - at[1].0)).abs() <= 1.0,
            "{at:?}"
        );
        assert!(
            (3.0 * (at[0].1 - at[1].1) - (at[1].1 - at[2].1)).abs() <= 3.0,
            "{at:?}"
        );
    }

    #[test]
    fn names_are_escaped_and_bars_are_drawn() {
        let bars = svg(&plot(Mark::Bars, true, &[(1.0, 1.0), (2.0, 50.0)])).unwrap();
        assert!(bars.contains("load &lt;x&gt;"), "{bars}");
        assert!(bars.matches("<rect").count() >= 2, "{bars}");
        assert!(svg(&plot(Mark::Line, true, &[])).is_err());
        assert!(svg(&plot(Mark::Line, true, &[(0.0, 1.0)])).is_err());
    }
}
