//! Drawings, as SVG within a page.

use std::fmt::Write as _;

use super::escaped;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 220.0;
/// The room for what is written at the axes.
const MARGIN: f64 = 40.0;
/// The least lateness that is drawn, in ms: the scale is logarithmic.
const LEAST: f64 = 0.1;
/// As many points make a line.
const POINTS: usize = 200;

/// Which part of all had started after how many ms, of both sides; both ascending.
pub(super) fn distribution(limit: &[f64], ours: &[f64]) -> String {
    let latest = limit
        .last()
        .into_iter()
        .chain(ours.last())
        .fold(1.0, |most: f64, late| most.max(*late));
    let decades = (latest / LEAST).log10().ceil();
    let x = |late: f64| MARGIN + (late.max(LEAST) / LEAST).log10() / decades * (WIDTH - 2.0 * MARGIN);
    let y = |part: f64| HEIGHT - MARGIN / 2.0 - part * (HEIGHT - MARGIN);
    let mut svg = opened(HEIGHT);
    for decade in 0..=decades as i32 {
        let late = LEAST * 10_f64.powi(decade);
        let at = x(late);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{at:.1}\" y1=\"{:.1}\" x2=\"{at:.1}\" y2=\"{:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{late} ms</text>",
            y(0.0),
            y(1.0),
            HEIGHT - 4.0
        );
    }
    for part in [0.0, 0.5, 1.0] {
        let at = y(part);
        let _ = writeln!(
            svg,
            "<line class=\"axis\" x1=\"{MARGIN}\" y1=\"{at:.1}\" x2=\"{:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"2\" y=\"{:.1}\">{:.0}%</text>",
            WIDTH - MARGIN,
            at + 4.0,
            part * 100.0
        );
    }
    for (class, late) in [("limit", limit), ("ours", ours)] {
        if late.is_empty() {
            continue;
        }
        let mut points = String::new();
        for point in 0..=POINTS {
            let part = point as f64 / POINTS as f64;
            let at = (part * (late.len() - 1) as f64) as usize;
            let _ = write!(points, "{:.1},{:.1} ", x(late[at]), y(part));
        }
        let _ = writeln!(
            svg,
            "<polyline class=\"{class}\" stroke-width=\"2\" points=\"{}\"/>",
            points.trim_end()
        );
    }
    svg + "</svg>\n"
}

/// Pairs of bars with their names: the limit and ours, each pair as long as the longer of the two.
pub(super) fn bars(pairs: &[(String, f64, f64)]) -> String {
    const NAMES: f64 = 300.0;
    const PAIR: f64 = 34.0;
    const BAR: f64 = 12.0;
    let mut svg = opened(pairs.len() as f64 * PAIR);
    for (place, (name, limit, ours)) in pairs.iter().enumerate() {
        let top = place as f64 * PAIR;
        let most = limit.max(*ours).max(f64::MIN_POSITIVE);
        let _ = writeln!(
            svg,
            "<text x=\"0\" y=\"{:.1}\">{}</text>",
            top + 17.0,
            escaped(name)
        );
        for (class, rate, down) in [("limit-bar", limit, 2.0), ("ours-bar", ours, 3.0 + BAR)] {
            let length = rate / most * (WIDTH - NAMES - 80.0);
            let _ = writeln!(
                svg,
                "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{:.1}\" width=\"{length:.1}\" height=\"{BAR}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{rate:.0}</text>",
                top + down,
                NAMES + length + 4.0,
                top + down + 10.0
            );
        }
    }
    svg + "</svg>\n"
}

fn opened(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n")
}
