//! What grows with the number of volumes as a picture: times left, memory right, all in powers of
//! ten.

use std::ops::Range;

use crate::drawing::Drawing;
use crate::measure::scale::{CLAIM, CLAIM_STARTS, LIST_OF_PLUGIN, MEMORY, OF_NODE, RELEASE};
use crate::numbers::{ms_unit, whole};
use crate::row::{Part, Row};
use crate::stats::count;

/// Colours of the series of a panel.
const CLASSES: [&str; 5] = ["claim", "attached", "bare", "raw", "nomad"];
const TIMES: [&str; 5] = [CLAIM, RELEASE, OF_NODE, LIST_OF_PLUGIN, CLAIM_STARTS];
const PROCESSES: [&str; 3] = ["claim", "volumewatcher", "nats-server"];

const SIZE: (f64, f64) = (960.0, 500.0);
/// Top and height of the panels.
const TOP: f64 = 170.0;
const PANEL_HEIGHT: f64 = 270.0;
const PANEL_WIDTH: f64 = 370.0;

/// A panel: its left edge, its title, its lines from the bottom to the top as powers of ten, what a
/// row shows there and how that is written.
struct Panel {
    left: f64,
    title: &'static str,
    decades: Range<i32>,
    figure: fn(&Row) -> Option<f64>,
    written: fn(f64) -> String,
}

/// The plot of the rows of several sizes; none without such rows.
pub fn svg(rows: &[Row]) -> Option<String> {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.part == Part::Scale).collect();
    let sizes = rows.iter().filter_map(|row| row.volumes);
    let (least, most) = (sizes.clone().min()?, sizes.max()?);
    let title = "What grows with the number of volumes";
    let mut drawing = Drawing::new(SIZE, title, title);
    let times = Panel {
        left: 84.0,
        title: "time of one, median of one caller",
        decades: 2..9,
        figure: |row| row.p50_us,
        written: ms_unit,
    };
    let sizes = Panel {
        left: 564.0,
        title: "memory",
        decades: 1..5,
        figure: |row| row.rss().map(|bytes| bytes / f64::from(1 << 20)),
        written: |mib| format!("{mib:.0} MiB"),
    };
    drawing.panel(&times, &rows, &TIMES.map(str::to_owned), least..most);
    drawing.panel(&sizes, &rows, &PROCESSES.map(|name| format!("{MEMORY} {name}")), least..most);
    Some(drawing.finished("volumes; one server, every write is synced to disk"))
}

impl Drawing {
    fn panel(&mut self, panel: &Panel, rows: &[&Row], names: &[String], sizes: Range<u64>) {
        let Panel { left, title, decades, figure, written } = panel;
        let right = left + PANEL_WIDTH;
        self.text(*left, 62.0, "panel", "start", title);
        let height = |figure: f64| {
            let decade = figure.max(1.0).log10() - f64::from(decades.start);
            let share = decade / f64::from(decades.end - 1 - decades.start);
            TOP + PANEL_HEIGHT * (1.0 - share.clamp(0.0, 1.0))
        };
        for decade in decades.clone() {
            let figure = 10_f64.powi(decade);
            let y = height(figure);
            self.line((*left, y), (right, y), "grid");
            self.text(left - 8.0, y + 4.0, "small quiet", "end", &written(figure));
        }
        let across = (width(sizes.end) - width(sizes.start)).max(f64::MIN_POSITIVE);
        let x = |size: u64| {
            left + 30.0 + (PANEL_WIDTH - 60.0) * (width(size) - width(sizes.start)) / across
        };
        let mut volumes: Vec<u64> = rows.iter().filter_map(|row| row.volumes).collect();
        volumes.sort_unstable();
        volumes.dedup();
        for size in volumes {
            let below = TOP + PANEL_HEIGHT + 18.0;
            self.text(x(size), below, "quiet", "middle", &whole(size));
        }
        for (at, (name, class)) in names.iter().zip(CLASSES).enumerate() {
            let y = 80.0 + 16.0 * count(at);
            self.line((*left, y - 4.0), (left + 14.0, y - 4.0), &format!("{class} trend"));
            self.text(left + 20.0, y, "small", "start", name);
            let points = rows.iter().filter(|row| row.name == *name);
            let points = points.filter_map(|row| Some((x(row.volumes?), height(figure(row)?))));
            let points: Vec<(f64, f64)> = points.collect();
            for pair in points.windows(2) {
                self.line(pair[0], pair[1], &format!("{class} trend"));
            }
            for (x, y) in points {
                self.put(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" class=\"{class}\"/>"
                ));
            }
        }
    }
}

/// Where a size stands on an axis of powers of ten.
fn width(size: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    let size = size as f64;
    size.max(1.0).log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_figure_stands_higher_and_a_larger_size_further_right() {
        let row = |volumes, p50_us| {
            let row = Row::new(Part::Scale, CLAIM, 1, 1);
            Row { volumes: Some(volumes), p50_us: Some(p50_us), ..row }
        };
        let missed = Row { p50_us: None, ..row(100_000, 0.0) };
        let rows = [row(1_000, 900.0), missed, row(1_000_000, 1_200.0)];
        let drawn = svg(&rows).unwrap();
        let circles = drawn.lines().filter(|line| line.starts_with("<circle"));
        let number = |line: &str, name: &str| {
            let text = line.split(&format!("{name}=\"")).nth(1).unwrap();
            text.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let at: Vec<_> = circles.map(|line| (number(line, "cx"), number(line, "cy"))).collect();
        assert!(at.len() == 2 && at[0].0 < at[1].0 && at[0].1 > at[1].1, "{at:?}");
        assert!(drawn.contains(">1 000 000</text>"), "{drawn}");
        assert_eq!(svg(&crate::row::tests::rows()), None);
    }
}
