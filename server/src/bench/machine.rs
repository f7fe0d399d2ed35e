//! What figures were measured on, as far as the system tells.

use std::fs;

/// What is told of a machine, each by its name.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    let cores = std::thread::available_parallelism().map(|cores| cores.to_string());
    let facts = [
        ("delayline", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("cores", cores.ok()),
        ("processor", processor()),
        ("memory", memory()),
        ("system", system()),
        ("build", Some(build().to_owned())),
    ];
    let known = facts.into_iter().filter_map(|(name, fact)| Some((name, fact?)));
    known.collect()
}

/// Figures of a build that is not optimised mean little.
fn build() -> &'static str {
    match cfg!(debug_assertions) {
        true => "debug, which is several times slower than a release",
        false => "release",
    }
}

/// The value of the first line that has this name.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(separator));
    let (_, value) = pairs.find(|(found, _)| found.trim() == name)?;
    Some(value.trim().trim_matches('"').to_owned())
}

fn processor() -> Option<String> {
    value(&fs::read_to_string("/proc/cpuinfo").ok()?, "model name", ':')
}

fn memory() -> Option<String> {
    let total = value(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal", ':')?;
    let kilobytes: f64 = total.strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{:.1} GiB", kilobytes / f64::from(1 << 20)))
}

fn system() -> Option<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
    let release = fs::read_to_string("/etc/os-release").ok();
    let name = release.and_then(|release| value(&release, "PRETTY_NAME", '='));
    let name = name.unwrap_or_else(|| std::env::consts::OS.to_owned());
    Some(match kernel {
        Some(kernel) => format!("{name}, kernel {}", kernel.trim()),
        None => name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_names() {
        let text = "NAME=\"A\"\nPRETTY_NAME=\"A 1\"\n";
        assert_eq!(value(text, "PRETTY_NAME", '='), Some("A 1".to_owned()));
        assert_eq!(
            value("MemTotal:   2 kB\n", "MemTotal", ':'),
            Some("2 kB".to_owned())
        );
        assert_eq!(value(text, "none", '='), None);
    }
}
