//! Draws how late probes were, in a row of blocks.

use super::lateness::Probed;

/// How wide a picture is.
const CELLS: usize = 30;
const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The scale of all pictures: from 0 on, so many ms for each cell; the last one also for everything later, and the
/// first for early ones.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    cell: i64,
}

impl Scale {
    /// Chooses it so fine that nearly all of each level is in the picture.
    pub(crate) fn of(levels: &[Probed]) -> Self {
        let longest = levels.iter().filter_map(|level| level.percentile(99)).max();
        let round = (0..).flat_map(|power| [1, 2, 3, 4, 5].map(|step| step * 10_i64.pow(power)));
        let cell = round
            .take(5 * 15)
            .find(|cell| longest.is_none_or(|longest| longest < cell * CELLS as i64));
        Self {
            cell: cell.unwrap_or(i64::MAX / CELLS as i64),
        }
    }

    /// Prints the ends of the scale, as wide as a picture.
    pub(crate) fn legend(&self) -> String {
        let end = format!("{} ms", self.cell * CELLS as i64);
        format!("0{end:>width$}", width = CELLS - 1)
    }

    /// Draws a level: the higher a block, the more probes; the highest is the same for every level. No block is no
    /// probe.
    pub(crate) fn draw(&self, level: &Probed) -> String {
        let mut cells = [0_usize; CELLS];
        for late in &level.late {
            let cell = usize::try_from(late.div_euclid(self.cell)).unwrap_or(0);
            cells[cell.min(CELLS - 1)] += 1;
        }
        let most = cells.iter().copied().max().unwrap_or(0).max(1);
        let draw = |count: usize| match (count * BLOCKS.len()).div_ceil(most) {
            0 => ' ',
            height => BLOCKS[height - 1],
        };
        cells.map(draw).iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lateness::probed;
    use super::*;

    #[test]
    fn the_more_probes_the_higher_is_a_block() {
        let scale = Scale { cell: 10 };
        // In the cells 0 to 3: one, two, none, eight.
        let level = probed([0, 10, 19].into_iter().chain(std::iter::repeat_n(30, 8)));
        assert_eq!(scale.draw(&level).trim_end(), "▁▂ █");
        assert_eq!(scale.draw(&probed([])), " ".repeat(CELLS));
        assert_eq!(scale.draw(&probed(std::iter::repeat_n(5, 1_000))).trim_end(), "█");
        // However few they are beside others, they show.
        let level = probed([0].into_iter().chain(std::iter::repeat_n(10, 100_000)));
        assert_eq!(scale.draw(&level).trim_end(), "▁█");
    }

    #[test]
    fn what_is_beyond_the_scale_is_in_the_cells_at_its_ends() {
        let scale = Scale { cell: 1 };
        let drawn = scale.draw(&probed([-1_000, i64::MIN, 30, i64::MAX]));
        assert_eq!(drawn, format!("█{}█", " ".repeat(CELLS - 2)));
    }

    #[test]
    fn a_scale_is_as_long_as_what_nearly_all_need() {
        for (late, cell) in [
            (vec![], 1),
            (vec![-5], 1),
            (vec![29], 1),
            (vec![30], 2),
            (vec![101], 4),
            (vec![150], 10),
            (vec![1_500], 100),
            // One in a thousand is not.
            (std::iter::repeat_n(50, 999).chain([9_999]).collect(), 2),
            (vec![i64::MAX], i64::MAX / CELLS as i64),
        ] {
            let expected = Scale { cell };
            assert_eq!(
                Scale::of(&[probed([0]), probed(late.clone())]),
                expected,
                "{late:?}"
            );
        }
        assert_eq!(Scale { cell: 4 }.legend(), format!("0{:>29}", "120 ms"));
    }
}
