//! The emulator's life: a configuration, then commands on standard input, events on standard output, one JSON line each.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use cellbed_link::{Duration, Time};
use rustix::event::{EventfdFlags, eventfd};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::config::{Config, Namespaces};
use crate::engine::Engine;
use crate::error::{Error, Result, Trying};
use crate::namespace::{self, NetworkNamespace};
use crate::node::{Interface, Node};
use crate::orders::{Account, Order, Status};
use crate::probe::{Flow, probe};
use crate::writer::Records;
use crate::{process, stages};

/// A command.
#[derive(Debug, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
enum Command {
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
    /// Tell the counters.
    Status,
    /// End in good order.
    Stop,
}

/// What the main thread waits for.
enum Input {
    Line(String),
    EngineFailed(Error),
}

/// Runs an emulator over standard input and output until it is told to stop; the exit status of the process.
///
/// Must be called while the process has one thread, because only then can it enter a user namespace. When standard
/// input ends the process exits at once.
pub fn emulate() -> i32 {
    match serve() {
        Ok(()) => 0,
        Err(error) => {
            // Nobody may be there to read it any more.
            let _ = emit(&json!({"event": "error", "message": error.to_string()}));
            1
        }
    }
}

fn serve() -> Result<()> {
    process::settle()?;
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
    let stages = stages::build(&config)?;

    let in_user_namespace = config.namespaces == Namespaces::User || !namespace::is_privileged();
    if in_user_namespace {
        namespace::enter_user_namespace()?;
    }

    let records = Records::create(&config)?;
    let nodes: Vec<Option<Node>> = config
        .vertices
        .iter()
        .map(|vertex| Node::bring_up(vertex, config.offload))
        .collect::<Result<_>>()?;
    let tuns = nodes
        .iter()
        .map(|node| node.as_ref().map(|node| Arc::clone(&node.tun)))
        .collect();

    let (inputs, inbox) = channel();
    let (orders, order_inbox) = channel();
    let mailbox = Arc::new(
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .trying(|| "create a mailbox".into())?,
    );
    let engine = Engine::new(
        &config,
        stages,
        tuns,
        records,
        order_inbox,
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
                Err(_) => drop(failed(Error::ThreadEnded { thread: "engine" })),
            }
        })
        .trying(|| "start the engine's thread".into())?;
    let supervisor = Supervisor {
        config,
        nodes,
        orders,
        mailbox,
    };
    emit(&supervisor.ready(in_user_namespace))?;
    listen(input, inputs)?;
    supervisor.obey(&inbox)
}

/// Reads lines in a thread of its own, because the end of the input must be noticed whatever else goes on.
fn listen(input: impl Read + Send + 'static, lines: Sender<Input>) -> Result<()> {
    let mut input = BufReader::new(input);
    let listen = move || {
        loop {
            let mut line = String::new();
            match input.read_line(&mut line) {
                Ok(0) | Err(_) => process::exit_now(0),
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
    written.trying(|| "write an event to standard output".into())
}

struct Supervisor {
    config: Config,
    nodes: Vec<Option<Node>>,
    orders: Sender<Order>,
    mailbox: Arc<OwnedFd>,
}

impl Supervisor {
    fn obey(&self, inbox: &Receiver<Input>) -> Result<()> {
        loop {
            let line = match inbox.recv() {
                Ok(Input::Line(line)) => line,
                Ok(Input::EngineFailed(error)) => return Err(error),
                Err(_) => return Err(Error::ThreadEnded { thread: "command" }),
            };
            let command = serde_json::from_str(&line).map_err(|error| Error::Command {
                line: line.trim().chars().take(80).collect(),
                problem: error.to_string(),
            })?;
            match command {
                Command::Start { at_ns, offset_ns } => {
                    let (zero, offset) = (Time::from_nanos(at_ns), Duration::from_nanos(offset_ns));
                    self.order(inbox, |done| Order::Restart { zero, offset, done })?;
                    emit(&json!({"event": "started"}))?;
                }
                Command::Probe { flows } => {
                    let namespaces: Vec<Option<&NetworkNamespace>> = self
                        .nodes
                        .iter()
                        .map(|node| node.as_ref().map(|node| &node.namespace))
                        .collect();
                    emit(
                        &json!({"event": "probed", "flows": probe(&self.config, &namespaces, &flows)?}),
                    )?;
                }
                Command::Status => emit(&self.status(&self.order(inbox, Order::Status)?))?,
                Command::Stop => {
                    let account = self.order(inbox, Order::Stop)??;
                    return emit(&self.stopped(&account));
                }
            }
        }
    }

    /// Gives the engine an order and waits for its answer; the engine's own error if it has failed.
    fn order<T>(
        &self,
        inbox: &Receiver<Input>,
        order: impl FnOnce(Sender<T>) -> Order,
    ) -> Result<T> {
        let (answer, answered) = channel();
        let sent = self.orders.send(order(answer));
        rustix::io::write(&*self.mailbox, &1u64.to_ne_bytes())
            .trying(|| "wake the engine".into())?;
        sent.ok()
            .and_then(|()| answered.recv().ok())
            .ok_or_else(|| {
                let failure = inbox.iter().find_map(|input| match input {
                    Input::EngineFailed(error) => Some(error),
                    Input::Line(_) => None,
                });
                failure.unwrap_or(Error::ThreadEnded { thread: "engine" })
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
                    json!({"namespace": node.namespace.path(), "interface": node.tun.name()}),
                )
            })
            .collect();
        let user_namespace = in_user_namespace.then(|| format!("/proc/{pid}/ns/user"));
        json!({"event": "ready", "pid": pid, "user_namespace": user_namespace, "nodes": nodes})
    }

    fn status(&self, status: &Status) -> Value {
        let directions: Vec<Value> = self
            .config
            .directions
            .iter()
            .zip(&status.directions)
            .map(|(way, it)| {
                json!({
                    "name": way.name,
                    "delivered": it.delivered,
                    "dropped": {"queue-full": it.queue_full, "loss": it.lost},
                    "queue_bytes": it.queue_bytes,
                })
            })
            .collect();
        json!({"event": "status", "directions": directions, "unroutable": status.unroutable})
    }

    fn stopped(&self, account: &Account) -> Value {
        // Nothing is known of an interface that a program in its node has deleted.
        let interfaces: BTreeMap<&str, Option<Interface>> = self
            .devices()
            .map(|(name, node)| (name, node.counters().ok()))
            .collect();
        let lateness = &account.lateness;
        json!({
            "event": "stopped",
            "interfaces": interfaces,
            "lateness_ns": {"p50": lateness.quantile(0.5), "p99": lateness.quantile(0.99), "max": lateness.max()},
            "packets": account.packets,
            "refused": account.refused,
            "records_lost": account.records_lost,
            "scheduling": account.scheduling,
        })
    }
}
