//! Control of the emulator: configuration and commands on standard input, events on standard output, one JSON line
//! each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use cellbed_link::graph::table::{CellTable, UserTable};
use cellbed_link::language::{LanguageError, Reader};
use cellbed_link::{Duration, InForce, StageConfig, Time};
use cellbed_netdev::NetworkNamespace;
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{Config, Namespaces};
use crate::engine::{Engine, Request, Summary};
use crate::error::{Error, Result, Trying};
use crate::log::Records;
use crate::node::{Interface, Node};
use crate::probe::{Flow, probe};
use crate::process;
use crate::socket::{ControlSocket, SocketFile};
use crate::stamps::Stamps;
use crate::writer::{Lost, Pieces};

/// Maximum number of devices with time stamps of the kernel.
const MOST_STAMPED: usize = 16;

/// A command.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Command {
    /// Restart the schedules.
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
        /// Index of the stage in the direction, from 0.
        stage: usize,
        /// New table of the stage, in the configuration's format.
        to: Value,
    },
    /// Stop in an orderly way.
    Stop,
}

/// Input of the main thread.
enum Input {
    /// A line of the standard input.
    Line(String),
    /// A line from the control socket, and the sender for the answer.
    Asked(String, Sender<Value>),
    EngineFailed(Error),
}

/// Run an emulator over standard input and output until a command stops it; return the exit status.
///
/// Must be called while the process has one thread: only then can the process enter a user namespace. At the end of
/// standard input the process exits at once.
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
        let problem = "no configuration: standard input ended before the first line";
        return Err(Error::input(problem));
    }
    let config = Config::parse(&line)?;
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
        .map(Node::bring_up)
        .collect::<Result<_>>()?;
    // Wait after bringing all up: meanwhile the kernel finishes most of the work.
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
    let directions = config.directions.iter();
    let mut supervisor = Supervisor {
        changed: directions
            .map(|it| vec![Value::Null; it.table.stages.len()])
            .collect(),
        config,
        change_log,
        unrecorded: Lost::default(),
        nodes,
        inbox,
        requests,
        mailbox,
    };
    supervisor.stamp_packets()?;
    let file = control.map(|it| answer_clients(it, &inputs)).transpose()?;
    emit(&supervisor.ready(in_user_namespace))?;
    listen(input, inputs, file.clone())?;
    supervisor.handle_commands()
}

/// Forward lines from clients of the control socket to the main thread.
fn answer_clients(socket: ControlSocket, inputs: &Sender<Input>) -> Result<SocketFile> {
    let inputs = inputs.clone();
    socket.serve(move |line| {
        let (answer, answered) = channel();
        inputs.send(Input::Asked(line, answer)).ok()?;
        Some(format!("{}\n", answered.recv().ok()?))
    })
}

/// Read lines in a separate thread, to notice the end of the input at any time.
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
    /// Tables set by commands: the last one of each stage, by direction.
    changed: Vec<Vec<Value>>,
    change_log: Option<Pieces>,
    /// Changes missing in the log.
    unrecorded: Lost,
    nodes: Vec<Option<Node>>,
    inbox: Receiver<Input>,
    requests: Sender<Request>,
    mailbox: Arc<OwnedFd>,
}

impl Supervisor {
    /// Execute commands until one stops the emulator. Malformed commands of the control socket's clients are refused.
    fn handle_commands(&mut self) -> Result<()> {
        loop {
            let (line, client) = match self.inbox.recv() {
                Ok(Input::Line(line)) => (line, None),
                Ok(Input::Asked(line, client)) => (line, Some(client)),
                Ok(Input::EngineFailed(error)) => return Err(error),
                Err(_) => return Err(Error::thread_ended("command")),
            };
            let whose = if client.is_some() { " of a client" } else { "" };
            tracing::debug!("command{whose}: {}", line.trim_end());
            let command = serde_json::from_str(&line).map_err(|error| Error::command(&line, error));
            let Some(client) = client else {
                let command = command?;
                let ends = matches!(command, Command::Stop);
                emit(&self.execute(command)?)?;
                if ends {
                    return Ok(());
                }
                continue;
            };
            let answer = match command {
                Ok(Command::Start { .. } | Command::Probe { .. } | Command::Stop) => {
                    let problem =
                        "only the process that started the emulator may send this command";
                    refusal(Error::command(&line, problem))
                }
                Ok(command) => self.execute(command)?,
                Err(problem) => refusal(problem),
            };
            // The client may have gone.
            let _ = client.send(answer);
        }
    }

    /// Let the kernel stamp the packets of a few devices, in the background: each device takes 10 ms to begin with and
    /// 20 ms to end with.
    fn stamp_packets(&self) -> Result<()> {
        let tuns = self.nodes.iter().enumerate();
        let tuns =
            tuns.filter_map(|(vertex, node)| Some((vertex, Arc::clone(&node.as_ref()?.tun))));
        let tuns: Vec<_> = tuns.collect();
        if tuns.len() > MOST_STAMPED {
            return Ok(());
        }
        let (requests, mailbox) = (self.requests.clone(), Arc::clone(&self.mailbox));
        let work = move || {
            for (vertex, tun) in tuns {
                match Stamps::open(&tun) {
                    Ok(stamps) => {
                        let request = move |engine: &mut Engine| engine.stamp(vertex, stamps);
                        // The engine may have ended.
                        let _ = requests.send(Box::new(request));
                        let _ = rustix::io::write(&*mailbox, &1u64.to_ne_bytes());
                    }
                    Err(error) => tracing::info!("packets arrive when they are read: {error}"),
                }
            }
        };
        let thread = thread::Builder::new().name("stamps".into()).spawn(work);
        thread
            .map(drop)
            .trying(|| "start a thread".into())
            .map_err(Into::into)
    }

    /// Execute a command; return its event.
    fn execute(&mut self, command: Command) -> Result<Value> {
        match command {
            Command::Start { at_ns, offset_ns } => {
                let (zero, offset) = (Time::from_nanos(at_ns), Duration::from_nanos(offset_ns));
                self.request(move |engine| engine.restart(zero, offset))?;
                Ok(json!({"event": "started"}))
            }
            Command::Probe { flows } => {
                let namespaces: Vec<Option<&NetworkNamespace>> = self
                    .nodes
                    .iter()
                    .map(|node| node.as_ref()?.namespace.as_ref())
                    .collect();
                let in_flight = || Ok(self.request(Engine::status)?.in_flight);
                let flows = probe(&self.config, &namespaces, &flows, in_flight)?;
                Ok(json!({"event": "probed", "flows": flows}))
            }
            Command::Status => self.status(),
            Command::Describe => self.describe(),
            Command::Change {
                direction,
                stage,
                to,
            } => self.change(&direction, stage, to),
            Command::Stop => {
                let mut summary = self.request(Engine::finish)??;
                summary.lost.add(std::mem::take(&mut self.unrecorded));
                Ok(self.stopped_event(&summary))
            }
        }
    }

    /// Return the table of a stage. from: origin of the parameters in force.
    fn stage(&self, direction: usize, stage: usize, from: InForce) -> &Value {
        let table = &self.config.directions[direction].table;
        match from {
            InForce::Start => &table.stages[stage],
            InForce::Scheduled(change) => &table.changes[change].to,
            InForce::Called => &self.changed[direction][stage],
        }
    }

    fn describe(&self) -> Result<Value> {
        let in_force = self.request(Engine::describe)?;
        let directions = in_force.iter().enumerate().map(|(direction, stages)| {
            let stages = stages.iter().enumerate();
            let stages = stages.map(|(stage, from)| self.stage(direction, stage, *from));
            let stages: Vec<&Value> = stages.collect();
            let table = &self.config.directions[direction].table;
            json!({"name": table.name, "from": table.from, "to": table.to, "stages": stages})
        });
        Ok(json!({"event": "description", "directions": directions.collect::<Vec<_>>()}))
    }

    fn change(&mut self, name: &str, stage: usize, to: Value) -> Result<Value> {
        let (direction, config) = match self.resolve_change(name, &to) {
            Ok(change) => change,
            Err(problem) => return Ok(refusal(problem)),
        };
        match self.request(move |engine| engine.change(direction, stage, config))? {
            Err(problem) => Ok(refusal(format!("the direction {name:?}: {problem}"))),
            Ok((at, before)) => {
                let line = json!({
                    "time_ns": at.as_nanos(),
                    "direction": name,
                    "from": self.stage(direction, stage, before),
                    "to": to,
                });
                self.changed[direction][stage] = to;
                Ok(self.log_change(&line))
            }
        }
    }

    /// Append a change to the log, if there is one; return the answer to the command.
    fn log_change(&mut self, line: &Value) -> Value {
        let mut answer = json!({"event": "changed"});
        let (Some(log), Some(path)) = (&mut self.change_log, &self.config.change_log) else {
            return answer;
        };
        let appended = log.append(format!("{line}\n").as_bytes());
        if let Err(problem) = appended.trying(|| format!("write to {}", path.display())) {
            tracing::warn!("a change is missing in the log: {problem}");
            answer["unrecorded"] = problem.to_string().into();
            self.unrecorded.add(Lost {
                records: 1,
                problem: Some(problem.into()),
            });
        }
        answer
    }

    /// Return the number of the direction called `name`, and the stage configuration in `to`.
    fn resolve_change(&self, name: &str, to: &Value) -> Result<(usize, StageConfig)> {
        let directions = &self.config.directions;
        let names = directions.iter().map(|it| it.table.name.as_str());
        let direction = names.clone().position(|it| it == name).ok_or_else(|| {
            let all = names.take(20).collect::<Vec<_>>().join(", ");
            Error::Input(format!("there is no direction {name:?}; there are {all}"))
        })?;
        let config = Reader::new(|path: &Path| File::open(path)).stage(to.clone());
        let config = config.map_err(|error| match error {
            LanguageError::Table(fault) => Error::input(format!("configuration, {name}: {fault}")),
            file => Error::input(file),
        })?;
        Ok((direction, config))
    }

    /// Run `work` in the engine and return the result, or the engine's own error after a failure.
    fn request<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Engine) -> T + Send + 'static,
    ) -> Result<T> {
        let (reply, replies) = channel();
        let request = move |engine: &mut Engine| drop(reply.send(work(engine)));
        let sent = self.requests.send(Box::new(request));
        rustix::io::write(&*self.mailbox, &1u64.to_ne_bytes())
            .trying(|| "wake the engine".into())?;
        sent.ok().and_then(|()| replies.recv().ok()).ok_or_else(|| {
            let failure = self.inbox.iter().find_map(|input| match input {
                Input::EngineFailed(error) => Some(error),
                Input::Line(_) | Input::Asked(..) => None,
            });
            failure.unwrap_or(Error::thread_ended("engine"))
        })
    }

    /// Return the vertices with a device, by name.
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

    fn status(&self) -> Result<Value> {
        let status = self.request(Engine::status)?;
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

    /// Return the service time of each user of the cells.
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
        // A program in the node may have deleted the interface: no statistics then.
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
        })
    }
}

/// The answer to a refused command.
fn refusal(problem: impl ToString) -> Value {
    json!({"event": "refused", "message": problem.to_string()})
}
