//! The stages of all directions as the configuration, or the command that changed them last, has them.

use cellbed_link::InForce;
use serde_json::{Value, json};

use crate::config::{Config, Direction};

/// Configuration requested by commands: the last table of each stage, by direction.
#[derive(Debug)]
pub struct Description(Vec<Vec<Value>>);

impl Description {
    /// The description of a configuration without changes.
    pub fn new(config: &Config) -> Self {
        let unchanged = |it: &Direction| vec![Value::Null; it.table.stages.len()];
        Self(config.directions.iter().map(unchanged).collect())
    }

    /// A command has changed a stage.
    pub fn record_change(&mut self, direction: usize, stage: usize, to: Value) {
        self.0[direction][stage] = to;
    }

    /// A stage of a direction whose parameters come from there.
    pub fn stage<'a>(
        &'a self,
        config: &'a Config,
        direction: usize,
        stage: usize,
        from: InForce,
    ) -> &'a Value {
        let table = &config.directions[direction].table;
        match from {
            InForce::Start => &table.stages[stage],
            InForce::Scheduled(change) => &table.changes[change].to,
            InForce::Called => &self.0[direction][stage],
        }
    }

    /// The event that describes every stage as it is in force.
    pub fn event(&self, config: &Config, in_force: &[Vec<InForce>]) -> Value {
        let directions = in_force.iter().enumerate().map(|(direction, stages)| {
            let stages = stages.iter().enumerate();
            let stages: Vec<&Value> = stages
                .map(|(stage, from)| self.stage(config, direction, stage, *from))
                .collect();
            let table = &config.directions[direction].table;
            json!({"name": table.name, "from": table.from, "to": table.to, "stages": stages})
        });
        json!({"event": "description", "directions": directions.collect::<Vec<_>>()})
    }
}
