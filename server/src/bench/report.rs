//! The page for people: one file, with all that it shows in it.

mod drawing;

use std::fmt::Write as _;
use std::path::Path;

use super::figure::{HEADER, Line, Measured};
use super::machine;
use super::workload::Unit;

const STYLE: &str = "
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: .2em .8em .2em 0; text-align: left; border-bottom: 1px solid #ddd; white-space: nowrap; }
.met { color: #1a7f37; } .missed { color: #b35900; } .fault { color: #c00; font-weight: bold; }
svg { max-width: 100%; height: auto; } figure { margin: 1.5em 0; } figcaption { color: #555; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
.limit { stroke: #999; fill: none; } .ours { stroke: #0b62c4; fill: none; }
.limit-bar { fill: #bbb; } .ours-bar { fill: #0b62c4; } .axis { stroke: #ccc; }";

/// Writes the page.
pub(crate) fn write(file: &Path, lines: &[Line], servers: &[(&str, String)]) -> std::io::Result<()> {
    std::fs::write(file, page(lines, servers))
}

fn page(lines: &[Line], servers: &[(&str, String)]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <title>delayline bench</title>\n<style>{STYLE}\n</style>\n</head>\n<body>\n<h1>delayline bench</h1>\n\
         <p>The limit is the least work that the same server must do for the same effect, by the same driver, measured in \
         turns with the library. Only figures of one page can be compared with each other.</p>\n"
    );
    facts(&mut page, servers);
    figures(&mut page, lines);
    throughput(&mut page, lines);
    lateness(&mut page, lines);
    page.push_str("</body>\n</html>\n");
    page
}

fn facts(page: &mut String, servers: &[(&str, String)]) {
    page.push_str("<table>\n");
    let machine = machine::facts();
    let servers = servers.iter().map(|(name, version)| (*name, version.clone()));
    for (name, fact) in machine.into_iter().chain(servers) {
        let _ = writeln!(
            page,
            "<tr><th>{}</th><td>{}</td></tr>",
            escaped(name),
            escaped(&fact)
        );
    }
    page.push_str("</table>\n");
}

fn figures(page: &mut String, lines: &[Line]) {
    page.push_str("<table>\n<tr>");
    for name in HEADER {
        let _ = write!(page, "<th>{}</th>", escaped(&name.to_lowercase()));
    }
    page.push_str("</tr>\n");
    for line in lines {
        page.push_str("<tr>");
        let class = match (line.ours.faults.sum(), line.is_met()) {
            (1.., _) => "fault",
            (_, Some(true)) => "met",
            (_, Some(false)) => "missed",
            (_, None) => "",
        };
        for (at, cell) in line.cells().iter().enumerate() {
            let class = if at > 6 { class } else { "" };
            let _ = write!(page, "<td class=\"{class}\">{}</td>", escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// How many tasks a second, by both sides: where it was measured, one by one and in batches.
fn throughput(page: &mut String, lines: &[Line]) {
    let mut bars = Vec::new();
    for line in lines.iter().filter(|line| line.figure.unit == Unit::Rate) {
        let name = format!("{} {} {}", line.store, line.workload, line.figure.what);
        let rate = |measured: &Measured| measured.per_second().unwrap_or(0.0);
        bars.push((name, line.limit.as_ref().map_or(0.0, rate), rate(&line.ours)));
    }
    if bars.is_empty() {
        return;
    }
    page.push_str("<h2>Throughput</h2>\n<figure>\n");
    page.push_str(&drawing::bars(&bars));
    page.push_str("<figcaption>Tasks a second: the limit in grey, delayline in blue; each pair by its own scale.</figcaption>\n</figure>\n");
}

/// How late tasks started, by both sides.
fn lateness(page: &mut String, lines: &[Line]) {
    let late: Vec<_> = lines.iter().filter(|line| !line.ours.late.is_empty()).collect();
    if late.is_empty() {
        return;
    }
    page.push_str("<h2>Lateness</h2>\n");
    for line in late {
        let limit = line.limit.as_ref().map_or(&[][..], |limit| &limit.late);
        page.push_str("<figure>\n");
        page.push_str(&drawing::distribution(limit, &line.ours.late));
        let _ = writeln!(
            page,
            "<figcaption>{} {}, {}: which part of the tasks had started after so many ms; the limit in grey, delayline in \
             blue.</figcaption>\n</figure>",
            escaped(line.store),
            line.workload,
            escaped(&line.figure.what)
        );
    }
}

/// Text as HTML has it.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::workload::{Aim, Figure, Workload};
    use super::*;

    #[test]
    fn a_page_has_everything_in_it() {
        let measured = |late: &[f64]| Measured {
            tasks: 3,
            seconds: Some(1.0),
            late: late.to_vec(),
            ..Measured::default()
        };
        let figure = Figure {
            what: "<what>".into(),
            unit: Unit::Rate,
            aim: Aim::AtLeast(0.6),
        };
        let (ours, limits) = (vec![measured(&[0.0, 2.0, 30.0])], vec![measured(&[1.0])]);
        let line = Line::of(Workload::W1, figure, "memory", ours, limits).unwrap();
        let page = page(&[line], &[("memory", "1 & 2".to_owned())]);
        for expected in [
            "&lt;what&gt;",
            "1 &amp; 2",
            "<svg",
            "polyline",
            "cores",
            "</html>",
        ] {
            assert!(page.contains(expected), "{expected} is not in {page}");
        }
        for elsewhere in ["http:", "https:", "src=", "href=", "<script", "NaN", "inf"] {
            assert!(!page.contains(elsewhere), "{elsewhere} is in {page}");
        }
    }
}
