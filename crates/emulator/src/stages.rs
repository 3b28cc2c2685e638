//! Adaptation of directions' stages to the emulator: infinite queues are bounded by the memory.

use cellbed_link::{DirectionConfig, Discipline, Limit, Packets, StageConfig};

/// Return all stages that a direction has at any time.
fn stages(direction: &mut DirectionConfig) -> impl Iterator<Item = &mut StageConfig> {
    let changes = direction.changes.iter_mut();
    let changes = changes.map(|change| &mut change.config);
    direction.stages.iter_mut().chain(changes)
}

/// Bound the infinite queues of directions by `memory` bytes; return the room of each.
pub fn bound_all(directions: &mut [DirectionConfig], memory: u64) -> Packets {
    let is_infinite = |stage: &mut StageConfig| stage.queue() == Some(&Discipline::Infinite);
    let infinite = directions.iter_mut().map(|it| stages(it).any(is_infinite));
    let infinite = infinite.filter(|it| *it).count();
    let room = infinite_room(memory, infinite);
    for direction in directions {
        stages(direction).for_each(|stage| bound(stage, room));
    }
    room
}

/// Return the room of an infinite queue. All infinite queues, one in each of `directions` directions, share an eighth
/// of `memory` bytes.
///
/// The rest of the packet memory remains for packets in flight: an endlessly growing queue in one direction does not
/// stop the others.
fn infinite_room(memory: u64, directions: usize) -> Packets {
    /// Bytes per packet: a slot of 2048 with metadata, and queue entries just after doubling of capacity.
    const QUEUED: u64 = 3072;
    Packets(memory / 8 / QUEUED / directions.max(1) as u64)
}

/// Bound the queue of a stage if infinite.
pub fn bound(stage: &mut StageConfig, room: Packets) {
    if let Some(queue) = stage.queue_mut()
        && *queue == Discipline::Infinite
    {
        *queue = Discipline::DropTail(Limit {
            packets: Some(room),
            bytes: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io;
    use std::path::Path;
    use std::sync::Arc;

    use cellbed_link::language::{LanguageError, Reader};
    use cellbed_link::{BottleneckConfig, Bytes, Duration, Schedule, Seed};

    use super::*;
    use crate::config::Config;

    fn open(path: &Path) -> io::Result<File> {
        File::open(path)
    }

    fn config(path: &Path) -> Config {
        let trace = format!(
            r#"{{"name":"NAME","from":"a","to":"b","stages":[{{"kind":"bottleneck",
               "schedule":{{"kind":"trace","path":"{}","looped":true}},"queue":{{"kind":"infinite"}}}}]}}"#,
            path.display()
        );
        Config::parse(&format!(
            r#"{{"namespaces":"auto","vertices":[{{"name":"a","namespace":null}},{{"name":"b","namespace":null}}],
               "default_vertex":null,"directions":[{},{}],"series":null,"packet_log":null}}"#,
            trace.replace("NAME", "up"),
            trace.replace("NAME", "down")
        ))
        .unwrap()
    }

    #[test]
    fn directions_share_a_trace() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.up");
        std::fs::write(&path, "1\n2\n").unwrap();
        let graph = config(&path).build(open).unwrap();
        let traces: Vec<_> = graph
            .directions
            .iter()
            .map(|stages| match &stages.stages[0] {
                StageConfig::Bottleneck(BottleneckConfig {
                    schedule: Schedule::Trace { trace, .. },
                    ..
                }) => trace,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(Arc::ptr_eq(traces[0], traces[1]));
    }

    fn read(stage: &str) -> Result<StageConfig, LanguageError> {
        Reader::new(open).stage(serde_json::from_str(stage).unwrap())
    }

    #[test]
    fn a_recording_of_two_workloads_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let light = file("light", "0 20 0 1\n50 30 0\n");
        let heavy = file("heavy", "1\n2\n");
        let offsets = file("offsets", "100 -6.8\n1400 0\n");
        let stage = |more: &str| {
            format!(
                r#"{{"kind":"workload-dependent","light":"{light}","heavy":"{heavy}","looped":true,
                   "queue":{{"kind":"droptail","bytes":5000}}{more}}}"#
            )
        };
        let read_link = |more: &str| match read(&stage(more)).unwrap() {
            StageConfig::WorkloadDependent(link) => *link,
            other => panic!("{other:?}"),
        };
        let plain = read_link("");
        assert_eq!(
            (plain.light.rows().len(), plain.opportunity),
            (2, Bytes(1400))
        );
        assert_eq!(plain.idle, Duration::ZERO);
        let more = format!(
            r#","latency_offset":"{offsets}","idle_ns":5,"idle_at":"queue","anchor":"first-packet",
               "offset_ns":7,"opportunity_bytes":1428,"overhead_bytes":4"#
        );
        let link = read_link(&more);
        assert_eq!(link.compensation.points().count(), 2);
        assert_eq!((link.opportunity, link.overhead), (Bytes(1428), Bytes(4)));
        assert_eq!(
            (link.idle, link.offset),
            (Duration::from_nanos(5), Duration::from_nanos(7))
        );

        std::fs::write(&light, "0 20 0\n1 x\n").unwrap();
        let message = read(&stage("")).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{light}:2: ")), "{message}");
        let message = read(&stage(r#","opportunity_bytes":0"#)).unwrap_err();
        assert!(message.to_string().contains("0 bytes"), "{message}");
    }

    #[test]
    fn a_radio_link_is_a_profile_and_what_is_different() {
        let stage = r#"{"kind":"radio","profile":"lowband-driving","way":"uplink","seed":3,"offset_ns":5,
            "queue":{"kind":"infinite"},"signal_db":-3,"share":0.5,"delay_ns":7}"#;
        let StageConfig::Radio(radio) = read(stage).unwrap() else {
            panic!("another kind");
        };
        let profile = cellbed_link::Profile::LOWBAND_DRIVING.config(cellbed_link::Way::Uplink);
        assert_eq!((radio.seed, radio.offset.as_nanos()), (Seed(3), 5));
        assert_eq!((radio.channel.mean_db, radio.cell.share), (-3.0, 0.5));
        assert_eq!(radio.path.delay, Duration::from_nanos(7));
        assert_eq!(radio.queue, Discipline::Infinite);
        assert_eq!(radio.handover, profile.handover);
        let stage = r#"{"kind":"radio","profile":"midband-good","way":"downlink","seed":3,
            "handover":{"every_ns":14000000000,"least_ns":1,"most_ns":2,"spread_db":3},
            "carrier":{"blocks":264,"layers":2,"overhead":0.18,"slot_ns":125000,"symbols":[14,0]},
            "fading":{"deviation_db":4,"memory_ns":5},"share_deviation":0.25}"#;
        let StageConfig::Radio(radio) = read(stage).unwrap() else {
            panic!("another kind");
        };
        assert_eq!(radio.handover.unwrap().every, Duration::from_secs(14));
        assert_eq!((radio.carrier.blocks, radio.carrier.layers), (264, 2));
        assert_eq!(radio.slots.length, Duration::from_micros(125));
        assert_eq!(radio.slots.symbols, [14, 0]);
        assert_eq!(
            (radio.channel.deviation_db, radio.cell.deviation),
            (4.0, 0.25)
        );
    }

    #[test]
    fn a_malformed_stage_is_refused() {
        for (stage, part) in [
            (
                r#"{"kind":"loss","probability":1.5,"seed":1}"#,
                "1.5 is not a probability",
            ),
            (
                r#"{"kind":"dely"}"#,
                "unknown variant `dely`, expected one of `loss`",
            ),
            (r#"{"fixed_ns":1}"#, "missing field `kind`"),
            (r#"{"kind":"delay","fixed":1}"#, "unknown field `fixed`"),
            (
                r#"{"kind":"bottleneck","schedule":{"kind":"unlimited"},"queue":{"kind":"codel","limit":5}}"#,
                "unknown field `limit`",
            ),
            (
                r#"{"kind":"bottleneck","schedule":{"kind":"series","steps":[[1,5]]},"queue":{"kind":"infinite"}}"#,
                "must begin at 0",
            ),
            (
                r#"{"kind":"radio","profile":"midband","way":"uplink","seed":1}"#,
                "known are midband-good",
            ),
        ] {
            let message = read(stage).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
