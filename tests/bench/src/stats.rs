//! The figures of many measured times.
//!
//! **Promises** exact quantiles: every time is kept.

use std::collections::BTreeMap;
use std::time::Duration;

/// The operations of one round.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Operations that ended, per second.
    pub per_second: f64,
    pub p50: Duration,
    pub p99: Duration,
}

impl Sample {
    /// The sample of operations that ended within `over`; none when there were none.
    pub fn new(mut times: Vec<Duration>, over: Duration) -> Option<Self> {
        times.sort_unstable();
        let (p50, p99) = (quantile(&times, 0.5)?, quantile(&times, 0.99)?);
        Some(Self { per_second: count(times.len()) / over.as_secs_f64(), p50, p99 })
    }

    /// The sample of operations made one after another.
    pub fn of_sequence(times: Vec<Duration>) -> Option<Self> {
        let over = times.iter().sum();
        Self::new(times, over)
    }

    /// The same at the rate of the median time.
    pub fn of_median(times: Vec<Duration>) -> Option<Self> {
        let sample = Self::of_sequence(times)?;
        Some(Self { per_second: 1.0 / sample.p50.as_secs_f64(), ..sample })
    }

    /// The median of each figure over several rounds.
    pub fn median(rounds: &[Self]) -> Option<Self> {
        Some(Self {
            per_second: median(rounds.iter().map(|round| round.per_second).collect())?,
            p50: Duration::from_secs_f64(median(seconds(rounds, |round| round.p50))?),
            p99: Duration::from_secs_f64(median(seconds(rounds, |round| round.p99))?),
        })
    }
}

fn seconds(rounds: &[Sample], time_of: impl Fn(&Sample) -> Duration) -> Vec<f64> {
    rounds.iter().map(|round| time_of(round).as_secs_f64()).collect()
}

/// The smallest of the sorted times that no more than `1 - share` of them exceed (nearest rank).
pub fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (share * count(sorted.len())).ceil();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most len")]
    let index = (rank as usize).saturating_sub(1);
    sorted.get(index).copied()
}

/// The median; the mean of the middle two of an even number.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_unstable_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    let upper = *numbers.get(middle)?;
    if numbers.len() % 2 == 1 {
        Some(upper)
    } else {
        Some(f64::midpoint(numbers[middle - 1], upper))
    }
}

/// The median of each process over several rounds.
pub fn median_each(rounds: Vec<BTreeMap<String, f64>>) -> BTreeMap<String, f64> {
    let mut processes: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for (process, number) in rounds.into_iter().flatten() {
        processes.entry(process).or_default().push(number);
    }
    let each = processes.into_iter();
    each.filter_map(|(process, numbers)| Some((process, median(numbers)?))).collect()
}

/// A count as a number to divide by.
pub fn count(many: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "no count here comes near 2^52")]
    let many = many as f64;
    many
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(of: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        of.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn quantiles_are_times_that_were_measured() {
        let times = ms(1..=200);
        assert_eq!(quantile(&times, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(quantile(&times, 0.99), Some(Duration::from_millis(198)));
        assert_eq!(quantile(&times, 1.0), Some(Duration::from_millis(200)));
        assert_eq!(quantile(&ms([7]), 0.99), Some(Duration::from_millis(7)));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_sample_counts_what_ended_in_its_time_in_any_order() {
        let sample = Sample::new(ms([9, 1, 5, 3]), Duration::from_secs(2)).unwrap();
        assert!((sample.per_second - 2.0).abs() < 1e-9);
        assert_eq!((sample.p50, sample.p99), (Duration::from_millis(3), Duration::from_millis(9)));
        assert_eq!(Sample::new(vec![], Duration::from_secs(1)), None);
    }

    #[test]
    fn one_after_another_takes_as_long_as_all_together() {
        let sample = Sample::of_sequence(ms([10, 30])).unwrap();
        assert!((sample.per_second - 50.0).abs() < 1e-9);
    }

    #[test]
    fn a_round_that_was_disturbed_does_not_count() {
        let round = |per_second, ms| Sample {
            per_second,
            p50: Duration::from_millis(ms),
            p99: Duration::from_millis(2 * ms),
        };
        let rounds = [round(900.0, 2), round(10.0, 500), round(1000.0, 1)];
        assert_eq!(Sample::median(&rounds), Some(round(900.0, 2)));
        assert_eq!(Sample::median(&[]), None);
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn a_process_has_the_median_of_the_rounds_in_which_it_ran() {
        let round = |of: &[(&str, f64)]| {
            of.iter().map(|(process, us)| ((*process).to_owned(), *us)).collect::<BTreeMap<_, _>>()
        };
        let rounds = [round(&[("claim", 3.0), ("gc", 7.0)]), round(&[("claim", 5.0)])];
        assert_eq!(median_each(rounds.to_vec()), round(&[("claim", 4.0), ("gc", 7.0)]));
    }
}
