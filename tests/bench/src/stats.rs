//! Medians with their intervals, and bounds on them. Nothing in here touches the world.

use std::fmt;

/// How sure an interval is to hold the true median.
const CONFIDENCE: f64 = 0.95;

/// A median and the interval that holds the true one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// What is asked of an estimate; it holds for the whole interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Estimate {
    /// The median of a sample, with an interval by order statistics: the narrowest pair of
    /// ranks, symmetric, between which the true median lies with 95 %, whatever the
    /// distribution. A sample of less than six has no such pair; then it is all of it.
    ///
    /// `None`: an empty sample.
    pub(crate) fn of(sample: &[f64]) -> Option<Self> {
        let mut sorted = sample.to_vec();
        sorted.sort_by(f64::total_cmp);
        let outside = outside(sorted.len());
        Some(Self {
            median: median(&sorted)?,
            low: *sorted.get(outside)?,
            high: *sorted.get(sorted.len() - 1 - outside)?,
        })
    }

    /// Of what the pairs give, such as the ratio of the two.
    pub(crate) fn of_pairs(
        ours: &[f64],
        peer: &[f64],
        of: impl Fn(f64, f64) -> f64,
    ) -> Option<Self> {
        let sample: Vec<f64> = ours.iter().zip(peer).map(|(a, b)| of(*a, *b)).collect();
        Self::of(&sample)
    }
}

impl Bound {
    pub(crate) fn holds(self, estimate: &Estimate) -> bool {
        match self {
            Self::AtMost(most) => estimate.high <= most,
            Self::AtLeast(least) => estimate.low >= least,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "≤ {most}"),
            Self::AtLeast(least) => write!(f, "≥ {least}"),
        }
    }
}

/// The middle of a sorted sample.
fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(middle.checked_sub(1)?)?;
    Some(f64::midpoint(lower, upper))
}

/// The middle of any sample; `None` of an empty one.
pub(crate) fn middle(sample: &[f64]) -> Option<f64> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(f64::total_cmp);
    median(&sorted)
}

/// How many of the smallest, and of the largest, may be left out. The true median is outside
/// when at most that many values fall on one side of it, a binomial with p = 1/2.
fn outside(n: usize) -> usize {
    let mut term = 1.0; // C(n, k) / 2^n, one factor at a time so that nothing overflows
    for _ in 0..n {
        term /= 2.0;
    }
    let mut below = 0.0;
    let mut k = 0;
    while k < n / 2 {
        below += term;
        if 2.0 * below > 1.0 - CONFIDENCE {
            break;
        }
        term = term * exact(n - k) / exact(k + 1);
        k += 1;
    }
    // With k values left out on a side, the interval begins at rank k; one less than the
    // first that is too many.
    k.saturating_sub(1)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "samples have fewer than 2^52 values"
)]
pub(crate) fn exact(n: usize) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks for 95 % from a table of the sign test (Conover, table A3: the interval from the
    /// r-th to the (n+1-r)-th).
    #[test]
    fn ranks_are_those_of_the_table() {
        for (n, rank) in [
            (6, 1),
            (8, 1),
            (9, 2),
            (10, 2),
            (12, 3),
            (15, 4),
            (20, 6),
            (30, 10),
            (40, 14),
        ] {
            assert_eq!(outside(n) + 1, rank, "of {n}");
        }
        for n in 0..6 {
            assert_eq!(outside(n), 0, "of {n}");
        }
    }

    #[test]
    fn an_estimate_does_not_depend_on_the_order() {
        let sample: Vec<f64> = (0..21).map(|n| f64::from(n * 8 % 21)).collect();
        let estimate = Estimate::of(&sample).unwrap();
        assert_eq!(
            estimate,
            Estimate {
                median: 10.0,
                low: 5.0,
                high: 15.0
            }
        );
        let two = Estimate {
            median: 2.5,
            low: 1.0,
            high: 4.0,
        };
        assert_eq!(Estimate::of(&[4.0, 1.0]).unwrap(), two);
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_bound_holds_for_the_whole_interval() {
        let estimate = Estimate {
            median: 0.3,
            low: 0.2,
            high: 0.4,
        };
        assert!(Bound::AtMost(0.4).holds(&estimate));
        assert!(!Bound::AtMost(0.35).holds(&estimate));
        assert!(Bound::AtLeast(0.2).holds(&estimate));
        assert!(!Bound::AtLeast(0.25).holds(&estimate));
    }

    #[test]
    fn pairs_are_compared_before_the_median_is_taken() {
        let estimate = Estimate::of_pairs(&[1.0, 10.0, 3.0], &[2.0, 20.0, 6.0], |a, b| a / b);
        assert_eq!(
            estimate.unwrap(),
            Estimate {
                median: 0.5,
                low: 0.5,
                high: 0.5
            }
        );
    }

    /// The interval is what it says: of many samples from a known distribution, about 95 %
    /// (not fewer than 93 %) hold its median. The generator is a fixed one.
    #[test]
    fn an_interval_holds_the_true_median_as_often_as_promised() {
        let mut state = 1_u64;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
        };
        let mut held = 0;
        for _ in 0..2000 {
            let sample: Vec<f64> = (0..20).map(|_| uniform().powi(3)).collect();
            let estimate = Estimate::of(&sample).unwrap();
            held += u32::from((estimate.low..=estimate.high).contains(&0.125));
        }
        assert!((1860..=1990).contains(&held), "{held} of 2000");
    }
}
