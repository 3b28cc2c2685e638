//! The emulator's life: a configuration, then commands on standard input, events on standard output, one JSON line
//! each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use cellbed_link::graph::table::{CellTable, UserTable};
use cellbed_link::{Duration, StageConfig, Time};
use cellbed_netdev::NetworkNamespace;
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{Config, Namespaces};
use crate::description::Description;
use crate::engine::Engine;
use crate::error::{Error, Result, Trying};
use crate::log::Records;
use crate::node::{Interface, Node};
use crate::probe::{Flow, probe};
use crate::requests::{Changed, Request, Status, Summary};
use crate::socket::{ControlSocket, SocketFile, malformed_command};
use crate::writer::{Lost, Pieces};
use crate::{process, stages};

/// A command.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Command {
    /// Begin the schedules anew.
    Start {
        /// Time zero, `CLOCK_MONOTONIC` ns.
        at_ns: u64,
        /// Added to the offsets of the traces, ns.
        #[serde(default)]
        offset_ns: u64,
    },
    /// Measure links with real datagrams.
    Probe { flows: Vec<Flow> },
    /// Report the counters.
    Status,
    /// Report the current stages of the directions.
    Describe,
    /// Change a stage at once.
    Change {
        /// Name of the direction.
        direction: String,
        /// Number of the stage in it, from 0.
        stage: usize,
        /// New configuration, in the configuration's format.
        to: Value,
    },
    /// End in good order.
    Stop,
}

/// Input of the main thread.
enum Input {
    /// A line of the standard input.
    Line(String),
    /// A line that came over the control socket, and where the answer goes.
    Asked(String, Sender<Value>),
    EngineFailed(Error),
}

/// Runs an emulator over standard input and output until a command stops it; the exit status of the process.
///
/// Must be called while the process has one thread, because only then can it enter a user namespace. When standard
/// input ends the process exits at once.
pub fn emulate() -> i32 {
    cellbed_netdev::print_diagnostics();
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            tracing::error!("the emulator ends: {error}");
            // The reader may have ended.
            let _ = emit(&json!({"event": "error", "message": error.to_string()}));
            1
        }
    }
}

fn serve() -> Result<()> {
    process::prepare_process()?;
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    if input
        .read_line(&mut line)
        .trying(|| "read the configuration from standard input".into())?
        == 0
    {
        return Err(Error::NoConfiguration);
    }
    let config = Config::parse(&line)?;
    let description = Description::new(&config);
    let graph = config.build(|path| File::open(path))?;
    let control = config.control.as_deref().map(ControlSocket::bind);
    let control = control.transpose()?;

    let creates = config.vertices.iter().any(|it| it.namespace.is_some());
    let in_user_namespace =
        creates && (config.namespaces == Namespaces::User || !cellbed_netdev::is_privileged());
    if in_user_namespace {
        tracing::info!("the nodes are in a user namespace: {:?}", config.namespaces);
        cellbed_netdev::enter_user_namespace()?;
    }

    let records = Records::create(&config, &graph.directions)?;
    let change_log = config.change_log.as_deref().map(Pieces::create);
    let change_log = change_log.transpose()?;
    let nodes: Vec<Option<Node>> = config
        .vertices
        .iter()
        .map(|vertex| Node::bring_up(vertex, config.offload))
        .collect::<Result<_>>()?;
    // After all are up: meanwhile the kernel has had time for most of it.
    for node in nodes.iter().flatten() {
        node.wait_until_reachable()?;
    }
    let tuns = nodes
        .iter()
        .map(|node| node.as_ref().map(|node| Arc::clone(&node.tun)))
        .collect();

    let (inputs, inbox) = channel();
    let (requests, request_inbox) = channel();
    let mailbox = Arc::new(
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .trying(|| "create a mailbox".into())?,
    );
    let engine = Engine::new(
        &config,
        graph,
        tuns,
        records,
        request_inbox,
        Arc::clone(&mailbox),
    )?;
    let failures = inputs.clone();
    thread::Builder::new()
        .name("engine".into())
        .spawn(move || {
            let failed = |error| failures.send(Input::EngineFailed(error));
            match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.run())) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => drop(failed(error)),
                Err(_) => drop(failed(Error::thread_ended("engine"))),
            }
        })
        .trying(|| "start the engine's thread".into())?;
    let mut supervisor = Supervisor {
        config,
        description,
        change_log,
        unrecorded: Lost::default(),
        nodes,
        requests,
        mailbox,
    };
    let file = control.map(|it| answer_clients(it, &inputs)).transpose()?;
    emit(&supervisor.ready(in_user_namespace))?;
    listen(input, inputs, file.clone())?;
    supervisor.handle_commands(&inbox)
}

/// Hands the lines of the control socket's clients to the main thread.
fn answer_clients(socket: ControlSocket, inputs: &Sender<Input>) -> Result<SocketFile> {
    let inputs = inputs.clone();
    socket.serve(move |line| {
        let (answer, answered) = channel();
        inputs.send(Input::Asked(line, answer)).ok()?;
        Some(format!("{}\n", answered.recv().ok()?))
    })
}

/// Reads lines in a separate thread, because the end of the input must be noticed at any time.
fn listen(
    input: impl Read + Send + 'static,
    lines: Sender<Input>,
    file: Option<SocketFile>,
) -> Result<()> {
    let mut input = BufReader::new(input);
    let listen = move || {
        loop {
            let mut line = String::new();
            match input.read_line(&mut line) {
                Ok(0) | Err(_) => {
                    drop(file);
                    process::exit_now(0)
                }
                Ok(_) => drop(lines.send(Input::Line(line))),
            }
        }
    };
    thread::Builder::new()
        .name("commands".into())
        .spawn(listen)
        .trying(|| "start the command thread".into())?;
    Ok(())
}

fn emit(event: &Value) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let written = writeln!(output, "{event}").and_then(|()| output.flush());
    Ok(written.trying(|| "write an event to standard output".into())?)
}

struct Supervisor {
    config: Config,
    description: Description,
    change_log: Option<Pieces>,
    /// Changes that are missing in the log.
    unrecorded: Lost,
    nodes: Vec<Option<Node>>,
    requests: Sender<Request>,
    mailbox: Arc<OwnedFd>,
}

impl Supervisor {
    fn handle_commands(&mut self, inbox: &Receiver<Input>) -> Result<()> {
        loop {
            let line = match inbox.recv() {
                Ok(Input::Line(line)) => line,
                Ok(Input::Asked(line, answer)) => {
                    // The client may have gone.
                    let _ = answer.send(self.answer(&line, inbox)?);
                    continue;
                }
                Ok(Input::EngineFailed(error)) => return Err(error),
                Err(_) => return Err(Error::thread_ended("command")),
            };
            tracing::debug!("command: {}", line.trim_end());
            let command =
                serde_json::from_str(&line).map_err(|error| malformed_command(&line, error))?;
            match command {
                Command::Start { at_ns, offset_ns } => {
                    let (zero, offset) = (Time::from_nanos(at_ns), Duration::from_nanos(offset_ns));
                    self.request(inbox, |done| Request::Restart { zero, offset, done })?;
                    emit(&json!({"event": "started"}))?;
                }
                Command::Probe { flows } => {
                    let namespaces: Vec<Option<&NetworkNamespace>> = self
                        .nodes
                        .iter()
                        .map(|node| node.as_ref()?.namespace.as_ref())
                        .collect();
                    let in_flight = || Ok(self.request(inbox, Request::Status)?.in_flight);
                    let flows = probe(&self.config, &namespaces, &flows, in_flight)?;
                    emit(&json!({"event": "probed", "flows": flows}))?;
                }
                Command::Stop => {
                    let mut summary = self.request(inbox, Request::Stop)??;
                    summary.lost.add(std::mem::take(&mut self.unrecorded));
                    return emit(&self.stopped_event(&summary));
                }
                Command::Status => emit(&self.status(inbox)?)?,
                Command::Describe => emit(&self.describe(inbox)?)?,
                Command::Change {
                    direction,
                    stage,
                    to,
                } => emit(&self.change(&direction, stage, to, inbox)?)?,
            }
        }
    }

    /// Executes the command of a client of the control socket. Errors: those that the engine reports.
    fn answer(&mut self, line: &str, inbox: &Receiver<Input>) -> Result<Value> {
        tracing::debug!("command of a client: {}", line.trim_end());
        match serde_json::from_str(line) {
            Ok(Command::Status) => self.status(inbox),
            Ok(Command::Describe) => self.describe(inbox),
            Ok(Command::Change {
                direction,
                stage,
                to,
            }) => self.change(&direction, stage, to, inbox),
            Ok(Command::Start { .. } | Command::Probe { .. } | Command::Stop) => {
                let problem = "only the process that started the emulator may send this command";
                Ok(refusal(malformed_command(line, problem)))
            }
            Err(error) => Ok(refusal(malformed_command(line, error))),
        }
    }

    fn describe(&self, inbox: &Receiver<Input>) -> Result<Value> {
        let in_force = self.request(inbox, Request::Describe)?;
        Ok(self.description.event(&self.config, &in_force))
    }

    fn change(
        &mut self,
        name: &str,
        stage: usize,
        to: Value,
        inbox: &Receiver<Input>,
    ) -> Result<Value> {
        let (direction, config) = match self.resolve_change(name, &to) {
            Ok(change) => change,
            Err(problem) => return Ok(refusal(problem)),
        };
        let request = |reply| Request::Change {
            direction,
            stage,
            to: Box::new(config),
            reply,
        };
        match self.request(inbox, request)? {
            Err(problem) => Ok(refusal(format!("the direction {name:?}: {problem}"))),
            Ok(changed) => Ok(self.note(direction, stage, changed, to)),
        }
    }

    /// Appends a change to the log, if there is one; the answer to the command.
    fn note(&mut self, direction: usize, stage: usize, changed: Changed, to: Value) -> Value {
        let line = json!({
            "time_ns": changed.at.as_nanos(),
            "direction": self.config.directions[direction].table.name,
            "from": self.description.stage(&self.config, direction, stage, changed.before),
            "to": to,
        });
        self.description.record_change(direction, stage, to);
        let Some(log) = &mut self.change_log else {
            return json!({"event": "changed"});
        };
        let path = || self.config.change_log.as_deref().unwrap_or("".as_ref());
        let appended = log.append(format!("{line}\n").as_bytes());
        match appended.trying(|| format!("write to {}", path().display())) {
            Ok(()) => json!({"event": "changed"}),
            Err(problem) => {
                tracing::warn!("a change is missing in the log: {problem}");
                let answer = json!({"event": "changed", "unrecorded": problem.to_string()});
                self.unrecorded.add(Lost {
                    records: 1,
                    problem: Some(problem.into()),
                });
                answer
            }
        }
    }

    /// The number of the direction called `name`, and what `to` means there.
    fn resolve_change(&self, name: &str, to: &Value) -> Result<(usize, StageConfig), String> {
        let mut names = self
            .config
            .directions
            .iter()
            .map(|it| it.table.name.as_str());
        let direction = names.clone().position(|it| it == name).ok_or_else(|| {
            let all = names.by_ref().take(20).collect::<Vec<_>>().join(", ");
            format!("there is no direction {name:?}; there are {all}")
        })?;
        let config = stages::one(to.clone(), name).map_err(|error| error.to_string())?;
        Ok((direction, config))
    }

    /// Send a request to the engine and return its reply, or the engine's own error if it has failed.
    fn request<T>(
        &self,
        inbox: &Receiver<Input>,
        request: impl FnOnce(Sender<T>) -> Request,
    ) -> Result<T> {
        let (reply, replies) = channel();
        let sent = self.requests.send(request(reply));
        rustix::io::write(&*self.mailbox, &1u64.to_ne_bytes())
            .trying(|| "wake the engine".into())?;
        sent.ok().and_then(|()| replies.recv().ok()).ok_or_else(|| {
            let failure = inbox.iter().find_map(|input| match input {
                Input::EngineFailed(error) => Some(error),
                Input::Line(_) | Input::Asked(..) => None,
            });
            failure.unwrap_or(Error::thread_ended("engine"))
        })
    }

    /// Vertices that have a device, by name.
    fn devices(&self) -> impl Iterator<Item = (&str, &Node)> {
        let named = self.config.vertices.iter().zip(&self.nodes);
        named.filter_map(|(vertex, node)| Some((vertex.name.as_str(), node.as_ref()?)))
    }

    fn ready(&self, in_user_namespace: bool) -> Value {
        let pid = std::process::id();
        let nodes: BTreeMap<&str, Value> = self
            .devices()
            .map(|(name, node)| {
                (
                    name,
                    json!({"namespace": node.namespace.as_ref().map(NetworkNamespace::path), "interface": node.tun.name()}),
                )
            })
            .collect();
        let user_namespace = in_user_namespace.then(|| format!("/proc/{pid}/ns/user"));
        json!({"event": "ready", "pid": pid, "user_namespace": user_namespace, "nodes": nodes})
    }

    fn status(&self, inbox: &Receiver<Input>) -> Result<Value> {
        let status: Status = self.request(inbox, Request::Status)?;
        let directions = self.config.directions.iter().zip(&status.directions);
        let directions = directions.map(|(config, it)| it.to_json(&config.table.name));
        let directions: Vec<Value> = directions.collect();
        let devices = self.devices().filter_map(|(_, node)| node.counters().ok());
        Ok(json!({
            "event": "status",
            "time_ns": status.time.as_nanos(),
            "directions": directions,
            "cells": self.cells(&status.served),
            "unroutable": status.unroutable,
            "refused": status.refused,
            "device_drops": devices.map(|it| it.dropped).sum::<u64>(),
        }))
    }

    /// Return the time that each user of the cells has been served.
    fn cells(&self, served: &[Vec<Duration>]) -> Value {
        let cells = self.config.cells.iter().zip(served);
        let cell = |(cell, served): (&CellTable, &Vec<Duration>)| {
            let users = cell.users.iter().zip(served);
            let user = |(user, served): (&UserTable, &Duration)| json!({"direction": user.direction, "served_ns": served.as_nanos()});
            json!({"name": cell.name, "users": users.map(user).collect::<Vec<_>>()})
        };
        cells.map(cell).collect()
    }

    fn stopped_event(&self, summary: &Summary) -> Value {
        // Nothing is known of an interface that a program in its node has deleted.
        let interfaces: BTreeMap<&str, Option<Interface>> = self
            .devices()
            .map(|(name, node)| (name, node.counters().ok()))
            .collect();
        let lateness = &summary.lateness;
        json!({
            "event": "stopped",
            "interfaces": interfaces,
            "cells": self.cells(&summary.served),
            "lateness_ns": {"p50": lateness.quantile(0.5), "p99": lateness.quantile(0.99), "max": lateness.max()},
            "packets": summary.packets,
            "refused": summary.refused,
            "records_lost": summary.lost.records,
            "records_problem": summary.lost.problem.as_ref().map(Error::to_string),
            "scheduling": summary.scheduling,
        })
    }
}

/// The answer to a refused command.
fn refusal(problem: impl ToString) -> Value {
    json!({"event": "refused", "message": problem.to_string()})
}
