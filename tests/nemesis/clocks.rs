//! Tests that a suspended process sees its clocks as it should.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread::{park_timeout, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};

use crate::process::Process;
use crate::suspend::Still;

const SEEN: &str = "DELAYLINE_NEMESIS_CLOCKS";
/// How long it stands still.
const SPAN: Duration = Duration::from_secs(2);
/// How long a process waits between two readings.
const PAUSE: Duration = Duration::from_millis(5);
/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(60);

/// The time that has passed by each clock of a process.
#[derive(Clone, Copy, Debug)]
struct Seen {
    monotonic: Duration,
    boottime: Duration,
    of_day: Duration,
}

/// Runs such a process; does nothing in any other.
#[test]
fn process() {
    let Some(seen) = env::var_os(SEEN) else { return };
    let boottime = || Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    let of_day = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (monotonic, booted, began) = (Instant::now(), boottime(), of_day());
    loop {
        let mut file = OpenOptions::new().append(true).open(&seen).unwrap();
        let [monotonic, boottime, of_day] =
            [monotonic.elapsed(), boottime() - booted, of_day() - began].map(|span| span.as_millis());
        file.write_all(format!("{monotonic} {boottime} {of_day}\n").as_bytes())
            .unwrap();
        // Until a moment of the monotonic clock, as all that waits within the standard library.
        park_timeout(PAUSE);
    }
}

/// Returns so many new readings of a process, once there are more.
fn next(path: &Path, many: usize) -> Vec<Seen> {
    let lines = || {
        fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let before = lines().len();
    let began = Instant::now();
    // The last line before may have been a part of one, as that after them may be.
    while lines().len() < before + 2 + many {
        assert!(began.elapsed() < SAFETY, "the process has not gone on");
        sleep(PAUSE);
    }
    lines()[before + 1..][..many]
        .iter()
        .map(|line| seen(line))
        .collect()
}

fn seen(line: &str) -> Seen {
    let [monotonic, boottime, of_day] = *line
        .split(' ')
        .map(|ms| Duration::from_millis(ms.parse().unwrap()))
        .collect::<Vec<_>>()
    else {
        panic!("no clocks: {line}");
    };
    Seen {
        monotonic,
        boottime,
        of_day,
    }
}

/// Returns a reading of a process before it stood still for a while, and so many after it.
fn around(still: Still, many: usize) -> (Seen, Vec<Seen>) {
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join("seen");
    fs::write(&path, "").unwrap();
    let process = Process::start("clocks::process", &[(SEEN, path.clone().into())]);
    let before = next(&path, 1)[0];
    let stopped = process.stop(still);
    sleep(SPAN);
    drop(stopped);
    (before, next(&path, many))
}

/// Returns by how much each clock is behind the wall clock after the process stood still for a while.
fn behind(still: Still) -> (Duration, Duration) {
    let (before, after) = around(still, 1);
    let after = after[0];
    let of_day = after.of_day - before.of_day;
    assert!(of_day >= SPAN, "{of_day:?}");
    (
        of_day.saturating_sub(after.monotonic - before.monotonic),
        of_day.saturating_sub(after.boottime - before.boottime),
    )
}

#[test]
fn all_clocks_of_a_stopped_process_go_on() {
    let (monotonic, boottime) = behind(Still::Stopped);
    assert!(
        monotonic < SPAN / 2 && boottime < SPAN / 2,
        "{monotonic:?}, {boottime:?}"
    );
}

#[test]
fn during_a_suspend_the_monotonic_clock_stands_still() {
    let (monotonic, boottime) = behind(Still::Suspended);
    assert!(
        monotonic > SPAN / 2 && boottime < SPAN / 2,
        "{monotonic:?}, {boottime:?}"
    );
}

#[test]
fn during_a_pause_only_the_clock_of_the_day_goes_on() {
    let (monotonic, boottime) = behind(Still::Paused);
    assert!(
        monotonic > SPAN / 2 && boottime > SPAN / 2,
        "{monotonic:?}, {boottime:?}"
    );
}

#[test]
fn after_a_suspend_a_wait_takes_as_long_as_before() {
    let (_, after) = around(Still::Suspended, 50);
    let took = after[49].of_day - after[0].of_day;
    // Readings are of whole ms.
    assert!(took >= PAUSE * 48, "{took:?}");
}
