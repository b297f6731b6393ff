// SPDX-License-Identifier: GPL-2.0
//! A chart for each figure: every line against the size, on logarithmic scales.

use std::path::Path;

use anyhow::Result;
use anyhow::anyhow;
use plotters::prelude::*;

use crate::results::Results;

/// The size of a chart.
const SIZE: (u32, u32) = (900, 520);

/// The size of all text below the title. Pages show charts slightly smaller than drawn.
const TEXT: u32 = 16;

/// The colours of lines, all of which stand out from white.
const COLOURS: [RGBColor; 9] = [
    RGBColor(200, 30, 60),
    RGBColor(30, 110, 180),
    RGBColor(40, 140, 60),
    RGBColor(220, 120, 0),
    RGBColor(120, 50, 160),
    RGBColor(20, 150, 160),
    RGBColor(110, 80, 50),
    RGBColor(90, 90, 90),
    RGBColor(0, 0, 0),
];

/// A figure that has a chart.
pub struct Chart {
    pub figure: &'static str,
    /// The name of its file, without the extension.
    pub file: &'static str,
    /// The unit of the vertical axis.
    pub unit: &'static str,
    /// The title of the horizontal axis.
    pub across: &'static str,
    /// Lines that have the same value for all sizes.
    pub levels: &'static [&'static str],
}

/// Draws a chart. Returns false if there is nothing to draw.
pub fn draw(chart: &Chart, results: &Results, folder: &Path) -> Result<bool> {
    let lines = results.lines(chart.figure);
    let points = || lines.iter().flat_map(|(_, points)| points);
    let positive = || points().filter(|(size, value)| *size > 0 && *value > 0.0);
    if positive().next().is_none() {
        return Ok(false);
    }
    let fold = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::MAX, f64::MIN), |(low, high), value| {
            (low.min(value), high.max(value))
        })
    };
    let (left, right) = fold(&mut positive().map(|(size, _)| *size as f64));
    let (low, high) = fold(&mut positive().map(|(_, value)| *value));
    let path = folder.join(format!("{}.svg", chart.file));
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    drawn(
        chart,
        &lines,
        &area,
        (left, right.max(left * 2.0)),
        decades(low, high),
    )
    .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
    Ok(true)
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn drawn(
    chart: &Chart,
    lines: &[(String, Vec<(u64, f64)>)],
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    across: (f64, f64),
    up: (f64, f64),
) -> Drawn {
    area.fill(&WHITE)?;
    let mut context = ChartBuilder::on(area)
        .caption(chart.figure, ("sans-serif", 20))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(56)
        .y_label_area_size(92)
        .build_cartesian_2d(
            (across.0..across.1).log_scale().base(2.0),
            (up.0..up.1).log_scale(),
        )?;
    context
        .configure_mesh()
        .x_desc(chart.across)
        .y_desc(chart.unit)
        .axis_desc_style(("sans-serif", TEXT))
        .label_style(("sans-serif", TEXT))
        .x_label_formatter(&|value| short(*value))
        .y_label_formatter(&|value| short_decimal(*value))
        .light_line_style(WHITE.mix(0.0))
        .draw()?;
    for (index, (name, points)) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()].to_rgba();
        let mut points: Vec<(f64, f64)> = points
            .iter()
            .filter(|(size, value)| *size > 0 && *value > 0.0)
            .map(|(size, value)| (*size as f64, *value))
            .collect();
        if chart.levels.contains(&name.as_str()) {
            points = points.first().map_or_else(Vec::new, |(_, level)| {
                vec![(across.0, *level), (across.1, *level)]
            });
        }
        context
            .draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?
            .label(name.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        let mark = |point: &(f64, f64)| Circle::new(*point, 3, colour.filled());
        context.draw_series(points.iter().map(mark))?;
    }
    context
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(("sans-serif", TEXT))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    area.present()?;
    Ok(())
}

/// Returns a range from one power of ten to another, around the values, so that the axis has at
/// least two numbers. A margin of one percent keeps rounding from hiding the outer numbers.
fn decades(low: f64, high: f64) -> (f64, f64) {
    let bottom = low.log10().floor();
    let top = high.log10().ceil().max(bottom + 1.0);
    (10f64.powf(bottom) * 0.99, 10f64.powf(top) * 1.01)
}

/// Formats a size, as `64K`.
pub fn short(value: f64) -> String {
    let units = ["", "K", "M", "G"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.0}{}", units[unit])
}

/// Formats a number, as `1.5M`.
fn short_decimal(value: f64) -> String {
    match value {
        1e9.. => format!("{:.1}G", value / 1e9),
        1e6..1e9 => format!("{:.1}M", value / 1e6),
        1e3..1e6 => format!("{:.1}k", value / 1e3),
        1.0..1e3 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHART: Chart = Chart {
        figure: "f",
        file: "f",
        unit: "bytes per second",
        across: "bytes",
        levels: &["one point"],
    };

    #[test]
    fn chart_is_drawn_only_if_there_are_sized_results() {
        let folder = std::env::temp_dir().join(format!("scif-bench-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut results = Results::default();
        assert!(!draw(&CHART, &results, &folder).unwrap());
        results.add("f", "without a size", 0, 1.0);
        assert!(!draw(&CHART, &results, &folder).unwrap());
        for size in [1, 64, 1 << 20] {
            results.add("f", "a line", size, size as f64 * 1e3);
        }
        results.add("f", "one point", 64, 7.0);
        assert!(draw(&CHART, &results, &folder).unwrap());
        let text = std::fs::read_to_string(folder.join("f.svg")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(text.contains("a line") && text.contains("bytes per second"));
    }

    #[test]
    fn vertical_axis_ends_at_powers_of_ten() {
        for (low, high, bottom, top) in [
            (3.2, 47.0, 1.0, 100.0),
            (20.0, 30.0, 10.0, 100.0),
            (10.0, 10.0, 10.0, 100.0),
        ] {
            let (from, to) = decades(low, high);
            assert!(from < bottom && from > bottom * 0.98);
            assert!(to > top && to < top * 1.02);
        }
    }

    #[test]
    fn axis_numbers_are_shortened() {
        assert_eq!(short(65536.0), "64K");
        assert_eq!(short(8.0), "8");
        assert_eq!(short_decimal(1_500_000.0), "1.5M");
    }
}
