//! The network of a shell: device, addresses, translation and forwarding, for a caller without the rights to set them
//! up.
//!
//! [`run`] executes one request with the capabilities of the process. The binary `cellbed-net` has capabilities from
//! its file and serves users authorized by an administrator. `cellbed` calls the same code if the caller is already
//! privileged, as root or in a user namespace. All objects of `serve` are named after the caller's user id and process.
//! They are removed when the caller closes the socket; the next call removes the remains of a killed helper.
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

/// Execute the request in `arguments` (without the program's name) and return the exit status.
///
/// `serve` reports errors on the socket at standard input, `enter` on a descriptor of the caller. Other errors go to
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
