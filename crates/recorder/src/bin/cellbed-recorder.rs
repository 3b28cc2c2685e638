//! The recorder as one program, without Python.
#![forbid(unsafe_code)]

use std::process::exit;

fn main() {
    exit(cellbed_recorder::command::run(std::env::args_os().skip(1)));
}
