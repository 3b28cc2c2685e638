//! Packet captures (pcap and pcapng): the arrivals of one flow become delivery opportunities.
//!
//! A capture is read twice: once for its flows, which are kept in memory, once for the packets of the chosen flows.

mod flows;
mod link_layer;
mod packets;

use std::io::{Read, Seek, SeekFrom};
use std::net::IpAddr;
use std::path::Path;

pub use flows::{Flow, Flows, Way};
use serde::Deserialize;

use crate::error::{LeftOut, Result, Seconds, format_count, refuse};
use crate::series::{Imported, Opportunities, Part};
use packets::{Packet, Survey, each_packet};

/// Bytes of IP that an opportunity carries.
const OPPORTUNITY_BYTES: u64 = 1500;
/// Minimum mean packet, bytes, that shows the capacity; smaller packets are mostly acknowledgements.
const TELLING_BYTES: u64 = 500;
/// Maximum step back between two stamps, ns: a network card stamps its queues separately. A larger step means that the
/// clock was set.
const MOST_BACKWARDS_NS: i64 = 1_000_000_000;
/// Maximum plausible pause between two packets, ns.
const LONGEST_PAUSE_NS: i64 = 7 * 86_400 * 1_000_000_000;

/// Options of the conversion of a capture.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Request {
    /// Words that must all match a flow: a protocol, an address, `:PORT`, `ADDRESS:PORT`. Empty: any flow.
    pub flow: Vec<String>,
    /// True for all matching flows, false for the largest one.
    pub all_flows: bool,
    /// The device's address; default: the end that began the flow.
    pub device: Option<IpAddr>,
    /// Directions to import; default: directions with packets large enough to show capacity.
    pub directions: Option<Vec<Part>>,
    /// True for one opportunity per packet of any size, false for one per 1500 bytes.
    pub each_packet: bool,
}

/// Convert the chosen flow's packets to opportunities: one whenever another 1500 bytes of IP have arrived.
pub fn capture(mut source: impl Read + Seek, request: &Request, folder: &Path) -> Result<Imported> {
    let length = source.seek(SeekFrom::End(0))?;
    source.seek(SeekFrom::Start(0))?;
    let mut flows = Flows::default();
    let survey = each_packet(&mut source, length, |_, packet| {
        flows.add(&packet.header);
        Ok(())
    })?;
    survey.check()?;
    let chosen = flows.choose(request)?;
    let device = device(&chosen, request.device)?;
    let parts = parts(&chosen, device, request)?;

    source.seek(SeekFrom::Start(0))?;
    let mut series: Vec<Arrivals> = parts
        .iter()
        .map(|&part| Arrivals::new(part, request.each_packet, folder))
        .collect::<Result<_>>()?;
    let mut clock = Clock::default();
    let mut add = |at_ns: i64, packet: Packet| {
        let part = Part::BOTH[usize::from(device != packet.header.from)];
        match series.iter_mut().find(|arrivals| arrivals.part == part) {
            Some(arrivals) => arrivals.add(at_ns, packet.header.bytes),
            None => Ok(()),
        }
    };
    each_packet(&mut source, length, |number, packet| {
        if !chosen.has(&packet.header) {
            return Ok(());
        }
        match clock.next(Some((number, packet)))? {
            Some((at_ns, before)) => add(at_ns, before),
            None => Ok(()),
        }
    })?;
    if let Some((at_ns, last)) = clock.next(None)? {
        add(at_ns, last)?;
    }
    let mut notes = vec![chosen.describe(&flows)];
    notes.extend(told_of_device(&chosen, device, request, &parts));
    notes.extend(clock.describe());
    for left_out in [&survey.left_out, &clock.left_out] {
        notes.extend(left_out.note("packet is", "packets are"));
    }
    notes.extend(survey.describe());
    let mut done = Imported {
        notes,
        begun_ns: clock.start_ns,
        ..Imported::default()
    };
    for arrivals in series {
        done.parts.push(arrivals.series.finish(clock.now_ns)?);
    }
    Ok(done)
}

/// Return the address of the device.
fn device(chosen: &Flows, told: Option<IpAddr>) -> Result<IpAddr> {
    let Some(device) = told else {
        return Ok(chosen.beginner());
    };
    if chosen.each().all(|flow| flow.ends().contains(&device)) {
        return Ok(device);
    }
    let ends: Vec<String> = chosen
        .largest()
        .iter()
        .flat_map(|flow| flow.ends().map(|end| end.to_string()))
        .collect();
    refuse(format!(
        "the device {device} is not an endpoint of the chosen flow, which is between {}",
        ends.join(" and ")
    ))
}

/// Return the directions to import.
fn parts(chosen: &Flows, device: IpAddr, request: &Request) -> Result<Vec<Part>> {
    let there = |part: &Part| chosen.way(device, *part == Part::Uplink);
    if let Some(asked) = &request.directions {
        for part in asked {
            let (name, Way { packets, bytes, .. }) = (part.name(), there(part));
            if packets == 0 {
                return refuse(format!("the chosen flow has no packet of the {name}"));
            }
            if bytes < OPPORTUNITY_BYTES && !request.each_packet {
                return refuse(format!(
                    "the {name} of the chosen flow has {bytes} bytes in all, and an opportunity carries {OPPORTUNITY_BYTES}: \
                     leave it out, or have one of each packet by --each-packet"
                ));
            }
        }
        return Ok(asked.clone());
    }
    let with = |least: u64| -> Vec<Part> {
        let fits = |part: &Part| {
            let way = there(part);
            way.packets > 0 && way.bytes >= least * way.packets && way.bytes >= OPPORTUNITY_BYTES
        };
        Part::BOTH.into_iter().filter(fits).collect()
    };
    let telling = with(TELLING_BYTES);
    let kept = if telling.is_empty() { with(0) } else { telling };
    if kept.is_empty() {
        return refuse(
            "the chosen flow has less than 1500 bytes in each direction: too little for one opportunity",
        );
    }
    Ok(kept)
}

fn told_of_device(
    chosen: &Flows,
    device: IpAddr,
    request: &Request,
    parts: &[Part],
) -> Vec<String> {
    let mut notes = Vec::new();
    if request.device.is_none() {
        notes.push(format!(
            "{device} was taken for the device, as it began; if it is the other end: --device"
        ));
    }
    for part in Part::BOTH {
        let way = chosen.way(device, part == Part::Uplink);
        if way.packets == 0 {
            continue;
        }
        let (name, mean) = (part.name(), way.bytes / way.packets);
        if !parts.contains(&part) {
            notes.push(if request.directions.is_some() {
                format!("the {name} was left out: only the other direction was asked for")
            } else {
                let keep = if way.bytes < OPPORTUNITY_BYTES {
                    "less than one opportunity in total"
                } else {
                    "to keep it: --direction"
                };
                format!(
                    "the {name} was left out: its packets have {mean} bytes on average, too little to show the capacity; {keep}"
                )
            });
            continue;
        }
        if mean < TELLING_BYTES {
            notes.push(format!(
                "the packets of the {name} have {mean} bytes on average: this is hardly what the link could carry"
            ));
        }
        if way.fresh() {
            notes.push(format!(
                "no router has passed on the {name} (hop limit {}): if it was captured where it was sent, its times are sending times and \
                 show what was offered, not what the link could carry",
                way.hop_limit
            ));
        }
    }
    notes
}

/// Converter of one direction's arrivals to opportunities.
struct Arrivals {
    part: Part,
    each_packet: bool,
    bytes: u64,
    given: u64,
    series: Opportunities,
}

impl Arrivals {
    fn new(part: Part, each_packet: bool, folder: &Path) -> Result<Self> {
        Ok(Self {
            part,
            each_packet,
            bytes: 0,
            given: 0,
            series: Opportunities::create(part, folder)?,
        })
    }

    fn add(&mut self, at_ns: i64, bytes: u32) -> Result<()> {
        self.bytes += u64::from(bytes);
        let due = if self.each_packet {
            self.given + 1
        } else {
            self.bytes / OPPORTUNITY_BYTES
        };
        while self.given < due {
            self.series.push(at_ns)?;
            self.given += 1;
        }
        Ok(())
    }
}

/// Converter of stamps to never decreasing times since the first packet. A packet is passed on when the next one
/// arrives, so that a single odd stamp can be left out.
#[derive(Default)]
struct Clock {
    start_ns: Option<i64>,
    now_ns: i64,
    backwards: u64,
    furthest_ns: i64,
    pending: Option<(u64, Packet)>,
    left_out: LeftOut,
}

impl Clock {
    /// Take the next packet, `None` at the end. Return the previous packet and its time, unless left out.
    fn next(&mut self, packet: Option<(u64, Packet)>) -> Result<Option<(i64, Packet)>> {
        let Some((number, before)) = std::mem::replace(&mut self.pending, packet) else {
            return Ok(None);
        };
        let last = self.start_ns.map(|start| start.saturating_add(self.now_ns));
        let next = packet.map(|(_, packet)| packet.stamp_ns);
        let fits = |one: Option<i64>, other: i64| {
            let step = one.map_or(0, |one| other.saturating_sub(one));
            (-MOST_BACKWARDS_NS..=LONGEST_PAUSE_NS).contains(&step)
        };
        let between = next.is_none_or(|next| fits(Some(before.stamp_ns), next));
        let without = next.is_none_or(|next| fits(last, next));
        if fits(last, before.stamp_ns) && (between || !without) {
            return Ok(Some((self.read(before.stamp_ns), before)));
        }
        let step = before
            .stamp_ns
            .saturating_sub(last.or(next).unwrap_or_default());
        let side = if step < 0 { "before" } else { "after" };
        let reason = format!(
            "its timestamp is {} {side} the timestamp of the next packet",
            Seconds(step.saturating_abs())
        );
        if between && !without {
            return refuse(format!(
                "packet {number}: {reason}: the clock was set, or another capture begins: split the file"
            ));
        }
        self.left_out.add_packet(number, &reason);
        Ok(None)
    }

    fn read(&mut self, stamp_ns: i64) -> i64 {
        let start = *self.start_ns.get_or_insert(stamp_ns);
        let at_ns = stamp_ns.saturating_sub(start);
        let back = self.now_ns.saturating_sub(at_ns);
        if back > 0 {
            self.backwards += 1;
            self.furthest_ns = self.furthest_ns.max(back);
        }
        self.now_ns = self.now_ns.max(at_ns);
        self.now_ns
    }

    fn describe(&self) -> Option<String> {
        (self.backwards > 0).then(|| {
            format!(
                "{} with a timestamp up to {:.3} ms before the previous packet: the previous time is used",
                format_count(self.backwards, "packet is", "packets are"),
                self.furthest_ns as f64 / 1e6
            )
        })
    }
}

impl Survey {
    /// Return an error if there is nothing to choose from.
    fn check(&self) -> Result<()> {
        if self.flows > 0 {
            return Ok(());
        }
        let reason = match self.unknown_link {
            Some(link) => format!(
                "unsupported link type {link}: supported are Ethernet, raw IP, Linux cooked (1 and 2) and loopback"
            ),
            None if self.left_out.count > 0 => self.left_out.first.clone(),
            None if self.unstamped > 0 => "its packets have no times (simple packet blocks)".into(),
            None if self.packets > 0 => format!(
                "none of its {} is a readable IP packet",
                format_count(self.packets, "packet", "packets")
            ),
            None => "capture without packets".into(),
        };
        refuse(reason)
    }

    fn describe(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.cut {
            notes.push(format!(
                "the capture ends in the middle of a packet: {} before it were read",
                format_count(self.packets, "packet", "packets")
            ));
        }
        notes.extend(self.damage.clone());
        if self.short > 0 {
            notes.push(format!(
                "{} no length on the wire: the length in the IP header is used",
                format_count(self.short, "packet has", "packets have")
            ));
        }
        if let Some(link) = self.unknown_link {
            notes.push(format!(
                "packets of an interface with link type {link} were skipped"
            ));
        }
        if self.unstamped > 0 {
            notes.push(format!(
                "{} without a time were skipped",
                format_count(self.unstamped, "packet", "packets")
            ));
        }
        if self.fragments > 0 {
            notes.push(format!(
                "{} of IP packets: they count as a flow of their own, as only the first has ports",
                format_count(self.fragments, "fragment", "fragments")
            ));
        }
        notes
    }
}
