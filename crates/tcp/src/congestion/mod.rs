//! Congestion control: the number of segments that a sender may have in flight, and their rate.
//!
//! A law is a C header ([`cellbed_laws`]), which also runs in the kernel, or a file here with a [`Controller`] and a
//! line in the list `controllers!`.

mod bbr;
mod cubic;
mod dctcp;
mod header;
mod window;

use std::ops::{Deref, DerefMut};

use cellbed_laws::{Law, MOST_SHOWN};
use cellbed_link::{Duration, Time};

pub(super) use window::{Reduction, Usage, Window};

use super::Tcp;
use super::rate::RateSample;

/// Defines [`Control`] and [`AnyController`] from a list of laws: `/// DOCUMENTATION`, `NAME => TYPE`. The name of a
/// law in scenarios and simulations is `NAME` in lower case.
macro_rules! controllers {
    ($($(#[$doc:meta])* $name:ident => $law:ty,)*) => {
        /// A congestion control law.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
        #[serde(try_from = "String", into = "String")]
        pub enum Control {
            $($(#[$doc])* $name,)*
            /// The law of a loaded header.
            Header(&'static Law),
        }

        impl Control {
            /// All laws that are not headers.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        /// The controller of a connection.
        #[derive(Clone, Debug)]
        pub(super) enum AnyController { $($name(Box<$law>),)* Header(Box<header::Header>) }

        impl AnyController {
            /// Return the controller, which may change the initial window.
            pub fn new(tcp: &Tcp, window: &mut Window) -> Self {
                match tcp.control {
                    $(Control::$name => Self::$name(Box::new(<$law>::new(tcp))),)*
                    Control::Header(law) => Self::Header(Box::new(header::Header::new(tcp, law, window))),
                }
            }
        }

        impl Deref for AnyController {
            type Target = dyn Controller;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$name(law) => law.as_ref(),)* Self::Header(law) => law.as_ref() }
            }
        }

        impl DerefMut for AnyController {
            fn deref_mut(&mut self) -> &mut Self::Target {
                match self { $(Self::$name(law) => law.as_mut(),)* Self::Header(law) => law.as_mut() }
            }
        }
    };
}

controllers! {
    /// CUBIC (RFC 9438) as in Linux.
    Cubic => cubic::Cubic,
    /// NewReno (RFC 5681, RFC 6582).
    NewReno => NewReno,
    /// BBR version 1 (Cardwell et al., 2016) as in Linux.
    Bbr => bbr::Bbr,
    /// DCTCP (RFC 8257): NewReno, but a mark reduces the window by the share of marked segments.
    Dctcp => dctcp::Dctcp,
}

impl Control {
    /// Return the name in scenarios and simulations.
    pub fn name(self) -> String {
        match self {
            Self::Header(law) => law.name().to_owned(),
            law => format!("{law:?}").to_lowercase(),
        }
    }

    /// Return the law with a name, if any.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::ALL.iter().copied().find(|law| law.name() == name);
        found.or_else(|| cellbed_laws::find(name).map(Self::Header))
    }

    /// Return whether the law needs packets that queues can mark (see [`Controller::uses_ecn`]).
    pub fn uses_ecn(self) -> bool {
        let tcp = Tcp {
            control: self,
            ..Tcp::default()
        };
        AnyController::new(&tcp, &mut Window::new(&tcp)).uses_ecn()
    }
}

impl TryFrom<String> for Control {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::from_name(&name).ok_or_else(|| format!("unknown congestion control '{name}'"))
    }
}

impl From<Control> for String {
    fn from(law: Control) -> Self {
        law.name()
    }
}

/// A congestion control law, after Linux's `tcp_congestion_ops`; the methods' docs name its functions. Sizes are in
/// segments.
///
/// The provided methods implement NewReno. The sender itself repairs losses (RFC 6937) and meanwhile sets the window.
pub(super) trait Controller {
    /// Process the handshake's round trip.
    fn on_established(&mut self, _window: &Window, _now: Time, _round_trip: Duration) {}

    /// Process a round-trip sample (`pkts_acked`).
    fn on_round_trip(&mut self, _window: &mut Window, _ack: &AckSample, _round_trip: Duration) {}

    /// Process the number of marks, possibly zero, among newly acknowledged segments (`in_ack_event`). repairing:
    /// losses have reduced the window.
    fn on_ecn(&mut self, _window: &mut Window, _ack: &AckSample, _marked: u64, _repairing: bool) {}

    /// Grow the window by newly acknowledged segments (`cong_avoid`). Not called while losses are repaired.
    fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        grow(self, window, ack);
    }

    /// Return the growth of the window per acknowledged segment after slow start: NewReno's is one segment per round
    /// trip (RFC 5681 §3.1).
    fn increase(&mut self, window: f64, _ack: &AckSample, _segments: f64) -> f64 {
        1.0 / window
    }

    /// Process each acknowledgement, after its losses are known (`cong_control`).
    fn on_delivery(&mut self, _window: &mut Window, _ack: &AckSample) {}

    /// Reduce the threshold after losses. The sender reduces the window.
    fn on_loss(&mut self, window: &mut Window) {
        window.threshold = self.decrease(window.size).floor().max(2.0);
    }

    /// Return the window after losses (`ssthresh`): NewReno halves it (RFC 5681 §3.1).
    fn decrease(&mut self, window: f64) -> f64 {
        window / 2.0
    }

    /// Process a timeout, after [`on_loss`](Self::on_loss).
    fn on_timeout(&mut self, window: &mut Window, _timeout: &AckSample) {
        window.size = 1.0;
    }

    /// Restore window and threshold after spurious losses (`undo_cwnd`).
    fn undo(&mut self, window: &mut Window, size: f64, threshold: f64) {
        window.size = window.size.max(size);
        window.threshold = window.threshold.max(threshold);
    }

    /// Set the window while losses are repaired.
    fn repair(&mut self, window: &mut Window, segments: f64) {
        window.size = segments.max(1.0);
    }

    /// Reduce the window after an idle time longer than the timeout (`tcp_cwnd_restart`).
    fn on_idle(&mut self, window: &mut Window, idle: Duration, timeout: Duration) {
        window.decay(idle, timeout);
    }

    /// The application writes after `idle` without a packet in flight.
    fn on_write(&mut self, _now: Time, _idle: Duration) {}

    /// A segment leaves when none was in flight for lack of data (`CA_EVENT_TX_START`).
    fn on_restart(&mut self, _window: &mut Window, _now: Time) {}

    /// Return the rate at which segments leave, if the law paces them (`sk_pacing_rate`).
    fn pacing(&self) -> Option<Pacing> {
        None
    }

    /// Return variables of the law for the series of its flows.
    fn shown(&self) -> [u64; MOST_SHOWN] {
        [0; MOST_SHOWN]
    }

    /// Return whether the law sends little on purpose: its samples then do not show the capacity of the path.
    fn is_draining(&self) -> bool {
        false
    }

    /// Return whether packets are ECN-capable, and receivers report each mark (`TCP_CONG_NEEDS_ECN`).
    fn uses_ecn(&self) -> bool {
        false
    }
}

/// Grow the window, if it limited the sender: by each segment in slow start, afterwards by [`Controller::increase`].
fn grow<C: Controller + ?Sized>(law: &mut C, window: &mut Window, ack: &AckSample) {
    if ack.limited
        && let Some(segments) = window.slow_start(ack.segments as f64)
    {
        window.size += segments * law.increase(window.size, ack, segments);
    }
}

/// NewReno (RFC 5681, RFC 6582): the provided methods of [`Controller`].
#[derive(Clone, Debug)]
pub(super) struct NewReno;

impl NewReno {
    fn new(_tcp: &Tcp) -> Self {
        Self
    }
}

impl Controller for NewReno {}

/// Pacing by a law.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacing {
    /// Rate in bytes per second.
    pub rate: f64,
    /// Bytes that leave at once.
    pub quantum: u64,
}

/// State of loss repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Repair {
    #[default]
    None,
    /// After losses that acknowledgements revealed.
    Recovery,
    /// After a timeout.
    Timeout,
}

/// The state of a sender when an acknowledgement arrives, in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckSample {
    pub now: Time,
    /// Newly acknowledged segments.
    pub segments: u64,
    pub round_trip: Option<Duration>,
    /// The first missing byte, and the first unsent one.
    pub missing: u64,
    pub next: u64,
    /// True if the window limited the sender.
    pub limited: bool,
    /// Segments in flight before the acknowledgement.
    pub before: u64,

    /// Segments in flight now; known after the losses in the acknowledgement.
    pub in_flight: u64,
    /// Newly detected losses, and all so far.
    pub lost: u64,
    pub all_lost: u64,
    pub sample: Option<RateSample>,
    /// All deliveries, and the time of the last acknowledgement.
    pub delivered: u64,
    pub delivered_at: Time,
    /// The smoothed round trip of the connection (RFC 6298).
    pub smoothed: Option<Duration>,
    /// True for a short segment that was alone in flight: the receiver may have delayed its acknowledgement.
    pub is_delayed: bool,
    pub repair: Repair,
    /// Time until pacing allows the next segment.
    pub ahead: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_law_has_a_name_of_its_own_by_which_it_is_found() {
        for &law in Control::ALL {
            assert_eq!(Control::from_name(&law.name()), Some(law));
        }
        assert_eq!(Control::from_name("no-such-law"), None);
    }
}
