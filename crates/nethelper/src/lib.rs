//! The network of a shell: a device, its addresses, translation and forwarding for a caller without the rights to set
//! them up.
//!
//! [`run`] executes one request with the capabilities of the process. The binary `cellbed-net` gets them from its
//! file and serves the users whom an administrator has granted it; `cellbed` calls the same code where the caller is
//! privileged already, as root or in a user namespace. All objects of `serve` are named after the caller's user id and
//! process, and are removed when the caller's end of the socket closes; the next call removes the remains of a killed
//! helper.
#![forbid(unsafe_code)]

mod addresses;
mod enter;
mod error;
mod forwarding;
mod nft;
mod request;
mod rules;
mod serve;

use std::ffi::OsString;
use std::process::ExitCode;

use request::Request;

/// Executes the request in `arguments` (without the program's name) and returns the exit status.
///
/// Errors are reported on the socket at standard input by `serve`, on a descriptor of the caller by `enter`, else on
/// standard error.
pub fn run(arguments: &[OsString]) -> ExitCode {
    cellbed_netdev::print_diagnostics();
    let result = match Request::parse(arguments) {
        Ok(Request::Serve(request)) => return serve::serve(&request),
        Ok(Request::Enter(request)) => return enter::enter(&request),
        Ok(Request::Clean) => forwarding::clean(),
        Err(error) => Err(error),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cellbed-net: {error}");
            ExitCode::from(error.status())
        }
    }
}
