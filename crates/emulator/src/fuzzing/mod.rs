//! What is thrown at the parsers and at the segmentation code: a function for each, which panics where something is wrong.
//!
//! Only with the feature `fuzzing`. The targets in `fuzz/` call these with bytes that libFuzzer chooses, the example
//! `segmentation_cases` with random ones.

mod choices;
mod segmentation;

use cellbed_link::{Bytes, Direction, Duration, Time};

pub use segmentation::{Figures, Segmentation};

use crate::config::{Config, Stage};
use crate::control::Command;
use crate::flow::tag;
use crate::offload::{Layout, VNET_BYTES, Vnet};
use crate::packet::Header;
use crate::schedules::Schedule;
use crate::stages;
use choices::Choices;

/// Any text is a configuration or an error in one line, and whatever stages it has carry packets.
pub fn configuration(text: &str) {
    match Config::parse(text) {
        Ok(config) => {
            let all = config.directions.iter();
            if all.flat_map(|way| &way.stages).any(reads_a_file) {
                return;
            }
            if let Ok(courses) = stages::build(&config) {
                for course in courses {
                    let direction = Direction::new(course.stages, Time::ZERO);
                    let direction = direction.with_changes(course.changes);
                    carry(direction.expect("changes were checked"), text.as_bytes());
                }
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Any text is a list of stages or an error in one line, and the stages carry packets.
pub fn stage_list(text: &str) {
    let listed: Result<Vec<serde_json::Value>, _> = serde_json::from_str(text);
    if listed.is_ok_and(|list| list.iter().any(|stage| stage.to_string().contains("path"))) {
        return;
    }
    match stages::parse_stages(text) {
        Ok(stages) => carry(Direction::new(stages, Time::ZERO), text.as_bytes()),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Any text is a command or an error.
pub fn command(text: &str) {
    if let Ok(Command::Change { to, .. }) = serde_json::from_str(text)
        && let Ok(stage) = serde_json::from_value::<Stage>(to)
        && !reads_a_file(&stage)
        && let Ok(stage) = stages::one(&stage, "here")
    {
        carry(Direction::new(vec![stage], Time::ZERO), text.as_bytes());
    }
}

/// Any bytes are a packet of which something can be told, or nothing.
pub fn packet(bytes: &[u8]) {
    if let Some(header) = Header::parse(bytes) {
        assert!(header.payload as usize <= bytes.len());
        let _ = (header.is_link_chatter(), tag(bytes, &header));
    }
    if let Some((vnet, packet)) = bytes.split_first_chunk::<VNET_BYTES>() {
        let layout = Layout::of(Vnet::parse(vnet), packet);
        let sizes: usize = (0..layout.segments()).map(|it| layout.size(it)).sum();
        let repeated = usize::from(layout.segments() - 1) * usize::from(layout.header);
        assert_eq!(sizes, packet.len() + repeated);
    }
}

fn reads_a_file(stage: &Stage) -> bool {
    matches!(
        stage,
        Stage::Bottleneck {
            schedule: Schedule::Trace { .. },
            ..
        }
    )
}

/// Lets some packets through, as many and as far apart as `bytes` say. None may vanish, and time goes forwards.
fn carry(mut direction: Direction<u32>, bytes: &[u8]) {
    let mut choices = Choices::new(bytes);
    let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
    let (mut sent, mut ended) = (0u64, 0u64);
    for packet in 0..100 {
        now += Duration::from_nanos(u64::from(choices.next()) << (choices.next() % 24));
        direction.accept(now, packet, Bytes(u64::from(choices.next()) * 7));
        sent += 1;
        while let Some(outcome) = direction.poll(now) {
            assert!(outcome.departed >= latest && outcome.departed >= outcome.arrived);
            latest = outcome.departed;
            match outcome.fate {
                cellbed_link::Fate::Doubled => sent += 1,
                _ => ended += 1,
            }
        }
        assert_eq!(sent, ended + direction.held().packets.0);
    }
}
