//! Dates as text.

use cellbed_link::Time;
use chrono::{DateTime, SecondsFormat};

/// A time of the wall clock, ns since 1970, as RFC 3339 in UTC.
pub fn rfc3339(wall_clock: Time) -> String {
    DateTime::from_timestamp_nanos(wall_clock.as_nanos() as i64)
        .to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_reads_as_rfc_3339() {
        let time = Time::from_nanos(1_700_000_000_123_456_789);
        assert_eq!(rfc3339(time), "2023-11-14T22:13:20.123456Z");
    }
}
