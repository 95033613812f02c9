//! The claims as a picture: rates above, times below, one server left, three right.

use crate::drawing::Drawing;
use crate::measure::{BARE, CLAIM, CLAIM_ATTACHED, LEVELS, RAW, SERVERS};
use crate::nomad;
use crate::numbers::{self, grouped};
use crate::row::{Part, Row};
use crate::stats::count;

const SERIES: [(&str, &str); 4] =
    [(RAW, "raw"), (BARE, "bare"), (CLAIM, "claim"), (CLAIM_ATTACHED, "attached")];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 640.0;
const PANEL_WIDTH: f64 = 400.0;
const LEFT: [f64; 2] = [64.0, 536.0];
/// Top and height of the panels above and below.
const RATES: (f64, f64) = (110.0, 240.0);
const TIMES: (f64, f64) = (410.0, 170.0);

/// The plot of a run.
pub fn svg(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.part == Part::Claims).collect();
    let mut drawing = Drawing::new(
        (WIDTH, HEIGHT),
        "Claims, beside what the bus itself can do",
        "Claims per second and their times beside the limits of the bus",
    );
    drawing.legend();
    for (servers, left) in SERVERS.into_iter().zip(LEFT) {
        let on_servers: Vec<&Row> =
            rows.iter().copied().filter(|row| row.servers == servers).collect();
        if on_servers.is_empty() {
            continue;
        }
        drawing.text(left, RATES.0 - 16.0, "panel", "start", numbers::servers(servers));
        drawing.rates(&on_servers, left);
        drawing.times(&on_servers, left);
    }
    drawing.finished("callers at once; every write is synced to disk before it is acknowledged")
}

impl Drawing {
    fn legend(&mut self) {
        let mut x = 24.0;
        for (name, class) in SERIES {
            self.put(format_args!(
                "<rect x=\"{x}\" y=\"52\" width=\"12\" height=\"12\" rx=\"2\" class=\"{class}\"/>"
            ));
            self.text(x + 18.0, 63.0, "", "start", name);
            x += 42.0 + 7.2 * count(name.len());
        }
        self.line((x, 58.0), (x + 16.0, 58.0), "nomad");
        self.text(x + 22.0, 63.0, "", "start", "a claim in Nomad");
    }

    fn rates(&mut self, rows: &[&Row], left: f64) {
        let (top, height) = RATES;
        let nomad = |row: &&Row| nomad::beside(row).and_then(|figure| figure.per_second);
        let highest =
            rows.iter().flat_map(|row| [row.per_second, nomad(row)]).flatten().fold(1.0, f64::max);
        let (step, most) = ticks(highest);
        let y = |rate: f64| top + height * (1.0 - rate / most);
        let mut tick = 0.0;
        while tick <= most {
            self.line((left, y(tick)), (left + PANEL_WIDTH, y(tick)), "grid");
            self.text(left - 8.0, y(tick) + 4.0, "small quiet", "end", &grouped_or_zero(tick));
            tick += step;
        }
        self.text(left - 8.0, top - 14.0, "small quiet", "end", "per s");
        for (x, width, class, row) in placed(rows, left) {
            let Some(rate) = row.per_second else { continue };
            self.put(format_args!(
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" rx=\"2\" \
                 class=\"{class}\"/>",
                y(rate),
                (top + height - y(rate)).max(1.0)
            ));
            let mut label_bottom = y(rate);
            if let Some(nomad_rate) = nomad(&row) {
                self.line((x - 2.0, y(nomad_rate)), (x + width + 2.0, y(nomad_rate)), "nomad");
                // Keeps the number off Nomad's line.
                if (label_bottom - 18.0..label_bottom).contains(&y(nomad_rate)) {
                    label_bottom = y(nomad_rate);
                }
            }
            self.text(x + width / 2.0, label_bottom - 5.0, "small", "middle", &short(rate));
        }
    }

    fn times(&mut self, rows: &[&Row], left: f64) {
        let (top, height) = TIMES;
        // 0.1 ms to 1 s, in powers of ten, so that a wait a hundred times as long still shows.
        let y = |us: f64| top + height * (1.0 - ((us / 100.0).log10() / 4.0).clamp(0.0, 1.0));
        for (us, label) in [(1e2, "0.1"), (1e3, "1"), (1e4, "10"), (1e5, "100"), (1e6, "1 000")] {
            self.line((left, y(us)), (left + PANEL_WIDTH, y(us)), "grid");
            self.text(left - 8.0, y(us) + 4.0, "small quiet", "end", label);
        }
        self.text(left - 8.0, top - 14.0, "small quiet", "end", "ms");
        self.text(left, top - 14.0, "small quiet", "start", "dot: p50, bar: p99");
        for (x, width, class, row) in placed(rows, left) {
            let (Some(p50), Some(p99)) = (row.p50_us, row.p99_us) else { continue };
            let middle = x + width / 2.0;
            let whisker = format!("{class} whisker");
            self.line((middle, y(p50)), (middle, y(p99)), &whisker);
            self.line((middle - 6.0, y(p99)), (middle + 6.0, y(p99)), &whisker);
            self.put(format_args!(
                "<circle cx=\"{middle:.1}\" cy=\"{:.1}\" r=\"4.5\" class=\"{class}\"/>",
                y(p50)
            ));
        }
        for (at, level) in LEVELS.into_iter().enumerate() {
            let x = left + group_width() * (count(at) + 0.5);
            for bottom in [RATES.0 + RATES.1, top + height] {
                self.text(x, bottom + 18.0, "quiet", "middle", &level.to_string());
            }
        }
    }
}

fn group_width() -> f64 {
    PANEL_WIDTH / count(LEVELS.len())
}

/// The position of each row's bar: left edge, width, class.
fn placed<'a>(rows: &[&'a Row], left: f64) -> Vec<(f64, f64, &'static str, &'a Row)> {
    let gap = 5.0;
    let series = count(SERIES.len());
    let width = (group_width() - 16.0) / series - gap;
    let mut placed = Vec::new();
    for (group, level) in LEVELS.into_iter().enumerate() {
        for (series_index, (name, class)) in SERIES.into_iter().enumerate() {
            let row = rows.iter().find(|row| row.at_once == level && row.name == name);
            let start = left + group_width() * count(group) + 8.0 + gap / 2.0;
            let x = start + (width + gap) * count(series_index);
            placed.extend(row.map(|row| (x, width, class, *row)));
        }
    }
    placed
}

/// The distance of the grid's lines and the highest line: round numbers, four to eight lines.
fn ticks(highest: f64) -> (f64, f64) {
    let power = 10_f64.powf((highest / 4.0).log10().floor());
    let fits = |step: &f64| highest / step <= 8.0;
    let step = [1.0, 2.0, 5.0, 10.0].map(|round| round * power).into_iter().find(fits);
    let step = step.unwrap_or(10.0 * power);
    (step, step * (highest * 1.02 / step).ceil())
}

/// A rate as it fits over a bar.
fn short(rate: f64) -> String {
    if rate < 995.0 { format!("{rate:.0}") } else { format!("{:.1}k", rate / 1e3) }
}

fn grouped_or_zero(number: f64) -> String {
    if number == 0.0 { "0".to_owned() } else { grouped(number) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_is_round_and_holds_the_highest_bar() {
        for highest in [1.0, 930.0, 3_011.0, 7_400.0, 17_700.0, 99_999.0] {
            let (step, most) = ticks(highest);
            assert!(most >= highest && most / step <= 9.0, "{highest}: {step} to {most}");
        }
        assert_eq!(ticks(7_400.0), (1_000.0, 8_000.0));
    }

    #[test]
    fn every_row_has_a_bar_and_a_dot_within_the_paper() {
        let rows = crate::row::tests::rows();
        let svg = svg(&rows);
        assert_eq!(svg.matches("<circle").count(), rows.len());
        // Besides the bars: the paper, and the legend.
        assert_eq!(svg.matches("<rect").count(), rows.len() + 1 + SERIES.len());
        for number in svg.split("y=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let y: f64 = number.parse().unwrap();
            assert!((0.0..=HEIGHT).contains(&y), "{y}");
        }
        assert_eq!(svg.matches('<').count(), svg.matches('>').count());
    }

    #[test]
    fn the_faster_bar_is_the_higher_one() {
        let rows = crate::row::tests::rows();
        let svg = svg(&rows);
        let height = |class: &str| {
            let bars = svg.lines().filter(|line| line.starts_with("<rect"));
            let mut bars = bars.filter(|line| line.contains(&format!("class=\"{class}\"")));
            // The first rectangle is the legend's.
            let bar = bars.nth(1).unwrap();
            let height = bar.split("height=\"").nth(1).unwrap().split('"').next().unwrap();
            height.parse::<f64>().unwrap()
        };
        assert!(height("raw") > height("bare") && height("bare") > height("claim"));
    }
}
