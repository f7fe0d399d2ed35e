//! Timers within the process: the library's wheel as a backend, beside a flat wheel over a slab.

use std::time::{Duration, Instant};

use delayline::TaskId;
use delayline::backend::{Backend as _, Departure, Wake, WheelBackend};

use super::Error;
use super::figure::Measured;
use super::ledger::Faults;
use super::side::KIND;
use super::workload::BATCH;

/// The longest time of a timer, in ms; one has at least a second.
const LONGEST: u32 = 3_600_000;
const SHORTEST: u32 = 1_000;
/// The longest of those that are waited for.
const AWAITED: u32 = 2_000;
/// Fewer than these are not seen in the memory of a process.
const SEEN: usize = 100_000;

/// The times of timers, in ms.
fn times(timers: usize, shortest: u32, longest: u32) -> Vec<u32> {
    (0..timers).map(|_| fastrand::u32(shortest..=longest)).collect()
}

/// Inserted, cancelled, expired, and the memory of each.
pub(crate) fn limit(timers: usize) -> Result<Vec<Measured>, Error> {
    let times = times(timers, SHORTEST, LONGEST);
    let before = memory();
    let mut wheel = Flat::new();
    let begun = Instant::now();
    let entries: Vec<u32> = times.iter().map(|&at| wheel.insert(at)).collect();
    let inserting = begun.elapsed();
    let bytes = bytes_each(before, timers, entries.len() * 4);
    let half = timers / 2;
    let begun = Instant::now();
    for &entry in &entries[..half] {
        wheel.cancel(entry);
    }
    let cancelling = begun.elapsed();
    let begun = Instant::now();
    let expired = wheel.expire();
    let expiring = begun.elapsed();
    if expired != timers - half {
        return Err(format!("{expired} of {} bare timers have expired", timers - half).into());
    }
    Ok(vec![
        took(timers, inserting),
        took(half, cancelling),
        took(timers - half, expiring),
        Measured {
            tasks: timers,
            bytes_each: bytes,
            ..Measured::default()
        },
    ])
}

/// The same by the library.
pub(crate) async fn ours(timers: usize) -> Result<Vec<Measured>, Error> {
    let departures = |times: Vec<u32>| -> Vec<Departure> {
        let departure = |(number, ms): (usize, u32)| Departure {
            wake: wake(number),
            delay: Duration::from_millis(u64::from(ms)),
        };
        times.into_iter().enumerate().map(departure).collect()
    };
    let all = departures(times(timers, SHORTEST, LONGEST));
    let before = memory();
    let backend = WheelBackend::new();
    let begun = Instant::now();
    for batch in all.chunks(BATCH) {
        backend.send(batch).await?;
    }
    let inserting = begun.elapsed();
    let bytes = bytes_each(before, timers, 0);
    let half = timers / 2;
    let wakes: Vec<Wake> = all[..half]
        .iter()
        .map(|departure| departure.wake.clone())
        .collect();
    let begun = Instant::now();
    for batch in wakes.chunks(BATCH) {
        backend.remove(batch).await?;
    }
    let cancelling = begun.elapsed();
    drop((backend, all, wakes));
    let (expiring, faults) = expired(departures(times(timers - half, 1, AWAITED))).await?;
    Ok(vec![
        took(timers, inserting),
        took(half, cancelling),
        Measured {
            faults,
            ..took(timers - half, expiring)
        },
        Measured {
            tasks: timers,
            bytes_each: bytes,
            ..Measured::default()
        },
    ])
}

/// How long it takes to receive timers that have all expired; and whether each came once.
async fn expired(departures: Vec<Departure>) -> Result<(Duration, Faults), Error> {
    let backend = WheelBackend::new();
    for batch in departures.chunks(BATCH) {
        backend.send(batch).await?;
    }
    tokio::time::sleep(Duration::from_millis(u64::from(AWAITED) + 1)).await;
    let mut came = vec![0_usize; departures.len()];
    let (mut count, begun) = (0, Instant::now());
    while count < departures.len() {
        let Ok(arrivals) = tokio::time::timeout(Duration::from_secs(1), backend.receive(BATCH)).await else {
            break;
        };
        for arrival in arrivals? {
            let number = u128::from_be_bytes(*arrival.wake.id.as_bytes());
            came[usize::try_from(number)?] += 1;
            count += 1;
        }
    }
    let took = begun.elapsed();
    let faults = Faults {
        lost: came.iter().filter(|&&times| times == 0).count(),
        twice: came.iter().map(|times| times.saturating_sub(1)).sum(),
        early: 0,
    };
    Ok((took, faults))
}

fn wake(number: usize) -> Wake {
    Wake {
        id: TaskId::from_bytes((number as u128).to_be_bytes()),
        kind: KIND.into(),
        version: 1,
    }
}

fn took(tasks: usize, time: Duration) -> Measured {
    Measured {
        tasks,
        seconds: Some(time.as_secs_f64()),
        ..Measured::default()
    }
}

/// What the process has in memory, in bytes; none where that is not told.
fn memory() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

/// How much more it is than before, but for what only whoever measures has, for each.
fn bytes_each(before: Option<usize>, timers: usize, besides: usize) -> Option<f64> {
    let more = memory()?.checked_sub(before?)?.checked_sub(besides)?;
    (timers >= SEEN).then(|| more as f64 / timers as f64)
}

/// No entry.
const NONE: u32 = u32::MAX;

/// A slot for each ms, and a list of entries in each: nothing can be less work, as long as the longest time is known.
struct Flat {
    slots: Vec<u32>,
    entries: Vec<Entry>,
}

#[derive(Clone, Copy)]
struct Entry {
    at: u32,
    before: u32,
    next: u32,
    /// What a timer is for.
    _value: u32,
}

impl Flat {
    fn new() -> Self {
        Self {
            slots: vec![NONE; LONGEST as usize + 1],
            entries: Vec::new(),
        }
    }

    fn insert(&mut self, at: u32) -> u32 {
        let entry = self.entries.len() as u32;
        let next = std::mem::replace(&mut self.slots[at as usize], entry);
        if next != NONE {
            self.entries[next as usize].before = entry;
        }
        self.entries.push(Entry {
            at,
            before: NONE,
            next,
            _value: entry,
        });
        entry
    }

    fn cancel(&mut self, entry: u32) {
        let Entry { at, before, next, .. } = self.entries[entry as usize];
        match before {
            NONE => self.slots[at as usize] = next,
            before => self.entries[before as usize].next = next,
        }
        if next != NONE {
            self.entries[next as usize].before = before;
        }
    }

    /// Takes all, slot by slot; gives how many there were.
    fn expire(&mut self) -> usize {
        let mut expired = 0;
        for slot in &mut self.slots {
            let mut entry = std::mem::replace(slot, NONE);
            while entry != NONE {
                expired += 1;
                entry = self.entries[entry as usize].next;
            }
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_wheel_expires_what_was_not_cancelled() {
        let mut wheel = Flat::new();
        let entries: Vec<u32> = [5, 5, 5, 7, 9].into_iter().map(|at| wheel.insert(at)).collect();
        for cancelled in [1, 3] {
            wheel.cancel(entries[cancelled]);
        }
        assert_eq!(wheel.expire(), 3);
    }

    #[tokio::test]
    async fn each_timer_comes_once() {
        let measured = ours(1_000).await.unwrap();
        assert_eq!(measured.len(), limit(1_000).unwrap().len());
        assert!(
            measured
                .iter()
                .all(|measured| measured.faults == Faults::default())
        );
    }
}
