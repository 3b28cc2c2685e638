//! The command lines `cellbed-recorder`, and `cellbed record` of the Python package. Only the first words differ.

mod arguments;
mod progress;
mod record;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use cellbed_calibration::calibration::Calibrator;
use cellbed_link::Seed;
use clap::{CommandFactory, FromArgMatches};
use serde_json::json;

use crate::error::{Error, Result};
use crate::record::Recorder;
use crate::recording::pack;
use crate::secure::Secret;
use crate::server::{Limits, Serving, Statistics};
use crate::socket::{Interrupts, Local};
use arguments::{Calibrate, Cellbed, Pack, Reach, Serve, Standalone, Verb};

/// Run `cellbed-recorder` with these arguments, without the program's name. Return the exit status: 0 done, 1 error,
/// 2 invalid arguments, 130 interrupted before anything was recorded.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let parsed = parse::<Standalone>("cellbed-recorder", arguments);
    execute(parsed.map(|parsed| parsed.verb))
}

/// Run `cellbed record`. Arguments: a verb of `cellbed-recorder` and its arguments, or the arguments of `record`
/// alone. See [`run`].
pub fn run_of_cellbed(arguments: impl IntoIterator<Item = OsString>) -> i32 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut verbs = Standalone::command();
    verbs.build();
    let names_a_verb = arguments
        .first()
        .is_some_and(|first| verbs.find_subcommand(first).is_some());
    execute(if names_a_verb {
        parse::<Standalone>("cellbed record", arguments).map(|parsed| parsed.verb)
    } else {
        parse::<Cellbed>("cellbed record", arguments)
            .map(|parsed| Verb::Record(Box::new(parsed.record)))
    })
}

fn parse<Arguments: CommandFactory + FromArgMatches>(
    program: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<Arguments, i32> {
    let command = in_style(Arguments::command().bin_name(program).name(program));
    let all = std::iter::once(program.into()).chain(arguments);
    let parsed = command
        .try_get_matches_from(all)
        .and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.map_err(|error| {
        // Ignore a closed output.
        let _ = error.print();
        error.exit_code()
    })
}

/// Format help like the other commands of cellbed: usage, description with examples, then one option per line.
fn in_style(command: clap::Command) -> clap::Command {
    let help = clap::Arg::new("help")
        .short('h')
        .long("help")
        .action(clap::ArgAction::HelpShort)
        .help("Show this message and exit");
    command
        .disable_help_flag(true)
        .next_help_heading(None)
        .arg(help)
        .help_template("{usage-heading} {usage}\n\n{tab}{about}{after-help}\n\n{all-args}")
        .mut_subcommands(in_style)
}

fn dispatch(verb: Verb) -> Result<()> {
    cellbed_netdev::print_diagnostics();
    match verb {
        Verb::Record(arguments) => record::record(&arguments),
        Verb::Calibrate(arguments) => calibrate(&arguments),
        Verb::Serve(arguments) => serve(&arguments),
        Verb::Pack(Pack { folder, json }) => {
            let packed = pack(&folder)?;
            progress::Output::new(json, false).packed(&folder, &packed);
            Ok(())
        }
        Verb::Secret { file } => {
            Secret::generate()?.write(&file)?;
            say(&format!(
                "{}: a new secret; copy it to the other end, over a safe way",
                file.display()
            ));
            Ok(())
        }
    }
}

/// Print the calibration of a network as JSON.
fn calibrate(arguments: &Calibrate) -> Result<()> {
    let Reach {
        server,
        secret,
        interface,
        json,
        quiet,
    } = arguments.reach.clone();
    let mut output = progress::Output::new(json, quiet);
    let mut recorder = Recorder::connect(record::access(&server, &secret, interface)?)?;
    let calibrator = Calibrator::new(Seed(arguments.seed));
    let found = recorder.calibrate(calibrator, &mut |notice| output.notice(&notice))?;
    say(&serde_json::to_string(&found).unwrap_or_default());
    Ok(())
}

/// Serve until interrupted.
fn serve(arguments: &Serve) -> Result<()> {
    let interrupts = Interrupts::catch();
    let secret = Secret::read(&arguments.secret)?;
    let local = Local {
        address: arguments.listen,
        interface: arguments.interface.clone(),
    };
    let mut serving = Serving::bind(&local, &secret, limits(arguments))?;
    let local = serving.local();
    if arguments.json {
        say_event("listening", json!({"address": local.to_string()}));
    } else {
        say(&format!(
            "listening on {local} (UDP and TCP); stop with Ctrl-C"
        ));
    }
    let mut printed = None;
    let last = serving.run(
        |statistics| {
            // Unchanged counters are not printed.
            if printed.replace(statistics.counters) != Some(statistics.counters) {
                print(statistics, arguments.json);
            }
        },
        || interrupts.count() > 0,
    )?;
    print(&last, arguments.json);
    Ok(())
}

fn limits(arguments: &Serve) -> Limits {
    let usual = Limits::default();
    Limits {
        rate: arguments.rate.unwrap_or(usual.rate),
        total_rate: arguments.total_rate.unwrap_or(usual.total_rate),
        bytes: arguments.bytes.unwrap_or(usual.bytes),
        duration: arguments.duration.unwrap_or(usual.duration),
        sessions: arguments.sessions.unwrap_or(usual.sessions),
        ..usual
    }
}

fn print(statistics: &Statistics, as_json: bool) {
    match as_json {
        true => say_event("statistics", statistics),
        false => say(&statistics.to_string()),
    }
}

/// Execute a command, or pass on the exit status of invalid arguments. Return the exit status.
fn execute(verb: Result<Verb, i32>) -> i32 {
    let error = match verb.map(dispatch) {
        Err(status) => return status,
        Ok(Ok(())) => return 0,
        Ok(Err(Error::Interrupted)) => return 130,
        Ok(Err(error)) => error,
    };
    let (on, off) = match std::io::stderr().is_terminal() {
        true => ("\x1b[31m", "\x1b[0m"),
        false => ("", ""),
    };
    eprintln!("{on}error:{off} {error}");
    match error {
        Error::Usage(_) => 2,
        _ => 1,
    }
}

/// Print a line of JSON: an event and its properties.
fn say_event(name: &str, properties: impl serde::Serialize) {
    let mut event = serde_json::to_value(properties).unwrap_or_default();
    event["event"] = name.into();
    say(&event.to_string());
}

/// Print a line for the user; a closed output is ignored.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
