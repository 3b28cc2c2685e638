//! BBR version 1 (Cardwell et al., ACM Queue 14(5), 2016; sections of draft-cardwell-iccrg-bbr-congestion-control-00),
//! with the constants and the details of Linux. Two details of a policer's rate differ: a difference of 4 kbit/s does
//! not make intervals equal, and a timeout is no round while the rate is used.
//!
//! The sender models its path as a bandwidth, the maximum delivery rate in about ten round trips, and a delay, the
//! minimum round trip in ten seconds. The sender paces at the bandwidth and limits the data in flight to twice their
//! product.

use cellbed_link::{Duration, Time};

use super::super::{Tcp, pacing};
use super::{AckSample, Controller, Pacing, Repair, Window};

/// Gain that doubles the delivery rate in each round trip: 2/ln 2 (§4.3.2.1), in 256ths as in Linux; and its inverse.
const HIGH: f64 = 739.0 / 256.0;
const DRAIN: f64 = 88.0 / 256.0;
/// Gains of the phases of a cycle (§4.3.4.1).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window in bandwidth-delay products while probing for bandwidth (§4.2.3.2).
const WINDOW_GAIN: f64 = 2.0;
/// Length of the window of the maximum rate, rounds (§4.1.1.3).
const ROUNDS: u64 = 10;
/// Minimum growth of the bandwidth, without which the pipe is full after three rounds (§4.3.2.2).
const GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// Time for which the minimum round trip is valid, and time for which the queue stays drained to measure it (§4.3.5).
const BELIEVED: Duration = Duration::from_secs(10);
const PROBE: Duration = Duration::from_millis(200);
/// Minimum window, segments (§4.2.3.3).
const LEAST: u64 = 4;
/// Window before the first measurement, segments (§4.2.3.1).
const INITIAL: u64 = 10;
/// Round trip assumed before the first measurement (§4.2.1).
const ASSUMED: Duration = Duration::from_millis(1);
/// Share of the bandwidth at which Linux paces; both count bytes of data.
const MARGIN: f64 = 0.99;
/// Rate below which a burst has one segment, else at least two, bytes per second (§4.2.2).
const SINGLE: f64 = 150_000.0;
/// Linux adds the data acknowledged at once beyond the bandwidth, in the last five to ten rounds, up to 100 ms of it.
const AGGREGATION_ROUNDS: u32 = 5;
const AGGREGATION: f64 = 0.1;
const AGGREGATION_RESET: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    #[default]
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRoundTrip,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Bbr {
    /// Bytes of data in a full segment.
    segment: u64,
    mode: Mode,
    /// Maximum delivery rate in the last rounds, segments per second.
    largest: Maximum,
    round: u64,
    /// Number of deliveries at which the round ends.
    round_end: u64,
    is_round_start: bool,
    /// Minimum round trip, and the time of its measurement.
    least: Option<Duration>,
    least_at: Time,
    pacing_gain: f64,
    window_gain: f64,
    /// Rate in bytes per second.
    pacing_rate: f64,
    has_round_trip: bool,
    full_rate: f64,
    full_rounds: u32,
    is_full: bool,
    phase: usize,
    phase_began: Time,
    /// When the probe for the round trip may end, and whether a round has ended during the probe.
    probe_ends: Option<Time>,
    probed_round: bool,
    /// The window before losses or a probe.
    saved: u64,
    repair: Repair,
    conserves: bool,
    restarted: bool,
    policer: Policer,
    aggregation: Aggregation,
}

impl Bbr {
    pub fn new(tcp: &Tcp) -> Self {
        let mut bbr = Self {
            segment: tcp.segment,
            round_end: 1,
            pacing_gain: HIGH,
            window_gain: HIGH,
            ..Self::default()
        };
        bbr.pacing_rate = bbr.rate_of(tcp.initial_window as f64 / ASSUMED.as_secs_f64(), HIGH);
        bbr
    }

    /// Return the window after an acknowledgement.
    fn acknowledged(&mut self, mut window: u64, news: &AckSample) -> u64 {
        self.measure_bandwidth(news);
        self.note_aggregation(window, news);
        if self.mode == Mode::ProbeBandwidth && self.phase_is_over(news) {
            self.next_phase(news.delivered_at);
        }
        self.note_full_pipe(news);
        if self.mode == Mode::Startup && self.is_full {
            self.mode = Mode::Drain;
        }
        if self.mode == Mode::Drain
            && self.in_flight_at_departure(news.in_flight, news) <= self.inflight(1.0)
        {
            self.probe_bandwidth(news.now, news.delivered_at);
        }
        self.measure_round_trip(&mut window, news);
        (self.pacing_gain, self.window_gain) = match self.mode {
            Mode::Startup => (HIGH, HIGH),
            Mode::Drain => (DRAIN, HIGH),
            Mode::ProbeBandwidth if self.policer.rate().is_some() => (1.0, WINDOW_GAIN),
            Mode::ProbeBandwidth => (CYCLE[self.phase], WINDOW_GAIN),
            Mode::ProbeRoundTrip => (1.0, 1.0),
        };
        self.pace(news, window);
        self.resize(window, news)
    }

    /// Save the window before losses or a probe (§4.2.3.4).
    fn save(&mut self, window: u64) {
        let untouched = self.repair == Repair::None && self.mode != Mode::ProbeRoundTrip;
        self.saved = if untouched {
            window
        } else {
            self.saved.max(window)
        };
    }

    /// Update the maximum rate of the last rounds (§4.1.1).
    fn measure_bandwidth(&mut self, news: &AckSample) {
        self.is_round_start = false;
        let Some(sample) = news.sample else {
            return;
        };
        if sample.before >= self.round_end {
            self.round_end = news.delivered;
            self.round += 1;
            self.is_round_start = true;
            self.conserves = false;
        }
        if self.policer.rate().is_some() {
            let probes = self.mode == Mode::ProbeBandwidth && self.is_round_start;
            if probes && self.policer.is_old() {
                self.policer = Policer::default();
                self.policer.begin(news);
                self.probe_bandwidth(news.now, news.delivered_at);
            }
        } else if sample.idle {
            self.policer = Policer::default();
        } else {
            self.policer.note(news.lost > 0, self.is_round_start, news);
        }
        // An application-limited sample counts only if it is larger (§4.1.1.4): the estimate does not expire meanwhile.
        if !sample.idle || sample.rate >= self.largest.value() {
            self.largest.note(ROUNDS, self.round, sample.rate);
        }
    }

    fn bandwidth(&self) -> f64 {
        self.policer.rate().unwrap_or_else(|| self.largest.value())
    }

    fn note_aggregation(&mut self, window: u64, news: &AckSample) {
        if news.segments > 0 && news.sample.is_some() {
            let bandwidth = self.bandwidth();
            self.aggregation
                .note(self.is_round_start, bandwidth, window, news);
        }
    }

    /// Return whether the phase of the cycle is over (§4.3.4.3).
    fn phase_is_over(&self, news: &AckSample) -> bool {
        let least = self.least.unwrap_or(Duration::MAX);
        let is_long = news.delivered_at - self.phase_began > least;
        let before = || self.in_flight_at_departure(news.before, news);
        if self.pacing_gain > 1.0 {
            is_long && (news.lost > 0 || before() >= self.inflight(self.pacing_gain))
        } else if self.pacing_gain < 1.0 {
            is_long || before() <= self.inflight(1.0)
        } else {
            is_long
        }
    }

    fn next_phase(&mut self, at: Time) {
        self.phase = (self.phase + 1) % CYCLE.len();
        self.phase_began = at;
    }

    /// Begin at a random phase except the lower gain (§4.3.4.2). Linux draws the phase; here it follows from the time.
    fn probe_bandwidth(&mut self, now: Time, at: Time) {
        self.mode = Mode::ProbeBandwidth;
        let drawn = now.as_nanos().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.phase = CYCLE.len() - 1 - (drawn % 7) as usize;
        self.next_phase(at);
    }

    /// Detect a full pipe (§4.3.2.2).
    fn note_full_pipe(&mut self, news: &AckSample) {
        let idle = news.sample.is_some_and(|sample| sample.idle);
        if self.is_full || !self.is_round_start || idle {
            return;
        }
        let rate = self.largest.value();
        if rate >= self.full_rate * GROWTH {
            (self.full_rate, self.full_rounds) = (rate, 0);
        } else {
            self.full_rounds += 1;
            self.is_full = self.full_rounds >= FULL_ROUNDS;
        }
    }

    /// Measures and probes the minimum round trip (§4.1.2 and §4.3.5).
    fn measure_round_trip(&mut self, window: &mut u64, news: &AckSample) {
        let is_old = news.now - self.least_at > BELIEVED;
        if let Some(span) = news.round_trip
            && (is_old && !news.is_delayed || self.least.is_none_or(|least| span < least))
        {
            self.least = Some(span);
            self.least_at = news.now;
        }
        if is_old && !self.restarted && self.mode != Mode::ProbeRoundTrip {
            self.mode = Mode::ProbeRoundTrip;
            self.save(*window);
            self.probe_ends = None;
        }
        if self.mode == Mode::ProbeRoundTrip {
            if self.probe_ends.is_some() {
                self.probed_round |= self.is_round_start;
                if self.probed_round {
                    self.end_probe(news.now, window, news.delivered_at);
                }
            } else if news.in_flight <= LEAST {
                self.probe_ends = Some(news.now + PROBE);
                self.probed_round = false;
                self.round_end = news.delivered;
            }
        }
        if news.sample.is_some() {
            self.restarted = false;
        }
    }

    fn end_probe(&mut self, now: Time, window: &mut u64, at: Time) {
        if self.probe_ends.is_none_or(|ends| ends >= now) {
            return;
        }
        self.least_at = now;
        *window = self.saved.max(*window);
        if self.is_full {
            self.probe_bandwidth(now, at);
        } else {
            self.mode = Mode::Startup;
        }
    }

    /// Return the pacing rate in bytes per second for `rate` segments per second.
    fn rate_of(&self, rate: f64, gain: f64) -> f64 {
        rate * self.segment as f64 * gain * MARGIN
    }

    fn set_pacing_rate(&mut self, gain: f64) {
        let rate = self.rate_of(self.bandwidth(), gain);
        // Before the pipe is full, too low a rate would prevent it from filling (§4.2.1).
        if rate > self.pacing_rate || (self.is_full && rate > 0.0) {
            self.pacing_rate = rate;
        }
    }

    fn pace(&mut self, news: &AckSample, window: u64) {
        if let Some(span) = news.round_trip.filter(|_| !self.has_round_trip) {
            self.has_round_trip = true;
            self.pacing_rate = self.rate_of(window as f64 / span.as_secs_f64(), HIGH);
        }
        self.set_pacing_rate(self.pacing_gain);
    }

    /// Return the bytes that leave at once over a path whose minimum round trip is `least`.
    fn burst(&self, least: Duration) -> u64 {
        let at_least = if self.pacing_rate < SINGLE { 1 } else { 2 };
        pacing::quantum(self.pacing_rate, self.segment, at_least, least)
    }

    /// Return the window for `segments` of bandwidth-delay product, with room for bursts (§4.2.3.2).
    fn with_bursts(&self, segments: f64) -> u64 {
        let held = segments as u64 + 3 * self.burst(Duration::MAX) / self.segment;
        let even = held + held % 2;
        let probes = self.mode == Mode::ProbeBandwidth && self.phase == 0;
        even + if probes { 2 } else { 0 }
    }

    fn product(&self, bandwidth: f64, gain: f64) -> f64 {
        let least = self.least.map(|least| least.as_secs_f64());
        least.map_or(INITIAL as f64, |least| (bandwidth * least * gain).ceil())
    }

    fn inflight(&self, gain: f64) -> u64 {
        self.with_bursts(self.product(self.largest.value(), gain))
    }

    /// Return how many of `segments` are still in flight when pacing allows the next segment.
    fn in_flight_at_departure(&self, segments: u64, news: &AckSample) -> u64 {
        let probes = self.pacing_gain > 1.0;
        let more = u64::from(probes) * (self.burst(Duration::MAX) / self.segment);
        let delivered = self.bandwidth() * news.ahead.as_secs_f64();
        (segments + more).saturating_sub(delivered as u64)
    }

    /// Return the window after an acknowledgement (§4.2.3).
    fn resize(&mut self, window: u64, news: &AckSample) -> u64 {
        let mut size = window;
        if news.segments > 0 {
            if news.lost > 0 {
                size = size.saturating_sub(news.lost).max(1);
            }
            let was = std::mem::replace(&mut self.repair, news.repair);
            if news.repair == Repair::Recovery && was != Repair::Recovery {
                self.conserves = true;
                self.round_end = news.delivered;
                size = news.in_flight + news.segments;
            } else if was != Repair::None && news.repair == Repair::None {
                self.conserves = false;
                size = size.max(self.saved);
            }
            if self.conserves {
                size = size.max(news.in_flight + news.segments);
            } else {
                let aggregated = if self.is_full {
                    self.aggregation.most().min(self.bandwidth() * AGGREGATION)
                } else {
                    0.0
                };
                let target = self.with_bursts(
                    self.product(self.bandwidth(), self.window_gain) + aggregated.floor(),
                );
                if self.is_full {
                    size = (size + news.segments).min(target);
                } else if size < target || news.delivered < INITIAL {
                    size += news.segments;
                }
                size = size.max(LEAST);
            }
        }
        if self.mode == Mode::ProbeRoundTrip {
            size = size.min(LEAST);
        }
        size
    }
}

/// BBR alone decides on its window, also while losses are repaired.
impl Controller for Bbr {
    /// Initialise the pacing rate (§4.2.1).
    fn on_established(&mut self, window: &Window, now: Time, round_trip: Duration) {
        self.least = Some(round_trip);
        self.least_at = now;
        self.has_round_trip = true;
        let window = window.size as u64;
        self.pacing_rate = self.rate_of(window as f64 / round_trip.as_secs_f64(), HIGH);
    }

    fn on_ack(&mut self, _window: &mut Window, _ack: &AckSample) {}

    fn on_delivery(&mut self, window: &mut Window, ack: &AckSample) {
        window.size = self.acknowledged(window.size as u64, ack) as f64;
    }

    fn on_loss(&mut self, window: &mut Window) {
        self.save(window.size as u64);
    }

    /// Reset the estimate of a full pipe, whose state is unknown after a timeout.
    fn on_timeout(&mut self, window: &mut Window, timeout: &AckSample) {
        self.repair = Repair::Timeout;
        self.full_rate = 0.0;
        self.is_round_start = true;
        self.policer.note(true, true, timeout);
        window.size = (timeout.in_flight + 1) as f64;
    }

    /// A full pipe stays full.
    fn undo(&mut self, _window: &mut Window, _size: f64, _threshold: f64) {
        (self.full_rate, self.full_rounds) = (0.0, 0);
        self.policer = Policer::default();
    }

    fn repair(&mut self, _window: &mut Window, _segments: f64) {}

    fn on_idle(&mut self, _window: &mut Window, _idle: Duration, _timeout: Duration) {}

    /// Restart from idle (§4.3.4.4).
    fn on_restart(&mut self, window: &mut Window, now: Time) {
        self.restarted = true;
        self.aggregation.begin(now);
        match self.mode {
            Mode::ProbeBandwidth => self.set_pacing_rate(1.0),
            Mode::ProbeRoundTrip => {
                let mut size = window.size as u64;
                self.end_probe(now, &mut size, now);
                window.size = size as f64;
            }
            _ => {}
        }
    }

    /// Return the pacing rate and the burst (§4.2.2).
    fn pacing(&self) -> Option<Pacing> {
        Some(Pacing {
            rate: self.pacing_rate,
            quantum: self.burst(self.least.unwrap_or(Duration::MAX)),
        })
    }

    fn is_draining(&self) -> bool {
        self.mode == Mode::ProbeRoundTrip
    }
}

/// Data acknowledged at once beyond the bandwidth, for which the window makes room (in Linux since 5.1).
#[derive(Clone, Copy, Debug, Default)]
struct Aggregation {
    began: Time,
    acknowledged: u64,
    /// Maxima of the current and of the previous window of rounds.
    most: [u64; 2],
    rounds: u32,
}

impl Aggregation {
    fn begin(&mut self, now: Time) {
        (self.began, self.acknowledged) = (now, 0);
    }

    fn most(&self) -> f64 {
        self.most[0].max(self.most[1]) as f64
    }

    fn note(&mut self, is_round_start: bool, bandwidth: f64, window: u64, news: &AckSample) {
        if is_round_start {
            self.rounds += 1;
            if self.rounds >= AGGREGATION_ROUNDS {
                self.rounds = 0;
                self.most = [0, self.most[0]];
            }
        }
        let mut expected = (bandwidth * (news.delivered_at - self.began).as_secs_f64()) as u64;
        if self.acknowledged <= expected || self.acknowledged + news.segments >= AGGREGATION_RESET {
            self.begin(news.delivered_at);
            expected = 0;
        }
        self.acknowledged += news.segments;
        let extra = (self.acknowledged - expected.min(self.acknowledged)).min(window);
        self.most[0] = self.most[0].max(extra);
    }
}

/// The rate of a token-bucket policer. Two intervals with many losses and equal rates have revealed it (ACM Queue 2016,
/// "Token-Bucket Policers"; Linux's long-term bandwidth).
#[derive(Clone, Copy, Debug, Default)]
struct Policer {
    sampling: bool,
    /// Start of the interval.
    since: Time,
    delivered: u64,
    lost: u64,
    rounds: u32,
    /// Rate of the previous interval, segments per second.
    last: Option<f64>,
    is_used: bool,
}

impl Policer {
    /// Minimum rounds of an interval.
    const SHORTEST: u32 = 4;
    /// Maximum rounds of an interval.
    const LONGEST: u32 = 16;
    /// Number of rounds for which the rate is used.
    const USED: u32 = 48;
    /// Losses per delivery that indicate a policer.
    const LOSS: f64 = 50.0 / 256.0;
    /// Maximum relative difference of two intervals.
    const ALIKE: f64 = 0.125;

    fn rate(&self) -> Option<f64> {
        self.last.filter(|_| self.is_used)
    }

    /// Count a round; return whether the rate has been used long enough.
    fn is_old(&mut self) -> bool {
        self.rounds += 1;
        self.rounds >= Self::USED
    }

    fn begin(&mut self, news: &AckSample) {
        (self.since, self.rounds) = (news.delivered_at, 0);
        (self.delivered, self.lost) = (news.delivered, news.all_lost);
    }

    /// Process an acknowledgement. has_lost: whether it reports losses.
    fn note(&mut self, has_lost: bool, is_round_start: bool, news: &AckSample) {
        if self.is_used {
            return;
        }
        if !self.sampling {
            if !has_lost {
                return;
            }
            self.begin(news);
            self.sampling = true;
        }
        self.rounds += u32::from(is_round_start);
        if self.rounds > Self::LONGEST {
            *self = Self::default();
        }
        if self.rounds < Self::SHORTEST || !has_lost {
            return;
        }
        let lost = (news.all_lost - self.lost) as f64;
        let here = (news.delivered - self.delivered) as f64;
        let span = (news.delivered_at - self.since).as_secs_f64();
        if here == 0.0 || lost < Self::LOSS * here || span < 1e-3 {
            return;
        }
        let rate = here / span;
        match self.last {
            Some(last) if (rate - last).abs() <= Self::ALIKE * last => {
                self.last = Some((rate + last) / 2.0);
                self.is_used = true;
                self.rounds = 0;
            }
            _ => {
                self.last = Some(rate);
                self.begin(news);
            }
        }
    }
}

/// The maximum of a sliding window, from three of its samples with their times (Kathleen Nichols' algorithm, as in
/// Linux): the best sample of the window, the best one after it, and the best one after the second.
///
/// Only a new sample moves the window: without one, the maximum stays regardless of its age.
#[derive(Clone, Copy, Debug, Default)]
struct Maximum([(u64, f64); 3]);

impl Maximum {
    fn value(&self) -> f64 {
        self.0[0].1
    }

    /// Add a sample. The kept samples are at most `window` older.
    fn note(&mut self, window: u64, at: u64, value: f64) {
        let Self(best) = self;
        let new = (at, value);
        if value >= best[0].1 || at - best[2].0 > window {
            *best = [new; 3];
            return;
        }
        if value >= best[1].1 {
            (best[1], best[2]) = (new, new);
        } else if value >= best[2].1 {
            best[2] = new;
        }
        if at - best[0].0 > window {
            *best = [best[1], best[2], new];
            if at - best[0].0 > window {
                *best = [best[1], best[2], new];
            }
        } else if best[1].0 == best[0].0 && at - best[0].0 > window / 4 {
            // Later choices are from later parts of the window: they outlive the first.
            (best[1], best[2]) = (new, new);
        } else if best[2].0 == best[1].0 && at - best[0].0 > window / 2 {
            best[2] = new;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::rate::RateSample;
    use super::*;

    const SPAN: Duration = Duration::from_millis(40);

    /// A path of 1000 segments per second and 40 ms: 40 segments.
    struct Pipe {
        bbr: Bbr,
        window: u64,
        news: AckSample,
    }

    impl Pipe {
        fn new() -> Self {
            let tcp = Tcp::default();
            let mut bbr = Bbr::new(&tcp);
            bbr.on_established(&Window::new(&tcp), Time::ZERO, SPAN);
            let news = AckSample {
                delivered: 1,
                limited: true,
                ..AckSample::default()
            };
            let window = 10;
            Self { bbr, window, news }
        }

        /// Advance by a round trip, then acknowledge all of a window at once.
        fn round(&mut self, rate: f64, in_flight: u64) {
            let before = self.news.delivered;
            let news = &mut self.news;
            news.now += SPAN;
            news.delivered_at = news.now;
            news.segments = self.window;
            news.delivered += self.window;
            (news.before, news.in_flight) = (self.window, in_flight);
            news.round_trip = Some(SPAN);
            let idle = false;
            news.sample = Some(RateSample { rate, before, idle });
            self.window = self.bbr.acknowledged(self.window, news);
        }

        /// Return a pipe in the phase that probes for bandwidth.
        fn steady() -> Self {
            let mut pipe = Self::new();
            for _ in 0..5 {
                pipe.round(1000.0, 100);
            }
            pipe.round(1000.0, 40);
            assert_eq!(pipe.bbr.mode, Mode::ProbeBandwidth);
            pipe
        }
    }

    #[test]
    fn the_first_pacing_rate_is_that_of_the_initial_window_times_the_high_gain() {
        let pipe = Pipe::new();
        let expected = 10.0 * 1448.0 / 0.04 * HIGH * 0.99;
        assert!((pipe.bbr.pacing_rate - expected).abs() < 1e-6);
        assert_eq!(pipe.bbr.pacing().unwrap().quantum, 2 * 1448);
    }

    #[test]
    fn startup_doubles_until_the_rate_stands_for_three_rounds_then_the_queue_is_drained() {
        let mut pipe = Pipe::new();
        for (rate, window) in [(250.0, 20), (500.0, 40), (1000.0, 80)] {
            pipe.round(rate, pipe.window);
            assert_eq!((pipe.bbr.mode, pipe.window), (Mode::Startup, window));
        }
        pipe.round(1000.0, 100);
        pipe.round(1000.0, 100);
        assert_eq!(pipe.bbr.mode, Mode::Startup);
        pipe.round(1000.0, 100);
        assert_eq!(pipe.bbr.mode, Mode::Drain);
        assert!((pipe.bbr.pacing_rate - 1000.0 * 1448.0 * DRAIN * 0.99).abs() < 1e-6);
        // 40 segments and three bursts of two: in flight when the queue is empty.
        pipe.round(1000.0, 47);
        assert_eq!(pipe.bbr.mode, Mode::Drain);
        pipe.round(1000.0, 46);
        assert_eq!(pipe.bbr.mode, Mode::ProbeBandwidth);
    }

    #[test]
    fn the_window_is_twice_the_product_and_room_for_three_bursts() {
        let mut pipe = Pipe::steady();
        for _ in 0..20 {
            pipe.round(1000.0, 40);
        }
        let probes = if pipe.bbr.phase == 0 { 2 } else { 0 };
        // The window adds the data of one acknowledgement, here the whole window, less the delivery of the path
        // meanwhile, at most 100 ms of it.
        let aggregated = pipe.bbr.aggregation.most().min(100.0) as u64;
        let even = (80 + aggregated + 6).next_multiple_of(2);
        assert_eq!(pipe.window, even + probes);
    }

    #[test]
    fn a_cycle_probes_drains_and_cruises() {
        let mut pipe = Pipe::steady();
        let mut gains = Vec::new();
        for _ in 0..40 {
            // With a quarter more in flight the probe ends, then the queue must drain.
            pipe.round(1000.0, 40);
            pipe.news.now += Duration::from_millis(1);
            gains.push(pipe.bbr.pacing_gain);
        }
        let probe = gains.iter().position(|&gain| gain > 1.0).unwrap();
        let expected: Vec<f64> = CYCLE.to_vec();
        let first = gains[probe..].iter().position(|&gain| gain < 1.0).unwrap();
        assert_eq!(gains[probe + first - 1..probe + first + 7], expected[..]);
    }

    #[test]
    fn after_ten_seconds_the_window_is_four_for_200_ms() {
        let mut pipe = Pipe::steady();
        let longer = SPAN + Duration::from_millis(1);
        let mut probed = Duration::ZERO;
        for _ in 0..600 {
            let window = pipe.window;
            pipe.news.in_flight = window.min(40);
            pipe.round(1000.0, window.min(40));
            if pipe.bbr.mode == Mode::ProbeRoundTrip {
                assert_eq!(pipe.window, LEAST);
                probed += longer;
                pipe.news.in_flight = 4;
            }
            // From here on the queue extends round trips.
            pipe.bbr.least = Some(SPAN.saturating_sub(Duration::from_millis(1)));
        }
        assert!(
            probed > Duration::from_millis(400) && probed < Duration::from_millis(900),
            "{probed}"
        );
        assert!(pipe.window > 80);
    }

    #[test]
    fn an_acknowledgement_that_may_be_delayed_does_not_replace_an_old_round_trip() {
        let mut pipe = Pipe::steady();
        pipe.news.now += BELIEVED;
        pipe.news.is_delayed = true;
        pipe.news.round_trip = Some(SPAN + Duration::from_millis(40));
        let mut window = pipe.window;
        pipe.bbr.measure_round_trip(&mut window, &pipe.news);
        assert_eq!(pipe.bbr.least, Some(SPAN));
        pipe.news.is_delayed = false;
        pipe.bbr.measure_round_trip(&mut window, &pipe.news);
        assert_eq!(pipe.bbr.least, pipe.news.round_trip);
    }

    #[test]
    fn losses_are_repaired_at_the_rate_of_delivery_and_the_window_comes_back() {
        let mut pipe = Pipe::steady();
        for _ in 0..10 {
            pipe.round(1000.0, 40);
        }
        let before = pipe.window;
        pipe.bbr.save(before);
        pipe.news.repair = Repair::Recovery;
        (pipe.news.lost, pipe.news.all_lost) = (3, 3);
        pipe.news.segments = 2;
        pipe.news.in_flight = 60;
        pipe.news.sample = None;
        pipe.window = pipe.bbr.acknowledged(before, &pipe.news);
        assert_eq!(pipe.window, 62);
        (pipe.news.lost, pipe.news.repair) = (0, Repair::None);
        pipe.window = pipe.bbr.acknowledged(pipe.window, &pipe.news);
        assert!(pipe.window >= before, "{} < {before}", pipe.window);
    }

    #[test]
    fn a_pipe_that_was_full_stays_so_after_a_wrong_timeout() {
        let mut pipe = Pipe::steady();
        pipe.bbr.undo(&mut Window::default(), 0.0, 0.0);
        pipe.window = 200;
        pipe.round(1000.0, 40);
        assert!(pipe.window < 200); // the product of bandwidth and round trip
    }

    #[test]
    fn two_like_intervals_with_much_loss_show_a_policer() {
        let mut policer = Policer::default();
        for round in 0..9 {
            // 100 delivered and 30 lost in each 100 ms.
            let news = AckSample {
                delivered: 100 * round,
                delivered_at: Time::from_millis(100 * round),
                all_lost: 30 * round,
                ..AckSample::default()
            };
            policer.note(true, true, &news);
        }
        assert!((policer.rate().unwrap() - 1000.0).abs() < 1e-9);
    }

    #[test]
    fn a_maximum_expires_with_a_new_sample_only() {
        let mut maximum = Maximum::default();
        let mut after = |at, value| {
            maximum.note(10, at, value);
            maximum.value()
        };
        assert_eq!([after(0, 9.0), after(3, 7.0), after(6, 5.0)], [9.0; 3]);
        assert_eq!(
            [after(10, 1.0), after(11, 1.0), after(14, 1.0)],
            [9.0, 7.0, 5.0]
        );
        assert_eq!(after(1000, 2.0), 2.0);
    }
}
