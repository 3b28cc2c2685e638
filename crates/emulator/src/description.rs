//! The stages of all directions in the words in which they were told.

use cellbed_link::InForce;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result, one_line};

/// What was told of the directions, and what was changed since.
#[derive(Debug, Deserialize)]
pub struct Description {
    directions: Vec<Told>,
}

/// A direction as the configuration has it.
#[derive(Debug, Deserialize)]
struct Told {
    name: Value,
    from: Value,
    to: Value,
    stages: Vec<Value>,
    #[serde(default)]
    changes: Vec<Change>,
    /// By stage, what a command asked for last.
    #[serde(skip)]
    asked: Vec<Value>,
}

#[derive(Debug, Deserialize)]
struct Change {
    to: Value,
}

impl Told {
    fn stage(&self, stage: usize, from: InForce) -> &Value {
        match from {
            InForce::Start => &self.stages[stage],
            InForce::Scheduled(change) => &self.changes[change].to,
            InForce::Called => &self.asked[stage],
        }
    }
}

impl Description {
    /// Reads a configuration line that was found good.
    pub fn read(line: &str) -> Result<Self> {
        let mut told: Self = serde_json::from_str(line)
            .map_err(|error| Error::ConfigurationSyntax(one_line(&error)))?;
        for direction in &mut told.directions {
            direction.asked = vec![Value::Null; direction.stages.len()];
        }
        Ok(told)
    }

    /// A command has changed a stage.
    pub fn changed(&mut self, direction: usize, stage: usize, to: Value) {
        self.directions[direction].asked[stage] = to;
    }

    /// A stage of a direction whose parameters come from there.
    pub fn stage(&self, direction: usize, stage: usize, from: InForce) -> &Value {
        self.directions[direction].stage(stage, from)
    }

    /// Tells every stage as it is in force.
    pub fn tell(&self, in_force: &[Vec<InForce>]) -> Value {
        let directions = self.directions.iter().zip(in_force).map(|(told, stages)| {
            let stages = stages.iter().enumerate();
            let stages: Vec<&Value> = stages
                .map(|(stage, from)| told.stage(stage, *from))
                .collect();
            json!({"name": told.name, "from": told.from, "to": told.to, "stages": stages})
        });
        json!({"event": "description", "directions": directions.collect::<Vec<_>>()})
    }
}
