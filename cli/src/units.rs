//! Values with units, from the command line and for people.

use gpu_async_reactor::DurNs;

/// The shortest and the longest work that is measured.
const WORK: (DurNs, DurNs) = (DurNs::from_us(1), DurNs::from_ms(10_000));

/// How far a length of work may lie from the asked one, as a share of it: 0 to 1.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Jitter(f64);

impl Jitter {
    /// The share.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0
    }
}

/// A time with its unit, such as `2ms`, `200us` or `1.5s`.
///
/// # Errors
///
/// What was expected.
pub fn parse_work(text: &str) -> Result<DurNs, String> {
    let time = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; expected a time such as 2ms or 200us"))?;
    let (least, most) = WORK;
    match DurNs::from(time) {
        work if work < least => Err("too short: the shortest work is 1us".into()),
        work if work > most => Err("too long: the longest work is 10s".into()),
        work => Ok(work),
    }
}

/// A percentage with its sign, `0%` to `100%`.
///
/// # Errors
///
/// What was expected.
pub fn parse_jitter(text: &str) -> Result<Jitter, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match percent {
        Some(percent) if (0.0..=100.0).contains(&percent) => Ok(Jitter(percent / 100.0)),
        Some(_) => Err("expected 0% to 100%".into()),
        None => Err("expected a percentage such as 5%".into()),
    }
}

/// A time in the unit in which it is shortest, such as `2ms`.
#[must_use]
pub fn time(ns: DurNs) -> String {
    humantime::format_duration(ns.into()).to_string()
}

/// A time in microseconds, with a decimal below 100 of them.
#[must_use]
pub fn us(ns: u64) -> String {
    let us = ns as f64 / 1_000.0;
    if us < 99.95 { format!("{us:.1}") } else { format!("{us:.0}") }
}

/// A share as a percentage, with a decimal.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_work_has_a_unit_and_a_range() {
        assert_eq!(parse_work("2ms"), Ok(DurNs::from_ms(2)));
        assert_eq!(parse_work("2.5ms"), Ok(DurNs::from_us(2_500)));
        assert_eq!(parse_work("10s"), Ok(DurNs::from_ms(10_000)));
        for bad in ["", "2", "-2ms", "0ms", "999ns", "10.1s", "9999999y", "fast", "2 m s"] {
            assert!(parse_work(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_jitter_is_a_percentage_up_to_all_of_the_work() {
        assert_eq!(parse_jitter("0%").map(Jitter::share), Ok(0.0));
        assert_eq!(parse_jitter("12.5%").map(Jitter::share), Ok(0.125));
        assert_eq!(parse_jitter("100 %").map(Jitter::share), Ok(1.0));
        for bad in ["", "5", "%", "-5%", "200%", "nan%", "inf%", "5%%"] {
            assert!(parse_jitter(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_time_loses_its_decimal_where_nobody_reads_it() {
        assert_eq!(us(1_449), "1.4");
        assert_eq!(us(99_949), "99.9");
        assert_eq!(us(99_951), "100");
        assert_eq!(us(2_000_000), "2000");
        assert_eq!(percent(0.0254), "2.5 %");
    }
}
