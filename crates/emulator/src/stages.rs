//! From the configuration's stages to those of the path model; traces are read here.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use cellbed_link::{
    BitRate, BottleneckConfig, Bytes, DelayConfig, DelaySeries, Discipline, Duration, LossConfig,
    Packets, Probability, Repeat, Schedule, Seed, StageConfig, Trace,
};

use crate::config::{self, Config, Stage};
use crate::error::{Error, Result, Trying};

/// The stages of every direction, in the configuration's order. Directions that name one trace share it.
pub fn build(config: &Config) -> Result<Vec<Vec<StageConfig>>> {
    let mut traces = HashMap::new();
    let mut directions = Vec::new();
    for (index, way) in config.directions.iter().enumerate() {
        let stages = way
            .stages
            .iter()
            .map(|it| stage(it, &mut traces, || config.direction_place(index)));
        directions.push(stages.collect::<Result<_>>()?);
    }
    Ok(directions)
}

fn stage<'a>(
    stage: &'a Stage,
    traces: &mut HashMap<&'a Path, Arc<Trace>>,
    place: impl Fn() -> String,
) -> Result<StageConfig> {
    Ok(match stage {
        Stage::Loss { probability, seed } => {
            let probability = Probability::new(*probability).ok_or_else(|| {
                Error::configuration(place(), format!("{probability} is no probability"))
            })?;
            LossConfig::Independent {
                probability,
                seed: Seed(*seed),
            }
            .into()
        }
        Stage::Bottleneck { schedule, queue } => {
            BottleneckConfig::new(self::schedule(schedule, traces)?)
                .with_queue(discipline(queue))
                .into()
        }
        Stage::Delay { fixed_ns, series } => match series {
            Some(points) => {
                let points = points
                    .iter()
                    .map(|&(t, d)| (Duration::from_nanos(t), Duration::from_nanos(d)))
                    .collect();
                let series = DelaySeries::new(points).ok_or_else(|| {
                    Error::configuration(place(), "the times of a recorded delay must rise")
                })?;
                DelayConfig::Series(Arc::new(series)).into()
            }
            None => DelayConfig::Fixed(Duration::from_nanos(fixed_ns.unwrap_or(0))).into(),
        },
    })
}

fn schedule<'a>(
    schedule: &'a config::Schedule,
    traces: &mut HashMap<&'a Path, Arc<Trace>>,
) -> Result<Schedule> {
    Ok(match schedule {
        config::Schedule::Unlimited => Schedule::Unlimited,
        config::Schedule::Constant { bit_rate } => Schedule::Constant(BitRate(*bit_rate)),
        config::Schedule::Trace {
            path,
            looped,
            offset_ns,
        } => {
            let trace = match traces.get(path.as_path()) {
                Some(trace) => Arc::clone(trace),
                None => {
                    let trace = Arc::new(read_trace(path)?);
                    traces.insert(path, Arc::clone(&trace));
                    trace
                }
            };
            let repeat = if *looped {
                Repeat::Looped
            } else {
                Repeat::Once
            };
            Schedule::Trace {
                trace,
                repeat,
                offset: Duration::from_nanos(*offset_ns),
            }
        }
    })
}

fn discipline(queue: &config::Queue) -> Discipline {
    match queue {
        config::Queue::Infinite => Discipline::Infinite,
        config::Queue::DropTail { packets, bytes } => Discipline::DropTail {
            packets: packets.map(Packets),
            bytes: bytes.map(Bytes),
        },
    }
}

/// Reads a trace file; errors name file, line and reason.
pub fn read_trace(path: &Path) -> Result<Trace> {
    let file = File::open(path).trying(|| format!("open the trace {}", path.display()))?;
    Trace::parse(file).map_err(|error| Error::Trace(error.in_file(path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let stages = build(&config(&path)).unwrap();
        let traces: Vec<_> = stages
            .iter()
            .map(|stages| match &stages[0] {
                StageConfig::Bottleneck(BottleneckConfig {
                    schedule: Schedule::Trace { trace, .. },
                    ..
                }) => trace,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(Arc::ptr_eq(traces[0], traces[1]));
    }

    #[test]
    fn a_bad_trace_is_told_with_file_and_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.up");
        std::fs::write(&path, "1\n2.5\n").unwrap();
        let message = build(&config(&path)).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("{}:2: ", path.display())),
            "{message}"
        );
        let missing = build(&config(Path::new("/no/such.up")))
            .unwrap_err()
            .to_string();
        assert!(missing.contains("/no/such.up"), "{missing}");
    }
}
