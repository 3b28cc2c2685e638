//! The recorder, which `cellbed record` becomes, and which also runs without Python.
#![forbid(unsafe_code)]

use std::process::exit;

use cellbed_recorder::command;

fn main() {
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    exit(match name.is_some_and(|name| name == "cellbed record") {
        true => command::run_of_cellbed(arguments),
        false => command::run(arguments),
    });
}
