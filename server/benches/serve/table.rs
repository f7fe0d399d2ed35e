//! What is printed.

/// What the ratio, or the difference, is meant to be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Floor {
    /// Of a rate.
    AtLeast(f64),
    /// Of a cost.
    AtMost(f64),
    /// Of a time: how much longer than the limit.
    #[cfg(feature = "rocketmq")]
    AtMostMore(f64),
    None,
}

/// A figure of both sides, of each of the rounds.
#[derive(Debug)]
pub(crate) struct Line {
    name: String,
    limit: Vec<f64>,
    ours: Vec<f64>,
    floor: Floor,
}

pub(crate) fn heading(place: &str) {
    println!(
        "\n{place:<60} {:>10} {:>10} {:>7}  floor",
        "limit", "delayline", "ratio"
    );
}

impl Line {
    pub(crate) fn new(name: impl Into<String>, floor: Floor) -> Self {
        Self {
            name: name.into(),
            limit: Vec::new(),
            ours: Vec::new(),
            floor,
        }
    }

    pub(crate) fn limit(&mut self, figure: f64) {
        self.limit.push(figure);
    }

    pub(crate) fn ours(&mut self, figure: f64) {
        self.ours.push(figure);
    }

    pub(crate) fn print(&self) {
        let (limit, ours) = (median(&self.limit), median(&self.ours));
        let floor = match self.floor {
            Floor::AtLeast(ratio) => format!("at least {ratio}"),
            Floor::AtMost(ratio) => format!("at most {ratio}"),
            #[cfg(feature = "rocketmq")]
            Floor::AtMostMore(more) => format!("at most {more} more; {:.1}", ours - limit),
            Floor::None => String::new(),
        };
        let ratio = ours / limit;
        println!(
            "{:<60} {limit:>10.1} {ours:>10.1} {ratio:>7.2}  {floor}",
            self.name
        );
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
